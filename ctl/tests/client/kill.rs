//! `kill`: its requests, its output and its exit codes.

use crate::fake_daemon::{FakeDaemon, Script, backend};
use crate::fake_kill::{FakeKills, ended_outcome, plan, planned_end, report, unfinished_report};
use crate::{run, stderr, stdout};
use gpukill_proto::kill::{
    KillPlan, KillReport, KillSignal, Outcome, PlanId, PlannedAction, ProtectionReason, Stage,
    UninterruptibleWait,
};
use gpukill_proto::model::{BackendState, FaultCode};
use gpukill_proto::refusal::Refusal;
use std::process::Output;
use std::sync::Mutex;

/// A daemon with this plan and these reports.
pub(crate) fn daemon(
    directory: &std::path::Path,
    plan: KillPlan,
    reports: Vec<KillReport>,
) -> FakeDaemon {
    let script = Script {
        killed: FakeKills {
            planned: Mutex::new(Ok(plan)),
            reports: Mutex::new(reports),
            ..FakeKills::default()
        },
        ..Script::default()
    };
    FakeDaemon::start(directory, script)
}

pub(crate) fn started_count(daemon: &FakeDaemon) -> usize {
    let started = daemon
        .script
        .killed
        .started_plans
        .lock()
        .expect("not poisoned");
    assert!(started.iter().all(|plan| *plan == PlanId(7)));
    started.len()
}

pub(crate) fn output_parts(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), stdout(output), stderr(output))
}

pub(crate) fn three_targets() -> KillPlan {
    plan(&[(7, planned_end()), (8, planned_end()), (9, planned_end())])
}

pub(crate) fn three_ended_report() -> KillReport {
    report(&[
        (7, ended_outcome()),
        (8, ended_outcome()),
        (9, ended_outcome()),
    ])
}

#[test]
fn single_process_is_ended_without_a_question() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    // The client follows the kill past unfinished reports.
    *daemon.script.killed.reports.lock().expect("not poisoned") = vec![
        unfinished_report(1),
        unfinished_report(2),
        report(&[(4182, ended_outcome())]),
    ];
    let expected = "\
alice's process 4182 on GPU 0, 1.0 GiB: python train.py
  ended  4182  python train.py  SIGTERM, 0.8 s
memory: GPU 0 gave back 1.0 of 1.0 GiB in 1.2 s
";
    let output = run(&daemon.socket, "kill 4182 4182");
    assert_eq!(
        output_parts(&output),
        (Some(0), expected.into(), String::new())
    );
    assert_eq!(started_count(&daemon), 1);
    let asked = daemon.script.killed.requests.lock().expect("not poisoned");
    assert_eq!(asked[0].selector.pids, [4182]);
}

#[test]
fn json_report_has_all_pages() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(
        directory.path(),
        three_targets(),
        vec![three_ended_report()],
    );
    let output = run(&daemon.socket, "kill 7 8 9 --yes -o json");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new())
    );
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    let outcomes = document["outcomes"].as_array().expect("it has them");
    let pids: Vec<_> = outcomes
        .iter()
        .filter_map(|it| it["pid"].as_u64())
        .collect();
    assert_eq!(pids, [7, 8, 9]);
    assert_eq!(
        (&document["schema"], &document["stage"]),
        (&1.into(), &"done".into())
    );
}

#[test]
fn every_outcome_has_its_exit_code() {
    let survived = || Outcome::Survived(KillSignal::Terminate, 5_000);
    let denied = || Outcome::Denied("bob".into());
    let cases = [
        (vec![(7, ended_outcome()), (8, ended_outcome())], 0),
        (vec![(7, ended_outcome()), (8, Outcome::Gone)], 0),
        (vec![(7, ended_outcome()), (8, survived())], 7),
        (vec![(7, ended_outcome()), (8, denied())], 7),
        (vec![(7, survived()), (8, denied())], 1),
        (
            vec![
                (7, Outcome::Uninterruptible(UninterruptibleWait::default())),
                (8, Outcome::Gone),
            ],
            1,
        ),
        (vec![(7, Outcome::Failed("EPERM".into()))], 1),
        (vec![(7, denied()), (8, Outcome::Protected("x".into()))], 4),
        (vec![(7, Outcome::Gone)], 8),
    ];
    for (outcomes, code) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let targets: Vec<(u32, PlannedAction)> = outcomes
            .iter()
            .map(|(pid, _)| (*pid, planned_end()))
            .collect();
        let daemon = daemon(directory.path(), plan(&targets), vec![report(&outcomes)]);
        let output = run(&daemon.socket, "kill 7 8 --yes");
        assert_eq!(output.status.code(), Some(code), "{outcomes:?}");
        // The heading of a single process names it too.
        let named = outcomes.len() + usize::from(outcomes.len() == 1);
        let shown = stdout(&output).matches("python train.py").count();
        assert_eq!(shown, named, "{outcomes:?}");
    }
    // The daemon was stopped: missing outcomes are not known.
    for (outcomes, code) in [(vec![(7, ended_outcome())], 7), (vec![], 1)] {
        let directory = tempfile::tempdir().expect("a directory");
        let stopped = KillReport {
            stage: Stage::Interrupted,
            ..report(&outcomes)
        };
        let daemon = daemon(directory.path(), three_targets(), vec![stopped]);
        let output = run(&daemon.socket, "kill 7 8 9 --yes");
        assert_eq!(output.status.code(), Some(code), "{outcomes:?}");
    }
}

#[test]
fn dry_run_starts_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let denied = || PlannedAction::Denied("bob".into());
    let planned = plan(&[(7, planned_end()), (8, planned_end()), (9, denied())]);
    let daemon = daemon(directory.path(), planned, vec![]);
    let socket = daemon.socket.display();
    let expected = format!(
        "\
2 processes of alice on GPU 0, 2.0 GiB; 1 other is left alone
 PID  USER   GPU  MEMORY  JOB     SIGNALS  COMMAND
   7  alice    0    1.0G  tree 7  SIGTERM  python train.py
   8  alice    0    1.0G  tree 8  SIGTERM  python train.py
  denied  9  python train.py  it belongs to alice: ask bob
dry run: nothing was ended; the real run: gpukillctl --socket {socket} kill --user alice --batch
"
    );
    let output = run(&daemon.socket, "kill --user alice --dry-run");
    assert_eq!(output_parts(&output), (Some(0), expected, String::new()));
    let output = run(&daemon.socket, "kill --user alice --dry-run --yes -o json");
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(document["selector"], "--user \"alice\"");
    assert_eq!(document["targets"].as_array().map(Vec::len), Some(3));
    assert_eq!(started_count(&daemon), 0);
}

#[test]
fn denied_member_of_a_new_group_is_to_log_in_again() {
    let denied = |ask: &str| PlannedAction::Denied(ask.into());
    let member = || denied("alice, or someone in group gpukill-operators");
    let own = || PlannedAction::Protected(ProtectionReason::always("it is gpukilld"));
    let again = "hint: you were added to group gpukill-operators: log in again for its rights\n";
    for (arguments, targets, refusal, hint) in [
        (
            "kill 7",
            vec![(7, member())],
            "cannot end process 7: it belongs to alice",
            again,
        ),
        (
            "kill --user alice --batch",
            vec![(7, member()), (8, member())],
            "cannot end any of these 2 processes",
            again,
        ),
        // Another group.
        (
            "kill 7",
            vec![(7, denied("someone in group gpukill-operators-2"))],
            "cannot end process 7: it belongs to alice",
            "hint: ask someone in group gpukill-operators-2; you were added to group \
             gpukill-operators: log in again for its rights\n",
        ),
        // Nobody's membership changes these.
        (
            "kill 7",
            vec![(7, denied("alice"))],
            "cannot end process 7: it belongs to alice",
            "hint: ask alice\n",
        ),
        (
            "kill 7",
            vec![(7, own())],
            "cannot end process 7: it is gpukilld",
            "",
        ),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let script = Script {
            killed: FakeKills {
                planned: Mutex::new(Ok(plan(&targets))),
                ..FakeKills::default()
            },
            new_group: Some("gpukill-operators"),
            ..Script::default()
        };
        let daemon = FakeDaemon::start(directory.path(), script);
        let output = run(&daemon.socket, arguments);
        assert_eq!(output.status.code(), Some(4), "{arguments}");
        assert_eq!(stderr(&output), format!("gpukillctl: {refusal}\n{hint}"));
    }
}

#[test]
fn denied_kill_names_the_owner_and_people_to_ask() {
    let directory = tempfile::tempdir().expect("a directory");
    let ask = "alice, or someone in group gpukill-operators";
    let denied = plan(&[(4182, PlannedAction::Denied(ask.into()))]);
    let daemon = daemon(directory.path(), denied, vec![]);
    let expected =
        format!("gpukillctl: cannot end process 4182: it belongs to alice\nhint: ask {ask}\n");
    let output = run(&daemon.socket, "kill 4182");
    assert_eq!(
        output_parts(&output),
        (Some(4), String::new(), expected.clone())
    );
    let output = run(&daemon.socket, "kill 4182 -o json");
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(document["targets"][0]["planned_action"], "denied");
    assert_eq!((output.status.code(), stderr(&output)), (Some(4), expected));
    // A request that the daemon refuses before planning.
    *daemon.script.killed.planned.lock().expect("not poisoned") = Err(Refusal::Denied {
        asked: "end a process that uses no GPU".into(),
        ask: "root".into(),
    });
    let output = run(&daemon.socket, "kill 4182 --any-process");
    assert_eq!(
        output_parts(&output),
        (
            Some(4),
            String::new(),
            "gpukillctl: cannot end a process that uses no GPU\nhint: ask root\n".into()
        )
    );
    assert_eq!(started_count(&daemon), 0);
}

#[test]
fn no_match_exits_8_and_failed_driver_2() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    let nobody = "no process that uses a GPU is selected";
    *daemon.script.killed.planned.lock().expect("not poisoned") =
        Err(Refusal::NoMatch(nobody.into()));
    for (arguments, why) in [
        ("kill --user root", ""),
        ("kill --user root --dry-run", ""),
        (
            "kill --user no-such-person",
            ": no user is called no-such-person",
        ),
        (
            "kill --job train.service --container web",
            ": no known job is called train.service; no known container is called web",
        ),
    ] {
        let output = run(&daemon.socket, arguments);
        let expected = format!("gpukillctl: {nobody}{why}\n");
        assert_eq!(output_parts(&output), (Some(8), String::new(), expected));
    }
    let output = run(&daemon.socket, "kill --user alice --dry-run -o json");
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(
        (output.status.code(), &document["targets"]),
        (Some(8), &serde_json::json!([]))
    );
    let unknown = "no GPU matches \"9\": this host has GPU 0";
    *daemon.script.killed.planned.lock().expect("not poisoned") =
        Err(Refusal::Invalid(unknown.into()));
    let output = run(&daemon.socket, "kill --gpu 9 --batch -o json");
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(
        (output.status.code(), &document["targets"]),
        (Some(3), &serde_json::json!([]))
    );
    assert_eq!(stderr(&output), format!("gpukillctl: {unknown}\n"));
    drop(daemon);
    let failed = Script {
        has_devices: false,
        backends: Mutex::new(vec![backend(BackendState::Failed(
            FaultCode::VersionMismatch,
            "version mismatch".into(),
        ))]),
        killed: FakeKills {
            planned: Mutex::new(Err(Refusal::NoMatch(nobody.into()))),
            ..FakeKills::default()
        },
        ..Script::default()
    };
    let daemon = FakeDaemon::start(directory.path(), failed);
    let output = run(&daemon.socket, "kill --user alice");
    assert_eq!(
        output_parts(&output),
        (
            Some(2),
            String::new(),
            format!(
                "gpukillctl: {nobody}; nvidia failed: version mismatch\n\
                 hint: see gpukillctl status\n"
            )
        )
    );
}

#[test]
fn nonsense_exits_3_without_a_request() {
    let nowhere = std::path::Path::new("/nowhere/x.sock");
    for (arguments, begins) in [
        (
            "kill",
            "gpukillctl: no process is selected: type PIDs, or one of --filter, ",
        ),
        (
            "kill x",
            "gpukillctl: invalid value 'x' for '[PID]...': expected",
        ),
        (
            "kill 7 0",
            "gpukillctl: invalid value '0' for '[PID]...': there is",
        ),
        (
            "kill -9 7",
            "gpukillctl: invalid value '-9' for '[PID]...': ",
        ),
        (
            "kill 7 --signal KILL",
            "gpukillctl: --signal KILL needs --force",
        ),
        (
            "kill 7 --min-memory 4096",
            "gpukillctl: invalid value '4096' for '--min",
        ),
    ] {
        let output = run(nowhere, arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments}");
        assert!(stderr(&output).starts_with(begins), "{}", stderr(&output));
    }
}
