//! The calls that release a driver and reopen it.

use super::Session;
use crate::log_events::event;
use crate::quiesce::Quiesce;
use crate::store::RecordedEvent as Recorded;
use gpukill_policy::access::Operation;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::MAX_QUIESCE;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// How long the release of the driver may take: as long as the sensor may take for an answer, and
/// some time for its end.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(30);

impl Session {
    /// Releases the driver for this many seconds.
    pub(crate) async fn quiesce_driver(&self, seconds: u64) -> Result<Timestamp, Refusal> {
        self.may_quiesce("release the driver")?;
        let length = Duration::from_secs(seconds);
        if length.is_zero() || length > MAX_QUIESCE {
            let max_secs = MAX_QUIESCE.as_secs();
            return Err(Refusal::Invalid(format!(
                "{seconds} seconds: the driver can be released for 1 to {max_secs} seconds"
            )));
        }
        let shared = &self.shared;
        let before = shared.quiesce.watch();
        let until = shared.quiesce.begin(length, shared.clock.now());
        let uid = self.caller.uid;
        event!(DriverReleased, caller_uid = uid, until = until.to_rfc3339());
        self.record(Recorded::Quiesced(uid, until)).await;
        if Quiesce::wait_released(before, QUIESCE_TIMEOUT).await {
            Ok(until)
        } else {
            Err(Refusal::Unavailable(
                "the NVIDIA driver is not released yet: it does not answer, or is not read; it will \
                 be released as soon as possible"
                    .to_owned(),
            ))
        }
    }

    /// Reopens the driver early.
    pub(crate) async fn resume_driver(&self) -> Result<(), Refusal> {
        self.may_quiesce("reopen the driver")?;
        if self.shared.quiesce.end() {
            let uid = self.caller.uid;
            event!(DriverReopened, caller_uid = uid);
            self.record(Recorded::Resumed(uid)).await;
        }
        Ok(())
    }

    /// Checks that the caller may make the daemon release and reopen a driver.
    fn may_quiesce(&self, asked: &str) -> Result<(), Refusal> {
        let operators = self.shared.authority.operator_group_name();
        self.require_right(Operation::Quiesce, asked, &operators)
    }
}
