//! What would hold for somebody if what does were not said.

use super::{Limit, PERSONAL, Profile, value};
use crate::guard::bucket::About;
use crate::guard::judge::{Policy, Rulebook, Selected};
use crate::guard::rules::Rules;
use crate::guard::schedule::Civil;
use gpukill_proto::guard::RuleKind;

/// The limits that do not hold for a process's owner, because another does: by kind,
/// and of each kind the one that would be next first. Where it is not known which one
/// holds, none is replaced.
#[must_use]
pub fn replaced(book: &Rulebook, about: &About, civil: Civil) -> Vec<Limit> {
    let rules = book.rules();
    let profile = Selected::of(rules, &about.by(rules.person), None).profile;
    let kinds = PERSONAL.into_iter().flat_map(|kind| {
        let replaced = below(rules, &profile, civil, kind).into_iter();
        replaced.map(move |(policy, limit)| Limit {
            rule: book.name(policy, kind),
            limit: Some(limit),
        })
    });
    kinds.collect()
}

/// All that is said of one kind, but for the first, which holds.
fn below(rules: &Rules, profile: &Profile, civil: Civil, kind: RuleKind) -> Vec<(Policy, u64)> {
    let mut said: Vec<(Policy, u64)> = Vec::new();
    if let Some(user) = profile.user {
        let policy = &rules.users[user];
        let in_force = policy.overrides.iter();
        let in_force = in_force.filter(|it| it.hours.contains(civil));
        let of_now = in_force.filter_map(|it| value(&it.limits, kind)).min();
        let of_always = value(&policy.limits, kind);
        let both = of_now.into_iter().chain(of_always);
        said.extend(both.map(|limit| (Policy::User(user), limit)));
    }
    // What a label makes hold is replaced by nothing.
    let of_group = |group: &usize| {
        let limit = value(&rules.groups[*group].limits, kind)?;
        (!profile.is_only_labelled(group)).then_some((limit, *group))
    };
    let is_in_doubt = profile.doubtful.iter().find_map(of_group).is_some();
    let may_be_theirs = profile.doubtful_users.iter().any(|at| {
        let limits = &rules.users[*at];
        value(&limits.limits, kind).is_some() || !limits.overrides.is_empty()
    });
    if may_be_theirs || is_in_doubt && said.is_empty() {
        return Vec::new();
    }
    // What may be theirs is not known to be replaced; what is certain is.
    let mut groups: Vec<(u64, usize)> = profile.groups.iter().filter_map(of_group).collect();
    groups.sort_unstable();
    let groups = groups.into_iter();
    said.extend(groups.map(|(limit, group)| (Policy::Group(group), limit)));
    said.extend(value(&rules.defaults, kind).map(|limit| (Policy::Default, limit)));
    said.into_iter().skip(1).collect()
}

#[cfg(test)]
mod tests {
    use super::super::of;
    use super::*;
    use crate::guard::rules::{GroupPolicy, Limits, Members, Override, UserPolicy};
    use crate::guard::schedule::{Day, Hours};
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

    fn rules() -> Rules {
        Rules {
            defaults: Limits {
                processes: Some(9),
                ..memory(1)
            },
            groups: vec![group("students", 7), group("staff", 5), group("guests", 3)],
            users: vec![UserPolicy {
                name: "alice".into(),
                limits: memory(20),
                overrides: vec![Override {
                    hours: Hours {
                        from: 9 * 60,
                        to: 17 * 60,
                        days: Vec::new(),
                    },
                    limits: memory(50),
                }],
                ..UserPolicy::default()
            }],
            ..Rules::default()
        }
    }

    fn about(owner: &str, groups: Option<&[&str]>) -> About {
        About {
            owner: Some(Person {
                name: owner.into(),
                uid: Some(1000),
            }),
            groups: groups.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
            pod: Some(None),
            account: Some(None),
            image: Some(None),
            ..About::default()
        }
    }

    fn said(limits: Vec<Limit>) -> Vec<String> {
        let line = |Limit { rule, limit, .. }: Limit| match limit {
            Some(limit) => format!("{rule} {limit}"),
            None => format!("{rule} ?"),
        };
        limits.into_iter().map(line).collect()
    }

    #[test]
    fn what_is_replaced_stands_in_the_order_in_which_it_would_hold() {
        let book = Rulebook::of(rules());
        let at = |hour: u16| Civil {
            day: Day::Monday,
            minute: hour * 60,
        };
        let staff: &[&str] = &["staff", "students"];
        let cases = [
            (
                about("alice", Some(staff)),
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
                about("alice", None),
                20,
                "user alice: memory 20",
                vec!["default: memory 1"],
            ),
            (
                about("bob", Some(staff)),
                12,
                "group staff: memory 5",
                vec!["group students: memory 7", "default: memory 1"],
            ),
            (about("bob", Some(&[])), 12, "default: memory 1", vec![]),
            (about("bob", None), 12, "group students: memory ?", vec![]),
        ];
        for (about, hour, holds, replaces) in cases {
            assert_eq!(said(of(&book, &about, at(hour)))[0], holds);
            assert_eq!(said(replaced(&book, &about, at(hour))), replaces, "{holds}");
        }
    }
}
