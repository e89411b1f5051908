//! Follows a kill: its requests, its words, and the progress line for a person.

use super::super::follow::{Operation, OperationWords, is_over};
use crate::connect::{Daemon, RequestTimeout, WaitHooks, call};
use crate::exit::Error;
use crate::output::kill::progress_line;
use crate::output::spinner::Spinner;
use crate::settings::Settings;
use gpukill_proto::kill::{KillPlan, KillReportPage, OperationId, PlanId, Stage};
use gpukill_proto::refusal::Refusal;

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
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<OperationId, Error> {
        call!(daemon, timeout, hooks, Kill { plan })
    }

    fn poll_report(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<KillReportPage, Error> {
        let mut request_page = |after, start| {
            call!(
                daemon,
                timeout,
                hooks,
                FollowKill {
                    operation,
                    after,
                    start
                }
            )
        };
        let mut report: KillReportPage = request_page(after, 0)?;
        // Before the end the first page is enough for the progress line.
        if is_over(report.report.stage) {
            daemon.collect_pages("outcomes", report.next.take(), &mut |start| {
                let page = request_page(None, start)?;
                if page.report.version != report.report.version {
                    return Err(Refusal::Expired.into());
                }
                report.report.outcomes.extend(page.report.outcomes);
                Ok(page.next)
            })?;
        }
        Ok(report)
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

    fn line(&mut self) -> Option<&mut Spinner> {
        self.line.as_mut()
    }
}
