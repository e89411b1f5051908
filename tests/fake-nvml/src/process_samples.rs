//! The recent GPU utilization of processes (`nvmlDeviceGetProcessUtilization`).

use std::ffi::{c_uint, c_ulonglong};

use crate::clock::microseconds_now;
use crate::code::Code;
use crate::export::gpu_functions;
use crate::layout::ProcessSample;
use crate::out::put_growing_list;
use crate::state::{Gpu, Process, UtilizationSample};

gpu_functions! {
    fn nvmlDeviceGetProcessUtilization(
        gpu; list: *mut ProcessSample, count: Option<&mut c_uint>, last_seen: c_ulonglong
    ) {
        if !gpu.undivided()?.process_utilization {
            return Err(Code::NOT_SUPPORTED);
        }
        let samples = samples_since(last_seen, gpu, microseconds_now());
        if samples.is_empty() {
            // The normal answer of an idle GPU is not an empty success.
            return Err(Code::NOT_FOUND);
        }
        // SAFETY: nvml.h requires the caller to pass room for `count` items at `list`.
        unsafe { put_growing_list(gpu, &samples, count, list) }
    }
}

/// The samples newer than `last_seen`: first those of the processes, each taken at the time of the
/// call, then those of the state file, which may have any time.
fn samples_since(last_seen: u64, gpu: &Gpu, now: u64) -> Vec<ProcessSample> {
    let of_processes = gpu
        .processes
        .iter()
        .filter_map(|process| process_sample(process, now));
    let of_state_file = gpu.samples.iter().map(|sample| state_sample(sample, now));
    of_processes
        .chain(of_state_file)
        .filter(|sample| sample.timestamp > last_seen)
        .collect()
}

fn process_sample(process: &Process, now: u64) -> Option<ProcessSample> {
    Some(ProcessSample {
        pid: process.pid,
        timestamp: now,
        sm: process.sm?,
        memory: process.mem_util,
        encoder: process.enc,
        decoder: process.dec,
    })
}

fn state_sample(sample: &UtilizationSample, now: u64) -> ProcessSample {
    ProcessSample {
        pid: sample.pid,
        timestamp: now.saturating_add_signed(sample.age_us.saturating_neg()),
        sm: sample.sm,
        memory: sample.mem,
        encoder: sample.enc,
        decoder: sample.dec,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(text: &str) -> Gpu {
        serde_json::from_str(text).expect("a GPU")
    }

    fn busy() -> Gpu {
        gpu(r#"{"processes": [
            {"pid": 7, "sm": 97, "mem_util": 40, "enc": 3, "dec": 2}, {"pid": 8}]}"#)
    }

    #[test]
    fn only_busy_processes_have_a_sample() {
        assert_eq!(
            samples_since(0, &busy(), 1000),
            [ProcessSample {
                pid: 7,
                timestamp: 1000,
                sm: 97,
                memory: 40,
                encoder: 3,
                decoder: 2
            }]
        );
    }

    #[test]
    fn only_newer_samples_are_returned() {
        let count = |last_seen| samples_since(last_seen, &busy(), 1000).len();
        assert_eq!([999, 1000, 1001].map(count), [1, 0, 0]);
    }

    #[test]
    fn state_file_samples_are_returned_unchanged() {
        let gpu = gpu(r#"{"processes": [{"pid": 7, "sm": 1}], "samples": [
            {"pid": 4294967295, "sm": 4000, "mem": 5000, "enc": 6000, "dec": 7000, "age_us": 10},
            {"pid": 9, "age_us": -10}, {"pid": 10, "age_us": 501}]}"#);
        let garbage = ProcessSample {
            pid: u32::MAX,
            timestamp: 990,
            sm: 4000,
            memory: 5000,
            encoder: 6000,
            decoder: 7000,
        };
        let samples = samples_since(500, &gpu, 1000);
        assert_eq!(samples[1], garbage);
        let when = |sample: &ProcessSample| (sample.pid, sample.timestamp);
        assert_eq!(
            samples.iter().map(when).collect::<Vec<_>>(),
            [(7, 1000), (u32::MAX, 990), (9, 1010)]
        );
    }
}
