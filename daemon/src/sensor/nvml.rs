//! Reads NVML. Runs only inside the sensor child.
//!
//! Each value is a reading of its own: one getter that is missing, unsupported
//! or broken never takes another value, or another GPU, with it.

mod processes;

mod translate;

use crate::backend::{DeviceReadings, LostDevice, MemoryReadings, Readings};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, DeviceId, Vendor};
use gpukill_proto::text::visible;
use gpukill_proto::units::{Bytes, Milliwatts};
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;
use std::time::{Duration, Instant};
use translate::{explain, needs_restart, reading};

/// The wait before NVML is loaded again after it failed.
const LOAD_PAUSE: Duration = Duration::from_secs(10);

/// The longest text taken from the driver, in bytes.
const TEXT_MAX: usize = 128;

/// NVML, loaded when it can be.
pub(super) struct Nvml {
    library: String,
    loaded: Option<nvml_wrapper::Nvml>,
    last_try: Option<(Instant, BackendState)>,
    /// When the library last had to be loaded anew.
    broken_at: Option<Instant>,
    utilization: processes::UtilizationWindows,
}

impl Nvml {
    pub(super) fn new(library: &str) -> Self {
        Self {
            library: library.to_owned(),
            loaded: None,
            last_try: None,
            broken_at: None,
            utilization: processes::UtilizationWindows::default(),
        }
    }

    /// Reads everything once.
    pub(super) fn poll(&mut self) -> Readings {
        let started = Instant::now();
        let mut readings = match self.load() {
            Ok(nvml) => {
                // Taken out so that reading can borrow the rest of `self`.
                let (readings, broken) = self.read(&nvml);
                if broken {
                    // The driver was reloaded under the library: only a fresh
                    // load can speak to it again. The first is tried at once,
                    // but waking all GPUs again and again helps nobody.
                    drop(nvml);
                    let again = self.broken_at.replace(started);
                    if again.is_some_and(|before| started.duration_since(before) < LOAD_PAUSE) {
                        let state = match &readings.state {
                            BackendState::Failed(why) => why.clone(),
                            _ => "the NVIDIA driver changes under the library".to_owned(),
                        };
                        self.last_try = Some((started, BackendState::Failed(state)));
                    }
                } else {
                    self.loaded = Some(nvml);
                }
                readings
            }
            Err(state) => Readings {
                state,
                driver: Reading::Unsupported,
                cuda: Reading::Unsupported,
                devices: Vec::new(),
                lost: Vec::new(),
                faults: Vec::new(),
                cost_us: 0,
            },
        };
        readings.cost_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        readings
    }

    fn load(&mut self) -> Result<nvml_wrapper::Nvml, BackendState> {
        if let Some(nvml) = self.loaded.take() {
            return Ok(nvml);
        }
        if let Some((when, state)) = &self.last_try
            && when.elapsed() < LOAD_PAUSE
        {
            return Err(state.clone());
        }
        let loaded = nvml_wrapper::Nvml::builder()
            .lib_path(OsStr::new(&self.library))
            .init();
        loaded.map_err(|error| {
            let state = self.state_after(&error);
            self.last_try = Some((Instant::now(), state.clone()));
            state
        })
    }

    fn state_after(&self, error: &NvmlError) -> BackendState {
        match error {
            NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
                BackendState::Absent(format!("no library {}: for NVIDIA GPUs install the driver", self.library))
            }
            NvmlError::DriverNotLoaded => {
                BackendState::Failed("the NVIDIA driver is not loaded: modprobe nvidia".to_owned())
            }
            NvmlError::LibRmVersionMismatch => BackendState::Failed(
                "the NVIDIA library and the loaded driver are of different versions: reload the driver or reboot"
                    .to_owned(),
            ),
            other => BackendState::Failed(explain(other)),
        }
    }

    /// Everything, and whether NVML must be loaded anew.
    fn read(&mut self, nvml: &nvml_wrapper::Nvml) -> (Readings, bool) {
        let mut readings = Readings {
            state: BackendState::Ready,
            driver: reading(nvml.sys_driver_version(), |text| {
                Reading::Value(visible(text.as_bytes(), TEXT_MAX))
            }),
            cuda: reading(nvml.sys_cuda_driver_version(), |version| {
                let (major, minor) = (
                    nvml_wrapper::cuda_driver_version_major(version),
                    nvml_wrapper::cuda_driver_version_minor(version),
                );
                Reading::Value(format!("{major}.{minor}"))
            }),
            devices: Vec::new(),
            lost: Vec::new(),
            faults: Vec::new(),
            cost_us: 0,
        };
        let count = match nvml.device_count() {
            Ok(count) => count.min(MOST_DEVICES),
            Err(error) => {
                readings.state =
                    BackendState::Failed(format!("cannot count GPUs: {}", explain(&error)));
                return (readings, needs_restart(&error));
            }
        };
        let mut broken = false;
        for index in 0..count {
            match self.device(nvml, index) {
                Ok(device) => readings.devices.push(device),
                Err(error) => {
                    broken |= needs_restart(&error);
                    let why = explain(&error);
                    match error {
                        NvmlError::GpuLost => readings.lost.push(LostDevice { index, why }),
                        _ => readings.faults.push(format!("GPU at index {index}: {why}")),
                    }
                }
            }
        }
        (readings, broken)
    }

    fn device(
        &mut self,
        nvml: &nvml_wrapper::Nvml,
        index: u32,
    ) -> Result<DeviceReadings, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let uuid = device.uuid()?;
        let id = DeviceId(visible(uuid.as_bytes(), TEXT_MAX));
        let ecc = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
        let temperature = device.temperature(TemperatureSensor::Gpu);
        let lost = match &temperature {
            Err(NvmlError::GpuLost) => Some(explain(&NvmlError::GpuLost)),
            _ => None,
        };
        Ok(DeviceReadings {
            index,
            vendor: Vendor::Nvidia,
            memory: reading_memory(device.memory_info()),
            utilization: reading(device.utilization_rates(), |rates| {
                translate::percent(rates.gpu)
            }),
            temperature: reading(temperature, translate::celsius),
            power: reading(device.power_usage(), milliwatts),
            power_limit: reading(device.enforced_power_limit(), milliwatts),
            ecc_volatile: reading(ecc, Reading::Value),
            lost,
            processes: self.utilization.processes(&device, &id),
            id,
            name: reading(device.name(), |name| {
                Reading::Value(visible(name.as_bytes(), TEXT_MAX))
            }),
            pci: reading(device.pci_info(), |pci| {
                Reading::Value(sysfs_address(&pci.bus_id))
            }),
        })
    }
}

/// No box has more; a driver that says so is not believed.
const MOST_DEVICES: u32 = 256;

fn milliwatts(value: u32) -> Reading<Milliwatts> {
    Reading::Value(Milliwatts(u64::from(value)))
}

fn reading_memory(
    result: Result<nvml_wrapper::struct_wrappers::device::MemoryInfo, NvmlError>,
) -> MemoryReadings {
    match result {
        Ok(memory) => translate::memory(memory.total, memory.used, memory.reserved),
        Err(error) => MemoryReadings::unknown(&translate::failure::<Bytes>(&error)),
    }
}

/// NVML writes the PCI domain with eight upper-case digits, sysfs with four
/// lower-case ones.
fn sysfs_address(bus_id: &str) -> String {
    let lower = visible(bus_id.as_bytes(), TEXT_MAX).to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn pci_addresses_read_as_sysfs_writes_them() {
        assert_eq!(super::sysfs_address("00000000:1B:00.0"), "0000:1b:00.0");
        assert_eq!(super::sysfs_address("00010000:1B:00.0"), "00010000:1b:00.0");
        assert_eq!(super::sysfs_address("garbage"), "garbage");
    }
}
