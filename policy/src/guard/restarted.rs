//! Which open violations an edit of the rules restarts. When a rule or its consequence
//! changes, its violations start again, so that no job is ended by a clock that ran under
//! another rule.

use super::evaluate::CompiledRules;
use gpukill_proto::guard::OpenViolation;

/// How many open violations restart when the rules `after` replace the rules `before`, as
/// far as they are broken too. A violation that the new rules do not forbid is over
/// instead.
#[must_use]
pub fn count_restarted(
    open: &[OpenViolation],
    before: &CompiledRules,
    after: &CompiledRules,
) -> usize {
    let restarts = |open: &&OpenViolation| {
        let was = before.find(&open.rule.source);
        let was = was.map(|policy| before.policy_digest(policy));
        after.find(&open.rule.source).is_some_and(|policy| {
            was != Some(after.policy_digest(policy))
                && after.response(policy, open.rule.kind).is_some()
        })
    };
    open.iter().filter(restarts).count()
}

#[cfg(test)]
mod tests {
    use super::super::rules::parse::parse;
    use super::super::testing::{TestGuard, TestHost};
    use super::*;

    fn compile_rules(text: &str) -> CompiledRules {
        CompiledRules::new(parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}")))
    }

    #[test]
    fn restarts_when_the_rule_changes() {
        const BOB: &str = "[user_policies.bob]\nmemory_limit_gb = 10\n";
        const ALICE: &str = "[user_policies.alice]\nmemory_limit_gb = 10\n";
        let before = format!("{ALICE}{BOB}");
        for (after, expected) in [
            (before.clone(), 0),
            (format!("# Ours.\n{BOB}{ALICE}"), 0),
            (
                format!("{before}[user_policies.carol]\nmemory_limit_gb = 1\n"),
                0,
            ),
            (format!("{before}message = 'ask us'\n"), 1),
            (format!("{ALICE}{}", BOB.replace("10", "15")), 1),
            (
                format!("[enforcement]\nsettled_after_minutes = 1\n{before}"),
                2,
            ),
            (
                format!("[enforcement]\ngrace_period_seconds = 60\n{before}"),
                2,
            ),
            // A violation that is over does not restart.
            (ALICE.to_owned(), 0),
            (format!("[global]\nenabled = false\n{before}"), 0),
        ] {
            let mut world = TestHost::new(1);
            world.start(100, "alice").uses(0, 20, 50).job("one");
            world.start(101, "bob").uses(0, 20, 50).job("other");
            let (before, after) = (compile_rules(&before), compile_rules(&after));
            let mut guard = TestGuard::new(before.rules().clone());
            guard.evaluate_samples(&mut world, 3);
            let open = guard.state.violations();
            assert_eq!(open.len(), 2);
            let actual = count_restarted(&open, &before, &after);
            assert_eq!(actual, expected, "{:?}", after.rules());
            // The guard does the same.
            let mut guard = guard;
            guard.compiled_rules = after;
            let overs = guard.evaluate_samples(&mut world, 3).into_iter();
            let overs = overs.filter(|it| it.step.name() == "violated").count();
            assert_eq!(overs, expected);
        }
    }
}
