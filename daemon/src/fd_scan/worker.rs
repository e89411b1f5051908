//! The scan thread: rounds of scans of the processes that are due.
//!
//! A scan may block forever, in a file system that does not answer. The next caller of a handle
//! then starts another thread, which leaves that process out.

use super::denied::OTHERS_DENIED;
use super::scanner::{FdScanner, FileScope, PidRange, ProcessScan, ScanEffort, SkipReason};
use super::schedule::{FULL_PASS_INTERVAL, Millis, ROUND_INTERVAL, ScheduledScan};
use super::state::ScanState;
use super::{DeviceNumber, FileHolders, PersonMapping, WatchMode};
use crate::fault::FaultCause;
use gpukill_policy::access::LimitGroup;
use gpukill_proto::model::{FaultCode, ProcessKey};
use gpukill_proto::text::sanitize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A scan that takes longer counts as hung.
const HANG_TIMEOUT: Duration = Duration::from_secs(5);

/// How many threads may hang.
const MAX_HUNG_THREADS: usize = 3;

/// How many processes are read at once outside the rounds. A read that hangs keeps its thread.
const MAX_DIRECT_READS: usize = 16;

/// How many of them for one caller, so that processes that hang leave reads to others.
const MAX_DIRECT_READS_OF_CALLER: usize = 2;

/// How many rounds follow at once after a round in which a new process had ended before it was
/// scanned.
const MAX_FOLLOW_UP_ROUNDS: u8 = 4;

/// The thread works this long, then yields its processor for a moment.
const WORK_SLICE: Duration = Duration::from_millis(20);
const WORK_PAUSE: Duration = Duration::from_millis(1);

/// The state that the scan threads and the handles share.
pub(crate) struct ScanWorker {
    scanner: Box<dyn FdScanner>,
    person_of: PersonMapping,
    timing: ScanTiming,
    started_at: Instant,
    state: Mutex<ScanState>,
    wake: Condvar,
    /// The processes that are read directly, each with the caller of that read.
    direct_reads: Mutex<Vec<(u32, LimitGroup)>>,
    direct_read_ended: Condvar,
}

/// How fast the scan goes; other values than [`ScanTiming::DEFAULT`] only in tests.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanTiming {
    pub(super) round_interval: Duration,
    pub(super) hang_timeout: Duration,
}

impl ScanTiming {
    pub(super) const DEFAULT: Self = Self {
        round_interval: Duration::from_millis(ROUND_INTERVAL),
        hang_timeout: HANG_TIMEOUT,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundKind {
    /// Lists processes, then scans those that are due.
    Full,
    /// Scans hinted processes at once, without listing.
    Hinted,
}

/// Another thread scans now, or the scan was stopped.
struct Superseded;

impl ScanWorker {
    pub(super) fn start(
        scanner: Box<dyn FdScanner>,
        persons: PersonMapping,
        pace: ScanTiming,
    ) -> std::io::Result<Arc<Self>> {
        let search = Arc::new(Self {
            scanner,
            person_of: persons,
            timing: pace,
            started_at: Instant::now(),
            state: Mutex::new(ScanState::new()),
            wake: Condvar::new(),
            direct_reads: Mutex::default(),
            direct_read_ended: Condvar::new(),
        });
        search.start_thread(0)?;
        Ok(search)
    }

    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.wake.notify_all();
    }

    /// Watches these devices from now on, in place of the earlier devices of the same watcher.
    pub(crate) fn watch(
        &self,
        watcher: &'static str,
        numbers: BTreeSet<DeviceNumber>,
        when: WatchMode,
    ) {
        let mut state = self.lock();
        let before = state.watched.insert(watcher, (numbers, when));
        if before.as_ref() != state.watched.get(watcher) {
            state.update_watched();
            drop(state);
            self.wake.notify_all();
        }
    }

    /// Scans these processes soon: a driver reports that they use a device.
    pub(crate) fn hint(&self, pids: impl IntoIterator<Item = u32>) {
        let now = self.now();
        let mut state = self.lock();
        let mut any = false;
        if state.is_active(now) {
            for pid in pids {
                any |= state.schedule.hint(pid, now);
            }
        }
        drop(state);
        if any {
            self.wake.notify_all();
        }
    }

    /// Drops these processes, which have ended (their PIDs may be reused): the caller knows before
    /// the next scan does.
    pub(crate) fn forget(&self, holders: impl IntoIterator<Item = ProcessKey>) {
        let now = self.now();
        let mut state = self.lock();
        for key in holders {
            if state.file_holders.processes.contains_key(&key) {
                state.end_holder(key.pid, now);
                // The process that has the PID now is new.
                state.schedule.reset(key.pid, now);
            }
        }
    }

    /// Requests a scan of every process, and of threads with descriptors of their own. Pass the
    /// answer to [`Self::has_scanned`].
    pub(crate) fn request_scan(&self) -> u64 {
        let now = self.now();
        let mut state = self.lock();
        state.requests += 1;
        state.requested_at = Some(now);
        if state.numbers.is_empty() {
            state.completed_request = state.requests;
        }
        let request = state.requests;
        drop(state);
        self.wake.notify_all();
        request
    }

    /// Whether every process that answers was scanned since that [`Self::request_scan`].
    pub(crate) fn has_scanned(self: &Arc<Self>, request: u64) -> bool {
        self.replace_hung_thread().completed_request >= request
    }

    pub(crate) fn file_holders(self: &Arc<Self>) -> Arc<FileHolders> {
        Arc::clone(&self.replace_hung_thread().file_holders)
    }

    /// The device files that one process has open now, without a round of the scan: waits for them
    /// until `deadline`.
    pub(crate) fn read_process(
        self: &Arc<Self>,
        pid: u32,
        caller: LimitGroup,
        deadline: Instant,
    ) -> FileHolders {
        let Some(permit) = self.direct_read_permit(pid, caller, deadline) else {
            return incomplete_holders("gpukilld waits for processes that do not answer");
        };
        let (numbers, threads) = {
            let state = self.lock();
            if state.hung_pids.contains(&pid) {
                return incomplete_holders("it does not answer");
            }
            (Arc::clone(&state.numbers), state.known_threads(pid))
        };
        let (sender, receiver) = channel();
        let worker = Arc::clone(self);
        let read = move || {
            let (scope, effort) = (FileScope::AnyFile, ScanEffort::AllThreads);
            let scan = worker
                .scanner
                .scan_process(pid, &numbers, scope, effort, &threads);
            let is_hidden = scan == ProcessScan::Gone && worker.scanner.hides_processes();
            drop(permit);
            // The caller may have stopped waiting.
            let _ = sender.send(match is_hidden {
                true => incomplete_holders(OTHERS_DENIED),
                false => holders_of_scan(pid, scan),
            });
        };
        let thread = std::thread::Builder::new().name("fd-read".into());
        if thread.spawn(read).is_err() {
            return incomplete_holders("the system starts no thread for it");
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let holders = receiver.recv_timeout(left);
        holders.unwrap_or_else(|_| incomplete_holders("it does not answer"))
    }

    /// Waits until few enough direct reads run, and none of this process; `None` after the
    /// deadline.
    fn direct_read_permit(
        self: &Arc<Self>,
        pid: u32,
        caller: LimitGroup,
        deadline: Instant,
    ) -> Option<DirectReadPermit> {
        let must_wait = |reads: &mut Vec<(u32, LimitGroup)>| {
            let of_caller = reads.iter().filter(|(_, by)| *by == caller).count();
            reads.len() >= MAX_DIRECT_READS
                || of_caller >= MAX_DIRECT_READS_OF_CALLER
                || reads.iter().any(|(read, _)| *read == pid)
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let ended = &self.direct_read_ended;
        let waited = ended.wait_timeout_while(self.lock_direct_reads(), left, must_wait);
        let (mut reads, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        reads.push((pid, caller));
        Some(DirectReadPermit(Arc::clone(self), pid))
    }

    fn lock_direct_reads(&self) -> MutexGuard<'_, Vec<(u32, LimitGroup)>> {
        let reads = self.direct_reads.lock();
        reads.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fault(self: &Arc<Self>) -> Option<FaultCause> {
        let now = self.now();
        let state = self.replace_hung_thread();
        if state.hung_pids.len() >= MAX_HUNG_THREADS
            && state
                .hung_pid(now, to_millis(self.timing.hang_timeout))
                .is_some()
        {
            let what = "the file descriptor scan is stuck";
            return Some(FaultCause::new(FaultCode::HolderSearchStuck, what));
        }
        if let Some(pid) = state.hung_pids.first() {
            let what = format!("process {pid} cannot be scanned: it does not answer");
            return Some(FaultCause::new(FaultCode::ProcessUnanswered, what));
        }
        let failure = state.thread_error.as_ref().or(state.list_error.as_ref());
        failure.map(|what| FaultCause::new(FaultCode::HolderSearchFailed, what))
    }

    /// Starts another thread where the one that scans hangs.
    fn replace_hung_thread(self: &Arc<Self>) -> MutexGuard<'_, ScanState> {
        let now = self.now();
        let mut state = self.lock();
        if state.hung_pids.len() < MAX_HUNG_THREADS
            && let Some(pid) = state.hung_pid(now, to_millis(self.timing.hang_timeout))
        {
            let next = state.thread + 1;
            // The new thread takes the lock only when it runs.
            match self.start_thread(next) {
                Ok(()) => {
                    state.thread = next;
                    state.scanning = None;
                    state.hung_pids.insert(pid);
                    state.thread_error = None;
                    state.update_incomplete_reason();
                }
                Err(error) => {
                    let why = sanitize(error.to_string().as_bytes(), 80);
                    state.thread_error = Some(format!(
                        "cannot start a thread for the file descriptor scan: {why}"
                    ));
                }
            }
        }
        state
    }

    fn start_thread(self: &Arc<Self>, number: u64) -> std::io::Result<()> {
        let search = Arc::clone(self);
        let thread = std::thread::Builder::new().name("fd-scan".into());
        thread.spawn(move || while search.run_round(number).is_ok() {})?;
        Ok(())
    }

    fn run_round(&self, thread: u64) -> Result<(), Superseded> {
        let round = self.wait_for_round(thread)?;
        let request = self.lock().requests;
        let mut listed_all = false;
        if round == RoundKind::Full {
            listed_all = self.list_processes();
        }
        let due = self.lock().schedule.take_due(request, self.now());
        let start = Instant::now();
        let mut worked = start;
        for scan in due {
            self.scan_scheduled(scan, thread)?;
            // New processes do not wait for the rest of many: the rest is scanned in the next
            // round.
            if start.elapsed() > self.timing.round_interval {
                break;
            }
            if worked.elapsed() > WORK_SLICE {
                std::thread::sleep(WORK_PAUSE);
                worked = Instant::now();
            }
        }
        let mut state = self.lock();
        state.finish_round(request, listed_all);
        state.update_short_lived(self.now());
        // Its children may hold what it held: they are scanned at once, a few times.
        let missed_short_lived = std::mem::take(&mut state.missed_short_lived);
        state.follow_ups = match round {
            RoundKind::Full if missed_short_lived && state.follow_ups < MAX_FOLLOW_UP_ROUNDS => {
                state.follow_ups + 1
            }
            RoundKind::Full | RoundKind::Hinted => 0,
        };
        if state.follow_ups > 0 {
            state.next_round = self.now();
        }
        Ok(())
    }

    fn wait_for_round(&self, thread: u64) -> Result<RoundKind, Superseded> {
        let mut state = self.lock();
        loop {
            if state.is_stopped || state.thread != thread {
                return Err(Superseded);
            }
            let now = self.now();
            if !state.is_active(now) {
                state.reset();
                let waited = self.wake.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // A list that failed is not repeated at once.
            let is_wished = state.has_open_request() && state.list_error.is_none();
            if is_wished || now >= state.next_round {
                state.next_round = now + to_millis(self.timing.round_interval);
                return Ok(RoundKind::Full);
            }
            if state.schedule.has_hints() {
                return Ok(RoundKind::Hinted);
            }
            let left = Duration::from_millis(state.next_round - now);
            let waited = self.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Finds new and ended processes. Returns whether all were listed.
    fn list_processes(&self) -> bool {
        let newest = self.scanner.newest_pid();
        let Some(range) = self.lock().next_pid_range(newest) else {
            return false;
        };
        let listed = self.scanner.list_pids(range);
        let now = self.now();
        let mut state = self.lock();
        match listed {
            Ok(listed) => {
                state.list_error = None;
                state.newest_pid = newest;
                state.apply_list(&listed, range, now);
                range == PidRange::All
            }
            Err(error) => {
                let why = sanitize(error.to_string().as_bytes(), 80);
                state.list_error = Some(format!("cannot list processes: {why}"));
                false
            }
        }
    }

    fn scan_scheduled(&self, scan: ScheduledScan, thread: u64) -> Result<(), Superseded> {
        let pid = scan.pid;
        // Read before the scan: a file that the process opens later changes its activity.
        let ran = self.scanner.activity(pid);
        if ran.is_some() && ran == scan.skip_if {
            self.lock().schedule.record_skip(pid, self.now());
            return Ok(());
        }
        let (numbers, request, scope, effort, threads, start) = {
            let mut state = self.lock();
            if state.is_stopped || state.thread != thread {
                return Err(Superseded);
            }
            if state.hung_pids.contains(&pid) {
                return Ok(());
            }
            let now = self.now();
            state.scanning = Some((pid, now));
            let scope = if state.hung_pids.is_empty() {
                FileScope::AnyFile
            } else {
                FileScope::OnlyDev
            };
            (
                Arc::clone(&state.numbers),
                state.requests,
                scope,
                state.effort(scan),
                state.known_threads(pid),
                now,
            )
        };
        // Without the lock: this call may block forever.
        let result = self
            .scanner
            .scan_process(pid, &numbers, scope, effort, &threads);
        let result = result.with_person(&self.person_of);
        let mut state = self.lock();
        if state.thread != thread {
            // This thread hung and was replaced; the process answers now.
            state.recover(pid, self.now());
            return Err(Superseded);
        }
        state.scanning = None;
        state.apply_scan(pid, result, request, start, ran);
        Ok(())
    }

    fn now(&self) -> Millis {
        // Not from 0: the first listed processes started before.
        FULL_PASS_INTERVAL + to_millis(self.started_at.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, ScanState> {
        // No code panics while it holds this lock; if some did, the values in it would still be
        // whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit to read a process directly, given back when dropped.
struct DirectReadPermit(Arc<ScanWorker>, u32);

impl Drop for DirectReadPermit {
    fn drop(&mut self) {
        self.0.lock_direct_reads().retain(|(pid, _)| *pid != self.1);
        self.0.direct_read_ended.notify_all();
    }
}

fn incomplete_holders(why: &str) -> FileHolders {
    FileHolders {
        incomplete_reason: Some(why.to_owned()),
        ..FileHolders::default()
    }
}

/// The result of a scan of one process alone.
fn holders_of_scan(pid: u32, scan: ProcessScan) -> FileHolders {
    match scan {
        ProcessScan::Gone | ProcessScan::KernelThread => FileHolders::default(),
        ProcessScan::Process {
            start_ticks,
            opens,
            skipped,
            ..
        } => {
            let why = skipped.map(|skipped| match skipped {
                SkipReason::NotPermitted | SkipReason::OwnNotPermitted => "not permitted",
                SkipReason::TooMany => "it has more open files than are scanned",
                SkipReason::OutsideDev | SkipReason::Failed | SkipReason::NoRoom => {
                    "they cannot be read"
                }
            });
            let holds = (!opens.is_empty()).then_some((ProcessKey { pid, start_ticks }, opens));
            FileHolders {
                processes: holds.into_iter().collect::<BTreeMap<_, _>>(),
                incomplete_reason: why.map(str::to_owned),
                ..FileHolders::default()
            }
        }
    }
}

fn to_millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd_scan::scanner::{PidList, ProcessActivity, ProcessScan, ScanEffort, SkipReason};
    use crate::fd_scan::{FdScanHandle, OpenDescriptor};
    use std::io;

    const GPU: DeviceNumber = DeviceNumber::new(226, 128);
    const OTHER: DeviceNumber = DeviceNumber::new(226, 129);

    const QUICK: ScanTiming = ScanTiming {
        round_interval: Duration::from_millis(5),
        hang_timeout: Duration::from_millis(40),
    };

    const NOT_YET: Option<&str> = Some("not all processes have been scanned yet");
    const NOT_ANSWERING: Option<&str> = Some("a process does not answer");

    /// A host with processes that the test controls. Clones are the same host.
    #[derive(Clone, Default)]
    struct FakeScanner(Arc<(Mutex<FakeHost>, Condvar)>);

    #[derive(Default)]
    struct FakeHost {
        processes: BTreeMap<u32, FakeProcess>,
        cannot_list: bool,
        hides_processes: bool,
        scans: BTreeMap<u32, u32>,
        listings: u32,
        /// How many scans had been made when processes were listed.
        scans_before: BTreeSet<u32>,
        threads: u32,
    }

    #[derive(Clone, Default)]
    struct FakeProcess {
        started: u64,
        opens: Vec<DeviceNumber>,
        missed: Option<SkipReason>,
        hangs: bool,
        takes: Duration,
        ran: u64,
    }

    impl FakeScanner {
        fn world(&self) -> MutexGuard<'_, FakeHost> {
            self.0.0.lock().unwrap()
        }

        fn put(&self, pid: u32, process: FakeProcess) {
            self.world().processes.insert(pid, process);
            self.0.1.notify_all();
        }

        fn scans(&self, pid: u32) -> u32 {
            self.world().scans.get(&pid).copied().unwrap_or(0)
        }

        fn holders(&self) -> FdScanHandle {
            FdScanHandle::start_custom(Box::new(self.clone()), Box::new(|uid| uid), QUICK).unwrap()
        }

        fn watching(&self) -> FdScanHandle {
            let holders = self.holders();
            holders.watch("test", [GPU].into(), WatchMode::Always);
            holders
        }
    }

    impl FdScanner for FakeScanner {
        fn newest_pid(&self) -> Option<u32> {
            None
        }

        fn activity(&self, pid: u32) -> Option<ProcessActivity> {
            let world = self.world();
            let time = world.processes.get(&pid)?.ran;
            ProcessActivity::new(time, 26)
        }

        fn list_pids(&self, _: PidRange) -> io::Result<PidList> {
            let mut world = self.world();
            world.listings += 1;
            let scans = world.scans.values().sum();
            world.scans_before.insert(scans);
            if world.cannot_list {
                return Err(io::Error::from_raw_os_error(24));
            }
            Ok(PidList {
                pids: world.processes.keys().copied().collect(),
                others_hidden: false,
                is_truncated: false,
            })
        }

        fn scan_process(
            &self,
            pid: u32,
            numbers: &[DeviceNumber],
            scope: FileScope,
            _: ScanEffort,
            _: &[u32],
        ) -> ProcessScan {
            let mut world = self.world();
            *world.scans.entry(pid).or_default() += 1;
            world.threads += 1;
            let hangs = |world: &mut FakeHost| world.processes.get(&pid).is_some_and(|it| it.hangs);
            let mut world = self.0.1.wait_while(world, |world| hangs(world)).unwrap();
            world.threads -= 1;
            let Some(process) = world.processes.get(&pid).cloned() else {
                return ProcessScan::Gone;
            };
            drop(world);
            std::thread::sleep(process.takes);
            let not_asked = (scope == FileScope::OnlyDev).then_some(SkipReason::OutsideDev);
            let opens = process.opens.iter().filter(|it| numbers.contains(it));
            ProcessScan::Process {
                start_ticks: process.started,
                uid: 0,
                name: "python".to_owned(),
                descriptors: process.opens.len(),
                opens: (3..)
                    .zip(opens)
                    .map(|(fd, number)| open(fd, *number))
                    .collect(),
                skipped: process.missed.or(not_asked),
            }
        }

        fn hides_processes(&self) -> bool {
            self.world().hides_processes
        }
    }

    fn open(fd: u32, number: DeviceNumber) -> OpenDescriptor {
        OpenDescriptor {
            number,
            fd,
            thread: None,
        }
    }

    fn holder(started: u64) -> FakeProcess {
        FakeProcess {
            started,
            opens: vec![GPU],
            ..FakeProcess::default()
        }
    }

    fn hanging() -> FakeProcess {
        FakeProcess {
            hangs: true,
            ..holder(1)
        }
    }

    fn found(of: &[(u32, u64)], incomplete: Option<&str>) -> FileHolders {
        let key = |&(pid, start_ticks): &(u32, u64)| ProcessKey { pid, start_ticks };
        FileHolders {
            processes: of.iter().map(|it| (key(it), vec![open(3, GPU)])).collect(),
            incomplete_reason: incomplete.map(str::to_owned),
            ..FileHolders::default()
        }
    }

    /// Before any process is due again.
    const SOON: Duration = Duration::from_secs(8);

    const ALICE: LimitGroup = LimitGroup::Person(1001);
    const BOB: LimitGroup = LimitGroup::Person(1002);

    fn soon() -> Instant {
        Instant::now() + SOON
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + SOON;
        while !is_so() {
            assert!(Instant::now() < deadline, "it never came to be so");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    fn finds(holders: &FdScanHandle, of: &[(u32, u64)], incomplete: Option<&str>) {
        let expected = found(of, incomplete);
        let deadline = Instant::now() + SOON;
        while *holders.file_holders() != expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(*holders.file_holders(), expected);
    }

    #[test]
    fn holders_come_go_and_reused_pids_differ() {
        let fake = FakeScanner::default();
        fake.put(7, holder(100));
        fake.put(8, FakeProcess::default());
        let holders = fake.holders();
        assert_eq!(*holders.file_holders(), FileHolders::default());
        holders.watch("test", [GPU].into(), WatchMode::Always);
        finds(&holders, &[(7, 100)], None);
        fake.put(9, holder(200));
        finds(&holders, &[(7, 100), (9, 200)], None);
        fake.put(7, holder(300));
        let key = |pid, start_ticks| ProcessKey { pid, start_ticks };
        // An unknown holder is not forgotten.
        holders.forget([key(7, 100), key(9, 100)]);
        finds(&holders, &[(7, 300), (9, 200)], None);
        fake.world().processes.remove(&7);
        finds(&holders, &[(9, 200)], None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn incomplete_until_everything_is_scanned() {
        let fake = FakeScanner::default();
        fake.put(7, holder(100));
        fake.put(8, hanging());
        let holders = fake.watching();
        // The process that hangs keeps the first pass incomplete.
        until(|| fake.scans(8) == 1);
        assert_eq!(holders.file_holders().incomplete_reason.as_deref(), NOT_YET);
        fake.put(8, holder(1));
        finds(&holders, &[(7, 100), (8, 1)], None);
        // With more devices a whole pass is needed again; with none there is nothing to scan.
        fake.put(8, hanging());
        holders.watch("other", [OTHER].into(), WatchMode::Always);
        assert_eq!(holders.file_holders().incomplete_reason.as_deref(), NOT_YET);
        fake.put(8, holder(1));
        finds(&holders, &[(7, 100), (8, 1)], None);
        holders.watch("test", BTreeSet::new(), WatchMode::Always);
        assert_eq!(*holders.file_holders(), FileHolders::default());
    }

    #[test]
    fn direct_read_neither_starts_nor_awaits_a_scan() {
        let fake = FakeScanner::default();
        fake.put(7, holder(100));
        fake.put(8, hanging());
        fake.put(9, FakeProcess::default());
        let holders = fake.holders();
        // Nothing is scanned before a request.
        holders.watch("test", [GPU].into(), WatchMode::OnRequest);
        assert_eq!(
            holders.read_process(7, ALICE, soon()),
            found(&[(7, 100)], None)
        );
        assert_eq!(holders.read_process(9, ALICE, soon()), found(&[], None));
        assert_eq!(holders.read_process(10, ALICE, soon()), found(&[], None));
        assert_eq!(fake.world().listings, 0);
        assert_eq!(fake.scans(8), 0);
        // A scan of all processes hangs.
        let request = holders.request_scan();
        until(|| fake.scans(8) == 1);
        assert_eq!(
            holders.read_process(7, ALICE, soon()),
            found(&[(7, 100)], None)
        );
        assert!(!holders.has_scanned(request));
    }

    #[test]
    fn direct_read_reports_missing_descriptors() {
        let fake = FakeScanner::default();
        let denied = |opens: &[DeviceNumber]| FakeProcess {
            missed: Some(SkipReason::NotPermitted),
            opens: opens.to_vec(),
            ..holder(100)
        };
        fake.put(7, denied(&[]));
        fake.put(8, denied(&[GPU]));
        fake.world().hides_processes = true;
        let holders = fake.holders();
        holders.watch("test", [GPU].into(), WatchMode::OnRequest);
        let why = Some("not permitted");
        assert_eq!(holders.read_process(7, ALICE, soon()), found(&[], why));
        assert_eq!(
            holders.read_process(8, ALICE, soon()),
            found(&[(8, 100)], why)
        );
        let hidden = holders.read_process(9, ALICE, soon()).incomplete_reason;
        assert_eq!(hidden.as_deref(), Some(OTHERS_DENIED));
    }

    #[test]
    fn hung_direct_reads_leave_reads_to_others() {
        let fake = FakeScanner::default();
        fake.put(7, holder(100));
        for pid in [8, 9, 10] {
            fake.put(pid, hanging());
        }
        let holders = fake.holders();
        holders.watch("test", [GPU].into(), WatchMode::OnRequest);
        let now = Instant::now;
        // One process takes one read, however often it is requested.
        for pid in [8, 8, 8, 9, 10, 10] {
            let silent = holders.read_process(pid, ALICE, now()).incomplete_reason;
            assert!(silent.is_some());
        }
        until(|| fake.world().threads == 2);
        let busy = holders.read_process(7, ALICE, now()).incomplete_reason;
        assert!(busy.unwrap().contains("processes that do not answer"));
        assert_eq!(
            holders.read_process(7, BOB, soon()),
            found(&[(7, 100)], None)
        );
        // They answer again.
        fake.put(8, holder(1));
        assert_eq!(
            holders.read_process(7, ALICE, soon()),
            found(&[(7, 100)], None)
        );
    }

    #[test]
    fn full_scan_finds_late_opens() {
        let fake = FakeScanner::default();
        fake.put(7, FakeProcess::default());
        let holders = fake.watching();
        finds(&holders, &[], None);
        fake.put(7, holder(0));
        let request = holders.request_scan();
        until(|| holders.has_scanned(request));
        assert_eq!(*holders.file_holders(), found(&[(7, 0)], None));
        assert!(!holders.has_scanned(request + 1));
    }

    #[test]
    fn hint_finds_late_opens() {
        let fake = FakeScanner::default();
        fake.put(7, FakeProcess::default());
        let holders = fake.watching();
        finds(&holders, &[], None);
        fake.put(7, holder(0));
        until(|| {
            holders.hint([7]);
            *holders.file_holders() == found(&[(7, 0)], None)
        });
        let scans = fake.scans(7);
        holders.hint([7, 8]);
        until(|| fake.scans(8) > 0);
        assert_eq!(fake.scans(7), scans, "it is known to hold one");
    }

    #[test]
    fn idle_process_is_not_rescanned() {
        // They are due within a second, and then not for minutes.
        let (rests, runs) = (SOONER, LATER);
        let idle = FakeProcess {
            ran: 5,
            ..FakeProcess::default()
        };
        let fake = FakeScanner::default();
        fake.put(rests, idle.clone());
        fake.put(runs, idle.clone());
        let holders = fake.watching();
        finds(&holders, &[], None);
        fake.put(
            runs,
            FakeProcess {
                ran: 6,
                ..holder(100)
            },
        );
        finds(&holders, &[(runs, 100)], None);
        assert_eq!((fake.scans(rests), fake.scans(runs)), (1, 2));
        // A request scans every process.
        let request = holders.request_scan();
        until(|| holders.has_scanned(request));
        assert_eq!((fake.scans(rests), fake.scans(runs)), (2, 3));
    }

    /// They are due 0.3 and 0.9 s after the first scan.
    const SOONER: u32 = 13763;
    const LATER: u32 = 1686;

    #[test]
    fn processes_are_listed_during_a_long_round() {
        let fake = FakeScanner::default();
        for pid in 1..=30 {
            let takes = Duration::from_millis(2);
            fake.put(pid, FakeProcess { takes, ..holder(1) });
        }
        let holders = fake.watching();
        let all: Vec<_> = (1..=30).map(|pid| (pid, 1)).collect();
        finds(&holders, &all, None);
        let before = fake.world().scans_before.clone();
        assert!(before.range(1..30).next().is_some(), "{before:?}");
    }

    #[test]
    fn on_request_watch_is_idle_until_requested() {
        let fake = FakeScanner::default();
        fake.put(7, holder(100));
        let holders = fake.holders();
        holders.watch("test", [GPU].into(), WatchMode::OnRequest);
        holders.hint([7]);
        std::thread::sleep(QUICK.round_interval * 10);
        assert_eq!(fake.world().listings, 0);
        assert_eq!(*holders.file_holders(), found(&[], NOT_YET));
        let request = holders.request_scan();
        until(|| holders.has_scanned(request));
        assert_eq!(*holders.file_holders(), found(&[(7, 100)], None));
    }

    #[test]
    fn request_without_devices_completes_at_once() {
        let holders = FakeScanner::default().holders();
        assert!(holders.has_scanned(holders.request_scan()));
    }

    #[test]
    fn denied_processes_are_reported() {
        let fake = FakeScanner::default();
        let foreign = FakeProcess {
            missed: Some(SkipReason::NotPermitted),
            ..FakeProcess::default()
        };
        fake.put(7, foreign.clone());
        fake.put(8, holder(100));
        let holders = fake.watching();
        let why = Some("process 7 (python) cannot be scanned: not permitted");
        finds(&holders, &[(8, 100)], why);
        // Its known descriptors stay although it is hidden now.
        fake.put(
            8,
            FakeProcess {
                started: 100,
                ..foreign
            },
        );
        let request = holders.request_scan();
        until(|| holders.has_scanned(request));
        let both = "processes 7 (python) and 8 (python) cannot be scanned: not permitted";
        assert_eq!(*holders.file_holders(), found(&[(8, 100)], Some(both)));
    }

    #[test]
    fn hung_process_is_left_out_until_it_answers() {
        let fake = FakeScanner::default();
        fake.put(7, holder(100));
        fake.put(8, hanging());
        fake.put(9, holder(200));
        let holders = fake.watching();
        finds(&holders, &[(7, 100), (9, 200)], NOT_ANSWERING);
        assert_eq!(
            holders.fault().map(|fault| fault.what).as_deref(),
            Some("process 8 cannot be scanned: it does not answer")
        );
        let request = holders.request_scan();
        until(|| holders.has_scanned(request));
        fake.put(8, holder(1));
        finds(&holders, &[(7, 100), (8, 1), (9, 200)], None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn too_many_hangs_add_no_thread() {
        let fake = FakeScanner::default();
        for pid in 1..=8 {
            fake.put(pid, hanging());
        }
        let holders = fake.watching();
        let stuck = "the file descriptor scan is stuck";
        until(|| holders.fault().map(|fault| fault.what).as_deref() == Some(stuck));
        std::thread::sleep(QUICK.hang_timeout * 3);
        assert_eq!(
            holders.fault().map(|fault| fault.what).as_deref(),
            Some(stuck)
        );
        assert_eq!(fake.world().threads, 4);
        for pid in 1..=8 {
            fake.put(pid, holder(1));
        }
        let all: Vec<_> = (1..=8).map(|pid| (pid, 1)).collect();
        finds(&holders, &all, None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn failed_listing_is_a_fault() {
        let fake = FakeScanner::default();
        fake.world().cannot_list = true;
        let holders = fake.watching();
        let why = "cannot list processes: Too many open files (os error 24)";
        until(|| holders.fault().map(|fault| fault.what).as_deref() == Some(why));
        assert_eq!(*holders.file_holders(), found(&[], NOT_YET));
        // Once a round, not more often.
        let before = fake.world().listings;
        std::thread::sleep(QUICK.round_interval * 4);
        assert!(fake.world().listings <= before + 5);
        fake.world().cannot_list = false;
        finds(&holders, &[], None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn dropping_the_last_handle_stops_the_thread() {
        let fake = FakeScanner::default();
        let holders = fake.watching();
        let clone = holders.clone();
        drop(holders);
        finds(&clone, &[], None);
        assert_eq!(Arc::strong_count(&fake.0), 2);
        drop(clone);
        until(|| Arc::strong_count(&fake.0) == 1);
    }

    #[test]
    fn next_scan_sees_opens_during_a_scan() {
        let fake = FakeScanner::default();
        let slow = FakeProcess {
            ran: 5,
            takes: Duration::from_millis(200),
            ..FakeProcess::default()
        };
        fake.put(LATER, slow);
        fake.put(SOONER, FakeProcess::default());
        let holders = fake.watching();
        until(|| fake.scans(LATER) == 1);
        // The scan has passed the process already.
        fake.put(
            LATER,
            FakeProcess {
                ran: 6,
                ..holder(100)
            },
        );
        // No handle is used meanwhile: the scan would count as hung.
        until(|| fake.scans(SOONER) == 1);
        finds(&holders, &[(LATER, 100)], None);
        assert_eq!(fake.scans(LATER), 2);
    }
}
