//! Reads the recent GPU utilization of processes. The driver keeps a buffer of samples, and returns
//! those that are newer than a given time.

use super::codes::failed_reading;
use super::ranges::percent;
use crate::backend::Utilization;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Percent, Timestamp};
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample as Sample;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time up to which the samples of each GPU have been read.
#[derive(Default)]
pub(super) struct SampleWindows(BTreeMap<DeviceId, SampleWindow>);

/// One GPU's newest samples. Times are microseconds since 1970, as the driver reports them.
struct SampleWindow {
    /// The time of the newest sample.
    newest: u64,
    samples: Vec<Sample>,
    /// When they were read.
    read_at: u64,
}

/// The maximum sample period of the driver (nvml.h: "between 1 second and 1/6 second"). The first
/// request looks back this far, and polls within it reuse the last answer.
const SAMPLE_PERIOD_US: u64 = 1_000_000;

/// How long a sample shows the current activity of a process; with longer intervals the driver
/// returns older ones too, which only show when the process was last busy.
const MAX_AGE_US: u64 = 3 * SAMPLE_PERIOD_US;

/// How many times a call is tried while the samples grow between the count and the read.
const MAX_TRIES: u32 = 4;

/// The current samples of one GPU.
pub(super) struct UtilizationSamples {
    samples: Result<Vec<Sample>, NvmlError>,
    now: u64,
}

impl SampleWindows {
    pub(super) fn read_samples(
        &mut self,
        device: &Device<'_>,
        id: &DeviceId,
    ) -> UtilizationSamples {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let window = self.window_at(id, now);
        let since = window.newest;
        let answer = match retry(|| device.process_utilization_stats(since)) {
            // No process had any use since then: the normal answer of an idle GPU.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            other => other,
        };
        UtilizationSamples {
            samples: answer.map(|answer| window.add_answer(answer, now)),
            now,
        }
    }

    fn window_at(&mut self, id: &DeviceId, now: u64) -> &mut SampleWindow {
        let window = self
            .0
            .entry(id.clone())
            .or_insert(SampleWindow::starting_at(now));
        if window.newest > now {
            // The clock was set back: otherwise no sample would be new for that long.
            *window = SampleWindow::starting_at(now);
        }
        window
    }

    /// Forgets every other GPU.
    pub(super) fn keep_only(&mut self, is_present: impl Fn(&DeviceId) -> bool) {
        self.0.retain_entries(|id, _| is_present(id));
    }
}

impl UtilizationSamples {
    /// The utilization of this process. If it is missing from a successful answer it is truly zero.
    pub(super) fn utilization_of(&self, pid: u32) -> Utilization {
        let samples = match &self.samples {
            Ok(samples) => samples,
            Err(error) => return Utilization::unknown(&failed_reading(error)),
        };
        let sample = newest_sample(samples, pid);
        let at = |sample: &Sample| i64::try_from(sample.timestamp / 1000).ok().map(Timestamp);
        let is_old = |sample: &Sample| self.now.saturating_sub(sample.timestamp) > MAX_AGE_US;
        let Some(sample) = sample.filter(|sample| !is_old(sample)) else {
            let zero = || Reading::Value(Percent(0));
            return Utilization {
                sm: zero(),
                memory: zero(),
                encoder: zero(),
                decoder: zero(),
                sampled_at: sample.and_then(at),
            };
        };
        Utilization {
            sm: percent(sample.sm_util),
            memory: percent(sample.mem_util),
            encoder: percent(sample.enc_util),
            decoder: percent(sample.dec_util),
            sampled_at: at(sample),
        }
    }
}

impl SampleWindow {
    fn starting_at(now: u64) -> Self {
        Self {
            newest: now.saturating_sub(SAMPLE_PERIOD_US),
            samples: Vec::new(),
            read_at: 0,
        }
    }

    /// The samples at `now`, after this answer. An answer without samples means zero only when the
    /// driver has had time for a new one.
    fn add_answer(&mut self, answer: Vec<Sample>, now: u64) -> Vec<Sample> {
        // A sample from the future would hide all later ones.
        let soon = now.saturating_add(SAMPLE_PERIOD_US);
        let new = |sample: &Sample| sample.timestamp > self.newest && sample.timestamp <= soon;
        let samples: Vec<_> = answer.into_iter().filter(new).collect();
        match samples.iter().map(|sample| sample.timestamp).max() {
            Some(newest) => {
                self.newest = newest;
                self.read_at = now;
                self.samples = samples;
            }
            None if now.saturating_sub(self.read_at) > SAMPLE_PERIOD_US => self.samples.clear(),
            None => {}
        }
        self.samples.clone()
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    for _ in 1..MAX_TRIES {
        match call() {
            Err(NvmlError::InsufficientSize(_)) => {}
            other => return other,
        }
    }
    call()
}

/// The newest sample of a process.
fn newest_sample(samples: &[Sample], pid: u32) -> Option<&Sample> {
    let own = samples.iter().filter(|sample| sample.pid == pid);
    own.max_by_key(|sample| sample.timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, timestamp: u64, sm_util: u32) -> Sample {
        Sample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        }
    }

    fn busy(samples: &[Sample], pid: u32) -> Option<u32> {
        newest_sample(samples, pid).map(|sample| sample.sm_util)
    }

    #[test]
    fn newest_sample_counts() {
        let samples = [
            sample(7, 10, 99),
            sample(7, 30, 5),
            sample(8, 40, 50),
            sample(7, 20, 80),
        ];
        assert_eq!(busy(&samples, 7), Some(5));
        assert_eq!(busy(&samples, 9), None);
    }

    #[test]
    fn missing_sample_is_idle() {
        let answered = UtilizationSamples {
            samples: Ok(vec![
                sample(7, 20_000_000, 97),
                sample(8, 20_000_000, 4000),
                sample(6, 2_000_000, 97),
            ]),
            now: 20_500_000,
        };
        assert_eq!(answered.utilization_of(7).sm, Reading::Value(Percent(97)));
        assert_eq!(
            answered.utilization_of(7).sampled_at,
            Some(Timestamp(20_000))
        );
        assert_eq!(answered.utilization_of(9).sm, Reading::Value(Percent(0)));
        assert_eq!(answered.utilization_of(9).sampled_at, None);
        assert_eq!(answered.utilization_of(8).sm.known(), None);
        // A process that was busy a while ago is idle now.
        assert_eq!(answered.utilization_of(6).sm, Reading::Value(Percent(0)));
        assert_eq!(
            answered.utilization_of(6).sampled_at,
            Some(Timestamp(2_000))
        );
        let silent = UtilizationSamples {
            samples: Err(NvmlError::NotSupported),
            now: 20_500_000,
        };
        assert_eq!(silent.utilization_of(7).sm, Reading::Unsupported);
    }

    #[test]
    fn fast_polls_reuse_the_last_answer() {
        let sample = |timestamp| sample(7, timestamp, 97);
        let second = SAMPLE_PERIOD_US;
        let mut window = SampleWindow::starting_at(10 * second);
        let busy = |samples: Vec<_>| busy(&samples, 7);
        assert_eq!(
            busy(window.add_answer(vec![sample(10 * second)], 10 * second)),
            Some(97)
        );
        assert_eq!(
            busy(window.add_answer(Vec::new(), 10 * second + second / 2)),
            Some(97)
        );
        // The same sample again is not new.
        assert_eq!(
            busy(window.add_answer(vec![sample(10 * second)], 12 * second)),
            None
        );
        // A sample from far in the future does not hide the next.
        assert_eq!(
            busy(window.add_answer(vec![sample(99 * second)], 12 * second)),
            None
        );
        assert_eq!(
            busy(window.add_answer(vec![sample(13 * second)], 13 * second)),
            Some(97)
        );
    }

    #[test]
    fn clock_set_back_hides_no_sample() {
        let second = SAMPLE_PERIOD_US;
        let (mut windows, id) = (SampleWindows::default(), DeviceId("GPU-0".into()));
        let mut at = |now, answer| {
            let window = windows.window_at(&id, now);
            let asked_since = window.newest;
            (asked_since, busy(&window.add_answer(answer, now), 7))
        };
        let (then, back) = (100 * second, 40 * second);
        assert_eq!(at(then, vec![sample(7, then, 97)]), (99 * second, Some(97)));
        // The last sample has a time that is still to come.
        assert_eq!(at(back, vec![sample(7, back, 5)]), (39 * second, Some(5)));
        let next = back + second;
        assert_eq!(at(next, vec![sample(7, next, 6)]), (back, Some(6)));
    }

    #[test]
    fn growing_samples_are_retried() {
        let mut calls = 0;
        let result = retry(|| {
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
