//! Who is the same person from one look to the next: a user by their number, whatever
//! the name service calls them by now; anybody else by what they are called.

use gpukill_proto::guard::Person;
use serde::{Deserialize, Serialize};

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

/// A person, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PersonKey {
    /// A user of this box: also the one who made the namespace of processes that run as
    /// subordinate users.
    User(u32),
    /// An owner who is no user, such as a container.
    Called(String),
}

impl From<&Person> for PersonKey {
    fn from(person: &Person) -> Self {
        match person.uid {
            Some(uid) => Self::User(uid),
            None => Self::Called(person.name.clone()),
        }
    }
}
