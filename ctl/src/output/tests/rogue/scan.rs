//! The texts of a scan about findings, and about rules that may not act on them. `explain`
//! shows the latter too.

use super::*;
use gpukill_proto::rogue::{Indicator, IndicatorFamily, RogueAssessment, Share, Threat, Verdict};

#[test]
fn scan_shows_the_day_unless_today() {
    let report = scan();
    let lasted = |day: i64, from: &str| {
        let now = NOW.plus_seconds(day * 86_400);
        let style = style(None);
        let shown = text(&scan_lines(&report, now, &style), &style);
        let lines = shown.lines().skip_while(|line| !line.starts_with(from));
        let mut lines = lines.filter_map(|line| line.strip_prefix("    since      "));
        lines.next().unwrap_or_default().to_owned()
    };
    // A running process, and a process that has ended.
    let times = |day| [" critical", " high"].map(|from| lasted(day, from));
    assert_eq!(times(0), ["12:02", "12:02, ended 13:20"]);
    assert_eq!(times(1), ["Sat 12:02", "Sat 12:02, ended Sat 13:20"]);
    let on = |time: &str| format!("2026-11-21 {time}");
    let both = format!("{}, ended {}", on("12:02"), on("13:20"));
    assert_eq!(times(7), [on("12:02"), both]);
}

#[test]
fn high_risk_states_why_no_rule_may_act() {
    let verdict = |threat, risk, families: &str| {
        let family = |it| match it {
            'A' => IndicatorFamily::A,
            'B' | 'b' => IndicatorFamily::B,
            _ => IndicatorFamily::C,
        };
        let indicator = |it| Indicator {
            family: family(it),
            // An indicator that the process does not choose.
            kind: "pool_connection".into(),
            weight: Share::from_thousandths(if it == 'b' { 200 } else { 400 }),
            ..scan().findings[0].verdicts[0].indicators[0].clone()
        };
        Verdict {
            threat,
            risk,
            indicators: families.chars().map(indicator).collect(),
            ..scan().findings[0].verdicts[0].clone()
        }
    };
    let miner = |risk, families| verdict(Threat::CryptoMiner, risk, families);
    let odd = |risk, families| verdict(Threat::SuspiciousProcess, risk, families);
    let near = Some("may act on it: that takes an indicator of family A");
    let second = Some("may act on it: that takes a second indicator, of another family");
    let weight = Some(
        "may act on it: that takes a second indicator, of another family, that weighs at least \
        0.30",
    );
    let of_one = Some("may act on it as a suspicious process: that takes an indicator of family A");
    for (verdicts, expected) in [
        (vec![miner(Risk::Critical, "AB")], None),
        (vec![miner(Risk::High, "AC")], None),
        (vec![miner(Risk::Critical, "AA")], second),
        (vec![miner(Risk::Critical, "Ab")], weight),
        (vec![miner(Risk::High, "BC")], near),
        (vec![miner(Risk::Medium, "BC")], None),
        // Rules act on the other verdict.
        (vec![odd(Risk::High, "B"), miner(Risk::High, "AB")], None),
        (vec![odd(Risk::Critical, "B"), miner(Risk::High, "B")], near),
        (
            vec![odd(Risk::Critical, "B"), miner(Risk::Low, "AB")],
            of_one,
        ),
    ] {
        let mut report = scan();
        report.findings.truncate(1);
        report.findings[0].verdicts.clone_from(&verdicts);
        let [mut explained, _] = explanations();
        let assessment = RogueAssessment {
            verdicts,
            ..hidden()
        };
        let last = assessment.indicators.last().map(|it| it.evidence.clone());
        explained.rogue = Reading::Value(assessment);
        let style = style(None);
        let scanned = text(&scan_lines(&report, NOW, &style), &style);
        let mut reasons = scanned
            .lines()
            .filter_map(|it| it.strip_prefix("    rules      none "));
        assert_eq!(
            (reasons.next(), reasons.next()),
            (expected, None),
            "{scanned}"
        );
        // Directly below the indicators.
        let explained = explanation_text(&explained, &style);
        let mut below = explained
            .lines()
            .skip_while(|it| !it.ends_with(last.as_deref().unwrap_or_default()));
        let reason = below
            .nth(1)
            .and_then(|it| it.strip_prefix("          no rule "));
        assert_eq!(reason, expected, "{explained}");
    }
}

#[test]
fn families_are_explained_below_indicators() {
    let legend = "\n A near a proof, B strong, C corroborates others and means nothing alone\n\n";
    let style = style(Some(80));
    let mut report = scan();
    let shown = |report: &ScanReport| text(&scan_lines(report, NOW, &style), &style);
    assert_eq!(shown(&report).matches(legend).count(), 1);
    report.findings = report.findings.split_off(4);
    let without = shown(&report);
    assert!(!without.contains("proof"), "{without}");
}

#[test]
fn empty_scan_states_how_many_were_evaluated() {
    let style = style(Some(80));
    let shown = |evaluated, seconds: i64| {
        let report = ScanReport {
            since: NOW.plus_seconds(-seconds),
            evaluated,
            findings: Vec::new(),
            more: 0,
            ..scan()
        };
        text(&scan_lines(&report, NOW, &style), &style)
    };
    let cases = [
        (312, 86_400, "312 processes of the last 24 h"),
        (1, 3_600, "1 process of the last 1 h"),
        (0, 1_800, "0 processes of the last 30m"),
        (2, 5_400, "2 processes of the last 1h 30m"),
    ];
    for (evaluated, seconds, expected) in cases {
        let expected = format!("nothing found: {expected} evaluated\n");
        assert_eq!(shown(evaluated, seconds), expected);
    }
}
