//! Which violations an edit of the rules begins anew: what they break, or what comes of
//! it, is said otherwise, and nobody is ended by a clock that ran for other words.

use super::judge::Rulebook;
use gpukill_proto::guard::OpenViolation;

/// How many of these that go on begin anew when other rules take the place of those
/// before, as far as those are broken too. What the new ones say nothing of is over.
#[must_use]
pub fn begin_anew(open: &[OpenViolation], before: &Rulebook, after: &Rulebook) -> usize {
    let begins_anew = |open: &&OpenViolation| {
        let was = before.find(&open.rule.source);
        let was = was.map(|policy| before.policy_digest(policy));
        after.find(&open.rule.source).is_some_and(|policy| {
            was != Some(after.policy_digest(policy))
                && after.course(policy, open.rule.kind).is_some()
        })
    };
    open.iter().filter(begins_anew).count()
}

#[cfg(test)]
mod tests {
    use super::super::read::read;
    use super::super::testing::{Guard, World};
    use super::*;

    fn book(text: &str) -> Rulebook {
        Rulebook::of(read(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}")))
    }

    #[test]
    fn whatever_touches_a_rule_begins_its_violations_anew() {
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
            (format!("[global]\nperson = 'login'\n{before}"), 2),
            (
                format!("[enforcement]\nsettled_after_minutes = 1\n{before}"),
                2,
            ),
            (
                format!("[enforcement]\ngrace_period_seconds = 60\n{before}"),
                2,
            ),
            // What is over begins nothing.
            (ALICE.to_owned(), 0),
            (format!("[global]\nenabled = false\n{before}"), 0),
        ] {
            let mut world = World::new(1);
            world.start(100, "alice").uses(0, 20, 50).job("one");
            world.start(101, "bob").uses(0, 20, 50).job("other");
            let (before, after) = (book(&before), book(&after));
            let mut guard = Guard::new(before.rules().clone());
            guard.watches(&mut world, 3);
            let open = guard.memory.violations();
            assert_eq!(open.len(), 2);
            let told = begin_anew(&open, &before, &after);
            assert_eq!(told, expected, "{:?}", after.rules());
            // As the guard has it.
            let mut guard = guard;
            guard.book = after;
            let overs = guard.watches(&mut world, 3).into_iter();
            let overs = overs.filter(|it| it.step.name() == "violated").count();
            assert_eq!(overs, expected);
        }
    }
}
