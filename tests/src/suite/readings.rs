//! Readings of the driver, missing readings, and driver failures: through the real daemon,
//! over the stand-in NVML.

use serde_json::Value;

mod alerts;
mod events;
mod getters;
mod library;
mod lost_gpus;
mod memory;
mod mig;
mod missing_gpus;
mod process_lists;
mod processes;
mod quiesce;
mod return_codes;
mod vitals;
mod without_nvml;

/// Fields that only GPUs of other vendors have.
const FIELDS_OF_OTHER_VENDORS: [&str; 8] = [
    "bad_pages",
    "compute_partition",
    "fan_rpm",
    "gtt_total_bytes",
    "gtt_used_bytes",
    "hotspot_temp_c",
    "memory_partition",
    "suspended",
];

/// The reasons of missing values of this GPU, without fields that no NVIDIA GPU has.
fn reasons(gpu: &Value) -> Value {
    let mut reasons = gpu["reasons"].clone();
    for field in FIELDS_OF_OTHER_VENDORS {
        let reason = reasons.as_object_mut().unwrap().remove(field);
        assert_eq!(reason, Some(Value::from("unsupported")), "{field}");
    }
    reasons
}
