//! Follows a reset: its requests, its words, and the report on each finished GPU.

use super::super::follow::{Operation, OperationWords};
use crate::connect::{Daemon, RequestTimeout, WaitHooks, call};
use crate::exit::Error;
use crate::output::print_lines;
use crate::output::reset::outcome_lines;
use crate::output::style::OutputStyle;
use crate::settings::{Format, Settings};
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::reset::ResetReport;

/// A reset that is being followed.
pub(super) struct FollowedReset<'a> {
    /// The number of GPUs already reported.
    reported: usize,
    settings: &'a Settings,
}

impl<'a> FollowedReset<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        Self {
            reported: 0,
            settings,
        }
    }
}

impl Operation for FollowedReset<'_> {
    type Report = ResetReport;

    const WORDS: OperationWords = OperationWords {
        noun: "reset",
        done: "reset",
        objects: "the GPUs",
        hint: "see their state: gpukillctl list",
    };

    fn start(
        daemon: &Daemon,
        plan: PlanId,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<OperationId, Error> {
        call!(daemon, timeout, hooks, Reset { plan })
    }

    fn poll_report(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<ResetReport, Error> {
        call!(daemon, timeout, hooks, FollowReset { operation, after })
    }

    fn progress(report: &ResetReport) -> (Stage, u64) {
        (report.stage, report.version)
    }

    /// Prints the newly finished GPUs, unless the output is for programs.
    fn print_progress(&mut self, report: &ResetReport) -> Result<(), Error> {
        let new = report.outcomes.iter().skip(self.reported);
        self.reported = report.outcomes.len();
        match self.settings.output_format {
            Format::Json => Ok(()),
            Format::Table | Format::Ndjson | Format::Csv => {
                let style = OutputStyle::for_stdout(self.settings);
                let lines: Vec<_> = new
                    .flat_map(|outcome| outcome_lines(outcome, &style))
                    .collect();
                print_lines(&lines, &style)
            }
        }
    }

    /// Printed lines stay on stdout, so there is no progress line.
    fn on_long_wait(&mut self) {}

    fn clear_progress(&mut self) {}
}
