//! What a kill is to those who follow one: its questions, its words, and the line
//! that tells a person who is waited for.

use super::super::follow::{Operation, Words};
use crate::connect::{Daemon, Meanwhile, Patience, is_over};
use crate::exit::Failure;
use crate::output::kill::under_way;
use crate::output::passing::Passing;
use crate::settings::Settings;
use gpukill_proto::kill::{KillPlan, KillReportPage, OperationId, PlanId, Stage};

/// A kill that is followed.
pub(super) struct Followed<'a> {
    plan: &'a KillPlan,
    line: Option<Passing>,
}

impl<'a> Followed<'a> {
    pub(super) fn new(plan: &'a KillPlan, settings: &Settings) -> Self {
        Self {
            plan,
            line: Passing::on_stderr(settings),
        }
    }
}

impl Operation for Followed<'_> {
    type Report = KillReportPage;

    const WORDS: Words = Words {
        noun: "kill",
        done: "ended",
        whom: "them",
        see: "see who is left: gpukillctl list --details",
    };

    fn begin(
        daemon: &Daemon,
        plan: PlanId,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<OperationId, Failure> {
        daemon.kill(plan, patience, meanwhile)
    }

    fn ask(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<KillReportPage, Failure> {
        daemon.follow_kill(operation, after, patience, meanwhile)
    }

    fn stands(report: &KillReportPage) -> (Stage, u64) {
        (report.report.stage, report.report.version)
    }

    fn tell(&mut self, report: &KillReportPage) -> Result<(), Failure> {
        if let Some(line) = &mut self.line
            && !is_over(report.report.stage)
        {
            line.say(under_way(self.plan, report, line.symbols()));
        }
        Ok(())
    }

    fn wait(&mut self) {
        if let Some(line) = &mut self.line {
            line.draw();
        }
    }

    fn make_way(&mut self) {
        if let Some(line) = &mut self.line {
            line.remove();
        }
    }
}
