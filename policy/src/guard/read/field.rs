//! The keys of a table: the whole truth about each in one place.

use super::at::At;

/// One key.
pub struct Field<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// How the printed reference has it.
    pub shown: Shown,
    /// One or more lines for the printed reference.
    pub help: &'static str,
    /// Checks a value and puts it where it belongs.
    pub set: fn(&mut T, &mut At<'_, '_>),
}

/// How the printed reference has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// With its default.
    Default(&'static str),
    /// As a comment, with an example: by default there is none.
    Example(&'static str),
}

/// Keys that several tables have, or one alone.
pub trait Part<T> {
    /// Sets this key, if it is one of these.
    fn set(&self, target: &mut T, name: &str, at: &mut At<'_, '_>) -> bool;

    /// What they are called here.
    fn names(&self) -> Vec<String>;

    /// Each key's name, how it is shown, and its help.
    fn told(&self) -> Vec<(String, Shown, &'static str)>;
}

/// All keys of a table.
pub type Keys<T> = &'static [&'static dyn Part<T>];

/// What all keys of a table are called.
pub fn names<T>(keys: Keys<T>) -> Vec<String> {
    keys.iter().flat_map(|part| part.names()).collect()
}

/// Keys of something that is part of a `T`.
pub struct Of<T: 'static, U: 'static> {
    /// What stands before the name of each.
    prefix: &'static str,
    /// The keys.
    fields: &'static [Field<U>],
    /// Where in a `T` they belong.
    of: fn(&mut T) -> &mut U,
}

impl<T, U> Of<T, U> {
    /// These, by their own names.
    pub const fn new(fields: &'static [Field<U>], of: fn(&mut T) -> &mut U) -> Self {
        Self::prefixed("", fields, of)
    }

    /// These, with `prefix` before the name of each.
    pub const fn prefixed(
        prefix: &'static str,
        fields: &'static [Field<U>],
        of: fn(&mut T) -> &mut U,
    ) -> Self {
        Self { prefix, fields, of }
    }
}

impl<T, U> Part<T> for Of<T, U> {
    fn set(&self, target: &mut T, name: &str, at: &mut At<'_, '_>) -> bool {
        let name = name.strip_prefix(self.prefix);
        let field = self.fields.iter().find(|it| name == Some(it.name));
        if let Some(field) = field {
            (field.set)((self.of)(target), at);
        }
        field.is_some()
    }

    fn names(&self) -> Vec<String> {
        let name = |field: &Field<U>| format!("{}{}", self.prefix, field.name);
        self.fields.iter().map(name).collect()
    }

    fn told(&self) -> Vec<(String, Shown, &'static str)> {
        let names = self.names().into_iter();
        let fields = names.zip(self.fields);
        fields.map(|(name, it)| (name, it.shown, it.help)).collect()
    }
}

/// What a table of the file is read into, one of several of its kind.
pub trait Entry: Sized + 'static {
    /// Its keys.
    const KEYS: Keys<Self>;

    /// What it is before anything is read.
    fn called(name: &str) -> Self;

    /// Looks at what no key alone can tell.
    fn check(&mut self, at: &mut At<'_, '_>);

    /// Reads one.
    fn read(name: &str, at: &mut At<'_, '_>) -> Option<Self> {
        at.as_table()?;
        let mut entry = Self::called(name);
        at.table(Self::KEYS, &mut entry);
        entry.check(at);
        Some(entry)
    }
}

/// A key as TOML has it: in quotes where it must be.
pub fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    format!("{name:?}")
}

/// Puts what was read where it belongs; what was wrong is told already.
pub fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
