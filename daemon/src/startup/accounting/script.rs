//! Who does what on two GPUs, by a clock that a hand turns.

use crate::backend::{
    Backend, DeviceReadings, Failure, MemoryReadings, ProcessReadings, Readings, Utilization,
};
use crate::clock::Clock;
use crate::host::users::{Group, NameService, User};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, DeviceId, GpuEvent, Use, Vendor};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// When the script begins: not with a minute.
pub(super) const BEGINNING: Timestamp = Timestamp(1_699_999_217_000);

/// A process that uses a GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) gpu: u32,
    /// In seconds after the beginning.
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) load: Load,
}

/// What it does there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    Busy,
    Idle,
    BusyUntil(u64),
    Unknown,
}

impl Task {
    pub(super) fn is_there(&self, second: u64) -> bool {
        (self.from..self.until).contains(&second)
    }
}

impl Load {
    pub(super) fn at(self, second: u64) -> Reading<Percent> {
        match self {
            Self::Busy => Reading::Value(Percent(90)),
            Self::Idle => Reading::Value(Percent(0)),
            Self::BusyUntil(end) if second < end => Reading::Value(Percent(90)),
            Self::BusyUntil(_) => Reading::Value(Percent(0)),
            Self::Unknown => Reading::Unsupported,
        }
    }
}

/// Goes on only when it is told to.
#[derive(Default)]
pub(super) struct ManualClock(Mutex<u64>);

impl ManualClock {
    pub(super) fn seconds(&self) -> u64 {
        *self.0.lock().unwrap()
    }

    pub(super) fn turn_to(&self, second: u64) {
        *self.0.lock().unwrap() = second;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        BEGINNING.plus_seconds(self.seconds().cast_signed())
    }

    fn steady(&self) -> Duration {
        Duration::from_secs(self.seconds())
    }
}

/// Plays the script.
pub(super) struct Script {
    pub(super) clock: Arc<ManualClock>,
    pub(super) tasks: &'static [Task],
}

impl Backend for Script {
    fn name(&self) -> &'static str {
        "nvidia"
    }

    fn read(&mut self) -> Result<Readings, Failure> {
        let second = self.clock.seconds();
        let gpu = |index: u32| {
            let tasks = self.tasks.iter();
            let tasks = tasks.filter(|task| task.gpu == index && task.is_there(second));
            let tasks: Vec<&Task> = tasks.collect();
            let loads = tasks.iter().map(|task| task.load.at(second));
            let busiest = loads.filter_map(|load| load.known().copied()).max();
            let id = DeviceId(format!("GPU-{index}"));
            let unknown = Reading::Unsupported;
            let mut device = DeviceReadings::unknown(id, index, Vendor::Nvidia, &unknown);
            device.vitals.utilization = Reading::Value(busiest.unwrap_or(Percent(0)));
            device.memory = MemoryReadings {
                total: Reading::Value(Bytes::mib(80 << 10)),
                used: Reading::Value(Bytes::mib(1_024 * tasks.len() as u64)),
                reserved: Reading::Value(Bytes(0)),
                unified: false,
            };
            let listed = tasks.into_iter().map(|task| ProcessReadings {
                pid: task.pid,
                start_ticks: None,
                instance: None,
                used_for: Use::default(),
                memory: Reading::Value(Bytes::mib(1_024)),
                utilization: Utilization {
                    sm: task.load.at(second),
                    ..Utilization::unknown(&unknown)
                },
            });
            device.processes = Reading::Value(listed.collect());
            device
        };
        Ok(Readings {
            devices: vec![gpu(0), gpu(1)],
            ..Readings::nothing(BackendState::Ready)
        })
    }

    fn take_events(&mut self) -> Vec<GpuEvent> {
        Vec::new()
    }
}

/// Everybody is called by their number.
pub(super) struct Numbers;

impl NameService for Numbers {
    fn user(&self, uid: u32) -> Result<Option<User>, String> {
        Ok(Some(User {
            name: format!("u{uid}"),
            home: PathBuf::from("/"),
        }))
    }

    fn group(&self, _: &str) -> Result<Option<Group>, String> {
        Ok(None)
    }

    fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String> {
        Ok(Some(vec![format!("g{uid}")]))
    }
}
