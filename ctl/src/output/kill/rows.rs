//! One line for each process, with details. Details that do not fit beside the process stand
//! below it.

use super::super::style::{OutputStyle, Symbols};
use super::super::text::{Line, Tone, cut, escaped, width, wrap};
use super::{command_text, is_ended, owner_text};
use gpukill_proto::kill::{
    FuseMount, KillPlan, KillTarget, Outcome, PlannedAction, ProcessOutcome, ProtectionReason,
    Reaper, UninterruptibleWait,
};

pub(super) struct ProcessRow {
    state: &'static str,
    tone: Tone,
    pid: u32,
    command: String,
    what: String,
}

/// The row of a planned process that is not ended or that is protected.
pub(super) fn target_row(target: &KillTarget, symbols: Symbols) -> Option<ProcessRow> {
    let (state, text) = match &target.action {
        PlannedAction::End(_) => {
            let why = escaped(target.overridden.as_ref()?, symbols);
            ("protected", format!("{why}: overridden"))
        }
        PlannedAction::Protected(protected) => ("protected", protected_line(protected, symbols)),
        PlannedAction::Denied(ask) => ("denied", denied_text(target, ask, symbols)),
        PlannedAction::Unclear(why) => ("unclear", escaped(why, symbols)),
        PlannedAction::Zombie(parent) => ("zombie", zombie_text(parent, symbols)),
    };
    Some(ProcessRow {
        state,
        tone: Tone::Doubtful,
        pid: target.key.pid,
        command: command_text(&target.command, &target.name, symbols),
        what: text,
    })
}

/// Why the process is protected, and how root can end it.
fn protected_line(protected: &ProtectionReason, symbols: Symbols) -> String {
    let why = escaped(&protected.why, symbols);
    match protected.override_hint() {
        Some(way) => format!("{why}; {way}"),
        None => why,
    }
}

pub(super) fn outcome_row(
    outcome: &ProcessOutcome,
    plan: &KillPlan,
    symbols: Symbols,
) -> ProcessRow {
    let target = plan.targets.iter().find(|it| it.key == outcome.key);
    let text = |text: &String| escaped(text, symbols);
    let (state, tone, detail) = match &outcome.outcome {
        Outcome::Ended(signal, after) => {
            let after = seconds_text(*after);
            ("ended", Tone::Plain, format!("{signal}, {after}"))
        }
        Outcome::Survived(signal, after) => {
            let after = seconds_text(*after);
            let next = if plan.request.force {
                ""
            } else {
                "; --force sends SIGKILL"
            };
            let detail = format!("still there after {signal} and {after}{next}");
            ("survived", Tone::Doubtful, detail)
        }
        Outcome::Gone => ("gone", Tone::Faint, "had ended already".to_owned()),
        Outcome::Changed(why) => (
            "changed",
            Tone::Doubtful,
            format!("{}: nothing was sent", text(why)),
        ),
        Outcome::Protected(why) => ("protected", Tone::Doubtful, text(why)),
        Outcome::Denied(ask) => {
            let detail = match target {
                Some(target) => denied_text(target, ask, symbols),
                None => format!("ask {}", text(ask)),
            };
            ("denied", Tone::Doubtful, detail)
        }
        Outcome::Unclear(why) => (
            "unclear",
            Tone::Doubtful,
            format!("{}: nothing was sent", text(why)),
        ),
        Outcome::Uninterruptible(at) => ("uninterruptible", Tone::Broken, stuck_text(at, symbols)),
        Outcome::Zombie(parent) => ("zombie", Tone::Doubtful, zombie_text(parent, symbols)),
        Outcome::Failed(why) => ("failed", Tone::Broken, text(why)),
    };
    ProcessRow {
        state,
        tone,
        pid: outcome.key.pid,
        command: command_text(&outcome.command, &outcome.name, symbols),
        what: detail,
    }
}

/// The call in which the process is stuck, and the remedy.
fn stuck_text(stuck: &UninterruptibleWait, symbols: Symbols) -> String {
    let at = stuck.waits_on.as_ref();
    let at = at.map_or_else(String::new, |at| format!(" ({})", escaped(at, symbols)));
    let Some(FuseMount { path, servers }) = &stuck.fuse else {
        return format!(
            "stuck in the kernel{at}, where no signal reaches it; if it stays so, only a reboot \
             ends it"
        );
    };
    let path = escaped(path, symbols);
    let waits = format!("stuck in the kernel{at}: it waits for the FUSE filesystem at {path}");
    if servers.is_empty() {
        return format!("{waits}; its server is not known; the process ends when that server does");
    }
    let named = servers
        .iter()
        .map(|server| match server.owner.last_known() {
            Some(owner) => format!("{} of {}", server.pid, escaped(owner, symbols)),
            None => server.pid.to_string(),
        });
    let named = named.collect::<Vec<_>>().join(", ");
    let pids = servers.iter().map(|server| server.pid.to_string());
    let pids = pids.collect::<Vec<_>>().join(" ");
    format!("{waits}, served by process {named}; it ends when that does: kill {pids}")
}

/// The owner, and the people to ask.
fn denied_text(target: &KillTarget, ask: &str, symbols: Symbols) -> String {
    let ask = escaped(ask, symbols);
    if is_ended(target) || target.owner.last_known().is_none() {
        return format!("ask {ask}");
    }
    format!("it belongs to {}: ask {ask}", owner_text(target, symbols))
}

fn zombie_text(parent: &Reaper, symbols: Symbols) -> String {
    let parent = parent_text(parent, symbols);
    format!("has ended, and goes when its parent {parent} reaps it, or ends")
}

/// `4711 (launcher)`
pub(super) fn parent_text(parent: &Reaper, symbols: Symbols) -> String {
    match parent.name.last_known() {
        Some(name) => format!("{} ({})", parent.pid, escaped(name, symbols)),
        None => parent.pid.to_string(),
    }
}

/// `0.8 s`; less than a tenth is not shown as zero.
pub(super) fn seconds_text(milliseconds: u64) -> String {
    let tenths = milliseconds.saturating_add(50) / 100;
    match (tenths / 10, tenths % 10) {
        (0, 0) => "less than 0.1 s".to_owned(),
        (whole, tenth) => format!("{whole}.{tenth} s"),
    }
}

/// The minimum number of columns for a sentence.
const MIN_SENTENCE_WIDTH: usize = 24;

/// The minimum number of columns for a command.
const MIN_COMMAND_WIDTH: usize = 12;

pub(super) fn align_rows(rows: &[ProcessRow], style: &OutputStyle) -> Vec<Line> {
    let widest = |of: &dyn Fn(&ProcessRow) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let state = widest(&|row| row.state.len());
    let pid = widest(&|row| row.pid.to_string().len());
    let natural = widest(&|row| width(&row.command));
    let before = 2 + state + 2 + pid + 2;
    let command = match style.width {
        None => natural,
        Some(max_width) => {
            let room = max_width.saturating_sub(before + 2 + MIN_SENTENCE_WIDTH);
            natural.min(room.max(MIN_COMMAND_WIDTH))
        }
    };
    let columns = RowWidths {
        state,
        pid,
        command,
        all: before + command + 2,
    };
    rows.iter()
        .flat_map(|row| columns.lines(row, style))
        .collect()
}

/// The width of each part.
struct RowWidths {
    state: usize,
    pid: usize,
    command: usize,
    all: usize,
}

impl RowWidths {
    fn lines(&self, row: &ProcessRow, style: &OutputStyle) -> Vec<Line> {
        const BELOW: usize = 6;
        let mut first = Line::plain("  ");
        first.push(format!("{:1$}", row.state, self.state), row.tone);
        first.push(format!("  {:>1$}  ", row.pid, self.pid), Tone::Plain);
        let command = cut(&row.command, self.command, style.symbols);
        let padding = " ".repeat(self.command.saturating_sub(width(&command)) + 2);
        first.push(command + &padding, Tone::Plain);
        let fits = |columns: usize| {
            style
                .width
                .is_none_or(|max_width| self.all + columns <= max_width)
        };
        if !fits(width(&row.what).min(MIN_SENTENCE_WIDTH)) {
            let mut below = wrap(&row.what, BELOW, BELOW, style.width);
            if let Some(first) = below.first_mut() {
                first.insert_str(0, &" ".repeat(BELOW));
            }
            let below = below
                .into_iter()
                .map(|text| Line::with_tone(text, row.tone));
            let first = first.trimmed().cut(style.width, style.symbols);
            return std::iter::once(first).chain(below).collect();
        }
        let mut texts = wrap(&row.what, self.all, self.all, style.width).into_iter();
        first.push(texts.next().unwrap_or_default(), row.tone);
        std::iter::once(first.trimmed())
            .chain(texts.map(|text| Line::with_tone(text, row.tone)))
            .collect()
    }
}
