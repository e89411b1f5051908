//! Tries a device that is left out in a sensor process of its own, so that the sensor that reads
//! the others is never ended for it. The process exists only while a try runs, and nothing waits
//! for it: each poll looks whether it has answered.

use crate::backend::checked::{check, leave_out_long_lists};
use crate::sensor::{Program, Sensor, SpawnError};
use gpukill_proto::snapshot::BackendState;
use std::time::{Duration, Instant};

/// How long a try may take. Its sensor is new, and may have to wake the device.
const TIMEOUT: Duration = Duration::from_secs(15);

/// No driver counts so many devices.
const MAX_DEVICES: u32 = 256;

/// The one try that runs, and the one that was ended and is not gone.
#[derive(Default)]
pub(super) struct Retry {
    running: Option<Running>,
    ending: Option<(Sensor, Instant)>,
}

struct Running {
    sensor: Sensor,
    device: u32,
    began: Instant,
}

/// What came of a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The driver answers for the device, if only that it is lost.
    Answers,
    /// It hangs or crashes still.
    Failed,
}

impl Retry {
    /// Whether another try could begin.
    pub(super) fn is_idle(&mut self) -> bool {
        self.is_over() && self.running.is_none()
    }

    /// Begins to try this device.
    pub(super) fn start(
        &mut self,
        program: &mut Program,
        library: &str,
        device: u32,
        now: Instant,
    ) {
        let others: Vec<u32> = (0..MAX_DEVICES).filter(|it| *it != device).collect();
        let started = Sensor::spawn_for_one(program, library);
        let started = started.map_err(|SpawnError(error)| error.to_string());
        let asked = started.and_then(|mut sensor| {
            sensor.ask(&others)?;
            Ok(sensor)
        });
        match asked {
            Ok(sensor) => {
                let began = now;
                self.running = Some(Running {
                    sensor,
                    device,
                    began,
                });
            }
            Err(failure) => tracing::warn!(failure, gpu = device, "this GPU cannot be tried again"),
        }
    }

    /// Which device was tried, and what came of it, once that is known.
    pub(super) fn outcome(&mut self, now: Instant) -> Option<(u32, Outcome)> {
        let running = self.running.as_mut()?;
        let device = running.device;
        let answer = match running.sensor.try_read() {
            Ok(None) if now.duration_since(running.began) < TIMEOUT => return None,
            Ok(None) => Err("did not answer in time".to_owned()),
            Ok(Some(mut readings)) => {
                leave_out_long_lists(&mut readings);
                check(&readings).map(|()| readings)
            }
            Err(failure) => Err(failure),
        };
        self.abandon();
        let outcome = match answer {
            Ok(readings) if readings.state == BackendState::Ready => Outcome::Answers,
            Ok(_) => Outcome::Failed,
            Err(failure) => {
                tracing::debug!(failure, gpu = device, "the GPU was tried again in vain");
                Outcome::Failed
            }
        };
        Some((device, outcome))
    }

    /// Ends the try that runs. Its process may take longer to be gone.
    pub(super) fn abandon(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.sensor.kill();
            self.ending = Some((running.sensor, Instant::now()));
        }
    }

    /// Whether no process of a try that was ended is left.
    pub(super) fn is_over(&mut self) -> bool {
        self.ending.take_if(|(sensor, _)| sensor.has_ended());
        self.ending.is_none()
    }

    /// Whether a process that was ended does not go: it is stuck in the kernel.
    pub(super) fn is_stuck(&mut self) -> bool {
        let is_over = self.is_over();
        let ending = self.ending.as_ref();
        !is_over && ending.is_some_and(|(_, killed)| killed.elapsed() >= TIMEOUT)
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        self.abandon();
        if let Some((sensor, _)) = &mut self.ending {
            // Nothing more can be done about one that stays.
            let _ = sensor.end();
        }
    }
}
