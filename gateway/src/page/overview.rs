//! The overview: sums, what needs a look, the GPUs, the last actions, and who uses what.

use super::format::{counted, gib, model, moment, segment, size, thousands};
use super::gpus::{MAP_FROM, TRACES, rows};
use super::past::RECENT;
use super::processes::{path, table};
use super::{Content, Page, PageView};
use crate::problem::Problem;
use gpukill_proto::json::{GpuDocument, ListDocument, ProcessDocument, ViolationMarkDocument};
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const PAGE: Page = Page::new("overview", "Overview", content, &[TRACES, RECENT]);

/// A GPU works from this utilization on, as in the history.
const BUSY_FROM: u32 = 5;

/// The most things that need a look; the rest is counted.
const MAX_NOTICES: usize = 12;

/// The GPUs that a map shows as rows too.
const MAX_LISTED: usize = 20;

fn content(view: &PageView<'_>) -> Result<Content, Problem> {
    let list = view.list;
    let title = counted(list.gpus.len(), "GPU", "GPUs");
    let main = html! {
        div.head { h1 { (title) } small { (hardware(list)) } }
        (tiles(view))
        (notices(list))
        div.split {
            @if list.gpus.is_empty() {
                (no_gpus(list))
            } @else if list.gpus.len() < MAP_FROM {
                section.stack {
                    h2 { "GPUs" }
                    (rows(view, &list.gpus.iter().collect::<Vec<_>>()))
                }
            } @else {
                (map(view))
            }
            aside.stack { h2 { "Last actions" } (view.section(RECENT.name)) }
        }
        (table(view, list.procs.iter().collect(), "Processes"))
    };
    Content::new(title, main)
}

/// The models and the driver: `H100 80GB HBM3, driver 580.65.06, CUDA 13.0`
fn hardware(list: &ListDocument) -> String {
    let names = list.gpus.iter().filter_map(|gpu| gpu.name.as_deref());
    let names: BTreeSet<&str> = names.map(model).collect();
    let ready = list.backends.iter().filter(|it| it.gpus.unwrap_or(0) > 0);
    let versions = ready.flat_map(|backend| {
        let driver = backend.driver.as_ref();
        let cuda = backend.cuda.as_ref();
        let driver = driver.map(|version| format!("{} driver {version}", backend.name));
        let cuda = cuda.map(|version| format!("CUDA {version}"));
        driver.into_iter().chain(cuda)
    });
    let names = names.into_iter().map(str::to_owned);
    names.chain(versions).collect::<Vec<_>>().join(", ")
}

fn tiles(view: &PageView<'_>) -> Markup {
    let gpus = &view.list.gpus;
    let busy = gpus.iter().filter(|gpu| gpu.util_pct >= Some(BUSY_FROM));
    let sum = |part: fn(&GpuDocument) -> Option<u64>| gpus.iter().filter_map(part).sum::<u64>();
    let (used, total) = (sum(|it| it.mem_used_bytes), sum(|it| it.mem_total_bytes));
    let power: Vec<f64> = gpus.iter().filter_map(|gpu| gpu.power_w).collect();
    let hottest = gpus
        .iter()
        .filter_map(|gpu| Some((gpu.temp_c?, gpu.gpu_index)));
    let hottest = hottest.max_by_key(|(celsius, _)| *celsius);
    let guard = &view.list.guard;
    html! {
        dl.tiles {
            div { dt { "Busy" } dd { (busy.count()) small { " of " (gpus.len()) " GPUs" } } }
            div { dt { "Memory" } dd { (gib(used)) small { " of " (gib(total)) " GiB" } } }
            div { dt { "Power" } dd {
                @if power.is_empty() { "–" } @else { (thousands(power.iter().sum::<f64>() as u64)) small { " W" } }
            } }
            div { dt { "Hottest" } dd {
                @if let Some((celsius, index)) = hottest { (celsius) small { " °C, GPU " (index) } } @else { "–" }
            } }
            div { dt { "People" } dd { (view.people.count()) small { " with processes" } } }
            div { dt { "Guard" } dd { (guard.mode) small {
                @if guard.stopped { " stopped" }
                @else if !guard.has_rules { " without rules" }
                @else { " " (counted(guard.open as usize, "violation", "violations")) }
            } } }
        }
    }
}

/// One thing that needs a look.
struct Notice {
    is_bad: bool,
    link: String,
    text: Markup,
}

/// What needs a look, the worst first.
fn notices(list: &ListDocument) -> Markup {
    let mut all: Vec<Notice> = Vec::new();
    all.extend(list.gpus.iter().filter_map(lost));
    all.extend(suspects(list));
    let of_lost = |part: &str| {
        let mut lost = list.gpus.iter().filter(|gpu| gpu.state != "ok");
        lost.any(|gpu| part == format!("GPU {}", gpu.gpu_index))
    };
    let faults = list.faults.iter().filter(|fault| !of_lost(&fault.part));
    all.extend(faults.chain(&list.alerts).map(|fault| Notice {
        is_bad: false,
        link: "/status".to_owned(),
        text: html! { b { (fault.part) } ": " bdi { (fault.what) } ", since " (moment(&fault.since)) },
    }));
    all.extend(violations(list));
    all.extend(list.gpus.iter().filter_map(unattributed));
    let more = all.len().saturating_sub(MAX_NOTICES);
    html! {
        @if !all.is_empty() {
            section.stack aria-label="Needs a look" {
                h2 { "Needs a look" }
                ul.look {
                    @for notice in all.iter().take(MAX_NOTICES) {
                        li.bad[notice.is_bad] { a href=(notice.link) { (notice.text) } }
                    }
                    @if more > 0 { li { (more) " more" } }
                }
            }
        }
    }
}

fn lost(gpu: &GpuDocument) -> Option<Notice> {
    let words = match gpu.state {
        "ok" => return None,
        "lost" => "is lost and needs a reset or a reboot",
        "gone" => "is gone",
        "not_permitted" => "cannot be read",
        _ => "does not answer",
    };
    Some(Notice {
        is_bad: true,
        link: format!("/gpu/{}", segment(&gpu.id)),
        text: html! {
            b { "GPU " (gpu.gpu_index) } " " (words)
            @if let Some(since) = &gpu.lost_since { ", since " (moment(since)) }
        },
    })
}

fn unattributed(gpu: &GpuDocument) -> Option<Notice> {
    let bytes = gpu.mem_unattributed_bytes.filter(|bytes| *bytes > 0)?;
    Some(Notice {
        is_bad: false,
        link: format!("/gpu/{}#holders", segment(&gpu.id)),
        text: html! { b { "GPU " (gpu.gpu_index) } " has " (size(bytes)) " that no process explains" },
    })
}

/// The suspicious processes, each once.
fn suspects(list: &ListDocument) -> Vec<Notice> {
    let mut known = BTreeSet::new();
    let found = list.procs.iter().filter_map(|process| {
        let rogue = process.rogue.as_ref().filter(|it| it.risk != "low")?;
        known
            .insert(process.pid)
            .then_some((process, rogue.risk, rogue.threat))
    });
    let notice = |(process, risk, threat): (&ProcessDocument, &str, &str)| Notice {
        is_bad: risk == "critical" || risk == "high",
        link: path(process.pid, process.start_ticks),
        text: html! {
            b { (risk) " risk" } ": " (threat.replace('_', " ")) ", process " (process.pid)
            " of " bdi { (process.owner.as_deref().unwrap_or("an unknown owner")) }
            " on GPU " (process.gpu_index)
        },
    };
    found.map(notice).collect()
}

/// The rules that people break, each once for each person.
fn violations(list: &ListDocument) -> Vec<Notice> {
    type Broken<'a> = (BTreeSet<u32>, &'a ViolationMarkDocument);
    let mut all: BTreeMap<(&str, &str), Broken<'_>> = BTreeMap::new();
    for process in &list.procs {
        for mark in &process.rules {
            let owner = process.owner.as_deref().unwrap_or("somebody");
            let entry = all.entry((owner, mark.rule.as_str()));
            let (gpus, _) = entry.or_insert_with(|| (BTreeSet::new(), mark));
            gpus.insert(process.gpu_index);
        }
    }
    let notices = all.into_iter().map(|((owner, rule), (gpus, mark))| {
        let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
        Notice {
            is_bad: false,
            link: "/guard".to_owned(),
            text: html! {
                bdi { b { (owner) } } " breaks " b { bdi { (rule) } } " on GPU " (gpus.join(", "))
                @if let Some(at) = &mark.would_have_ended_at {
                    ": would have ended " (moment(at))
                } @else if let Some(deadline) = &mark.deadline {
                    @if mark.mode == "dry-run" { ": would end " } @else { ": ends " }
                    (moment(deadline)) " unless used"
                }
            },
        }
    });
    notices.collect()
}

/// Why there are no GPUs.
fn no_gpus(list: &ListDocument) -> Markup {
    html! {
        section.panel.stack {
            h2 { "No GPU was found" }
            dl.facts {
                @for backend in &list.backends {
                    dt { (backend.name) }
                    dd { (backend.state) @if let Some(why) = &backend.why { ": " (why) } }
                }
            }
        }
    }
}

/// The map of many GPUs, and those that need a look or work most as rows.
fn map(view: &PageView<'_>) -> Markup {
    let mut listed: Vec<&GpuDocument> = view.list.gpus.iter().collect();
    listed.sort_by_key(|gpu| {
        let unattributed = gpu.mem_unattributed_bytes.unwrap_or_default();
        let is_well = gpu.state == "ok";
        (is_well, std::cmp::Reverse((unattributed, gpu.util_pct)))
    });
    listed.truncate(MAX_LISTED);
    html! {
        section.stack {
            div.head {
                h2 { "GPUs" }
                form #heat-form {
                    label { "Colour " select name="by" {
                        option value="utilization" { "utilization" }
                        option value="memory" { "memory" }
                        option value="temperature" { "temperature" }
                    } }
                    label { "Groups " select name="group" {
                        option value="" { "none" }
                        option value="person" { "person" }
                        option value="model" { "model" }
                        option value="vendor" { "vendor" }
                        option value="state" { "state" }
                    } }
                    input type="search" name="search" placeholder="Search" aria-label="Search GPUs";
                }
            }
            div.panel.stack {
                canvas #heat .heat data-own="" tabindex="0" role="application"
                    aria-label="Map of all GPUs. Arrow keys move, Enter opens a GPU." {}
                div.head {
                    p #heat-readout .readout data-own="" aria-live="polite" {}
                    span.scale { "low " canvas #heat-scale data-own="" width="120" height="10" {} " high" }
                }
            }
            h3 { "Failing and busiest" }
            (rows(view, &listed))
        }
    }
}
