//! The screens of the guard, and what other screens show of it.

mod rogue_rules;

mod affected;

mod stands;

use super::*;
use crate::connect::Doing;
use crate::output::guard::Spared;
use crate::output::rules::of_guard;
use crate::output::sample::{
    edited, explanations, guard_report, hostile, mistakes, replayed, violations, warnings,
};
use gpukill_policy::guard::read::read;
use gpukill_proto::document::{ExplainDocument, ReplayDocument, ViolationsDocument};
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardReport, JudgedAs, Marked, Milder, Person, ReplayReport, Ruled,
    ViolationPage, of_process,
};
use gpukill_proto::snapshot::NetworkRole;

/// The widest, the narrowest that must be readable, and one that knows letters alone.
fn looks() -> [(&'static str, Look); 3] {
    let ascii = Look {
        symbols: Symbols::Ascii,
        ..look(Some(100))
    };
    [
        ("120", look(Some(120))),
        ("80", look(Some(80))),
        ("ascii", ascii),
    ]
}

/// The same screen at every look.
fn check_all(name: &str, screen: impl Fn(&Look) -> Vec<Line>) {
    for (called, look) in looks() {
        let shown = text(&screen(&look), &look);
        let most = look.width.unwrap_or(usize::MAX);
        assert!(shown.lines().all(|l| line::width(l) <= most), "{shown}");
        assert!(
            look.symbols != Symbols::Ascii || shown.is_ascii(),
            "{shown}"
        );
        check(&format!("{name}-{called}.txt"), &shown);
    }
}

fn sight() -> Sight {
    Sight {
        snapshot: snapshot(),
        guard: brief(),
        suspected: Vec::new(),
    }
}

#[test]
fn a_list_says_how_the_guard_stands_and_marks_who_breaks_a_rule() {
    let sight = sight();
    check_all("details-guard", |look| {
        view::lines(&sight, &view(Rows::Processes), NOW, look)
    });
    let look = look(Some(100));
    let heading = |guard: GuardBrief| {
        let shown = guarded(&snapshot(), &guard, &view(Rows::Gpus), &look);
        shown.lines().next().map(str::to_owned)
    };
    let with = |mode, has_rules, open| GuardBrief {
        mode,
        has_rules,
        open,
        would_have_ended: 0,
        ..brief()
    };
    let gone = |open| GuardBrief {
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
        // Who would be gone is not forgiven.
        (gone(0), " · guard dry-run, 2 would have ended"),
        (gone(1), " · guard dry-run, 1 violation, 2 would have ended"),
        // One that is off, and one that has no rules, limit nobody.
        (with(GuardMode::Disabled, true, 0), ""),
        (with(GuardMode::DryRun, false, 0), ""),
    ];
    for (guard, expected) in cases {
        let expected = format!("gpu-box-07 · 10 GPUs · 14:02:31{expected}");
        assert_eq!(heading(guard), Some(expected));
    }
}

#[test]
fn where_nobody_who_is_shown_breaks_a_rule_there_is_no_column_for_rules() {
    let mut snapshot = snapshot();
    snapshot.processes.truncate(4);
    let look = look(Some(120));
    let shown = guarded(&snapshot, &brief(), &view(Rows::Processes), &look);
    let without = listed(&snapshot, &view(Rows::Processes), &look);
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
fn whoever_was_warned_sees_it_below_the_list() {
    let snapshot = snapshot();
    let mark = |mark: Marked| Marked {
        mode: GuardMode::Soft,
        deadline: Some(NOW.plus_seconds(600)),
        is_sole: true,
        can_snooze: true,
        ..mark
    };
    let guard = GuardBrief {
        mode: GuardMode::Soft,
        marked: brief().marked.into_iter().map(mark).collect(),
        ..brief()
    };
    let owners = snapshot.processes.iter();
    let owners = owners.filter(|it| !of_process(it, &guard.marked).is_empty());
    let me = owners
        .filter_map(|it| it.owner.last_known()?.uid)
        .next()
        .unwrap();
    for rows in [Rows::Gpus, Rows::Processes] {
        let own = View { me, ..view(rows) };
        let shown = guarded(&snapshot, &guard, &own, &look(None));
        assert!(shown.contains("\nyour job "), "{shown}");
        let others = guarded(&snapshot, &guard, &view(rows), &look(None));
        assert!(!others.contains("your job"), "{others}");
    }
}

#[test]
fn explain_names_the_rules_that_are_broken_and_those_that_hold() {
    let [notebook, _] = explanations();
    check_all("explain-guard", |look| explain::lines(&notebook, look));
    let mut gone = notebook.clone();
    let page = violations();
    gone.guard = Reading::Value(Ruled {
        would_have_ended: page.would_have_ended,
        judged_as: JudgedAs::Login(Person {
            name: "dana".into(),
            uid: Some(1002),
        }),
        ..Ruled::default()
    });
    check_all("explain-gone", |look| explain::lines(&gone, look));
    let mut protected = notebook.clone();
    protected.guard = Reading::Value(Ruled {
        mode: GuardMode::Soft,
        protected: Some("protect.users names its owner".into()),
        ..Ruled::default()
    });
    for (role, row) in [
        (
            Reading::Value(NetworkRole::Private),
            "private: no port that others use",
        ),
        (
            Reading::Failed("a client of it may be another's".into()),
            "not known: a client of it",
        ),
    ] {
        protected.uses[0].1.network_role = role;
        let shown = text(&explain::lines(&protected, &look(None)), &look(None));
        assert!(shown.contains(&format!("\n network  {row}")), "{shown}");
        let limits = "\n limits   none: no rule is about it, as protect.users names its owner\n";
        assert!(shown.contains(limits), "{shown}");
    }
    let mut hidden = notebook;
    hidden.guard = Reading::Withheld;
    let shown = text(&explain::lines(&hidden, &look(None)), &look(None));
    assert!(shown.contains("\n rules    hidden\n"), "{shown}");
}

#[test]
fn guard_status_says_how_far_it_goes_and_what_is_wrong_with_its_file() {
    check_all("guard-status", |look| {
        super::super::guard::status(&guard_report(), NOW, look)
    });
    let changed = GuardReport {
        mistakes: Vec::new(),
        is_file_changed: Some(true),
        ..guard_report()
    };
    check_all("guard-status-changed", |look| {
        super::super::guard::status(&changed, NOW, look)
    });
    let disabled = GuardReport {
        mode: GuardMode::Disabled,
        revision: None,
        mistakes: Vec::new(),
        judged_at: None,
        dropped: 0,
        beyond: 0,
        ..guard_report()
    };
    let look = look(Some(80));
    let shown = text(&super::super::guard::status(&disabled, NOW, &look), &look);
    check("guard-status-disabled.txt", &shown);
}

#[test]
fn guard_violations_shows_what_goes_on_and_what_was_decided() {
    let page = violations();
    check_all("guard-violations", |look| {
        super::super::guard::violations(&page, &guard_report(), NOW, look)
    });
}

#[test]
fn guard_replay_shows_who_would_have_been_ended_and_what_could_not_be_judged() {
    let report = replayed();
    check_all("guard-replay", |look| {
        super::super::guard::replay(&report, "draft.toml", &Spared::new(), look)
    });
    let nothing = ReplayReport {
        outcomes: Vec::new(),
        records: Vec::new(),
        more_records: 0,
        gaps: Vec::new(),
        not_judged: Vec::new(),
        samples_since: None,
        ..report
    };
    let look = look(Some(80));
    let shown = super::super::guard::replay(&nothing, "draft.toml", &Spared::new(), &look);
    check("guard-replay-nothing.txt", &text(&shown, &look));
}

#[test]
fn guard_test_shows_what_rules_come_to_now() {
    let report = replayed();
    check_all("guard-test", |look| {
        super::super::guard::tested(&report, (&Spared::new(), Some(GuardMode::Soft)), NOW, look)
    });
}

#[test]
fn an_edit_is_shown_as_the_lines_that_differ() {
    // Its lines are the file's, and are not cut.
    for (called, look) in looks() {
        let shown = super::super::guard::edited(&edited(), Doing::Saying, None, NOW, &look);
        check(&format!("guard-edit-{called}.txt"), &text(&shown, &look));
    }
    let look = look(Some(80));
    let made = super::super::guard::edited(&edited(), Doing::Doing, None, NOW, &look);
    let last = made.last().map(Line::text);
    assert_eq!(last.as_deref(), Some("in force: revision 0f8a11d27b3ce940"));
    let colored = Look {
        color: true,
        ..look
    };
    check("guard-edit-colored.txt", &text(&made, &colored));
    let nothing = EditReport {
        before: Some(edited().after),
        difference: String::new(),
        ..edited()
    };
    let nothing = super::super::guard::edited(&nothing, Doing::Doing, None, NOW, &look);
    assert_eq!(
        text(&nothing, &look),
        "nothing changes: the rules say so already\n"
    );
}

#[test]
fn a_check_names_every_mistake_and_what_is_odd() {
    check_all("guard-mistakes", |look| {
        rules::mistakes("draft.toml", &mistakes(), look)
    });
    let rules = read("[global]\ndefault_memory_limit_gb = 8\n").expect("they are right");
    check_all("guard-checked", |look| {
        rules::checked("draft.toml", &of_guard(&rules), &warnings(), look)
    });
}

#[test]
fn nothing_that_rules_and_processes_are_called_can_steer_the_terminal() {
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
    let mut odd = warnings();
    for warning in &mut odd {
        warning.path = HOSTILE.into();
        warning.what = HOSTILE.into();
    }
    let rules = read("").expect("they are right");
    let spared = Spared::from([(HOSTILE.to_owned(), Milder::Rehearsed)]);
    let look = look(None);
    let screens = [
        super::super::guard::status(&report, NOW, &look),
        super::super::guard::violations(&page, &report, NOW, &look),
        super::super::guard::replay(&replayed, HOSTILE, &spared, &look),
        super::super::guard::tested(&replayed, (&spared, Some(GuardMode::Enforce)), NOW, &look),
        super::super::guard::edited(&edit, Doing::Saying, None, NOW, &look),
        rules::mistakes(HOSTILE, &wrong, &look),
        rules::checked(HOSTILE, &of_guard(&rules), &odd, &look),
        explain::lines(&notebook, &look),
    ];
    for screen in screens {
        assert_steers_nothing(&text(&screen, &look));
    }
    assert_steers_nothing(&guarded(&snapshot(), &brief, &view(Rows::Processes), &look));
    let documents = [
        json::pretty(&ViolationsDocument::from(&page)),
        json::pretty(&ReplayDocument::from(&replayed)),
        json::pretty(&ExplainDocument::from(&notebook)),
    ];
    for document in documents {
        assert_steers_nothing(&document.expect("texts"));
    }
    assert_steers_nothing(&rules::printable(
        "a\x1b[2J\u{9b}31m\u{7f}\n\u{202e}\u{200b}b",
    ));
}

#[test]
fn rules_are_printed_as_they_are_written_but_for_what_steers() {
    let rules = "# Für uns: cafe\u{301}\n[user_policies.alice]\n\tmemory_limit_gb = 8\n";
    assert_eq!(rules::printable(rules), rules);
    let long = rules.replace('\n', "\r\n");
    assert_eq!(rules::printable(&long), long);
    let hostile = rules::printable("a\x1b[2J\rb\u{202e}\n");
    assert_eq!(hostile, "a\\x1b[2J\\x0db\\u{202e}\n");
}
