//! Joins the minutes or hours of a process into stretches in which it used its device in the
//! same way.

use super::{BUSY_FROM, Gauge, RunUsage};
use gpukill_proto::audit::{MAX_STRETCH_MEANS, UsageState, UsageStretch};
use gpukill_proto::units::{Percent, Timestamp};

/// The stretches of one process on one device so far.
#[derive(Debug, Default)]
pub struct StretchBuilder {
    closed: Vec<(Timestamp, UsageStretch)>,
    open: Option<OpenStretch>,
}

#[derive(Debug)]
struct OpenStretch {
    from: Timestamp,
    until: Timestamp,
    state: UsageState,
    utilization: Gauge,
    /// The mean of each interval, in percent.
    means: Vec<u64>,
}

impl RunUsage {
    /// Whether the process was at work in this interval. It is idle only if its utilization is
    /// known for the whole interval.
    #[must_use]
    pub fn state(&self) -> UsageState {
        match self.utilization.mean() {
            Some(mean) if mean >= u64::from(BUSY_FROM.0) => UsageState::Busy,
            Some(_) if self.utilization.known_ms >= self.held_ms => UsageState::Idle,
            Some(_) | None => UsageState::Unknown,
        }
    }
}

impl StretchBuilder {
    /// Adds the next interval. A pause longer than `max_pause_ms` ends a stretch.
    pub fn add(
        &mut self,
        (from, until): (Timestamp, Timestamp),
        usage: &RunUsage,
        max_pause_ms: u64,
    ) {
        let state = usage.state();
        let continues = |open: &OpenStretch| {
            let pause = from.0.saturating_sub(open.until.0);
            // After a clock change the times of two intervals may overlap.
            open.state == state && pause.unsigned_abs() <= max_pause_ms
        };
        if !self.open.as_ref().is_some_and(continues) {
            self.close();
        }
        let open = self.open.get_or_insert_with(|| OpenStretch {
            from,
            until,
            state,
            utilization: Gauge::default(),
            means: Vec::new(),
        });
        open.until = open.until.max(until);
        open.utilization.merge(&usage.utilization);
        if state == UsageState::Busy {
            open.means.extend(usage.utilization.mean());
        }
    }

    /// The number of stretches so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.closed.len() + usize::from(self.open.is_some())
    }

    /// All stretches with their starts.
    #[must_use]
    pub fn finish(mut self) -> Vec<(Timestamp, UsageStretch)> {
        self.close();
        self.closed
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        let percent = |mean: u64| u32::try_from(mean).ok().map(Percent);
        let utilization = open.utilization.mean().and_then(percent);
        let stretch = UsageStretch {
            until: open.until,
            state: open.state,
            utilization: utilization.filter(|_| open.state != UsageState::Unknown),
            utilization_series: means_of_parts(&open.means),
        };
        self.closed.push((open.from, stretch));
    }
}

/// The means of equal parts of these values, at most [`MAX_STRETCH_MEANS`].
fn means_of_parts(values: &[u64]) -> Vec<u8> {
    let parts = values.len().min(MAX_STRETCH_MEANS);
    let part = |at: usize| {
        let bounds = |at: usize| at * values.len() / parts;
        let part = values.get(bounds(at)..bounds(at + 1)).unwrap_or_default();
        let sum: u64 = part.iter().sum();
        let mean = sum.checked_div(part.len() as u64).unwrap_or(0);
        u8::try_from(mean.min(100)).unwrap_or(100)
    };
    (0..parts).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::reading::Reading;

    const MINUTE: i64 = 60_000;

    /// A minute with these utilizations, each for the same part of it; `None` is unknown.
    fn minute(values: &[Option<u64>]) -> RunUsage {
        let mut usage = RunUsage::default();
        let part = MINUTE.unsigned_abs() / values.len() as u64;
        for value in values {
            let reading = value.map_or(Reading::Unsupported, Reading::Value);
            usage.held_ms += part;
            usage.utilization.add(&reading, part, |it| *it);
        }
        usage
    }

    /// The stretches of minutes, each with the number of its first minute, its end, its state
    /// and its mean.
    fn stretches(minutes: &[(i64, RunUsage)]) -> Vec<(i64, i64, &'static str, Option<u32>)> {
        let mut builder = StretchBuilder::default();
        for (at, usage) in minutes {
            let span = (Timestamp(at * MINUTE), Timestamp((at + 1) * MINUTE));
            builder.add(span, usage, 30_000);
        }
        let found = builder.finish().into_iter();
        found
            .map(|(from, it)| {
                let utilization = it.utilization.map(|it| it.0);
                (
                    from.0 / MINUTE,
                    it.until.0 / MINUTE,
                    it.state.name(),
                    utilization,
                )
            })
            .collect()
    }

    #[test]
    fn equal_minutes_are_one_stretch() {
        let busy = |value| minute(&[Some(value)]);
        let minutes = [
            (0, busy(50)),
            (1, busy(70)),
            (2, busy(4)),
            (3, busy(0)),
            (4, busy(5)),
        ];
        let expected = [
            (0, 2, "busy", Some(60)),
            (2, 4, "idle", Some(2)),
            (4, 5, "busy", Some(5)),
        ];
        assert_eq!(stretches(&minutes), expected);
    }

    #[test]
    fn unknown_is_never_idle() {
        let minutes = [
            (0, minute(&[Some(0)])),
            (1, minute(&[Some(0), None])),
            (2, minute(&[None])),
            // What is known is enough.
            (3, minute(&[Some(90), None])),
        ];
        let expected = [
            (0, 1, "idle", Some(0)),
            (1, 3, "unknown", None),
            (3, 4, "busy", Some(90)),
        ];
        assert_eq!(stretches(&minutes), expected);
    }

    #[test]
    fn gap_and_changed_clock_end_a_stretch() {
        let idle = || minute(&[Some(0)]);
        let minutes = [(0, idle()), (1, idle()), (5, idle()), (2, idle())];
        let found = stretches(&minutes);
        let spans: Vec<_> = found
            .iter()
            .map(|(from, until, ..)| (*from, *until))
            .collect();
        assert_eq!(spans, [(0, 2), (5, 6), (2, 3)]);
    }

    #[test]
    fn series_has_at_most_twenty_values() {
        assert_eq!(means_of_parts(&[]), [0_u8; 0]);
        assert_eq!(means_of_parts(&[7, 250]), [7, 100]);
        let many: Vec<u64> = (0..100).collect();
        let means: Vec<u8> = (0..20).map(|it| 5 * it + 2).collect();
        assert_eq!(means_of_parts(&many), means);
        assert_eq!(means_of_parts(&[50; 33]), [50; 20]);
    }
}
