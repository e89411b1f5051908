//! What is said twice, so that one of the two never counts: policies of one person,
//! limits of one time, rules of one conduct.

use super::people::said_by_both;
use super::{Odd, path};
use crate::guard::rules::{Behaviour, Conduct, Limits, Measures, Override, UserPolicy};
use crate::guard::schedule::{Civil, Day, Hours};
use gpukill_proto::guard::edit::PolicyKind;
use std::collections::BTreeMap;

/// Of so many of a kind each is compared with each. Nobody writes more by hand.
const COMPARED: usize = 200;

pub(super) fn check(odd: &mut Odd<'_>) {
    let rules = odd.rules;
    check_users(odd, &rules.users);
    for user in &rules.users {
        check_overrides(odd, user);
    }
    check_behaviours(odd, &rules.behaviours);
}

/// The first that names somebody is theirs, in the order of names. Who has which number only the box knows,
/// but for root's.
fn check_users(odd: &mut Odd<'_>, users: &[UserPolicy]) {
    let mut first: BTreeMap<u32, &UserPolicy> = BTreeMap::new();
    for user in users {
        let Some(number) = super::number(&user.name) else {
            continue;
        };
        let Some(before) = first.get(&number) else {
            first.insert(number, user);
            continue;
        };
        let what = format!(
            "{} is of the same user and counts in its place",
            path(PolicyKind::User, &before.name)
        );
        odd.warn(&path(PolicyKind::User, &user.name), what);
    }
}

/// Where several times overlap, the strictest limit holds.
fn check_overrides(odd: &mut Odd<'_>, user: &UserPolicy) {
    let overrides: Vec<(usize, &Override, Week)> = user
        .overrides
        .iter()
        .take(COMPARED)
        .enumerate()
        .map(|(at, over)| (at, over, Week::of(&over.hours)))
        .collect();
    let at = path(PolicyKind::User, &user.name);
    for (position, over, week) in &overrides {
        for (other_position, other, other_week) in &overrides {
            if position == other_position {
                continue;
            }
            for name in said_by_both(&over.limits, &other.limits) {
                let (own, others) = (amount(&over.limits, name), amount(&other.limits, name));
                // Of two that say the same of the same times, the later is one too many.
                let is_double = own == others && week == other_week;
                let never_counts = week.is_within(other_week)
                    && own >= others
                    && (!is_double || position > other_position);
                // A shorter time may well be stricter; a looser one within is told of above.
                let is_partly = week.meets(other_week)
                    && !week.is_within(other_week)
                    && !other_week.is_within(week);
                let what = match () {
                    () if never_counts => format!(
                        "time_overrides[{other_position}] is no looser at all these times, so this \
                         never counts"
                    ),
                    () if is_partly && own > others => format!(
                        "it overlaps time_overrides[{other_position}], which is stricter and holds then"
                    ),
                    () => continue,
                };
                odd.warn(&format!("{at}.time_overrides[{position}].{name}"), what);
            }
        }
    }
}

/// A limit, by its key.
fn amount(limits: &Limits, name: &str) -> Option<u128> {
    let time = |time: Option<std::time::Duration>| time.map(|it| it.as_millis());
    match name {
        "memory_limit_gb" => limits.memory.map(|it| u128::from(it.0)),
        "utilization_limit_pct" => limits.utilization.map(|it| u128::from(it.0)),
        "duration_limit_hours" => time(limits.duration),
        "max_concurrent_processes" => limits.processes.map(u128::from),
        "idle_limit_minutes" => time(limits.idle),
        "idle_min_memory_gb" => limits.idle_min_memory.map(|it| u128::from(it.0)),
        _ => None,
    }
}

/// The minutes of a week.
#[derive(PartialEq, Eq)]
struct Week(Vec<u64>);

impl Week {
    fn of(hours: &Hours) -> Self {
        const MINUTES: usize = 7 * 24 * 60;
        let mut minutes = vec![0_u64; MINUTES.div_ceil(64)];
        let days = Day::ALL.into_iter();
        let week = days.flat_map(|day| (0..24 * 60).map(move |minute| Civil { day, minute }));
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

    fn meets(&self, other: &Self) -> bool {
        self.pairs(other).any(|(own, others)| own & others != 0)
    }
}

/// A rule that is broken only where another is too, of which the same comes.
fn check_behaviours(odd: &mut Odd<'_>, rules: &[Behaviour]) {
    let rules: Vec<(usize, &Behaviour)> = rules.iter().enumerate().take(COMPARED).collect();
    for (position, rule) in &rules {
        let covering = rules.iter().find(|(other_position, other)| {
            let is_first = other_position < position || !covers(rule, other);
            other_position != position && covers(other, rule) && is_first
        });
        if let Some((_, covering)) = covering {
            let what = format!(
                "{} is broken whenever this is, and does the same: this adds nothing",
                path(PolicyKind::Rule, &covering.name)
            );
            odd.warn(&path(PolicyKind::Rule, &rule.name), what);
        }
    }
}

/// Whether whatever breaks the one breaks the other first, or with it.
fn covers(first: &Behaviour, other: &Behaviour) -> bool {
    let comes_of = |measures: &Measures| (measures.action, measures.mode, measures.grace);
    let is_about_all = first.members.names_nobody() || first.members == other.members;
    let excepts_no_more = first
        .except_users
        .iter()
        .all(|user| other.except_users.contains(user));
    // A mean over more processes is another.
    let selects_the_same = || {
        first.members == other.members
            && first.except_users == other.except_users
            && first.gpus == other.gpus
            && first.processes == other.processes
            && first.command == other.command
    };
    (!matches!(first.conduct, Conduct::Waste { .. }) || selects_the_same())
        && comes_of(&first.measures) == comes_of(&other.measures)
        && (first.ends_services || !other.ends_services)
        && is_about_all
        && excepts_no_more
        && (first.gpus.is_empty() || first.gpus == other.gpus)
        && (first.processes.is_empty() || first.processes == other.processes)
        && (first.command.is_none() || first.command == other.command)
        && is_stricter(&first.conduct, &other.conduct)
}

/// Whether nothing can break the other without breaking this.
fn is_stricter(this: &Conduct, other: &Conduct) -> bool {
    match (this, other) {
        (Conduct::Duration(this), Conduct::Duration(other)) => this <= other,
        (
            Conduct::Idle {
                limit,
                min_memory,
                with_connections,
                cpu_below,
            },
            Conduct::Idle {
                limit: other_limit,
                min_memory: other_memory,
                with_connections: others,
                cpu_below: other_below,
            },
        ) => {
            let is_as_strict = match (cpu_below, other_below) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(below), Some(other_below)) => other_below <= below,
            };
            limit <= other_limit
                && min_memory <= other_memory
                && (*with_connections || !*others)
                && is_as_strict
        }
        // A mean over another time is another.
        (
            Conduct::Waste {
                below,
                min_memory,
                hours,
            },
            Conduct::Waste {
                below: other_below,
                min_memory: other_memory,
                hours: other_hours,
            },
        ) => hours == other_hours && below >= other_below && min_memory <= other_memory,
        (
            Conduct::Runaway {
                above,
                limit,
                orphaned,
            },
            Conduct::Runaway {
                above: other_above,
                limit: other_limit,
                orphaned: others,
            },
        ) => above <= other_above && limit <= other_limit && (!*orphaned || *others),
        (
            Conduct::Growth { by, within },
            Conduct::Growth {
                by: other_by,
                within: other_within,
            },
        ) => within == other_within && by <= other_by,
        (
            Conduct::Rogue { from, threats },
            Conduct::Rogue {
                from: other_from,
                threats: others,
            },
        ) => from <= other_from && others.iter().all(|it| threats.contains(it)),
        (
            Conduct::Duration(_)
            | Conduct::Idle { .. }
            | Conduct::Waste { .. }
            | Conduct::Runaway { .. }
            | Conduct::Growth { .. }
            | Conduct::Rogue { .. },
            _,
        ) => false,
    }
}
