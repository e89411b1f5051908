//! The calls by which a driver is let go of, and taken again.

use super::Session;
use crate::audit::Event as Recorded;
use crate::catalogue::tell;
use crate::quiesce::Quiesce;
use gpukill_policy::access::Operation;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_QUIESCE;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// How long the driver may take to be let go: as long as a sensor may take for
/// an answer, and a little for its end.
const LET_GO_PATIENCE: Duration = Duration::from_secs(30);

impl Session {
    /// Lets go of it for so many seconds.
    pub(super) async fn let_go(&self, seconds: u64) -> Result<Timestamp, Refusal> {
        self.may_quiesce("let go of the driver")?;
        let length = Duration::from_secs(seconds);
        if length.is_zero() || length > LONGEST_QUIESCE {
            let most = LONGEST_QUIESCE.as_secs();
            return Err(Refusal::Invalid(format!(
                "{seconds} seconds: the driver can be let go for 1 to {most} seconds"
            )));
        }
        let shared = &self.shared;
        let before = shared.quiesce.watch();
        let until = shared.quiesce.begin(length, shared.clock.now());
        let uid = self.caller.uid;
        tell!(DriverLetGo, caller_uid = uid, until = until.to_rfc3339());
        self.record(Recorded::Quiesced(uid, until)).await;
        if Quiesce::let_go_since(before, LET_GO_PATIENCE).await {
            Ok(until)
        } else {
            Err(Refusal::Unavailable(
                "the NVIDIA driver is not let go of yet: it does not answer, or is not read; \
                 it will be as soon as it can"
                    .to_owned(),
            ))
        }
    }

    /// Takes it again before that is over.
    pub(super) async fn take_again(&self) -> Result<(), Refusal> {
        self.may_quiesce("take the driver again")?;
        if self.shared.quiesce.end() {
            let uid = self.caller.uid;
            tell!(DriverTaken, caller_uid = uid);
            self.record(Recorded::Resumed(uid)).await;
        }
        Ok(())
    }

    /// May the caller make the daemon let go of a driver, and take it again?
    fn may_quiesce(&self, asked: &str) -> Result<(), Refusal> {
        let operators = self.shared.authority.operators();
        self.may(Operation::Quiesce, asked, &operators)
    }
}
