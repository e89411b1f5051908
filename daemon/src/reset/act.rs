//! Carries one plan out, device by device, on a thread of its own.

use super::{Resetter, asking, events, planning, verify};
use crate::audit::{Act as Recorded, ActKind, tell_unrecorded_end};
use crate::catalogue::{About, tell};
use crate::look::{Since, looked};
use crate::quiesce::Quiesce;
use crate::state::whole_milliseconds;
use gpukill_policy::access::Caller;
use gpukill_policy::reset::answering::Standing;
use gpukill_policy::reset::forced;
use gpukill_policy::reset::success::{Success, success};
use gpukill_proto::document::{ResetPlanDocument, ResetReportDocument};
use gpukill_proto::kill::{KillReport, KillRequest, Stage};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{
    Blocker, ResetEnding, ResetFate, ResetOutcome, ResetPlan, ResetReport, ResetTarget, Unblock,
};
use gpukill_proto::snapshot::Vendor;
use gpukill_proto::text::visible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// For how long the driver is let go of at most: longer than the helper may take.
const LET_GO: Duration = Duration::from_secs(240);

/// How long the sensor may take to end: as long as it may take for an answer.
const LET_GO_PATIENCE: Duration = Duration::from_secs(30);

/// So much is told of the processes that were ended: the report of a whole box has
/// to fit an answer.
const MOST_ENDED: usize = 32;
const COMMAND: usize = 80;

/// Carries it out, and tells how it goes. Returns when the last report is
/// [`Stage::Done`] or [`Stage::Interrupted`].
pub(super) fn act(
    resetter: &Resetter,
    plan: &ResetPlan,
    caller: &Caller,
    report: &watch::Sender<Arc<ResetReport>>,
) {
    let tell = |change: &dyn Fn(&mut ResetReport)| {
        report.send_modify(|report| {
            let report = Arc::make_mut(report);
            report.version += 1;
            change(report);
        });
    };
    let store = &resetter.means.store;
    let mut about = About::default();
    for target in &plan.devices {
        about.device(&target.device.0);
    }
    let act = Recorded {
        kind: ActKind::Reset,
        uid: caller.uid,
        asked: plan.request.to_string(),
        plan: serde_json::to_string(&ResetPlanDocument::from(plan)).unwrap_or_default(),
    };
    let recorded = store.intend_about(act, about.clone());
    if let Err(why) = &recorded {
        tell(&|report| report.unrecorded = Some(why.clone()));
    }
    let done = catch_unwind(AssertUnwindSafe(|| {
        let runtime = runtime();
        for target in &plan.devices {
            if resetter.kept.is_stopping() {
                return false;
            }
            let outcome = match &runtime {
                Ok(runtime) => Act {
                    resetter,
                    plan,
                    caller,
                    runtime,
                }
                .outcome(target),
                Err(why) => outcome(target, None, ResetEnding::Failed(why.clone())),
            };
            // The daemon did not wait for it any longer: what comes of it is not known.
            if resetter.means.is_stopping() {
                return false;
            }
            events::log_outcome(&outcome, caller.uid);
            tell(&|report| report.outcomes.push(outcome.clone()));
        }
        true
    }));
    if done.is_err() {
        // What it may have let go of is taken again.
        resetter.quiesce.end();
        tracing::error!("a reset panicked");
    }
    let is_whole = matches!(done, Ok(true));
    tell(&|report| {
        report.stage = if is_whole {
            Stage::Done
        } else {
            Stage::Interrupted
        };
    });
    let last = Arc::clone(&report.borrow());
    let (word, outcome) = (word(&last), document(&last));
    match recorded {
        Ok(act) => act.settle(word, outcome),
        // The log alone has it.
        Err(_) => tell_unrecorded_end(ActKind::Reset, &about, word, &outcome),
    }
}

/// Looks and kills wait for each other on it; the server's own thread may be gone
/// by then.
fn runtime() -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.map_err(|error| format!("nothing was done: {error}"))
}

fn document(report: &ResetReport) -> String {
    serde_json::to_string(&ResetReportDocument::from(report)).unwrap_or_default()
}

/// How it went, in a word.
fn word(report: &ResetReport) -> &'static str {
    match (report.stage, success(report)) {
        (Stage::Interrupted, _) => "interrupted",
        (_, Success::All) => "done",
        (_, Success::Part) => "partly",
        (_, Success::Unsupported | Success::Failed) => "failed",
    }
}

/// One plan under way.
struct Act<'a> {
    resetter: &'a Resetter,
    plan: &'a ResetPlan,
    caller: &'a Caller,
    runtime: &'a Runtime,
}

impl Act<'_> {
    /// One device, from its second look to its last. How it was planned counts for
    /// nothing but this: what was not to be reset is not.
    fn outcome(&self, planned: &ResetTarget) -> ResetOutcome {
        match &planned.fate {
            ResetFate::Unsupported(why) => {
                return outcome(planned, None, ResetEnding::Unsupported(why.clone()));
            }
            ResetFate::Blocked => {
                return outcome(planned, None, self.blocked(planned));
            }
            ResetFate::Reset => {}
        }
        let target = match self.again(planned) {
            Ok(target) => target,
            Err(why) => return outcome(planned, None, ResetEnding::Failed(why)),
        };
        match &target.fate {
            ResetFate::Unsupported(why) => {
                return outcome(&target, None, ResetEnding::Unsupported(why.clone()));
            }
            ResetFate::Blocked => return outcome(&target, None, self.blocked(&target)),
            ResetFate::Reset => {}
        }
        let Some(kill) = forced(&target, &self.plan.request) else {
            return self.reset(&target, None);
        };
        let ended = match self.end(kill) {
            Ok(ended) => ended,
            Err(why) => return outcome(&target, None, ResetEnding::Failed(why)),
        };
        // Whoever is here still, or came meanwhile, is not ended a second time.
        let target = match self.again(planned) {
            Ok(target) => target,
            Err(why) => return outcome(&target, ended, ResetEnding::Failed(why)),
        };
        let left: Vec<Blocker> = target.blockers.iter().filter(is_ours).cloned().collect();
        match &target.fate {
            ResetFate::Unsupported(why) => {
                outcome(&target, ended, ResetEnding::Unsupported(why.clone()))
            }
            ResetFate::Reset | ResetFate::Blocked if left.is_empty() => self.reset(&target, ended),
            ResetFate::Reset | ResetFate::Blocked => {
                outcome(&target, ended, ResetEnding::Blocked(left))
            }
        }
    }

    /// What the request does not take away.
    fn blocked(&self, target: &ResetTarget) -> ResetEnding {
        let stands = |blocker: &&Blocker| match blocker.remedy {
            Unblock::Daemon => false,
            Unblock::Force => !self.plan.request.force,
            Unblock::Person => true,
        };
        ResetEnding::Blocked(target.blockers.iter().filter(stands).cloned().collect())
    }

    /// The device as it is now, after a look at all processes that began now.
    fn again(&self, planned: &ResetTarget) -> Result<ResetTarget, String> {
        let means = &self.resetter.means;
        let since = Since::After(Instant::now());
        let seen = self
            .runtime
            .block_on(looked(&means.look, &means.state, since))
            .map_err(|refusal| refusal.to_string())?;
        let (request, id) = (&self.plan.request, &planned.device);
        let now = planning::target(means, self.caller, request, &seen, id);
        match now.map_err(|refusal| refusal.to_string())? {
            Some(now) if now.pci.last_known() == planned.pci.last_known() => Ok(now),
            Some(_) => Err("it has another PCI address now: nothing was done".to_owned()),
            None => Err("its driver does not list it any more: nothing was done".to_owned()),
        }
    }

    /// Ends the holders by the rules of a kill; `None` where all have gone by
    /// themselves.
    fn end(&self, kill: KillRequest) -> Result<Option<KillReport>, String> {
        let enforcer = &self.resetter.enforcer;
        let planned = self.runtime.block_on(enforcer.plan(self.caller, kill));
        let id = match planned {
            Ok((Some(id), _)) => id,
            // What keeps them is named by the look that follows.
            Ok((None, _)) | Err(Refusal::NoMatch(_)) => return Ok(None),
            Err(refusal) => return Err(refusal.to_string()),
        };
        let follow = || {
            let operation = enforcer.carry_out(self.caller, id)?;
            enforcer.follow(self.caller, operation)
        };
        let mut followed = follow().map_err(|refusal| refusal.to_string())?;
        let is_over = |report: &Arc<KillReport>| match report.stage {
            Stage::Done | Stage::Interrupted => true,
            Stage::Ending | Stage::Releasing => false,
        };
        let report = self.runtime.block_on(followed.report.wait_for(is_over));
        let report = report.map_err(|_| "the kill of its holders broke off".to_owned())?;
        Ok(Some(shortened(&report)))
    }

    /// The driver is let go of, the helper does its step, and the device is looked
    /// at.
    fn reset(&self, target: &ResetTarget, ended: Option<KillReport>) -> ResetOutcome {
        let began = Instant::now();
        let means = &self.resetter.means;
        let pci = target.pci.last_known();
        let Some(gpu) = pci.and_then(|pci| asking::gpu(target.vendor, pci)) else {
            let why = "its PCI address is none: nothing was done".to_owned();
            return outcome(target, ended, ResetEnding::Failed(why));
        };
        let socket = means.authority.config.borrow().reset.helper.clone();
        let lock = match self.let_go(target.vendor) {
            Ok(lock) => lock,
            Err(why) => return outcome(target, ended, ResetEnding::Failed(why)),
        };
        // From here on it is waited for.
        if self.resetter.kept.is_stopping() {
            let why = "gpukilld stops: it was not reset".to_owned();
            return outcome(target, ended, ResetEnding::Failed(why));
        }
        let caller_uid = self.caller.uid;
        tell!(
            GpuResetBegins,
            gpu = target.index,
            gpu_uuid = target.device.0,
            caller_uid
        );
        let done = asking::reset(&socket, gpu, || means.is_stopping());
        drop(lock);
        let stands = verify::verify(means, &target.device, target.vendor);
        let took = whole_milliseconds(began.elapsed());
        let (ending, note) = verdict(done, stands, took);
        ResetOutcome {
            note,
            ..outcome(target, ended, ending)
        }
    }

    /// Ends the sensor, which holds the driver of NVIDIA; it comes back when this is
    /// dropped.
    fn let_go(&self, vendor: Vendor) -> Result<Option<LetGo<'_>>, String> {
        match vendor {
            Vendor::Nvidia => {}
            Vendor::Amd | Vendor::Intel | Vendor::Apple | Vendor::Other => return Ok(None),
        }
        let quiesce = &self.resetter.quiesce;
        let before = quiesce.watch();
        let until = quiesce.begin(LET_GO, self.resetter.means.clock.now());
        let lock = LetGo { quiesce, until };
        let is_let_go = Quiesce::let_go_since(before, LET_GO_PATIENCE);
        if self.runtime.block_on(is_let_go) {
            Ok(Some(lock))
        } else {
            Err("gpukilld's own sensor does not end: nothing was done".to_owned())
        }
    }
}

/// The driver, let go of.
struct LetGo<'a> {
    quiesce: &'a Quiesce,
    until: gpukill_proto::units::Timestamp,
}

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        // Somebody may have asked for longer meanwhile: that is theirs to end.
        if self.quiesce.until().is_none_or(|until| until <= self.until) {
            self.quiesce.end();
        }
    }
}

/// What is no part of the daemon's own.
fn is_ours(blocker: &&Blocker) -> bool {
    match blocker.remedy {
        Unblock::Daemon => false,
        Unblock::Force | Unblock::Person => true,
    }
}

/// What came of it, by what the helper says and by how the device stands. A helper
/// that says nothing may have done it all the same.
fn verdict(
    done: Result<Option<String>, String>,
    stands: Standing,
    took: u64,
) -> (ResetEnding, Option<String>) {
    let tried = match &done {
        Ok(_) => "its reset was done".to_owned(),
        Err(why) => format!("its reset failed ({why})"),
    };
    let note = done.as_ref().ok().cloned().flatten();
    let ending = match (done, stands) {
        (Ok(_), Standing::Well) => ResetEnding::Reset(took),
        (Ok(_), Standing::Advised(advice)) => ResetEnding::Failed(format!(
            "its reset was done, and its driver still advises: {advice}"
        )),
        (Err(why), Standing::Well | Standing::Advised(_)) => ResetEnding::Failed(why),
        (_, Standing::Silent(how)) => ResetEnding::Unreachable(format!(
            "{tried}, and it does not answer now ({how}): reboot the box, and where that does not \
             help, switch its power off and on"
        )),
        (_, Standing::Unread(why)) => ResetEnding::Unreachable(format!(
            "{tried}, and whether it answers is not known ({why}): see gpukillctl status"
        )),
    };
    (ending, note)
}

fn outcome(target: &ResetTarget, ended: Option<KillReport>, ending: ResetEnding) -> ResetOutcome {
    ResetOutcome {
        device: target.device.clone(),
        index: target.index,
        ended,
        ending,
        note: None,
    }
}

fn shortened(report: &KillReport) -> KillReport {
    let mut report = report.clone();
    report.outcomes.truncate(MOST_ENDED);
    report.respawned.truncate(MOST_ENDED);
    for outcome in &mut report.outcomes {
        let command = outcome.command.clone();
        outcome.command = command.map(|command| visible(command.as_bytes(), COMMAND));
    }
    report
}
