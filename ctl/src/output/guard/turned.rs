//! What a change of the guard's mode comes to: how far it goes now, and whom that affects.

use super::decided::{Stands, going_on};
use super::does;
use super::words::{gpus, processes, who};
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
    /// The violations that go on, each with what comes of it now.
    pub(crate) open: Vec<(OpenViolation, Comes)>,
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
}

/// The lines below what changes in the rules.
pub(crate) fn turned(turn: &Turn, doing: Doing, now: Timestamp, look: &Look) -> Vec<Line> {
    let mut lines: Vec<Line> = wrap(&mode(turn, doing), 0, 2, look.width)
        .into_iter()
        .map(|text| Line::toned(text, Tone::Strong))
        .collect();
    match turn.mode {
        GuardMode::Disabled | GuardMode::DryRun => return lines,
        GuardMode::Soft | GuardMode::Enforce => {}
    }
    if turn.was == Was::Same {
        let open: Vec<OpenViolation> = turn.open.iter().map(|(open, _)| open.clone()).collect();
        lines.extend(going_on(&open, &[], Stands::Does(turn.mode), now, look));
        return lines;
    }
    let is_one = |(_, comes): &&(OpenViolation, Comes)| *comes != Comes::Nothing;
    let affected: Vec<_> = turn.open.iter().filter(is_one).collect();
    if affected.is_empty() {
        lines.push(Line::plain(
            "nobody broke a rule at the last sample; by rules changed since: gpukillctl guard test",
        ));
        return lines;
    }
    let begin = match doing {
        Doing::Saying => "these break rules now, and would begin anew at the next sample",
        Doing::Doing => "these break rules now, and begin anew at the next sample",
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
        Doing::Saying => "would be in",
        Doing::Doing => "is in",
    };
    let again = match (turn.was, doing) {
        (Was::Stopped, Doing::Saying) => ", and would end jobs again: it has stopped",
        (Was::Stopped, Doing::Doing) => ", and ends jobs again: it had stopped",
        (Was::Other | Was::Same, _) => "",
    };
    if turn.mode == GuardMode::Disabled {
        return format!("the guard {is} no mode: nothing is judged");
    }
    let (name, what) = (turn.mode.name(), does(turn.mode));
    match again {
        "" => format!("the guard {is} mode {name}: {what}"),
        again => format!("the guard {is} mode {name}{again}; {what}"),
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
        Comes::Rehearsed(Because::OfTheRule) => "nobody: dry run".to_owned(),
        Comes::Rehearsed(Because::OfTheirPolicy) => "nobody: own policy".to_owned(),
        Comes::Warned(Because::OfTheRule) => "warned only".to_owned(),
        Comes::Warned(Because::OfTheirPolicy) => "warned only: own policy".to_owned(),
        Comes::EndsAfter(grace) => {
            let seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
            let at = now.plus_seconds(seconds);
            format!("{one}not before {}", minute(at, now, look))
        }
        Comes::EndsAtOnce => format!("{one}at the next sample"),
    }
}
