//! The guard's status wherever it is shown or changed, and the exempted users.

use super::*;
use crate::output::guard::{EditEffect, PreviousState};
use gpukill_policy::guard::consequences::{Consequence, ConsequenceReason};
use gpukill_proto::guard::{OpenViolation, RuleKind, RuleName, RuleSource, SnoozedRule};

/// The first lines of `guard violations`, up to the table.
fn head_of_violations(page: &ViolationPage, guard: &GuardReport) -> String {
    let style = style(Some(80));
    let shown = guard::violations(page, guard, NOW, &style);
    let head = shown.into_iter().map(|line| line.text());
    let head = head.take_while(|line| !line.is_empty() && !line.starts_with("nothing was"));
    head.collect::<Vec<_>>().join("\n")
}

#[test]
fn violations_show_guard_status_and_how_to_resume() {
    let with = |mode, tripped_at| GuardReport {
        mode,
        tripped_at,
        ..guard_report()
    };
    let of = |modes: &[GuardMode]| {
        let open = modes.iter().map(|mode| {
            let mut open = violations().open.remove(0);
            open.mode = *mode;
            open
        });
        ViolationPage {
            open: open.collect(),
            ..ViolationPage::default()
        }
    };
    let (dry, soft, enforce) = (GuardMode::DryRun, GuardMode::Soft, GuardMode::Enforce);
    let at = Some(NOW.plus_seconds(-2_900));
    let goes_on = "  enforcement.max_ended_per_10_minutes: an admin resumes it with gpukillctl\n  \
        guard";
    for (page, guard, expected) in [
        (
            of(&[dry]),
            with(dry, None),
            "1 violation now · dry run: nobody is warned or ended".to_owned(),
        ),
        (
            of(&[soft, soft]),
            with(soft, None),
            "2 violations now · soft".to_owned(),
        ),
        (
            of(&[enforce]),
            with(enforce, None),
            "1 violation now · enforce".to_owned(),
        ),
        (
            of(&[soft, dry]),
            with(soft, None),
            "2 violations now · soft, and 1 of them is only recorded: its policy says so"
                .to_owned(),
        ),
        (
            of(&[dry]),
            with(soft, at),
            format!(
                "1 violation now · stopped: nobody is warned or ended\n\
                 it ends no job since 13:14:11, to stay within\n{goes_on} soft"
            ),
        ),
        (
            of(&[]),
            with(enforce, at),
            format!(
                "no open violation\n\
                 it ends no job since 13:14:11, to stay within\n{goes_on} enforce"
            ),
        ),
        (
            of(&[dry]),
            with(dry, at),
            "1 violation now · dry run: nobody is warned or ended\n\
             it would have stopped at 13:14:11, to stay within\n  \
             enforcement.max_ended_per_10_minutes"
                .to_owned(),
        ),
        (
            of(&[dry]),
            with(GuardMode::Disabled, None),
            "1 violation now · the guard is disabled: nothing is evaluated".to_owned(),
        ),
    ] {
        assert_eq!(
            head_of_violations(&page, &guard),
            expected,
            "{:?}",
            guard.mode
        );
    }
}

/// The lines about a change of the mode, below the difference.
fn turned(
    mode: GuardMode,
    was: PreviousState,
    open: Vec<(OpenViolation, Consequence)>,
    doing: Mode,
) -> EffectScreen {
    let effect = EditEffect {
        mode,
        previous: was,
        open: Ok(open),
        exempt: Vec::new(),
    };
    EffectScreen { effect, doing }
}

struct EffectScreen {
    effect: EditEffect,
    doing: Mode,
}

impl EffectScreen {
    /// For an edit that changes no text.
    fn lines(&self, style: &OutputStyle) -> Vec<Line> {
        let nothing = EditReport {
            before: Some(edited().after),
            difference: String::new(),
            ..edited()
        };
        guard::edit_lines(
            &nothing,
            edit_view(self.doing),
            Some(&self.effect),
            NOW,
            style,
        )
    }
}

#[test]
fn change_of_mode_names_mode_and_affected_jobs() {
    let minutes = |minutes: i64| Consequence::EndsNotBefore(NOW.plus_seconds(60 * minutes));
    let all = |consequences: [Consequence; 4]| {
        let page = violations();
        let open = page.open.into_iter().chain(page.would_have_ended);
        open.zip(consequences).collect::<Vec<_>>()
    };
    let own = ConsequenceReason::OwnPolicy;
    let soft = all([
        minutes(5),
        minutes(60),
        Consequence::Warned(own),
        Consequence::Nothing,
    ]);
    let soft = turned(GuardMode::Soft, PreviousState::Stopped, soft, Mode::Apply);
    check_all("guard-turned-soft", |style| soft.lines(style));
    let enforce = all([
        Consequence::DryRun(own),
        Consequence::EndsAtOnce,
        Consequence::Warned(ConsequenceReason::Rule),
        Consequence::DryRun(ConsequenceReason::Rule),
    ]);
    let enforce = turned(
        GuardMode::Enforce,
        PreviousState::OtherMode,
        enforce,
        Mode::DryRun,
    );
    check_all("guard-turned-enforce", |style| enforce.lines(style));
    let style = style(Some(80));
    let screen =
        |mode, was, open, doing| text(&turned(mode, was, open, doing).lines(&style), &style);
    let nothing = "nothing changes: the rules say so already\n";
    let (doing, saying) = (Mode::Apply, Mode::DryRun);
    for (mode, was, how, expected) in [
        (
            GuardMode::DryRun,
            PreviousState::OtherMode,
            doing,
            format!("{nothing}the guard is in mode dry-run: nobody is warned or ended\n"),
        ),
        (
            GuardMode::Disabled,
            PreviousState::OtherMode,
            saying,
            format!("{nothing}the guard would be disabled: nothing is evaluated\n"),
        ),
        (
            GuardMode::Soft,
            PreviousState::SameMode,
            doing,
            format!(
                "{nothing}the guard is in mode soft: it warns, and ends a job when the grace is \
                 over\nno open violation\n"
            ),
        ),
        // A stopped guard resumes, so "nothing changes" would be wrong.
        (
            GuardMode::Enforce,
            PreviousState::Stopped,
            saying,
            "the guard would be in mode enforce, and would end jobs again: it has stopped; it\n  \
             ends jobs without a warning; for idleness and waste it warns first\nnobody broke a rule at the last sample; by rules changed since: gpukillctl guard test\n"
                .to_owned(),
        ),
    ] {
        assert_eq!(screen(mode, was, Vec::new(), how), expected);
    }
}

#[test]
fn service_that_breaks_several_rules_has_one_line() {
    let mut idle = violations().open.remove(0);
    idle.evidence.is_service_only_warned = true;
    let (mut waste, mut other) = (idle.clone(), idle.clone());
    waste.rule = RuleName {
        source: RuleSource::Rule("lab".into()),
        kind: RuleKind::Waste,
    };
    if let gpukill_proto::guard::ViolationSubject::Job(job) = &mut other.subject {
        job.id = "another".into();
    }
    let report = GuardReport {
        idle_services: vec![idle, other, waste],
        ..guard_report()
    };
    let style = style(None);
    let shown = text(&guard::status_lines(&report, &[], &[], NOW, &style), &style);
    let lines = shown.lines().filter(|line| line.contains(": idle since "));
    let lines: Vec<&str> = lines.collect();
    let idle = "; default: idle, for idleness only warned";
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(
        lines[0].ends_with(&format!("{idle}; rule lab: waste, for waste only warned")),
        "{shown}"
    );
    assert!(lines[1].ends_with(idle), "{shown}");
}

#[test]
fn own_policy_is_named_at_every_end() {
    let mut page = violations();
    page.open[0].own_policy = Some(MilderPolicy::DryRun);
    page.open[2].own_policy = Some(MilderPolicy::Warned);
    page.records.clear();
    check_all("guard-violations-own", |style| {
        guard::violations(&page, &guard_report(), NOW, style)
    });
    let [mut notebook, _] = explanations();
    let mut violation_line = |own_policy| {
        if let Reading::Value(ruled) = &mut notebook.guard {
            ruled.violations[0].own_policy = Some(own_policy);
        }
        let shown = explanation_text(&notebook, &style(None));
        let rule = shown.lines().find(|line| line.starts_with(" rule "));
        rule.map(str::to_owned)
    };
    let expected_line = |what: &str| {
        let rule = "default: idle · 9h 30m of 2h 0m since 04:32:31, would be warned 06:37:00";
        let message = "please close notebooks that you do not use";
        Some(format!(
            " rule     {rule}, 2 times by now, {what} · {message}"
        ))
    };
    assert_eq!(
        violation_line(MilderPolicy::Warned),
        expected_line("warned only: own policy")
    );
    let nobody = "nobody is warned or ended: own policy";
    assert_eq!(violation_line(MilderPolicy::DryRun), expected_line(nobody));
    let (report, style) = (replayed(), style(Some(80)));
    let milder = MilderPolicies::from([
        ("bob".to_owned(), MilderPolicy::Warned),
        ("dana".to_owned(), MilderPolicy::DryRun),
    ]);
    let shown = guard::replay_lines(&report, "of draft.toml", &milder, &style);
    check("guard-replay-own.txt", &text(&shown, &style));
}

#[test]
fn snooze_in_dry_run_uses_none_up() {
    let of = |kind, mode, left| SnoozedRule {
        rule: RuleName {
            source: RuleSource::Group("machine-learning".into()),
            kind,
        },
        mode,
        until: NOW.plus_seconds(1_800),
        left,
    };
    let screen = |snoozed: &[SnoozedRule], doing| {
        let style = style(Some(80));
        let lines = guard::snooze_lines(snoozed, doing, NOW, &style);
        text(&lines, &style)
    };
    let (soft, dry) = (GuardMode::Soft, GuardMode::DryRun);
    let memory = RuleKind::TotalMemory;
    let live = [of(memory, soft, 0), of(RuleKind::Idle, soft, 2)];
    assert_eq!(
        screen(&live, Mode::Apply),
        "group machine-learning: total memory: nothing is ended for 30m, until 14:32; no\n  \
         snooze left\n\
         group machine-learning: idle: nothing is ended for 30m, until 14:32; 2 snoozes\n  \
         left\n"
    );
    assert_eq!(
        screen(&[of(RuleKind::Idle, soft, 2)], Mode::DryRun),
        "group machine-learning: idle: nothing would be ended for 30m, until 14:32; 2\n  \
         snoozes left\n"
    );
    let nobody = "group machine-learning: total memory: nobody is ended for it (dry run)";
    for doing in [Mode::DryRun, Mode::Apply] {
        assert_eq!(
            screen(&[of(memory, dry, 0)], doing),
            format!("{nobody}: no more\n  time is needed, and no snooze is used up\n")
        );
    }
    let mixed = [of(memory, dry, 0), of(RuleKind::Idle, soft, 2)];
    assert_eq!(
        screen(&mixed, Mode::Apply),
        format!(
            "{nobody}\n\
             group machine-learning: idle: nothing is ended for 30m, until 14:32; 2 snoozes\n  \
             left\n"
        )
    );
}
