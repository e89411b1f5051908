//! What an edit of the rules comes to: how far the guard goes now, and whom that affects.

use super::decided::{Stands, going_on};
use super::does;
use super::words::{gpus, only_warned, processes, who};
use crate::connect::Doing;
use crate::output::line::{Line, Tone, shown, wrap};
use crate::output::look::Look;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::value::minute;
use gpukill_policy::guard::affected::{Because, Comes};
use gpukill_proto::guard::{GuardMode, OpenViolation, jobs};
use gpukill_proto::units::Timestamp;

/// What is known of such a change.
#[derive(Debug)]
pub(crate) struct Turn {
    /// How far the guard goes from now on.
    pub(crate) mode: GuardMode,
    /// What was so before.
    pub(crate) was: Was,
    /// The violations that go on, each with what comes of it now; or why that is not known.
    pub(crate) open: Result<Vec<(OpenViolation, Comes)>, String>,
}

/// What was so before a change of the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Was {
    /// Another mode.
    Other,
    /// The same mode, by which nobody was ended any more: too many had been.
    Stopped,
    /// The same: the clocks of violations go on.
    Same,
    /// The same mode, and other rules.
    Edited,
    /// Another mode, and other rules.
    EditedMode,
    /// Another mode; the guard has stopped, and this edit does not have it go on.
    StaysStopped,
}

/// The lines below what changes in the rules.
pub(crate) fn turned(turn: &Turn, doing: Doing, now: Timestamp, look: &Look) -> Vec<Line> {
    let is_of_mode = !matches!(turn.was, Was::Edited | Was::EditedMode);
    let mode = (turn.was != Was::Edited).then(|| wrap(&mode(turn, doing), 0, 2, look.width));
    let mode = mode.into_iter().flatten();
    let mut lines: Vec<Line> = mode.map(|text| Line::toned(text, Tone::Strong)).collect();
    match turn.mode {
        GuardMode::Disabled => return lines,
        GuardMode::DryRun if is_of_mode => return lines,
        GuardMode::DryRun | GuardMode::Soft | GuardMode::Enforce => {}
    }
    if turn.was == Was::StaysStopped {
        return lines;
    }
    let open = match &turn.open {
        Ok(open) => open,
        Err(why) => {
            let text = format!(
                "which jobs this affects could not be found out: {why}; see gpukillctl guard test"
            );
            let texts = wrap(&shown(&text, look.symbols), 0, 2, look.width).into_iter();
            lines.extend(texts.map(|text| Line::toned(text, Tone::Doubtful)));
            return lines;
        }
    };
    if turn.was == Was::Same {
        let open: Vec<OpenViolation> = open.iter().map(|(open, _)| open.clone()).collect();
        lines.extend(going_on(&open, &[], Stands::Does(turn.mode), now, look));
        return lines;
    }
    let is_one = |(_, comes): &&(OpenViolation, Comes)| *comes != Comes::Nothing;
    let affected: Vec<_> = open.iter().filter(is_one).collect();
    if affected.is_empty() && !is_of_mode {
        lines.push(Line::plain("nobody breaks a rule that this changes now"));
        return lines;
    }
    if affected.is_empty() {
        lines.push(Line::plain(
            "nobody broke a rule at the last sample; by rules changed since: gpukillctl guard test",
        ));
        return lines;
    }
    let begin = match (is_of_mode, doing) {
        (true, Doing::Saying) => "these break rules now, and would begin anew at the next sample",
        (true, Doing::Doing) => "these break rules now, and begin anew at the next sample",
        (false, Doing::Saying) => "these would break a rule that this changes",
        (false, Doing::Doing) => "these break a rule that this changes",
    };
    lines.push(Line::plain(begin));
    let mut table = Table::new(vec![
        Column::left("WHO", WhenNarrow::Shrinks(8)),
        Column::left("GPU", WhenNarrow::Goes(1)),
        Column::left("RULE", WhenNarrow::Shrinks(18)),
        Column::left("END", WhenNarrow::Stays),
        Column::left("PROCESS", WhenNarrow::Shrinks(12)),
    ]);
    for (open, comes) in affected {
        let evidence = &open.evidence;
        table.push(Row::Cells(vec![
            Cell::plain(shown(&who(&open.subject, evidence), look.symbols)),
            Cell::plain(gpus(&evidence.runs)),
            Cell::plain(shown(&open.rule.to_string(), look.symbols)),
            Cell::plain(end(open, *comes, now, look)),
            Cell::plain(shown(
                &processes(&evidence.runs, evidence.count),
                look.symbols,
            )),
        ]));
    }
    lines.extend(table.lines(look));
    lines
}

fn mode(turn: &Turn, doing: Doing) -> String {
    let is = match doing {
        Doing::Saying => "would be",
        Doing::Doing => "is",
    };
    if turn.was == Was::StaysStopped {
        let name = turn.mode.name();
        let ends = match doing {
            Doing::Saying => "would end",
            Doing::Doing => "ends",
        };
        return format!(
            "the guard {is} in mode {name}, and {ends} nobody: it has stopped; gpukillctl guard \
             {name} has it go on"
        );
    }
    let again = match (turn.was, doing) {
        (Was::Stopped, Doing::Saying) => ", and would end jobs again: it has stopped",
        (Was::Stopped, Doing::Doing) => ", and ends jobs again: it had stopped",
        (Was::Other | Was::Same | Was::Edited | Was::EditedMode | Was::StaysStopped, _) => "",
    };
    if turn.mode == GuardMode::Disabled {
        return format!("the guard {is} disabled: {}", does(turn.mode));
    }
    let (name, what) = (turn.mode.name(), does(turn.mode));
    match again {
        "" => format!("the guard {is} in mode {name}: {what}"),
        again => format!("the guard {is} in mode {name}{again}; {what}"),
    }
}

/// `not before 14:08`, `1 of 2 at the next sample`, `warned only: own policy`
fn end(open: &OpenViolation, comes: Comes, now: Timestamp, look: &Look) -> String {
    let one = match jobs(open) {
        Some(1) => String::new(),
        Some(several) => format!("1 of {several} "),
        None => "1 ".to_owned(),
    };
    match comes {
        Comes::Nothing => look.symbols.none().to_owned(),
        Comes::Rehearsed(because) => match because {
            Because::OfTheRule | Because::IsService => "nobody: dry run".to_owned(),
            Because::OfTheirPolicy => "nobody: own policy".to_owned(),
            Because::NobodyReads => "nobody: cannot be warned".to_owned(),
        },
        Comes::Warned(because) => match because {
            Because::OfTheRule | Because::NobodyReads => "warned only".to_owned(),
            Because::OfTheirPolicy => "warned only: own policy".to_owned(),
            Because::IsService => only_warned(open.rule.kind).to_owned(),
        },
        Comes::EndsNotBefore(at) => format!("{one}not before {}", minute(at, now, look)),
        Comes::EndsAtOnce => format!("{one}at the next sample"),
    }
}
