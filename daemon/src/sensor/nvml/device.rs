//! Reads one GPU, getter by getter. Cheap getters are called at each poll; those of values that
//! change rarely, or that cost the driver more, every [`SLOW_INTERVAL`].

use super::codes::failed_reading;
use super::ranges::{
    self, celsius, clock, count, fan_percent, field_number, greatest_clock, non_negative,
    pcie_generation, pcie_width, percent, power, power_limit, switch, to_reading,
};
use super::raw;
use crate::backend::MemoryReadings;
use gpukill_proto::collect::{IntoMap as _, RetainEntries as _};
use gpukill_proto::model::{DeviceId, RemappedRows, RetiredPages, ThrottleReasons, Vitals};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::{Bytes, Millijoules, Milliwatts, Percent};
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

/// The interval of the slow getters. Sixteen devices are spread over it.
const SLOW_INTERVAL: Duration = Duration::from_secs(16);
const SLOW_SLOTS: u32 = 16;

/// The first wait after a slow getter failed.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The last full readings of each device.
#[derive(Default)]
pub(super) struct SlowValues(BTreeMap<DeviceId, SlowEntry>);

struct SlowEntry {
    values: DeviceValues,
    wait: Duration,
    due: Instant,
}

/// Rarely changing values, and the last values of all other readings.
#[derive(Clone)]
pub(super) struct DeviceValues {
    pub(super) name: Reading<String>,
    pub(super) pci: Reading<String>,
    pub(super) vitals: Vitals,
    pub(super) energy: Option<Millijoules>,
}

impl SlowValues {
    /// All values of a device except its memory and its processes.
    pub(super) fn read(
        &mut self,
        nvml: &Nvml,
        device: &Device<'_>,
        id: &DeviceId,
        index: u32,
        now: Instant,
    ) -> DeviceValues {
        let known = self.0.get(id).filter(|entry| now < entry.due);
        let mut values = match known {
            Some(entry) => entry.values.clone(),
            None => {
                let values = read_slow_getters(device);
                let before = self.0.get(id).map(|entry| entry.wait);
                // Failed values are read again soon, and later if the failure lasts.
                let wait = match (values.has_failure(), before) {
                    (true, None) => FIRST_RETRY,
                    (true, Some(before)) if before >= SLOW_INTERVAL => FIRST_RETRY,
                    (true, Some(before)) => (before * 2).min(SLOW_INTERVAL - FIRST_RETRY),
                    (false, Some(_)) => SLOW_INTERVAL,
                    (false, None) => {
                        SLOW_INTERVAL - SLOW_INTERVAL / SLOW_SLOTS * (index % SLOW_SLOTS)
                    }
                };
                let entry = SlowEntry {
                    values: values.clone(),
                    wait,
                    due: now + wait,
                };
                self.0.insert(id.clone(), entry);
                values
            }
        };
        read_fast_getters(nvml, device, &mut values.vitals);
        values
    }

    /// Reads everything at the next poll, because of an event of this device.
    pub(super) fn forget(&mut self, id: &DeviceId) {
        self.0.remove(id);
    }

    /// Forgets every other device.
    pub(super) fn keep_only(&mut self, is_present: impl Fn(&DeviceId) -> bool) {
        self.0.retain_entries(|id, _| is_present(id));
    }
}

impl DeviceValues {
    fn has_failure(&self) -> bool {
        let texts = [&self.name, &self.pci];
        texts.into_iter().any(|text| text.failure().is_some())
            || self.vitals.failures().next().is_some()
    }
}

/// The getters that are called at each poll.
fn read_fast_getters(nvml: &Nvml, device: &Device<'_>, vitals: &mut Vitals) {
    let rates = device.utilization_rates();
    let of_rates = |pick: fn(&_) -> u32| match &rates {
        Ok(rates) => percent(pick(rates)),
        Err(error) => failed_reading(error),
    };
    vitals.utilization =
        of_rates(|rates: &nvml_wrapper::struct_wrappers::device::Utilization| rates.gpu);
    vitals.memory_utilization = of_rates(|rates| rates.memory);
    vitals.encoder = to_reading(device.encoder_utilization(), |it| percent(it.utilization));
    vitals.decoder = to_reading(device.decoder_utilization(), |it| percent(it.utilization));
    vitals.temperature = to_reading(device.temperature(TemperatureSensor::Gpu), |degrees| {
        celsius(degrees.cast_signed().into())
    });
    vitals.power = to_reading(device.power_usage(), power);
    vitals.clock_sm = to_reading(device.clock_info(Clock::SM), clock);
    vitals.clock_memory = to_reading(device.clock_info(Clock::Memory), clock);
    vitals.throttle = to_reading(raw::throttle_reasons(nvml, device), |bits| {
        Reading::Value(ThrottleReasons::from_nvml(bits))
    });
}

/// The getters that are called at intervals.
fn read_slow_getters(device: &Device<'_>) -> DeviceValues {
    let fields = FieldAnswers::read(device);
    let now = |kind| to_reading(device.clock_info(kind), clock);
    let greatest = |kind| to_reading(device.max_clock_info(kind), greatest_clock);
    let ecc = |error, counter| to_reading(device.total_ecc_errors(error, counter), count);
    let vitals = Vitals {
        memory_temperature: fields.value_of(field_id::NVML_FI_DEV_MEMORY_TEMP, |degrees| {
            i64::try_from(degrees).map_or_else(|_| Reading::impossible(degrees), celsius)
        }),
        power_limit: read_power_limit(device),
        fan: read_fan(device),
        clock_graphics: now(Clock::Graphics),
        clock_video: now(Clock::Video),
        clock_sm_max: greatest(Clock::SM),
        clock_memory_max: greatest(Clock::Memory),
        performance_state: to_reading(device.performance_state(), |state| match state {
            PerformanceState::Unknown => Reading::Unsupported,
            known => ranges::performance_state(known.as_c()),
        }),
        ecc_volatile: ecc(MemoryError::Uncorrected, EccCounter::Volatile),
        ecc_volatile_corrected: ecc(MemoryError::Corrected, EccCounter::Volatile),
        ecc_aggregate: ecc(MemoryError::Uncorrected, EccCounter::Aggregate),
        ecc_aggregate_corrected: ecc(MemoryError::Corrected, EccCounter::Aggregate),
        remapped_rows: fields.remapped_rows(),
        retired_pages: retired_pages(device),
        recovery_action: fields.value_of(RECOVERY_ACTION, |action| {
            non_negative(action).map(ranges::recovery_action)
        }),
        persistence: to_reading(device.is_in_persistent_mode(), Reading::Value),
        pcie_generation: to_reading(device.current_pcie_link_gen(), pcie_generation),
        pcie_width: to_reading(device.current_pcie_link_width(), pcie_width),
        pcie_generation_max: to_reading(device.max_pcie_link_gen(), pcie_generation),
        pcie_width_max: to_reading(device.max_pcie_link_width(), pcie_width),
        mig: to_reading(device.mig_mode(), |mode| switch(mode.current)),
        minor: to_reading(device.minor_number(), ranges::minor),
        serial: to_reading(device.serial(), |text| printable(&text)),
        ..Vitals::unknown(&Reading::Unsupported)
    };
    DeviceValues {
        name: to_reading(device.name(), |name| printable(&name)),
        pci: to_reading(device.pci_info(), |pci| {
            Reading::Value(sysfs_address(&pci.bus_id))
        }),
        vitals,
        energy: fields
            .value_of(ENERGY, non_negative)
            .known()
            .copied()
            .map(Millijoules),
    }
}

/// The energy since the driver was loaded, in millijoules; before Volta there is none. As a field it
/// costs no call of its own.
const ENERGY: u32 = field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION;

/// NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; newer than the list of the crate.
const RECOVERY_ACTION: u32 = 230;

const ROWS: [u32; 4] = [
    field_id::NVML_FI_DEV_REMAPPED_COR,
    field_id::NVML_FI_DEV_REMAPPED_UNC,
    field_id::NVML_FI_DEV_REMAPPED_PENDING,
    field_id::NVML_FI_DEV_REMAPPED_FAILURE,
];

/// The answers of one call for several fields.
struct FieldAnswers(Result<BTreeMap<u32, Reading<i128>>, NvmlError>);

impl FieldAnswers {
    fn read(device: &Device<'_>) -> Self {
        let ids = [field_id::NVML_FI_DEV_MEMORY_TEMP, ENERGY, RECOVERY_ACTION]
            .into_iter()
            .chain(ROWS);
        let ids: Vec<FieldId> = ids.map(FieldId).collect();
        let answers = device.field_values_for(&ids).map(|answers| {
            let values =
                answers
                    .into_iter()
                    .map(|answer| match answer.and_then(|sample| sample.value) {
                        Ok(value) => field_number(&value),
                        // A field that is newer than the driver.
                        Err(NvmlError::InvalidArg) => Reading::Unsupported,
                        Err(error) => failed_reading(&error),
                    });
            ids.iter().map(|id| id.0).zip(values).into_map()
        });
        Self(answers)
    }

    fn value_of<T>(&self, id: u32, value: impl FnOnce(i128) -> Reading<T>) -> Reading<T> {
        match &self.0 {
            Ok(answers) => match answers.get(&id) {
                Some(Reading::Value(number)) => value(*number),
                Some(other) => other.as_unknown(),
                None => Reading::Unsupported,
            },
            Err(error) => failed_reading(error),
        }
    }

    fn remapped_rows(&self) -> Reading<RemappedRows> {
        let mut numbers = [0; 4];
        for (id, into) in ROWS.into_iter().zip(&mut numbers) {
            match self.value_of(id, non_negative) {
                Reading::Value(number) => *into = number,
                unknown => return unknown.as_unknown(),
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

/// The enforced limit; if the driver does not report it, the configured one.
fn read_power_limit(device: &Device<'_>) -> Reading<Milliwatts> {
    match to_reading(device.enforced_power_limit(), power_limit) {
        Reading::Unsupported => to_reading(device.power_management_limit(), power_limit),
        reading => reading,
    }
}

/// A board without fans has no first one.
fn read_fan(device: &Device<'_>) -> Reading<Percent> {
    match device.fan_speed(0) {
        Err(NvmlError::InvalidArg) => Reading::Unsupported,
        speed => to_reading(speed, fan_percent),
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
    to_reading(pages, Reading::Value)
}

/// The memory of a GPU, or of the GPU instance of a MIG device, and the total that the driver
/// reports even if its other values are impossible. `unified`: the product is known to share the
/// host's memory.
pub(super) fn read_memory(
    nvml: &Nvml,
    device: &Device<'_>,
    unified: bool,
) -> (MemoryReadings, Option<Bytes>) {
    let newer = match device.memory_info() {
        Ok(memory) => {
            let (total, used, reserved) = (memory.total, memory.used, memory.reserved);
            let readings = ranges::memory_v2(total, used, reserved, unified);
            return (readings, ranges::valid_total(total));
        }
        Err(error) => failed_reading(&error),
    };
    if newer != Reading::Unsupported {
        return (ranges::unknown_memory(&newer, unified), None);
    }
    match raw::memory_v1(nvml, device) {
        Ok((total, used)) => {
            let readings = ranges::memory_v1(total, used, unified);
            (readings, ranges::valid_total(total))
        }
        Err(error) => (
            ranges::unknown_memory(&failed_reading(&error), unified),
            None,
        ),
    }
}

/// Words in the names of products without GPU memory of their own: `NVIDIA GB10`, `NVIDIA Thor`,
/// `Orin (nvgpu)`. NVML has no getter for this: the memory getters fail with the same code as on a
/// GPU with memory of its own.
const UNIFIED: [&str; 6] = ["GB10", "THOR", "ORIN", "XAVIER", "TEGRA", "NVGPU"];

/// Whether a GPU of this name is known to share the host's memory.
pub(super) fn shares_host_memory(name: &Reading<String>) -> bool {
    let name = name.known().map_or("", String::as_str).to_ascii_uppercase();
    let mut words = name.split(|it: char| !it.is_ascii_alphanumeric());
    words.any(|word| UNIFIED.contains(&word))
}

pub(super) fn printable(text: &str) -> Reading<String> {
    Reading::Value(sanitize(text.as_bytes(), TEXT_MAX))
}

/// NVML writes the PCI domain with eight upper-case digits, sysfs with at least four lower-case
/// ones.
fn sysfs_address(bus_id: &str) -> String {
    let lower = sanitize(bus_id.as_bytes(), TEXT_MAX).to_ascii_lowercase();
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
    fn unified_memory_by_product_name() {
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
    fn pci_addresses_use_the_sysfs_format() {
        assert_eq!(super::sysfs_address("00000000:1B:00.0"), "0000:1b:00.0");
        assert_eq!(super::sysfs_address("00010000:1B:00.0"), "10000:1b:00.0");
        assert_eq!(super::sysfs_address("garbage"), "garbage");
    }
}
