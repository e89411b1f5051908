//! Computes the GPU share of each process from the counters of its clients in two polls.

use super::registry::{RegistryEntry, RegistryValue};
use gpukill_proto::units::Percent;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A shorter interval gives no meaningful share.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// More clients are not counted; each process has a handful.
const MAX_CLIENTS: usize = 20_000;

/// The GPU time of each client in nanoseconds. A client is keyed by its pid and its number in the
/// registry; clients without a number count together.
type GpuTimeCounters = BTreeMap<(u32, String), u64>;

/// The counters of the last poll, and when they were read.
#[derive(Default)]
pub(super) struct ClientUsage {
    last: Option<(Instant, GpuTimeCounters)>,
}

impl ClientUsage {
    /// The processes that have clients, with the GPU share of each since the last poll; `None`
    /// where the share is unknown.
    pub(super) fn shares_since_last<'a>(
        &mut self,
        entries: impl Iterator<Item = RegistryEntry<'a>>,
        now: Instant,
    ) -> BTreeMap<u32, Option<Percent>> {
        let mut shares = BTreeMap::new();
        let mut counters = GpuTimeCounters::new();
        for entry in entries.take(MAX_CLIENTS) {
            let Some(pid) = creator_pid(&entry) else {
                continue;
            };
            shares.entry(pid).or_insert(None);
            if let Some(time) = gpu_time(&entry) {
                let key = (pid, entry.id.unwrap_or_default().to_owned());
                let sum = counters.entry(key).or_insert(0);
                *sum = sum.saturating_add(time);
            }
        }
        let Some((then, before)) = &self.last else {
            self.last = Some((now, counters));
            return shares;
        };
        let time = now.saturating_duration_since(*then);
        if time < MIN_INTERVAL {
            return shares;
        }
        for (pid, share) in &mut shares {
            *share = gained_time(*pid, &counters, before).map(|gained| percent(gained, time));
        }
        self.last = Some((now, counters));
        shares
    }
}

/// The time gained by the clients of a process that were there before, too. `None` when there was
/// none, and when a counter fell: the client ended a queue, and the sum lost the time of that
/// queue, including what it gained.
fn gained_time(pid: u32, counters: &GpuTimeCounters, before: &GpuTimeCounters) -> Option<u64> {
    let own = counters.range((pid, String::new())..);
    let own = own.take_while(|((of, _), _)| *of == pid);
    let both = own.filter_map(|(key, now)| Some((*now, *before.get(key)?)));
    let mut sum: Option<u64> = None;
    for (now, before) in both {
        sum = Some(sum.unwrap_or(0).saturating_add(now.checked_sub(before)?));
    }
    sum
}

/// Several queues of a process may run at the same time: it still uses one GPU.
fn percent(nanoseconds: u64, time: Duration) -> Percent {
    let whole = time.as_nanos();
    let share = (u128::from(nanoseconds) * 100 + whole / 2).checked_div(whole);
    let share = share.and_then(|share| u32::try_from(share).ok());
    Percent(share.unwrap_or(100).min(100))
}

/// The process of a client. In `pid 4242, a, b` the part after the pid is the name, which may be
/// anything; it is not used, since the host knows the real one.
fn creator_pid(entry: &RegistryEntry) -> Option<u32> {
    let (pid, _) = entry
        .raw("IOUserClientCreator")?
        .strip_prefix("\"pid ")?
        .split_once(',')?;
    pid.parse().ok().filter(|pid| *pid != 0)
}

/// The GPU time of all queues of a client; `None` where the driver does not report it.
fn gpu_time(entry: &RegistryEntry) -> Option<u64> {
    let RegistryValue::List(queues) = entry.value("AppUsage")? else {
        return None;
    };
    let mut sum: u64 = 0;
    for queue in queues {
        sum = sum.saturating_add(queue.number("accumulatedGPUTime")?);
    }
    Some(sum)
}
