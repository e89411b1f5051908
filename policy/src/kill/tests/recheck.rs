//! Tests of the recheck.

use super::super::recheck::{KnownNames, RecheckContext, veto};
use super::super::*;
use super::fixture::*;
use crate::select::Glob;
use gpukill_proto::kill::{KillScope, KillTarget, Outcome, PlannedAction, Reaper};

/// A host where alice's 300 is planned, reached or named, and 301 belongs to bob.
pub(super) fn host() -> KillTestHost {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "python");
    test_host.fork(301, 300, "python");
    test_host.list_process(300, 0, 10);
    test_host.with_jobs()
}

pub(super) fn target(test_host: &KillTestHost, pid: u32) -> KillTarget {
    let plan = test_host.plan(&caller(ALICE, &[]), &request(pids(&[300]), KillScope::Tree));
    let targets = plan.unwrap().targets;
    targets.into_iter().find(|t| t.key.pid == pid).unwrap()
}

/// The veto against this target of alice's after this change.
fn veto_after(pid: u32, change: impl FnOnce(&mut ProcessInfo)) -> Option<Outcome> {
    let test_host = host();
    let mut now = test_host.process_table[&pid].clone();
    change(&mut now);
    veto_for(
        &test_host,
        &target(&test_host, pid),
        &now,
        &caller(ALICE, &[]),
        true,
    )
}

fn veto_for(
    test_host: &KillTestHost,
    target: &KillTarget,
    now: &ProcessInfo,
    caller: &Caller,
    uses_gpu: bool,
) -> Option<Outcome> {
    veto(target, now, &context(test_host, target, caller, uses_gpu))
}

/// The recheck context of this target before its first signal.
fn context<'a>(
    test_host: &'a KillTestHost,
    target: &KillTarget,
    caller: &'a Caller,
    uses_gpu: bool,
) -> RecheckContext<'a> {
    RecheckContext {
        caller,
        roles: &test_host.roles,
        operators: "gpukill-operators",
        processes: &test_host.process_table,
        names: Box::leak(Box::new(KnownNames::new(&test_host.process_table))),
        family: Box::leak(Box::new(test_host.daemon_family())),
        protection: &test_host.protection,
        before: test_host.process_table.get(&target.key.pid),
        person: None,
        uses_gpu,
        used_gpu_itself: false,
        had_signal: false,
    }
}

#[test]
fn unchanged_process_gets_its_signal() {
    assert_eq!(veto_after(300, |_| {}), None);
    assert_eq!(veto_after(301, |_| {}), None);
    // Names change, and stopped or stuck processes are still there.
    assert_eq!(
        veto_after(300, |now| now.lineage.name = "train".into()),
        None
    );
    assert_eq!(
        veto_after(300, |now| now.state = ProcessState::Stopped),
        None
    );
    let stuck = ProcessState::Uninterruptible(None);
    assert_eq!(veto_after(300, |now| now.state = stuck), None);
    // Facts are not read again if the read may block.
    let bare = |now: &mut ProcessInfo| {
        now.owner = Reading::Unsupported;
        now.command = Reading::Unsupported;
        now.container = Reading::Unsupported;
    };
    assert_eq!(veto_after(300, bare), None);
}

#[test]
fn changes_veto_the_signal() {
    let other = |uid: u32| Reading::Value(Uids::from_single(uid));
    let setuid = Reading::Value(Uids {
        real: ALICE,
        effective: 0,
        saved: 0,
    });
    let unclear = || Some(Outcome::Unclear("its owner is not known".into()));
    let changed = |what: &str| Some(Outcome::Changed(what.to_owned()));
    let cases = [
        (
            "its pid is another's",
            veto_after(300, |now| now.lineage.key.start_ticks += 1),
            Some(Outcome::Gone),
        ),
        (
            "it has ended",
            veto_after(300, |now| now.state = ProcessState::Zombie),
            Some(Outcome::Zombie(Reaper {
                pid: 202,
                name: Reading::Value("bash".into()),
            })),
        ),
        (
            "it is bob's",
            veto_after(300, |now| now.uids = other(BOB)),
            changed("it runs as uid 1001 now"),
        ),
        (
            "it has root's rights",
            veto_after(300, |now| now.uids = setuid),
            Some(Outcome::Denied("someone in group gpukill-operators".into())),
        ),
        (
            "its owner is not known",
            veto_after(300, |now| now.uids = Reading::Failed("x".into())),
            unclear(),
        ),
        (
            "it executes a display server",
            veto_after(300, |now| {
                now.lineage.name = "Xorg".into();
                now.lineage.executable = Some("/usr/bin/Xorg".into());
                now.at_seat = Reading::Value(true);
            }),
            changed("it is Xorg now: it is a display server and ends with its session"),
        ),
        (
            "what is reached executes a login service as a person",
            veto_after(301, |now| {
                now.lineage.name = "agetty".into();
                now.lineage.executable = Some("/usr/sbin/agetty".into());
            }),
            None,
        ),
        (
            "what is reached executes a shell",
            veto_after(301, |now| {
                now.lineage.name = "bash".into();
                now.lineage.executable = Some("/usr/bin/bash".into());
            }),
            None,
        ),
        (
            "what is reached executes a shell on a terminal of its own",
            veto_after(301, |now| {
                now.lineage.name = "bash".into();
                now.lineage.executable = Some("/usr/bin/bash".into());
                now.lineage.on_terminal = true;
                now.lineage.session = 301;
            }),
            changed("it is bash now, which hosts sessions"),
        ),
        (
            "what is reached runs Jupyter",
            veto_after(301, |now| {
                now.lineage.arguments =
                    Some(["python", "-m", "jupyterlab"].map(str::to_owned).into());
            }),
            None,
        ),
    ];
    for (what, found, expected) in cases {
        assert_eq!(found, expected, "{what}");
    }
}

/// Lets the process execute this file under its name.
fn executes(now: &mut ProcessInfo, path: &str) {
    now.lineage.name = path.rsplit('/').next().unwrap().into();
    now.lineage.executable = Some(path.into());
    now.program = Reading::Failed("not asked for".into());
}

#[test]
fn executing_a_session_host_does_not_save() {
    let test_host = host();
    let root = caller(0, &[]);
    let paths = [
        "/home/alice/bin/tmux",
        "/usr/bin/tmux",
        "/usr/bin/screen",
        "/usr/bin/bash",
        "/usr/bin/sudo",
    ];
    // By name, as a user of a GPU, after a signal, and for the guard.
    let cases = [
        (300, false, false, None),
        (301, true, false, None),
        (301, false, true, None),
        (301, false, false, Some(BOB)),
    ];
    for path in paths {
        for (pid, used_gpu_itself, had_signal, person) in cases {
            let target = target(&test_host, pid);
            let mut now = test_host.process_table[&pid].clone();
            executes(&mut now, path);
            let again = RecheckContext {
                used_gpu_itself,
                had_signal,
                person,
                ..context(&test_host, &target, &root, true)
            };
            assert_eq!(veto(&target, &now, &again), None, "{path} {again:?}");
        }
    }
}

#[test]
fn reached_session_host_is_left_alone() {
    // On a terminal, where it leads its process group.
    let ended = |path: &'static str, change: fn(&mut ProcessInfo)| {
        let outcome = veto_after(301, |now| {
            executes(now, path);
            (now.lineage.group, now.lineage.on_terminal) = (301, true);
            change(now);
        });
        outcome.is_none()
    };
    assert!(!ended("/usr/bin/bash", |_| {}));
    assert!(ended("/usr/bin/bash", |now| now.lineage.group = 300));
    assert!(ended("/usr/bin/bash", |now| now.lineage.on_terminal = false));
    // A server below other work of hers.
    assert!(ended("/usr/bin/tmux", |_| {}));
    assert!(ended("/home/alice/usr/bin/bash", |_| {}));
    // In a mount namespace of her own.
    assert!(ended("/usr/bin/bash", |now| {
        now.lineage.namespace_creator = Some(ALICE);
        now.namespace_owner = Reading::Value(Some(ALICE));
    }));
    assert!(ended("/usr/bin/bash", |now| {
        now.program = Reading::Value(ProgramOrigin::Elsewhere);
    }));
    // The root of a tree has no other work above it.
    let test_host = host();
    let mut root = target(&test_host, 301);
    root.job = Reading::Value(Job::Tree(root.key));
    let mut now = test_host.process_table[&301].clone();
    executes(&mut now, "/usr/bin/tmux");
    now.job = Reading::Failed("not requested".into());
    for (session, ends) in [(301, false), (202, true)] {
        now.lineage.session = session;
        let found = veto_for(&test_host, &root, &now, &caller(ALICE, &[]), true);
        assert_eq!(found.is_none(), ends, "{session}");
    }
}

#[test]
fn process_that_executes_su_is_ended() {
    let test_host = host();
    let target = target(&test_host, 300);
    let mut now = test_host.process_table[&300].clone();
    executes(&mut now, "/usr/bin/su");
    now.uids = Reading::Value(Uids {
        real: ALICE,
        effective: 0,
        saved: 0,
    });
    let denied = Outcome::Denied("someone in group gpukill-operators".into());
    for had_signal in [false, true] {
        let objected = |caller: &Caller| {
            let again = RecheckContext {
                had_signal,
                ..context(&test_host, &target, caller, true)
            };
            veto(&target, &now, &again)
        };
        assert_eq!(objected(&caller(0, &[])), None);
        assert_eq!(objected(&olga()), None);
        assert_eq!(objected(&caller(ALICE, &[])), Some(denied.clone()));
    }
    // A process of root alone is the system's.
    now.uids = Reading::Value(Uids::from_single(0));
    let changed = Outcome::Changed("it runs as uid 0 now".into());
    let found = veto_for(&test_host, &target, &now, &caller(0, &[]), true);
    assert_eq!(found, Some(changed));
}

#[test]
fn released_gpu_vetoes_the_signal() {
    let test_host = host();
    let now = &test_host.process_table[&300];
    let found = veto_for(
        &test_host,
        &target(&test_host, 300),
        now,
        &caller(ALICE, &[]),
        false,
    );
    let why = "it no longer uses a GPU";
    assert_eq!(found, Some(Outcome::Changed(why.into())));
}

#[test]
fn current_rights_and_protection_count() {
    let mut test_host = host();
    let now = test_host.process_table[&300].clone();
    let target = target(&test_host, 300);
    let denied = Outcome::Denied("alice, or someone in group gpukill-operators".into());
    let bob = caller(BOB, &[]);
    let found = veto_for(&test_host, &target, &now, &bob, true);
    assert_eq!(found, Some(denied));
    // The names are collected once for all targets, not from all processes for each.
    let again = RecheckContext {
        names: &KnownNames::default(),
        ..context(&test_host, &target, &bob, true)
    };
    let denied = Outcome::Denied("someone in group gpukill-operators".into());
    assert_eq!(veto(&target, &now, &again), Some(denied));
    assert_eq!(veto_for(&test_host, &target, &now, &olga(), true), None);
    test_host.roles.operator_group = None;
    let denied = Outcome::Denied("alice, or root".into());
    assert_eq!(
        veto_for(&test_host, &target, &now, &olga(), true),
        Some(denied)
    );
    let contained = Caller {
        contained: true,
        ..caller(0, &[])
    };
    assert!(veto_for(&test_host, &target, &now, &contained, true).is_some());
    // The recheck takes facts that it does not read from the process table.
    test_host.protection.users = vec!["alice".into()];
    let mut bare = now;
    bare.owner = Reading::Unsupported;
    let found = veto_for(&test_host, &target, &bare, &caller(0, &[]), true);
    let why = "the admin protects processes of alice";
    assert_eq!(found, Some(Outcome::Protected(why.into())));
    // Another user has another name, which is not read.
    test_host.protection.users = vec!["carol".into()];
    assert_eq!(
        veto_for(&test_host, &target, &bare, &caller(0, &[]), true),
        None
    );
    bare.lineage.uid = Some(1003);
    bare.person_name = Reading::Failed("not requested".into());
    let found = veto_for(&test_host, &target, &bare, &caller(0, &[]), true);
    let why = "its owner is not known, and the admin protects some users";
    assert_eq!(found, Some(Outcome::Protected(why.into())));
    // The executor reads the name of the user it has now.
    for (name, is_protected) in [("carol", true), ("dora", false)] {
        bare.person_name = Reading::Value(name.into());
        let found = veto_for(&test_host, &target, &bare, &caller(0, &[]), true);
        let found = matches!(found, Some(Outcome::Protected(_)));
        assert_eq!(found, is_protected, "{name}");
    }
}

#[test]
fn facts_not_reread_keep_their_value() {
    let keeps_work = Outcome::Changed("it is python now, which hosts sessions".into());
    let protected = Outcome::Protected("the admin protects session-3.scope".into());
    let mut test_host = host();
    let [named, reached] = [300, 301].map(|pid| target(&test_host, pid));
    let [now, other] = [300, 301].map(|pid| test_host.process_table[&pid].clone());
    let root = caller(0, &[]);
    // For a container without a name, protection would be unknown.
    test_host.protection.containers = vec!["prod".into()];
    test_host.process_mut(300).container = Reading::Value(Some(container('a', "dev", None)));
    let mut nameless = now.clone();
    nameless.container = Reading::Value(Some(Container {
        name: Reading::Failed("x".into()),
        ..container('a', "dev", None)
    }));
    assert_eq!(veto_for(&test_host, &named, &nameless, &root, true), None);
    test_host.process_mut(301).lineage.arguments =
        Some(["python", "-m", "jupyterlab"].map(str::to_owned).into());
    // A server of its own, as that below a shell of the job.
    let (mut reached, mut other) = (reached, other);
    other.lineage.session = 301;
    other.job = Reading::Failed("not requested".into());
    reached.job = Reading::Value(Job::Tree(reached.key));
    let found = veto_for(&test_host, &reached, &other, &root, true);
    assert_eq!(found, Some(keeps_work));
    test_host.protection.units = Glob::parse("session-3.scope").into_iter().collect();
    let mut bare = now;
    bare.lineage.unit = None;
    let found = veto_for(&test_host, &named, &bare, &root, true);
    assert_eq!(found, Some(protected));
    // The owner must still be known, even for a caller who may end any process.
    test_host.protection.units.clear();
    let mut unknown = bare;
    unknown.uids = Reading::Failed("x".into());
    let unclear = Outcome::Unclear("its owner is not known".into());
    let found = veto_for(&test_host, &named, &unknown, &root, true);
    assert_eq!(found, Some(unclear));
}

#[test]
fn late_member_has_the_name_of_its_container() {
    let mut test_host = host();
    test_host.protection.containers = vec!["prod".into()];
    let mut late = process(302, 300, ALICE, "python");
    late.container = Reading::Value(Some(Container {
        name: Reading::Failed("not requested".into()),
        ..container('a', "x", None)
    }));
    let late_target = KillTarget {
        key: late.lineage.key,
        ..target(&test_host, 301)
    };
    let protected = Outcome::Protected("the admin protects container prod".into());
    for (name, expected) in [("dev", None), ("prod", Some(protected))] {
        test_host.process_mut(300).container = Reading::Value(Some(container('a', name, None)));
        let root = caller(0, &[]);
        let again = RecheckContext {
            before: Some(&late),
            ..context(&test_host, &late_target, &root, true)
        };
        assert_eq!(veto(&late_target, &late, &again), expected, "{name}");
    }
    // The name of a container of the same id, of another user manager, is no name of this one.
    test_host.process_mut(300).container = Reading::Value(Some(Container {
        manager: Some(ALICE),
        ..container('a', "dev", None)
    }));
    let unknown = "its container is not known, and the admin protects some containers";
    let root = caller(0, &[]);
    let again = RecheckContext {
        before: Some(&late),
        ..context(&test_host, &late_target, &root, true)
    };
    assert_eq!(
        veto(&late_target, &late, &again),
        Some(Outcome::Protected(unknown.into()))
    );
}

#[test]
fn targets_without_end_are_vetoed() {
    let test_host = host();
    let reaper = Reaper {
        pid: 1,
        name: Reading::Unsupported,
    };
    let cases = [
        (
            PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always("x")),
            Outcome::Protected("x".into()),
        ),
        (
            PlannedAction::Denied("x".into()),
            Outcome::Denied("x".into()),
        ),
        (
            PlannedAction::Unclear("x".into()),
            Outcome::Unclear("x".into()),
        ),
        (
            PlannedAction::Zombie(reaper.clone()),
            Outcome::Zombie(reaper),
        ),
    ];
    for (action, expected) in cases {
        let target = KillTarget {
            action,
            ..target(&test_host, 300)
        };
        let found = veto_for(
            &test_host,
            &target,
            &test_host.process_table[&300],
            &caller(0, &[]),
            true,
        );
        assert_eq!(found, Some(expected));
    }
}

#[test]
fn shell_named_by_pid_is_ended() {
    let mut test_host = host();
    test_host.open_device(202, 0);
    let plan = test_host.plan(
        &caller(ALICE, &[]),
        &request(pids(&[202]), KillScope::Process),
    );
    let target = plan.unwrap().targets.remove(0);
    let now = &test_host.process_table[&202];
    assert_eq!(
        veto_for(&test_host, &target, now, &caller(ALICE, &[]), true),
        None
    );
}

#[test]
fn job_script_shell_is_ended() {
    let mut test_host = KillTestHost::new();
    let shell = test_host.add(process(300, 1, ALICE, "sh"));
    shell.lineage.unit = Some(unit("serve.service", None));
    test_host.fork(301, 300, "python");
    test_host.list_process(301, 0, 10);
    let mut test_host = test_host.with_jobs();
    let plan = test_host.plan(&caller(ALICE, &[]), &request(pids(&[301]), KillScope::Job));
    let targets = plan.unwrap().targets;
    let target = targets.iter().find(|target| target.key.pid == 300);
    let target = target.unwrap();
    // The recheck does not read jobs.
    let mut now = test_host.process_table[&300].clone();
    now.job = Reading::Failed("not asked for".into());
    let alice = caller(ALICE, &[]);
    assert_eq!(veto_for(&test_host, target, &now, &alice, true), None);
    now.lineage.on_terminal = true;
    let why = "it is sh now, which hosts sessions";
    let changed = Some(Outcome::Changed(why.into()));
    assert_eq!(veto_for(&test_host, target, &now, &alice, true), changed);
    // A process that was forked after the plan is not in the process table.
    now.lineage.on_terminal = false;
    test_host.process_table.remove(&300);
    assert_eq!(veto_for(&test_host, target, &now, &alice, true), None);
}
