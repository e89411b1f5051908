//! Describes a job that is ended, or that others must end.

use super::VictimCandidate;
use crate::guard::evaluate::{EvaluationContext, is_busy, observed_runs};
use crate::guard::state::evidence::ObservedRun;
use gpukill_proto::guard::Victim;
use gpukill_proto::model::Scheduler;

pub(super) fn describe_victim(
    context: &EvaluationContext<'_>,
    chosen: &VictimCandidate,
    runs: &[usize],
) -> Victim {
    let job = &context.jobs[chosen.job];
    Victim {
        job: context.evaluated_job(job),
        priority: chosen.priority,
        runs: observed_runs(context, runs)
            .iter()
            .map(ObservedRun::to_reported)
            .collect(),
        count: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        is_busy: is_busy(context, job),
        leave_to: job.runs.iter().find_map(|run| {
            let facts = &context.runs[*run].sample.facts;
            let pod = facts.host_pod().flatten();
            let scheduler = facts.scheduler.as_ref().and_then(Option::as_ref);
            let by_kubernetes = || {
                let (namespace, name) = pod?;
                Some(format!(
                    "kubectl delete pod --namespace {} {}",
                    shell_word(namespace),
                    shell_word(name)
                ))
            };
            scheduler
                .map(|(scheduler, id)| format!("{} {}", end_command(*scheduler), shell_word(id)))
                .or_else(by_kubernetes)
        }),
    }
}

/// The command that ends a job of this scheduler.
const fn end_command(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::Slurm => "scancel",
        Scheduler::Pbs => "qdel",
        Scheduler::Lsf => "bkill",
        Scheduler::HtCondor => "condor_rm",
    }
}

/// A word without special meaning to a shell: it comes from files of others, and people
/// copy it.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-[]".contains(c);
    text.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect()
}
