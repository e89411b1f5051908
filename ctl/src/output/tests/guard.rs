//! The screens of the guard, and the guard in other screens.

mod affected;
mod rogue_rules;
mod status;

use super::*;
use crate::connect::Mode;
use crate::output::fixtures::{
    edited, explanations, guard_report, hostile, mistakes, replayed, violations, warnings,
};
use crate::output::guard::rules::{Difference, EditView, guard_summary};
use crate::output::guard::{self, MilderPolicies};
use gpukill_policy::guard::rules::description::{PolicyDescription, describe_policies};
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardRecord, GuardReport, GuardStep, MilderPolicy, OpenViolation,
    ProcessGuardStatus, ReplayReport, ViolationMark, ViolationPage, find_marks,
};
use gpukill_proto::json::{ExplainDocument, ReplayDocument, ViolationsDocument};
use gpukill_proto::model::NetworkRole;

fn annotated() -> AnnotatedSnapshot {
    AnnotatedSnapshot {
        snapshot: snapshot(),
        guard: brief(),
        suspected: Vec::new(),
    }
}

#[test]
fn list_shows_guard_status_and_marks() {
    let annotated = annotated();
    let screen = |style: &OutputStyle| view::lines(&annotated, &view(Rows::Processes), NOW, style);
    check_all("details-guard", screen);
    check_widths("details-guard", &[100, 160], WRAPPED, |style| {
        text(&screen(style), style)
    });
    let style = style(Some(100));
    let heading = |guard: GuardSummary| {
        let shown = guarded(&snapshot(), &guard, &view(Rows::Gpus), &style);
        shown.lines().next().map(str::to_owned)
    };
    let with = |mode, has_rules, open| GuardSummary {
        mode,
        has_rules,
        open,
        would_have_ended: 0,
        ..brief()
    };
    let gone = |open| GuardSummary {
        would_have_ended: 2,
        ..with(GuardMode::DryRun, true, open)
    };
    let cases = [
        (
            with(GuardMode::DryRun, true, 1),
            " · guard dry-run, 1 violation",
        ),
        (
            with(GuardMode::Soft, true, 2),
            " · guard soft, 2 violations",
        ),
        (with(GuardMode::Enforce, true, 0), " · guard enforce"),
        // The heading still counts jobs that a dry run counts as ended.
        (gone(0), " · guard dry-run, 2 would have ended"),
        (gone(1), " · guard dry-run, 1 violation, 2 would have ended"),
        (
            GuardSummary {
                is_stopped: true,
                ..with(GuardMode::Enforce, true, 1)
            },
            " · guard stopped, 1 violation",
        ),
        // A disabled guard and a guard without rules limit nobody.
        (with(GuardMode::Disabled, true, 0), ""),
        (with(GuardMode::DryRun, false, 0), ""),
    ];
    for (guard, expected) in cases {
        let expected = format!("gpu-box-07 · 10 GPUs · 14:02:31{expected}");
        assert_eq!(heading(guard), Some(expected));
    }
}

#[test]
fn no_violation_shown_means_no_rule_column() {
    let mut snapshot = snapshot();
    snapshot.processes.truncate(4);
    let style = style(Some(120));
    let shown = guarded(&snapshot, &brief(), &view(Rows::Processes), &style);
    let without = listed(&snapshot, &view(Rows::Processes), &style);
    let table = |shown: &str| {
        shown
            .lines()
            .skip(2)
            .take(6)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(table(&shown), table(&without));
}

#[test]
fn warned_user_sees_it_below_the_list() {
    let snapshot = snapshot();
    let mark = |mark: ViolationMark| ViolationMark {
        mode: GuardMode::Soft,
        deadline: Some(NOW.plus_seconds(600)),
        is_sole: true,
        can_snooze: true,
        ..mark
    };
    let guard = GuardSummary {
        mode: GuardMode::Soft,
        marks: brief().marks.into_iter().map(mark).collect(),
        ..brief()
    };
    let owners = snapshot.processes.iter();
    let owners = owners.filter(|it| !find_marks(it, &guard.marks).is_empty());
    let me = owners
        .filter_map(|it| it.owner.last_known()?.uid)
        .next()
        .unwrap();
    for rows in [Rows::Gpus, Rows::Processes] {
        let own = View { me, ..view(rows) };
        let shown = guarded(&snapshot, &guard, &own, &style(None));
        assert!(shown.contains("\nyour job "), "{shown}");
        let others = guarded(&snapshot, &guard, &view(rows), &style(None));
        assert!(!others.contains("your job"), "{others}");
    }
}

#[test]
fn explain_names_broken_rules_and_limits() {
    let [notebook, _] = explanations();
    check_all("explain-guard", |style| {
        explain::lines(&notebook, ExplainDetail::Usual, style)
    });
    // A dry run ends nothing that a snooze could postpone.
    let snoozes = |mode| {
        let mut notebook = notebook.clone();
        if let Reading::Value(ruled) = &mut notebook.guard {
            ruled.violations[0].mode = mode;
        }
        let shown = explanation_text(&notebook, &style(None));
        shown.matches("gpukillctl guard snooze 51002").count()
    };
    let modes = [GuardMode::DryRun, GuardMode::Soft, GuardMode::Enforce];
    assert_eq!(modes.map(snoozes), [0, 1, 1]);
    let mut gone = notebook.clone();
    let page = violations();
    gone.guard = Reading::Value(ProcessGuardStatus {
        would_have_ended: page.would_have_ended,
        ..ProcessGuardStatus::default()
    });
    check_all("explain-gone", |style| {
        explain::lines(&gone, ExplainDetail::Usual, style)
    });
    let mut protected = notebook.clone();
    protected.guard = Reading::Value(ProcessGuardStatus {
        mode: GuardMode::Soft,
        protected: Some("protect.users names its owner".into()),
        ..ProcessGuardStatus::default()
    });
    protected.uses[0].1.connections = Reading::Value(3);
    for (role, row) in [
        (
            Reading::Value(NetworkRole::Service(vec![8000])),
            "service on port 8000, 3 connections in the last minute; a job with clients is not \
            idle; idle and waste rules only warn of a service by default",
        ),
        (
            Reading::Value(NetworkRole::Private),
            "private: no port that others use",
        ),
        (
            Reading::Failed("one of its clients may be external".into()),
            "not known: one of its clients may be external",
        ),
    ] {
        protected.uses[0].1.network_role = role;
        let shown = explanation_text(&protected, &style(None));
        assert!(shown.contains(&format!("\n network  {row}")), "{shown}");
        let limits = "\n limits   none: no rule applies, because protect.users names its owner\n";
        assert!(shown.contains(limits), "{shown}");
    }
    let mut hidden = notebook;
    hidden.guard = Reading::Withheld;
    let shown = explanation_text(&hidden, &style(None));
    assert!(shown.contains("\n rules    hidden\n"), "{shown}");
}

#[test]
fn guard_status_shows_mode_rules_violations_and_mistakes() {
    let users: String = (1..12)
        .map(|number| format!("[user_policies.user{number}]\nmemory_limit_gb = {number}\n"))
        .collect();
    let written = format!("[global]\ndefault_memory_limit_gb = 20\n{users}");
    let policies = describe_policies(&parse(&written).expect("they are right"));
    let open: Vec<OpenViolation> = (0..2).flat_map(|_| violations().open).collect();
    check_all("guard-status", |style| {
        guard::status_lines(&guard_report(), &policies, &open, NOW, style)
    });
    let changed = GuardReport {
        mistakes: Vec::new(),
        is_file_changed: Some(true),
        ..guard_report()
    };
    check_all("guard-status-changed", |style| {
        guard::status_lines(&changed, &[], &[], NOW, style)
    });
    let disabled = GuardReport {
        mode: GuardMode::Disabled,
        revision: None,
        mistakes: Vec::new(),
        evaluated_at: None,
        dropped: 0,
        overflow: 0,
        ..guard_report()
    };
    let style = style(Some(80));
    let shown = text(
        &guard::status_lines(&disabled, &[], &[], NOW, &style),
        &style,
    );
    check("guard-status-disabled.txt", &shown);
}

#[test]
fn guard_violations_shows_open_and_decided() {
    let page = violations();
    check_all("guard-violations", |style| {
        guard::violations(&page, &guard_report(), NOW, style)
    });
}

#[test]
fn guard_replay_shows_ends_and_gaps() {
    let report = replayed();
    check_all("guard-replay", |style| {
        guard::replay_lines(&report, "of draft.toml", &MilderPolicies::new(), style)
    });
    // A second rule that would have ended the same job adds no line.
    let mut by_two_rules = report.clone();
    let mut again = by_two_rules.records[1].clone();
    again.rule = by_two_rules.outcomes[0].rule.clone();
    by_two_rules.records.insert(2, again);
    let shown = [&report, &by_two_rules].map(|report| {
        let milder = MilderPolicies::new();
        guard::replay_lines(report, "of draft.toml", &milder, &style(None))
    });
    assert_eq!(shown[0], shown[1]);
    let nothing = ReplayReport {
        outcomes: Vec::new(),
        records: Vec::new(),
        more_records: 0,
        gaps: Vec::new(),
        not_evaluated: Vec::new(),
        samples_since: None,
        ..report
    };
    let style = style(Some(80));
    let shown = guard::replay_lines(&nothing, "of draft.toml", &MilderPolicies::new(), &style);
    check("guard-replay-nothing.txt", &text(&shown, &style));
    let unrecorded = ReplayReport {
        evaluated: 0,
        ..nothing
    };
    let milder = MilderPolicies::new();
    let shown = guard::replay_lines(&unrecorded, "draft.toml", &milder, &style);
    let shown = text(&shown, &style);
    assert!(
        shown.contains("nothing is recorded in this time"),
        "{shown}"
    );
    assert!(!shown.contains("nobody"), "{shown}");
}

#[test]
fn guard_replay_names_who_is_only_warned() {
    let style = style(None);
    let rows = |records: Vec<GuardRecord>| {
        let report = ReplayReport {
            records,
            rules: 0,
            more_records: 0,
            ..replayed()
        };
        let milder = MilderPolicies::new();
        let shown = guard::replay_lines(&report, "in force", &milder, &style);
        let shown: Vec<String> = shown.iter().map(Line::text).collect();
        let heading = "7d 0h, 41 people, 512 process runs, no rules in force";
        assert_eq!(shown[0], heading);
        let table = shown.iter().position(|line| line.starts_with(" WHEN "));
        let rows = table.map_or(&[][..], |table| &shown[table + 1..]);
        let rows = rows.iter().take_while(|line| !line.is_empty());
        let is_none = shown
            .iter()
            .any(|line| line == "nobody would have been ended");
        (rows.cloned().collect::<Vec<_>>(), is_none)
    };
    let all = replayed().records;
    let over = GuardRecord {
        step: GuardStep::Over,
        at: all[2].at.plus_seconds(60),
        ..all[2].clone()
    };
    let (only, is_none) = rows(vec![all[2].clone(), over.clone()]);
    assert!(is_none && only.len() == 1, "{only:?}");
    assert!(only[0].starts_with(" Mon 16 Nov 22:55  bob "), "{only:?}");
    assert!(only[0].ends_with("  22:55   warned only"), "{only:?}");
    // It is still open at the end.
    assert_eq!(rows(vec![all[2].clone()]), (only.clone(), true));
    // The end comes days after another warning, which led to no end.
    let again = GuardRecord {
        at: over.at.plus_seconds(60),
        ..all[2].clone()
    };
    let (both, is_none) = rows(vec![all[2].clone(), over, again, all[3].clone()]);
    assert!(!is_none && both.len() == 2, "{both:?}");
    assert_eq!(both[0].split("  ").last(), Some("warned only"));
    assert!(both[1].contains("  Mon 22:57  "), "{both:?}");
}

#[test]
fn guard_test_shows_open_violations() {
    let report = replayed();
    check_all("guard-test", |style| {
        guard::test_lines(
            &report,
            (&MilderPolicies::new(), Some(GuardMode::Soft)),
            NOW,
            style,
        )
    });
}

/// An edit with the difference of the file.
fn edit_view(doing: Mode) -> EditView<'static> {
    EditView {
        doing,
        difference: Difference::Shown,
        statement: "alice: at most 16 GiB, priority 7",
    }
}

#[test]
fn edit_is_one_sentence_and_a_diff_on_request() {
    // The lines of a difference are the file's and are not cut.
    for (called, style) in styles() {
        let view = edit_view(Mode::DryRun);
        let shown = guard::edit_lines(&edited(), view, None, NOW, &style);
        check(&format!("guard-edit-{called}.txt"), &text(&shown, &style));
    }
    let style = style(Some(80));
    let view = edit_view(Mode::Apply);
    let made = guard::edit_lines(&edited(), view, None, NOW, &style);
    let colored = OutputStyle {
        color: true,
        ..style
    };
    check("guard-edit-colored.txt", &text(&made, &colored));
    let short = EditView {
        difference: Difference::Hidden,
        ..view
    };
    let short = guard::edit_lines(&edited(), short, None, NOW, &style);
    assert_eq!(text(&short, &style), "alice: at most 16 GiB, priority 7\n");
    let nothing = EditReport {
        before: Some(edited().after),
        difference: String::new(),
        ..edited()
    };
    let nothing = guard::edit_lines(&nothing, view, None, NOW, &style);
    assert_eq!(
        text(&nothing, &style),
        "nothing changes: the rules say so already\n"
    );
}

#[test]
fn check_names_mistakes_and_lints() {
    check_all("guard-mistakes", |style| {
        rules::mistake_lines("draft.toml", &mistakes(), style)
    });
    let rules = parse("[global]\ndefault_memory_limit_gb = 8\n").expect("they are right");
    check_all("guard-checked", |style| {
        rules::checked_lines("draft.toml", &guard_summary(&rules), &warnings(), style)
    });
}

#[test]
fn guard_texts_cannot_control_the_terminal() {
    let (page, replayed, ruled, brief) = hostile(HOSTILE);
    let [mut notebook, _] = explanations();
    notebook.guard = Reading::Value(ruled);
    let report = GuardReport {
        file: HOSTILE.into(),
        mistakes: vec![HOSTILE.into()],
        ..guard_report()
    };
    let edit = EditReport {
        difference: format!("+{HOSTILE}\n"),
        ..edited()
    };
    let mut wrong = mistakes();
    for mistake in &mut wrong {
        mistake.path = HOSTILE.into();
        mistake.what = HOSTILE.into();
        mistake.suggestion = Some(HOSTILE.into());
    }
    let mut lints = warnings();
    for warning in &mut lints {
        warning.path = HOSTILE.into();
        warning.what = HOSTILE.into();
    }
    let rules = parse("").expect("they are right");
    let milder = MilderPolicies::from([(HOSTILE.to_owned(), MilderPolicy::DryRun)]);
    let style = style(None);
    let hostile_policies = [PolicyDescription {
        kind: None,
        name: HOSTILE.into(),
        text: HOSTILE.into(),
        mode: GuardMode::Soft,
    }];
    let hostile_view = EditView {
        statement: HOSTILE,
        ..edit_view(Mode::DryRun)
    };
    let screens = [
        guard::status_lines(&report, &hostile_policies, &page.open, NOW, &style),
        guard::violations(&page, &report, NOW, &style),
        guard::replay_lines(&replayed, HOSTILE, &milder, &style),
        guard::test_lines(&replayed, (&milder, Some(GuardMode::Enforce)), NOW, &style),
        guard::edit_lines(&edit, hostile_view, None, NOW, &style),
        rules::mistake_lines(HOSTILE, &wrong, &style),
        rules::checked_lines(HOSTILE, &guard_summary(&rules), &lints, &style),
        explain::lines(&notebook, ExplainDetail::Usual, &style),
    ];
    assert_steer_nothing(screens.map(|screen| text(&screen, &style)));
    let documents = [
        json::pretty(&ViolationsDocument::from(&page)),
        json::pretty(&ReplayDocument::from(&replayed)),
        json::pretty(&ExplainDocument::from(&notebook)),
    ];
    assert_steer_nothing(documents.map(|document| document.expect("texts")));
    assert_steer_nothing([
        guarded(&snapshot(), &brief, &view(Rows::Processes), &style),
        rules::escape_for_terminal("a\x1b[2J\u{9b}31m\u{7f}\n\u{202e}\u{200b}b"),
    ]);
}

#[test]
fn printed_rules_escape_control_characters() {
    let rules = "# Für uns: cafe\u{301}\n[user_policies.alice]\n\tmemory_limit_gb = 8\n";
    assert_eq!(rules::escape_for_terminal(rules), rules);
    let long = rules.replace('\n', "\r\n");
    assert_eq!(rules::escape_for_terminal(&long), long);
    let hostile = rules::escape_for_terminal("a\x1b[2J\rb\u{202e}\n");
    assert_eq!(hostile, "a\\x1b[2J\\x0db\\u{202e}\n");
}
