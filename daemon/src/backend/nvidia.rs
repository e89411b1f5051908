//! NVIDIA, through NVML in the sensor child. Here: keep a sensor running, ask
//! it, and end it when it does not answer.

use super::checked::check;
use super::lost::Names;
use super::{Backend, Readings};
use crate::sensor::{Sensor, SpawnError};
use gpukill_proto::snapshot::BackendState;
use std::time::{Duration, Instant};

/// How long the sensor may take for one poll of the whole box before it counts
/// as stuck. A healthy poll of eight GPUs takes milliseconds; a lost GPU can
/// block single calls for seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same for a sensor's first poll, in which NVML wakes every GPU: without
/// persistence mode that takes seconds for each of them.
const FIRST_PATIENCE: Duration = Duration::from_secs(120);

/// The wait before a sensor that failed is started again, doubled each time it
/// fails in a row up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The backend: at most one sensor at a time.
pub(crate) struct Nvidia {
    library: String,
    sensor: Option<Sensor>,
    /// A sensor that was killed and has not ended: it is stuck in the kernel.
    stuck: Option<Sensor>,
    pause: Duration,
    not_before: Option<Instant>,
    last_failure: String,
    names: Names,
}

impl Nvidia {
    /// Reads through this NVML library: a bare name or an absolute path.
    pub(crate) fn new(library: String) -> Self {
        Self {
            library,
            sensor: None,
            stuck: None,
            pause: SHORTEST_PAUSE,
            not_before: None,
            last_failure: String::new(),
            names: Names::default(),
        }
    }

    fn ask_sensor(&mut self) -> Result<Readings, String> {
        let sensor = match &mut self.sensor {
            Some(sensor) => sensor,
            None => {
                let spawned = Sensor::spawn(&self.library);
                self.sensor.insert(
                    spawned
                        .map_err(|SpawnError(error)| format!("cannot start the sensor: {error}"))?,
                )
            }
        };
        let patience = if sensor.has_answered() {
            PATIENCE
        } else {
            FIRST_PATIENCE
        };
        let readings = sensor
            .poll(patience)
            .and_then(|readings| match check(&readings) {
                Ok(()) => Ok(readings),
                Err(what) => Err(format!("answered with garbage: {what}")),
            });
        readings.map_err(|error| format!("the sensor {error}"))
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
}

impl Backend for Nvidia {
    fn name(&self) -> &'static str {
        "nvidia"
    }

    fn read(&mut self) -> Result<Readings, String> {
        if let Some(stuck) = &mut self.stuck {
            if !stuck.has_ended() {
                let pid = stuck.pid();
                return Err(format!(
                    "the sensor ({pid}) is stuck in the kernel: the box needs a reboot"
                ));
            }
            self.stuck = None;
        }
        if self
            .not_before
            .is_some_and(|moment| Instant::now() < moment)
        {
            return Err(self.last_failure.clone());
        }
        let is_first = !self.sensor.as_ref().is_some_and(Sensor::has_answered);
        match self.ask_sensor() {
            Ok(readings) => {
                if !is_first {
                    // A sensor that only ever answers once is not well.
                    self.pause = SHORTEST_PAUSE;
                }
                self.not_before = None;
                match readings.state {
                    // The sensor is well, the driver is not: what was read
                    // before it failed remains, and grows old.
                    BackendState::Failed(why) => Err(why),
                    BackendState::Ready
                    | BackendState::Starting
                    | BackendState::Absent(_)
                    | BackendState::NotBuilt => Ok(self.names.complete(readings)),
                }
            }
            Err(failure) => {
                self.end_sensor();
                tracing::warn!(
                    failure,
                    pause_s = self.pause.as_secs(),
                    "sensor failed, will start another"
                );
                self.not_before = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.last_failure.clone_from(&failure);
                Err(failure)
            }
        }
    }
}

impl Drop for Nvidia {
    fn drop(&mut self) {
        self.end_sensor();
    }
}
