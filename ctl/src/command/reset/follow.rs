//! Follows a reset: its requests, its words, and the report on each finished GPU.

use super::super::follow::{Operation, OperationWords, is_over};
use crate::connect::{Daemon, RequestTimeout, WaitHooks, call};
use crate::exit::Error;
use crate::output::print_lines;
use crate::output::reset::outcome_lines;
use crate::output::spinner::Spinner;
use crate::output::style::OutputStyle;
use crate::output::text::Line;
use crate::settings::{Format, Settings};
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::reset::{PlannedReset, ResetPlan, ResetReport, ResetTarget};

pub(super) struct FollowedReset<'a> {
    plan: &'a ResetPlan,
    /// The number of GPUs already reported.
    reported: usize,
    settings: &'a Settings,
    line: Option<Spinner>,
}

impl<'a> FollowedReset<'a> {
    pub(super) fn new(plan: &'a ResetPlan, settings: &'a Settings) -> Self {
        Self {
            plan,
            reported: 0,
            settings,
            line: Spinner::on_stderr(settings),
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
        // The same terminal may show both.
        self.clear_progress();
        match self.settings.output_format {
            Format::Json => {}
            Format::Table | Format::Ndjson | Format::Csv => {
                let style = OutputStyle::for_stdout(self.settings);
                let lines: Vec<_> = new
                    .flat_map(|outcome| outcome_lines(outcome, &style))
                    .collect();
                print_lines(&lines, &style)?;
            }
        }
        if let Some(line) = &mut self.line
            && let Some(text) = waited_for_text(self.plan, report)
        {
            line.set_text(Line::plain(text));
        }
        Ok(())
    }

    fn line(&mut self) -> Option<&mut Spinner> {
        self.line.as_mut()
    }
}

/// `waiting for GPU 3`: the first GPU of the plan without an outcome.
fn waited_for_text(plan: &ResetPlan, report: &ResetReport) -> Option<String> {
    if is_over(report.stage) {
        return None;
    }
    let is_done = |target: &ResetTarget| {
        let mut outcomes = report.outcomes.iter();
        outcomes.any(|outcome| outcome.device == target.device)
    };
    let mut targets = plan.devices.iter();
    let next = targets.find(|it| it.action == PlannedReset::Reset && !is_done(it))?;
    Some(format!("waiting for GPU {}", next.index))
}
