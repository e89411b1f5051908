//! Metrics of people on GPUs, and on request of processes. Their number is limited, because each
//! name becomes series that a Prometheus server keeps.

use super::encoder::{Encoder, Kind, MAX_LABEL, Sample};
use super::gpus::{count, from_count};
use crate::upstream::Frame;
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::json::ProcessDocument;
use gpukill_proto::model::{GpuProcess, OwnerKind};
use gpukill_proto::text::sanitize;
use gpukill_proto::units::Timestamp;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most people with series of their own, those with the most memory.
const MAX_PEOPLE: usize = 64;

/// The most processes with series of their own, those with the most memory.
const MAX_PROCESSES: usize = 256;

/// A process without any work for this long is idle: shorter pauses are a part of most work.
const IDLE_AFTER: Duration = Duration::from_secs(300);

/// All people beyond the limit together. [`person`] gives no owner this name.
const OTHERS: &str = "(others)";

/// Processes with an unknown owner. [`person`] gives no owner this name.
const UNKNOWN: &str = "(unknown)";

/// The use of one GPU by one person. A sum with an unknown part is unknown.
#[derive(Debug, Default, PartialEq)]
struct Use {
    processes: usize,
    memory: Total,
    idle_memory: Total,
    utilization: Total,
}

/// A sum, and whether a part of it is unknown.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Total {
    sum: u64,
    is_incomplete: bool,
}

impl Total {
    pub(super) fn add(&mut self, part: Option<u64>) {
        match part {
            Some(part) => self.sum = self.sum.saturating_add(part),
            None => self.is_incomplete = true,
        }
    }

    pub(super) fn known(&self) -> Option<u64> {
        (!self.is_incomplete).then_some(self.sum)
    }
}

/// The id and the index of a GPU, and a name.
type PersonOnGpu<'a> = (&'a str, u32, Cow<'a, str>);

/// Adds the metrics of people, and those of processes if they are wanted.
pub(super) fn encode(encoder: &mut Encoder, frame: &Frame, with_processes: bool) {
    let processes = &frame.list.procs;
    let used = use_by_person(frame);
    let mut family = |name, help, value: fn(&Use) -> Option<f64>| {
        let samples = used.iter().filter_map(|((uuid, gpu, user), of_gpu)| {
            let labels = vec![
                ("uuid", (*uuid).to_owned()),
                ("gpu", gpu.to_string()),
                ("user", user.to_string()),
            ];
            Some(Sample::new(labels, value(of_gpu)?))
        });
        encoder.family(name, Kind::Gauge, help, samples);
    };
    family(
        "gpukill_user_memory_bytes",
        "Memory of the GPU that processes of the user hold.",
        |of_gpu| count(of_gpu.memory.known()),
    );
    family(
        "gpukill_user_idle_memory_bytes",
        "Memory of the GPU that processes of the user hold without any work for five minutes.",
        |of_gpu| count(of_gpu.idle_memory.known()),
    );
    family(
        "gpukill_user_utilization_ratio",
        "Share of the GPU's time that processes of the user took.",
        |of_gpu| count(of_gpu.utilization.known()).map(|percent| percent / 100.0),
    );
    family(
        "gpukill_user_processes",
        "Processes of the user on the GPU.",
        |of_gpu| Some(from_count(of_gpu.processes)),
    );
    if with_processes {
        encode_processes(encoder, processes);
    }
}

/// The use of each GPU by each person; people beyond the limit are one.
fn use_by_person(frame: &Frame) -> BTreeMap<PersonOnGpu<'_>, Use> {
    let processes = &frame.list.procs;
    let mut memory: BTreeMap<Cow<'_, str>, u64> = BTreeMap::new();
    for process in processes {
        let held = process.used_mem_bytes.unwrap_or_default();
        let sum = memory.entry(person(process)).or_default();
        *sum = sum.saturating_add(held);
    }
    let mut people: Vec<(Cow<'_, str>, u64)> = memory.into_iter().collect();
    people.sort_indirect_by_key(|(_, memory)| Reverse(*memory));
    let named: BTreeSet<Cow<'_, str>> = people
        .into_iter()
        .take(MAX_PEOPLE)
        .map(|(name, _)| name)
        .into_set();
    let mut used: BTreeMap<PersonOnGpu<'_>, Use> = BTreeMap::new();
    let snapshot = &frame.annotated.snapshot;
    for (process, reported) in processes.iter().zip(&snapshot.processes) {
        let name = Some(person(process)).filter(|name| named.contains(name));
        let key = (
            process.gpu_id.as_str(),
            process.gpu_index,
            name.unwrap_or(Cow::Borrowed(OTHERS)),
        );
        let of_gpu = used.entry(key).or_default();
        of_gpu.processes += 1;
        of_gpu.memory.add(process.used_mem_bytes);
        of_gpu
            .idle_memory
            .add(match is_idle(reported, snapshot.taken_at) {
                Some(true) => process.used_mem_bytes,
                Some(false) => Some(0),
                None => None,
            });
        of_gpu.utilization.add(process.util_pct.map(u64::from));
    }
    used
}

/// Whether the process has not worked for a while; `None` if that is not known.
fn is_idle(process: &GpuProcess, now: Timestamp) -> Option<bool> {
    let last_active = match process.last_active.known()? {
        Some(at) => *at,
        None => *process.first_seen.known()?,
    };
    Some(now.since(last_active) >= IDLE_AFTER)
}

/// The name of the owner. A label of a container says what its creator likes, so it cannot look
/// like a user: no user has a colon in the name.
fn person(process: &ProcessDocument) -> Cow<'_, str> {
    let Some(name) = process.owner.as_deref() else {
        return Cow::Borrowed(UNKNOWN);
    };
    let is_label = process.owner_kind == Some(OwnerKind::Label.name());
    let kind = match name {
        _ if is_label => "label:",
        OTHERS | UNKNOWN => "user:",
        _ => "",
    };
    // As it is printed: a server refuses all metrics if two series look alike.
    Cow::Owned(sanitize(format!("{kind}{name}").as_bytes(), MAX_LABEL))
}

fn encode_processes(encoder: &mut Encoder, processes: &[ProcessDocument]) {
    let mut largest: Vec<&ProcessDocument> = processes.iter().collect();
    largest.sort_indirect_by_key(|process| Reverse(process.used_mem_bytes));
    let dropped = largest.len().saturating_sub(MAX_PROCESSES);
    largest.truncate(MAX_PROCESSES);
    let labels = |process: &ProcessDocument| {
        let instance = process.gpu_instance.zip(process.compute_instance);
        let instance = instance.map(|(gpu, compute)| ("mig", format!("{gpu}/{compute}")));
        let mut labels = vec![
            ("uuid", process.gpu_id.clone()),
            ("gpu", process.gpu_index.to_string()),
            ("pid", process.pid.to_string()),
            // Pids are reused.
            ("started", process.started_at.clone().unwrap_or_default()),
        ];
        labels.extend(instance);
        labels
    };
    encoder.family(
        "gpukill_process_info",
        Kind::Gauge,
        "Facts about the process as labels; always 1.",
        largest.iter().map(|process| {
            let mut labels = labels(process);
            labels.extend([
                ("user", person(process).into_owned()),
                ("name", process.proc_name.clone().unwrap_or_default()),
                ("where", process.job.clone().unwrap_or_default()),
            ]);
            Sample::new(labels, 1.0)
        }),
    );
    encoder.family(
        "gpukill_process_memory_bytes",
        Kind::Gauge,
        "Memory of the GPU that the process holds.",
        largest.iter().filter_map(|process| {
            Some(Sample::new(labels(process), count(process.used_mem_bytes)?))
        }),
    );
    encoder.family(
        "gpukill_process_utilization_ratio",
        Kind::Gauge,
        "Share of the GPU's time that the process took.",
        largest.iter().filter_map(|process| {
            let ratio = f64::from(process.util_pct?) / 100.0;
            Some(Sample::new(labels(process), ratio))
        }),
    );
    encoder.family(
        "gpukill_process_series_dropped",
        Kind::Gauge,
        "Processes without series, because there are too many.",
        [Sample::plain(from_count(dropped))],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::encoder::TextFormat;
    use crate::upstream::tests::snapshot;
    use gpukill_proto::model::{DeviceId, Owner};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::{Bytes, Percent};

    fn process(pid: u32, owner: &str, memory: Reading<Bytes>) -> GpuProcess {
        let id = DeviceId("GPU-1".into());
        let mut process = GpuProcess::unknown(id, pid, Timestamp(0), &Reading::Unsupported);
        process.owner = Reading::Value(Owner {
            name: owner.into(),
            uid: None,
            kind: OwnerKind::User,
        });
        process.memory = memory;
        process.utilization = Reading::Value(Percent(25));
        process
    }

    fn scrape(processes: Vec<GpuProcess>, with_processes: bool) -> Vec<String> {
        let mut annotated = snapshot(Timestamp(0));
        annotated.snapshot.processes = processes;
        let frame = Frame::new(1, annotated).unwrap();
        let mut encoder = Encoder::new(TextFormat::Prometheus);
        encode(&mut encoder, &frame, with_processes);
        let text = encoder.finish();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn sum_with_an_unknown_part_has_no_series() {
        let lines = scrape(
            vec![
                process(1, "alice", Reading::Value(Bytes(5))),
                process(2, "alice", Reading::Value(Bytes(7))),
                process(3, "bob", Reading::Value(Bytes(1))),
                process(4, "bob", Reading::Stale(Bytes(2), 9)),
            ],
            false,
        );
        let of = |user: &str| format!("{{uuid=\"GPU-1\",gpu=\"0\",user=\"{user}\"}}");
        assert_eq!(
            lines,
            [
                format!("gpukill_user_memory_bytes{} 12", of("alice")),
                format!("gpukill_user_utilization_ratio{} 0.5", of("alice")),
                format!("gpukill_user_utilization_ratio{} 0.5", of("bob")),
                format!("gpukill_user_processes{} 2", of("alice")),
                format!("gpukill_user_processes{} 2", of("bob")),
            ]
        );
    }

    #[test]
    fn idle_memory_is_that_of_processes_without_work() {
        let idle = |last_active, first_seen| {
            let mut process = process(1, "alice", Reading::Value(Bytes(5)));
            process.last_active = last_active;
            process.first_seen = first_seen;
            is_idle(&process, Timestamp(1_000_000))
        };
        let at = |second: i64| Reading::Value(Timestamp(second * 1_000));
        let active = |second: i64| Reading::Value(Some(Timestamp(second * 1_000)));
        assert_eq!(idle(active(701), at(0)), Some(false));
        assert_eq!(idle(active(700), at(0)), Some(true));
        assert_eq!(idle(Reading::Value(None), at(0)), Some(true));
        assert_eq!(idle(Reading::Value(None), at(999)), Some(false));
        assert_eq!(
            idle(Reading::Value(None), Reading::Failed("x".into())),
            None
        );
        assert_eq!(idle(Reading::Unsupported, at(0)), None);
        let mut waiting = process(1, "alice", Reading::Value(Bytes(5)));
        // The snapshot of the test is of the year 1970.
        waiting.last_active = Reading::Value(Some(Timestamp(-400_000)));
        let mut working = process(2, "alice", Reading::Value(Bytes(7)));
        working.last_active = Reading::Value(Some(Timestamp(0)));
        let unknown = process(3, "bob", Reading::Value(Bytes(1)));
        let lines = scrape(vec![waiting, working, unknown], false);
        let idle: Vec<&String> = lines.iter().filter(|it| it.contains("_idle_")).collect();
        assert_eq!(
            idle,
            ["gpukill_user_idle_memory_bytes{uuid=\"GPU-1\",gpu=\"0\",user=\"alice\"} 5"]
        );
    }

    #[test]
    fn label_of_a_container_does_not_look_like_a_user() {
        let labelled = |pid, name: &str| {
            let mut process = process(pid, name, Reading::Value(Bytes(1)));
            process.owner = Reading::Value(Owner {
                name: name.into(),
                uid: None,
                kind: OwnerKind::Label,
            });
            process
        };
        let lines = scrape(
            vec![
                process(1, "alice", Reading::Value(Bytes(5))),
                labelled(2, "alice"),
                labelled(3, "(others)"),
                process(4, "(unknown)", Reading::Value(Bytes(1))),
                labelled(5, &format!("{}1", "x".repeat(200))),
                labelled(6, &format!("{}2", "x".repeat(200))),
            ],
            false,
        );
        let long = |it: &&String| it.starts_with("gpukill_user_processes") && it.contains("xxx");
        assert_eq!(lines.iter().filter(long).count(), 1);
        for user in ["alice", "label:alice", "label:(others)", "user:(unknown)"] {
            let line =
                format!("gpukill_user_processes{{uuid=\"GPU-1\",gpu=\"0\",user=\"{user}\"}} 1");
            assert!(lines.contains(&line), "{line}\n{lines:?}");
        }
    }

    #[test]
    fn people_and_processes_are_limited_by_memory() {
        let all = (0..300).map(|pid| {
            let owner = format!("user{pid}");
            process(pid, &owner, Reading::Value(Bytes(u64::from(pid))))
        });
        let lines = scrape(all.collect(), true);
        let with = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
        assert_eq!(with("gpukill_user_memory_bytes"), MAX_PEOPLE + 1);
        assert_eq!(with("gpukill_process_memory_bytes"), MAX_PROCESSES);
        let others = "gpukill_user_processes{uuid=\"GPU-1\",gpu=\"0\",user=\"(others)\"} 236";
        assert!(lines.iter().any(|line| line == others));
        assert!(
            lines
                .iter()
                .any(|line| line == "gpukill_process_series_dropped 44")
        );
        assert!(!lines.iter().any(|line| line.contains("user=\"user7\"")));
    }
}
