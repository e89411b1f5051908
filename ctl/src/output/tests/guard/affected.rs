//! The jobs that an edit affects; past violations are not shown.

use super::*;
use crate::output::guard::{EditEffect, PreviousState};
use gpukill_policy::guard::consequences::{Consequence, ConsequenceReason};
use gpukill_proto::guard::{GuardRecord, GuardStep, OpenViolation, RuleKind, UnfinishedEnd};

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
    let style = style(None);
    text(&guard::violations(&page, &report, NOW, &style), &style)
}

#[test]
fn violation_shows_over_snoozed_or_service() {
    let soft = || OpenViolation {
        mode: GuardMode::Soft,
        ..violations().open.remove(0)
    };
    let mut settling = soft();
    settling.not_broken_since = Some(NOW.plus_seconds(-60));
    let screen = ends(vec![soft(), settling.clone()], GuardMode::Soft);
    assert!(
        screen.starts_with("1 violation now, 1 no longer broken · soft\n"),
        "{screen}"
    );
    assert!(screen.contains("  not broken since 14:01  "), "{screen}");
    let screen = ends(vec![settling], GuardMode::Soft);
    assert!(
        screen.starts_with("no violation now, 1 no longer broken · soft\n"),
        "{screen}"
    );
    let mut snoozed = soft();
    snoozed.deadline = None;
    snoozed.snoozed_until = Some(NOW.plus_seconds(1_800));
    let screen = ends(vec![snoozed], GuardMode::Enforce);
    assert!(screen.contains("  snoozed until 14:32  "), "{screen}");
    let mut service = soft();
    service.evidence.is_service_only_warned = true;
    let screen = ends(vec![service.clone()], GuardMode::Soft);
    assert!(screen.contains("  for idleness only warned  "), "{screen}");
    service.rule.kind = RuleKind::Waste;
    let screen = ends(vec![service], GuardMode::Soft);
    assert!(screen.contains("  for waste only warned  "), "{screen}");
    for (unfinished, expected) in [
        (UnfinishedEnd::UnderWay(NOW), "  1 ending since 14:02  "),
        (
            UnfinishedEnd::Survived(NOW.plus_seconds(-60)),
            "  1 survived 14:01  ",
        ),
    ] {
        let mut stubborn = soft();
        stubborn.unfinished_end = Some(unfinished);
        let screen = ends(vec![stubborn], GuardMode::Soft);
        assert!(screen.contains(expected), "{screen}");
    }
}

#[test]
fn edit_names_the_affected_jobs() {
    use Consequence::{DryRun, Warned};
    use ConsequenceReason::{NoReader, Rule, Service};

    let at = NOW.plus_seconds(300);
    let edited_with = |mode, open: Vec<(OpenViolation, Consequence)>, doing| {
        let effect = EditEffect {
            mode,
            previous: PreviousState::Edited,
            open: Ok(open),
            exempt: vec!["bob, default: idle: process 51002 is protected".to_owned()],
        };
        let style = style(Some(100));
        let shown = guard::edit_lines(&edited(), edit_view(doing), Some(&effect), NOW, &style);
        text(&shown, &style)
    };
    let open = |consequence: &[Consequence]| {
        let open = violations().open.into_iter();
        open.zip(consequence.iter().copied()).collect::<Vec<_>>()
    };
    let soft = GuardMode::Soft;
    let screen = edited_with(soft, open(&[Consequence::EndsNotBefore(at)]), Mode::Apply);
    assert!(
        screen.contains("\nthese break a rule that this changes\n"),
        "{screen}"
    );
    assert!(screen.contains("  not before 14:07:31  "), "{screen}");
    assert!(!screen.contains("the guard is in mode"), "{screen}");
    let screen = edited_with(soft, open(&[Consequence::EndsAtOnce]), Mode::DryRun);
    assert!(
        screen.contains("\nthese would break a rule that this changes\n"),
        "{screen}"
    );
    assert!(screen.contains("  at the next sample  "), "{screen}");
    for (consequence, expected) in [
        (Warned(Service), "for idleness only warned"),
        (DryRun(NoReader), "nobody: cannot be warned"),
        (DryRun(Rule), "nobody: dry run"),
    ] {
        let screen = edited_with(GuardMode::DryRun, open(&[consequence]), Mode::Apply);
        assert!(screen.contains(expected), "{screen}");
    }
    let screen = edited_with(soft, open(&[Consequence::Exempt]), Mode::DryRun);
    let why = "\nbob, default: idle: process 51002 is protected\n";
    assert!(
        screen.contains("  nobody: see below  ") && screen.ends_with(why),
        "{screen}"
    );
    let screen = edited_with(soft, open(&[Consequence::Nothing]), Mode::Apply);
    assert!(screen.ends_with("\nalice: at most 16 GiB, priority 7\n"));
    let screen = edited_with(soft, open(&[Consequence::Nothing]), Mode::DryRun);
    assert!(
        screen.ends_with("\nnobody breaks a rule that this changes now\n"),
        "{screen}"
    );
}

#[test]
fn question_is_asked_where_jobs_may_end() {
    let effect = |mode, open| EditEffect {
        mode,
        previous: PreviousState::SameMode,
        open,
        exempt: Vec::new(),
    };
    let one = |consequence| {
        let open = violations().open.into_iter().take(1);
        Ok(open.map(|open| (open, consequence)).collect::<Vec<_>>())
    };
    let later = Consequence::EndsNotBefore(NOW.plus_seconds(300));
    for (mode, open, expected) in [
        (GuardMode::Soft, one(later), true),
        (GuardMode::Enforce, one(Consequence::EndsAtOnce), true),
        (GuardMode::Enforce, Err("gpukilld is busy".to_owned()), true),
        (GuardMode::DryRun, Err("gpukilld is busy".to_owned()), false),
        (GuardMode::Enforce, Ok(Vec::new()), false),
        (GuardMode::Enforce, one(Consequence::Nothing), false),
        (GuardMode::Enforce, one(Consequence::Exempt), false),
        (
            GuardMode::Soft,
            one(Consequence::Warned(ConsequenceReason::Service)),
            false,
        ),
        (
            GuardMode::Soft,
            one(Consequence::DryRun(ConsequenceReason::NoReader)),
            false,
        ),
    ] {
        let effect = effect(mode, open);
        assert_eq!(effect.may_end_jobs(), expected, "{effect:?}");
    }
    // The jobs were shown with the question.
    let style = style(None);
    let shown = effect(GuardMode::Soft, one(later)).without_jobs();
    let lines = guard::edit_lines(&edited(), edit_view(Mode::Apply), Some(&shown), NOW, &style);
    let expected = "\nthe guard is in mode soft: it warns, and ends a job when the grace is over\n";
    assert!(text(&lines, &style).ends_with(expected));
}

#[test]
fn edit_of_mode_states_mode_and_unknowns() {
    use Mode::{Apply, DryRun};
    use PreviousState::{Edited, EditedMode, OtherMode, StaysStopped};

    let screen = |was, mode, open: Result<Vec<(OpenViolation, Consequence)>, String>, doing| {
        let effect = EditEffect {
            mode,
            previous: was,
            open,
            exempt: Vec::new(),
        };
        let style = style(None);
        text(
            &guard::edit_lines(&edited(), edit_view(doing), Some(&effect), NOW, &style),
            &style,
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
    let off = "\nthe guard is disabled: nothing is evaluated\n";
    let affected = "\nthese break a rule that this changes\n";
    for (was, mode, open, doing, expected) in [
        (EditedMode, enforce, one(), Apply, vec![in_mode, affected]),
        (EditedMode, enforce, busy(), Apply, vec![in_mode, unknown]),
        (EditedMode, enforce, one(), DryRun, vec![would]),
        (EditedMode, disabled, Ok(Vec::new()), Apply, vec![off]),
        (StaysStopped, enforce, Ok(Vec::new()), Apply, vec![stopped]),
        (Edited, enforce, busy(), Apply, vec![unknown]),
        (OtherMode, enforce, busy(), Apply, vec![in_mode, unknown]),
    ] {
        let screen = screen(was, mode, open, doing);
        assert!(
            expected.iter().all(|it| screen.contains(it)),
            "{was:?} {screen}"
        );
    }
}

#[test]
fn today_separates_real_and_simulated() {
    let screen = |mode, (warned, ended), (would_warn, would_end), trip| {
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
        let style = style(None);
        let shown = text(&guard::status_lines(&report, &[], &[], NOW, &style), &style);
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
            screen(mode, done, simulated, trip),
            (today.to_owned(), stopped)
        );
    }
    let (today, _) = screen(GuardMode::Disabled, (0, 0), (0, 0), true);
    assert_eq!(today, "nothing is evaluated");
    let (today, _) = screen(GuardMode::Soft, (1, 2), (4, 9), true);
    assert_eq!(
        today,
        "warned of 1 violation and ended 2 jobs today; in dry run it would have warned of 4 \
         violations and ended 9 jobs"
    );
}

#[test]
fn record_states_whether_it_was_a_dry_run() {
    let screen = |mode, step: GuardStep| {
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
        let style = style(None);
        text(
            &guard::violations(&page, &guard_report(), NOW, &style),
            &style,
        )
    };
    let tripped = || GuardStep::Tripped { ended: 5 };
    let would = screen(GuardMode::DryRun, tripped());
    assert!(
        would.contains("would have stopped: 5 jobs would have ended in 10 min"),
        "{would}"
    );
    let did = screen(GuardMode::Soft, tripped());
    assert!(did.contains("  stopped: 5 jobs ended in 10 min"), "{did}");
    let outdated = screen(GuardMode::Soft, GuardStep::Outdated);
    assert!(
        outdated.contains("starts again: rules or mode changed, or it stopped"),
        "{outdated}"
    );
    let until = NOW.plus_seconds(60);
    let voided = screen(GuardMode::Soft, GuardStep::SnoozeVoided { owner: 1, until });
    assert!(!voided.contains("not allowed"), "{voided}");
}
