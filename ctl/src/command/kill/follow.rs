//! Follows a kill: its requests, its words, and the progress line for a person.

use super::super::follow::{Operation, OperationWords};
use crate::connect::{Daemon, RequestTimeout, WaitHooks, is_over};
use crate::exit::Error;
use crate::output::kill::progress_line;
use crate::output::spinner::Spinner;
use crate::settings::Settings;
use gpukill_proto::kill::{KillPlan, KillReportPage, OperationId, PlanId, Stage};

/// A kill that is being followed.
pub(super) struct FollowedKill<'a> {
    plan: &'a KillPlan,
    line: Option<Spinner>,
}

impl<'a> FollowedKill<'a> {
    pub(super) fn new(plan: &'a KillPlan, settings: &Settings) -> Self {
        Self {
            plan,
            line: Spinner::on_stderr(settings),
        }
    }
}

impl Operation for FollowedKill<'_> {
    type Report = KillReportPage;

    const WORDS: OperationWords = OperationWords {
        noun: "kill",
        done: "ended",
        objects: "them",
        hint: "see who is left: gpukillctl list --details",
    };

    fn start(
        daemon: &Daemon,
        plan: PlanId,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<OperationId, Error> {
        daemon.kill(plan, patience, meanwhile)
    }

    fn poll_report(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<KillReportPage, Error> {
        daemon.follow_kill(operation, after, patience, meanwhile)
    }

    fn progress(report: &KillReportPage) -> (Stage, u64) {
        (report.report.stage, report.report.version)
    }

    fn print_progress(&mut self, report: &KillReportPage) -> Result<(), Error> {
        if let Some(line) = &mut self.line
            && !is_over(report.report.stage)
        {
            line.set_text(progress_line(self.plan, report, line.symbols()));
        }
        Ok(())
    }

    fn on_long_wait(&mut self) {
        if let Some(line) = &mut self.line {
            line.draw();
        }
    }

    fn clear_progress(&mut self) {
        if let Some(line) = &mut self.line {
            line.remove();
        }
    }
}
