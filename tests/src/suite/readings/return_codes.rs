//! NVML return codes: an error of one function about one GPU affects that GPU only.

use gpukill_tests::harness::{TestBox, eventually, eventually_equals, failed_readings};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// The functions that are called for one GPU, and the fields that a failure of each may
/// take away.
const FUNCTIONS: &[(&str, &[&str])] = &[
    ("nvmlDeviceGetHandleByIndex_v2", &[]),
    ("nvmlDeviceGetUUID", &[]),
    ("nvmlDeviceGetName", &["name"]),
    ("nvmlDeviceGetPciInfo_v3", &["pci"]),
    ("nvmlDeviceGetMinorNumber", &["minor"]),
    ("nvmlDeviceGetSerial", &["serial"]),
    (
        "nvmlDeviceGetMemoryInfo_v2",
        &[
            "mem_reserved_bytes",
            "mem_total_bytes",
            "mem_total_mb",
            "mem_unattributed_bytes",
            "mem_used_bytes",
            "mem_used_mb",
        ],
    ),
    (
        "nvmlDeviceGetUtilizationRates",
        &["util_pct", "mem_util_pct"],
    ),
    ("nvmlDeviceGetEncoderUtilization", &["encoder_util_pct"]),
    ("nvmlDeviceGetDecoderUtilization", &["decoder_util_pct"]),
    ("nvmlDeviceGetTemperature", &["temp_c"]),
    ("nvmlDeviceGetPowerUsage", &["power_w"]),
    ("nvmlDeviceGetEnforcedPowerLimit", &["power_limit_w"]),
    (
        "nvmlDeviceGetClockInfo",
        &[
            "clock_graphics_mhz",
            "clock_sm_mhz",
            "clock_mem_mhz",
            "clock_video_mhz",
        ],
    ),
    (
        "nvmlDeviceGetMaxClockInfo",
        &["clock_sm_max_mhz", "clock_mem_max_mhz"],
    ),
    (
        "nvmlDeviceGetCurrentClocksEventReasons",
        &["throttle_reasons"],
    ),
    ("nvmlDeviceGetFanSpeed_v2", &["fan_pct"]),
    ("nvmlDeviceGetPerformanceState", &["performance_state"]),
    ("nvmlDeviceGetPersistenceMode", &["persistence_mode"]),
    (
        "nvmlDeviceGetTotalEccErrors",
        &[
            "ecc_aggregate",
            "ecc_aggregate_corrected",
            "ecc_volatile",
            "ecc_volatile_corrected",
        ],
    ),
    (
        "nvmlDeviceGetFieldValues",
        &["mem_temp_c", "recovery_action", "remapped_rows"],
    ),
    ("nvmlDeviceGetRetiredPages_v2", &["retired_pages"]),
    ("nvmlDeviceGetRetiredPages", &["retired_pages"]),
    ("nvmlDeviceGetRetiredPagesPendingStatus", &["retired_pages"]),
    ("nvmlDeviceGetCurrPcieLinkGeneration", &["pcie_gen"]),
    ("nvmlDeviceGetCurrPcieLinkWidth", &["pcie_width"]),
    ("nvmlDeviceGetMaxPcieLinkGeneration", &["pcie_gen_max"]),
    ("nvmlDeviceGetMaxPcieLinkWidth", &["pcie_width_max"]),
    ("nvmlDeviceGetMigMode", &["mig_mode"]),
    (
        "nvmlDeviceGetComputeRunningProcesses_v3",
        &["pids", "mem_unattributed_bytes"],
    ),
    (
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        &["pids", "mem_unattributed_bytes"],
    ),
    (
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        &["pids", "mem_unattributed_bytes"],
    ),
    ("nvmlDeviceGetProcessUtilization", &[]),
    ("nvmlDeviceGetSupportedEventTypes", &[]),
    ("nvmlDeviceRegisterEvents", &[]),
];

/// A GPU with every reading, and a process.
fn complete_gpu(name: &str) -> Value {
    json!({
        "uuid": format!("GPU-{name}"), "name": name, "fan": 30, "serial": "1652922000123",
        "retired_pages": {"single_bit": 0, "double_bit": 0, "pending": false},
        "processes": [{"pid": 5_000_001, "memory": 11 * MIB, "sm": 7}],
    })
}

fn gpu_with_error(name: &str, code: u32) -> Value {
    let mut gpu = complete_gpu(name);
    gpu["errors"] = json!({name: code});
    gpu
}

fn gpus(list: &Value) -> &[Value] {
    list["gpus"].as_array().unwrap()
}

/// Pid, memory and utilization of the processes on this GPU.
fn processes(list: &Value, gpu: &Value) -> Value {
    let processes = list["procs"].as_array().unwrap().iter();
    let here = processes.filter(|process| process["gpu_index"] == gpu["gpu_index"]);
    here.map(|it| json!([it["pid"], it["used_mem_bytes"], it["util_pct"]]))
        .collect()
}

/// Makes each function fail with this code, each on a GPU of its own.
fn fail_every_function_with(code: u32) {
    let test_box = TestBox::new();
    let mut all = vec![complete_gpu("first")];
    all.extend(FUNCTIONS.iter().map(|(name, _)| gpu_with_error(name, code)));
    all.push(complete_gpu("last"));
    test_box.set_driver_state(&json!({"gpus": all}));
    let daemon = test_box.start();
    // GPUs without handle or name were never read: a fault names their indices.
    let list = eventually("all GPUs with a name are listed", || {
        let list = test_box.list();
        let unnamed = list["faults"].as_array().unwrap().iter();
        let unnamed = unnamed.filter(|it| it["what"].as_str().unwrap().contains("at index"));
        let listed = gpus(&list).len() == FUNCTIONS.len();
        // A poll before the answer has the readings of the poll before.
        let is_fresh = !list.to_string().contains("stale: ");
        (listed && unnamed.count() == 2 && is_fresh).then_some(list)
    });
    let backend = &list["backends"][0];
    assert_eq!(backend["state"], "ready", "{code}: {backend}");
    let holds = json!([[5_000_001, 11 * MIB, 7]]);
    for name in ["first", "last"] {
        let gpu = gpus(&list).iter().find(|gpu| gpu["name"] == name).unwrap();
        assert_eq!(failed_readings(gpu), json!({}), "{code}, {name}");
        assert_eq!(gpu["state"], "ok", "{code}, {name}");
        assert_eq!(processes(&list, gpu), holds, "{code}, {name}");
    }
    let is_loss = [15, 16].contains(&code);
    for (function, may_fail) in &FUNCTIONS[2..] {
        let id = format!("GPU-{function}");
        let gpu = gpus(&list).iter().find(|gpu| gpu["id"] == id).unwrap();
        let failed: Vec<String> = failed_readings(gpu)
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        let others = failed.iter().filter(|it| !may_fail.contains(&it.as_str()));
        assert_eq!(others.count(), 0, "{code}, {function}: {failed:?}");
        assert!(is_loss || gpu["state"] == "ok", "{code}, {function}: {gpu}");
        if function.contains("RunningProcesses") || *function == "nvmlDeviceGetProcessUtilization" {
            continue;
        }
        assert_eq!(processes(&list, gpu), holds, "{code}, {function}");
    }
    for fault in list["faults"].as_array().unwrap() {
        let what = fault["what"].as_str().unwrap();
        assert!(!what.contains(['`', '"']) && !what.contains("::"), "{what}");
        assert_eq!(
            what.contains("reset or a reboot"),
            is_loss && what.starts_with("lost"),
            "{what}"
        );
    }
    daemon.stop();
}

#[test]
fn error_affects_only_its_own_gpu() {
    let codes: Vec<u32> = (1..=30).chain([77, 999]).collect();
    let (one, other) = codes.split_at(codes.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| one.iter().for_each(|code| fail_every_function_with(*code)));
        other
            .iter()
            .for_each(|code| fail_every_function_with(*code));
    });
}

#[test]
fn handle_error_decides_the_state() {
    let test_box = TestBox::new();
    let reset = "needs a reset or a reboot";
    let modes = "see the modes of /dev/nvidia*";
    let cases = [
        (15, "lost", "lost (GPU_IS_LOST)", reset),
        (16, "lost", "lost (GPU_REQUIRES_RESET)", reset),
        (
            4,
            "not_permitted",
            "not permitted (the driver denies access (4))",
            modes,
        ),
        (
            17,
            "not_permitted",
            "not permitted (the system or a cgroup blocks access (17))",
            modes,
        ),
        (
            2,
            "unknown",
            "state unknown (NVML refuses the request (2))",
            "",
        ),
        (
            6,
            "unknown",
            "state unknown (NVML does not find it (6))",
            "",
        ),
        (
            18,
            "unknown",
            "state unknown (library and driver are of different versions (18))",
            "",
        ),
        (
            28,
            "unknown",
            "state unknown (the driver does not find the GPU (28))",
            "",
        ),
        (
            999,
            "unknown",
            "state unknown (NVML reports an unknown error (999))",
            "",
        ),
    ];
    let state = |code: Option<u32>| {
        let errors = code.map_or(
            json!({}),
            |code| json!({"nvmlDeviceGetHandleByIndex_v2": code}),
        );
        let mut second = complete_gpu("second");
        second["errors"] = errors;
        json!({"gpus": [complete_gpu("first"), second]})
    };
    test_box.set_driver_state(&state(None));
    let daemon = test_box.start();
    let states = || {
        let list = test_box.list();
        let well = failed_readings(&list["gpus"][0]);
        (well, list["gpus"][1]["state"].clone(), test_box.faults())
    };
    eventually_equals(&(json!({}), json!("ok"), Vec::new()), states);
    for (code, word, fault, remedy) in cases {
        test_box.set_driver_state(&state(Some(code)));
        let remedy = if remedy.is_empty() {
            String::new()
        } else {
            format!(": {remedy}")
        };
        let fault = format!("{fault}{remedy}");
        let faults = vec![("GPU 1".to_owned(), fault.clone())];
        eventually_equals(&(json!({}), json!(word), faults), states);
        let gpu = test_box.list()["gpus"][1].clone();
        assert_eq!(gpu["lost_since"].is_string(), word == "lost", "{code}");
        // Every table has the same words.
        let (words, why) = fault.split_once(" (").unwrap();
        let rows = test_box.table(&["list"]);
        let row = rows.lines().nth(2).unwrap();
        assert!(row.contains(&format!("{words} since ")), "{row}");
        assert!(row.ends_with(&format!(" ({why}")), "{row}");
        let status = test_box.ctl(&["status"]).stdout;
        assert!(
            status.lines().any(|line| line.ends_with(&fault)),
            "{status}"
        );
    }
    test_box.set_driver_state(&state(None));
    eventually_equals(&(json!({}), json!("ok"), Vec::new()), states);
    daemon.stop();
}

#[test]
fn lost_code_of_any_function_marks_gpu_lost() {
    let callers = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetName",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceRegisterEvents",
        "nvmlDeviceGetFanSpeed_v2",
    ];
    let test_box = TestBox::new();
    let gpus: Vec<Value> = callers
        .iter()
        .map(|name| gpu_with_error(name, 15))
        .collect();
    test_box.set_driver_state(&json!({"gpus": gpus}));
    let daemon = test_box.start();
    let states = || -> Vec<Value> {
        let list = test_box.list();
        list["gpus"]
            .as_array()
            .unwrap()
            .iter()
            .map(|gpu| gpu["state"].clone())
            .collect()
    };
    eventually_equals(&vec![json!("lost"); callers.len()], states);
    let gpus: Vec<Value> = callers.iter().map(|name| complete_gpu(name)).collect();
    test_box.set_driver_state(&json!({"gpus": gpus}));
    eventually_equals(&vec![json!("ok"); callers.len()], states);
    daemon.stop();
}
