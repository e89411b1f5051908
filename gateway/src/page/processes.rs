//! The table of processes: sorted, searched, and at most a page of it.

use super::PageView;
use super::format::{between, counted, gib, moment, segment, value};
use super::people::nobody;
use gpukill_proto::json::ProcessDocument;
use gpukill_proto::text::strip_directory;
use maud::{Markup, html};
use std::cmp::Reverse;

/// The orders of a table; the first is the default.
pub(super) const ORDERS: &[&str] = &["gpu", "memory", "sm", "person", "time"];

/// The most rows of a page.
const MAX_ROWS: usize = 200;

/// The address of the page of a process.
pub(super) fn path(pid: u32, start_ticks: Option<u64>) -> String {
    match start_ticks {
        Some(start) => format!("/process/{pid}-{start}"),
        None => format!("/process/{pid}"),
    }
}

/// The command line without the folder of its program, or the name.
pub(super) fn label(process: &ProcessDocument) -> &str {
    let command = process.command.as_deref().map(strip_directory);
    let command = command.filter(|it| !it.trim().is_empty());
    command
        .or(process.proc_name.as_deref())
        .unwrap_or("(no process)")
}

/// Where a process runs: job of a scheduler, container, unit or session; else its job.
pub(super) fn place(process: &ProcessDocument) -> String {
    let session = process.session.as_ref().map(|it| format!("session {it}"));
    let container = process.container_name.clone();
    let named = [
        process.scheduler.and(process.job.clone()),
        process.pod.clone(),
        container.or(process.container.clone()),
        process.unit.clone().filter(|_| process.session.is_none()),
        session,
        process.job.clone(),
    ];
    named.into_iter().flatten().next().unwrap_or_default()
}

/// The table, with its heading. With a search it has a field for it.
pub(super) fn table(view: &PageView<'_>, mut all: Vec<&ProcessDocument>, title: &str) -> Markup {
    let query = view.parameter("q").to_lowercase();
    let total = all.len();
    if !query.is_empty() {
        all.retain(|process| matches(process, &query));
    }
    sort(&mut all, view.parameter("sort"));
    let from = view.parameter("from").parse::<usize>();
    let from = from.unwrap_or(0).min(all.len());
    let shown = all.iter().skip(from).take(MAX_ROWS);
    let has_search = !query.is_empty() || total > 8;
    html! {
        section.stack {
            div.head {
                h2 { (title) }
                small { (counted(all.len(), "process", "processes")) }
                @if has_search {
                    form action="" role="search" {
                        @for name in ["range", "sort"] {
                            @if !view.parameter(name).is_empty() { input type="hidden" name=(name) value=(view.parameter(name)); }
                        }
                        input type="search" name="q" value=(query) placeholder="Search" aria-label="Search processes";
                    }
                }
            }
            @if all.is_empty() {
                p.panel.empty { @if query.is_empty() { "No process uses a GPU." } @else { "No process matches." } }
            } @else {
                div.panel.scroll {
                    table.procs {
                        thead { tr {
                            (heading(view, "GPU", "gpu", "num"))
                            th scope="col" { "Process" }
                            th.num.least scope="col" { "PID" }
                            (heading(view, "Person", "person", ""))
                            (heading(view, "Memory", "memory", "num"))
                            (heading(view, "SM", "sm", "num"))
                            (heading(view, "On GPU", "time", "num lesser"))
                            th.lesser scope="col" { "Where" }
                            th scope="col" { span.hidden { "Marks" } }
                        } }
                        tbody { @for process in shown { (row(view, process)) } }
                    }
                }
                (pages(view, from, all.len()))
            }
        }
    }
}

fn heading(view: &PageView<'_>, title: &str, name: &str, class: &str) -> Markup {
    let order = view.parameter("sort");
    let is_current = name == order || order.is_empty() && name == "gpu";
    let direction = match name {
        "gpu" | "person" => "ascending",
        _ => "descending",
    };
    html! {
        th scope="col" class=(class) aria-sort=[is_current.then_some(direction)] {
            a href=(view.link(&[("sort", name)])) { (title) }
        }
    }
}

/// Links to the other rows of a long table.
fn pages(view: &PageView<'_>, from: usize, total: usize) -> Markup {
    let (before, after) = (from.saturating_sub(MAX_ROWS), from + MAX_ROWS);
    let link = |row: usize| view.link(&[("from", &row.to_string())]);
    html! {
        @if total > MAX_ROWS {
            nav.head aria-label="Rows" {
                small { (from + 1) " to " (after.min(total)) " of " (total) }
                @if from > 0 { a.link href=(link(before)) { "Earlier rows" } }
                @if after < total { a.link href=(link(after)) { "More rows" } }
            }
        }
    }
}

fn matches(process: &ProcessDocument, query: &str) -> bool {
    let place = place(process);
    let pid = process.pid.to_string();
    let texts = [label(process), place.as_str(), pid.as_str()];
    let owner = process.owner.as_deref();
    let mut texts = texts.into_iter().chain(owner);
    texts.any(|text| text.to_lowercase().contains(query))
}

/// Sorts. Equal rows keep the order of the list, so that nothing jumps.
fn sort(all: &mut [&ProcessDocument], order: &str) {
    match order {
        "memory" => all.sort_by_key(|it| Reverse(it.used_mem_bytes)),
        "sm" => all.sort_by_key(|it| Reverse(it.util_pct)),
        "person" => all.sort_by(|one, other| one.owner.cmp(&other.owner)),
        "time" => all.sort_by(|one, other| one.first_seen.cmp(&other.first_seen)),
        _ => {}
    }
}

fn row(view: &PageView<'_>, process: &ProcessDocument) -> Markup {
    let reasons = &process.reasons;
    let start = process.start_ticks;
    let key = format!("{}/{}/{}", process.gpu_id, process.pid, start.unwrap_or(0));
    let instance = process.gpu_instance.zip(process.compute_instance);
    let on_gpu = process.first_seen.as_deref();
    let on_gpu = on_gpu.map(|seen| between(seen, &view.list.ts));
    html! {
        tr data-key=(key) {
            td.num data-l="GPU" {
                a href={ "/gpu/" (segment(&process.gpu_id)) } { (process.gpu_index) }
                @if let Some((gpu, compute)) = instance { small { " " (gpu) "/" (compute) } }
            }
            td.what { a.cut href=(path(process.pid, start)) { bdi { (label(process)) } } }
            td.num.soft.least data-l="PID" { (process.pid) }
            td { @match process.owner.as_deref() {
                Some(owner) => { (view.people.chip(owner)) },
                None => { (nobody("unknown")) },
            } }
            td.num { (value(process.used_mem_bytes, (reasons, "used_mem_bytes"), |used| html! { (gib(used)) " GiB" })) }
            td.num data-l="SM" { (value(process.util_pct, (reasons, "util_pct"), |percent| html! { (percent) " %" })) }
            td.num.lesser { (value(on_gpu, (reasons, "first_seen"), |length| html! { (length) })) }
            td.lesser.where { span.cut { @if let Some(job) = &process.job {
                a href={ "/job/" (segment(job)) } { bdi { (place(process)) } }
            } @else { bdi { (place(process)) } } } }
            td { (marks(process)) }
        }
    }
}

/// What is to be known of a process before its readings.
pub(super) fn marks(process: &ProcessDocument) -> Markup {
    let rule = process.rules.first();
    html! {
        @if process.ended_at.is_some() { span.chip { "has ended" } " " }
        @if let Some(rule) = rule {
            span.chip.warn title=(rule.rule) {
                (rule.kind)
                @if let Some(at) = &rule.would_have_ended_at {
                    ", would have ended " (moment(at))
                } @else if let Some(deadline) = &rule.deadline {
                    @if !rule.sole { ", 1 of several" }
                    @if rule.mode == "dry-run" { ", would end " } @else { ", ends " }
                    (moment(deadline))
                }
            }
            " "
        }
        @if let Some(rogue) = &process.rogue {
            @if rogue.risk != "low" {
                a.chip.bad href="/rogue" { (rogue.risk) ": " (rogue.threat.replace('_', " ")) }
            }
        }
        @if let Some(role @ ("service" | "notebook")) = process.network_role {
            " "
            span.chip {
                (role)
                @for port in process.ports.iter().take(2) { " :" (port) }
            }
        }
    }
}
