//! Identifies a person from one sample to the next: a user by uid, whatever the name
//! service reports now; any other owner by name.

use gpukill_proto::guard::Person;
use serde::{Deserialize, Serialize};

/// Borrowed form of [`PersonKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PersonRef<'a> {
    /// A user of this host.
    User(u32),
    /// An owner without a known uid.
    Called(&'a str),
}

impl PersonRef<'_> {
    /// The share of this person in what is divided equally among people; `None` for the one
    /// share of all owners who are no user of the host: one person may start any number of
    /// containers.
    pub(crate) const fn share(self) -> Option<u32> {
        match self {
            Self::User(uid) => Some(uid),
            Self::Called(_) => None,
        }
    }
}

impl<'a> From<&'a Person> for PersonRef<'a> {
    fn from(person: &'a Person) -> Self {
        match person.uid {
            Some(uid) => Self::User(uid),
            None => Self::Called(&person.name),
        }
    }
}

/// Key of a person, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PersonKey {
    /// A user of this host, or the creator of the namespace of processes that run as
    /// subordinate users.
    User(u32),
    /// An owner who is no user, such as a container.
    Called(String),
}

impl PersonKey {
    /// The share of this person in what is divided equally among people; `None` for the one
    /// share of all owners who are no user of the host.
    #[must_use]
    pub const fn share(&self) -> Option<u32> {
        match self {
            Self::User(uid) => Some(*uid),
            Self::Called(_) => None,
        }
    }
}

impl From<&Person> for PersonKey {
    fn from(person: &Person) -> Self {
        match person.uid {
            Some(uid) => Self::User(uid),
            None => Self::Called(person.name.clone()),
        }
    }
}
