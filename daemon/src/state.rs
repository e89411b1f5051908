//! What readers see: the newest snapshot, published by the poller. Readers
//! never delay it, nor it them.

use gpukill_proto::snapshot::Snapshot;
use gpukill_proto::status::PollingReport;
use std::sync::Arc;
use tokio::sync::watch;

/// One poll's result.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) polling: PollingReport,
}

/// Where the poller publishes.
pub(crate) type Publisher = watch::Sender<Published>;

/// Where readers look and wait.
pub(crate) type Reader = watch::Receiver<Published>;

/// Both ends, with an empty snapshot of tick 0.
pub(crate) fn channel(host: String, interval: std::time::Duration) -> (Publisher, Reader) {
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
        last_at: None,
        ticks: 0,
        late: 0,
    };
    watch::channel(Published {
        snapshot: Arc::new(snapshot),
        polling,
    })
}

/// A duration as the wire has it.
pub(crate) fn whole_milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
