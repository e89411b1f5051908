//! Since when a job has claimed what it holds of a device: who claimed last is ended first.

use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};

/// What one job holds of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// Bytes.
    pub(crate) memory: Level,
    pub(crate) processes: Level,
}

/// An amount, and since when the job has claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Level {
    amount: u64,
    pub(crate) since: Timestamp,
}

/// Memory that comes and goes within so many bytes, or a tenth of what was claimed, is no new
/// claim: allocators take and return blocks of this size.
const NOISE: u64 = 256 << 20;

impl Claim {
    pub(crate) const fn starting(bytes: u64, processes: u64, since: Timestamp) -> Self {
        Self {
            memory: Level {
                amount: bytes,
                since,
            },
            processes: Level {
                amount: processes,
                since,
            },
        }
    }

    /// The job holds so much now.
    pub(crate) fn update(&mut self, bytes: u64, processes: u64, now: Timestamp) {
        let noise = NOISE.max(self.memory.amount / 10);
        self.memory.update(bytes, noise, now);
        self.processes.update(processes, 0, now);
    }

    /// The clock on the wall was set back by so many milliseconds, or forward.
    pub(crate) fn moves(&mut self, ms: i64) {
        for level in [&mut self.memory, &mut self.processes] {
            level.since = Timestamp(level.since.0.saturating_add(ms));
        }
    }
}

impl Level {
    /// What is more than was claimed makes all of it a new claim: a job that began small and
    /// grows came as late as it grew. What falls to less than half is given up, so that
    /// taking it again is a new claim too.
    fn update(&mut self, amount: u64, noise: u64, now: Timestamp) {
        if amount > self.amount.saturating_add(noise) {
            *self = Self { amount, since: now };
        } else if amount < self.amount / 2 {
            self.amount = amount;
        }
    }
}
