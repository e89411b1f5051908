//! What a reset is to those who follow one: its questions, its words, and that
//! each GPU is told of when it is done.

use super::super::follow::{Operation, Words};
use crate::connect::{Daemon, Meanwhile, Patience};
use crate::exit::Failure;
use crate::output::look::Look;
use crate::output::print_lines;
use crate::output::reset::done;
use crate::settings::{Format, Settings};
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::reset::ResetReport;

/// A reset that is followed.
pub(super) struct Followed<'a> {
    /// So many GPUs were told of.
    told: usize,
    settings: &'a Settings,
}

impl<'a> Followed<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        Self { told: 0, settings }
    }
}

impl Operation for Followed<'_> {
    type Report = ResetReport;

    const WORDS: Words = Words {
        noun: "reset",
        done: "reset",
        whom: "the GPUs",
        see: "see how they stand: gpukillctl list",
    };

    fn begin(
        daemon: &Daemon,
        plan: PlanId,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<OperationId, Failure> {
        daemon.reset(plan, patience, meanwhile)
    }

    fn ask(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<ResetReport, Failure> {
        daemon.follow_reset(operation, after, patience, meanwhile)
    }

    fn stands(report: &ResetReport) -> (Stage, u64) {
        (report.stage, report.version)
    }

    /// Tells of those that are new, to people.
    fn tell(&mut self, report: &ResetReport) -> Result<(), Failure> {
        let new = report.outcomes.iter().skip(self.told);
        self.told = report.outcomes.len();
        match self.settings.output_format {
            Format::Json => Ok(()),
            Format::Table | Format::Ndjson | Format::Csv => {
                let look = Look::of_stdout(self.settings);
                let lines: Vec<_> = new.flat_map(|outcome| done(outcome, &look)).collect();
                print_lines(&lines, &look)
            }
        }
    }

    /// What was told stays, and stands on stdout.
    fn wait(&mut self) {}

    fn make_way(&mut self) {}
}
