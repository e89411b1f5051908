//! The screens of `reset`.

use super::*;
use crate::output::reset::{closing, done, planned, question};
use crate::output::sample::{held_by_one, reset_plan, reset_report, reset_without_helper};
use gpukill_proto::document::{ResetPlanDocument, ResetReportDocument};
use gpukill_proto::kill::{Ending, Stage};
use gpukill_proto::reset::{ResetEnding, ResetFate, ResetPlan, ResetReport};

fn of_plan(plan: &ResetPlan, look: &Look) -> String {
    text(&planned(plan, look), look)
}

/// All that is told one after the other.
fn of_report(report: &ResetReport, look: &Look) -> String {
    let each = report.outcomes.iter();
    let mut lines: Vec<Line> = each.flat_map(|outcome| done(outcome, look)).collect();
    lines.extend(closing(report, look));
    text(&lines, look)
}

fn interrupted() -> ResetReport {
    let mut report = reset_report();
    report.outcomes.truncate(1);
    report.stage = Stage::Interrupted;
    report.unrecorded = Some("the disk is full".into());
    report
}

#[test]
fn a_plan_names_everything_in_the_way_of_each_gpu_and_who_takes_it_away() {
    for width in [120, 80, 40] {
        let look = look(Some(width));
        let shown = [reset_plan(), held_by_one(), reset_without_helper()]
            .map(|plan| of_plan(&plan, &look))
            .join("\n");
        assert!(shown.lines().all(|l| line::width(l) <= width), "{width}");
        check(&format!("reset-plan-{width}.txt"), &shown);
    }
    let ascii = Look {
        symbols: Symbols::Ascii,
        ..look(None)
    };
    assert!(of_plan(&reset_plan(), &ascii).is_ascii());
}

#[test]
fn a_report_tells_what_became_of_each_gpu_and_of_those_who_held_it() {
    for width in [120, 80, 40] {
        let look = look(Some(width));
        let shown = [reset_report(), interrupted()]
            .map(|report| of_report(&report, &look))
            .join("\n");
        assert!(shown.lines().all(|l| line::width(l) <= width), "{width}");
        check(&format!("reset-{width}.txt"), &shown);
    }
    let ascii = Look {
        symbols: Symbols::Ascii,
        ..look(None)
    };
    assert!(of_report(&reset_report(), &ascii).is_ascii());
    let colored = Look {
        color: true,
        ..look(Some(100))
    };
    check(
        "reset-colored.txt",
        &(of_plan(&held_by_one(), &colored) + "\n" + &of_report(&reset_report(), &colored)),
    );
}

#[test]
fn the_question_counts_those_that_are_reset() {
    let mut plan = reset_plan();
    assert_eq!(question(&plan), "Reset 2 GPUs? What they do now is lost.");
    plan.devices.truncate(2);
    assert_eq!(question(&plan), "Reset it? What it does now is lost.");
}

#[test]
fn nothing_that_is_told_of_a_reset_can_steer_the_terminal() {
    const HOSTILE: &str = "a\x1b[2J\x1b]0;x\x07\u{9b}31m\r\n\u{202e}\u{200b}\u{7f}b";
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
        match &mut target.fate {
            ResetFate::Reset | ResetFate::Blocked => {}
            ResetFate::Unsupported(why) => *why = text_of(),
        }
    }
    for outcome in &mut report.outcomes {
        outcome.note = Some(text_of());
        match &mut outcome.ending {
            ResetEnding::Reset(_) => {}
            ResetEnding::Blocked(blockers) => {
                for blocker in blockers {
                    blocker.what = text_of();
                }
            }
            ResetEnding::Unsupported(why)
            | ResetEnding::Failed(why)
            | ResetEnding::Unreachable(why) => *why = text_of(),
        }
        for ended in outcome.ended.iter_mut().flat_map(|it| &mut it.outcomes) {
            ended.name = text_of();
            ended.command = Reading::Value(text_of());
            ended.ending = Ending::Failed(text_of());
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
    let look = look(None);
    let documents = [
        json::pretty(&ResetPlanDocument::from(&plan)),
        json::pretty(&ResetReportDocument::from(&report)),
    ];
    let mut printed = documents.map(|document| document.expect("texts")).to_vec();
    printed.push(of_plan(&plan, &look));
    printed.push(of_report(&report, &look));
    for text in printed {
        let steering = text
            .chars()
            .find(|c| *c != '\n' && (c.is_control() || matches!(c, '\u{202e}' | '\u{200b}')));
        assert_eq!(steering, None, "{text}");
    }
}
