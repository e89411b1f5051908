//! Metrics: what is there has series, and what is gone has none.

use super::{busy_box, wait_until_ready};
use gpukill_tests::harness::{Gateway, TestProcess, eventually};
use serde_json::json;

#[test]
fn series_end_with_their_process_and_with_the_daemon() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "[metrics]\nprocesses = true\n");
    wait_until_ready(&gateway);
    let scrape = || gateway.get("/metrics").text();
    let has = |text: &str, start: &str| text.lines().any(|line| line.starts_with(start));
    let text = eventually("the process has series", || {
        let text = scrape();
        has(&text, "gpukill_process_memory_bytes{").then_some(text)
    });
    for start in [
        "gpukill_up 1",
        "gpukill_gpu_info{uuid=\"GPU-",
        "gpukill_gpu_utilization_ratio{uuid=\"GPU-",
        "gpukill_user_memory_bytes{uuid=\"GPU-",
        "gpukill_backend_up{backend=\"nvidia\"} 1",
        "gpukill_guard_mode{mode=\"dry-run\"} 1",
        "gpukill_daemon_info{version=",
        "gpukill_store_size_bytes{file=\"samples\"} ",
        "process_resident_memory_bytes ",
    ] {
        assert!(has(&text, start), "{start}\n{text}");
    }
    test_box.set_driver_state(&json!({"gpus": [{"utilization": {"gpu": 0, "memory": 0}}]}));
    eventually("the process has no series", || {
        let text = scrape();
        let is_gone = !has(&text, "gpukill_process_") || !text.contains(&process.pid().to_string());
        (is_gone && !has(&text, "gpukill_user_") && has(&text, "gpukill_up 1")).then_some(())
    });
    daemon.kill();
    let text = eventually("the daemon is gone", || {
        let text = scrape();
        has(&text, "gpukill_up 0").then_some(text)
    });
    assert!(!has(&text, "gpukill_gpu_"), "{text}");
    assert!(!has(&text, "gpukill_daemon_"), "{text}");
    assert!(has(&text, "gpukill_build_info{"), "{text}");
}

#[test]
fn accept_selects_the_format() {
    let test_box = gpukill_tests::harness::TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    let plain = gateway.get("/metrics");
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(plain.header("content-type"), Some(media_type));
    let accept = [(
        "accept",
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    )];
    let open = gateway.request("GET", "/metrics", &accept);
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(media_type));
    assert!(open.text().ends_with("\n# EOF\n"));
}
