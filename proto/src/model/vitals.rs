//! The readings of a device other than its memory and its processes.

use crate::reading::Reading;
use crate::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Rpm};
use serde::{Deserialize, Serialize};

/// Defines [`Vitals`] and the functions that treat all its readings alike. A new reading also
/// needs a reader in the backends, a JSON field and a metric: ARCHITECTURE.md, "Recipes".
macro_rules! vitals {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $words:literal,)*) => {
        /// The readings of a device; each may be unknown independently.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Vitals {
            $($(#[$doc])* pub $name: Reading<$type>,)*
        }

        impl Vitals {
            /// The name of each reading in faults.
            pub(crate) const WORDS: &'static [&'static str] = &[$($words,)*];

            /// All readings unknown for this reason.
            #[must_use]
            pub fn unknown(why: &Reading<()>) -> Self {
                Self { $($name: why.as_unknown(),)* }
            }

            /// The same readings `seconds` later, without newer values.
            #[must_use]
            pub fn aged(self, seconds: u32) -> Self {
                Self { $($name: self.$name.aged(seconds),)* }
            }

            /// Each reading of another source where this one is unsupported.
            #[must_use]
            pub fn or_if_unsupported(self, other: Self) -> Self {
                Self { $($name: self.$name.or_if_unsupported(|| other.$name),)* }
            }

            /// Whether at least one reading is fresh and known.
            #[must_use]
            pub fn is_any_known(&self) -> bool {
                [$(self.$name.known().is_some(),)*].contains(&true)
            }

            /// The readings that failed: name and reason.
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
    /// Share of time in which the memory controller was busy; not the share of memory in use.
    memory_utilization: Percent = "memory utilization",
    /// Share of time in which the video encoder was busy.
    encoder: Percent = "encoder",
    /// Share of time in which the video decoder was busy.
    decoder: Percent = "decoder",
    /// The temperature of the GPU die.
    temperature: Celsius = "temperature",
    /// The temperature of the memory.
    memory_temperature: Celsius = "memory temperature",
    /// The temperature of the hottest spot of the die (AMD: junction).
    hotspot_temperature: Celsius = "hot spot temperature",
    /// The current power draw.
    power: Milliwatts = "power",
    /// The enforced power limit.
    power_limit: Milliwatts = "power limit",
    /// The intended speed of the first fan, as a share of its maximum.
    fan: Percent = "fan",
    /// The speed of the fastest fan, if the driver reports it.
    fan_speed: Rpm = "fan speed",
    /// The current graphics clock.
    clock_graphics: Megahertz = "graphics clock",
    /// The current clock of the multiprocessors.
    clock_sm: Megahertz = "SM clock",
    /// The current memory clock.
    clock_memory: Megahertz = "memory clock",
    /// The current clock of the video engines.
    clock_video: Megahertz = "video clock",
    /// The maximum clock of the multiprocessors.
    clock_sm_max: Megahertz = "maximum SM clock",
    /// The maximum memory clock.
    clock_memory_max: Megahertz = "maximum memory clock",
    /// From 0, the fastest, to 15.
    performance_state: u32 = "performance state",
    /// Why the clocks are reduced now.
    throttle: ThrottleReasons = "throttle reasons",
    /// Uncorrected ECC errors since the driver was loaded.
    ecc_volatile: u64 = "ECC errors",
    /// Corrected ECC errors since the driver was loaded.
    ecc_volatile_corrected: u64 = "corrected ECC errors",
    /// Uncorrected ECC errors over the life of the device.
    ecc_aggregate: u64 = "aggregate ECC errors",
    /// Corrected ECC errors over the life of the device.
    ecc_aggregate_corrected: u64 = "corrected aggregate ECC errors",
    /// Memory rows replaced by spare rows (Ampere and newer).
    remapped_rows: RemappedRows = "remapped rows",
    /// Memory pages taken out of use (before Ampere).
    retired_pages: RetiredPages = "retired pages",
    /// Bad memory pages, in use or not (AMD).
    bad_pages: u64 = "bad pages",
    /// Host memory that the device can use (AMD: GTT).
    gtt_total: Bytes = "GTT size",
    /// Host memory that the device uses.
    gtt_used: Bytes = "GTT use",
    /// The action that the driver recommends.
    recovery_action: RecoveryAction = "recovery action",
    /// Whether the device is in runtime suspend. It is not queried then, because that would
    /// wake it.
    suspended: bool = "runtime suspend",
    /// Whether the driver keeps the device awake without users.
    persistence: bool = "persistence mode",
    /// The current PCIe generation; an idle device lowers it.
    pcie_generation: u32 = "PCIe generation",
    /// The current number of PCIe lanes.
    pcie_width: u32 = "PCIe width",
    /// The highest PCIe generation of device and slot.
    pcie_generation_max: u32 = "maximum PCIe generation",
    /// The highest number of PCIe lanes of device and slot.
    pcie_width_max: u32 = "maximum PCIe width",
    /// Whether the device is divided into instances.
    mig: bool = "MIG mode",
    /// The partition mode of its compute units (AMD): `SPX`, `CPX`.
    compute_partition: String = "compute partition",
    /// The partition mode of its memory (AMD): `NPS1`.
    memory_partition: String = "memory partition",
    /// The N of `/dev/nvidiaN`.
    minor: u32 = "minor number",
    /// The serial number on the board.
    serial: String = "serial number",
}

/// Why the clocks of a device are reduced, one name for each reason.
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

    /// Converts NVML's bits (nvml.h, `nvmlClocksEventReason…`); an unknown bit reads `0x200`.
    #[must_use]
    pub fn from_nvml(bits: u64) -> Self {
        let known = |bit: u64| Self::NAMES.iter().find(|(known, _)| *known == bit);
        let names = (0..u64::BITS)
            .map(|bit| bits & (1 << bit))
            .filter(|bit| *bit != 0)
            .map(|bit| known(bit).map_or_else(|| format!("0x{bit:x}"), |(_, name)| (*name).into()));
        Self(names.collect())
    }
}

/// Rows of a device's memory that were replaced by spare rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemappedRows {
    /// Replaced after corrected errors.
    pub correctable: u64,
    /// Replaced after uncorrected errors.
    pub uncorrectable: u64,
    /// Some rows are replaced only after a reset.
    pub pending: bool,
    /// Some rows could not be replaced: the device should be exchanged.
    pub failed: bool,
}

/// Retired pages of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetiredPages {
    /// Retired after many corrected errors.
    pub single_bit: u64,
    /// Retired after uncorrected errors.
    pub double_bit: u64,
    /// Some pages are retired only after a reset.
    pub pending: bool,
}

/// The recovery action that the driver recommends (NVML field 230).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryAction {
    /// No action.
    None,
    /// Reset the device.
    Reset,
    /// Reboot the host.
    Reboot,
    /// Drain the work of its NVLink peers.
    DrainPeers,
    /// Drain its work and reset it.
    DrainAndReset,
    /// Recover the IMEX domain.
    RecoverImex,
    /// Another action, by its number.
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
    fn unknown_throttle_bit_is_shown() {
        assert_eq!(ThrottleReasons::from_nvml(0).0, Vec::<String>::new());
        assert_eq!(
            ThrottleReasons::from_nvml(0x8 | 0x40 | 1 << 63).0,
            ["hw_slowdown", "hw_thermal", "0x8000000000000000"]
        );
    }

    #[test]
    fn only_unsupported_vitals_are_replaced() {
        let first = Vitals {
            power: Reading::Failed("timeout".into()),
            fan: Reading::Value(Percent(1)),
            ..Vitals::unknown(&Reading::Unsupported)
        };
        let second = Vitals {
            power: Reading::Value(Milliwatts(2)),
            fan: Reading::Value(Percent(2)),
            minor: Reading::Value(2),
            ..Vitals::unknown(&Reading::Unsupported)
        };
        let expected = Vitals {
            minor: Reading::Value(2),
            ..first.clone()
        };
        assert_eq!(first.or_if_unsupported(second), expected);
    }

    #[test]
    fn vitals_age_and_report_failures() {
        let mut vitals = Vitals::unknown(&Reading::Unsupported);
        assert_eq!(vitals.failures().count(), 0);
        vitals.power = Reading::Value(Milliwatts(1));
        vitals.fan = Reading::Failed("timeout".into());
        let vitals = vitals.aged(7);
        assert_eq!(vitals.power, Reading::Stale(Milliwatts(1), 7));
        assert_eq!(vitals.failures().collect::<Vec<_>>(), [("fan", "timeout")]);
    }
}
