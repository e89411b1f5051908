//! The jobs that an edit affects; past violations are not shown.

use super::*;
use crate::output::guard::{self, EditEffect, PreviousState};
use gpukill_policy::guard::consequences::{Consequence, ConsequenceReason};
use gpukill_proto::guard::{GuardRecord, GuardStep, OpenViolation, RuleKind};

/// One row for each violation, with the text about its end.
fn ends(open: Vec<OpenViolation>, mode: GuardMode) -> String {
    let page = ViolationPage {
        open,
        ..ViolationPage::default()
    };
    let report = GuardReport {
        mode,
        ..guard_report()
    };
    let look = look(None);
    text(&guard::violations(&page, &report, NOW, &look), &look)
}

#[test]
fn violation_shows_over_snoozed_or_service() {
    let soft = || OpenViolation {
        mode: GuardMode::Soft,
        ..violations().open.remove(0)
    };
    let mut settling = soft();
    settling.not_broken_since = Some(NOW.plus_seconds(-60));
    let said = ends(vec![soft(), settling.clone()], GuardMode::Soft);
    assert!(
        said.starts_with("1 violation now, 1 no longer broken · soft\n"),
        "{said}"
    );
    assert!(said.contains("  not broken since 14:01  "), "{said}");
    let said = ends(vec![settling], GuardMode::Soft);
    assert!(
        said.starts_with("no violation now, 1 no longer broken · soft\n"),
        "{said}"
    );
    let mut snoozed = soft();
    snoozed.deadline = None;
    snoozed.snoozed_until = Some(NOW.plus_seconds(1_800));
    let said = ends(vec![snoozed], GuardMode::Enforce);
    assert!(said.contains("  snoozed until 14:32  "), "{said}");
    let mut service = soft();
    service.evidence.is_spared_service = true;
    let said = ends(vec![service.clone()], GuardMode::Soft);
    assert!(said.contains("  for idleness only warned  "), "{said}");
    service.rule.kind = RuleKind::Waste;
    let said = ends(vec![service], GuardMode::Soft);
    assert!(said.contains("  for waste only warned  "), "{said}");
}

#[test]
fn edit_names_the_affected_jobs() {
    let at = NOW.plus_seconds(300);
    let edited_with = |mode, open: Vec<(OpenViolation, Consequence)>, doing| {
        let turn = EditEffect {
            mode,
            previous: PreviousState::Edited,
            open: Ok(open),
        };
        let look = look(Some(100));
        let shown = guard::edit_lines(&edited(), doing, Some(&turn), NOW, &look);
        text(&shown, &look)
    };
    let open = |comes: &[Consequence]| {
        let open = violations().open.into_iter();
        open.zip(comes.iter().copied()).collect::<Vec<_>>()
    };
    let soft = GuardMode::Soft;
    let said = edited_with(soft, open(&[Consequence::EndsNotBefore(at)]), Mode::Apply);
    assert!(
        said.contains("\nthese break a rule that this changes\n"),
        "{said}"
    );
    assert!(said.contains("  not before 14:07:31  "), "{said}");
    assert!(!said.contains("the guard is in mode"), "{said}");
    let said = edited_with(soft, open(&[Consequence::EndsAtOnce]), Mode::DryRun);
    assert!(
        said.contains("\nthese would break a rule that this changes\n"),
        "{said}"
    );
    assert!(said.contains("  at the next sample  "), "{said}");
    for (comes, expected) in [
        (
            Consequence::Warned(ConsequenceReason::Service),
            "for idleness only warned",
        ),
        (
            Consequence::DryRun(ConsequenceReason::NoReader),
            "nobody: cannot be warned",
        ),
        (
            Consequence::DryRun(ConsequenceReason::Rule),
            "nobody: dry run",
        ),
    ] {
        let said = edited_with(GuardMode::DryRun, open(&[comes]), Mode::Apply);
        assert!(said.contains(expected), "{said}");
    }
    let said = edited_with(soft, open(&[Consequence::Nothing]), Mode::Apply);
    assert!(
        said.ends_with("\nnobody breaks a rule that this changes now\n"),
        "{said}"
    );
}

#[test]
fn edit_of_mode_states_mode_and_unknowns() {
    let said = |was, mode, open: Result<Vec<(OpenViolation, Consequence)>, String>, doing| {
        let turn = EditEffect {
            mode,
            previous: was,
            open,
        };
        let look = look(None);
        text(
            &guard::edit_lines(&edited(), doing, Some(&turn), NOW, &look),
            &look,
        )
    };
    let (enforce, disabled) = (GuardMode::Enforce, GuardMode::Disabled);
    let one = || {
        let open = violations().open.into_iter().take(1);
        Ok(open.map(|open| (open, Consequence::EndsAtOnce)).collect())
    };
    let busy = || Err("gpukilld is busy".to_owned());
    let in_mode = "\nthe guard is in mode enforce: it ends jobs without a warning; for idleness \
        and waste it warns first\n";
    let unknown = "\nthe affected jobs are not known: gpukilld is busy; see \
        gpukillctl guard test\n";
    let stopped = "\nthe guard is in mode enforce, and ends nobody: it has stopped; gpukillctl \
        guard enforce resumes it\n";
    let would = "\nthe guard would be in mode enforce: ";
    let off = "\nthe guard is disabled: nothing is judged\n";
    let affected = "\nthese break a rule that this changes\n";
    for (was, mode, open, doing, expected) in [
        (
            PreviousState::EditedMode,
            enforce,
            one(),
            Mode::Apply,
            vec![in_mode, affected],
        ),
        (
            PreviousState::EditedMode,
            enforce,
            busy(),
            Mode::Apply,
            vec![in_mode, unknown],
        ),
        (
            PreviousState::EditedMode,
            enforce,
            one(),
            Mode::DryRun,
            vec![would],
        ),
        (
            PreviousState::EditedMode,
            disabled,
            Ok(Vec::new()),
            Mode::Apply,
            vec![off],
        ),
        (
            PreviousState::StaysStopped,
            enforce,
            Ok(Vec::new()),
            Mode::Apply,
            vec![stopped],
        ),
        (
            PreviousState::Edited,
            enforce,
            busy(),
            Mode::Apply,
            vec![unknown],
        ),
        (
            PreviousState::OtherMode,
            enforce,
            busy(),
            Mode::Apply,
            vec![in_mode, unknown],
        ),
    ] {
        let said = said(was, mode, open, doing);
        assert!(
            expected.iter().all(|it| said.contains(it)),
            "{was:?} {said}"
        );
    }
}

#[test]
fn today_separates_real_and_simulated() {
    let said = |mode, (warned, ended), (would_warn, would_end), trip| {
        let report = GuardReport {
            mode,
            warned_today: warned,
            ended_today: ended,
            simulated_warned_today: would_warn,
            simulated_ended_today: would_end,
            tripped_at: Some(NOW.plus_seconds(-2_900)),
            is_trip_simulated: trip,
            ..guard_report()
        };
        let look = look(None);
        let shown = text(&guard::status_lines(&report, NOW, &look), &look);
        let line = |name: &str| {
            let line = shown
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            let line = line.map(|line| line.trim_start().trim_start_matches(name));
            line.unwrap_or_default().trim_start().to_owned()
        };
        (line("today"), line("stopped"))
    };
    let before = "to stay within enforcement.max_ended_per_10_minutes";
    for (mode, done, simulated, trip, today, stopped) in [
        (
            GuardMode::DryRun,
            (3, 20),
            (4, 9),
            false,
            "warned of 3 violations and ended 20 jobs today; in dry run it would have warned of 4 \
            violations and ended 9 jobs",
            format!("it stopped at 13:14:11, {before}"),
        ),
        (
            GuardMode::DryRun,
            (0, 0),
            (4, 9),
            true,
            "would have warned of 4 violations and ended 9 jobs today",
            format!("it would have stopped at 13:14:11, {before}"),
        ),
        (
            GuardMode::Disabled,
            (3, 20),
            (0, 0),
            false,
            "warned of 3 violations and ended 20 jobs today",
            format!("it stopped at 13:14:11, {before}"),
        ),
    ] {
        assert_eq!(
            said(mode, done, simulated, trip),
            (today.to_owned(), stopped)
        );
    }
    let (today, _) = said(GuardMode::Disabled, (0, 0), (0, 0), true);
    assert_eq!(today, "nothing is judged");
    let (today, _) = said(GuardMode::Soft, (1, 2), (4, 9), true);
    assert_eq!(
        today,
        "warned of 1 violation and ended 2 jobs today; in dry run it would have warned of 4 \
         violations and ended 9 jobs"
    );
}

#[test]
fn record_states_whether_it_was_a_dry_run() {
    let said = |mode, step: GuardStep| {
        let open = violations().open.remove(0);
        let record = GuardRecord {
            at: NOW,
            rule: open.rule,
            subject: open.subject,
            mode,
            step,
            evidence: gpukill_proto::guard::Evidence {
                measured: None,
                ..open.evidence
            },
            message: None,
        };
        let page = ViolationPage {
            records: vec![(1, record)],
            ..ViolationPage::default()
        };
        let look = look(None);
        text(
            &guard::violations(&page, &guard_report(), NOW, &look),
            &look,
        )
    };
    let tripped = || GuardStep::Tripped { ended: 5 };
    let would = said(GuardMode::DryRun, tripped());
    assert!(
        would.contains("would have stopped: 5 jobs would have ended in 10 min"),
        "{would}"
    );
    let did = said(GuardMode::Soft, tripped());
    assert!(did.contains("  stopped: 5 jobs ended in 10 min"), "{did}");
    let outdated = said(GuardMode::Soft, GuardStep::Outdated);
    assert!(
        outdated.contains("starts again: rules or mode changed, or it stopped"),
        "{outdated}"
    );
    let until = NOW.plus_seconds(60);
    let voided = said(GuardMode::Soft, GuardStep::SnoozeVoided { owner: 1, until });
    assert!(!voided.contains("not allowed"), "{voided}");
}
