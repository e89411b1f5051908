//! What the driver says, what it does not say, and how it breaks: through the
//! real daemon, over the stand-in NVML.

use serde_json::Value;

mod alerts;

mod codes;

mod divided;

mod events;

mod getters;

mod gone;

mod library;

mod lists;

mod lost;

mod memory;

mod names;

mod processes;

mod quiesce;

mod sensor;

mod vitals;

/// What only other vendors' GPUs tell.
const OF_OTHERS: [&str; 8] = [
    "bad_pages",
    "compute_partition",
    "fan_rpm",
    "gtt_total_bytes",
    "gtt_used_bytes",
    "hotspot_temp_c",
    "memory_partition",
    "suspended",
];

/// Why values of this GPU are not there, but for those that no GPU of NVIDIA
/// has.
fn reasons(gpu: &Value) -> Value {
    let mut reasons = gpu["reasons"].clone();
    for field in OF_OTHERS {
        let reason = reasons.as_object_mut().unwrap().remove(field);
        assert_eq!(reason, Some(Value::from("unsupported")), "{field}");
    }
    reasons
}
