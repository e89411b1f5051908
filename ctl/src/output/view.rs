//! What `list` shows people: a heading, one table, and what is broken.

use super::line::{Line, Tone, shown, wrap};
use super::look::Look;
use super::mark::WOULD_HAVE_ENDED;
use super::rogue::marked;
use super::status::can_be_here;
use super::value::{clock, counted, minute};
use super::{gpus, processes};
use crate::connect::Sight;
use gpukill_proto::guard::{GuardBrief, GuardMode};
use gpukill_proto::snapshot::{BackendReport, BackendState, Device, Fault, Snapshot, Vendor};
use gpukill_proto::text::duration;
use gpukill_proto::units::Timestamp;

/// What of a snapshot is shown.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Which table.
    pub rows: Rows,
    /// Whether containers have a column that stays.
    pub containers: bool,
    /// Processes for each GPU; 0 is all.
    pub max_processes: usize,
    /// Which processes were left in, in words; `None` when all were.
    pub only: Option<String>,
    /// Whether GPUs were left out, and their faults with them.
    pub only_some_gpus: bool,
    /// The number of whoever asks.
    pub me: u32,
}

/// Which table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// A row for each GPU.
    Gpus,
    /// A row for each process on each GPU.
    Processes,
}

/// A snapshot older than this is said to be old. Polls are seconds apart.
const OLD: std::time::Duration = std::time::Duration::from_secs(30);

/// The lines of one snapshot.
pub(crate) fn lines(sight: &Sight, view: &View, now: Timestamp, look: &Look) -> Vec<Line> {
    let Sight {
        snapshot, guard, ..
    } = sight;
    let mut heading = heading(snapshot, view, now, look);
    heading.append(of_guard(guard, look));
    let heading = heading.cut(look.width, look.symbols);
    let mut lines = vec![heading, Line::default()];
    if snapshot.devices.is_empty() {
        lines.extend(why_none(&snapshot.backends, now, look));
    } else {
        let table = match view.rows {
            Rows::Gpus => gpus::table(snapshot, view, now, look),
            Rows::Processes => processes::table(sight, view, now, look),
        };
        lines.extend(table);
        lines.extend(let_go(&snapshot.backends, now, look));
    }
    let below = below(sight, view);
    let own = super::guard::own_jobs(sight, view.me, now, look);
    if !below.is_empty() || !own.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(own);
    let below = below.into_iter();
    lines.extend(below.map(|line| line.cut(look.width, look.symbols)));
    lines
}

/// What should be looked at next.
fn below(sight: &Sight, view: &View) -> Vec<Line> {
    let Sight {
        snapshot,
        guard,
        suspected,
    } = sight;
    let mut lines = Vec::new();
    let unattributed = snapshot.devices.iter().filter(|device| {
        let known = device.memory_unattributed.last_known();
        known.is_some_and(|bytes| bytes.0 > 0)
    });
    if view.only.is_none() && unattributed.count() > 0 {
        let text = "unattributed memory: gpukillctl holders";
        lines.push(Line::toned(text, Tone::Doubtful));
    }
    if view.only.is_none()
        && has_something_to_say(guard)
        && let Some(found) = found(guard)
    {
        let text = format!("{found}: gpukillctl guard violations");
        lines.push(Line::toned(text, Tone::Doubtful));
    }
    let rogues = marked(suspected);
    if view.only.is_none() && rogues > 0 {
        let rogues = match rogues {
            1 => "1 process may be a rogue".to_owned(),
            several => format!("{several} processes may be rogues"),
        };
        let text = format!("{rogues}: gpukillctl rogue scan");
        lines.push(Line::toned(text, Tone::Doubtful));
    }
    let faults = snapshot.faults.iter();
    let faults = faults.filter(|fault| !view.only_some_gpus || is_of_these(fault, snapshot));
    let faults = faults.count();
    if faults > 0 {
        let faults = counted(faults, "fault");
        let text = format!("{faults}: gpukillctl status");
        lines.push(Line::toned(text, Tone::Broken));
    }
    lines
}

/// Whether a fault is of the GPUs that are shown, or of none more than of others.
fn is_of_these(fault: &Fault, snapshot: &Snapshot) -> bool {
    let mut devices = snapshot.devices.iter();
    if let Some(index) = fault.part.strip_prefix("GPU ") {
        return devices.any(|device| device.index.to_string() == index);
    }
    let mut backends = snapshot.backends.iter();
    !backends.any(|backend| backend.name == fault.part)
        || devices.any(|device| reads(&fault.part, device.vendor))
}

/// Backends are named as the vendors; all that is not one of those reads others.
pub(crate) fn reads(backend: &str, vendor: Vendor) -> bool {
    const NAMED: [Vendor; 4] = [Vendor::Nvidia, Vendor::Amd, Vendor::Intel, Vendor::Apple];
    match vendor {
        Vendor::Other => NAMED.iter().all(|named| named.name() != backend),
        Vendor::Nvidia | Vendor::Amd | Vendor::Intel | Vendor::Apple => vendor.name() == backend,
    }
}

fn heading(snapshot: &Snapshot, view: &View, now: Timestamp, look: &Look) -> Line {
    let dot = look.symbols.dot();
    let gpus = match (snapshot.devices.len(), &view.only) {
        (0, _) => "no GPU".to_owned(),
        (all, None) => counted(all, "GPU"),
        (all, Some(_)) => {
            let used = snapshot.devices.iter();
            let used = used.filter(|device| has_a_row(snapshot, device, view));
            format!("{} of {}", used.count(), counted(all, "GPU"))
        }
    };
    let time = clock(snapshot.taken_at, now, look);
    let mut line = Line::toned(shown(&snapshot.host, look.symbols), Tone::Strong);
    line.push(format!("{dot}{gpus}{dot}{time}"), Tone::Plain);
    let old = now.since(snapshot.taken_at);
    if old > OLD {
        line.push(format!("{dot}{} old", duration(old)), Tone::Doubtful);
    }
    if let Some(only) = &view.only {
        line.push(format!("{dot}{}", shown(only, look.symbols)), Tone::Plain);
    }
    line
}

/// How the guard stands, behind the rest of the heading.
fn of_guard(guard: &GuardBrief, look: &Look) -> Line {
    if !has_something_to_say(guard) {
        return Line::default();
    }
    let mut line = Line::plain(format!("{}guard {}", look.symbols.dot(), guard.mode.name()));
    if guard.is_stopped {
        line.push(", stopped", Tone::Broken);
    }
    if let Some(found) = found(guard) {
        line.push(format!(", {found}"), Tone::Doubtful);
    }
    line
}

/// `2 violations, 1 would have ended`; `None` where there is neither.
fn found(guard: &GuardBrief) -> Option<String> {
    let open = counted(guard.open as usize, "violation");
    match (guard.open, guard.would_have_ended) {
        (0, 0) => None,
        (_, 0) => Some(open),
        (0, gone) => Some(format!("{gone} {WOULD_HAVE_ENDED}")),
        (_, gone) => Some(format!("{open}, {gone} {WOULD_HAVE_ENDED}")),
    }
}

/// A guard without rules limits nobody, and is not worth a word.
fn has_something_to_say(guard: &GuardBrief) -> bool {
    guard.mode != GuardMode::Disabled && guard.has_rules
}

/// Whether a device is shown: where only some processes are, only the devices
/// that they use.
pub(super) fn has_a_row(snapshot: &Snapshot, device: &Device, view: &View) -> bool {
    let mut processes = snapshot.processes.iter();
    view.only.is_none() || processes.any(|process| process.device == device.id)
}

/// Why there is no GPU to show: what each backend says.
fn why_none(backends: &[BackendReport], now: Timestamp, look: &Look) -> Vec<Line> {
    let backends = || backends.iter().filter(|it| can_be_here(it));
    let names = backends().map(|backend| backend.name.len());
    let column = names.max().unwrap_or(0) + 3;
    backends()
        .flat_map(|backend| {
            let why = match &backend.state {
                BackendState::Ready => "no device".into(),
                BackendState::Starting => "starting".into(),
                BackendState::Absent(why) | BackendState::Failed(_, why) => {
                    shown(why, look.symbols)
                }
                BackendState::Quiesced(until) => quiesced(*until, now, look),
            };
            let name = format!(" {:1$}", shown(&backend.name, look.symbols), column - 1);
            let mut wrapped = wrap(&why, column, column, look.width);
            if let Some(first) = wrapped.first_mut() {
                first.insert_str(0, &name);
            }
            wrapped.into_iter().map(Line::plain)
        })
        .collect()
}

/// Until when somebody wanted a driver let go, and what ends that.
fn quiesced(until: Timestamp, now: Timestamp, look: &Look) -> String {
    let until = minute(until, now, look);
    format!("quiesced until {until}: gpukillctl resume")
}

/// Why all values of a vendor are old, where somebody wanted that.
fn let_go(backends: &[BackendReport], now: Timestamp, look: &Look) -> Vec<Line> {
    let lines = backends.iter().filter_map(|backend| match &backend.state {
        BackendState::Quiesced(until) => {
            let name = shown(&backend.name, look.symbols);
            let line = format!("{name} {}", quiesced(*until, now, look));
            Some(Line::toned(line, Tone::Doubtful).cut(look.width, look.symbols))
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
