//! What readers see: the newest snapshot, published by the poller. Readers
//! never delay it, nor it them.

use crate::audit::Accounts;
use gpukill_policy::memory::Shared;
use gpukill_proto::holders::HeldDevice;
use gpukill_proto::snapshot::Snapshot;
use gpukill_proto::status::PollingReport;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// One poll's result.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) snapshot: Arc<Snapshot>,
    /// Of the same moment.
    pub(crate) sharing: Arc<Shared>,
    /// The accounts that processes name, of the same moment.
    pub(crate) accounts: Arc<Accounts>,
    /// Who holds each device, as it was when somebody last asked.
    pub(crate) holders: Arc<Vec<HeldDevice>>,
    pub(crate) polling: PollingReport,
}

/// Where the poller publishes.
pub(crate) type Publisher = watch::Sender<Published>;

/// Where readers look and wait.
pub(crate) type Reader = watch::Receiver<Published>;

/// Both ends, with an empty snapshot of tick 0.
pub(crate) fn channel(host: String, interval: Duration) -> (Publisher, Reader) {
    let snapshot = Snapshot {
        host,
        taken_at: gpukill_proto::units::Timestamp::default(),
        tick: 0,
        devices: Vec::new(),
        processes: Vec::new(),
        backends: Vec::new(),
        faults: Vec::new(),
    };
    let polling = PollingReport {
        interval_ms: whole_milliseconds(interval),
        set_interval_ms: whole_milliseconds(interval),
        last_at: None,
        ticks: 0,
        late: 0,
    };
    watch::channel(Published {
        snapshot: Arc::new(snapshot),
        sharing: Arc::default(),
        accounts: Arc::default(),
        holders: Arc::default(),
        polling,
    })
}

/// A duration as the wire has it.
pub(crate) fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whether somebody has asked lately who holds the devices: that is not looked
/// into for nobody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted(Arc<Mutex<Option<Instant>>>);

/// The polls within this time are for whoever asks.
const LATELY: Duration = Duration::from_secs(10);

impl Wanted {
    /// Somebody asks.
    pub(crate) fn ask(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether somebody has, lately.
    pub(crate) fn is_wanted(&self) -> bool {
        let asked = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some_and(|at| at.elapsed() < LATELY)
    }
}
