//! The record of what was done and what happened, as the daemon tells it.

use super::super::raw::Raw;
use super::database;
use gpukill_proto::audit::{ActionPage, ActionQuery, ActionRecord};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{
    Actor, Daemon, Driver, Stage, acting_as, becomes, can_act_as_others, eventually, group, skip,
    user,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// Users that no box has, and without any right.
const ALICE: u32 = user(1);
const BOB: u32 = user(2);

const TEARDOWN: Duration = Duration::from_millis(50);

fn everything() -> ActionQuery {
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

fn ask(stage: &Stage, query: &ActionQuery) -> Result<ActionPage, Refusal> {
    let call = GpukillRequest::AuditActions {
        query: query.clone(),
    };
    match Raw::welcomed(&stage.socket()).call(&call) {
        GpukillResponse::AuditActions(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// All entries that are asked for, the oldest first.
fn told(stage: &Stage, query: &ActionQuery) -> Vec<ActionRecord> {
    let page = ask(stage, query).unwrap();
    assert_eq!(page.next, None);
    page.records.into_iter().rev().collect()
}

/// The kinds and words of these entries.
fn kinds(records: &[ActionRecord]) -> Vec<(&str, Option<&str>)> {
    let records = records.iter();
    let short = records.map(|it| (it.kind.as_str(), it.word.as_deref()));
    short.collect()
}

/// The kinds of all entries, the oldest first.
fn all_kinds(stage: &Stage) -> Vec<String> {
    let records = told(stage, &everything());
    records.into_iter().map(|record| record.kind).collect()
}

fn document(reading: &Reading<String>) -> Value {
    let text = reading.known().unwrap_or_else(|| panic!("{reading:?}"));
    serde_json::from_str(text).unwrap()
}

fn is_listed(stage: &Stage, pid: u32) {
    eventually("it is listed", || {
        let list = stage.list();
        let rows = list["procs"].as_array()?.iter();
        rows.clone().any(|row| row["pid"] == pid).then_some(())
    });
}

/// How the run of a process ended, and by which act, once it is written.
fn ending(stage: &Stage, pid: u32) -> Option<(Option<String>, Option<i64>)> {
    let select = "SELECT ending, action FROM run JOIN process ON process.id = run.process
        WHERE pid = ?1";
    database(stage, "samples.db")
        .query_row(select, [pid], |row| Ok((row.get(0)?, row.get(1)?)))
        .ok()
}

#[test]
fn a_kill_an_xid_a_fault_a_reload_and_a_restart_are_told_in_their_order() {
    let stage = Stage::new();
    let driver = Driver::start(&stage, TEARDOWN);
    let daemon = stage.start();
    let actor = Actor::start("python");
    let pid = actor.pid();
    driver.lists(&[pid]);
    is_listed(&stage, pid);
    let killed = stage.ctl(&["kill", &pid.to_string(), "--yes"]);
    assert_eq!(killed.code, 0, "{killed:?}");
    // A dry run is no act.
    let dry = stage.ctl(&["reset", "--gpu", "0", "--dry-run"]);
    assert_eq!(
        all_kinds(&stage),
        ["started", "settings", "kill"],
        "{dry:?}"
    );
    becomes(&Some((Some("killed".to_owned()), Some(1))), || {
        ending(&stage, pid)
    });

    let uuid = stage.list()["gpus"][0]["id"].as_str().unwrap().to_owned();
    let xid = json!([{"id": 1, "gpu": 0, "type": 8, "data": 79}]);
    stage.play(&json!({"events": xid, "gpus": [{}]}));
    let of = |kind: &str| ActionQuery {
        kind: Some(kind.into()),
        ..everything()
    };
    let found = eventually("the XID is recorded", || told(&stage, &of("xid")).pop());
    assert_eq!(found.device.map(|id| id.0), Some(uuid.clone()));
    assert_eq!(found.what.as_deref(), Some("XID 79"));

    let broken = json!({"nvmlDeviceGetComputeRunningProcesses_v3": 999});
    stage.play(&json!({"events": xid, "gpus": [{"errors": broken}]}));
    let fault = eventually("the fault is recorded", || told(&stage, &of("fault")).pop());
    let (part, what) = stage.faults().remove(0);
    assert_eq!(fault.what, Some(format!("{part}: {what}")));
    stage.play(&json!({"events": xid, "gpus": [{}]}));
    becomes(&Vec::new(), || stage.faults());

    daemon.signal(Signal::HUP);
    eventually("the reload is recorded", || {
        (told(&stage, &of("settings")).len() == 2).then_some(())
    });
    daemon.stop();
    let daemon = stage.start();
    eventually("the second start is recorded", || {
        (told(&stage, &of("settings")).len() == 3).then_some(())
    });
    let records = told(&stage, &everything());
    let event = |kind| (kind, None);
    // The end of a short fault is told when it is clear that it stays away.
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
    assert_eq!(told(&stage, &of("fault_over")).len(), 1);
    assert_eq!(told(&stage, &of("fault_over"))[0].what, fault.what);

    let kill = &told(&stage, &of("kill"))[0];
    let us = rustix::process::geteuid().as_raw();
    assert_eq!(
        (kill.uid, kill.what.clone()),
        (Some(us), Some(pid.to_string()))
    );
    assert_eq!(document(&kill.plan)["targets"][0]["pid"], pid);
    assert_eq!(document(&kill.outcome)["outcomes"][0]["ending"], "ended");
    let started = document(&records[0].plan);
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(started["audit_schema"], 1, "{started}");
    // The same settings, and the same words of them.
    let settings = told(&stage, &of("settings"));
    assert_eq!(settings[0].what, settings[1].what);
    let first = document(&settings[0].plan);
    assert_eq!(first["daemon"]["poll_interval"], "100ms");

    // By device, with an index and with the whole id.
    for gpu in ["0", &uuid] {
        let query = ActionQuery {
            gpu: Some(gpu.into()),
            ..everything()
        };
        let records = told(&stage, &query);
        assert_eq!(
            kinds(&records),
            [("kill", Some("done")), event("xid")],
            "{gpu}"
        );
    }
    let none = ActionQuery {
        gpu: Some("GPU-never".into()),
        ..everything()
    };
    assert!(matches!(ask(&stage, &none), Err(Refusal::NoMatch(_))));
    // One by one it is the same record.
    let mut query = ActionQuery {
        limit: 1,
        ..everything()
    };
    let mut one_by_one = Vec::new();
    loop {
        let page = ask(&stage, &query).unwrap();
        one_by_one.extend(page.records);
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    one_by_one.reverse();
    assert_eq!(one_by_one, told(&stage, &everything()));
    daemon.stop();
}

fn actor_of(uid: u32) -> Actor {
    let mut command = Command::new("sleep");
    Actor::of(command.arg0("python").arg("1000").uid(uid))
}

/// What is told of everybody's acts: who, how, and what, why and the plan as far
/// as these may be seen.
fn acts(stage: &Stage) -> Vec<Value> {
    let records = told(stage, &everything());
    let acts = records.iter().filter(|record| record.word.is_some());
    acts.map(|it| {
        let plan = it.plan.known().is_some();
        let is_withheld = it.plan == Reading::Withheld;
        json!([
            it.kind,
            it.uid,
            it.word,
            it.what,
            it.why.is_some(),
            plan,
            is_withheld
        ])
    })
    .collect()
}

/// Whether others' acts are hidden, from now on.
fn hide(stage: &Stage, daemon: &Daemon, is_hidden: bool) {
    let access = format!("[access]\noperator_group = \"daemon\"\nhide_other_users = {is_hidden}");
    stage.configure(&access);
    let settings = ActionQuery {
        kind: Some("settings".into()),
        ..everything()
    };
    let before = told(stage, &settings).len();
    daemon.signal(Signal::HUP);
    eventually("the settings are in force", || {
        let after = told(stage, &settings);
        let newest = after.last().filter(|_| after.len() > before)?;
        let access = &document(&newest.plan)["access"];
        (access["hide_other_users"] == is_hidden).then_some(())
    });
}

#[test]
fn what_others_asked_for_is_hidden_from_plain_users_where_the_admin_says_so() {
    if !can_act_as_others() {
        return;
    }
    let Some(operators) = group("daemon") else {
        return skip("this system has no group daemon");
    };
    let stage = Stage::new();
    stage.open_to_all();
    stage.configure("[access]\noperator_group = \"daemon\"");
    let driver = Driver::start(&stage, TEARDOWN);
    let daemon = stage.start();
    let [own, others] = [ALICE, BOB].map(actor_of);
    let (a, b) = (own.pid().to_string(), others.pid().to_string());
    driver.lists(&[own.pid(), others.pid()]);
    is_listed(&stage, own.pid());
    is_listed(&stage, others.pid());
    let kill = |uid, pid: &str| acting_as(uid, &[], || stage.ctl(&["kill", pid, "--yes"]).code);
    assert_eq!(kill(ALICE, &a), 0);
    assert_eq!(kill(ALICE, &b), 4);
    assert_eq!(kill(BOB, &b), 0);
    eventually("all acts are recorded", || {
        (acts(&stage).len() == 3).then_some(())
    });

    let shown = |uid: u32, word: &str, what: &str, why: bool| {
        json!(["kill", uid, word, what, why, true, false])
    };
    let hidden = |uid: u32, word: &str| json!(["kill", uid, word, null, false, false, true]);
    let ended = shown(ALICE, "done", &a, false);
    let refused = shown(ALICE, "refused", &b, true);
    let all = vec![
        ended.clone(),
        refused.clone(),
        shown(BOB, "done", &b, false),
    ];
    let of_alice = vec![ended, refused, hidden(BOB, "done")];
    let of_nobody = vec![
        hidden(ALICE, "done"),
        hidden(ALICE, "refused"),
        hidden(BOB, "done"),
    ];
    const CAROL: u32 = user(3);
    let seen_by = |uid, groups: &[u32]| acting_as(uid, groups, || acts(&stage));
    for (uid, groups) in [
        (ALICE, vec![]),
        (CAROL, vec![]),
        (CAROL, vec![operators]),
        (0, vec![]),
    ] {
        assert_eq!(seen_by(uid, &groups), all, "{uid} {groups:?}");
    }
    hide(&stage, &daemon, true);
    assert_eq!(seen_by(ALICE, &[]), of_alice);
    assert_eq!(seen_by(CAROL, &[]), of_nobody);
    assert_eq!(seen_by(CAROL, &[operators]), all);
    assert_eq!(seen_by(0, &[]), all);
    // Nor are settings for everybody then.
    let settings = ActionQuery {
        kind: Some("settings".into()),
        ..everything()
    };
    let plans = acting_as(CAROL, &[], || told(&stage, &settings));
    assert!(
        plans.iter().all(|it| it.plan == Reading::Withheld),
        "{plans:?}"
    );

    // By user: with a number, and with a name that the box knows.
    let of = |user: &str| ActionQuery {
        user: Some(user.into()),
        ..everything()
    };
    let root = told(&stage, &of("0"));
    assert_eq!(kinds(&root), []);
    assert_eq!(told(&stage, &of(&ALICE.to_string())).len(), 2);
    assert_eq!(told(&stage, &of("nobody-of-this-name")), []);
    let roots = actor_of(0);
    driver.lists(&[roots.pid()]);
    is_listed(&stage, roots.pid());
    assert_eq!(kill(0, &roots.pid().to_string()), 0);
    // What came of it is written a little later than it is told.
    let root = eventually("what came of it is recorded", || {
        let root = told(&stage, &of("root"));
        (kinds(&root) == [("kill", Some("done"))]).then_some(root)
    });
    assert_eq!(root[0].user.as_deref(), Some("root"));
    daemon.stop();
}
