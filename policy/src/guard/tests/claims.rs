//! What a process says of itself: its name, and the account of its job. Neither may
//! spare it anything.

mod containers;

use super::super::bucket::About;
use super::super::limits::{Limit, of};
use super::super::schedule::Civil;
use super::*;
use gpukill_proto::guard::GuardStep;
use gpukill_proto::snapshot::Scheduler;
use proptest::prelude::*;

fn protecting(typed: &[&str]) -> Rules {
    let mut rules = Rules {
        mode: GuardMode::Enforce,
        defaults: memory(10),
        ..rules()
    };
    rules.protect.processes = globs(typed);
    rules
}

/// Whether a process of bob's that holds too much is judged.
fn is_judged(rules: Rules, change: impl FnOnce(&mut About)) -> bool {
    let mut world = World::new(1);
    let process = world.start(100, "bob").uses(0, 20, 50).job("job");
    change(&mut process.about);
    !Guard::new(rules).watches(&mut world, 2).is_empty()
}

fn called(name: &str, executable: &str) -> impl FnOnce(&mut About) {
    let (name, executable) = (Some(name.to_owned()), Some(executable.to_owned()));
    move |it| (it.name, it.executable) = (name, executable)
}

#[test]
fn a_name_protects_only_where_it_is_not_its_users_to_choose() {
    let rules = || protecting(&["Xorg", "nvidia-persistenced", "worker-a-long-name"]);
    for (name, executable, is_protected) in [
        ("Xorg", "/usr/lib/xorg/Xorg", true),
        ("Xorg", "/usr/lib/xorg/Xorg (deleted)", true),
        // A thread of it may have another name.
        ("glx", "/usr/lib/xorg/Xorg", true),
        ("nvidia-persiste", "/usr/bin/nvidia-persistenced", true),
        ("Xorg", "/home/bob/Xorg", false),
        ("Xorg", "/Xorg", false),
        ("Xorg", "usr/bin/Xorg", false),
        ("Xorg", "/tmp/usr/bin/Xorg", false),
        ("Xorg", "/usr/bin/python3.12", false),
        ("python", "/home/bob/Xorg", false),
    ] {
        let is_judged = is_judged(rules(), called(name, executable));
        assert_eq!(is_judged, !is_protected, "{name} {executable}");
    }
}

#[test]
fn a_name_that_is_not_trusted_protects_nothing() {
    let rules = || protecting(&["Xorg"]);
    for (trusted, expected) in [(Some(true), false), (None, false), (Some(false), true)] {
        let is_judged = is_judged(rules(), |it| {
            called("Xorg", "/usr/lib/xorg/Xorg")(it);
            it.has_trusted_name = trusted;
        });
        assert_eq!(is_judged, expected, "{trusted:?}");
    }
}

#[test]
fn a_name_protects_roots_own_and_what_is_not_known() {
    let rules = || protecting(&["Xorg"]);
    let of_root = |is_contained: Option<bool>| {
        is_judged(rules(), |it| {
            called("Xorg", "/root/Xorg")(it);
            it.user = Some((Some("root".into()), 0));
            (it.is_contained, it.image) = (is_contained, None);
        })
    };
    assert!(!of_root(Some(false)));
    // Root of a container is whoever made it, and so are its names.
    assert!(of_root(Some(true)));
    assert!(of_root(None));
    assert!(!is_judged(rules(), |it| {
        called("Xorg", "")(it);
        it.executable = None;
    }));
    assert!(!is_judged(rules(), |it| {
        called("Xorg", "/usr/bin/Xorg")(it);
        it.is_of_the_box = None;
    }));
    // Where files lie in a namespace of one's own is one's own to say.
    assert!(is_judged(rules(), |it| {
        called("Xorg", "/usr/bin/Xorg")(it);
        it.is_of_the_box = Some(false);
    }));
}

/// What a policy with an account of Slurm says.
fn account(limits: Limits) -> GroupPolicy {
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

fn in_slurm(about: &mut About, account: Option<&str>) {
    about.scheduler = Some(Some((Scheduler::Slurm, "7".into())));
    about.account = account.map(|account| Some(account.to_owned()));
}

/// What comes of a job of Slurm that holds 20 GiB and says that it has this account:
/// which rules it breaks, and which it may break.
fn judged(rules: &Rules, account: Option<&str>) -> (Vec<String>, Vec<String>) {
    let mut world = World::new(1);
    let process = world.start(100, "bob").uses(0, 20, 50).job("slurm 7");
    in_slurm(&mut process.about, account);
    let mut guard = Guard::new(rules.clone());
    // What it may break is told each time, what it breaks at the second look.
    let _ = guard.looks(&mut world);
    let looked = guard.looks(&mut world);
    let broken = looked.records.into_iter();
    let broken = broken.filter(|it| it.step == GuardStep::Violated);
    let unjudged = looked.unjudged.into_iter();
    (
        broken.map(|it| it.rule.to_string()).collect(),
        unjudged
            .map(|it| format!("{}: {}", it.rule, it.why))
            .collect(),
    )
}

#[test]
fn an_account_makes_a_limit_stricter_and_what_it_makes_looser_is_not_known() {
    let rules = |default: Option<u64>, of_account: u64| Rules {
        mode: GuardMode::DryRun,
        defaults: default.map_or_else(Limits::default, memory),
        groups: vec![account(memory(of_account))],
        ..rules()
    };
    const GROUP: &str = "group vision: memory";
    const DEFAULT: &str = "default: memory";
    const SAYS: &str = "default: memory: its account is what it says itself";
    const MAY_BE: &str = "group vision: memory: its account is what it says itself";
    const IS_OF: &str = "group vision: memory: whether it belongs to group vision is not known";
    // It holds 20.
    for (default, of_account, says, broken, unjudged) in [
        (None, 10, Some("vision"), Some(GROUP), None),
        (None, 30, Some("vision"), None, None),
        (Some(30), 10, Some("vision"), Some(GROUP), None),
        (Some(10), 30, Some("vision"), None, Some(SAYS)),
        (Some(10), 15, Some("vision"), Some(GROUP), Some(SAYS)),
        (Some(25), 30, Some("vision"), None, None),
        (Some(10), 30, Some("other"), Some(DEFAULT), None),
        (Some(10), 30, None, None, Some(SAYS)),
        (Some(10), 15, None, Some(GROUP), Some(SAYS)),
        (Some(15), 10, None, Some(DEFAULT), Some(MAY_BE)),
        (Some(30), 10, None, None, Some(MAY_BE)),
        (None, 10, None, None, Some(IS_OF)),
    ] {
        let told = judged(&rules(default, of_account), says);
        let expected = (
            broken.into_iter().map(str::to_owned).collect::<Vec<_>>(),
            unjudged.into_iter().map(str::to_owned).collect::<Vec<_>>(),
        );
        assert_eq!(told, expected, "{default:?} {of_account} {says:?}");
    }
}

#[test]
fn an_account_loosens_nothing_that_another_group_says() {
    let mut rules = Rules {
        groups: vec![account(memory(30)), account(memory(10))],
        ..rules()
    };
    rules.groups[1].name = "staff".into();
    rules.groups[1].members = Members {
        users: names(&["bob"]),
        ..Members::default()
    };
    let broken = vec!["group staff: memory".to_owned()];
    assert_eq!(judged(&rules, Some("vision")), (broken, Vec::new()));
    // A person's own policy replaces both.
    rules.users = vec![UserPolicy {
        name: "bob".into(),
        limits: memory(40),
        ..UserPolicy::default()
    }];
    assert_eq!(judged(&rules, Some("vision")), (Vec::new(), Vec::new()));
}

#[test]
fn nobody_is_held_to_a_total_by_those_who_only_say_that_they_belong() {
    let group = |users: &[&str]| Rules {
        mode: GuardMode::Enforce,
        groups: vec![GroupPolicy {
            total_memory: gib(25),
            members: Members {
                users: names(users),
                slurm_accounts: names(&["vision"]),
                ..Members::default()
            },
            ..account(Limits::default())
        }],
        ..rules()
    };
    let told = |rules: Rules, alice: u64| {
        let mut world = World::new(1);
        world.start(100, "alice").uses(0, alice, 50).job("alice's");
        let process = world.start(101, "bob").uses(0, 26, 50).job("slurm 7");
        in_slurm(&mut process.about, Some("vision"));
        let records = Guard::new(rules).watches(&mut world, 3);
        let steps = records.into_iter().map(|it| match it.step {
            GuardStep::Ended(victim) => (victim.job.id, victim.leave_to),
            other => (other.name().to_owned(), None),
        });
        steps.collect::<Vec<_>>()
    };
    let violated = ("violated".to_owned(), None);
    // What they hold is too much by itself, or it is not.
    let ended = ("alice's".to_owned(), None);
    assert_eq!(told(group(&["alice"]), 26), [violated.clone(), ended]);
    assert_eq!(told(group(&["alice"]), 20), []);
    // Of those who all only say so, the scheduler ends whom it likes.
    let left = ("slurm 7".to_owned(), Some("scancel 7".to_owned()));
    assert_eq!(told(group(&["carol"]), 20), [violated, left]);
}

#[test]
fn whoever_says_that_they_are_important_is_not_spared_for_it() {
    let victims = |of_account: Option<u8>, says: Option<&str>| {
        let mut rules = Rules {
            mode: GuardMode::Enforce,
            groups: vec![GroupPolicy {
                priority: of_account,
                ..account(Limits::default())
            }],
            gpus: vec![GpuPolicy {
                name: "0".into(),
                gpus: gpus("0"),
                reserved_memory: gib(50),
                ..GpuPolicy::default()
            }],
            ..rules()
        };
        rules.protect.users = names(&["root"]);
        let mut world = World::new(1);
        // The newest that suffices is bob's.
        world.start(100, "alice").uses(0, 20, 50).job("alice's");
        world.now = Timestamp(10_000);
        let process = world.start(101, "bob").uses(0, 20, 50).job("slurm 7");
        in_slurm(&mut process.about, says);
        let records = Guard::new(rules).watches(&mut world, 2);
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

/// Limits of a job of Slurm of bob's, for whoever asks.
fn limits(rules: &Rules, account: Option<&str>) -> Vec<(String, Option<u64>)> {
    let mut about = about("bob");
    in_slurm(&mut about, account);
    let limits = of(&Rulebook::of(rules.clone()), &about, Civil::default());
    let told = limits.into_iter();
    told.map(|Limit { rule, limit }| (rule.to_string(), limit))
        .collect()
}

#[test]
fn how_long_and_how_idle_a_job_may_be_is_doubted_alike() {
    let idle = |minutes: u64, gib: Option<u64>| Limits {
        idle: Some(super::minutes(minutes)),
        idle_min_memory: gib.map(|gib| Bytes(gib * GIB)),
        duration: Some(super::minutes(minutes)),
        ..Limits::default()
    };
    let rules = Rules {
        defaults: idle(2, None),
        groups: vec![account(idle(4, Some(8)))],
        ..rules()
    };
    let watch = |account, buckets| {
        let mut world = World::new(1);
        let process = world.start(100, "bob").uses(0, 9, 0).job("slurm 7");
        in_slurm(&mut process.about, account);
        let mut guard = Guard::new(rules.clone());
        guard.watches(&mut world, buckets);
        let looked = guard.looks(&mut world);
        let open = guard.memory.violations().into_iter();
        let unjudged = looked.unjudged.into_iter();
        (
            open.map(|it| it.rule.to_string()).collect::<Vec<_>>(),
            unjudged.map(|it| it.rule.to_string()).collect::<Vec<_>>(),
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
    let told = |name: &str, minutes: u64| (name.to_owned(), Some(minutes * 60_000));
    assert_eq!(
        limits(&rules, Some("vision")),
        [
            told("group vision: duration", 4),
            told("group vision: idle", 4)
        ]
    );
}

#[test]
fn what_a_program_is_called_is_not_known_where_its_executable_is_not() {
    // The kernel keeps 15 bytes of nvidia-cuda-mps-server.
    let unseen = |name: Option<&str>| {
        let name = name.map(str::to_owned);
        move |about: &mut About| (about.name, about.executable) = (name, None)
    };
    let of_gpu = |allowed: &[&str], blocked: &[&str]| Rules {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_processes: globs(allowed),
            blocked_processes: globs(blocked),
            ..GpuPolicy::default()
        }],
        ..rules()
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
        (protecting(&[long]), cut, false),
        (protecting(&["Xorg"]), Some("glx"), false),
        (protecting(&["Xorg"]), None, false),
        (protecting(&[]), cut, true),
    ] {
        let is_judged = is_judged(rules.clone(), unseen(name));
        assert_eq!(is_judged, expected, "{name:?} {rules:?}");
    }
    let known = called("python", "/usr/bin/python");
    assert!(is_judged(of_gpu(&[long], &[]), known));
}
