//! The effect of an edit of the rules: the guard's new mode, and the affected jobs.

use super::mode_effect;
use super::violation_text::{device_indices, processes, subject_name, warn_only_text};
use super::violations::{GuardActivity, open_violation_lines};
use crate::connect::Mode;
use crate::output::style::OutputStyle;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, Tone, escaped, escaped_lines, wrapped_lines};
use crate::output::value::future_time;
use gpukill_policy::guard::consequences::{Consequence, ConsequenceReason};
use gpukill_proto::guard::{GuardMode, OpenViolation, count_jobs};
use gpukill_proto::units::Timestamp;

#[derive(Debug)]
pub(crate) struct EditEffect {
    /// The guard's mode after the edit.
    pub(crate) mode: GuardMode,
    /// The state before the edit.
    pub(crate) previous: PreviousState,
    /// The open violations, each with its consequence; or why they are not known.
    pub(crate) open: Result<Vec<(OpenViolation, Consequence)>, String>,
    /// Why the guard ends no job for some of them, although the rules say so: a line for each.
    pub(crate) exempt: Vec<String>,
}

impl EditEffect {
    /// Whether the edit would end jobs, or whether that is not known.
    pub(crate) fn may_end_jobs(&self) -> bool {
        let is_end = |(_, consequence): &(OpenViolation, Consequence)| match consequence {
            Consequence::EndsAtOnce | Consequence::EndsNotBefore(_) => true,
            Consequence::Nothing
            | Consequence::DryRun(_)
            | Consequence::Warned(_)
            | Consequence::Exempt => false,
        };
        let may_end = match &self.open {
            Ok(open) => open.iter().any(is_end),
            Err(_) => true,
        };
        self.mode > GuardMode::DryRun && may_end
    }

    /// The effect after an edit, when the affected jobs were shown before it.
    pub(crate) fn without_jobs(self) -> Self {
        let previous = match self.previous {
            PreviousState::SameMode => PreviousState::OtherMode,
            other => other,
        };
        Self {
            previous,
            open: Ok(Vec::new()),
            exempt: Vec::new(),
            ..self
        }
    }
}

/// How the state before an edit differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreviousState {
    /// Another mode.
    OtherMode,
    /// The same mode, in which the guard had stopped after too many ends.
    Stopped,
    /// The same mode; the deadlines of violations stay.
    SameMode,
    /// The same mode and other rules.
    Edited,
    /// Another mode and other rules.
    EditedMode,
    /// Another mode; the guard has stopped, and this edit does not resume it.
    StaysStopped,
}

/// The lines below the changes of the rules.
pub(crate) fn effect_lines(
    effect: &EditEffect,
    edit_mode: Mode,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let is_of_mode = !matches!(
        effect.previous,
        PreviousState::Edited | PreviousState::EditedMode
    );
    let mut lines = Vec::new();
    if effect.previous != PreviousState::Edited {
        let text = mode_change_text(effect, edit_mode);
        lines.extend(wrapped_lines(&text, Tone::Strong, style));
    }
    match effect.mode {
        GuardMode::Disabled => return lines,
        GuardMode::DryRun if is_of_mode => return lines,
        GuardMode::DryRun | GuardMode::Soft | GuardMode::Enforce => {}
    }
    if effect.previous == PreviousState::StaysStopped {
        return lines;
    }
    let open = match &effect.open {
        Ok(open) => open,
        Err(why) => {
            let text = format!("the affected jobs are not known: {why}; see gpukillctl guard test");
            lines.extend(escaped_lines(&text, Tone::Doubtful, style));
            return lines;
        }
    };
    if effect.previous == PreviousState::SameMode {
        let open: Vec<OpenViolation> = open.iter().map(|(open, _)| open.clone()).collect();
        lines.extend(open_violation_lines(
            &open,
            &[],
            GuardActivity::Active(effect.mode),
            now,
            style,
        ));
        return lines;
    }
    let is_one =
        |(_, consequence): &&(OpenViolation, Consequence)| *consequence != Consequence::Nothing;
    let affected: Vec<_> = open.iter().filter(is_one).collect();
    if affected.is_empty() {
        // The answer to an edit is one sentence; a dry run is a question about the jobs.
        let text = match (edit_mode, is_of_mode) {
            (Mode::Apply, _) => return lines,
            (Mode::DryRun, false) => "nobody breaks a rule that this changes now",
            (Mode::DryRun, true) => {
                "nobody broke a rule at the last sample; by rules changed since: gpukillctl guard \
                test"
            }
        };
        lines.push(Line::plain(text));
        return lines;
    }
    let begin = match (is_of_mode, edit_mode) {
        (true, Mode::DryRun) => "these break rules now, and would start again at the next sample",
        (true, Mode::Apply) => "these break rules now, and start again at the next sample",
        (false, Mode::DryRun) => "these would break a rule that this changes",
        (false, Mode::Apply) => "these break a rule that this changes",
    };
    lines.push(Line::plain(begin));
    let mut table = Table::new(vec![
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(1)),
        Column::left("RULE", WhenNarrow::Shrinks(18)),
        Column::left("END", WhenNarrow::Stays),
        Column::left("PROCESS", WhenNarrow::Shrinks(12)),
    ]);
    for (open, consequence) in affected {
        let evidence = &open.evidence;
        table.push(Row::Cells(vec![
            Cell::plain(escaped(
                &subject_name(&open.subject, evidence),
                style.symbols,
            )),
            Cell::plain(device_indices(&evidence.runs)),
            Cell::plain(escaped(&open.rule.to_string(), style.symbols)),
            Cell::plain(end_after_edit(open, *consequence, now, style)),
            Cell::plain(escaped(
                &processes(&evidence.runs, evidence.count),
                style.symbols,
            )),
        ]));
    }
    lines.extend(table.lines(style));
    for why in effect.exempt.iter().take(MAX_EXEMPT) {
        lines.extend(escaped_lines(why, Tone::Faint, style));
    }
    lines
}

/// How many reasons are shown: many jobs have the same.
const MAX_EXEMPT: usize = 10;

fn mode_change_text(effect: &EditEffect, edit_mode: Mode) -> String {
    let is = match edit_mode {
        Mode::DryRun => "would be",
        Mode::Apply => "is",
    };
    if effect.previous == PreviousState::StaysStopped {
        let name = effect.mode.name();
        let ends = match edit_mode {
            Mode::DryRun => "would end",
            Mode::Apply => "ends",
        };
        return format!(
            "the guard {is} in mode {name}, and {ends} nobody: it has stopped; gpukillctl guard \
             {name} resumes it"
        );
    }
    let again = match (effect.previous, edit_mode) {
        (PreviousState::Stopped, Mode::DryRun) => ", and would end jobs again: it has stopped",
        (PreviousState::Stopped, Mode::Apply) => ", and ends jobs again: it had stopped",
        (
            PreviousState::OtherMode
            | PreviousState::SameMode
            | PreviousState::Edited
            | PreviousState::EditedMode
            | PreviousState::StaysStopped,
            _,
        ) => "",
    };
    if effect.mode == GuardMode::Disabled {
        return format!("the guard {is} disabled: {}", mode_effect(effect.mode));
    }
    let (name, what) = (effect.mode.name(), mode_effect(effect.mode));
    match again {
        "" => format!("the guard {is} in mode {name}: {what}"),
        again => format!("the guard {is} in mode {name}{again}; {what}"),
    }
}

/// `not before 14:08`, `1 of 2 at the next sample`, `warned only: own policy`, `nobody: see below`
fn end_after_edit(
    open: &OpenViolation,
    consequence: Consequence,
    now: Timestamp,
    style: &OutputStyle,
) -> String {
    let one = match count_jobs(open) {
        Some(1) => String::new(),
        Some(several) => format!("1 of {several} "),
        None => "1 ".to_owned(),
    };
    match consequence {
        Consequence::Nothing => style.symbols.placeholder().to_owned(),
        Consequence::DryRun(because) => match because {
            ConsequenceReason::Rule | ConsequenceReason::Service => "nobody: dry run".to_owned(),
            ConsequenceReason::OwnPolicy => "nobody: own policy".to_owned(),
            ConsequenceReason::NoReader => "nobody: cannot be warned".to_owned(),
        },
        Consequence::Warned(because) => match because {
            ConsequenceReason::Rule | ConsequenceReason::NoReader => "warned only".to_owned(),
            ConsequenceReason::OwnPolicy => "warned only: own policy".to_owned(),
            ConsequenceReason::Service => warn_only_text(open.rule.kind).to_owned(),
        },
        Consequence::EndsNotBefore(at) => {
            format!("{one}not before {}", future_time(at, now, style))
        }
        Consequence::EndsAtOnce => format!("{one}at the next sample"),
        Consequence::Exempt => "nobody: see below".to_owned(),
    }
}
