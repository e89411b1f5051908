//! Who is the same person from one look to the next: a user by their number, whatever
//! the name service calls them by now; anybody else by what they are called.

use gpukill_proto::guard::Person;

/// Tells persons apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whose<'a> {
    /// A user of this box.
    User(u32),
    /// Nobody of whom a number is known.
    Called(&'a str),
}

impl<'a> From<&'a Person> for Whose<'a> {
    fn from(person: &'a Person) -> Self {
        match person.uid {
            Some(uid) => Self::User(uid),
            None => Self::Called(&person.name),
        }
    }
}
