//! The past: charts of GPUs and people, sums, runs and recorded actions.

use super::chart::{Buckets, Chart, Line, Mark};
use super::format::{columns, counted, hours, local, moment, percent, seconds, segment, size};
use super::layout::{range_hours, range_tabs};
use super::people::{NOBODY, People};
use super::{Content, Page, PageView, RANGE, Section};
use crate::calls::CallContext;
use crate::document::Document;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::routes::{GPU, USER, history};
use gpukill_proto::json::{
    ActionDocument, RunDocument, SeriesBucketDocument, SeriesDocument, SeriesLineDocument,
    SummaryDocument,
};
use maud::{Markup, html};
use serde_json::Value;

pub(super) const HISTORY: Page = Page::new(
    "history",
    "History",
    history_content,
    &[CHARTS, SUMMARY, RUNS],
);

pub(super) const ACTIONS: Page = Page::new("actions", "Actions", actions_content, &[RECORDED]);

const CHARTS: Section = Section::new("history charts", &["range"], 30, |context, parameters| {
    charts(context, parameters, &[])
});

const SUMMARY: Section = Section::new("history summary", &["range"], 30, |context, parameters| {
    summary(context, parameters, &[])
});

const RUNS: Section = Section::new("history runs", &["range"], 30, |context, parameters| {
    runs(context, parameters, &[])
});

/// The last actions, on the overview.
pub(super) const RECENT: Section = Section::new("recent actions", &[], 5, recent);

const RECORDED: Section = Section::new("actions", &["range", "kind", "gpu", "user"], 5, recorded);

/// The most people with a layer of their own in a chart; the rest is one layer.
const MAX_LAYERS: usize = 8;

/// The buckets of a chart: as many as a wide screen shows apart.
const MAX_BUCKETS: usize = 240;

/// The most buckets of all lines of an answer, as the daemon counts them.
const MAX_CELLS: usize = 16_384;

fn history_content(view: &PageView<'_>) -> Result<Content, Problem> {
    let main = html! {
        div.head { h1 { "History" } (range_tabs(view)) }
        section.stack { h2 .hidden { "Charts" } (view.section(CHARTS.name)) }
        section.stack { h2 { "Sums" } (view.section(SUMMARY.name)) }
        section.stack { h2 { "Runs" } (view.section(RUNS.name)) }
    };
    Content::new("History", main)
}

fn actions_content(view: &PageView<'_>) -> Result<Content, Problem> {
    let field = |name: &str, label: &str| {
        html! {
            label { (label) " " input name=(name) value=(view.parameter(name)) size="10"; }
        }
    };
    let main = html! {
        div.head { h1 { "Actions" } (range_tabs(view)) }
        form action="" {
            input type="hidden" name="range" value=(or(view.parameter(RANGE.name), "24h"));
            label { "Kind " select name="kind" {
                @let current = view.parameter("kind");
                @for (kind, label) in [("kill,reset,rules_edit,rules,xid,device,fault,alert", "all"), ("kill", "ends"), ("reset", "resets"), ("rules_edit,rules", "rules"), ("xid,device,fault,alert", "faults")] {
                    option value=(kind) selected[kind == current] { (label) }
                }
            } }
            (field("user", "By"))
            (field("gpu", "GPU"))
            button { "Filter" }
        }
        (view.section(RECORDED.name))
    };
    Content::new("Actions", main)
}

/// A text, or another one in place of an empty one.
fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

/// The parameters of an API route: the period of the page, `set`, and these parameters of the page.
fn ask(
    page: &Parameters,
    known: &'static [crate::parameters::Parameter],
    names: &[&str],
    set: &[(&str, &str)],
) -> Result<Parameters, Problem> {
    let hours = range_hours(page.text(RANGE.name).unwrap_or_default()).to_string();
    let mut all = vec![("hours", hours.as_str())];
    all.extend(set);
    for name in names {
        all.extend(page.text(name).map(|value| (*name, value)));
    }
    Parameters::of(known, &all)
}

/// The charts of GPUs: utilization, memory by person, power and temperature.
pub(super) fn charts(
    context: &mut CallContext,
    page: &Parameters,
    names: &[&str],
) -> Result<Document, Problem> {
    let view = context.view();
    let list = view.frame.as_ref().map(|frame| &frame.list);
    let gpus = list.map_or(1, |list| list.gpus.len());
    let people = list.map(People::new);
    drop(view);
    let gpus = if names.is_empty() { gpus.max(1) } else { 1 };
    // A gap of a box with many GPUs is no reason to leave GPUs out.
    let buckets = (MAX_CELLS / gpus).clamp(12, MAX_BUCKETS).to_string();
    let by_gpu = [("by", "gpu"), ("buckets", buckets.as_str())];
    let asked = ask(page, history::SERIES_PARAMETERS, names, &by_gpu)?;
    let devices = history::series(context, &asked)?;
    let most = MAX_BUCKETS.to_string();
    let by_user = [("by", "user"), ("buckets", most.as_str())];
    let asked = ask(page, history::SERIES_PARAMETERS, names, &by_user)?;
    let owners = history::series(context, &asked)?;
    let marks = marks(context, page, names)?;
    let people = people.as_ref();
    let of_devices = buckets_of(&devices);
    let of_owners = buckets_of(&owners);
    let layers = layers(&owners, people);
    let chart = |title, unit, top, buckets, lines| Chart {
        title,
        unit,
        top,
        buckets,
        lines,
        is_stack: false,
        marks: &marks,
        legend: html! {},
    };
    let utilization = combine(&devices, mean, |it| {
        let percent = |value: u64| value as f64;
        Some([
            percent(it.utilization_pct_min?),
            percent(it.utilization_pct?),
            percent(it.utilization_pct_max?),
        ])
    });
    let power = combine(&devices, sum, |it| {
        Some([it.power_w_min?, it.power_w?, it.power_w_max?])
    });
    let temperature = combine(&devices, highest, |it| {
        let celsius = f64::from(it.temperature_c_max?);
        Some([celsius; 3])
    });
    let temperature = Line {
        range: None,
        ..temperature
    };
    let memory = Chart {
        is_stack: true,
        legend: html! { div.legend { @for line in &layers { (layer_chip(line, people)) } } },
        ..chart("Memory by person", "GiB", None, &of_owners, layers.clone())
    };
    let html = html! {
        @if devices.more > 0 { p.soft { (counted(devices.more as usize, "GPU", "GPUs")) " are left out of these charts." } }
        div.cols {
            (chart("Utilization", "%", Some(100.0), &of_devices, vec![utilization]).figure())
            (memory.figure())
            (chart("Power", "W", None, &of_devices, vec![power]).figure())
            (chart("Highest temperature", "°C", None, &of_devices, vec![temperature]).figure())
        }
    };
    Ok(Document::html(html.into_string()))
}

/// The charts of what processes held: GPUs at work and not, and memory.
pub(super) fn held_charts(
    context: &mut CallContext,
    page: &Parameters,
    names: &[&str],
) -> Result<Document, Problem> {
    let most = MAX_BUCKETS.to_string();
    let by = [("by", "gpu"), ("buckets", most.as_str())];
    let asked = ask(page, history::SERIES_PARAMETERS, names, &by)?;
    let series = history::series(context, &asked)?;
    let buckets = buckets_of(&series);
    let step_hours = series.step_secs / 3_600.0;
    let layer = |name: &str, colour, part: fn(&SeriesBucketDocument) -> f64| {
        let whole = combine(&series, sum, |it| {
            (it.known_share > 0.0).then(|| [part(it) / step_hours; 3])
        });
        Line {
            name: Some(name.to_owned()),
            colour,
            range: None,
            ..whole
        }
    };
    let used = vec![
        layer("at work", 2, |it| it.busy_hours),
        layer("held, not at work", 1, |it| it.idle_hours),
        layer("held, unknown", NOBODY, |it| it.unknown_hours),
    ];
    let memory = combine(&series, sum, |it| {
        let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        Some([
            gib(it.memory_used_bytes_min?),
            gib(it.memory_used_bytes?),
            gib(it.memory_used_bytes_max?),
        ])
    });
    let chart = |title, unit, lines: Vec<Line>, is_stack| Chart {
        title,
        unit,
        top: None,
        buckets: &buckets,
        legend: html! {
            @if is_stack { div.legend { @for line in &lines { (layer_chip(line, None)) } } }
        },
        lines,
        is_stack,
        marks: &[],
    };
    let html = html! {
        div.cols {
            (chart("GPUs held", "GPUs", used, true).figure())
            (chart("Memory", "GiB", vec![memory], false).figure())
        }
    };
    Ok(Document::html(html.into_string()))
}

fn buckets_of(series: &SeriesDocument) -> Buckets {
    let from = local(&series.since).map_or(0, |it| it.timestamp_millis());
    let count = series.series.iter().map(|line| line.buckets.len());
    let count = count.max().unwrap_or_default();
    let is_known = |at: usize| {
        let mut buckets = series.series.iter().filter_map(|line| line.buckets.get(at));
        buckets.any(|bucket| bucket.known_share > 0.0)
    };
    Buckets {
        from,
        step: (series.step_secs * 1_000.0) as i64,
        known: (0..count).map(is_known).collect(),
    }
}

/// Combines the lines of a series bucket by bucket: the lowest, mean and highest value of each.
fn combine(
    series: &SeriesDocument,
    join: fn(&[[f64; 3]]) -> [f64; 3],
    part: impl Fn(&SeriesBucketDocument) -> Option<[f64; 3]>,
) -> Line {
    let count = series.series.iter().map(|line| line.buckets.len());
    let count = count.max().unwrap_or_default();
    let joined: Vec<Option<[f64; 3]>> = (0..count)
        .map(|at| {
            let buckets = series.series.iter().filter_map(|line| line.buckets.get(at));
            let known: Vec<[f64; 3]> = buckets.filter_map(&part).collect();
            (!known.is_empty()).then(|| join(&known))
        })
        .collect();
    let column = |at: usize| -> Vec<Option<f64>> {
        let column = joined.iter().map(|value| value.map(|value| value[at]));
        column.collect()
    };
    Line {
        name: None,
        colour: 0,
        mean: column(1),
        range: Some([column(0), column(2)]),
    }
}

/// Of several GPUs the mean of their means, between the extremes of all.
fn mean(values: &[[f64; 3]]) -> [f64; 3] {
    let lowest = values.iter().map(|it| it[0]).fold(f64::MAX, f64::min);
    let mean = values.iter().map(|it| it[1]).sum::<f64>() / values.len() as f64;
    [lowest, mean, highest(values)[2]]
}

/// The sum of all; the extremes lie within the sums of the extremes.
fn sum(values: &[[f64; 3]]) -> [f64; 3] {
    let sum = |at: usize| values.iter().map(|it| it[at]).sum();
    [sum(0), sum(1), sum(2)]
}

fn highest(values: &[[f64; 3]]) -> [f64; 3] {
    let highest = |at: usize| values.iter().map(|it| it[at]).fold(f64::MIN, f64::max);
    [highest(0), highest(1), highest(2)]
}

/// The memory of each owner as a layer; of many the first, and the rest as one.
fn layers(series: &SeriesDocument, people: Option<&People>) -> Vec<Line> {
    let mean = |line: &SeriesLineDocument| -> Vec<Option<f64>> {
        let means = line.buckets.iter().map(|it| it.memory_used_bytes);
        let gib = means.map(|it| it.map(|bytes| bytes as f64 / (1_u64 << 30) as f64));
        gib.collect()
    };
    let mut layers: Vec<Line> = Vec::new();
    for (at, line) in series.series.iter().enumerate() {
        let mean = mean(line);
        if at < MAX_LAYERS {
            let name = line.owner.clone().unwrap_or_default();
            layers.push(Line {
                colour: people.map_or(NOBODY, |people| people.colour(&name)),
                name: Some(or(&name, "unknown").to_owned()),
                mean,
                range: None,
            });
            continue;
        }
        if at == MAX_LAYERS {
            layers.push(Line {
                colour: NOBODY,
                name: Some("others".to_owned()),
                ..Line::default()
            });
        }
        if let Some(rest) = layers.last_mut() {
            rest.mean.resize(mean.len().max(rest.mean.len()), None);
            for (sum, more) in rest.mean.iter_mut().zip(mean) {
                *sum = match (*sum, more) {
                    (None, more) => more,
                    (known, None) => known,
                    (Some(one), Some(other)) => Some(one + other),
                };
            }
        }
    }
    layers
}

fn layer_chip(line: &Line, people: Option<&People>) -> Markup {
    let name = line.name.as_deref().unwrap_or_default();
    match people {
        Some(people) if line.colour != NOBODY => people.chip(name),
        Some(_) | None => {
            html! { span class={ "who p" (line.colour) } { i {} (name) } }
        }
    }
}

/// Faults, XIDs and ends for the axis of time.
fn marks(
    context: &mut CallContext,
    page: &Parameters,
    names: &[&str],
) -> Result<Vec<Mark>, Problem> {
    let set = [
        ("kind", "xid,device,fault,alert,kill,reset"),
        ("limit", "60"),
    ];
    let asked = ask(page, history::ACTION_PARAMETERS, names, &set)?;
    let actions = history::actions(context, &asked)?.actions;
    let marks = actions.iter().filter_map(|action| {
        let at = local(&action.timestamp)?;
        let text = format!("{} {}", at.format("%a %H:%M"), action_text(action));
        Some(Mark {
            at: at.timestamp_millis(),
            is_bad: !matches!(action.kind.as_str(), "kill" | "reset"),
            text,
        })
    });
    Ok(marks.collect())
}

/// A recorded action in one line: `alice: kill 48213: done, 2 of 2 ended`
fn action_text(action: &ActionDocument) -> String {
    let mut text = String::new();
    if let Some(user) = &action.user {
        text = format!("{user}: ");
    }
    text.push_str(&action.kind.replace('_', " "));
    if let Some(what) = &action.what {
        text.push_str(&format!(" {what}"));
    }
    if action.times > 1 {
        text.push_str(&format!(", {} times", action.times));
    }
    if let Some(result) = &action.result {
        text.push_str(&format!(": {result}"));
    }
    if let Some((ended, all)) = ended(action.outcome.as_ref()) {
        text.push_str(&format!(", {ended} of {all} ended"));
    }
    text
}

/// How many processes of a kill ended, and of how many.
fn ended(outcome: Option<&Value>) -> Option<(usize, usize)> {
    let outcomes = outcome?.get("outcomes")?.as_array()?;
    let ended = outcomes.iter().filter(|it| it["outcome"] == "ended");
    Some((ended.count(), outcomes.len()))
}

fn recent(context: &mut CallContext, _: &Parameters) -> Result<Document, Problem> {
    let asked = Parameters::of(
        history::ACTION_PARAMETERS,
        &[("hours", "24"), ("limit", "8")],
    )?;
    let actions = history::actions(context, &asked)?.actions;
    let html = html! {
        @if actions.is_empty() {
            p.panel.empty { "Nothing happened in the last 24 hours." }
        } @else {
            ul.panel.stack { @for action in &actions {
                li data-key=(action.id) { small { (moment(&action.timestamp)) } " " bdi { (action_text(action)) } }
            } }
        }
    };
    Ok(Document::html(html.into_string()))
}

fn recorded(context: &mut CallContext, page: &Parameters) -> Result<Document, Problem> {
    let names = ["kind", GPU.name, USER.name];
    let asked = ask(
        page,
        history::ACTION_PARAMETERS,
        &names,
        &[("limit", "200")],
    )?;
    let document = history::actions(context, &asked)?;
    let html = html! {
        @if document.actions.is_empty() { p.panel.empty { "Nothing is recorded in this time." } }
        @else {
            div.panel.scroll { table {
                (columns(&[("When", ""), ("By", ""), ("Kind", ""), ("What", ""), ("Result", "")]))
                tbody { @for action in &document.actions { (action_row(action)) } }
            } }
            @if document.more { p.soft { "There are more: choose a shorter period, or filter." } }
        }
    };
    Ok(Document::html(html.into_string()))
}

fn action_row(action: &ActionDocument) -> Markup {
    let result = action.result.as_deref();
    let class = match result {
        Some("failed" | "refused" | "interrupted") => "bad",
        Some("partly" | "unrecorded") => "warn",
        Some(_) | None => "",
    };
    html! {
        tr data-key=(action.id) {
            td { (moment(&action.timestamp)) @if action.times > 1 { small { " ×" (action.times) } } }
            td { bdi { (action.user.as_deref().unwrap_or("–")) } }
            td { (action.kind.replace('_', " ")) }
            td { bdi { (action.what.as_deref().unwrap_or("")) }
                @if let Some(gpu) = &action.gpu_id { small { " " a.link href={ "/gpu/" (segment(gpu)) } { "GPU" } } }
            }
            td {
                span class=(class) { (result.unwrap_or("")) }
                @if let Some((ended, all)) = ended(action.outcome.as_ref()) { small { " " (ended) " of " (all) " ended" } }
                @if let Some(why) = &action.why { small { " " bdi { (why) } } }
            }
        }
    }
}

/// The runs of jobs.
pub(super) fn runs(
    context: &mut CallContext,
    page: &Parameters,
    names: &[&str],
) -> Result<Document, Problem> {
    let asked = ask(page, history::RUN_PARAMETERS, names, &[("limit", "100")])?;
    let document = history::runs(context, &asked)?;
    let html = html! {
        @if document.runs.is_empty() { p.panel.empty { "No process used a GPU in this time." } }
        @else {
            div.panel.scroll { table {
                (columns(&[("From", ""), ("Person", ""), ("Process", ""), ("GPUs", "lesser"), ("Time", "num"), ("Busy", "num"), ("Most memory", "num lesser"), ("GPU-h", "num"), ("End", "")]))
                tbody { @for run in &document.runs { (run_row(run)) } }
            } }
            @if document.more { p.soft { "There are more runs." } }
        }
        @if !document.gaps.is_empty() {
            p.soft { "Not seen: " (counted(document.gaps.len(), "time", "times")) " without samples." }
        }
    };
    Ok(Document::html(html.into_string()))
}

fn run_row(run: &RunDocument) -> Markup {
    let indices: Vec<String> = run.gpu_indices.iter().map(u32::to_string).collect();
    let owner = run.owner.as_deref().or(run.user.as_deref());
    let label = run.command.as_deref().unwrap_or(&run.label);
    let end = match (run.end, &run.rule, &run.ended_by) {
        ("ended_by_guard", Some(rule), _) => format!("ended by guard: {rule}"),
        ("killed", _, Some(by)) => format!("ended by {by}"),
        (end, _, _) => end.replace('_', " "),
    };
    html! {
        tr data-key=(run.id) {
            td { (moment(&run.started_at)) }
            td { @if let Some(owner) = owner { a href={ "/person/" (segment(owner)) } { bdi { (owner) } } } @else { "?" } }
            td.what { span.cut { @if let Some(job) = &run.job {
                a href={ "/job/" (segment(job)) } { bdi { (label) } }
            } @else { bdi { (label) } } } }
            td.lesser { (indices.join(", ")) }
            td.num { (seconds(run.duration_secs)) }
            td.num { (percent(run.busy_hours, run.gpu_hours)) }
            td.num.lesser { @if let Some(bytes) = run.memory_max_bytes { (size(bytes)) } @else { "?" } }
            td.num { (hours(run.gpu_hours)) }
            td { bdi { (end) } }
        }
    }
}

/// The sums of a period.
pub(super) fn summary(
    context: &mut CallContext,
    page: &Parameters,
    names: &[&str],
) -> Result<Document, Problem> {
    let asked = ask(page, history::SUMMARY_PARAMETERS, names, &[])?;
    let sums = history::summary(context, &asked)?;
    let html = html! {
        (times(&sums))
        div.cols { (owners(&sums)) (programs(&sums)) }
    };
    Ok(Document::html(html.into_string()))
}

/// The time of all GPUs as one bar.
fn times(sums: &SummaryDocument) -> Markup {
    let all = &sums.all;
    let parts = [
        ("at work", 2, all.busy_hours),
        ("held, not at work", 1, all.held_idle_hours),
        ("held, unknown", NOBODY, all.unknown_hours),
        ("free", 9, all.free_hours),
    ];
    let mut end = 0.0;
    let placed = parts.map(|(name, colour, part)| {
        let width = 100.0 * part / all.gpu_hours.max(f64::MIN_POSITIVE);
        let x = end;
        end += width;
        (name, colour, part, x, width)
    });
    html! {
        div.panel.stack {
            p { b { (hours(all.gpu_hours)) } " GPU-hours" }
            svg.bar role="img" aria-label="Share of the time" {
                @for (_, colour, _, x, width) in &placed {
                    @if *colour <= NOBODY {
                        rect class={ "fill p" (colour) } x={ (format!("{x:.2}")) "%" } width={ (format!("{width:.2}")) "%" } height="100%" {}
                    }
                }
            }
            div.legend { @for (name, colour, part, _, _) in &placed {
                span class={ "who p" (colour) } { i {} (name) " " (hours(*part)) " h, " (percent(*part, all.gpu_hours)) }
            } }
        }
    }
}

fn owners(sums: &SummaryDocument) -> Markup {
    html! {
        div.panel.scroll { table {
            (columns(&[("Person", ""), ("GPU-h", "num"), ("GiB·h", "num"), ("Not at work", "num"), ("Runs", "num")]))
            tbody { @for time in &sums.owners {
                @let name = time.owner.as_deref().unwrap_or("unknown");
                tr { td { a href={ "/person/" (segment(name)) } { bdi { (name) } } }
                    (totals(time.used.gpu_hours, time.used.memory_gib_hours, time.used.idle_pct))
                    td.num { (time.used.runs) }
                }
            } }
        } }
    }
}

fn programs(sums: &SummaryDocument) -> Markup {
    html! {
        div.panel.scroll { table {
            (columns(&[("Program", ""), ("GPU-h", "num"), ("GiB·h", "num"), ("Not at work", "num")]))
            tbody { @for time in &sums.processes {
                tr { td.what { span.cut { bdi { (time.label) } } }
                    (totals(time.used.gpu_hours, time.used.memory_gib_hours, time.used.idle_pct))
                }
            } }
        } }
    }
}

fn totals(gpu_hours: f64, memory: f64, idle: Option<f64>) -> Markup {
    let idle = idle.map_or_else(|| "–".to_owned(), |idle| format!("{idle:.0} %"));
    html! { td.num { (hours(gpu_hours)) } td.num { (hours(memory)) } td.num { (idle) } }
}
