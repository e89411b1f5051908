//! The caller's jobs that are about to be ended or that break a warn-only rule. Shown below
//! `list` and `status`, where the caller sees them without searching.

use super::violation_text::amounts_text;
use crate::connect::AnnotatedSnapshot;
use crate::output::style::OutputStyle;
use crate::output::text::{Line, Tone, escaped, wrap};
use crate::output::value::past_time;
use gpukill_proto::guard::{GuardMode, Measurement, OwnWarning, RuleKind, find_marks};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Maximum number of jobs to name, those that end first.
const MAX_JOBS: usize = 3;

/// A job that is about to be ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct JobEnd {
    at: Timestamp,
    /// The first of its processes, or of those that may be selected.
    pid: u32,
    can_snooze: bool,
    /// The rule with its amounts: `memory, 40.0G of 16.0G`
    rule: String,
}

/// The name of a rule, the measured value and its limit: `memory, 40.0G of 16.0G`
fn rule_text(name: &dyn Display, kind: RuleKind, measured: Option<Measurement>) -> String {
    match measured.filter(|_| kind != RuleKind::Rogue) {
        Some(measured) => format!("{name}, {}", amounts_text(kind, measured)),
        None => name.to_string(),
    }
}

/// The caller's jobs that end, then those that are only warned about.
pub(crate) fn own_job_lines(
    annotated: &AnnotatedSnapshot,
    me: u32,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let ends = own_end_lines(annotated, me, now, style).into_iter();
    ends.chain(own_warning_lines(&annotated.guard.own_warnings, style))
        .collect()
}

/// `your job 48213 breaks a rule (rule waste: waste, 3 %, under 10 %), and is not ended for it:
/// gpukillctl explain 48213`, and below it the admin's message.
fn own_warning_lines(warnings: &[OwnWarning], style: &OutputStyle) -> Vec<Line> {
    let named = warnings.iter().take(MAX_JOBS).flat_map(|warning| {
        let OwnWarning {
            pid,
            rule,
            measured,
            is_sole,
            message,
        } = warning;
        let rule = rule_text(rule, rule.kind, *measured);
        let what = match is_sole {
            true => format!("your job {pid} breaks a rule ({rule}), and is not ended for it"),
            false => format!("your jobs break a rule ({rule}), and none is ended for it"),
        };
        let first = format!("{what}: gpukillctl explain {pid}");
        let message = message.as_ref().map(|message| (2, message.clone()));
        std::iter::once((0, first)).chain(message)
    });
    let more = warnings.len().saturating_sub(MAX_JOBS);
    let more = (more > 0).then(|| {
        (
            0,
            format!("more warnings: {more}, see gpukillctl list --details"),
        )
    });
    let lines = named.chain(more).flat_map(|(indent, text)| {
        let texts = wrap(&escaped(&text, style.symbols), indent, 2, style.width).into_iter();
        let blanks = std::iter::once(indent).chain(std::iter::repeat(0));
        texts
            .zip(blanks)
            .map(|(text, blanks)| format!("{:blanks$}{text}", ""))
    });
    lines
        .map(|text| Line::with_tone(text, Tone::Doubtful))
        .collect()
}

/// `your job 48213 ends 06:48 (memory, 40.0G of 16.0G): gpukillctl explain 48213`, and below it how
/// to get more time; `one of your jobs ends 06:48 (memory, ...): ...` when several jobs break a rule
/// together.
fn own_end_lines(
    annotated: &AnnotatedSnapshot,
    me: u32,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    // Keyed by job and rule; no job when the rule may end one of several.
    let mut ends: BTreeMap<(Option<String>, &str), JobEnd> = BTreeMap::new();
    for process in &annotated.snapshot.processes {
        let owner = process.owner.last_known().and_then(|owner| owner.uid);
        if owner != Some(me) {
            continue;
        }
        let job = process.job.last_known();
        let job = job.map_or_else(|| format!("pid {}", process.pid), ToString::to_string);
        for mark in find_marks(process, &annotated.guard.marks) {
            // A dry run ends no job.
            let is_certain = mark.mode > GuardMode::DryRun;
            if let Some(at) = mark.deadline.filter(|at| is_certain && *at > now) {
                let job = mark.is_sole.then(|| job.clone());
                let end = JobEnd {
                    at,
                    pid: process.pid,
                    can_snooze: mark.can_snooze,
                    rule: rule_text(&mark.rule.kind.name(), mark.rule.kind, mark.measured),
                };
                let known = ends.entry((job, mark.rule.kind.name()));
                let known = known.or_insert_with(|| end.clone());
                if end < *known {
                    *known = end;
                }
            }
        }
    }
    let ends = ends.into_iter().map(|((job, _), end)| (end, job));
    let mut ends: Vec<(JobEnd, Option<String>)> = ends.collect();
    ends.sort_unstable();
    let more = ends.len().saturating_sub(MAX_JOBS);
    let named = ends.iter().take(MAX_JOBS).flat_map(|(end, job)| {
        let (at, pid, rule) = (past_time(end.at, now, style), end.pid, &end.rule);
        let what = match job {
            Some(_) => format!("your job {pid} ends"),
            None => "one of your jobs ends".to_owned(),
        };
        let text = format!("{what} {at} ({rule}): gpukillctl explain {pid}");
        let snooze = || format!("  more time: gpukillctl guard snooze {pid}");
        let snooze = end.can_snooze.then(snooze);
        wrap(&text, 0, 2, style.width).into_iter().chain(snooze)
    });
    let more = (more > 0).then(|| format!("{more} more of your jobs: gpukillctl list --details"));
    named
        .chain(more)
        .map(|text| Line::with_tone(text, Tone::Broken))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{NOW, brief, snapshot, style};
    use gpukill_proto::guard::{GuardSummary, ViolationMark};
    use gpukill_proto::model::Snapshot;

    /// The lines for this user, with the guard in this mode.
    fn end_texts(mode: GuardMode, me: u32, snapshot: &Snapshot) -> Vec<String> {
        let lines = own_end_lines(&annotated(mode, snapshot), me, NOW, &style(None));
        lines.iter().map(Line::text).collect()
    }

    fn annotated(mode: GuardMode, snapshot: &Snapshot) -> AnnotatedSnapshot {
        let mark = |mark: ViolationMark| ViolationMark {
            mode,
            deadline: Some(NOW.plus_seconds(600)),
            is_sole: true,
            can_snooze: true,
            ..mark
        };
        AnnotatedSnapshot {
            snapshot: snapshot.clone(),
            guard: GuardSummary {
                marks: brief().marks.into_iter().map(mark).collect(),
                ..brief()
            },
            suspected: Vec::new(),
        }
    }

    #[test]
    fn warned_user_sees_the_end_of_the_job() {
        let snapshot = snapshot();
        let marked = snapshot.processes.iter();
        let mut marked = marked.filter(|it| !find_marks(it, &brief().marks).is_empty());
        let process = marked.next().unwrap();
        let me = process.owner.last_known().unwrap().uid.unwrap();
        let shown = end_texts(GuardMode::Soft, me, &snapshot);
        let pid = process.pid;
        let end = past_time(NOW.plus_seconds(600), NOW, &style(None));
        let [first, second, ..] = shown.as_slice() else {
            panic!("{shown:?}");
        };
        assert!(
            first.starts_with(&format!("your job {pid} ends {end} ("))
                && first.contains(" of ")
                && first.ends_with(&format!("): gpukillctl explain {pid}")),
            "{shown:?}"
        );
        let snooze = format!("  more time: gpukillctl guard snooze {pid}");
        assert_eq!(*second, snooze, "{shown:?}");
        let mut of_several = annotated(GuardMode::Soft, &snapshot);
        for mark in &mut of_several.guard.marks {
            (mark.is_sole, mark.can_snooze) = (false, false);
        }
        let lines = own_end_lines(&of_several, me, NOW, &style(None));
        let shown: Vec<String> = lines.iter().map(Line::text).collect();
        let begins = format!("one of your jobs ends {end} (");
        let is_one =
            |line: &String| line.starts_with(&begins) && line.contains("): gpukillctl explain ");
        assert!(!shown.is_empty() && shown.iter().all(is_one), "{shown:?}");
        assert_eq!(end_texts(GuardMode::DryRun, me, &snapshot), [""; 0]);
        assert_eq!(end_texts(GuardMode::Soft, 4_000_000, &snapshot), [""; 0]);
    }

    #[test]
    fn warn_only_rule_is_named_with_the_message() {
        use gpukill_proto::guard::{RuleName, RuleSource};
        let warning = |pid, is_sole, message: Option<&str>| OwnWarning {
            pid,
            rule: RuleName {
                source: RuleSource::Rule("waste".into()),
                kind: RuleKind::Waste,
            },
            measured: (pid == 1).then_some(Measurement {
                value: 3,
                limit: 10,
            }),
            is_sole,
            message: message.map(str::to_owned),
        };
        let mut annotated = annotated(GuardMode::DryRun, &snapshot());
        annotated.guard.own_warnings = vec![
            warning(1, true, Some("Ask for less.\x1b[2J")),
            warning(2, false, None),
            warning(3, true, None),
            warning(4, true, None),
        ];
        let lines = own_job_lines(&annotated, 4_000_000, NOW, &style(None));
        let lines: Vec<String> = lines.iter().map(Line::text).collect();
        assert_eq!(
            lines,
            [
                "your job 1 breaks a rule (rule waste: waste, 3 %, under 10 %), and is not ended \
                 for it: gpukillctl explain 1",
                "  Ask for less.\\x1b[2J",
                "your jobs break a rule (rule waste: waste), and none is ended for it: gpukillctl \
                 explain 2",
                "your job 3 breaks a rule (rule waste: waste), and is not ended for it: gpukillctl \
                 explain 3",
                "more warnings: 1, see gpukillctl list --details",
            ]
        );
    }

    #[test]
    fn earliest_ends_are_named() {
        let mut snapshot = snapshot();
        let process = snapshot.processes[0].clone();
        let me = 4_000_000;
        let mut guard = brief();
        let first = guard.marks[0].clone();
        (snapshot.processes, guard.marks) = (1..=5_u32)
            .map(|nth| {
                let mut process = process.clone();
                process.pid = nth;
                process.start_ticks = gpukill_proto::reading::Reading::Value(1);
                process.job = gpukill_proto::reading::Reading::Unsupported;
                process.owner = process.owner.map(|mut owner| {
                    owner.uid = Some(me);
                    owner
                });
                let mut mark = first.clone();
                (mark.run.pid, mark.run.start_ticks) = (nth, 1);
                mark.run.device = process.device.clone();
                mark.run.instance = process.instance;
                (mark.mode, mark.is_sole, mark.can_snooze) = (GuardMode::Soft, true, false);
                mark.deadline = Some(NOW.plus_seconds(6_000 - i64::from(nth) * 600));
                mark.would_have_ended_at = None;
                (process, mark)
            })
            .unzip();
        let annotated = AnnotatedSnapshot {
            snapshot,
            guard,
            suspected: Vec::new(),
        };
        let lines = own_end_lines(&annotated, me, NOW, &style(None));
        let pids: Vec<String> = lines.iter().map(Line::text).collect();
        let pids: Vec<&str> = pids.iter().filter_map(|it| it.split(' ').nth(2)).collect();
        assert_eq!(pids, ["5", "4", "3", "of"]);
    }
}
