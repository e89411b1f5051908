//! Looks up whether the job and the container of a request are known.

use crate::command::list::user_lookup::name_with_closest;
use gpukill_proto::kill::KillSelector;
use gpukill_proto::model::{Container, GpuProcess, Job};

/// The parts of a message that name the typed job and container which no listed process has, each
/// with the most similar name: `no known job is called slrum 1234 (did you mean slurm 1234?)`.
pub(super) fn unknown_names(selector: &KillSelector, processes: &[GpuProcess]) -> Vec<String> {
    let text = |kind: &str, typed: &str, known: &[String]| {
        let is_known = known.iter().any(|name| name == typed);
        let name = (!is_known).then(|| name_with_closest(typed, known))?;
        Some(format!("no known {kind} is called {name}"))
    };
    let job = selector.job.as_deref().and_then(|typed| {
        let known: Vec<String> = processes.iter().flat_map(job_names).collect();
        text("job", typed, &known)
    });
    let container = selector.container.as_deref().and_then(|typed| {
        let mut known = Vec::new();
        for container in processes.iter().filter_map(container_of) {
            known.extend(container_names(container));
            if container.id.id.starts_with(typed) {
                return None;
            }
        }
        text("container", typed, &known)
    });
    job.into_iter().chain(container).collect()
}

fn container_of(process: &GpuProcess) -> Option<&Container> {
    process.location.container.last_known()?.as_ref()
}

/// The names by which `--job` selects a process.
fn job_names(process: &GpuProcess) -> Vec<String> {
    let Some(job) = process.job.last_known() else {
        return Vec::new();
    };
    let mut names = vec![job.to_string(), job.id()];
    match job {
        Job::Scheduler(job) => {
            names.push(job.job.clone());
            names.push(format!("{} {}", job.scheduler.name(), job.job));
            names.extend(job.step.iter().map(|step| format!("{}.{step}", job.job)));
        }
        Job::Container { .. } => names.extend(container_of(process).map(ToString::to_string)),
        Job::Unit { .. } | Job::Tree(_) => {}
    }
    names
}

/// The names by which `--container` selects the processes of a container.
fn container_names(container: &Container) -> Vec<String> {
    let mut names = vec![container.id.to_string(), container.to_string()];
    let pod = container.pod.as_ref().and_then(|pod| pod.name.last_known());
    names.extend(container.name.last_known().into_iter().chain(pod).cloned());
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::snapshot;

    #[test]
    fn mistyped_job_and_container_come_with_the_closest() {
        let processes = snapshot().processes;
        let unknown = |job: Option<&str>, container: Option<&str>| {
            let selector = KillSelector {
                job: job.map(str::to_owned),
                container: container.map(str::to_owned),
                ..KillSelector::default()
            };
            unknown_names(&selector, &processes)
        };
        for known in ["slurm 1234.0", "slurm 1234", "1234", "1234.0"] {
            assert_eq!(unknown(Some(known), None), [""; 0], "{known}");
        }
        for known in ["vllm", "docker vllm", "train-0", "pod team/train-0", "0123"] {
            assert_eq!(unknown(None, Some(known)), [""; 0], "{known}");
        }
        assert_eq!(
            unknown(Some("slrum 1234"), Some("vlmm")),
            [
                "no known job is called slrum 1234 (did you mean slurm 1234?)",
                "no known container is called vlmm (did you mean vllm?)"
            ]
        );
        assert_eq!(
            unknown(Some("nothing like it"), None),
            ["no known job is called nothing like it"]
        );
    }
}
