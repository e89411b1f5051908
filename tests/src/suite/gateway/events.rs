//! Live events: each snapshot once, the state of the daemon, and a clean end.

use super::BusyGateway;
use serde_json::json;

#[test]
fn stream_follows_the_daemon_across_its_restart() {
    let BusyGateway {
        process: _process,
        test_box,
        daemon,
        gateway,
    } = BusyGateway::start("");
    let mut live = gateway.live();
    let first = live.next_named("snapshot");
    assert_eq!(first["gpus"][0]["util_pct"], 70);
    let polls = |snapshot: &serde_json::Value| snapshot["polls"].as_u64().expect("a number");
    assert!(polls(&live.next_named("snapshot")) > polls(&first));
    daemon.kill();
    let away = live.next_named("state");
    assert_eq!(away["current"], false, "{away}");
    assert!(away["data_age_seconds"].is_f64(), "{away}");
    let answer = gateway.get("/api/v1/snapshot");
    let problem = answer.json();
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("2"))
    );
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("the newest data is "), "{detail}");
    assert!(problem["data_age_seconds"].is_f64(), "{problem}");
    assert_eq!(gateway.get("/-/ready").status, 503);
    assert_eq!(gateway.get("/-/healthy").status, 200);
    test_box.set_driver_state(&json!({"gpus": [{"utilization": {"gpu": 30, "memory": 0}}]}));
    let _daemon = test_box.start();
    // The snapshot of the new daemon comes before the state, and is never an old one.
    loop {
        let (name, data) = live.next_event().expect("an event");
        match name.as_str() {
            "snapshot" => assert_ne!(data["gpus"][0]["util_pct"], 70, "{data}"),
            "state" => {
                assert_eq!(data["current"], true, "{data}");
                break;
            }
            other => panic!("{other}"),
        }
    }
    gateway.terminate();
    let mut last = live.next_event();
    while last.as_ref().is_some_and(|(name, _)| name != "end") {
        last = live.next_event();
    }
    assert_eq!(last, Some(("end".to_owned(), json!({}))));
    assert_eq!(live.next_event(), None);
    assert_eq!(gateway.wait(), 0);
}

#[test]
fn all_streams_share_one_connection_to_the_daemon() {
    let busy = BusyGateway::start("[http]\nmax_streams = 20\n");
    let gateway = &busy.gateway;
    let mut streams: Vec<_> = (0..20).map(|_| gateway.live()).collect();
    for stream in &mut streams {
        let _ = stream.next_named("snapshot");
    }
    let metrics = gateway.get("/metrics").text();
    for line in [
        "gpukill_gateway_streams 20",
        "gpukill_gateway_daemon_connections_total 1",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
    }
    let refused = gateway.get("/api/v1/live");
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
}
