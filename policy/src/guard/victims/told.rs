//! What is told of a job that is ended, and of one that others end.

use super::Candidate;
use crate::guard::judge::{Scene, is_busy, seen};
use crate::guard::memory::proof::Seen;
use gpukill_proto::guard::Victim;
use gpukill_proto::snapshot::Scheduler;

pub(super) fn victim(scene: &Scene<'_>, chosen: &Candidate, runs: &[usize]) -> Victim {
    let job = &scene.jobs[chosen.job];
    Victim {
        job: scene.judged(job),
        priority: chosen.priority,
        runs: seen(scene, runs).iter().map(Seen::told).collect(),
        count: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        is_busy: is_busy(scene, job),
        leave_to: job.runs.iter().find_map(|run| {
            let about = &scene.runs[*run].judged.about;
            let pod = about.pod_of_the_box().flatten();
            let scheduler = about.scheduler.as_ref().and_then(Option::as_ref);
            let by_kubernetes = || {
                let (namespace, name) = pod?;
                Some(format!(
                    "kubectl delete pod --namespace {} {}",
                    word(namespace),
                    word(name)
                ))
            };
            scheduler
                .map(|(scheduler, id)| format!("{} {}", ends(*scheduler), word(id)))
                .or_else(by_kubernetes)
        }),
    }
}

/// What ends a job of this scheduler.
const fn ends(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::Slurm => "scancel",
        Scheduler::Pbs => "qdel",
        Scheduler::Lsf => "bkill",
        Scheduler::HtCondor => "condor_rm",
    }
}

/// A word that a shell takes for nothing else: it comes out of files that are not
/// ours, and people copy it.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-[]".contains(c);
    text.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect()
}
