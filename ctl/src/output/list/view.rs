//! The output of `list` for people: a heading, one table, and faults.

use crate::connect::AnnotatedSnapshot;
use crate::output::list::columns::ColumnChoice;
use crate::output::list::gpus::columns::GpuColumn;
use crate::output::list::processes::columns::ProcessColumn;
use crate::output::markers::WOULD_HAVE_ENDED;
use crate::output::rogue::count_marked;
use crate::output::status::is_possible_here;
use crate::output::style::OutputStyle;
use crate::output::text::{Line, Tone, escaped, wrap};
use crate::output::value::{clock, counted, future_time};
use crate::output::{list::gpus, list::processes};
use crate::settings::SortKey;
use gpukill_proto::guard::{GuardMode, GuardSummary};
use gpukill_proto::model::{BackendReport, BackendState, Device, Fault, Snapshot, Vendor};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;

/// The part of a snapshot to show.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The table.
    pub rows: Rows,
    /// Whether a column of containers always appears.
    pub containers: bool,
    /// Maximum number of processes for each GPU; 0 for all.
    pub max_processes: usize,
    /// The selected processes in words; `None` for all.
    pub only: Option<String>,
    /// Whether only some GPUs are selected; faults of others are left out too.
    pub only_some_gpus: bool,
    /// The caller's uid.
    pub me: u32,
    /// The columns of the table of GPUs.
    pub gpu_columns: ColumnChoice<GpuColumn>,
    /// The columns of the table of processes.
    pub process_columns: ColumnChoice<ProcessColumn>,
    /// The requested order; `None` for the order of the devices.
    pub sort: Option<SortKey>,
}

/// The table to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// A row for each GPU.
    Gpus,
    /// A row for each process on each GPU.
    Processes,
}

/// A snapshot older than this is marked as old. Polls are seconds apart.
const MAX_SNAPSHOT_AGE: std::time::Duration = std::time::Duration::from_secs(30);

pub(crate) fn lines(
    annotated: &AnnotatedSnapshot,
    view: &View,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let AnnotatedSnapshot {
        snapshot, guard, ..
    } = annotated;
    let mut heading = heading(snapshot, view, now, style);
    heading.append(guard_text(guard, style));
    let heading = heading.cut(style.width, style.symbols);
    let mut lines = vec![heading, Line::default()];
    if snapshot.devices.is_empty() {
        lines.extend(no_gpu_lines(&snapshot.backends, now, style));
    } else {
        let table = match view.rows {
            Rows::Gpus => gpus::table(snapshot, view, now, style),
            Rows::Processes => processes::table(annotated, view, now, style),
        };
        lines.extend(table);
        lines.extend(quiesced_lines(&snapshot.backends, now, style));
    }
    let below = hint_lines(annotated, view, style);
    let own = crate::output::guard::own_job_lines(annotated, view.me, now, style);
    if !below.is_empty() || !own.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(own);
    let below = below.into_iter();
    lines.extend(below.map(|line| line.cut(style.width, style.symbols)));
    lines
}

/// Maximum number of alerts below a table.
const MAX_ALERTS: usize = 4;

/// Hints on the next commands.
fn hint_lines(annotated: &AnnotatedSnapshot, view: &View, style: &OutputStyle) -> Vec<Line> {
    let AnnotatedSnapshot {
        snapshot,
        guard,
        suspected,
    } = annotated;
    let mut lines = Vec::new();
    let unattributed = snapshot.devices.iter().filter(|device| {
        let known = device.memory_unattributed.last_known();
        known.is_some_and(|bytes| bytes.0 > 0)
    });
    if view.only.is_none() && unattributed.count() > 0 {
        let text = "unattributed memory: gpukillctl holders";
        lines.push(Line::with_tone(text, Tone::Doubtful));
    }
    if view.only.is_none()
        && has_something_to_say(guard)
        && let Some(found) = violation_counts(guard)
    {
        let text = format!("{found}: gpukillctl guard violations");
        lines.push(Line::with_tone(text, Tone::Doubtful));
    }
    let rogues = count_marked(suspected);
    if view.only.is_none() && rogues > 0 {
        let rogues = match rogues {
            1 => "1 process may be a rogue".to_owned(),
            several => format!("{several} processes may be rogues"),
        };
        let text = format!("{rogues}: gpukillctl rogue scan");
        lines.push(Line::with_tone(text, Tone::Doubtful));
    }
    let faults = snapshot.faults.iter();
    let faults = faults.filter(|fault| !view.only_some_gpus || is_about_shown(fault, snapshot));
    let (alerts, faults): (Vec<&Fault>, Vec<&Fault>) =
        faults.partition(|fault| fault.code.is_alert());
    for alert in alerts.iter().take(MAX_ALERTS) {
        let text = escaped(
            &format!("alert: {}: {}", alert.part, alert.what),
            style.symbols,
        );
        lines.push(Line::with_tone(text, Tone::Doubtful));
    }
    if alerts.len() > MAX_ALERTS {
        let more = alerts.len() - MAX_ALERTS;
        let text = format!("{}: gpukillctl status", counted(more, "more alert"));
        lines.push(Line::with_tone(text, Tone::Doubtful));
    }
    let faults = faults.len();
    if faults > 0 {
        let faults = counted(faults, "fault");
        let text = format!("{faults}: gpukillctl status");
        lines.push(Line::with_tone(text, Tone::Broken));
    }
    lines
}

/// Whether a fault belongs to the shown GPUs, or to no GPU in particular.
fn is_about_shown(fault: &Fault, snapshot: &Snapshot) -> bool {
    let mut devices = snapshot.devices.iter();
    if let Some(index) = fault.gpu_index() {
        return devices.any(|device| device.index == index);
    }
    let mut backends = snapshot.backends.iter();
    !backends.any(|backend| backend.name == fault.part)
        || devices.any(|device| reads_vendor(&fault.part, device.vendor))
}

/// Whether this backend reads this vendor. Backends are named after vendors; any other backend
/// reads other vendors.
pub(crate) fn reads_vendor(backend: &str, vendor: Vendor) -> bool {
    const NAMED: [Vendor; 4] = [Vendor::Nvidia, Vendor::Amd, Vendor::Intel, Vendor::Apple];
    match vendor {
        Vendor::Other => NAMED.iter().all(|named| named.name() != backend),
        Vendor::Nvidia | Vendor::Amd | Vendor::Intel | Vendor::Apple => vendor.name() == backend,
    }
}

fn heading(snapshot: &Snapshot, view: &View, now: Timestamp, style: &OutputStyle) -> Line {
    let dot = style.symbols.separator();
    let gpus = match (snapshot.devices.len(), &view.only) {
        (0, _) => "no GPU".to_owned(),
        (all, None) => counted(all, "GPU"),
        (all, Some(_)) => {
            let used = snapshot.devices.iter();
            let used = used.filter(|device| has_a_row(snapshot, device, view));
            format!("{} of {}", used.count(), counted(all, "GPU"))
        }
    };
    let time = clock(snapshot.taken_at, now, style);
    let mut line = Line::with_tone(escaped(&snapshot.host, style.symbols), Tone::Strong);
    line.push(format!("{dot}{gpus}{dot}{time}"), Tone::Plain);
    let old = now.since(snapshot.taken_at);
    if old > MAX_SNAPSHOT_AGE {
        line.push(format!("{dot}{} old", format_duration(old)), Tone::Doubtful);
    }
    if let Some(only) = &view.only {
        line.push(
            format!("{dot}{}", escaped(only, style.symbols)),
            Tone::Plain,
        );
    }
    line
}

/// The guard's status at the end of the heading.
fn guard_text(guard: &GuardSummary, style: &OutputStyle) -> Line {
    if !has_something_to_say(guard) {
        return Line::default();
    }
    let mut line = Line::plain(format!("{}guard ", style.symbols.separator()));
    match guard.is_stopped {
        true => line.push("stopped", Tone::Broken),
        false => line.push(guard.mode.name(), Tone::Plain),
    }
    if let Some(found) = violation_counts(guard) {
        line.push(format!(", {found}"), Tone::Doubtful);
    }
    line
}

/// `2 violations, 1 would have ended`; `None` when there is neither.
fn violation_counts(guard: &GuardSummary) -> Option<String> {
    let open = counted(guard.open as usize, "violation");
    match (guard.open, guard.would_have_ended) {
        (0, 0) => None,
        (_, 0) => Some(open),
        (0, gone) => Some(format!("{gone} {WOULD_HAVE_ENDED}")),
        (_, gone) => Some(format!("{open}, {gone} {WOULD_HAVE_ENDED}")),
    }
}

/// A guard without rules limits nobody and is not mentioned.
fn has_something_to_say(guard: &GuardSummary) -> bool {
    guard.mode != GuardMode::Disabled && guard.has_rules
}

/// Whether a device is shown. When only some processes are selected, only devices that they use
/// are shown.
pub(in crate::output) fn has_a_row(snapshot: &Snapshot, device: &Device, view: &View) -> bool {
    let mut processes = snapshot.processes.iter();
    view.only.is_none() || processes.any(|process| process.device == device.id)
}

/// Why there is no GPU: the state of each backend.
fn no_gpu_lines(backends: &[BackendReport], now: Timestamp, style: &OutputStyle) -> Vec<Line> {
    let backends = || backends.iter().filter(|it| is_possible_here(it));
    let names = backends().map(|backend| backend.name.len());
    let column = names.max().unwrap_or(0) + 3;
    backends()
        .flat_map(|backend| {
            let why = match &backend.state {
                BackendState::Ready => "no device".into(),
                BackendState::Starting => "starting".into(),
                BackendState::Absent(why) | BackendState::Failed(_, why) => {
                    escaped(why, style.symbols)
                }
                BackendState::Quiesced(until) => quiesce_text(*until, now, style),
            };
            let name = format!(" {:1$}", escaped(&backend.name, style.symbols), column - 1);
            let mut wrapped = wrap(&why, column, column, style.width);
            if let Some(first) = wrapped.first_mut() {
                first.insert_str(0, &name);
            }
            wrapped.into_iter().map(Line::plain)
        })
        .collect()
}

/// Until when a driver is quiesced, and what ends that.
fn quiesce_text(until: Timestamp, now: Timestamp, style: &OutputStyle) -> String {
    let until = future_time(until, now, style);
    format!("quiesced until {until}: gpukillctl resume")
}

/// The vendors with stale values because of a quiesce.
fn quiesced_lines(backends: &[BackendReport], now: Timestamp, style: &OutputStyle) -> Vec<Line> {
    let lines = backends.iter().filter_map(|backend| match &backend.state {
        BackendState::Quiesced(until) => {
            let name = escaped(&backend.name, style.symbols);
            let line = format!("{name} {}", quiesce_text(*until, now, style));
            Some(Line::with_tone(line, Tone::Doubtful).cut(style.width, style.symbols))
        }
        BackendState::Ready
        | BackendState::Starting
        | BackendState::Absent(_)
        | BackendState::Failed(..) => None,
    });
    let lines: Vec<Line> = lines.collect();
    let gap = (!lines.is_empty()).then(Line::default);
    gap.into_iter().chain(lines).collect()
}
