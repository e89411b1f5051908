//! Carries out one plan, on a thread of its own: records the intent, looks at each
//! target again, sends the signals, follows what is born meanwhile, and waits for
//! the memory.

mod after;

mod recorded;

mod heirs;

mod stop;

mod stuck;

mod target;

mod told;

mod wait;

use super::Means;
use crate::state::Published;
use gpukill_policy::access::Caller;
use gpukill_policy::kill::again::{Again, objection};
use gpukill_policy::kill::shared::People;
use gpukill_policy::kill::usage::users;
use gpukill_policy::kill::{Candidate, Crowd};
use gpukill_proto::kill::{Ending, Fate, KillPlan, KillReport, KillScope, KillTarget, Stage};
use gpukill_proto::snapshot::ProcessKey;
use recorded::{intend, settle};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use target::{Sent, Target};
use tokio::sync::watch;
use told::Told;
use wait::wait;

/// So often what was born meanwhile is looked for after each signal: whoever forks
/// for ever is faster than any look.
const ROUNDS: usize = 8;

/// The time that those get who were born while others had theirs.
const LATECOMERS: Duration = Duration::from_millis(500);

/// On whose word a plan is carried out.
pub(super) struct Word<'a> {
    pub(super) caller: &'a Caller,
    /// What they asked for, for the record.
    pub(super) asked: String,
    /// What cannot be recorded first is not done. A person's kill is: they see to it.
    pub(super) must_be_recorded: bool,
    /// Whose processes alone may join what is ended; `None`: anybody's of whom some were
    /// planned.
    pub(super) users: Option<People>,
    /// Whose processes alone get signals, where they run as another user than before;
    /// `None`: those of whoever the caller may end.
    pub(super) person: Option<u32>,
}

/// Carries it out, and tells how it goes. `seen` is what was found just now.
/// Returns when the last report is [`Stage::Done`] or [`Stage::Interrupted`].
pub(super) fn act(
    plan: &KillPlan,
    word: &Word<'_>,
    means: &Means,
    seen: &Published,
    report: &watch::Sender<Arc<KillReport>>,
) {
    let mut told = Told::new(report);
    let recorded = intend(plan, word, means);
    told.unrecorded(recorded.as_ref().err().cloned());
    if let (Err(why), true) = (&recorded, word.must_be_recorded) {
        for target in &plan.targets {
            told.ends(
                target,
                Ending::Failed(format!("it cannot be recorded: {why}")),
            );
        }
        told.end(Stage::Done);
        told.publish();
        return;
    }
    let mut act = Act::new(plan, word, means, seen, told);
    act.look_again();
    act.send_all();
    act.settle_the_living();
    act.look_for_strays();
    act.wait_for_memory();
    act.look_for_respawned();
    act.look_for_the_reaped();
    let report = act.told.end(if means.is_stopping() {
        Stage::Interrupted
    } else {
        Stage::Done
    });
    // First of all: whoever sees the report finds it in the store, too.
    settle(plan, &report, recorded.ok());
    act.told.publish();
}

/// One plan under way.
struct Act<'a> {
    plan: &'a KillPlan,
    word: &'a Word<'a>,
    means: &'a Means,
    /// As it was before the first signal.
    before: Published,
    /// Who uses a device or has one open, before the first signal.
    uses: BTreeSet<ProcessKey>,
    /// Everybody, before the first signal.
    first: Arc<Crowd>,
    /// All that were ever planned, or born to one of them.
    members: BTreeSet<ProcessKey>,
    /// They, each as it was when it became one. Some that were planned had ended by then.
    seen: BTreeMap<ProcessKey, Candidate>,
    /// Those that get signals.
    targets: Vec<Target>,
    /// Whether somebody came since the plan: it forks, and would fork on.
    forks: bool,
    /// The step before whose signal all are being stopped, while they are.
    stops_before: Option<usize>,
    told: Told<'a>,
}

impl<'a> Act<'a> {
    fn new(
        plan: &'a KillPlan,
        word: &'a Word<'a>,
        means: &'a Means,
        seen: &Published,
        told: Told<'a>,
    ) -> Self {
        Self {
            plan,
            word,
            means,
            before: seen.clone(),
            uses: users(&seen.snapshot, &seen.holders),
            first: Arc::default(),
            members: plan.targets.iter().map(|target| target.key).collect(),
            seen: BTreeMap::new(),
            targets: Vec::new(),
            forks: false,
            stops_before: None,
            told,
        }
    }

    /// Whether it may reach further than to the processes that were named.
    fn is_wide(&self) -> bool {
        self.plan.request.scope != KillScope::Process
    }

    /// Opens a handle on each target, and looks at it through that once more.
    fn look_again(&mut self) {
        match self.means.crowds.everybody(&self.means.authority.users) {
            Ok(crowd) => self.first = Arc::new(crowd),
            Err(error) => {
                let why = format!("processes cannot be looked at: {error}");
                for target in &self.plan.targets {
                    self.told.ends(target, Ending::Failed(why.clone()));
                }
                self.told.publish();
                return;
            }
        }
        let plan = self.plan;
        let planned = self
            .first
            .values()
            .map(|process| (process.kin.key, process));
        let planned = planned.filter(|(key, _)| self.members.contains(key));
        self.seen = planned.map(|(key, it)| (key, it.clone())).collect();
        for target in &plan.targets {
            match self.open(target) {
                Ok(open) => self.targets.push(open),
                Err(ending) => self.told.ends(target, ending),
            }
        }
        let came = self.take_in_the_joined();
        // While handles were opened others may have been born.
        self.forks = self.take_in_the_newborn() || came;
        self.told.publish();
    }

    /// A handle on this process, if it may get its signals.
    fn open(&self, target: &KillTarget) -> Result<Target, Ending> {
        let signals = match &target.fate {
            Fate::End(signals) => signals.clone(),
            Fate::Protected(protected) => return Err(Ending::Protected(protected.why.clone())),
            Fate::Denied(who) => return Err(Ending::Denied(who.clone())),
            Fate::Unclear(why) => return Err(Ending::Unclear(why.clone())),
            Fate::Zombie(parent) => return Err(Ending::Zombie(parent.clone())),
        };
        let open = Target::open(target, signals)?;
        match self.means.crowds.pid_of(open.handle()) {
            Some(pid) if pid == target.key.pid => {}
            _ if open.has_ended() => return Err(Ending::Gone),
            Some(_) | None => {
                let why = "its pid is another process's in gpukilld's own PID namespace";
                return Err(Ending::Failed(why.into()));
            }
        }
        // What is read from here on is of the process that the handle is of, or
        // shows another start, which is objected to: the pid can only be given to a
        // later one.
        let now = match self.means.crowds.one(target.key.pid) {
            Ok(now) => now,
            Err(_) if open.has_ended() => return Err(Ending::Gone),
            Err(error) => return Err(Ending::Unclear(format!("it cannot be read: {error}"))),
        };
        // Each is looked at once more before its signal. But of one that came since
        // the plan, and has ended or may not be ended, this says so before it counts
        // as somebody to wait for.
        self.objection(target, &now, open.had_signal())
            .map_or(Ok(open), Err)
    }

    /// Why this process, as it is now, gets no signal.
    fn objection(&self, target: &KillTarget, now: &Candidate, had_signal: bool) -> Option<Ending> {
        let roles = self.means.authority.roles();
        let operators = self.means.authority.operators();
        let again = Again {
            caller: self.word.caller,
            roles: &roles,
            operators: &operators,
            crowd: &self.first,
            before: self.seen.get(&target.key),
            person: self.word.person,
            protection: &self.means.authority.protection(),
            uses_gpu: self.uses_gpu(target.key),
            used_gpu_itself: self.uses.contains(&target.key),
            had_signal,
        };
        objection(target, now, &again)
    }

    /// Why a target gets no signal any more. Between two signals lie minutes, in
    /// which it may have executed what has another's rights.
    fn spares(&self, target: &Target) -> Option<Ending> {
        let key = target.key();
        match self.means.crowds.one(key.pid) {
            Ok(now) => self.objection(target.planned(), &now, target.had_signal()),
            Err(error) => Some(Ending::Unclear(format!("it cannot be read: {error}"))),
        }
    }

    /// Looks at each that awaits the signal of this step once more, and lets those go
    /// that get nothing any more. Before a first signal, too: since its handle was opened,
    /// all the others were opened and read, and in a wide scope everybody was.
    fn spare(&mut self, step: usize) {
        for position in 0..self.targets.len() {
            if self.targets.get(position).is_some_and(|it| it.awaits(step)) {
                self.recheck(position, step);
            }
        }
    }

    /// Looks at one target once more before the signal of this step; false where it gets
    /// nothing any more.
    fn recheck(&mut self, position: usize, step: usize) -> bool {
        let target = self.targets.get(position);
        let Some(why) = target.and_then(|target| self.spares(target)) else {
            return true;
        };
        if let Some(target) = self.targets.get_mut(position) {
            tracing::warn!(pid = target.key().pid, ?why, "gets no signal any more");
            let ending = target.is_spared(why, step);
            self.told.ended(target, ending);
        }
        false
    }

    /// Whether it, or in a wide scope any of them, uses a device: it was the
    /// reason to end it.
    fn uses_gpu(&self, key: ProcessKey) -> bool {
        self.plan.request.any_process
            || self.uses.contains(&key)
            || (self.is_wide() && self.members.iter().any(|key| self.uses.contains(key)))
    }

    /// Each signal to all that have not ended, and its time.
    fn send_all(&mut self) {
        let steps = self.targets.iter().map(Target::steps).max().unwrap_or(0);
        for step in 0..steps {
            if self.means.is_stopping() || !self.is_anybody_left() {
                return;
            }
            self.stop_all(step, &mut self.stop_limit(step));
            self.send(step);
            let patience = Duration::from_millis(self.plan.request.patience_ms);
            self.wait_until(Instant::now() + patience);
            self.follow_the_newborn(step);
        }
    }

    fn is_anybody_left(&self) -> bool {
        self.targets.iter().any(Target::is_left)
    }

    fn send(&mut self, step: usize) {
        self.spare(step);
        for target in &mut self.targets {
            match target.send(step) {
                Sent::Yes | Sent::Nothing => {}
                Sent::Refused(why) => self.told.ended(target, Ending::Failed(why)),
            }
        }
        // Not before all have it: one that goes on may fork, and whose parent has
        // ended is found by nothing.
        for target in &mut self.targets {
            target.goes_on();
        }
    }

    fn wait_until(&mut self, deadline: Instant) {
        while self.is_anybody_left() && !self.means.is_stopping() {
            let ended = wait(&self.targets, deadline);
            for position in &ended {
                if let Some(target) = self.targets.get_mut(*position) {
                    let ending = target.end();
                    self.told.ended(target, ending);
                }
            }
            self.told.publish();
            if ended.is_empty() && Instant::now() >= deadline {
                return;
            }
        }
    }

    /// What was born to them meanwhile gets the same signal. What is found after the last
    /// round gets none in this step, and is named at the end where it is still there.
    fn follow_the_newborn(&mut self, step: usize) {
        let mut limit = self.stop_limit(step);
        for _ in 0..ROUNDS {
            if self.means.is_stopping() || !self.take_in_the_newborn() {
                return;
            }
            self.stop_all(step, &mut limit);
            self.send(step);
            self.wait_until(Instant::now() + LATECOMERS);
        }
        self.take_in_the_newborn();
    }

    /// Says of those that have not ended why.
    fn settle_the_living(&mut self) {
        let mut stuck = self.stuck();
        for target in &mut self.targets {
            if !target.is_left() {
                continue;
            }
            let ending = match stuck.remove(&target.key()) {
                _ if target.has_ended() => target.end(),
                Some(waits_on) => Ending::Uninterruptible(stuck::describe(
                    target.key().pid,
                    waits_on,
                    &self.means.crowds,
                    &self.first,
                )),
                None if self.means.is_stopping() => target.survives("gpukilld stops"),
                None => target.survives("it came while the others were ended"),
            };
            self.told.ended(target, ending);
        }
        self.told.publish();
    }
}
