//! The rules that processes break: a column that is there only where one does.

use super::line::Tone;
use super::look::{Look, Symbols};
use super::table::{Cell, Column, WhenNarrow};
use super::value::{clock_or_day, minute};
use gpukill_proto::guard::{GuardBrief, GuardMode, Marked, of_process};
use gpukill_proto::snapshot::GpuProcess;
use gpukill_proto::units::Timestamp;

/// The column; none of the table's processes breaks a rule where it has no marks.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleColumn<'a>(&'a [Marked]);

impl<'a> RuleColumn<'a> {
    /// For a table of these processes.
    pub(super) fn of(guard: &'a GuardBrief, processes: &[GpuProcess]) -> Self {
        let column = Self(&guard.marked);
        let is_needed = processes.iter().any(|process| column.marks(process));
        Self(if is_needed { column.0 } else { &[] })
    }

    /// The column, where it is needed: `memory, would have ended 12:32` is not cut.
    pub(super) fn column(self) -> Option<Column> {
        self.is_needed()
            .then(|| Column::left("RULE", WhenNarrow::Shrinks(30)))
    }

    /// Whether anybody breaks a rule.
    pub(super) const fn is_needed(self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a process breaks one.
    pub(super) fn marks(self, process: &GpuProcess) -> bool {
        !of_process(process, self.0).is_empty()
    }

    /// What a process breaks, where the column is needed.
    pub(super) fn cell(self, process: &GpuProcess, now: Timestamp, look: &Look) -> Option<Cell> {
        let marks = of_process(process, self.0);
        match marks.first() {
            Some(first) => {
                let text = said(first, marks.len() - 1, now, look);
                Some(Cell::toned(text, Tone::Doubtful))
            }
            None => self.none(look.symbols),
        }
    }

    /// That something breaks none, where the column is needed.
    pub(super) fn none(self, symbols: Symbols) -> Option<Cell> {
        self.is_needed().then(|| Cell::plain(symbols.none()))
    }
}

/// `idle, would end 14:37`; `memory +1, 1 ends 14:37` where there is another rule,
/// and several jobs of which one is ended; `idle, would have ended 14:03` of what a dry
/// run counts as gone.
fn said(mark: &Marked, more: usize, now: Timestamp, look: &Look) -> String {
    let kind = mark.rule.kind.name();
    let more = match more {
        0 => String::new(),
        more => format!(" +{more}"),
    };
    if let Some(at) = mark.would_have_ended_at {
        let at = clock_or_day(at, now, "%H:%M", look);
        return format!("{kind}{more}, {WOULD_HAVE_ENDED} {at}");
    }
    // After its end nobody was found who could be ended for it.
    let deadline = mark.deadline.filter(|deadline| *deadline > now);
    let Some(deadline) = deadline else {
        return format!("{kind}{more}");
    };
    let ends = match mark.is_sole {
        true => ends(mark.mode).to_owned(),
        false => format!("1 {}", ends(mark.mode)),
    };
    format!("{kind}{more}, {ends} {}", minute(deadline, now, look))
}

/// What becomes of it: in a dry run nobody is ended.
pub(super) const fn ends(mode: GuardMode) -> &'static str {
    match mode {
        GuardMode::Disabled | GuardMode::DryRun => "would end",
        GuardMode::Soft | GuardMode::Enforce => "ends",
    }
}

/// What is said of a job that is there still because nobody is ended in a dry run.
pub(super) const WOULD_HAVE_ENDED: &str = "would have ended";

#[cfg(test)]
mod tests {
    use super::super::sample::{NOW, look};
    use super::*;
    use gpukill_proto::guard::{JudgedRun, RuleKind, RuleName, RuleSource};
    use gpukill_proto::snapshot::DeviceId;

    #[test]
    fn a_dry_run_never_says_that_somebody_is_ended() {
        let mark = |mode, seconds: Option<i64>, is_sole| Marked {
            run: JudgedRun {
                pid: 1,
                start_ticks: 1,
                device: DeviceId("GPU-0".into()),
                instance: None,
            },
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Idle,
            },
            mode,
            deadline: seconds.map(|seconds| NOW.plus_seconds(seconds)),
            would_have_ended_at: None,
            is_sole,
            can_snooze: false,
        };
        let gone = |ago: i64| Marked {
            would_have_ended_at: Some(NOW.plus_seconds(-ago)),
            ..mark(GuardMode::DryRun, None, true)
        };
        let later = Some(2_100);
        let (dry_run, soft, enforce) = (GuardMode::DryRun, GuardMode::Soft, GuardMode::Enforce);
        let cases = [
            (mark(dry_run, later, true), 0, "idle, would end 14:37"),
            (mark(dry_run, later, false), 2, "idle +2, 1 would end 14:37"),
            (mark(dry_run, None, true), 0, "idle"),
            (mark(dry_run, Some(-1), true), 1, "idle +1"),
            (mark(soft, later, true), 0, "idle, ends 14:37"),
            (mark(enforce, Some(60), false), 0, "idle, 1 ends 14:03:31"),
            (gone(0), 0, "idle, would have ended 14:02"),
            (gone(86_400), 1, "idle +1, would have ended Fri 14:02"),
        ];
        for (mark, more, expected) in cases {
            assert_eq!(said(&mark, more, NOW, &look(None)), expected);
        }
    }
}
