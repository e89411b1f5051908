//! The GPUs of a box and who uses them, at one moment.

mod device;

mod fault;

mod network;

mod place;

mod process;

mod vitals;

use crate::reading::Reading;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

pub use device::{
    Device, DeviceId, EventKind, GpuEvent, Instance, InstanceId, Loss, LossKind, Vendor,
};
pub use fault::{Fault, FaultCode};
pub use network::{MAX_PORTS, NetworkRole};
pub use place::{Container, ContainerId, Job, Place, Pod, Scheduler, SchedulerJob, Unit};
pub use process::{GpuProcess, Owner, OwnerKind, Parent, ProcessKey, Use};
pub use vitals::{RecoveryAction, RemappedRows, RetiredPages, ThrottleReasons, Vitals};

/// Everything the daemon saw in one poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The host name of the box.
    pub host: String,
    /// When the poll began.
    pub taken_at: Timestamp,
    /// Counts polls since the daemon started; 0 is "none yet".
    pub tick: u64,
    /// In the order of their index.
    pub devices: Vec<Device>,
    /// One for each process and device it uses, by device and then by pid.
    pub processes: Vec<GpuProcess>,
    /// How each vendor's backend stands.
    pub backends: Vec<BackendReport>,
    /// What is broken now.
    pub faults: Vec<Fault>,
}

/// How one backend stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendReport {
    /// `nvidia`, `amd`, …
    pub name: String,
    /// Whether it can read anything.
    pub state: BackendState,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// How many devices it sees.
    pub devices: u32,
    /// The version of the kernel driver.
    pub driver: Reading<String>,
    /// The newest CUDA version the driver supports: `13.0`.
    pub cuda: Reading<String>,
    /// How long its last reading took, in microseconds.
    pub poll_cost_us: u64,
}

/// Whether a backend can read anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackendState {
    /// It answers.
    Ready,
    /// It has not answered for the first time yet.
    Starting,
    /// There is nothing of this vendor here; says what was looked for.
    Absent(String),
    /// It is here and does not work; says why.
    Failed(FaultCode, String),
    /// Somebody asked the daemon to let go of the driver until then, or until
    /// they say so; its devices are shown as they were.
    Quiesced(Timestamp),
}
