//! Ends a job that the guard chose. The rechecks and signals are those of a kill that a person asks
//! for, but a kill that cannot be recorded is not done.

use super::concurrency::GuardSlot;
use super::executor::{KillAuthorization, execute};
use super::{KillEnvironment, KillOwner, KillService, scan_now};
use crate::authority::Authority;
use crate::state::PublishedPoll;
use gpukill_policy::guard::enforcement::{
    EnforcementTarget, PlanVeto, evaluated_person, job_plan_veto, kill_request, process_plan_veto,
    processes_on_devices, signals_sent, summarize_report,
};
use gpukill_policy::guard::{CompiledRules, PersonKey, PidStart, SignalStatus};
use gpukill_policy::kill::shared_container::{ContainerUsers, narrow_plan};
use gpukill_policy::kill::{KillContext, plan};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{EnforcementOutcome, OwnedJob};
use gpukill_proto::kill::{KillPlan, KillScope};
use gpukill_proto::model::{DeviceId, ProcessKey};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an enforcement waits for a slot, and how often it checks for one. The guard chooses no
/// more jobs than it has slots; a slot is released a moment after the guard got the result of the
/// last one.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
const SLOT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A job that is to be ended.
pub(crate) struct EnforcementRequest {
    /// The violated rule, as text.
    pub(crate) rule: String,
    pub(crate) job: OwnedJob,
    /// Its processes on devices.
    pub(crate) processes: BTreeSet<PidStart>,
    /// The devices that it was evaluated on.
    pub(crate) devices: BTreeSet<DeviceId>,
    /// The rules that were in force.
    pub(crate) rules: Arc<CompiledRules>,
}

/// Takes the result of an enforcement.
pub(crate) trait EnforcementObserver: Send + 'static {
    /// Called right before the first signal. After `false` no signal is sent.
    fn confirm_start(&mut self) -> bool;

    /// The result, and whether signals were sent. Called once.
    fn finish(self, outcome: EnforcementOutcome, signals: SignalStatus);
}

impl KillService {
    /// Enforces the order on threads of its own.
    pub(crate) fn enforce(&self, request: EnforcementRequest, who: impl EnforcementObserver) {
        let enforcer = self.clone();
        let who = FinishOnce::new(&request, who);
        let settled = who.clone();
        let run = move || enforcer.run_enforcement(request, who);
        let thread = std::thread::Builder::new()
            .name("enforcement".into())
            .spawn(run);
        if let Err(error) = thread {
            settled.finish_unenforced(format!("cannot start a thread for it: {error}"));
        }
    }

    /// Waits for a slot: a few jobs are ended at a time.
    fn wait_for_guard_slot(&self, person: &PersonKey) -> Option<GuardSlot> {
        let until = Instant::now() + SLOT_TIMEOUT;
        loop {
            let slot = self.operations.take_guard_slot(person);
            if slot.is_some() || self.environment.is_stopping() || Instant::now() >= until {
                return slot;
            }
            std::thread::sleep(SLOT_CHECK_INTERVAL);
        }
    }

    fn run_enforcement(
        &self,
        request: EnforcementRequest,
        who: FinishOnce<impl EnforcementObserver>,
    ) {
        // The slot comes first: an order without one costs no scan and no memory.
        let Some(slot) = self.wait_for_guard_slot(&PersonKey::from(&request.job.owner)) else {
            return who.finish_postponed();
        };
        let environment = KillEnvironment {
            authority: self.environment.authority.for_guard(),
            ..self.environment.clone()
        };
        let published = scan_now(&environment);
        let EnforcementPlan {
            plan,
            late_member_users: users,
            rest,
        } = match plan_enforcement(&request, &environment, &published) {
            Ok(planned) => planned,
            Err(None) => return who.finish_already_ended(),
            Err(Some(why)) => return who.finish_unenforced(why),
        };
        let caller = Authority::guard_caller();
        let owner = KillOwner::from_caller(&caller);
        if !who.confirm_start() {
            let why = "the current rules do not end it any more, or the decision cannot be stored";
            return who.finish_unenforced(why.to_owned());
        }
        let plan = Arc::new(plan);
        let carried_out = Arc::clone(&plan);
        let settled = who.clone();
        let person = evaluated_person(request.rules.rules(), &request.job);
        let started = self.operations.start(slot, owner, &plan, move |report| {
            let authorization = KillAuthorization {
                caller: &caller,
                request_text: format!("guard: {}", request.rule),
                must_be_recorded: true,
                late_member_users: users,
                required_uid: person,
            };
            execute(
                &carried_out,
                &authorization,
                &environment,
                &published,
                report,
            );
            let report = report.borrow().clone();
            let mut outcome = summarize_report(request.job, &report);
            let rest = rest.map(|why| format!("the rest of its job is not ended: {why}"));
            outcome.why = match (outcome.why, rest) {
                (Some(why), Some(rest)) => Some(format!("{why}; {rest}")),
                (why, rest) => why.or(rest),
            };
            who.finish(outcome, signals_sent(&report));
        });
        if let Err(error) = started {
            settled.finish_unenforced(format!("cannot start a thread for it: {error}"));
        }
    }
}

/// Calls the observer once, from whichever thread ends the enforcement.
struct FinishOnce<W> {
    /// The result to report where nothing was done.
    nothing_done: EnforcementOutcome,
    observer: Arc<Mutex<Option<W>>>,
}

impl<W> Clone for FinishOnce<W> {
    fn clone(&self) -> Self {
        Self {
            nothing_done: self.nothing_done.clone(),
            observer: Arc::clone(&self.observer),
        }
    }
}

impl<W: EnforcementObserver> FinishOnce<W> {
    fn new(request: &EnforcementRequest, who: W) -> Self {
        let left = u32::try_from(request.processes.len()).unwrap_or(u32::MAX);
        Self {
            nothing_done: EnforcementOutcome {
                job: request.job.clone(),
                ended: 0,
                left,
                why: None,
            },
            observer: Arc::new(Mutex::new(Some(who))),
        }
    }

    fn confirm_start(&self) -> bool {
        let mut who = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        who.as_mut().is_some_and(EnforcementObserver::confirm_start)
    }

    fn finish(&self, outcome: EnforcementOutcome, signals: SignalStatus) {
        let who = self
            .observer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(who) = who {
            who.finish(outcome, signals);
        }
    }

    fn finish_unenforced(&self, why: String) {
        self.finish_without_signal(why, SignalStatus::Unsent);
    }

    /// Too many other kills are under way.
    fn finish_postponed(&self) {
        self.finish_without_signal(
            "too many kills are under way".to_owned(),
            SignalStatus::Postponed,
        );
    }

    fn finish_without_signal(&self, why: String, signals: SignalStatus) {
        let outcome = EnforcementOutcome {
            why: Some(why),
            ..self.nothing_done.clone()
        };
        self.finish(outcome, signals);
    }

    /// None of its processes exists any more.
    fn finish_already_ended(&self) {
        let outcome = EnforcementOutcome {
            left: 0,
            why: Some("it ended by itself".to_owned()),
            ..self.nothing_done.clone()
        };
        self.finish(outcome, SignalStatus::Unsent);
    }
}

/// The plan of an enforcement.
struct EnforcementPlan {
    plan: KillPlan,
    /// Late processes are ended, too, of these users only.
    late_member_users: Option<ContainerUsers>,
    /// Why the rest of the job is not ended.
    rest: Option<String>,
}

/// Makes the plan.
///
/// # Errors
/// The reason where there is no plan; `None` where none of its processes exists any more.
fn plan_enforcement(
    request: &EnforcementRequest,
    environment: &KillEnvironment,
    published: &PublishedPoll,
) -> Result<EnforcementPlan, Option<String>> {
    environment
        .check_enabled()
        .map_err(|why| Some(why.to_string()))?;
    let table = environment
        .process_tables
        .read_all(&environment.authority.users);
    let table = table.map_err(|error| Some(format!("cannot read the process table: {error}")))?;
    let lives = |process: &&PidStart| {
        let (pid, start_ticks) = **process;
        table
            .get(&pid)
            .is_some_and(|it| it.lineage.key.start_ticks == start_ticks)
    };
    let living: BTreeSet<PidStart> = request.processes.iter().filter(lives).copied().into_set();
    if living.is_empty() {
        return Err(None);
    }
    // A process that has released the devices is ended with the job, but must not prevent that.
    let living =
        processes_on_devices(&published.snapshot, &living, &request.devices).map_err(Some)?;
    let (roles, operators) = (
        environment.authority.roles(),
        environment.authority.operator_group_name(),
    );
    let protection = environment.authority.protection();
    let caller = Authority::guard_caller();
    let context = KillContext {
        caller: &caller,
        roles: &roles,
        operators: &operators,
        snapshot: &published.snapshot,
        holders: &published.holders,
        processes: &table,
        protection: &protection,
    };
    let planned = |scope| {
        let plan = plan(
            &kill_request(&living, scope),
            &context,
            environment.clock.now(),
        );
        plan.map_err(|why| Some(why.to_string()))
    };
    let target = EnforcementTarget {
        job: &request.job,
        processes: &living,
        rules: request.rules.rules(),
        process_table: &table,
        uid_min: protection.uid_min,
    };
    let keys = living.iter().map(|(pid, start_ticks)| ProcessKey {
        pid: *pid,
        start_ticks: *start_ticks,
    });
    let whole = narrow_plan(planned(KillScope::Job)?, &keys.into_set(), &table).map_err(Some)?;
    let rest = match job_plan_veto(&whole.plan, target) {
        None => {
            let is_shared = whole.users.is_some();
            return Ok(EnforcementPlan {
                plan: whole.plan,
                late_member_users: whole.users,
                rest: is_shared.then(|| "other users run processes in its container".to_owned()),
            });
        }
        Some(PlanVeto::WholePlan(why)) => return Err(Some(why)),
        Some(PlanVeto::RestOfJob(why)) => why,
    };
    let alone = planned(KillScope::Process)?;
    match process_plan_veto(&alone, target) {
        Some(why) => Err(Some(why.to_string())),
        None => Ok(EnforcementPlan {
            plan: alone,
            late_member_users: None,
            rest: Some(rest),
        }),
    }
}
