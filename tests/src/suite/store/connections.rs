//! How many clients a server on a GPU has is told by the list, and remembered.

use super::records;
use gpukill_tests::harness::{Actor, Stage, child_of, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn clients_of_a_server_are_counted_and_remembered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Shells keep the server and the other, which listens on nothing, apart from the clients,
    // which are in this process.
    let mut command = Command::new("bash");
    command.args(["-c", "sleep 1000 <&0 & wait"]);
    let shell = Actor::with(&mut command, OwnedFd::from(listener));
    let other = Actor::of(Command::new("bash").args(["-c", "sleep 1000 & wait"]));
    let [own, others] =
        [&shell, &other].map(|shell| eventually("a process", || child_of(shell.pid())));
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{"processes": [
        {"pid": own, "memory": 5}, {"pid": others, "memory": 5},
    ]}]}));
    let daemon = stage.start();
    let listed = |pid: u32| -> Option<Value> {
        let list = stage.list();
        let mut rows = list["procs"].as_array()?.iter();
        rows.find(|row| row["pid"] == pid).cloned()
    };
    eventually("the clients are listed", || {
        (listed(own)?["connections"] == 3).then_some(())
    });
    let idle = eventually("the other is looked at", || {
        listed(others).filter(|row| row["reasons"]["connections"] == "unsupported")
    });
    assert_eq!(idle["connections"], Value::Null);
    // A client counts for a minute after it went.
    clients.truncate(1);
    let went = Instant::now();
    while listed(own).is_none_or(|row| row["connections"] != 1) {
        assert!(went.elapsed() < Duration::from_secs(150), "two clients go");
        std::thread::sleep(Duration::from_millis(200));
    }
    let remembered = |count: u64| {
        let all = records(&stage, &["--limit", "0"]);
        all.iter()
            .any(|record| record["pid"] == own && record["connections"] == count)
    };
    eventually("both are remembered", || {
        (remembered(3) && remembered(1)).then_some(())
    });
    daemon.stop();
    for pid in [own, others] {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
}
