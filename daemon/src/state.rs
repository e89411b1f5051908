//! The newest snapshot, as the poller publishes it. Readers and the poller never delay each other.

use crate::store::JobAccounts;
use gpukill_policy::memory::SharedMemory;
use gpukill_proto::holders::DeviceHolders;
use gpukill_proto::model::Snapshot;
use gpukill_proto::status::{DeviceEnergy, PollingReport};
use gpukill_proto::units::Timestamp;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(crate) struct PublishedPoll {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) sharing: Arc<SharedMemory>,
    /// The accounts that processes report, from the same poll.
    pub(crate) accounts: Arc<JobAccounts>,
    /// The holders of each device, as of the last request for them.
    pub(crate) holders: Arc<Vec<DeviceHolders>>,
    /// The time of the snapshot that the holders belong to; `None` before the first request.
    pub(crate) holders_at: Option<Timestamp>,
    pub(crate) polling: PollingReport,
    /// The energy that devices have drawn, from the same poll.
    pub(crate) energy: Arc<Vec<DeviceEnergy>>,
}

/// The poller's end.
pub(crate) type SnapshotPublisher = watch::Sender<PublishedPoll>;

/// A reader's end, to read the newest poll or wait for the next.
pub(crate) type SnapshotReader = watch::Receiver<PublishedPoll>;

/// Both ends, with an empty snapshot of poll 0.
pub(crate) fn channel(host: String, interval: Duration) -> (SnapshotPublisher, SnapshotReader) {
    let snapshot = Snapshot {
        host,
        ..Snapshot::default()
    };
    let polling = PollingReport {
        interval_ms: whole_milliseconds(interval),
        set_interval_ms: whole_milliseconds(interval),
        last_at: None,
        polls: 0,
        late: 0,
    };
    watch::channel(PublishedPoll {
        snapshot: Arc::new(snapshot),
        sharing: Arc::default(),
        accounts: Arc::default(),
        holders: Arc::default(),
        holders_at: None,
        polling,
        energy: Arc::default(),
    })
}

pub(crate) fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Tracks whether a client asked for device holders recently. Without a request they are not
/// collected.
#[derive(Debug, Clone, Default)]
pub(crate) struct HolderDemand(Arc<Mutex<Option<Instant>>>);

/// How long after a request polls collect the holders.
const REQUEST_TTL: Duration = Duration::from_secs(10);

impl HolderDemand {
    pub(crate) fn record_request(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(crate) fn is_requested(&self) -> bool {
        let requested_at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        requested_at.is_some_and(|at| at.elapsed() < REQUEST_TTL)
    }
}
