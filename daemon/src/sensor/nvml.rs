//! Reads NVML. Runs only inside the sensor process.
//!
//! Each value is a reading of its own: a getter that is missing, unsupported or faulty never
//! affects another value or another GPU.

mod codes;
mod device;
mod events;
mod instances;
mod processes;
mod ranges;
mod raw;
mod records;
mod utilization;

use crate::backend::{BackendReadings, DeviceReadings, LossCause, LostDevice};
use codes::{ErrorClass, error_class, explain, find_loss, loss_cause};
use device::TEXT_MAX;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::{BackendState, DeviceId, FaultCode, GpuEvent, LossKind, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::Bytes;
use nvml_wrapper::error::NvmlError;
use ranges::to_reading;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::Instant;

/// The dynamic linker's message for a missing library.
const NO_SUCH_FILE: &str = "No such file or directory";

/// No host has more devices; a greater count is capped.
const MAX_DEVICES: u32 = 256;

/// NVML, loaded once: only the end of the process gets rid of a library of a replaced driver.
pub(super) struct NvmlReader {
    library: String,
    loaded: Option<nvml_wrapper::Nvml>,
    slow_values: device::SlowValues,
    windows: utilization::SampleWindows,
    events: events::EventCollector,
    versions: Option<DriverVersions>,
    /// The last known total memory of each device.
    total_memory: BTreeMap<DeviceId, Bytes>,
}

/// Values that do not change while a driver is loaded.
#[derive(Clone)]
struct DriverVersions {
    driver: Reading<String>,
    cuda: Reading<String>,
}

impl NvmlReader {
    pub(super) fn new(library: &str) -> Self {
        Self {
            library: library.to_owned(),
            loaded: None,
            slow_values: device::SlowValues::default(),
            windows: utilization::SampleWindows::default(),
            events: events::EventCollector::default(),
            versions: None,
            total_memory: BTreeMap::new(),
        }
    }

    /// Reads all devices once, except those at these indices, which are not touched. If the state
    /// is not [`BackendState::Ready`], only a new process can recover.
    pub(super) fn poll(&mut self, leave_out: &[u32]) -> BackendReadings {
        let started = Instant::now();
        let mut readings = match self.load() {
            Ok(nvml) => {
                // Moved out, so that reading can borrow the rest of `self`.
                let readings = self.read(&nvml, leave_out, started);
                self.loaded = Some(nvml);
                readings
            }
            Err(state) => BackendReadings::without_devices(state),
        };
        readings.cost_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        readings
    }

    /// The events since the last call, oldest first.
    pub(super) fn take_events(&mut self) -> Vec<GpuEvent> {
        let Some(nvml) = &self.loaded else {
            return Vec::new();
        };
        let events = self.events.take_events(nvml, Instant::now());
        for id in events.iter().filter_map(|it| it.device.as_ref()) {
            self.slow_values.forget(id);
        }
        events
    }

    fn load(&mut self) -> Result<nvml_wrapper::Nvml, BackendState> {
        if let Some(nvml) = self.loaded.take() {
            return Ok(nvml);
        }
        let loaded = nvml_wrapper::Nvml::builder()
            .lib_path(OsStr::new(&self.library))
            .init();
        loaded.map_err(|error| self.failure_state(&error))
    }

    fn failure_state(&self, error: &NvmlError) -> BackendState {
        let library = &self.library;
        let (code, why) = match error {
            NvmlError::LibloadingError(error)
                if is_library_missing(library, &error.to_string()) =>
            {
                return BackendState::Absent(format!(
                    "no library {library}: for NVIDIA GPUs install the driver"
                ));
            }
            NvmlError::LibloadingError(_) => (
                FaultCode::LibraryUnusable,
                format!("cannot load {library}: {}", explain(error)),
            ),
            // The library was loaded, but another one that it needs is missing.
            NvmlError::LibraryNotFound => (
                FaultCode::LibraryUnusable,
                format!(
                    "{library} does not find a library that it needs: install the driver's \
                     libraries again"
                ),
            ),
            NvmlError::DriverNotLoaded => (
                FaultCode::DriverNotLoaded,
                "the NVIDIA driver is not loaded: modprobe nvidia".to_owned(),
            ),
            NvmlError::LibRmVersionMismatch => (
                FaultCode::VersionMismatch,
                "the NVIDIA library and the loaded driver are of different versions: \
                 reload the driver or reboot"
                    .to_owned(),
            ),
            NvmlError::NoPermission | NvmlError::OperatingSystem => (
                FaultCode::NotPermitted,
                "the NVIDIA driver denies access to gpukilld: check the modes of /dev/nvidia*"
                    .to_owned(),
            ),
            other => (FaultCode::DriverError, explain(other)),
        };
        BackendState::Failed(code, why)
    }

    fn read(
        &mut self,
        nvml: &nvml_wrapper::Nvml,
        leave_out: &[u32],
        now: Instant,
    ) -> BackendReadings {
        let mut readings = BackendReadings::without_devices(BackendState::Ready);
        let count = match nvml.device_count() {
            Ok(count) => count.min(MAX_DEVICES),
            Err(error) => {
                return BackendReadings::without_devices(self.failure_state(&error));
            }
        };
        DriverVersions {
            driver: readings.driver,
            cuda: readings.cuda,
        } = self.versions(nvml);
        let mut errors = Vec::new();
        for index in 0..count {
            if leave_out.contains(&index) {
                let cause = LossCause {
                    kind: LossKind::Unknown,
                    why: "the driver hangs or crashes on this device".to_owned(),
                };
                readings.lost.push(LostDevice { index, cause });
                continue;
            }
            super::set_process_name(Some(index));
            match self.read_device(nvml, index, now) {
                Ok(device) => readings.devices.push(device),
                Err(error) => {
                    let cause = loss_cause(&error);
                    readings.lost.push(LostDevice { index, cause });
                    errors.push(error);
                }
            }
        }
        super::set_process_name(None);
        // The error of one GPU concerns that GPU. If every GPU reports that the library cannot
        // communicate with the driver, the driver was unloaded or replaced.
        let of_library = |error: &&NvmlError| error_class(error) == ErrorClass::Library;
        if readings.devices.is_empty()
            && errors.iter().filter(of_library).count() == errors.len()
            && let Some(error) = errors.first()
        {
            return BackendReadings::without_devices(self.failure_state(error));
        }
        let is_present = |id: &DeviceId| readings.devices.iter().any(|device| device.id == *id);
        self.slow_values.keep_only(is_present);
        self.windows.keep_only(is_present);
        self.total_memory.retain_entries(|id, _| is_present(id));
        self.events.keep_only(is_present);
        readings.faults.extend(self.events.faults());
        readings
    }

    fn versions(&mut self, nvml: &nvml_wrapper::Nvml) -> DriverVersions {
        if let Some(versions) = &self.versions {
            return versions.clone();
        }
        let versions = DriverVersions {
            driver: to_reading(nvml.sys_driver_version(), |text| device::printable(&text)),
            cuda: to_reading(nvml.sys_cuda_driver_version(), |version| {
                let (major, minor) = (
                    nvml_wrapper::cuda_driver_version_major(version),
                    nvml_wrapper::cuda_driver_version_minor(version),
                );
                Reading::Value(format!("{major}.{minor}"))
            }),
        };
        if versions.driver.failure().is_none() && versions.cuda.failure().is_none() {
            self.versions = Some(versions.clone());
        }
        versions
    }

    fn read_device(
        &mut self,
        nvml: &nvml_wrapper::Nvml,
        index: u32,
        now: Instant,
    ) -> Result<DeviceReadings, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let uuid = device.uuid()?;
        let id = DeviceId(sanitize(uuid.as_bytes(), TEXT_MAX));
        let values = self.slow_values.read(nvml, &device, &id, index, now);
        self.events.ensure_registered(nvml, &device, &id, now);
        let unified = device::shares_host_memory(&values.name);
        let divided = if instances::is_divided(&values.vitals.mig) {
            instances::read_divided(nvml, &device, unified)
        } else {
            instances::read_undivided(nvml, &device)
        };
        let (memory, total) = device::read_memory(nvml, &device, unified);
        // The total memory of a GPU does not change: it still bounds the memory of processes when
        // it is not reported.
        if let Some(total) = total {
            self.total_memory.insert(id.clone(), total);
        }
        let total = self.total_memory.get(&id).copied();
        let processes = match divided.processes {
            Ok(merged) if merged.is_empty() => Reading::Value(Vec::new()),
            Ok(merged) => {
                let samples = self.windows.read_samples(&device, &id);
                let mut processes = processes::add_utilization(merged, &samples);
                if let Some(total) = total {
                    ranges::check_process_memory(&mut processes, total, &divided.instances);
                }
                Reading::Value(processes)
            }
            Err(error) => processes::list_failure(&error),
        };
        let mut read = DeviceReadings {
            id,
            index,
            vendor: Vendor::Nvidia,
            memory,
            name: values.name,
            pci: values.pci,
            vitals: values.vitals,
            energy: values.energy,
            instances: divided.instances,
            instances_fault: divided.fault,
            lost: None,
            processes,
            incomplete_reason: None,
            stale_since: None,
            shared_clients: Vec::new(),
            passed_clients: Vec::new(),
            sharing: BTreeMap::new(),
            nodes: Vec::new(),
        };
        read.lost = find_loss(
            read.failures()
                .chain(self.events.unreceived_reason(&read.id)),
        );
        if read.lost.is_some() {
            self.slow_values.forget(&read.id);
        }
        Ok(read)
    }
}

/// Whether the dynamic linker reports that this library itself is missing. It uses the same words
/// for a library that this one needs.
fn is_library_missing(library: &str, error: &str) -> bool {
    error.starts_with(library) && error.ends_with(NO_SUCH_FILE)
}
