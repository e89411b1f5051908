//! `gpukill-gateway`: the documents of the client over HTTP, live events and metrics; who may send
//! what; a daemon that goes and comes back; and metrics that are pushed.

mod activation;
mod boards;
mod documents;
mod events;
mod hostile_names;
mod limits;
mod metrics;
mod otlp;
mod pages;
mod personal;
mod privileges;
mod prometheus;
mod promql;
mod requests;
#[path = "../../bench/stand_in_daemon.rs"]
mod stand_in_daemon;
mod tls;
mod tokens;
mod websocket;

use gpukill_tests::harness::{Daemon, Gateway, TestBox, TestProcess, eventually};
use serde_json::json;

/// A gateway with data of a box with one GPU that a process uses.
struct BusyGateway {
    // Dropped in this order.
    gateway: Gateway,
    daemon: Daemon,
    test_box: TestBox,
    process: TestProcess,
}

impl BusyGateway {
    /// Starts all, the gateway with these settings.
    fn start(settings: &str) -> Self {
        let process = TestProcess::start("python");
        let test_box = busy_box(&process);
        let daemon = test_box.start();
        let gateway = Gateway::start(&test_box, settings);
        wait_until_ready(&gateway);
        Self {
            gateway,
            daemon,
            test_box,
            process,
        }
    }
}

/// A box with one GPU that this process uses.
fn busy_box(process: &TestProcess) -> TestBox {
    let test_box = TestBox::new();
    test_box.set_driver_state(
        &json!({"gpus": [{"utilization": {"gpu": 70, "memory": 0}, "processes": [
            {"pid": process.pid(), "memory": 1 << 30},
        ]}]}),
    );
    test_box
}

/// Waits until the gateway has data of the daemon.
fn wait_until_ready(gateway: &Gateway) {
    eventually("the gateway is ready", || {
        (gateway.get("/-/ready").status == 200).then_some(())
    });
}
