//! The record of actions and events, as the daemon returns it.

use super::super::raw::RawConnection;
use super::open_database;
use gpukill_proto::audit::{ActionPage, ActionQuery, ActionRecord};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    Daemon, FakeDriver, TestBox, TestProcess, can_run_as_other_users, eventually,
    eventually_equals, group_id, run_as_user, skip, test_uid,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// Users that no box has, without rights.
const ALICE_UID: u32 = test_uid(1);
const BOB_UID: u32 = test_uid(2);

const TEARDOWN: Duration = Duration::from_millis(50);

fn query_for_all() -> ActionQuery {
    ActionQuery {
        since: Timestamp(0),
        until: Timestamp(i64::MAX),
        user: None,
        kind: None,
        gpu: None,
        before: None,
        limit: u32::MAX,
    }
}

fn query_actions(test_box: &TestBox, query: &ActionQuery) -> Result<ActionPage, Refusal> {
    let call = GpukillRequest::AuditActions {
        query: query.clone(),
    };
    match RawConnection::connect_admitted(&test_box.socket()).call(&call) {
        GpukillResponse::AuditActions(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// All entries that match the query, the oldest first.
fn matching_records(test_box: &TestBox, query: &ActionQuery) -> Vec<ActionRecord> {
    let page = query_actions(test_box, query).unwrap();
    assert_eq!(page.next, None);
    page.records.into_iter().rev().collect()
}

fn kinds(records: &[ActionRecord]) -> Vec<(&str, Option<&str>)> {
    let records = records.iter();
    let short = records.map(|it| (it.kind.as_str(), it.result.as_deref()));
    short.collect()
}

fn all_kinds(test_box: &TestBox) -> Vec<String> {
    let records = matching_records(test_box, &query_for_all());
    records.into_iter().map(|record| record.kind).collect()
}

fn parse_document(reading: &Reading<String>) -> Value {
    let text = reading.known().unwrap_or_else(|| panic!("{reading:?}"));
    serde_json::from_str(text).unwrap()
}

fn wait_until_listed(test_box: &TestBox, pid: u32) {
    eventually("it is listed", || {
        let list = test_box.list();
        let rows = list["procs"].as_array()?.iter();
        rows.clone().any(|row| row["pid"] == pid).then_some(())
    });
}

/// How the run of a process ended, and the id of the action that ended it, once it is
/// stored.
fn run_end(test_box: &TestBox, pid: u32) -> Option<(Option<String>, Option<i64>)> {
    let select = "SELECT ending, action FROM run JOIN process ON process.id = run.process
        WHERE pid = ?1";
    open_database(test_box, "samples.db")
        .query_row(select, [pid], |row| Ok((row.get(0)?, row.get(1)?)))
        .ok()
}

#[test]
fn actions_and_events_keep_their_order() {
    let test_box = TestBox::new();
    let driver = FakeDriver::start(&test_box, TEARDOWN);
    let daemon = test_box.start();
    let process = TestProcess::start("python");
    let pid = process.pid();
    driver.add_processes(&[pid]);
    wait_until_listed(&test_box, pid);
    let killed = test_box.ctl(&["kill", &pid.to_string(), "--yes"]);
    assert_eq!(killed.code, 0, "{killed:?}");
    // A dry run is no action.
    let dry = test_box.ctl(&["reset", "--gpu", "0", "--dry-run"]);
    assert_eq!(
        all_kinds(&test_box),
        ["started", "settings", "kill"],
        "{dry:?}"
    );
    eventually_equals(&Some((Some("killed".to_owned()), Some(1))), || {
        run_end(&test_box, pid)
    });

    let uuid = test_box.list()["gpus"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let xid = json!([{"id": 1, "gpu": 0, "type": 8, "data": 79}]);
    test_box.set_driver_state(&json!({"events": xid, "gpus": [{}]}));
    let of = |kind: &str| ActionQuery {
        kind: Some(kind.into()),
        ..query_for_all()
    };
    let found = eventually("the XID is recorded", || {
        matching_records(&test_box, &of("xid")).pop()
    });
    assert_eq!(found.device.map(|id| id.0), Some(uuid.clone()));
    assert_eq!(found.what.as_deref(), Some("XID 79"));

    let broken = json!({"nvmlDeviceGetComputeRunningProcesses_v3": 999});
    test_box.set_driver_state(&json!({"events": xid, "gpus": [{"errors": broken}]}));
    let fault = eventually("the fault is recorded", || {
        matching_records(&test_box, &of("fault")).pop()
    });
    let (part, what) = test_box.faults().remove(0);
    assert_eq!(fault.what, Some(format!("{part}: {what}")));
    test_box.set_driver_state(&json!({"events": xid, "gpus": [{}]}));
    eventually_equals(&Vec::new(), || test_box.faults());

    daemon.signal(Signal::HUP);
    eventually("the reload is recorded", || {
        (matching_records(&test_box, &of("settings")).len() == 2).then_some(())
    });
    daemon.stop();
    let daemon = test_box.start();
    eventually("the second start is recorded", || {
        (matching_records(&test_box, &of("settings")).len() == 3).then_some(())
    });
    let records = matching_records(&test_box, &query_for_all());
    let event = |kind| (kind, None);
    // The end of a short fault is recorded once the fault has stayed away.
    let mut seen = kinds(&records);
    seen.retain(|kind| *kind != event("fault_over"));
    let expected = [
        event("started"),
        event("settings"),
        ("kill", Some("done")),
        event("xid"),
        event("fault"),
        event("settings"),
        event("stopped"),
        event("started"),
        event("settings"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(matching_records(&test_box, &of("fault_over")).len(), 1);
    assert_eq!(
        matching_records(&test_box, &of("fault_over"))[0].what,
        fault.what
    );

    let kill = &matching_records(&test_box, &of("kill"))[0];
    let us = rustix::process::geteuid().as_raw();
    assert_eq!(
        (kill.uid, kill.what.clone()),
        (Some(us), Some(pid.to_string()))
    );
    assert_eq!(parse_document(&kill.plan)["targets"][0]["pid"], pid);
    assert_eq!(
        parse_document(&kill.outcome)["outcomes"][0]["outcome"],
        "ended"
    );
    let started = parse_document(&records[0].plan);
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(started["audit_schema"], 1, "{started}");
    // The settings are the same, and so is their text.
    let settings = matching_records(&test_box, &of("settings"));
    assert_eq!(settings[0].what, settings[1].what);
    let first = parse_document(&settings[0].plan);
    assert_eq!(first["daemon"]["poll_interval"], "100ms");

    // By device, with an index and with the full id.
    for gpu in ["0", &uuid] {
        let query = ActionQuery {
            gpu: Some(gpu.into()),
            ..query_for_all()
        };
        let records = matching_records(&test_box, &query);
        let mut found = kinds(&records);
        found.retain(|kind| *kind != event("fault_over"));
        let expected = [("kill", Some("done")), event("xid"), event("fault")];
        assert_eq!(found, expected, "{gpu}");
    }
    let none = ActionQuery {
        gpu: Some("GPU-never".into()),
        ..query_for_all()
    };
    assert!(matches!(
        query_actions(&test_box, &none),
        Err(Refusal::Invalid(_))
    ));
    // Pages of one entry give the same record.
    let mut query = ActionQuery {
        limit: 1,
        ..query_for_all()
    };
    let mut one_by_one = Vec::new();
    loop {
        let page = query_actions(&test_box, &query).unwrap();
        one_by_one.extend(page.records);
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    one_by_one.reverse();
    assert_eq!(one_by_one, matching_records(&test_box, &query_for_all()));
    daemon.stop();
}

fn start_process_of(uid: u32) -> TestProcess {
    let mut command = Command::new("sleep");
    TestProcess::spawn(command.arg0("python").arg("1000").uid(uid))
}

/// All recorded actions: kind, user and result; and the request, the reason and the plan as
/// far as they are visible.
fn visible_actions(test_box: &TestBox) -> Vec<Value> {
    let records = matching_records(test_box, &query_for_all());
    let actions = records.iter().filter(|record| record.result.is_some());
    actions
        .map(|it| {
            let plan = it.plan.known().is_some();
            let is_withheld = it.plan == Reading::Withheld;
            json!([
                it.kind,
                it.uid,
                it.result,
                it.what,
                it.why.is_some(),
                plan,
                is_withheld
            ])
        })
        .collect()
}

/// Sets whether actions of other users are hidden, and waits until that is in force.
fn set_hide_other_users(test_box: &TestBox, daemon: &Daemon, is_hidden: bool) {
    let access = format!("[access]\noperator_group = \"daemon\"\nhide_other_users = {is_hidden}");
    test_box.configure(&access);
    let settings = ActionQuery {
        kind: Some("settings".into()),
        ..query_for_all()
    };
    let before = matching_records(test_box, &settings).len();
    daemon.signal(Signal::HUP);
    eventually("the settings are in force", || {
        let after = matching_records(test_box, &settings);
        let newest = after.last().filter(|_| after.len() > before)?;
        let access = &parse_document(&newest.plan)["access"];
        (access["hide_other_users"] == is_hidden).then_some(())
    });
}

#[test]
fn actions_of_other_users_can_be_hidden() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(operators) = group_id("daemon") else {
        return skip("this system has no group daemon");
    };
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.configure("[access]\noperator_group = \"daemon\"");
    let driver = FakeDriver::start(&test_box, TEARDOWN);
    let daemon = test_box.start();
    let [own, others] = [ALICE_UID, BOB_UID].map(start_process_of);
    let (a, b) = (own.pid().to_string(), others.pid().to_string());
    driver.add_processes(&[own.pid(), others.pid()]);
    wait_until_listed(&test_box, own.pid());
    wait_until_listed(&test_box, others.pid());
    let kill =
        |uid, pid: &str| run_as_user(uid, &[], || test_box.ctl(&["kill", pid, "--yes"]).code);
    assert_eq!(kill(ALICE_UID, &a), 0);
    assert_eq!(kill(ALICE_UID, &b), 4);
    assert_eq!(kill(BOB_UID, &b), 0);
    eventually("all actions are recorded", || {
        (visible_actions(&test_box).len() == 3).then_some(())
    });

    let shown = |uid: u32, word: &str, what: &str, why: bool| {
        json!(["kill", uid, word, what, why, true, false])
    };
    let hidden = |uid: u32, word: &str| json!(["kill", uid, word, null, false, false, true]);
    let ended = shown(ALICE_UID, "done", &a, false);
    let refused = shown(ALICE_UID, "refused", &b, true);
    let all = vec![
        ended.clone(),
        refused.clone(),
        shown(BOB_UID, "done", &b, false),
    ];
    let of_alice = vec![ended, refused, hidden(BOB_UID, "done")];
    let of_nobody = vec![
        hidden(ALICE_UID, "done"),
        hidden(ALICE_UID, "refused"),
        hidden(BOB_UID, "done"),
    ];
    const CAROL_UID: u32 = test_uid(3);
    let seen_by = |uid, groups: &[u32]| run_as_user(uid, groups, || visible_actions(&test_box));
    for (uid, groups) in [
        (ALICE_UID, vec![]),
        (CAROL_UID, vec![]),
        (CAROL_UID, vec![operators]),
        (0, vec![]),
    ] {
        assert_eq!(seen_by(uid, &groups), all, "{uid} {groups:?}");
    }
    set_hide_other_users(&test_box, &daemon, true);
    assert_eq!(seen_by(ALICE_UID, &[]), of_alice);
    assert_eq!(seen_by(CAROL_UID, &[]), of_nobody);
    assert_eq!(seen_by(CAROL_UID, &[operators]), all);
    assert_eq!(seen_by(0, &[]), all);
    // Then the settings are not visible to every user either.
    let settings = ActionQuery {
        kind: Some("settings".into()),
        ..query_for_all()
    };
    let plans = run_as_user(CAROL_UID, &[], || matching_records(&test_box, &settings));
    assert!(
        plans.iter().all(|it| it.plan == Reading::Withheld),
        "{plans:?}"
    );

    // By user: with a uid, and with a name that the box knows.
    let of = |user: &str| ActionQuery {
        user: Some(user.into()),
        ..query_for_all()
    };
    let root = matching_records(&test_box, &of("0"));
    assert_eq!(kinds(&root), []);
    assert_eq!(
        matching_records(&test_box, &of(&ALICE_UID.to_string())).len(),
        2
    );
    assert_eq!(matching_records(&test_box, &of("nobody-of-this-name")), []);
    let roots = start_process_of(0);
    driver.add_processes(&[roots.pid()]);
    wait_until_listed(&test_box, roots.pid());
    assert_eq!(kill(0, &roots.pid().to_string()), 0);
    // The outcome is stored a little later than it is printed.
    let root = eventually("what came of the violation is recorded", || {
        let root = matching_records(&test_box, &of("root"));
        (kinds(&root) == [("kill", Some("done"))]).then_some(root)
    });
    assert_eq!(root[0].user.as_deref(), Some("root"));
    daemon.stop();
}
