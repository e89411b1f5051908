//! Groups the processes of the history into runs of jobs, and decides how such a run ended.

use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// The longest pause between two processes of one run: a job that restarts its workers, or waits
/// for data, continues.
pub const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The processes that end this long before the run decide how it ended: one process of a job that
/// is killed may end before the signal reaches it, because another one has ended.
const END_WINDOW: Duration = Duration::from_secs(60);

/// One process on one device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessPeriod<K> {
    /// The job or process that it belongs to.
    pub key: K,
    /// The first observation.
    pub from: Timestamp,
    /// The last observation.
    pub until: Timestamp,
}

/// Groups the processes of each key into runs: a process belongs to the run that lasts until at most
/// `max_pause` before it. Sorts the processes by key and start, and returns the slice of each run.
pub fn group_runs<T, K: Ord>(
    processes: &mut [T],
    period: fn(&T) -> &ProcessPeriod<K>,
    max_pause: Duration,
) -> impl Iterator<Item = &[T]> {
    processes.sort_indirect_by(|one, other| period(one).cmp(period(other)));
    // The end of the run before its last process.
    let mut end: Option<Timestamp> = None;
    processes.chunk_by(move |last, next| {
        let (last, next) = (period(last), period(next));
        let until = end.map_or(last.until, |end| end.max(last.until));
        let is_joined = last.key == next.key && next.from.since(until) <= max_pause;
        end = is_joined.then_some(until);
        is_joined
    })
}

/// How a process left a device, as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnding {
    /// It still uses the device.
    Running,
    /// The process ended.
    Exited,
    /// The process lives and has closed the device.
    Released,
    /// This action ended it.
    Killed(i64),
    /// The daemon was not running.
    Unobserved,
}

/// How the run of these processes ended, each with its last observation: as the last process, or
/// by the action that ended one of the last. `None` without processes.
#[must_use]
pub fn run_ending(
    processes: impl IntoIterator<Item = (Timestamp, ProcessEnding)> + Clone,
) -> Option<ProcessEnding> {
    let all = || processes.clone().into_iter();
    if all().any(|(_, ending)| ending == ProcessEnding::Running) {
        return Some(ProcessEnding::Running);
    }
    let (until, last) = all().max_by_key(|(until, _)| *until)?;
    let killed = all().filter(|(at, ending)| {
        matches!(ending, ProcessEnding::Killed(_)) && until.since(*at) <= END_WINDOW
    });
    Some(killed.last().map_or(last, |(_, ending)| ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn period(key: u8, from: i64, until: i64) -> ProcessPeriod<u8> {
        ProcessPeriod {
            key,
            from: Timestamp(from * 1000),
            until: Timestamp(until * 1000),
        }
    }

    fn grouped(periods: &[ProcessPeriod<u8>]) -> Vec<Vec<usize>> {
        let mut numbered: Vec<_> = periods.iter().cloned().enumerate().collect();
        let runs = group_runs(&mut numbered, |(_, period)| period, MAX_PAUSE);
        runs.map(|run| run.iter().map(|(at, _)| *at).collect())
            .collect()
    }

    #[test]
    fn a_pause_ends_a_run() {
        let periods = [period(1, 0, 100), period(1, 400, 500), period(1, 801, 900)];
        assert_eq!(grouped(&periods), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn long_process_bridges_the_pauses_of_others() {
        let periods = [
            period(1, 500, 510),
            period(1, 0, 1000),
            period(1, 1200, 1210),
        ];
        assert_eq!(grouped(&periods), [vec![1, 0, 2]]);
    }

    #[test]
    fn jobs_stay_apart() {
        let periods = [period(1, 0, 9), period(2, 0, 9), period(1, 1, 8)];
        assert_eq!(grouped(&periods), [vec![0, 2], vec![1]]);
        assert_eq!(grouped(&[]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn last_process_decides_unless_one_of_the_last_was_killed() {
        use ProcessEnding::{Exited, Killed, Released, Running, Unobserved};
        let at = |second: i64| Timestamp(second * 1000);
        let cases = [
            (vec![], None),
            (vec![(at(1), Exited), (at(9), Unobserved)], Some(Unobserved)),
            (vec![(at(1), Running), (at(9), Exited)], Some(Running)),
            (vec![(at(9), Exited), (at(1), Killed(7))], Some(Killed(7))),
            (vec![(at(99), Exited), (at(1), Killed(7))], Some(Exited)),
            (vec![(at(5), Released), (at(4), Exited)], Some(Released)),
        ];
        for (processes, ending) in cases {
            assert_eq!(run_ending(processes.clone()), ending, "{processes:?}");
        }
    }

    proptest! {
        #[test]
        fn every_period_is_in_one_run(
            periods in proptest::collection::vec((0..3_u8, 0..4_000_i64, 0..900_i64), 0..40)
        ) {
            let periods: Vec<_> = periods
                .into_iter()
                .map(|(key, from, length)| period(key, from, from + length))
                .collect();
            let runs = grouped(&periods);
            let mut positions: Vec<usize> = runs.iter().flatten().copied().collect();
            positions.sort_unstable();
            prop_assert_eq!(positions, (0..periods.len()).collect::<Vec<_>>());
            for run in &runs {
                let key = periods[run[0]].key;
                prop_assert!(run.iter().all(|at| periods[*at].key == key));
            }
            // Runs of one key are further apart than the pause.
            let span = |run: &Vec<usize>| {
                let from = run.iter().map(|at| periods[*at].from).min().unwrap();
                let until = run.iter().map(|at| periods[*at].until).max().unwrap();
                (periods[run[0]].key, from, until)
            };
            let mut spans: Vec<_> = runs.iter().map(span).collect();
            spans.sort_unstable();
            for pair in spans.windows(2) {
                let ((key, _, until), (next_key, from, _)) = (pair[0], pair[1]);
                prop_assert!(key != next_key || from.since(until) > MAX_PAUSE);
            }
        }
    }
}
