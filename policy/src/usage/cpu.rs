//! The maximum processor use of a process in an interval.

use gpukill_proto::reading::Reading;
use gpukill_proto::units::Percent;

/// Distinguished percentages of one core: rules use one of these, and the store keeps
/// the number of reached steps in half a byte.
pub const CPU_STEPS: [u32; 7] = [1, 2, 5, 10, 20, 50, 100];

/// The maximum use of one core between two polls, as one of [`CPU_STEPS`]. After a poll
/// that could not read it, the next poll counts from the last successful one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuUse(u8);

impl CpuUse {
    /// The stored code: 0 where nothing is known, else the number of reached steps plus
    /// 1.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Decodes a stored code; `None` where it is invalid.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        (usize::from(code) <= CPU_STEPS.len() + 1).then_some(Self(code))
    }

    /// Adds a poll.
    pub fn add(&mut self, reading: &Reading<Percent>) {
        if let Some(percent) = reading.known() {
            let reached = (1..).zip(CPU_STEPS).filter(|(_, step)| percent.0 >= *step);
            let reached = reached.map(|(number, _)| number).last().unwrap_or(0);
            self.merge(Self(reached + 1));
        }
    }

    /// Adds a later interval.
    pub fn merge(&mut self, later: Self) {
        *self = (*self).max(later);
    }

    /// Whether it reached `step`, which is one of [`CPU_STEPS`]; `None` where nothing
    /// is known.
    #[must_use]
    pub fn reaches(self, step: Percent) -> Option<bool> {
        let reached = usize::from(self.0).checked_sub(1)?;
        let highest_step = reached.checked_sub(1).and_then(|at| CPU_STEPS.get(at));
        Some(highest_step.is_some_and(|highest_step| *highest_step >= step.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn max_of(readings: &[Reading<Percent>]) -> CpuUse {
        let mut cpu = CpuUse::default();
        for reading in readings {
            cpu.add(reading);
        }
        cpu
    }

    #[test]
    fn maximum_counts_and_unknown_is_not_zero() {
        let percent = |percent| Reading::Value(Percent(percent));
        for (readings, step, expected) in [
            (vec![], 1, None),
            (
                vec![Reading::Unsupported, Reading::Failed("x".into())],
                1,
                None,
            ),
            (vec![percent(0)], 1, Some(false)),
            (vec![percent(9), percent(0)], 10, Some(false)),
            (vec![percent(0), percent(10), percent(3)], 10, Some(true)),
            (vec![percent(49)], 20, Some(true)),
            (vec![percent(49)], 50, Some(false)),
            (vec![percent(800), Reading::Unsupported], 100, Some(true)),
        ] {
            let cpu = max_of(&readings);
            assert_eq!(cpu.reaches(Percent(step)), expected, "{readings:?} {step}");
            assert_eq!(CpuUse::from_code(cpu.code()), Some(cpu));
        }
        assert_eq!(CpuUse::from_code(9), None);
    }
}
