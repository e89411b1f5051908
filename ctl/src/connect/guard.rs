//! Calls about the guard.

use super::Mode;
use super::daemon::{Daemon, question};
use super::timeout::RequestTimeout;
use super::wait_hooks::WaitHooks;
use crate::exit::Error;
use gpukill_proto::guard::{
    ReplayReport, ReplayRequest, SnoozedRule, ViolationPage, ViolationQuery,
};

impl Daemon {
    /// One page of the guard's decisions.
    pub(crate) fn violations(
        &self,
        query: &ViolationQuery,
        patience: RequestTimeout,
    ) -> Result<ViolationPage, Error> {
        question!(
            self,
            patience,
            Violations {
                query: query.clone()
            }
        )
    }

    /// Postpones the end of this process's job.
    pub(crate) fn snooze(
        &self,
        pid: u32,
        doing: Mode,
        patience: RequestTimeout,
    ) -> Result<Vec<SnoozedRule>, Error> {
        let is_dry_run = doing == Mode::DryRun;
        question!(self, patience, Snooze { pid, is_dry_run })
    }

    /// Replays rules on the past.
    pub(crate) fn replay_rules(
        &self,
        request: &ReplayRequest,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<ReplayReport, Error> {
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
