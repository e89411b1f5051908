//! All that holds for a process and its owner, for whoever asks.

use super::{Governed, Limit, PERSONAL, resolve, value};
use crate::guard::bucket::About;
use crate::guard::judge::{Policy, Rulebook, Selected, protection};
use crate::guard::schedule::Civil;
use gpukill_proto::guard::RuleKind;

/// Why no rule is about a process, as `[protect]` names it or may; `None` where rules are.
#[must_use]
pub fn protected(book: &Rulebook, about: &About) -> Option<String> {
    let rules = book.rules();
    protection(&rules.protect, &about.by(rules.person))
}

/// Which limits hold for a process's owner at a moment: those of the person, of the
/// groups that they belong to with it, and of the time; and what it must not do itself.
#[must_use]
pub fn of(book: &Rulebook, about: &About, civil: Civil) -> Vec<Limit> {
    let rules = book.rules();
    let selected = Selected::of(rules, &about.by(rules.person), None);
    let profile = &selected.profile;
    let resolved = resolve(rules, profile, civil);
    let mut limits: Vec<Limit> = resolved
        .by_kind
        .iter()
        .map(|(kind, governed)| match governed {
            Governed::By { policy, limit } => Limit {
                rule: book.name(*policy, *kind),
                limit: Some(*limit),
            },
            Governed::Unknown { policy, .. } => Limit {
                rule: book.name(*policy, *kind),
                limit: None,
            },
        })
        .collect();
    limits.extend(resolved.besides.iter().map(|beside| Limit {
        rule: book.name(beside.policy, beside.kind),
        limit: Some(beside.limit),
    }));
    for group in &profile.groups {
        let policy = &rules.groups[*group];
        let totals = [
            (RuleKind::TotalMemory, policy.total_memory.map(|it| it.0)),
            (
                RuleKind::TotalUtilization,
                policy.total_utilization.map(|it| u64::from(it.0)),
            ),
            (
                RuleKind::TotalProcesses,
                policy.total_processes.map(u64::from),
            ),
        ];
        limits.extend(said(book, Policy::Group(*group), &totals));
    }
    for (position, time) in rules.times.iter().enumerate() {
        if time.hours.contains(civil) {
            let of_time = PERSONAL.map(|kind| (kind, value(&time.limits, kind)));
            limits.extend(said(book, Policy::Time(position), &of_time));
        }
    }
    let rule = |at: usize, limit: Option<u64>| Limit {
        rule: book.name(Policy::Behaviour(at), rules.behaviours[at].conduct.kind()),
        limit,
    };
    let certain = selected.behaviours.iter();
    limits.extend(certain.map(|at| rule(*at, Some(rules.behaviours[*at].conduct.limit()))));
    let doubtful = selected.doubtful_behaviours.iter();
    limits.extend(doubtful.map(|(at, _)| rule(*at, None)));
    limits
}

fn said(book: &Rulebook, policy: Policy, limits: &[(RuleKind, Option<u64>)]) -> Vec<Limit> {
    let set = limits.iter().filter(|(_, limit)| limit.is_some());
    set.map(|(kind, limit)| Limit {
        rule: book.name(policy, *kind),
        limit: *limit,
    })
    .collect()
}
