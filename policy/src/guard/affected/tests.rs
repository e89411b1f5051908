//! What comes of violations by other rules.

use super::super::Snoozer;
use super::super::read::read;
use super::super::testing::{Guard, World};
use super::*;
use gpukill_proto::guard::GuardStep;

fn book(text: &str) -> Rulebook {
    Rulebook::of(read(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}")))
}

/// Alice breaks a rule of everybody's, bob one of his own, with what both hold.
fn open() -> Vec<OpenViolation> {
    let rules = "[global]\ndefault_memory_limit_gb = 10\n\
        [user_policies.bob]\nmemory_limit_gb = 15\n";
    let mut world = World::new(1);
    world.start(100, "alice").uses(0, 20, 50).job("one");
    world.start(101, "bob").uses(0, 20, 50).job("other");
    let mut guard = Guard::new(book(rules).rules().clone());
    guard.watches(&mut world, 3);
    guard.memory.violations()
}

#[test]
fn what_comes_of_violations_follows_from_the_rules_and_from_whose_they_are() {
    let open = open();
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
    let minute = Comes::EndsNotBefore(now.plus_seconds(60));
    let hour = Comes::EndsNotBefore(now.plus_seconds(3_600));
    let (rule, own) = (Because::OfTheRule, Because::OfTheirPolicy);
    for (rules, of_alice, of_bob) in [
        (global("soft", limits), minute, minute),
        (
            global("enforce", limits),
            Comes::EndsAtOnce,
            Comes::EndsAtOnce,
        ),
        (
            global("dry-run", limits),
            Comes::Rehearsed(rule),
            Comes::Rehearsed(rule),
        ),
        // The whole policy of one who broke another rule is milder.
        (
            global("soft", &mild("mode = 'dry-run'")),
            Comes::Rehearsed(own),
            minute,
        ),
        (
            global("enforce", &mild("action = 'warn'")),
            Comes::Warned(own),
            Comes::EndsAtOnce,
        ),
        (
            global("enforce", &mild("mode = 'soft'\ngrace = '1h'")),
            hour,
            Comes::EndsAtOnce,
        ),
        // What a rule says of itself is the rule's.
        (
            global("soft", &format!("{limits}action = 'warn'\n")),
            minute,
            Comes::Warned(rule),
        ),
        // It is said no more.
        (global("soft", ""), minute, Comes::Nothing),
        (
            "[global]\nenabled = false\n".into(),
            Comes::Nothing,
            Comes::Nothing,
        ),
    ] {
        let rules = book(&rules);
        let come: Vec<Comes> = open.iter().map(|it| comes(it, &rules, now)).collect();
        assert_eq!(come, [of_alice, of_bob], "{:?}", rules.rules());
    }
}

/// Alice's service is idle, by a rule that spares services and by one that ends them; bob's
/// notebook is too.
fn idle(mode: &str, services: &str) -> (Guard, World) {
    let rules = format!(
        "{mode}[enforcement]\ngrace_period_seconds = 300\nsnooze_minutes = 60\n\
         [[rules]]\nname = 'it'\nidle_limit_minutes = 1\n{services}"
    );
    let mut world = World::new(1);
    world.start(100, "alice").uses(0, 2, 0).job("one");
    world.process(100).serves(8_000, 0);
    world.start(101, "bob").uses(0, 2, 0).job("other");
    let mut guard = Guard::new(book(&rules).rules().clone());
    guard.watches(&mut world, 10);
    (guard, world)
}

#[test]
fn an_idle_service_is_only_warned_about_unless_the_rule_ends_services() {
    const SOFT: &str = "[global]\nenabled = true\ndry_run = false\n";
    const ENDS: &str = "services = 'end'\n";
    let now = Timestamp(900_000);
    let ends = Comes::EndsNotBefore(now.plus_seconds(300));
    let spared = Comes::Warned(Because::IsService);
    for (before, after, expected) in [
        ("", "", [spared, ends]),
        ("", ENDS, [ends, ends]),
        (ENDS, ENDS, [ends, ends]),
        (ENDS, "", [spared, ends]),
    ] {
        let open = idle("", before).0.memory.violations();
        let (after, _) = idle(SOFT, after);
        let come: Vec<Comes> = open.iter().map(|it| comes(it, &after.book, now)).collect();
        assert_eq!(come, expected, "{before} {:?}", after.book.rules());
    }
}

#[test]
fn nothing_is_ended_before_a_snooze_is_over_whatever_the_mode() {
    let live = |hard: bool| {
        format!(
            "[global]\nenabled = true\ndry_run = false\ndefault_memory_limit_gb = 1\n\
             [enforcement]\nsoft_enforcement = {}\nhard_enforcement = {hard}\n\
             grace_period_seconds = 300\nsnooze_minutes = 60\n",
            !hard
        )
    };
    let mut world = World::new(1);
    world.start(100, "alice").uses(0, 2, 90).job("one");
    world.start(101, "bob").uses(0, 2, 90).job("other");
    let mut guard = Guard::new(book(&live(false)).rules().clone());
    guard.watches(&mut world, 3);
    let alice = guard.memory.violations()[0].readers[0].uid;
    let snoozer = Snoozer {
        by: alice,
        owner: alice,
        process: (100, 1_000),
        job: None,
    };
    let granted = guard.memory.snooze(&guard.book, snoozer, world.now);
    let Ok([record]) = granted.as_deref() else {
        panic!("{granted:?}");
    };
    let GuardStep::Snoozed { until, .. } = record.step else {
        panic!("{record:?}");
    };
    let open = guard.memory.violations();
    let untils: Vec<_> = open.iter().map(|it| it.snoozed_until).collect();
    assert_eq!(untils, [Some(until), None]);
    let (now, snoozed) = (world.now, Comes::EndsNotBefore(until));
    for (hard, of_bob) in [
        (false, Comes::EndsNotBefore(now.plus_seconds(300))),
        (true, Comes::EndsAtOnce),
    ] {
        let rules = book(&live(hard));
        let come: Vec<Comes> = open.iter().map(|it| comes(it, &rules, now)).collect();
        assert_eq!(come, [snoozed, of_bob], "{hard}");
        // So it is once the new mode holds.
        guard.book = rules;
        let records = guard.watches(&mut world, 4);
        let ended = records.iter().any(|it| {
            let victim = it.step.victim();
            victim.is_some_and(|victim| victim.job.owner.uid == Some(alice))
        });
        assert!(!ended, "{records:?}");
        let open = guard.memory.violations();
        assert_eq!(open[0].snoozed_until, Some(until), "{hard}");
    }
    // Where each has all the time of the snooze, the whole grace comes later.
    let late = until.plus_seconds(-60);
    assert_eq!(
        comes(&open[0], &book(&live(false)), late),
        Comes::EndsNotBefore(late.plus_seconds(300))
    );
}

#[test]
fn what_nobody_can_be_warned_of_is_not_ended_in_soft() {
    let mut open = open();
    for told in &mut open[0].evidence.runs {
        told.owner = Some(Person {
            name: "somebody".into(),
            uid: None,
        });
    }
    let soft = "[global]\nenabled = true\ndry_run = false\ndefault_memory_limit_gb = 10\n";
    assert_eq!(
        comes(&open[0], &book(soft), Timestamp(0)),
        Comes::Rehearsed(Because::NobodyReads)
    );
}

#[test]
fn until_the_next_sample_a_violation_is_as_the_new_rules_have_it() {
    let rules = |global: &str, rest: &str| {
        book(&format!(
            "[global]\nenabled = true\n{global}default_memory_limit_gb = 10\n{rest}"
        ))
    };
    let (dry, soft) = (rules("", ""), rules("dry_run = false\n", ""));
    let mut open = open().remove(0);
    open.warned_at = Some(Timestamp(5));
    open.deadline = Some(Timestamp(300_000));
    // The same rules: nothing is another thing.
    assert_eq!(under(&open, &dry, &dry), Some(open.clone()));
    let of_another = rules("", "[user_policies.carol]\nmemory_limit_gb = 1\n");
    assert_eq!(under(&open, &dry, &of_another), Some(open.clone()));
    for (before, after, mode) in [
        (&dry, &soft, GuardMode::Soft),
        (&soft, &dry, GuardMode::DryRun),
    ] {
        let now = under(&open, before, after).map(|it| (it.mode, it.warned_at, it.deadline));
        assert_eq!(now, Some((mode, None, None)));
    }
    let off = book("[global]\nenabled = false\ndefault_memory_limit_gb = 10\n");
    assert_eq!(under(&open, &dry, &off), None);
}

#[test]
fn an_own_policy_that_is_milder_is_told_in_a_dry_run_too() {
    let open = open();
    let with = |global: &str, of_alice: &str| {
        book(&format!(
            "[global]\n{global}\ndefault_memory_limit_gb = 10\n\
             [user_policies.bob]\nmemory_limit_gb = 15\n\
             [user_policies.alice]\n{of_alice}\n"
        ))
    };
    let (dry, live) = ("enabled = true", "enabled = true\ndry_run = false");
    for (global, of_alice, expected) in [
        (live, "mode = 'dry-run'", Some(Milder::Rehearsed)),
        (dry, "mode = 'dry-run'", Some(Milder::Rehearsed)),
        (live, "action = 'warn'", Some(Milder::Warned)),
        (dry, "action = 'warn'", Some(Milder::Warned)),
        (
            live,
            "action = 'warn'\nmode = 'dry-run'",
            Some(Milder::Rehearsed),
        ),
        (live, "mode = 'soft'", None),
        (live, "action = 'terminate'", None),
        (live, "priority = 7", None),
        ("enabled = false", "mode = 'dry-run'", None),
    ] {
        let rules = with(global, of_alice);
        let told: Vec<_> = open.iter().map(|open| milder(open, &rules)).collect();
        assert_eq!(told, [expected, None], "{global} {of_alice}");
    }
    // Of several people each has their own, and of the violation there is none.
    let rules = with(live, "action = 'warn'");
    let group = OpenViolation {
        subject: Subject::Group("ml".into()),
        ..open[0].clone()
    };
    assert_eq!(milder(&group, &rules), None);
}

#[test]
fn whoever_records_are_about_is_spared_by_their_own_policy_alone() {
    let rules = "[global]\ndefault_memory_limit_gb = 10\n\
        [user_policies.bob]\nmemory_limit_gb = 15\nmode = 'dry-run'\n\
        [user_policies.carol]\naction = 'warn'\n";
    let mut world = World::new(1);
    world.start(100, "alice").uses(0, 20, 50).job("one");
    world.start(101, "bob").uses(0, 20, 50).job("other");
    let rules = book(rules).rules().clone();
    let mut guard = Guard::new(rules.clone());
    let records = guard.watches(&mut world, 60);
    let ended = records
        .iter()
        .filter(|it| it.step.name() == "ended")
        .count();
    assert_eq!(ended, 2);
    // Carol breaks nothing.
    let expected = BTreeMap::from([("bob".to_owned(), Milder::Rehearsed)]);
    assert_eq!(spared(&records, &rules), expected);
}
