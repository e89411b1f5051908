//! The words that stand for the variants of enumerations: in JSON, in files and on the screen.

/// Defines an enumeration with the word of each variant, a function that returns this word, and
/// `WORDS`, which has all of them.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $type:ident {
            $(
                $(#[$doc:meta])*
                $variant:ident $(($($items:tt)*))? $({$($fields:tt)*})? = $word:expr,
            )+
        }
        $(#[$says:meta])*
        $function:ident($(&$by_reference:ident)? $($by_value:ident)?)
    ) => {
        $(#[$about])*
        pub enum $type {
            $($(#[$doc])* $variant $(($($items)*))? $({$($fields)*})?,)+
        }

        impl $type {
            /// All words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            $(#[$says])*
            #[must_use]
            pub const fn $function($(&$by_reference)? $($by_value)?) -> &'static str {
                match $($by_reference)? $($by_value)? {
                    $(Self::$variant { .. } => $word,)+
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
