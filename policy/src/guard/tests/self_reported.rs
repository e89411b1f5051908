//! What a process says about itself: its name, and the account of its job. Neither may
//! exempt it from a rule.

mod containers;

use super::super::limits::{EffectiveLimit, effective_limits};
use super::super::sample::ProcessFacts;
use super::super::schedule::LocalTime;
use super::*;
use gpukill_proto::guard::GuardStep;
use gpukill_proto::model::Scheduler;
use proptest::prelude::*;

fn rules_protecting(typed: &[&str]) -> RuleSet {
    let mut rules = RuleSet {
        mode: GuardMode::Enforce,
        defaults: memory_limit(10),
        ..dry_run_rules()
    };
    rules.protect.processes = globs(typed);
    rules
}

/// Whether a process of bob's that holds too much is evaluated.
fn is_evaluated(rules: RuleSet, change: impl FnOnce(&mut ProcessFacts)) -> bool {
    let mut world = TestHost::new(1);
    let process = world.start(100, "bob").uses(0, 20, 50).job("job");
    change(&mut process.facts);
    !TestGuard::new(rules)
        .evaluate_samples(&mut world, 2)
        .is_empty()
}

fn with_program(name: &str, executable: &str) -> impl FnOnce(&mut ProcessFacts) {
    let (name, executable) = (Some(name.to_owned()), Some(executable.to_owned()));
    move |it| (it.name, it.executable) = (name, executable)
}

#[test]
fn name_protects_only_system_executables() {
    let rules = || rules_protecting(&["Xorg", "nvidia-persistenced", "worker-a-long-name"]);
    for (name, executable, is_protected) in [
        ("Xorg", "/usr/lib/xorg/Xorg", true),
        ("Xorg", "/usr/lib/xorg/Xorg (deleted)", true),
        // A thread may have another name.
        ("glx", "/usr/lib/xorg/Xorg", true),
        ("nvidia-persiste", "/usr/bin/nvidia-persistenced", true),
        ("Xorg", "/home/bob/Xorg", false),
        ("Xorg", "/Xorg", false),
        ("Xorg", "usr/bin/Xorg", false),
        ("Xorg", "/tmp/usr/bin/Xorg", false),
        ("Xorg", "/usr/bin/python3.12", false),
        ("python", "/home/bob/Xorg", false),
    ] {
        let is_evaluated = is_evaluated(rules(), with_program(name, executable));
        assert_eq!(is_evaluated, !is_protected, "{name} {executable}");
    }
}

#[test]
fn untrusted_name_protects_nothing() {
    let rules = || rules_protecting(&["Xorg"]);
    for (trusted, expected) in [(Some(true), false), (None, false), (Some(false), true)] {
        let is_evaluated = is_evaluated(rules(), |it| {
            with_program("Xorg", "/usr/lib/xorg/Xorg")(it);
            it.has_trusted_name = trusted;
        });
        assert_eq!(is_evaluated, expected, "{trusted:?}");
    }
}

#[test]
fn name_protects_root_and_unknown_processes() {
    let rules = || rules_protecting(&["Xorg"]);
    let of_root = |is_contained: Option<bool>| {
        is_evaluated(rules(), |it| {
            with_program("Xorg", "/root/Xorg")(it);
            it.user = Some((Some("root".into()), 0));
            (it.is_contained, it.image) = (is_contained, None);
        })
    };
    assert!(!of_root(Some(false)));
    // Root of a container is the user who made the container, and so chose its names.
    assert!(of_root(Some(true)));
    assert!(of_root(None));
    assert!(!is_evaluated(rules(), |it| {
        with_program("Xorg", "")(it);
        it.executable = None;
    }));
    assert!(!is_evaluated(rules(), |it| {
        with_program("Xorg", "/usr/bin/Xorg")(it);
        it.in_host_user_namespace = None;
    }));
    // In a mount namespace of their own, users choose where files lie.
    assert!(is_evaluated(rules(), |it| {
        with_program("Xorg", "/usr/bin/Xorg")(it);
        it.in_host_user_namespace = Some(false);
    }));
}

/// The policy of a group with a Slurm account.
fn account_policy(limits: Limits) -> GroupPolicy {
    GroupPolicy {
        name: "vision".into(),
        members: Members {
            slurm_accounts: names(&["vision"]),
            ..Members::default()
        },
        limits,
        ..GroupPolicy::default()
    }
}

fn put_in_slurm(facts: &mut ProcessFacts, account: Option<&str>) {
    facts.scheduler = Some(Some((Scheduler::Slurm, "7".into())));
    facts.account = account.map(|account| Some(account.to_owned()));
}

/// The result for a Slurm job that holds 20 GiB and states this account: the rules that it
/// breaks, and the rules that cannot be evaluated.
fn evaluate_slurm_job(rules: &RuleSet, account: Option<&str>) -> (Vec<String>, Vec<String>) {
    let mut world = TestHost::new(1);
    let process = world.start(100, "bob").uses(0, 20, 50).job("slurm 7");
    put_in_slurm(&mut process.facts, account);
    let mut guard = TestGuard::new(rules.clone());
    // A rule that cannot be evaluated is reported at every sample, a violation at the
    // second one.
    let _ = guard.evaluate_next(&mut world);
    let looked = guard.evaluate_next(&mut world);
    let broken = looked.records.into_iter();
    let broken = broken.filter(|it| it.step == GuardStep::Violated);
    let undetermined = looked.undetermined.into_iter();
    (
        broken.map(|it| it.rule.to_string()).collect(),
        undetermined
            .map(|it| format!("{}: {}", it.rule, it.why))
            .collect(),
    )
}

#[test]
fn account_tightens_but_never_loosens() {
    let rules = |default: Option<u64>, of_account: u64| RuleSet {
        mode: GuardMode::DryRun,
        defaults: default.map_or_else(Limits::default, memory_limit),
        groups: vec![account_policy(memory_limit(of_account))],
        ..dry_run_rules()
    };
    const GROUP: &str = "group vision: memory";
    const DEFAULT: &str = "default: memory";
    const DEFAULT_UNCERTAIN: &str = "default: memory: its account is only its own claim";
    const GROUP_UNCERTAIN: &str = "group vision: memory: its account is only its own claim";
    const MEMBERSHIP_UNKNOWN: &str =
        "group vision: memory: whether it belongs to group vision is not known";
    // The job holds 20 GiB.
    for (default, of_account, says, broken, undetermined) in [
        (None, 10, Some("vision"), Some(GROUP), None),
        (None, 30, Some("vision"), None, None),
        (Some(30), 10, Some("vision"), Some(GROUP), None),
        (Some(10), 30, Some("vision"), None, Some(DEFAULT_UNCERTAIN)),
        (
            Some(10),
            15,
            Some("vision"),
            Some(GROUP),
            Some(DEFAULT_UNCERTAIN),
        ),
        (Some(25), 30, Some("vision"), None, None),
        (Some(10), 30, Some("other"), Some(DEFAULT), None),
        (Some(10), 30, None, None, Some(DEFAULT_UNCERTAIN)),
        (Some(10), 15, None, Some(GROUP), Some(DEFAULT_UNCERTAIN)),
        (Some(15), 10, None, Some(DEFAULT), Some(GROUP_UNCERTAIN)),
        (Some(30), 10, None, None, Some(GROUP_UNCERTAIN)),
        (None, 10, None, None, Some(MEMBERSHIP_UNKNOWN)),
    ] {
        let actual = evaluate_slurm_job(&rules(default, of_account), says);
        let expected = (
            broken.into_iter().map(str::to_owned).collect::<Vec<_>>(),
            undetermined
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        );
        assert_eq!(actual, expected, "{default:?} {of_account} {says:?}");
    }
}

#[test]
fn account_does_not_loosen_another_group() {
    let mut rules = RuleSet {
        groups: vec![
            account_policy(memory_limit(30)),
            account_policy(memory_limit(10)),
        ],
        ..dry_run_rules()
    };
    rules.groups[1].name = "staff".into();
    rules.groups[1].members = Members {
        users: names(&["bob"]),
        ..Members::default()
    };
    let broken = vec!["group staff: memory".to_owned()];
    assert_eq!(
        evaluate_slurm_job(&rules, Some("vision")),
        (broken, Vec::new())
    );
    // A person's own policy replaces both.
    rules.users = vec![UserPolicy {
        name: "bob".into(),
        limits: memory_limit(40),
        ..UserPolicy::default()
    }];
    assert_eq!(
        evaluate_slurm_job(&rules, Some("vision")),
        (Vec::new(), Vec::new())
    );
}

#[test]
fn claims_do_not_count_against_others() {
    let group = |users: &[&str]| RuleSet {
        mode: GuardMode::Enforce,
        groups: vec![GroupPolicy {
            total_memory: gib(25),
            members: Members {
                users: names(users),
                slurm_accounts: names(&["vision"]),
                ..Members::default()
            },
            ..account_policy(Limits::default())
        }],
        ..dry_run_rules()
    };
    let records_for = |rules: RuleSet, alice: u64| {
        let mut world = TestHost::new(1);
        world.start(100, "alice").uses(0, alice, 50).job("alice's");
        let process = world.start(101, "bob").uses(0, 26, 50).job("slurm 7");
        put_in_slurm(&mut process.facts, Some("vision"));
        let records = TestGuard::new(rules).evaluate_samples(&mut world, 3);
        let steps = records.into_iter().map(|it| match it.step {
            GuardStep::Ended(victim) => (victim.job.id, victim.leave_to),
            other => (other.name().to_owned(), None),
        });
        steps.collect::<Vec<_>>()
    };
    let violated = ("violated".to_owned(), None);
    // The memory of the certain members alone decides whether the total is exceeded.
    let ended = ("alice's".to_owned(), None);
    assert_eq!(
        records_for(group(&["alice"]), 26),
        [violated.clone(), ended]
    );
    assert_eq!(records_for(group(&["alice"]), 20), []);
    // Only a claimed member holds memory. Its end is left to the scheduler.
    let left = ("slurm 7".to_owned(), Some("scancel 7".to_owned()));
    assert_eq!(records_for(group(&["carol"]), 20), [violated, left]);
}

#[test]
fn claimed_priority_does_not_protect() {
    let victims = |of_account: Option<u8>, says: Option<&str>| {
        let mut rules = RuleSet {
            mode: GuardMode::Enforce,
            groups: vec![GroupPolicy {
                priority: of_account,
                ..account_policy(Limits::default())
            }],
            gpus: vec![GpuPolicy {
                name: "0".into(),
                gpus: gpus("0"),
                reserved_memory: gib(50),
                ..GpuPolicy::default()
            }],
            ..dry_run_rules()
        };
        rules.protect.users = names(&["root"]);
        let mut world = TestHost::new(1);
        // The newest job that suffices is bob's.
        world.start(100, "alice").uses(0, 20, 50).job("alice's");
        world.now = Timestamp(10_000);
        let process = world.start(101, "bob").uses(0, 20, 50).job("slurm 7");
        put_in_slurm(&mut process.facts, says);
        let records = TestGuard::new(rules).evaluate_samples(&mut world, 2);
        let ended = records.iter().find_map(|it| {
            let victim = it.step.victim()?;
            Some((victim.job.id.clone(), victim.priority))
        });
        ended.unwrap()
    };
    for (of_account, says, priority) in [
        (None, Some("vision"), 5),
        (Some(9), Some("vision"), 5),
        (Some(9), None, 5),
        (Some(2), Some("vision"), 2),
        (Some(2), None, 5),
        (Some(2), Some("other"), 5),
    ] {
        let expected = ("slurm 7".to_owned(), priority);
        assert_eq!(
            victims(of_account, says),
            expected,
            "{of_account:?} {says:?}"
        );
    }
}

/// The limits of a Slurm job of bob's.
fn slurm_job_limits(rules: &RuleSet, account: Option<&str>) -> Vec<(String, Option<u64>)> {
    let mut facts = process_facts("bob");
    put_in_slurm(&mut facts, account);
    let limits = effective_limits(
        &CompiledRules::new(rules.clone()),
        &facts,
        LocalTime::default(),
    );
    let actual = limits.into_iter();
    actual
        .map(|EffectiveLimit { rule, limit }| (rule.to_string(), limit))
        .collect()
}

#[test]
fn duration_and_idle_limits_are_doubted_too() {
    let idle = |minutes: u64, gib: Option<u64>| Limits {
        idle: Some(super::minutes(minutes)),
        idle_min_memory: gib.map(|gib| Bytes(gib * GIB)),
        duration: Some(super::minutes(minutes)),
        ..Limits::default()
    };
    let rules = RuleSet {
        defaults: idle(2, None),
        groups: vec![account_policy(idle(4, Some(8)))],
        ..dry_run_rules()
    };
    let watch = |account, samples| {
        let mut world = TestHost::new(1);
        let process = world.start(100, "bob").uses(0, 9, 0).job("slurm 7");
        put_in_slurm(&mut process.facts, account);
        let mut guard = TestGuard::new(rules.clone());
        guard.evaluate_samples(&mut world, samples);
        let looked = guard.evaluate_next(&mut world);
        let open = guard.state.violations().into_iter();
        let undetermined = looked.undetermined.into_iter();
        (
            open.map(|it| it.rule.to_string()).collect::<Vec<_>>(),
            undetermined
                .map(|it| it.rule.to_string())
                .collect::<Vec<_>>(),
        )
    };
    let of_default = names(&["default: duration", "default: idle"]);
    let of_group = names(&["group vision: duration", "group vision: idle"]);
    for account in [Some("vision"), None] {
        assert_eq!(watch(account, 10), (Vec::new(), Vec::new()));
        assert_eq!(watch(account, 14), (Vec::new(), of_default.clone()));
        assert_eq!(watch(account, 26), (of_group.clone(), of_default.clone()));
    }
    assert_eq!(watch(Some("other"), 14), (of_default, Vec::new()));
    let limit_of = |name: &str, minutes: u64| (name.to_owned(), Some(minutes * 60_000));
    assert_eq!(
        slurm_job_limits(&rules, Some("vision")),
        [
            limit_of("group vision: duration", 4),
            limit_of("group vision: idle", 4)
        ]
    );
}

#[test]
fn name_is_unknown_without_executable() {
    // The kernel keeps 15 bytes of nvidia-cuda-mps-server.
    let unseen = |name: Option<&str>| {
        let name = name.map(str::to_owned);
        move |facts: &mut ProcessFacts| (facts.name, facts.executable) = (name, None)
    };
    let of_gpu = |allowed: &[&str], blocked: &[&str]| RuleSet {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_processes: globs(allowed),
            blocked_processes: globs(blocked),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    let long = "nvidia-cuda-mps-server";
    let cut = Some("nvidia-cuda-mps");
    for (rules, name, expected) in [
        (of_gpu(&[long], &[]), cut, false),
        (of_gpu(&["nvidia-cuda-mps"], &[]), cut, false),
        (of_gpu(&["Xorg"], &[]), Some("python"), false),
        (of_gpu(&["Xorg"], &[]), None, false),
        (of_gpu(&[], &["python"]), Some("python"), true),
        (of_gpu(&[], &[long]), cut, false),
        (of_gpu(&[], &["Xorg"]), None, false),
        (rules_protecting(&[long]), cut, false),
        (rules_protecting(&["Xorg"]), Some("glx"), false),
        (rules_protecting(&["Xorg"]), None, false),
        (rules_protecting(&[]), cut, true),
    ] {
        let is_evaluated = is_evaluated(rules.clone(), unseen(name));
        assert_eq!(is_evaluated, expected, "{name:?} {rules:?}");
    }
    let known = with_program("python", "/usr/bin/python");
    assert!(is_evaluated(of_gpu(&[long], &[]), known));
}
