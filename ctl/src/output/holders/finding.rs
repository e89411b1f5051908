//! The findings about memory that no process accounts for, with the evidence and
//! the remedy.

use crate::output::owner_cells::{holder_owner, of_owners};
use crate::output::style::{OutputStyle, Symbols};
use crate::output::text::{Line, Tone, escaped, wrap};
use crate::output::value::{counted, counted_processes};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{Cause, Holder, HolderFinding, HoldersReport, Remedy};
use gpukill_proto::model::OwnerKind;
use std::collections::BTreeSet;

/// The findings of one device, the likeliest first.
pub(in crate::output) fn lines(report: &HoldersReport, style: &OutputStyle) -> Vec<Line> {
    let mut lines = Vec::new();
    for (at, finding) in report.findings.iter().enumerate() {
        lines.push(Line::default());
        let begins = match (at, finding.cause) {
            (_, Cause::Unknown | Cause::BusyWithoutHolder) => "",
            (0, Cause::Unlisted | Cause::Display) => "Perhaps ",
            (0, _) => "Most likely ",
            (_, _) => "Or ",
        };
        let what = match (at, finding.cause) {
            // The findings before have another part.
            (1.., Cause::Unknown) => "who keeps the rest of its memory is not known".to_owned(),
            (_, _) => text(finding, &owner_phrase(finding, report, style.symbols)),
        };
        let what = capitalize(&format!("{begins}{what}."));
        lines.extend(wrapped_lines(&what, Tone::Strong, style));
        let holders: Vec<&Holder> = report.device.holders.iter().collect();
        lines.extend(details(finding, &holders, Some(&report.may_end), style));
    }
    lines
}

/// The evidence and the remedy, with the names of these holders' parents. The caller may end the
/// processes `may_end`; `None` if nobody may end any.
pub(in crate::output) fn details(
    finding: &HolderFinding,
    holders: &[&Holder],
    may_end: Option<&[u32]>,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for item in &finding.evidence {
        lines.extend(bullet(item, style));
    }
    lines.extend(match (&finding.remedy, may_end) {
        (Some(remedy), _) => remedy_lines(finding, remedy, holders, may_end, style),
        (None, Some(may_end)) => end_hint(finding, holders, may_end, style),
        (None, None) => Vec::new(),
    });
    lines
}

/// The finding without a full stop.
pub(in crate::output) fn text(finding: &HolderFinding, owners: &str) -> String {
    let number = finding.pids.len();
    let processes = counted_processes(number);
    let keeps = if number == 1 { "keeps" } else { "keep" };
    match finding.cause {
        Cause::Orphans => {
            let workers = counted(number, "orphaned worker");
            format!("{workers}{owners} {keeps} its memory")
        }
        Cause::TearingDown => {
            format!("memory of {processes} that ended just now is on its way back")
        }
        Cause::Uninterruptible => {
            format!("{processes}{owners} stuck in the kernel {keeps} its memory")
        }
        Cause::Zombie => {
            let verb = if number == 1 { "has" } else { "have" };
            format!("{processes}{owners} that {verb} ended and not been reaped {keeps} its memory")
        }
        Cause::OtherNamespace => {
            // ` of container train` states the place already.
            let container = if owners.starts_with(" of container ") {
                ""
            } else {
                " in a container or namespace"
            };
            format!("{processes}{owners}{container} {keeps} its memory")
        }
        Cause::Mps => "an MPS server keeps memory for its clients".to_owned(),
        Cause::Display => "a display server keeps its memory: it goes with its session".to_owned(),
        Cause::Unlisted => {
            format!("{processes}{owners} that the driver does not list {keeps} its memory")
        }
        Cause::BusyWithoutHolder => "it is busy, and no process holds it".to_owned(),
        Cause::Unknown => "who keeps its memory is not known".to_owned(),
    }
}

/// ` of carol`, ` of carol and dana`; empty when none is known.
fn owner_phrase(finding: &HolderFinding, report: &HoldersReport, symbols: Symbols) -> String {
    let pids: BTreeSet<u32> = finding.pids.iter().copied().into_set();
    let concerned = report.device.holders.iter();
    let concerned = concerned.filter(|holder| pids.contains(&holder.pid));
    let names: BTreeSet<String> = concerned
        .map(|holder| holder_owner(holder, symbols))
        .into_set();
    of_owners(&names.into_iter().collect::<Vec<_>>())
}

fn remedy_lines(
    finding: &HolderFinding,
    remedy: &Remedy,
    holders: &[&Holder],
    may_end: Option<&[u32]>,
    style: &OutputStyle,
) -> Vec<Line> {
    let words = match (remedy, finding.cause) {
        (Remedy::End(pids), _) => {
            let to_lines = |may_end| end_lines(pids, "To free it", holders, may_end, style);
            return may_end.map_or_else(Vec::new, to_lines);
        }
        (Remedy::Reset, _) => "To free it: it needs a reset".to_owned(),
        (Remedy::Reap(parent), _) => {
            let name = parent_name(finding, *parent, holders);
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            format!(
                "To free it: its parent {parent}{name} has to reap it; it goes when \
                 that ends"
            )
        }
        (Remedy::Wait, Cause::Uninterruptible) => {
            "Wait: if it stays so, only a reboot frees it".to_owned()
        }
        (Remedy::Wait, _) => "It frees itself: wait".to_owned(),
    };
    wrapped_lines(&words, Tone::Plain, style)
}

fn parent_name<'a>(
    finding: &HolderFinding,
    parent: u32,
    holders: &[&'a Holder],
) -> Option<&'a String> {
    let mut holders = holders.iter();
    let child = holders.find(|holder| {
        finding.pids.contains(&holder.pid) && holder.parent.known() == Some(&parent)
    })?;
    child.parent_name.known()
}

/// How to end processes that may be working, so that no remedy names them.
fn end_hint(
    finding: &HolderFinding,
    holders: &[&Holder],
    may_end: &[u32],
    style: &OutputStyle,
) -> Vec<Line> {
    match finding.cause {
        Cause::Orphans | Cause::OtherNamespace | Cause::Unlisted => {}
        Cause::Zombie
        | Cause::Uninterruptible
        | Cause::Mps
        | Cause::Display
        | Cause::TearingDown
        | Cause::BusyWithoutHolder
        | Cause::Unknown => return Vec::new(),
    }
    let pids = holders.iter().map(|holder| holder.pid);
    let pids: Vec<u32> = pids.filter(|pid| finding.pids.contains(pid)).collect();
    let purpose = match pids.len() {
        0 => return Vec::new(),
        1 => "If it is no longer needed",
        _ => "If they are no longer needed",
    };
    end_lines(&pids, purpose, holders, may_end, style)
}

/// The command that ends the processes that the caller may end, and the people to ask about the
/// others. A command is not wrapped, so that it can be copied.
fn end_lines(
    pids: &[u32],
    purpose: &str,
    holders: &[&Holder],
    may_end: &[u32],
    style: &OutputStyle,
) -> Vec<Line> {
    /// The table names the owners of all.
    const MAX_ASKED: usize = 3;
    let others = holders.iter().copied();
    let others = others.filter(|it| pids.contains(&it.pid) && !may_end.contains(&it.pid));
    let others: Vec<&Holder> = others.collect();
    let includes_own = pids.iter().any(|pid| may_end.contains(pid));
    let mut lines = Vec::new();
    if includes_own {
        let own = pids
            .iter()
            .filter(|pid| others.iter().all(|it| it.pid != **pid));
        let own: Vec<String> = own.map(u32::to_string).collect();
        let own = own.join(" ");
        lines.push(Line::plain(format!("{purpose}: gpukillctl kill {own}")));
    }
    if !includes_own || !others.is_empty() {
        let people: BTreeSet<&str> = others.iter().filter_map(|it| person(it)).into_set();
        let mut asked: Vec<&str> = people.into_iter().take(MAX_ASKED).collect();
        asked.push("an operator");
        let asked = asked.join(" or ");
        let them = if pids.len() == 1 { "it" } else { "them" };
        let words = match includes_own {
            false => format!("{purpose}, ask {asked} to end {them}"),
            true => format!("About the others, ask {asked}"),
        };
        lines.extend(wrapped_lines(&words, Tone::Plain, style));
    }
    lines
}

/// The person to ask about a process; `None` if only a container is known as its owner.
fn person(holder: &Holder) -> Option<&str> {
    match holder.owner.last_known() {
        Some(owner) => (owner.kind != OwnerKind::Container).then_some(owner.name.as_str()),
        None => holder.user.last_known().map(String::as_str),
    }
}

fn bullet(item: &str, style: &OutputStyle) -> Vec<Line> {
    const INDENT: usize = 4;
    let mut texts = wrap(&escaped(item, style.symbols), INDENT, INDENT, style.width);
    if let Some(first) = texts.first_mut() {
        first.insert_str(0, "  - ");
    }
    let lines = texts.into_iter();
    lines
        .map(|text| Line::with_tone(text, Tone::Faint))
        .collect()
}

fn wrapped_lines(text: &str, tone: Tone, style: &OutputStyle) -> Vec<Line> {
    let texts = wrap(&escaped(text, style.symbols), 0, 0, style.width).into_iter();
    texts.map(|text| Line::with_tone(text, tone)).collect()
}

fn capitalize(text: &str) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) => first.to_uppercase().chain(rest).collect(),
        None => String::new(),
    }
}
