//! Lints for entries that never count because another one covers them: policies of the same
//! person, limits for the same time, rules on the same behaviour.

use super::{Linter, policy_path};
use crate::guard::rules::{
    BehaviourRule, ForbiddenBehaviour, Limits, Measures, TimeOverride, UserPolicy,
};
use crate::guard::schedule::{Hours, LocalTime, Weekday};
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Each entry of a kind is compared with each other one, up to this many. Nobody writes
/// more by hand.
const MAX_COMPARED: usize = 200;

pub(super) fn check(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    check_users(linter, &rules.users);
    for user in &rules.users {
        check_overrides(linter, user);
    }
    check_behaviours(linter, &rules.behaviours);
}

/// The first policy that names a user applies, in the order of names. Only the host knows
/// the uids of names, except that of root.
fn check_users(linter: &mut Linter<'_>, users: &[UserPolicy]) {
    let mut first: BTreeMap<u32, &UserPolicy> = BTreeMap::new();
    for user in users {
        let Some(number) = super::fixed_uid(&user.name) else {
            continue;
        };
        let Some(before) = first.get(&number) else {
            first.insert(number, user);
            continue;
        };
        let what = format!(
            "{} is for the same user and applies instead",
            policy_path(PolicyKind::User, &before.name)
        );
        linter.warn(&policy_path(PolicyKind::User, &user.name), what);
    }
}

/// Where several times overlap, the strictest limit applies.
fn check_overrides(linter: &mut Linter<'_>, user: &UserPolicy) {
    let overrides: Vec<(usize, &TimeOverride, WeekMinutes)> = user
        .overrides
        .iter()
        .take(MAX_COMPARED)
        .enumerate()
        .map(|(at, over)| (at, over, WeekMinutes::from_hours(&over.hours)))
        .collect();
    let at = policy_path(PolicyKind::User, &user.name);
    for (position, over, week) in &overrides {
        for (other_position, other, other_week) in &overrides {
            if position == other_position {
                continue;
            }
            let both = limit_values(&over.limits)
                .into_iter()
                .zip(limit_values(&other.limits));
            for ((name, own), (_, others)) in both {
                let (Some(own), Some(others)) = (own, others) else {
                    continue;
                };
                // Of two equal limits for the same times, the later one is redundant.
                let is_double = own == others && week == other_week;
                let never_counts = week.is_within(other_week)
                    && own >= others
                    && (!is_double || position > other_position);
                // A stricter limit for a shorter time is normal. A looser limit within a
                // longer time is already reported above.
                let is_partly = week.overlaps(other_week)
                    && !week.is_within(other_week)
                    && !other_week.is_within(week);
                let what = match () {
                    () if never_counts => format!(
                        "time_overrides[{other_position}] is at least as strict at all these \
                        times, so this never applies"
                    ),
                    () if is_partly && own > others => format!(
                        "it overlaps time_overrides[{other_position}], which is stricter and \
                        applies then"
                    ),
                    () => continue,
                };
                linter.warn(&format!("{at}.time_overrides[{position}].{name}"), what);
            }
        }
    }
}

/// The limits with their keys.
fn limit_values(limits: &Limits) -> [(&'static str, Option<u128>); 6] {
    let bytes = |bytes: Option<Bytes>| bytes.map(|it| u128::from(it.0));
    let time = |time: Option<Duration>| time.map(|it| it.as_millis());
    [
        ("memory_limit_gb", bytes(limits.memory)),
        (
            "utilization_limit_pct",
            limits.utilization.map(|it| u128::from(it.0)),
        ),
        ("duration_limit_hours", time(limits.duration)),
        ("max_concurrent_processes", limits.processes.map(u128::from)),
        ("idle_limit_minutes", time(limits.idle)),
        ("idle_min_memory_gb", bytes(limits.idle_min_memory)),
    ]
}

/// The minutes of a week, one bit each.
#[derive(PartialEq, Eq)]
struct WeekMinutes(Vec<u64>);

impl WeekMinutes {
    fn from_hours(hours: &Hours) -> Self {
        const MINUTES: usize = 7 * 24 * 60;
        let mut minutes = vec![0_u64; MINUTES.div_ceil(64)];
        let days = Weekday::ALL.into_iter();
        let week = days.flat_map(|day| (0..24 * 60).map(move |minute| LocalTime { day, minute }));
        for (at, moment) in week.enumerate() {
            if let Some(word) = minutes.get_mut(at / 64)
                && hours.contains(moment)
            {
                *word |= 1 << (at % 64);
            }
        }
        Self(minutes)
    }

    fn pairs<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (u64, u64)> + 'a {
        self.0.iter().copied().zip(other.0.iter().copied())
    }

    fn is_within(&self, other: &Self) -> bool {
        self.pairs(other).all(|(own, others)| own & !others == 0)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.pairs(other).any(|(own, others)| own & others != 0)
    }
}

/// Lints a rule that is broken only when another rule with the same consequence is broken
/// too.
fn check_behaviours(linter: &mut Linter<'_>, rules: &[BehaviourRule]) {
    let rules: Vec<(usize, &BehaviourRule)> = rules.iter().enumerate().take(MAX_COMPARED).collect();
    for (position, rule) in &rules {
        let covering = rules.iter().find(|(other_position, other)| {
            let is_first = other_position < position || !covers(rule, other);
            other_position != position && covers(other, rule) && is_first
        });
        if let Some((_, covering)) = covering {
            let what = format!(
                "{} is broken whenever this rule is, with the same consequence: this rule adds \
                nothing",
                policy_path(PolicyKind::Rule, &covering.name)
            );
            linter.warn(&policy_path(PolicyKind::Rule, &rule.name), what);
        }
    }
}

/// Whether every violation of `other` is also a violation of `first`, no later.
fn covers(first: &BehaviourRule, other: &BehaviourRule) -> bool {
    let response = |measures: &Measures| (measures.action, measures.mode, measures.grace);
    let is_about_all = first.members.is_empty() || first.members == other.members;
    let excepts_no_more = first
        .except_users
        .iter()
        .all(|user| other.except_users.contains(user));
    // The mean over more processes is a different value.
    let selects_the_same = || {
        first.members == other.members
            && first.except_users == other.except_users
            && first.gpus == other.gpus
            && first.processes == other.processes
            && first.command == other.command
    };
    (!matches!(first.behaviour, ForbiddenBehaviour::Waste(_)) || selects_the_same())
        && response(&first.measures) == response(&other.measures)
        && (first.ends_services || !other.ends_services)
        && is_about_all
        && excepts_no_more
        && (first.gpus.is_empty() || first.gpus == other.gpus)
        && (first.processes.is_empty() || first.processes == other.processes)
        && (first.command.is_none() || first.command == other.command)
        && is_stricter(&first.behaviour, &other.behaviour)
}

/// Whether nothing can break `other` without breaking `first`.
fn is_stricter(first: &ForbiddenBehaviour, other: &ForbiddenBehaviour) -> bool {
    match (first, other) {
        (ForbiddenBehaviour::Duration(first), ForbiddenBehaviour::Duration(other)) => {
            first <= other
        }
        (ForbiddenBehaviour::Idle(first), ForbiddenBehaviour::Idle(other)) => {
            let is_as_strict = match (first.cpu_below, other.cpu_below) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(below), Some(other_below)) => other_below <= below,
            };
            first.limit <= other.limit
                && first.min_memory <= other.min_memory
                && (first.with_connections || !other.with_connections)
                && is_as_strict
        }
        // The mean over another time is a different value.
        (ForbiddenBehaviour::Waste(first), ForbiddenBehaviour::Waste(other)) => {
            first.hours == other.hours
                && first.below >= other.below
                && first.min_memory <= other.min_memory
        }
        (ForbiddenBehaviour::Runaway(first), ForbiddenBehaviour::Runaway(other)) => {
            first.above <= other.above
                && first.limit <= other.limit
                && (!first.orphaned || other.orphaned)
        }
        (ForbiddenBehaviour::Growth(first), ForbiddenBehaviour::Growth(other)) => {
            first.within == other.within && first.by <= other.by
        }
        (ForbiddenBehaviour::Rogue(first), ForbiddenBehaviour::Rogue(other)) => {
            let is_in_first = |threat| first.threats.contains(threat);
            first.from <= other.from && other.threats.iter().all(is_in_first)
        }
        (
            ForbiddenBehaviour::Duration(_)
            | ForbiddenBehaviour::Idle(_)
            | ForbiddenBehaviour::Waste(_)
            | ForbiddenBehaviour::Runaway(_)
            | ForbiddenBehaviour::Growth(_)
            | ForbiddenBehaviour::Rogue(_),
            _,
        ) => false,
    }
}
