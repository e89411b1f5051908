//! Tests of processes that replaced ended ones.

use super::super::respawned::find_respawned;
use super::super::*;
use super::fixture::*;
use gpukill_proto::kill::{Reaper, Respawn};
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeSet;

/// A launcher of alice's with a worker, in a service.
fn before() -> KillTestHost {
    let mut test_host = KillTestHost::new();
    let launcher = test_host.add(process(300, 1, ALICE, "torchrun"));
    launcher.lineage.unit = Some(unit("train.service", None));
    test_host.fork(310, 300, "python");
    test_host
}

/// The processes that replaced 310 after this change: pid, unit and parent. `members`
/// were ended, or an attempt was made.
fn respawned_after(
    members: &[u32],
    change: impl FnOnce(&mut KillTestHost),
) -> Vec<(u32, bool, Option<u32>)> {
    respawned_after_both(&before(), members, change)
}

fn respawned_after_both(
    first: &KillTestHost,
    members: &[u32],
    change: impl FnOnce(&mut KillTestHost),
) -> Vec<(u32, bool, Option<u32>)> {
    let mut now = before();
    now.process_table.remove(&310);
    change(&mut now);
    let key = |pid: &u32| ProcessKey {
        pid: *pid,
        start_ticks: u64::from(*pid),
    };
    let members: BTreeSet<ProcessKey> = members.iter().map(key).collect();
    let ended = [key(&310)].into();
    let found = find_respawned(&ended, &members, &first.process_table, &now.process_table);
    let actual = found.into_iter().map(|it| {
        let parent = it.parent.map(|parent| parent.pid);
        (it.key.pid, it.unit.is_some(), parent)
    });
    actual.collect()
}

/// A process with the facts of 310.
fn replacement(now: &mut KillTestHost) -> &mut ProcessInfo {
    now.fork(320, 300, "python")
}

#[test]
fn restarting_unit_and_parent_are_named() {
    let mut now = before();
    now.process_table.remove(&310);
    replacement(&mut now);
    let ended: BTreeSet<ProcessKey> = [before().process_table[&310].lineage.key].into();
    let found = find_respawned(&ended, &ended, &before().process_table, &now.process_table);
    let expected = Respawn {
        key: now.process_table[&320].lineage.key,
        name: "python".into(),
        unit: Some(unit("train.service", None)),
        parent: Some(Reaper {
            pid: 300,
            name: Reading::Value("torchrun".into()),
        }),
    };
    assert_eq!(found, [expected]);
}

#[test]
fn unit_or_parent_is_enough() {
    let elsewhere = respawned_after(&[310], |now| {
        replacement(now).lineage.unit = Some(unit("other.service", None));
    });
    assert_eq!(elsewhere, [(320, false, Some(300))]);
    let of_systemd = respawned_after(&[310], |now| replacement(now).parent = 1);
    assert_eq!(of_systemd, [(320, true, None)]);
    // An ended parent does not count, nor does another process with its pid.
    assert_eq!(
        respawned_after(&[300, 310], |now| {
            replacement(now);
        }),
        [(320, true, None)]
    );
    let replaced = respawned_after(&[310], |now| {
        replacement(now);
        now.process_mut(300).lineage.key.start_ticks = 9_000;
    });
    assert_eq!(replaced, [(320, true, None)]);
}

#[test]
fn scope_and_process_1_start_nothing() {
    let mut first = before();
    let of_scope = |test_host: &mut KillTestHost, pid: u32| {
        test_host.process_mut(pid).lineage.unit = Some(unit("session-3.scope", None));
    };
    of_scope(&mut first, 310);
    first.process_mut(310).parent = 1;
    let found = respawned_after_both(&first, &[310], |now| {
        replacement(now).parent = 1;
        of_scope(now, 320);
    });
    assert_eq!(found, []);
}

#[test]
fn other_processes_are_no_replacement() {
    type RespawnChange = fn(&mut KillTestHost);
    let cases: [(&str, RespawnChange); 6] = [
        ("another program", |now| {
            replacement(now).lineage.executable = Some("/usr/bin/tee".into());
        }),
        ("another user", |now| {
            replacement(now).lineage.uid = Some(BOB)
        }),
        ("another command", |now| {
            replacement(now).command = Reading::Value("python eval.py".into());
        }),
        ("a program that is not known", |now| {
            replacement(now).lineage.executable = None;
        }),
        ("a user who is not known", |now| {
            replacement(now).lineage.uid = None
        }),
        ("nobody", |_| {}),
    ];
    for (what, change) in cases {
        assert_eq!(respawned_after(&[310], change), [], "{what}");
    }
    assert_eq!(
        respawned_after(&[310, 320], |now| {
            replacement(now);
        }),
        []
    );
    let mut first = before();
    replacement(&mut first);
    assert_eq!(
        respawned_after_both(&first, &[310], |now| {
            replacement(now);
        }),
        []
    );
    // Unknown facts of the ended process never match.
    let mut first = before();
    first.process_mut(310).lineage.executable = None;
    let found = respawned_after_both(&first, &[310], |now| {
        replacement(now).lineage.executable = None
    });
    assert_eq!(found, []);
    let mut first = before();
    first.process_mut(310).command = Reading::Failed("x".into());
    let found = respawned_after_both(&first, &[310], |now| {
        replacement(now);
    });
    assert_eq!(found, [(320, true, Some(300))]);
}
