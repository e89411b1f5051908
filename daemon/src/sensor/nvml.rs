//! Reads NVML. Runs only inside the sensor child.
//!
//! Each value is a reading of its own: one getter that is missing, unsupported
//! or broken never takes another value, or another GPU, with it.

mod codes;

mod device;

mod events;

mod instances;

mod plausible;

mod processes;

mod raw;

mod records;

mod window;

use crate::backend::{DeviceReadings, LossCause, LostDevice, Readings};
use codes::{Class, class, explain, loss, loss_among};
use device::TEXT_MAX;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, DeviceId, FaultCode, GpuEvent, LossKind, Vendor};
use gpukill_proto::text::visible;
use gpukill_proto::units::Bytes;
use nvml_wrapper::error::NvmlError;
use plausible::reading;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::Instant;

/// What the dynamic linker says of a library that is not there at all.
const NO_SUCH_FILE: &str = "No such file or directory";

/// No box has more; a driver that says so is not believed.
const MOST_DEVICES: u32 = 256;

/// NVML, loaded once: a library whose driver was replaced is only rid of by
/// ending the process.
pub(super) struct Nvml {
    library: String,
    loaded: Option<nvml_wrapper::Nvml>,
    slow: device::Slow,
    windows: window::Windows,
    events: events::Events,
    versions: Option<Versions>,
    /// The memory that each device has, as it was told last.
    wholes: BTreeMap<DeviceId, Bytes>,
}

/// What does not change while a driver is loaded.
#[derive(Clone)]
struct Versions {
    driver: Reading<String>,
    cuda: Reading<String>,
}

impl Nvml {
    pub(super) fn new(library: &str) -> Self {
        Self {
            library: library.to_owned(),
            loaded: None,
            slow: device::Slow::default(),
            windows: window::Windows::default(),
            events: events::Events::default(),
            versions: None,
            wholes: BTreeMap::new(),
        }
    }

    /// Reads everything once, but for the devices at these indices, which are not
    /// touched. When the answer is not [`BackendState::Ready`], only another
    /// process can do better.
    pub(super) fn poll(&mut self, leave_out: &[u32]) -> Readings {
        let started = Instant::now();
        let mut readings = match self.load() {
            Ok(nvml) => {
                // Taken out so that reading can borrow the rest of `self`.
                let readings = self.read(&nvml, leave_out, started);
                self.loaded = Some(nvml);
                readings
            }
            Err(state) => Readings::nothing(state),
        };
        readings.cost_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        readings
    }

    /// What happened since the last time, the oldest first.
    pub(super) fn take_events(&mut self) -> Vec<GpuEvent> {
        let Some(nvml) = &self.loaded else {
            return Vec::new();
        };
        let events = self.events.take(nvml, Instant::now());
        for id in events.iter().filter_map(|it| it.device.as_ref()) {
            self.slow.forget(id);
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
        loaded.map_err(|error| self.state_after(&error))
    }

    fn state_after(&self, error: &NvmlError) -> BackendState {
        let library = &self.library;
        let (code, why) = match error {
            NvmlError::LibloadingError(error) if is_absent(library, &error.to_string()) => {
                return BackendState::Absent(format!(
                    "no library {library}: for NVIDIA GPUs install the driver"
                ));
            }
            NvmlError::LibloadingError(_) => (
                FaultCode::LibraryUnusable,
                format!("cannot load {library}: {}", explain(error)),
            ),
            // It was loaded, and misses another one.
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
                "the NVIDIA driver does not let gpukilld in: see the modes of /dev/nvidia*"
                    .to_owned(),
            ),
            other => (FaultCode::DriverError, explain(other)),
        };
        BackendState::Failed(code, why)
    }

    fn read(&mut self, nvml: &nvml_wrapper::Nvml, leave_out: &[u32], now: Instant) -> Readings {
        let mut readings = Readings::nothing(BackendState::Ready);
        let count = match nvml.device_count() {
            Ok(count) => count.min(MOST_DEVICES),
            Err(error) => {
                return Readings::nothing(self.state_after(&error));
            }
        };
        Versions {
            driver: readings.driver,
            cuda: readings.cuda,
        } = self.versions(nvml);
        let mut errors = Vec::new();
        for index in 0..count {
            if leave_out.contains(&index) {
                let cause = LossCause {
                    kind: LossKind::Unknown,
                    why: "the driver hangs or crashes at it".to_owned(),
                };
                readings.lost.push(LostDevice { index, cause });
                continue;
            }
            super::say_where(Some(index));
            match self.device(nvml, index, now) {
                Ok(device) => readings.devices.push(device),
                Err(error) => {
                    let cause = loss(&error);
                    readings.lost.push(LostDevice { index, cause });
                    errors.push(error);
                }
            }
        }
        super::say_where(None);
        // What one GPU answers concerns that GPU. Where every GPU answers that the library
        // cannot speak to the driver, the driver was unloaded or replaced.
        let of_library = |error: &&NvmlError| class(error) == Class::Library;
        if readings.devices.is_empty()
            && errors.iter().filter(of_library).count() == errors.len()
            && let Some(error) = errors.first()
        {
            return Readings::nothing(self.state_after(error));
        }
        let is_here = |id: &DeviceId| readings.devices.iter().any(|device| device.id == *id);
        self.slow.keep_only(is_here);
        self.windows.keep_only(is_here);
        self.wholes.retain(|id, _| is_here(id));
        self.events.keep_only(is_here);
        readings.faults.extend(self.events.faults());
        readings
    }

    fn versions(&mut self, nvml: &nvml_wrapper::Nvml) -> Versions {
        if let Some(versions) = &self.versions {
            return versions.clone();
        }
        let versions = Versions {
            driver: reading(nvml.sys_driver_version(), |text| device::shown(&text)),
            cuda: reading(nvml.sys_cuda_driver_version(), |version| {
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

    fn device(
        &mut self,
        nvml: &nvml_wrapper::Nvml,
        index: u32,
        now: Instant,
    ) -> Result<DeviceReadings, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let uuid = device.uuid()?;
        let id = DeviceId(visible(uuid.as_bytes(), TEXT_MAX));
        let about = self.slow.about(nvml, &device, &id, index, now);
        self.events.hear(nvml, &device, &id, now);
        let unified = device::shares_host_memory(&about.name);
        let divided = if instances::is_divided(&about.vitals.mig) {
            instances::read(nvml, &device, unified)
        } else {
            instances::whole(nvml, &device)
        };
        let (memory, whole) = device::memory(nvml, &device, unified);
        // What a GPU has does not change: it bounds what processes hold also while it is not
        // told.
        if let Some(whole) = whole {
            self.wholes.insert(id.clone(), whole);
        }
        let whole = self.wholes.get(&id).copied();
        let processes = match divided.processes {
            Ok(merged) if merged.is_empty() => Reading::Value(Vec::new()),
            Ok(merged) => {
                let samples = self.windows.samples(&device, &id);
                let mut processes = processes::with_utilization(merged, &samples);
                if let Some(whole) = whole {
                    plausible::check_held(&mut processes, whole, &divided.parts);
                }
                Reading::Value(processes)
            }
            Err(error) => processes::no_list(&error),
        };
        let mut read = DeviceReadings {
            id,
            index,
            vendor: Vendor::Nvidia,
            memory,
            name: about.name,
            pci: about.pci,
            vitals: about.vitals,
            instances: divided.parts,
            instances_fault: divided.fault,
            lost: None,
            processes,
            unseen: None,
            silent_since: None,
            sharers: Vec::new(),
            passed: Vec::new(),
            sharing: BTreeMap::new(),
            nodes: Vec::new(),
        };
        read.lost = loss_among(read.failures().chain(self.events.deaf_to(&read.id)));
        if read.lost.is_some() {
            self.slow.forget(&read.id);
        }
        Ok(read)
    }
}

/// Whether the dynamic linker says that this library itself is not there. It says the same of a
/// library that this one needs.
fn is_absent(library: &str, said: &str) -> bool {
    said.starts_with(library) && said.ends_with(NO_SUCH_FILE)
}
