//! The behaviour of the fake daemon, as tests specify it.

use crate::fake_kill::FakeKills;
use crate::fake_reset::FakeResets;
use crate::fake_store::FakeStore;
use gpukill_proto::holders::DeviceHolders;
use gpukill_proto::model::{BackendReport, BackendState};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// 2026-11-21 14:02:31.250 UTC.
pub(crate) const NOW: Timestamp = Timestamp(1_795_269_751_250);

/// The next answers of the daemon. Tests change them while it runs.
pub(crate) struct Script {
    pub polls: AtomicU64,
    pub processes: AtomicU32,
    /// Number of connections to refuse as busy.
    pub busy_connections: AtomicU32,
    /// Number of calls to refuse as busy.
    pub busy_calls: AtomicU32,
    /// Number of pages to report as expired.
    pub expired_pages: AtomicU32,
    pub backends: Mutex<Vec<BackendReport>>,
    pub has_devices: bool,
    /// The devices with their holders.
    pub held: Mutex<Vec<DeviceHolders>>,
    pub caller_is_operator: bool,
    /// The group that the caller joined after logging in.
    pub new_group: Option<&'static str>,
    pub killed: FakeKills,
    pub resets: FakeResets,
    /// How long the driver takes to be released.
    pub letting_go: Duration,
    /// Until when the driver is quiesced.
    pub quiesced: Mutex<Option<Timestamp>>,
    /// Whether a process of the snapshot is marked as a rogue.
    pub marks_a_rogue: bool,
    /// The store; `None` for that of `fake_audit`.
    pub store: Mutex<Option<FakeStore>>,
    pub version: ProtocolVersion,
    /// The daemon's release.
    pub release: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            polls: AtomicU64::new(1),
            processes: AtomicU32::new(3),
            busy_connections: AtomicU32::new(0),
            busy_calls: AtomicU32::new(0),
            expired_pages: AtomicU32::new(0),
            backends: Mutex::new(vec![backend(BackendState::Ready)]),
            has_devices: true,
            held: Mutex::new(Vec::new()),
            caller_is_operator: true,
            new_group: None,
            killed: FakeKills::default(),
            resets: FakeResets::default(),
            letting_go: Duration::ZERO,
            quiesced: Mutex::new(None),
            marks_a_rogue: false,
            store: Mutex::new(None),
            version: PROTOCOL_VERSION,
            release: env!("CARGO_PKG_VERSION"),
        }
    }
}

pub(crate) fn backend(state: BackendState) -> BackendReport {
    BackendReport {
        name: "nvidia".into(),
        state,
        since: NOW,
        devices: 1,
        driver: Reading::Value("580.65.06".into()),
        cuda: Reading::Value("13.0".into()),
        poll_cost_us: 4_100,
    }
}

pub(crate) fn take_one(counter: &AtomicU32) -> bool {
    counter
        .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        .is_ok()
}
