//! The limits that would apply if others did not replace them.

use super::{EffectiveLimit, PERSON_LIMIT_KINDS, PolicyProfile, limit_value};
use crate::guard::evaluate::{CompiledRules, PolicyIndex, PolicyMatch};
use crate::guard::rules::RuleSet;
use crate::guard::sample::ProcessFacts;
use crate::guard::schedule::LocalTime;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::RuleKind;

/// The limits that do not apply to the owner of a process because another does: by kind,
/// and within a kind the one that would apply next first. If it is unknown which limit
/// applies, none is replaced.
#[must_use]
pub fn replaced_limits(
    compiled_rules: &CompiledRules,
    facts: &ProcessFacts,
    local_time: LocalTime,
) -> Vec<EffectiveLimit> {
    let rules = compiled_rules.rules();
    let profile = PolicyMatch::new(rules, facts, None).profile;
    let kinds = PERSON_LIMIT_KINDS.into_iter().flat_map(|kind| {
        let replaced = lower_ranked(rules, &profile, local_time, kind).into_iter();
        replaced.map(move |(policy, limit)| EffectiveLimit {
            rule: compiled_rules.rule_name(policy, kind),
            limit: Some(limit),
        })
    });
    kinds.collect()
}

/// All limits of one kind but the first, which applies.
fn lower_ranked(
    rules: &RuleSet,
    profile: &PolicyProfile,
    local_time: LocalTime,
    kind: RuleKind,
) -> Vec<(PolicyIndex, u64)> {
    let mut limits: Vec<(PolicyIndex, u64)> = Vec::new();
    if let Some(user) = profile.user {
        let policy = &rules.users[user];
        let in_force = policy.overrides.iter();
        let in_force = in_force.filter(|it| it.hours.contains(local_time));
        let of_now = in_force
            .filter_map(|it| limit_value(&it.limits, kind))
            .min();
        let of_always = limit_value(&policy.limits, kind);
        let both = of_now.into_iter().chain(of_always);
        limits.extend(both.map(|limit| (PolicyIndex::User(user), limit)));
    }
    // A limit that a label adds is replaced by nothing.
    let of_group = |group: &usize| {
        let limit = limit_value(&rules.groups[*group].limits, kind)?;
        (!profile.is_only_labelled(group)).then_some((limit, *group))
    };
    let is_in_doubt = profile.doubtful.iter().find_map(of_group).is_some();
    let may_be_theirs = profile.doubtful_users.iter().any(|at| {
        let limits = &rules.users[*at];
        limit_value(&limits.limits, kind).is_some() || !limits.overrides.is_empty()
    });
    if may_be_theirs || is_in_doubt && limits.is_empty() {
        return Vec::new();
    }
    // Limits of groups that may apply are not known to be replaced; certain ones are.
    let mut groups: Vec<(u64, usize)> = profile.groups.iter().filter_map(of_group).collect();
    groups.sort_indirect();
    let groups = groups.into_iter();
    limits.extend(groups.map(|(limit, group)| (PolicyIndex::Group(group), limit)));
    limits.extend(limit_value(&rules.defaults, kind).map(|limit| (PolicyIndex::Default, limit)));
    limits.into_iter().skip(1).collect()
}

#[cfg(test)]
mod tests {
    use super::super::effective_limits;
    use super::*;
    use crate::guard::rules::{GroupPolicy, Limits, Members, TimeOverride, UserPolicy};
    use crate::guard::schedule::{Hours, Weekday};
    use gpukill_proto::guard::Person;
    use gpukill_proto::units::Bytes;

    fn memory(bytes: u64) -> Limits {
        Limits {
            memory: Some(Bytes(bytes)),
            ..Limits::default()
        }
    }

    fn group(name: &str, bytes: u64) -> GroupPolicy {
        GroupPolicy {
            name: name.into(),
            members: Members {
                unix_groups: vec![name.into()],
                ..Members::default()
            },
            limits: memory(bytes),
            ..GroupPolicy::default()
        }
    }

    fn rules() -> RuleSet {
        RuleSet {
            defaults: Limits {
                processes: Some(9),
                ..memory(1)
            },
            groups: vec![group("students", 7), group("staff", 5), group("guests", 3)],
            users: vec![UserPolicy {
                name: "alice".into(),
                limits: memory(20),
                overrides: vec![TimeOverride {
                    hours: Hours {
                        from: 9 * 60,
                        to: 17 * 60,
                        days: Vec::new(),
                    },
                    limits: memory(50),
                }],
                ..UserPolicy::default()
            }],
            ..RuleSet::default()
        }
    }

    fn facts(owner: &str, groups: Option<&[&str]>) -> ProcessFacts {
        ProcessFacts {
            owner: Some(Person {
                name: owner.into(),
                uid: Some(1000),
            }),
            groups: groups.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
            pod: Some(None),
            account: Some(None),
            image: Some(None),
            ..ProcessFacts::default()
        }
    }

    fn format_limits(limits: Vec<EffectiveLimit>) -> Vec<String> {
        let line = |EffectiveLimit { rule, limit, .. }: EffectiveLimit| match limit {
            Some(limit) => format!("{rule} {limit}"),
            None => format!("{rule} ?"),
        };
        limits.into_iter().map(line).collect()
    }

    #[test]
    fn lists_replaced_limits_in_rank_order() {
        let compiled_rules = CompiledRules::new(rules());
        let at = |hour: u16| LocalTime {
            day: Weekday::Monday,
            minute: hour * 60,
        };
        let staff: &[&str] = &["staff", "students"];
        let cases = [
            (
                facts("alice", Some(staff)),
                12,
                "user alice: memory 50",
                vec![
                    "user alice: memory 20",
                    "group staff: memory 5",
                    "group students: memory 7",
                    "default: memory 1",
                ],
            ),
            (
                facts("alice", None),
                20,
                "user alice: memory 20",
                vec!["default: memory 1"],
            ),
            (
                facts("bob", Some(staff)),
                12,
                "group staff: memory 5",
                vec!["group students: memory 7", "default: memory 1"],
            ),
            (facts("bob", Some(&[])), 12, "default: memory 1", vec![]),
            (facts("bob", None), 12, "group students: memory ?", vec![]),
        ];
        for (facts, hour, holds, replaces) in cases {
            assert_eq!(
                format_limits(effective_limits(&compiled_rules, &facts, at(hour)))[0],
                holds
            );
            assert_eq!(
                format_limits(replaced_limits(&compiled_rules, &facts, at(hour))),
                replaces,
                "{holds}"
            );
        }
    }
}
