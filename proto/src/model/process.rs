//! One process on one GPU, its owner, and its use over TCP.

use super::device::{DeviceId, InstanceId};
use super::location::{Job, ProcessLocation};
use crate::reading::Reading;
use crate::units::{Bytes, Percent, Timestamp};
use crate::words::words;
use serde::{Deserialize, Serialize};

/// The identity of a process: pids are reused, pairs of pid and start time are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// The pid in the PID namespace of the daemon.
    pub pid: u32,
    /// The start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

impl ProcessKey {
    /// The process with this pid that started then.
    #[must_use]
    pub const fn new(pid: u32, start_ticks: u64) -> Self {
        Self { pid, start_ticks }
    }
}

/// How a process uses a device. Several ways at once are possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuUse {
    /// Holds a compute context.
    pub compute: bool,
    /// Holds a graphics context.
    pub graphics: bool,
    /// Is a client of the MPS server.
    pub mps: bool,
}

impl GpuUse {
    /// The names of the fields in JSON, in order.
    pub const WORDS: &'static [&'static str] = &["compute", "graphics", "mps"];
}

/// One process on one device, or on one instance of a divided device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// The device.
    pub device: DeviceId,
    /// The instance, if the device is divided.
    pub instance: Option<InstanceId>,
    /// The pid, as the driver reports it.
    pub pid: u32,
    /// Identifies the process together with `pid`; failed if there is no such process. Stale if
    /// the process has ended and its driver still lists it: the age is the time since the end.
    pub start_ticks: Reading<u64>,
    /// When the process started.
    pub started_at: Reading<Timestamp>,
    /// When gpukilld first observed it on this device, also before a restart; failed until the
    /// store has answered.
    pub first_seen: Reading<Timestamp>,
    /// How it uses the device.
    pub used_for: GpuUse,
    /// The device memory that it holds.
    pub memory: Reading<Bytes>,
    /// Its share of the multiprocessors' time.
    pub utilization: Reading<Percent>,
    /// Its share of the memory controller's time.
    pub memory_utilization: Reading<Percent>,
    /// Its share of the video encoder's time.
    pub encoder: Reading<Percent>,
    /// Its share of the video decoder's time.
    pub decoder: Reading<Percent>,
    /// When the driver last observed it at work; `None` if not since `first_seen`.
    pub last_active: Reading<Option<Timestamp>>,
    /// The real user id, in the daemon's user namespace.
    pub uid: Reading<u32>,
    /// The name of that user.
    pub user: Reading<String>,
    /// The owner: the person to ask.
    pub owner: Reading<Owner>,
    /// The user who logged in, even if the process runs as another user; `None` without a
    /// login, as for services.
    pub login_uid: Reading<Option<u32>>,
    /// The name of that user; unsupported if the user has no name.
    pub login_user: Reading<Option<String>>,
    /// The creator of its user namespace; `None` if it is in the daemon's own.
    pub namespace_owner: Reading<Option<u32>>,
    /// Whether its name can be trusted, as that of a service or of the display server of a
    /// seat. The user of any other process can choose its name freely.
    pub name_is_trusted: Reading<bool>,
    /// The kernel's name of the process: at most 15 bytes, controls made visible.
    pub name: Reading<String>,
    /// The path of its executable, controls made visible.
    pub executable: Reading<String>,
    /// Its arguments joined by blanks, at most 512 bytes, controls made visible.
    pub command: Reading<String>,
    /// The pid in its own container or namespace; `None` if it is the same.
    pub inner_pid: Reading<Option<u32>>,
    /// The location.
    pub location: ProcessLocation,
    /// The job that the process is part of.
    pub job: Reading<Job>,
    /// Its ancestors, the nearest first, without pid 1; at most 16.
    pub parents: Vec<Ancestor>,
    /// Mapped host memory (RSS).
    pub host_memory: Reading<Bytes>,
    /// Processor time since the last poll, in percent of one core: 800 for eight cores.
    pub cpu: Reading<Percent>,
    /// How clients outside the job use it over TCP.
    pub network_role: Reading<NetworkRole>,
    /// Connections of others to the ports of its job, or to the notebook server above it, that
    /// are open or were closed within the last minute; unsupported if others cannot connect to
    /// it.
    pub connections: Reading<u32>,
}

impl GpuProcess {
    /// A process of which only these facts are known; everything else is unknown for this
    /// reason.
    #[must_use]
    pub fn unknown(device: DeviceId, pid: u32, first_seen: Timestamp, why: &Reading<()>) -> Self {
        Self {
            device,
            instance: None,
            pid,
            start_ticks: why.as_unknown(),
            started_at: why.as_unknown(),
            first_seen: Reading::Value(first_seen),
            used_for: GpuUse::default(),
            memory: why.as_unknown(),
            utilization: why.as_unknown(),
            memory_utilization: why.as_unknown(),
            encoder: why.as_unknown(),
            decoder: why.as_unknown(),
            last_active: why.as_unknown(),
            uid: why.as_unknown(),
            user: why.as_unknown(),
            owner: why.as_unknown(),
            login_uid: why.as_unknown(),
            login_user: why.as_unknown(),
            namespace_owner: why.as_unknown(),
            name_is_trusted: why.as_unknown(),
            name: why.as_unknown(),
            executable: why.as_unknown(),
            command: why.as_unknown(),
            inner_pid: why.as_unknown(),
            location: ProcessLocation::unknown(why),
            job: why.as_unknown(),
            parents: Vec::new(),
            host_memory: why.as_unknown(),
            network_role: why.as_unknown(),
            connections: why.as_unknown(),
            cpu: why.as_unknown(),
        }
    }

    /// The identity of the process, if its start time is known and it has not ended.
    #[must_use]
    pub fn key(&self) -> Option<ProcessKey> {
        self.start_ticks.known()?;
        self.last_known_key()
    }

    /// The identity, also of a process that has ended. For display and records: no decision may
    /// rest on such a process.
    #[must_use]
    pub fn last_known_key(&self) -> Option<ProcessKey> {
        let start_ticks = *self.start_ticks.last_known()?;
        Some(ProcessKey {
            pid: self.pid,
            start_ticks,
        })
    }

    /// The seconds between the end of the process and its snapshot, if its driver still lists
    /// it.
    #[must_use]
    pub const fn seconds_since_end(&self) -> Option<u32> {
        match self.start_ticks {
            Reading::Stale(_, seconds) => Some(seconds),
            Reading::Value(_) | Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => {
                None
            }
        }
    }
}

/// The owner of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The name of a user, or the user id if the user has no name; the person that a label
    /// names; or `container web01`.
    pub name: String,
    /// The user id, if the owner is a user of this host.
    pub uid: Option<u32>,
    /// How the owner was determined.
    pub kind: OwnerKind,
}

words! {
    /// How an owner was determined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum OwnerKind {
        /// The user that the process runs as.
        User = "user",
        /// The creator of its user namespace, as for a rootless container.
        Namespace = "namespace",
        /// The person that a label of its container names. A label attributes; it never gives a
        /// right.
        Label = "label",
        /// Only the container is known: the process runs as root.
        Container = "container",
        /// The person behind a uid without a user on this host: the uid is a subordinate id of that
        /// person, or the process runs in that person's slice.
        Subordinate = "subordinate",
    }
    /// The name in JSON.
    name(self)
}

/// An ancestor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// The identity.
    pub key: ProcessKey,
    /// The kernel's name of the process, controls made visible.
    pub name: String,
}

words! {
    /// How clients outside a job use it over TCP.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum NetworkRole {
        /// The job listens on no port, or on ports that only the job itself uses.
        Private = "private",
        /// A service: the job listens on these ports, and others use them or may use them.
        Service(Vec<u16>) = "service",
        /// A notebook: people use the job through a notebook server that listens on these ports.
        Notebook(Vec<u16>) = "notebook",
    }
    /// The name on the screen and in JSON.
    name(&self)
}

/// The most ports that are listed for one job, the lowest first.
pub const MAX_PORTS: usize = 16;

impl NetworkRole {
    /// The ports on which the job can be reached, at most [`MAX_PORTS`].
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        match self {
            Self::Private => &[],
            Self::Service(ports) | Self::Notebook(ports) => ports,
        }
    }

    /// Whether the job is a service.
    #[must_use]
    pub const fn is_service(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}
