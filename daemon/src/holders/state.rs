//! What the search knows: what to look for, what was found, and what is missing.

use super::look::{Listed, Looked, Missed, Which};
use super::table::{Moment, Table, Verdict};
use super::{DeviceNumber, Found, When};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So long after somebody asked it goes on for those who watch on request.
const ON_REQUEST: Moment = 60_000;

/// Every so many rounds all processes are listed: those that have ended are left
/// out, and whoever was given a certain pid (`set_tid` of `clone3`) is found.
const ROUNDS_TO_LIST: u32 = 10;

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
    pub(super) too_many: bool,
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
        let numbers: BTreeSet<DeviceNumber> = all.copied().collect();
        let is_more = numbers.iter().any(|number| !self.numbers.contains(number));
        self.numbers = numbers.into_iter().collect();
        let watched = Arc::clone(&self.numbers);
        Arc::make_mut(&mut self.found).processes.retain(|_, opens| {
            opens.retain(|open| watched.contains(&open.number));
            !opens.is_empty()
        });
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
        self.rounds = self.rounds.wrapping_add(1);
        if since_all == 0 || self.is_wished() {
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
        }
        for pid in self.table.list(listed, which, now) {
            self.drop_holder(pid);
        }
    }

    /// Takes over what a look saw that began then and was for this wish.
    pub(super) fn take_look(&mut self, pid: u32, looked: Looked, wish: u64, began: Moment) {
        let verdict = match looked {
            Looked::Gone => Verdict::Gone,
            Looked::Kernel => Verdict::Kernel,
            Looked::Process {
                start_ticks,
                mut opens,
                missed,
            } => {
                // What is watched may be less by now.
                opens.retain(|open| self.numbers.contains(&open.number));
                let key = ProcessKey { pid, start_ticks };
                let known = self.found.processes.get(&key);
                if known.is_some()
                    && (known == Some(&opens) || opens.is_empty() && missed.is_some())
                {
                    // Nothing new was seen, or nothing at all.
                    self.table.looked(pid, Verdict::Holds(missed), wish, began);
                    return;
                }
                self.hold(key, opens, missed)
            }
        };
        if !matches!(verdict, Verdict::Holds(_)) {
            self.drop_holder(pid);
        }
        self.table.looked(pid, verdict, wish, began);
    }

    fn hold(
        &mut self,
        key: ProcessKey,
        opens: Vec<super::Open>,
        missed: Option<Missed>,
    ) -> Verdict {
        if opens.is_empty() {
            return Verdict::HoldsNothing(missed);
        }
        self.drop_holder(key.pid);
        if self.found.processes.len() >= HOLDERS {
            self.too_many = true;
            return Verdict::HoldsNothing(missed);
        }
        let found = Arc::make_mut(&mut self.found);
        found.processes.insert(key, opens);
        Verdict::Holds(missed)
    }

    pub(super) fn drop_holder(&mut self, pid: u32) {
        let of = |start_ticks| ProcessKey { pid, start_ticks };
        let mut keys = self.found.processes.range(of(0)..=of(u64::MAX));
        if let Some(key) = keys.next().map(|(key, _)| *key) {
            // Copied only while somebody reads it.
            Arc::make_mut(&mut self.found).processes.remove(&key);
        }
    }

    pub(super) fn end_round(&mut self, wish: u64, listed_all: bool) {
        if listed_all && self.table.is_fulfilled(wish, &self.stuck) {
            self.fulfilled = self.fulfilled.max(wish);
        }
        if self.stuck.is_empty() {
            self.table.look_again_where(Missed::NotAsked);
        }
        self.too_many &= self.found.processes.len() >= HOLDERS;
        self.tell_unseen();
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
        let why = if self.fulfilled < self.wish_of_watched {
            Some(super::NOT_YET)
        } else if !self.stuck.is_empty() || missed == Some(Missed::NotAsked) {
            Some("a process does not answer")
        } else if self.others_hidden || missed == Some(Missed::NotPermitted) {
            Some("other users' processes cannot be looked into: not permitted")
        } else if missed == Some(Missed::TooMany) {
            Some("a process has more files open than are looked at")
        } else if missed == Some(Missed::Failed) {
            Some("some processes cannot be looked into")
        } else if self.too_many {
            Some("more processes hold devices than are kept")
        } else {
            None
        };
        if self.found.unseen.as_deref() != why {
            Arc::make_mut(&mut self.found).unseen = why.map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::{NOT_YET, Open};

    const NUMBER: DeviceNumber = DeviceNumber {
        major: 195,
        minor: 0,
    };

    fn listed(others_hidden: bool) -> Listed {
        Listed {
            pids: vec![1, 7],
            others_hidden,
        }
    }

    /// Looks at all of these processes for the wish of now.
    fn look(state: &mut State, listed: &Listed, missed: Option<Missed>, now: Moment) {
        let wish = state.wishes;
        state.take_list(listed, Which::All, now);
        for pid in state.table.due(wish, now) {
            let looked = Looked::Process {
                start_ticks: 1,
                opens: Vec::<Open>::new(),
                missed,
            };
            state.take_look(pid, looked, wish, now);
        }
        state.end_round(wish, true);
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
        look(&mut state, &listed(true), None, 1_000);
        assert_eq!(state.found.unseen.as_deref(), Some(hidden));
        // Those that began since say nothing of the others.
        state.take_list(&listed(false), Which::Between(7, 9), 3_000);
        state.end_round(state.wishes, false);
        assert_eq!(state.found.unseen.as_deref(), Some(hidden));
        look(&mut state, &listed(false), None, 5_000);
        assert_eq!(state.found.unseen, None);
    }

    #[test]
    fn what_was_not_asked_because_another_process_hung_is_asked_when_none_does() {
        let hangs = "a process does not answer";
        let mut state = watching();
        state.stuck.insert(9);
        look(&mut state, &listed(false), Some(Missed::NotAsked), 1_000);
        assert_eq!(state.found.unseen.as_deref(), Some(hangs));
        assert_eq!(state.table.due(state.wishes, 1_001), Vec::<u32>::new());
        // It answers; of the others not all was seen yet.
        state.stuck.clear();
        state.end_round(state.wishes, true);
        assert_eq!(state.found.unseen.as_deref(), Some(hangs));
        assert_eq!(state.table.due(state.wishes, 1_001), [1, 7]);
        look(&mut state, &listed(false), None, 3_000);
        assert_eq!(state.found.unseen, None);
    }
}
