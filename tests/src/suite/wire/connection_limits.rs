//! More connections than there are connection slots.

use super::super::raw::RawConnection;
use super::assert_unharmed;
use gpukill_proto::service::GpukillRequest;
use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
use gpukill_tests::harness::{
    CommandOutput, NOBODY_UID, TestBox, TestProcess, can_use_several_persons, run_as_user, skip,
    test_uid,
};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// More than all slots.
const TOO_MANY: usize = 80;

/// The slots of one plain user, and of all plain users together.
const SLOTS_OF_ONE_USER: usize = 8;
const SLOTS_OF_PLAIN_USERS: usize = 48;

/// Opens this many connections and keeps those that are admitted.
fn open_connections(socket: &Path, tries: usize) -> Vec<RawConnection> {
    let connections = std::iter::repeat_with(|| RawConnection::connect_and_send_preface(socket));
    let mut held = Vec::new();
    for (raw, theirs) in connections.take(tries).collect::<Vec<_>>() {
        match theirs.status {
            PrefaceStatus::Welcome => held.push(raw),
            PrefaceStatus::Busy => {
                assert_eq!(theirs, Preface::new(PrefaceStatus::Busy, 0));
                raw.assert_dropped("busy");
            }
            PrefaceStatus::Other(code) => panic!("status {code}"),
        }
    }
    held
}

#[test]
fn surplus_client_is_told_busy() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let held = open_connections(&test_box.socket(), TOO_MANY);
    assert!(held.len() >= SLOTS_OF_ONE_USER, "{}", held.len());
    assert!(held.len() < TOO_MANY);
    drop(held);
    // A slot is free when the daemon has noticed that its client disconnected.
    let ran = test_box.ctl(&["list", "-o", "json", "--request-timeout", "30"]);
    assert_eq!(ran.stderr, "");
    assert_unharmed(&test_box, &mut daemon, "too many");
    daemon.stop();
}

#[test]
fn users_cannot_block_root_or_each_other() {
    if !can_use_several_persons() {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    let mut daemon = test_box.start();
    let socket = test_box.socket();
    let mut held = Vec::new();
    for uid in test_uid(0)..test_uid(10) {
        let of_user = run_as_user(uid, &[], || open_connections(&socket, 20));
        assert!(of_user.len() <= SLOTS_OF_ONE_USER, "{}", of_user.len());
        held.push(of_user);
    }
    assert_eq!(held[0].len(), SLOTS_OF_ONE_USER);
    assert_eq!(
        held.iter().map(Vec::len).sum::<usize>(),
        SLOTS_OF_PLAIN_USERS
    );
    let ran = test_box.ctl(&["list", "-o", "json", "--request-timeout", "1"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_unharmed(&test_box, &mut daemon, "a full house");
    // Another plain user is admitted as soon as one disconnects.
    held.truncate(1);
    let patient = run_as_user(test_uid(100), &[], || {
        test_box.ctl(&["list", "-o", "json", "--request-timeout", "30"])
    });
    assert_eq!((patient.code, patient.stderr.as_str()), (0, ""));
    daemon.stop();
}

/// The variable that makes a test, executed again in another process, connect to this
/// socket.
const CONNECT_TO_VARIABLE: &str = "GPUKILL_TEST_CONNECTS_TO";

/// In such a process: opens connections and keeps them until the process is killed. False
/// in the test itself.
fn keep_connections_if_child() -> bool {
    let Ok(socket) = std::env::var(CONNECT_TO_VARIABLE) else {
        return false;
    };
    let held = open_connections(Path::new(&socket), 20);
    writeln!(std::io::stdout(), "\nadmitted {}", held.len()).expect("the test reads the output");
    // Until the test closes the input.
    let _ = std::io::stdin().read(&mut [0]);
    true
}

/// Runs the test of this name in another process, started by this command. Returns the
/// process, which keeps its connections until it is killed, and the number of its admitted
/// connections.
fn start_connecting_process(
    mut command: Command,
    name: &str,
    socket: &Path,
) -> Option<(KillOnDrop, usize)> {
    command.arg(std::env::current_exe().unwrap());
    command.args([
        &format!("wire::connection_limits::{name}"),
        "--exact",
        "--nocapture",
    ]);
    command.env(CONNECT_TO_VARIABLE, socket);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let admitted = lines.find_map(|line| line.split_once("admitted ")?.1.parse().ok())?;
    Some((KillOnDrop(child), admitted))
}

#[test]
fn forged_login_uids_block_no_one() {
    if keep_connections_if_child() {
        return;
    }
    if !can_use_several_persons() {
        return;
    }
    let name = "forged_login_uids_block_no_one";
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    let daemon = test_box.start();
    let victim = test_uid(100);
    let mut held = Vec::new();
    for login in [
        victim,
        0,
        test_uid(1),
        test_uid(2),
        test_uid(3),
        test_uid(4),
        test_uid(5),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $0 >/proc/self/loginuid && exec \"$@\""]);
        command.arg(login.to_string());
        command.uid(NOBODY_UID).gid(NOBODY_UID);
        let Some(process) = start_connecting_process(command, name, &test_box.socket()) else {
            return skip("the login uid cannot be set here");
        };
        held.push(process);
    }
    let admitted: usize = held.iter().map(|(_, admitted)| admitted).sum();
    let others = run_as_user(victim, &[], || {
        test_box.ctl(&["list", "-o", "json", "--request-timeout", "5"])
    });
    assert_eq!((others.code, others.stderr.as_str()), (0, ""));
    assert_eq!(admitted, SLOTS_OF_ONE_USER);
    drop(held);
    daemon.stop();
}

#[test]
fn subordinate_uids_block_no_one() {
    if keep_connections_if_child() {
        return;
    }
    let name = "subordinate_uids_block_no_one";
    if !can_use_several_persons() {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    let daemon = test_box.start();
    let mut owner = Command::new("unshare");
    owner.args(["--user", "sleep", "1000"]);
    let owner = TestProcess::spawn(owner.uid(NOBODY_UID).gid(NOBODY_UID));
    let file = |name: &str| format!("/proc/{}/{name}", owner.pid());
    let ours = std::fs::read_link("/proc/self/ns/user").unwrap();
    let made = (0..1_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::fs::read_link(file("ns/user")).is_ok_and(|theirs| theirs != ours)
    });
    if !made {
        return skip("no user namespace can be made here");
    }
    let mapped = std::fs::write(file("gid_map"), format!("0 {NOBODY_UID} 1\n"))
        .and_then(|()| std::fs::write(file("uid_map"), "1 3999999000 20\n"));
    if mapped.is_err() {
        return skip("users cannot be mapped here");
    }
    let mut held = Vec::new();
    for inside in 1..=10 {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--target", &owner.pid().to_string()]);
        command.args(["--setuid", &inside.to_string()]);
        let Some(process) = start_connecting_process(command, name, &test_box.socket()) else {
            return skip("nsenter does not work here");
        };
        held.push(process);
    }
    let admitted: usize = held.iter().map(|(_, admitted)| admitted).sum();
    let others = run_as_user(test_uid(100), &[], || {
        test_box.ctl(&["list", "-o", "json", "--request-timeout", "5"])
    });
    assert_eq!((others.code, others.stderr.as_str()), (0, ""));
    assert_eq!(admitted, SLOTS_OF_ONE_USER);
    drop(held);
    daemon.stop();
}

#[test]
fn subordinate_uids_share_slots_of_owner() {
    if !can_use_several_persons() {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    // Such uids without a user namespace: from a setuid program that the user created
    // inside a namespace.
    let range = format!("{}:{}:10\n", test_uid(50), test_uid(0));
    let daemon = test_box.start_with(&mut test_box.daemon_command_with_subuid(&range));
    let mut held = Vec::new();
    for uid in test_uid(0)..test_uid(10) {
        held.push(run_as_user(uid, &[], || {
            open_connections(&test_box.socket(), 20)
        }));
    }
    assert_eq!(held.iter().map(Vec::len).sum::<usize>(), SLOTS_OF_ONE_USER);
    let other = run_as_user(test_uid(10), &[], || {
        open_connections(&test_box.socket(), 20)
    });
    assert_eq!(other.len(), SLOTS_OF_ONE_USER);
    drop((held, other));
    daemon.stop();
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn client_waits_for_a_free_slot() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let held = open_connections(&test_box.socket(), TOO_MANY);
    let mut waiting = test_box.client_command(&[
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
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let busy = lines.find(|line| line.as_ref().unwrap().contains("busy"));
    assert!(busy.is_some(), "the client did not wait");
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
fn waiting_client_times_out() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    let _held = open_connections(&test_box.socket(), TOO_MANY);
    let ran = test_box.ctl(&["list", "--request-timeout", "5"]);
    let expected = CommandOutput {
        code: 6,
        stdout: String::new(),
        stderr: format!(
            "gpukillctl: gpukilld at {} is busy\nhint: try again, or wait longer: \
            --request-timeout 30\n",
            test_box.socket().display()
        ),
    };
    assert_eq!(ran, expected);
    daemon.stop();
}

#[test]
fn two_hundred_clients_are_answered() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client =
                test_box.client_command(&["status", "-o", "json", "--request-timeout", "60"]);
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
    assert_unharmed(&test_box, &mut daemon, "two hundred");
    daemon.stop();
}

#[test]
fn disconnected_client_frees_its_slot() {
    let test_box = TestBox::new();
    let mut daemon = test_box.start();
    for _ in 0..3 {
        for mut raw in open_connections(&test_box.socket(), SLOTS_OF_ONE_USER) {
            let next = GpukillRequest::Snapshot {
                // A poll that never comes: the calls would wait for half a minute.
                after: Some(u64::MAX),
            };
            raw.send_request(1, &next);
        }
        let ran = test_box.ctl(&["list", "-o", "json", "--request-timeout", "10"]);
        assert_eq!(ran.stderr, "");
    }
    assert_unharmed(&test_box, &mut daemon, "disconnected clients");
    daemon.stop();
}
