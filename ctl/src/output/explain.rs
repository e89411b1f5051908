//! All that is known of one process, for people.

use super::finding;
use super::guard;
use super::holders::{holds, passed, what};
use super::line::{Line, Tone, shown, wrap};
use super::look::{Look, Symbols};
use super::processes::{command, ended, marked_ended};
use super::rogue;
use super::status::labelled;
use super::value::{clock, gpu, reading, size};
use super::whose::{holder_owner, owner, place};
use gpukill_proto::holders::{
    DeviceLabel, Explanation, Finding, Holder, MayEnd, ProcessState, Role,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{GpuProcess, Parent};
use gpukill_proto::text::{LISTED_BEFORE, duration};
use gpukill_proto::units::{Bytes, Timestamp};

/// The lines of `gpukillctl explain`.
pub(crate) fn lines(explained: &Explanation, look: &Look) -> Vec<Line> {
    let mut lines = wrapped(&title(explained, look.symbols), Tone::Strong, look);
    lines.extend(wrapped(&born(explained, look), Tone::Plain, look));
    lines.push(Line::default());
    for (name, what) in rows(explained, look) {
        // As wide as the longest name that there mostly is, and two blanks.
        lines.extend(labelled(&name, &what, Tone::Plain, 10, look));
    }
    for (index, finding) in &explained.findings {
        lines.push(Line::default());
        lines.extend(found(*index, finding, explained, look));
    }
    lines
}

/// `bob: python -m ipykernel_launcher -f kernel-9a.json`
fn title(explained: &Explanation, symbols: Symbols) -> String {
    if let Some((_, process)) = explained.uses.first() {
        let why = process.start_ticks.failure();
        if why == Some(LISTED_BEFORE) {
            return "listed by the driver since before the process with this pid began".to_owned();
        }
        if why.is_some() {
            return "listed by the driver, and no process here".to_owned();
        }
        let command = command(&process.command, &process.name, symbols);
        let command = marked_ended(process, command);
        return format!("{}: {command}", owner(process, symbols));
    }
    match explained.holds.first() {
        Some((_, holder, _)) => {
            let command = command(&holder.command, &holder.name, symbols);
            format!("{}: {command}", holder_owner(holder, symbols))
        }
        None => explained.pid.to_string(),
    }
}

fn born(explained: &Explanation, look: &Look) -> String {
    let pid = explained.pid;
    let Some((_, process)) = explained.uses.first() else {
        return format!("pid {pid}");
    };
    if process.start_ticks.failure().is_some() {
        return format!("pid {pid}");
    }
    let started = reading(&process.started_at, |at| clock(*at, explained.at, look)).text;
    let ended = process.ended_ago().map(|seconds| {
        let ended = ended(seconds);
        format!(", {ended}: its driver lists its memory still")
    });
    format!("pid {pid}, started {started}{}", ended.unwrap_or_default())
}

fn rows(explained: &Explanation, look: &Look) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, what: String| rows.push((name.to_owned(), what));
    match (explained.uses.first(), explained.holds.first()) {
        (Some((_, process)), _) => {
            row("where", place_and_parents(process, look.symbols));
            let job = reading(&process.job, |job| shown(&job.to_string(), look.symbols));
            row("job", job.text);
            if let Some(network) = network(process) {
                row("network", network);
            }
        }
        (None, Some((_, holder, _))) => row("where", container_and_parent(holder, look.symbols)),
        (None, None) => {}
    }
    let holder = explained.holds.first().map(|(_, holder, _)| holder);
    if let Some(state) = holder.and_then(|holder| unable(holder, look.symbols)) {
        row("state", state);
    }
    for (label, process) in &explained.uses {
        let name = format!("GPU {}", gpu(label.index, process.instance));
        row(&name, uses(process, explained.at, look));
    }
    for (label, holder, role) in &explained.holds {
        row("holds", opened(label, holder, *role, explained.at, look));
    }
    for (name, what) in guard::ruled(&explained.guard, explained.at, look) {
        row(&name, what);
    }
    for (name, what) in rogue::looked(&explained.rogue, look) {
        row(&name, what);
    }
    // What is never ended frees nothing.
    if explained.may_end.never.is_none() {
        row("frees", freed(&explained.frees, &explained.shared_with));
    }
    row("may end", may_end(&explained.may_end, look.symbols));
    rows
}

/// `service: port 8000, 2 connections`; `private: ...`, or why that is not known.
fn network(process: &GpuProcess) -> Option<String> {
    let Some(role) = process.network_role.last_known() else {
        let why = process.network_role.failure()?;
        return Some(format!("not known: {why}"));
    };
    let clients = process.connections.last_known().copied();
    let reached = guard::reached(role, clients);
    let reached = reached.unwrap_or_else(|| "no port that others use".to_owned());
    Some(format!("{}: {reached}", role.name()))
}

/// Why it does nothing by itself now, and why a signal may do nothing to it.
fn unable(holder: &Holder, symbols: Symbols) -> Option<String> {
    match holder.state.last_known()? {
        ProcessState::Uninterruptible(place) => {
            let place = place
                .as_ref()
                .map(|place| format!(" ({})", shown(place, symbols)));
            let place = place.unwrap_or_default();
            Some(format!(
                "stuck in the kernel{place}: no signal reaches it now"
            ))
        }
        ProcessState::Stopped => Some("stopped or traced by somebody, and does nothing".to_owned()),
        ProcessState::Zombie => {
            let parent = reading(&holder.parent, ToString::to_string).text;
            let name = reading(&holder.parent_name, |name| shown(name, symbols)).text;
            Some(format!(
                "has ended, and its parent {parent} ({name}) has not asked how"
            ))
        }
        ProcessState::Running | ProcessState::Sleeping | ProcessState::Other(_) => None,
    }
}

fn freed(frees: &Reading<Bytes>, shared_with: &[u32]) -> String {
    // So many are named; whoever wants all reads the rows of `holders`.
    const NAMED: usize = 4;
    let mut others: Vec<String> = shared_with.iter().take(NAMED).map(u32::to_string).collect();
    match shared_with.len().saturating_sub(NAMED) {
        0 => {}
        more => others.push(format!("{more} more")),
    }
    let have = if shared_with.len() == 1 {
        "has"
    } else {
        "have"
    };
    let rest = others.join(", ");
    match (frees, shared_with) {
        (Reading::Value(bytes), []) => format!("at least {}, when it ends", size(*bytes)),
        (_, []) => "how much is not known, when it ends".to_owned(),
        (Reading::Value(bytes), _) => {
            let own = size(*bytes);
            format!("at least {own}, when it ends; the rest when {rest} {have} ended too")
        }
        (Reading::Unsupported, _) => format!("nothing before {rest} {have} ended too"),
        (Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld, _) => {
            format!("how much is not known; the rest when {rest} {have} ended too")
        }
    }
}

fn place_and_parents(process: &GpuProcess, symbols: Symbols) -> String {
    let place = reading(&place(&process.place), |place| {
        place
            .clone()
            .unwrap_or_else(|| "in no session or container".to_owned())
    });
    let parents: Vec<String> = process.parents.iter().map(parent).collect();
    if parents.is_empty() {
        return place.text;
    }
    let dot = symbols.dot();
    format!("{}{dot}parents: {}", place.text, parents.join(", "))
}

fn parent(parent: &Parent) -> String {
    format!("{} {}", parent.name, parent.key.pid)
}

fn container_and_parent(holder: &Holder, symbols: Symbols) -> String {
    let container = reading(&holder.container, |container| match container {
        Some(container) => container.to_string(),
        None => "in no container".to_owned(),
    });
    let parent = reading(&holder.parent, ToString::to_string).text;
    let name = reading(&holder.parent_name, Clone::clone).text;
    let dot = symbols.dot();
    format!("{}{dot}parent: {name} {parent}", container.text)
}

/// What it does with one device.
fn uses(process: &GpuProcess, at: Timestamp, look: &Look) -> String {
    let memory = reading(&process.memory, |bytes| size(*bytes)).text;
    let length = reading(&process.first_seen, |first| duration(at.since(*first))).text;
    let busy = reading(&process.utilization, |percent| format!("{}%", percent.0)).text;
    let active = match &process.last_active {
        Reading::Value(Some(moment)) => format!("last used {}", clock(*moment, at, look)),
        Reading::Value(None) => "not used since it was first seen".to_owned(),
        Reading::Stale(Some(moment), _) => format!("last used ~{}", clock(*moment, at, look)),
        unknown => format!("last used {}", reading(unknown, |_| "?".to_owned()).text),
    };
    format!("{memory} for {length}, utilisation {busy}, {active}")
}

/// What it has open, and what it is to the device where no driver says.
fn opened(label: &DeviceLabel, holder: &Holder, role: Role, at: Timestamp, look: &Look) -> String {
    let (index, dot) = (label.index, look.symbols.dot());
    let files = match holder.holds.is_empty() {
        // The driver alone tells of it.
        true => "no device file was seen open".to_owned(),
        false => holds(holder, look.symbols),
    };
    match role {
        Role::User => match &holder.passed_from {
            Some(first) => format!("GPU {index}: {files}{dot}{}", passed(holder.pid, *first)),
            None => format!("GPU {index}: {files}"),
        },
        Role::MpsClient
        | Role::Mps
        | Role::Display
        | Role::Monitor
        | Role::Gone
        | Role::Orphan { .. }
        | Role::OtherNamespace
        | Role::Zombie
        | Role::Uninterruptible
        | Role::Unlisted
        | Role::Sharer
        | Role::Passed => {
            format!("GPU {index}: {files}{dot}{}", what(holder, role, at, look))
        }
    }
}

fn may_end(may_end: &MayEnd, symbols: Symbols) -> String {
    if let Some(why) = &may_end.never {
        return format!("nobody: {why}");
    }
    let you = if may_end.you {
        "you may"
    } else {
        "you may not"
    };
    format!("{}{}{you}", may_end.people.join(", "), symbols.dot())
}

/// A finding that names it.
fn found(index: u32, finding: &Finding, explained: &Explanation, look: &Look) -> Vec<Line> {
    let whose = explained.holds.first().map(|(_, holder, _)| holder);
    let whose = whose.filter(|_| finding.pids.len() == 1);
    let whose = whose.map(|holder| format!(" of {}", holder_owner(holder, look.symbols)));
    let what = finding::sentence(finding, &whose.unwrap_or_default());
    let mut lines = wrapped(&format!("GPU {index}: {what}."), Tone::Strong, look);
    let holders: Vec<&Holder> = explained
        .holds
        .iter()
        .map(|(_, holder, _)| holder)
        .collect();
    lines.extend(finding::details(finding, &holders, look));
    lines
}

fn wrapped(text: &str, tone: Tone, look: &Look) -> Vec<Line> {
    let texts = wrap(&shown(text, look.symbols), 0, 2, look.width);
    texts
        .into_iter()
        .map(|text| Line::toned(text, tone))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_free_only_when_all_who_share_it_have_ended() {
        let known = Reading::Value(Bytes::mib(2048));
        let unknown = Reading::Unsupported;
        let failed = Reading::Failed("x".into());
        let cases: [(&Reading<Bytes>, &[u32], &str); 7] = [
            (&known, &[], "at least 2.0G, when it ends"),
            (&unknown, &[], "how much is not known, when it ends"),
            (&failed, &[], "how much is not known, when it ends"),
            (&unknown, &[7], "nothing before 7 has ended too"),
            (
                &unknown,
                &[7, 8, 9, 10, 11, 12],
                "nothing before 7, 8, 9, 10, 2 more have ended too",
            ),
            (
                &known,
                &[7],
                "at least 2.0G, when it ends; the rest when 7 has ended too",
            ),
            (
                &failed,
                &[7, 8],
                "how much is not known; the rest when 7, 8 have ended too",
            ),
        ];
        for (frees, shared_with, expected) in cases {
            assert_eq!(freed(frees, shared_with), expected);
        }
    }
}
