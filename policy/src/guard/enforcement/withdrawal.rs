//! Whether a change of the rules withdraws an enforcement, before its first signal or between two
//! signals. Only a change that may concern it does; what cannot be ruled out withdraws it.

use super::order::Enforcement;
use crate::guard::evaluate::{CompiledRules, PolicyIndex};
use crate::guard::rules::{RuleSet, UserPolicy};
use crate::select::{names_user, user_number};
use gpukill_proto::guard::{GuardMode, Person, RuleKind, RuleName};

impl Enforcement {
    /// Why this enforcement, which was chosen by the rules `before`, gets no further signal by
    /// the rules `now`; `None` if it does.
    #[must_use]
    pub fn withdrawal_reason(
        &self,
        before: &CompiledRules,
        now: &CompiledRules,
    ) -> Option<&'static str> {
        if now.is_same(before) {
            return None;
        }
        reason_to_withdraw((&self.record.rule, &self.job.owner), before, now)
    }
}

fn reason_to_withdraw(
    (rule, owner): (&RuleName, &Person),
    before: &CompiledRules,
    now: &CompiledRules,
) -> Option<&'static str> {
    let (old, new) = (before.rules(), now.rules());
    match new.mode {
        GuardMode::Disabled => return Some("the guard was switched off"),
        GuardMode::DryRun => return Some("the guard was switched to dry run"),
        GuardMode::Soft if old.mode > GuardMode::Soft => {
            return Some("the guard was switched to soft mode");
        }
        GuardMode::Soft | GuardMode::Enforce => {}
    }
    let Some(policy) = now.find(&rule.source) else {
        return Some("its rule was removed");
    };
    let old_policy = before.find(&rule.source);
    let is_same_rule = old_policy.is_some_and(|it| is_same_policy((old, it), (new, policy)));
    let (was, is) = (&old.enforcement, &new.enforcement);
    let is_measured_alike =
        (was.utilization_window, was.idle_below) == (is.utilization_window, is.idle_below);
    // Limits of a group replace the defaults, and the strictest of several groups counts. How much
    // memory an idle process holds may be set by another policy than its idle limit.
    let is_idle_limit = rule.kind == RuleKind::Idle && !matches!(policy, PolicyIndex::Behaviour(_));
    let depends_on_groups =
        is_idle_limit || matches!(policy, PolicyIndex::Default | PolicyIndex::Group(_));
    let changes = [
        (!is_same_rule, "its rule changed"),
        (is.grace > was.grace, "the grace period was extended"),
        (!is_measured_alike, "the settings of the guard changed"),
        (
            old.protect != new.protect,
            "the protected processes changed",
        ),
        (
            !own_policies(old, owner).eq(own_policies(new, owner)),
            "the policy of its owner changed",
        ),
        (
            depends_on_groups && old.groups != new.groups,
            "the policies of groups changed",
        ),
        (
            is_idle_limit && old.defaults.idle_min_memory != new.defaults.idle_min_memory,
            "the defaults changed",
        ),
    ];
    let reason = changes.into_iter().find(|(is_changed, _)| *is_changed);
    reason.map(|(_, why)| why)
}

/// Whether a policy has the same keys in both rule sets.
fn is_same_policy((old, was): (&RuleSet, PolicyIndex), (new, is): (&RuleSet, PolicyIndex)) -> bool {
    match (was, is) {
        (PolicyIndex::Default, PolicyIndex::Default) => old.defaults == new.defaults,
        (PolicyIndex::User(was), PolicyIndex::User(is)) => old.users[was] == new.users[is],
        (PolicyIndex::Group(was), PolicyIndex::Group(is)) => old.groups[was] == new.groups[is],
        (PolicyIndex::Gpu(was), PolicyIndex::Gpu(is)) => old.gpus[was] == new.gpus[is],
        (PolicyIndex::Time(was), PolicyIndex::Time(is)) => old.times[was] == new.times[is],
        (PolicyIndex::Behaviour(was), PolicyIndex::Behaviour(is)) => {
            old.behaviours[was] == new.behaviours[is]
        }
        _ => false,
    }
}

/// The policies that are the owner's, or may be. They replace other limits, and make the response
/// to any rule milder.
fn own_policies<'a>(rules: &'a RuleSet, owner: &'a Person) -> impl Iterator<Item = &'a UserPolicy> {
    // An owner that is shown by the uid may have any name.
    let is_nameless = owner.uid.is_some() && owner.uid == user_number(&owner.name);
    rules.users.iter().filter(move |policy| {
        names_user(&policy.name, owner.uid, Some(&owner.name))
            || is_nameless && user_number(&policy.name).is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::rules::parse::parse;
    use gpukill_proto::guard::RuleSource;

    const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 10\n\
                         [enforcement]\nhard_enforcement = true\nsoft_enforcement = false\n\
                         grace_period_seconds = 90\nmax_snoozes = 1\n\
                         [protect]\nusers = ['gdm']\n\
                         [user_policies.bob]\nmemory_limit_gb = 1\n\
                         [group_policies.lab]\nmembers = ['bob']\nmemory_limit_gb = 2\n\
                         [gpu_policies.'0']\nblocked_users = ['eve']\n";

    fn compile(text: &str) -> CompiledRules {
        CompiledRules::new(parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}")))
    }

    fn memory_rule(source: RuleSource) -> RuleName {
        RuleName {
            source,
            kind: RuleKind::Memory,
        }
    }

    /// The reason after `old` in [`RULES`] is replaced by `new`.
    fn reason_after(
        concerned: (&RuleName, &Person),
        (old, new): (&str, &str),
    ) -> Option<&'static str> {
        assert!(RULES.contains(old), "{old}");
        let now = RULES.replace(old, new);
        reason_to_withdraw(concerned, &compile(RULES), &compile(&now))
    }

    #[test]
    fn unrelated_changes_withdraw_nothing() {
        let alice = Person {
            name: "alice".into(),
            uid: Some(1_000),
        };
        let rule = memory_rule(RuleSource::Default);
        for edit in [
            ("[global]", "# Ours.\n[global]"),
            ("max_snoozes = 1", "max_snoozes = 3"),
            ("seconds = 90", "seconds = 60"),
            ("memory_limit_gb = 1\n", "memory_limit_gb = 3\n"),
            ("['eve']", "['eve', 'mallory']"),
            (
                "[gpu_policies",
                "[user_policies.carol]\nmemory_limit_gb = 8\n[gpu_policies",
            ),
            (
                "[gpu_policies",
                "[user_policies.1001]\nmemory_limit_gb = 8\n[gpu_policies",
            ),
        ] {
            assert_eq!(reason_after((&rule, &alice), edit), None, "{edit:?}");
        }
        let soft = RULES.replace(
            "[enforcement]\nhard_enforcement = true\nsoft_enforcement = false",
            "[enforcement]",
        );
        let harder = reason_to_withdraw((&rule, &alice), &compile(&soft), &compile(RULES));
        assert_eq!(harder, None);
        // The limits of groups do not replace those of a user.
        let bob = Person {
            name: "bob".into(),
            uid: Some(1_001),
        };
        let of_bob = memory_rule(RuleSource::User("bob".into()));
        let edit = ("memory_limit_gb = 2\n", "memory_limit_gb = 3\n");
        assert_eq!(reason_after((&of_bob, &bob), edit), None);
    }

    #[test]
    fn changes_that_may_concern_it_withdraw_it() {
        let person = |name: &str| Person {
            name: name.into(),
            uid: Some(1_001),
        };
        let (bob, nameless) = (person("bob"), person("1001"));
        // As a label names him.
        let labelled = Person {
            uid: None,
            ..bob.clone()
        };
        let (default, user) = (
            memory_rule(RuleSource::Default),
            memory_rule(RuleSource::User("bob".into())),
        );
        let own = "[user_policies.bob]\nmemory_limit_gb = 1\n";
        let warns = format!("{own}action = 'warn'\n");
        let other = "[user_policies.other]\naction = 'warn'\n[gpu_policies";
        for (concerned, edit, expected) in [
            (
                (&default, &bob),
                ("dry_run = false", "enabled = false"),
                "the guard was switched off",
            ),
            (
                (&default, &bob),
                ("dry_run = false", "dry_run = true"),
                "the guard was switched to dry run",
            ),
            (
                (&default, &bob),
                (
                    "hard_enforcement = true\nsoft_enforcement = false",
                    "hard_enforcement = false\nsoft_enforcement = true",
                ),
                "the guard was switched to soft mode",
            ),
            ((&user, &bob), (own, ""), "its rule was removed"),
            (
                (&default, &bob),
                ("limit_gb = 10", "limit_gb = 20"),
                "its rule changed",
            ),
            ((&user, &bob), (own, warns.as_str()), "its rule changed"),
            (
                (&default, &bob),
                ("seconds = 90", "seconds = 120"),
                "the grace period was extended",
            ),
            (
                (&default, &bob),
                ("max_snoozes", "utilization_window_minutes = 9\nmax_snoozes"),
                "the settings of the guard changed",
            ),
            (
                (&default, &bob),
                ("['gdm']", "['gdm', 'bob']"),
                "the protected processes changed",
            ),
            (
                (&default, &bob),
                (own, warns.as_str()),
                "the policy of its owner changed",
            ),
            (
                (&default, &labelled),
                (own, warns.as_str()),
                "the policy of its owner changed",
            ),
            (
                (&default, &nameless),
                ("[gpu_policies", other),
                "the policy of its owner changed",
            ),
            (
                (&default, &bob),
                ("memory_limit_gb = 2\n", "memory_limit_gb = 3\n"),
                "the policies of groups changed",
            ),
        ] {
            assert_eq!(reason_after(concerned, edit), Some(expected), "{edit:?}");
        }
    }

    #[test]
    fn idle_limit_depends_on_the_memory_in_other_policies() {
        const IDLE: &str = "[global]\ndry_run = false\ndefault_idle_limit_minutes = 90\n\
                            default_idle_min_memory_gb = 1\n\
                            [enforcement]\nhard_enforcement = true\nsoft_enforcement = false\n\
                            [user_policies.bob]\nidle_limit_minutes = 60\nmemory_limit_gb = 1\n\
                            [group_policies.lab]\nmembers = ['bob']\nidle_limit_minutes = 80\n\
                            idle_min_memory_gb = 2\n";
        let bob = Person {
            name: "bob".into(),
            uid: Some(1_001),
        };
        let memory = memory_rule(RuleSource::User("bob".into()));
        let idle = RuleName {
            kind: RuleKind::Idle,
            ..memory.clone()
        };
        for (old, new, expected) in [
            ("memory_gb = 1\n", "memory_gb = 3\n", "the defaults changed"),
            (
                "memory_gb = 2\n",
                "memory_gb = 3\n",
                "the policies of groups changed",
            ),
        ] {
            let (before, now) = (compile(IDLE), compile(&IDLE.replace(old, new)));
            let reason = |rule| reason_to_withdraw((rule, &bob), &before, &now);
            assert_eq!(reason(&idle), Some(expected));
            assert_eq!(reason(&memory), None, "{expected}");
        }
    }
}
