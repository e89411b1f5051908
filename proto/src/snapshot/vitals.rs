//! What a device tells about itself besides its memory and its processes.

use crate::reading::Reading;
use crate::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Rpm};
use serde::{Deserialize, Serialize};

/// Defines [`Vitals`] and what is done with all of them alike, so that a new
/// one is written in one place.
macro_rules! vitals {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $words:literal,)*) => {
        /// One reading of each kind; each may be unknown for itself.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Vitals {
            $($(#[$doc])* pub $name: Reading<$type>,)*
        }

        impl Vitals {
            /// What each is called in faults.
            pub(crate) const WORDS: &'static [&'static str] = &[$($words,)*];

            /// None is known, for this reason.
            #[must_use]
            pub fn unknown(why: &Reading<()>) -> Self {
                Self { $($name: why.because(),)* }
            }

            /// The same, `seconds` later, with nothing newer known.
            #[must_use]
            pub fn aged(self, seconds: u32) -> Self {
                Self { $($name: self.$name.aged(seconds),)* }
            }

            /// Whether at least one is known now.
            #[must_use]
            pub fn is_any_known(&self) -> bool {
                [$(self.$name.known().is_some(),)*].contains(&true)
            }

            /// Those that failed: what each is called, and why.
            pub fn failures(&self) -> impl Iterator<Item = (&'static str, &str)> {
                [$(($words, self.$name.failure()),)*]
                    .into_iter()
                    .filter_map(|(words, why)| Some((words, why?)))
            }
        }
    };
}

vitals! {
    /// Share of time in which a kernel ran.
    utilization: Percent = "utilization",
    /// Share of time in which the memory controller was busy; not how full the
    /// memory is.
    memory_utilization: Percent = "memory utilization",
    /// Share of time in which the video encoder was busy.
    encoder: Percent = "encoder",
    /// Share of time in which the video decoder was busy.
    decoder: Percent = "decoder",
    /// Of the GPU die.
    temperature: Celsius = "temperature",
    /// Of the memory.
    memory_temperature: Celsius = "memory temperature",
    /// Of the hottest place of the die (AMD: junction).
    hotspot_temperature: Celsius = "hot spot temperature",
    /// Drawn now.
    power: Milliwatts = "power",
    /// The limit that is enforced now.
    power_limit: Milliwatts = "power limit",
    /// The intended speed of the first fan, of its greatest.
    fan: Percent = "fan",
    /// The speed of the fastest fan, where it is counted.
    fan_speed: Rpm = "fan speed",
    /// The graphics clock now.
    clock_graphics: Megahertz = "graphics clock",
    /// The multiprocessors' clock now.
    clock_sm: Megahertz = "SM clock",
    /// The memory clock now.
    clock_memory: Megahertz = "memory clock",
    /// The video engines' clock now.
    clock_video: Megahertz = "video clock",
    /// The greatest multiprocessors' clock.
    clock_sm_max: Megahertz = "greatest SM clock",
    /// The greatest memory clock.
    clock_memory_max: Megahertz = "greatest memory clock",
    /// 0, the fastest, to 15.
    performance_state: u32 = "performance state",
    /// What holds the clocks down now.
    throttle: ThrottleReasons = "throttle reasons",
    /// Uncorrected ECC errors since the driver was loaded.
    ecc_volatile: u64 = "ECC errors",
    /// Corrected ECC errors since the driver was loaded.
    ecc_volatile_corrected: u64 = "corrected ECC errors",
    /// Uncorrected ECC errors in the device's life.
    ecc_aggregate: u64 = "ECC errors in all",
    /// Corrected ECC errors in the device's life.
    ecc_aggregate_corrected: u64 = "corrected ECC errors in all",
    /// Memory rows replaced by spare ones (Ampere and newer).
    remapped_rows: RemappedRows = "remapped rows",
    /// Memory pages taken out of use (before Ampere).
    retired_pages: RetiredPages = "retired pages",
    /// Memory pages that are bad, in use or not (AMD).
    bad_pages: u64 = "bad pages",
    /// Memory of the host that the device can use (AMD: GTT).
    gtt_total: Bytes = "size of the GTT",
    /// Memory of the host that is in use by the device.
    gtt_used: Bytes = "use of the GTT",
    /// What the driver advises to do with the device.
    recovery_action: RecoveryAction = "recovery action",
    /// Whether it sleeps (runtime suspend): nothing is asked of it, for that would
    /// wake it.
    suspended: bool = "runtime suspend",
    /// Whether the driver keeps the device awake without users.
    persistence: bool = "persistence mode",
    /// The PCIe generation now; an idle device lowers it.
    pcie_generation: u32 = "PCIe generation",
    /// The PCIe lanes now.
    pcie_width: u32 = "PCIe width",
    /// The greatest PCIe generation of device and slot.
    pcie_generation_max: u32 = "greatest PCIe generation",
    /// The greatest number of PCIe lanes of device and slot.
    pcie_width_max: u32 = "greatest PCIe width",
    /// Whether it is divided into instances.
    mig: bool = "MIG mode",
    /// How its compute units are divided (AMD): `SPX`, `CPX`.
    compute_partition: String = "compute partition",
    /// How its memory is divided (AMD): `NPS1`.
    memory_partition: String = "memory partition",
    /// The N of `/dev/nvidiaN`.
    minor: u32 = "minor number",
    /// The number on its board.
    serial: String = "serial number",
}

/// What holds a device's clocks down, a name for each reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleReasons(pub Vec<String>);

impl ThrottleReasons {
    const NAMES: [(u64, &'static str); 9] = [
        (0x1, "idle"),
        (0x2, "application_clocks"),
        (0x4, "sw_power_cap"),
        (0x8, "hw_slowdown"),
        (0x10, "sync_boost"),
        (0x20, "sw_thermal"),
        (0x40, "hw_thermal"),
        (0x80, "power_brake"),
        (0x100, "display_clocks"),
    ];

    /// As NVML's bits tell them (nvml.h, `nvmlClocksEventReason…`); a bit that
    /// has no name yet reads `0x200`.
    #[must_use]
    pub fn of_nvml(bits: u64) -> Self {
        let known = |bit: u64| Self::NAMES.iter().find(|(known, _)| *known == bit);
        let names = (0..u64::BITS)
            .map(|place| bits & (1 << place))
            .filter(|bit| *bit != 0)
            .map(|bit| known(bit).map_or_else(|| format!("0x{bit:x}"), |(_, name)| (*name).into()));
        Self(names.collect())
    }
}

/// Rows of a device's memory that were replaced by spare ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemappedRows {
    /// After errors that were corrected.
    pub correctable: u64,
    /// After errors that were not.
    pub uncorrectable: u64,
    /// Some wait for a reset to be replaced.
    pub pending: bool,
    /// Some could not be replaced: the device should be exchanged.
    pub failed: bool,
}

/// Pages of a device's memory that are out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetiredPages {
    /// After many errors that were corrected.
    pub single_bit: u64,
    /// After errors that were not.
    pub double_bit: u64,
    /// Some wait for a reset.
    pub pending: bool,
}

/// What the driver advises to do with a device (NVML field 230).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryAction {
    /// Nothing: it is well.
    None,
    /// Reset it.
    Reset,
    /// Reboot the box.
    Reboot,
    /// Drain the work of its NVLink peers.
    DrainPeers,
    /// Drain its work and reset it.
    DrainAndReset,
    /// Recover the IMEX domain.
    RecoverImex,
    /// Another, by its number.
    Other(u64),
}

impl std::fmt::Display for RecoveryAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Reset => "reset",
            Self::Reboot => "reboot",
            Self::DrainPeers => "drain_p2p",
            Self::DrainAndReset => "drain_and_reset",
            Self::RecoverImex => "recover_imex",
            Self::Other(action) => return write!(f, "{action}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_throttle_bit_has_a_name_or_shows_itself() {
        assert_eq!(ThrottleReasons::of_nvml(0).0, Vec::<String>::new());
        assert_eq!(
            ThrottleReasons::of_nvml(0x8 | 0x40 | 1 << 63).0,
            ["hw_slowdown", "hw_thermal", "0x8000000000000000"]
        );
    }

    #[test]
    fn vitals_age_together_and_tell_their_failures() {
        let mut vitals = Vitals::unknown(&Reading::Unsupported);
        assert_eq!(vitals.failures().count(), 0);
        vitals.power = Reading::Value(Milliwatts(1));
        vitals.fan = Reading::Failed("timeout".into());
        let vitals = vitals.aged(7);
        assert_eq!(vitals.power, Reading::Stale(Milliwatts(1), 7));
        assert_eq!(vitals.failures().collect::<Vec<_>>(), [("fan", "timeout")]);
    }
}
