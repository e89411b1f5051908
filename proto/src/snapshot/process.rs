//! One process on one GPU, and whose it is.

use super::device::{DeviceId, InstanceId};
use super::network::NetworkRole;
use super::place::{Job, Place};
use crate::reading::Reading;
use crate::units::{Bytes, Percent, Timestamp};
use serde::{Deserialize, Serialize};

/// A process, beyond doubt: a pid is reused, a pid and its start time are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// In the PID namespace of the daemon.
    pub pid: u32,
    /// Clock ticks from boot to the start of the process: field 22 of
    /// `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// What a process does with a device. One process may do several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Use {
    /// Holds a compute context.
    pub compute: bool,
    /// Holds a graphics context.
    pub graphics: bool,
    /// Is a client of the MPS server.
    pub mps: bool,
}

/// One process on one device, or on one instance of a device that is divided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// The device it uses.
    pub device: DeviceId,
    /// The part of it, where the device is divided.
    pub instance: Option<InstanceId>,
    /// As the driver reports it.
    pub pid: u32,
    /// With `pid` it names the process; failed when there is no such process. Stale where
    /// the process has ended and its driver lists it still: it ended that long ago.
    pub start_ticks: Reading<u64>,
    /// When it started.
    pub started_at: Reading<Timestamp>,
    /// When gpukilld first saw it use this device, also before a restart; failed until
    /// the store has been asked.
    pub first_seen: Reading<Timestamp>,
    /// What it does there.
    pub used_for: Use,
    /// Device memory it holds.
    pub memory: Reading<Bytes>,
    /// Its share of the multiprocessors' time.
    pub utilization: Reading<Percent>,
    /// Its share of the memory controller's time.
    pub memory_utilization: Reading<Percent>,
    /// Its share of the video encoder's time.
    pub encoder: Reading<Percent>,
    /// Its share of the video decoder's time.
    pub decoder: Reading<Percent>,
    /// When the driver last saw it use the device; `None`: not since
    /// `first_seen`.
    pub last_active: Reading<Option<Timestamp>>,
    /// The real user id, as the daemon's user namespace has it.
    pub uid: Reading<u32>,
    /// The name of that user.
    pub user: Reading<String>,
    /// Whose it is: whom to ask.
    pub owner: Reading<Owner>,
    /// The user who logged in, whoever the process runs as now; `None` when
    /// nobody did, as for services.
    pub login_uid: Reading<Option<u32>>,
    /// The name of that user; unsupported where they have none.
    pub login_user: Reading<Option<String>>,
    /// Who made its user namespace; `None` when it has the daemon's own.
    pub namespace_owner: Reading<Option<u32>>,
    /// Whether its name is to be believed, as that of a service or of the display
    /// server at a seat: another process calls itself what its user likes.
    pub name_is_trusted: Reading<bool>,
    /// The kernel's name for it: at most 15 bytes, controls made visible.
    pub name: Reading<String>,
    /// The path of its executable, controls made visible.
    pub executable: Reading<String>,
    /// Its arguments joined by blanks, at most 512 bytes, controls made visible.
    pub command: Reading<String>,
    /// Its pid as its own container or namespace has it; `None` when that is
    /// the same.
    pub inner_pid: Reading<Option<u32>>,
    /// Where it runs.
    pub place: Place,
    /// The job it is part of.
    pub job: Reading<Job>,
    /// Its ancestors, the nearest first, without pid 1; at most 16.
    pub parents: Vec<Parent>,
    /// Memory of the host it has mapped in (RSS).
    pub host_memory: Reading<Bytes>,
    /// Processor time since the last poll, of one core: 800 for eight.
    pub cpu: Reading<Percent>,
    /// How others use its job over TCP.
    pub network_role: Reading<NetworkRole>,
    /// Connections of others to the ports of its job, or to the notebook server above it,
    /// that are open or were closed within the last minute; unsupported where others
    /// cannot connect to it.
    pub connections: Reading<u32>,
}

impl GpuProcess {
    /// The user who logged in, where one is known to have, now or when it was last read.
    #[must_use]
    pub fn login(&self) -> Option<u32> {
        self.login_uid.last_known().copied().flatten()
    }

    /// A process of which only this is known, and nothing else for this reason.
    #[must_use]
    pub fn unknown(device: DeviceId, pid: u32, first_seen: Timestamp, why: &Reading<()>) -> Self {
        Self {
            device,
            instance: None,
            pid,
            start_ticks: why.because(),
            started_at: why.because(),
            first_seen: Reading::Value(first_seen),
            used_for: Use::default(),
            memory: why.because(),
            utilization: why.because(),
            memory_utilization: why.because(),
            encoder: why.because(),
            decoder: why.because(),
            last_active: why.because(),
            uid: why.because(),
            user: why.because(),
            owner: why.because(),
            login_uid: why.because(),
            login_user: why.because(),
            namespace_owner: why.because(),
            name_is_trusted: why.because(),
            name: why.because(),
            executable: why.because(),
            command: why.because(),
            inner_pid: why.because(),
            place: Place::unknown(why),
            job: why.because(),
            parents: Vec::new(),
            host_memory: why.because(),
            network_role: why.because(),
            connections: why.because(),
            cpu: why.because(),
        }
    }

    /// What names the process beyond doubt, where its start time is known and it has not
    /// ended.
    #[must_use]
    pub fn key(&self) -> Option<ProcessKey> {
        self.start_ticks.known()?;
        self.last_key()
    }

    /// The same, also of a process that has ended. For showing and recording: nothing is
    /// decided about such a process.
    #[must_use]
    pub fn last_key(&self) -> Option<ProcessKey> {
        let start_ticks = *self.start_ticks.last_known()?;
        Some(ProcessKey {
            pid: self.pid,
            start_ticks,
        })
    }

    /// How many seconds before its snapshot the process ended, where its driver lists it
    /// still.
    #[must_use]
    pub const fn ended_ago(&self) -> Option<u32> {
        match self.start_ticks {
            Reading::Stale(_, seconds) => Some(seconds),
            Reading::Value(_) | Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => {
                None
            }
        }
    }
}

/// Whose a process is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// What to call them: a user's name, or their number where they have none,
    /// the person whom a label names, or `container web01`.
    pub name: String,
    /// The user, where it is one of this box.
    pub uid: Option<u32>,
    /// How they were found.
    pub kind: OwnerKind,
}

/// How an owner was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OwnerKind {
    /// The user the process runs as.
    User,
    /// The user who made its user namespace: a rootless container's.
    Namespace,
    /// The person whom a label of its container names. It attributes, and never
    /// gives a right.
    Label,
    /// Nobody but the container is known: it runs as root.
    Container,
    /// The person behind a number that no user of the box has: one of their subordinate
    /// ids, or what runs in their slice.
    Subordinate,
}

/// An ancestor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Names it.
    pub key: ProcessKey,
    /// The kernel's name for it, controls made visible.
    pub name: String,
}
