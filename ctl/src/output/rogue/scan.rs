//! The output of a scan: the processes, the indicators and the recommended actions.

use super::process::indicator_weight;
use super::{FAMILIES_LEGEND, no_action_reason, risk_tone};
use crate::output::owner_cells::owner_name;
use crate::output::style::OutputStyle;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped, wrap, wrapped_lines};
use crate::output::value::{counted, counted_processes, gpus, time_or_weekday};
use gpukill_policy::rogue::advice::{Advice, AdviceKind, advice};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::json::{RecommendationDocument, ScanDocument};
use gpukill_proto::rogue::{Indicator, RogueFinding, ScanReport, Verdict};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::time::Duration;

/// The lines of `gpukillctl rogue scan`.
pub(crate) fn scan_lines(report: &ScanReport, now: Timestamp, style: &OutputStyle) -> Vec<Line> {
    let processes = evaluated_text(report);
    if report.findings.is_empty() {
        let text = format!("nothing found: {processes} evaluated");
        return wrapped_lines(&text, Tone::Plain, style);
    }
    let mut table = Table::new(vec![
        Column::left("RISK", WhenNarrow::Stays),
        Column::right("SCORE", WhenNarrow::Stays),
        Column::right("PID", WhenNarrow::Stays),
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::right("GPU", WhenNarrow::Goes(2)),
        Column::left("VERDICT", WhenNarrow::Stays),
        // The process chooses its own name, so this column matters least.
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(8, 1)),
    ]);
    for finding in &report.findings {
        table.push(Row::Cells(row(finding, style)));
    }
    let mut rows = table.lines(style).into_iter();
    let mut lines: Vec<Line> = rows.next().into_iter().collect();
    for (row, finding) in rows.zip(&report.findings) {
        lines.push(row);
        lines.extend(details(finding, now, style));
    }
    lines.extend(legend(&report.findings, style));
    lines.push(Line::default());
    let found = counted(report.findings.len(), "finding");
    let more = match report.more {
        0 => String::new(),
        more => format!(", and {more} more, none of them worse"),
    };
    let text = format!("{found}{more}: {processes} evaluated");
    lines.extend(wrapped_lines(&text, Tone::Plain, style));
    lines
}

/// The meaning of the indicator families, if there is an indicator.
fn legend(findings: &[RogueFinding], style: &OutputStyle) -> Vec<Line> {
    let mut verdicts = findings.iter().flat_map(|finding| &finding.verdicts);
    if verdicts.all(|verdict| verdict.indicators.is_empty()) {
        return Vec::new();
    }
    let legend = Line::with_tone(format!(" {FAMILIES_LEGEND}"), Tone::Faint);
    vec![Line::default(), legend.cut(style.width, style.symbols)]
}

/// `300 processes of the last 24 h`
fn evaluated_text(report: &ScanReport) -> String {
    let length = report.until.since(report.since);
    // In hours, as requested.
    let length = match length.as_secs() / 3_600 {
        0 => format_duration(length),
        hours if length == Duration::from_secs(hours * 3_600) => format!("{hours} h"),
        _ => format_duration(length),
    };
    let processes = counted_processes(report.evaluated as usize);
    format!("{processes} of the last {length}")
}

fn row(finding: &RogueFinding, style: &OutputStyle) -> Vec<Cell> {
    let unknown = || "?".to_owned();
    let worst = finding.verdicts.first();
    let of_worst = |text: fn(&Verdict) -> String| worst.map_or_else(unknown, text);
    let risk = of_worst(|worst| worst.risk.name().to_owned());
    let owner = finding.owner.as_ref().map(|owner| owner.name.as_str());
    let name = finding.name.as_deref();
    let used = match finding.gpus.as_slice() {
        [] => style.symbols.placeholder().to_owned(),
        indices => gpus(indices.iter().copied()),
    };
    vec![
        Cell::with_tone(
            risk,
            worst.map_or(Tone::Plain, |worst| risk_tone(worst.risk)),
        ),
        Cell::plain(of_worst(|worst| worst.score.to_string())),
        Cell::plain(finding.process.pid.to_string()),
        Cell::plain(owner_name(owner, None, finding.uid, style.symbols)),
        Cell::plain(used),
        Cell::plain(of_worst(|worst| worst.threat.label().to_owned())),
        Cell::plain(name.map_or_else(unknown, |name| escaped(name, style.symbols))),
    ]
}

/// The lines below the row of a finding.
fn details(finding: &RogueFinding, now: Timestamp, style: &OutputStyle) -> Vec<Line> {
    let mut lines = Vec::new();
    for indicator in indicators(finding) {
        let evidence = escaped(&indicator.evidence, style.symbols);
        lines.extend(labelled_lines(
            &indicator_weight(indicator),
            &evidence,
            style,
        ));
    }
    if let Some(why) = no_action_reason(&finding.verdicts) {
        lines.extend(labelled_lines("rules", &format!("none {why}"), style));
    }
    for other in finding.verdicts.iter().skip(1) {
        let (threat, risk) = (other.threat.label(), other.risk.name());
        let text = format!("{threat}, {} {risk}", other.score);
        lines.extend(labelled_lines("also", &text, style));
    }
    lines.extend(labelled_lines(
        "since",
        &time_text(finding, now, style),
        style,
    ));
    let mut label = "do";
    for advice in advice(finding) {
        let name = match advice.kind {
            AdviceKind::Allow => "if honest",
            AdviceKind::End | AdviceKind::Inspect | AdviceKind::Ask | AdviceKind::Limit => {
                std::mem::take(&mut label)
            }
        };
        lines.extend(advice_lines(name, &advice, style));
    }
    lines
}

/// The indicators of all verdicts, each once, the weightiest first.
fn indicators(finding: &RogueFinding) -> Vec<&Indicator> {
    let mut indicators: Vec<&Indicator> = Vec::new();
    for indicator in finding
        .verdicts
        .iter()
        .flat_map(|verdict| &verdict.indicators)
    {
        if !indicators.contains(&indicator) {
            indicators.push(indicator);
        }
    }
    indicators.sort_indirect_by_key(|indicator| (Reverse(indicator.weight), indicator.family));
    indicators
}

/// `12:02`; `Fri 23:10, ended 13:20`
fn time_text(finding: &RogueFinding, now: Timestamp, style: &OutputStyle) -> String {
    let moment = |moment| time_or_weekday(moment, now, "%H:%M", style);
    let since = moment(finding.since);
    match finding.is_present {
        true => since,
        false => format!("{since}, ended {}", moment(finding.last_seen)),
    }
}

/// The width of the label in `    A 0.80     `.
const INDENT: usize = 15;

/// As wide as the longest label, and two blanks.
fn labelled(label: &str, text: &str) -> String {
    format!("    {label:11}{text}")
}

fn labelled_lines(label: &str, text: &str, style: &OutputStyle) -> Vec<Line> {
    let mut texts = wrap(text, INDENT, INDENT, style.width).into_iter();
    let first = labelled(label, &texts.next().unwrap_or_default());
    std::iter::once(first)
        .chain(texts)
        .map(Line::plain)
        .collect()
}

/// A command is not wrapped, so that it can be copied.
fn advice_lines(label: &str, advice: &Advice, style: &OutputStyle) -> Vec<Line> {
    let Some(command) = &advice.command else {
        return labelled_lines(label, &escaped(&advice.text, style.symbols), style);
    };
    if escaped(command, style.symbols) != *command {
        // An escaped command would do something else.
        return labelled_lines(
            label,
            "a command that cannot be shown here: -o json has it",
            style,
        );
    }
    vec![Line::plain(labelled(label, command))]
}

/// The scan for programs.
pub(crate) fn document(report: &ScanReport) -> ScanDocument {
    ScanDocument::new(report, |finding| {
        let all = advice(finding).into_iter();
        all.map(
            |Advice {
                 kind: what,
                 text,
                 command,
             }| { RecommendationDocument::new(what.name(), &text, command.as_deref()) },
        )
        .collect()
    })
}
