//! Persons whose processes hold a device one after the other, each for a moment: one that
//! forks and ends again and again keeps a descriptor open, and is another process at each
//! look. It can be neither judged nor ended, but told of.

use super::table::{Moment, ROUND};
use super::{DeviceNumber, Open};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A process that has ended so soon after it was found to hold a device held it for a
/// moment.
const SHORT: Moment = 10_000;

/// It is told of a person where that happens in so many rounds of so long: more than every
/// second one, which programs that are merely run again and again do not reach.
const TOLD_AFTER: usize = 8;
const WINDOW: Moment = 15 * ROUND;

/// And until it happened in fewer.
const TOLD_UNTIL: usize = 3;

/// So many processes are watched, and so many persons at so many devices.
const FOUND_MAX: usize = 4_096;
const PERSONS_MAX: usize = 1_024;

/// Who holds which device for moments.
pub(super) type Holds = BTreeMap<u32, BTreeSet<DeviceNumber>>;

/// The holders that were found lately, and those that have ended since.
#[derive(Debug, Default)]
pub(super) struct Fleeting {
    found: BTreeMap<ProcessKey, (u32, Moment, BTreeSet<DeviceNumber>)>,
    /// When the processes were found that ended soon, one of a round.
    ended: BTreeMap<(u32, DeviceNumber), VecDeque<Moment>>,
    told: BTreeSet<(u32, DeviceNumber)>,
}

impl Fleeting {
    /// A process of this person was found to have these open, which was not known before.
    pub(super) fn found(&mut self, key: ProcessKey, person: u32, opens: &[Open], now: Moment) {
        if self.found.len() >= FOUND_MAX {
            self.found
                .retain(|_, (_, at, _)| now.saturating_sub(*at) < SHORT);
        }
        if self.found.len() < FOUND_MAX {
            let numbers = opens.iter().map(|open| open.number).collect();
            self.found.entry(key).or_insert((person, now, numbers));
        }
    }

    /// It has ended.
    pub(super) fn ended(&mut self, key: &ProcessKey, now: Moment) {
        let Some((person, at, numbers)) = self.found.remove(key) else {
            return;
        };
        if now.saturating_sub(at) >= SHORT {
            return;
        }
        for number in numbers {
            let of = (person, number);
            if self.ended.len() >= PERSONS_MAX && !self.ended.contains_key(&of) {
                return;
            }
            let ended = self.ended.entry(of).or_default();
            // Several of one round are a program that starts many.
            if ended.back().is_none_or(|last| at >= last + ROUND / 2) {
                ended.push_back(at);
            }
        }
    }

    /// Who holds what for moments now.
    pub(super) fn holds(&mut self, now: Moment) -> Holds {
        self.ended.retain(|_, ended| {
            ended.retain(|at| now.saturating_sub(*at) <= WINDOW);
            !ended.is_empty()
        });
        let (ended, told) = (&self.ended, &self.told);
        let is_told = |of: &(u32, DeviceNumber), times: usize| {
            times >= TOLD_AFTER || times >= TOLD_UNTIL && told.contains(of)
        };
        let now = ended.iter().filter(|(of, ended)| is_told(of, ended.len()));
        self.told = now.map(|(of, _)| *of).collect();
        let mut holds = Holds::new();
        for (person, number) in &self.told {
            holds.entry(*person).or_default().insert(*number);
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceNumber = DeviceNumber {
        major: 226,
        minor: 128,
    };

    /// A process that is found at a time and has ended at another.
    fn lives(fleeting: &mut Fleeting, pid: u32, person: u32, from: Moment, to: Moment) {
        let start_ticks = 1;
        let key = ProcessKey { pid, start_ticks };
        let open = Open {
            number: GPU,
            fd: 3,
            thread: None,
        };
        fleeting.found(key, person, &[open], from);
        fleeting.ended(&key, to);
    }

    #[test]
    fn a_person_is_told_of_whose_processes_hold_a_device_one_after_the_other() {
        let mut fleeting = Fleeting::default();
        let holds = Holds::from([(7, BTreeSet::from([GPU]))]);
        let mut seen = Vec::new();
        for round in 0..12 {
            let now = 1_000_000 + u64::from(round) * ROUND;
            lives(&mut fleeting, round, 7, now, now + ROUND);
            // One that lasts, those of one round, and one in every third round.
            lives(&mut fleeting, 100 + round, 8, now, now + SHORT);
            lives(&mut fleeting, 200 + round, 9, 1_000_000, 1_000_000);
            if round % 3 == 0 {
                lives(&mut fleeting, 300 + round, 10, now, now + 1);
            }
            seen.push(fleeting.holds(now + ROUND) == holds);
        }
        assert_eq!(seen, [vec![false; 7], vec![true; 5]].concat());
        let over = |fleeting: &mut Fleeting, rounds| fleeting.holds(1_000_000 + rounds * ROUND);
        assert_eq!(over(&mut fleeting, 24), holds);
        assert_eq!(over(&mut fleeting, 25), Holds::new());
        assert_eq!(over(&mut fleeting, 100), Holds::new());
        assert_eq!((fleeting.found.len(), fleeting.ended.len()), (0, 0));
    }
}
