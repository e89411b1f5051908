//! Recognizes jobs of batch schedulers by the names that they give to cgroups.

use gpukill_proto::model::{Scheduler, SchedulerJob};

/// The job of this path of the host. Schedulers create their cgroups directly below the root or the
/// system slice, where only root can: elsewhere a user may have chosen the name.
pub(super) fn scheduler_job(parts: &[&str]) -> Option<SchedulerJob> {
    let job = slurm(parts).or_else(|| lsf(parts));
    job.or_else(|| {
        let below = match parts {
            ["system.slice", below @ ..] => below,
            parts => parts,
        };
        pbs(below).or_else(|| condor(below))
    })
}

/// Version 1: `/slurm_node/uid_1000/job_1234/step_0/task_0`; version 2:
/// `/system.slice/node_slurmstepd.scope/job_1234/step_0/user/task_0`.
fn slurm(parts: &[&str]) -> Option<SchedulerJob> {
    let (job, below) = match parts {
        [top, user, job, below @ ..]
            if (*top == "slurm" || top.starts_with("slurm_")) && is_number(user, "uid_") =>
        {
            (job, below)
        }
        ["system.slice", scope, job, below @ ..]
            if *scope == "slurmstepd.scope" || scope.ends_with("_slurmstepd.scope") =>
        {
            (job, below)
        }
        _ => return None,
    };
    if !is_number(job, "job_") {
        return None;
    }
    let step = below.first().and_then(|part| part.strip_prefix("step_"));
    Some(SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: valid_name(job.strip_prefix("job_")?)?,
        step: step.and_then(valid_name),
    })
}

fn is_number(part: &str, prefix: &str) -> bool {
    let number = part.strip_prefix(prefix);
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `/pbs_jobs.service/jobid/123.server`
fn pbs(parts: &[&str]) -> Option<SchedulerJob> {
    match parts {
        ["pbs_jobs.service" | "pbspro.service", "jobid", job, ..] => {
            job_without_step(Scheduler::Pbs, job)
        }
        _ => None,
    }
}

/// `/lsf/cluster/job.123.1234.5`
fn lsf(parts: &[&str]) -> Option<SchedulerJob> {
    let ["lsf", _, job, ..] = parts else {
        return None;
    };
    job_without_step(Scheduler::Lsf, job.strip_prefix("job.")?.split('.').next()?)
}

/// `/htcondor/condor_var_lib_condor_execute_slot1_2@node`: it names the slot, which runs one job at
/// a time.
fn condor(parts: &[&str]) -> Option<SchedulerJob> {
    let ["htcondor" | "condor.service", part, ..] = parts else {
        return None;
    };
    let slot = part.rfind("_slot").map(|at| at + 1);
    let slot = slot.or_else(|| part.starts_with("slot").then_some(0))?;
    job_without_step(Scheduler::HtCondor, part.get(slot..)?)
}

fn job_without_step(scheduler: Scheduler, job: &str) -> Option<SchedulerJob> {
    Some(SchedulerJob {
        scheduler,
        job: valid_name(job)?,
        step: None,
    })
}

/// A valid name of a job or step.
fn valid_name(text: &str) -> Option<String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@[]".contains(&byte);
    (!text.is_empty() && text.len() <= 64 && text.bytes().all(fine)).then(|| text.to_owned())
}
