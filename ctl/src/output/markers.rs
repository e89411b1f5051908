//! The column of broken rules, which appears only when a process breaks one.

use super::style::{Density, OutputStyle};
use super::table::Cell;
use super::text::Tone;
use super::value::time_or_weekday;
use gpukill_proto::guard::{GuardMode, GuardSummary, ViolationMark, find_marks};
use gpukill_proto::model::GpuProcess;
use gpukill_proto::units::Timestamp;

/// The column. It is not needed when it has no marks.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleColumn<'a>(&'a [ViolationMark]);

impl<'a> RuleColumn<'a> {
    pub(super) fn new(guard: &'a GuardSummary, processes: &[GpuProcess]) -> Self {
        let column = Self(&guard.marks);
        let is_needed = processes.iter().any(|process| column.is_marked(process));
        Self(if is_needed { column.0 } else { &[] })
    }

    /// Whether a process breaks a rule.
    pub(super) const fn is_needed(self) -> bool {
        !self.0.is_empty()
    }

    /// Whether this process breaks a rule.
    pub(super) fn is_marked(self, process: &GpuProcess) -> bool {
        !find_marks(process, self.0).is_empty()
    }

    /// The broken rules without an end: `idle`, `memory +1`; `None` if there are none.
    pub(super) fn kinds(self, process: &GpuProcess) -> Option<String> {
        let marks = find_marks(process, self.0);
        let first = marks.first()?;
        Some(kind_text(first, marks.len() - 1))
    }

    pub(super) fn cell(self, process: &GpuProcess, now: Timestamp, style: &OutputStyle) -> Cell {
        let marks = find_marks(process, self.0);
        match marks.first() {
            Some(first) => {
                let text = mark_text(first, marks.len() - 1, now, style);
                Cell::with_tone(text, Tone::Doubtful)
            }
            None => Cell::plain(style.symbols.placeholder()),
        }
    }
}

/// `idle`; `memory +1` for two rules.
fn kind_text(mark: &ViolationMark, more: usize) -> String {
    let kind = mark.rule.kind.name();
    match more {
        0 => kind.to_owned(),
        more => format!("{kind} +{more}"),
    }
}

/// `idle, would end 14:37`; `memory +1, 1 ends 14:37` for two rules, when one of several jobs
/// is ended; `idle, would have ended 14:03` for a simulated end. On a narrow terminal only the end,
/// if there is one: `guard violations` has the rules.
fn mark_text(mark: &ViolationMark, more: usize, now: Timestamp, style: &OutputStyle) -> String {
    let kind = kind_text(mark, more);
    let minute = |at| time_or_weekday(at, now, "%H:%M", style);
    let with_end = |end: String| match style.density() {
        Density::Compact => end,
        Density::Full => format!("{kind}, {end}"),
    };
    if let Some(at) = mark.would_have_ended_at {
        return with_end(format!("{WOULD_HAVE_ENDED} {}", minute(at)));
    }
    // The deadline passed without a job that could be ended.
    let deadline = mark.deadline.filter(|deadline| *deadline > now);
    let Some(deadline) = deadline else {
        return kind;
    };
    let ends = match mark.is_sole {
        true => ends_text(mark.mode).to_owned(),
        false => format!("1 {}", ends_text(mark.mode)),
    };
    with_end(format!("{ends} {}", minute(deadline)))
}

/// The consequence in this mode; a dry run ends no job.
pub(super) const fn ends_text(mode: GuardMode) -> &'static str {
    match mode {
        GuardMode::Disabled | GuardMode::DryRun => "would end",
        GuardMode::Soft | GuardMode::Enforce => "ends",
    }
}

/// Shown for a job that is still running only because a dry run ends none.
pub(super) const WOULD_HAVE_ENDED: &str = "would have ended";

#[cfg(test)]
mod tests {
    use super::super::fixtures::{NOW, style};
    use super::*;
    use gpukill_proto::guard::{RuleKind, RuleName, RuleSource, RunKey};
    use gpukill_proto::model::DeviceId;

    #[test]
    fn dry_run_is_never_a_real_end() {
        let mark = |mode, seconds: Option<i64>, is_sole| ViolationMark {
            run: RunKey {
                pid: 1,
                start_ticks: 1,
                device: DeviceId("GPU-0".into()),
                instance: None,
            },
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Idle,
            },
            measured: None,
            mode,
            deadline: seconds.map(|seconds| NOW.plus_seconds(seconds)),
            would_have_ended_at: None,
            is_sole,
            can_snooze: false,
        };
        let gone = |ago: i64| ViolationMark {
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
            (mark(enforce, Some(60), false), 0, "idle, 1 ends 14:03"),
            (mark(soft, Some(43_200), true), 0, "idle, ends Sun 02:02"),
            (gone(0), 0, "idle, would have ended 14:02"),
            (gone(86_400), 1, "idle +1, would have ended Fri 14:02"),
        ];
        for (mark, more, expected) in cases {
            assert_eq!(mark_text(&mark, more, NOW, &style(None)), expected);
            let (_, end) = expected.split_once(", ").unwrap_or(("", expected));
            assert_eq!(mark_text(&mark, more, NOW, &style(Some(80))), end);
        }
    }
}
