//! The screens of `reset`.

use super::*;
use crate::output::fixtures::{held_by_one, reset_plan, reset_report, reset_without_helper};
use crate::output::reset::{closing_lines, outcome_lines, plan_lines, question};
use gpukill_proto::json::{ResetPlanDocument, ResetReportDocument};
use gpukill_proto::kill::{Outcome, Stage};
use gpukill_proto::reset::{PlannedReset, ResetPlan, ResetReport, ResetResult};

fn of_plan(plan: &ResetPlan, style: &OutputStyle) -> String {
    text(&plan_lines(plan, style), style)
}

/// All printed lines in order.
fn of_report(report: &ResetReport, style: &OutputStyle) -> String {
    let each = report.outcomes.iter();
    let mut lines: Vec<Line> = each
        .flat_map(|outcome| outcome_lines(outcome, style))
        .collect();
    lines.extend(closing_lines(report, style));
    text(&lines, style)
}

fn interrupted() -> ResetReport {
    let mut report = reset_report();
    report.outcomes.truncate(1);
    report.stage = Stage::Interrupted;
    report.unrecorded = Some("the disk is full".into());
    report
}

#[test]
fn plan_names_every_blocker_and_remedy() {
    check_widths("reset-plan", &[120, 80, 40], WRAPPED, |style| {
        [reset_plan(), held_by_one(), reset_without_helper()]
            .map(|plan| of_plan(&plan, style))
            .join("\n")
    });
    assert!(of_plan(&reset_plan(), &ascii(None)).is_ascii());
}

#[test]
fn report_shows_each_gpu_and_former_holders() {
    check_widths("reset", &[120, 80, 40], WRAPPED, |style| {
        [reset_report(), interrupted()]
            .map(|report| of_report(&report, style))
            .join("\n")
    });
    assert!(of_report(&reset_report(), &ascii(None)).is_ascii());
    let colored = colored(100);
    check(
        "reset-colored.txt",
        &(of_plan(&held_by_one(), &colored) + "\n" + &of_report(&reset_report(), &colored)),
    );
}

#[test]
fn question_counts_the_reset_gpus() {
    let mut plan = reset_plan();
    assert_eq!(question(&plan), "Reset 2 GPUs? What they do now is lost.");
    plan.devices.truncate(2);
    assert_eq!(question(&plan), "Reset it? What it does now is lost.");
}

#[test]
fn reset_texts_cannot_control_the_terminal() {
    let text_of = || HOSTILE.to_owned();
    let (mut plan, mut report) = (reset_plan(), reset_report());
    plan.request.gpu = Some(text_of());
    for target in &mut plan.devices {
        target.name = Reading::Value(text_of());
        target.pci = Reading::Value(text_of());
        target.notes.push(text_of());
        for blocker in &mut target.blockers {
            blocker.what = text_of();
        }
        match &mut target.action {
            PlannedReset::Reset | PlannedReset::Blocked => {}
            PlannedReset::Unsupported(why) => *why = text_of(),
        }
    }
    for outcome in &mut report.outcomes {
        outcome.note = Some(text_of());
        match &mut outcome.result {
            ResetResult::Reset(_) => {}
            ResetResult::Blocked(blockers) => {
                for blocker in blockers {
                    blocker.what = text_of();
                }
            }
            ResetResult::Unsupported(why)
            | ResetResult::Failed(why)
            | ResetResult::Unreachable(why) => *why = text_of(),
        }
        for ended in outcome.ended.iter_mut().flat_map(|it| &mut it.outcomes) {
            ended.name = text_of();
            ended.command = Reading::Value(text_of());
            ended.outcome = Outcome::Failed(text_of());
        }
        for again in outcome.ended.iter_mut().flat_map(|it| &mut it.respawned) {
            again.name = text_of();
            if let Some(unit) = &mut again.unit {
                unit.name = text_of();
            }
            if let Some(parent) = &mut again.parent {
                parent.name = Reading::Value(text_of());
            }
        }
    }
    report.unrecorded = Some(text_of());
    let style = style(None);
    let documents = [
        json::pretty(&ResetPlanDocument::from(&plan)),
        json::pretty(&ResetReportDocument::from(&report)),
    ];
    let mut printed = documents.map(|document| document.expect("texts")).to_vec();
    printed.push(of_plan(&plan, &style));
    printed.push(of_report(&report, &style));
    assert_steer_nothing(printed);
}
