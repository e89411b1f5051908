//! Whose the memory is that no process explains: the findings in sentences, what
//! says so, and what frees it.

use super::line::{Line, Tone, shown, wrap};
use super::look::{Look, Symbols};
use super::value::counted;
use super::whose::holder_owner;
use gpukill_proto::holders::{Cause, Finding, Holder, HoldersReport, Remedy};
use std::collections::BTreeSet;

/// The findings of one device, the likeliest first.
pub(super) fn lines(report: &HoldersReport, look: &Look) -> Vec<Line> {
    let mut lines = Vec::new();
    for (at, finding) in report.findings.iter().enumerate() {
        lines.push(Line::default());
        let begins = match (at, finding.cause) {
            (_, Cause::Unknown | Cause::BusyAlone) => "",
            (0, Cause::Unlisted | Cause::Display) => "Perhaps ",
            (0, _) => "Most likely ",
            (_, _) => "Or ",
        };
        let what = match (at, finding.cause) {
            // What came before it has another part.
            (1.., Cause::Unknown) => "who keeps the rest of its memory is not known".to_owned(),
            (_, _) => sentence(finding, &owners(finding, report, look.symbols)),
        };
        let what = capital(&format!("{begins}{what}."));
        lines.extend(wrapped(&what, 0, Tone::Strong, look));
        let holders: Vec<&Holder> = report.device.holders.iter().collect();
        lines.extend(details(finding, &holders, look));
    }
    lines
}

/// What says so, and what frees it, with the names of these holders' parents.
pub(super) fn details(finding: &Finding, holders: &[&Holder], look: &Look) -> Vec<Line> {
    let mut lines = Vec::new();
    for said in &finding.evidence {
        lines.extend(bullet(said, look));
    }
    lines.extend(match &finding.remedy {
        Some(remedy) => frees(finding, remedy, holders, look),
        None => whoever_may(finding, look),
    });
    lines
}

/// What was found, in one sentence without its end.
pub(super) fn sentence(finding: &Finding, owners: &str) -> String {
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
            // ` of container train` says where already.
            let place = if owners.starts_with(" of container ") {
                ""
            } else {
                " in a container or namespace"
            };
            format!("{processes}{owners}{place} {keeps} its memory")
        }
        Cause::Mps => "an MPS server keeps memory for its clients".to_owned(),
        Cause::Display => "a display server keeps its memory: it goes with its session".to_owned(),
        Cause::Unlisted => {
            format!("{processes}{owners} that the driver does not list {keeps} its memory")
        }
        Cause::BusyAlone => "it works, and nobody holds it".to_owned(),
        Cause::Unknown => "who keeps its memory is not known".to_owned(),
    }
}

fn counted_processes(number: usize) -> String {
    match number {
        1 => "1 process".to_owned(),
        several => format!("{several} processes"),
    }
}

/// ` of carol`, ` of carol and dana`; empty where several are or none is known.
fn owners(finding: &Finding, report: &HoldersReport, symbols: Symbols) -> String {
    let pids: BTreeSet<u32> = finding.pids.iter().copied().collect();
    let meant = report.device.holders.iter();
    let meant = meant.filter(|holder| pids.contains(&holder.pid));
    let names: BTreeSet<String> = meant.map(|holder| holder_owner(holder, symbols)).collect();
    match names.into_iter().collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        [one] => format!(" of {one}"),
        [one, other] => format!(" of {one} and {other}"),
        several => format!(" of {} users", several.len()),
    }
}

/// What frees it. A command is not wrapped, so that it can be copied.
fn frees(finding: &Finding, remedy: &Remedy, holders: &[&Holder], look: &Look) -> Vec<Line> {
    let words = match (remedy, finding.cause) {
        (Remedy::End(pids), _) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let pids = pids.join(" ");
            return vec![Line::plain(format!("To free it: gpukillctl kill {pids}"))];
        }
        (Remedy::Reset, _) => "To free it: it needs a reset".to_owned(),
        (Remedy::Reap(parent), _) => {
            let name = parent_name(finding, *parent, holders);
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            format!(
                "To free it: its parent {parent}{name} has to ask how it ended; it goes when \
                 that ends"
            )
        }
        (Remedy::Wait, Cause::Uninterruptible) => {
            "Wait: if it stays so, only a reboot frees it".to_owned()
        }
        (Remedy::Wait, _) => "It frees itself: wait".to_owned(),
    };
    wrapped(&words, 0, Tone::Plain, look)
}

fn parent_name<'a>(finding: &Finding, parent: u32, holders: &[&'a Holder]) -> Option<&'a String> {
    let mut holders = holders.iter();
    let child = holders.find(|holder| {
        finding.pids.contains(&holder.pid) && holder.parent.known() == Some(&parent)
    })?;
    child.parent_name.known()
}

/// Who could end what no command names: it may be at work.
fn whoever_may(finding: &Finding, look: &Look) -> Vec<Line> {
    match (finding.cause, finding.pids.len()) {
        (Cause::Orphans | Cause::OtherNamespace | Cause::Unlisted, number) => {
            let words = if number == 1 {
                "If it is nobody's any more, its owner can end it"
            } else {
                "If they are nobody's any more, their owners can end them"
            };
            wrapped(words, 0, Tone::Plain, look)
        }
        (
            Cause::Zombie
            | Cause::Uninterruptible
            | Cause::Mps
            | Cause::Display
            | Cause::TearingDown
            | Cause::BusyAlone
            | Cause::Unknown,
            _,
        ) => Vec::new(),
    }
}

fn bullet(said: &str, look: &Look) -> Vec<Line> {
    const INDENT: usize = 4;
    let mut texts = wrap(&shown(said, look.symbols), INDENT, INDENT, look.width);
    if let Some(first) = texts.first_mut() {
        first.insert_str(0, "  - ");
    }
    let lines = texts.into_iter();
    lines.map(|text| Line::toned(text, Tone::Faint)).collect()
}

fn wrapped(text: &str, indent: usize, tone: Tone, look: &Look) -> Vec<Line> {
    let texts = wrap(&shown(text, look.symbols), indent, indent, look.width);
    texts
        .into_iter()
        .map(|text| Line::toned(text, tone))
        .collect()
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) => first.to_uppercase().chain(rest).collect(),
        None => String::new(),
    }
}
