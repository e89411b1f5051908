//! The processes of one GPU: three lists merged, and each one's utilisation.

use super::translate::{self, failure};
use crate::backend::ProcessReadings;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, Use};
use gpukill_proto::units::{Bytes, Percent};
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Until when each GPU's utilisation samples have been seen: the driver keeps a
/// buffer, and without this it would answer with old ones again and again.
#[derive(Default)]
pub(super) struct UtilizationWindows(BTreeMap<DeviceId, Window>);

/// One GPU's newest samples. Times are microseconds since 1970, as the driver
/// gives them.
struct Window {
    /// The time of the newest sample.
    seen: u64,
    samples: Vec<ProcessUtilizationSample>,
    /// When they came.
    taken: u64,
}

/// The driver takes a sample at least so often (nvml.h: "between 1 second and
/// 1/6 second"). The first question looks so far back, and polls that come
/// faster see the last answer again.
const SAMPLE_PERIOD_US: u64 = 1_000_000;

/// How often a list may grow between its size and its contents being asked.
const TRIES: u32 = 4;

impl UtilizationWindows {
    /// The processes of this GPU.
    pub(super) fn processes(
        &mut self,
        device: &Device<'_>,
        id: &DeviceId,
    ) -> Reading<Vec<ProcessReadings>> {
        let lists = [
            (
                Use {
                    compute: true,
                    ..Use::default()
                },
                retried(|| device.running_compute_processes()),
            ),
            (
                Use {
                    graphics: true,
                    ..Use::default()
                },
                retried(|| device.running_graphics_processes()),
            ),
            (
                Use {
                    mps: true,
                    ..Use::default()
                },
                retried(|| device.mps_running_compute_processes()),
            ),
        ];
        let merged = match merge(lists) {
            Ok(merged) => merged,
            Err(error) => return failure(&error),
        };
        let samples = self.samples(device, id);
        let processes = merged
            .into_iter()
            .map(|(pid, (used_for, memory))| {
                let utilization = match &samples {
                    // Absent from an answer that came is a true zero.
                    Ok(samples) => {
                        latest(samples, pid).map_or(Reading::Value(Percent(0)), translate::percent)
                    }
                    Err(error) => failure(error),
                };
                ProcessReadings {
                    pid,
                    used_for,
                    memory,
                    utilization,
                }
            })
            .collect();
        Reading::Value(processes)
    }

    fn samples(
        &mut self,
        device: &Device<'_>,
        id: &DeviceId,
    ) -> Result<Vec<ProcessUtilizationSample>, NvmlError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let window = self.0.entry(id.clone()).or_insert(Window::opening(now));
        if window.seen > now {
            // The clock was set back: nothing would be new for as long.
            *window = Window::opening(now);
        }
        let seen = window.seen;
        let answer = match retried(|| device.process_utilization_stats(seen)) {
            // No process had any use since then: the normal answer of an idle GPU.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            other => other,
        };
        Ok(window.take(answer?, now))
    }
}

impl Window {
    fn opening(now: u64) -> Self {
        Self {
            seen: now.saturating_sub(SAMPLE_PERIOD_US),
            samples: Vec::new(),
            taken: 0,
        }
    }

    /// What is known at `now`, after this answer. An answer without samples is
    /// a true zero only when the driver has had time for a new one.
    fn take(
        &mut self,
        answer: Vec<ProcessUtilizationSample>,
        now: u64,
    ) -> Vec<ProcessUtilizationSample> {
        // A sample from the future would hide all that follow.
        let soon = now.saturating_add(SAMPLE_PERIOD_US);
        let new = |sample: &ProcessUtilizationSample| {
            sample.timestamp > self.seen && sample.timestamp <= soon
        };
        let samples: Vec<_> = answer.into_iter().filter(new).collect();
        match samples.iter().map(|sample| sample.timestamp).max() {
            Some(newest) => {
                self.seen = newest;
                self.taken = now;
                self.samples = samples;
            }
            None if now.saturating_sub(self.taken) > SAMPLE_PERIOD_US => self.samples.clear(),
            None => {}
        }
        self.samples.clone()
    }
}

fn retried<T>(mut call: impl FnMut() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    for _ in 1..TRIES {
        match call() {
            Err(NvmlError::InsufficientSize(_)) => {}
            other => return other,
        }
    }
    call()
}

/// The newest sample of a process.
fn latest(samples: &[ProcessUtilizationSample], pid: u32) -> Option<u32> {
    let own = samples.iter().filter(|sample| sample.pid == pid);
    own.max_by_key(|sample| sample.timestamp)
        .map(|sample| sample.sm_util)
}

type Lists = [(Use, Result<Vec<ProcessInfo>, NvmlError>); 3];

/// A pid, its GPU instance and its compute instance.
type Place = (u32, Option<u32>, Option<u32>);

/// Each process once. One that is in several lists holds its memory once; one
/// in several MIG instances holds memory in each.
///
/// A list that this GPU or driver does not have is empty. Any other failure of
/// a list fails the whole: half of the processes would look like all of them.
fn merge(lists: Lists) -> Result<BTreeMap<u32, (Use, Reading<Bytes>)>, NvmlError> {
    let mut parts: BTreeMap<Place, (Use, Reading<Bytes>)> = BTreeMap::new();
    let mut supported = false;
    let mut unsupported = None;
    for (used_for, list) in lists {
        let list = match list {
            Ok(list) => list,
            Err(error) => match failure::<()>(&error) {
                Reading::Unsupported => {
                    unsupported = Some(error);
                    continue;
                }
                _ => return Err(error),
            },
        };
        supported = true;
        for process in list {
            let place = (
                process.pid,
                process.gpu_instance_id,
                process.compute_instance_id,
            );
            let memory = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Reading::Value(Bytes(bytes)),
                UsedGpuMemory::Unavailable => Reading::Unsupported,
            };
            let part = parts
                .entry(place)
                .or_insert((Use::default(), Reading::Unsupported));
            part.0 = either(part.0, used_for);
            part.1 = larger(&part.1, memory);
        }
    }
    if let (false, Some(error)) = (supported, unsupported) {
        return Err(error);
    }
    let mut whole: BTreeMap<u32, (Use, Reading<Bytes>)> = BTreeMap::new();
    for ((pid, _, _), (used_for, memory)) in parts {
        whole
            .entry(pid)
            .and_modify(|sum| {
                sum.0 = either(sum.0, used_for);
                sum.1 = added(&sum.1, &memory);
            })
            .or_insert((used_for, memory));
    }
    Ok(whole)
}

fn either(a: Use, b: Use) -> Use {
    Use {
        compute: a.compute || b.compute,
        graphics: a.graphics || b.graphics,
        mps: a.mps || b.mps,
    }
}

fn larger(a: &Reading<Bytes>, b: Reading<Bytes>) -> Reading<Bytes> {
    match (a.known(), b.known()) {
        (Some(known), Some(other)) => Reading::Value(*known.max(other)),
        (Some(known), None) => Reading::Value(*known),
        (None, _) => b,
    }
}

/// A sum with an unknown part is unknown.
fn added(a: &Reading<Bytes>, b: &Reading<Bytes>) -> Reading<Bytes> {
    match (a.known(), b.known()) {
        (Some(a), Some(b)) => Reading::Value(Bytes(a.0.saturating_add(b.0))),
        _ => Reading::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, used_gpu_memory: UsedGpuMemory, instance: Option<u32>) -> ProcessInfo {
        ProcessInfo {
            pid,
            used_gpu_memory,
            gpu_instance_id: instance,
            compute_instance_id: instance,
        }
    }

    fn lists(
        compute: Result<Vec<ProcessInfo>, NvmlError>,
        graphics: Result<Vec<ProcessInfo>, NvmlError>,
        mps: Result<Vec<ProcessInfo>, NvmlError>,
    ) -> Lists {
        let none = Use::default();
        [
            (
                Use {
                    compute: true,
                    ..none
                },
                compute,
            ),
            (
                Use {
                    graphics: true,
                    ..none
                },
                graphics,
            ),
            (Use { mps: true, ..none }, mps),
        ]
    }

    use UsedGpuMemory::{Unavailable, Used};

    #[test]
    fn a_process_in_two_lists_holds_its_memory_once() {
        let merged = merge(lists(
            Ok(vec![process(7, Used(100), None)]),
            Ok(vec![process(7, Used(100), None), process(8, Used(5), None)]),
            Err(NvmlError::NotSupported),
        ))
        .unwrap();
        let (used_for, memory) = &merged[&7];
        assert!(used_for.compute && used_for.graphics && !used_for.mps);
        assert_eq!(memory, &Reading::Value(Bytes(100)));
        assert_eq!(merged[&8].1, Reading::Value(Bytes(5)));
    }

    #[test]
    fn a_process_in_two_mig_instances_holds_memory_in_both() {
        let merged = merge(lists(
            Ok(vec![
                process(7, Used(100), Some(1)),
                process(7, Used(50), Some(2)),
            ]),
            Ok(vec![]),
            Ok(vec![]),
        ));
        assert_eq!(merged.unwrap()[&7].1, Reading::Value(Bytes(150)));
    }

    #[test]
    fn memory_the_driver_cannot_tell_is_unknown_and_never_zero() {
        let alone = merge(lists(
            Ok(vec![process(7, Unavailable, None)]),
            Ok(vec![]),
            Ok(vec![]),
        ));
        assert_eq!(alone.unwrap()[&7].1, Reading::Unsupported);
        let told_once = merge(lists(
            Ok(vec![process(7, Unavailable, None)]),
            Ok(vec![process(7, Used(3), None)]),
            Ok(vec![]),
        ));
        assert_eq!(told_once.unwrap()[&7].1, Reading::Value(Bytes(3)));
    }

    #[test]
    fn a_list_that_failed_fails_the_whole_and_lists_that_do_not_exist_do_not() {
        assert!(merge(lists(Ok(vec![]), Err(NvmlError::Unknown), Ok(vec![]))).is_err());
        assert!(
            merge(lists(
                Ok(vec![]),
                Err(NvmlError::NotSupported),
                Err(NvmlError::NotSupported)
            ))
            .is_ok()
        );
        let none = || Err(NvmlError::NotSupported);
        assert!(matches!(
            merge(lists(none(), none(), none())),
            Err(NvmlError::NotSupported)
        ));
    }

    #[test]
    fn the_newest_sample_of_a_process_counts() {
        let sample = |pid, timestamp, sm_util| ProcessUtilizationSample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let samples = [
            sample(7, 10, 99),
            sample(7, 30, 5),
            sample(8, 40, 50),
            sample(7, 20, 80),
        ];
        assert_eq!(latest(&samples, 7), Some(5));
        assert_eq!(latest(&samples, 9), None);
    }

    #[test]
    fn polls_faster_than_the_driver_samples_see_the_last_answer_and_no_zero() {
        let sample = |timestamp| ProcessUtilizationSample {
            pid: 7,
            timestamp,
            sm_util: 97,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let second = SAMPLE_PERIOD_US;
        let mut window = Window::opening(10 * second);
        let busy = |samples: Vec<_>| latest(&samples, 7);
        assert_eq!(
            busy(window.take(vec![sample(10 * second)], 10 * second)),
            Some(97)
        );
        assert_eq!(
            busy(window.take(Vec::new(), 10 * second + second / 2)),
            Some(97)
        );
        // An old sample again is no news.
        assert_eq!(
            busy(window.take(vec![sample(10 * second)], 12 * second)),
            None
        );
        // One from far in the future does not hide the next.
        assert_eq!(
            busy(window.take(vec![sample(99 * second)], 12 * second)),
            None
        );
        assert_eq!(
            busy(window.take(vec![sample(13 * second)], 13 * second)),
            Some(97)
        );
    }

    #[test]
    fn a_list_that_grows_between_two_calls_is_asked_again() {
        let mut calls = 0;
        let result = retried(|| {
            calls += 1;
            if calls < 3 {
                Err(NvmlError::InsufficientSize(None))
            } else {
                Ok(calls)
            }
        });
        assert_eq!(result.ok(), Some(3));
    }
}
