//! The questions about the guard.

use super::Doing;
use super::daemon::{Daemon, question};
use super::meanwhile::Meanwhile;
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::guard::{ReplayReport, ReplayRequest, Snoozed, ViolationPage, ViolationQuery};

impl Daemon {
    /// One page of what the guard decided.
    pub(crate) fn violations(
        &self,
        query: &ViolationQuery,
        patience: Patience,
    ) -> Result<ViolationPage, Failure> {
        question!(
            self,
            patience,
            Violations {
                query: query.clone()
            }
        )
    }

    /// Asks for more time before the job of this process is ended.
    pub(crate) fn snooze(
        &self,
        pid: u32,
        doing: Doing,
        patience: Patience,
    ) -> Result<Vec<Snoozed>, Failure> {
        let is_dry_run = doing == Doing::Saying;
        question!(self, patience, Snooze { pid, is_dry_run })
    }

    /// What rules would have done.
    pub(crate) fn replay_rules(
        &self,
        request: &ReplayRequest,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<ReplayReport, Failure> {
        question!(
            self,
            patience,
            meanwhile,
            ReplayRules {
                request: request.clone()
            }
        )
    }
}
