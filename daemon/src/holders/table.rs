//! Which processes there are, and which of them are looked at when. It only
//! decides: it is told the time, and what was seen.

use super::look::{Depth, Listed, Missed, Ran, Which};
use super::refused::{NAMED, Refused};
use gpukill_proto::collect::SortIndirect as _;
use std::collections::BTreeSet;

/// Milliseconds since some moment before the search began.
pub(super) type Moment = u64;

/// New processes are looked for so often.
pub(super) const ROUND: Moment = 2_000;

/// Every process is looked at so often. Shorter costs more: a pass over 10,000
/// processes with 260,000 descriptors takes 1 to 2 s of a core (`bench/scan`).
pub(super) const FULL_PASS: Moment = 170_000;

/// A process that has a device open is looked at so often: it opens and closes.
/// What it has closed, its clients' files show before.
const HOLDER_AGAIN: Moment = 20_000;

/// So many looks in turn are left out while a process has not run since the last,
/// and has as much open: nobody opens anything without running, but another process
/// may in a table that both have. The next one is not, whatever these say: one may
/// have been closed for it, and a system that takes stolen time off the clock may
/// count a moment as none.
const RESTS: u8 = 3;

/// What a descriptor costs is paid for with so long a pause, in milliseconds: it
/// takes 4 us, so that no process takes more than a thousandth of a core. Up to a
/// full pass: that one has as many as are ever looked at.
const PAUSE_OF_ONE: Moment = 4;

/// So many descriptors of processes that have many are looked at in turn in a round: 0.3 s
/// of a core. They wait for each other, and no other waits for them.
const DESCRIPTORS_OF_ROUND: u64 = 65_536;

/// So many are many, as a power of two.
const MANY: u8 = 10;

/// A hint at a process that was looked at just now waits so long.
const HINT_AGAIN: Moment = 2_000;

/// So many hints are kept for the next round.
const HINTS: usize = 4_096;

/// The processes of the box, by pid.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<Entry>,
    hinted: BTreeSet<u32>,
    /// The others were there when the first ones were listed: they are old.
    is_first: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    pid: u32,
    kind: Kind,
    missed: Option<Missed>,
    /// How many looks were left out since the last.
    rests: u8,
    /// How many descriptors it had, as a power of two.
    weight: u8,
    first_seen: Moment,
    looked: Moment,
    due: Moment,
    /// Which wish the last look was for; 0 before the first.
    wish: u64,
    /// How long it had run when the last look began.
    ran: Option<Ran>,
}

/// A process to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) pid: u32,
    /// Where it has run just so long, it need not be looked at.
    pub(super) unless: Option<Ran>,
    pub(super) depth: Depth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Never looked at again.
    Kernel,
    Holder,
    Other,
}

/// What a look said of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Gone,
    Kernel,
    Holds(Option<Missed>),
    HoldsNothing(Option<Missed>),
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            is_first: true,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes over what was listed. Tells which pids are of no process any more.
    pub(super) fn list(&mut self, listed: &Listed, which: Which, now: Moment) -> Vec<u32> {
        let is_first = std::mem::take(&mut self.is_first);
        let new = |pid| Entry::new(pid, now, is_first);
        let mut gone = Vec::new();
        match which {
            Which::All => {
                let mut before = std::mem::take(&mut self.entries).into_iter().peekable();
                self.entries.reserve_exact(listed.pids.len());
                for &pid in &listed.pids {
                    while let Some(entry) = before.next_if(|entry| entry.pid < pid) {
                        gone.push(entry.pid);
                    }
                    let known = before.next_if(|entry| entry.pid == pid);
                    self.entries.push(known.unwrap_or_else(|| new(pid)));
                }
                gone.extend(before.map(|entry| entry.pid));
            }
            // Given out since the last round: who had it then has ended, and
            // whose it was is told by its start time.
            Which::Between(..) => {
                for &pid in &listed.pids {
                    match self.at(pid) {
                        Ok(at) => self.entries[at] = new(pid),
                        Err(at) => self.entries.insert(at, new(pid)),
                    }
                }
            }
        }
        gone
    }

    /// A driver says that it uses a device. One that is known to is looked at
    /// in its turn, one that was looked at just now a little later. Whether there
    /// is something to do at once.
    pub(super) fn hint(&mut self, pid: u32, now: Moment) -> bool {
        if let Ok(at) = self.at(pid) {
            let entry = &mut self.entries[at];
            if entry.kind != Kind::Other {
                return false;
            }
            let again = entry.looked + HINT_AGAIN.max(entry.pause());
            if entry.wish > 0 && now < again {
                entry.due = entry.due.min(again);
                return false;
            }
        }
        self.hinted.len() < HINTS && self.hinted.insert(pid)
    }

    pub(super) fn is_hinted(&self) -> bool {
        !self.hinted.is_empty()
    }

    /// Whether it was never looked at.
    pub(super) fn is_new(&self, pid: u32) -> bool {
        self.at(pid).is_ok_and(|at| self.entries[at].wish == 0)
    }

    /// Looks at it as at one that is new.
    pub(super) fn renew(&mut self, pid: u32, now: Moment) {
        match self.at(pid) {
            Ok(at) => self.entries[at] = Entry::new(pid, now, false),
            Err(at) => self.entries.insert(at, Entry::new(pid, now, false)),
        }
    }

    /// Looks at once at all that were not seen whole for this reason.
    pub(super) fn look_again_where(&mut self, missed: Missed) {
        let same = |entry: &&mut Entry| entry.missed == Some(missed);
        for entry in self.entries.iter_mut().filter(same) {
            entry.wish = 0;
        }
    }

    /// The processes to look at now: at once all that were not looked at for
    /// this wish, those that take long last; of the others, whose turn it is.
    pub(super) fn due(&mut self, wish: u64, now: Moment) -> Vec<Turn> {
        for pid in std::mem::take(&mut self.hinted) {
            match self.at(pid) {
                Ok(at) => self.entries[at].wish = 0,
                Err(at) => self.entries.insert(at, Entry::new(pid, now, false)),
            }
        }
        let mut at_once = Vec::new();
        let mut in_turn = Vec::new();
        for entry in &self.entries {
            if entry.waits_for(wish) {
                at_once.push(entry);
            } else if entry.due <= now && entry.kind != Kind::Kernel {
                in_turn.push(entry);
            }
        }
        at_once.sort_indirect_by_key(|entry| entry.weight);
        in_turn.sort_unstable_by_key(|entry| (entry.due, entry.pid));
        let mut left = DESCRIPTORS_OF_ROUND;
        in_turn.retain(|entry| {
            let after = left.checked_sub(entry.descriptors().min(DESCRIPTORS_OF_ROUND));
            left = after.filter(|_| entry.weight >= MANY).unwrap_or(left);
            entry.weight < MANY || after.is_some()
        });
        // Many who hold devices do not delay the others.
        let mut left = turns_of_holders(self.entries.len());
        in_turn.retain(|entry| {
            let has_turn = entry.kind != Kind::Holder || left > 0;
            left -= usize::from(has_turn && entry.kind == Kind::Holder);
            has_turn
        });
        in_turn.truncate(turns(self.entries.len()));
        let now_or_never = |entry: &Entry| Turn {
            pid: entry.pid,
            unless: None,
            depth: Depth::Threads,
        };
        let at_once = at_once.into_iter().map(now_or_never);
        at_once
            .chain(in_turn.into_iter().map(Entry::turn))
            .collect()
    }

    /// It has not run since the last look.
    pub(super) fn rested(&mut self, pid: u32, now: Moment) {
        if let Ok(at) = self.at(pid) {
            let entry = &mut self.entries[at];
            entry.rests = entry.rests.saturating_add(1);
            entry.next(now);
        }
    }

    /// What a look at a process said, which began now and was for this wish.
    pub(super) fn looked(&mut self, pid: u32, verdict: Verdict, wish: u64, now: Moment) {
        let Ok(at) = self.at(pid) else {
            return;
        };
        let entry = &mut self.entries[at];
        (entry.kind, entry.missed) = match verdict {
            Verdict::Gone => {
                self.entries.remove(at);
                return;
            }
            Verdict::Kernel => (Kind::Kernel, None),
            Verdict::Holds(missed) => (Kind::Holder, missed),
            Verdict::HoldsNothing(missed) => (Kind::Other, missed),
        };
        entry.wish = wish;
        entry.looked = now;
        entry.next(now);
    }

    /// How many descriptors the last look saw, and how long the process had run
    /// when that began.
    pub(super) fn weighed(&mut self, pid: u32, descriptors: usize, ran: Option<Ran>) {
        if let Ok(at) = self.at(pid) {
            let entry = &mut self.entries[at];
            entry.weight = weight(descriptors);
            entry.ran = ran;
            entry.rests = 0;
            entry.due = entry.due.max(entry.looked + entry.pause());
        }
    }

    /// It holds a device, and is not kept among those that do.
    pub(super) fn crowded_out(&mut self, pid: u32) {
        if let Ok(at) = self.at(pid) {
            self.entries[at].missed = Some(Missed::NoRoom);
        }
    }

    /// Whether all were looked at for this wish, but for these.
    pub(super) fn is_fulfilled(&self, wish: u64, but: &BTreeSet<u32>) -> bool {
        let mut waiting = self.entries.iter().filter(|entry| entry.waits_for(wish));
        waiting.all(|entry| but.contains(&entry.pid))
    }

    /// The first reason why some process was not seen whole.
    pub(super) fn missed(&self) -> Option<Missed> {
        let missed = self.entries.iter().filter_map(|entry| entry.missed);
        missed.min()
    }

    /// The processes that we were not let look into.
    pub(super) fn refused(&self) -> Refused {
        let mut refused = Refused::default();
        for entry in &self.entries {
            match entry.missed {
                Some(Missed::NotPermitted) => refused.of_others = true,
                Some(Missed::OwnNotPermitted) => {}
                Some(Missed::NotAsked | Missed::TooMany | Missed::Failed | Missed::NoRoom)
                | None => continue,
            }
            if refused.first.len() < NAMED {
                refused.first.push(entry.pid);
            } else {
                refused.more = true;
            }
        }
        refused
    }

    fn at(&self, pid: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&pid, |entry| entry.pid)
    }
}

impl Entry {
    fn waits_for(&self, wish: u64) -> bool {
        let never = self.kind == Kind::Kernel && self.wish > 0;
        self.wish < wish.max(1) && !never
    }

    fn turn(&self) -> Turn {
        // What was not seen whole may be shown now, whether it ran or not.
        let may_rest = self.rests < RESTS && self.missed.is_none();
        Turn {
            pid: self.pid,
            unless: self.ran.filter(|_| may_rest),
            // As many threads as a program for GPUs has cost more than the rest.
            depth: Depth::Process,
        }
    }

    /// It was looked at, or need not be.
    fn next(&mut self, now: Moment) {
        let age = now.saturating_sub(self.first_seen);
        let again = match self.kind {
            // One that is gone at once is told of.
            Kind::Holder => age.clamp(ROUND, HOLDER_AGAIN),
            Kind::Kernel | Kind::Other => age.clamp(ROUND, FULL_PASS),
        };
        // An old one keeps its turn when a wish came between: all were looked
        // at together then, and would be for ever.
        if self.kind == Kind::Holder || age < FULL_PASS || self.due <= now {
            self.due = now.saturating_add(again);
        }
    }

    /// How long it is left alone after a look, for what that costs.
    fn pause(&self) -> Moment {
        (self.descriptors() * PAUSE_OF_ONE).min(FULL_PASS)
    }

    /// How many descriptors it had, to a power of two.
    fn descriptors(&self) -> u64 {
        1 << self.weight.min(32)
    }

    fn new(pid: u32, now: Moment, is_old: bool) -> Self {
        // By Fibonacci hashing: neighbours are far from each other.
        let spread = (Moment::from(pid.wrapping_mul(2_654_435_769)) * FULL_PASS) >> 32;
        let (first_seen, due) = if is_old {
            (now.saturating_sub(FULL_PASS), now + spread)
        } else {
            (now, now)
        };
        Self {
            pid,
            kind: Kind::Other,
            missed: None,
            rests: 0,
            weight: 0,
            first_seen,
            looked: now,
            due,
            wish: 0,
            ran: None,
        }
    }
}

fn weight(descriptors: usize) -> u8 {
    let power = descriptors.max(1).ilog2();
    u8::try_from(power).unwrap_or(u8::MAX)
}

const ROUNDS_OF_A_PASS: usize = (FULL_PASS / ROUND) as usize;

/// So many are looked at in turn in a round: half as many again as it takes for
/// all of them to have theirs within a full pass. What is due at once, because it
/// began at once, does not become a burst.
fn turns(processes: usize) -> usize {
    32 + processes / 56
}

/// So many of these are of processes that hold devices, where others wait: as many
/// as leave those theirs within a full pass.
fn turns_of_holders(processes: usize) -> usize {
    turns(processes) - processes / ROUNDS_OF_A_PASS
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = FULL_PASS;

    fn listed(pids: impl IntoIterator<Item = u32>) -> Listed {
        Listed {
            pids: pids.into_iter().collect(),
            others_hidden: false,
            is_cut: false,
        }
    }

    fn pids_due(table: &mut Table, wish: u64, now: Moment) -> Vec<u32> {
        let turns = table.due(wish, now);
        turns.into_iter().map(|turn| turn.pid).collect()
    }

    /// A table in which all of these were looked at, at the start.
    fn looked_at(pids: impl IntoIterator<Item = u32>, verdict: Verdict) -> Table {
        let mut table = Table::new();
        table.list(&listed(pids), Which::All, START);
        for pid in pids_due(&mut table, 1, START) {
            table.looked(pid, verdict, 1, START);
        }
        assert!(table.is_fulfilled(1, &BTreeSet::new()));
        table
    }

    /// The seconds after the start at which each pid is due, in so many rounds.
    fn rounds(table: &mut Table, verdict: Verdict, many: u64) -> Vec<(u64, Vec<u32>)> {
        let mut due = Vec::new();
        for round in 1..=many {
            let now = START + round * ROUND;
            let pids = pids_due(table, 1, now);
            for pid in &pids {
                table.looked(*pid, verdict, 1, now);
            }
            due.push((round * ROUND / 1_000, pids));
        }
        due.retain(|(_, pids)| !pids.is_empty());
        due
    }

    fn seconds(due: &[(u64, Vec<u32>)]) -> Vec<u64> {
        due.iter().map(|(second, _)| *second).collect()
    }

    #[test]
    fn a_new_process_is_looked_at_at_once_and_then_ever_less_often() {
        let mut table = looked_at([1], Verdict::Kernel);
        table.list(&listed([1, 7]), Which::All, START);
        assert_eq!(pids_due(&mut table, 1, START), [7]);
        table.looked(7, Verdict::HoldsNothing(None), 1, START);
        let due = rounds(&mut table, Verdict::HoldsNothing(None), 300);
        assert_eq!(seconds(&due), [2, 4, 8, 16, 32, 64, 128, 256, 426, 596]);
        assert!(due.iter().all(|(_, pids)| *pids == [7]));
    }

    #[test]
    fn the_processes_of_a_big_box_are_looked_at_evenly() {
        let mut table = looked_at(1..=10_000, Verdict::HoldsNothing(None));
        let due = rounds(&mut table, Verdict::HoldsNothing(None), 170);
        let most = due.iter().map(|(_, pids)| pids.len()).max().unwrap();
        let least = due.iter().map(|(_, pids)| pids.len()).min().unwrap();
        // 10,000 in 85 rounds.
        assert!((110..=118).contains(&least), "{least}");
        assert!((118..=130).contains(&most), "{most}");
        let first_pass = due.iter().take(85).flat_map(|(_, pids)| pids);
        assert_eq!(first_pass.collect::<BTreeSet<_>>().len(), 10_000);
    }

    #[test]
    fn a_look_at_everything_does_not_make_all_due_together_for_ever() {
        let mut table = looked_at(1..=10_000, Verdict::HoldsNothing(None));
        for pid in pids_due(&mut table, 2, START + 1) {
            table.looked(pid, Verdict::HoldsNothing(None), 2, START + 1);
        }
        assert!(table.is_fulfilled(2, &BTreeSet::new()));
        let due = rounds(&mut table, Verdict::HoldsNothing(None), 85);
        let most = due.iter().map(|(_, pids)| pids.len()).max().unwrap();
        assert!(most <= 130, "{most}");
    }

    #[test]
    fn many_that_began_together_are_no_burst_but_all_have_their_turn() {
        let mut table = looked_at([1], Verdict::Kernel);
        table.list(&listed(1..=10_000), Which::All, START);
        for pid in pids_due(&mut table, 1, START) {
            table.looked(pid, Verdict::HoldsNothing(None), 1, START);
        }
        let due = rounds(&mut table, Verdict::HoldsNothing(None), 200);
        let most = due.iter().map(|(_, pids)| pids.len()).max().unwrap();
        assert_eq!(most, turns(10_000));
        let seen = due.iter().flat_map(|(_, pids)| pids);
        assert_eq!(seen.collect::<BTreeSet<_>>().len(), 9_999);
    }

    #[test]
    fn a_holder_is_looked_at_every_twenty_seconds_and_a_kernel_thread_never_again() {
        let mut table = looked_at([7], Verdict::Holds(None));
        let due = rounds(&mut table, Verdict::Holds(None), 100);
        let due = seconds(&due);
        assert_eq!(due[..4], [20, 40, 60, 80]);
        let mut table = looked_at([7], Verdict::Kernel);
        assert_eq!(rounds(&mut table, Verdict::Kernel, 300), []);
        assert_eq!(pids_due(&mut table, 2, START), [0; 0]);
        assert!(table.is_fulfilled(2, &BTreeSet::new()));
    }

    #[test]
    fn a_hint_comes_before_its_turn_but_not_again_and_again() {
        let mut table = looked_at([7], Verdict::HoldsNothing(None));
        // It was looked at just now.
        assert!(!table.hint(7, START + 1_999));
        assert_eq!(pids_due(&mut table, 1, START + 1_999), [0; 0]);
        assert_eq!(pids_due(&mut table, 1, START + 2_000), [7]);
        table.looked(7, Verdict::HoldsNothing(None), 1, START + 2_000);
        assert!(table.hint(7, START + 4_000) && table.is_hinted());
        assert_eq!(pids_due(&mut table, 1, START + 4_000), [7]);
        table.looked(7, Verdict::Holds(None), 1, START + 4_000);
        // That it uses a device is known.
        assert!(!table.hint(7, START + 8_000) && !table.is_hinted());
        // One that was not listed yet.
        assert!(table.hint(8, START + 8_000));
        assert_eq!(pids_due(&mut table, 1, START + 8_000), [8]);
    }

    #[test]
    fn of_too_many_hints_the_last_wait_for_their_turn() {
        let mut table = looked_at([1], Verdict::Kernel);
        let hinted = (10..5_000).filter(|pid| table.hint(*pid, START)).count();
        assert_eq!(hinted, 4_096);
        let expected: Vec<u32> = (10..10 + 4_096).collect();
        assert_eq!(pids_due(&mut table, 1, START), expected);
    }

    #[test]
    fn what_has_not_run_is_looked_at_every_fourth_time() {
        let ran = Ran::new(5, 26);
        let mut table = looked_at([7], Verdict::Holds(None));
        table.weighed(7, 26, ran);
        let mut unless = Vec::new();
        for turn in 1..=5 {
            let now = START + turn * HOLDER_AGAIN;
            assert_eq!(pids_due(&mut table, 1, now - 1), [0; 0]);
            let due = table.due(1, now);
            assert_eq!(due.len(), 1);
            unless.push(due[0].unless);
            if due[0].unless == ran {
                table.rested(7, now);
            } else {
                table.looked(7, Verdict::Holds(None), 1, now);
                table.weighed(7, 26, ran);
            }
        }
        assert_eq!(unless, [ran, ran, ran, None, ran]);
        // Whoever asks has everybody looked at.
        let turn = |depth| Turn {
            pid: 7,
            unless: None,
            depth,
        };
        assert_eq!(table.due(2, START), [turn(Depth::Threads)]);
        // What was not seen may be seen now, whether it ran or not.
        let now = START + 9 * HOLDER_AGAIN;
        let missed = Some(Missed::NotPermitted);
        table.looked(7, Verdict::Holds(missed), 2, START);
        table.weighed(7, 26, ran);
        assert_eq!(table.due(2, now), [turn(Depth::Process)]);
    }

    #[test]
    fn what_has_many_descriptors_is_looked_at_last_and_less_often() {
        // Not less often than every process.
        for (descriptors, seconds) in [(26, 20), (8_192, 34), (65_536, 170), (1_000_000, 170)] {
            let mut table = looked_at([7], Verdict::Holds(None));
            table.weighed(7, descriptors, None);
            let due = rounds(&mut table, Verdict::Holds(None), 100);
            assert_eq!(due[0], (seconds, vec![7]), "{descriptors}");
        }
        let mut table = looked_at([5, 6, 7], Verdict::HoldsNothing(None));
        table.weighed(5, 4_096, None);
        table.weighed(6, 16, None);
        assert_eq!(pids_due(&mut table, 2, START), [7, 6, 5]);
        // A hint waits as well.
        assert!(!table.hint(5, START + 16_383) && table.hint(5, START + 16_384));
    }

    #[test]
    fn those_that_have_many_descriptors_wait_for_each_other_and_nobody_for_them() {
        let heavy = 1..=295;
        let light = 1_000..=1_009;
        let mut table = looked_at(heavy.clone().chain(light.clone()), Verdict::Holds(None));
        for pid in heavy {
            table.weighed(pid, 8_193, None);
        }
        let now = START + 2 * FULL_PASS;
        let round = |table: &mut Table, now| -> Vec<u32> {
            let due = pids_due(table, 1, now);
            for pid in &due {
                table.looked(*pid, Verdict::Holds(None), 1, now);
            }
            due
        };
        let mut seen = BTreeSet::new();
        for nth in 0..37 {
            let due = round(&mut table, now + nth);
            let is_light = |pid: &&u32| light.contains(*pid);
            let expected = if nth == 0 { 10 } else { 0 };
            assert_eq!(due.iter().filter(is_light).count(), expected, "{nth}");
            assert!(due.len() - expected <= 8, "{due:?}");
            seen.extend(due);
        }
        assert_eq!(seen.len(), 305);
        // The one with the most has its turn, too.
        table.weighed(7, 1_000_000, None);
        let mut later = (0..40).map(|nth| round(&mut table, now + 2 * FULL_PASS + nth));
        assert!(later.any(|due| due.contains(&7)));
    }

    #[test]
    fn many_holders_do_not_delay_the_others() {
        let mut table = looked_at(1..=10_000, Verdict::Holds(None));
        let now = START + HOLDER_AGAIN;
        assert_eq!(pids_due(&mut table, 1, now).len(), turns_of_holders(10_000));
        // The others of a pass have theirs.
        let others = turns(10_000) - turns_of_holders(10_000);
        assert!(others * ROUNDS_OF_A_PASS > 9_900, "{others}");
    }

    #[test]
    fn who_gets_the_pid_of_another_is_new() {
        let mut table = looked_at([5, 7], Verdict::HoldsNothing(None));
        let gone = table.list(&listed([7, 8]), Which::Between(6, 9), START + 1);
        assert_eq!(gone, [0; 0]);
        assert_eq!(pids_due(&mut table, 1, START + 1), [7, 8]);
        for pid in [7, 8] {
            table.looked(pid, Verdict::HoldsNothing(None), 1, START + 1);
        }
        let gone = table.list(&listed([8, 9]), Which::All, START + 2);
        assert_eq!(gone, [5, 7]);
        assert_eq!(pids_due(&mut table, 1, START + 2), [9]);
        table.renew(8, START + 3);
        assert_eq!(pids_due(&mut table, 1, START + 3), [8, 9]);
    }

    #[test]
    fn a_wish_is_fulfilled_when_all_but_those_that_hang_were_looked_at() {
        let mut table = looked_at([1, 2, 3], Verdict::HoldsNothing(None));
        assert_eq!(pids_due(&mut table, 2, START), [1, 2, 3]);
        table.looked(1, Verdict::HoldsNothing(Some(Missed::Failed)), 2, START);
        table.looked(2, Verdict::Gone, 2, START);
        assert!(!table.is_fulfilled(2, &BTreeSet::new()));
        assert!(table.is_fulfilled(2, &BTreeSet::from([3])));
        table.looked(3, Verdict::Holds(Some(Missed::NotAsked)), 2, START);
        assert!(table.is_fulfilled(2, &BTreeSet::new()));
        assert_eq!(table.missed(), Some(Missed::NotAsked));
        table.look_again_where(Missed::NotAsked);
        assert_eq!(pids_due(&mut table, 2, START), [3]);
    }

    #[test]
    fn an_entry_is_small() {
        // 100,000 processes: 5 MB.
        assert!(size_of::<Entry>() <= 48);
    }
}
