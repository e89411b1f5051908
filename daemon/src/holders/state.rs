//! What the search knows: what to look for, what was found, and what is missing.

use super::fleeting::Fleeting;
use super::look::{Depth, Listed, Looked, Missed, Ran, Which};
use super::refused::{Names, OTHERS};
use super::shares::{Shares, cut};
use super::table::{Moment, Table, Turn, Verdict};
use super::{DeviceNumber, Found, Open, When};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::btree_map::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So long after somebody asked it goes on for those who watch on request.
const ON_REQUEST: Moment = 60_000;

/// Every so many rounds all processes are listed, which is every minute: those that
/// have ended are left out, and whoever was given a certain pid (`set_tid` of
/// `clone3`) is found. A third of what the search took was this, every 20 s.
const ROUNDS_TO_LIST: u32 = 30;

/// So many processes that hold devices are kept.
const HOLDERS: usize = 20_000;

#[derive(Default)]
pub(super) struct State {
    pub(super) watched: BTreeMap<&'static str, (BTreeSet<DeviceNumber>, When)>,
    pub(super) numbers: Arc<[DeviceNumber]>,
    /// How often somebody wished that everything be looked at, the last wish that
    /// came true, and the one since which the numbers are what they are.
    pub(super) wishes: u64,
    pub(super) fulfilled: u64,
    pub(super) wish_of_watched: u64,
    /// When somebody last asked for a look at everything.
    pub(super) asked_for: Option<Moment>,
    pub(super) table: Table,
    pub(super) found: Arc<Found>,
    shares: Shares,
    fleeting: Fleeting,
    /// A process that had just begun had ended when it was looked at.
    pub(super) missed_newborn: bool,
    /// How many rounds followed at once for that.
    pub(super) chases: u8,
    refused: Names,
    /// There are more processes than are listed.
    list_is_cut: bool,
    pub(super) others_hidden: bool,
    pub(super) newest: Option<u32>,
    pub(super) rounds: u32,
    pub(super) next_round: Moment,
    /// Which thread it is that searches. One that hung finds another here.
    pub(super) thread: u64,
    /// The process that is being looked at, and since when.
    pub(super) looking: Option<(u32, Moment)>,
    /// Processes at which threads hang.
    pub(super) stuck: BTreeSet<u32>,
    pub(super) cannot_list: Option<String>,
    pub(super) no_thread: Option<String>,
    pub(super) ended: bool,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            ..Self::default()
        }
    }

    pub(super) fn is_active(&self, now: Moment) -> bool {
        let is_asked = self
            .asked_for
            .is_some_and(|asked| now.saturating_sub(asked) < ON_REQUEST);
        let mut watched = self.watched.values();
        watched.any(|(numbers, when)| !numbers.is_empty() && (is_asked || *when == When::Always))
    }

    /// Whether somebody waits for a look at everything.
    pub(super) fn is_wished(&self) -> bool {
        self.fulfilled < self.wishes
    }

    /// Looks for what is watched now.
    pub(super) fn rewatch(&mut self) {
        let all = self.watched.values().flat_map(|(numbers, _)| numbers);
        let numbers: BTreeSet<DeviceNumber> = all.copied().into_set();
        let is_more = numbers.iter().any(|number| !self.numbers.contains(number));
        self.numbers = numbers.into_iter().collect();
        let watched = Arc::clone(&self.numbers);
        let found = Arc::make_mut(&mut self.found);
        found.processes.retain(|key, opens| {
            opens.retain(|open| watched.contains(&open.number));
            self.shares.recount(key, opens.len());
            !opens.is_empty()
        });
        let holds = |key: &ProcessKey| found.processes.contains_key(key);
        self.shares.retain(holds);
        found.cut.retain(|key| found.processes.contains_key(key));
        if is_more {
            self.wish_anew();
        }
        if self.numbers.is_empty() {
            self.fulfilled = self.wishes;
        }
        self.tell_unseen();
    }

    /// Forgets everything while nobody wants to know.
    pub(super) fn forget(&mut self) {
        if self.table.is_empty() {
            return;
        }
        self.table = Table::new();
        self.newest = None;
        self.rounds = 0;
        self.found = Arc::default();
        self.shares = Shares::default();
        self.fleeting = Fleeting::default();
        self.refused = Names::default();
        if !self.numbers.is_empty() {
            self.wish_anew();
        }
        self.tell_unseen();
    }

    fn wish_anew(&mut self) {
        self.wishes += 1;
        self.wish_of_watched = self.wishes;
    }

    /// Listing all of 10,000 processes takes 10 ms and more. Where the newest pid
    /// is as it was, no process began; where it has grown, those that began are
    /// between.
    pub(super) fn what_to_list(&mut self, newest: Option<u32>) -> Option<Which> {
        let since_all = self.rounds % ROUNDS_TO_LIST;
        let is_in_turn = self.chases == 0;
        self.rounds = self.rounds.wrapping_add(u32::from(is_in_turn));
        if (since_all == 0 && is_in_turn) || self.is_wished() {
            self.rounds = 1;
            return Some(Which::All);
        }
        match (self.newest, newest) {
            (Some(before), Some(now)) if before == now => None,
            (Some(before), Some(now)) if before < now => Some(Which::Between(before, now)),
            // Pids began again from below.
            (None | Some(_), None | Some(_)) => Some(Which::All),
        }
    }

    pub(super) fn take_list(&mut self, listed: &Listed, which: Which, now: Moment) {
        if which == Which::All {
            self.others_hidden = listed.others_hidden;
            self.list_is_cut = listed.is_cut;
        }
        for pid in self.table.list(listed, which, now) {
            self.end_holder(pid, now);
            self.refused.forget(pid);
        }
        if which == Which::All {
            self.shares.relent();
        }
    }

    /// The threads of this process that were seen to have devices in descriptors of their
    /// own: they have not closed them because nobody asks.
    pub(super) fn threads(&self, pid: u32) -> Vec<u32> {
        let opens = self.holders_of(pid).flat_map(|(_, opens)| opens);
        let mut threads: Vec<u32> = opens.filter_map(|open| open.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// Whose descriptors are looked at.
    pub(super) fn depth(&self, turn: Turn) -> Depth {
        if self.threads(turn.pid).is_empty() {
            turn.depth
        } else {
            Depth::Threads
        }
    }

    fn holders_of(&self, pid: u32) -> Range<'_, ProcessKey, Vec<Open>> {
        let of = |start_ticks| ProcessKey { pid, start_ticks };
        self.found.processes.range(of(0)..=of(u64::MAX))
    }

    /// Takes over what a look saw that began then, when the process had run for
    /// so long, and that was for this wish.
    pub(super) fn take_look(
        &mut self,
        pid: u32,
        looked: Looked,
        wish: u64,
        began: Moment,
        ran: Option<Ran>,
    ) {
        let mut seen = 0;
        self.refused.forget(pid);
        let verdict = match looked {
            Looked::Gone => {
                self.missed_newborn |= self.table.is_new(pid);
                self.end_holder(pid, began);
                Verdict::Gone
            }
            Looked::Kernel => Verdict::Kernel,
            Looked::Process {
                start_ticks,
                uid: person,
                name,
                descriptors,
                mut opens,
                missed,
            } => {
                seen = descriptors;
                if is_refusal(missed) && !name.is_empty() {
                    self.refused.keep(pid, &name);
                }
                // What is watched may be less by now.
                opens.retain(|open| self.numbers.contains(&open.number));
                let key = ProcessKey { pid, start_ticks };
                let is_cut = cut(&mut opens, self.shares.level(person));
                let known = self.found.processes.get(&key);
                let is_same = known == Some(&opens) && self.found.cut.contains(&key) == is_cut;
                if known.is_some() && (is_same || opens.is_empty() && missed.is_some()) {
                    // Nothing new was seen, or nothing at all.
                    Verdict::Holds(missed)
                } else {
                    let verdict = self.hold(key, person, opens, missed, began);
                    if is_cut && self.found.processes.contains_key(&key) {
                        Arc::make_mut(&mut self.found).cut.insert(key);
                    }
                    self.cut(person);
                    verdict
                }
            }
        };
        if !matches!(verdict, Verdict::Holds(_)) {
            self.drop_holder(pid);
        }
        self.table.looked(pid, verdict, wish, began);
        self.table.weighed(pid, seen, ran);
    }

    fn hold(
        &mut self,
        key: ProcessKey,
        person: u32,
        opens: Vec<Open>,
        missed: Option<Missed>,
        now: Moment,
    ) -> Verdict {
        if opens.is_empty() {
            return Verdict::HoldsNothing(missed);
        }
        if !self.found.processes.contains_key(&key) {
            // Whoever had the pid has ended.
            self.end_holder(key.pid, now);
            self.fleeting.found(key, person, &opens, now);
        }
        self.drop_holder(key.pid);
        if self.found.processes.len() >= HOLDERS {
            let Some(other) = self.shares.gives_way_to(person) else {
                return Verdict::HoldsNothing(missed.or(Some(Missed::NoRoom)));
            };
            self.drop_holder(other.pid);
            self.table.crowded_out(other.pid);
        }
        self.shares.add(person, key, opens.len());
        let found = Arc::make_mut(&mut self.found);
        found.processes.insert(key, opens);
        Verdict::Holds(missed)
    }

    /// Keeps fewer descriptors of who has too many, after this person had some more.
    fn cut(&mut self, person: u32) {
        while let Some(too_many) = self.shares.to_cut(person) {
            let found = Arc::make_mut(&mut self.found);
            let opens = too_many.holders.iter();
            let opens = opens.filter_map(|key| found.processes.get(key));
            let level = too_many.level(opens.map(Vec::as_slice));
            for key in &too_many.holders {
                let Some(opens) = found.processes.get_mut(key) else {
                    continue;
                };
                if cut(opens, level) {
                    found.cut.insert(*key);
                    self.shares.recount(key, opens.len());
                }
            }
            self.shares.lower(&too_many, level);
        }
    }

    /// The process that had this pid has ended.
    pub(super) fn end_holder(&mut self, pid: u32, now: Moment) {
        if let Some((key, _)) = self.holders_of(pid).next() {
            let key = *key;
            self.fleeting.ended(&key, now);
        }
        self.drop_holder(pid);
    }

    pub(super) fn drop_holder(&mut self, pid: u32) {
        let key = self.holders_of(pid).next().map(|(key, _)| *key);
        if let Some(key) = key {
            // Copied only while somebody reads it.
            let found = Arc::make_mut(&mut self.found);
            found.processes.remove(&key);
            found.cut.remove(&key);
            self.shares.remove(&key);
        }
    }

    pub(super) fn end_round(&mut self, wish: u64, listed_all: bool) {
        if listed_all && self.table.is_fulfilled(wish, &self.stuck) {
            self.fulfilled = self.fulfilled.max(wish);
        }
        if self.stuck.is_empty() {
            self.table.look_again_where(Missed::NotAsked);
        }
        self.tell_unseen();
    }

    /// Tells of those who hold devices for moments.
    pub(super) fn tell_fleeting(&mut self, now: Moment) {
        let fleeting = self.fleeting.holds(now);
        if self.found.fleeting != fleeting {
            Arc::make_mut(&mut self.found).fleeting = fleeting;
        }
    }

    /// The process at which a look takes longer than that.
    pub(super) fn hangs(&self, now: Moment, slow: Moment) -> Option<u32> {
        let (pid, since) = self.looking?;
        (now.saturating_sub(since) > slow).then_some(pid)
    }

    /// A process at which a thread hung answers again.
    pub(super) fn recover(&mut self, pid: u32, now: Moment) {
        self.stuck.remove(&pid);
        self.table.renew(pid, now);
    }

    pub(super) fn tell_unseen(&mut self) {
        let missed = self.table.missed();
        let not_permitted;
        let why = if self.fulfilled < self.wish_of_watched {
            Some(super::NOT_YET)
        } else if !self.stuck.is_empty() || missed == Some(Missed::NotAsked) {
            Some("a process does not answer")
        } else if self.others_hidden {
            Some(OTHERS)
        } else if is_refusal(missed) {
            not_permitted = self.refused.sentence(&self.table.refused());
            Some(not_permitted.as_str())
        } else if missed == Some(Missed::TooMany) {
            Some("a process has more files open than are looked at")
        } else if missed == Some(Missed::Failed) {
            Some("some processes cannot be looked into")
        } else if missed == Some(Missed::NoRoom) {
            Some("more processes hold devices than are kept")
        } else if self.list_is_cut {
            Some("there are more processes than are looked at")
        } else {
            None
        };
        if self.found.unseen.as_deref() != why {
            Arc::make_mut(&mut self.found).unseen = why.map(str::to_owned);
        }
    }
}

fn is_refusal(missed: Option<Missed>) -> bool {
    matches!(missed, Some(Missed::NotPermitted | Missed::OwnNotPermitted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::table::Turn;
    use crate::holders::{NOT_YET, Open};

    const NUMBER: DeviceNumber = DeviceNumber {
        major: 195,
        minor: 0,
    };

    fn pair(others_hidden: bool) -> Listed {
        Listed {
            pids: vec![1, 7],
            others_hidden,
            is_cut: false,
        }
    }

    /// Looks at all of these processes for the wish of now.
    fn look(state: &mut State, listed: &Listed, missed: Option<Missed>, now: Moment) {
        let wish = state.wishes;
        state.take_list(listed, Which::All, now);
        for Turn { pid, .. } in state.table.due(wish, now) {
            let looked = Looked::Process {
                start_ticks: 1,
                uid: 0,
                name: "x".to_owned(),
                descriptors: 4,
                opens: Vec::<Open>::new(),
                missed,
            };
            state.take_look(pid, looked, wish, now, None);
        }
        state.end_round(wish, true);
    }

    fn due(state: &mut State, now: Moment) -> Vec<u32> {
        let due = state.table.due(state.wishes, now);
        due.iter().map(|turn| turn.pid).collect()
    }

    /// A state that watches one device.
    fn watching() -> State {
        let mut state = State::new();
        let watched = (BTreeSet::from([NUMBER]), When::Always);
        state.watched.insert("nvidia", watched);
        state.rewatch();
        state
    }

    #[test]
    fn processes_that_the_system_hides_may_hold_a_device() {
        let hidden = "other users' processes cannot be looked into: not permitted";
        let mut state = watching();
        assert_eq!(state.found.unseen.as_deref(), Some(NOT_YET));
        look(&mut state, &pair(true), None, 1_000);
        assert_eq!(state.found.unseen.as_deref(), Some(hidden));
        // Those that began since say nothing of the others.
        state.take_list(&pair(false), Which::Between(7, 9), 3_000);
        state.end_round(state.wishes, false);
        assert_eq!(state.found.unseen.as_deref(), Some(hidden));
        look(&mut state, &pair(false), None, 5_000);
        assert_eq!(state.found.unseen, None);
    }

    #[test]
    fn a_few_that_may_not_be_looked_into_are_named_and_many_of_others_are_not() {
        let mut state = watching();
        let refused = |pids: std::ops::RangeInclusive<u32>, missed, state: &mut State| {
            let pids = Listed {
                pids: pids.collect(),
                others_hidden: false,
                is_cut: false,
            };
            state.wish_anew();
            look(state, &pids, missed, 1_000);
            state.found.unseen.clone()
        };
        let own = Some(Missed::OwnNotPermitted);
        let others = Some(Missed::NotPermitted);
        let said = |who: &str| Some(format!("{who} cannot be looked into: not permitted"));
        assert_eq!(refused(1..=1, own, &mut state), said("process 1 (x)"));
        let three = said("processes 1 (x), 2 (x) and 3 (x)");
        assert_eq!(refused(1..=3, others, &mut state), three);
        let more = said("processes 1 (x), 2 (x), 3 (x) and others");
        assert_eq!(refused(1..=4, own, &mut state), more);
        let of_others = said("other users' processes");
        assert_eq!(refused(1..=4, others, &mut state), of_others);
        // Who has ended is nobody that was not looked into.
        assert_eq!(refused(4..=4, own, &mut state), said("process 4 (x)"));
        assert_eq!(refused(4..=4, None, &mut state), None);
    }

    #[test]
    fn what_was_not_asked_because_another_process_hung_is_asked_when_none_does() {
        let hangs = "a process does not answer";
        let mut state = watching();
        state.stuck.insert(9);
        look(&mut state, &pair(false), Some(Missed::NotAsked), 1_000);
        assert_eq!(state.found.unseen.as_deref(), Some(hangs));
        assert_eq!(due(&mut state, 1_001), [0; 0]);
        // It answers; of the others not all was seen yet.
        state.stuck.clear();
        state.end_round(state.wishes, true);
        assert_eq!(state.found.unseen.as_deref(), Some(hangs));
        assert_eq!(due(&mut state, 1_001), [1, 7]);
        look(&mut state, &pair(false), None, 3_000);
        assert_eq!(state.found.unseen, None);
    }

    const GPU: DeviceNumber = DeviceNumber {
        major: 226,
        minor: 128,
    };

    /// A box with these processes.
    fn listed(pids: impl IntoIterator<Item = u32>, is_cut: bool) -> State {
        let mut state = State::new();
        let watched = ([GPU].into(), When::Always);
        state.watched.insert("test", watched);
        state.rewatch();
        let listed = Listed {
            pids: pids.into_iter().collect(),
            others_hidden: false,
            is_cut,
        };
        state.take_list(&listed, Which::All, 0);
        state
    }

    fn holds(state: &mut State, pid: u32, uid: u32) {
        let open = Open {
            number: GPU,
            fd: 3,
            thread: None,
        };
        let looked = Looked::Process {
            start_ticks: 1,
            uid,
            name: "x".to_owned(),
            descriptors: 4,
            opens: vec![open],
            missed: None,
        };
        state.take_look(pid, looked, 1, 0, None);
    }

    fn pids(state: &State) -> Vec<u32> {
        state.found.processes.keys().map(|key| key.pid).collect()
    }

    #[test]
    fn one_user_with_more_holders_than_are_kept_takes_nobody_elses_place() {
        let many = 20_000;
        let mut state = listed(1..=many + 2, false);
        for pid in 1..=many {
            holds(&mut state, pid, 1_000);
        }
        assert_eq!(state.table.missed(), None);
        holds(&mut state, many + 1, 1_000);
        assert_eq!(pids(&state), (1..=many).collect::<Vec<_>>());
        holds(&mut state, many + 2, 0);
        let mut kept: Vec<u32> = (1..many).collect();
        kept.push(many + 2);
        assert_eq!(pids(&state), kept);
        state.end_round(1, true);
        let why = "more processes hold devices than are kept";
        assert_eq!(state.found.unseen.as_deref(), Some(why));
        // When there is room again, they hold it all the same: it is over when both
        // were looked at.
        for (gone, found) in [(7, many), (8, many + 1)] {
            state.drop_holder(gone);
            state.end_round(1, true);
            assert_eq!(state.found.unseen.as_deref(), Some(why));
            holds(&mut state, found, 1_000);
        }
        state.end_round(1, true);
        assert_eq!(state.found.unseen, None);
    }

    #[test]
    fn more_processes_than_are_listed_are_told_of() {
        let mut state = listed([7], true);
        holds(&mut state, 7, 0);
        state.end_round(1, true);
        let why = "there are more processes than are looked at";
        assert_eq!(state.found.unseen.as_deref(), Some(why));
    }

    #[test]
    fn those_that_began_since_say_nothing_of_how_many_there_are() {
        let mut state = listed([7], true);
        holds(&mut state, 7, 0);
        state.end_round(1, true);
        state.take_list(&pair(false), Which::Between(7, 9), 2_000);
        holds(&mut state, 1, 0);
        holds(&mut state, 7, 0);
        state.end_round(1, false);
        let why = "there are more processes than are looked at";
        assert_eq!(state.found.unseen.as_deref(), Some(why));
    }

    #[test]
    fn all_are_listed_once_a_minute_whether_any_began_or_not() {
        let mut state = watching();
        look(&mut state, &pair(false), None, 1_000);
        state.newest = Some(7);
        let mut listed = || -> Vec<u32> {
            let rounds = (0..70).filter(|_| state.what_to_list(Some(7)) == Some(Which::All));
            rounds.collect()
        };
        assert_eq!(listed(), [0, 30, 60]);
    }

    /// A process has so many descriptors of the device open.
    fn has_copies(state: &mut State, pid: u32, uid: u32, many: u32) {
        let open = |fd| Open {
            number: GPU,
            fd,
            thread: None,
        };
        let looked = Looked::Process {
            start_ticks: 1,
            uid,
            name: "x".to_owned(),
            descriptors: 4,
            opens: (0..many).map(open).collect(),
            missed: None,
        };
        state.take_look(pid, looked, 1, 0, None);
    }

    fn kept(state: &State) -> usize {
        state.found.processes.values().map(Vec::len).sum()
    }

    #[test]
    fn copies_over_many_processes_of_a_person_take_little_and_nobody_elses_room() {
        let mut state = listed(1..=400, false);
        has_copies(&mut state, 400, 7, 300);
        for _ in 0..2 {
            for pid in 1..=295 {
                has_copies(&mut state, pid, 1_000, 8_193);
            }
        }
        assert!(kept(&state) <= 16_386 + 300, "{}", kept(&state));
        // Each is a holder still, and is known not to be seen whole; the other person's is.
        assert_eq!(state.found.processes.len(), 296);
        let cut: Vec<u32> = state.found.cut.iter().map(|key| key.pid).collect();
        assert_eq!(cut, (1..=295).collect::<Vec<_>>());
        let other = state.found.processes.iter().next_back().unwrap();
        assert_eq!((other.0.pid, other.1.len()), (400, 300));
        // When they have ended, it is as before.
        let rest = Listed {
            pids: vec![295, 400],
            others_hidden: false,
            is_cut: false,
        };
        state.take_list(&rest, Which::All, 0);
        has_copies(&mut state, 295, 1_000, 8_193);
        assert_eq!((kept(&state), state.found.cut.len()), (8_493, 0));
    }

    #[test]
    fn copies_of_many_persons_take_no_more_than_there_is_room() {
        let mut state = listed(1..=400, false);
        for pid in 1..=100 {
            has_copies(&mut state, pid, pid, 8_193);
        }
        has_copies(&mut state, 400, 400, 300);
        assert!(kept(&state) <= 65_536, "{}", kept(&state));
        assert_eq!(state.found.processes.len(), 101);
        let other = state.found.processes.iter().next_back().unwrap();
        assert_eq!((other.0.pid, other.1.len()), (400, 300));
    }
}
