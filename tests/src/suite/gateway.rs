//! `gpukill-gateway`: the documents of the client over HTTP, live events and metrics; who may send
//! what; and a daemon that goes and comes back.

mod activation;
mod documents;
mod events;
mod limits;
mod metrics;
mod requests;

use gpukill_tests::harness::{Gateway, TestBox, TestProcess, eventually};
use serde_json::json;

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
