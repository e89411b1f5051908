//! The script of the test hour: which process does what on two GPUs, on a manual clock.

use crate::backend::{
    Backend, BackendError, BackendReadings, DeviceReadings, MemoryReadings, ProcessReadings,
    Utilization,
};
use crate::clock::Clock;
use crate::host::users::{NameService, UserRecord};
use gpukill_proto::model::{BackendState, DeviceId, GpuUse, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The start of the script; it is not the start of a minute.
pub(super) const SCRIPT_START: Timestamp = Timestamp(1_699_999_217_000);

/// A process that uses a GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScriptedTask {
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) gpu: u32,
    /// Seconds after the start.
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) load: TaskLoad,
}

/// The load of the process.
#[derive(Debug, Clone, Copy)]
pub(super) enum TaskLoad {
    Busy,
    Idle,
    BusyUntil(u64),
    Unknown,
}

impl ScriptedTask {
    pub(super) fn is_running(&self, second: u64) -> bool {
        (self.from..self.until).contains(&second)
    }
}

impl TaskLoad {
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

/// A clock that only a test advances.
#[derive(Default)]
pub(super) struct ManualClock(Mutex<u64>);

impl ManualClock {
    pub(super) fn seconds(&self) -> u64 {
        *self.0.lock().unwrap()
    }

    pub(super) fn set(&self, second: u64) {
        *self.0.lock().unwrap() = second;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        SCRIPT_START.plus_seconds(self.seconds().cast_signed())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.seconds())
    }
}

/// Plays the script.
pub(super) struct AccountingBackend {
    pub(super) clock: Arc<ManualClock>,
    pub(super) tasks: &'static [ScriptedTask],
}

impl Backend for AccountingBackend {
    fn name(&self) -> &'static str {
        "nvidia"
    }

    fn read(&mut self) -> Result<BackendReadings, BackendError> {
        let second = self.clock.seconds();
        let gpu = |index: u32| {
            let tasks: Vec<&ScriptedTask> = self
                .tasks
                .iter()
                .filter(|task| task.gpu == index && task.is_running(second))
                .collect();
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
                used_for: GpuUse::default(),
                memory: Reading::Value(Bytes::mib(1_024)),
                utilization: Utilization {
                    sm: task.load.at(second),
                    ..Utilization::unknown(&unknown)
                },
            });
            device.processes = Reading::Value(listed.collect());
            device
        };
        Ok(BackendReadings {
            devices: vec![gpu(0), gpu(1)],
            ..BackendReadings::without_devices(BackendState::Ready)
        })
    }
}

/// Every user is named by number.
pub(super) struct NumericNameService;

impl NameService for NumericNameService {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, String> {
        Ok(Some(UserRecord {
            name: format!("u{uid}"),
            home: PathBuf::from("/"),
        }))
    }

    fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String> {
        Ok(Some(vec![format!("g{uid}")]))
    }
}
