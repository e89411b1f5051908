//! A full file descriptor scan, for requests that need the holders of devices.

use super::FdScanHandle;
use crate::state::{HolderDemand, PublishedPoll, SnapshotReader};
use gpukill_proto::refusal::Refusal;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::sync::watch::error::RecvError;

/// Scans all processes for file holders. It ends when a complete scan has been published, and after
/// a few seconds in any case.
pub(crate) type FullScan =
    Arc<dyn Fn(ScanFreshness) -> Pin<Box<dyn Future<Output = ScanResult> + Send>> + Send + Sync>;

/// How recent the scan must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanFreshness {
    /// The last scan is enough while it is recent.
    Recent,
    /// A scan that started after this moment, so that it covers everything before. If the last scan
    /// is recent, the next one starts when it no longer is.
    StartedAfter(Instant),
}

/// How a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanResult {
    /// Every process was scanned, and the result is published.
    Complete,
    /// The time was not sufficient.
    Partial,
}

/// How long a scan is recent. Requests within this time share its result: a scan takes one
/// processor a second on a host with 10,000 processes.
const RECENT_PERIOD: Duration = Duration::from_secs(2);

/// How long a scan may take: three times its duration on such a host.
pub(crate) const SCAN_TIMEOUT: Duration = Duration::from_secs(6);

/// How long the publication by two polls may take: each waits at most a second.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(6);

/// How often the scan is checked for its end.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Creates the daemon's full scan. `poll_now` starts the next poll at once.
pub(crate) fn new_full_scan(
    holders: FdScanHandle,
    wanted: HolderDemand,
    state: SnapshotReader,
    poll_now: impl Fn() + Send + Sync + 'static,
) -> FullScan {
    // Held during a scan: other requests wait for it and share its result.
    let last: Arc<Mutex<Option<LastScan>>> = Arc::default();
    let poll_now = Arc::new(poll_now);
    Arc::new(move |since| {
        let (holders, wanted, mut state) = (holders.clone(), wanted.clone(), state.clone());
        let (last, poll_now) = (Arc::clone(&last), Arc::clone(&poll_now));
        Box::pin(async move {
            wanted.record_request();
            let mut last = loop {
                let last = last.lock().await;
                let wait = match *last {
                    Some(done) if done.satisfies(since) => return ScanResult::Complete,
                    Some(done) => RECENT_PERIOD.saturating_sub(done.ended.elapsed()),
                    None => Duration::ZERO,
                };
                if wait.is_zero() {
                    break last;
                }
                // A request that accepts the last scan need not wait for this one.
                drop(last);
                tokio::time::sleep(wait).await;
            };
            let start = Instant::now();
            let request = holders.request_scan();
            let deadline = Instant::now() + SCAN_TIMEOUT;
            while !holders.has_scanned(request) && Instant::now() < deadline {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            let mut is_complete = holders.has_scanned(request);
            let mut poll = NewPoll::after_now(&state);
            let published = async {
                while !poll.is_published(&state, &*poll_now) {
                    state.changed().await?;
                }
                Ok::<(), RecvError>(())
            };
            // It took too long, or the daemon stops: the published state is what there is.
            is_complete &= matches!(
                tokio::time::timeout(PUBLISH_TIMEOUT, published).await,
                Ok(Ok(()))
            );
            if !is_complete {
                return ScanResult::Partial;
            }
            let ended = Instant::now();
            *last = Some(LastScan {
                started: start,
                ended,
            });
            ScanResult::Complete
        })
    })
}

/// A poll that starts after now. The poll under way may have started before; the next one has not.
pub(crate) struct NewPoll {
    poll_number: u64,
    /// The poll after which the next one was requested at once.
    requested_after: Option<u64>,
}

impl NewPoll {
    pub(crate) fn after_now(state: &SnapshotReader) -> Self {
        Self {
            poll_number: state.borrow().snapshot.polls.saturating_add(2),
            requested_after: None,
        }
    }

    /// Whether the poll is published. If not, requests the next poll at once; the caller must call
    /// this repeatedly.
    pub(crate) fn is_published(&mut self, state: &SnapshotReader, poll_now: &dyn Fn()) -> bool {
        let polls = state.borrow().snapshot.polls;
        if polls < self.poll_number && self.requested_after.replace(polls) != Some(polls) {
            poll_now();
        }
        polls >= self.poll_number
    }
}

/// The last complete scan.
#[derive(Debug, Clone, Copy)]
struct LastScan {
    started: Instant,
    ended: Instant,
}

impl LastScan {
    fn satisfies(self, since: ScanFreshness) -> bool {
        match since {
            ScanFreshness::Recent => self.ended.elapsed() < RECENT_PERIOD,
            ScanFreshness::StartedAfter(moment) => self.started >= moment,
        }
    }
}

/// Scans all processes and returns the published state. If the scan took too long, each device gets
/// that as its incomplete reason.
///
/// # Errors
/// [`Refusal::TooSlow`] where no scan has ever completed.
pub(crate) async fn read_after_scan(
    full_scan: &FullScan,
    state: &SnapshotReader,
    since: ScanFreshness,
) -> Result<PublishedPoll, Refusal> {
    let result = full_scan(since).await;
    let mut published = state.borrow().clone();
    if result == ScanResult::Complete {
        return Ok(published);
    }
    if published.holders.is_empty() && !published.snapshot.devices.is_empty() {
        return Err(Refusal::TooSlow("the scan of all processes".to_owned()));
    }
    for held in Arc::make_mut(&mut published.holders) {
        let why = || "the scan of all processes took too long".to_owned();
        held.incomplete_reason.get_or_insert_with(why);
    }
    Ok(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn started_scan_may_have_missed_later_files() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let last = LastScan {
            started: at(1),
            ended: at(3),
        };
        let will_do =
            [0, 1, 2, 3, 4].map(|second| last.satisfies(ScanFreshness::StartedAfter(at(second))));
        assert_eq!(will_do, [true, true, false, false, false]);
    }

    #[test]
    fn poll_under_way_is_not_new() {
        let (publisher, state) = crate::state::channel("box".into(), Duration::from_secs(1));
        let requests = std::cell::Cell::new(0);
        let poll_now = || requests.set(requests.get() + 1);
        let publish = || {
            publisher.send_modify(|published| Arc::make_mut(&mut published.snapshot).polls += 1);
        };
        let mut poll = NewPoll::after_now(&state);
        let mut observed = Vec::new();
        for _ in 0..3 {
            for _ in 0..2 {
                observed.push((poll.is_published(&state, &poll_now), requests.get()));
            }
            publish();
        }
        let (under_way, after_it, new) = ((false, 1), (false, 2), (true, 2));
        assert_eq!(
            observed,
            [under_way, under_way, after_it, after_it, new, new]
        );
    }
}
