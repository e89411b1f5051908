//! Reads Apple GPUs through `ioreg`: macOS has no files that report them. A system without that
//! program pays no cost.

pub(crate) mod fuzz_api;
mod ioreg;
mod registry;
mod usage;

use super::{
    Backend, BackendError, BackendReadings, DeviceReadings, MemoryReadings, ProcessReadings,
    Utilization,
};
use crate::fault::FaultCause;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{BackendState, DeviceId, FaultCode, GpuUse, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use registry::{RegistryEntry, RegistryValue};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};
use usage::ClientUsage;

/// The IOKit class of a GPU driver, Apple's or not.
const ACCELERATOR_CLASS: &str = "IOAccelerator";

/// The IOKit class of the clients that processes have open on an Apple GPU.
const CLIENT_CLASS: &str = "AGXDeviceUserClient";

/// No Mac has more GPUs.
const MAX_DEVICES: usize = 16;

/// The backend that reads the output of `ioreg`.
pub(crate) struct AppleBackend {
    program: PathBuf,
    state: AppleState,
}

/// The state kept from one poll to the next.
#[derive(Default)]
struct AppleState {
    usage: ClientUsage,
    /// How often each GPU was restarted after it hung.
    recoveries: BTreeMap<DeviceId, u64>,
}

impl AppleBackend {
    /// `program` is the path of `ioreg`.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            state: AppleState::default(),
        }
    }
}

impl Backend for AppleBackend {
    fn name(&self) -> &'static str {
        "apple"
    }

    fn read(&mut self) -> Result<BackendReadings, BackendError> {
        let start = Instant::now();
        let accelerators = ioreg::run_ioreg(&self.program, ACCELERATOR_CLASS)
            .map_err(|why| BackendError::Failed(FaultCode::ProgramFailed, why))?;
        let clients = ioreg::run_ioreg(&self.program, CLIENT_CLASS);
        let at = Timestamp::from(SystemTime::now());
        let clients = clients.as_deref().map_err(String::as_str);
        let mut readings = self
            .state
            .parse_readings(&accelerators, clients, Instant::now(), at);
        readings.cost_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(readings)
    }
}

impl AppleState {
    /// Parses the output for both classes into readings. `now` is when the clients were read.
    fn parse_readings(
        &mut self,
        accelerators: &str,
        clients: Result<&str, &str>,
        now: Instant,
        at: Timestamp,
    ) -> BackendReadings {
        let mut gpus: Vec<(DeviceId, RegistryEntry)> = Vec::new();
        let found = registry::parse_entries(accelerators).filter(|entry| is_accelerator(entry));
        for entry in found.take(MAX_DEVICES) {
            let id = device_id(entry.name, &gpus);
            gpus.push((id, entry));
        }
        if gpus.is_empty() {
            let why = "ioreg lists no GPU";
            return BackendReadings::without_devices(BackendState::Absent(why.into()));
        }
        gpus.sort_indirect_by(|(a, _), (b, _)| a.cmp(b));
        let mut own = gpus.iter().filter(|(_, entry)| is_apple_gpu(entry));
        // A client does not name its GPU, but no Mac has two Apple GPUs.
        let clients_of = match (own.next(), own.next()) {
            (Some((id, _)), None) => Some(id.clone()),
            _ => None,
        };
        let processes = match clients {
            Ok(text) => Reading::Value(self.processes(text, now, at)),
            Err(why) => Reading::Failed(why.to_owned()),
        };
        let devices = (0..).zip(&gpus).map(|(index, (id, entry))| {
            let mut device = device_readings(id.clone(), index, entry);
            if clients_of.as_ref() == Some(id) {
                device.processes = processes.clone();
            }
            device
        });
        BackendReadings {
            devices: devices.collect(),
            driver: driver_version(&gpus),
            faults: self.restart_faults(&gpus),
            ..BackendReadings::without_devices(BackendState::Ready)
        }
    }

    /// One entry a process, also if it has several clients. The registry may list a process for a
    /// while after its end, so the caller must check that it still exists.
    fn processes(&mut self, text: &str, now: Instant, at: Timestamp) -> Vec<ProcessReadings> {
        let used = self
            .usage
            .shares_since_last(registry::parse_entries(text), now);
        used.into_iter()
            .map(|(pid, share)| ProcessReadings {
                pid,
                start_ticks: None,
                instance: None,
                // Metal does not distinguish drawing from computing.
                used_for: GpuUse::default(),
                // The driver reports no memory per process, and none is estimated.
                memory: Reading::Unsupported,
                utilization: Utilization {
                    sampled_at: share.is_some().then_some(at),
                    sm: share.map_or(Reading::Unsupported, Reading::Value),
                    ..Utilization::unknown(&Reading::Unsupported)
                },
            })
            .collect()
    }

    /// The faults of GPUs that were restarted since the last poll.
    fn restart_faults(&mut self, gpus: &[(DeviceId, RegistryEntry)]) -> Vec<FaultCause> {
        let mut faults = Vec::new();
        for (id, entry) in gpus {
            let statistics = entry.value("PerformanceStatistics");
            let count = statistics
                .as_ref()
                .and_then(|all| all.number("recoveryCount"));
            let Some(count) = count else { continue };
            let before = self.recoveries.insert(id.clone(), count);
            if before.is_some_and(|before| count > before) {
                let what = format!("{} hung and was restarted", id.0);
                faults.push(FaultCause::new(FaultCode::GpuRestarted, what));
            }
        }
        faults
    }
}

/// Whether the entry drives a GPU. Only such an entry has statistics.
fn is_accelerator(entry: &RegistryEntry) -> bool {
    entry.name.contains("Accelerator") || entry.has("PerformanceStatistics")
}

fn is_apple_gpu(entry: &RegistryEntry) -> bool {
    entry.name.starts_with("AGX")
}

/// A GPU is identified by the name of its driver entry, such as `AGXAcceleratorG13X`. The name is
/// the same after each boot, unlike the entry's number in the registry. A second GPU of the same
/// kind gets a counter.
fn device_id(name: &str, before: &[(DeviceId, RegistryEntry)]) -> DeviceId {
    // Names are compared as shown: two names may differ only in the part that is cut off.
    let name = sanitize(name.as_bytes(), 64);
    let counted = (2..).map(|count| format!("{name}#{count}"));
    let taken = |id: &DeviceId| before.iter().any(|(known, _)| known == id);
    let mut ids = std::iter::once(name.clone()).chain(counted).map(DeviceId);
    ids.find(|id| !taken(id)).unwrap_or(DeviceId(name))
}

fn vendor_of_driver(name: &str) -> Vendor {
    let vendors = [
        ("AGX", Vendor::Apple),
        ("AMD", Vendor::Amd),
        ("ATI", Vendor::Amd),
        ("Intel", Vendor::Intel),
        ("NV", Vendor::Nvidia),
    ];
    vendors
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .map_or(Vendor::Other, |(_, vendor)| *vendor)
}

fn device_readings(id: DeviceId, index: u32, entry: &RegistryEntry) -> DeviceReadings {
    let statistics = entry.value("PerformanceStatistics");
    let number = |key: &str| statistics.as_ref().and_then(|all| all.number(key));
    let mut device = DeviceReadings::unknown(
        id,
        index,
        vendor_of_driver(entry.name),
        &Reading::Unsupported,
    );
    device.name = Reading::Value(device_name(entry));
    device.vitals.utilization = match number("Device Utilization %") {
        Some(share @ 0..=100) => Reading::Value(Percent(u32::try_from(share).unwrap_or_default())),
        // Drivers of other vendors' GPUs can do this.
        Some(_) => Reading::Failed("the driver reports more than 100 %".into()),
        None => Reading::Unsupported,
    };
    if let Some(bytes) = number("In use system memory") {
        // The driver does not report a limit; the GPU may not use all of the host's memory.
        device.memory = MemoryReadings {
            used: Reading::Value(Bytes(bytes)),
            ..MemoryReadings::shared_with_host()
        };
    }
    device
}

/// Such as `Apple M3 Pro (14 cores)`; without a model, the name of the driver entry.
fn device_name(entry: &RegistryEntry) -> String {
    let model = entry.text("model").unwrap_or(entry.name);
    let model = sanitize(model.as_bytes(), 96);
    match entry.value("gpu-core-count") {
        Some(RegistryValue::Number(cores)) => format!("{model} ({cores} cores)"),
        _ => model,
    }
}

/// The driver version of Apple's GPU, else of the first GPU.
fn driver_version(gpus: &[(DeviceId, RegistryEntry)]) -> Reading<String> {
    let all = gpus.iter().map(|(_, entry)| entry);
    let own = all.clone().filter(|entry| is_apple_gpu(entry));
    own.chain(all)
        .find_map(|entry| entry.text("IOSourceVersion"))
        .filter(|version| !version.is_empty())
        .map_or(Reading::Unsupported, |version| {
            Reading::Value(sanitize(version.as_bytes(), 64))
        })
}

#[cfg(test)]
mod captures;
#[cfg(test)]
mod tests;
