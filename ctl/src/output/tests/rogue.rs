//! The screens of the rogue watch, and the watch in other screens.

mod scan;

use super::*;
use crate::output::fixtures::{explanations, hidden, looked, rogue_report, scan};
use crate::output::rogue::{document, scan_lines};
use gpukill_proto::guard::{GuardMode, RunKey, ViolationMark};
use gpukill_proto::json::ExplainDocument;
use gpukill_proto::model::Vendor;
use gpukill_proto::rogue::{Risk, RogueAssessment, RogueReport, ScanReport, VerdictSummary};

/// Checks the screen in every style. Commands are not wrapped, so that they can be copied.
fn check_all(name: &str, screen: impl Fn(&OutputStyle) -> Vec<Line>) {
    check_styles(name, |line| line.contains("rogue allow"), screen);
}

#[test]
fn scan_shows_processes_indicators_and_advice() {
    check_all("rogue-scan", |style| scan_lines(&scan(), NOW, style));
    let document = json::pretty(&document(&scan())).expect("plain values");
    check("rogue-scan.json", &document);
}

#[test]
fn command_that_cannot_be_shown_is_left_out() {
    let mut report = scan();
    report.findings.truncate(1);
    report.findings[0].executable = Some("/dev/shm/.ü/python3 (deleted)".into());
    let honest = |symbols| {
        let style = OutputStyle {
            symbols,
            ..style(None)
        };
        let shown = text(&scan_lines(&report, NOW, &style), &style);
        let line = shown.lines().find(|line| line.contains("if honest"));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(
        honest(Symbols::Unicode),
        "    if honest  gpukillctl rogue allow executable '/dev/shm/.ü/python3 (deleted)@eve'"
    );
    assert_eq!(
        honest(Symbols::Ascii),
        "    if honest  a command that cannot be shown here: -o json has it"
    );
}

fn annotated(guard: GuardSummary) -> AnnotatedSnapshot {
    AnnotatedSnapshot {
        snapshot: snapshot(),
        guard,
        suspected: suspected(),
    }
}

#[test]
fn list_marks_rogues_above_low_risk() {
    let details = view(Rows::Processes);
    let alone = annotated(GuardSummary::default());
    let screen = |style: &OutputStyle| view::lines(&alone, &details, NOW, style);
    check_all("details-rogue", screen);
    check_widths("details-rogue", &[100, 160], WRAPPED, |style| {
        text(&screen(style), style)
    });
    let with_rules = annotated(brief());
    check_all("details-rogue-guard", |style| {
        view::lines(&with_rules, &details, NOW, style)
    });
    let style = style(Some(100));
    let last = |annotated: &AnnotatedSnapshot| {
        let lines = view::lines(annotated, &view(Rows::Gpus), NOW, &style);
        let mut texts = lines.iter().map(Line::text);
        texts.find(|text| text.contains("rogue"))
    };
    let expected = "2 processes may be rogues: gpukillctl rogue scan";
    assert_eq!(last(&alone).as_deref(), Some(expected));
    let mut one = alone;
    one.suspected.remove(0);
    let expected = "1 process may be a rogue: gpukillctl rogue scan";
    assert_eq!(last(&one).as_deref(), Some(expected));
    // A low risk gets no column.
    one.suspected.remove(0);
    assert_eq!(last(&one), None);
    let without = listed(&one.snapshot, &details, &style);
    assert_eq!(
        text(&view::lines(&one, &details, NOW, &style), &style),
        without
    );
}

/// GPUs of three vendors, a rogue process, and a job of the reader that ends after midnight.
#[test]
fn marks_leave_room_for_the_command() {
    let mut snapshot = snapshot();
    for (index, vendor, name) in [
        (1, Vendor::Amd, "AMD Instinct MI300X"),
        (4, Vendor::Intel, "Intel Arc B580"),
    ] {
        snapshot.devices[index].vendor = vendor;
        snapshot.devices[index].name = Reading::Value(name.into());
    }
    let soft = |mark: ViolationMark| ViolationMark {
        mode: GuardMode::Soft,
        deadline: mark.deadline.map(|_| NOW.plus_seconds(43_200)),
        would_have_ended_at: None,
        can_snooze: true,
        ..mark
    };
    let annotated = AnnotatedSnapshot {
        snapshot,
        guard: GuardSummary {
            mode: GuardMode::Soft,
            would_have_ended: 0,
            marks: brief().marks.into_iter().map(soft).collect(),
            ..brief()
        },
        suspected: suspected(),
    };
    for width in [80, 100, 120, 160] {
        let style = style(Some(width));
        let mut screens = String::new();
        for rows in [Rows::Gpus, Rows::Processes] {
            let own = View {
                me: 1001,
                ..view(rows)
            };
            screens += &text(&view::lines(&annotated, &own, NOW, &style), &style);
            screens.push('\n');
        }
        assert!(
            screens.lines().all(|it| text::width(it) <= width),
            "{screens}"
        );
        let titles = screens.lines().find_map(|it| it.find("COMMAND"));
        assert!(titles.is_some_and(|at| width - at >= 30), "{screens}");
        check(&format!("mixed-{width}.txt"), &screens);
    }
}

#[test]
fn marked_process_is_never_hidden() {
    let mut annotated = annotated(brief());
    let of = |pid: u32| {
        let mut processes = annotated.snapshot.processes.iter();
        let process = processes.find(|it| it.pid == pid).expect("it is there");
        let start_ticks = *process.start_ticks.known().expect("it is known");
        (ProcessKey { pid, start_ticks }, process.device.clone())
    };
    // They are the last of a dozen processes with equal memory.
    let [(breaker, device), (miner, _), (low, _)] = [60_011, 60_012, 60_010].map(of);
    let mut mark = annotated.guard.marks[0].clone();
    mark.run = RunKey {
        pid: breaker.pid,
        start_ticks: breaker.start_ticks,
        device,
        instance: None,
    };
    annotated.guard.marks = vec![mark];
    let risk = |risk| VerdictSummary {
        risk,
        ..annotated.suspected[0].1
    };
    let more = [(miner, risk(Risk::Medium)), (low, risk(Risk::Low))];
    annotated.suspected.extend(more);
    let shown = |most: usize| {
        let view = View {
            max_processes: most,
            ..view(Rows::Processes)
        };
        let lines = view::lines(&annotated, &view, NOW, &style(None));
        let texts = lines.iter().map(Line::text);
        let texts = texts.filter(|line| line.starts_with("     1 "));
        // PIDs, and the number of further processes.
        let numbers = texts.filter_map(|line| {
            line.split_whitespace()
                .skip(1)
                .find_map(|it| it.parse().ok())
        });
        numbers.collect::<Vec<u32>>()
    };
    let ten = (60_001..=60_008).chain([60_011, 60_012, 2]);
    assert_eq!(shown(10), ten.collect::<Vec<u32>>());
    assert_eq!(shown(3), [60_001, 60_011, 60_012, 9]);
    assert_eq!(shown(1), [60_011, 60_012, 10]);
    assert_eq!(shown(0), (60_001..=60_012).collect::<Vec<u32>>());
}

#[test]
fn mark_belongs_to_the_process_not_the_pid() {
    let mut annotated = annotated(GuardSummary::default());
    for (key, _) in &mut annotated.suspected {
        key.start_ticks += 1;
    }
    let style = style(Some(120));
    let shown = text(
        &view::lines(&annotated, &view(Rows::Processes), NOW, &style),
        &style,
    );
    assert!(!shown.contains("ROGUE"), "{shown}");
}

#[test]
fn explain_shows_verdict_and_missing_evidence() {
    let [mut notebook, mut worker] = explanations();
    notebook.rogue = Reading::Value(hidden());
    worker.rogue = Reading::Value(looked());
    check_all("explain-rogue", |style| {
        let mut lines = explain::lines(&notebook, ExplainDetail::All, style);
        lines.push(Line::default());
        lines.extend(explain::lines(&worker, ExplainDetail::All, style));
        lines
    });
    let style = style(None);
    for (rogue, expected) in [
        (Reading::Withheld, Some(" score    hidden")),
        (Reading::Failed("x".into()), Some(" score    ?")),
        (Reading::Unsupported, None),
    ] {
        notebook.rogue = rogue;
        let shown = explanation_text(&notebook, &style);
        let score = shown.lines().find(|line| line.starts_with(" score"));
        assert_eq!(score, expected);
    }
}

#[test]
fn harmless_process_gets_one_sentence() {
    let [_, mut worker] = explanations();
    let mut verdict = |allowed: &[String], missing: &[String]| {
        worker.rogue = Reading::Value(RogueAssessment {
            allowed: allowed.to_vec(),
            missing_evidence: missing.to_vec(),
            ..looked()
        });
        let shown = explanation_text(&worker, &style(None));
        for expert in [" score", "0.05", " C ", " missing", " allowed"] {
            assert!(!shown.contains(expert), "{expert}: {shown}");
        }
        let line = shown.lines().find(|line| line.starts_with(" verdict"));
        line.map(str::to_owned)
    };
    let (allowed, missing) = (looked().allowed, looked().missing_evidence);
    assert_eq!(
        verdict(&[], &[]).as_deref(),
        Some(" verdict  not suspicious")
    );
    assert_eq!(
        verdict(&[], &missing).as_deref(),
        Some(" verdict  not suspicious, as far as it could be examined")
    );
    assert_eq!(
        verdict(&allowed, &missing).as_deref(),
        Some(" verdict  not suspicious: an admin exempts it")
    );
}

#[test]
fn status_shows_findings_and_rule_mistakes() {
    let rows = |report: RogueReport| {
        let mut status = status();
        status.rogue = report;
        let style = style(Some(200));
        let shown = text(&status::lines(&status, &[], "0.1.0", &style), &style);
        let rows = shown.lines().skip_while(|line| !line.starts_with(" rogue"));
        let rows = rows.take_while(|line| !line.starts_with(" store"));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        rows(RogueReport::default()),
        [" rogue    watching, no findings"]
    );
    let found = RogueReport {
        unwatched: 0,
        mistakes: Vec::new(),
        ..rogue_report()
    };
    assert_eq!(
        rows(found.clone()),
        [" rogue    2 findings, the worst critical: gpukillctl rogue scan"]
    );
    let one = RogueReport {
        findings: 1,
        unwatched: 1,
        ..found
    };
    assert_eq!(
        rows(one),
        [
            " rogue    1 finding, the worst critical: gpukillctl rogue scan; 1 process more than \
             can be watched"
        ]
    );
    let wrong = RogueReport {
        findings: 0,
        worst: None,
        unwatched: 0,
        ..rogue_report()
    };
    assert_eq!(
        rows(wrong.clone()),
        [
            " rogue    watching, no findings; the previous rules still apply: 2 mistakes in \
             /etc/gpukill/rules/rogue.toml",
            " mistake  line 3: detection.max_memory_usage_gb: \"much\" is not a number from 0 to 1000000000",
            " mistake  line 9: unknown key patterns.minerz",
        ]
    );
    // No previous file was in force.
    let never_right = RogueReport {
        revision: None,
        ..wrong
    };
    assert_eq!(
        rows(never_right)[0],
        " rogue    watching, no findings; the built-in rules apply: 2 mistakes in \
         /etc/gpukill/rules/rogue.toml"
    );
}

#[test]
fn rogue_texts_cannot_control_terminal_or_shell() {
    let mut report = scan();
    for finding in &mut report.findings {
        finding.name = Some(HOSTILE.into());
        if let Some(owner) = &mut finding.owner {
            owner.name = HOSTILE.into();
        }
        for indicator in finding
            .verdicts
            .iter_mut()
            .flat_map(|it| &mut it.indicators)
        {
            indicator.evidence = format!("executable in shared memory: /dev/shm/{HOSTILE}");
        }
    }
    let [mut notebook, mut worker] = explanations();
    let hostile_of = |mut looked: RogueAssessment| {
        looked.missing_evidence = vec![HOSTILE.into()];
        let verdicts = looked.verdicts.iter_mut().flat_map(|it| &mut it.indicators);
        for indicator in verdicts.chain(&mut looked.indicators) {
            indicator.evidence = HOSTILE.into();
        }
        Reading::Value(looked)
    };
    notebook.rogue = hostile_of(hidden());
    worker.rogue = hostile_of(looked());
    let mut state = status();
    state.rogue = RogueReport {
        file: HOSTILE.into(),
        mistakes: vec![HOSTILE.into()],
        ..rogue_report()
    };
    for symbols in [Symbols::Unicode, Symbols::Ascii] {
        let style = OutputStyle {
            symbols,
            ..style(None)
        };
        let scanned = text(&scan_lines(&report, NOW, &style), &style);
        for command in scanned.lines().filter(|it| it.contains("gpukillctl")) {
            assert!(!command.contains("31m"), "{command}");
        }
        let screens = [
            scanned,
            text(
                &explain::lines(&notebook, ExplainDetail::All, &style),
                &style,
            ),
            text(&explain::lines(&worker, ExplainDetail::All, &style), &style),
            text(&status::lines(&state, &[], "0.1.0", &style), &style),
        ];
        assert_steer_nothing(screens);
    }
    let documents = [
        json::pretty(&document(&report)),
        json::pretty(&ExplainDocument::from(&notebook)),
        json::pretty(&StatusDocument::from(&state)),
    ];
    assert_steer_nothing(documents.map(|document| document.expect("texts")));
}
