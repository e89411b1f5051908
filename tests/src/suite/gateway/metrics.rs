//! Metrics: what is there has series, and what is gone has none.

use super::{BusyGateway, wait_until_ready};
use gpukill_tests::harness::{Gateway, eventually};
use serde_json::{Value, json};

#[test]
fn series_end_with_their_process_and_with_the_daemon() {
    let BusyGateway {
        process,
        test_box,
        daemon,
        gateway,
    } = BusyGateway::start("[metrics]\nprocesses = true\n");
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

/// A GPU that counts its energy, with these events.
fn counting_gpu(events: &Value) -> Value {
    json!({"events": events, "gpus": [{
        "uuid": "GPU-a", "energy_mj": 7_200_500, "utilization": {"gpu": 70, "memory": 0},
    }]})
}

#[test]
fn counters_and_energy_of_the_daemon_have_series() {
    let test_box = gpukill_tests::harness::TestBox::new();
    test_box.set_driver_state(&counting_gpu(&json!([])));
    let _daemon = test_box.start();
    eventually("the GPU is listed", || {
        let list = test_box.list();
        (list["gpus"][0]["id"] == "GPU-a").then_some(())
    });
    // The daemon refuses to explain a process that does not exist.
    assert_eq!(test_box.ctl(&["explain", "4194304"]).code, 8);
    let xid = json!([{"id": 1, "gpu": 0, "type": 8, "data": 79}]);
    test_box.set_driver_state(&counting_gpu(&xid));
    let counters = eventually("the XID is counted", || {
        let counters = test_box.json(&["status", "-o", "json"])["counters"].clone();
        (counters["xids"] != json!([])).then_some(counters)
    });
    assert_eq!(
        counters["xids"],
        json!([{"gpu_id": "GPU-a", "xid": 79, "count": 1}])
    );
    assert_eq!(
        counters["energy"],
        json!([{"gpu_id": "GPU-a", "energy_j": 7200.5}])
    );
    let refusals = counters["refusals"].as_array().expect("a list");
    // The client looks for the run of an ended process too.
    let mut refusals = refusals.iter();
    let refused = refusals.find(|it| it["reason"] == "no_match");
    let refused = refused.expect("a refusal")["count"]
        .as_u64()
        .expect("a count");
    assert!(refused >= 1, "{counters}");
    assert_eq!(counters["decisions"], json!([]));
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let text = eventually("the status is known", || {
        let text = gateway.get("/metrics").text();
        text.contains("\ngpukill_daemon_info{").then_some(text)
    });
    let labels = "uuid=\"GPU-a\",gpu=\"0\"";
    for line in [
        format!("gpukill_gpu_energy_joules_total{{{labels}}} 7200.5"),
        format!("gpukill_gpu_xid_errors_total{{{labels},xid=\"79\"}} 1"),
        format!("gpukill_refusals_total{{reason=\"no_match\"}} {refused}"),
        "gpukill_acts_total{kind=\"guard_end\",outcome=\"done\"} 0".to_owned(),
        "gpukill_guard_decisions_total{decision=\"ended\"} 0".to_owned(),
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    // A list is as light as before.
    let list = test_box.list();
    assert!(!list.to_string().contains("energy"), "{list}");
}

#[test]
fn other_exporters_have_their_names_and_labels() {
    let test_box = gpukill_tests::harness::TestBox::new();
    test_box.set_driver_state(&counting_gpu(&json!([])));
    let daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let accept = [("accept", "application/openmetrics-text;version=1.0.0")];
    let scrape = |view: &str| {
        let path = format!("/metrics?view={view}");
        let answer = gateway.request("GET", &path, &accept);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    };
    let dcgm = eventually("the energy is known", || {
        let answer = scrape("dcgm");
        let media_type = "text/plain; version=0.0.4; charset=utf-8";
        assert_eq!(answer.header("content-type"), Some(media_type));
        let text = answer.text();
        text.contains("_ENERGY_CONSUMPTION{").then_some(text)
    });
    let line = |name: &str| {
        let mut lines = dcgm.lines();
        let found = lines.find(|line| line.starts_with(&format!("{name}{{")));
        found.unwrap_or_else(|| panic!("{name}\n{dcgm}")).to_owned()
    };
    let utilization = line("DCGM_FI_DEV_GPU_UTIL");
    assert!(utilization.ends_with(" 70"), "{utilization}");
    for label in [
        "{gpu=\"0\",UUID=\"GPU-a\",pci_bus_id=\"0000",
        ",device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\",hostname=\"",
    ] {
        assert!(utilization.contains(label), "{label}\n{utilization}");
    }
    assert!(line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION").ends_with(" 7200500"));
    assert!(line("DCGM_FI_DEV_FB_FREE").ends_with(" 81920"));
    assert!(!dcgm.contains("\ngpukill_gpu_"), "{dcgm}");
    let gpumon = scrape("gpumon").text();
    let expected =
        "gpumon_gpu_utilization_percent{gpu_id=\"0\",gpu_name=\"NVIDIA H100 80GB HBM3\"} 70";
    assert!(gpumon.lines().any(|it| it == expected), "{gpumon}");
    let own = scrape("gpukill");
    assert!(own.text().contains("\ngpukill_gpu_utilization_ratio{"));
    daemon.kill();
    eventually("the daemon is gone", || {
        let text = scrape("dcgm").text();
        let is_away = text.contains("\ngpukill_up 0\n");
        (is_away && !text.contains("DCGM_")).then_some(())
    });
}
