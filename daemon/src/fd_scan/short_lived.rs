//! Finds persons with short-lived processes that hold a device one after the other: a process that
//! forks and exits in a loop keeps a descriptor open and is another process at each scan. It can be
//! neither evaluated nor ended, only reported.

use super::schedule::{Millis, ROUND_INTERVAL};
use super::{DeviceNumber, OpenDescriptor};
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::ProcessKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A holder that ends within this time after it was found is short-lived.
const SHORT_LIFE: Millis = 10_000;

/// A person is reported from this many rounds with such a process within the window: more than
/// every second round, which a program in a plain loop does not reach.
const REPORT_FROM: usize = 8;
const WINDOW: Millis = 15 * ROUND_INTERVAL;

/// A reported person stays reported down to this number.
const REPORT_UNTIL: usize = 3;

/// How many processes are tracked, and how many pairs of person and device.
const MAX_FOUND: usize = 4_096;
const MAX_PAIRS: usize = 1_024;

/// The devices that each person's short-lived processes hold.
pub(super) type DevicesByPerson = BTreeMap<u32, BTreeSet<DeviceNumber>>;

/// Holders that were found recently, and their ends.
#[derive(Debug, Default)]
pub(super) struct ShortLivedHolders {
    holders: BTreeMap<ProcessKey, (u32, Millis, BTreeSet<DeviceNumber>)>,
    /// When the short-lived processes were found, at most one per round.
    ended: BTreeMap<(u32, DeviceNumber), VecDeque<Millis>>,
    reported: BTreeSet<(u32, DeviceNumber)>,
}

impl ShortLivedHolders {
    /// Records a new holder of this person.
    pub(super) fn record_found(
        &mut self,
        key: ProcessKey,
        person: u32,
        opens: &[OpenDescriptor],
        now: Millis,
    ) {
        if self.holders.len() >= MAX_FOUND {
            self.holders
                .retain_entries(|_, (_, at, _)| now.saturating_sub(*at) < SHORT_LIFE);
        }
        if self.holders.len() < MAX_FOUND {
            let numbers = opens.iter().map(|open| open.number).collect();
            self.holders.entry(key).or_insert((person, now, numbers));
        }
    }

    pub(super) fn record_end(&mut self, key: &ProcessKey, now: Millis) {
        let Some((person, at, numbers)) = self.holders.remove(key) else {
            return;
        };
        if now.saturating_sub(at) >= SHORT_LIFE {
            return;
        }
        for number in numbers {
            let of = (person, number);
            if self.ended.len() >= MAX_PAIRS && !self.ended.contains_key(&of) {
                return;
            }
            let ended = self.ended.entry(of).or_default();
            // Several in one round are one program that starts many.
            if ended
                .back()
                .is_none_or(|last| at >= last + ROUND_INTERVAL / 2)
            {
                ended.push_back(at);
            }
        }
    }

    pub(super) fn by_person(&mut self, now: Millis) -> DevicesByPerson {
        self.ended.retain_entries(|_, ended| {
            ended.retain(|at| now.saturating_sub(*at) <= WINDOW);
            !ended.is_empty()
        });
        let (ended, reported) = (&self.ended, &self.reported);
        let is_reported = |of: &(u32, DeviceNumber), times: usize| {
            times >= REPORT_FROM || times >= REPORT_UNTIL && reported.contains(of)
        };
        let now = ended
            .iter()
            .filter(|(of, ended)| is_reported(of, ended.len()));
        self.reported = now.map(|(of, _)| *of).collect();
        let mut holds = DevicesByPerson::new();
        for (person, number) in &self.reported {
            holds.entry(*person).or_default().insert(*number);
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceNumber = DeviceNumber::new(226, 128);

    /// A process that is found at one time and ends at another.
    fn run_process(
        holders: &mut ShortLivedHolders,
        pid: u32,
        person: u32,
        from: Millis,
        to: Millis,
    ) {
        let start_ticks = 1;
        let key = ProcessKey { pid, start_ticks };
        let open = OpenDescriptor {
            number: GPU,
            fd: 3,
            thread: None,
        };
        holders.record_found(key, person, &[open], from);
        holders.record_end(&key, to);
    }

    #[test]
    fn successive_short_lived_holders_are_reported() {
        let mut holders = ShortLivedHolders::default();
        let holds = DevicesByPerson::from([(7, BTreeSet::from([GPU]))]);
        let mut results = Vec::new();
        for round in 0..12 {
            let now = 1_000_000 + u64::from(round) * ROUND_INTERVAL;
            run_process(&mut holders, round, 7, now, now + ROUND_INTERVAL);
            // A process that lasts, several of one round, and one in every third round.
            run_process(&mut holders, 100 + round, 8, now, now + SHORT_LIFE);
            run_process(&mut holders, 200 + round, 9, 1_000_000, 1_000_000);
            if round % 3 == 0 {
                run_process(&mut holders, 300 + round, 10, now, now + 1);
            }
            results.push(holders.by_person(now + ROUND_INTERVAL) == holds);
        }
        assert_eq!(results, [vec![false; 7], vec![true; 5]].concat());
        let over = |holders: &mut ShortLivedHolders, rounds| {
            holders.by_person(1_000_000 + rounds * ROUND_INTERVAL)
        };
        assert_eq!(over(&mut holders, 24), holds);
        assert_eq!(over(&mut holders, 25), DevicesByPerson::new());
        assert_eq!(over(&mut holders, 100), DevicesByPerson::new());
        assert_eq!((holders.holders.len(), holders.ended.len()), (0, 0));
    }
}
