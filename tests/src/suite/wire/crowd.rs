//! More connections than there are places.

use super::super::raw::Raw;
use super::assert_unharmed;
use gpukill_proto::service::GpukillRequest;
use gpukill_proto::transport::preface::{Preface, Status};
use gpukill_tests::harness::{
    Actor, NOBODY, Ran, Stage, acting_as, can_be_several_people, skip, user,
};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// More than there are places for anybody.
const MANY: usize = 80;

/// The places of one plain user, of all of them together, and of all.
const OF_ONE_USER: usize = 8;
const OF_PLAIN_USERS: usize = 48;

/// Those of so many connections that are let in; they are held.
fn let_in(socket: &Path, tries: usize) -> Vec<Raw> {
    let connections = std::iter::repeat_with(|| Raw::enter(socket));
    let mut held = Vec::new();
    for (raw, theirs) in connections.take(tries).collect::<Vec<_>>() {
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
    if !can_be_several_people() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    let mut daemon = stage.start();
    let socket = stage.socket();
    let mut held = Vec::new();
    for uid in user(0)..user(10) {
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
    let patient = acting_as(user(100), &[], || {
        stage.ctl(&["list", "-o", "json", "--request-timeout", "30"])
    });
    assert_eq!((patient.code, patient.stderr.as_str()), (0, ""));
    daemon.stop();
}

/// This very test, in another process.
const CONNECTS_TO: &str = "GPUKILL_TEST_CONNECTS_TO";

/// Where the process has to connect to; it holds what was let in until it is killed.
fn holds_connections() -> bool {
    let Ok(socket) = std::env::var(CONNECTS_TO) else {
        return false;
    };
    let held = let_in(Path::new(&socket), 20);
    writeln!(std::io::stdout(), "\nadmitted {}", held.len()).expect("somebody reads it");
    // Until the test has seen enough.
    let _ = std::io::stdin().read(&mut [0]);
    true
}

/// A process that this command starts as the test of this name, and how many of its
/// connections were let in. It holds them until it is killed.
fn connects(mut command: Command, name: &str, socket: &Path) -> Option<(Kept, usize)> {
    command.arg(std::env::current_exe().unwrap());
    command.args([&format!("wire::crowd::{name}"), "--exact", "--nocapture"]);
    command.env(CONNECTS_TO, socket);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = said.map_while(Result::ok);
    let admitted = said.find_map(|line| line.split_once("admitted ")?.1.parse().ok())?;
    Some((Kept(child), admitted))
}

#[test]
fn login_uids_that_a_person_wrote_themselves_keep_nobody_out() {
    if holds_connections() {
        return;
    }
    if !can_be_several_people() {
        return;
    }
    let name = "login_uids_that_a_person_wrote_themselves_keep_nobody_out";
    let stage = Stage::new();
    stage.open_to_all();
    let daemon = stage.start();
    let victim = user(100);
    let mut held = Vec::new();
    for login in [victim, 0, user(1), user(2), user(3), user(4), user(5)] {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $0 >/proc/self/loginuid && exec \"$@\""]);
        command.arg(login.to_string());
        command.uid(NOBODY).gid(NOBODY);
        let Some(process) = connects(command, name, &stage.socket()) else {
            return skip("nobody can say here who logged in");
        };
        held.push(process);
    }
    let admitted: usize = held.iter().map(|(_, admitted)| admitted).sum();
    let others = acting_as(victim, &[], || {
        stage.ctl(&["list", "-o", "json", "--request-timeout", "5"])
    });
    assert_eq!((others.code, others.stderr.as_str()), (0, ""));
    assert_eq!(admitted, OF_ONE_USER);
    drop(held);
    daemon.stop();
}

#[test]
fn subordinate_uids_of_one_person_cannot_keep_others_out() {
    if holds_connections() {
        return;
    }
    let name = "subordinate_uids_of_one_person_cannot_keep_others_out";
    if !can_be_several_people() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    let daemon = stage.start();
    let mut owner = Command::new("unshare");
    owner.args(["--user", "sleep", "1000"]);
    let owner = Actor::of(owner.uid(NOBODY).gid(NOBODY));
    let file = |name: &str| format!("/proc/{}/{name}", owner.pid());
    let ours = std::fs::read_link("/proc/self/ns/user").unwrap();
    let made = (0..1_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::fs::read_link(file("ns/user")).is_ok_and(|theirs| theirs != ours)
    });
    if !made {
        return skip("no user namespace can be made here");
    }
    let mapped = std::fs::write(file("gid_map"), format!("0 {NOBODY} 1\n"))
        .and_then(|()| std::fs::write(file("uid_map"), "1 3999999000 20\n"));
    if mapped.is_err() {
        return skip("users cannot be mapped here");
    }
    let mut held = Vec::new();
    for inside in 1..=10 {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--target", &owner.pid().to_string()]);
        command.args(["--setuid", &inside.to_string()]);
        let Some(process) = connects(command, name, &stage.socket()) else {
            return skip("nsenter does not work here");
        };
        held.push(process);
    }
    let admitted: usize = held.iter().map(|(_, admitted)| admitted).sum();
    let others = acting_as(user(100), &[], || {
        stage.ctl(&["list", "-o", "json", "--request-timeout", "5"])
    });
    assert_eq!((others.code, others.stderr.as_str()), (0, ""));
    assert_eq!(admitted, OF_ONE_USER);
    drop(held);
    daemon.stop();
}

#[test]
fn subordinate_uids_without_a_namespace_count_as_their_person() {
    if !can_be_several_people() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    // As a file has them that such a user made in their namespace, with its setuid bit.
    let range = format!("{}:{}:10\n", user(50), user(0));
    let daemon = stage.start_with(&mut stage.daemon_with_subordinates(&range));
    let mut held = Vec::new();
    for uid in user(0)..user(10) {
        held.push(acting_as(uid, &[], || let_in(&stage.socket(), 20)));
    }
    assert_eq!(held.iter().map(Vec::len).sum::<usize>(), OF_ONE_USER);
    let other = acting_as(user(10), &[], || let_in(&stage.socket(), 20));
    assert_eq!(other.len(), OF_ONE_USER);
    drop((held, other));
    daemon.stop();
}

/// Ends with the test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
