//! Which violations keep their places where not all fit, in an evaluation and in the saved state:
//! each person has an equal share, and the most important violations of a person stay.

use super::person_key::PersonRef;
use super::violation_state::ViolationState;
use crate::round_robin::interleave;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{GuardAction, GuardMode, ViolationSubject};
use std::cmp::Reverse;

/// The owner of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlaceOwner<'a> {
    Person(PersonRef<'a>),
    /// A person who is unknown.
    Unknown,
    /// No single person. The rules and devices limit the number of these violations, so each
    /// counts as a person of its own, by this number.
    Shared(usize),
}

/// The share that a place belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PlaceShare {
    /// As [`PersonRef::share`].
    Person(Option<u32>),
    Shared(usize),
}

/// The importance of a place among those of one person: a higher rank stays. Processes that are
/// only warned about never displace a rule that ends jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlaceRank {
    pub(crate) action: GuardAction,
    pub(crate) mode: GuardMode,
    /// It does not multiply with the processes of the person.
    pub(crate) is_of_person: bool,
    pub(crate) progress: ViolationProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ViolationProgress {
    New,
    Unconfirmed,
    Confirmed,
    /// A job was ended for it: the wait before the next end is part of its state.
    Ended,
}

impl From<&ViolationState> for ViolationProgress {
    fn from(violation: &ViolationState) -> Self {
        match &violation.opened {
            None => Self::Unconfirmed,
            Some(opened) if opened.ended_at().is_some() => Self::Ended,
            Some(_) => Self::Confirmed,
        }
    }
}

impl<'a> PlaceOwner<'a> {
    /// The owner of a violation by its subject, present or not. `number` distinguishes violations
    /// of no single person.
    pub(crate) fn from_violation(
        subject: &'a ViolationSubject,
        violation: &'a ViolationState,
        number: usize,
    ) -> Self {
        let person = match subject {
            ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => {
                Some(person)
            }
            ViolationSubject::Job(job) => Some(&job.owner),
            ViolationSubject::Run(_) => {
                let opened = violation.opened.as_ref();
                let run = opened.and_then(|opened| opened.evidence.runs.first());
                run.and_then(|run| run.facts.owner.as_ref())
            }
            ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_) => return Self::Shared(number),
        };
        person.map_or(Self::Unknown, |person| {
            Self::Person(PersonRef::from(person))
        })
    }

    const fn share(self) -> PlaceShare {
        match self {
            Self::Person(person) => PlaceShare::Person(person.share()),
            Self::Unknown => PlaceShare::Person(None),
            Self::Shared(number) => PlaceShare::Shared(number),
        }
    }
}

/// Orders places so that each prefix has equal shares, and of each share the highest ranks. All
/// owners who are no user of the host divide one share equally.
pub(crate) fn order_by_share<T>(mut places: Vec<(PlaceOwner<'_>, PlaceRank, T)>) -> Vec<T> {
    places.sort_indirect_by_key(|(_, rank, _)| Reverse(*rank));
    let by_owner = places
        .into_iter()
        .map(|(owner, _, place)| (owner, (owner.share(), place)));
    interleave(interleave(by_owner))
}
