//! The words that stand for the variants of enumerations: in JSON, in files and on the screen.

/// Defines a function that returns the word of a variant, and `WORDS`, which has all of them.
macro_rules! words {
    (
        $(#[$about:meta])*
        $type:ident::$function:ident(self) { $($variant:pat => $word:expr,)+ }
    ) => {
        impl $type {
            /// All words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            $(#[$about])*
            #[must_use]
            pub const fn $function(self) -> &'static str {
                match self {
                    $($variant => $word,)+
                }
            }
        }
    };
    (
        $(#[$about:meta])*
        $type:ident::$function:ident(&self) { $($variant:pat => $word:expr,)+ }
    ) => {
        impl $type {
            /// All words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            $(#[$about])*
            #[must_use]
            pub const fn $function(&self) -> &'static str {
                match self {
                    $($variant => $word,)+
                }
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::guard::{GuardMode, MilderPolicy};
    use crate::model::NetworkRole;

    #[test]
    fn words_are_those_of_the_variants() {
        let modes = [
            GuardMode::Disabled,
            GuardMode::DryRun,
            GuardMode::Soft,
            GuardMode::Enforce,
        ];
        assert_eq!(modes.map(GuardMode::name), GuardMode::WORDS);
        let roles = [
            NetworkRole::Private,
            NetworkRole::Service(vec![80]),
            NetworkRole::Notebook(Vec::new()),
        ];
        assert_eq!(roles.each_ref().map(NetworkRole::name), NetworkRole::WORDS);
        assert_eq!(MilderPolicy::WORDS, ["warn", "dry-run"]);
    }
}
