//! How much of a device's memory no process explains, and what a process's end
//! gives back.
//!
//! A buffer may be handed from one process to another, and counts in full for each
//! that has it (DRM). So what processes are told to hold is, added up, the most
//! that they can hold together. The least is what each holds alone, and once the
//! most that any of them shares: all others may share just that.

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;

/// How much of what one process holds others may hold too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// At most so much of all that it holds; `None` where nobody tells.
    most: Option<Bytes>,
    /// At most so much of one of its clients: all that client holds, where nobody
    /// tells. In two of them the same buffer may be counted.
    of_one: Bytes,
}

impl Sharing {
    /// What it holds is its alone.
    pub const NONE: Self = Self {
        most: Some(Bytes(0)),
        of_one: Bytes(0),
    };

    /// Of a process with one client, which has so much of its memory resident, and
    /// of all its memory, resident or not, shares so much.
    #[must_use]
    pub fn of(resident: Bytes, shared: Option<Bytes>) -> Self {
        match shared.or((resident.0 == 0).then_some(Bytes(0))) {
            Some(shared) => Self {
                most: Some(shared.min(resident)),
                of_one: shared.min(resident),
            },
            None => Self {
                most: None,
                of_one: resident,
            },
        }
    }

    /// Of a process that has both clients.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let most = self.most.zip(other.most);
        Self {
            most: most.map(|(one, other)| plus(one, other)),
            of_one: self.of_one.max(other.of_one),
        }
    }

    /// What its end gives back at least, of so much that it holds. That is unknown
    /// where nobody tells what it shares: it may be nothing.
    #[must_use]
    pub fn alone(self, memory: &Reading<Bytes>) -> Reading<Bytes> {
        let shared = self.most.map_or_else(
            || Reading::Failed("its driver does not tell what it shares".into()),
            Reading::Value,
        );
        match memory {
            Reading::Value(_) | Reading::Stale(..) => memory
                .clone()
                .both(shared, |all, shared| Reading::Value(minus(all, shared))),
            Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => memory.clone(),
        }
    }
}

/// How much of what each process holds of each device others may hold too. Who
/// shares nothing is not in it.
pub type Shared = BTreeMap<(DeviceId, ProcessKey), Sharing>;

/// What processes hold together.
#[derive(Debug)]
struct Together {
    least: Bytes,
    most: Bytes,
}

impl Together {
    /// # Errors
    /// The first that is not known.
    fn of<'a>(
        processes: impl IntoIterator<Item = (&'a Reading<Bytes>, Sharing)>,
    ) -> Result<Self, &'a Reading<Bytes>> {
        let (mut most, mut alone, mut shared) = (Bytes(0), Bytes(0), Bytes(0));
        for (memory, sharing) in processes {
            let Reading::Value(held) = memory else {
                return Err(memory);
            };
            most = plus(most, *held);
            // Where nobody tells what it shares, nothing is known to be its alone.
            alone = plus(alone, minus(*held, sharing.most.unwrap_or(*held)));
            shared = shared.max(sharing.of_one.min(*held));
        }
        Ok(Self {
            least: plus(alone, shared),
            most,
        })
    }
}

fn plus(one: Bytes, other: Bytes) -> Bytes {
    Bytes(one.0.saturating_add(other.0))
}

fn minus(all: Bytes, part: Bytes) -> Bytes {
    Bytes(all.0.saturating_sub(part.0))
}

/// What used memory remains after the listed processes are subtracted: at least so
/// much, for what they are told to hold is the most that they hold together.
///
/// A remainder within the noise is 0, if it is even where they hold the least.
/// Otherwise it is unknown: neither is it known that nothing is unexplained, nor
/// that anything is. Where a process's memory is unknown, so is the remainder: it
/// would blame nobody for what that process holds.
pub fn unattributed<'a>(
    used: &Reading<Bytes>,
    total: &Reading<Bytes>,
    processes: impl IntoIterator<Item = (&'a Reading<Bytes>, Sharing)>,
) -> Reading<Bytes> {
    let Reading::Value(used) = used else {
        return used.clone();
    };
    let Some(total) = total.known() else {
        return Reading::Failed("the size of the memory is not known".into());
    };
    let Ok(explained) = Together::of(processes) else {
        return Reading::Failed("a process's memory is not known".into());
    };
    let least = minus(*used, explained.most);
    if least >= noise(*total) {
        Reading::Value(least)
    } else if minus(*used, explained.least) < noise(*total) {
        Reading::Value(Bytes(0))
    } else {
        Reading::Failed("how much the processes share is not known".into())
    }
}

/// What processes hold together at least: what they share is counted once. One of
/// which nobody tells what it shares is taken to share nothing. A part that is
/// unknown makes the sum unknown.
pub fn held<'a>(
    processes: impl IntoIterator<Item = (&'a Reading<Bytes>, Sharing)>,
) -> Reading<Bytes> {
    let believed = processes.into_iter().map(|(memory, sharing)| {
        let is_told = sharing.most.is_some();
        (memory, if is_told { sharing } else { Sharing::NONE })
    });
    match Together::of(believed) {
        Ok(together) => Reading::Value(together.least),
        Err(unknown) => unknown.because(),
    }
}

/// What processes hold together at least: those of which it is known. Where none
/// is, that is not known either.
pub fn held_at_least(processes: impl IntoIterator<Item = Reading<Bytes>>) -> Reading<Bytes> {
    let mut sum = Reading::Unsupported;
    for memory in processes {
        sum = match (sum, memory) {
            (Reading::Value(Bytes(before)), Reading::Value(Bytes(more))) => {
                Reading::Value(Bytes(before.saturating_add(more)))
            }
            (_, Reading::Value(first)) => Reading::Value(first),
            (Reading::Unsupported, unknown) => unknown.because(),
            (known, _) => known,
        };
    }
    sum
}

/// Below this a remainder means nothing. Idle GPUs show some hundred MiB with
/// no process at all: 214 MiB on a captured RTX 2080 Super with a display, about
/// 0.6 GiB on H100s.
#[must_use]
pub fn noise(total: Bytes) -> Bytes {
    Bytes::mib(512).max(Bytes(total.0 / 100))
}

#[cfg(test)]
mod tests;
