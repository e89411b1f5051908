//! One GPU, getter by getter. Cheap ones are asked at each poll; what changes
//! rarely, or costs the driver more, every [`SLOW`].

use super::codes::failure;
use super::plausible::{
    self, celsius, clock, count, fan_percent, greatest_clock, natural, number, pcie_generation,
    pcie_width, percent, power, power_limit, reading, switch,
};
use super::raw;
use crate::backend::MemoryReadings;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, RemappedRows, RetiredPages, ThrottleReasons, Vitals};
use gpukill_proto::text::visible;
use gpukill_proto::units::{Bytes, Milliwatts, Percent};
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformanceState, RetirementCause, TemperatureSensor,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The longest text taken from the driver, in bytes.
pub(super) const TEXT_MAX: usize = 128;

/// The time between two askings of the slow getters. Sixteen devices take their
/// turns within it.
const SLOW: Duration = Duration::from_secs(16);
const TURNS: u32 = 16;

/// The first wait after a slow getter failed.
const SOON: Duration = Duration::from_secs(1);

/// What is known of each device from the last time it was asked in full.
#[derive(Default)]
pub(super) struct Slow(BTreeMap<DeviceId, Entry>);

struct Entry {
    about: About,
    wait: Duration,
    due: Instant,
}

/// What changes rarely, and the last of all other readings.
#[derive(Clone)]
pub(super) struct About {
    pub(super) name: Reading<String>,
    pub(super) pci: Reading<String>,
    pub(super) vitals: Vitals,
}

impl Slow {
    /// Everything about a device but its memory and its processes.
    pub(super) fn about(
        &mut self,
        nvml: &Nvml,
        device: &Device<'_>,
        id: &DeviceId,
        index: u32,
        now: Instant,
    ) -> About {
        let known = self.0.get(id).filter(|entry| now < entry.due);
        let mut about = match known {
            Some(entry) => entry.about.clone(),
            None => {
                let about = ask_slow(device);
                let before = self.0.get(id).map(|entry| entry.wait);
                // What failed is asked again soon, and later when it goes on.
                let wait = match (about.failed(), before) {
                    (true, None) => SOON,
                    (true, Some(before)) if before >= SLOW => SOON,
                    (true, Some(before)) => (before * 2).min(SLOW - SOON),
                    (false, Some(_)) => SLOW,
                    (false, None) => SLOW - SLOW / TURNS * (index % TURNS),
                };
                let entry = Entry {
                    about: about.clone(),
                    wait,
                    due: now + wait,
                };
                self.0.insert(id.clone(), entry);
                about
            }
        };
        ask_cheap(nvml, device, &mut about.vitals);
        about
    }

    /// Asks everything at the next poll: something happened to this device.
    pub(super) fn forget(&mut self, id: &DeviceId) {
        self.0.remove(id);
    }

    /// Forgets every device but these.
    pub(super) fn keep_only(&mut self, is_here: impl Fn(&DeviceId) -> bool) {
        self.0.retain(|id, _| is_here(id));
    }
}

impl About {
    fn failed(&self) -> bool {
        let texts = [&self.name, &self.pci];
        texts.into_iter().any(|text| text.failure().is_some())
            || self.vitals.failures().next().is_some()
    }
}

/// The getters of each poll.
fn ask_cheap(nvml: &Nvml, device: &Device<'_>, vitals: &mut Vitals) {
    let rates = device.utilization_rates();
    let of_rates = |pick: fn(&_) -> u32| match &rates {
        Ok(rates) => percent(pick(rates)),
        Err(error) => failure(error),
    };
    vitals.utilization =
        of_rates(|rates: &nvml_wrapper::struct_wrappers::device::Utilization| rates.gpu);
    vitals.memory_utilization = of_rates(|rates| rates.memory);
    vitals.encoder = reading(device.encoder_utilization(), |it| percent(it.utilization));
    vitals.decoder = reading(device.decoder_utilization(), |it| percent(it.utilization));
    vitals.temperature = reading(device.temperature(TemperatureSensor::Gpu), |it| {
        celsius(it.cast_signed().into())
    });
    vitals.power = reading(device.power_usage(), power);
    vitals.clock_sm = reading(device.clock_info(Clock::SM), clock);
    vitals.clock_memory = reading(device.clock_info(Clock::Memory), clock);
    vitals.throttle = reading(raw::throttle_reasons(nvml, device), |bits| {
        Reading::Value(ThrottleReasons::of_nvml(bits))
    });
}

/// The getters of every now and then.
fn ask_slow(device: &Device<'_>) -> About {
    let fields = Fields::of(device);
    let now = |kind| reading(device.clock_info(kind), clock);
    let greatest = |kind| reading(device.max_clock_info(kind), greatest_clock);
    let ecc = |error, counter| reading(device.total_ecc_errors(error, counter), count);
    let vitals = Vitals {
        memory_temperature: fields.of_id(field_id::NVML_FI_DEV_MEMORY_TEMP, |degrees| {
            i64::try_from(degrees).map_or_else(|_| Reading::impossible(degrees), celsius)
        }),
        power_limit: limit(device),
        fan: fan(device),
        clock_graphics: now(Clock::Graphics),
        clock_video: now(Clock::Video),
        clock_sm_max: greatest(Clock::SM),
        clock_memory_max: greatest(Clock::Memory),
        performance_state: reading(device.performance_state(), |state| match state {
            PerformanceState::Unknown => Reading::Unsupported,
            known => plausible::performance_state(known.as_c()),
        }),
        ecc_volatile: ecc(MemoryError::Uncorrected, EccCounter::Volatile),
        ecc_volatile_corrected: ecc(MemoryError::Corrected, EccCounter::Volatile),
        ecc_aggregate: ecc(MemoryError::Uncorrected, EccCounter::Aggregate),
        ecc_aggregate_corrected: ecc(MemoryError::Corrected, EccCounter::Aggregate),
        remapped_rows: fields.remapped_rows(),
        retired_pages: retired_pages(device),
        recovery_action: fields.of_id(RECOVERY_ACTION, |action| {
            natural(action).map(plausible::recovery_action)
        }),
        persistence: reading(device.is_in_persistent_mode(), Reading::Value),
        pcie_generation: reading(device.current_pcie_link_gen(), pcie_generation),
        pcie_width: reading(device.current_pcie_link_width(), pcie_width),
        pcie_generation_max: reading(device.max_pcie_link_gen(), pcie_generation),
        pcie_width_max: reading(device.max_pcie_link_width(), pcie_width),
        mig: reading(device.mig_mode(), |mode| switch(mode.current)),
        minor: reading(device.minor_number(), plausible::minor),
        serial: reading(device.serial(), |text| shown(&text)),
        ..Vitals::unknown(&Reading::Unsupported)
    };
    About {
        name: reading(device.name(), |name| shown(&name)),
        pci: reading(device.pci_info(), |pci| {
            Reading::Value(sysfs_address(&pci.bus_id))
        }),
        vitals,
    }
}

/// NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; younger than the crate's list.
const RECOVERY_ACTION: u32 = 230;

const ROWS: [u32; 4] = [
    field_id::NVML_FI_DEV_REMAPPED_COR,
    field_id::NVML_FI_DEV_REMAPPED_UNC,
    field_id::NVML_FI_DEV_REMAPPED_PENDING,
    field_id::NVML_FI_DEV_REMAPPED_FAILURE,
];

/// The answers of one call for several fields.
struct Fields(Result<BTreeMap<u32, Reading<i128>>, NvmlError>);

impl Fields {
    fn of(device: &Device<'_>) -> Self {
        let ids = [field_id::NVML_FI_DEV_MEMORY_TEMP, RECOVERY_ACTION]
            .into_iter()
            .chain(ROWS);
        let ids: Vec<FieldId> = ids.map(FieldId).collect();
        let answers = device.field_values_for(&ids).map(|answers| {
            let values =
                answers
                    .into_iter()
                    .map(|answer| match answer.and_then(|sample| sample.value) {
                        Ok(value) => number(&value),
                        // A field that is younger than the driver.
                        Err(NvmlError::InvalidArg) => Reading::Unsupported,
                        Err(error) => failure(&error),
                    });
            ids.iter().map(|id| id.0).zip(values).collect()
        });
        Self(answers)
    }

    fn of_id<T>(&self, id: u32, value: impl FnOnce(i128) -> Reading<T>) -> Reading<T> {
        match &self.0 {
            Ok(answers) => match answers.get(&id) {
                Some(Reading::Value(number)) => value(*number),
                Some(other) => other.because(),
                None => Reading::Unsupported,
            },
            Err(error) => failure(error),
        }
    }

    fn remapped_rows(&self) -> Reading<RemappedRows> {
        let mut numbers = [0; 4];
        for (id, into) in ROWS.into_iter().zip(&mut numbers) {
            match self.of_id(id, natural) {
                Reading::Value(number) => *into = number,
                unknown => return unknown.because(),
            }
        }
        let [correctable, uncorrectable, pending, failed] = numbers;
        Reading::Value(RemappedRows {
            correctable,
            uncorrectable,
            pending: pending != 0,
            failed: failed != 0,
        })
    }
}

/// The limit that is enforced; where the driver does not tell that, the one that is set.
fn limit(device: &Device<'_>) -> Reading<Milliwatts> {
    match reading(device.enforced_power_limit(), power_limit) {
        Reading::Unsupported => reading(device.power_management_limit(), power_limit),
        told => told,
    }
}

/// A board without fans has no first one.
fn fan(device: &Device<'_>) -> Reading<Percent> {
    match device.fan_speed(0) {
        Err(NvmlError::InvalidArg) => Reading::Unsupported,
        speed => reading(speed, fan_percent),
    }
}

fn retired_pages(device: &Device<'_>) -> Reading<RetiredPages> {
    let count = |cause| {
        device
            .retired_pages(cause)
            .map(|pages| u64::try_from(pages.len()).unwrap_or(u64::MAX))
    };
    let pages = count(RetirementCause::MultipleSingleBitEccErrors).and_then(|single_bit| {
        Ok(RetiredPages {
            single_bit,
            double_bit: count(RetirementCause::DoubleBitEccError)?,
            pending: device.are_pages_pending_retired()?,
        })
    });
    reading(pages, Reading::Value)
}

/// The memory of a GPU, or of the GPU instance that a MIG device is in, and how much it is by
/// the driver's word, also where its other words cannot be. `unified`: the product is
/// known to share the host's.
pub(super) fn memory(
    nvml: &Nvml,
    device: &Device<'_>,
    unified: bool,
) -> (MemoryReadings, Option<Bytes>) {
    let newer = match device.memory_info() {
        Ok(memory) => {
            let (total, used, reserved) = (memory.total, memory.used, memory.reserved);
            let readings = plausible::memory_v2(total, used, reserved, unified);
            return (readings, plausible::whole(total));
        }
        Err(error) => failure(&error),
    };
    if newer != Reading::Unsupported {
        return (plausible::unknown_memory(&newer, unified), None);
    }
    match raw::memory_v1(nvml, device) {
        Ok((total, used)) => {
            let readings = plausible::memory_v1(total, used, unified);
            (readings, plausible::whole(total))
        }
        Err(error) => (plausible::unknown_memory(&failure(&error), unified), None),
    }
}

/// Words in the names of the products whose GPU has no memory of its own: `NVIDIA GB10`,
/// `NVIDIA Thor`, `Orin (nvgpu)`. NVML has no getter that tells: those of the memory fail with
/// the same code on a GPU that does have one.
const UNIFIED: [&str; 6] = ["GB10", "THOR", "ORIN", "XAVIER", "TEGRA", "NVGPU"];

/// Whether a GPU of this name is known to share the host's memory.
pub(super) fn shares_host_memory(name: &Reading<String>) -> bool {
    let name = name.known().map_or("", String::as_str).to_ascii_uppercase();
    let mut words = name.split(|it: char| !it.is_ascii_alphanumeric());
    words.any(|word| UNIFIED.contains(&word))
}

pub(super) fn shown(text: &str) -> Reading<String> {
    Reading::Value(visible(text.as_bytes(), TEXT_MAX))
}

/// NVML writes the PCI domain with eight upper-case digits, sysfs with at least
/// four lower-case ones.
fn sysfs_address(bus_id: &str) -> String {
    let lower = visible(bus_id.as_bytes(), TEXT_MAX).to_ascii_lowercase();
    let parts = lower.split_once(':');
    match parts.map(|(domain, rest)| (u32::from_str_radix(domain, 16), rest)) {
        Some((Ok(domain), rest)) => format!("{domain:04x}:{rest}"),
        Some((Err(_), _)) | None => lower,
    }
}

#[cfg(test)]
mod tests {
    use gpukill_proto::reading::Reading;

    #[test]
    fn only_products_that_are_known_to_share_the_hosts_memory_do() {
        let shares = |name: &str| super::shares_host_memory(&Reading::Value(name.into()));
        for name in [
            "NVIDIA GB10",
            "NVIDIA-GB10",
            "NVIDIA Thor",
            "Orin (nvgpu)",
            "NVIDIA Tegra Xavier",
        ] {
            assert!(shares(name), "{name}");
        }
        for name in [
            "NVIDIA GeForce RTX 4090",
            "NVIDIA GB100",
            "NVIDIA GB200",
            "NVIDIA GH200 480GB",
            "",
        ] {
            assert!(!shares(name), "{name}");
        }
        assert!(!super::shares_host_memory(&Reading::Failed("GB10".into())));
    }

    #[test]
    fn pci_addresses_read_as_sysfs_writes_them() {
        assert_eq!(super::sysfs_address("00000000:1B:00.0"), "0000:1b:00.0");
        assert_eq!(super::sysfs_address("00010000:1B:00.0"), "10000:1b:00.0");
        assert_eq!(super::sysfs_address("garbage"), "garbage");
    }
}
