//! The page of the guard: its mode, the rules in words and as text, violations with their evidence, and
//! what other rules would have done.

use super::format::{between, columns, counted, moment, segment, size, thousands};
use super::processes::path;
use super::{Content, Page, PageView, Section};
use crate::calls::CallContext;
use crate::document::Document;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::routes::{history, now};
use gpukill_policy::guard::rules::description::describe_policies;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::json::{
    EvidenceDocument, GuardDocument, GuardRecordDocument, OpenViolationDocument, RulesTextDocument,
};
use gpukill_proto::rogue::Risk;
use gpukill_proto::text::{format_duration_with_seconds, sanitize};
use maud::{Markup, html};
use std::time::Duration;

pub(super) const PAGE: Page = Page::new("guard", "Guard", content, &[VIOLATIONS, RULES]);

const VIOLATIONS: Section = Section::new("violations", &[], 5, violations);

const RULES: Section = Section {
    is_slow: false,
    ..Section::new("rules", &[], 5, rules)
};

fn content(view: &PageView<'_>) -> Result<Content, Problem> {
    let guard = view.status.map(|status| GuardDocument::from(&status.guard));
    let main = html! {
        div.head { h1 { "Guard" } (mode_form(view)) }
        @if let Some(guard) = &guard { (state(guard)) }
        section.stack { h2 { "Violations" } (view.section(VIOLATIONS.name)) }
        section.stack { h2 { "Rules in force" } (view.section(RULES.name)) }
        section.stack { h2 { "Change a rule" } (set_form(view)) }
        section.stack {
            h2 { "Try other rules" }
            p.soft { "Paste a rule file: the past shows what it would have done. Nothing is changed." }
            form.panel.stack data-replay="" {
                textarea name="rules" spellcheck="false" aria-label="Rule file" placeholder="[global]\ndefault_memory_limit_gb = 80" {}
                div.form {
                    label { "Over " select name="hours" {
                        option value="24" { "a day" } option value="168" selected { "a week" } option value="720" { "30 days" }
                    } }
                    button.primary { "Replay" }
                    noscript { small { "This needs scripts; or run " code { "gpukillctl guard replay --rules FILE" } } }
                }
            }
            div #replayed .stack data-own="" {}
        }
    };
    Content::new("Guard", main)
}

fn state(guard: &GuardDocument) -> Markup {
    html! {
        dl.tiles {
            div { dt { "Mode" } dd { (guard.mode) @if guard.mode == "dry-run" { small { " of " (guard.armed_mode) } } } }
            div { dt { "Rules" } dd { (guard.rules) } }
            div { dt { "Open violations" } dd { (guard.open) } }
            div { dt { "Warned today" } dd { (guard.warned_today) } }
            div { dt { "Ended today" } dd { (guard.ended_today) } }
            div { dt { "Would have ended" } dd { (guard.simulated_ended_today) small { " today" } } }
        }
        @if let Some(at) = &guard.tripped_at {
            p.banner { "The circuit breaker stopped the guard " (super::layout::since(at)) ": it ends no job until an admin sets a mode." }
        }
        @if let Some(doubt) = &guard.doubt {
            p.banner.warn { "Behaviour rules concern " (doubt.people) " of " (doubt.of) " people "
                (super::layout::since(&doubt.since)) @if doubt.only_warn { ": they only warn" } "." }
        }
        @for mistake in &guard.mistakes { p.banner.warn { "The file is not in force: " bdi { (mistake) } } }
        @if guard.file_changed == Some(true) { p.banner.warn { "The file has changed since it was read." } }
    }
}

/// The form that sets the mode, or the command for it.
fn mode_form(view: &PageView<'_>) -> Markup {
    let current = view.list.guard.mode;
    html! {
        @if view.is_personal {
            form data-edit="/api/v1/guard/mode" {
                label { "Mode " select name="mode" {
                    @for mode in ["disabled", "dry-run", "soft", "enforce"] {
                        option value=(mode) selected[mode == current] { (mode) }
                    }
                } }
                button { "Change…" }
            }
        } @else {
            details.act { summary { "Change…" } div {
                p { "This page only looks. As an admin, run one of these:" }
                code { "gpukillctl guard soft" } code { "gpukillctl web" }
            } }
        }
    }
}

fn set_form(view: &PageView<'_>) -> Markup {
    html! {
        @if view.is_personal {
            form.panel data-edit="/api/v1/guard/set" {
                label { "Key " input name="key" required placeholder="global.default_memory_limit_gb" size="30"; }
                label { "Value " input name="value" placeholder="80" size="12"; }
                button { "Show the difference…" }
            }
        } @else {
            p.panel { "This page only looks. As an admin, run " code { "gpukillctl guard set KEY VALUE" } " or " code { "gpukillctl web" } "." }
        }
    }
}

/// The rules in words, and their text with numbers of lines.
fn rules(context: &mut CallContext, page: &Parameters) -> Result<Document, Problem> {
    let document = now::guard_rules(context, page)?;
    Ok(Document::html(rules_text(&document).into_string()))
}

fn rules_text(document: &RulesTextDocument) -> Markup {
    let parsed = parse(&document.text);
    let described = parsed.as_ref().map(describe_policies).unwrap_or_default();
    let shown = |text: &str| sanitize(text.as_bytes(), usize::MAX);
    html! {
        @if described.is_empty() { p.panel.empty { "There are no rules." } }
        @else {
            ul.panel.stack { @for policy in &described { li {
                bdi { (shown(&policy.text)) }
                " " span.chip { (policy.mode.name()) }
                @if let Some(line) = line_of(&document.text, &policy.name) {
                    " " a.link href={ "#rule-" (line) } { "line " (line) }
                }
            } } }
        }
        details.panel {
            summary { code { bdi { (shown(&document.file)) } } " "
                small { @match &document.revision { Some(revision) => { "revision " (revision) }, None => { "no file: the built-in rules" }, } }
            }
            pre.rules { @for (at, line) in document.text.lines().enumerate() {
                span id={ "rule-" (at + 1) } { (line.split('\t').map(shown).collect::<Vec<_>>().join("    ")) }
            } }
        }
    }
}

/// The line where a policy begins: its table, or its name in a list of tables.
pub(super) fn line_of(text: &str, name: &str) -> Option<usize> {
    let names = [format!(".{name}]"), format!(".\"{name}\"]")];
    let quoted = format!("\"{name}\"");
    let mut lines = text.lines().map(str::trim_start).zip(1..);
    let found = lines.find(|(line, _)| match name {
        "" => line.starts_with("[global]"),
        _ if line.starts_with('[') => names.iter().any(|name| line.contains(name)),
        _ => line.starts_with("name") && line.contains(&quoted),
    });
    found.map(|(_, number)| number)
}

fn violations(context: &mut CallContext, _: &Parameters) -> Result<Document, Problem> {
    let asked = [("hours", "168"), ("limit", "50")];
    let asked = Parameters::of(history::VIOLATION_PARAMETERS, &asked)?;
    let document = history::violations(context, &asked)?;
    let html = html! {
        @if document.open.is_empty() && document.would_have_ended.is_empty() {
            p.panel.empty { "No rule is broken." }
        } @else {
            (violation_rows(document.open.iter().chain(&document.would_have_ended)))
        }
        @if !document.records.is_empty() {
            h3 { "Decisions of the last 7 days" }
            div.panel.scroll { table {
                (columns(&[("When", ""), ("Who", ""), ("Rule", ""), ("Decision", ""), ("Measured", "lesser")]))
                tbody { @for record in &document.records { (record_row(record)) } }
            } }
        }
    };
    Ok(Document::html(html.into_string()))
}

/// Open violations with their evidence and the time left.
pub(super) fn violation_rows<'a>(all: impl Iterator<Item = &'a OpenViolationDocument>) -> Markup {
    html! {
        div.panel.scroll { table {
            (columns(&[("Who", ""), ("Rule", ""), ("Measured", ""), ("Since", ""), ("Processes", ""), ("What follows", "")]))
            tbody { @for open in all {
                tr {
                    td { @match &open.owner {
                        Some(owner) => { a href={ "/person/" (segment(owner)) } { bdi { (owner) } } },
                        None => { bdi { (open.subject) } },
                    } }
                    td { bdi { (open.rule) } @if let Some(message) = &open.message { br; small { bdi { (message) } } } }
                    td { (measured(open.kind, &open.evidence)) }
                    td { (moment(&open.evidence.since)) }
                    td { (evidence_processes(&open.evidence)) }
                    td { (consequence(open)) }
                }
            } }
        } }
    }
}

/// When a job is ended, and why not.
fn consequence(open: &OpenViolationDocument) -> Markup {
    html! {
        @if let Some(at) = &open.ended_at {
            "would have ended " (moment(at))
        } @else if let Some(until) = &open.snoozed_until {
            "postponed to " (moment(until))
        } @else if let Some(deadline) = &open.deadline {
            span.warn { @if open.mode == "dry-run" { "would end " } @else { "ends " } (moment(deadline)) }
            small { ", in " (between(&chrono::Local::now().to_rfc3339(), deadline)) }
        } @else { "is warned of, and not ended" }
        @if let Some(left) = open.snoozes_left { small { "; " (counted(left as usize, "snooze", "snoozes")) " left" } }
        @if let Some(own) = open.own_policy { small { "; own policy: " (own) } }
        @if open.evidence.service_only_warned { small { "; a service is only warned about" } }
    }
}

fn evidence_processes(evidence: &EvidenceDocument) -> Markup {
    let more = (evidence.count as usize).saturating_sub(evidence.procs.len());
    html! {
        @for it in evidence.procs.iter().take(3) {
            a.link href=(path(it.pid, Some(it.start_ticks))) {
                (it.pid) " " bdi { (it.process_name.as_deref().unwrap_or("?")) }
            }
            small { " GPU " (it.gpu_index) } " "
        }
        @if more > 0 || evidence.procs.len() > 3 { small { "of " (evidence.count) } }
    }
}

fn record_row(record: &GuardRecordDocument) -> Markup {
    html! {
        tr data-key=[record.id] {
            td { (moment(&record.timestamp)) }
            td { bdi { (record.owner.as_deref().unwrap_or(&record.subject)) } }
            td { bdi { (record.rule) } }
            td { (record.step)
                @if record.mode == "dry-run" { small { " (dry run)" } }
                @if let Some(deadline) = &record.deadline { small { ", to " (moment(deadline)) } }
                @if let Some(why) = &record.why { small { ": " bdi { (why) } } }
            }
            td.lesser { (measured(record.kind, &record.evidence)) }
        }
    }
}

/// What was measured, and its limit.
fn measured(kind: &str, evidence: &EvidenceDocument) -> Markup {
    html! {
        @match (evidence.value, evidence.limit) {
            (Some(value), Some(_)) if kind == "rogue" => {
                @if let Some(threat) = evidence.threat { (threat.replace('_', " ")) ", " }
                (amount(kind, value))
            },
            (Some(value), Some(limit)) => { (amount(kind, value)) " of " (amount(kind, limit)) },
            _ => { "not allowed" },
        }
    }
}

/// A number in the unit of a rule's kind.
pub(super) fn amount(kind: &str, number: u64) -> String {
    match kind {
        "memory" | "total memory" | "process memory" | "reserved memory" | "growth" => size(number),
        "utilization" | "total utilization" | "gpu utilization" | "waste" => format!("{number} %"),
        "duration" | "idle" | "runaway" => {
            format_duration_with_seconds(Duration::from_millis(number))
        }
        "rogue" => {
            Risk::from_level(number).map_or_else(|| number.to_string(), |it| it.name().to_owned())
        }
        _ => thousands(number),
    }
}
