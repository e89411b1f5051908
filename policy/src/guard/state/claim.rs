//! Since when a job has claimed what it holds of a device: the newest claim is ended first.

use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};

/// The share of one device that one job holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// Bytes.
    pub(crate) memory: ClaimedAmount,
    pub(crate) processes: ClaimedAmount,
}

/// An amount, and since when the job has claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimedAmount {
    amount: u64,
    pub(crate) since: Timestamp,
}

/// A change of memory within this many bytes, or a tenth of the claim, is no new claim:
/// allocators take and return blocks of this size.
const NOISE: u64 = 256 << 20;

impl Claim {
    pub(crate) const fn new(bytes: u64, processes: u64, since: Timestamp) -> Self {
        Self {
            memory: ClaimedAmount {
                amount: bytes,
                since,
            },
            processes: ClaimedAmount {
                amount: processes,
                since,
            },
        }
    }

    /// Updates the claim to what the job holds now.
    pub(crate) fn update(&mut self, bytes: u64, processes: u64, now: Timestamp) {
        let noise = NOISE.max(self.memory.amount / 10);
        self.memory.update(bytes, noise, now);
        self.processes.update(processes, 0, now);
    }

    /// Shifts the claim by the milliseconds by which the wall clock was set back or
    /// forward.
    pub(crate) fn shift_time(&mut self, ms: i64) {
        for level in [&mut self.memory, &mut self.processes] {
            level.since = Timestamp(level.since.0.saturating_add(ms));
        }
    }
}

impl ClaimedAmount {
    /// An increase makes the whole amount a new claim: a job that began small and grows is
    /// as new as its growth. A fall to less than half gives the claim up, so that taking
    /// the amount again is a new claim too.
    fn update(&mut self, amount: u64, noise: u64, now: Timestamp) {
        if amount > self.amount.saturating_add(noise) {
            *self = Self { amount, since: now };
        } else if amount < self.amount / 2 {
            self.amount = amount;
        }
    }
}
