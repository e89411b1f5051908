//! Which process used a GPU lately. The driver keeps a buffer of samples, and
//! answers with those that are newer than what it is asked for.

use super::codes::failure;
use super::plausible::percent;
use crate::backend::Utilization;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::{Percent, Timestamp};
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample as Sample;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Until when each GPU's samples have been seen.
#[derive(Default)]
pub(super) struct Windows(BTreeMap<DeviceId, Window>);

/// One GPU's newest samples. Times are microseconds since 1970, as the driver
/// gives them.
struct Window {
    /// The time of the newest sample.
    seen: u64,
    samples: Vec<Sample>,
    /// When they came.
    taken: u64,
}

/// The driver takes a sample at least so often (nvml.h: "between 1 second and
/// 1/6 second"). The first question looks so far back, and polls that come
/// faster see the last answer again.
const SAMPLE_PERIOD_US: u64 = 1_000_000;

/// A sample says what a process does now for so long; with longer intervals the
/// driver tells of older ones too, and those only tell when it was last busy.
const OLD_US: u64 = 3 * SAMPLE_PERIOD_US;

/// How often the samples may grow between their number and themselves being
/// asked for.
const TRIES: u32 = 4;

/// The samples of one GPU, as of now.
pub(super) struct Samples {
    samples: Result<Vec<Sample>, NvmlError>,
    now: u64,
}

impl Windows {
    pub(super) fn samples(&mut self, device: &Device<'_>, id: &DeviceId) -> Samples {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let window = self.at(id, now);
        let seen = window.seen;
        let answer = match retried(|| device.process_utilization_stats(seen)) {
            // No process had any use since then: the normal answer of an idle GPU.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            other => other,
        };
        Samples {
            samples: answer.map(|answer| window.take(answer, now)),
            now,
        }
    }

    fn at(&mut self, id: &DeviceId, now: u64) -> &mut Window {
        let window = self.0.entry(id.clone()).or_insert(Window::opening(now));
        if window.seen > now {
            // The clock was set back: nothing would be new for as long.
            *window = Window::opening(now);
        }
        window
    }

    /// Forgets every GPU but these.
    pub(super) fn keep_only(&mut self, is_here: impl Fn(&DeviceId) -> bool) {
        self.0.retain(|id, _| is_here(id));
    }
}

impl Samples {
    /// What share this process had. Absent from an answer that came is a true
    /// zero.
    pub(super) fn of(&self, pid: u32) -> Utilization {
        let samples = match &self.samples {
            Ok(samples) => samples,
            Err(error) => return Utilization::unknown(&failure(error)),
        };
        let sample = latest(samples, pid);
        let at = |sample: &Sample| i64::try_from(sample.timestamp / 1000).ok().map(Timestamp);
        let is_old = |sample: &Sample| self.now.saturating_sub(sample.timestamp) > OLD_US;
        let Some(sample) = sample.filter(|sample| !is_old(sample)) else {
            let zero = || Reading::Value(Percent(0));
            return Utilization {
                sm: zero(),
                memory: zero(),
                encoder: zero(),
                decoder: zero(),
                at: sample.and_then(at),
            };
        };
        Utilization {
            sm: percent(sample.sm_util),
            memory: percent(sample.mem_util),
            encoder: percent(sample.enc_util),
            decoder: percent(sample.dec_util),
            at: at(sample),
        }
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
    fn take(&mut self, answer: Vec<Sample>, now: u64) -> Vec<Sample> {
        // A sample from the future would hide all that follow.
        let soon = now.saturating_add(SAMPLE_PERIOD_US);
        let new = |sample: &Sample| sample.timestamp > self.seen && sample.timestamp <= soon;
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
fn latest(samples: &[Sample], pid: u32) -> Option<&Sample> {
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
        latest(samples, pid).map(|sample| sample.sm_util)
    }

    #[test]
    fn the_newest_sample_of_a_process_counts() {
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
    fn a_process_without_a_sample_is_idle_and_one_without_an_answer_is_unknown() {
        let answered = Samples {
            samples: Ok(vec![
                sample(7, 20_000_000, 97),
                sample(8, 20_000_000, 4000),
                sample(6, 2_000_000, 97),
            ]),
            now: 20_500_000,
        };
        assert_eq!(answered.of(7).sm, Reading::Value(Percent(97)));
        assert_eq!(answered.of(7).at, Some(Timestamp(20_000)));
        assert_eq!(answered.of(9).sm, Reading::Value(Percent(0)));
        assert_eq!(answered.of(9).at, None);
        assert_eq!(answered.of(8).sm.known(), None);
        // Busy a while ago is idle now.
        assert_eq!(answered.of(6).sm, Reading::Value(Percent(0)));
        assert_eq!(answered.of(6).at, Some(Timestamp(2_000)));
        let silent = Samples {
            samples: Err(NvmlError::NotSupported),
            now: 20_500_000,
        };
        assert_eq!(silent.of(7).sm, Reading::Unsupported);
    }

    #[test]
    fn polls_faster_than_the_driver_samples_see_the_last_answer_and_no_zero() {
        let sample = |timestamp| sample(7, timestamp, 97);
        let second = SAMPLE_PERIOD_US;
        let mut window = Window::opening(10 * second);
        let busy = |samples: Vec<_>| busy(&samples, 7);
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
    fn a_clock_that_is_set_back_hides_no_sample_of_then() {
        let second = SAMPLE_PERIOD_US;
        let (mut windows, id) = (Windows::default(), DeviceId("GPU-0".into()));
        let mut at = |now, answer| {
            let window = windows.at(&id, now);
            let asked_since = window.seen;
            (asked_since, busy(&window.take(answer, now), 7))
        };
        let (then, back) = (100 * second, 40 * second);
        assert_eq!(at(then, vec![sample(7, then, 97)]), (99 * second, Some(97)));
        // What was seen is of a time that is still to come.
        assert_eq!(at(back, vec![sample(7, back, 5)]), (39 * second, Some(5)));
        let next = back + second;
        assert_eq!(at(next, vec![sample(7, next, 6)]), (back, Some(6)));
    }

    #[test]
    fn samples_that_grow_between_two_calls_are_asked_for_again() {
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
