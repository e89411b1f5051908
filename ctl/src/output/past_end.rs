//! How recorded runs ended: that of a process that `explain` does not find, and those of the
//! caller below `list --mine`.

use super::owner_cells::owner_name;
use super::style::{OutputStyle, Symbols};
use super::text::{Line, Tone, escaped, wrapped_lines};
use super::value::past_time;
use gpukill_proto::audit::{RunEnd, RunRecord};
use gpukill_proto::units::Timestamp;

/// When the run of a process ended, who ended it and why: `51002 python train.py of bob: last on a
/// GPU 09:12, the guard ended it by its rule default: idle (action 813)`
pub(crate) fn past_end_text(
    run: &RunRecord,
    pid: u32,
    now: Timestamp,
    style: &OutputStyle,
) -> String {
    let symbols = style.symbols;
    let owner = run.owner.as_ref().map(|owner| owner.name.as_str());
    let owner = owner_name(owner, run.user.as_deref(), run.uid, symbols);
    let label = escaped(&run.label, symbols);
    let when = past_time(run.until, now, style);
    let seen = format!("{pid} {label} of {owner}: last on a GPU {when}");
    match cause(&run.end, symbols) {
        Some(cause) => format!("{seen}, {cause}"),
        None => seen,
    }
}

/// Why a run ended; `None` while the record does not say that it has.
fn cause(end: &RunEnd, symbols: Symbols) -> Option<String> {
    Some(match end {
        RunEnd::Running => return None,
        RunEnd::Exited => "it ended by itself or outside of gpukill".to_owned(),
        RunEnd::Released => "it released the GPU by itself".to_owned(),
        RunEnd::Killed {
            action,
            by,
            by_name,
        } => {
            let by = owner_name(None, by_name.as_deref(), *by, symbols);
            format!("{by} ended it with gpukillctl (action {action})")
        }
        RunEnd::EndedByGuard { action, rule } => {
            let rule = rule.as_deref().map(|rule| escaped(rule, symbols));
            let rule = rule.map_or_else(String::new, |rule| format!(" by its rule {rule}"));
            format!("the guard ended it{rule} (action {action})")
        }
        RunEnd::Reset { action } => format!("the GPU was reset (action {action})"),
        RunEnd::Rebooted => "the host was rebooted".to_owned(),
        RunEnd::Unobserved => "it ended while gpukilld did not run".to_owned(),
    })
}

/// Maximum number of jobs to name, those that ended last.
const MAX_JOBS: usize = 3;

/// The caller's jobs that ended since this time and not by the caller: `your python train.py was
/// ended 09:12 by the guard (default: idle): gpukillctl explain 51002`
pub(crate) fn own_past_end_lines(
    runs: &[RunRecord],
    me: u32,
    since: Timestamp,
    now: Timestamp,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut ended: Vec<(Timestamp, String)> = runs
        .iter()
        .filter(|run| run.until >= since)
        .filter_map(|run| {
            let by = ended_by_other(&run.end, me, style.symbols)?;
            let pid = run.pids.first()?;
            let label = escaped(&run.label, style.symbols);
            let when = past_time(run.until, now, style);
            let text = format!("your {label} was ended {when} by {by}: gpukillctl explain {pid}");
            Some((run.until, text))
        })
        .collect();
    ended.sort_unstable();
    let more = ended.len().saturating_sub(MAX_JOBS);
    let more = (more > 0)
        .then(|| format!("{more} more of your jobs were ended: gpukillctl audit --user {me}"));
    let texts = ended.into_iter().rev().take(MAX_JOBS);
    let texts = texts.map(|(_, text)| text).chain(more);
    texts
        .flat_map(|text| wrapped_lines(&text, Tone::Doubtful, style))
        .collect()
}

/// Who ended the run, if it was the guard or a person other than the caller.
fn ended_by_other(end: &RunEnd, me: u32, symbols: Symbols) -> Option<String> {
    match end {
        RunEnd::Killed { by, by_name, .. } if *by != Some(me) => {
            Some(owner_name(None, by_name.as_deref(), *by, symbols))
        }
        RunEnd::EndedByGuard { rule, .. } => Some(match rule {
            Some(rule) => format!("the guard ({})", escaped(rule, symbols)),
            None => "the guard".to_owned(),
        }),
        RunEnd::Reset { .. } => Some("a reset of its GPU".to_owned()),
        RunEnd::Running
        | RunEnd::Exited
        | RunEnd::Released
        | RunEnd::Killed { .. }
        | RunEnd::Rebooted
        | RunEnd::Unobserved => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{NOW, runs, style};

    #[test]
    fn process_has_the_time_and_the_cause_of_its_end() {
        let text = |id: u64| {
            let runs = runs();
            let run = runs.iter().find(|run| run.id == id).expect("it exists");
            past_end_text(run, 48_213, NOW, &style(None))
        };
        assert_eq!(
            text(5),
            "48213 python -m ipykernel_launcher of bob: last on a GPU 13:02, the guard ended it by \
             its rule default: idle over 120 min (action 813)"
        );
        assert_eq!(
            text(6),
            "48213 python sweep.py of erin: last on a GPU 13:02, carol ended it with gpukillctl \
             (action 811)"
        );
        assert_eq!(
            text(8),
            "48213 python eval.py of dana: last on a GPU 14:01:51, it ended by itself or outside \
             of gpukill"
        );
        assert_eq!(text(9), "48213 python of dana: last on a GPU 14:02:31");
    }

    #[test]
    fn own_jobs_that_others_ended_are_named() {
        let shown = |me, since| {
            let lines = own_past_end_lines(&runs(), me, since, NOW, &style(Some(80)));
            lines.iter().map(Line::text).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(1003, NOW.plus_seconds(-7_200)),
            [
                "your python -m ipykernel_launcher was ended 13:02 by the guard (default: idle",
                "  over 120 min): gpukillctl explain 48213",
            ]
        );
        assert_eq!(
            shown(1000, NOW.plus_seconds(-7_200))[0],
            "your python sweep.py was ended 13:02 by carol: gpukillctl explain 48213"
        );
        assert_eq!(shown(1000, NOW.plus_seconds(-1_800)), [""; 0]);
    }
}
