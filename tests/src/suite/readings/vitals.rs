//! All readings of a GPU, and the repairs that its driver advises.

use gpukill_tests::harness::{TestBox, eventually_equals, failed_readings};
use serde_json::{Value, json};

/// These fields of the one GPU, which has every reading.
fn fields(test_box: &TestBox, names: &[&str]) -> Value {
    let gpu = test_box.list()["gpus"][0].clone();
    names
        .iter()
        .map(|name| ((*name).to_owned(), gpu[*name].clone()))
        .collect()
}

#[test]
fn every_reading_arrives_unchanged() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{
        "serial": "1652922000123", "minor": 5,
        "utilization": {"gpu": 98, "memory": 41}, "encoder": 7, "decoder": 8,
        "temperature": 71, "memory_temperature": 84, "fan": 130,
        "power_mw": 688_500, "power_limit_mw": 700_000,
        "clocks": {"graphics": 1410, "sm": 1411, "memory": 2619, "video": 1275},
        "max_clocks": {"graphics": 1980, "sm": 1981, "memory": 2620, "video": 1545},
        "performance_state": 2, "throttle": 0x8000_0000_0000_0044u64,
        "ecc": {
            "enabled": true, "volatile_corrected": 11, "volatile_uncorrected": 12,
            "aggregate_corrected": 13, "aggregate_uncorrected": 14,
        },
        "remapped_rows": {"correctable": 1, "uncorrectable": 2, "pending": false, "failure": false},
        "retired_pages": {"single_bit": 3, "double_bit": 4, "pending": false},
        "persistence": true,
        "pcie": {"generation": 1, "width": 8, "max_generation": 5, "max_width": 16},
    }]}));
    let daemon = test_box.start();
    let expected = json!({
        "serial": "1652922000123", "minor": 5,
        "util_pct": 98, "mem_util_pct": 41, "encoder_util_pct": 7, "decoder_util_pct": 8,
        "temp_c": 71, "mem_temp_c": 84, "fan_pct": 130, "power_w": 688.5, "power_limit_w": 700.0,
        "clock_graphics_mhz": 1410, "clock_sm_mhz": 1411, "clock_mem_mhz": 2619,
        "clock_video_mhz": 1275, "clock_sm_max_mhz": 1981, "clock_mem_max_mhz": 2620,
        "performance_state": 2,
        "throttle_reasons": ["sw_power_cap", "hw_thermal", "0x8000000000000000"],
        "ecc_volatile_corrected": 11, "ecc_volatile": 12,
        "ecc_aggregate_corrected": 13, "ecc_aggregate": 14,
        "remapped_rows": {"correctable": 1, "uncorrectable": 2, "pending": false, "failed": false},
        "retired_pages": {"single_bit": 3, "double_bit": 4, "pending": false},
        "recovery_action": "none", "persistence_mode": true,
        "pcie_gen": 1, "pcie_width": 8, "pcie_gen_max": 5, "pcie_width_max": 16,
        "mig_mode": false, "instances": [], "last_xid": null,
    });
    let names: Vec<&str> = expected
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    eventually_equals(&expected, || fields(&test_box, &names));
    assert_eq!(super::reasons(&test_box.list()["gpus"][0]), json!({}));
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}

#[test]
fn advised_repair_is_a_fault_until_done() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [
        {
            "recovery_action": 1,
            "remapped_rows": {"correctable": 0, "uncorrectable": 1, "pending": true, "failure": true},
        },
        {"recovery_action": 77},
        {"retired_pages": {"single_bit": 0, "double_bit": 1, "pending": true}},
    ]}));
    let daemon = test_box.start();
    let fault = |gpu: u32, what: &str| (format!("GPU {gpu}"), what.to_owned());
    let expected = vec![
        fault(
            0,
            "broken memory rows could not be replaced: exchange the GPU",
        ),
        fault(0, "broken memory rows wait to be replaced: reset the GPU"),
        fault(0, "the driver advises to reset the GPU"),
        fault(
            1,
            "the driver advises a recovery action that gpukill does not know (77)",
        ),
        fault(2, "broken memory pages wait to be retired: reset the GPU"),
    ];
    eventually_equals(&expected, || test_box.faults());
    assert_eq!(
        fields(&test_box, &["recovery_action"])["recovery_action"],
        "reset"
    );
    let faults = test_box.list()["faults"].as_array().unwrap().clone();
    assert!(
        faults.iter().all(|fault| fault["since"].is_string()),
        "{faults:?}"
    );
    test_box.set_driver_state(&json!({"gpus": [{}, {}, {}]}));
    eventually_equals(&Vec::new(), || test_box.faults());
    daemon.stop();
}

#[test]
fn functions_an_older_driver_lacks_are_unsupported() {
    let test_box = TestBox::new();
    test_box.older_library(&[
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlEventSetCreate",
        "nvmlEventSetWait_v2",
    ]);
    test_box.set_driver_state(&json!({"gpus": [{
        "temperature": 44, "throttle": 8, "processes": [{"pid": 5_000_000, "memory": 1}],
    }]}));
    let daemon = test_box.start();
    let expected = json!({
        "temp_c": 44, "mem_temp_c": null, "encoder_util_pct": null, "mig_mode": null,
        "recovery_action": null, "throttle_reasons": ["hw_slowdown"], "pids": 1,
    });
    let names: Vec<&str> = expected
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    eventually_equals(&expected, || fields(&test_box, &names));
    let gpu = &test_box.list()["gpus"][0];
    assert_eq!(failed_readings(gpu), json!({}));
    assert_eq!(gpu["reasons"]["mem_temp_c"], "unsupported");
    assert_eq!(
        test_box.list()["procs"][0]["reasons"]["util_pct"],
        "unsupported"
    );
    assert_eq!(test_box.faults(), []);
    daemon.stop();
}
