//! Whether the behaviour rules fit the host. A rule that calls people idle or wasteful
//! guesses about their work. A rule that affects many people at once is more likely wrong
//! than they are, however slowly it ends their jobs.
//!
//! People are counted, not jobs, so that no single person raises this doubt. It is reported
//! if more than a quarter of the people are affected, and three at least; but in the tests'
//! days of careful admins a third of the people forget something that is rightly ended. If
//! two in five are affected, and ten at least, these rules only warn until an admin
//! confirms them by setting the mode: in a trace of 143 services such rules affected 46 %
//! of the owners and more.
//!
//! One person can start any number of containers, busy or idle. For jobs of users all
//! containers therefore count as one person. For jobs of containers, each counts: most
//! owners of a host may be containers.

use super::evaluate::{CompiledRules, EvaluationContext};
use super::limits::milliseconds;
use super::person_key::PersonKey;
use super::rules::RuleSet;
use super::state::{RuleViolations, pairs};
use super::violation_state::ViolationState;
use crate::digest::Digest;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardStep, RuleKind, RuleName, RulesDoubt, ViolationSubject,
};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The people of the last day, and those that behaviour rules affected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DoubtTracker {
    /// People who used a GPU, and when last.
    #[serde(with = "pairs")]
    people: BTreeMap<PersonKey, Timestamp>,
    /// Owners of jobs that these rules warned of or ended, and when last.
    #[serde(with = "pairs")]
    concerned: BTreeMap<PersonKey, Timestamp>,
    /// For jobs of users.
    doubt: Option<RulesDoubt>,
    /// For jobs of owners who are no user of the host.
    others_doubt: Option<RulesDoubt>,
    confirmed: Confirmation,
    /// The digest of the behaviour rules that `concerned` refers to.
    concerned_by: Option<Digest>,
}

/// The rules that an admin has confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Confirmation {
    #[default]
    None,
    /// The rules that evaluate the next sample.
    Next,
    Rules(Digest),
}

/// The time within which people are counted.
const COUNTING_WINDOW: Duration = Duration::from_secs(24 * 3_600);

/// Fewer affected people are no pattern.
const MIN_PEOPLE: usize = 3;

/// With at least this many affected people the rules only warn: of few people, most may
/// have left for the weekend.
const ONLY_WARN_MIN_PEOPLE: usize = 10;

/// One in this many people may be warned, or have jobs ended, without a doubt.
const DOUBT_DIVISOR: usize = 4;

/// How many people are kept: on a larger host the others do not count. Owners who are no user
/// take at most half of the room.
const MAX_PEOPLE: usize = 10_000;

impl DoubtTracker {
    /// Whether rules of this kind only warn the owner of this subject.
    pub(crate) fn only_warns(&self, kind: RuleKind, subject: &ViolationSubject) -> bool {
        let user = subject_person(subject).and_then(|person| person.share());
        let doubt = user.map_or(self.others_doubt, |_| self.doubt);
        doubt.is_some_and(|doubt| doubt.only_warn) && kind.is_behaviour()
    }

    /// The doubt that is reported: one that makes rules only warn comes first.
    pub(crate) fn doubt(&self) -> Option<RulesDoubt> {
        stronger(self.doubt, self.others_doubt)
    }

    /// An admin confirms these rules.
    pub(crate) fn confirm(&mut self) {
        (self.doubt, self.others_doubt) = (None, None);
        self.confirmed = Confirmation::Next;
    }

    /// Counts the present and the affected people. Returns the violation that raised a
    /// doubt, and the step to record for it.
    pub(crate) fn update<'c>(
        &mut self,
        context: &EvaluationContext<'_>,
        violations: &'c BTreeMap<RuleName, RuleViolations>,
    ) -> Option<(
        &'c RuleName,
        &'c ViolationSubject,
        &'c ViolationState,
        GuardStep,
    )> {
        let at = context.sample.until;
        let digest = context.compiled_rules.behaviour_digest();
        let is_of_these = self.concerned_by.replace(digest) == Some(digest);
        if !is_of_these {
            // The people that other rules affected say nothing about these rules.
            self.concerned.clear();
            // If no behaviour rule is left, none needs confirmation.
            let none = CompiledRules::new(RuleSet::default()).behaviour_digest();
            for doubt in [&mut self.doubt, &mut self.others_doubt] {
                *doubt = doubt.filter(|_| digest != none);
            }
        }
        for of in [&mut self.people, &mut self.concerned] {
            for last in of.values_mut() {
                // After a clock was set back, no time lies in the future.
                *last = at.min(*last);
            }
            of.retain_entries(|_, last| {
                milliseconds(at.since(*last)) < milliseconds(COUNTING_WINDOW)
            });
        }
        let (_, mut others) = count_people(&self.people);
        for person in &context.people {
            let person = PersonKey::from(*person);
            let is_user = person.share().is_some();
            let is_known = self.people.contains_key(&person);
            let has_room = self.people.len() < MAX_PEOPLE && (is_user || others < MAX_PEOPLE / 2);
            if is_known || has_room {
                others += usize::from(!is_known && !is_user);
                self.people.insert(person, at);
            }
        }
        let mut last = None;
        let of_behaviour = violations
            .iter()
            .filter(|(rule, _)| rule.kind.is_behaviour());
        for (rule, violations) in of_behaviour {
            for (subject, violation) in violations
                .of
                .iter()
                .filter(|(_, violation)| is_counted(violation))
            {
                let Some(person) = subject_person(subject) else {
                    continue;
                };
                if self.people.contains_key(&person) {
                    self.concerned.insert(person, at);
                    last = Some((rule, subject, violation));
                }
            }
        }
        if self.confirmed == Confirmation::Next {
            self.confirmed = Confirmation::Rules(digest);
        }
        let is_confirmed = self.confirmed == Confirmation::Rules(digest);
        let (users, others) = count_people(&self.concerned);
        let (all_users, all_others) = count_people(&self.people);
        let of_users = (users + others.min(1), all_users + all_others.min(1));
        let of_all = (users + others, all_users + all_others);
        let mut news = None;
        for (doubt, counts) in [
            (&mut self.doubt, of_users),
            (&mut self.others_doubt, of_all),
        ] {
            let before = std::mem::take(doubt);
            *doubt = if is_confirmed {
                None
            } else {
                assess_doubt(before, counts, at)
            };
            let was_strict = before.map(|doubt| doubt.only_warn);
            let is_news = |doubt: &RulesDoubt| was_strict != Some(doubt.only_warn);
            news = stronger(news, doubt.filter(is_news));
        }
        let (doubt, (rule, subject, violation)) = news.zip(last)?;
        Some((rule, subject, violation, GuardStep::Doubted(doubt)))
    }
}

/// The doubt that is reported of two: one that makes rules only warn comes first.
fn stronger(one: Option<RulesDoubt>, other: Option<RulesDoubt>) -> Option<RulesDoubt> {
    let only_warns = |doubt: &RulesDoubt| doubt.only_warn;
    let strict = one.filter(only_warns);
    let strict = strict.or_else(|| other.filter(only_warns));
    strict.or(one).or(other)
}

/// How many of these people are users of the host, and how many are other owners.
fn count_people(people: &BTreeMap<PersonKey, Timestamp>) -> (usize, usize) {
    let users = people.keys().filter(|person| person.share().is_some());
    let users = users.count();
    (users, people.len() - users)
}

/// Whether rules that affect `people` of so many are in doubt, after they were or were not.
fn assess_doubt(
    before: Option<RulesDoubt>,
    (people, of): (usize, usize),
    at: Timestamp,
) -> Option<RulesDoubt> {
    let only_warned = before.is_some_and(|doubt| doubt.only_warn);
    if people < MIN_PEOPLE || people * DOUBT_DIVISOR <= of {
        // A doubt that was only reported clears by itself; an admin restarts what was
        // stopped.
        return before.filter(|_| only_warned);
    }
    // Two in five.
    let are_many = people >= ONLY_WARN_MIN_PEOPLE && people * 5 > of * 2;
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Some(RulesDoubt {
        since: before.map_or(at, |doubt| doubt.since),
        people: number(people),
        of: number(of),
        only_warn: only_warned || are_many,
    })
}

/// Whether a person was warned that a job is ended for it, or a job was ended.
fn is_counted(violation: &ViolationState) -> bool {
    let opened = violation.opened.as_ref();
    opened.is_some_and(|opened| {
        opened.mode > GuardMode::Disabled
            && opened.action == GuardAction::Terminate
            && (opened.warned.first_warned_at().is_some() || opened.ended_at().is_some())
    })
}

fn subject_person(subject: &ViolationSubject) -> Option<PersonKey> {
    match subject {
        ViolationSubject::Job(job) => Some(PersonKey::from(&job.owner)),
        ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => {
            Some(PersonKey::from(person))
        }
        ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_)
        | ViolationSubject::Run(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_that_stops_ends_is_reported_first() {
        let doubt = |people, only_warn| {
            Some(RulesDoubt {
                since: Timestamp(1_000),
                people,
                of: 30,
                only_warn,
            })
        };
        let (reported, stops) = (doubt(6, false), doubt(15, true));
        for (one, other, expected) in [
            (reported, stops, stops),
            (stops, reported, stops),
            (reported, doubt(7, false), reported),
            (None, reported, reported),
            (None, None, None),
        ] {
            assert_eq!(stronger(one, other), expected);
        }
    }
}
