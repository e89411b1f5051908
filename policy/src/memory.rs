//! Calculates how much memory of a device no process explains, and how much memory the
//! end of a process frees.
//!
//! A buffer can be passed from one process to another, and is then counted in full for
//! each of them (DRM). So the sum over the processes is the maximum that they hold
//! together. The minimum is the exclusive memory of each process, plus the largest
//! amount that any of them shares: the others may all share that same amount.

use gpukill_proto::model::{DeviceId, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;

/// How much of the memory of a process other processes may hold too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Upper bound for all memory of the process; `None` where the driver does not
    /// report it.
    max_shared: Option<Bytes>,
    /// Upper bound for one client of the process: all memory of that client, where the
    /// driver does not report it. The same buffer may be counted in two clients.
    max_shared_per_client: Bytes,
}

impl Sharing {
    /// All memory is exclusive.
    pub const NONE: Self = Self {
        max_shared: Some(Bytes(0)),
        max_shared_per_client: Bytes(0),
    };

    /// For a process with one client: `resident` is its resident memory, `shared` its
    /// shared memory, resident or not.
    #[must_use]
    pub fn from_client(resident: Bytes, shared: Option<Bytes>) -> Self {
        match shared.or((resident.0 == 0).then_some(Bytes(0))) {
            Some(shared) => Self {
                max_shared: Some(shared.min(resident)),
                max_shared_per_client: shared.min(resident),
            },
            None => Self {
                max_shared: None,
                max_shared_per_client: resident,
            },
        }
    }

    /// For a process that has both clients.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        let max = self.max_shared.zip(other.max_shared);
        Self {
            max_shared: max.map(|(one, other)| add(one, other)),
            max_shared_per_client: self.max_shared_per_client.max(other.max_shared_per_client),
        }
    }

    /// Returns the minimum amount that the end of the process frees, out of `memory`.
    /// The amount is unknown where the driver does not report sharing: it may be 0.
    #[must_use]
    pub fn exclusive_memory(self, memory: &Reading<Bytes>) -> Reading<Bytes> {
        let shared = self.max_shared.map_or_else(
            || Reading::Failed("its driver does not report shared memory".into()),
            Reading::Value,
        );
        match memory {
            Reading::Value(_) | Reading::Stale(..) => memory
                .clone()
                .combine(shared, |all, shared| Reading::Value(subtract(all, shared))),
            Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => memory.clone(),
        }
    }
}

/// How much memory of each process on each device other processes may hold too.
/// Processes that share nothing are left out.
pub type SharedMemory = BTreeMap<(DeviceId, ProcessKey), Sharing>;

/// Bounds for the memory that processes hold together.
#[derive(Debug)]
struct CombinedMemory {
    min: Bytes,
    max: Bytes,
}

impl CombinedMemory {
    /// # Errors
    /// The first reading that is unknown.
    fn calculate<'a>(
        processes: impl IntoIterator<Item = (&'a Reading<Bytes>, Sharing)>,
    ) -> Result<Self, &'a Reading<Bytes>> {
        let (mut max, mut alone, mut shared) = (Bytes(0), Bytes(0), Bytes(0));
        for (memory, sharing) in processes {
            let Reading::Value(held) = memory else {
                return Err(memory);
            };
            max = add(max, *held);
            // Where the driver does not report sharing, no memory is known to be
            // exclusive.
            alone = add(alone, subtract(*held, sharing.max_shared.unwrap_or(*held)));
            shared = shared.max(sharing.max_shared_per_client.min(*held));
        }
        Ok(Self {
            min: add(alone, shared),
            max,
        })
    }
}

fn add(one: Bytes, other: Bytes) -> Bytes {
    Bytes(one.0.saturating_add(other.0))
}

fn subtract(all: Bytes, part: Bytes) -> Bytes {
    Bytes(all.0.saturating_sub(part.0))
}

/// Returns the used memory minus the memory of the listed processes. The result is a
/// lower bound, because the sum over the processes is the maximum that they hold
/// together.
///
/// A remainder below the noise threshold is 0 if it is below the threshold even where
/// the processes hold the minimum. Otherwise it is unknown, because unattributed memory
/// may or may not exist. Where the memory of a process is unknown, so is the remainder:
/// it would contain the memory of that process.
pub fn unattributed_memory<'a>(
    used: &Reading<Bytes>,
    total: &Reading<Bytes>,
    processes: impl IntoIterator<Item = (&'a Reading<Bytes>, Sharing)>,
) -> Reading<Bytes> {
    let Reading::Value(used) = used else {
        return used.clone();
    };
    let Some(total) = total.known() else {
        return Reading::Failed("the total memory is not known".into());
    };
    let Ok(explained) = CombinedMemory::calculate(processes) else {
        return Reading::Failed("the memory of a process is not known".into());
    };
    let min = subtract(*used, explained.max);
    if min >= noise_threshold(*total) {
        Reading::Value(min)
    } else if subtract(*used, explained.min) < noise_threshold(*total) {
        Reading::Value(Bytes(0))
    } else {
        Reading::Failed("the memory shared by processes is not known".into())
    }
}

/// Returns the minimum that processes hold together; shared memory counts once. A
/// process counts as sharing nothing if its driver does not report sharing. One unknown
/// part makes the sum unknown.
pub fn combined_memory<'a>(
    processes: impl IntoIterator<Item = (&'a Reading<Bytes>, Sharing)>,
) -> Reading<Bytes> {
    let believed = processes.into_iter().map(|(memory, sharing)| {
        let is_reported = sharing.max_shared.is_some();
        (memory, if is_reported { sharing } else { Sharing::NONE })
    });
    match CombinedMemory::calculate(believed) {
        Ok(together) => Reading::Value(together.min),
        Err(unknown) => unknown.as_unknown(),
    }
}

/// Returns the sum over the known parts; unknown where no part is known.
pub fn sum_of_known(processes: impl IntoIterator<Item = Reading<Bytes>>) -> Reading<Bytes> {
    let mut sum = Reading::Unsupported;
    for memory in processes {
        sum = match (sum, memory) {
            (Reading::Value(Bytes(before)), Reading::Value(Bytes(more))) => {
                Reading::Value(Bytes(before.saturating_add(more)))
            }
            (_, Reading::Value(first)) => Reading::Value(first),
            (Reading::Unsupported, unknown) => unknown.as_unknown(),
            (known, _) => known,
        };
    }
    sum
}

/// The threshold below which a remainder means nothing. Idle GPUs show several hundred
/// MiB without any process: 214 MiB on a captured RTX 2080 Super with a display, about
/// 0.6 GiB on H100s.
#[must_use]
pub fn noise_threshold(total: Bytes) -> Bytes {
    Bytes::mib(512).max(Bytes(total.0 / 100))
}

#[cfg(test)]
mod tests;
