//! The GPUs of a host and the processes that use them, at one moment.

mod device;
mod fault;
mod location;
mod process;
mod vitals;

use crate::reading::Reading;
use crate::units::Timestamp;
use crate::words::words;
use serde::{Deserialize, Serialize};

pub use device::{
    Device, DeviceId, EventKind, GpuEvent, Instance, InstanceId, Loss, LossKind, Vendor,
};
pub use fault::{Fault, FaultCode};
pub use location::{
    Container, ContainerId, Job, Pod, ProcessLocation, Scheduler, SchedulerJob, Unit,
};
pub use process::{
    Ancestor, GpuProcess, GpuUse, MAX_PORTS, NetworkRole, Owner, OwnerKind, ProcessKey,
};
pub use vitals::{RecoveryAction, RemappedRows, RetiredPages, ThrottleReasons, Vitals};

/// The result of one poll.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The host name.
    pub host: String,
    /// When the poll began.
    pub taken_at: Timestamp,
    /// The number of polls since the daemon started; 0 if there was none yet.
    pub polls: u64,
    /// The devices, in the order of their index.
    pub devices: Vec<Device>,
    /// One entry for each process and device, by device and then by pid.
    pub processes: Vec<GpuProcess>,
    /// The state of the backend of each vendor.
    pub backends: Vec<BackendReport>,
    /// The current faults.
    pub faults: Vec<Fault>,
}

/// The state of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendReport {
    /// `nvidia`, `amd`, …
    pub name: String,
    /// Whether the backend can read devices.
    pub state: BackendState,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// The number of its devices.
    pub devices: u32,
    /// The version of the kernel driver.
    pub driver: Reading<String>,
    /// The newest CUDA version that the driver supports: `13.0`.
    pub cuda: Reading<String>,
    /// The duration of its last reading, in microseconds.
    pub poll_cost_us: u64,
}

words! {
    /// Whether a backend can read devices.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum BackendState {
        /// It answers.
        Ready = "ready",
        /// It has not answered yet.
        Starting = "starting",
        /// This machine has no device of this vendor; says what was looked for.
        Absent(String) = "absent",
        /// It exists and does not work; says why.
        Failed(FaultCode, String) = "failed",
        /// The daemon released the driver on request, until this time or a resume; its devices are
        /// shown as they were.
        Quiesced(Timestamp) = "quiesced",
    }
    /// The name in JSON.
    name(&self)
}
