//! Retries a quarantined device in a sensor process of its own, so that the main sensor is never
//! ended for it. The process exists only during a retry, and nothing waits for it: each poll checks
//! whether it has answered.

use crate::backend::validation::{fail_oversized_lists, validate_readings};
use crate::sensor::{Program, Sensor};
use gpukill_proto::model::BackendState;
use std::time::{Duration, Instant};

/// How long a retry may take. Its sensor is new, and may have to wake the device.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);

/// No driver counts more devices.
const MAX_DEVICES: u32 = 256;

/// The running retry, and the sensor of the last one while it ends.
#[derive(Default)]
pub(super) struct Retry {
    running: Option<RunningRetry>,
    ending: Option<(Sensor, Instant)>,
}

struct RunningRetry {
    sensor: Sensor,
    device: u32,
    started_at: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RetryOutcome {
    /// The driver answers for the device, even if only that it is lost.
    Answers,
    /// The device still hangs or crashes.
    Failed,
}

impl Retry {
    /// Whether another retry could start.
    pub(super) fn is_idle(&mut self) -> bool {
        self.has_ended() && self.running.is_none()
    }

    pub(super) fn start(
        &mut self,
        program: &mut Program,
        library: &str,
        device: u32,
        now: Instant,
    ) {
        let others: Vec<u32> = (0..MAX_DEVICES).filter(|it| *it != device).collect();
        let started = Sensor::spawn("gpukilld-retry", program, library);
        let started = started.map_err(|error| error.to_string());
        let asked = started.and_then(|mut sensor| {
            sensor.request(&others)?;
            Ok(sensor)
        });
        match asked {
            Ok(sensor) => {
                self.running = Some(RunningRetry {
                    sensor,
                    device,
                    started_at: now,
                });
            }
            Err(failure) => tracing::warn!(failure, gpu = device, "this GPU cannot be retried"),
        }
    }

    /// The device that was retried with the result, once known.
    pub(super) fn take_outcome(&mut self, now: Instant) -> Option<(u32, RetryOutcome)> {
        let running = self.running.as_mut()?;
        let device = running.device;
        let answer = match running.sensor.try_read() {
            Ok(None) if now.duration_since(running.started_at) < RETRY_TIMEOUT => return None,
            Ok(None) => Err("did not answer in time".to_owned()),
            Ok(Some(mut readings)) => {
                fail_oversized_lists(&mut readings);
                validate_readings(&readings).map(|()| readings)
            }
            Err(failure) => Err(failure),
        };
        self.abandon();
        let outcome = match answer {
            Ok(readings) if readings.state == BackendState::Ready => RetryOutcome::Answers,
            Ok(_) => RetryOutcome::Failed,
            Err(failure) => {
                tracing::debug!(failure, gpu = device, "the retry of this GPU failed");
                RetryOutcome::Failed
            }
        };
        Some((device, outcome))
    }

    /// Ends the running retry. Its process may take longer to exit.
    pub(super) fn abandon(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.sensor.kill();
            self.ending = Some((running.sensor, Instant::now()));
        }
    }

    /// Whether no process of an ended retry is left.
    pub(super) fn has_ended(&mut self) -> bool {
        self.ending.take_if(|(sensor, _)| sensor.has_ended());
        self.ending.is_none()
    }

    /// Whether a process that was killed does not exit: it is stuck in the kernel.
    pub(super) fn is_stuck(&mut self) -> bool {
        let is_over = self.has_ended();
        let ending = self.ending.as_ref();
        !is_over && ending.is_some_and(|(_, killed)| killed.elapsed() >= RETRY_TIMEOUT)
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        self.abandon();
        if let Some((sensor, _)) = &mut self.ending {
            // Nothing more can be done about a process that stays.
            let _ = sensor.end();
        }
    }
}
