//! The pages of a process, a person and a job: what they hold, what is known of them, and their past.

use super::format::{columns, counted, fact, local, moment, segment, size, value};
use super::gpu::finding_panel;
use super::guard::violation_rows;
use super::layout::range_tabs;
use super::past::{held_charts, runs, summary};
use super::processes::{label, marks, place, table};
use super::rogue::indicator_rows;
use super::{Content, Page, PageView, Section};
use crate::calls::CallContext;
use crate::document::Document;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::routes::{PID, history, now};
use gpukill_proto::json::{
    DeviceHoldDocument, ExplainDocument, ProcessDocument, ProcessGuardStatusDocument,
    TimelineDocument,
};
use maud::{Markup, html};

pub(super) const PROCESS: Page = Page::new(
    "process",
    "Overview",
    process_content,
    &[EXPLAINED, PROCESS_EVENTS],
);

pub(super) const PERSON: Page = Page::new(
    "person",
    "Overview",
    person_content,
    &[
        PERSON_CHARTS,
        PERSON_VIOLATIONS,
        PERSON_SUMMARY,
        PERSON_RUNS,
    ],
);

pub(super) const JOB: Page = Page::new("job", "Overview", job_content, &[JOB_CHARTS, JOB_RUNS]);

/// A look at the files of a process costs the daemon more than its readings.
const EXPLAINED: Section = Section::new("process", &["process"], 15, explained);

const PROCESS_EVENTS: Section = Section::new("process events", &["process"], 15, events);

const PERSON_CHARTS: Section =
    Section::new("person charts", &["user", "range"], 30, |context, page| {
        held_charts(context, page, &["user"])
    });

const PERSON_VIOLATIONS: Section =
    Section::new("person violations", &["user"], 5, person_violations);

const PERSON_SUMMARY: Section =
    Section::new("person summary", &["user", "range"], 30, |context, page| {
        summary(context, page, &["user"])
    });

const PERSON_RUNS: Section =
    Section::new("person runs", &["user", "range"], 30, |context, page| {
        runs(context, page, &["user"])
    });

const JOB_CHARTS: Section = Section::new("job charts", &["job", "range"], 30, |context, page| {
    held_charts(context, page, &["job"])
});

const JOB_RUNS: Section = Section::new("job runs", &["job", "range"], 30, |context, page| {
    runs(context, page, &["job"])
});

/// A process of an address: its PID, and its start if that is there.
fn process_of(text: &str) -> Result<(u32, Option<u64>), Problem> {
    let (pid, start) = match text.split_once('-') {
        Some((pid, start)) => (pid, Some(start)),
        None => (text, None),
    };
    let start = start.map(str::parse::<u64>).transpose();
    match (pid.parse::<u32>(), start) {
        (Ok(pid), Ok(start)) if pid > 0 => Ok((pid, start)),
        _ => Err(
            Problem::bad_request("the address of a process is its PID, or PID-START")
                .with_hint("the overview links to all processes"),
        ),
    }
}

/// What ends processes: a dialog in a personal gateway, elsewhere the commands that do it.
pub(super) fn end_button(pids: &[u32], scope: &str) -> Markup {
    let request = serde_json::json!({ "pids": pids, "scope": scope });
    let numbers: Vec<String> = pids.iter().map(u32::to_string).collect();
    let numbers = numbers.join(" ");
    html! {
        details.act data-end=(request.to_string()) {
            summary { @if scope == "job" { "End job…" } @else { "End…" } }
            div {
                p { "This page only looks. As yourself, run one of these:" }
                code { "gpukillctl kill " (numbers) @if scope == "job" { " --scope job" } }
                code { "gpukillctl web" }
            }
        }
    }
}

/// What postpones the end of a job, in the same way.
fn more_time_button(pid: u32) -> Markup {
    html! {
        details.act data-snooze=(pid) {
            summary { "More time…" }
            div {
                p { "This page only looks. As yourself, run one of these:" }
                code { "gpukillctl guard snooze " (pid) }
                code { "gpukillctl web" }
            }
        }
    }
}

fn process_content(view: &PageView<'_>) -> Result<Content, Problem> {
    let (pid, start) = process_of(view.parameter("process"))?;
    let is_same = |it: &&ProcessDocument| {
        it.pid == pid && (start.is_none() || it.start_ticks.is_none() || it.start_ticks == start)
    };
    let uses: Vec<&ProcessDocument> = view.list.procs.iter().filter(is_same).collect();
    let main = html! {
        @match uses.first() {
            Some(process) => {
                div.head {
                    div.stack {
                        h1 { bdi { (label(process)) } }
                        p.legend {
                            @if let Some(owner) = &process.owner { (view.people.chip(owner)) }
                            span.chip { "PID " (pid) }
                            (marks(process))
                        }
                    }
                    div.form {
                        @if !process.rules.is_empty() { (more_time_button(pid)) }
                        @if process.job.is_some() { (end_button(&[pid], "job")) }
                        (end_button(&[pid], "process"))
                    }
                }
                (now_text(view, &uses))
            },
            None => {
                div.head { h1 { "Process " (pid) } small { "uses no GPU now" } }
            },
        }
        section.stack { h2 { "What is known" } (view.section(EXPLAINED.name)) }
        section.stack { h2 { "Last 7 days" } (view.section(PROCESS_EVENTS.name)) }
    };
    Content::new(format!("Process {pid}"), main)
}

/// The readings of a process now, for each GPU.
fn now_text(view: &PageView<'_>, uses: &[&ProcessDocument]) -> Markup {
    html! {
        div.panel.scroll { table {
            (columns(&[("GPU", "num"), ("Memory", "num"), ("SM", "num"), ("Processor", "num"), ("Host memory", "num"), ("First seen", ""), ("Last active", "")]))
            tbody { @for it in uses {
                @let reasons = &it.reasons;
                tr data-key=(it.gpu_id) {
                    td.num { a href={ "/gpu/" (segment(&it.gpu_id)) } { (it.gpu_index) } }
                    td.num { (value(it.used_mem_bytes, (reasons, "used_mem_bytes"), |bytes| html! { (size(bytes)) })) }
                    td.num { (value(it.util_pct, (reasons, "util_pct"), |percent| html! { (percent) " %" })) }
                    td.num { (value(it.cpu_pct, (reasons, "cpu_pct"), |percent| html! { (percent) " %" })) }
                    td.num { (value(it.host_mem_bytes, (reasons, "host_mem_bytes"), |bytes| html! { (size(bytes)) })) }
                    td { (value(it.first_seen.as_deref(), (reasons, "first_seen"), moment)) }
                    td { (value(it.last_active_at.as_deref(), (reasons, "last_active_at"), moment)) }
                }
            } }
        } }
        @if let Some(job) = uses.first().and_then(|it| it.job.as_deref()) {
            @let others = view.list.procs.iter().filter(|it| it.job.as_deref() == Some(job));
            p { "Part of the job " a.link href={ "/job/" (segment(job)) } { bdi { (job) } }
                ", with " (counted(others.count(), "entry", "entries")) " on GPUs." }
        }
    }
}

fn explained(context: &mut CallContext, page: &Parameters) -> Result<Document, Problem> {
    let (pid, start) = process_of(page.text("process").unwrap_or_default())?;
    let pid = pid.to_string();
    let asked = Parameters::of(PID_PARAMETERS, &[(PID.name, pid.as_str())])?;
    let explained = now::explain(context, &asked)?;
    let known = explained.procs.iter().map(|it| it.start_ticks);
    let holds = explained.holds.iter().map(|it| it.holder.start_ticks);
    let other = known.chain(holds).flatten().find(|it| Some(*it) != start);
    let html = match (start, other) {
        (Some(_), Some(_)) => {
            html! { p.panel.empty { "This process has ended: another one has its PID now." } }
        }
        _ => explanation(&explained),
    };
    Ok(Document::html(html.into_string()))
}

const PID_PARAMETERS: &[crate::parameters::Parameter] = &[PID];

fn explanation(explained: &ExplainDocument) -> Markup {
    let first = explained.procs.first();
    let reasons = &explained.reasons;
    html! {
        dl.facts.panel {
            @if let Some(process) = first {
                (fact("Command", &html! { code { bdi { (label(process)) } } }))
                (fact("Where", &html! { bdi { (place(process)) } @if let Some(terminal) = &process.terminal { ", " (terminal) } }))
                @if !process.parents.is_empty() { (fact("Parents", &html! {
                    @for (at, parent) in process.parents.iter().enumerate() {
                        @if at > 0 { ", " }
                        bdi { (parent.name) } " " (parent.pid)
                    }
                })) }
                @if let Some(started) = &process.started_at { (fact("Started", &moment(started))) }
            }
            @for hold in &explained.holds { (fact("Has open", &hold_text(hold))) }
            (fact("Its end frees", &value(explained.frees_bytes, (reasons, "frees_bytes"), |bytes| html! { "at least " (size(bytes)) })))
            @if !explained.shared_with.is_empty() { (fact("Shares memory with", &html! {
                @for pid in explained.shared_with.iter().take(8) { a.link href={ "/process/" (pid) } { (pid) } " " }
            })) }
            (fact("May be ended by", &html! {
                @match &explained.never_ended {
                    Some(why) => { "nobody: " bdi { (why) } },
                    None => { bdi { (explained.may_end.join(", ")) } },
                }
            }))
        }
        @for finding in &explained.findings { (finding_panel(&finding.finding)) }
        @match &explained.guard {
            Some(guard) => { (guard_text(guard)) },
            None => {},
        }
        @if let Some(rogue) = &explained.rogue {
            div.panel.stack {
                h3 { "Suspicion: " (format!("{:.2}", rogue.score)) " of 1" }
                @if rogue.verdicts.is_empty() { p.soft { "No verdict." } }
                @for verdict in &rogue.verdicts { p.bad { (verdict.risk) " risk: " (verdict.threat.replace('_', " ")) } }
                (indicator_rows(&rogue.indicators))
                @for allowed in &rogue.allowed { p.soft { "Allowed: " bdi { (allowed) } } }
                @for missing in &rogue.missing_evidence { p.soft { "Not examined: " bdi { (missing) } } }
            }
        }
    }
}

fn hold_text(hold: &DeviceHoldDocument) -> Markup {
    html! {
        "GPU " (hold.gpu_index) ": " (hold.holder.holds.join(", "))
        ", as " (hold.holder.role.replace('_', " "))
        @if let Some(state) = hold.holder.state { ", " (state) }
        @if let Some(function) = &hold.holder.waits_on { " in " (function) }
    }
}

fn guard_text(guard: &ProcessGuardStatusDocument) -> Markup {
    html! {
        @if let Some(why) = &guard.protected { p.panel { "No rule applies to it: " bdi { (why) } } }
        @if !guard.open.is_empty() || !guard.would_have_ended.is_empty() {
            (violation_rows(guard.open.iter().chain(&guard.would_have_ended)))
        }
        @if !guard.limits.is_empty() {
            div.panel.stack {
                h3 { "Limits of its owner" }
                dl.facts { @for limit in &guard.limits {
                    dt { bdi { (limit.rule) } }
                    dd { @match limit.limit {
                        Some(most) => { (super::guard::amount(limit.kind, most)) },
                        None => { "unknown whether it applies" },
                    } }
                } }
            }
        }
    }
}

fn events(context: &mut CallContext, page: &Parameters) -> Result<Document, Problem> {
    let (pid, start) = process_of(page.text("process").unwrap_or_default())?;
    let pid = pid.to_string();
    let asked = [("pid", pid.as_str()), ("hours", "168"), ("limit", "200")];
    let asked = Parameters::of(history::TIMELINE_PARAMETERS, &asked)?;
    let document = history::timeline(context, &asked)?;
    let of_process = |entry: &&TimelineDocument| {
        start.is_none() || entry.start_ticks.is_none() || entry.start_ticks == start
    };
    let entries: Vec<&TimelineDocument> = document.entries.iter().filter(of_process).collect();
    let html = html! {
        @if entries.is_empty() { p.panel.empty { "Nothing is recorded of it." } }
        @else {
            div.panel.scroll { table { tbody { @for entry in entries.iter().rev() {
                tr { td { (moment(&entry.timestamp)) } td { (entry.event) } td.what { bdi { (event_text(entry)) } } }
            } } } }
        }
    };
    Ok(Document::html(html.into_string()))
}

/// What happened, in words.
fn event_text(entry: &TimelineDocument) -> String {
    let gpus: Vec<String> = entry.gpu_indices.iter().map(u32::to_string).collect();
    let gpus = match gpus.is_empty() {
        true => String::new(),
        false => format!("GPU {}", gpus.join(", ")),
    };
    let record = |name: &str| {
        let record = entry.record.as_ref()?;
        record.get(name)?.as_str().map(str::to_owned)
    };
    let length = || {
        let until = local(entry.until.as_deref()?)?;
        let length = (until - local(&entry.timestamp)?).to_std().ok()?;
        Some(gpukill_proto::text::format_duration(length))
    };
    let parts = match entry.event {
        "started" => [Some(gpus), entry.command.clone(), None],
        "ended" => [Some(gpus), entry.end.map(str::to_owned), None],
        "stretch" => {
            let busy = entry.utilization_pct.map(|percent| format!("{percent} %"));
            let state = entry.state.unwrap_or_default();
            [Some(format!("{state} {gpus}")), length(), busy]
        }
        "gap" => [Some("no samples".to_owned()), length(), None],
        "guard" => [record("step"), record("rule"), record("why")],
        "action" => [record("kind"), record("what"), record("result")],
        _ => [Some(gpus), record("proc_name"), None],
    };
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

fn person_content(view: &PageView<'_>) -> Result<Content, Problem> {
    let name = view.parameter("user");
    let owned = view.list.procs.iter();
    let owned =
        owned.filter(|it| it.owner.as_deref() == Some(name) || it.user.as_deref() == Some(name));
    let main = html! {
        div.head { h1 { bdi { (name) } } (range_tabs(view)) }
        (table(view, owned.collect(), "Processes now"))
        section.stack { h2 { "Rules that are broken" } (view.section(PERSON_VIOLATIONS.name)) }
        section.stack { h2 .hidden { "Charts" } (view.section(PERSON_CHARTS.name)) }
        section.stack { h2 { "Sums" } (view.section(PERSON_SUMMARY.name)) }
        section.stack { h2 { "Runs" } (view.section(PERSON_RUNS.name)) }
    };
    Content::new(name, main)
}

fn person_violations(context: &mut CallContext, page: &Parameters) -> Result<Document, Problem> {
    let user = page.text("user").unwrap_or_default();
    let asked = Parameters::of(
        history::VIOLATION_PARAMETERS,
        &[("user", user), ("limit", "20")],
    )?;
    let document = history::violations(context, &asked)?;
    let html = html! {
        @if document.open.is_empty() { p.panel.empty { "None." } }
        @else { (violation_rows(document.open.iter())) }
    };
    Ok(Document::html(html.into_string()))
}

fn job_content(view: &PageView<'_>) -> Result<Content, Problem> {
    let name = view.parameter("job");
    let members = view.list.procs.iter();
    let members: Vec<&ProcessDocument> = members
        .filter(|it| it.job.as_deref() == Some(name) || it.job_id.as_deref() == Some(name))
        .collect();
    let first = members.first().map(|it| it.pid);
    let main = html! {
        div.head {
            h1 { "Job " bdi { (name) } }
            @if let Some(pid) = first { (end_button(&[pid], "job")) }
            (range_tabs(view))
        }
        (table(view, members, "Processes now"))
        section.stack { h2 .hidden { "Charts" } (view.section(JOB_CHARTS.name)) }
        section.stack { h2 { "Runs" } (view.section(JOB_RUNS.name)) }
    };
    Content::new(format!("Job {name}"), main)
}
