//! The keys of a table. Each key is defined in one place.

use super::value_reader::ValueReader;

/// One key.
pub struct Field<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// Its value in the printed reference.
    pub reference_value: ReferenceValue,
    /// Its help in the printed reference, of one or more lines.
    pub help: &'static str,
    /// Checks a value and stores it.
    pub set: fn(&mut T, &mut ValueReader<'_, '_>),
}

/// Defines keys: each has its name, its value in the printed reference, its help and its setter.
macro_rules! fields {
    (
        $(#[$about:meta])*
        $visibility:vis const $keys:ident: $target:ty;
        $($name:ident = $kind:ident($shown:literal), $help:expr, $set:expr;)+
    ) => {
        $(#[$about])*
        $visibility const $keys: &[$crate::guard::rules::parse::field::Field<$target>] = &[$(
            $crate::guard::rules::parse::field::Field {
                name: stringify!($name),
                reference_value: $crate::guard::rules::parse::field::ReferenceValue::$kind($shown),
                help: $help,
                set: $set,
            },
        )+];
    };
}

pub(super) use fields;

/// The value of a key in the printed reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceValue {
    /// Its default.
    Default(&'static str),
    /// An example, printed as a comment: the key has no default.
    Example(&'static str),
}

/// A set of keys that one table or several tables have.
pub trait KeySet<T> {
    /// Sets the key, if it is one of these. Returns whether it is.
    fn set(&self, target: &mut T, name: &str, at: &mut ValueReader<'_, '_>) -> bool;

    /// The names of the keys in this table.
    fn names(&self) -> Vec<String>;

    /// The name, the value in the reference, and the help of each key.
    fn documented_keys(&self) -> Vec<(String, ReferenceValue, &'static str)>;
}

/// All keys of a table.
pub type TableKeys<T> = &'static [&'static dyn KeySet<T>];

/// The names of all keys of a table.
pub fn names<T>(keys: TableKeys<T>) -> Vec<String> {
    keys.iter().flat_map(|part| part.names()).collect()
}

/// Keys of a part of a `T`.
pub struct KeyGroup<T: 'static, U: 'static> {
    /// The prefix of each name.
    prefix: &'static str,
    fields: &'static [Field<U>],
    /// Selects the part of a `T`.
    part: fn(&mut T) -> &mut U,
}

impl<T, U> KeyGroup<T, U> {
    /// Keys without a prefix.
    pub const fn new(fields: &'static [Field<U>], of: fn(&mut T) -> &mut U) -> Self {
        Self::prefixed("", fields, of)
    }

    /// Keys with `prefix` before each name.
    pub const fn prefixed(
        prefix: &'static str,
        fields: &'static [Field<U>],
        of: fn(&mut T) -> &mut U,
    ) -> Self {
        Self {
            prefix,
            fields,
            part: of,
        }
    }
}

impl<T, U> KeySet<T> for KeyGroup<T, U> {
    fn set(&self, target: &mut T, name: &str, at: &mut ValueReader<'_, '_>) -> bool {
        let name = name.strip_prefix(self.prefix);
        let field = self.fields.iter().find(|it| name == Some(it.name));
        if let Some(field) = field {
            (field.set)((self.part)(target), at);
        }
        field.is_some()
    }

    fn names(&self) -> Vec<String> {
        let name = |field: &Field<U>| format!("{}{}", self.prefix, field.name);
        self.fields.iter().map(name).collect()
    }

    fn documented_keys(&self) -> Vec<(String, ReferenceValue, &'static str)> {
        let names = self.names().into_iter();
        let fields = names.zip(self.fields);
        fields
            .map(|(name, it)| (name, it.reference_value, it.help))
            .collect()
    }
}

/// A table of the file that can exist several times, such as a policy.
pub trait TableEntry: Sized + 'static {
    /// Its keys.
    const KEYS: TableKeys<Self>;

    /// The entry before any key is read.
    fn with_name(name: &str) -> Self;

    /// Checks that need more than one key.
    fn check(&mut self, at: &mut ValueReader<'_, '_>);

    /// Reads one entry.
    fn read(name: &str, at: &mut ValueReader<'_, '_>) -> Option<Self> {
        at.as_table()?;
        let mut entry = Self::with_name(name);
        at.read_table(Self::KEYS, &mut entry);
        entry.check(at);
        Some(entry)
    }
}

/// A key as written in TOML: in quotes where necessary.
pub fn quote_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    format!("{name:?}")
}

/// Stores the value, if there is one. A mistake is already reported.
pub fn store<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}
