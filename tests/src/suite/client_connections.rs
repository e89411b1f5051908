//! The number of clients of a server on a GPU is listed and stored.
//!
//! libtest starts the tests in the order of their names. This test waits for more than a minute,
//! so it has a module at the top level, with a name that makes it start early.

use crate::store::records;
use gpukill_tests::harness::{TestBox, TestProcess, eventually, first_child};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn clients_of_a_server_are_counted_and_stored() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Each shell makes its child a job apart from the clients, which are connections of
    // this test process. The second child listens on nothing.
    let mut command = Command::new("bash");
    command.args(["-c", "sleep 1000 <&0 & wait"]);
    let shell = TestProcess::spawn_with_input(&mut command, OwnedFd::from(listener));
    let other = TestProcess::spawn(Command::new("bash").args(["-c", "sleep 1000 & wait"]));
    let [own, others] =
        [&shell, &other].map(|shell| eventually("a process", || first_child(shell.pid())));
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{"processes": [
        {"pid": own, "memory": 5}, {"pid": others, "memory": 5},
    ]}]}));
    let daemon = test_box.start();
    let listed = |pid: u32| -> Option<Value> {
        let list = test_box.list();
        let mut rows = list["procs"].as_array()?.iter();
        rows.find(|row| row["pid"] == pid).cloned()
    };
    eventually("the clients are listed", || {
        (listed(own)?["connections"] == 3).then_some(())
    });
    let idle = eventually("the other is scanned", || {
        listed(others).filter(|row| row["reasons"]["connections"] == "unsupported")
    });
    assert_eq!(idle["connections"], Value::Null);
    // A client counts for a minute after it has disconnected.
    clients.truncate(1);
    let closed_at = Instant::now();
    while listed(own).is_none_or(|row| row["connections"] != 1) {
        assert!(
            closed_at.elapsed() < Duration::from_secs(150),
            "two clients go"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    let remembered = |count: u64| {
        let all = records(&test_box, &["--limit", "0"]);
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
