//! Executes a plan, device by device, on a thread of its own, and logs the result for each device.
//! The steps for one device are in `ResetExecution::reset_device`; `gpukill-reset` does the
//! vendor's step as root.

use super::{ResetService, helper_client, planner};
use crate::fd_scan::full_scan::{NewPoll, ScanFreshness};
use crate::kill::KillEnvironment;
use crate::log_events::{EventSubject, event};
use crate::quiesce::Quiesce;
use crate::state::whole_milliseconds;
use crate::store::{Action as Recorded, ActionKind};
use gpukill_policy::access::Caller;
use gpukill_policy::reset::outcome::{ResetCompletion, completion};
use gpukill_policy::reset::response::{ResetResponse, check_response};
use gpukill_policy::reset::{changed_peers, force_kill_request};
use gpukill_proto::json::{ResetPlanDocument, ResetReportDocument};
use gpukill_proto::kill::{KillReport, KillRequest, Stage};
use gpukill_proto::model::{DeviceId, Vendor};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{
    Blocker, PlannedReset, ResetOutcome, ResetPlan, ResetReport, ResetResult, ResetTarget,
    Unblocker,
};
use gpukill_proto::text::sanitize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The driver is released for at most this long: longer than the helper may take.
const QUIESCE_LENGTH: Duration = Duration::from_secs(240);

/// How long the sensor may take to end: as long as it may take for an answer.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(30);

/// At most this many ended processes, with this much of their commands, are reported: the report of
/// a whole host must fit an answer.
const MAX_ENDED_SHOWN: usize = 32;
const MAX_COMMAND_BYTES: usize = 80;

/// At most this many blockers are logged.
const MAX_NAMED_BLOCKERS: usize = 8;

/// How long a device may take to answer after its reset: a sensor that starts wakes every GPU of
/// the host.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(60);

/// A device that its driver cannot reach for this long is given up.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Executes a plan and reports its progress. Returns when the last report is [`Stage::Done`] or
/// [`Stage::Interrupted`].
pub(super) fn execute(
    resetter: &ResetService,
    plan: &ResetPlan,
    caller: &Caller,
    report: &watch::Sender<Arc<ResetReport>>,
) {
    let update_report = |change: &dyn Fn(&mut ResetReport)| {
        report.send_modify(|report| {
            let report = Arc::make_mut(report);
            report.version += 1;
            change(report);
        });
    };
    let store = &resetter.environment.store;
    let mut subject = EventSubject::default();
    for target in &plan.devices {
        subject.add_device(&target.device.0);
    }
    let action = Recorded {
        kind: ActionKind::Reset,
        uid: caller.uid,
        request: plan.request.to_string(),
        plan: serde_json::to_string(&ResetPlanDocument::from(plan)).unwrap_or_default(),
    };
    let recorded = store.record_intent_about(action, subject.clone());
    if let Err(why) = &recorded {
        update_report(&|report| report.unrecorded = Some(why.clone()));
    }
    let done = catch_unwind(AssertUnwindSafe(|| {
        let runtime = runtime();
        for target in &plan.devices {
            if resetter.operations.is_stopping() {
                return false;
            }
            let outcome = match &runtime {
                Ok(runtime) => ResetExecution {
                    resetter,
                    plan,
                    caller,
                    runtime,
                }
                .run_target(target),
                Err(why) => new_outcome(target, None, ResetResult::Failed(why.clone())),
            };
            // The daemon stopped waiting: the result is unknown.
            if resetter.environment.is_stopping() {
                return false;
            }
            log_outcome(&outcome, caller.uid);
            update_report(&|report| report.outcomes.push(outcome.clone()));
        }
        true
    }));
    if done.is_err() {
        // Reopens the driver if it was released.
        resetter.quiesce.end();
        tracing::error!("a reset panicked");
    }
    let is_done = matches!(done, Ok(true));
    update_report(&|report| {
        report.stage = if is_done {
            Stage::Done
        } else {
            Stage::Interrupted
        };
    });
    let last = Arc::clone(&report.borrow());
    let (result, outcome) = (reset_result(&last), report_document(&last));
    match recorded {
        Ok(action) => action.settle(result, outcome),
        // Only the log has it.
        Err(_) => store.log_unrecorded_end(ActionKind::Reset, &subject, result, &outcome),
    }
}

/// Full scans and kills wait on this runtime; the thread of the server may be gone by then.
fn runtime() -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.map_err(|error| format!("nothing was done: {error}"))
}

fn report_document(report: &ResetReport) -> String {
    serde_json::to_string(&ResetReportDocument::from(report)).unwrap_or_default()
}

fn reset_result(report: &ResetReport) -> &'static str {
    match (report.stage, completion(report)) {
        (Stage::Interrupted, _) => "interrupted",
        (_, ResetCompletion::All) => "done",
        (_, ResetCompletion::Partial) => "partly",
        (_, ResetCompletion::Unsupported | ResetCompletion::Failed) => "failed",
    }
}

/// A plan that is being executed.
struct ResetExecution<'a> {
    resetter: &'a ResetService,
    plan: &'a ResetPlan,
    caller: &'a Caller,
    runtime: &'a Runtime,
}

impl ResetExecution<'_> {
    /// Resets one device, from the second check to the result. The plan decides only one thing
    /// here: a device that was not to be reset is not.
    fn run_target(&self, planned: &ResetTarget) -> ResetOutcome {
        match &planned.action {
            PlannedReset::Unsupported(why) => {
                return new_outcome(planned, None, ResetResult::Unsupported(why.clone()));
            }
            PlannedReset::Blocked => {
                return new_outcome(planned, None, self.blocked_ending(planned));
            }
            PlannedReset::Reset => {}
        }
        let target = match self.recheck(planned) {
            Ok(target) => target,
            Err(why) => return new_outcome(planned, None, ResetResult::Failed(why)),
        };
        match &target.action {
            PlannedReset::Unsupported(why) => {
                return new_outcome(&target, None, ResetResult::Unsupported(why.clone()));
            }
            PlannedReset::Blocked => {
                return new_outcome(&target, None, self.blocked_ending(&target));
            }
            PlannedReset::Reset => {}
        }
        let Some(kill) = force_kill_request(&target, &self.plan.request) else {
            return self.reset_device(&target, None);
        };
        let ended = match self.end_holders(kill) {
            Ok(ended) => ended,
            Err(why) => return new_outcome(&target, None, ResetResult::Failed(why)),
        };
        // Processes that are still here, or came meanwhile, are not ended a second time.
        let target = match self.recheck(planned) {
            Ok(target) => target,
            Err(why) => return new_outcome(&target, ended, ResetResult::Failed(why)),
        };
        let left: Vec<Blocker> = target
            .blockers
            .iter()
            .filter(is_external)
            .cloned()
            .collect();
        match &target.action {
            PlannedReset::Unsupported(why) => {
                new_outcome(&target, ended, ResetResult::Unsupported(why.clone()))
            }
            PlannedReset::Reset | PlannedReset::Blocked if left.is_empty() => {
                self.reset_device(&target, ended)
            }
            PlannedReset::Reset | PlannedReset::Blocked => {
                new_outcome(&target, ended, ResetResult::Blocked(left))
            }
        }
    }

    /// The blockers that the request does not remove.
    fn blocked_ending(&self, target: &ResetTarget) -> ResetResult {
        let remains = |blocker: &&Blocker| match blocker.remedy {
            Unblocker::Daemon => false,
            Unblocker::Force => !self.plan.request.force,
            Unblocker::Person => true,
        };
        ResetResult::Blocked(target.blockers.iter().filter(remains).cloned().collect())
    }

    /// The target as it is now, after a scan of all processes that started now.
    fn recheck(&self, planned: &ResetTarget) -> Result<ResetTarget, String> {
        let environment = &self.resetter.environment;
        let since = ScanFreshness::StartedAfter(Instant::now());
        let published = self.runtime.block_on(environment.scan(since));
        let published = published.map_err(|refusal| refusal.to_string())?;
        let (request, id) = (&self.plan.request, &planned.device);
        let now = planner::plan_target(environment, self.caller, request, &published, id);
        match now.map_err(|refusal| refusal.to_string())? {
            Some(now) if now.pci.last_known() == planned.pci.last_known() => {
                changed_peers(planned, &now).map_or(Ok(now), Err)
            }
            Some(_) => Err("its PCI address changed: nothing was done".to_owned()),
            None => Err("its driver no longer lists it: nothing was done".to_owned()),
        }
    }

    /// Ends the holders by the rules of a kill; `None` if all have gone by themselves.
    fn end_holders(&self, kill: KillRequest) -> Result<Option<KillReport>, String> {
        let enforcer = &self.resetter.enforcer;
        let planned = self.runtime.block_on(enforcer.plan(self.caller, kill));
        let id = match planned {
            Ok((Some(id), _)) => id,
            // The scan that follows names the blockers.
            Ok((None, _)) | Err(Refusal::NoMatch(_)) => return Ok(None),
            Err(refusal) => return Err(refusal.to_string()),
        };
        let follow = || {
            let operation = enforcer.execute(self.caller, id)?;
            enforcer.follow(self.caller, operation)
        };
        let mut followed = follow().map_err(|refusal| refusal.to_string())?;
        let is_over = |report: &Arc<KillReport>| match report.stage {
            Stage::Done | Stage::Interrupted => true,
            Stage::Ending | Stage::Reclaiming => false,
        };
        let report = self.runtime.block_on(followed.report.wait_for(is_over));
        let report = report.map_err(|_| "the kill of its holders was interrupted".to_owned())?;
        Ok(Some(shorten_report(&report)))
    }

    /// Releases the driver, requests the step of the helper, and verifies the device.
    fn reset_device(&self, target: &ResetTarget, ended: Option<KillReport>) -> ResetOutcome {
        let started_at = Instant::now();
        let environment = &self.resetter.environment;
        let pci = target.pci.last_known();
        let Some(gpu) = pci.and_then(|pci| helper_client::requested_gpu(target.vendor, pci)) else {
            let why = "its PCI address is unknown: nothing was done".to_owned();
            return new_outcome(target, ended, ResetResult::Failed(why));
        };
        let socket = environment.authority.config.borrow().reset.helper.clone();
        let lock = match self.quiesce_sensor(target.vendor) {
            Ok(lock) => lock,
            Err(why) => return new_outcome(target, ended, ResetResult::Failed(why)),
        };
        // From here on a stop waits for the reset.
        if self.resetter.operations.is_stopping() {
            let why = "gpukilld is stopping: it was not reset".to_owned();
            return new_outcome(target, ended, ResetResult::Failed(why));
        }
        let caller_uid = self.caller.uid;
        event!(
            GpuResetStarted,
            gpu = target.index,
            gpu_uuid = target.device.0,
            caller_uid
        );
        let done = helper_client::reset(&socket, gpu, || environment.is_stopping());
        drop(lock);
        let response = verify_device(environment, &target.device, target.vendor);
        let took = whole_milliseconds(started_at.elapsed());
        let (result, note) = conclude(done, response, took);
        ResetOutcome {
            note,
            ..new_outcome(target, ended, result)
        }
    }

    /// Ends the sensor, which holds the NVIDIA driver; the sensor returns when the result is
    /// dropped.
    fn quiesce_sensor(&self, vendor: Vendor) -> Result<Option<DriverQuiesce<'_>>, String> {
        match vendor {
            Vendor::Nvidia => {}
            Vendor::Amd | Vendor::Intel | Vendor::Apple | Vendor::Other => return Ok(None),
        }
        let quiesce = &self.resetter.quiesce;
        let before = quiesce.watch();
        let until = quiesce.begin(QUIESCE_LENGTH, self.resetter.environment.clock.now());
        let lock = DriverQuiesce { quiesce, until };
        let released = Quiesce::wait_released(before, QUIESCE_TIMEOUT);
        if self.runtime.block_on(released) {
            Ok(Some(lock))
        } else {
            Err("gpukilld's own sensor does not end: nothing was done".to_owned())
        }
    }
}

/// The state of the device, from polls that started after now.
fn verify_device(environment: &KillEnvironment, id: &DeviceId, vendor: Vendor) -> ResetResponse {
    let deadline = Instant::now() + VERIFY_TIMEOUT;
    let mut silent_since: Option<Instant> = None;
    let mut response = ResetResponse::NotRead("gpukilld did not poll".to_owned());
    let mut poll = NewPoll::after_now(&environment.state);
    loop {
        if poll.is_published(&environment.state, &*environment.poll_now) {
            response = check_response(id, vendor, &environment.state.borrow().snapshot);
            poll = NewPoll::after_now(&environment.state);
        }
        match &response {
            ResetResponse::Healthy | ResetResponse::Advised(_) => return response,
            ResetResponse::Unreachable(_) => {
                let since = *silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENCE_TIMEOUT {
                    return response;
                }
            }
            ResetResponse::NotRead(_) => silent_since = None,
        }
        if Instant::now() > deadline || environment.is_stopping() {
            return response;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

struct DriverQuiesce<'a> {
    quiesce: &'a Quiesce,
    until: gpukill_proto::units::Timestamp,
}

impl Drop for DriverQuiesce<'_> {
    fn drop(&mut self) {
        // An operator may have requested a longer time meanwhile, which the operator ends.
        if self.quiesce.until().is_none_or(|until| until <= self.until) {
            self.quiesce.end();
        }
    }
}

/// Whether a blocker is something other than the daemon itself.
fn is_external(blocker: &&Blocker) -> bool {
    match blocker.remedy {
        Unblocker::Daemon => false,
        Unblocker::Force | Unblocker::Person => true,
    }
}

/// The result, from the answer of the helper and the state of the device. A helper that does not
/// answer may have done the reset all the same.
fn conclude(
    done: Result<Option<String>, String>,
    response: ResetResponse,
    took: u64,
) -> (ResetResult, Option<String>) {
    let tried = match &done {
        Ok(_) => "its reset was done".to_owned(),
        Err(why) => format!("its reset failed ({why})"),
    };
    let note = done.as_ref().ok().cloned().flatten();
    let result = match (done, response) {
        (Ok(_), ResetResponse::Healthy) => ResetResult::Reset(took),
        (Ok(_), ResetResponse::Advised(advice)) => ResetResult::Failed(format!(
            "its reset was done, and its driver still advises: {advice}"
        )),
        (Err(why), ResetResponse::Healthy | ResetResponse::Advised(_)) => ResetResult::Failed(why),
        (_, ResetResponse::Unreachable(how)) => ResetResult::Unreachable(format!(
            "{tried}, and it does not answer now ({how}): reboot the host; if that does not \
             help, switch its power off and on"
        )),
        (_, ResetResponse::NotRead(why)) => ResetResult::Unreachable(format!(
            "{tried}, and whether it answers is not known ({why}): see gpukillctl status"
        )),
    };
    (result, note)
}

fn new_outcome(
    target: &ResetTarget,
    ended: Option<KillReport>,
    result: ResetResult,
) -> ResetOutcome {
    ResetOutcome {
        device: target.device.clone(),
        index: target.index,
        ended,
        result,
        note: None,
    }
}

fn shorten_report(report: &KillReport) -> KillReport {
    let mut report = report.clone();
    report.outcomes.truncate(MAX_ENDED_SHOWN);
    report.respawned.truncate(MAX_ENDED_SHOWN);
    for outcome in &mut report.outcomes {
        let command = outcome.command.clone();
        outcome.command = command.map(|command| sanitize(command.as_bytes(), MAX_COMMAND_BYTES));
    }
    report
}

/// Logs the result for one GPU, which this user reset.
fn log_outcome(outcome: &ResetOutcome, caller_uid: u32) {
    let (gpu, gpu_uuid) = (outcome.index, outcome.device.0.as_str());
    match &outcome.result {
        ResetResult::Reset(_) => {
            let note = outcome.note.as_deref();
            event!(GpuReset, gpu, gpu_uuid, caller_uid, note);
        }
        ResetResult::Blocked(blockers) => {
            event!(
                GpuNotReset,
                gpu,
                gpu_uuid,
                caller_uid,
                why = blocker_names(blockers)
            );
        }
        ResetResult::Unsupported(why) => event!(GpuNotReset, gpu, gpu_uuid, caller_uid, why),
        ResetResult::Failed(why) => event!(GpuResetFailed, gpu, gpu_uuid, caller_uid, why),
        ResetResult::Unreachable(why) => event!(GpuUnreachable, gpu, gpu_uuid, caller_uid, why),
    }
}

fn blocker_names(blockers: &[Blocker]) -> String {
    let named = blockers.iter().take(MAX_NAMED_BLOCKERS);
    let mut names: Vec<String> = named.map(|blocker| blocker.what.clone()).collect();
    let more = blockers.len().saturating_sub(MAX_NAMED_BLOCKERS);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join("; ")
}
