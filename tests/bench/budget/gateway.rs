//! Threads of the gateway, and its resident memory at rest.

use super::comparison::Count;
use super::daemon::{least_threads, resident_counts};
use gpukill_tests::harness::{Gateway, TestBox, eventually};

/// Requests of each path before the measurement: memory for the first answers stays.
const REQUESTS: usize = 50;

const PATHS: [&str; 4] = [
    "/api/v1/snapshot",
    "/api/v1/processes",
    "/api/v1/status",
    "/metrics",
];

/// Live streams before the measurement.
const STREAMS: usize = 8;

/// The threads and the memory of a gateway of this box, after it has answered requests.
pub(crate) fn measure_gateway(test_box: &TestBox) -> Vec<Count> {
    let gateway = Gateway::start(test_box, "");
    eventually("the gateway is ready", || {
        (gateway.get("/-/ready").status == 200).then_some(())
    });
    for path in PATHS {
        for _ in 0..REQUESTS {
            assert_eq!(gateway.get(path).status, 200, "{path}");
        }
    }
    let mut streams: Vec<_> = (0..STREAMS).map(|_| gateway.live()).collect();
    for stream in &mut streams {
        let _ = stream.next_named("snapshot");
    }
    drop(streams);
    let pids = [gateway.pid()];
    // Threads that wait for the daemon end after a while without work.
    let mut counts = vec![Count::new("gateway_threads", least_threads(&pids))];
    counts.extend(resident_counts("gateway_resident", &pids));
    counts
}
