//! Reads NVIDIA GPUs through NVML in the sensor process: keeps a sensor running, requests readings,
//! and ends a sensor that does not answer.

mod device_nodes;
mod retry;

use self::device_nodes::DeviceMajors;
use self::retry::{Retry, RetryOutcome};
use super::lost_devices::DeviceNames;
use super::quarantine::Quarantine;
use super::validation::{fail_oversized_lists, validate_events, validate_readings};
use super::{Backend, BackendError, BackendReadings, DeviceNode, Roots, driver_files};
use crate::fault::FaultCause;
use crate::fd_scan::{DeviceNumber, FdScanHandle, WatchMode};
use crate::quiesce::Quiesce;
use crate::sensor::{NO_ANSWER, PollLimits, Program, Sensor};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::{BackendState, DeviceId, FaultCode, GpuEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the sensor may take before it counts as stuck. A healthy poll of eight GPUs takes
/// milliseconds; a lost GPU can block single calls for seconds.
const POLL_LIMITS: PollLimits = PollLimits {
    poll: Duration::from_secs(10),
    device: Duration::from_secs(10),
};

/// The timeout of the first poll of a sensor, in which NVML wakes every GPU: without persistence
/// mode that takes seconds for each GPU.
const FIRST_POLL_LIMITS: PollLimits = PollLimits {
    poll: Duration::from_secs(120),
    device: Duration::from_secs(60),
};

/// The timeout of the first poll of a replacement sensor: the GPUs may have gone to sleep in
/// between, but not all of them can be slow.
const RESTART_POLL_LIMITS: PollLimits = PollLimits {
    poll: Duration::from_secs(120),
    device: Duration::from_secs(15),
};

/// How long a quiesce waits for a sensor that was killed: without other users its end puts every
/// GPU to sleep.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The fault while a killed sensor does not end.
const STUCK_SENSOR: &str = "a killed sensor does not exit: the host may need a reboot";

/// The wait before a failed sensor is restarted, doubled with each failure in a row up to the
/// maximum.
const MIN_RESTART_PAUSE: Duration = Duration::from_secs(1);
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(60);

/// The wait before a driver or a library that does not work is tried again.
const LOAD_PAUSE: Duration = Duration::from_secs(10);

/// Parts of the driver that are loaded later can change the device numbers: how long the numbers
/// are kept.
const NODES_INTERVAL: Duration = Duration::from_secs(30);

/// The backend: one sensor, and a second one while a quarantined device is retried.
pub(crate) struct NvidiaBackend {
    program: Program,
    library: String,
    procfs: PathBuf,
    sysfs: PathBuf,
    holders: FdScanHandle,
    /// The device files of each GPU, kept while the GPUs are the same.
    nodes: BTreeMap<DeviceId, Vec<DeviceNode>>,
    nodes_read_at: Option<Instant>,
    quiesce: Quiesce,
    sensor: Option<Sensor>,
    /// A sensor that was killed and has not ended: it is stuck in the kernel.
    stuck: Option<Sensor>,
    pause: Duration,
    not_before: Option<Instant>,
    /// The answer until then.
    interim_answer: Option<Result<BackendReadings, BackendError>>,
    /// When the last sensor was replaced because the driver had changed.
    replaced_at: Option<Instant>,
    /// Whether there are NVML readings that can become stale.
    has_read: bool,
    names: DeviceNames,
    quarantine: Quarantine,
    retry: Retry,
    /// The number of devices that the driver counted last.
    count: usize,
    events: Vec<GpuEvent>,
}

impl NvidiaBackend {
    /// Reads through this NVML library: a bare name or an absolute path. Without it, names are read
    /// below `/proc`. `holders` receives the device files.
    pub(crate) fn new(
        library: String,
        roots: Roots,
        quiesce: Quiesce,
        holders: FdScanHandle,
    ) -> Self {
        Self {
            program: Program::find(),
            library,
            procfs: roots.procfs,
            sysfs: roots.sysfs,
            holders,
            nodes: BTreeMap::new(),
            nodes_read_at: None,
            quiesce,
            sensor: None,
            stuck: None,
            pause: MIN_RESTART_PAUSE,
            not_before: None,
            interim_answer: None,
            replaced_at: None,
            has_read: false,
            names: DeviceNames::default(),
            quarantine: Quarantine::default(),
            retry: Retry::default(),
            count: 0,
            events: Vec::new(),
        }
    }

    fn poll_sensor(&mut self, leave_out: &[u32]) -> Result<BackendReadings, FaultCause> {
        let sensor = match &mut self.sensor {
            Some(sensor) => sensor,
            None => {
                let spawned = Sensor::spawn("gpukilld-sensor", &mut self.program, &self.library);
                self.sensor.insert(spawned.map_err(|error| {
                    let what = format!("cannot start the sensor: {error}");
                    FaultCause::new(FaultCode::SensorNotStarted, what)
                })?)
            }
        };
        let limits = match (sensor.has_answered(), self.has_read) {
            (true, _) => POLL_LIMITS,
            (false, true) => RESTART_POLL_LIMITS,
            (false, false) => FIRST_POLL_LIMITS,
        };
        let garbage = |what| format!("answered with garbage: {what}");
        let heard = sensor
            .poll_events(leave_out, limits)
            .and_then(|events| validate_events(&events).map_err(garbage).map(|()| events));
        let readings = heard.and_then(|events| {
            // Before the first device is read: an event may explain why the sensor hangs or crashes
            // there.
            self.events.extend(events);
            let mut readings = sensor.read(limits)?;
            fail_oversized_lists(&mut readings);
            validate_readings(&readings)
                .map_err(garbage)
                .map(|()| readings)
        });
        readings.map_err(|error| {
            let code = match error.as_str() {
                NO_ANSWER => FaultCode::SensorHangs,
                _ => FaultCode::SensorFailed,
            };
            FaultCause::new(code, format!("the sensor {error}"))
        })
    }

    /// Adds the device files. They are looked up again when the set of GPUs has changed, or when a
    /// GPU reports its number late.
    fn add_device_nodes(&mut self, mut readings: BackendReadings) -> BackendReadings {
        let is_known = |nodes: &BTreeMap<DeviceId, Vec<DeviceNode>>| {
            let mut devices = readings.devices.iter();
            nodes.len() == readings.devices.len()
                && devices.all(|device| {
                    let own = |nodes: &Vec<DeviceNode>| nodes.iter().any(|node| !node.shared);
                    let tells = device.vitals.minor.known().is_some();
                    nodes.get(&device.id).is_some_and(|it| own(it) || !tells)
                })
        };
        let is_old = self
            .nodes_read_at
            .is_none_or(|at| at.elapsed() > NODES_INTERVAL);
        if is_old || !is_known(&self.nodes) {
            self.nodes_read_at = Some(Instant::now());
            let numbers = DeviceMajors::read(&self.procfs);
            let devices = readings.devices.iter();
            let nodes = devices.map(|it| (it.id.clone(), numbers.device_nodes(it, &self.sysfs)));
            self.nodes = nodes.into_map();
            let all = self.nodes.values().flatten();
            let all: BTreeSet<DeviceNumber> = all.map(|node| node.number).into_set();
            self.holders.watch("nvidia", all, WatchMode::OnRequest);
        }
        for device in &mut readings.devices {
            // The sensor must not set these: its values could come from the library.
            device.nodes = self.nodes.get(&device.id).cloned().unwrap_or_default();
            device.incomplete_reason = None;
            device.shared_clients = Vec::new();
            device.passed_clients = Vec::new();
        }
        readings
    }

    /// Ends the sensor. A sensor that cannot be ended is kept, so that no second one follows it
    /// into the kernel.
    fn end_sensor(&mut self) {
        if let Some(mut sensor) = self.sensor.take()
            && !sensor.end()
        {
            self.stuck = Some(sensor);
        }
    }

    /// Gives killed sensors more time to end. True when none is left.
    fn wait_until_ended(&mut self) -> bool {
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            self.stuck.take_if(Sensor::has_ended);
            let is_over = self.stuck.is_none() && self.retry.has_ended();
            if is_over || Instant::now() >= deadline {
                return is_over;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Readmits a device that could be read in its own sensor, and retries the next.
    fn process_retry(&mut self, now: Instant) {
        match self.retry.take_outcome(now) {
            Some((device, RetryOutcome::Answers)) => {
                tracing::info!(gpu = device, "this GPU answers again");
                self.quarantine.readmit(device, now);
            }
            Some((device, RetryOutcome::Failed)) => self.quarantine.exclude(device, now),
            None => {}
        }
        if let Some(device) = self.quarantine.due_for_retry(now)
            && self.retry.is_idle()
        {
            self.retry
                .start(&mut self.program, &self.library, device, now);
        }
    }

    /// Forgets which devices failed: other devices may have their indices now, or they may work
    /// again.
    fn forget_failures(&mut self) {
        self.quarantine = Quarantine::default();
        self.retry.abandon();
    }

    /// Ends a sensor if its NVML does not work: only a fresh load can repair a library or a driver.
    fn handle_nvml_failure(
        &mut self,
        state: BackendState,
        had_worked: bool,
    ) -> Result<BackendReadings, BackendError> {
        self.end_sensor();
        let answer = self.fallback_answer(state);
        let now = Instant::now();
        let recently = |moment: Instant| now.duration_since(moment) < LOAD_PAUSE;
        // The driver was replaced while the library worked: another sensor will work at the next
        // poll. But waking all GPUs repeatedly is useless.
        if had_worked && !self.replaced_at.is_some_and(recently) {
            self.replaced_at = Some(now);
            self.forget_failures();
        } else {
            self.not_before = Some(now + LOAD_PAUSE);
            self.interim_answer = Some(answer.clone());
        }
        answer
    }

    fn fallback_answer(&self, state: BackendState) -> Result<BackendReadings, BackendError> {
        let is_absent = matches!(state, BackendState::Absent(_));
        let (code, why) = match state {
            BackendState::Absent(_) => (
                FaultCode::LibraryUnusable,
                format!(
                    "the driver is loaded without its library {}: install the library of the same \
                     version",
                    self.library
                ),
            ),
            BackendState::Failed(code, why) => (code, why),
            BackendState::Ready | BackendState::Starting | BackendState::Quiesced(_) => {
                (FaultCode::DriverError, "NVML does not answer".to_owned())
            }
        };
        // Earlier readings of NVML are more useful than names.
        if self.has_read {
            return Err(BackendError::Failed(code, why));
        }
        match driver_files::read_without_nvml(&self.procfs, code, &why) {
            Some(readings) => Ok(readings),
            None if is_absent => Ok(BackendReadings::without_devices(BackendState::Absent(
                format!(
                    "no library {}: for NVIDIA GPUs install the driver",
                    self.library
                ),
            ))),
            None => Err(BackendError::Failed(code, why)),
        }
    }

    fn handle_sensor_failure(
        &mut self,
        FaultCause {
            code,
            what: failure,
        }: FaultCause,
    ) -> Result<BackendReadings, BackendError> {
        let device = self.sensor.as_ref().and_then(Sensor::failed_at);
        if !self.sensor.as_ref().is_some_and(Sensor::has_answered) {
            self.program.forget();
        }
        self.end_sensor();
        if self.quarantine.record_failure(device, Instant::now()) {
            tracing::warn!(failure, gpu = device, "sensor failed: this GPU is left out");
            // The other devices need not wait for another sensor.
            self.not_before = None;
            return self.fallback_answer(BackendState::Failed(code, failure));
        }
        tracing::warn!(
            failure,
            pause_s = self.pause.as_secs(),
            "sensor failed, will start another"
        );
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(MAX_RESTART_PAUSE);
        let answer = self.fallback_answer(BackendState::Failed(code, failure));
        self.interim_answer = Some(answer.clone());
        answer
    }
}

impl Backend for NvidiaBackend {
    fn name(&self) -> &'static str {
        "nvidia"
    }

    fn read(&mut self) -> Result<BackendReadings, BackendError> {
        if self.stuck.as_mut().is_some_and(|stuck| !stuck.has_ended()) {
            return Err(BackendError::Failed(
                FaultCode::SensorStuck,
                STUCK_SENSOR.to_owned(),
            ));
        }
        self.stuck = None;
        if let Some(until) = self.quiesce.until() {
            self.end_sensor();
            self.forget_failures();
            if self.wait_until_ended() {
                self.quiesce.mark_released();
            }
            self.not_before = None;
            return Err(BackendError::Quiesced(until));
        }
        let is_waiting = self
            .not_before
            .is_some_and(|moment| Instant::now() < moment);
        if let (true, Some(meanwhile)) = (is_waiting, &self.interim_answer) {
            return meanwhile.clone();
        }
        let is_first = !self.sensor.as_ref().is_some_and(Sensor::has_answered);
        self.process_retry(Instant::now());
        let leave_out = self.quarantine.excluded_devices();
        match self.poll_sensor(&leave_out) {
            Ok(readings) if readings.state == BackendState::Ready => {
                if !is_first {
                    // A sensor that answers only once is not healthy.
                    self.pause = MIN_RESTART_PAUSE;
                }
                self.not_before = None;
                self.has_read = true;
                self.quarantine.record_success(Instant::now());
                let count = readings.devices.len() + readings.lost.len();
                if std::mem::replace(&mut self.count, count) != count {
                    self.forget_failures();
                }
                let procfs = &self.procfs;
                let read_driver_files = || {
                    let readings =
                        driver_files::read_without_nvml(procfs, FaultCode::GpuLost, "lost");
                    readings.map_or_else(Vec::new, |readings| readings.devices)
                };
                let mut readings = self.names.name_lost_devices(readings, read_driver_files);
                if self.retry.is_stuck() {
                    let stuck = FaultCause::new(FaultCode::SensorStuck, STUCK_SENSOR);
                    readings.faults.push(stuck);
                }
                Ok(self.add_device_nodes(readings))
            }
            Ok(readings) => self.handle_nvml_failure(readings.state, !is_first),
            Err(failure) => self.handle_sensor_failure(failure),
        }
    }

    fn take_events(&mut self) -> Vec<GpuEvent> {
        std::mem::take(&mut self.events)
    }
}

impl Drop for NvidiaBackend {
    fn drop(&mut self) {
        self.end_sensor();
    }
}
