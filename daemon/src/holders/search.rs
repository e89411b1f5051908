//! The search: rounds of looks at those processes whose turn it is.
//!
//! A look may hang for ever, in a file system that does not answer. Whoever asks
//! for what was found then lets another thread go on without that process.

use super::look::{Care, Eyes, Which};
use super::state::State;
use super::table::{FULL_PASS, Moment, ROUND, Turn};
use super::{DeviceNumber, Found, Persons, When};
use crate::faults::FaultCause;
use gpukill_proto::snapshot::{FaultCode, ProcessKey};
use gpukill_proto::text::visible;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A look that takes longer hangs.
const SLOW: Duration = Duration::from_secs(5);

/// So many threads may hang.
const STUCK: usize = 3;

/// After a round in which a process had ended before it was looked at, so many others follow
/// at once.
const CHASES: u8 = 4;

/// A core is worked for so long, then left to others for a moment.
const WORK: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_millis(1);

/// What the threads and those who ask share.
pub(super) struct Search {
    eyes: Box<dyn Eyes>,
    persons: Persons,
    pace: Pace,
    began: Instant,
    state: Mutex<State>,
    wake: Condvar,
}

/// How fast it goes; other than in [`Pace::REAL`] only in tests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) round: Duration,
    pub(super) slow: Duration,
}

impl Pace {
    pub(super) const REAL: Self = Self {
        round: Duration::from_millis(ROUND),
        slow: SLOW,
    };
}

/// What a round does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Lists processes, then looks at those that are due.
    Whole,
    /// Looks at once, without listing.
    Hinted,
}

/// Another thread searches now, or none has to.
struct Over;

impl Search {
    pub(super) fn start(
        eyes: Box<dyn Eyes>,
        persons: Persons,
        pace: Pace,
    ) -> std::io::Result<Arc<Self>> {
        let search = Arc::new(Self {
            eyes,
            persons,
            pace,
            began: Instant::now(),
            state: Mutex::new(State::new()),
            wake: Condvar::new(),
        });
        search.start_thread(0)?;
        Ok(search)
    }

    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_all();
    }

    pub(super) fn watch(&self, watcher: &'static str, numbers: BTreeSet<DeviceNumber>, when: When) {
        let mut state = self.lock();
        let before = state.watched.insert(watcher, (numbers, when));
        if before.as_ref() != state.watched.get(watcher) {
            state.rewatch();
            drop(state);
            self.wake.notify_all();
        }
    }

    pub(super) fn hint(&self, pids: impl IntoIterator<Item = u32>) {
        let now = self.now();
        let mut state = self.lock();
        let mut any = false;
        if state.is_active(now) {
            for pid in pids {
                any |= state.table.hint(pid, now);
            }
        }
        drop(state);
        if any {
            self.wake.notify_all();
        }
    }

    pub(super) fn forget(&self, holders: impl IntoIterator<Item = ProcessKey>) {
        let now = self.now();
        let mut state = self.lock();
        for key in holders {
            if state.found.processes.contains_key(&key) {
                state.end_holder(key.pid, now);
                // Whoever has the pid now is new.
                state.table.renew(key.pid, now);
            }
        }
    }

    pub(super) fn look_now(&self) -> u64 {
        let now = self.now();
        let mut state = self.lock();
        state.wishes += 1;
        state.asked_for = Some(now);
        if state.numbers.is_empty() {
            state.fulfilled = state.wishes;
        }
        let wish = state.wishes;
        drop(state);
        self.wake.notify_all();
        wish
    }

    pub(super) fn has_looked(self: &Arc<Self>, wish: u64) -> bool {
        self.oversee().fulfilled >= wish
    }

    pub(super) fn found(self: &Arc<Self>) -> Arc<Found> {
        Arc::clone(&self.oversee().found)
    }

    pub(super) fn fault(self: &Arc<Self>) -> Option<FaultCause> {
        let now = self.now();
        let state = self.oversee();
        if state.stuck.len() >= STUCK && state.hangs(now, milliseconds(self.pace.slow)).is_some() {
            let what = "the search for processes that hold devices is stuck";
            return Some(FaultCause::new(FaultCode::HolderSearchStuck, what));
        }
        if let Some(pid) = state.stuck.first() {
            let what = format!("process {pid} cannot be looked into: it does not answer");
            return Some(FaultCause::new(FaultCode::ProcessUnanswered, what));
        }
        let failure = state.no_thread.as_ref().or(state.cannot_list.as_ref());
        failure.map(|what| FaultCause::new(FaultCode::HolderSearchFailed, what))
    }

    /// Lets another thread go on where the one that searches hangs.
    fn oversee(self: &Arc<Self>) -> MutexGuard<'_, State> {
        let now = self.now();
        let mut state = self.lock();
        if state.stuck.len() < STUCK
            && let Some(pid) = state.hangs(now, milliseconds(self.pace.slow))
        {
            let next = state.thread + 1;
            // It asks for the lock only when it runs.
            match self.start_thread(next) {
                Ok(()) => {
                    state.thread = next;
                    state.looking = None;
                    state.stuck.insert(pid);
                    state.no_thread = None;
                    state.tell_unseen();
                }
                Err(error) => {
                    let why = visible(error.to_string().as_bytes(), 80);
                    state.no_thread = Some(format!("no thread to search with: {why}"));
                }
            }
        }
        state
    }

    fn start_thread(self: &Arc<Self>, number: u64) -> std::io::Result<()> {
        let search = Arc::clone(self);
        let thread = std::thread::Builder::new().name("holders".into());
        thread.spawn(move || while search.round(number).is_ok() {})?;
        Ok(())
    }

    fn round(&self, thread: u64) -> Result<(), Over> {
        let round = self.wait_for_round(thread)?;
        let wish = self.lock().wishes;
        let mut listed_all = false;
        if round == Round::Whole {
            listed_all = self.list();
        }
        let due = self.lock().table.due(wish, self.now());
        let began = Instant::now();
        let mut worked = began;
        for turn in due {
            self.look_at(turn, thread)?;
            // New processes do not wait for the rest of many: that has its turn in
            // the next round.
            if began.elapsed() > self.pace.round {
                break;
            }
            if worked.elapsed() > WORK {
                std::thread::sleep(REST);
                worked = Instant::now();
            }
        }
        let mut state = self.lock();
        state.end_round(wish, listed_all);
        state.tell_fleeting(self.now());
        // Its children may hold what it held: they are looked for at once, a few times.
        let has_missed = std::mem::take(&mut state.missed_newborn);
        state.chases = match round {
            Round::Whole if has_missed && state.chases < CHASES => state.chases + 1,
            Round::Whole | Round::Hinted => 0,
        };
        if state.chases > 0 {
            state.next_round = self.now();
        }
        Ok(())
    }

    fn wait_for_round(&self, thread: u64) -> Result<Round, Over> {
        let mut state = self.lock();
        loop {
            if state.ended || state.thread != thread {
                return Err(Over);
            }
            let now = self.now();
            if !state.is_active(now) {
                state.forget();
                let waited = self.wake.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // What cannot be listed is not tried again and again.
            let is_wished = state.is_wished() && state.cannot_list.is_none();
            if is_wished || now >= state.next_round {
                state.next_round = now + milliseconds(self.pace.round);
                return Ok(Round::Whole);
            }
            if state.table.is_hinted() {
                return Ok(Round::Hinted);
            }
            let left = Duration::from_millis(state.next_round - now);
            let waited = self.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Finds the processes that are new, and those that have ended. Whether all
    /// were listed.
    fn list(&self) -> bool {
        let newest = self.eyes.newest();
        let Some(which) = self.lock().what_to_list(newest) else {
            return false;
        };
        let listed = self.eyes.list(which);
        let now = self.now();
        let mut state = self.lock();
        match listed {
            Ok(listed) => {
                state.cannot_list = None;
                state.newest = newest;
                state.take_list(&listed, which, now);
                which == Which::All
            }
            Err(error) => {
                let why = visible(error.to_string().as_bytes(), 80);
                state.cannot_list = Some(format!("processes cannot be listed: {why}"));
                false
            }
        }
    }

    fn look_at(&self, turn: Turn, thread: u64) -> Result<(), Over> {
        let pid = turn.pid;
        // Before the look: what it opens afterwards, it runs for.
        let ran = self.eyes.ran(pid);
        if ran.is_some() && ran == turn.unless {
            self.lock().table.rested(pid, self.now());
            return Ok(());
        }
        let (numbers, wish, care, depth, threads, began) = {
            let mut state = self.lock();
            if state.ended || state.thread != thread {
                return Err(Over);
            }
            if state.stuck.contains(&pid) {
                return Ok(());
            }
            let now = self.now();
            state.looking = Some((pid, now));
            let care = if state.stuck.is_empty() {
                Care::Anything
            } else {
                Care::OnlyDev
            };
            (
                Arc::clone(&state.numbers),
                state.wishes,
                care,
                state.depth(turn),
                state.threads(pid),
                now,
            )
        };
        // Without the lock: this is what may take for ever.
        let looked = self.eyes.look(pid, &numbers, care, depth, &threads);
        let looked = looked.of_person(&self.persons);
        let mut state = self.lock();
        if state.thread != thread {
            // It hung, and another went on; it answers now.
            state.recover(pid, self.now());
            return Err(Over);
        }
        state.looking = None;
        state.take_look(pid, looked, wish, began, ran);
        Ok(())
    }

    fn now(&self) -> Moment {
        // Not from 0: processes that are there at first began before.
        FULL_PASS + milliseconds(self.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds this lock; if something did, the values
        // in it are whole all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(duration: Duration) -> Moment {
    Moment::try_from(duration.as_millis()).unwrap_or(Moment::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::look::{Depth, Listed, Looked, Missed, Ran};
    use crate::holders::{Holders, Open};
    use std::collections::BTreeMap;
    use std::io;

    const GPU: DeviceNumber = DeviceNumber {
        major: 226,
        minor: 128,
    };
    const OTHER: DeviceNumber = DeviceNumber {
        major: 226,
        minor: 129,
    };

    const QUICK: Pace = Pace {
        round: Duration::from_millis(5),
        slow: Duration::from_millis(40),
    };

    const NOT_YET: Option<&str> = Some("not looked everywhere yet");
    const NOT_ANSWERING: Option<&str> = Some("a process does not answer");

    /// A box whose processes do as they are told. Clones are the same box.
    #[derive(Clone, Default)]
    struct Told(Arc<(Mutex<World>, Condvar)>);

    #[derive(Default)]
    struct World {
        processes: BTreeMap<u32, Process>,
        cannot_list: bool,
        looks: BTreeMap<u32, u32>,
        listings: u32,
        /// How many looks there had been when processes were listed.
        looks_before: BTreeSet<u32>,
        threads: u32,
    }

    #[derive(Clone, Default)]
    struct Process {
        started: u64,
        opens: Vec<DeviceNumber>,
        missed: Option<Missed>,
        hangs: bool,
        takes: Duration,
        ran: u64,
    }

    impl Told {
        fn world(&self) -> MutexGuard<'_, World> {
            self.0.0.lock().unwrap()
        }

        fn put(&self, pid: u32, process: Process) {
            self.world().processes.insert(pid, process);
            self.0.1.notify_all();
        }

        fn looks(&self, pid: u32) -> u32 {
            self.world().looks.get(&pid).copied().unwrap_or(0)
        }

        fn holders(&self) -> Holders {
            Holders::start_with(Box::new(self.clone()), Box::new(|uid| uid), QUICK).unwrap()
        }

        fn watching(&self) -> Holders {
            let holders = self.holders();
            holders.watch("test", [GPU].into(), When::Always);
            holders
        }
    }

    impl Eyes for Told {
        fn newest(&self) -> Option<u32> {
            None
        }

        fn ran(&self, pid: u32) -> Option<Ran> {
            let world = self.world();
            let time = world.processes.get(&pid)?.ran;
            Ran::new(time, 26)
        }

        fn list(&self, _: Which) -> io::Result<Listed> {
            let mut world = self.world();
            world.listings += 1;
            let looks = world.looks.values().sum();
            world.looks_before.insert(looks);
            if world.cannot_list {
                return Err(io::Error::from_raw_os_error(24));
            }
            Ok(Listed {
                pids: world.processes.keys().copied().collect(),
                others_hidden: false,
                is_cut: false,
            })
        }

        fn look(
            &self,
            pid: u32,
            numbers: &[DeviceNumber],
            care: Care,
            _: Depth,
            _: &[u32],
        ) -> Looked {
            let mut world = self.world();
            *world.looks.entry(pid).or_default() += 1;
            world.threads += 1;
            let hangs = |world: &mut World| world.processes.get(&pid).is_some_and(|it| it.hangs);
            let mut world = self.0.1.wait_while(world, |world| hangs(world)).unwrap();
            world.threads -= 1;
            let Some(process) = world.processes.get(&pid).cloned() else {
                return Looked::Gone;
            };
            drop(world);
            std::thread::sleep(process.takes);
            let not_asked = (care == Care::OnlyDev).then_some(Missed::NotAsked);
            let opens = process.opens.iter().filter(|it| numbers.contains(it));
            Looked::Process {
                start_ticks: process.started,
                uid: 0,
                name: "python".to_owned(),
                descriptors: process.opens.len(),
                opens: (3..)
                    .zip(opens)
                    .map(|(fd, number)| open(fd, *number))
                    .collect(),
                missed: process.missed.or(not_asked),
            }
        }
    }

    fn open(fd: u32, number: DeviceNumber) -> Open {
        Open {
            number,
            fd,
            thread: None,
        }
    }

    fn holder(started: u64) -> Process {
        Process {
            started,
            opens: vec![GPU],
            ..Process::default()
        }
    }

    fn hanging() -> Process {
        Process {
            hangs: true,
            ..holder(1)
        }
    }

    fn found(of: &[(u32, u64)], unseen: Option<&str>) -> Found {
        let key = |&(pid, start_ticks): &(u32, u64)| ProcessKey { pid, start_ticks };
        Found {
            processes: of.iter().map(|it| (key(it), vec![open(3, GPU)])).collect(),
            unseen: unseen.map(str::to_owned),
            ..Found::default()
        }
    }

    /// Sooner than anything has its turn again.
    const SOON: Duration = Duration::from_secs(8);

    fn until(mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + SOON;
        while !is_so() {
            assert!(Instant::now() < deadline, "it never came to be so");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    fn finds(holders: &Holders, of: &[(u32, u64)], unseen: Option<&str>) {
        let expected = found(of, unseen);
        let deadline = Instant::now() + SOON;
        while *holders.found() != expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(*holders.found(), expected);
    }

    #[test]
    fn holders_come_and_go_and_a_pid_that_is_used_again_is_another() {
        let told = Told::default();
        told.put(7, holder(100));
        told.put(8, Process::default());
        let holders = told.holders();
        assert_eq!(*holders.found(), Found::default());
        holders.watch("test", [GPU].into(), When::Always);
        finds(&holders, &[(7, 100)], None);
        told.put(9, holder(200));
        finds(&holders, &[(7, 100), (9, 200)], None);
        told.put(7, holder(300));
        let key = |pid, start_ticks| ProcessKey { pid, start_ticks };
        // Of one that was not found nothing is forgotten.
        holders.forget([key(7, 100), key(9, 100)]);
        finds(&holders, &[(7, 300), (9, 200)], None);
        told.world().processes.remove(&7);
        finds(&holders, &[(9, 200)], None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn nothing_is_known_before_everything_was_looked_at_for_what_is_watched() {
        let told = Told::default();
        told.put(7, holder(100));
        told.put(8, hanging());
        let holders = told.watching();
        // The one that hangs keeps the first pass open.
        until(|| told.looks(8) == 1);
        assert_eq!(holders.found().unseen.as_deref(), NOT_YET);
        told.put(8, holder(1));
        finds(&holders, &[(7, 100), (8, 1)], None);
        // More is watched: a whole pass again. Less: nothing to look for.
        told.put(8, hanging());
        holders.watch("other", [OTHER].into(), When::Always);
        assert_eq!(holders.found().unseen.as_deref(), NOT_YET);
        told.put(8, holder(1));
        finds(&holders, &[(7, 100), (8, 1)], None);
        holders.watch("test", BTreeSet::new(), When::Always);
        assert_eq!(*holders.found(), Found::default());
    }

    #[test]
    fn who_opens_it_late_is_found_by_a_look_at_everything() {
        let told = Told::default();
        told.put(7, Process::default());
        let holders = told.watching();
        finds(&holders, &[], None);
        told.put(7, holder(0));
        let wish = holders.look_now();
        until(|| holders.has_looked(wish));
        assert_eq!(*holders.found(), found(&[(7, 0)], None));
        assert!(!holders.has_looked(wish + 1));
    }

    #[test]
    fn who_opens_it_late_is_found_by_a_hint() {
        let told = Told::default();
        told.put(7, Process::default());
        let holders = told.watching();
        finds(&holders, &[], None);
        told.put(7, holder(0));
        until(|| {
            holders.hint([7]);
            *holders.found() == found(&[(7, 0)], None)
        });
        let looks = told.looks(7);
        holders.hint([7, 8]);
        until(|| told.looks(8) > 0);
        assert_eq!(told.looks(7), looks, "it is known to hold one");
    }

    #[test]
    fn who_has_not_run_since_the_last_look_is_not_looked_at_in_turn() {
        // Their turns come within a second, and then not for minutes.
        let (rests, runs) = (SOONER, LATER);
        let idle = Process {
            ran: 5,
            ..Process::default()
        };
        let told = Told::default();
        told.put(rests, idle.clone());
        told.put(runs, idle.clone());
        let holders = told.watching();
        finds(&holders, &[], None);
        told.put(
            runs,
            Process {
                ran: 6,
                ..holder(100)
            },
        );
        finds(&holders, &[(runs, 100)], None);
        assert_eq!((told.looks(rests), told.looks(runs)), (1, 2));
        // Who asks has everybody looked at.
        let wish = holders.look_now();
        until(|| holders.has_looked(wish));
        assert_eq!((told.looks(rests), told.looks(runs)), (2, 3));
    }

    /// Their turns come 0.3 and 0.9 s after the first look.
    const SOONER: u32 = 13763;
    const LATER: u32 = 1686;

    #[test]
    fn processes_are_listed_while_a_look_at_many_goes_on() {
        let told = Told::default();
        for pid in 1..=30 {
            let takes = Duration::from_millis(2);
            told.put(pid, Process { takes, ..holder(1) });
        }
        let holders = told.watching();
        let all: Vec<_> = (1..=30).map(|pid| (pid, 1)).collect();
        finds(&holders, &all, None);
        let before = told.world().looks_before.clone();
        assert!(before.range(1..30).next().is_some(), "{before:?}");
    }

    #[test]
    fn watching_on_request_is_no_work_until_somebody_asks() {
        let told = Told::default();
        told.put(7, holder(100));
        let holders = told.holders();
        holders.watch("test", [GPU].into(), When::OnRequest);
        holders.hint([7]);
        std::thread::sleep(QUICK.round * 10);
        assert_eq!(told.world().listings, 0);
        assert_eq!(*holders.found(), found(&[], NOT_YET));
        let wish = holders.look_now();
        until(|| holders.has_looked(wish));
        assert_eq!(*holders.found(), found(&[(7, 100)], None));
    }

    #[test]
    fn a_wish_to_look_for_nothing_is_fulfilled() {
        let holders = Told::default().holders();
        assert!(holders.has_looked(holders.look_now()));
    }

    #[test]
    fn what_is_not_permitted_to_look_into_is_said() {
        let told = Told::default();
        let foreign = Process {
            missed: Some(Missed::NotPermitted),
            ..Process::default()
        };
        told.put(7, foreign.clone());
        told.put(8, holder(100));
        let holders = told.watching();
        let why = Some("process 7 (python) cannot be looked into: not permitted");
        finds(&holders, &[(8, 100)], why);
        // What it held is not forgotten because it is hidden now.
        told.put(
            8,
            Process {
                started: 100,
                ..foreign
            },
        );
        let wish = holders.look_now();
        until(|| holders.has_looked(wish));
        let both = "processes 7 (python) and 8 (python) cannot be looked into: not permitted";
        assert_eq!(*holders.found(), found(&[(8, 100)], Some(both)));
    }

    #[test]
    fn a_process_that_does_not_answer_is_left_out_until_it_does() {
        let told = Told::default();
        told.put(7, holder(100));
        told.put(8, hanging());
        told.put(9, holder(200));
        let holders = told.watching();
        finds(&holders, &[(7, 100), (9, 200)], NOT_ANSWERING);
        assert_eq!(
            holders.fault().map(|fault| fault.what).as_deref(),
            Some("process 8 cannot be looked into: it does not answer")
        );
        let wish = holders.look_now();
        until(|| holders.has_looked(wish));
        told.put(8, holder(1));
        finds(&holders, &[(7, 100), (8, 1), (9, 200)], None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn when_too_much_hangs_nobody_waits_and_no_thread_is_added() {
        let told = Told::default();
        for pid in 1..=8 {
            told.put(pid, hanging());
        }
        let holders = told.watching();
        let stuck = "the search for processes that hold devices is stuck";
        until(|| holders.fault().map(|fault| fault.what).as_deref() == Some(stuck));
        std::thread::sleep(QUICK.slow * 3);
        assert_eq!(
            holders.fault().map(|fault| fault.what).as_deref(),
            Some(stuck)
        );
        assert_eq!(told.world().threads, 4);
        for pid in 1..=8 {
            told.put(pid, holder(1));
        }
        let all: Vec<_> = (1..=8).map(|pid| (pid, 1)).collect();
        finds(&holders, &all, None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn what_cannot_be_listed_is_a_fault_while_it_lasts() {
        let told = Told::default();
        told.world().cannot_list = true;
        let holders = told.watching();
        let why = "processes cannot be listed: Too many open files (os error 24)";
        until(|| holders.fault().map(|fault| fault.what).as_deref() == Some(why));
        assert_eq!(*holders.found(), found(&[], NOT_YET));
        // Once a round, not again and again.
        let before = told.world().listings;
        std::thread::sleep(QUICK.round * 4);
        assert!(told.world().listings <= before + 5);
        told.world().cannot_list = false;
        finds(&holders, &[], None);
        assert_eq!(holders.fault(), None);
    }

    #[test]
    fn dropping_the_last_one_ends_the_thread() {
        let told = Told::default();
        let holders = told.watching();
        let clone = holders.clone();
        drop(holders);
        finds(&clone, &[], None);
        assert_eq!(Arc::strong_count(&told.0), 2);
        drop(clone);
        until(|| Arc::strong_count(&told.0) == 1);
    }

    #[test]
    fn what_is_opened_while_a_look_goes_on_is_seen_by_the_next() {
        let told = Told::default();
        let slow = Process {
            ran: 5,
            takes: Duration::from_millis(200),
            ..Process::default()
        };
        told.put(LATER, slow);
        told.put(SOONER, Process::default());
        let holders = told.watching();
        until(|| told.looks(LATER) == 1);
        // It has passed what was looked at already.
        told.put(
            LATER,
            Process {
                ran: 6,
                ..holder(100)
            },
        );
        // Nobody asks meanwhile: it would be taken to hang.
        until(|| told.looks(SOONER) == 1);
        finds(&holders, &[(LATER, 100)], None);
        assert_eq!(told.looks(LATER), 2);
    }
}
