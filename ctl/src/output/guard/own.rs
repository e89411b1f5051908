//! The jobs of the caller that are about to be ended, or that break a rule which only warns:
//! below `list` and `status`, where they are seen without looking for them.

use crate::connect::Sight;
use crate::output::line::{Line, Tone, shown, wrap};
use crate::output::look::Look;
use crate::output::value::minute_or_day;
use gpukill_proto::guard::{GuardMode, OwnWarning, of_process};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// As many are named, those that end first.
const MOST: usize = 3;

/// A job that is about to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    at: Timestamp,
    /// The first of its processes, or of those that may be meant.
    pid: u32,
    can_snooze: bool,
}

/// What the guard has to say to the caller: the jobs that end, then those that it only warns of.
pub(crate) fn own_jobs(sight: &Sight, me: u32, now: Timestamp, look: &Look) -> Vec<Line> {
    let ends = own_ends(sight, me, now, look).into_iter();
    ends.chain(own_warnings(&sight.guard.own_warnings, look))
        .collect()
}

/// `your job 48213 breaks a rule (rule waste: waste), and is not ended for it: gpukillctl
/// explain 48213`, and below it what the admin has to say.
fn own_warnings(warnings: &[OwnWarning], look: &Look) -> Vec<Line> {
    let named = warnings.iter().take(MOST).flat_map(|warning| {
        let OwnWarning {
            pid,
            rule,
            is_sole,
            message,
        } = warning;
        let what = match is_sole {
            true => format!("your job {pid} breaks a rule ({rule}), and is not ended for it"),
            false => format!("your jobs break a rule ({rule}), and none is ended for it"),
        };
        let first = format!("{what}: gpukillctl explain {pid}");
        let message = message.as_ref().map(|message| (2, message.clone()));
        std::iter::once((0, first)).chain(message)
    });
    let more = warnings.len().saturating_sub(MOST);
    let more = (more > 0).then(|| {
        (
            0,
            format!("more warnings: {more}, see gpukillctl list --details"),
        )
    });
    let lines = named.chain(more).flat_map(|(indent, text)| {
        let texts = wrap(&shown(&text, look.symbols), indent, 2, look.width).into_iter();
        let blanks = std::iter::once(indent).chain(std::iter::repeat(0));
        texts
            .zip(blanks)
            .map(|(text, blanks)| format!("{:blanks$}{text}", ""))
    });
    lines
        .map(|text| Line::toned(text, Tone::Doubtful))
        .collect()
}

/// `your job 48213 ends 06:48 (idle): gpukillctl guard snooze 48213`, and `one of your jobs
/// ends 06:48 (memory): ...` where several break a rule together.
fn own_ends(sight: &Sight, me: u32, now: Timestamp, look: &Look) -> Vec<Line> {
    // Of each rule the job that it is about; none where it may end one of several.
    let mut ends: BTreeMap<(Option<String>, String), End> = BTreeMap::new();
    for process in &sight.snapshot.processes {
        let owner = process.owner.last_known().and_then(|owner| owner.uid);
        if owner != Some(me) {
            continue;
        }
        let job = process.job.last_known();
        let job = job.map_or_else(|| format!("pid {}", process.pid), ToString::to_string);
        for mark in of_process(process, &sight.guard.marked) {
            // A dry run ends none.
            let is_certain = mark.mode > GuardMode::DryRun;
            if let Some(at) = mark.deadline.filter(|at| is_certain && *at > now) {
                let job = mark.is_sole.then(|| job.clone());
                let end = End {
                    at,
                    pid: process.pid,
                    can_snooze: mark.can_snooze,
                };
                let known = ends.entry((job, mark.rule.kind.name().to_owned()));
                let known = known.or_insert(end);
                *known = end.min(*known);
            }
        }
    }
    let ends = ends.into_iter().map(|((job, rule), end)| (end, rule, job));
    let mut ends: Vec<(End, String, Option<String>)> = ends.collect();
    ends.sort_unstable();
    let more = ends.len().saturating_sub(MOST);
    let named = ends.iter().take(MOST).map(|(end, rule, job)| {
        let (at, pid) = (minute_or_day(end.at, now, look), end.pid);
        let what = match job {
            Some(_) => format!("your job {pid} ends"),
            None => "one of your jobs ends".to_owned(),
        };
        match end.can_snooze {
            true => format!("{what} {at} ({rule}): gpukillctl guard snooze {pid}"),
            false => format!("{what} {at} ({rule}): gpukillctl explain {pid}"),
        }
    });
    let more = (more > 0).then(|| format!("{more} more of your jobs: gpukillctl list --details"));
    let texts = named.chain(more);
    let lines = texts.flat_map(|text| wrap(&text, 0, 2, look.width));
    lines.map(|text| Line::toned(text, Tone::Broken)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample::{NOW, brief, look, snapshot};
    use gpukill_proto::guard::{GuardBrief, Marked};
    use gpukill_proto::snapshot::Snapshot;

    /// What is said to this user, where the guard has this mode.
    fn said(mode: GuardMode, me: u32, snapshot: &Snapshot) -> Vec<String> {
        let lines = own_ends(&sight(mode, snapshot), me, NOW, &look(None));
        lines.iter().map(Line::text).collect()
    }

    fn sight(mode: GuardMode, snapshot: &Snapshot) -> Sight {
        let mark = |mark: Marked| Marked {
            mode,
            deadline: Some(NOW.plus_seconds(600)),
            is_sole: true,
            can_snooze: true,
            ..mark
        };
        Sight {
            snapshot: snapshot.clone(),
            guard: GuardBrief {
                marked: brief().marked.into_iter().map(mark).collect(),
                ..brief()
            },
            suspected: Vec::new(),
        }
    }

    #[test]
    fn whoever_was_warned_sees_when_which_job_ends_and_others_do_not() {
        let snapshot = snapshot();
        let marked = snapshot.processes.iter();
        let mut marked = marked.filter(|it| !of_process(it, &brief().marked).is_empty());
        let process = marked.next().unwrap();
        let me = process.owner.last_known().unwrap().uid.unwrap();
        let told = said(GuardMode::Soft, me, &snapshot);
        let pid = process.pid;
        let end = minute_or_day(NOW.plus_seconds(600), NOW, &look(None));
        assert!(
            told.iter().any(
                |line| line.starts_with(&format!("your job {pid} ends {end} ("))
                    && line.ends_with(&format!("): gpukillctl guard snooze {pid}"))
            ),
            "{told:?}"
        );
        let mut of_several = sight(GuardMode::Soft, &snapshot);
        for mark in &mut of_several.guard.marked {
            (mark.is_sole, mark.can_snooze) = (false, false);
        }
        let lines = own_ends(&of_several, me, NOW, &look(None));
        let told: Vec<String> = lines.iter().map(Line::text).collect();
        let begins = format!("one of your jobs ends {end} (");
        let is_one =
            |line: &String| line.starts_with(&begins) && line.contains("): gpukillctl explain ");
        assert!(!told.is_empty() && told.iter().all(is_one), "{told:?}");
        assert_eq!(said(GuardMode::DryRun, me, &snapshot), [""; 0]);
        assert_eq!(said(GuardMode::Soft, 4_000_000, &snapshot), [""; 0]);
    }

    #[test]
    fn a_rule_that_only_warns_is_named_with_what_the_admin_has_to_say() {
        use gpukill_proto::guard::{RuleKind, RuleName, RuleSource};
        let warning = |pid, is_sole, message: Option<&str>| OwnWarning {
            pid,
            rule: RuleName {
                source: RuleSource::Rule("waste".into()),
                kind: RuleKind::Waste,
            },
            is_sole,
            message: message.map(str::to_owned),
        };
        let mut sight = sight(GuardMode::DryRun, &snapshot());
        sight.guard.own_warnings = vec![
            warning(1, true, Some("Ask for less.\x1b[2J")),
            warning(2, false, None),
            warning(3, true, None),
            warning(4, true, None),
        ];
        let lines = own_jobs(&sight, 4_000_000, NOW, &look(None));
        let lines: Vec<String> = lines.iter().map(Line::text).collect();
        assert_eq!(
            lines,
            [
                "your job 1 breaks a rule (rule waste: waste), and is not ended for it: gpukillctl \
                 explain 1",
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
    fn of_many_jobs_those_that_end_first_are_named() {
        let mut snapshot = snapshot();
        let process = snapshot.processes[0].clone();
        let me = 4_000_000;
        let mut guard = brief();
        let first = guard.marked[0].clone();
        (snapshot.processes, guard.marked) = (1..=5_u32)
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
                (mark.mode, mark.is_sole, mark.can_snooze) = (GuardMode::Soft, true, true);
                mark.deadline = Some(NOW.plus_seconds(6_000 - i64::from(nth) * 600));
                mark.would_have_ended_at = None;
                (process, mark)
            })
            .unzip();
        let sight = Sight {
            snapshot,
            guard,
            suspected: Vec::new(),
        };
        let lines = own_ends(&sight, me, NOW, &look(None));
        let pids: Vec<String> = lines.iter().map(Line::text).collect();
        let pids: Vec<&str> = pids.iter().filter_map(|it| it.split(' ').nth(2)).collect();
        assert_eq!(pids, ["5", "4", "3", "of"]);
    }
}
