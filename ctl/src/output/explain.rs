//! The output of `explain`, for people.

use super::audit::summary::{hours, percent};
use super::guard;
use super::holders::finding;
use super::holders::{open_files, passed_text, role_text};
use super::list::processes::{command_line, ended_text, with_end_time};
use super::owner_cells::{holder_owner, location, process_owner};
use super::rogue;
use super::status::labelled;
use super::style::{OutputStyle, Symbols};
use super::text::{Line, Tone, escaped, escaped_lines};
use super::value::{clock, gpu, percent_cell, reading, size};
use gpukill_proto::audit::AuditSummary;
use gpukill_proto::guard::GuardMode;
use gpukill_proto::holders::{
    DeviceLabel, EndPermission, Explanation, Holder, HolderFinding, ProcessState, Role,
};
use gpukill_proto::model::{Ancestor, GpuProcess};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::{LISTED_BEFORE_START, format_duration};
use gpukill_proto::units::{Bytes, Timestamp};
use std::time::Duration;

/// How much `explain` shows of a process that is not suspicious.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExplainDetail {
    /// One sentence.
    Usual,
    /// The score, the indicators, and what could not be examined.
    All,
}

/// The lines of `gpukillctl explain`.
pub(crate) fn lines(
    explained: &Explanation,
    detail: ExplainDetail,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut lines = escaped_lines(&title(explained, style.symbols), Tone::Strong, style);
    let started = start_text(explained, style);
    lines.extend(escaped_lines(&started, Tone::Plain, style));
    lines.push(Line::default());
    for (name, what) in rows(explained, detail, style) {
        lines.extend(labelled(&name, &what, Tone::Plain, NAME_WIDTH, style));
    }
    for (index, finding) in &explained.findings {
        lines.push(Line::default());
        lines.extend(finding_lines(*index, finding, explained, style));
    }
    lines
}

/// As wide as the longest usual name, and two blanks.
const NAME_WIDTH: usize = 10;

/// The last lines of `gpukillctl explain`: the usage of the job since the process was first seen.
pub(crate) fn history_lines(
    history: &AuditSummary,
    at: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    match history_text(history, at, style) {
        Some(text) => labelled("history", &text, Tone::Plain, NAME_WIDTH, style),
        None => Vec::new(),
    }
}

/// The owner and the command: `bob: python -m ipykernel_launcher -f kernel-9a.json`
fn title(explained: &Explanation, symbols: Symbols) -> String {
    if let Some((_, process)) = explained.uses.first() {
        let why = process.start_ticks.failure();
        if why == Some(LISTED_BEFORE_START) {
            return "listed by the driver since before the process with this pid began".to_owned();
        }
        if why.is_some() {
            return "listed by the driver, and no process here".to_owned();
        }
        let command = command_line(&process.command, &process.name, symbols);
        let command = with_end_time(process, command);
        return format!("{}: {command}", process_owner(process, symbols));
    }
    match explained.holds.first() {
        Some((_, holder, _)) => {
            let command = command_line(&holder.command, &holder.name, symbols);
            format!("{}: {command}", holder_owner(holder, symbols))
        }
        None => explained.pid.to_string(),
    }
}

fn start_text(explained: &Explanation, style: &OutputStyle) -> String {
    let pid = explained.pid;
    let Some((_, process)) = explained.uses.first() else {
        return format!("pid {pid}");
    };
    if process.start_ticks.failure().is_some() {
        return format!("pid {pid}");
    }
    let started = reading(&process.started_at, |at| clock(*at, explained.at, style)).text;
    let ended = process.seconds_since_end().map(|seconds| {
        let ended = ended_text(seconds);
        format!(", {ended}: its driver lists its memory still")
    });
    format!("pid {pid}, started {started}{}", ended.unwrap_or_default())
}

fn rows(
    explained: &Explanation,
    detail: ExplainDetail,
    style: &OutputStyle,
) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, what: String| rows.push((name.to_owned(), what));
    match (explained.uses.first(), explained.holds.first()) {
        (Some((_, process)), _) => {
            row("where", location_text(process, style.symbols));
            let job = reading(&process.job, |job| escaped(&job.to_string(), style.symbols));
            row("job", job.text);
            if let Some(network) = network_text(process, explained) {
                row("network", network);
            }
        }
        (None, Some((_, holder, _))) => row("where", holder_location_text(holder, style.symbols)),
        (None, None) => {}
    }
    let holder = explained.holds.first().map(|(_, holder, _)| holder);
    if let Some(state) = holder.and_then(|holder| blocked_text(holder, style.symbols)) {
        row("state", state);
    }
    for (label, process) in &explained.uses {
        let name = format!("GPU {}", gpu(label.index, process.instance));
        row(&name, use_text(process, explained.at, style));
    }
    for (label, holder, role) in &explained.holds {
        row(
            "holds",
            open_text(label, holder, *role, explained.at, style),
        );
    }
    if let Some(files) = files_text(&explained.files_read_at) {
        row("files", files);
    }
    for (name, what) in guard::ruled(&explained.guard, explained.at, style) {
        row(&name, what);
    }
    for (name, what) in rogue::looked(&explained.rogue, detail, style) {
        row(&name, what);
    }
    // A process that is never ended frees nothing.
    if explained.may_end.never_reason.is_none() {
        row(
            "frees",
            freed_text(&explained.frees, &explained.shared_with),
        );
    }
    row(
        "may end",
        permission_text(&explained.may_end, style.symbols),
    );
    rows
}

/// `service on port 8000, 2 connections in the last minute`, and what that means for the guard;
/// `private: ...`, or why the role is not known.
fn network_text(process: &GpuProcess, explained: &Explanation) -> Option<String> {
    let Some(role) = process.network_role.last_known() else {
        let why = process.network_role.failure()?;
        return Some(format!("not known: {why}"));
    };
    let clients = process.connections.last_known().copied();
    let Some(mut text) = guard::reachability(role, clients) else {
        return Some(format!("{}: no port that others use", role.name()));
    };
    text.insert_str(0, &format!("{} on ", role.name()));
    if clients.is_some() {
        text.push_str(" in the last minute");
    }
    let is_judged = explained.guard.last_known();
    if is_judged.is_some_and(|guard| guard.mode != GuardMode::Disabled) {
        if clients.is_some_and(|clients| clients > 0) {
            text.push_str("; a job with clients is not idle");
        }
        if role.is_service() {
            text.push_str("; idle and waste rules only warn of a service by default");
        }
    }
    Some(text)
}

/// `job: 9.7 GPU-hours since 04:32:31, 2 % busy`; `None` without samples of the job.
fn history_text(history: &AuditSummary, at: Timestamp, style: &OutputStyle) -> Option<String> {
    let used = history.owners.iter().map(|owner| &owner.used);
    let (busy, total) = used.fold((0_u64, 0_u64), |(busy, total), used| {
        let total = total.saturating_add(used.total_ms());
        (busy.saturating_add(used.busy_ms), total)
    });
    (total > 0).then(|| {
        let (hours, busy) = (hours(total), percent(busy, total));
        let since = clock(history.since, at, style);
        format!("job: {hours} GPU-hours since {since}, {busy} busy")
    })
}

/// Why the process is not running now, and why a signal may have no effect.
fn blocked_text(holder: &Holder, symbols: Symbols) -> Option<String> {
    match holder.state.last_known()? {
        ProcessState::Uninterruptible(function) => {
            let function = function
                .as_ref()
                .map(|function| format!(" ({})", escaped(function, symbols)));
            let function = function.unwrap_or_default();
            Some(format!(
                "stuck in the kernel{function}: no signal reaches it now"
            ))
        }
        ProcessState::Stopped => Some("stopped or traced, and not running".to_owned()),
        ProcessState::Zombie => {
            let parent = reading(&holder.parent, ToString::to_string).text;
            let name = reading(&holder.parent_name, |name| escaped(name, symbols)).text;
            Some(format!(
                "has ended, and its parent {parent} ({name}) has not reaped it"
            ))
        }
        ProcessState::Running | ProcessState::Sleeping | ProcessState::Other(_) => None,
    }
}

fn freed_text(frees: &Reading<Bytes>, shared_with: &[u32]) -> String {
    // The number of pids to name; `holders` lists all.
    const NAMED: usize = 4;
    let mut sharers: Vec<String> = shared_with.iter().take(NAMED).map(u32::to_string).collect();
    match shared_with.len().saturating_sub(NAMED) {
        0 => {}
        more => sharers.push(format!("{more} more")),
    }
    let verb = if shared_with.len() == 1 {
        "has"
    } else {
        "have"
    };
    let sharers = sharers.join(", ");
    match (frees, shared_with) {
        (Reading::Value(bytes), []) => format!("at least {}, when it ends", size(*bytes)),
        (_, []) => "how much is not known, when it ends".to_owned(),
        (Reading::Value(bytes), _) => {
            let own = size(*bytes);
            format!("at least {own}, when it ends; the rest when {sharers} {verb} ended too")
        }
        (Reading::Unsupported, _) => format!("nothing before {sharers} {verb} ended too"),
        (Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld, _) => {
            format!("how much is not known; the rest when {sharers} {verb} ended too")
        }
    }
}

fn location_text(process: &GpuProcess, symbols: Symbols) -> String {
    let location = reading(&location(&process.location), |text| {
        text.clone()
            .unwrap_or_else(|| "in no session or container".to_owned())
    });
    let parents: Vec<String> = process.parents.iter().map(parent).collect();
    if parents.is_empty() {
        return location.text;
    }
    let dot = symbols.separator();
    format!("{}{dot}parents: {}", location.text, parents.join(", "))
}

fn parent(parent: &Ancestor) -> String {
    format!("{} {}", parent.name, parent.key.pid)
}

fn holder_location_text(holder: &Holder, symbols: Symbols) -> String {
    let container = reading(&holder.container, |container| match container {
        Some(container) => container.to_string(),
        None => "in no container".to_owned(),
    });
    let parent = reading(&holder.parent, ToString::to_string).text;
    let name = reading(&holder.parent_name, Clone::clone).text;
    let dot = symbols.separator();
    format!("{}{dot}parent: {name} {parent}", container.text)
}

fn use_text(process: &GpuProcess, at: Timestamp, style: &OutputStyle) -> String {
    let memory = reading(&process.memory, |bytes| size(*bytes)).text;
    let length = reading(&process.first_seen, |first| {
        format_duration(at.since(*first))
    })
    .text;
    let busy = percent_cell(&process.utilization).text;
    let active = match &process.last_active {
        Reading::Value(Some(moment)) => format!("last used {}", clock(*moment, at, style)),
        Reading::Value(None) => "not used since it was first seen".to_owned(),
        Reading::Stale(Some(moment), _) => format!("last used ~{}", clock(*moment, at, style)),
        unknown => format!("last used {}", reading(unknown, |_| "?".to_owned()).text),
    };
    format!("{memory} for {length}, utilization {busy}, {active}")
}

/// The files that the process has open, and its role when no driver lists it.
fn open_text(
    label: &DeviceLabel,
    holder: &Holder,
    role: Role,
    at: Timestamp,
    style: &OutputStyle,
) -> String {
    let (index, dot) = (label.index, style.symbols.separator());
    let files = match holder.holds.is_empty() {
        // Only the driver reports the process.
        true => "no device file was seen open".to_owned(),
        false => open_files(holder, style.symbols),
    };
    match role {
        Role::User => match &holder.passed_from {
            Some(first) => format!(
                "GPU {index}: {files}{dot}{}",
                passed_text(holder.pid, *first)
            ),
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
        | Role::SharedClient
        | Role::Passed => {
            format!(
                "GPU {index}: {files}{dot}{}",
                role_text(holder, role, at, style)
            )
        }
    }
}

/// Why the process may have other files open than those shown.
fn files_text(read_at: &Reading<Timestamp>) -> Option<String> {
    match read_at {
        Reading::Stale(_, seconds) => {
            let age = format_duration(Duration::from_secs((*seconds).into()));
            Some(format!("checked {age} ago, and not readable now"))
        }
        Reading::Failed(why) => Some(format!("it may have others open: {why}")),
        Reading::Value(_) | Reading::Unsupported | Reading::Withheld => None,
    }
}

fn permission_text(permission: &EndPermission, symbols: Symbols) -> String {
    if let Some(why) = &permission.never_reason {
        return format!("nobody: {why}");
    }
    let caller = if permission.includes_caller {
        "you may"
    } else {
        "you may not"
    };
    let people = permission.people.join(", ");
    format!("{people}{}{caller}", symbols.separator())
}

/// A finding about the process.
fn finding_lines(
    index: u32,
    finding: &HolderFinding,
    explained: &Explanation,
    style: &OutputStyle,
) -> Vec<Line> {
    let only_holder = explained.holds.first().map(|(_, holder, _)| holder);
    let only_holder = only_holder.filter(|_| finding.pids.len() == 1);
    let only_holder =
        only_holder.map(|holder| format!(" of {}", holder_owner(holder, style.symbols)));
    let what = finding::text(finding, &only_holder.unwrap_or_default());
    let mut lines = escaped_lines(&format!("GPU {index}: {what}."), Tone::Strong, style);
    let holders: Vec<&Holder> = explained
        .holds
        .iter()
        .map(|(_, holder, _)| holder)
        .collect();
    let permission = &explained.may_end;
    let own = permission.includes_caller.then_some(explained.pid);
    let may_end = match permission.never_reason {
        Some(_) => None,
        None => Some(own.as_slice()),
    };
    lines.extend(finding::details(finding, &holders, may_end, style));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{NOW, style};
    use super::*;
    use gpukill_proto::audit::{OwnerTime, UsageTotals};

    #[test]
    fn history_sums_up_the_job() {
        let hour = 3_600_000;
        let used = |busy_ms, idle_ms| OwnerTime {
            owner: None,
            used: UsageTotals {
                busy_ms,
                idle_ms,
                ..UsageTotals::default()
            },
        };
        let history = |owners| AuditSummary {
            since: NOW.plus_seconds(-34_200),
            owners,
            ..AuditSummary::default()
        };
        let text = |owners| history_text(&history(owners), NOW, &style(None));
        let expected = "job: 9.7 GPU-hours since 04:32:31, 25 % busy";
        let owners = vec![
            used(2 * hour, 7 * hour),
            used(hour * 42 / 100, hour * 28 / 100),
        ];
        assert_eq!(text(owners).as_deref(), Some(expected));
        // Without samples nothing is known.
        assert_eq!(text(Vec::new()), None);
    }

    #[test]
    fn files_that_cannot_be_read_now_have_an_age() {
        let at = Timestamp(1_000);
        let text = |reading| files_text(&reading);
        assert_eq!(text(Reading::Value(at)), None);
        assert_eq!(
            text(Reading::Stale(at, 40)).as_deref(),
            Some("checked 40s ago, and not readable now")
        );
        assert_eq!(
            text(Reading::Failed("not permitted".into())).as_deref(),
            Some("it may have others open: not permitted")
        );
    }

    #[test]
    fn shared_memory_is_freed_when_all_sharers_end() {
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
            assert_eq!(freed_text(frees, shared_with), expected);
        }
    }
}
