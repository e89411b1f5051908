//! Tests of the jobs of processes.

mod session_hosts;

use super::*;
use gpukill_proto::model::{ContainerId, Scheduler};
use proptest::prelude::*;

const ALICE: u32 = 1000;

fn lineage(pid: u32, name: &str) -> ProcessLineage {
    ProcessLineage {
        key: ProcessKey {
            pid,
            start_ticks: u64::from(pid),
        },
        uid: Some(ALICE),
        uid_min: 1000,
        namespace_creator: None,
        name: name.to_owned(),
        group: 1,
        session: 1,
        on_terminal: false,
        executable: None,
        arguments: None,
        unit: None,
    }
}

/// The process with this command line.
fn command(lineage: ProcessLineage, words: &str) -> ProcessLineage {
    ProcessLineage {
        arguments: Some(words.split(' ').map(str::to_owned).collect()),
        ..lineage
    }
}

/// A process with this executable.
fn executing(pid: u32, name: &str, executable: &str) -> ProcessLineage {
    ProcessLineage {
        executable: Some(executable.to_owned()),
        ..lineage(pid, name)
    }
}

fn all_ancestors(line: &[ProcessLineage]) -> Ancestors {
    Ancestors {
        processes: line.to_vec(),
        is_truncated: false,
    }
}

/// The job of a process in this unit, if any.
fn job_in(unit: Option<&Unit>, process: &ProcessLineage, ancestors: &Ancestors) -> Reading<Job> {
    determine_job(JobFacts {
        process,
        ancestors,
        scheduler: &Reading::Value(None),
        container: &Reading::Value(None),
        unit: &Reading::Value(unit.cloned()),
    })
}

fn unit(name: &str, manager: Option<u32>) -> Unit {
    Unit {
        name: name.to_owned(),
        manager,
    }
}

/// The pid of the tree root of process 100 with these ancestors.
fn tree(process: &ProcessLineage, ancestors: &[ProcessLineage]) -> u32 {
    let found = job_in(None, process, &all_ancestors(ancestors));
    match found {
        Reading::Value(Job::Tree(root)) => root.pid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn session_host_names_fit_the_kernel() {
    let long: Vec<_> = super::session_hosts::all_names()
        .filter(|name| name.len() > 15)
        .collect();
    assert_eq!(long, [""; 0]);
}

#[test]
fn shell_is_its_own_job() {
    assert_eq!(tree(&lineage(100, "bash"), &[lineage(9, "bash")]), 100);
}

#[test]
fn tree_has_one_user() {
    let other = |uid| ProcessLineage {
        uid,
        ..lineage(9, "launcher")
    };
    assert_eq!(
        tree(
            &lineage(100, "python"),
            &[other(Some(0)), lineage(8, "python")]
        ),
        100
    );
    assert_eq!(tree(&lineage(100, "python"), &[other(None)]), 100);
    let unknown = ProcessLineage {
        uid: None,
        ..lineage(100, "python")
    };
    assert_eq!(tree(&unknown, &[other(None)]), 100);
}

#[test]
fn job_control_marks_a_shell() {
    let leader = |on_terminal| ProcessLineage {
        group: 9,
        session: 9,
        on_terminal,
        ..lineage(9, "oil")
    };
    let child = |group, session| ProcessLineage {
        group,
        session,
        on_terminal: true,
        ..lineage(100, "python")
    };
    // In a process group of its own: the shell moves the terminal's signals between the
    // groups.
    assert_eq!(tree(&child(100, 9), &[leader(true)]), 100);
    // `tmux new python train.py`: the leader is the launcher itself.
    assert_eq!(tree(&child(9, 9), &[leader(true)]), 9);
    // Launchers by name, and scripts by their interpreter.
    let named = |name: &str| ProcessLineage {
        name: name.to_owned(),
        ..leader(true)
    };
    for name in ["mpirun", "prterun", "torchrun", "python3"] {
        assert_eq!(tree(&child(100, 9), &[named(name)]), 9, "{name}");
    }
    let script = ProcessLineage {
        executable: Some("/usr/bin/python3".into()),
        ..named("run_all")
    };
    assert_eq!(tree(&child(100, 9), &[script]), 9);
    // Workers in sessions of their own, as torchrun starts them.
    assert_eq!(tree(&child(100, 100), &[leader(true)]), 9);
    // Started with `setsid launcher`.
    assert_eq!(tree(&child(100, 9), &[leader(false)]), 9);
}

#[test]
fn first_applicable_kind_wins() {
    let slurm = SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "1234".into(),
        step: Some("0".into()),
    };
    let container = container();
    let service = unit("train.service", None);
    let process = lineage(100, "python");
    let of =
        |scheduler: Option<&SchedulerJob>, container: Option<&Container>, unit: Option<&Unit>| {
            determine_job(JobFacts {
                process: &process,
                ancestors: &Ancestors::default(),
                scheduler: &Reading::Value(scheduler.cloned()),
                container: &Reading::Value(container),
                unit: &Reading::Value(unit.cloned()),
            })
        };
    let value = Reading::Value;
    assert_eq!(
        of(Some(&slurm), Some(&container), Some(&service)),
        value(Job::Scheduler(slurm.clone()))
    );
    assert_eq!(
        of(None, Some(&container), Some(&service)),
        value(Job::Container {
            id: container.id.clone(),
            manager: Some(ALICE),
        })
    );
    assert_eq!(
        of(None, None, Some(&service)),
        value(unit_job_of_alice(&service))
    );
    assert_eq!(of(None, None, None), value(Job::Tree(process.key)));
    let session = unit("session-3.scope", None);
    assert_eq!(
        of(None, None, Some(&session)),
        value(Job::Tree(process.key))
    );
}

fn container() -> Container {
    Container {
        id: ContainerId {
            runtime: "docker".into(),
            id: "a".repeat(64),
        },
        manager: Some(ALICE),
        name: Reading::Unsupported,
        image: Reading::Unsupported,
        pod: None,
    }
}

fn unit_job_of_alice(unit: &Unit) -> Job {
    Job::Unit {
        unit: unit.clone(),
        uid: ALICE,
    }
}

#[test]
fn two_users_in_a_unit_are_two_jobs() {
    let service = unit("train.service", None);
    let of = |uid| {
        let process = ProcessLineage {
            uid,
            ..lineage(100, "python")
        };
        job_in(Some(&service), &process, &all_ancestors(&[]))
    };
    assert_eq!(of(Some(ALICE)), Reading::Value(unit_job_of_alice(&service)));
    assert_ne!(of(Some(1001)), of(Some(ALICE)));
    assert_eq!(of(None), Reading::Failed("its owner is not known".into()));
}

#[test]
fn session_server_splits_a_unit() {
    let scope = unit("run-r0123.scope", Some(ALICE));
    let inside = |lineage: ProcessLineage| ProcessLineage {
        unit: Some(scope.clone()),
        ..lineage
    };
    let elsewhere = |lineage: ProcessLineage| ProcessLineage {
        unit: Some(unit("session-3.scope", None)),
        ..lineage
    };
    let of = |process: ProcessLineage, line: &[ProcessLineage]| {
        job_in(Some(&scope), &inside(process), &all_ancestors(line))
    };
    let tree = |pid: u32| {
        Reading::Value(Job::Tree(ProcessKey {
            pid,
            start_ticks: u64::from(pid),
        }))
    };
    let all = Reading::Value(unit_job_of_alice(&scope));
    // `systemd-run --user --scope tmux`, with two panes.
    let tmux = inside(lineage(5, "tmux: server"));
    for pane in [10, 20] {
        let shell = inside(lineage(pane, "bash"));
        let launcher = inside(lineage(pane + 1, "torchrun"));
        let line = [launcher, shell, tmux.clone()];
        assert_eq!(of(lineage(pane + 2, "python"), &line), tree(pane + 1));
    }
    // A server leads its session, and no other work of hers is above it. The name alone
    // takes no process out of its unit.
    let leading = ProcessLineage {
        session: 5,
        ..tmux.clone()
    };
    assert_eq!(of(leading.clone(), &[]), tree(5));
    assert_eq!(of(leading, &[inside(lineage(4, "launcher"))]), all);
    assert_eq!(of(tmux, &[]), all);
    let jupyter = command(lineage(5, "python3"), "python3 -W ignore -m jupyterlab");
    assert_eq!(of(lineage(9, "python"), &[inside(jupyter)]), tree(9));
    let root = ProcessLineage {
        uid: Some(0),
        ..lineage(5, "supervisord")
    };
    assert_eq!(of(lineage(9, "python"), &[inside(root)]), tree(9));
    // `ExecStart=/bin/sh -c …`, and `systemd-run --scope` in a pane of tmux.
    assert_eq!(of(lineage(9, "python"), &[inside(lineage(5, "sh"))]), all);
    assert_eq!(of(lineage(9, "sh"), &[]), all);
    let line = [
        elsewhere(lineage(6, "bash")),
        elsewhere(lineage(5, "tmux: server")),
    ];
    assert_eq!(of(lineage(9, "python"), &line), all);
}

#[test]
fn interpreters_need_arguments() {
    assert!(executing(9, "MainThread", "/usr/bin/node").needs_arguments());
    assert!(executing(9, "train", "/usr/bin/python3").needs_arguments());
    assert!(lineage(9, "node-MainThread").needs_arguments());
    assert!(!lineage(9, "bash").needs_arguments());
}

#[test]
fn truncated_ancestors_may_hide_the_job() {
    let service = unit("train.service", None);
    let cut = |line: &[ProcessLineage]| Ancestors {
        processes: line.to_vec(),
        is_truncated: true,
    };
    let process = lineage(100, "python");
    let unknown = Reading::Failed("it has too many ancestors to read".into());
    let deep = cut(&[lineage(50, "python")]);
    assert_eq!(job_in(None, &process, &deep), unknown);
    assert_eq!(job_in(Some(&service), &process, &deep), unknown);
    let shell = cut(&[lineage(50, "python"), lineage(9, "bash")]);
    let of_shell = job_in(None, &process, &shell);
    assert_eq!(of_shell, Reading::Value(Job::Tree(shell.processes[0].key)));
}

#[test]
fn process_1_is_no_job() {
    let found = job_in(None, &lineage(1, "python"), &Ancestors::default());
    let why = "process 1 is not a job: all other processes are below it";
    assert_eq!(found, Reading::Failed(why.into()));
}

#[test]
fn unknown_location_means_unknown_job() {
    let process = lineage(100, "python");
    let known = JobFacts {
        process: &process,
        ancestors: &Ancestors::default(),
        scheduler: &Reading::Value(None),
        container: &Reading::Value(None),
        unit: &Reading::Value(None),
    };
    let scheduler: Reading<Option<SchedulerJob>> = Reading::Failed("x".into());
    let container: Reading<Option<&Container>> = scheduler.as_unknown();
    let unit: Reading<Option<Unit>> = scheduler.as_unknown();
    let cases = [
        JobFacts {
            scheduler: &scheduler,
            ..known
        },
        JobFacts {
            container: &container,
            ..known
        },
        JobFacts {
            unit: &unit,
            ..known
        },
    ];
    for facts in cases {
        assert_eq!(determine_job(facts), Reading::Failed("x".into()));
    }
}

fn any_lineage() -> impl Strategy<Value = ProcessLineage> {
    let names = prop_oneof![
        Just("bash"),
        Just("python"),
        Just("jupyter-lab"),
        Just("torchrun"),
        Just("systemd"),
        Just("tmux: server"),
        Just("x"),
    ];
    (
        1u32..20,
        prop_oneof![Just(None), Just(Some(0)), Just(Some(ALICE))],
        names,
        any::<bool>(),
    )
        .prop_map(|(pid, uid, name, on_terminal)| ProcessLineage {
            uid,
            on_terminal,
            group: pid % 3,
            session: pid % 5,
            ..lineage(pid, name)
        })
}

proptest! {
    #[test]
    fn root_is_own_or_same_user_ancestor(
        process in any_lineage(),
        ancestors in proptest::collection::vec(any_lineage(), 0..16),
    ) {
        let (TreeRoot::Found(root) | TreeRoot::Above(root)) = find_root(&process, &ancestors);
        let position = ancestors.iter().position(|ancestor| ancestor.key == root);
        prop_assert!(root == process.key || position.is_some());
        if root != process.key {
            for between in &ancestors[..=position.unwrap()] {
                prop_assert!(between.uid == process.uid && process.uid.is_some());
                prop_assert!(!is_session_host(between), "{between:?}");
                prop_assert!(between.key.pid != 1);
            }
        }
    }
}

#[test]
fn notebook_servers_are_directly_above() {
    let server = || command(lineage(9, "python3"), "python3 -m jupyterlab");
    let hub = ProcessLineage {
        uid: Some(0),
        ..lineage(8, "jupyterhub")
    };
    let editor = executing(7, "node", "/home/a/.vscode-server/bin/1/node");
    let cases: [(&[ProcessLineage], &[u32]); 7] = [
        (&[server(), lineage(5, "bash")], &[9]),
        (&[server(), hub], &[9]),
        // A worker of the kernel.
        (&[lineage(20, "python"), server()], &[9]),
        (&[editor.clone(), lineage(6, "sh")], &[7]),
        (&[lineage(11, "jupyter-lab"), editor], &[11, 7]),
        // Started in a terminal of the server.
        (&[lineage(12, "bash"), server()], &[]),
        (&[lineage(12, "tmux: server")], &[]),
    ];
    for (ancestors, expected) in cases {
        let found = notebook_servers(&lineage(100, "python"), &all_ancestors(ancestors));
        let pids: Vec<u32> = found.iter().map(|key| key.pid).collect();
        assert_eq!(pids, expected, "{ancestors:?}");
    }
}

#[test]
fn tree_has_one_person_across_uids() {
    let inside = |pid, uid, namespace_creator| ProcessLineage {
        uid: Some(uid),
        namespace_creator,
        ..lineage(pid, "python")
    };
    let line = |parent: ProcessLineage| [parent, lineage(8, "python"), lineage(7, "bash")];
    let own = Some(ALICE);
    for (process, parent, expected) in [
        (inside(100, 60_006, own), inside(9, 60_005, own), 8),
        (inside(100, 60_006, own), inside(9, ALICE, None), 8),
        (lineage(100, "python"), inside(9, 60_005, own), 8),
        // Another person, with any uids.
        (inside(100, 60_006, own), inside(9, 60_006, Some(1001)), 100),
        (inside(100, 60_006, own), inside(9, 60_006, None), 100),
        // A process that root started in the namespace.
        (inside(100, 60_006, own), inside(9, 0, own), 100),
        (inside(100, 0, own), inside(9, ALICE, None), 100),
    ] {
        assert_eq!(
            tree(&process, &line(parent.clone())),
            expected,
            "{parent:?}"
        );
    }
    // Part of a unit of the same person.
    let unit = unit("train.service", None);
    let found = job_in(Some(&unit), &inside(100, 60_006, own), &all_ancestors(&[]));
    assert_eq!(found, Reading::Value(Job::Unit { unit, uid: ALICE }));
}
