//! Violations under other rules.

use super::super::enforcement::order::SnoozeRequest;
use super::super::rules::parse::parse;
use super::super::testing::{TestGuard, TestHost};
use super::*;
use gpukill_proto::guard::GuardStep;

fn compile_rules(text: &str) -> CompiledRules {
    CompiledRules::new(parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}")))
}

/// Alice exceeds a default limit and bob the limit of his own policy.
fn open_violations() -> Vec<OpenViolation> {
    let rules = "[global]\ndefault_memory_limit_gb = 10\n\
        [user_policies.bob]\nmemory_limit_gb = 15\n";
    let mut world = TestHost::new(1);
    world.start(100, "alice").uses(0, 20, 50).job("one");
    world.start(101, "bob").uses(0, 20, 50).job("other");
    let mut guard = TestGuard::new(compile_rules(rules).rules().clone());
    guard.evaluate_samples(&mut world, 3);
    guard.state.violations()
}

#[test]
fn consequence_follows_rules_and_own_policies() {
    let open = open_violations();
    let limits = "[user_policies.bob]\nmemory_limit_gb = 15\n";
    let mild = |of_alice: &str| format!("{limits}[user_policies.alice]\n{of_alice}\n");
    let global = |mode: &str, rest: &str| {
        let soft = mode == "soft";
        format!(
            "[global]\nenabled = true\ndry_run = {}\ndefault_memory_limit_gb = 10\n\
             [enforcement]\nsoft_enforcement = {soft}\nhard_enforcement = {}\n\
             grace_period_seconds = 60\n{rest}",
            mode == "dry-run",
            !soft
        )
    };
    let now = Timestamp(7_000_000);
    let minute = Consequence::EndsNotBefore(now.plus_seconds(60));
    let hour = Consequence::EndsNotBefore(now.plus_seconds(3_600));
    let (rule, own) = (ConsequenceReason::Rule, ConsequenceReason::OwnPolicy);
    for (rules, of_alice, of_bob) in [
        (global("soft", limits), minute, minute),
        (
            global("enforce", limits),
            Consequence::EndsAtOnce,
            Consequence::EndsAtOnce,
        ),
        (
            global("dry-run", limits),
            Consequence::DryRun(rule),
            Consequence::DryRun(rule),
        ),
        // Alice's own policy is milder, and she broke another rule.
        (
            global("soft", &mild("mode = 'dry-run'")),
            Consequence::DryRun(own),
            minute,
        ),
        (
            global("enforce", &mild("action = 'warn'")),
            Consequence::Warned(own),
            Consequence::EndsAtOnce,
        ),
        (
            global("enforce", &mild("mode = 'soft'\ngrace = '1h'")),
            hour,
            Consequence::EndsAtOnce,
        ),
        // An action in the policy that is the broken rule belongs to the rule.
        (
            global("soft", &format!("{limits}action = 'warn'\n")),
            minute,
            Consequence::Warned(rule),
        ),
        // The new rules no longer have the limit.
        (global("soft", ""), minute, Consequence::Nothing),
        (
            "[global]\nenabled = false\n".into(),
            Consequence::Nothing,
            Consequence::Nothing,
        ),
    ] {
        let rules = compile_rules(&rules);
        let come: Vec<Consequence> = open
            .iter()
            .map(|it| predict_consequence(it, &rules, now))
            .collect();
        assert_eq!(come, [of_alice, of_bob], "{:?}", rules.rules());
    }
}

/// Alice's service and bob's notebook are idle. `services` sets whether the rule ends
/// services.
fn idle_jobs(mode: &str, services: &str) -> (TestGuard, TestHost) {
    let rules = format!(
        "{mode}[enforcement]\ngrace_period_seconds = 300\nsnooze_minutes = 60\n\
         [[rules]]\nname = 'it'\nidle_limit_minutes = 1\n{services}"
    );
    let mut world = TestHost::new(1);
    world.start(100, "alice").uses(0, 2, 0).job("one");
    world.process(100).serves(8_000, 0);
    world.start(101, "bob").uses(0, 2, 0).job("other");
    let mut guard = TestGuard::new(compile_rules(&rules).rules().clone());
    guard.evaluate_samples(&mut world, 10);
    (guard, world)
}

#[test]
fn services_are_only_warned_by_default() {
    const SOFT: &str = "[global]\nenabled = true\ndry_run = false\n";
    const ENDS: &str = "services = 'end'\n";
    let now = Timestamp(900_000);
    let ends = Consequence::EndsNotBefore(now.plus_seconds(300));
    let warned = Consequence::Warned(ConsequenceReason::Service);
    for (before, after, expected) in [
        ("", "", [warned, ends]),
        ("", ENDS, [ends, ends]),
        (ENDS, ENDS, [ends, ends]),
        (ENDS, "", [warned, ends]),
    ] {
        let open = idle_jobs("", before).0.state.violations();
        let (after, _) = idle_jobs(SOFT, after);
        let come: Vec<Consequence> = open
            .iter()
            .map(|it| predict_consequence(it, &after.compiled_rules, now))
            .collect();
        assert_eq!(
            come,
            expected,
            "{before} {:?}",
            after.compiled_rules.rules()
        );
    }
}

#[test]
fn snooze_delays_the_end_in_every_mode() {
    let live = |hard: bool| {
        format!(
            "[global]\nenabled = true\ndry_run = false\ndefault_memory_limit_gb = 1\n\
             [enforcement]\nsoft_enforcement = {}\nhard_enforcement = {hard}\n\
             grace_period_seconds = 300\nsnooze_minutes = 60\n",
            !hard
        )
    };
    let mut world = TestHost::new(1);
    world.start(100, "alice").uses(0, 2, 90).job("one");
    world.start(101, "bob").uses(0, 2, 90).job("other");
    let mut guard = TestGuard::new(compile_rules(&live(false)).rules().clone());
    guard.evaluate_samples(&mut world, 3);
    let alice = guard.state.violations()[0].readers[0].uid;
    let snoozer = SnoozeRequest {
        requester: alice,
        owner: alice,
        process: (100, 1_000),
        job: None,
    };
    let granted = guard
        .state
        .snooze(&guard.compiled_rules, &snoozer, world.now);
    let Ok([record]) = granted.as_deref() else {
        panic!("{granted:?}");
    };
    let GuardStep::Snoozed { until, .. } = record.step else {
        panic!("{record:?}");
    };
    let open = guard.state.violations();
    let untils: Vec<_> = open.iter().map(|it| it.snoozed_until).collect();
    assert_eq!(untils, [Some(until), None]);
    let (now, snoozed) = (world.now, Consequence::EndsNotBefore(until));
    for (hard, of_bob) in [
        (false, Consequence::EndsNotBefore(now.plus_seconds(300))),
        (true, Consequence::EndsAtOnce),
    ] {
        let rules = compile_rules(&live(hard));
        let come: Vec<Consequence> = open
            .iter()
            .map(|it| predict_consequence(it, &rules, now))
            .collect();
        assert_eq!(come, [snoozed, of_bob], "{hard}");
        // The guard does the same once the new mode holds.
        guard.compiled_rules = rules;
        let records = guard.evaluate_samples(&mut world, 4);
        let ended = records.iter().any(|it| {
            let victim = it.step.victim();
            victim.is_some_and(|victim| victim.job.owner.uid == Some(alice))
        });
        assert!(!ended, "{records:?}");
        let open = guard.state.violations();
        assert_eq!(open[0].snoozed_until, Some(until), "{hard}");
    }
    // Shortly before the snooze ends, the whole grace period ends later.
    let late = until.plus_seconds(-60);
    assert_eq!(
        predict_consequence(&open[0], &compile_rules(&live(false)), late),
        Consequence::EndsNotBefore(late.plus_seconds(300))
    );
}

#[test]
fn soft_ends_nothing_without_a_reader() {
    let mut open = open_violations();
    for process in &mut open[0].evidence.runs {
        process.owner = Some(Person {
            name: "somebody".into(),
            uid: None,
        });
    }
    let soft = "[global]\nenabled = true\ndry_run = false\ndefault_memory_limit_gb = 10\n";
    assert_eq!(
        predict_consequence(&open[0], &compile_rules(soft), Timestamp(0)),
        Consequence::DryRun(ConsequenceReason::NoReader)
    );
}

#[test]
fn shows_violations_under_the_new_rules() {
    let rules = |global: &str, rest: &str| {
        compile_rules(&format!(
            "[global]\nenabled = true\n{global}default_memory_limit_gb = 10\n{rest}"
        ))
    };
    let (dry, soft) = (rules("", ""), rules("dry_run = false\n", ""));
    let mut open = open_violations().remove(0);
    open.warned_at = Some(Timestamp(5));
    open.deadline = Some(Timestamp(300_000));
    // The rules are the same, so the violation is unchanged.
    assert_eq!(violation_under(&open, &dry, &dry), Some(open.clone()));
    let of_another = rules("", "[user_policies.carol]\nmemory_limit_gb = 1\n");
    assert_eq!(
        violation_under(&open, &dry, &of_another),
        Some(open.clone())
    );
    for (before, after, mode) in [
        (&dry, &soft, GuardMode::Soft),
        (&soft, &dry, GuardMode::DryRun),
    ] {
        let now =
            violation_under(&open, before, after).map(|it| (it.mode, it.warned_at, it.deadline));
        assert_eq!(now, Some((mode, None, None)));
    }
    let off = compile_rules("[global]\nenabled = false\ndefault_memory_limit_gb = 10\n");
    assert_eq!(violation_under(&open, &dry, &off), None);
}

#[test]
fn dry_run_reports_milder_own_policies() {
    let open = open_violations();
    let with = |global: &str, of_alice: &str| {
        compile_rules(&format!(
            "[global]\n{global}\ndefault_memory_limit_gb = 10\n\
             [user_policies.bob]\nmemory_limit_gb = 15\n\
             [user_policies.alice]\n{of_alice}\n"
        ))
    };
    let (dry, live) = ("enabled = true", "enabled = true\ndry_run = false");
    for (global, of_alice, expected) in [
        (live, "mode = 'dry-run'", Some(MilderPolicy::DryRun)),
        (dry, "mode = 'dry-run'", Some(MilderPolicy::DryRun)),
        (live, "action = 'warn'", Some(MilderPolicy::Warned)),
        (dry, "action = 'warn'", Some(MilderPolicy::Warned)),
        (
            live,
            "action = 'warn'\nmode = 'dry-run'",
            Some(MilderPolicy::DryRun),
        ),
        (live, "mode = 'soft'", None),
        (live, "action = 'terminate'", None),
        (live, "priority = 7", None),
        ("enabled = false", "mode = 'dry-run'", None),
    ] {
        let rules = with(global, of_alice);
        let actual: Vec<_> = open
            .iter()
            .map(|open| milder_policy_for_violation(open, &rules))
            .collect();
        assert_eq!(actual, [expected, None], "{global} {of_alice}");
    }
    // A violation by several people has no policy of its own, although each of them has
    // one.
    let rules = with(live, "action = 'warn'");
    let group = OpenViolation {
        subject: ViolationSubject::Group("ml".into()),
        ..open[0].clone()
    };
    assert_eq!(milder_policy_for_violation(&group, &rules), None);
}

#[test]
fn only_own_policies_soften() {
    let rules = "[global]\ndefault_memory_limit_gb = 10\n\
        [user_policies.bob]\nmemory_limit_gb = 15\nmode = 'dry-run'\n\
        [user_policies.carol]\naction = 'warn'\n";
    let mut world = TestHost::new(1);
    world.start(100, "alice").uses(0, 20, 50).job("one");
    world.start(101, "bob").uses(0, 20, 50).job("other");
    let rules = compile_rules(rules).rules().clone();
    let mut guard = TestGuard::new(rules.clone());
    let records = guard.evaluate_samples(&mut world, 60);
    let ended = records
        .iter()
        .filter(|it| it.step.name() == "ended")
        .count();
    assert_eq!(ended, 2);
    // Carol breaks no rule.
    let expected = BTreeMap::from([("bob".to_owned(), MilderPolicy::DryRun)]);
    assert_eq!(milder_policies_by_person(&records, &rules), expected);
}
