//! The output of `holders`, for people: for each GPU a heading, a table of its holders, and the
//! findings about memory that no process explains.

pub(super) mod finding;

use super::list::processes::{command_line, ended_text};
use super::owner_cells::holder_owner;
use super::style::{OutputStyle, Symbols};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::text::{Line, Tone, escaped, wrapped_lines};
use super::value::{clock, gib, ranges, reading};
use gpukill_policy::holders::full_program_name;
use gpukill_policy::memory::noise_threshold;
use gpukill_proto::holders::{
    Cause, FirstHolder, Holder, HolderFinding, HoldersReport, ProcessState, Role,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::LISTED_BEFORE_START;
use gpukill_proto::units::{Bytes, Timestamp};

/// The processes to show.
pub(crate) struct HoldersView<'a> {
    /// Devices with full details.
    pub devices: Vec<&'a HoldersReport>,
    /// Devices without holders, in one line.
    pub free: Vec<&'a HoldersReport>,
    /// Devices with holders that are not known yet, in another line.
    pub unknown: Vec<u32>,
    /// The daemon's clock, from which ages are counted.
    pub at: Timestamp,
}

pub(crate) fn lines(shown: &HoldersView<'_>, style: &OutputStyle) -> Vec<Line> {
    let mut lines = Vec::new();
    let incomplete = incomplete_reasons(&shown.devices);
    for report in &shown.devices {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        let index = report.device.index;
        let own_reason = incomplete.iter().find(|(_, devices)| *devices == [index]);
        let own_reason = own_reason.map(|(why, _)| *why);
        lines.extend(device_lines(report, own_reason, shown.at, style));
    }
    let mut closing = closing_lines(shown, style.symbols);
    // The same reason is stated once for all its devices.
    for (why, devices) in incomplete.iter().filter(|(_, devices)| devices.len() > 1) {
        let why = escaped(why, style.symbols);
        closing.push(format!(
            "{}: there may be others: {why}",
            gpu_ranges(devices)
        ));
    }
    if !lines.is_empty() && !closing.is_empty() {
        lines.push(Line::default());
    }
    for text in closing {
        lines.extend(wrapped_lines(&text, Tone::Plain, style));
    }
    lines
}

/// The reasons why devices may have other holders, each with the devices. A finding states its
/// device's reason itself.
fn incomplete_reasons<'a>(devices: &[&'a HoldersReport]) -> Vec<(&'a str, Vec<u32>)> {
    let mut reasons: Vec<(&str, Vec<u32>)> = Vec::new();
    for report in devices.iter().filter(|report| report.findings.is_empty()) {
        let Some(why) = report.device.incomplete_reason.as_deref() else {
            continue;
        };
        let index = report.device.index;
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, indices)) => indices.push(index),
            None => reasons.push((why, vec![index])),
        }
    }
    reasons
}

/// The lines about one device; `own_reason` is why it alone may have other holders.
fn device_lines(
    report: &HoldersReport,
    own_reason: Option<&str>,
    at: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let device = &report.device;
    let heading = heading(report, style.symbols);
    let mut lines = wrapped_lines(&heading, Tone::Strong, style);
    lines.push(Line::default());
    if device.holders.is_empty() {
        lines.push(Line::plain(match device.incomplete_reason {
            None => " nobody has it open",
            Some(_) => " nobody was seen to have it open",
        }));
    } else {
        lines.extend(table(report, at, style));
    }
    if let Some(why) = own_reason {
        let why = format!("There may be others: {}", escaped(why, style.symbols));
        lines.push(Line::default());
        lines.extend(wrapped_lines(&why, Tone::Doubtful, style));
    }
    lines.extend(finding::lines(report, style));
    lines
}

/// `GPU 6 H100 80GB HBM3: 35.6 GiB used, none of it listed by the driver`
fn heading(report: &HoldersReport, symbols: Symbols) -> String {
    let device = &report.device;
    let name = device.name.last_known().map(|name| {
        let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
        format!(" {}", escaped(name, symbols))
    });
    let (index, name) = (device.index, name.unwrap_or_default());
    format!("GPU {index}{name}: {}", memory_text(report, symbols))
}

/// The used memory, and how much of it no listed process explains; or why that is not known.
fn memory_text(report: &HoldersReport, symbols: Symbols) -> String {
    let used = match &report.device.memory_used {
        Reading::Value(bytes) => format!("{} GiB used", gib(*bytes)),
        Reading::Stale(bytes, seconds) => format!("{} GiB used {seconds} s ago", gib(*bytes)),
        // Unattributed memory is not known either, for the same reason.
        Reading::Unsupported => return "how much is used is n/a".to_owned(),
        Reading::Withheld => return "how much is used is not known".to_owned(),
        Reading::Failed(why) => {
            return format!("how much is used is not known ({})", escaped(why, symbols));
        }
    };
    let why = report.device.memory_unattributed.failure();
    let why = why.map_or_else(String::new, |why| format!(" ({})", escaped(why, symbols)));
    format!("{used}{}{why}", explained_text(report))
}

/// How much of the used memory no listed process explains.
fn explained_text(report: &HoldersReport) -> String {
    let device = &report.device;
    let used = device.memory_used.last_known().copied();
    match device.memory_unattributed.last_known().copied() {
        Some(Bytes(0)) if used == Some(Bytes(0)) => String::new(),
        // The memory belongs to a process that has ended or does not exist here.
        Some(Bytes(0)) if report.findings.iter().any(is_memory_finding) => {
            ", all of it listed by the driver".to_owned()
        }
        Some(Bytes(0)) => ", all of it explained".to_owned(),
        rest if rest.is_some() && rest == used => ", none of it listed by the driver".to_owned(),
        Some(rest) => format!(", {} GiB of it explained by no listed process", gib(rest)),
        None => ", how much of it is explained is not known".to_owned(),
    }
}

fn is_memory_finding(finding: &HolderFinding) -> bool {
    finding.cause != Cause::BusyWithoutHolder
}

fn table(report: &HoldersReport, at: Timestamp, style: &OutputStyle) -> Vec<Line> {
    let mut table = Table::new(vec![
        Column::right("PID", WhenNarrow::Stays),
        Column::left("USER", WhenNarrow::Shrinks(8)),
        Column::left("STATE", WhenNarrow::Goes(2)),
        // Enough for one name and the beginning of another.
        Column::left("HOLDS", WhenNarrow::ShrinksThenGoes(10, 1)),
        Column::right("LISTED", WhenNarrow::Stays),
        Column::left("WHAT IT IS", WhenNarrow::Shrinks(24)),
    ]);
    let rows = report.device.holders.iter().zip(&report.roles);
    for (holder, role) in rows {
        table.push(Row::Cells(vec![
            Cell::plain(holder.pid.to_string()),
            Cell::plain(holder_owner(holder, style.symbols)),
            state_cell(&holder.state),
            Cell::plain(open_files(holder, style.symbols)),
            listed_cell(holder, *role, style.symbols),
            Cell::with_tone(role_text(holder, *role, at, style), role_tone(*role)),
        ]));
    }
    table.lines(style)
}

fn state_cell(state: &Reading<ProcessState>) -> Cell {
    let cell = reading(state, |state| match state {
        // As ps(1) and proc(5) call this state.
        ProcessState::Uninterruptible(_) => "waits (D)".to_owned(),
        ProcessState::Running
        | ProcessState::Sleeping
        | ProcessState::Stopped
        | ProcessState::Zombie => state.name().to_owned(),
        ProcessState::Other(letter) => escaped(&letter.to_string(), Symbols::Unicode),
    });
    match state.last_known() {
        Some(ProcessState::Uninterruptible(_) | ProcessState::Zombie) => {
            Cell::with_tone(cell.text, Tone::Broken)
        }
        _ => cell,
    }
}

/// The open device files, relative to `/dev`.
pub(super) fn open_files(holder: &Holder, symbols: Symbols) -> String {
    if holder.holds.is_empty() {
        return symbols.placeholder().to_owned();
    }
    escaped(&holder.holds.join(", "), symbols)
}

/// The memory with which the driver lists the process.
fn listed_cell(holder: &Holder, role: Role, symbols: Symbols) -> Cell {
    match (holder.listed, role) {
        (true, _) => match &holder.memory {
            Reading::Unsupported => Cell::plain("yes"),
            memory => reading(memory, |bytes| super::value::size(*bytes)),
        },
        (false, Role::Monitor | Role::SharedClient | Role::Passed) => {
            Cell::with_tone(symbols.placeholder(), Tone::Faint)
        }
        (false, _) if is_list_unknown(holder) => Cell::with_tone("?", Tone::Doubtful),
        (false, _) => Cell::with_tone("no", Tone::Doubtful),
    }
}

/// Whether it is unknown if the driver lists the process.
fn is_list_unknown(holder: &Holder) -> bool {
    !holder.listed && holder.memory.failure().is_some()
}

const fn role_tone(role: Role) -> Tone {
    match role {
        Role::Monitor => Tone::Faint,
        Role::User | Role::MpsClient | Role::Mps | Role::Display | Role::SharedClient => {
            Tone::Plain
        }
        Role::Gone
        | Role::Orphan { .. }
        | Role::OtherNamespace
        | Role::Zombie
        | Role::Uninterruptible
        | Role::Unlisted
        | Role::Passed => Tone::Doubtful,
    }
}

/// The holder's role on the device, in a few words.
pub(super) fn role_text(holder: &Holder, role: Role, at: Timestamp, style: &OutputStyle) -> String {
    let symbols = style.symbols;
    let name = reading(&holder.name, |name| {
        escaped(full_program_name(name), symbols)
    })
    .text;
    let command = || command_line(&holder.command, &holder.name, symbols);
    match role {
        Role::User => command(),
        Role::MpsClient => format!("client of MPS: {}", command()),
        Role::Mps => format!("{name}: holds memory for its clients"),
        Role::Display => format!("{name}: a display server or desktop"),
        Role::Monitor => format!("{name}: a monitor, holds no memory"),
        Role::Gone => match &holder.start_ticks {
            Reading::Failed(why) if why == LISTED_BEFORE_START => LISTED_BEFORE_START.to_owned(),
            Reading::Stale(_, seconds) => {
                format!("({}, still listed) {}", ended_text(*seconds), command())
            }
            Reading::Failed(_) | Reading::Value(_) | Reading::Unsupported | Reading::Withheld => {
                "no process here has this pid".to_owned()
            }
        },
        Role::Orphan { parent: of, ended } => {
            let ended = ended.map(|ended| format!(" (ended {})", clock(ended, at, style)));
            match (of, ended) {
                (Some(of), Some(ended)) => {
                    format!("{name}: worker of {of}{ended}, kept its descriptors")
                }
                (Some(of), None) => format!("{name}: worker of {of}, which is gone"),
                (None, _) => format!("{name}: its parent has ended"),
            }
        }
        Role::OtherNamespace => format!("{name}: {}", namespace_text(holder, symbols)),
        Role::Zombie => {
            let parent = reading(&holder.parent, ToString::to_string).text;
            format!("{name}: has ended, and {parent} has not reaped it")
        }
        Role::Uninterruptible => match holder.state.last_known() {
            Some(ProcessState::Uninterruptible(Some(function))) => {
                format!("{name}: stuck in {}", escaped(function, symbols))
            }
            _ => format!("{name}: stuck in the kernel"),
        },
        Role::Unlisted if is_list_unknown(holder) => {
            format!("{name}: has it open; whether it is listed is not known")
        }
        Role::Unlisted => format!("{name}: has it open, and is not listed"),
        Role::SharedClient => match holder.shares_with {
            Some(counted_for) => format!("{name}: shares a client with {counted_for}"),
            None => format!("{name}: shares a client with another process"),
        },
        Role::Passed => match holder.passed_from {
            Some(first) => format!("{name}: {}", passed_text(holder.pid, first)),
            None => format!("{name}: holds a descriptor passed from another process"),
        },
    }
}

/// The origin of a descriptor that processes of several users held.
pub(super) fn passed_text(pid: u32, first: FirstHolder) -> String {
    let FirstHolder { pid: from, uid } = first;
    let owner = uid.map_or_else(String::new, |uid| format!(" (uid {uid})"));
    match from == pid {
        true => format!("its descriptor{owner} was passed to another user: counted for nobody"),
        false => format!("descriptor passed from {from}{owner}: counted for nobody"),
    }
}

fn namespace_text(holder: &Holder, symbols: Symbols) -> String {
    if let Some(Some(container)) = holder.container.last_known() {
        return format!("in {}", escaped(&container.to_string(), symbols));
    }
    match holder.inner_pid.last_known() {
        Some(Some(pid)) => format!("{pid} of another PID namespace"),
        Some(None) | None => "in another PID namespace".to_owned(),
    }
}

/// Whether the only used memory is what the driver keeps for itself.
fn is_free(report: &HoldersReport) -> bool {
    let device = &report.device;
    let total = device.memory_total.known().copied().unwrap_or_default();
    let used = device.memory_used.known().copied();
    match &device.memory_unattributed {
        Reading::Value(rest) => *rest == Bytes(0),
        // For memory shared with the host, it is not known how much the driver keeps.
        Reading::Unsupported => used.is_some_and(|used| used < noise_threshold(total)),
        Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => used == Some(Bytes(0)),
    }
}

/// The lines about devices without details.
fn closing_lines(shown: &HoldersView<'_>, symbols: Symbols) -> Vec<String> {
    let indices = |devices: &[&HoldersReport]| -> Vec<u32> {
        devices.iter().map(|report| report.device.index).collect()
    };
    let (free, used): (Vec<&HoldersReport>, Vec<&HoldersReport>) =
        shown.free.iter().partition(|report| is_free(report));
    let (incomplete, free): (Vec<&HoldersReport>, Vec<&HoldersReport>) = free
        .into_iter()
        .partition(|report| report.device.incomplete_reason.is_some());
    let mut lines = Vec::new();
    if !free.is_empty() {
        lines.push(format!(
            "{}: nobody holds memory",
            gpu_ranges(&indices(&free))
        ));
    }
    if let Some(first) = incomplete.first() {
        let why = first
            .device
            .incomplete_reason
            .as_deref()
            .unwrap_or_default();
        lines.push(format!(
            "{}: nobody was seen to hold memory, and there may be others: {}",
            gpu_ranges(&indices(&incomplete)),
            gpukill_proto::text::sanitize(why.as_bytes(), 200)
        ));
    }
    // No holder was found, but it is not certain that the GPU is free.
    let mut same_text: Vec<(String, Vec<u32>)> = Vec::new();
    for report in used {
        let memory = memory_text(report, symbols);
        match same_text.iter_mut().find(|(known, _)| *known == memory) {
            Some((_, indices)) => indices.push(report.device.index),
            None => same_text.push((memory, vec![report.device.index])),
        }
    }
    let same_text = same_text.into_iter();
    lines.extend(same_text.map(|(memory, indices)| format!("{}: {memory}", gpu_ranges(&indices))));
    if !shown.unknown.is_empty() {
        let gpus = gpu_ranges(&shown.unknown);
        lines.push(format!("{gpus}: who holds memory is not known yet"));
    }
    if lines.is_empty() && shown.devices.is_empty() {
        lines.push("no GPU here".to_owned());
    }
    lines
}

/// `GPU 3`, `GPUs 1-3, 5`
pub(super) fn gpu_ranges(indices: &[u32]) -> String {
    let texts = ranges(indices).into_iter();
    let texts: Vec<String> = texts
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    let noun = if indices.len() == 1 { "GPU" } else { "GPUs" };
    format!("{noun} {}", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_indices_are_a_range() {
        let cases: [(&[u32], &str); 4] = [
            (&[3], "GPU 3"),
            (&[1, 2, 3, 5], "GPUs 1-3, 5"),
            (&[0, 2], "GPUs 0, 2"),
            (&[u32::MAX, 0], "GPUs 4294967295, 0"),
        ];
        for (indices, expected) in cases {
            assert_eq!(gpu_ranges(indices), expected);
        }
    }
}
