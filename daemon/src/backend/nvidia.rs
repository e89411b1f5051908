//! NVIDIA, through NVML in the sensor child. Here: keep a sensor running, ask
//! it, and end it when it does not answer.

mod nodes;

mod retry;

use self::nodes::Numbers;
use self::retry::{Outcome, Retry};
use super::checked::{check, check_events, leave_out_long_lists};
use super::lost::Names;
use super::quarantine::Quarantine;
use super::{Backend, Failure, Node, Readings, Roots, driver_files};
use crate::faults::FaultCause;
use crate::holders::{DeviceNumber, Holders, When};
use crate::quiesce::Quiesce;
use crate::sensor::{NO_ANSWER, Patience, Program, Sensor, SpawnError};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::snapshot::{BackendState, DeviceId, FaultCode, GpuEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the sensor may take before it counts as stuck. A healthy poll of
/// eight GPUs takes milliseconds; a lost GPU can block single calls for seconds.
const PATIENCE: Patience = Patience {
    whole: Duration::from_secs(10),
    each: Duration::from_secs(10),
};

/// The same for a sensor's first poll, in which NVML wakes every GPU: without
/// persistence mode that takes seconds for each of them.
const FIRST_PATIENCE: Patience = Patience {
    whole: Duration::from_secs(120),
    each: Duration::from_secs(60),
};

/// The same for a sensor that follows another: the GPUs may have gone to sleep
/// in between, but not all of them can be slow.
const WAKING_PATIENCE: Patience = Patience {
    whole: Duration::from_secs(120),
    each: Duration::from_secs(15),
};

/// How long a quiesce waits for a sensor that was killed: without other users
/// its end puts every GPU to sleep.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// What is wrong while a sensor that was killed stays.
const STUCK: &str = "a sensor was killed and does not end: the box may need a reboot";

/// The wait before a sensor that failed is started again, doubled each time it
/// fails in a row up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The wait before a driver or a library that does not work is looked for again.
const LOAD_PAUSE: Duration = Duration::from_secs(10);

/// A part of the driver that is loaded later has other numbers after so long.
const NODES_KEPT: Duration = Duration::from_secs(30);

/// The backend: one sensor, and another while a device that is left out is tried again.
pub(crate) struct Nvidia {
    program: Program,
    library: String,
    procfs: PathBuf,
    sysfs: PathBuf,
    holders: Holders,
    /// The device files of each GPU, as long as the GPUs are the same.
    nodes: BTreeMap<DeviceId, Vec<Node>>,
    nodes_read_at: Option<Instant>,
    quiesce: Quiesce,
    sensor: Option<Sensor>,
    /// A sensor that was killed and has not ended: it is stuck in the kernel.
    stuck: Option<Sensor>,
    pause: Duration,
    not_before: Option<Instant>,
    /// What is said until then.
    meanwhile: Option<Result<Readings, Failure>>,
    /// When the last sensor was replaced because its driver had changed.
    replaced_at: Option<Instant>,
    /// Whether there are readings of NVML that can grow old.
    has_read: bool,
    names: Names,
    quarantine: Quarantine,
    retry: Retry,
    /// How many devices the driver counted last.
    count: usize,
    events: Vec<GpuEvent>,
}

impl Nvidia {
    /// Reads through this NVML library: a bare name or an absolute path. Without
    /// it, names are read below `/proc`. `holders` is told the device files.
    pub(crate) fn new(library: String, roots: Roots, quiesce: Quiesce, holders: Holders) -> Self {
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
            pause: SHORTEST_PAUSE,
            not_before: None,
            meanwhile: None,
            replaced_at: None,
            has_read: false,
            names: Names::default(),
            quarantine: Quarantine::default(),
            retry: Retry::default(),
            count: 0,
            events: Vec::new(),
        }
    }

    fn ask_sensor(&mut self, leave_out: &[u32]) -> Result<Readings, FaultCause> {
        let sensor = match &mut self.sensor {
            Some(sensor) => sensor,
            None => {
                let spawned = Sensor::spawn(&mut self.program, &self.library);
                self.sensor.insert(spawned.map_err(|SpawnError(error)| {
                    let what = format!("cannot start the sensor: {error}");
                    FaultCause::new(FaultCode::SensorNotStarted, what)
                })?)
            }
        };
        let patience = match (sensor.has_answered(), self.has_read) {
            (true, _) => PATIENCE,
            (false, true) => WAKING_PATIENCE,
            (false, false) => FIRST_PATIENCE,
        };
        let garbage = |what| format!("answered with garbage: {what}");
        let heard = sensor
            .hear(leave_out, patience)
            .and_then(|events| check_events(&events).map_err(garbage).map(|()| events));
        let readings = heard.and_then(|events| {
            // Before the first device is read: what happened to it may be why
            // the sensor hangs or crashes there.
            self.events.extend(events);
            let mut readings = sensor.read(patience)?;
            leave_out_long_lists(&mut readings);
            check(&readings).map_err(garbage).map(|()| readings)
        });
        readings.map_err(|error| {
            let code = match error.as_str() {
                NO_ANSWER => FaultCode::SensorHangs,
                _ => FaultCode::SensorFailed,
            };
            FaultCause::new(code, format!("the sensor {error}"))
        })
    }

    /// Adds the device files. They are looked up anew when other GPUs answer than
    /// before, or when one tells its number late.
    fn with_nodes(&mut self, mut readings: Readings) -> Readings {
        let is_known = |nodes: &BTreeMap<DeviceId, Vec<Node>>| {
            let mut devices = readings.devices.iter();
            nodes.len() == readings.devices.len()
                && devices.all(|device| {
                    let own = |nodes: &Vec<Node>| nodes.iter().any(|node| !node.shared);
                    let tells = device.vitals.minor.known().is_some();
                    nodes.get(&device.id).is_some_and(|it| own(it) || !tells)
                })
        };
        let is_old = self
            .nodes_read_at
            .is_none_or(|at| at.elapsed() > NODES_KEPT);
        if is_old || !is_known(&self.nodes) {
            self.nodes_read_at = Some(Instant::now());
            let numbers = Numbers::read(&self.procfs);
            let devices = readings.devices.iter();
            let nodes = devices.map(|it| (it.id.clone(), numbers.of(it, &self.sysfs)));
            self.nodes = nodes.collect();
            let all = self.nodes.values().flatten();
            let all: BTreeSet<DeviceNumber> = all.map(|node| node.number).into_set();
            self.holders.watch("nvidia", all, When::OnRequest);
        }
        for device in &mut readings.devices {
            // The sensor's word on this would be the library's.
            device.nodes = self.nodes.get(&device.id).cloned().unwrap_or_default();
            device.unseen = None;
            device.sharers = Vec::new();
            device.passed = Vec::new();
        }
        readings
    }

    /// Ends the sensor. One that cannot be ended is kept, so that no second one
    /// follows it into the kernel.
    fn end_sensor(&mut self) {
        if let Some(mut sensor) = self.sensor.take()
            && !sensor.end()
        {
            self.stuck = Some(sensor);
        }
    }

    /// Gives sensors that were killed more time to end. True when none is left.
    fn wait_for_the_end(&mut self) -> bool {
        let deadline = Instant::now() + END_PATIENCE;
        loop {
            self.stuck.take_if(Sensor::has_ended);
            let is_over = self.stuck.is_none() && self.retry.is_over();
            if is_over || Instant::now() >= deadline {
                return is_over;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lets in again what could be read in a sensor of its own, and tries the next.
    fn follow_retry(&mut self, now: Instant) {
        match self.retry.outcome(now) {
            Some((device, Outcome::Answers)) => {
                tracing::info!(gpu = device, "this GPU answers again");
                self.quarantine.readmit(device, now);
            }
            Some((device, Outcome::Failed)) => self.quarantine.leave_out(device, now),
            None => {}
        }
        if let Some(device) = self.quarantine.due(now)
            && self.retry.is_idle()
        {
            self.retry
                .start(&mut self.program, &self.library, device, now);
        }
    }

    /// Forgets which devices failed: others may have their indices now, or they may be cured.
    fn forget_failures(&mut self) {
        self.quarantine = Quarantine::default();
        self.retry.abandon();
    }

    /// A sensor whose NVML does not work is ended: what is wrong with a library
    /// or a driver goes away only with a fresh load.
    fn without_nvml(&mut self, state: BackendState, had_worked: bool) -> Result<Readings, Failure> {
        self.end_sensor();
        let answer = self.instead_of_nvml(state);
        let now = Instant::now();
        let recently = |moment: Instant| now.duration_since(moment) < LOAD_PAUSE;
        // The driver was replaced under a library that worked: another sensor
        // will do, at the next poll. But waking all GPUs again and again helps
        // nobody.
        if had_worked && !self.replaced_at.is_some_and(recently) {
            self.replaced_at = Some(now);
            self.forget_failures();
        } else {
            self.not_before = Some(now + LOAD_PAUSE);
            self.meanwhile = Some(answer.clone());
        }
        answer
    }

    fn instead_of_nvml(&self, state: BackendState) -> Result<Readings, Failure> {
        let is_absent = matches!(state, BackendState::Absent(_));
        let (code, why) = match state {
            BackendState::Absent(_) => (
                FaultCode::LibraryUnusable,
                format!(
                    "the driver is loaded without its library {}: install the one of its version",
                    self.library
                ),
            ),
            BackendState::Failed(code, why) => (code, why),
            BackendState::Ready | BackendState::Starting | BackendState::Quiesced(_) => {
                (FaultCode::DriverError, "NVML does not answer".to_owned())
            }
        };
        // What NVML told before says more than names.
        if self.has_read {
            return Err(Failure::Failed(code, why));
        }
        match driver_files::read(&self.procfs, code, &why) {
            Some(readings) => Ok(readings),
            None if is_absent => Ok(Readings::nothing(BackendState::Absent(format!(
                "no library {}: for NVIDIA GPUs install the driver",
                self.library
            )))),
            None => Err(Failure::Failed(code, why)),
        }
    }

    fn sensor_failed(
        &mut self,
        FaultCause {
            code,
            what: failure,
        }: FaultCause,
    ) -> Result<Readings, Failure> {
        let device = self.sensor.as_ref().and_then(Sensor::failed_at);
        if !self.sensor.as_ref().is_some_and(Sensor::has_answered) {
            self.program.forget();
        }
        self.end_sensor();
        if self.quarantine.blame(device, Instant::now()) {
            tracing::warn!(failure, gpu = device, "sensor failed: this GPU is left out");
            // The others need not wait for another sensor.
            self.not_before = None;
            return self.instead_of_nvml(BackendState::Failed(code, failure));
        }
        tracing::warn!(
            failure,
            pause_s = self.pause.as_secs(),
            "sensor failed, will start another"
        );
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let answer = self.instead_of_nvml(BackendState::Failed(code, failure));
        self.meanwhile = Some(answer.clone());
        answer
    }
}

impl Backend for Nvidia {
    fn name(&self) -> &'static str {
        "nvidia"
    }

    fn read(&mut self) -> Result<Readings, Failure> {
        if self.stuck.as_mut().is_some_and(|stuck| !stuck.has_ended()) {
            return Err(Failure::Failed(FaultCode::SensorStuck, STUCK.to_owned()));
        }
        self.stuck = None;
        if let Some(until) = self.quiesce.until() {
            self.end_sensor();
            self.forget_failures();
            if self.wait_for_the_end() {
                self.quiesce.is_let_go();
            }
            self.not_before = None;
            return Err(Failure::Quiesced(until));
        }
        let waits = self
            .not_before
            .is_some_and(|moment| Instant::now() < moment);
        if let (true, Some(meanwhile)) = (waits, &self.meanwhile) {
            return meanwhile.clone();
        }
        let is_first = !self.sensor.as_ref().is_some_and(Sensor::has_answered);
        self.follow_retry(Instant::now());
        let leave_out = self.quarantine.left_out();
        match self.ask_sensor(&leave_out) {
            Ok(readings) if readings.state == BackendState::Ready => {
                if !is_first {
                    // A sensor that only ever answers once is not well.
                    self.pause = SHORTEST_PAUSE;
                }
                self.not_before = None;
                self.has_read = true;
                self.quarantine.well(Instant::now());
                let count = readings.devices.len() + readings.lost.len();
                if std::mem::replace(&mut self.count, count) != count {
                    self.forget_failures();
                }
                let procfs = &self.procfs;
                let told = || {
                    let told = driver_files::read(procfs, FaultCode::GpuLost, "lost");
                    told.map_or_else(Vec::new, |told| told.devices)
                };
                let mut readings = self.names.complete(readings, told);
                if self.retry.is_stuck() {
                    let stuck = FaultCause::new(FaultCode::SensorStuck, STUCK);
                    readings.faults.push(stuck);
                }
                Ok(self.with_nodes(readings))
            }
            Ok(readings) => self.without_nvml(readings.state, !is_first),
            Err(failure) => self.sensor_failed(failure),
        }
    }

    fn take_events(&mut self) -> Vec<GpuEvent> {
        std::mem::take(&mut self.events)
    }
}

impl Drop for Nvidia {
    fn drop(&mut self) {
        self.end_sensor();
    }
}
