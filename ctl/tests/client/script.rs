//! What the stand-in for the daemon does, as tests write it down.

use crate::killed::Killed;
use crate::resets::Resets;
use gpukill_proto::holders::HeldDevice;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendReport, BackendState};
use gpukill_proto::units::Timestamp;
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// 2026-11-21 14:02:31.250 UTC.
pub(crate) const NOW: Timestamp = Timestamp(1_795_269_751_250);

/// What the daemon does next, changed by tests while it runs.
pub(crate) struct Script {
    pub tick: AtomicU64,
    pub processes: AtomicU32,
    /// Connections that are told "busy" before one is welcome.
    pub busy_connections: AtomicU32,
    /// Calls that are told "busy" before one is answered.
    pub busy_calls: AtomicU32,
    /// Pages that have expired before one has not.
    pub expired_pages: AtomicU32,
    pub backends: Mutex<Vec<BackendReport>>,
    pub has_devices: bool,
    /// The devices with their holders.
    pub held: Mutex<Vec<HeldDevice>>,
    pub caller_is_operator: bool,
    /// What it plans and carries out.
    pub killed: Killed,
    /// What it resets.
    pub resets: Resets,
    /// How long the driver takes to be let go.
    pub letting_go: Duration,
    /// Until when the driver is let go.
    pub quiesced: Mutex<Option<Timestamp>>,
    /// Whether a process of the snapshot is marked.
    pub marks_a_rogue: bool,
    pub version: ProtocolVersion,
    /// The daemon's release.
    pub release: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tick: AtomicU64::new(1),
            processes: AtomicU32::new(3),
            busy_connections: AtomicU32::new(0),
            busy_calls: AtomicU32::new(0),
            expired_pages: AtomicU32::new(0),
            backends: Mutex::new(vec![backend(BackendState::Ready)]),
            has_devices: true,
            held: Mutex::new(Vec::new()),
            caller_is_operator: true,
            killed: Killed::default(),
            resets: Resets::default(),
            letting_go: Duration::ZERO,
            quiesced: Mutex::new(None),
            marks_a_rogue: false,
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
