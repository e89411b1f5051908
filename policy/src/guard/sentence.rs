//! Whether a plan ends the job that the guard chose, the whole of it and nothing else.
//! What was judged is a moment old when it is planned: where they differ nobody is ended.

use super::ghosts::Process;
use gpukill_proto::guard::{Acted, JudgedJob};
use gpukill_proto::kill::{
    Ending, Fate, KillPlan, KillReport, KillRequest, KillScope, KillSelector, KillTarget, MOST_PIDS,
};
use std::collections::BTreeSet;

/// How long SIGTERM may take before SIGKILL: some write a checkpoint first.
pub const PATIENCE_MS: u64 = 30_000;

/// What is asked for, to end these processes with all their job.
#[must_use]
pub fn request(processes: &BTreeSet<Process>) -> KillRequest {
    let pids = processes.iter().map(|(pid, _)| *pid).take(MOST_PIDS);
    KillRequest {
        selector: KillSelector {
            pids: pids.collect(),
            ..KillSelector::default()
        },
        scope: KillScope::Job,
        force: true,
        patience_ms: PATIENCE_MS,
        ..KillRequest::default()
    }
}

/// Why a plan is not to be carried out for this job, of which these processes were judged
/// and live; `None` where it is.
#[must_use]
pub fn objection(
    plan: &KillPlan,
    job: &JudgedJob,
    processes: &BTreeSet<Process>,
) -> Option<String> {
    let planned = plan.targets.iter().map(process);
    let planned: BTreeSet<Process> = planned.collect();
    if let Some((pid, _)) = processes.iter().find(|it| !planned.contains(it)) {
        return Some(format!("process {pid} is no part of what would be ended"));
    }
    let mut ends = 0_usize;
    for target in &plan.targets {
        let pid = target.key.pid;
        match &target.fate {
            Fate::End(_) => ends += 1,
            Fate::Protected(why) => return Some(format!("process {pid} is protected: {why}")),
            Fate::Denied(_) => return Some(format!("process {pid} is nobody's to end here")),
            Fate::Unclear(why) => return Some(format!("process {pid} cannot be judged: {why}")),
            Fate::Zombie(_) => {}
        }
        let is_judged = processes.contains(&process(target));
        let Some(now) = target.job.known().filter(|_| is_judged) else {
            if is_judged {
                return Some(format!("what job process {pid} is part of is not known"));
            }
            continue;
        };
        if now.id() != job.id {
            return Some(format!("process {pid} is part of another job by now"));
        }
    }
    (ends == 0).then(|| "none of its processes can be ended".to_owned())
}

fn process(target: &KillTarget) -> Process {
    (target.key.pid, target.key.start_ticks)
}

/// What came of it.
#[must_use]
pub fn acted(job: JudgedJob, report: &KillReport) -> Acted {
    let mut acted = Acted {
        job,
        ended: 0,
        left: 0,
        why: None,
    };
    for outcome in &report.outcomes {
        let pid = outcome.key.pid;
        let why = match &outcome.ending {
            Ending::Ended(..) => {
                acted.ended = acted.ended.saturating_add(1);
                continue;
            }
            // Nobody can end what has ended.
            Ending::Gone | Ending::Zombie(_) => continue,
            Ending::Survived(signal, _) => format!("process {pid} goes on after {signal}"),
            Ending::Uninterruptible(_) => format!("process {pid} is stuck in the kernel"),
            Ending::Protected(why) => format!("process {pid} is protected: {why}"),
            Ending::Denied(_) => format!("process {pid} is nobody's to end here"),
            Ending::Changed(why) | Ending::Unclear(why) | Ending::Failed(why) => {
                format!("process {pid}: {why}")
            }
        };
        acted.left = acted.left.saturating_add(1);
        acted.why.get_or_insert(why);
    }
    let missing = report.memory.iter().find(|it| it.after_ms.is_none());
    if let (None, Some(missing)) = (&acted.why, missing) {
        acted.why = Some(format!("not all memory of GPU {} came back", missing.index));
    }
    acted
}
