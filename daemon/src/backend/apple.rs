//! Apple's GPUs, through `ioreg`: macOS has no files that tell of them. Wherever
//! there is no such program this costs nothing.

mod ask;

mod registry;

pub(crate) mod untrusted;

mod usage;

use super::{
    Backend, DeviceReadings, Failure, MemoryReadings, ProcessReadings, Readings, Utilization,
};
use crate::faults::FaultCause;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, DeviceId, FaultCode, GpuEvent, Use, Vendor};
use gpukill_proto::text::visible;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use registry::{Entry, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};
use usage::Usage;

/// The class of what drives a GPU, Apple's or not.
const ACCELERATOR: &str = "IOAccelerator";

/// The class of what each process has open on one of Apple's GPUs.
const CLIENT: &str = "AGXDeviceUserClient";

/// No Mac has more GPUs.
const MOST_DEVICES: usize = 16;

/// Why there is nothing to read without that program.
pub(super) const ABSENT: &str = "no ioreg: Apple GPUs are read on macOS";

/// Reads what `ioreg` prints.
pub(crate) struct Apple {
    program: PathBuf,
    memory: Memory,
}

/// What must be remembered from one poll to the next.
#[derive(Default)]
struct Memory {
    usage: Usage,
    /// How often each GPU was started again after it hung.
    recoveries: BTreeMap<DeviceId, u64>,
}

impl Apple {
    /// `program` is `ioreg`, whether there is one or not.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            memory: Memory::default(),
        }
    }
}

impl Backend for Apple {
    fn name(&self) -> &'static str {
        "apple"
    }

    fn read(&mut self) -> Result<Readings, Failure> {
        if !self.program.exists() {
            return Ok(Readings::nothing(BackendState::Absent(ABSENT.into())));
        }
        let began = Instant::now();
        let accelerators = ask::ask(&self.program, ACCELERATOR)
            .map_err(|why| Failure::Failed(FaultCode::ProgramFailed, why))?;
        let clients = ask::ask(&self.program, CLIENT);
        let at = Timestamp::from(SystemTime::now());
        let clients = clients.as_deref().map_err(String::as_str);
        let mut readings = self
            .memory
            .readings(&accelerators, clients, Instant::now(), at);
        readings.cost_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(readings)
    }

    fn take_events(&mut self) -> Vec<GpuEvent> {
        Vec::new()
    }
}

impl Memory {
    /// What was printed of both classes, as readings. `now` is when the clients
    /// were.
    fn readings(
        &mut self,
        accelerators: &str,
        clients: Result<&str, &str>,
        now: Instant,
        at: Timestamp,
    ) -> Readings {
        let mut gpus: Vec<(DeviceId, Entry)> = Vec::new();
        let found = registry::entries(accelerators).filter(|entry| is_accelerator(entry));
        for entry in found.take(MOST_DEVICES) {
            let id = id(entry.name, &gpus);
            gpus.push((id, entry));
        }
        if gpus.is_empty() {
            let why = "ioreg lists no GPU";
            return Readings::nothing(BackendState::Absent(why.into()));
        }
        gpus.sort_indirect_by(|(a, _), (b, _)| a.cmp(b));
        let mut own = gpus.iter().filter(|(_, entry)| is_apples(entry));
        // A client does not say whose it is; no Mac has two of Apple's GPUs.
        let clients_of = match (own.next(), own.next()) {
            (Some((id, _)), None) => Some(id.clone()),
            _ => None,
        };
        let processes = match clients {
            Ok(text) => Reading::Value(self.processes(text, now, at)),
            Err(why) => Reading::Failed(why.to_owned()),
        };
        let devices = (0..).zip(&gpus).map(|(index, (id, entry))| {
            let mut device = device(id.clone(), index, entry);
            if clients_of.as_ref() == Some(id) {
                device.processes = processes.clone();
            }
            device
        });
        Readings {
            devices: devices.collect(),
            driver: version(&gpus),
            faults: self.restarts(&gpus),
            ..Readings::nothing(BackendState::Ready)
        }
    }

    /// One for each process, whatever the number of its clients. The registry may
    /// list a process for a while after its end: it must be looked for.
    fn processes(&mut self, text: &str, now: Instant, at: Timestamp) -> Vec<ProcessReadings> {
        let used = self.usage.since_last(registry::entries(text), now);
        used.into_iter()
            .map(|(pid, share)| ProcessReadings {
                pid,
                start_ticks: None,
                instance: None,
                // Metal tells no difference between drawing and computing.
                used_for: Use::default(),
                // None is told for a process, and none is made up.
                memory: Reading::Unsupported,
                utilization: Utilization {
                    at: share.is_some().then_some(at),
                    sm: share.map_or(Reading::Unsupported, Reading::Value),
                    ..Utilization::unknown(&Reading::Unsupported)
                },
            })
            .collect()
    }

    /// Which GPUs were started again since the last poll.
    fn restarts(&mut self, gpus: &[(DeviceId, Entry)]) -> Vec<FaultCause> {
        let mut faults = Vec::new();
        for (id, entry) in gpus {
            let statistics = entry.value("PerformanceStatistics");
            let count = statistics
                .as_ref()
                .and_then(|all| all.number("recoveryCount"));
            let Some(count) = count else { continue };
            let before = self.recoveries.insert(id.clone(), count);
            if before.is_some_and(|before| count > before) {
                let what = format!("{} hung and was started again", id.0);
                faults.push(FaultCause::new(FaultCode::GpuRestarted, what));
            }
        }
        faults
    }
}

/// Whether it drives a GPU: only then it has statistics of it.
fn is_accelerator(entry: &Entry) -> bool {
    entry.name.contains("Accelerator") || entry.has("PerformanceStatistics")
}

fn is_apples(entry: &Entry) -> bool {
    entry.name.starts_with("AGX")
}

/// What drives it names a GPU: `AGXAcceleratorG13X`. That is the same after each
/// boot, unlike the number of its entry in the registry. A second one of the same
/// kind is counted.
fn id(name: &str, before: &[(DeviceId, Entry)]) -> DeviceId {
    // Compared as they are shown: two names may differ only in what is cut off.
    let name = visible(name.as_bytes(), 64);
    let counted = (2..).map(|count| format!("{name}#{count}"));
    let taken = |id: &DeviceId| before.iter().any(|(known, _)| known == id);
    let mut ids = std::iter::once(name.clone()).chain(counted).map(DeviceId);
    ids.find(|id| !taken(id)).unwrap_or(DeviceId(name))
}

fn vendor(name: &str) -> Vendor {
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

fn device(id: DeviceId, index: u32, entry: &Entry) -> DeviceReadings {
    let statistics = entry.value("PerformanceStatistics");
    let number = |key: &str| statistics.as_ref().and_then(|all| all.number(key));
    let mut device = DeviceReadings::unknown(id, index, vendor(entry.name), &Reading::Unsupported);
    device.name = Reading::Value(name(entry));
    device.vitals.utilization = match number("Device Utilization %") {
        Some(share @ 0..=100) => Reading::Value(Percent(u32::try_from(share).unwrap_or_default())),
        // As drivers of other makers' GPUs do.
        Some(_) => Reading::Failed("the driver reports more than 100 %".into()),
        None => Reading::Unsupported,
    };
    if let Some(bytes) = number("In use system memory") {
        // How much it may use is not told: of the host's memory not all.
        device.memory = MemoryReadings {
            used: Reading::Value(Bytes(bytes)),
            ..MemoryReadings::shared_with_host()
        };
    }
    device
}

/// `Apple M3 Pro (14 cores)`; without a model what drives it.
fn name(entry: &Entry) -> String {
    let model = entry.text("model").unwrap_or(entry.name);
    let model = visible(model.as_bytes(), 96);
    match entry.value("gpu-core-count") {
        Some(Value::Number(cores)) => format!("{model} ({cores} cores)"),
        _ => model,
    }
}

/// The version of the driver of Apple's GPU, else of the first.
fn version(gpus: &[(DeviceId, Entry)]) -> Reading<String> {
    let all = gpus.iter().map(|(_, entry)| entry);
    let own = all.clone().filter(|entry| is_apples(entry));
    own.chain(all)
        .find_map(|entry| entry.text("IOSourceVersion"))
        .filter(|version| !version.is_empty())
        .map_or(Reading::Unsupported, |version| {
            Reading::Value(visible(version.as_bytes(), 64))
        })
}

#[cfg(test)]
mod captures;

#[cfg(test)]
mod tests;
