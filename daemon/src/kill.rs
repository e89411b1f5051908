//! Ends processes: the only part of the daemon that sends signals. [`KillService::plan`] makes a
//! plan and keeps it, [`KillService::execute`] runs it on a thread of its own,
//! [`KillService::follow`] reports its progress.

mod concurrency;
mod enforcement;
mod executor;
mod operations;
mod planner;
mod plans;
mod recovery;
mod stopped;
mod stopped_file;

use crate::authority::Authority;
use crate::clock::Clock;
use crate::fd_scan::full_scan::{FullScan, ScanFreshness, read_after_scan};
use crate::host::process_table::ProcessTableReader;
use crate::state;
use crate::state::PublishedPoll;
use crate::store::Store;
pub(crate) use concurrency::raise_fd_limit;
use concurrency::{ConcurrencySlot, ConcurrencySlots};
pub(crate) use enforcement::EnforcementObserver;
pub(crate) use executor::kill_result;
use gpukill_policy::access::{Caller, Roles, rights};
use gpukill_policy::kill::protection::{DaemonFamily, Protection, protection_of};
use gpukill_policy::kill::{KillContext, ProcessTable};
use gpukill_proto::kill::{KillPlan, KillReport, KillRequest, OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::Right;
use planner::{PLANNING_LIMITS, PlanResult, SLOT_TIMEOUT, plan_on_thread};
pub(crate) use recovery::recover_stopped;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stopped::StoppedProcesses;
use tokio::sync::watch;

/// The parts of the daemon that a kill needs. Clones share them.
#[derive(Clone)]
pub(crate) struct KillEnvironment {
    pub(crate) authority: Authority,
    pub(crate) state: state::SnapshotReader,
    pub(crate) full_scan: FullScan,
    pub(crate) process_tables: ProcessTableReader,
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// Starts the next poll at once.
    pub(crate) poll_now: Arc<dyn Fn() + Send + Sync>,
    /// Why this daemon ends no process for any caller.
    pub(crate) disabled_reason: Option<String>,
    /// Set when the daemon stops. Operations under way end then.
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) stopped_processes: StoppedProcesses,
}

impl KillEnvironment {
    /// Checks that this daemon ends processes and is not stopping.
    ///
    /// # Errors
    /// The reason why it does not.
    pub(crate) fn check_enabled(&self) -> Result<(), Refusal> {
        if let Some(why) = &self.disabled_reason {
            return Err(Refusal::Unavailable(why.clone()));
        }
        if self.is_stopping() {
            return Err(Refusal::Unavailable("gpukilld is stopping".to_owned()));
        }
        Ok(())
    }

    /// Reads the facts for a plan.
    ///
    /// # Errors
    /// If the processes cannot be read.
    pub(crate) fn plan_facts(&self) -> Result<PlanFacts, Refusal> {
        let processes = self.process_tables.read_all(&self.authority.users);
        Ok(PlanFacts {
            processes: processes.map_err(|error| {
                tracing::error!(%error, "cannot read the process table");
                Refusal::Unavailable(format!("cannot read the process table: {error}"))
            })?,
            roles: self.authority.roles(),
            operators: self.authority.operator_group_name(),
            protection: self.authority.protection(),
        })
    }

    /// What is published after a scan of all processes: see [`read_after_scan`].
    pub(crate) fn scan(
        &self,
        since: ScanFreshness,
    ) -> impl Future<Output = Result<PublishedPoll, Refusal>> {
        read_after_scan(&self.full_scan, &self.state, since)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether this caller may use the slots that are reserved for operators.
    fn is_privileged(&self, caller: &Caller) -> bool {
        let rights = rights(caller, &self.authority.roles());
        let is_more = |right: &Right| matches!(right, Right::EndAny | Right::EditRules);
        rights.iter().any(is_more)
    }
}

/// The facts for a plan that the newest poll does not have.
pub(crate) struct PlanFacts {
    processes: ProcessTable,
    roles: Roles,
    operators: String,
    protection: Protection,
}

impl PlanFacts {
    /// All that a plan of this caller is made from.
    pub(crate) fn context<'a>(
        &'a self,
        caller: &'a Caller,
        published: &'a PublishedPoll,
    ) -> KillContext<'a> {
        KillContext {
            caller,
            roles: &self.roles,
            operators: &self.operators,
            snapshot: &published.snapshot,
            holders: &published.holders,
            processes: &self.processes,
            protection: &self.protection,
        }
    }
}

/// The caller that a plan or an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KillOwner {
    uid: u32,
    /// Root of a container has uid 0, too, but is not root of the host.
    contained_root: bool,
}

impl KillOwner {
    fn from_caller(caller: &Caller) -> Self {
        Self {
            uid: caller.uid,
            contained_root: caller.uid == 0 && caller.contained,
        }
    }
}

/// Plans and operations. Clones share it.
#[derive(Clone)]
pub(crate) struct KillService {
    environment: KillEnvironment,
    planning: ConcurrencySlots,
    plans: plans::PendingPlans,
    operations: operations::Operations,
}

/// An operation, for a caller that may follow it.
pub(crate) struct OperationView {
    pub(crate) plan: Arc<KillPlan>,
    /// Whether this caller started it.
    pub(crate) is_own: bool,
    /// The current report and later ones.
    pub(crate) report: watch::Receiver<Arc<KillReport>>,
}

impl KillService {
    pub(crate) fn new(environment: KillEnvironment) -> Self {
        Self {
            environment,
            planning: ConcurrencySlots::new(PLANNING_LIMITS),
            plans: plans::PendingPlans::default(),
            operations: operations::Operations::default(),
        }
    }

    /// Makes a plan. A plan that can be executed is kept under its id for ten minutes. A plan that
    /// ends no process, and is no dry run, is recorded as refused.
    ///
    /// # Errors
    /// The errors of [`gpukill_policy::kill::plan`], a refusal where this daemon ends no processes,
    /// and [`Refusal::Busy`] when no planning slot becomes free in time.
    pub(crate) async fn plan(
        &self,
        caller: &Caller,
        request: KillRequest,
    ) -> Result<(Option<PlanId>, Arc<KillPlan>), Refusal> {
        self.environment.check_enabled()?;
        let group = caller.limit_group;
        let is_privileged = self.environment.is_privileged(caller);
        let slot = self.planning.wait(group, is_privileged, SLOT_TIMEOUT).await;
        let slot = slot.ok_or(Refusal::Busy)?;
        match self
            .plan_with_rescan(caller, request, Arc::new(slot))
            .await?
        {
            PlanResult::Executable(plan) => {
                let of = (KillOwner::from_caller(caller), group);
                let id = self.plans.insert(of, Arc::clone(&plan), Instant::now());
                Ok((Some(id), plan))
            }
            PlanResult::DisplayOnly(plan) => Ok((None, plan)),
        }
    }

    /// Why no caller may end this process by the rules of a kill. `None` where a caller may, where
    /// the process does not exist, and where the answer is unknown now: the kill itself checks
    /// again.
    pub(crate) fn protection(&self, pid: u32, deadline: Instant) -> Option<String> {
        let environment = &self.environment;
        let protection = environment.authority.protection();
        let table = environment.process_tables.read_with_ancestors(
            &[pid, protection.daemon],
            &environment.authority.users,
            deadline,
        );
        let process = table.get(&pid)?;
        let family = DaemonFamily::new(protection.daemon, &table);
        let protected = protection_of(process, &family, &protection)?;
        let lacks = process.program.failure().is_some() || process.container.failure().is_some();
        let is_late = lacks && Instant::now() >= deadline;
        if is_late && protected.override_hint().is_some() {
            return None;
        }
        Some(match protected.override_hint() {
            Some(way) => format!("{}; {way}", protected.why),
            None => protected.why,
        })
    }

    async fn plan_with_rescan(
        &self,
        caller: &Caller,
        request: KillRequest,
        slot: Arc<ConcurrencySlot>,
    ) -> Result<PlanResult, Refusal> {
        let (environment, asked) = (&self.environment, Instant::now());
        let published = environment.scan(ScanFreshness::Recent).await?;
        let made = plan_on_thread(environment, caller, &request, published, &slot).await;
        let has_no_match = match &made {
            Err(refusal) => matches!(refusal, Refusal::NoMatch(_)),
            Ok(PlanResult::DisplayOnly(plan) | PlanResult::Executable(plan)) => {
                plan.targets.is_empty()
            }
        };
        if !has_no_match {
            return made;
        }
        // The target may have opened a GPU after the scan that is cached.
        let published = environment.scan(ScanFreshness::StartedAfter(asked)).await?;
        plan_on_thread(environment, caller, &request, published, &slot).await
    }

    /// A cached plan of this caller.
    ///
    /// # Errors
    /// [`Refusal::Expired`].
    pub(crate) fn get_plan(&self, caller: &Caller, id: PlanId) -> Result<Arc<KillPlan>, Refusal> {
        let plan = self
            .plans
            .get(KillOwner::from_caller(caller), id, Instant::now());
        plan.ok_or(Refusal::Expired)
    }

    /// Starts the execution of a plan.
    ///
    /// # Errors
    /// [`Refusal::Expired`], and [`Refusal::Busy`] when too many kills, or too many large ones, are
    /// under way.
    pub(crate) fn execute(&self, caller: &Caller, id: PlanId) -> Result<OperationId, Refusal> {
        self.environment.check_enabled()?;
        let owner = KillOwner::from_caller(caller);
        let group = caller.limit_group;
        // The slot comes first: a plan that cannot run now stays cached.
        let is_privileged = self.environment.is_privileged(caller);
        let targets = self.get_plan(caller, id)?.targets.len();
        let slot = self.operations.take_slot(group, is_privileged, targets);
        let slot = slot.ok_or(Refusal::Busy)?;
        let plan = self.plans.take(owner, id, Instant::now());
        let plan = plan.ok_or(Refusal::Expired)?;
        let (environment, caller) = (self.environment.clone(), caller.clone());
        let carried_out = Arc::clone(&plan);
        let owner = (owner, group);
        let started = self.operations.start(slot, owner, &plan, move |report| {
            execute_plan(&carried_out, &caller, &environment, report);
        });
        started.map_err(|error| {
            tracing::error!(%error, "cannot start a thread for a kill");
            Refusal::Unavailable("cannot start a thread for it".to_owned())
        })
    }

    /// The state of an operation, now and later.
    ///
    /// # Errors
    /// [`Refusal::NoMatch`] for an operation that does not exist or that this caller may not
    /// follow.
    pub(crate) fn follow(
        &self,
        caller: &Caller,
        id: OperationId,
    ) -> Result<OperationView, Refusal> {
        let followed = self.operations.get(id).and_then(|followed| {
            let is_own = followed.owner == KillOwner::from_caller(caller);
            (is_own || self.environment.is_privileged(caller)).then_some(OperationView {
                plan: followed.plan,
                is_own,
                report: followed.report,
            })
        });
        followed.ok_or_else(|| {
            Refusal::NoMatch("no such operation, or it belongs to another user".to_owned())
        })
    }

    /// Signals all operations that the daemon stops, and waits at most this long for them.
    pub(crate) fn stop(&self, timeout: Duration) {
        self.environment.stopping.store(true, Ordering::Relaxed);
        let left = self.operations.wait_until_idle(Instant::now() + timeout);
        self.environment.stopped_processes.resume_all();
        if left > 0 {
            tracing::warn!(left, "kills under way did not end in time");
        }
    }
}

/// Executes a plan on the thread of its operation, after a new scan.
fn execute_plan(
    plan: &KillPlan,
    caller: &Caller,
    environment: &KillEnvironment,
    report: &watch::Sender<Arc<KillReport>>,
) {
    let published = scan_now(environment);
    let authorization = executor::KillAuthorization {
        caller,
        request_text: plan.request.selector.text_for_caller(caller.uid),
        must_be_recorded: false,
        late_member_users: None,
        required_uid: None,
        withdrawal_reason: &|| None,
    };
    executor::execute(plan, &authorization, environment, &published, report);
}

/// Scans all processes now, from a thread outside the server's runtime.
fn scan_now(environment: &KillEnvironment) -> PublishedPoll {
    // The scan waits, and the server's own runtime may be gone by then.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let published = match runtime {
        Ok(runtime) => runtime.block_on(environment.scan(ScanFreshness::Recent)),
        Err(error) => Err(Refusal::Unavailable(error.to_string())),
    };
    // Processes that held a device a moment ago are in the last published answer. The recheck
    // spares a process that holds none any more.
    published.unwrap_or_else(|why| {
        tracing::warn!(%why, "cannot scan all processes before a kill; using the last scan");
        environment.state.borrow().clone()
    })
}

/// The first id of plans and of operations. It is random, so that an id that a client remembers
/// from an earlier daemon names nothing in this one. It is far below the end of the range, and
/// never 0.
fn first_id() -> u64 {
    (RandomState::new().hash_one(0) >> 16) + 1
}

#[cfg(test)]
mod tests;
