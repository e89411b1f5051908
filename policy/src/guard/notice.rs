//! What the guard says to a person on their terminals: which rule they break, by how much,
//! when a job is ended for it, and what to do. Of others' processes it says that there are
//! some, and no more.

mod words;

#[cfg(test)]
mod tests;

use super::schedule::{Civil, Day};
use gpukill_proto::guard::{GuardMode, GuardRecord, GuardStep, Reader, Subject, Told, Victim};
use gpukill_proto::text::{duration, visible};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;
use words::{pids, said, to_do};

/// A text has so many lines at most, so that it covers little of what somebody works at.
pub const MOST_LINES: usize = 6;

/// A line has so many bytes at most, and no more columns than bytes: a terminal of 80
/// shows it as one.
pub const MOST_COLUMNS: usize = 78;

/// What stands before a line, what names it, and the room for what it says.
const INDENT: usize = 2;
const LABEL: usize = 9;
const ROOM: usize = MOST_COLUMNS - INDENT - LABEL - " ".len();

/// So much of the name of a box, of a job and of a rule is shown, in bytes.
const HOST: usize = 24;
const JOB: usize = 26;
const SOURCE: usize = 12;

/// Who is to be told of a step on their terminals: the users whose processes it is about,
/// where the guard does what it says.
#[must_use]
pub fn whom(record: &GuardRecord) -> BTreeSet<u32> {
    match record.mode {
        GuardMode::Disabled | GuardMode::DryRun => BTreeSet::new(),
        GuardMode::Soft | GuardMode::Enforce => {
            if let GuardStep::SnoozeVoided { owner, .. } = record.step {
                return BTreeSet::from([owner]);
            }
            let (runs, _) = concerned(record);
            runs.iter().filter_map(owner).collect()
        }
    }
}

/// What somebody is told of a step.
#[derive(Debug, Clone, Copy)]
pub struct Notice<'a> {
    /// The step.
    pub record: &'a GuardRecord,
    /// Who is told: one of [`whom`].
    pub uid: u32,
    /// What the box is called.
    pub host: &'a str,
    /// So many warnings there are at most.
    pub most_warnings: u32,
    /// How much time they have themselves, and how often they may ask for more.
    pub reader: Option<Reader>,
}

impl Notice<'_> {
    /// The text, of at most [`MOST_LINES`] lines of at most [`MOST_COLUMNS`], each with its
    /// `\n`, and no other control character in it. `civil` is the box's time. `None` where
    /// it is none of their business.
    #[must_use]
    pub fn text(&self, civil: impl Fn(Timestamp) -> Civil) -> Option<String> {
        if let GuardStep::SnoozeVoided { owner, until } = self.record.step {
            return (owner == self.uid).then(|| self.voided(until, civil));
        }
        let own = Own::of(self.record, self.uid)?;
        let lines = match &self.record.step {
            GuardStep::Warned { times, deadline } => self.warning(&own, *times, *deadline, civil),
            GuardStep::Ended(victim) => self.end(&own, victim),
            GuardStep::SnoozeVoided { .. }
            | GuardStep::Violated
            | GuardStep::Spared(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::Acted(_)
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => return None,
        };
        Some(finished(lines, self.record.message.as_deref()))
    }

    fn warning(
        &self,
        own: &Own<'_>,
        times: u32,
        deadline: Option<Timestamp>,
        civil: impl Fn(Timestamp) -> Civil,
    ) -> Vec<String> {
        let host = cut(self.host, HOST);
        let of = match self.most_warnings {
            most if times <= most => format!(" of {most}"),
            // Whoever comes later is warned besides.
            _ => String::new(),
        };
        let mut lines = vec![format!("gpukill on {host}: warning {times}{of}")];
        lines.extend([self.rule(), own.line()]);
        let mut to_do = to_do(self.record.rule.kind).to_owned();
        match deadline {
            Some(first) => {
                let deadline = self.reader.map_or(first, |own| own.deadline);
                let when = when(self.record.at, deadline, civil);
                let what = own.ending(&self.record.subject);
                lines.push(labelled(&when, &format!("{what} is ended if this goes on")));
                if self.reader.is_some_and(|own| own.snoozes_left > 0) {
                    let pid = own.first.run.pid;
                    to_do.push_str(&format!(", or: gpukillctl guard snooze {pid}"));
                }
            }
            None => lines[0].push_str(", nothing is ended for it"),
        }
        lines.push(labelled("to do", &to_do));
        lines
    }

    /// That nothing keeps their jobs from being ended any more, where a rule says so.
    fn voided(&self, until: Timestamp, civil: impl Fn(Timestamp) -> Civil) -> String {
        let host = cut(self.host, HOST);
        let rule = cut(&self.record.rule.to_string(), ROOM);
        let when = when(self.record.at, until, civil);
        let lines = vec![
            format!("gpukill on {host}: your snooze is void, as its rule is gone"),
            labelled("rule", &rule),
            labelled(
                "until",
                &format!("{when}: other rules may end your jobs before"),
            ),
            labelled("more", MORE),
        ];
        finished(lines, None)
    }

    /// It says what the guard is about to do; what came of it is not known here.
    fn end(&self, own: &Own<'_>, victim: &Victim) -> Vec<String> {
        let (host, job) = (cut(self.host, HOST), cut(&victim.job.shown, JOB));
        let (first, last) = match victim.leave_to.as_deref() {
            None => (
                format!("gpukill on {host} ends your job ({job})"),
                vec![labelled("more", MORE)],
            ),
            Some(command) => (
                format!("gpukill on {host}: please end your job ({job})"),
                typed(command),
            ),
        };
        let mut lines = vec![first, self.rule(), own.line()];
        lines.extend(last);
        lines
    }

    /// `rule      user bob: idle for at most 2h 0m, now 2h 5m`
    fn rule(&self) -> String {
        let rule = &self.record.rule;
        let said = said(rule.kind, &self.record.evidence);
        let room = (ROOM - ": ".len()).saturating_sub(said.len());
        let source = cut(&rule.source.to_string(), room.max(SOURCE));
        labelled("rule", &format!("{source}: {said}"))
    }
}

/// Says that there are so many more of which nothing is said one by one.
#[must_use]
pub fn besides(host: &str, more: usize) -> String {
    let host = cut(host, HOST);
    let first = format!("gpukill on {host}: {more} more like this");
    finished(vec![first, labelled("more", MORE)], None)
}

/// Where everything is told.
const MORE: &str = "gpukillctl guard violations";

/// The processes that a step is about, and how many they are.
fn concerned(record: &GuardRecord) -> (&[Told], u32) {
    match &record.step {
        GuardStep::Warned { .. } => (&record.evidence.runs, record.evidence.count),
        GuardStep::Ended(victim) => (&victim.runs, victim.count),
        GuardStep::Violated
        | GuardStep::Spared(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Acted(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (&[], 0),
    }
}

fn owner(told: &Told) -> Option<u32> {
    told.owner.as_ref()?.uid
}

/// Those of one person.
struct Own<'a> {
    /// The one that holds most.
    first: &'a Told,
    runs: Vec<&'a Told>,
    /// There are no others of theirs.
    is_all: bool,
    /// What is measured is others' too.
    is_shared: bool,
}

impl<'a> Own<'a> {
    fn of(record: &'a GuardRecord, uid: u32) -> Option<Self> {
        let is_own = |told: &&Told| owner(told) == Some(uid);
        let (told, count) = concerned(record);
        let runs: Vec<&Told> = told.iter().filter(is_own).collect();
        let measured = &record.evidence;
        let own_measured = measured.runs.iter().filter(is_own).count();
        Some(Self {
            first: runs.first()?,
            runs,
            is_all: told.len() >= count as usize,
            is_shared: match record.subject {
                Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) => {
                    own_measured < measured.count as usize
                }
                Subject::Person(_) | Subject::PersonOn(..) | Subject::Job(_) | Subject::Run(_) => {
                    false
                }
            },
        })
    }

    /// `what      pid 51002 python on GPU 5 (48.3 GiB), 3 more, with others'`
    fn line(&self) -> String {
        let mut what = pids(&self.runs, self.is_all);
        if self.is_shared {
            what.push_str(", with others'");
        }
        labelled("what", &what)
    }

    /// Whose end it is, as far as that is known: `your job (session 3)`.
    fn ending(&self, subject: &Subject) -> String {
        let named = |told: &Told| match &told.job {
            Some(job) => format!("your job ({})", cut(job, JOB)),
            None => "this process".to_owned(),
        };
        let is_one_job = match subject {
            Subject::Job(_) | Subject::Run(_) => true,
            Subject::Person(_)
            | Subject::PersonOn(..)
            | Subject::Group(_)
            | Subject::GroupOn(..)
            | Subject::Device(_) => self.is_all && self.is_one_job(),
        };
        match (self.is_shared, is_one_job) {
            (true, _) => "a job, yours or another's,".to_owned(),
            (false, true) => named(self.first),
            (false, false) => "one of your jobs".to_owned(),
        }
    }

    /// A process that is in no job is its own.
    fn is_one_job(&self) -> bool {
        let job = |told: &'a Told| match &told.job {
            Some(job) => (Some(job), 0),
            None => (None, told.run.pid),
        };
        self.runs.iter().all(|told| job(told) == job(self.first))
    }
}

/// `at 14:37`; `14:37:30` where that is soon, so that a short grace is not told a minute
/// wrong; `Tue 14:37` on another day, and `in 9d 4h` where that could be next week's.
fn when(now: Timestamp, deadline: Timestamp, civil: impl Fn(Timestamp) -> Civil) -> String {
    const SIX_DAYS: Duration = Duration::from_secs(6 * 24 * 3_600);
    const SOON: Duration = Duration::from_secs(10 * 60);
    let left = deadline.since(now);
    if left >= SIX_DAYS {
        return format!("in {}", duration(left));
    }
    let then = civil(deadline);
    let clock = format!("{:02}:{:02}", then.minute / 60 % 24, then.minute % 60);
    if left < SOON {
        // Time zones are whole minutes apart.
        let second = deadline.0.rem_euclid(60_000) / 1_000;
        return format!("{clock}:{second:02}");
    }
    if then.day == civil(now).day {
        format!("at {clock}")
    } else {
        format!("{} {clock}", short(then.day))
    }
}

const fn short(day: Day) -> &'static str {
    match day {
        Day::Monday => "Mon",
        Day::Tuesday => "Tue",
        Day::Wednesday => "Wed",
        Day::Thursday => "Thu",
        Day::Friday => "Fri",
        Day::Saturday => "Sat",
        Day::Sunday => "Sun",
    }
}

/// A command that people copy: whole, on two lines where it is long, or none.
fn typed(command: &str) -> Vec<String> {
    let room = ROOM - " \\".len();
    if visible(command.as_bytes(), command.len()) != command {
        return vec![labelled("to do", MORE)];
    }
    if command.len() <= room {
        return vec![labelled("to do", command)];
    }
    let mut two = command.rsplitn(2, ' ');
    match (two.next(), two.next()) {
        (Some(last), Some(first)) if first.len() <= room && last.len() <= room => vec![
            labelled("to do", &format!("{first} \\")),
            labelled("", last),
        ],
        (Some(_) | None, _) => vec![labelled("to do", MORE)],
    }
}

fn labelled(label: &str, text: &str) -> String {
    format!("{:INDENT$}{label:<LABEL$} {text}", "")
}

/// The text of these lines, and what the admin has to say in those that are left.
fn finished(lines: Vec<String>, message: Option<&str>) -> String {
    // What was made visible stays as it is.
    let left = MOST_LINES.saturating_sub(lines.len());
    let message = message.map(|it| cut(it, left * MOST_COLUMNS));
    let message = wrapped(message.as_deref().unwrap_or_default(), left);
    let lines = lines.into_iter().chain(message).take(MOST_LINES);
    lines.map(|line| cut(&line, MOST_COLUMNS) + "\n").collect()
}

/// Broken at blanks where there are any; the last line is cut.
fn wrapped(text: &str, lines: usize) -> Vec<String> {
    let mut rest = text.trim();
    let mut wrapped = Vec::new();
    while !rest.is_empty() && wrapped.len() < lines {
        let is_last = wrapped.len() + 1 == lines;
        let end = if is_last { rest.len() } else { end(rest) };
        let (line, after) = rest.split_at(end);
        wrapped.push(format!("{:INDENT$}{}", "", line.trim_end()));
        rest = after.trim_start();
    }
    wrapped
}

/// Where the first line of a text ends.
fn end(text: &str) -> usize {
    let room = MOST_COLUMNS - INDENT;
    if text.len() <= room {
        return text.len();
    }
    let most = text.floor_char_boundary(room);
    // A blank right behind the line ends it as well.
    let blank = text[..text.ceil_char_boundary(room + 1)].rfind(' ');
    blank.filter(|at| *at > 0).map_or(most, |at| at.min(most))
}

fn cut(text: &str, most: usize) -> String {
    visible(text.as_bytes(), most)
}
