//! The clock of NVML's samples and field values: the CPU's, in microseconds.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn microseconds_now() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}
