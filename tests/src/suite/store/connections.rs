//! How many clients a server on a GPU has is told by the list, and remembered.

use super::records;
use gpukill_tests::harness::{Actor, Stage, eventually};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};

#[test]
fn clients_of_a_server_are_counted_and_remembered() {
    // This very process serves; the other listens on nothing.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let mut clients: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let other = Actor::start("train");
    let (own, others) = (std::process::id(), other.pid());
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
    // Those who went are no clients any more.
    clients.truncate(1);
    eventually("two clients go", || {
        (listed(own)?["connections"] == 1).then_some(())
    });
    let remembered = |count: u64| {
        let all = records(&stage, &["--limit", "0"]);
        all.iter()
            .any(|record| record["pid"] == own && record["connections"] == count)
    };
    eventually("both are remembered", || {
        (remembered(3) && remembered(1)).then_some(())
    });
    daemon.stop();
}
