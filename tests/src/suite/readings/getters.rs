//! Each reading of a GPU by itself: present, unsupported, failed, impossible.

use gpukill_tests::harness::{TestBox, eventually_equals};
use serde_json::{Value, json};

/// The change to the GPU; the fields that it takes away; how a fault names the broken part;
/// the reason of the missing fields.
type Case = (Value, &'static [&'static str], &'static str, &'static str);

const UNKNOWN_ERROR: &str = "failed: NVML reports an unknown error (999)";
const ECC_FIELDS: &[&str] = &[
    "ecc_aggregate",
    "ecc_aggregate_corrected",
    "ecc_volatile",
    "ecc_volatile_corrected",
];
const PCIE_FIELDS: &[&str] = &["pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max"];
const MEMORY_FIELDS: &[&str] = &[
    "mem_reserved_bytes",
    "mem_total_bytes",
    "mem_total_mb",
    "mem_unattributed_bytes",
    "mem_used_bytes",
    "mem_used_mb",
];

fn failing(function: &str, code: u32) -> Value {
    json!({"errors": {function: code}})
}

fn cases() -> Vec<Case> {
    let unsupported = |field: &str| json!({field: null});
    vec![
        // A reading that this GPU does not support is no fault.
        (
            unsupported("utilization"),
            &["mem_util_pct", "util_pct"],
            "",
            "unsupported",
        ),
        (unsupported("temperature"), &["temp_c"], "", "unsupported"),
        (unsupported("power_mw"), &["power_w"], "", "unsupported"),
        (
            unsupported("power_limit_mw"),
            &["power_limit_w"],
            "",
            "unsupported",
        ),
        (unsupported("ecc"), ECC_FIELDS, "", "unsupported"),
        (
            unsupported("encoder"),
            &["encoder_util_pct"],
            "",
            "unsupported",
        ),
        (
            unsupported("decoder"),
            &["decoder_util_pct"],
            "",
            "unsupported",
        ),
        (
            unsupported("memory_temperature"),
            &["mem_temp_c"],
            "",
            "unsupported",
        ),
        (unsupported("fan"), &["fan_pct"], "", "unsupported"),
        (
            unsupported("remapped_rows"),
            &["remapped_rows"],
            "",
            "unsupported",
        ),
        (
            unsupported("retired_pages"),
            &["retired_pages"],
            "",
            "unsupported",
        ),
        (
            unsupported("recovery_action"),
            &["recovery_action"],
            "",
            "unsupported",
        ),
        (
            unsupported("throttle"),
            &["throttle_reasons"],
            "",
            "unsupported",
        ),
        (
            unsupported("persistence"),
            &["persistence_mode"],
            "",
            "unsupported",
        ),
        (unsupported("pcie"), PCIE_FIELDS, "", "unsupported"),
        (unsupported("serial"), &["serial"], "", "unsupported"),
        // A function that an older driver lacks.
        (
            failing("nvmlDeviceGetTemperature", 13),
            &["temp_c"],
            "",
            "unsupported",
        ),
        // A supported reading that fails is a fault.
        (
            failing("nvmlDeviceGetTemperature", 999),
            &["temp_c"],
            "temperature",
            UNKNOWN_ERROR,
        ),
        (
            failing("nvmlDeviceGetPowerUsage", 999),
            &["power_w"],
            "power",
            UNKNOWN_ERROR,
        ),
        (
            failing("nvmlDeviceGetEnforcedPowerLimit", 999),
            &["power_limit_w"],
            "power limit",
            UNKNOWN_ERROR,
        ),
        (
            failing("nvmlDeviceGetMemoryInfo_v2", 999),
            MEMORY_FIELDS,
            "memory",
            UNKNOWN_ERROR,
        ),
        (
            failing("nvmlDeviceGetName", 999),
            &["name"],
            "name",
            UNKNOWN_ERROR,
        ),
        (
            failing("nvmlDeviceGetPciInfo_v3", 999),
            &["pci"],
            "PCI address",
            UNKNOWN_ERROR,
        ),
        (
            failing("nvmlDeviceGetTemperature", 77),
            &["temp_c"],
            "temperature",
            "failed: NVML answered with an unknown code (77)",
        ),
        (
            json!({"temperature": 151}),
            &["temp_c"],
            "temperature",
            "failed: the driver reports an impossible value: 151 °C",
        ),
        (
            json!({"power_mw": 4_294_967_295u32}),
            &["power_w"],
            "power",
            "failed: the driver reports an impossible value: 4294967295 mW",
        ),
        (
            json!({"clocks": {"sm": 50_001}}),
            &["clock_sm_mhz"],
            "SM clock",
            "failed: the driver reports an impossible value: 50001 MHz",
        ),
        (
            json!({"ecc": {"volatile_uncorrected": u64::MAX}}),
            &["ecc_volatile"],
            "ECC errors",
            "failed: the driver reports an impossible value: 18446744073709551615",
        ),
        // A zero that means that there is none.
        (
            json!({"power_limit_mw": 0}),
            &["power_limit_w"],
            "",
            "unsupported",
        ),
        (
            json!({"pcie": {"generation": 0, "width": 0, "max_generation": 0, "max_width": 0}}),
            PCIE_FIELDS,
            "",
            "unsupported",
        ),
        // No memory, on a product that has its own.
        (json!({"memory": null}), MEMORY_FIELDS, "", "unsupported"),
        (
            json!({"name": "NVIDIA GeForce RTX 4090", "memory": {"total": 0}}),
            MEMORY_FIELDS,
            "",
            "unsupported",
        ),
        // Impossible numbers are no values.
        (
            json!({"encoder": 4000}),
            &["encoder_util_pct"],
            "encoder",
            "failed: the driver reports an impossible value: 4000 %",
        ),
        (
            json!({"fan": 300}),
            &["fan_pct"],
            "fan",
            "failed: the driver reports an impossible value: 300 %",
        ),
        (
            json!({"mig_mode_raw": 7}),
            &["mig_mode"],
            "MIG mode",
            "failed: the driver reports an impossible value: 7",
        ),
        (
            json!({"field_errors": {"230": 999}}),
            &["recovery_action"],
            "recovery action",
            UNKNOWN_ERROR,
        ),
        (
            json!({"field_errors": {"144": 999}}),
            &["remapped_rows"],
            "remapped rows",
            UNKNOWN_ERROR,
        ),
        (
            json!({"utilization": {"gpu": 255}}),
            &["util_pct"],
            "utilization",
            "failed: the driver reports an impossible value: 255 %",
        ),
        (
            json!({"temperature": 4_294_967_295u32}),
            &["temp_c"],
            "temperature",
            "failed: the driver reports an impossible value: -1 °C",
        ),
        (
            json!({"memory": {"total": 8u64 << 30, "used": 9u64 << 30}}),
            MEMORY_FIELDS,
            "memory",
            "failed: the driver reports an impossible value: 9216 MiB used and 0 MiB reserved of 8192 MiB",
        ),
    ]
}

/// A GPU with every reading, with these changes.
fn gpu_with(but: &Value) -> Value {
    let mut gpu = json!({
        "fan": 30, "serial": "1652922000123",
        "retired_pages": {"single_bit": 0, "double_bit": 0, "pending": false},
    });
    let all = gpu.as_object_mut().unwrap();
    all.extend(but.as_object().unwrap().clone());
    gpu
}

#[test]
fn each_reading_has_value_or_reason() {
    let cases = cases();
    let test_box = TestBox::new();
    let gpus: Vec<Value> = cases.iter().map(|(gpu, ..)| gpu_with(gpu)).collect();
    test_box.set_driver_state(&json!({"gpus": gpus}));
    let daemon = test_box.start();

    let reasons = |list: &Value| -> Vec<Value> {
        let gpus = list["gpus"].as_array().unwrap();
        gpus.iter().map(super::reasons).collect()
    };
    let expected: Vec<Value> = cases
        .iter()
        .map(|(_, fields, _, why)| fields.iter().map(|field| (*field, *why)).collect())
        .collect();
    eventually_equals(&expected, || reasons(&test_box.list()));

    let list = test_box.list();
    for (index, (gpu, fields, ..)) in cases.iter().enumerate() {
        for field in *fields {
            let found = &list["gpus"][index][field];
            assert!(found.is_null(), "{gpu}: {field} is {found}");
        }
    }
    let broken: Vec<(String, String)> = cases
        .iter()
        .enumerate()
        .filter(|(_, (_, _, part, _))| !part.is_empty())
        .map(|(index, (_, _, part, why))| {
            let why = why.trim_start_matches("failed: ");
            (format!("GPU {index}"), format!("{part}: {why}"))
        })
        .collect();
    eventually_equals(&sorted(broken.clone()), || test_box.faults());

    let status = test_box.ctl(&["status"]).stdout;
    for (part, what) in broken {
        let line = status
            .lines()
            .find(|line| line.starts_with(&format!(" {part} ")) && line.ends_with(&what))
            .unwrap_or_else(|| panic!("no {part}: {what} in\n{status}"));
        assert!(line.contains("fault since "), "{line}");
    }
    daemon.stop();
}

fn sorted<T: Ord>(mut of: Vec<T>) -> Vec<T> {
    of.sort();
    of
}

#[test]
fn table_separates_unsupported_failed_and_zero() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [
        {"name": "there"},
        {
            "name": "not supported", "utilization": null, "temperature": null,
            "power_mw": null, "ecc": null,
        },
        {"name": "failed", "errors": {
            "nvmlDeviceGetUtilizationRates": 999, "nvmlDeviceGetTemperature": 999,
            "nvmlDeviceGetPowerUsage": 999, "nvmlDeviceGetTotalEccErrors": 999,
            "nvmlDeviceGetMemoryInfo_v2": 999,
        }},
    ]}));
    let daemon = test_box.start();
    let expected = [
        " GPU  NAME                          MEMORY  UTIL  TEMP    POWER  ECC  PROCS  TOP PROCESS",
        "   0  there          ░░░░░░░░░░  0.0/80.0G    0%   30°  70/700W    0      0  –",
        "   1  not supported  ░░░░░░░░░░  0.0/80.0G   n/a   n/a      n/a  n/a      0  –",
        "  !2  failed                             ?     ?     ?        ?    ?      0  –",
        "",
        "1 fault: gpukillctl status",
        "",
    ]
    .join("\n");
    eventually_equals(&expected, || test_box.table(&["list"]));
    daemon.stop();
}

#[test]
fn fault_keeps_its_time_with_changing_number() {
    let test_box = TestBox::new();
    let absurd = |percent: u64, used: u64, mark: u64| {
        json!({"gpus": [{
            "utilization": {"gpu": percent}, "memory": {"total": 8u64 << 30, "used": used},
            "power_mw": mark * 1000,
        }]})
    };
    test_box.set_driver_state(&absurd(200, 9 << 30, 1));
    let daemon = test_box.start();
    let memory = || {
        let list = test_box.list();
        let faults = list["faults"].as_array().unwrap().clone();
        let fault = faults.into_iter().find(|fault| {
            fault["what"]
                .as_str()
                .is_some_and(|what| what.starts_with("memory"))
        });
        (list["gpus"][0]["power_w"].clone(), fault)
    };
    eventually_equals(&json!(1.0), || memory().0);
    let (_, first) = memory();
    test_box.set_driver_state(&absurd(200, 10 << 30, 2));
    eventually_equals(&json!(2.0), || memory().0);
    assert!(first.is_some());
    assert_eq!(memory().1, first);
    // The reason has the current number.
    let why = test_box.list()["gpus"][0]["reasons"]["mem_used_mb"].clone();
    assert!(why.as_str().unwrap().contains("10240 MiB used"), "{why}");
    daemon.stop();
}

#[test]
fn set_power_limit_is_the_fallback() {
    let test_box = TestBox::new();
    let limit = |code: u32| json!({"power_limit_mw": 450_000, "errors": {"nvmlDeviceGetEnforcedPowerLimit": code}});
    test_box.set_driver_state(&json!({"gpus": [limit(3), limit(13), limit(999)]}));
    let daemon = test_box.start();
    let shown = || -> Vec<Value> {
        let list = test_box.list();
        let gpus = list["gpus"].as_array().unwrap().iter();
        gpus.map(|gpu| gpu["power_limit_w"].clone()).collect()
    };
    eventually_equals(&vec![json!(450.0), json!(450.0), Value::Null], shown);
    let table = test_box.table(&["list"]);
    assert!(
        table.lines().nth(1).unwrap().contains(" 70/450W "),
        "{table}"
    );
    daemon.stop();
}
