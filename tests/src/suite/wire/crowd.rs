//! More connections than there are places.

use super::super::raw::Raw;
use super::assert_unharmed;
use gpukill_proto::service::GpukillRequest;
use gpukill_proto::transport::preface::{Preface, Status};
use gpukill_tests::harness::{Ran, Stage, acting_as, can_act_as_others};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;

/// More than there are places for anybody.
const MANY: usize = 80;

/// The places of one plain user, of all of them together, and of all.
const OF_ONE_USER: usize = 8;
const OF_PLAIN_USERS: usize = 48;

/// Those of so many connections that are let in; they are held.
fn let_in(socket: &Path, tries: usize) -> Vec<Raw> {
    let connections = std::iter::repeat_with(|| Raw::connect(socket)).take(tries);
    let mut held = Vec::new();
    for (raw, theirs) in connections.collect::<Vec<_>>() {
        match theirs.status {
            Status::Welcome => held.push(raw),
            Status::Busy => {
                assert_eq!(theirs, Preface::ours(Status::Busy, 0));
                raw.assert_dropped("busy");
            }
            Status::Other(code) => panic!("status {code}"),
        }
    }
    held
}

#[test]
fn whoever_is_one_too_many_reads_that_the_daemon_is_busy() {
    let stage = Stage::new();
    let mut daemon = stage.start();
    let held = let_in(&stage.socket(), MANY);
    assert!(held.len() >= OF_ONE_USER, "{}", held.len());
    assert!(held.len() < MANY);
    drop(held);
    // A place is given back when the daemon has seen its holder go.
    let ran = stage.ctl(&["list", "-o", "json", "--request-timeout", "30"]);
    assert_eq!(ran.stderr, "");
    assert_unharmed(&stage, &mut daemon, "too many");
    daemon.stop();
}

#[test]
fn plain_users_cannot_keep_root_or_each_other_out() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    let mut daemon = stage.start();
    let socket = stage.socket();
    let mut held = Vec::new();
    for uid in 60_000..60_010 {
        let of_user = acting_as(uid, &[], || let_in(&socket, 20));
        assert!(of_user.len() <= OF_ONE_USER, "{}", of_user.len());
        held.push(of_user);
    }
    assert_eq!(held[0].len(), OF_ONE_USER);
    assert_eq!(held.iter().map(Vec::len).sum::<usize>(), OF_PLAIN_USERS);
    let ran = stage.ctl(&["list", "-o", "json", "--request-timeout", "1"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_unharmed(&stage, &mut daemon, "a full house");
    // Another plain user gets in as soon as one goes.
    held.truncate(1);
    let patient = acting_as(60_100, &[], || {
        stage.ctl(&["list", "-o", "json", "--request-timeout", "30"])
    });
    assert_eq!((patient.code, patient.stderr.as_str()), (0, ""));
    daemon.stop();
}

#[test]
fn gpukillctl_waits_until_a_busy_daemon_has_a_place() {
    let stage = Stage::new();
    let daemon = stage.start();
    let held = let_in(&stage.socket(), MANY);
    let mut waiting = stage.client(&[
        "list",
        "-o",
        "json",
        "--request-timeout",
        "30",
        "--log-level",
        "debug",
    ]);
    waiting.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut waiting = waiting.spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let busy = said.find(|line| line.as_ref().unwrap().contains("busy"));
    assert!(busy.is_some(), "it did not wait");
    assert_eq!(waiting.try_wait().unwrap(), None);
    drop(held);
    let mut list = String::new();
    waiting
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut list)
        .unwrap();
    assert!(waiting.wait().unwrap().success());
    assert!(serde_json::from_str::<serde_json::Value>(&list).is_ok());
    daemon.stop();
}

#[test]
fn a_client_that_ran_out_of_patience_says_so() {
    let stage = Stage::new();
    let daemon = stage.start();
    let _held = let_in(&stage.socket(), MANY);
    let ran = stage.ctl(&["list", "--request-timeout", "1"]);
    let expected = Ran {
        code: 6,
        stdout: String::new(),
        stderr: format!(
            "gpukillctl: gpukilld at {} is busy\nhint: try again, or wait longer: --request-timeout 30\n",
            stage.socket().display()
        ),
    };
    assert_eq!(ran, expected);
    daemon.stop();
}

#[test]
fn two_hundred_clients_at_once_are_all_answered() {
    let stage = Stage::new();
    let mut daemon = stage.start();
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client = stage.client(&["status", "-o", "json", "--request-timeout", "60"]);
            client.stdout(Stdio::piped()).stderr(Stdio::piped());
            client.spawn().unwrap()
        })
        .collect();
    for client in clients {
        let output = client.wait_with_output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        assert_eq!(complaint, "");
    }
    assert_unharmed(&stage, &mut daemon, "two hundred");
    daemon.stop();
}

#[test]
fn a_client_that_went_away_while_it_waited_gives_its_place_back() {
    let stage = Stage::new();
    let mut daemon = stage.start();
    for _ in 0..3 {
        for mut raw in let_in(&stage.socket(), OF_ONE_USER) {
            let ours = Preface::ours(Status::Welcome, 1 << 20).encode();
            raw.write(&ours).unwrap();
            let next = GpukillRequest::Snapshot {
                // News that never come: they would wait for half a minute.
                after: Some(u64::MAX),
            };
            raw.ask(1, &next);
        }
        let ran = stage.ctl(&["list", "-o", "json", "--request-timeout", "10"]);
        assert_eq!(ran.stderr, "");
    }
    assert_unharmed(&stage, &mut daemon, "those who went away");
    daemon.stop();
}
