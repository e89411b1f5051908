//! What share of a GPU each process used: the counters of its clients, between
//! two polls.

use super::registry::{Entry, Value};
use gpukill_proto::units::Percent;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Two polls that are nearer tell too little.
const SHORTEST: Duration = Duration::from_millis(100);

/// More clients than this are not counted; each process has a handful.
const MOST_CLIENTS: usize = 20_000;

/// How long each client had kept the GPU busy, in nanoseconds. A client is its
/// process and its number in the registry; those without a number count together.
type Counters = BTreeMap<(u32, String), u64>;

/// The counters of the last poll, and when they were read.
#[derive(Default)]
pub(super) struct Usage {
    last: Option<(Instant, Counters)>,
}

impl Usage {
    /// The processes that have clients, and what share of the GPU each used since
    /// the last poll; `None` where that is not known.
    pub(super) fn since_last<'a>(
        &mut self,
        entries: impl Iterator<Item = Entry<'a>>,
        now: Instant,
    ) -> BTreeMap<u32, Option<Percent>> {
        let mut shares = BTreeMap::new();
        let mut counters = Counters::new();
        for entry in entries.take(MOST_CLIENTS) {
            let Some(pid) = creator(&entry) else { continue };
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
        if time < SHORTEST {
            return shares;
        }
        for (pid, share) in &mut shares {
            *share = gained(*pid, &counters, before).map(|gained| percent(gained, time));
        }
        self.last = Some((now, counters));
        shares
    }
}

/// What the clients of a process gained that were there before, too. `None` when
/// none was, and when one lost something: it ended a queue, whose time is gone
/// from its sum with all that this gained.
fn gained(pid: u32, counters: &Counters, before: &Counters) -> Option<u64> {
    let own = counters.range((pid, String::new())..);
    let own = own.take_while(|((of, _), _)| *of == pid);
    let both = own.filter_map(|(key, now)| Some((*now, *before.get(key)?)));
    let mut sum: Option<u64> = None;
    for (now, before) in both {
        sum = Some(sum.unwrap_or(0).saturating_add(now.checked_sub(before)?));
    }
    sum
}

/// Several queues of a process may run at once: it still uses one GPU.
fn percent(nanoseconds: u64, time: Duration) -> Percent {
    let whole = time.as_nanos();
    let share = (u128::from(nanoseconds) * 100 + whole / 2).checked_div(whole);
    let share = share.and_then(|share| u32::try_from(share).ok());
    Percent(share.unwrap_or(100).min(100))
}

/// The process of a client. Of `pid 4242, a, b` the rest is its name, which may
/// be anything, and which is not believed: the host knows better.
fn creator(entry: &Entry) -> Option<u32> {
    let (pid, _) = entry
        .raw("IOUserClientCreator")?
        .strip_prefix("\"pid ")?
        .split_once(',')?;
    pid.parse().ok().filter(|pid| *pid != 0)
}

/// How long all queues of a client kept the GPU busy; `None` where its driver does
/// not tell.
fn gpu_time(entry: &Entry) -> Option<u64> {
    let Value::List(queues) = entry.value("AppUsage")? else {
        return None;
    };
    let mut sum: u64 = 0;
    for queue in queues {
        sum = sum.saturating_add(queue.number("accumulatedGPUTime")?);
    }
    Some(sum)
}
