//! All limits that apply to a process and its owner, for queries.

use super::{EffectiveLimit, PERSON_LIMIT_KINDS, ResolvedLimit, limit_value, resolve_limits};
use crate::guard::evaluate::{CompiledRules, PolicyIndex, PolicyMatch, describe_protection};
use crate::guard::sample::ProcessFacts;
use crate::guard::schedule::LocalTime;
use gpukill_proto::guard::RuleKind;

/// Why no rule applies to a process that `[protect]` names or may name; `None` if rules
/// apply.
#[must_use]
pub fn protection_reason(compiled_rules: &CompiledRules, facts: &ProcessFacts) -> Option<String> {
    describe_protection(&compiled_rules.rules().protect, facts)
}

/// The limits that apply to the owner of a process at a moment: those of the person, of the
/// groups that the process counts for, and of the time; then the behaviour rules for the
/// process itself.
#[must_use]
pub fn effective_limits(
    compiled_rules: &CompiledRules,
    facts: &ProcessFacts,
    local_time: LocalTime,
) -> Vec<EffectiveLimit> {
    let rules = compiled_rules.rules();
    let selected = PolicyMatch::new(rules, facts, None);
    let profile = &selected.profile;
    let resolved = resolve_limits(rules, profile, local_time);
    let mut limits: Vec<EffectiveLimit> = resolved
        .by_kind
        .iter()
        .map(|(kind, governed)| match governed {
            ResolvedLimit::Known { policy, limit } => EffectiveLimit {
                rule: compiled_rules.rule_name(*policy, *kind),
                limit: Some(*limit),
            },
            ResolvedLimit::Unknown { policy, .. } => EffectiveLimit {
                rule: compiled_rules.rule_name(*policy, *kind),
                limit: None,
            },
        })
        .collect();
    limits.extend(resolved.additional.iter().map(|beside| EffectiveLimit {
        rule: compiled_rules.rule_name(beside.policy, beside.kind),
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
        limits.extend(set_limits(
            compiled_rules,
            PolicyIndex::Group(*group),
            &totals,
        ));
    }
    for (position, time) in rules.times.iter().enumerate() {
        if time.hours.contains(local_time) {
            let of_time = PERSON_LIMIT_KINDS.map(|kind| (kind, limit_value(&time.limits, kind)));
            limits.extend(set_limits(
                compiled_rules,
                PolicyIndex::Time(position),
                &of_time,
            ));
        }
    }
    let rule = |at: usize, limit: Option<u64>| EffectiveLimit {
        rule: compiled_rules.rule_name(
            PolicyIndex::Behaviour(at),
            rules.behaviours[at].behaviour.kind(),
        ),
        limit,
    };
    let certain = selected.behaviours.iter();
    limits.extend(certain.map(|at| rule(*at, Some(rules.behaviours[*at].behaviour.limit()))));
    let doubtful = selected.doubtful_behaviours.iter();
    limits.extend(doubtful.map(|(at, _)| rule(*at, None)));
    limits
}

fn set_limits(
    compiled_rules: &CompiledRules,
    policy: PolicyIndex,
    limits: &[(RuleKind, Option<u64>)],
) -> Vec<EffectiveLimit> {
    let set = limits.iter().filter(|(_, limit)| limit.is_some());
    set.map(|(kind, limit)| EffectiveLimit {
        rule: compiled_rules.rule_name(policy, *kind),
        limit: *limit,
    })
    .collect()
}
