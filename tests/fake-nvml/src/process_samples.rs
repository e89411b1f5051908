//! How much of a GPU each process used lately (`nvmlDeviceGetProcessUtilization`).

use std::ffi::{c_uint, c_ulonglong};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::code::Code;
use crate::export::gpu_functions;
use crate::layout::ProcessSample;
use crate::out::put_list;
use crate::state::Process;

gpu_functions! {
    fn nvmlDeviceGetProcessUtilization(
        gpu; list: *mut ProcessSample, count: Option<&mut c_uint>, last_seen: c_ulonglong
    ) {
        if !gpu.process_utilization {
            return Err(Code::NOT_SUPPORTED);
        }
        let samples = samples_since(last_seen, &gpu.processes, microseconds_now());
        if samples.is_empty() {
            // The normal answer of an idle GPU, and not an empty success.
            return Err(Code::NOT_FOUND);
        }
        // SAFETY: nvml.h has the caller pass room for `count` items at `list`.
        unsafe { put_list(&samples, count, list) }
    }
}

/// The samples newer than `last_seen`. Each is taken as it is asked for, so there is one per
/// process, and none only if the caller claims to have seen this very moment.
fn samples_since(last_seen: u64, processes: &[Process], now: u64) -> Vec<ProcessSample> {
    let sample = |process: &Process| {
        Some(ProcessSample {
            pid: process.pid,
            timestamp: now,
            sm: process.sm?,
            memory: process.mem_util,
            encoder: 0,
            decoder: 0,
        })
    };
    if now <= last_seen {
        Vec::new()
    } else {
        processes.iter().filter_map(sample).collect()
    }
}

/// The CPU's clock, which NVML stamps samples with.
fn microseconds_now() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes() -> Vec<Process> {
        serde_json::from_str(r#"[{"pid": 7, "sm": 97, "mem_util": 40}, {"pid": 8}]"#)
            .expect("two processes")
    }

    #[test]
    fn a_process_with_a_share_has_one_sample_stamped_now_and_one_without_has_none() {
        assert_eq!(
            samples_since(0, &processes(), 1000),
            [ProcessSample {
                pid: 7,
                timestamp: 1000,
                sm: 97,
                memory: 40,
                encoder: 0,
                decoder: 0
            }]
        );
    }

    #[test]
    fn only_samples_newer_than_the_last_seen_are_given() {
        let count = |last_seen| samples_since(last_seen, &processes(), 1000).len();
        assert_eq!([999, 1000, 1001].map(count), [1, 0, 0]);
    }
}
