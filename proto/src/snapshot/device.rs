//! One GPU, its parts, and what happens to it.

use super::vitals::Vitals;
use crate::reading::Reading;
use crate::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

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
    /// Memory held by anybody, without what the driver reserves; with it where
    /// `memory_reserved` is unsupported (NVIDIA drivers before R510).
    pub memory_used: Reading<Bytes>,
    /// Memory the driver keeps for itself.
    pub memory_reserved: Reading<Bytes>,
    /// Used memory that no listed process explains, above the noise.
    pub memory_unattributed: Reading<Bytes>,
    /// True where GPU and host share one memory: its total is the host's, and
    /// what is used is what processes are known to hold.
    pub memory_unified: bool,
    /// Everything else it tells about itself.
    pub vitals: Vitals,
    /// The parts it is divided into (MIG); empty when it is whole.
    pub instances: Vec<Instance>,
    /// How many processes use it.
    pub process_count: Reading<u32>,
    /// The last XID error since the daemon started, if there was one.
    pub last_xid: Option<GpuEvent>,
    /// Set while the driver cannot reach the device, or does not list it any more.
    pub lost: Option<Loss>,
}

impl Device {
    /// Whether its driver does not list it any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let loss = self.lost.as_ref();
        loss.is_some_and(|loss| loss.kind == LossKind::Gone)
    }

    /// A device of which nothing is known but its identity, for this reason.
    #[must_use]
    pub fn unknown(id: DeviceId, index: u32, vendor: Vendor, why: &Reading<()>) -> Self {
        Self {
            id,
            index,
            vendor,
            name: why.because(),
            pci: why.because(),
            memory_total: why.because(),
            memory_used: why.because(),
            memory_reserved: why.because(),
            memory_unattributed: why.because(),
            memory_unified: false,
            vitals: Vitals::unknown(why),
            instances: Vec::new(),
            process_count: why.because(),
            last_xid: None,
            lost: None,
        }
    }
}

/// A part of a device that works as a device of its own (MIG).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its place on the device.
    pub id: InstanceId,
    /// `MIG-…`: what CUDA programs are given to name it.
    pub uuid: DeviceId,
    /// Its profile: `3g.40gb`.
    pub profile: Reading<String>,
    /// The memory of its GPU instance, which all compute instances of that
    /// share: sums count each GPU instance once.
    pub memory_total: Reading<Bytes>,
    /// Held by anybody in the GPU instance.
    pub memory_used: Reading<Bytes>,
    /// How many processes use it.
    pub process_count: Reading<u32>,
}

/// Which part of a device (MIG).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId {
    /// The GPU instance: a share of memory and multiprocessors.
    pub gpu: u32,
    /// The compute instance: a share of the multiprocessors of that.
    pub compute: u32,
}

impl std::fmt::Display for InstanceId {
    /// `2/0`, as `nvidia-smi` has the two in two columns.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.gpu, self.compute)
    }
}

/// A device that the driver cannot reach, or does not list any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When this was first found.
    pub since: Timestamp,
    /// What the driver says, or what is seen of a device that is gone.
    pub reason: String,
    /// What that means.
    pub kind: LossKind,
}

/// Why a device cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossKind {
    /// The driver cannot reach it any more.
    Lost,
    /// The driver does not list it any more.
    Gone,
    /// The system denies access to it; it may be well.
    NotPermitted,
    /// The driver fails at it, and does not say what is wrong with it.
    Unknown,
}

impl LossKind {
    /// The state of the device, as people read it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Gone => "gone",
            Self::NotPermitted => "not permitted",
            Self::Unknown => "state unknown",
        }
    }

    /// What to do about it, to be put behind the reason; empty where nobody knows.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Lost => ": needs a reset or a reboot",
            Self::NotPermitted => ": see the modes of /dev/nvidia*",
            Self::Gone | Self::Unknown => "",
        }
    }
}

/// Something that happened to a device, as its driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    /// The device; `None` where the driver did not say which.
    pub device: Option<DeviceId>,
    /// The part of it, where it has parts.
    pub instance: Option<InstanceId>,
    /// When the daemon heard of it.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// What can happen to a device (nvml.h, `nvmlEventType…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// An error of this number: NVIDIA's "XID".
    Xid(u64),
    /// A memory error that ECC corrected.
    SingleBitEcc,
    /// A memory error that ECC could not correct.
    DoubleBitEcc,
    /// So many corrected errors that the driver calls it a storm.
    SingleBitEccStorm,
    /// Memory was taken out of use.
    MemoryRetired,
    /// Memory should have been taken out of use and could not be.
    MemoryRetirementFailed,
    /// Poisoned data was contained.
    NonFatalPoison,
    /// Poisoned data was used.
    FatalPoison,
    /// The MIG instances changed.
    MigChange,
    /// The driver lost the device.
    Unavailable,
    /// The driver advises another recovery action than before.
    RecoveryAction,
    /// Its driver does not list it any more.
    Gone,
    /// Its driver lists it again.
    Returned,
    /// Another, by its number.
    Other(u64),
}

impl EventKind {
    /// The number of an XID; `None` for what is none.
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
