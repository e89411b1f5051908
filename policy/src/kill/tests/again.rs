//! The second look, right before a signal.

use super::super::again::{Again, objection};
use super::super::*;
use super::scene::*;
use crate::select::Glob;
use gpukill_proto::kill::{Ending, Fate, KillScope, KillTarget, Reaper};

/// A scene in which alice's 300 is planned, reached or named, and 301 is bob's.
pub(super) fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.login(200, ALICE);
    scene.command(300, 202, "python");
    scene.fork(301, 300, "python");
    scene.uses(300, 0, 10);
    scene.with_jobs()
}

pub(super) fn target(scene: &Scene, pid: u32) -> KillTarget {
    let plan = scene.plan(&caller(ALICE, &[]), &request(pids(&[300]), KillScope::Tree));
    let targets = plan.unwrap().targets;
    targets.into_iter().find(|t| t.key.pid == pid).unwrap()
}

/// What is objected to this target of alice's, after this change.
fn objected(pid: u32, change: impl FnOnce(&mut Candidate)) -> Option<Ending> {
    let scene = scene();
    let mut now = scene.crowd[&pid].clone();
    change(&mut now);
    look(
        &scene,
        &target(&scene, pid),
        &now,
        &caller(ALICE, &[]),
        true,
    )
}

fn look(
    scene: &Scene,
    target: &KillTarget,
    now: &Candidate,
    caller: &Caller,
    uses_gpu: bool,
) -> Option<Ending> {
    objection(target, now, &context(scene, target, caller, uses_gpu))
}

/// What the second look at this target goes by, before its first signal.
fn context<'a>(
    scene: &'a Scene,
    target: &KillTarget,
    caller: &'a Caller,
    uses_gpu: bool,
) -> Again<'a> {
    Again {
        caller,
        roles: &scene.roles,
        operators: "gpukill-operators",
        crowd: &scene.crowd,
        protection: &scene.protection,
        before: scene.crowd.get(&target.key.pid),
        person: None,
        uses_gpu,
        used_gpu_itself: false,
        had_signal: false,
    }
}

#[test]
fn a_process_that_is_as_it_was_planned_gets_its_signal() {
    assert_eq!(objected(300, |_| {}), None);
    assert_eq!(objected(301, |_| {}), None);
    // Names change, and stopped or stuck ones are still there.
    assert_eq!(objected(300, |now| now.kin.name = "train".into()), None);
    assert_eq!(objected(300, |now| now.state = ProcessState::Stopped), None);
    let stuck = ProcessState::Uninterruptible(None);
    assert_eq!(objected(300, |now| now.state = stuck), None);
    // What may hang is not read again.
    let bare = |now: &mut Candidate| {
        now.owner = Reading::Unsupported;
        now.command = Reading::Unsupported;
        now.container = Reading::Unsupported;
    };
    assert_eq!(objected(300, bare), None);
}

#[test]
fn each_change_since_the_plan_keeps_the_signal_back() {
    let other = |uid: u32| Reading::Value(Uids::all(uid));
    let setuid = Reading::Value(Uids {
        real: ALICE,
        effective: 0,
        saved: 0,
    });
    let unclear = || Some(Ending::Unclear("whose it is is not known".into()));
    let changed = |what: &str| Some(Ending::Changed(what.to_owned()));
    let cases = [
        (
            "its pid is another's",
            objected(300, |now| now.kin.key.start_ticks += 1),
            Some(Ending::Gone),
        ),
        (
            "it has ended",
            objected(300, |now| now.state = ProcessState::Zombie),
            Some(Ending::Zombie(Reaper {
                pid: 202,
                name: Reading::Value("bash".into()),
            })),
        ),
        (
            "it is bob's",
            objected(300, |now| now.uids = other(BOB)),
            changed("it runs as uid 1001 now"),
        ),
        (
            "it has root's rights",
            objected(300, |now| now.uids = setuid),
            Some(Ending::Denied("someone in group gpukill-operators".into())),
        ),
        (
            "whose it is is not known",
            objected(300, |now| now.uids = Reading::Failed("x".into())),
            unclear(),
        ),
        (
            "it executes a display server",
            objected(300, |now| {
                now.kin.name = "Xorg".into();
                now.kin.executable = Some("/usr/bin/Xorg".into());
                now.at_seat = Reading::Value(true);
            }),
            changed("it is Xorg now: it is a display server: it ends with its session"),
        ),
        (
            "what is reached executes a login service as a person",
            objected(301, |now| {
                now.kin.name = "agetty".into();
                now.kin.executable = Some("/usr/sbin/agetty".into());
            }),
            changed("it is agetty now, which keeps people's work"),
        ),
        (
            "what is reached executes a shell",
            objected(301, |now| {
                now.kin.name = "bash".into();
                now.kin.executable = Some("/usr/bin/bash".into());
            }),
            changed("it is bash now, which keeps people's work"),
        ),
        (
            "what is reached runs Jupyter",
            objected(301, |now| {
                now.kin.arguments = Some(["python", "-m", "jupyterlab"].map(str::to_owned).into());
            }),
            changed("it is python now, which keeps people's work"),
        ),
    ];
    for (what, found, expected) in cases {
        assert_eq!(found, expected, "{what}");
    }
}

/// Executes this file, and is called so.
fn executes(now: &mut Candidate, path: &str) {
    now.kin.name = path.rsplit('/').next().unwrap().into();
    now.kin.executable = Some(path.into());
    now.program = Reading::Failed("not asked for".into());
}

#[test]
fn nobody_saves_a_process_that_was_meant_by_executing_what_keeps_work() {
    let scene = scene();
    let root = caller(0, &[]);
    let paths = [
        "/home/alice/bin/tmux",
        "/usr/bin/tmux",
        "/usr/bin/screen",
        "/usr/bin/bash",
        "/usr/bin/sudo",
    ];
    // By name, as the user of a GPU, and after a signal; as the guard does, too.
    let cases = [
        (300, false, false, None),
        (301, true, false, None),
        (301, false, true, None),
        (301, false, false, Some(BOB)),
    ];
    for path in paths {
        for (pid, used_gpu_itself, had_signal, person) in cases {
            let target = target(&scene, pid);
            let mut now = scene.crowd[&pid].clone();
            executes(&mut now, path);
            let again = Again {
                used_gpu_itself,
                had_signal,
                person,
                ..context(&scene, &target, &root, true)
            };
            assert_eq!(objection(&target, &now, &again), None, "{path} {again:?}");
        }
    }
}

#[test]
fn what_a_scope_reached_is_left_alone_where_it_keeps_work_by_a_file_of_the_host() {
    let ended = |change: fn(&mut Candidate)| objected(301, change).is_none();
    assert!(!ended(|now| executes(now, "/usr/bin/tmux")));
    assert!(!ended(|now| executes(now, "/usr/bin/bash")));
    assert!(ended(|now| executes(now, "/home/alice/bin/tmux")));
    assert!(ended(|now| executes(now, "/home/alice/usr/bin/bash")));
    // In a mount namespace of her own.
    assert!(ended(|now| {
        executes(now, "/usr/bin/tmux");
        now.kin.maker = Some(ALICE);
        now.namespace_owner = Reading::Value(Some(ALICE));
    }));
    assert!(ended(|now| {
        executes(now, "/usr/bin/tmux");
        now.program = Reading::Value(ProgramOrigin::Elsewhere);
    }));
}

#[test]
fn root_and_operators_end_a_process_that_executes_su() {
    let scene = scene();
    let target = target(&scene, 300);
    let mut now = scene.crowd[&300].clone();
    executes(&mut now, "/usr/bin/su");
    now.uids = Reading::Value(Uids {
        real: ALICE,
        effective: 0,
        saved: 0,
    });
    let denied = Ending::Denied("someone in group gpukill-operators".into());
    for had_signal in [false, true] {
        let objected = |caller: &Caller| {
            let again = Again {
                had_signal,
                ..context(&scene, &target, caller, true)
            };
            objection(&target, &now, &again)
        };
        assert_eq!(objected(&caller(0, &[])), None);
        assert_eq!(objected(&olga()), None);
        assert_eq!(objected(&caller(ALICE, &[])), Some(denied.clone()));
    }
    // As a process of root's alone it is the system's.
    now.uids = Reading::Value(Uids::all(0));
    let changed = Ending::Changed("it runs as uid 0 now".into());
    let found = look(&scene, &target, &now, &caller(0, &[]), true);
    assert_eq!(found, Some(changed));
}

#[test]
fn what_has_let_go_of_its_gpu_is_not_ended() {
    let scene = scene();
    let now = &scene.crowd[&300];
    let found = look(
        &scene,
        &target(&scene, 300),
        now,
        &caller(ALICE, &[]),
        false,
    );
    let why = "it does not use a GPU any more";
    assert_eq!(found, Some(Ending::Changed(why.into())));
}

#[test]
fn rights_and_protection_count_as_they_are_now() {
    let mut scene = scene();
    let now = scene.crowd[&300].clone();
    let target = target(&scene, 300);
    let denied = Ending::Denied("alice, or someone in group gpukill-operators".into());
    let found = look(&scene, &target, &now, &caller(BOB, &[]), true);
    assert_eq!(found, Some(denied));
    assert_eq!(look(&scene, &target, &now, &olga(), true), None);
    scene.roles.operator_group = None;
    let denied = Ending::Denied("alice, or root".into());
    assert_eq!(look(&scene, &target, &now, &olga(), true), Some(denied));
    let contained = Caller {
        contained: true,
        ..caller(0, &[])
    };
    assert!(look(&scene, &target, &now, &contained, true).is_some());
    // What the second look does not read again is known of the crowd.
    scene.protection.users = vec!["alice".into()];
    let mut bare = now;
    bare.owner = Reading::Unsupported;
    let found = look(&scene, &target, &bare, &caller(0, &[]), true);
    let why = "the admin protects what alice runs";
    assert_eq!(found, Some(Ending::Protected(why.into())));
}

#[test]
fn what_is_not_read_again_is_as_it_was_seen_before() {
    let keeps_work = Ending::Changed("it is python now, which keeps people's work".into());
    let protected = Ending::Protected("the admin protects session-3.scope".into());
    let mut scene = scene();
    let [named, reached] = [300, 301].map(|pid| target(&scene, pid));
    let [now, other] = [300, 301].map(|pid| scene.crowd[&pid].clone());
    let root = caller(0, &[]);
    // Of a container of no name it would not be known whether it is protected.
    scene.protection.containers = vec!["prod".into()];
    scene.at(300).container = Reading::Value(Some(container('a', "dev", None)));
    let mut nameless = now.clone();
    nameless.container = Reading::Value(Some(Container {
        name: Reading::Failed("x".into()),
        ..container('a', "dev", None)
    }));
    assert_eq!(look(&scene, &named, &nameless, &root, true), None);
    scene.at(301).kin.arguments = Some(["python", "-m", "jupyterlab"].map(str::to_owned).into());
    let found = look(&scene, &reached, &other, &root, true);
    assert_eq!(found, Some(keeps_work));
    scene.protection.units = Glob::parse("session-3.scope").into_iter().collect();
    let mut bare = now;
    bare.kin.unit = None;
    let found = look(&scene, &named, &bare, &root, true);
    assert_eq!(found, Some(protected));
    // And whose it is has to be known still, also to whoever may end anybody's.
    scene.protection.units.clear();
    let mut unknown = bare;
    unknown.uids = Reading::Failed("x".into());
    let unclear = Ending::Unclear("whose it is is not known".into());
    let found = look(&scene, &named, &unknown, &root, true);
    assert_eq!(found, Some(unclear));
}

#[test]
fn what_the_plan_does_not_end_is_never_ended() {
    let scene = scene();
    let reaper = Reaper {
        pid: 1,
        name: Reading::Unsupported,
    };
    let cases = [
        (
            Fate::Protected(gpukill_proto::kill::Protected::always("x")),
            Ending::Protected("x".into()),
        ),
        (Fate::Denied("x".into()), Ending::Denied("x".into())),
        (Fate::Unclear("x".into()), Ending::Unclear("x".into())),
        (Fate::Zombie(reaper.clone()), Ending::Zombie(reaper)),
    ];
    for (fate, expected) in cases {
        let target = KillTarget {
            fate,
            ..target(&scene, 300)
        };
        let found = look(&scene, &target, &scene.crowd[&300], &caller(0, &[]), true);
        assert_eq!(found, Some(expected));
    }
}

#[test]
fn a_shell_that_was_named_by_its_pid_is_ended() {
    let mut scene = scene();
    scene.opens(202, 0);
    let plan = scene.plan(
        &caller(ALICE, &[]),
        &request(pids(&[202]), KillScope::Process),
    );
    let target = plan.unwrap().targets.remove(0);
    let now = &scene.crowd[&202];
    assert_eq!(look(&scene, &target, now, &caller(ALICE, &[]), true), None);
}

#[test]
fn a_shell_that_runs_a_jobs_script_is_ended_with_the_job() {
    let mut scene = Scene::new();
    let shell = scene.add(process(300, 1, ALICE, "sh"));
    shell.kin.unit = Some(unit("serve.service", None));
    scene.fork(301, 300, "python");
    scene.uses(301, 0, 10);
    let mut scene = scene.with_jobs();
    let plan = scene.plan(&caller(ALICE, &[]), &request(pids(&[301]), KillScope::Job));
    let targets = plan.unwrap().targets;
    let target = targets.iter().find(|target| target.key.pid == 300);
    let target = target.unwrap();
    // The second look does not ask for jobs.
    let mut now = scene.crowd[&300].clone();
    now.job = Reading::Failed("not asked for".into());
    let alice = caller(ALICE, &[]);
    assert_eq!(look(&scene, target, &now, &alice, true), None);
    now.kin.on_terminal = true;
    let why = "it is sh now, which keeps people's work";
    let changed = Some(Ending::Changed(why.into()));
    assert_eq!(look(&scene, target, &now, &alice, true), changed);
    // One that was born since the plan was made is in no crowd.
    now.kin.on_terminal = false;
    scene.crowd.remove(&300);
    assert_eq!(look(&scene, target, &now, &alice, true), None);
}
