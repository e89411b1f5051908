//! Metrics of the jobs of batch schedulers, on request. Each job becomes series that a Prometheus
//! server keeps.

use super::encoder::{Encoder, Kind, MAX_LABEL, Sample};
use super::gpus::{count, from_count};
use super::people::Total;
use crate::upstream::Frame;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::json::ProcessDocument;
use gpukill_proto::text::sanitize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The most jobs on GPUs with a series of their own, those with the most memory.
const MAX_JOBS: usize = 256;

/// The id and the index of a GPU, a scheduler, and a job of it as it is printed: a server refuses all
/// metrics if two series look alike.
type JobOnGpu<'a> = (&'a str, u32, &'static str, String);

/// Adds the metrics of jobs. A sum with an unknown part has no series.
pub(super) fn encode(encoder: &mut Encoder, frame: &Frame) {
    let mut jobs: Vec<(JobOnGpu<'_>, Total)> =
        memory_by_job(&frame.list.procs).into_iter().collect();
    jobs.sort_indirect_by_key(|(_, memory)| Reverse(memory.known()));
    let dropped = jobs.len().saturating_sub(MAX_JOBS);
    jobs.truncate(MAX_JOBS);
    encoder.family(
        "gpukill_job_memory_bytes",
        Kind::Gauge,
        "Memory of the GPU that processes of the scheduler's job hold.",
        jobs.into_iter()
            .filter_map(|((uuid, gpu, scheduler, job), memory)| {
                let labels = vec![
                    ("uuid", uuid.to_owned()),
                    ("gpu", gpu.to_string()),
                    ("scheduler", scheduler.to_owned()),
                    ("scheduler_job", job),
                ];
                Some(Sample::new(labels, count(memory.known())?))
            }),
    );
    encoder.family(
        "gpukill_job_series_dropped",
        Kind::Gauge,
        "Jobs on GPUs without series, because there are too many.",
        [Sample::plain(from_count(dropped))],
    );
}

fn memory_by_job(processes: &[ProcessDocument]) -> BTreeMap<JobOnGpu<'_>, Total> {
    let mut jobs: BTreeMap<JobOnGpu<'_>, Total> = BTreeMap::new();
    for process in processes {
        let Some((scheduler, job)) = process.scheduler.zip(process.scheduler_job.as_deref()) else {
            continue;
        };
        let job = sanitize(job.as_bytes(), MAX_LABEL);
        let key = (process.gpu_id.as_str(), process.gpu_index, scheduler, job);
        jobs.entry(key).or_default().add(process.used_mem_bytes);
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::encoder::TextFormat;
    use crate::upstream::tests::snapshot;
    use gpukill_proto::model::{DeviceId, GpuProcess, Scheduler, SchedulerJob};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::{Bytes, Timestamp};

    fn process(pid: u32, job: Option<&str>, memory: Reading<Bytes>) -> GpuProcess {
        let id = DeviceId("GPU-1".into());
        let mut process = GpuProcess::unknown(id, pid, Timestamp(0), &Reading::Unsupported);
        process.location.scheduler = Reading::Value(job.map(|job| SchedulerJob {
            scheduler: Scheduler::Slurm,
            job: job.into(),
            step: None,
        }));
        process.memory = memory;
        process
    }

    fn lines(processes: Vec<GpuProcess>) -> Vec<String> {
        let mut annotated = snapshot(Timestamp(0));
        annotated.snapshot.processes = processes;
        let frame = Frame::new(1, annotated).unwrap();
        let mut encoder = Encoder::new(TextFormat::Prometheus);
        encode(&mut encoder, &frame);
        let text = encoder.finish();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn memory_is_summed_by_job_where_all_of_it_is_known() {
        let known = |bytes| Reading::Value(Bytes(bytes));
        let lines = lines(vec![
            process(1, Some("7"), known(5)),
            process(2, Some("7"), known(6)),
            process(3, Some("8"), known(1)),
            process(4, Some("8"), Reading::Unsupported),
            process(5, None, known(9)),
        ]);
        assert_eq!(
            lines,
            [
                "gpukill_job_memory_bytes{uuid=\"GPU-1\",gpu=\"0\",scheduler=\"slurm\",scheduler_job=\"7\"} \
                 11",
                "gpukill_job_series_dropped 0",
            ]
        );
    }

    #[test]
    fn jobs_are_limited_by_memory() {
        let all = (0..300).map(|pid| {
            let memory = Reading::Value(Bytes(u64::from(pid)));
            process(pid, Some(&pid.to_string()), memory)
        });
        let lines = lines(all.collect());
        assert_eq!(lines.len(), MAX_JOBS + 1);
        assert!(
            !lines
                .iter()
                .any(|line| line.contains("scheduler_job=\"7\""))
        );
        assert_eq!(lines.last().unwrap(), "gpukill_job_series_dropped 44");
    }
}
