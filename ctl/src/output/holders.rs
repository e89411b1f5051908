//! Who has GPUs open, for people: of each GPU a heading, a table of its holders,
//! and whose the memory is that no process explains.

use super::finding;
use super::line::{Line, Tone, shown, wrap};
use super::look::{Look, Symbols};
use super::processes::{command, ended};
use super::table::{Cell, Column, Row, Table, WhenNarrow};
use super::value::{clock, gib, reading};
use super::whose::holder_owner;
use gpukill_policy::holders::whole_name;
use gpukill_policy::memory::noise;
use gpukill_proto::holders::{
    Cause, Finding, FirstHolder, Holder, HoldersReport, ProcessState, Role,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::LISTED_BEFORE;
use gpukill_proto::units::{Bytes, Timestamp};

/// What is shown.
pub(crate) struct Shown<'a> {
    /// With all that is known of them.
    pub devices: Vec<&'a HoldersReport>,
    /// In one line: nobody holds them.
    pub free: Vec<&'a HoldersReport>,
    /// In another: who holds these is not known yet.
    pub unknown: Vec<u32>,
    /// The daemon's clock; ages are counted from it.
    pub at: Timestamp,
}

/// The lines of one answer.
pub(crate) fn lines(shown: &Shown<'_>, look: &Look) -> Vec<Line> {
    let mut lines = Vec::new();
    for report in &shown.devices {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(of_device(report, shown.at, look));
    }
    let closing = closing(shown, look.symbols);
    if !lines.is_empty() && !closing.is_empty() {
        lines.push(Line::default());
    }
    for text in closing {
        lines.extend(wrap(&text, 0, 2, look.width).into_iter().map(Line::plain));
    }
    lines
}

fn of_device(report: &HoldersReport, at: Timestamp, look: &Look) -> Vec<Line> {
    let device = &report.device;
    let heading = wrap(&heading(report, look.symbols), 0, 2, look.width).into_iter();
    let mut lines: Vec<Line> = heading
        .map(|text| Line::toned(text, Tone::Strong))
        .collect();
    lines.push(Line::default());
    if device.holders.is_empty() {
        lines.push(Line::plain(match device.unseen {
            None => " nobody has it open",
            Some(_) => " nobody was seen to have it open",
        }));
    } else {
        lines.extend(table(report, at, look));
    }
    // Findings say so of themselves.
    if let Some(why) = device
        .unseen
        .as_ref()
        .filter(|_| report.findings.is_empty())
    {
        let why = format!("There may be others: {}", shown(why, look.symbols));
        lines.push(Line::default());
        let texts = wrap(&why, 0, 2, look.width).into_iter();
        lines.extend(texts.map(|text| Line::toned(text, Tone::Doubtful)));
    }
    lines.extend(finding::lines(report, look));
    lines
}

/// `GPU 6 H100 80GB HBM3: 35.6 GiB used, none of it listed by the driver`
fn heading(report: &HoldersReport, symbols: Symbols) -> String {
    let device = &report.device;
    let name = device.name.last_known().map(|name| {
        let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
        format!(" {}", shown(name, symbols))
    });
    let (index, name) = (device.index, name.unwrap_or_default());
    format!("GPU {index}{name}: {}", memory(report, symbols))
}

/// How much of it is used, and how much of that no listed process explains; why,
/// where that is not known.
fn memory(report: &HoldersReport, symbols: Symbols) -> String {
    let used = match &report.device.memory_used {
        Reading::Value(bytes) => format!("{} GiB used", gib(*bytes)),
        Reading::Stale(bytes, seconds) => format!("{} GiB used {seconds} s ago", gib(*bytes)),
        // What is not explained is not known either, and for the same reason.
        Reading::Unsupported => return "how much is used is n/a".to_owned(),
        Reading::Withheld => return "how much is used is not known".to_owned(),
        Reading::Failed(why) => {
            return format!("how much is used is not known ({})", shown(why, symbols));
        }
    };
    let why = report.device.memory_unattributed.failure();
    let why = why.map_or_else(String::new, |why| format!(" ({})", shown(why, symbols)));
    format!("{used}{}{why}", explained(report))
}

/// How much of the used memory no listed process explains.
fn explained(report: &HoldersReport) -> String {
    let device = &report.device;
    let used = device.memory_used.last_known().copied();
    match device.memory_unattributed.last_known().copied() {
        Some(Bytes(0)) if used == Some(Bytes(0)) => String::new(),
        // Of one that has ended, or of no process here.
        Some(Bytes(0)) if report.findings.iter().any(is_of_memory) => {
            ", all of it listed by the driver".to_owned()
        }
        Some(Bytes(0)) => ", all of it explained".to_owned(),
        rest if rest.is_some() && rest == used => ", none of it listed by the driver".to_owned(),
        Some(rest) => format!(", {} GiB of it explained by no listed process", gib(rest)),
        None => ", how much of it is explained is not known".to_owned(),
    }
}

fn is_of_memory(finding: &Finding) -> bool {
    finding.cause != Cause::BusyAlone
}

fn table(report: &HoldersReport, at: Timestamp, look: &Look) -> Vec<Line> {
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
            Cell::plain(holder_owner(holder, look.symbols)),
            state(&holder.state),
            Cell::plain(holds(holder, look.symbols)),
            listed(holder, *role, look.symbols),
            Cell::toned(what(holder, *role, at, look), tone(*role)),
        ]));
    }
    table.lines(look)
}

fn state(state: &Reading<ProcessState>) -> Cell {
    let cell = reading(state, |state| match state {
        // As ps(1) and proc(5) call it.
        ProcessState::Uninterruptible(_) => "waits (D)".to_owned(),
        ProcessState::Running
        | ProcessState::Sleeping
        | ProcessState::Stopped
        | ProcessState::Zombie => state.name().to_owned(),
        ProcessState::Other(letter) => shown(&letter.to_string(), Symbols::Unicode),
    });
    match state.last_known() {
        Some(ProcessState::Uninterruptible(_) | ProcessState::Zombie) => {
            Cell::toned(cell.text, Tone::Broken)
        }
        _ => cell,
    }
}

/// The files that it has open, as below `/dev`.
pub(super) fn holds(holder: &Holder, symbols: Symbols) -> String {
    if holder.holds.is_empty() {
        return symbols.none().to_owned();
    }
    shown(&holder.holds.join(", "), symbols)
}

/// What the driver lists it with.
fn listed(holder: &Holder, role: Role, symbols: Symbols) -> Cell {
    match (holder.listed, role) {
        (true, _) => match &holder.memory {
            Reading::Unsupported => Cell::plain("yes"),
            memory => reading(memory, |bytes| super::value::size(*bytes)),
        },
        (false, Role::Monitor | Role::Sharer | Role::Passed) => {
            Cell::toned(symbols.none(), Tone::Faint)
        }
        (false, _) if is_list_unknown(holder) => Cell::toned("?", Tone::Doubtful),
        (false, _) => Cell::toned("no", Tone::Doubtful),
    }
}

/// Whether nobody knows if the driver lists it.
fn is_list_unknown(holder: &Holder) -> bool {
    !holder.listed && holder.memory.failure().is_some()
}

const fn tone(role: Role) -> Tone {
    match role {
        Role::Monitor => Tone::Faint,
        Role::User | Role::MpsClient | Role::Mps | Role::Display | Role::Sharer => Tone::Plain,
        Role::Gone
        | Role::Orphan { .. }
        | Role::OtherNamespace
        | Role::Zombie
        | Role::Uninterruptible
        | Role::Unlisted
        | Role::Passed => Tone::Doubtful,
    }
}

/// What a holder is to the device, in a few words.
pub(super) fn what(holder: &Holder, role: Role, at: Timestamp, look: &Look) -> String {
    let symbols = look.symbols;
    let name = reading(&holder.name, |name| shown(whole_name(name), symbols)).text;
    let command = || command(&holder.command, &holder.name, symbols);
    match role {
        Role::User => command(),
        Role::MpsClient => format!("client of MPS: {}", command()),
        Role::Mps => format!("{name}: holds memory for its clients"),
        Role::Display => format!("{name}: a display server or desktop"),
        Role::Monitor => format!("{name}: a monitor, holds no memory"),
        Role::Gone => match &holder.start_ticks {
            Reading::Failed(why) if why == LISTED_BEFORE => LISTED_BEFORE.to_owned(),
            Reading::Stale(_, seconds) => {
                format!("({}, still listed) {}", ended(*seconds), command())
            }
            Reading::Failed(_) | Reading::Value(_) | Reading::Unsupported | Reading::Withheld => {
                "no process here has this pid".to_owned()
            }
        },
        Role::Orphan { of, ended } => {
            let ended = ended.map(|ended| format!(" (ended {})", clock(ended, at, look)));
            match (of, ended) {
                (Some(of), Some(ended)) => {
                    format!("{name}: worker of {of}{ended}, kept its descriptors")
                }
                (Some(of), None) => format!("{name}: worker of {of}, which is gone"),
                (None, _) => format!("{name}: its parent has ended"),
            }
        }
        Role::OtherNamespace => format!("{name}: {}", inside(holder, symbols)),
        Role::Zombie => {
            let parent = reading(&holder.parent, ToString::to_string).text;
            format!("{name}: has ended, and {parent} has not reaped it")
        }
        Role::Uninterruptible => match holder.state.last_known() {
            Some(ProcessState::Uninterruptible(Some(place))) => {
                format!("{name}: stuck in {}", shown(place, symbols))
            }
            _ => format!("{name}: stuck in the kernel"),
        },
        Role::Unlisted if is_list_unknown(holder) => {
            format!("{name}: has it open; whether it is listed is not known")
        }
        Role::Unlisted => format!("{name}: has it open, and is not listed"),
        Role::Sharer => match holder.shares_with {
            Some(counted_for) => format!("{name}: shares a client with {counted_for}"),
            None => format!("{name}: shares a client with another process"),
        },
        Role::Passed => match holder.passed_from {
            Some(first) => format!("{name}: {}", passed(holder.pid, first)),
            None => format!("{name}: holds a descriptor passed from another process"),
        },
    }
}

/// Where a descriptor comes from that processes of several persons held.
pub(super) fn passed(pid: u32, first: FirstHolder) -> String {
    let FirstHolder { pid: from, uid } = first;
    let owner = uid.map_or_else(String::new, |uid| format!(" (uid {uid})"));
    match from == pid {
        true => format!("its descriptor{owner} was passed to another user: counted for nobody"),
        false => format!("descriptor passed from {from}{owner}: counted for nobody"),
    }
}

fn inside(holder: &Holder, symbols: Symbols) -> String {
    if let Some(Some(container)) = holder.container.last_known() {
        return format!("in {}", shown(&container.to_string(), symbols));
    }
    match holder.inner_pid.last_known() {
        Some(Some(pid)) => format!("{pid} of another PID namespace"),
        Some(None) | None => "in another PID namespace".to_owned(),
    }
}

/// Whether nothing of its memory is used but what its driver keeps for itself.
fn is_free(report: &HoldersReport) -> bool {
    let device = &report.device;
    let total = device.memory_total.known().copied().unwrap_or_default();
    let used = device.memory_used.known().copied();
    match &device.memory_unattributed {
        Reading::Value(rest) => *rest == Bytes(0),
        // Of what is shared with the host nobody tells what the driver keeps.
        Reading::Unsupported => used.is_some_and(|used| used < noise(total)),
        Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => used == Some(Bytes(0)),
    }
}

/// The devices of which there is nothing to say.
fn closing(shown: &Shown<'_>, symbols: Symbols) -> Vec<String> {
    let indices = |devices: &[&HoldersReport]| -> Vec<u32> {
        devices.iter().map(|report| report.device.index).collect()
    };
    let (free, used): (Vec<&HoldersReport>, Vec<&HoldersReport>) =
        shown.free.iter().partition(|report| is_free(report));
    let (unseen, free): (Vec<&HoldersReport>, Vec<&HoldersReport>) = free
        .into_iter()
        .partition(|report| report.device.unseen.is_some());
    let mut lines = Vec::new();
    if !free.is_empty() {
        lines.push(format!("{}: nobody holds memory", gpus(&indices(&free))));
    }
    if let Some(first) = unseen.first() {
        let why = first.device.unseen.as_deref().unwrap_or_default();
        lines.push(format!(
            "{}: nobody was seen to hold memory, and there may be others: {}",
            gpus(&indices(&unseen)),
            gpukill_proto::text::visible(why.as_bytes(), 200)
        ));
    }
    // Nobody that could be seen, and still not free for certain.
    let mut alike: Vec<(String, Vec<u32>)> = Vec::new();
    for report in used {
        let memory = memory(report, symbols);
        match alike.iter_mut().find(|(known, _)| *known == memory) {
            Some((_, indices)) => indices.push(report.device.index),
            None => alike.push((memory, vec![report.device.index])),
        }
    }
    let alike = alike.into_iter();
    lines.extend(alike.map(|(memory, indices)| format!("{}: {memory}", gpus(&indices))));
    if !shown.unknown.is_empty() {
        let gpus = gpus(&shown.unknown);
        lines.push(format!("{gpus}: who holds memory is not known yet"));
    }
    if lines.is_empty() && shown.devices.is_empty() {
        lines.push("no GPU here".to_owned());
    }
    lines
}

/// `GPU 3`, `GPUs 1-3, 5`
pub(super) fn gpus(indices: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for index in indices {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*index) => *last = *index,
            Some(_) | None => ranges.push((*index, *index)),
        }
    }
    let texts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    let noun = if indices.len() == 1 { "GPU" } else { "GPUs" };
    format!("{noun} {}", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_that_follow_each_other_are_a_range() {
        let cases: [(&[u32], &str); 4] = [
            (&[3], "GPU 3"),
            (&[1, 2, 3, 5], "GPUs 1-3, 5"),
            (&[0, 2], "GPUs 0, 2"),
            (&[u32::MAX, 0], "GPUs 4294967295, 0"),
        ];
        for (indices, expected) in cases {
            assert_eq!(gpus(indices), expected);
        }
    }
}
