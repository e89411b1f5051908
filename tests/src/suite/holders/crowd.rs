//! Many who ask at once: the daemon looks for all of them together, and whoever
//! leaves gives their place back.

use super::super::raw::Raw;
use super::{Box, GIB};
use gpukill_proto::service::GpukillRequest;
use gpukill_proto::transport::preface::{Preface, Status};
use gpukill_tests::harness::{becomes, eventually};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const AT_ONCE: usize = 1_000;

/// A look is news for so long, and makes the daemon poll so often.
const NEWS: Duration = Duration::from_secs(2);
const POLLS_OF_A_LOOK: u64 = 2;

fn polls(it: &Box) -> u64 {
    let status = ["status", "-o", "json", "--request-timeout", "30"];
    it.stage.json(&status)["polls"].as_u64().unwrap()
}

#[test]
fn a_thousand_who_ask_at_once_share_a_look_every_two_seconds() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full"]);
    it.play(35 * GIB, &json!([]));
    let mut command = it.daemon();
    // It polls for those who ask alone.
    command.env("GPUKILLD_DAEMON_POLL_INTERVAL", "1h");
    let daemon = it.stage.start_with(&mut command);
    let (before, began) = (polls(&it), Instant::now());
    let file = |n: usize, what: &str| it.stage.path(&format!("client-{n}.{what}"));
    let arguments = ["holders", "-o", "json", "--request-timeout", "110"];
    // Into files: a thousand pipes are more than most systems let one program have.
    let clients: Vec<_> = (0..AT_ONCE)
        .map(|n| {
            let mut client = it.stage.client(&arguments);
            client.stdout(File::create(file(n, "out")).unwrap());
            client.stderr(File::create(file(n, "err")).unwrap());
            client.spawn().unwrap()
        })
        .collect();
    let expected = json!([["unlisted", [4711]]]);
    for (n, mut client) in clients.into_iter().enumerate() {
        let status = client.wait().unwrap();
        let complaint = std::fs::read_to_string(file(n, "err")).unwrap();
        assert_eq!((status.code(), complaint.as_str()), (Some(0), ""), "{n}");
        let answer = std::fs::read_to_string(file(n, "out")).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let found = &answer["held_gpus"][0]["findings"];
        assert_eq!(super::pick(found, &["cause", "pids"]), expected, "{n}");
    }
    let periods = began.elapsed().as_secs() / NEWS.as_secs() + 1;
    let more = polls(&it) - before;
    let most = POLLS_OF_A_LOOK * periods;
    assert!((1..=most).contains(&more), "{more} polls, and not {most}");
    daemon.stop();
}

#[test]
fn whoever_leaves_while_the_daemon_looks_gives_their_place_back() {
    let it = Box::new();
    it.invent(4711, "python", &[]);
    it.play(GIB, &json!([{"pid": 4711, "memory": GIB}]));
    let daemon = it.start();
    becomes(&json!([[4711, "user"]]), || it.roles());
    // Older than news: the next one who asks has to wait for polls.
    std::thread::sleep(NEWS);
    let poller = Stuck::at(&it, 4711);

    let first = ask_for_holders(&it).expect("a place");
    let mut others = Vec::new();
    while let Some(other) = ask_for_holders(&it) {
        others.push(other);
        assert!(others.len() < 100, "there is no limit");
    }
    // As many as one user has.
    let places = others.len();
    assert!(places >= 7, "{places}");
    drop(others);
    eventually("there are places", || {
        let taken: Vec<_> = (0..places)
            .map(|_| Raw::connect(&it.stage.socket()))
            .collect();
        let is_in = |(_, theirs): &(Raw, Preface)| theirs.status == Status::Welcome;
        taken.iter().all(is_in).then_some(())
    });
    // Long before the look is over: whoever has stayed waits for it still.
    first.stream().set_nonblocking(true).unwrap();
    let answer = first.stream().read(&mut [0; 1]);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::WouldBlock);
    poller.go_on();
    daemon.stop();
}

/// Asks who holds what, and does not wait for the answer; `None` where there is
/// no place for one more.
fn ask_for_holders(it: &Box) -> Option<Raw> {
    let (mut raw, theirs) = Raw::enter(&it.stage.socket());
    if theirs.status == Status::Busy {
        return None;
    }
    let (device, start) = (None, 0);
    raw.ask(1, &GpukillRequest::Holders { device, start });
    Some(raw)
}

/// A poll that hangs at a file of a process, as none should.
struct Stuck(PathBuf);

impl Stuck {
    fn at(it: &Box, pid: u32) -> Self {
        let stat = it.procfs.root().join(format!("{pid}/stat"));
        let kept = stat.with_extension("kept");
        std::fs::rename(&stat, kept).unwrap();
        // Opening a FIFO waits until somebody writes to it.
        assert!(
            Command::new("mkfifo")
                .arg(&stat)
                .status()
                .unwrap()
                .success()
        );
        Self(stat)
    }

    fn go_on(self) {
        let fifo = OpenOptions::new().write(true).open(&self.0).unwrap();
        std::fs::rename(self.0.with_extension("kept"), &self.0).unwrap();
        drop(fifo);
    }
}
