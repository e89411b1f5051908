//! The text that the guard writes to a person's terminals: the broken rule, by how much,
//! when a job is ended for it, and what to do. Processes of other people are only mentioned
//! as existing.

#[cfg(test)]
mod tests;
mod words;

use super::schedule::{LocalTime, Weekday};
use gpukill_proto::guard::{
    EvidenceProcess, GuardMode, GuardRecord, GuardStep, Victim, ViolationSubject, WarnedOwner,
};
use gpukill_proto::text::{format_duration, sanitize};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;
use words::{advice, describe_measurement, describe_processes};

/// The maximum number of lines, so that the text covers little of what the person works on.
pub const MAX_LINES: usize = 6;

/// The maximum number of bytes of a line, and so of its columns: a terminal of 80 columns
/// shows it as one line.
pub const MAX_COLUMNS: usize = 78;

/// The indentation of a line, the width of its label, and the room for its text.
const INDENT: usize = 2;
const LABEL_WIDTH: usize = 9;
const TEXT_WIDTH: usize = MAX_COLUMNS - INDENT - LABEL_WIDTH - " ".len();

/// How many bytes of the name of a host, of a job and of a rule are shown.
const HOST_BYTES: usize = 24;
const JOB_BYTES: usize = 26;
const SOURCE_BYTES: usize = 12;

/// The users who get a notice of a step: the owners of the processes that it is about, if
/// the mode acts.
#[must_use]
pub fn recipients(record: &GuardRecord) -> BTreeSet<u32> {
    match record.mode {
        GuardMode::Disabled | GuardMode::DryRun => BTreeSet::new(),
        GuardMode::Soft | GuardMode::Enforce => {
            if let GuardStep::SnoozeVoided { owner, .. } = record.step {
                return BTreeSet::from([owner]);
            }
            let (runs, _) = reported_processes(record);
            runs.iter().filter_map(owner_uid).collect()
        }
    }
}

/// A notice of a step for one person.
#[derive(Debug, Clone, Copy)]
pub struct Notice<'a> {
    /// The step.
    pub record: &'a GuardRecord,
    /// The recipient: one of [`recipients`].
    pub uid: u32,
    /// The name of the host.
    pub host: &'a str,
    /// The maximum number of warnings.
    pub max_warnings: u32,
    /// The recipient's own deadline and remaining snoozes.
    pub reader: Option<WarnedOwner>,
}

impl Notice<'_> {
    /// The text: at most [`MAX_LINES`] lines of at most [`MAX_COLUMNS`] columns, each
    /// ending in `\n`, without other control characters. `to_local_time` returns the local
    /// time of the host. `None` if the step does not concern the recipient.
    #[must_use]
    pub fn text(&self, to_local_time: impl Fn(Timestamp) -> LocalTime) -> Option<String> {
        if let GuardStep::SnoozeVoided { owner, until } = self.record.step {
            return (owner == self.uid).then(|| self.voided_snooze_text(until, to_local_time));
        }
        let own = OwnProcesses::from_record(self.record, self.uid)?;
        let lines = match &self.record.step {
            GuardStep::Warned { times, deadline } => {
                self.warning_lines(&own, *times, *deadline, to_local_time)
            }
            GuardStep::Ended(victim) => self.end_lines(&own, victim),
            GuardStep::SnoozeVoided { .. }
            | GuardStep::Violated
            | GuardStep::Exempt(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::Outcome(_)
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => return None,
        };
        Some(finish_text(lines, self.record.message.as_deref()))
    }

    fn warning_lines(
        &self,
        own: &OwnProcesses<'_>,
        times: u32,
        deadline: Option<Timestamp>,
        to_local_time: impl Fn(Timestamp) -> LocalTime,
    ) -> Vec<String> {
        let host = truncate(self.host, HOST_BYTES);
        let of = match self.max_warnings {
            max if times <= max => format!(" of {max}"),
            // A person who joins later is warned in addition.
            _ => String::new(),
        };
        let mut lines = vec![format!("gpukill on {host}: warning {times}{of}")];
        lines.extend([self.rule_line(), own.process_line()]);
        let mut to_do = advice(self.record.rule.kind).to_owned();
        match deadline {
            Some(first) => {
                let deadline = self.reader.map_or(first, |own| own.deadline);
                let when = format_deadline(self.record.at, deadline, to_local_time);
                let what = own.describe_end(&self.record.subject);
                lines.push(format_line(
                    &when,
                    &format!("{what} is ended if this goes on"),
                ));
                if self.reader.is_some_and(|own| own.snoozes_left > 0) {
                    let pid = own.first.run.pid;
                    to_do.push_str(&format!(", or: gpukillctl guard snooze {pid}"));
                }
            }
            None => lines[0].push_str(", nothing is ended for it"),
        }
        lines.push(format_line("to do", &to_do));
        lines
    }

    /// Reports that a snooze no longer keeps the recipient's jobs from being ended.
    fn voided_snooze_text(
        &self,
        until: Timestamp,
        to_local_time: impl Fn(Timestamp) -> LocalTime,
    ) -> String {
        let host = truncate(self.host, HOST_BYTES);
        let rule = truncate(&self.record.rule.to_string(), TEXT_WIDTH);
        let when = format_deadline(self.record.at, until, to_local_time);
        let lines = vec![
            format!("gpukill on {host}: your snooze is void: its rule was removed"),
            format_line("rule", &rule),
            format_line(
                "until",
                &format!("{when}: other rules may end your jobs earlier"),
            ),
            format_line("more", LIST_COMMAND),
        ];
        finish_text(lines, None)
    }

    /// Announces the end of a job. The outcome is not known here.
    fn end_lines(&self, own: &OwnProcesses<'_>, victim: &Victim) -> Vec<String> {
        let (host, job) = (
            truncate(self.host, HOST_BYTES),
            truncate(&victim.job.shown, JOB_BYTES),
        );
        let (first, last) = match victim.leave_to.as_deref() {
            None => (
                format!("gpukill on {host} ends your job ({job})"),
                vec![format_line("more", LIST_COMMAND)],
            ),
            Some(command) => (
                format!("gpukill on {host}: please end your job ({job})"),
                command_lines(command),
            ),
        };
        let mut lines = vec![first, self.rule_line(), own.process_line()];
        lines.extend(last);
        lines
    }

    /// `rule      user bob: idle for at most 2h 0m, now 2h 5m`
    fn rule_line(&self) -> String {
        let rule = &self.record.rule;
        let measurement = describe_measurement(rule.kind, &self.record.evidence);
        let room = (TEXT_WIDTH - ": ".len()).saturating_sub(measurement.len());
        let source = truncate(&rule.source.to_string(), room.max(SOURCE_BYTES));
        format_line("rule", &format!("{source}: {measurement}"))
    }
}

/// A notice in place of this many others.
#[must_use]
pub fn summarize_rest(host: &str, more: usize) -> String {
    let host = truncate(host, HOST_BYTES);
    let first = format!("gpukill on {host}: {more} more like this");
    finish_text(vec![first, format_line("more", LIST_COMMAND)], None)
}

/// The command that lists all violations.
const LIST_COMMAND: &str = "gpukillctl guard violations";

/// The processes that a step is about, and their total number.
fn reported_processes(record: &GuardRecord) -> (&[EvidenceProcess], u32) {
    match &record.step {
        GuardStep::Warned { .. } => (&record.evidence.runs, record.evidence.count),
        GuardStep::Ended(victim) => (&victim.runs, victim.count),
        GuardStep::Violated
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Outcome(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (&[], 0),
    }
}

fn owner_uid(process: &EvidenceProcess) -> Option<u32> {
    process.owner.as_ref()?.uid
}

/// The processes of one person.
struct OwnProcesses<'a> {
    /// The process that holds most.
    first: &'a EvidenceProcess,
    runs: Vec<&'a EvidenceProcess>,
    /// The person has no other processes.
    is_complete: bool,
    /// The measured value includes processes of other people.
    is_shared: bool,
}

impl<'a> OwnProcesses<'a> {
    fn from_record(record: &'a GuardRecord, uid: u32) -> Option<Self> {
        let is_own = |process: &&EvidenceProcess| owner_uid(process) == Some(uid);
        let (processes, count) = reported_processes(record);
        let runs: Vec<&EvidenceProcess> = processes.iter().filter(is_own).collect();
        let measured = &record.evidence;
        let own_measured = measured.runs.iter().filter(is_own).count();
        Some(Self {
            first: runs.first()?,
            runs,
            is_complete: processes.len() >= count as usize,
            is_shared: match record.subject {
                ViolationSubject::Group(_)
                | ViolationSubject::GroupOn(..)
                | ViolationSubject::Device(_) => own_measured < measured.count as usize,
                ViolationSubject::Person(_)
                | ViolationSubject::PersonOn(..)
                | ViolationSubject::Job(_)
                | ViolationSubject::Run(_) => false,
            },
        })
    }

    /// `what      pid 51002 python on GPU 5 (48.3 GiB), 3 more, with others'`
    fn process_line(&self) -> String {
        let mut what = describe_processes(&self.runs, self.is_complete);
        if self.is_shared {
            what.push_str(", with others'");
        }
        format_line("what", &what)
    }

    /// Which job is ended, as far as that is known: `your job (session 3)`.
    fn describe_end(&self, subject: &ViolationSubject) -> String {
        let named = |process: &EvidenceProcess| match &process.job {
            Some(job) => format!("your job ({})", truncate(job, JOB_BYTES)),
            None => "this process".to_owned(),
        };
        let is_one_job = match subject {
            ViolationSubject::Job(_) | ViolationSubject::Run(_) => true,
            ViolationSubject::Person(_)
            | ViolationSubject::PersonOn(..)
            | ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_) => self.is_complete && self.is_one_job(),
        };
        match (self.is_shared, is_one_job) {
            (true, _) => "a job, yours or another's,".to_owned(),
            (false, true) => named(self.first),
            (false, false) => "one of your jobs".to_owned(),
        }
    }

    /// A process without a job counts as a job of its own.
    fn is_one_job(&self) -> bool {
        let job = |process: &'a EvidenceProcess| match &process.job {
            Some(job) => (Some(job), 0),
            None => (None, process.run.pid),
        };
        self.runs
            .iter()
            .all(|process| job(process) == job(self.first))
    }
}

/// `at 14:37`; `14:37:30` if that is soon, so that a short grace period is not shown a
/// minute wrong; `Tue 14:37` on another day, and `in 9d 4h` if that day could be next
/// week's.
fn format_deadline(
    now: Timestamp,
    deadline: Timestamp,
    to_local_time: impl Fn(Timestamp) -> LocalTime,
) -> String {
    const SIX_DAYS: Duration = Duration::from_secs(6 * 24 * 3_600);
    const SOON: Duration = Duration::from_secs(10 * 60);
    let left = deadline.since(now);
    if left >= SIX_DAYS {
        return format!("in {}", format_duration(left));
    }
    let then = to_local_time(deadline);
    let time = format!("{:02}:{:02}", then.minute / 60 % 24, then.minute % 60);
    if left < SOON {
        // Time zones are whole minutes apart.
        let second = deadline.0.rem_euclid(60_000) / 1_000;
        return format!("{time}:{second:02}");
    }
    if then.day == to_local_time(now).day {
        format!("at {time}")
    } else {
        format!("{} {time}", short_day_name(then.day))
    }
}

const fn short_day_name(day: Weekday) -> &'static str {
    match day {
        Weekday::Monday => "Mon",
        Weekday::Tuesday => "Tue",
        Weekday::Wednesday => "Wed",
        Weekday::Thursday => "Thu",
        Weekday::Friday => "Fri",
        Weekday::Saturday => "Sat",
        Weekday::Sunday => "Sun",
    }
}

/// A command that people copy: whole, on two lines if it is long, or not at all.
fn command_lines(command: &str) -> Vec<String> {
    let room = TEXT_WIDTH - " \\".len();
    if sanitize(command.as_bytes(), command.len()) != command {
        return vec![format_line("to do", LIST_COMMAND)];
    }
    if command.len() <= room {
        return vec![format_line("to do", command)];
    }
    let mut two = command.rsplitn(2, ' ');
    match (two.next(), two.next()) {
        (Some(last), Some(first)) if first.len() <= room && last.len() <= room => vec![
            format_line("to do", &format!("{first} \\")),
            format_line("", last),
        ],
        (Some(_) | None, _) => vec![format_line("to do", LIST_COMMAND)],
    }
}

fn format_line(label: &str, text: &str) -> String {
    format!("{:INDENT$}{label:<LABEL_WIDTH$} {text}", "")
}

/// Joins these lines, followed by the admin's message in the lines that are left.
fn finish_text(lines: Vec<String>, message: Option<&str>) -> String {
    // Text that is already escaped does not change.
    let left = MAX_LINES.saturating_sub(lines.len());
    let message = message.map(|it| truncate(it, left * MAX_COLUMNS));
    let message = wrap(message.as_deref().unwrap_or_default(), left);
    let lines = lines.into_iter().chain(message).take(MAX_LINES);
    lines
        .map(|line| truncate(&line, MAX_COLUMNS) + "\n")
        .collect()
}

/// Wraps at blanks if there are any. The last line is cut.
fn wrap(text: &str, lines: usize) -> Vec<String> {
    let mut rest = text.trim();
    let mut wrapped = Vec::new();
    while !rest.is_empty() && wrapped.len() < lines {
        let is_last = wrapped.len() + 1 == lines;
        let end = if is_last { rest.len() } else { line_end(rest) };
        let (line, after) = rest.split_at(end);
        wrapped.push(format!("{:INDENT$}{}", "", line.trim_end()));
        rest = after.trim_start();
    }
    wrapped
}

/// The end of the first line of a text.
fn line_end(text: &str) -> usize {
    let room = MAX_COLUMNS - INDENT;
    if text.len() <= room {
        return text.len();
    }
    let max = text.floor_char_boundary(room);
    // A blank right after the line ends it as well.
    let blank = text[..text.ceil_char_boundary(room + 1)].rfind(' ');
    blank.filter(|at| *at > 0).map_or(max, |at| at.min(max))
}

fn truncate(text: &str, max: usize) -> String {
    sanitize(text.as_bytes(), max)
}
