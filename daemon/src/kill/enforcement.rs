//! Ends a job that the guard chose. The rechecks and signals are those of a kill that a person asks
//! for, but a kill that cannot be recorded is not done.

use super::concurrency::GuardSlot;
use super::executor::{KillAuthorization, execute};
use super::{KillEnvironment, KillOwner, KillService, PlanFacts, scan_now};
use crate::authority::Authority;
use crate::state::PublishedPoll;
use gpukill_policy::guard::enforcement::ended_jobs::PidStart;
use gpukill_policy::guard::enforcement::order::{Enforcement, SignalStatus};
use gpukill_policy::guard::enforcement::plan_check::{
    EnforcementTarget, PlanVeto, job_plan_veto, kill_request, process_plan_veto,
    processes_on_devices, signals_sent, summarize_report,
};
use gpukill_policy::guard::preview::PreviewedViolation;
use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::{CompiledRules, PersonKey};
use gpukill_policy::kill::plan;
use gpukill_policy::kill::shared_container::{NarrowedPlan, narrow_plan};
use gpukill_proto::audit::GUARD_REQUEST;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{EnforcementOutcome, MAX_AFFECTED_VIOLATIONS};
use gpukill_proto::kill::KillScope;
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an enforcement waits for a slot, and how often it checks for one. The guard chooses no
/// more jobs than it has slots; a slot is released a moment after the guard got the result of the
/// last one.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
const SLOT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Takes the results of enforcements.
pub(crate) trait EnforcementObserver: Clone + Send + 'static {
    /// Called right before the first signal of an enforcement that was chosen by these rules. After
    /// `false` no signal is sent.
    fn confirm_start(&self, enforcement: &Arc<Enforcement>, rules: &Arc<CompiledRules>) -> bool;

    /// Why an enforcement that was chosen by these rules gets no further signal; `None` where it
    /// does.
    /// Called before the signals of each step.
    fn withdrawal_reason(
        &self,
        enforcement: &Enforcement,
        rules: &CompiledRules,
    ) -> Option<&'static str>;

    /// The outcome, and whether signals were sent. Called once for each enforcement that has a
    /// thread.
    fn finish(
        &self,
        enforcement: &Arc<Enforcement>,
        outcome: EnforcementOutcome,
        signals: SignalStatus,
    );
}

impl KillService {
    /// Ends the job on a thread of its own. `rules` are those by which it was chosen.
    ///
    /// # Errors
    /// The outcome if no thread can be started. The observer does not get it: the caller takes the
    /// outcomes from a bounded queue, and would wait for itself.
    pub(crate) fn enforce(
        &self,
        enforcement: &Arc<Enforcement>,
        rules: Arc<CompiledRules>,
        observer: &impl EnforcementObserver,
    ) -> Result<(), EnforcementOutcome> {
        let service = self.clone();
        let (chosen, result) = (Arc::clone(enforcement), observer.clone());
        let run = move || {
            if let Err((outcome, signals)) = service.run_enforcement(&chosen, &rules, &result) {
                result.finish(&chosen, outcome, signals);
            }
        };
        let thread = std::thread::Builder::new()
            .name("enforcement".into())
            .spawn(run);
        match thread {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(enforcement.unenforced(format!("cannot start a thread for it: {error}")))
            }
        }
    }

    /// Finds out which of the first of these jobs the guard would not end now: each is planned as
    /// for its end, and no plan is carried out.
    pub(crate) fn veto_previewed(&self, previewed: &mut [PreviewedViolation], rules: &RuleSet) {
        let environment = self.guard_environment();
        let published = environment.state.borrow().clone();
        let mut facts = None;
        let with_job = previewed.iter_mut().filter(|it| it.chosen.is_some());
        for violation in with_job.take(MAX_AFFECTED_VIOLATIONS) {
            let Some(enforcement) = &violation.chosen else {
                continue;
            };
            // They are read once, and only if there is a job to plan.
            let facts = facts.get_or_insert_with(|| enforcement_facts(&environment));
            violation.exempt = match facts {
                Ok(facts) => {
                    let planned =
                        plan_by_facts(enforcement, rules, facts, &environment, &published);
                    planned.err().and_then(|outcome| outcome.why)
                }
                Err(why) => Some(why.clone()),
            };
        }
    }

    /// The environment with the rights of the guard.
    fn guard_environment(&self) -> KillEnvironment {
        KillEnvironment {
            authority: self.environment.authority.for_guard(),
            ..self.environment.clone()
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

    /// Plans the kill and starts it on a thread of its own, which tells the observer the outcome.
    ///
    /// # Errors
    /// The outcome if no signal is sent.
    fn run_enforcement(
        &self,
        enforcement: &Arc<Enforcement>,
        rules: &Arc<CompiledRules>,
        observer: &impl EnforcementObserver,
    ) -> Result<(), (EnforcementOutcome, SignalStatus)> {
        let unenforced = |why| (enforcement.unenforced(why), SignalStatus::Unsent);
        // The slot comes first: an enforcement without one costs no scan and no memory.
        let Some(slot) = self.wait_for_guard_slot(&PersonKey::from(&enforcement.job.owner)) else {
            let outcome = enforcement.unenforced("too many kills are under way".to_owned());
            return Err((outcome, SignalStatus::Postponed));
        };
        let environment = self.guard_environment();
        let published = scan_now(&environment);
        let planned = plan_enforcement(enforcement, rules.rules(), &environment, &published);
        let (NarrowedPlan { plan, users }, rest_of_job_reason) =
            planned.map_err(|outcome| (outcome, SignalStatus::Unsent))?;
        let caller = Authority::guard_caller();
        let owner = (KillOwner::from_caller(&caller), caller.limit_group);
        if !observer.confirm_start(enforcement, rules) {
            let why = "the current rules do not end it any more, or the decision cannot be stored";
            return Err(unenforced(why.to_owned()));
        }
        let plan = Arc::new(plan);
        let carried_out = Arc::clone(&plan);
        let (started, result) = (Arc::clone(enforcement), observer.clone());
        let rules = Arc::clone(rules);
        let operation = self.operations.start(slot, owner, &plan, move |report| {
            let authorization = KillAuthorization {
                caller: &caller,
                request_text: format!("{GUARD_REQUEST}{}", started.record.rule),
                must_be_recorded: true,
                late_member_users: users,
                required_uid: started.job.owner.uid,
                withdrawal_reason: &|| result.withdrawal_reason(&started, &rules),
            };
            let mut ending = EnforcementResult {
                enforcement: &started,
                observer: &result,
                outcome: None,
            };
            execute(
                &carried_out,
                &authorization,
                &environment,
                &published,
                report,
            );
            let report = report.borrow().clone();
            let mut outcome = summarize_report(started.job.clone(), &report);
            let rest_of_job_reason =
                rest_of_job_reason.map(|why| format!("the rest of its job is not ended: {why}"));
            outcome.why = match (outcome.why, rest_of_job_reason) {
                (Some(why), Some(rest_of_job_reason)) => {
                    Some(format!("{why}; {rest_of_job_reason}"))
                }
                (why, rest_of_job_reason) => why.or(rest_of_job_reason),
            };
            ending.outcome = Some((outcome, signals_sent(&report)));
        });
        match operation {
            Ok(_) => Ok(()),
            Err(error) => Err(unenforced(format!("cannot start a thread for it: {error}"))),
        }
    }
}

/// The result of an enforcement, which the observer gets when this is dropped: also where the
/// execution panics, after which the guard would wait for the result.
struct EnforcementResult<'a, O: EnforcementObserver> {
    enforcement: &'a Arc<Enforcement>,
    observer: &'a O,
    /// `None` until the execution has ended.
    outcome: Option<(EnforcementOutcome, SignalStatus)>,
}

impl<O: EnforcementObserver> Drop for EnforcementResult<'_, O> {
    fn drop(&mut self) {
        let (outcome, signals) = self.outcome.take().unwrap_or_else(|| {
            let why = "a fault of gpukilld aborted it: see the log";
            let outcome = self.enforcement.unenforced(why.to_owned());
            (outcome, SignalStatus::Sent)
        });
        self.observer.finish(self.enforcement, outcome, signals);
    }
}

/// Makes the plan. Also returns why the rest of the job is not ended, if it is not.
///
/// # Errors
/// The outcome if there is no plan.
fn plan_enforcement(
    enforcement: &Enforcement,
    rules: &RuleSet,
    environment: &KillEnvironment,
    published: &PublishedPoll,
) -> Result<(NarrowedPlan, Option<String>), EnforcementOutcome> {
    let facts = enforcement_facts(environment).map_err(|why| enforcement.unenforced(why))?;
    plan_by_facts(enforcement, rules, &facts, environment, published)
}

/// Reads the facts for plans of enforcements.
///
/// # Errors
/// Why no process is ended.
fn enforcement_facts(environment: &KillEnvironment) -> Result<PlanFacts, String> {
    environment.check_enabled().map_err(|why| why.to_string())?;
    environment.plan_facts().map_err(|why| why.to_string())
}

/// As [`plan_enforcement`], by these facts.
fn plan_by_facts(
    enforcement: &Enforcement,
    rules: &RuleSet,
    facts: &PlanFacts,
    environment: &KillEnvironment,
    published: &PublishedPoll,
) -> Result<(NarrowedPlan, Option<String>), EnforcementOutcome> {
    let unenforced = |why| enforcement.unenforced(why);
    let table = &facts.processes;
    let lives = |process: &&PidStart| {
        let (pid, start_ticks) = **process;
        table
            .get(&pid)
            .is_some_and(|it| it.lineage.key.start_ticks == start_ticks)
    };
    let living: BTreeSet<PidStart> = enforcement
        .processes
        .iter()
        .filter(lives)
        .copied()
        .into_set();
    if living.is_empty() {
        return Err(EnforcementOutcome {
            left: 0,
            ..unenforced("it ended by itself".to_owned())
        });
    }
    // A process that has released the devices is ended with the job, but must not prevent that.
    let living = processes_on_devices(&published.snapshot, &living, &enforcement.devices)
        .map_err(unenforced)?;
    let caller = Authority::guard_caller();
    let context = facts.context(&caller, published);
    let planned = |scope| {
        let plan = plan(
            &kill_request(&living, scope),
            &context,
            environment.clock.now(),
        );
        plan.map_err(|why| unenforced(why.to_string()))
    };
    let target = EnforcementTarget {
        job: &enforcement.job,
        processes: &living,
        rules,
        process_table: table,
        uid_min: context.protection.uid_min,
    };
    let keys = living.iter().map(|(pid, start_ticks)| ProcessKey {
        pid: *pid,
        start_ticks: *start_ticks,
    });
    let job_plan = narrow_plan(planned(KillScope::Job)?, &keys.into_set(), table);
    let job_plan = job_plan.map_err(unenforced)?;
    let rest_of_job_reason = match job_plan_veto(&job_plan.plan, target) {
        None => {
            let is_shared = job_plan.users.is_some();
            let rest_of_job_reason =
                is_shared.then(|| "other users run processes in its container".to_owned());
            return Ok((job_plan, rest_of_job_reason));
        }
        Some(PlanVeto::WholePlan(why)) => return Err(unenforced(why)),
        Some(PlanVeto::RestOfJob(why)) => why,
    };
    let plan = planned(KillScope::Process)?;
    match process_plan_veto(&plan, target) {
        Some(why) => Err(unenforced(why.to_string())),
        None => Ok((NarrowedPlan { plan, users: None }, Some(rest_of_job_reason))),
    }
}
