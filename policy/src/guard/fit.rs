//! Whether the rules on behaviour fit the box. A rule that calls somebody idle or wasteful is
//! a guess about their work; one that concerns many people at once is more likely wrong than
//! they are, however slowly it ends their jobs.
//!
//! People are counted, not jobs, so that nobody raises this doubt alone. More than a quarter
//! of them, and three at least, are told of; but on the days that the tests have from careful
//! admins a third of the people forget something that is rightly ended. Where two in five are
//! concerned, and ten at least, these rules only warn, until an admin confirms them by setting
//! the mode: on a trace of 143 services such rules met 46 % of their owners and more.

use super::clock::Clock;
use super::judge::{Rulebook, Scene};
use super::limits::milliseconds;
use super::memory::{Clocks, pairs};
use super::rules::Rules;
use super::whose::PersonKey;
use crate::digest::Digest;
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardStep, RuleKind, RuleName, RulesDoubt, Subject,
};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The people of the last day, and what of them rules on behaviour concern.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fit {
    /// Who used a GPU, and when last.
    #[serde(with = "pairs")]
    people: BTreeMap<PersonKey, Timestamp>,
    /// Whose jobs were warned of or ended by these rules, and when last.
    #[serde(with = "pairs")]
    concerned: BTreeMap<PersonKey, Timestamp>,
    doubt: Option<RulesDoubt>,
    confirmed: Confirmed,
    /// The digest of the rules on behaviour that `concerned` is about.
    concerned_by: Option<Digest>,
}

/// Which rules an admin has confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Confirmed {
    #[default]
    None,
    /// Those that the next sample is judged by.
    Next,
    /// Those with this digest.
    Rules(Digest),
}

/// The time within which people are counted.
const WITHIN: Duration = Duration::from_secs(24 * 3_600);

/// Fewer people are no pattern.
const FEWEST: usize = 3;

/// From so many people on these rules only warn: of few, most may have left for the weekend.
const ONLY_WARN_FROM: usize = 10;

/// One in so many people may be warned or ended.
const ONE_IN: usize = 4;

/// How many people are remembered: on a larger box the others do not count.
const MAX_PEOPLE: usize = 10_000;

impl Fit {
    /// Whether rules of this kind only warn.
    pub(crate) fn only_warns(&self, kind: RuleKind) -> bool {
        self.doubt.is_some_and(|doubt| doubt.only_warn) && kind.is_of_behaviour()
    }

    pub(crate) const fn doubt(&self) -> Option<RulesDoubt> {
        self.doubt
    }

    /// An admin says that these rules are meant.
    pub(crate) fn confirm(&mut self) {
        self.doubt = None;
        self.confirmed = Confirmed::Next;
    }

    /// Counts who is there and whom these rules concern. Returns the violation by which a
    /// doubt arose, and what is to be recorded of it.
    pub(crate) fn count<'c>(
        &mut self,
        scene: &Scene<'_>,
        clocks: &'c BTreeMap<RuleName, Clocks>,
    ) -> Option<(&'c RuleName, &'c Subject, &'c Clock, GuardStep)> {
        let at = scene.bucket.until;
        let digest = scene.book.behaviour_digest();
        let is_of_these = self.concerned_by.replace(digest) == Some(digest);
        if !is_of_these {
            // How many people other rules concerned says nothing of these.
            self.concerned.clear();
            // Where no rule on behaviour is left, none has to be confirmed.
            let none = Rulebook::of(Rules::default()).behaviour_digest();
            self.doubt = self.doubt.filter(|_| digest != none);
        }
        for of in [&mut self.people, &mut self.concerned] {
            for last in of.values_mut() {
                // A clock that was set back makes nobody younger.
                *last = at.min(*last);
            }
            of.retain(|_, last| milliseconds(at.since(*last)) < milliseconds(WITHIN));
        }
        for person in &scene.people {
            let has_room = self.people.len() < MAX_PEOPLE;
            let person = PersonKey::from(*person);
            if has_room || self.people.contains_key(&person) {
                self.people.insert(person, at);
            }
        }
        let mut last = None;
        let of_behaviour = clocks
            .iter()
            .filter(|(rule, _)| rule.kind.is_of_behaviour());
        for (rule, clocks) in of_behaviour {
            for (subject, clock) in clocks.of.iter().filter(|(_, clock)| is_counted(clock)) {
                let Some(person) = person_of(subject) else {
                    continue;
                };
                if self.people.contains_key(&person) {
                    self.concerned.insert(person, at);
                    last = Some((rule, subject, clock));
                }
            }
        }
        if self.confirmed == Confirmed::Next {
            self.confirmed = Confirmed::Rules(digest);
        }
        let (people, of) = (self.concerned.len(), self.people.len());
        let is_doubtful = people >= FEWEST && people * ONE_IN > of;
        let is_confirmed = self.confirmed == Confirmed::Rules(digest);
        let only_warned = self.doubt.is_some_and(|doubt| doubt.only_warn);
        if !is_doubtful || is_confirmed {
            // What is told of goes by itself; what was stopped is for an admin to start.
            self.doubt = self.doubt.filter(|_| only_warned && !is_confirmed);
            return None;
        }
        // Two in five.
        let are_many = people >= ONLY_WARN_FROM && people * 5 > of * 2;
        let only_warn = only_warned || are_many;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let doubt = RulesDoubt {
            since: self.doubt.map_or(at, |doubt| doubt.since),
            people: number(people),
            of: number(of),
            only_warn,
        };
        let before = self.doubt.replace(doubt);
        let is_news = before.is_none_or(|before| before.only_warn != only_warn);
        let (rule, subject, clock) = last.filter(|_| is_news)?;
        Some((rule, subject, clock, GuardStep::Doubted(doubt)))
    }
}

/// Whether somebody was warned that a job is ended for it, or one was.
fn is_counted(clock: &Clock) -> bool {
    let opened = clock.opened.as_ref();
    opened.is_some_and(|it| {
        it.mode > GuardMode::Disabled
            && it.action == GuardAction::Terminate
            && (it.warned.at().is_some() || it.ended_at().is_some())
    })
}

fn person_of(subject: &Subject) -> Option<PersonKey> {
    match subject {
        Subject::Job(job) => Some(PersonKey::from(&job.owner)),
        Subject::Person(person) | Subject::PersonOn(person, _) => Some(PersonKey::from(person)),
        Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) | Subject::Run(_) => None,
    }
}
