//! Schedules the scans of processes. It only decides: time and results are passed in.

use super::denied::{DeniedProcesses, MAX_NAMED};
use super::scanner::{PidList, PidRange, ProcessActivity, ScanEffort, SkipReason};
use gpukill_proto::collect::SortIndirect as _;
use std::collections::BTreeSet;

/// Milliseconds since a moment before the scan began.
pub(super) type Millis = u64;

/// How often new processes are listed.
pub(super) const ROUND_INTERVAL: Millis = 2_000;

/// How often every process is scanned. A shorter interval costs more: a pass over 10,000 processes
/// with 260,000 descriptors takes 1 to 2 s of a processor (`bench/scan`).
pub(super) const FULL_PASS_INTERVAL: Millis = 170_000;

/// How often a holder is scanned: it opens and closes files. That it closed a file shows earlier in
/// its fdinfo.
const HOLDER_INTERVAL: Millis = 20_000;

/// How many due scans are skipped while a process has the same activity. A process opens nothing
/// without running, but another process may in a shared table. The next scan is never skipped: a
/// file may have been closed for the new one, and a system that subtracts stolen time may count a
/// moment as none.
const MAX_SKIPS: u8 = 3;

/// The pause in milliseconds after each descriptor that was read. Reading one takes 4 us, so no
/// process takes more than a thousandth of a processor. The pause is capped at a full pass, which
/// the highest number of descriptors reaches.
const PAUSE_PER_DESCRIPTOR: Millis = 4;

/// How many descriptors of processes with many are read in a round: 0.3 s of a processor. These
/// processes wait for each other, and no other process waits for them.
const MAX_DESCRIPTORS_PER_ROUND: u64 = 65_536;

/// From this power of two a process has many descriptors.
const MANY_DESCRIPTORS_LOG2: u8 = 10;

/// How long a hint at a process waits after its scan.
const HINT_INTERVAL: Millis = 2_000;

/// How many hints are kept for the next round.
const MAX_HINTS: usize = 4_096;

/// The processes of the host, by PID.
#[derive(Debug, Default)]
pub(super) struct ScanSchedule {
    entries: Vec<ScheduleEntry>,
    hinted: BTreeSet<u32>,
    /// Set until the first list: its processes are old, and later ones are new.
    is_first: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ScheduleEntry {
    pid: u32,
    kind: EntryKind,
    skipped: Option<SkipReason>,
    /// How many scans were skipped since the last one.
    skips: u8,
    /// The number of its descriptors, as a power of two.
    weight: u8,
    first_seen: Millis,
    scanned_at: Millis,
    due: Millis,
    /// The request of the last scan; 0 before the first.
    request: u64,
    /// Its activity when the last scan started.
    activity: Option<ProcessActivity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScheduledScan {
    pub(super) pid: u32,
    /// The scan is skipped where the process has just this activity.
    pub(super) skip_if: Option<ProcessActivity>,
    pub(super) effort: ScanEffort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    /// Never scanned again.
    Kernel,
    Holder,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanOutcome {
    Gone,
    Kernel,
    Holds(Option<SkipReason>),
    HoldsNothing(Option<SkipReason>),
}

impl ScanSchedule {
    pub(super) fn new() -> Self {
        Self {
            is_first: true,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Applies a list of processes. Returns the PIDs that no process has any more.
    pub(super) fn update_pids(
        &mut self,
        listed: &PidList,
        which: PidRange,
        now: Millis,
    ) -> Vec<u32> {
        let is_first = std::mem::take(&mut self.is_first);
        let new = |pid| ScheduleEntry::new(pid, now, is_first);
        let mut gone = Vec::new();
        match which {
            PidRange::All => {
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
            // Assigned since the last round: the earlier process has ended, and start times
            // distinguish the two.
            PidRange::Between(..) => {
                for &pid in &listed.pids {
                    match self.position(pid) {
                        Ok(at) => self.entries[at] = new(pid),
                        Err(at) => self.entries.insert(at, new(pid)),
                    }
                }
            }
        }
        gone
    }

    /// Hints that a process uses a device. A known holder is scanned when due, a process that was
    /// just scanned a little later. Returns whether a scan is needed at once.
    pub(super) fn hint(&mut self, pid: u32, now: Millis) -> bool {
        if let Ok(at) = self.position(pid) {
            let entry = &mut self.entries[at];
            if entry.kind != EntryKind::Other {
                return false;
            }
            let again = entry.scanned_at + HINT_INTERVAL.max(entry.pause());
            if entry.request > 0 && now < again {
                entry.due = entry.due.min(again);
                return false;
            }
        }
        self.hinted.len() < MAX_HINTS && self.hinted.insert(pid)
    }

    pub(super) fn has_hints(&self) -> bool {
        !self.hinted.is_empty()
    }

    pub(super) fn is_unscanned(&self, pid: u32) -> bool {
        self.position(pid)
            .is_ok_and(|at| self.entries[at].request == 0)
    }

    /// Schedules it like a new process.
    pub(super) fn reset(&mut self, pid: u32, now: Millis) {
        match self.position(pid) {
            Ok(at) => self.entries[at] = ScheduleEntry::new(pid, now, false),
            Err(at) => self.entries.insert(at, ScheduleEntry::new(pid, now, false)),
        }
    }

    /// Schedules at once all processes that were skipped for this reason.
    pub(super) fn rescan_skipped(&mut self, missed: SkipReason) {
        let same = |entry: &&mut ScheduleEntry| entry.skipped == Some(missed);
        for entry in self.entries.iter_mut().filter(same) {
            entry.request = 0;
        }
    }

    /// The scans to do now: first all processes that were not scanned for this request, the slowest
    /// last; then others that are due.
    pub(super) fn take_due(&mut self, request: u64, now: Millis) -> Vec<ScheduledScan> {
        for pid in std::mem::take(&mut self.hinted) {
            match self.position(pid) {
                Ok(at) => self.entries[at].request = 0,
                Err(at) => self.entries.insert(at, ScheduleEntry::new(pid, now, false)),
            }
        }
        let mut at_once = Vec::new();
        let mut scheduled = Vec::new();
        for entry in &self.entries {
            if entry.waits_for(request) {
                at_once.push(entry);
            } else if entry.due <= now && entry.kind != EntryKind::Kernel {
                scheduled.push(entry);
            }
        }
        at_once.sort_indirect_by_key(|entry| entry.weight);
        scheduled.sort_indirect_by_key(|entry| (entry.due, entry.pid));
        let mut left = MAX_DESCRIPTORS_PER_ROUND;
        scheduled.retain(|entry| {
            let after = left.checked_sub(entry.descriptors().min(MAX_DESCRIPTORS_PER_ROUND));
            left = after
                .filter(|_| entry.weight >= MANY_DESCRIPTORS_LOG2)
                .unwrap_or(left);
            entry.weight < MANY_DESCRIPTORS_LOG2 || after.is_some()
        });
        // Many holders do not delay the other processes.
        let mut left = holder_scans_per_round(self.entries.len());
        scheduled.retain(|entry| {
            let has_turn = entry.kind != EntryKind::Holder || left > 0;
            left -= usize::from(has_turn && entry.kind == EntryKind::Holder);
            has_turn
        });
        scheduled.truncate(scans_per_round(self.entries.len()));
        let to_scan = |entry: &ScheduleEntry| ScheduledScan {
            pid: entry.pid,
            skip_if: None,
            effort: ScanEffort::AllThreads,
        };
        let at_once = at_once.into_iter().map(to_scan);
        at_once
            .chain(scheduled.into_iter().map(ScheduleEntry::to_scan))
            .collect()
    }

    /// Records that the process was inactive since its last scan.
    pub(super) fn record_skip(&mut self, pid: u32, now: Millis) {
        if let Ok(at) = self.position(pid) {
            let entry = &mut self.entries[at];
            entry.skips = entry.skips.saturating_add(1);
            entry.set_next(now);
        }
    }

    /// Records the outcome of a scan that started at `now` for this request.
    pub(super) fn record_outcome(
        &mut self,
        pid: u32,
        verdict: ScanOutcome,
        request: u64,
        now: Millis,
    ) {
        let Ok(at) = self.position(pid) else {
            return;
        };
        let entry = &mut self.entries[at];
        (entry.kind, entry.skipped) = match verdict {
            ScanOutcome::Gone => {
                self.entries.remove(at);
                return;
            }
            ScanOutcome::Kernel => (EntryKind::Kernel, None),
            ScanOutcome::Holds(missed) => (EntryKind::Holder, missed),
            ScanOutcome::HoldsNothing(missed) => (EntryKind::Other, missed),
        };
        entry.request = request;
        entry.scanned_at = now;
        entry.set_next(now);
    }

    /// Records the number of descriptors that the scan read, and the activity when it started.
    pub(super) fn record_cost(
        &mut self,
        pid: u32,
        descriptors: usize,
        ran: Option<ProcessActivity>,
    ) {
        if let Ok(at) = self.position(pid) {
            let entry = &mut self.entries[at];
            entry.weight = log2_weight(descriptors);
            entry.activity = ran;
            entry.skips = 0;
            entry.due = entry.due.max(entry.scanned_at + entry.pause());
        }
    }

    /// Records that it holds a device and is not kept for lack of room.
    pub(super) fn mark_no_room(&mut self, pid: u32) {
        if let Ok(at) = self.position(pid) {
            self.entries[at].skipped = Some(SkipReason::NoRoom);
        }
    }

    /// Whether all processes except `excluded` were scanned for this request.
    pub(super) fn is_complete(&self, request: u64, excluded: &BTreeSet<u32>) -> bool {
        let mut waiting = self.entries.iter().filter(|entry| entry.waits_for(request));
        waiting.all(|entry| excluded.contains(&entry.pid))
    }

    /// The most important reason why a process was not scanned completely.
    pub(super) fn skip_reason(&self) -> Option<SkipReason> {
        let missed = self.entries.iter().filter_map(|entry| entry.skipped);
        missed.min()
    }

    /// The processes that may not be scanned.
    pub(super) fn denied(&self) -> DeniedProcesses {
        let mut refused = DeniedProcesses::default();
        for entry in &self.entries {
            match entry.skipped {
                Some(SkipReason::NotPermitted) => refused.any_of_others = true,
                Some(SkipReason::OwnNotPermitted) => {}
                Some(
                    SkipReason::OutsideDev
                    | SkipReason::TooMany
                    | SkipReason::Failed
                    | SkipReason::NoRoom,
                )
                | None => continue,
            }
            if refused.first.len() < MAX_NAMED {
                refused.first.push(entry.pid);
            } else {
                refused.has_more = true;
            }
        }
        refused
    }

    fn position(&self, pid: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&pid, |entry| entry.pid)
    }
}

impl ScheduleEntry {
    fn waits_for(&self, request: u64) -> bool {
        let never = self.kind == EntryKind::Kernel && self.request > 0;
        self.request < request.max(1) && !never
    }

    fn to_scan(&self) -> ScheduledScan {
        // A process with a partial scan may be readable now, whether or not it ran.
        let may_rest = self.skips < MAX_SKIPS && self.skipped.is_none();
        ScheduledScan {
            pid: self.pid,
            skip_if: self.activity.filter(|_| may_rest),
            // A GPU program has so many threads that they would cost more than everything else.
            effort: ScanEffort::FirstThread,
        }
    }

    /// Sets the next scan after a scan or a skip.
    fn set_next(&mut self, now: Millis) {
        let age = now.saturating_sub(self.first_seen);
        let again = match self.kind {
            // A holder that ends at once is reported.
            EntryKind::Holder => age.clamp(ROUND_INTERVAL, HOLDER_INTERVAL),
            EntryKind::Kernel | EntryKind::Other => age.clamp(ROUND_INTERVAL, FULL_PASS_INTERVAL),
        };
        // An old process keeps its turn when a request came between: the request scanned all
        // processes at once, and they would stay together forever.
        if self.kind == EntryKind::Holder || age < FULL_PASS_INTERVAL || self.due <= now {
            self.due = now.saturating_add(again);
        }
    }

    /// The pause after a scan, by its cost.
    fn pause(&self) -> Millis {
        (self.descriptors() * PAUSE_PER_DESCRIPTOR).min(FULL_PASS_INTERVAL)
    }

    /// The number of its descriptors, rounded to a power of two.
    fn descriptors(&self) -> u64 {
        1 << self.weight.min(32)
    }

    fn new(pid: u32, now: Millis, is_old: bool) -> Self {
        // Fibonacci hashing spreads neighbouring PIDs.
        let offset = (Millis::from(pid.wrapping_mul(2_654_435_769)) * FULL_PASS_INTERVAL) >> 32;
        let (first_seen, due) = if is_old {
            (now.saturating_sub(FULL_PASS_INTERVAL), now + offset)
        } else {
            (now, now)
        };
        Self {
            pid,
            kind: EntryKind::Other,
            skipped: None,
            skips: 0,
            weight: 0,
            first_seen,
            scanned_at: now,
            due,
            request: 0,
            activity: None,
        }
    }
}

fn log2_weight(descriptors: usize) -> u8 {
    let power = descriptors.max(1).ilog2();
    u8::try_from(power).unwrap_or(u8::MAX)
}

const ROUNDS_PER_PASS: usize = (FULL_PASS_INTERVAL / ROUND_INTERVAL) as usize;

/// How many scans a round does: half as many again as a full pass needs, so that processes that
/// started together do not become a burst.
fn scans_per_round(processes: usize) -> usize {
    32 + processes / 56
}

/// How many of these scans may be of holders while others wait: so many that the others finish
/// within a full pass.
fn holder_scans_per_round(processes: usize) -> usize {
    scans_per_round(processes) - processes / ROUNDS_PER_PASS
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Millis = FULL_PASS_INTERVAL;

    fn listed(pids: impl IntoIterator<Item = u32>) -> PidList {
        PidList {
            pids: pids.into_iter().collect(),
            others_hidden: false,
            is_truncated: false,
        }
    }

    fn pids_due(table: &mut ScanSchedule, request: u64, now: Millis) -> Vec<u32> {
        let scans = table.take_due(request, now);
        scans.into_iter().map(|scan| scan.pid).collect()
    }

    /// A schedule in which all of these were scanned at the start.
    fn looked_at(pids: impl IntoIterator<Item = u32>, verdict: ScanOutcome) -> ScanSchedule {
        let mut table = ScanSchedule::new();
        table.update_pids(&listed(pids), PidRange::All, START);
        for pid in pids_due(&mut table, 1, START) {
            table.record_outcome(pid, verdict, 1, START);
        }
        assert!(table.is_complete(1, &BTreeSet::new()));
        table
    }

    /// The seconds after the start at which each PID is due, over this many rounds.
    fn rounds(table: &mut ScanSchedule, verdict: ScanOutcome, many: u64) -> Vec<(u64, Vec<u32>)> {
        let mut due = Vec::new();
        for round in 1..=many {
            let now = START + round * ROUND_INTERVAL;
            let pids = pids_due(table, 1, now);
            for pid in &pids {
                table.record_outcome(*pid, verdict, 1, now);
            }
            due.push((round * ROUND_INTERVAL / 1_000, pids));
        }
        due.retain(|(_, pids)| !pids.is_empty());
        due
    }

    fn seconds(due: &[(u64, Vec<u32>)]) -> Vec<u64> {
        due.iter().map(|(second, _)| *second).collect()
    }

    #[test]
    fn new_process_is_scanned_less_and_less() {
        let mut table = looked_at([1], ScanOutcome::Kernel);
        table.update_pids(&listed([1, 7]), PidRange::All, START);
        assert_eq!(pids_due(&mut table, 1, START), [7]);
        table.record_outcome(7, ScanOutcome::HoldsNothing(None), 1, START);
        let due = rounds(&mut table, ScanOutcome::HoldsNothing(None), 300);
        assert_eq!(seconds(&due), [2, 4, 8, 16, 32, 64, 128, 256, 426, 596]);
        assert!(due.iter().all(|(_, pids)| *pids == [7]));
    }

    #[test]
    fn many_processes_are_spread_evenly() {
        let mut table = looked_at(1..=10_000, ScanOutcome::HoldsNothing(None));
        let due = rounds(&mut table, ScanOutcome::HoldsNothing(None), 170);
        let most = due.iter().map(|(_, pids)| pids.len()).max().unwrap();
        let least = due.iter().map(|(_, pids)| pids.len()).min().unwrap();
        // 10,000 in 85 rounds.
        assert!((110..=118).contains(&least), "{least}");
        assert!((118..=130).contains(&most), "{most}");
        let first_pass = due.iter().take(85).flat_map(|(_, pids)| pids);
        assert_eq!(first_pass.collect::<BTreeSet<_>>().len(), 10_000);
    }

    #[test]
    fn full_scan_does_not_bunch_later_ones() {
        let mut table = looked_at(1..=10_000, ScanOutcome::HoldsNothing(None));
        for pid in pids_due(&mut table, 2, START + 1) {
            table.record_outcome(pid, ScanOutcome::HoldsNothing(None), 2, START + 1);
        }
        assert!(table.is_complete(2, &BTreeSet::new()));
        let due = rounds(&mut table, ScanOutcome::HoldsNothing(None), 85);
        let most = due.iter().map(|(_, pids)| pids.len()).max().unwrap();
        assert!(most <= 130, "{most}");
    }

    #[test]
    fn simultaneous_starts_are_no_burst() {
        let mut table = looked_at([1], ScanOutcome::Kernel);
        table.update_pids(&listed(1..=10_000), PidRange::All, START);
        for pid in pids_due(&mut table, 1, START) {
            table.record_outcome(pid, ScanOutcome::HoldsNothing(None), 1, START);
        }
        let due = rounds(&mut table, ScanOutcome::HoldsNothing(None), 200);
        let most = due.iter().map(|(_, pids)| pids.len()).max().unwrap();
        assert_eq!(most, scans_per_round(10_000));
        let scanned = due.iter().flat_map(|(_, pids)| pids);
        assert_eq!(scanned.collect::<BTreeSet<_>>().len(), 9_999);
    }

    #[test]
    fn holders_every_20_s_kernel_threads_never() {
        let mut table = looked_at([7], ScanOutcome::Holds(None));
        let due = rounds(&mut table, ScanOutcome::Holds(None), 100);
        let due = seconds(&due);
        assert_eq!(due[..4], [20, 40, 60, 80]);
        let mut table = looked_at([7], ScanOutcome::Kernel);
        assert_eq!(rounds(&mut table, ScanOutcome::Kernel, 300), []);
        assert_eq!(pids_due(&mut table, 2, START), [0; 0]);
        assert!(table.is_complete(2, &BTreeSet::new()));
    }

    #[test]
    fn hint_is_early_but_not_repeated() {
        let mut table = looked_at([7], ScanOutcome::HoldsNothing(None));
        // It was scanned just now.
        assert!(!table.hint(7, START + 1_999));
        assert_eq!(pids_due(&mut table, 1, START + 1_999), [0; 0]);
        assert_eq!(pids_due(&mut table, 1, START + 2_000), [7]);
        table.record_outcome(7, ScanOutcome::HoldsNothing(None), 1, START + 2_000);
        assert!(table.hint(7, START + 4_000) && table.has_hints());
        assert_eq!(pids_due(&mut table, 1, START + 4_000), [7]);
        table.record_outcome(7, ScanOutcome::Holds(None), 1, START + 4_000);
        // It is a known holder.
        assert!(!table.hint(7, START + 8_000) && !table.has_hints());
        // It was not listed yet.
        assert!(table.hint(8, START + 8_000));
        assert_eq!(pids_due(&mut table, 1, START + 8_000), [8]);
    }

    #[test]
    fn excess_hints_wait_until_due() {
        let mut table = looked_at([1], ScanOutcome::Kernel);
        let hinted = (10..5_000).filter(|pid| table.hint(*pid, START)).count();
        assert_eq!(hinted, 4_096);
        let expected: Vec<u32> = (10..10 + 4_096).collect();
        assert_eq!(pids_due(&mut table, 1, START), expected);
    }

    #[test]
    fn inactive_process_is_scanned_every_fourth_time() {
        let ran = ProcessActivity::new(5, 26);
        let mut table = looked_at([7], ScanOutcome::Holds(None));
        table.record_cost(7, 26, ran);
        let mut unless = Vec::new();
        for round in 1..=5 {
            let now = START + round * HOLDER_INTERVAL;
            assert_eq!(pids_due(&mut table, 1, now - 1), [0; 0]);
            let due = table.take_due(1, now);
            assert_eq!(due.len(), 1);
            unless.push(due[0].skip_if);
            if due[0].skip_if == ran {
                table.record_skip(7, now);
            } else {
                table.record_outcome(7, ScanOutcome::Holds(None), 1, now);
                table.record_cost(7, 26, ran);
            }
        }
        assert_eq!(unless, [ran, ran, ran, None, ran]);
        // A request scans every process.
        let scan = |effort| ScheduledScan {
            pid: 7,
            skip_if: None,
            effort,
        };
        assert_eq!(table.take_due(2, START), [scan(ScanEffort::AllThreads)]);
        // A partial scan is repeated, whether or not the process ran.
        let now = START + 9 * HOLDER_INTERVAL;
        let missed = Some(SkipReason::NotPermitted);
        table.record_outcome(7, ScanOutcome::Holds(missed), 2, START);
        table.record_cost(7, 26, ran);
        assert_eq!(table.take_due(2, now), [scan(ScanEffort::FirstThread)]);
    }

    #[test]
    fn many_descriptors_come_last_and_less_often() {
        // Not less often than a full pass.
        for (descriptors, seconds) in [(26, 20), (8_192, 34), (65_536, 170), (1_000_000, 170)] {
            let mut table = looked_at([7], ScanOutcome::Holds(None));
            table.record_cost(7, descriptors, None);
            let due = rounds(&mut table, ScanOutcome::Holds(None), 100);
            assert_eq!(due[0], (seconds, vec![7]), "{descriptors}");
        }
        let mut table = looked_at([5, 6, 7], ScanOutcome::HoldsNothing(None));
        table.record_cost(5, 4_096, None);
        table.record_cost(6, 16, None);
        assert_eq!(pids_due(&mut table, 2, START), [7, 6, 5]);
        // A hint waits, too.
        assert!(!table.hint(5, START + 16_383) && table.hint(5, START + 16_384));
    }

    #[test]
    fn big_processes_delay_only_each_other() {
        let heavy = 1..=295;
        let light = 1_000..=1_009;
        let mut table = looked_at(heavy.clone().chain(light.clone()), ScanOutcome::Holds(None));
        for pid in heavy {
            table.record_cost(pid, 8_193, None);
        }
        let now = START + 2 * FULL_PASS_INTERVAL;
        let round = |table: &mut ScanSchedule, now| -> Vec<u32> {
            let due = pids_due(table, 1, now);
            for pid in &due {
                table.record_outcome(*pid, ScanOutcome::Holds(None), 1, now);
            }
            due
        };
        let mut scanned = BTreeSet::new();
        for nth in 0..37 {
            let due = round(&mut table, now + nth);
            let is_light = |pid: &&u32| light.contains(*pid);
            let expected = if nth == 0 { 10 } else { 0 };
            assert_eq!(due.iter().filter(is_light).count(), expected, "{nth}");
            assert!(due.len() - expected <= 8, "{due:?}");
            scanned.extend(due);
        }
        assert_eq!(scanned.len(), 305);
        // The biggest process is scanned, too.
        table.record_cost(7, 1_000_000, None);
        let mut later = (0..40).map(|nth| round(&mut table, now + 2 * FULL_PASS_INTERVAL + nth));
        assert!(later.any(|due| due.contains(&7)));
    }

    #[test]
    fn holders_do_not_delay_others() {
        let mut table = looked_at(1..=10_000, ScanOutcome::Holds(None));
        let now = START + HOLDER_INTERVAL;
        assert_eq!(
            pids_due(&mut table, 1, now).len(),
            holder_scans_per_round(10_000)
        );
        // The others of a pass are scanned.
        let others = scans_per_round(10_000) - holder_scans_per_round(10_000);
        assert!(others * ROUNDS_PER_PASS > 9_900, "{others}");
    }

    #[test]
    fn reused_pid_is_a_new_process() {
        let mut table = looked_at([5, 7], ScanOutcome::HoldsNothing(None));
        let gone = table.update_pids(&listed([7, 8]), PidRange::Between(6, 9), START + 1);
        assert_eq!(gone, [0; 0]);
        assert_eq!(pids_due(&mut table, 1, START + 1), [7, 8]);
        for pid in [7, 8] {
            table.record_outcome(pid, ScanOutcome::HoldsNothing(None), 1, START + 1);
        }
        let gone = table.update_pids(&listed([8, 9]), PidRange::All, START + 2);
        assert_eq!(gone, [5, 7]);
        assert_eq!(pids_due(&mut table, 1, START + 2), [9]);
        table.reset(8, START + 3);
        assert_eq!(pids_due(&mut table, 1, START + 3), [8, 9]);
    }

    #[test]
    fn request_completes_without_hung_ones() {
        let mut table = looked_at([1, 2, 3], ScanOutcome::HoldsNothing(None));
        assert_eq!(pids_due(&mut table, 2, START), [1, 2, 3]);
        table.record_outcome(
            1,
            ScanOutcome::HoldsNothing(Some(SkipReason::Failed)),
            2,
            START,
        );
        table.record_outcome(2, ScanOutcome::Gone, 2, START);
        assert!(!table.is_complete(2, &BTreeSet::new()));
        assert!(table.is_complete(2, &BTreeSet::from([3])));
        table.record_outcome(
            3,
            ScanOutcome::Holds(Some(SkipReason::OutsideDev)),
            2,
            START,
        );
        assert!(table.is_complete(2, &BTreeSet::new()));
        assert_eq!(table.skip_reason(), Some(SkipReason::OutsideDev));
        table.rescan_skipped(SkipReason::OutsideDev);
        assert_eq!(pids_due(&mut table, 2, START), [3]);
    }

    #[test]
    fn entry_is_small() {
        // 100,000 processes: 5 MB.
        assert!(size_of::<ScheduleEntry>() <= 48);
    }
}
