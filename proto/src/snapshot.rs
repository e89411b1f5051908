//! The GPUs of a box and who uses them, at one moment.

use crate::reading::Reading;
use crate::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use serde::{Deserialize, Serialize};

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

/// What names a device for good: its UUID (NVIDIA) or its PCI address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(pub String);

/// Who made the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Vendor {
    /// NVIDIA, through NVML.
    Nvidia,
    /// AMD, through sysfs and KFD.
    Amd,
    /// Intel, through sysfs.
    Intel,
    /// Apple, through `ioreg`.
    Apple,
    /// Any other DRM driver.
    Other,
}

impl Vendor {
    /// Lower-case, as in `--vendor` and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
            Self::Apple => "apple",
            Self::Other => "other",
        }
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Names it for good.
    pub id: DeviceId,
    /// For display and for typing; may change when the box boots.
    pub index: u32,
    /// Who made it.
    pub vendor: Vendor,
    /// As the driver names it: `NVIDIA H100 80GB HBM3`.
    pub name: Reading<String>,
    /// `0000:1b:00.0`, as sysfs writes it.
    pub pci: Reading<String>,
    /// Physical memory.
    pub memory_total: Reading<Bytes>,
    /// Memory held by anybody, without what the driver reserves.
    pub memory_used: Reading<Bytes>,
    /// Memory the driver keeps for itself.
    pub memory_reserved: Reading<Bytes>,
    /// Used memory that no listed process explains, above the noise.
    pub memory_unattributed: Reading<Bytes>,
    /// True where GPU and host share one memory.
    pub memory_unified: bool,
    /// Share of time in which a kernel ran.
    pub utilization: Reading<Percent>,
    /// Of the GPU die.
    pub temperature: Reading<Celsius>,
    /// Drawn now.
    pub power: Reading<Milliwatts>,
    /// The limit that is enforced now.
    pub power_limit: Reading<Milliwatts>,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc_volatile: Reading<u64>,
    /// How many processes use it.
    pub process_count: Reading<u32>,
    /// Set while the driver cannot reach the device.
    pub lost: Option<Loss>,
}

/// A device that the driver cannot reach any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When it was first found lost.
    pub since: Timestamp,
    /// What the driver says.
    pub reason: String,
}

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

/// One process on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// The device it uses.
    pub device: DeviceId,
    /// As the driver reports it.
    pub pid: u32,
    /// With `pid` it names the process; failed when there is no such process.
    pub start_ticks: Reading<u64>,
    /// When it started.
    pub started_at: Reading<Timestamp>,
    /// When the daemon first saw it use this device.
    pub first_seen: Timestamp,
    /// What it does there.
    pub used_for: Use,
    /// Device memory it holds.
    pub memory: Reading<Bytes>,
    /// Its share of the multiprocessors' time.
    pub utilization: Reading<Percent>,
    /// The real user id.
    pub uid: Reading<u32>,
    /// The name of that user.
    pub user: Reading<String>,
    /// The kernel's name for it: at most 15 bytes, controls made visible.
    pub name: Reading<String>,
    /// The path of its executable, controls made visible.
    pub executable: Reading<String>,
    /// Its arguments joined by blanks, at most 512 bytes, controls made visible.
    pub command: Reading<String>,
    /// The id of its container; `None` when it runs in none.
    pub container: Reading<Option<ContainerId>>,
}

impl GpuProcess {
    /// What names the process beyond doubt, where its start time is known.
    #[must_use]
    pub fn key(&self) -> Option<ProcessKey> {
        let start_ticks = *self.start_ticks.last_known()?;
        Some(ProcessKey {
            pid: self.pid,
            start_ticks,
        })
    }
}

/// A container, as its cgroup names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerId {
    /// `docker`, `podman`, `containerd`, `cri-o`, `lxc`, `systemd-nspawn`, …
    pub runtime: String,
    /// 64 hexadecimal digits, or the runtime's own name for it.
    pub id: String,
}

impl std::fmt::Display for ContainerId {
    /// `docker/0123456789ab`: the first twelve digits, as the runtimes print it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_hash = self.id.len() == 64 && self.id.bytes().all(|b| b.is_ascii_hexdigit());
        let id = if is_hash { &self.id[..12] } else { &self.id };
        write!(f, "{}/{id}", self.runtime)
    }
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
    Failed(String),
    /// This version of gpukill cannot read it.
    NotBuilt,
}

/// Something that is broken now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The part that is broken: `nvidia`, `GPU 3`, `store`, `names`.
    pub part: String,
    /// What is wrong, and what to do where that is known.
    pub what: String,
    /// When it was first seen.
    pub since: Timestamp,
}
