//! What a scan found: who it is, by which signs, and what to do about it.

use super::looked::weighed;
use super::{FAMILIES, may_not_act, processes, tone};
use crate::output::line::{Line, Tone, shown, wrap};
use crate::output::look::Look;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::value::{clock_or_day, counted, gpus};
use crate::output::whose::owner_name;
use gpukill_policy::rogue::advice::{Advice, What, advice};
use gpukill_proto::document::{RecommendationDocument, ScanDocument};
use gpukill_proto::rogue::{Finding, ScanReport, Sign, Verdict};
use gpukill_proto::text::duration;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::time::Duration;

/// The lines of `gpukillctl rogue scan`.
pub(crate) fn scanned(report: &ScanReport, now: Timestamp, look: &Look) -> Vec<Line> {
    let judged = judged(report);
    if report.findings.is_empty() {
        return sentence(&format!("nothing found: {judged} judged"), look);
    }
    let mut table = Table::new(vec![
        Column::left("RISK", WhenNarrow::Stays),
        Column::right("SCORE", WhenNarrow::Stays),
        Column::right("PID", WhenNarrow::Stays),
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::right("GPU", WhenNarrow::Goes(2)),
        Column::left("VERDICT", WhenNarrow::Stays),
        // What it calls itself says least.
        Column::left("PROCESS", WhenNarrow::ShrinksThenGoes(8, 1)),
    ]);
    for finding in &report.findings {
        table.push(Row::Cells(row(finding, look)));
    }
    let mut rows = table.lines(look).into_iter();
    let mut lines: Vec<Line> = rows.next().into_iter().collect();
    for (row, finding) in rows.zip(&report.findings) {
        lines.push(row);
        lines.extend(details(finding, now, look));
    }
    lines.extend(legend(&report.findings, look));
    lines.push(Line::default());
    let found = counted(report.findings.len(), "finding");
    let more = match report.more {
        0 => String::new(),
        more => format!(", and {more} more, none of them worse"),
    };
    lines.extend(sentence(&format!("{found}{more}: {judged} judged"), look));
    lines
}

/// What the families of signs are, where there is a sign.
fn legend(findings: &[Finding], look: &Look) -> Vec<Line> {
    let mut verdicts = findings.iter().flat_map(|finding| &finding.verdicts);
    if verdicts.all(|verdict| verdict.signs.is_empty()) {
        return Vec::new();
    }
    let legend = Line::toned(format!(" {FAMILIES}"), Tone::Faint);
    vec![Line::default(), legend.cut(look.width, look.symbols)]
}

/// `300 processes of the last 24 h`
fn judged(report: &ScanReport) -> String {
    let length = report.until.since(report.since);
    // As it was asked for.
    let length = match length.as_secs() / 3_600 {
        0 => duration(length),
        hours if length == Duration::from_secs(hours * 3_600) => format!("{hours} h"),
        _ => duration(length),
    };
    let processes = processes(report.judged as usize);
    format!("{processes} of the last {length}")
}

fn sentence(text: &str, look: &Look) -> Vec<Line> {
    let texts = wrap(text, 0, 2, look.width).into_iter();
    texts.map(Line::plain).collect()
}

fn row(finding: &Finding, look: &Look) -> Vec<Cell> {
    let unknown = || "?".to_owned();
    let worst = finding.verdicts.first();
    let of_worst = |text: fn(&Verdict) -> String| worst.map_or_else(unknown, text);
    let risk = of_worst(|worst| worst.risk.name().to_owned());
    let owner = finding.owner.as_ref().map(|owner| owner.name.as_str());
    let name = finding.name.as_deref();
    let used = match finding.gpus.as_slice() {
        [] => look.symbols.none().to_owned(),
        indices => gpus(indices.iter().copied()),
    };
    vec![
        Cell::toned(risk, worst.map_or(Tone::Plain, |worst| tone(worst.risk))),
        Cell::plain(of_worst(|worst| worst.score.to_string())),
        Cell::plain(finding.process.pid.to_string()),
        Cell::plain(owner_name(owner, None, finding.uid, look.symbols)),
        Cell::plain(used),
        Cell::plain(of_worst(|worst| worst.threat.words().to_owned())),
        Cell::plain(name.map_or_else(unknown, |name| shown(name, look.symbols))),
    ]
}

/// What stands below the row of a finding.
fn details(finding: &Finding, now: Timestamp, look: &Look) -> Vec<Line> {
    let mut lines = Vec::new();
    for sign in signs(finding) {
        let read = shown(&sign.read, look.symbols);
        lines.extend(below(&weighed(sign), &read, look));
    }
    if let Some(why) = may_not_act(&finding.verdicts) {
        lines.extend(below("rules", &format!("none {why}"), look));
    }
    for other in finding.verdicts.iter().skip(1) {
        let (threat, risk) = (other.threat.words(), other.risk.name());
        let text = format!("{threat}, {} {risk}", other.score);
        lines.extend(below("also", &text, look));
    }
    lines.extend(below("since", &lasted(finding, now, look), look));
    let mut label = "do";
    for advice in advice(finding) {
        let name = match advice.what {
            What::Allow => "if honest",
            What::End | What::Look | What::Ask | What::Limit => std::mem::take(&mut label),
        };
        lines.extend(advised(name, &advice, look));
    }
    lines
}

/// All signs of all verdicts, each once, the weightiest first.
fn signs(finding: &Finding) -> Vec<&Sign> {
    let mut signs: Vec<&Sign> = Vec::new();
    for sign in finding.verdicts.iter().flat_map(|verdict| &verdict.signs) {
        if !signs.contains(&sign) {
            signs.push(sign);
        }
    }
    signs.sort_by_key(|sign| (Reverse(sign.weight), sign.family));
    signs
}

/// `12:02`; `Fri 23:10, ended 13:20`
fn lasted(finding: &Finding, now: Timestamp, look: &Look) -> String {
    let moment = |moment| clock_or_day(moment, now, "%H:%M", look);
    let since = moment(finding.since);
    match finding.is_present {
        true => since,
        false => format!("{since}, ended {}", moment(finding.last_seen)),
    }
}

/// What stands before a text below a row: `    A 0.80     `
const INDENT: usize = 15;

/// As wide as the longest label, and two blanks.
fn labelled(label: &str, text: &str) -> String {
    format!("    {label:11}{text}")
}

fn below(label: &str, text: &str, look: &Look) -> Vec<Line> {
    let mut texts = wrap(text, INDENT, INDENT, look.width).into_iter();
    let first = labelled(label, &texts.next().unwrap_or_default());
    std::iter::once(first)
        .chain(texts)
        .map(Line::plain)
        .collect()
}

/// A command is not wrapped, so that it can be copied.
fn advised(label: &str, advice: &Advice, look: &Look) -> Vec<Line> {
    let Some(command) = &advice.command else {
        return below(label, &shown(&advice.text, look.symbols), look);
    };
    if shown(command, look.symbols) != *command {
        // What is left of it here does something else.
        return below(
            label,
            "a command that cannot be shown here: -o json has it",
            look,
        );
    }
    vec![Line::plain(labelled(label, command))]
}

/// The same for programs.
pub(crate) fn document(report: &ScanReport) -> ScanDocument {
    ScanDocument::new(report, |finding| {
        let all = advice(finding).into_iter();
        all.map(
            |Advice {
                 what,
                 text,
                 command,
             }| { RecommendationDocument::new(what.name(), &text, command.as_deref()) },
        )
        .collect()
    })
}
