//! One GPU, its instances, and its events.

use super::vitals::Vitals;
use crate::reading::Reading;
use crate::units::{Bytes, Timestamp};
use crate::words::words;
use serde::{Deserialize, Serialize};

/// The permanent identity of a device: its UUID (NVIDIA) or its PCI address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(pub String);

words! {
    /// The vendor of a device.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Vendor {
        /// NVIDIA, through NVML.
        Nvidia = "nvidia",
        /// AMD, through sysfs and KFD.
        Amd = "amd",
        /// Intel, through sysfs.
        Intel = "intel",
        /// Apple, through `ioreg`.
        Apple = "apple",
        /// Any other DRM driver.
        Other = "other",
    }
    /// The name in lower case, as in `--vendor` and in JSON.
    name(self)
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The permanent identity.
    pub id: DeviceId,
    /// The number for display and for typing; may change when the host boots.
    pub index: u32,
    /// The vendor.
    pub vendor: Vendor,
    /// The name that the driver reports: `NVIDIA H100 80GB HBM3`.
    pub name: Reading<String>,
    /// The PCI address, as sysfs writes it: `0000:1b:00.0`.
    pub pci: Reading<String>,
    /// Physical memory.
    pub memory_total: Reading<Bytes>,
    /// Memory in use, without the memory that the driver reserves; with it if `memory_reserved`
    /// is unsupported (NVIDIA drivers before R510).
    pub memory_used: Reading<Bytes>,
    /// Memory that the driver reserves for itself.
    pub memory_reserved: Reading<Bytes>,
    /// Used memory that no listed process explains, above the noise threshold.
    pub memory_unattributed: Reading<Bytes>,
    /// True if GPU and host share one memory: the total is that of the host, and the used
    /// memory is the sum that processes are known to hold.
    pub memory_unified: bool,
    /// All other readings.
    pub vitals: Vitals,
    /// The instances of a divided device (MIG); empty otherwise.
    pub instances: Vec<Instance>,
    /// The number of processes that use it.
    pub process_count: Reading<u32>,
    /// The last XID error since the daemon started, if any.
    pub last_xid: Option<GpuEvent>,
    /// Set while the driver cannot reach the device, or no longer lists it.
    pub lost: Option<Loss>,
}

impl Device {
    /// Whether the driver no longer lists the device.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let loss = self.lost.as_ref();
        loss.is_some_and(|loss| loss.kind == LossKind::Gone)
    }

    /// A device of which only the identity is known; everything else is unknown for this
    /// reason.
    #[must_use]
    pub fn unknown(id: DeviceId, index: u32, vendor: Vendor, why: &Reading<()>) -> Self {
        Self {
            id,
            index,
            vendor,
            name: why.as_unknown(),
            pci: why.as_unknown(),
            memory_total: why.as_unknown(),
            memory_used: why.as_unknown(),
            memory_reserved: why.as_unknown(),
            memory_unattributed: why.as_unknown(),
            memory_unified: false,
            vitals: Vitals::unknown(why),
            instances: Vec::new(),
            process_count: why.as_unknown(),
            last_xid: None,
            lost: None,
        }
    }
}

/// A part of a device that works as a device of its own (MIG).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its position on the device.
    pub id: InstanceId,
    /// `MIG-…`: the name for CUDA programs.
    pub uuid: DeviceId,
    /// Its profile: `3g.40gb`.
    pub profile: Reading<String>,
    /// The memory of its GPU instance, which all compute instances in it share: sums count each
    /// GPU instance once.
    pub memory_total: Reading<Bytes>,
    /// The memory in use in the GPU instance.
    pub memory_used: Reading<Bytes>,
    /// The number of processes that use it.
    pub process_count: Reading<u32>,
}

/// The position of an instance on its device (MIG).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId {
    /// The GPU instance: a share of memory and multiprocessors.
    pub gpu: u32,
    /// The compute instance: a share of the multiprocessors of the GPU instance.
    pub compute: u32,
}

impl std::fmt::Display for InstanceId {
    /// `2/0`; `nvidia-smi` has two columns.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.gpu, self.compute)
    }
}

/// A device that the driver cannot reach, or no longer lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When the loss was first observed.
    pub since: Timestamp,
    /// The message of the driver, or an observation for a device that is gone.
    pub reason: String,
    /// The kind of loss.
    pub kind: LossKind,
}

/// Why a device cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossKind {
    /// The driver cannot reach it.
    Lost,
    /// The driver no longer lists it.
    Gone,
    /// The system denies access; the device itself may work.
    NotPermitted,
    /// The driver fails on it without saying what is wrong.
    Unknown,
}

impl LossKind {
    /// The state of the device in words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Gone => "gone",
            Self::NotPermitted => "not permitted",
            Self::Unknown => "state unknown",
        }
    }

    /// The remedy for the loss, to append to the reason; empty if unknown.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Lost => ": needs a reset or a reboot",
            Self::NotPermitted => ": see the modes of /dev/nvidia*",
            Self::Gone | Self::Unknown => "",
        }
    }
}

/// An event of a device, as its driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    /// The device; `None` if the driver did not say which.
    pub device: Option<DeviceId>,
    /// The instance, if the device is divided.
    pub instance: Option<InstanceId>,
    /// When the daemon received the event.
    pub at: Timestamp,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kinds of events of a device (nvml.h, `nvmlEventType…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// An error with this number: NVIDIA's "XID".
    Xid(u64),
    /// A memory error that ECC corrected.
    SingleBitEcc,
    /// A memory error that ECC could not correct.
    DoubleBitEcc,
    /// Corrected errors so frequent that the driver reports a storm.
    SingleBitEccStorm,
    /// Memory was retired.
    MemoryRetired,
    /// Memory could not be retired.
    MemoryRetirementFailed,
    /// Poisoned data was contained.
    NonFatalPoison,
    /// Poisoned data was used.
    FatalPoison,
    /// The MIG instances changed.
    MigChange,
    /// The driver lost the device.
    Unavailable,
    /// The driver now recommends another recovery action.
    RecoveryAction,
    /// The driver no longer lists the device.
    Gone,
    /// The driver lists the device again.
    Returned,
    /// Another event, by its number.
    Other(u64),
}

impl EventKind {
    /// The number of an XID error; `None` for other events.
    #[must_use]
    pub const fn xid(self) -> Option<u64> {
        match self {
            Self::Xid(code) => Some(code),
            Self::SingleBitEcc
            | Self::DoubleBitEcc
            | Self::SingleBitEccStorm
            | Self::MemoryRetired
            | Self::MemoryRetirementFailed
            | Self::NonFatalPoison
            | Self::FatalPoison
            | Self::MigChange
            | Self::Unavailable
            | Self::RecoveryAction
            | Self::Gone
            | Self::Returned
            | Self::Other(_) => None,
        }
    }
}

impl std::fmt::Display for EventKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Xid(code) => return write!(f, "XID {code}"),
            Self::SingleBitEcc => "corrected memory error",
            Self::DoubleBitEcc => "uncorrected memory error",
            Self::SingleBitEccStorm => "storm of corrected memory errors",
            Self::MemoryRetired => "memory retired",
            Self::MemoryRetirementFailed => "memory could not be retired",
            Self::NonFatalPoison => "poisoned data contained",
            Self::FatalPoison => "poisoned data used",
            Self::MigChange => "MIG instances changed",
            Self::Unavailable => "GPU unavailable",
            Self::RecoveryAction => "recovery action changed",
            Self::Gone => "GPU gone",
            Self::Returned => "GPU is back",
            Self::Other(kind) => return write!(f, "event 0x{kind:x}"),
        })
    }
}
