//! The state of the scan: the watched devices, the holders found, and the reasons for missing ones.

use super::denied::{DeniedNames, OTHERS_DENIED};
use super::quota::{DescriptorQuota, truncate_opens};
use super::scanner::{PidList, PidRange, ProcessActivity, ProcessScan, ScanEffort, SkipReason};
use super::schedule::{Millis, ScanOutcome, ScanSchedule, ScheduledScan};
use super::short_lived::ShortLivedHolders;
use super::{DeviceNumber, FileHolders, OpenDescriptor, WatchMode};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _};
use gpukill_proto::model::ProcessKey;
use std::collections::btree_map::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long after a request the scan continues for watches on request.
const REQUEST_DURATION: Millis = 60_000;

/// All processes are listed once in this many rounds, which is once a minute, to drop ended
/// processes and to find processes that were given a chosen PID (`set_tid` of `clone3`). At an
/// interval of 20 s, listing took a third of the scan's time.
const FULL_LIST_EVERY: u32 = 30;

/// How many holders are kept.
const MAX_HOLDERS: usize = 20_000;

#[derive(Default)]
pub(super) struct ScanState {
    pub(super) watched: BTreeMap<&'static str, (BTreeSet<DeviceNumber>, WatchMode)>,
    pub(super) numbers: Arc<[DeviceNumber]>,
    /// The number of requests for a full scan, the last completed one, and the one since which the
    /// devices are unchanged.
    pub(super) requests: u64,
    pub(super) completed_request: u64,
    pub(super) request_of_watched: u64,
    /// When a full scan was last requested.
    pub(super) requested_at: Option<Millis>,
    pub(super) schedule: ScanSchedule,
    pub(super) file_holders: Arc<FileHolders>,
    quota: DescriptorQuota,
    short_lived: ShortLivedHolders,
    /// A new process had ended before it was scanned.
    pub(super) missed_short_lived: bool,
    /// How many rounds followed at once for that.
    pub(super) follow_ups: u8,
    denied_names: DeniedNames,
    /// There are more processes than are listed.
    list_is_truncated: bool,
    pub(super) others_hidden: bool,
    pub(super) newest_pid: Option<u32>,
    pub(super) rounds: u32,
    pub(super) next_round: Millis,
    /// The number of the thread that scans. A thread that hung finds another number here.
    pub(super) thread: u64,
    /// The process that is being scanned, and since when.
    pub(super) scanning: Option<(u32, Millis)>,
    /// Processes at which threads hang.
    pub(super) hung_pids: BTreeSet<u32>,
    pub(super) list_error: Option<String>,
    pub(super) thread_error: Option<String>,
    pub(super) is_stopped: bool,
}

impl ScanState {
    pub(super) fn new() -> Self {
        Self {
            schedule: ScanSchedule::new(),
            ..Self::default()
        }
    }

    pub(super) fn is_active(&self, now: Millis) -> bool {
        let is_asked = self
            .requested_at
            .is_some_and(|requested_at| now.saturating_sub(requested_at) < REQUEST_DURATION);
        let mut watched = self.watched.values();
        watched
            .any(|(numbers, when)| !numbers.is_empty() && (is_asked || *when == WatchMode::Always))
    }

    /// Whether a full scan is requested and not complete.
    pub(super) fn has_open_request(&self) -> bool {
        self.completed_request < self.requests
    }

    /// Applies a change of the watched devices.
    pub(super) fn update_watched(&mut self) {
        let all = self.watched.values().flat_map(|(numbers, _)| numbers);
        let numbers: BTreeSet<DeviceNumber> = all.copied().into_set();
        let is_more = numbers.iter().any(|number| !self.numbers.contains(number));
        self.numbers = numbers.into_iter().collect();
        let watched = Arc::clone(&self.numbers);
        let file_holders = Arc::make_mut(&mut self.file_holders);
        file_holders.processes.retain_entries(|key, opens| {
            opens.retain(|open| watched.contains(&open.number));
            self.quota.set_count(key, opens.len());
            !opens.is_empty()
        });
        let holds = |key: &ProcessKey| file_holders.processes.contains_key(key);
        self.quota.retain(holds);
        file_holders
            .truncated
            .retain(|key| file_holders.processes.contains_key(key));
        if is_more {
            self.request_rescan();
        }
        if self.numbers.is_empty() {
            self.completed_request = self.requests;
        }
        self.update_incomplete_reason();
    }

    /// Drops the state while no scan is needed.
    pub(super) fn reset(&mut self) {
        if self.schedule.is_empty() {
            return;
        }
        self.schedule = ScanSchedule::new();
        self.newest_pid = None;
        self.rounds = 0;
        self.file_holders = Arc::default();
        self.quota = DescriptorQuota::default();
        self.short_lived = ShortLivedHolders::default();
        self.denied_names = DeniedNames::default();
        if !self.numbers.is_empty() {
            self.request_rescan();
        }
        self.update_incomplete_reason();
    }

    fn request_rescan(&mut self) {
        self.requests += 1;
        self.request_of_watched = self.requests;
    }

    /// The PIDs to list. Listing 10,000 processes takes 10 ms and more. If the newest PID is
    /// unchanged, no process started; if it has grown, the new processes lie between.
    pub(super) fn next_pid_range(&mut self, newest: Option<u32>) -> Option<PidRange> {
        let since_all = self.rounds % FULL_LIST_EVERY;
        let is_in_turn = self.follow_ups == 0;
        self.rounds = self.rounds.wrapping_add(u32::from(is_in_turn));
        if (since_all == 0 && is_in_turn) || self.has_open_request() {
            self.rounds = 1;
            return Some(PidRange::All);
        }
        match (self.newest_pid, newest) {
            (Some(before), Some(now)) if before == now => None,
            (Some(before), Some(now)) if before < now => Some(PidRange::Between(before, now)),
            // PIDs have wrapped around.
            (None | Some(_), None | Some(_)) => Some(PidRange::All),
        }
    }

    pub(super) fn apply_list(&mut self, listed: &PidList, which: PidRange, now: Millis) {
        if which == PidRange::All {
            self.others_hidden = listed.others_hidden;
            self.list_is_truncated = listed.is_truncated;
        }
        for pid in self.schedule.update_pids(listed, which, now) {
            self.end_holder(pid, now);
            self.denied_names.remove(pid);
        }
        if which == PidRange::All {
            self.quota.lift_limits();
        }
    }

    /// Threads of this process that are known to have devices in descriptors of their own: a scan
    /// with less effort must not drop them.
    pub(super) fn known_threads(&self, pid: u32) -> Vec<u32> {
        let opens = self.holders_of(pid).flat_map(|(_, opens)| opens);
        let mut threads: Vec<u32> = opens.filter_map(|open| open.thread).collect();
        threads.sort_indirect();
        threads.dedup();
        threads
    }

    pub(super) fn effort(&self, scan: ScheduledScan) -> ScanEffort {
        if self.known_threads(scan.pid).is_empty() {
            scan.effort
        } else {
            ScanEffort::AllThreads
        }
    }

    fn holders_of(&self, pid: u32) -> Range<'_, ProcessKey, Vec<OpenDescriptor>> {
        let of = |start_ticks| ProcessKey { pid, start_ticks };
        self.file_holders.processes.range(of(0)..=of(u64::MAX))
    }

    /// Applies the result of a scan that started at `start` for this request, when the process had
    /// this activity.
    pub(super) fn apply_scan(
        &mut self,
        pid: u32,
        result: ProcessScan,
        request: u64,
        start: Millis,
        ran: Option<ProcessActivity>,
    ) {
        let mut cost = 0;
        self.denied_names.remove(pid);
        let verdict = match result {
            ProcessScan::Gone => {
                self.missed_short_lived |= self.schedule.is_unscanned(pid);
                self.end_holder(pid, start);
                ScanOutcome::Gone
            }
            ProcessScan::KernelThread => ScanOutcome::Kernel,
            ProcessScan::Process {
                start_ticks,
                uid: person,
                name,
                descriptors,
                mut opens,
                skipped: missed,
            } => {
                cost = descriptors;
                if is_denied(missed) && !name.is_empty() {
                    self.denied_names.insert(pid, &name);
                }
                // Fewer devices may be watched by now.
                opens.retain(|open| self.numbers.contains(&open.number));
                let key = ProcessKey { pid, start_ticks };
                let is_cut = truncate_opens(&mut opens, self.quota.level(person));
                let known = self.file_holders.processes.get(&key);
                let is_same =
                    known == Some(&opens) && self.file_holders.truncated.contains(&key) == is_cut;
                if known.is_some() && (is_same || opens.is_empty() && missed.is_some()) {
                    // Nothing new was read, or nothing at all.
                    ScanOutcome::Holds(missed)
                } else {
                    let verdict = self.add_holder(key, person, opens, missed, start);
                    if is_cut && self.file_holders.processes.contains_key(&key) {
                        Arc::make_mut(&mut self.file_holders).truncated.insert(key);
                    }
                    self.truncate_descriptors(person);
                    verdict
                }
            }
        };
        if !matches!(verdict, ScanOutcome::Holds(_)) {
            self.remove_holder(pid);
        }
        self.schedule.record_outcome(pid, verdict, request, start);
        self.schedule.record_cost(pid, cost, ran);
    }

    fn add_holder(
        &mut self,
        key: ProcessKey,
        person: u32,
        opens: Vec<OpenDescriptor>,
        missed: Option<SkipReason>,
        now: Millis,
    ) -> ScanOutcome {
        if opens.is_empty() {
            return ScanOutcome::HoldsNothing(missed);
        }
        if !self.file_holders.processes.contains_key(&key) {
            // The earlier process with this PID has ended.
            self.end_holder(key.pid, now);
            self.short_lived.record_found(key, person, &opens, now);
        }
        self.remove_holder(key.pid);
        if self.file_holders.processes.len() >= MAX_HOLDERS {
            let Some(other) = self.quota.holder_to_evict(person) else {
                return ScanOutcome::HoldsNothing(missed.or(Some(SkipReason::NoRoom)));
            };
            self.remove_holder(other.pid);
            self.schedule.mark_no_room(other.pid);
        }
        self.quota.add(person, key, opens.len());
        let file_holders = Arc::make_mut(&mut self.file_holders);
        file_holders.processes.insert(key, opens);
        ScanOutcome::Holds(missed)
    }

    /// Keeps fewer descriptors of the person with too many, after this person got more.
    fn truncate_descriptors(&mut self, person: u32) {
        while let Some(too_many) = self.quota.excess(person) {
            let file_holders = Arc::make_mut(&mut self.file_holders);
            let opens = too_many.holders.iter();
            let opens = opens.filter_map(|key| file_holders.processes.get(key));
            let level = too_many.level(opens.map(Vec::as_slice));
            for key in &too_many.holders {
                let Some(opens) = file_holders.processes.get_mut(key) else {
                    continue;
                };
                if truncate_opens(opens, level) {
                    file_holders.truncated.insert(*key);
                    self.quota.set_count(key, opens.len());
                }
            }
            self.quota.set_level(&too_many, level);
        }
    }

    /// Records that the process with this PID has ended.
    pub(super) fn end_holder(&mut self, pid: u32, now: Millis) {
        if let Some((key, _)) = self.holders_of(pid).next() {
            let key = *key;
            self.short_lived.record_end(&key, now);
        }
        self.remove_holder(pid);
    }

    pub(super) fn remove_holder(&mut self, pid: u32) {
        let key = self.holders_of(pid).next().map(|(key, _)| *key);
        if let Some(key) = key {
            // Copied only while a reader holds the result.
            let file_holders = Arc::make_mut(&mut self.file_holders);
            file_holders.processes.remove(&key);
            file_holders.truncated.remove(&key);
            self.quota.remove(&key);
        }
    }

    pub(super) fn finish_round(&mut self, request: u64, listed_all: bool) {
        if listed_all && self.schedule.is_complete(request, &self.hung_pids) {
            self.completed_request = self.completed_request.max(request);
        }
        if self.hung_pids.is_empty() {
            self.schedule.rescan_skipped(SkipReason::OutsideDev);
        }
        self.update_incomplete_reason();
    }

    /// Publishes the persons with short-lived holders.
    pub(super) fn update_short_lived(&mut self, now: Millis) {
        let short_lived = self.short_lived.by_person(now);
        if self.file_holders.short_lived != short_lived {
            Arc::make_mut(&mut self.file_holders).short_lived = short_lived;
        }
    }

    /// The process with a scan that takes longer than `slow`.
    pub(super) fn hung_pid(&self, now: Millis, slow: Millis) -> Option<u32> {
        let (pid, since) = self.scanning?;
        (now.saturating_sub(since) > slow).then_some(pid)
    }

    /// Rescans a process that hung and answers again.
    pub(super) fn recover(&mut self, pid: u32, now: Millis) {
        self.hung_pids.remove(&pid);
        self.schedule.reset(pid, now);
    }

    pub(super) fn update_incomplete_reason(&mut self) {
        let missed = self.schedule.skip_reason();
        let not_permitted;
        let why = if self.completed_request < self.request_of_watched {
            Some(super::FIRST_SCAN_PENDING)
        } else if !self.hung_pids.is_empty() || missed == Some(SkipReason::OutsideDev) {
            Some("a process does not answer")
        } else if self.others_hidden {
            Some(OTHERS_DENIED)
        } else if is_denied(missed) {
            not_permitted = self.denied_names.describe(&self.schedule.denied());
            Some(not_permitted.as_str())
        } else if missed == Some(SkipReason::TooMany) {
            Some("a process has more open files than are scanned")
        } else if missed == Some(SkipReason::Failed) {
            Some("some processes cannot be scanned")
        } else if missed == Some(SkipReason::NoRoom) {
            Some("more processes hold devices than gpukilld tracks")
        } else if self.list_is_truncated {
            Some("there are more processes than are scanned")
        } else {
            None
        };
        if self.file_holders.incomplete_reason.as_deref() != why {
            Arc::make_mut(&mut self.file_holders).incomplete_reason = why.map(str::to_owned);
        }
    }
}

fn is_denied(missed: Option<SkipReason>) -> bool {
    matches!(
        missed,
        Some(SkipReason::NotPermitted | SkipReason::OwnNotPermitted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd_scan::schedule::ScheduledScan;
    use crate::fd_scan::{FIRST_SCAN_PENDING, OpenDescriptor};

    const GPU: DeviceNumber = DeviceNumber::new(226, 128);

    fn pid_list(pids: impl IntoIterator<Item = u32>) -> PidList {
        PidList {
            pids: pids.into_iter().collect(),
            others_hidden: false,
            is_truncated: false,
        }
    }

    fn pair(others_hidden: bool) -> PidList {
        PidList {
            others_hidden,
            ..pid_list([1, 7])
        }
    }

    fn scan_result(
        uid: u32,
        opens: Vec<OpenDescriptor>,
        skipped: Option<SkipReason>,
    ) -> ProcessScan {
        ProcessScan::Process {
            start_ticks: 1,
            uid,
            name: "x".to_owned(),
            descriptors: 4,
            opens,
            skipped,
        }
    }

    fn reason(state: &ScanState) -> Option<&str> {
        state.file_holders.incomplete_reason.as_deref()
    }

    /// Scans all of these processes for the current request.
    fn scan_all(state: &mut ScanState, listed: &PidList, missed: Option<SkipReason>, now: Millis) {
        let request = state.requests;
        state.apply_list(listed, PidRange::All, now);
        for ScheduledScan { pid, .. } in state.schedule.take_due(request, now) {
            let result = scan_result(0, Vec::new(), missed);
            state.apply_scan(pid, result, request, now, None);
        }
        state.finish_round(request, true);
    }

    fn due(state: &mut ScanState, now: Millis) -> Vec<u32> {
        let due = state.schedule.take_due(state.requests, now);
        due.iter().map(|scan| scan.pid).collect()
    }

    fn watching() -> ScanState {
        let mut state = ScanState::new();
        let watched = (BTreeSet::from([GPU]), WatchMode::Always);
        state.watched.insert("test", watched);
        state.update_watched();
        state
    }

    #[test]
    fn hidden_processes_may_hold_a_device() {
        let hidden = "other users' processes cannot be scanned: not permitted";
        let mut state = watching();
        assert_eq!(reason(&state), Some(FIRST_SCAN_PENDING));
        scan_all(&mut state, &pair(true), None, 1_000);
        assert_eq!(reason(&state), Some(hidden));
        // Newer processes say nothing about the others.
        state.apply_list(&pair(false), PidRange::Between(7, 9), 3_000);
        state.finish_round(state.requests, false);
        assert_eq!(reason(&state), Some(hidden));
        scan_all(&mut state, &pair(false), None, 5_000);
        assert_eq!(reason(&state), None);
    }

    #[test]
    fn names_few_denied_processes() {
        let mut state = watching();
        let refused = |pids: std::ops::RangeInclusive<u32>, missed, state: &mut ScanState| {
            state.request_rescan();
            scan_all(state, &pid_list(pids), missed, 1_000);
            state.file_holders.incomplete_reason.clone()
        };
        let own = Some(SkipReason::OwnNotPermitted);
        let others = Some(SkipReason::NotPermitted);
        let text = |who: &str| Some(format!("{who} cannot be scanned: not permitted"));
        assert_eq!(refused(1..=1, own, &mut state), text("process 1 (x)"));
        let three = text("processes 1 (x), 2 (x) and 3 (x)");
        assert_eq!(refused(1..=3, others, &mut state), three);
        let more = text("processes 1 (x), 2 (x), 3 (x) and others");
        assert_eq!(refused(1..=4, own, &mut state), more);
        let of_others = text("other users' processes");
        assert_eq!(refused(1..=4, others, &mut state), of_others);
        // An ended process is no denied one.
        assert_eq!(refused(4..=4, own, &mut state), text("process 4 (x)"));
        assert_eq!(refused(4..=4, None, &mut state), None);
    }

    #[test]
    fn skipped_files_are_read_after_a_hang() {
        let hangs = "a process does not answer";
        let mut state = watching();
        state.hung_pids.insert(9);
        scan_all(
            &mut state,
            &pair(false),
            Some(SkipReason::OutsideDev),
            1_000,
        );
        assert_eq!(reason(&state), Some(hangs));
        assert_eq!(due(&mut state, 1_001), [0; 0]);
        // It answers; the others are not yet scanned completely.
        state.hung_pids.clear();
        state.finish_round(state.requests, true);
        assert_eq!(reason(&state), Some(hangs));
        assert_eq!(due(&mut state, 1_001), [1, 7]);
        scan_all(&mut state, &pair(false), None, 3_000);
        assert_eq!(reason(&state), None);
    }

    /// A host with these processes.
    fn listed(pids: impl IntoIterator<Item = u32>, is_truncated: bool) -> ScanState {
        let mut state = watching();
        let listed = PidList {
            is_truncated,
            ..pid_list(pids)
        };
        state.apply_list(&listed, PidRange::All, 0);
        state
    }

    fn holds(state: &mut ScanState, pid: u32, uid: u32) {
        has_copies(state, pid, uid, 1);
    }

    fn pids(state: &ScanState) -> Vec<u32> {
        state
            .file_holders
            .processes
            .keys()
            .map(|key| key.pid)
            .collect()
    }

    #[test]
    fn one_users_holders_displace_no_others() {
        let many = 20_000;
        let mut state = listed(1..=many + 2, false);
        for pid in 1..=many {
            holds(&mut state, pid, 1_000);
        }
        assert_eq!(state.schedule.skip_reason(), None);
        holds(&mut state, many + 1, 1_000);
        assert_eq!(pids(&state), (1..=many).collect::<Vec<_>>());
        holds(&mut state, many + 2, 0);
        let mut kept: Vec<u32> = (1..many).collect();
        kept.push(many + 2);
        assert_eq!(pids(&state), kept);
        state.finish_round(1, true);
        let why = "more processes hold devices than gpukilld tracks";
        assert_eq!(reason(&state), Some(why));
        // When there is room again, both processes are kept once they were scanned.
        for (gone, held) in [(7, many), (8, many + 1)] {
            state.remove_holder(gone);
            state.finish_round(1, true);
            assert_eq!(reason(&state), Some(why));
            holds(&mut state, held, 1_000);
        }
        state.finish_round(1, true);
        assert_eq!(reason(&state), None);
    }

    #[test]
    fn too_many_processes_are_reported() {
        let mut state = listed([7], true);
        holds(&mut state, 7, 0);
        state.finish_round(1, true);
        let why = "there are more processes than are scanned";
        assert_eq!(reason(&state), Some(why));
    }

    #[test]
    fn partial_list_does_not_clear_the_limit() {
        let mut state = listed([7], true);
        holds(&mut state, 7, 0);
        state.finish_round(1, true);
        state.apply_list(&pair(false), PidRange::Between(7, 9), 2_000);
        holds(&mut state, 1, 0);
        holds(&mut state, 7, 0);
        state.finish_round(1, false);
        let why = "there are more processes than are scanned";
        assert_eq!(reason(&state), Some(why));
    }

    #[test]
    fn lists_all_once_a_minute() {
        let mut state = watching();
        scan_all(&mut state, &pair(false), None, 1_000);
        state.newest_pid = Some(7);
        let mut listed = || -> Vec<u32> {
            let rounds = (0..70).filter(|_| state.next_pid_range(Some(7)) == Some(PidRange::All));
            rounds.collect()
        };
        assert_eq!(listed(), [0, 30, 60]);
    }

    /// Gives a process this many descriptors of the device.
    fn has_copies(state: &mut ScanState, pid: u32, uid: u32, many: u32) {
        let open = |fd| OpenDescriptor {
            number: GPU,
            fd,
            thread: None,
        };
        let result = scan_result(uid, (0..many).map(open).collect(), None);
        state.apply_scan(pid, result, 1, 0, None);
    }

    fn kept(state: &ScanState) -> usize {
        state.file_holders.processes.values().map(Vec::len).sum()
    }

    #[test]
    fn one_persons_copies_take_no_other_room() {
        let mut state = listed(1..=400, false);
        has_copies(&mut state, 400, 7, 300);
        for _ in 0..2 {
            for pid in 1..=295 {
                has_copies(&mut state, pid, 1_000, 8_193);
            }
        }
        assert!(kept(&state) <= 16_386 + 300, "{}", kept(&state));
        // Each process stays a holder, marked as truncated; the other person's is not.
        assert_eq!(state.file_holders.processes.len(), 296);
        let cut: Vec<u32> = state
            .file_holders
            .truncated
            .iter()
            .map(|key| key.pid)
            .collect();
        assert_eq!(cut, (1..=295).collect::<Vec<_>>());
        let other = state.file_holders.processes.iter().next_back().unwrap();
        assert_eq!((other.0.pid, other.1.len()), (400, 300));
        // When they have ended, the limits are lifted.
        state.apply_list(&pid_list([295, 400]), PidRange::All, 0);
        has_copies(&mut state, 295, 1_000, 8_193);
        assert_eq!(
            (kept(&state), state.file_holders.truncated.len()),
            (8_493, 0)
        );
    }

    #[test]
    fn copies_of_many_persons_fit_the_limit() {
        let mut state = listed(1..=400, false);
        for pid in 1..=100 {
            has_copies(&mut state, pid, pid, 8_193);
        }
        has_copies(&mut state, 400, 400, 300);
        assert!(kept(&state) <= 65_536, "{}", kept(&state));
        assert_eq!(state.file_holders.processes.len(), 101);
        let other = state.file_holders.processes.iter().next_back().unwrap();
        assert_eq!((other.0.pid, other.1.len()), (400, 300));
    }
}
