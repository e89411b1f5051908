//! Executes one plan on a thread of its own: records the intent, rechecks each target, sends the
//! signals, ends late members, and waits until the memory is back.

mod late_members;
mod reclaim;
mod report;
mod stop;
mod stuck;
mod target;

use super::KillEnvironment;
use super::planner::affected_facts;
use crate::state::PublishedPoll;
use crate::store::{Action, ActionKind, KillShare, OpenAction};
use gpukill_policy::access::Caller;
use gpukill_policy::kill::device_use::device_users;
use gpukill_policy::kill::outcome::{KillCompletion, completion};
use gpukill_policy::kill::protection::DaemonFamily;
use gpukill_policy::kill::recheck::{KnownNames, RecheckContext, veto};
use gpukill_policy::kill::shared_container::ContainerUsers;
use gpukill_policy::kill::{ProcessInfo, ProcessTable};
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, SortIndirect as _};
use gpukill_proto::json::{KillPlanDocument, KillReportDocument};
use gpukill_proto::kill::{
    KillPlan, KillReport, KillScope, KillSignal, KillTarget, Outcome, PlannedAction, Stage,
};
use gpukill_proto::model::ProcessKey;
use report::KillReporter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use target::{SendResult, Target};
use tokio::sync::watch;

/// How many times the executor searches for late members after each signal. The number is bounded
/// because a process that forks forever is faster than any scan.
const MAX_LATE_ROUNDS: usize = 8;

/// How long late members have to end before the next search.
const LATE_MEMBER_TIMEOUT: Duration = Duration::from_millis(500);

/// A wait for exits returns at least this often, so that the executor sees that the daemon stops.
const EXIT_WAIT: Duration = Duration::from_millis(200);

/// How long a recheck waits for the name of a user that is not cached.
const NAME_TIMEOUT: Duration = Duration::from_millis(100);

/// The authority under which a plan is executed.
pub(super) struct KillAuthorization<'a> {
    pub(super) caller: &'a Caller,
    pub(super) request_text: String,
    /// Whether the kill is skipped when its intent cannot be recorded. A kill that a person asked
    /// for goes ahead: the person watches it.
    pub(super) must_be_recorded: bool,
    /// Late processes of these users only are ended, too; `None`: of any user with a planned
    /// process.
    pub(super) late_member_users: Option<ContainerUsers>,
    /// After a process changed its user, only processes of this user get signals; `None`: of any
    /// user as far as the caller may end them.
    pub(super) required_uid: Option<u32>,
    /// Returns why no further signal may be sent; `None` where signals may be sent. Called before
    /// the signals of each step: minutes may pass between two steps.
    pub(super) withdrawal_reason: &'a dyn Fn() -> Option<&'static str>,
}

/// Executes the plan and reports its progress. `published` is the result of the scan just before.
/// The last report is [`Stage::Done`] or [`Stage::Interrupted`].
pub(super) fn execute(
    plan: &KillPlan,
    authorization: &KillAuthorization<'_>,
    environment: &KillEnvironment,
    published: &PublishedPoll,
    report: &watch::Sender<Arc<KillReport>>,
) {
    let mut reporter = KillReporter::new(report);
    let recorded = record_intent(plan, authorization, environment);
    reporter.set_unrecorded(recorded.as_ref().err().cloned());
    if let (Err(why), true) = (&recorded, authorization.must_be_recorded) {
        for target in &plan.targets {
            reporter.add_unsignalled(
                target,
                Outcome::Failed(format!("it cannot be recorded: {why}")),
            );
        }
        reporter.finish(Stage::Done);
        reporter.publish();
        return;
    }
    let mut execution = Execution::new(plan, authorization, environment, published, reporter);
    execution.open_targets();
    execution.send_signals();
    execution.settle_survivors();
    execution.report_strays();
    execution.report_unchecked();
    execution.wait_for_memory();
    execution.report_respawned();
    execution.mark_reaped_zombies_gone();
    let report = execution.reporter.finish(if environment.is_stopping() {
        Stage::Interrupted
    } else {
        Stage::Done
    });
    // The record comes first: a client that reads the last report finds it in the store.
    record_outcome(plan, &report, recorded.ok(), environment);
    execution.reporter.publish();
}

/// Records the intent. When the store cannot, the intent goes to the log, and a kill that a person
/// asked for goes ahead.
fn record_intent(
    plan: &KillPlan,
    authorization: &KillAuthorization<'_>,
    environment: &KillEnvironment,
) -> Result<OpenAction, String> {
    let document = KillPlanDocument::from(plan);
    let action = Action {
        kind: ActionKind::Kill,
        uid: authorization.caller.uid,
        request: authorization.request_text.clone(),
        plan: serde_json::to_string(&document).unwrap_or_default(),
    };
    let share = KillShare {
        person: (authorization.caller.limit_group, authorization.required_uid),
        short: short_document(plan),
    };
    environment
        .store
        .record_kill_intent(action, affected_facts(plan), share)
}

/// The JSON that stands for plan and outcome where the record has no room for them.
fn short_document(plan: &KillPlan) -> String {
    const MAX_PIDS: usize = 16;
    let targets = plan.targets.iter().take(MAX_PIDS);
    let pids: Vec<u32> = targets.map(|target| target.key.pid).collect();
    serde_json::json!({"too_long": {"processes": plan.targets.len(), "pids": pids}}).to_string()
}

fn record_outcome(
    plan: &KillPlan,
    report: &KillReport,
    action: Option<OpenAction>,
    environment: &KillEnvironment,
) {
    let result = kill_result(plan, report);
    let outcome = serde_json::to_string(&KillReportDocument::from(report)).unwrap_or_default();
    match action {
        Some(action) => action.settle(result, outcome),
        // Only the log has the intent in this case.
        None => {
            let facts = affected_facts(plan);
            let store = &environment.store;
            store.log_unrecorded_end(ActionKind::Kill, &facts, result, &outcome);
        }
    }
}

pub(crate) fn kill_result(plan: &KillPlan, report: &KillReport) -> &'static str {
    match (report.stage, completion(plan, report)) {
        (Stage::Interrupted, _) => "interrupted",
        (_, KillCompletion::All) => "done",
        (_, KillCompletion::Partial) => "partly",
        (_, KillCompletion::Refused) => "refused",
        (_, KillCompletion::NothingToEnd | KillCompletion::Failed) => "failed",
    }
}

/// One plan under way.
struct Execution<'a> {
    plan: &'a KillPlan,
    authorization: &'a KillAuthorization<'a>,
    environment: &'a KillEnvironment,
    /// The state before the first signal.
    before: PublishedPoll,
    /// Processes that used a device or had one open before the first signal.
    gpu_users: BTreeSet<ProcessKey>,
    /// All processes before the first signal.
    initial_table: Arc<ProcessTable>,
    /// The names that the processes of that table show.
    names: KnownNames,
    /// The ancestors of this daemon and its own processes, in that table.
    family: DaemonFamily,
    /// All processes that were planned, and their late members.
    members: BTreeSet<ProcessKey>,
    /// These processes as they were when they joined. Processes that had ended by then are absent.
    observed: BTreeMap<ProcessKey, ProcessInfo>,
    /// Processes that get signals.
    targets: Vec<Target>,
    /// Whether a late member appeared since the plan. The job forks, and would go on forking.
    has_forked: bool,
    /// The step with the signal that the job is being stopped for.
    stopping_for_step: Option<usize>,
    /// Why the last scan for late members may lack processes; `None` where it lacks none.
    missing: Option<String>,
    reporter: KillReporter<'a>,
}

impl<'a> Execution<'a> {
    fn new(
        plan: &'a KillPlan,
        authorization: &'a KillAuthorization<'a>,
        environment: &'a KillEnvironment,
        published: &PublishedPoll,
        reporter: KillReporter<'a>,
    ) -> Self {
        Self {
            plan,
            authorization,
            environment,
            before: published.clone(),
            gpu_users: device_users(&published.snapshot, &published.holders),
            initial_table: Arc::default(),
            names: KnownNames::default(),
            family: DaemonFamily::default(),
            members: plan.targets.iter().map(|target| target.key).into_set(),
            observed: BTreeMap::new(),
            targets: Vec::new(),
            has_forked: false,
            stopping_for_step: None,
            missing: None,
            reporter,
        }
    }

    /// Whether the scope reaches beyond the processes that were named.
    fn is_wide(&self) -> bool {
        self.plan.request.scope != KillScope::Process
    }

    /// Opens a handle on each target, then checks the target once more through it.
    fn open_targets(&mut self) {
        let plan = self.plan;
        if let Err(error) = self.read_initial_table() {
            let why = format!("cannot read the process table: {error}");
            for target in &plan.targets {
                self.reporter
                    .add_unsignalled(target, Outcome::Failed(why.clone()));
            }
            self.reporter.publish();
            return;
        }
        for target in &plan.targets {
            match self.open_target(target) {
                Ok(open) => self.targets.push(open),
                Err(outcome) => self.reporter.add_unsignalled(target, outcome),
            }
        }
        let has_joined = self.add_joined();
        // Targets may have forked while the handles were opened.
        self.has_forked = self.add_forked() || has_joined;
        self.reporter.publish();
    }

    /// Reads all processes, and keeps the planned ones as they are now.
    fn read_initial_table(&mut self) -> io::Result<()> {
        let environment = self.environment;
        let table = environment
            .process_tables
            .read_all(&environment.authority.users)?;
        self.observed = table
            .values()
            .map(|process| (process.lineage.key, process))
            .filter(|(key, _)| self.members.contains(key))
            .map(|(key, process)| (key, process.clone()))
            .into_map();
        self.family = DaemonFamily::new(std::process::id(), &table);
        self.names = KnownNames::new(&table);
        self.initial_table = Arc::new(table);
        Ok(())
    }

    /// Opens a handle on this process if it may get its signals.
    fn open_target(&self, target: &KillTarget) -> Result<Target, Outcome> {
        let signals = match &target.action {
            PlannedAction::End(signals) => signals.clone(),
            PlannedAction::Protected(protected) => {
                return Err(Outcome::Protected(protected.why.clone()));
            }
            PlannedAction::Denied(who) => return Err(Outcome::Denied(who.clone())),
            PlannedAction::Unclear(why) => return Err(Outcome::Unclear(why.clone())),
            PlannedAction::Zombie(parent) => return Err(Outcome::Zombie(parent.clone())),
        };
        let open = Target::open(target, signals)?;
        match self.environment.process_tables.pid_of(open.handle()) {
            Some(pid) if pid == target.key.pid => {}
            _ if open.has_ended() => return Err(Outcome::Gone),
            Some(_) | None => {
                let why = "its PID belongs to another process in the PID namespace of gpukilld";
                return Err(Outcome::Failed(why.into()));
            }
        }
        // The data that is read from here on belongs to the process of the handle, or shows another
        // start time, which the recheck refuses: a PID is only reused by a later process.
        let now = match self.read_one(target.key.pid) {
            Ok(now) => now,
            Err(_) if open.has_ended() => return Err(Outcome::Gone),
            Err(error) => return Err(Outcome::Unclear(format!("it cannot be read: {error}"))),
        };
        // Each target is rechecked before its signal. A late member that has ended, or may not be
        // ended, is sorted out here already, before the kill waits for it.
        self.veto(target, &now, open.had_signal())
            .map_or(Ok(open), Err)
    }

    /// Reads one process. The name of its user, or of the creator of its user namespace, comes from
    /// a cache: a process may just have changed either. A new name is waited for briefly.
    fn read_one(&self, pid: u32) -> io::Result<ProcessInfo> {
        let environment = self.environment;
        let mut now = environment.process_tables.read_one(pid)?;
        let creator = now.namespace_owner.known().copied().flatten();
        if let Some(person) = creator.or(now.lineage.uid) {
            let users = &environment.authority.users;
            now.person_name = users.name(person);
            if now.person_name.failure().is_some() {
                users.settle(Instant::now() + NAME_TIMEOUT);
                now.person_name = users.name(person);
            }
        }
        Ok(now)
    }

    fn veto(&self, target: &KillTarget, now: &ProcessInfo, had_signal: bool) -> Option<Outcome> {
        let roles = self.environment.authority.roles();
        let operators = self.environment.authority.operator_group_name();
        let context = RecheckContext {
            caller: self.authorization.caller,
            roles: &roles,
            operators: &operators,
            processes: &self.initial_table,
            names: &self.names,
            before: self.observed.get(&target.key),
            person: self.authorization.required_uid,
            family: &self.family,
            protection: &self.environment.authority.protection(),
            uses_gpu: self.uses_gpu(target.key),
            used_gpu_itself: self.gpu_users.contains(&target.key),
            had_signal,
        };
        veto(target, now, &context)
    }

    /// Why a target gets no further signal. Minutes pass between two signals, and the target may
    /// have executed a program with the rights of another user.
    fn veto_now(&self, target: &Target) -> Option<Outcome> {
        let key = target.key();
        match self.read_one(key.pid) {
            Ok(now) => self.veto(target.planned(), &now, target.had_signal()),
            Err(error) => Some(Outcome::Unclear(format!("it cannot be read: {error}"))),
        }
    }

    /// Rechecks one target before the signal of this step, because time has passed since its handle
    /// was opened, and drops it if it may get none. Returns false if the signal was withheld.
    fn recheck(&mut self, position: usize, step: usize) -> bool {
        let target = self.targets.get(position);
        let Some(why) = target.and_then(|target| self.veto_now(target)) else {
            return true;
        };
        if let Some(target) = self.targets.get_mut(position) {
            tracing::warn!(pid = target.key().pid, ?why, "signal withheld");
            let outcome = target.settle_withheld(why, step);
            self.reporter.add_settled(target, outcome);
        }
        false
    }

    /// Whether this target, or in a wide scope any member, uses a device. The use was the reason
    /// for the kill.
    fn uses_gpu(&self, key: ProcessKey) -> bool {
        self.plan.request.any_process
            || self.gpu_users.contains(&key)
            || (self.is_wide() && !self.members.is_disjoint(&self.gpu_users))
    }

    /// Sends each signal to all targets that have not ended, and waits after each.
    fn send_signals(&mut self) {
        let steps = self
            .targets
            .iter()
            .map(Target::signal_count)
            .max()
            .unwrap_or(0);
        for step in 0..steps {
            self.settle_withdrawn(step);
            if self.environment.is_stopping() || !self.has_pending_targets() {
                return;
            }
            self.stop_all(step, &mut self.stop_budget(step));
            self.send_step(step);
            let timeout = Duration::from_millis(self.plan.request.signal_timeout_ms);
            self.wait_until(Instant::now() + timeout);
            self.signal_late_members(step);
        }
    }

    /// Withholds the signal of this step from all targets if no further signal may be sent.
    fn settle_withdrawn(&mut self, step: usize) {
        let Some(why) = (self.authorization.withdrawal_reason)() else {
            return;
        };
        for target in self.targets.iter_mut().filter(|it| it.awaits(step)) {
            let outcome = target.settle_withheld(Outcome::Changed(why.to_owned()), step);
            self.reporter.add_settled(target, outcome);
        }
    }

    fn has_pending_targets(&self) -> bool {
        self.targets.iter().any(Target::is_pending)
    }

    /// Sends the targets the signal of this step, each right after its recheck: the rechecks of
    /// thousands of others take seconds, in which a target may execute a program with the rights of
    /// another user.
    ///
    /// In a wide scope SIGKILL goes to the newest first: a parent ends after its children have the
    /// signal. The end of a parent can end a shell outside of the targets that waits for it, and so
    /// orphan their process group: the kernel then resumes the stopped processes of that group.
    fn send_step(&mut self, step: usize) {
        // The targets may have been stopped for many seconds.
        self.settle_withdrawn(step);
        let is_kill = |target: &Target| target.signal(step) == Some(KillSignal::Kill);
        let mut order: Vec<usize> = (0..self.targets.len()).collect();
        // In other scopes nothing is stopped, and a supervisor must not survive its workers.
        if self.is_wide() && self.targets.iter().any(is_kill) {
            let start = |at: &usize| self.targets.get(*at).map(|it| it.key().start_ticks);
            order.sort_indirect_by_key(|at| (Reverse(start(at)), Reverse(*at)));
        }
        for position in order {
            // The end of one target may have ended another one, which needs no recheck.
            let target = self.targets.get(position);
            if !target.is_some_and(|it| it.awaits(step) && !it.has_ended())
                || !self.recheck(position, step)
            {
                continue;
            }
            let Some(target) = self.targets.get_mut(position) else {
                continue;
            };
            match target.send(step) {
                SendResult::Delivered | SendResult::NotSent => {}
                SendResult::Refused(why) => self.reporter.add_settled(target, Outcome::Failed(why)),
            }
        }
        // No process resumes before all have the signal: a resumed process may fork, and a child
        // of a parent that has ended cannot be found.
        for target in &mut self.targets {
            target.resume();
        }
    }

    fn wait_until(&mut self, deadline: Instant) {
        while self.has_pending_targets() && !self.environment.is_stopping() {
            let ended = wait_for_exits(&self.targets, deadline);
            for position in &ended {
                if let Some(target) = self.targets.get_mut(*position) {
                    let outcome = target.settle_ended();
                    self.reporter.add_settled(target, outcome);
                }
            }
            self.reporter.publish();
            if ended.is_empty() && Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Sends the same signal to late members. Processes that are found after the last round get no
    /// signal in this step; the report names them if they still exist at the end.
    fn signal_late_members(&mut self, step: usize) {
        let mut limit = self.stop_budget(step);
        for _ in 0..MAX_LATE_ROUNDS {
            let is_withdrawn = (self.authorization.withdrawal_reason)().is_some();
            if is_withdrawn || self.environment.is_stopping() {
                return;
            }
            if !self.add_forked() && self.missing.is_none() {
                return;
            }
            self.stop_all(step, &mut limit);
            self.send_step(step);
            self.wait_until(Instant::now() + LATE_MEMBER_TIMEOUT);
        }
        self.add_forked();
    }

    /// Reports why the remaining targets have not ended.
    fn settle_survivors(&mut self) {
        let mut stuck = self.find_stuck();
        for target in &mut self.targets {
            if !target.is_pending() {
                continue;
            }
            let outcome = match stuck.remove(&target.key()) {
                _ if target.has_ended() => target.settle_ended(),
                Some(waits_on) => Outcome::Uninterruptible(stuck::describe(
                    target.key().pid,
                    waits_on,
                    &self.environment.process_tables,
                    &self.initial_table,
                )),
                None if self.environment.is_stopping() => {
                    target.settle_survived("gpukilld is stopping")
                }
                None => target.settle_survived("it started while the others were being ended"),
            };
            self.reporter.add_settled(target, outcome);
        }
        self.reporter.publish();
    }
}

/// Waits until one of the pending targets has ended, at most until `deadline` and at most
/// [`EXIT_WAIT`]. Returns the positions of the ended targets.
fn wait_for_exits(targets: &[Target], deadline: Instant) -> Vec<usize> {
    let pending: Vec<(usize, &Target)> = targets
        .iter()
        .enumerate()
        .filter(|(_, target)| target.is_pending())
        .collect();
    let mut handles: Vec<PollFd<'_>> = pending
        .iter()
        .map(|(_, target)| PollFd::from_borrowed_fd(target.handle(), PollFlags::IN))
        .collect();
    let wait = deadline
        .saturating_duration_since(Instant::now())
        .min(EXIT_WAIT);
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    // An interrupted wait counts as no result yet.
    if !matches!(poll(&mut handles, Some(&timeout)), Ok(1..)) {
        return Vec::new();
    }
    let ended = handles.iter().zip(&pending);
    let ended = ended.filter(|(handle, _)| !handle.revents().is_empty());
    ended.map(|(_, (position, _))| *position).collect()
}
