//! A GPU as a row: its memory by person, its utilization with the last hour, temperature and power.

use super::format::{gib, model, moment, number, segment, size, value};
use super::people::{NOBODY, People, nobody};
use super::{PageView, Section};
use crate::calls::CallContext;
use crate::document::Document;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::routes::history;
use gpukill_proto::json::{GpuDocument, ListDocument, SeriesBucketDocument};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// From this number of GPUs on they are a map instead of rows.
pub(super) const MAP_FROM: usize = 32;

/// The people of a row that are named.
const NAMED_PEOPLE: usize = 2;

/// The lines of the last hour as paths, by the id of the GPU: the line, and the area below it.
pub(super) const TRACES: Section = Section::new("traces", &[], 30, traces);

pub(super) type Traces = BTreeMap<String, [String; 2]>;

fn traces(context: &mut CallContext, _: &Parameters) -> Result<Document, Problem> {
    let view = context.view();
    let gpus = view.frame.as_ref().map(|it| it.list.gpus.len());
    drop(view);
    let mut traces = Traces::new();
    // A map has no lines.
    if gpus.is_some_and(|gpus| gpus < MAP_FROM) {
        let asked = [("by", "gpu"), ("hours", "1"), ("buckets", "60")];
        let asked = Parameters::of(history::SERIES_PARAMETERS, &asked)?;
        for line in history::series(context, &asked)?.series {
            if let Some(id) = line.gpu_id {
                traces.insert(id, trace(&line.buckets));
            }
        }
    }
    Document::json(&traces)
}

/// The means as a path in a box of 60 by 100. A gap interrupts it.
fn trace(buckets: &[SeriesBucketDocument]) -> [String; 2] {
    let width = 60.0 / (buckets.len().max(2) - 1) as f64;
    let (mut line, mut area) = (String::new(), String::new());
    let mut began: Option<f64> = None;
    let mut last = 0.0;
    for (at, bucket) in buckets.iter().enumerate() {
        let x = at as f64 * width;
        let Some(percent) = bucket.utilization_pct else {
            if let Some(start) = began.take() {
                area.push_str(&format!("L{last:.1} 100L{start:.1} 100Z"));
            }
            continue;
        };
        let y = 100 - percent.min(100);
        let command = if began.is_none() { 'M' } else { 'L' };
        began = began.or(Some(x));
        last = x;
        let point = format!("{command}{x:.1} {y}");
        line.push_str(&point);
        area.push_str(&point);
    }
    if let Some(start) = began {
        area.push_str(&format!("L{last:.1} 100L{start:.1} 100Z"));
    }
    [line, area]
}

/// The memory that people hold, by the id of the GPU; the empty name is that of unknown owners.
pub(super) struct Holdings<'a>(BTreeMap<&'a str, BTreeMap<&'a str, u64>>);

impl<'a> Holdings<'a> {
    pub(super) fn new(list: &'a ListDocument) -> Self {
        let mut all: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for process in &list.procs {
            let owner = process.owner.as_deref().unwrap_or_default();
            let of_gpu = all.entry(&process.gpu_id).or_default();
            let held = of_gpu.entry(owner).or_default();
            *held = held.saturating_add(process.used_mem_bytes.unwrap_or_default());
        }
        Self(all)
    }

    /// The people of a GPU and what they hold, the most first.
    fn of(&self, gpu: &str) -> Vec<(&'a str, u64)> {
        let mut people: Vec<(&str, u64)> = self
            .0
            .get(gpu)
            .into_iter()
            .flatten()
            .map(|(name, bytes)| (*name, *bytes))
            .collect();
        people.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        people
    }
}

/// A part of a bar: what it is, the number of its colour, and its bytes.
struct Part<'a> {
    name: &'a str,
    colour: usize,
    bytes: u64,
}

/// The small rest that neither processes nor a cause explain, which is in no list.
const REST: &str = "rest";

/// Used memory by person; then what no process explains, and the rest.
fn parts<'a>(gpu: &GpuDocument, held: &[(&'a str, u64)], people: &People) -> Vec<Part<'a>> {
    let part = |name: &'a str, bytes| Part {
        name: if name.is_empty() { "unknown" } else { name },
        colour: people.colour(name),
        bytes,
    };
    let mut parts: Vec<Part<'a>> = held
        .iter()
        .map(|(name, bytes)| part(name, *bytes))
        .collect();
    let known: u64 = parts.iter().map(|part| part.bytes).sum();
    let rest = gpu.mem_used_bytes.unwrap_or_default().saturating_sub(known);
    let unattributed = gpu.mem_unattributed_bytes.unwrap_or_default().min(rest);
    for (name, bytes) in [("unattributed", unattributed), (REST, rest - unattributed)] {
        if bytes > 0 {
            let colour = NOBODY;
            parts.push(Part {
                name,
                colour,
                bytes,
            });
        }
    }
    parts
}

/// The memory of a GPU as a bar, with the same in words.
fn bar(parts: &[Part<'_>], total: u64) -> Markup {
    let sum: u64 = parts.iter().map(|part| part.bytes).sum();
    let whole = total.max(sum).max(1) as f64;
    let words: Vec<String> = parts
        .iter()
        .map(|part| format!("{} {}", part.name, size(part.bytes)))
        .collect();
    let label = match words.is_empty() {
        true => "memory: free".to_owned(),
        false => format!("memory: {}", words.join(", ")),
    };
    let mut end = 0.0;
    let placed = parts.iter().map(|part| {
        let (x, width) = (end, 100.0 * part.bytes as f64 / whole);
        end += width;
        (part.colour, x, width)
    });
    let placed: Vec<(usize, f64, f64)> = placed.collect();
    html! {
        svg.bar role="img" aria-label=(label) {
            title { (label) }
            @for (colour, x, width) in placed {
                @let end = format!("{:.2}%", x + width);
                @let (x, width) = (format!("{x:.2}%"), format!("{width:.2}%"));
                rect x=(x) width=(width) height="100%" class={ "fill p" (colour) } {}
                @if let Some(pattern) = pattern(colour) {
                    rect x=(x) width=(width) height="100%" class=(pattern) {}
                }
                // Neighbours stay apart in print and for all eyes.
                rect.gap x=(end) width="2" height="100%" {}
            }
        }
    }
}

/// The class of the pattern over a colour.
pub(super) const fn pattern(colour: usize) -> Option<&'static str> {
    match colour {
        4..=7 => Some("over"),
        NOBODY => Some("dots"),
        _ => None,
    }
}

/// A line of the last hour.
fn spark(trace: Option<&[String; 2]>) -> Markup {
    html! {
        svg.spark viewBox="0 0 60 100" preserveAspectRatio="none" aria-hidden="true" {
            line x1="0" x2="60" y1="100" y2="100" {}
            @if let Some([line, area]) = trace {
                path.area d=(area) {}
                path d=(line) {}
            }
        }
    }
}

/// Why a GPU has no current readings; `None` if it has.
fn trouble(gpu: &GpuDocument) -> Option<Markup> {
    let words = match gpu.state {
        "ok" => return None,
        "lost" => "is lost",
        "gone" => "is gone",
        "not_permitted" => "cannot be read: the system denies access",
        _ => "does not answer: its driver gives no readings",
    };
    let reason = gpu.lost_reason.as_deref();
    Some(html! {
        (words)
        @if let Some(since) = &gpu.lost_since { " since " (moment(since)) }
        @if let Some(reason) = reason { " (" (reason) ")" }
        @if gpu.state == "lost" { ": it needs a reset or a reboot" }
    })
}

/// The rows of GPUs.
pub(super) fn rows(view: &PageView<'_>, gpus: &[&GpuDocument]) -> Markup {
    let traces: Traces = view.data(TRACES.name).unwrap_or_default();
    let holdings = Holdings::new(view.list);
    html! {
        ol.gpus.panel {
            @for gpu in gpus { (row(view, gpu, traces.get(&gpu.id), &holdings)) }
        }
    }
}

fn row(
    view: &PageView<'_>,
    gpu: &GpuDocument,
    trace: Option<&[String; 2]>,
    holdings: &Holdings<'_>,
) -> Markup {
    let name = gpu.name.as_deref().map_or("?", model);
    html! {
        li.gpu data-key=(gpu.id) {
            a.name href={ "/gpu/" (segment(&gpu.id)) } {
                span.no { span.hidden { "GPU " } (gpu.gpu_index) }
                bdi { (name) }
            }
            @if let Some(why) = trouble(gpu) {
                p.why.bad { (why) }
            } @else {
                (readings(view, gpu, trace, &holdings.of(&gpu.id)))
            }
        }
    }
}

fn readings(
    view: &PageView<'_>,
    gpu: &GpuDocument,
    trace: Option<&[String; 2]>,
    held: &[(&str, u64)],
) -> Markup {
    let reasons = &gpu.reasons;
    let parts = parts(gpu, held, view.people);
    let total = gpu.mem_total_bytes;
    let limit = gpu.power_limit_w.map(|watts| format!("/ {watts:.0} W"));
    html! {
        div.mem {
            (bar(&parts, total.unwrap_or_default()))
            span.num {
                (value(gpu.mem_used_bytes, (reasons, "mem_used_bytes"), |used| html! { b { (gib(used)) } }))
                " / "
                (value(total, (reasons, "mem_total_bytes"), |total| html! { (gib(total)) " GiB" }))
            }
        }
        div.util {
            (spark(trace))
            span.num { (number(gpu.util_pct, "%", (reasons, "util_pct"))) }
        }
        span.num.temp { (number(gpu.temp_c, "°C", (reasons, "temp_c"))) }
        span.num.power {
            (value(gpu.power_w, (reasons, "power_w"), |watts| html! { (format!("{watts:.0}")) " " }))
            small { (limit.as_deref().unwrap_or("W")) }
        }
        (people_of(view, &parts))
        (notes(gpu))
    }
}

/// The people of a GPU, the first by name.
fn people_of(view: &PageView<'_>, parts: &[Part<'_>]) -> Markup {
    let listed: Vec<&Part<'_>> = parts.iter().filter(|part| part.name != REST).collect();
    let more = listed.len().saturating_sub(NAMED_PEOPLE);
    let rest = listed.iter().skip(NAMED_PEOPLE).map(|part| part.name);
    let rest = rest.collect::<Vec<_>>().join(", ");
    html! {
        div.legend.people {
            @for part in listed.iter().take(NAMED_PEOPLE) {
                @if part.colour == NOBODY { (nobody(part.name)) } @else { (view.people.chip(part.name)) }
            }
            @if more > 0 { span.who title=(rest) { "+" (more) } }
        }
    }
}

/// What a row says below its readings: the instances of a divided GPU, and shared memory.
fn notes(gpu: &GpuDocument) -> Markup {
    let has_notes = !gpu.instances.is_empty() || gpu.mem_unified || gpu.suspended == Some(true);
    html! {
        @if has_notes {
            div.mig {
                @if gpu.mem_unified { span { "memory is shared with the host" } }
                @if gpu.suspended == Some(true) { span { "asleep: it is not woken for readings" } }
                @for it in &gpu.instances {
                    span data-key=(it.uuid) {
                        "instance " (it.gpu_instance) "/" (it.compute_instance) " "
                        (value(it.profile.as_deref(), (&it.reasons, "profile"), |profile| html! { (profile) }))
                        ": "
                        (value(it.mem_used_bytes, (&it.reasons, "mem_used_bytes"), |used| html! { (gib(used)) }))
                        " / "
                        (value(it.mem_total_bytes, (&it.reasons, "mem_total_bytes"), |total| html! { (gib(total)) " GiB" }))
                    }
                }
            }
        }
    }
}
