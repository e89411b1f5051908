//! Tests of the jobs that processes are part of.

mod kept;

mod people;

use super::*;
use gpukill_proto::snapshot::{ContainerId, Scheduler};
use proptest::prelude::*;

const ALICE: u32 = 1000;

fn kin(pid: u32, name: &str) -> Kin {
    Kin {
        key: ProcessKey {
            pid,
            start_ticks: u64::from(pid),
        },
        uid: Some(ALICE),
        maker: None,
        name: name.to_owned(),
        group: 1,
        session: 1,
        on_terminal: false,
        executable: None,
        arguments: None,
        unit: None,
    }
}

/// Started with these words.
fn command(kin: Kin, words: &str) -> Kin {
    Kin {
        arguments: Some(words.split(' ').map(str::to_owned).collect()),
        ..kin
    }
}

/// A process that executes this.
fn executing(pid: u32, name: &str, executable: &str) -> Kin {
    Kin {
        executable: Some(executable.to_owned()),
        ..kin(pid, name)
    }
}

fn whole(line: &[Kin]) -> Ancestors {
    Ancestors {
        line: line.to_vec(),
        is_cut: false,
    }
}

/// The job of a process that is in this unit, if any.
fn job_in(unit: Option<&Unit>, process: &Kin, ancestors: &Ancestors) -> Reading<Job> {
    job(Facts {
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

/// The pid of the root of the tree of process 100 with these ancestors.
fn tree(process: &Kin, ancestors: &[Kin]) -> u32 {
    let found = job_in(None, process, &whole(ancestors));
    match found {
        Reading::Value(Job::Tree(root)) => root.pid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_kernel_could_call_a_process_by_each_name_of_a_keeper() {
    let long: Vec<_> = keepers::names().filter(|name| name.len() > 15).collect();
    assert_eq!(long, [""; 0]);
}

#[test]
fn a_process_that_is_called_as_a_shell_is_its_own_job() {
    assert_eq!(tree(&kin(100, "bash"), &[kin(9, "bash")]), 100);
}

#[test]
fn a_tree_has_one_user() {
    let other = |uid| Kin {
        uid,
        ..kin(9, "launcher")
    };
    assert_eq!(
        tree(&kin(100, "python"), &[other(Some(0)), kin(8, "python")]),
        100
    );
    assert_eq!(tree(&kin(100, "python"), &[other(None)]), 100);
    let unknown = Kin {
        uid: None,
        ..kin(100, "python")
    };
    assert_eq!(tree(&unknown, &[other(None)]), 100);
}

#[test]
fn a_session_leader_that_controls_jobs_on_a_terminal_is_a_shell_and_others_are_not() {
    let leader = |on_terminal| Kin {
        group: 9,
        session: 9,
        on_terminal,
        ..kin(9, "oil")
    };
    let child = |group, session| Kin {
        group,
        session,
        on_terminal: true,
        ..kin(100, "python")
    };
    // In a group of its own: the terminal's signals are passed between them.
    assert_eq!(tree(&child(100, 9), &[leader(true)]), 100);
    // `tmux new python train.py`: the leader is the launcher itself.
    assert_eq!(tree(&child(9, 9), &[leader(true)]), 9);
    // Launchers, by name, and scripts by what runs them.
    let named = |name: &str| Kin {
        name: name.to_owned(),
        ..leader(true)
    };
    for name in ["mpirun", "prterun", "torchrun", "python3"] {
        assert_eq!(tree(&child(100, 9), &[named(name)]), 9, "{name}");
    }
    let script = Kin {
        executable: Some("/usr/bin/python3".into()),
        ..named("run_all")
    };
    assert_eq!(tree(&child(100, 9), &[script]), 9);
    // Workers in sessions of their own, as torchrun starts them.
    assert_eq!(tree(&child(100, 100), &[leader(true)]), 9);
    // `setsid launcher`
    assert_eq!(tree(&child(100, 9), &[leader(false)]), 9);
}

#[test]
fn the_first_that_applies_is_the_job() {
    let slurm = SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "1234".into(),
        step: Some("0".into()),
    };
    let container = container();
    let service = unit("train.service", None);
    let process = kin(100, "python");
    let of =
        |scheduler: Option<&SchedulerJob>, container: Option<&Container>, unit: Option<&Unit>| {
            job(Facts {
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
    assert_eq!(of(None, None, Some(&service)), value(of_alice(&service)));
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

fn of_alice(unit: &Unit) -> Job {
    Job::Unit {
        unit: unit.clone(),
        uid: ALICE,
    }
}

#[test]
fn processes_of_two_users_in_a_unit_are_two_jobs() {
    let service = unit("train.service", None);
    let of = |uid| {
        let process = Kin {
            uid,
            ..kin(100, "python")
        };
        job_in(Some(&service), &process, &whole(&[]))
    };
    assert_eq!(of(Some(ALICE)), Reading::Value(of_alice(&service)));
    assert_ne!(of(Some(1001)), of(Some(ALICE)));
    assert_eq!(of(None), Reading::Failed("whose it is is not known".into()));
}

#[test]
fn below_a_server_of_sessions_in_a_unit_each_tree_is_a_job() {
    let scope = unit("run-r0123.scope", Some(ALICE));
    let inside = |kin: Kin| Kin {
        unit: Some(scope.clone()),
        ..kin
    };
    let elsewhere = |kin: Kin| Kin {
        unit: Some(unit("session-3.scope", None)),
        ..kin
    };
    let of = |process: Kin, line: &[Kin]| job_in(Some(&scope), &inside(process), &whole(line));
    let tree = |pid: u32| {
        Reading::Value(Job::Tree(ProcessKey {
            pid,
            start_ticks: u64::from(pid),
        }))
    };
    let all = Reading::Value(of_alice(&scope));
    // `systemd-run --user --scope tmux`, with two panes.
    let tmux = inside(kin(5, "tmux: server"));
    for pane in [10, 20] {
        let shell = inside(kin(pane, "bash"));
        let launcher = inside(kin(pane + 1, "torchrun"));
        let line = [launcher, shell, tmux.clone()];
        assert_eq!(of(kin(pane + 2, "python"), &line), tree(pane + 1));
    }
    assert_eq!(of(tmux.clone(), &[inside(kin(4, "launcher"))]), tree(5));
    let jupyter = command(kin(5, "python3"), "python3 -W ignore -m jupyterlab");
    assert_eq!(of(kin(9, "python"), &[inside(jupyter)]), tree(9));
    let root = Kin {
        uid: Some(0),
        ..kin(5, "supervisord")
    };
    assert_eq!(of(kin(9, "python"), &[inside(root)]), tree(9));
    // `ExecStart=/bin/sh -c …`, and `systemd-run --scope` in a pane of tmux.
    assert_eq!(of(kin(9, "python"), &[inside(kin(5, "sh"))]), all);
    assert_eq!(of(kin(9, "sh"), &[]), all);
    let line = [elsewhere(kin(6, "bash")), elsewhere(kin(5, "tmux: server"))];
    assert_eq!(of(kin(9, "python"), &line), all);
}

#[test]
fn arguments_are_needed_of_interpreters() {
    assert!(executing(9, "MainThread", "/usr/bin/node").needs_arguments());
    assert!(executing(9, "train", "/usr/bin/python3").needs_arguments());
    assert!(kin(9, "node-MainThread").needs_arguments());
    assert!(!kin(9, "bash").needs_arguments());
}

#[test]
fn a_line_that_was_cut_makes_a_job_unknown_only_where_the_rest_could_tell() {
    let service = unit("train.service", None);
    let cut = |line: &[Kin]| Ancestors {
        line: line.to_vec(),
        is_cut: true,
    };
    let process = kin(100, "python");
    let unknown = Reading::Failed("it has too many ancestors to look at".into());
    let deep = cut(&[kin(50, "python")]);
    assert_eq!(job_in(None, &process, &deep), unknown);
    assert_eq!(job_in(Some(&service), &process, &deep), unknown);
    let shell = cut(&[kin(50, "python"), kin(9, "bash")]);
    let of_shell = job_in(None, &process, &shell);
    assert_eq!(of_shell, Reading::Value(Job::Tree(shell.line[0].key)));
}

#[test]
fn process_1_is_no_job() {
    let found = job_in(None, &kin(1, "python"), &Ancestors::default());
    let why = "process 1 is no job: all others are below it";
    assert_eq!(found, Reading::Failed(why.into()));
}

#[test]
fn where_the_place_is_not_known_the_job_is_not_known() {
    let process = kin(100, "python");
    let known = Facts {
        process: &process,
        ancestors: &Ancestors::default(),
        scheduler: &Reading::Value(None),
        container: &Reading::Value(None),
        unit: &Reading::Value(None),
    };
    let scheduler: Reading<Option<SchedulerJob>> = Reading::Failed("x".into());
    let container: Reading<Option<&Container>> = scheduler.because();
    let unit: Reading<Option<Unit>> = scheduler.because();
    let cases = [
        Facts {
            scheduler: &scheduler,
            ..known
        },
        Facts {
            container: &container,
            ..known
        },
        Facts {
            unit: &unit,
            ..known
        },
    ];
    for facts in cases {
        assert_eq!(job(facts), Reading::Failed("x".into()));
    }
}

fn anybody() -> impl Strategy<Value = Kin> {
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
        .prop_map(|(pid, uid, name, on_terminal)| Kin {
            uid,
            on_terminal,
            group: pid % 3,
            session: pid % 5,
            ..kin(pid, name)
        })
}

proptest! {
    #[test]
    fn the_root_is_the_process_or_a_same_user_ancestor_that_keeps_nothing(
        process in anybody(),
        ancestors in proptest::collection::vec(anybody(), 0..16),
    ) {
        let (Root::Found(root) | Root::Above(root)) = root(&process, &ancestors);
        let position = ancestors.iter().position(|ancestor| ancestor.key == root);
        prop_assert!(root == process.key || position.is_some());
        if root != process.key {
            for between in &ancestors[..=position.unwrap()] {
                prop_assert!(between.uid == process.uid && process.uid.is_some());
                prop_assert!(!is_keeper(between), "{between:?}");
                prop_assert!(between.key.pid != 1);
            }
        }
    }
}

#[test]
fn the_notebook_servers_of_a_kernel_are_those_directly_above_it() {
    let server = || command(kin(9, "python3"), "python3 -m jupyterlab");
    let hub = Kin {
        uid: Some(0),
        ..kin(8, "jupyterhub")
    };
    let editor = executing(7, "node", "/home/a/.vscode-server/bin/1/node");
    let cases: [(&[Kin], &[u32]); 7] = [
        (&[server(), kin(5, "bash")], &[9]),
        (&[server(), hub], &[9]),
        // A worker of the kernel.
        (&[kin(20, "python"), server()], &[9]),
        (&[editor.clone(), kin(6, "sh")], &[7]),
        (&[kin(11, "jupyter-lab"), editor], &[11, 7]),
        // Typed in its terminal.
        (&[kin(12, "bash"), server()], &[]),
        (&[kin(12, "tmux: server")], &[]),
    ];
    for (ancestors, expected) in cases {
        let found = notebook_servers(&kin(100, "python"), &whole(ancestors));
        let pids: Vec<u32> = found.iter().map(|key| key.pid).collect();
        assert_eq!(pids, expected, "{ancestors:?}");
    }
}
