//! Rules see the same data live and in a replay.

mod accounts;
mod stream;
mod verdicts;

use super::*;
use crate::store::{BenchRecorder, DepartedProcess, Departure, test_rows};
use chrono::Utc;
use gpukill_policy::usage::{RunUsage, Usage};
use gpukill_proto::model::{
    Container, ContainerId, GpuProcess, Job, Owner, OwnerKind, ProcessKey, ProcessLocation,
    Scheduler, SchedulerJob, Snapshot, Unit, Vendor,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;

fn device(memory: u64) -> Device {
    Device {
        memory_total: Reading::Value(Bytes(memory)),
        memory_reserved: Reading::Value(Bytes(100)),
        memory_used: Reading::Value(Bytes(7)),
        name: Reading::Value("H100".into()),
        ..Device::unknown(
            DeviceId("GPU-0".into()),
            0,
            Vendor::Nvidia,
            &Reading::Unsupported,
        )
    }
}

fn process(pid: u32) -> GpuProcess {
    let unknown = Reading::<()>::Failed("x".into());
    GpuProcess {
        start_ticks: Reading::Value(u64::from(pid) * 10),
        memory: Reading::Value(Bytes(1 << 30)),
        utilization: Reading::Value(Percent(50)),
        uid: Reading::Value(1000),
        first_seen: unknown.as_unknown(),
        ..GpuProcess::unknown(DeviceId("GPU-0".into()), pid, Timestamp(0), &unknown)
    }
}

fn known_process(pid: u32) -> GpuProcess {
    let container = Container {
        id: ContainerId {
            runtime: "docker".into(),
            id: "ab".repeat(32),
        },
        manager: None,
        name: Reading::Value("web".into()),
        image: Reading::Value("team/train:1".into()),
        pod: None,
    };
    let job = SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "12".into(),
        step: None,
    };
    GpuProcess {
        owner: Reading::Value(Owner {
            name: "ann".into(),
            uid: Some(1000),
            kind: OwnerKind::User,
        }),
        user: Reading::Value("ann".into()),
        login_uid: Reading::Value(None),
        namespace_owner: Reading::Value(None),
        name: Reading::Value("python".into()),
        executable: Reading::Value("/usr/bin/python".into()),
        command: Reading::Value("python train.py".into()),
        location: ProcessLocation {
            container: Reading::Value(Some(container)),
            unit: Reading::Value(Some(Unit {
                name: "train.service".into(),
                manager: None,
            })),
            session: Reading::Value(None),
            terminal: Reading::Value(None),
            scheduler: Reading::Value(Some(job)),
        },
        job: Reading::Value(Job::Tree(ProcessKey {
            pid,
            start_ticks: u64::from(pid) * 10,
        })),
        ..process(pid)
    }
}

fn sample(at: i64, processes: Vec<GpuProcess>, gone: Vec<GpuProcess>, memory: u64) -> Sample {
    let snapshot = |processes: Vec<GpuProcess>| Snapshot {
        host: String::new(),
        taken_at: Timestamp(at),
        polls: 1,
        devices: vec![device(memory)],
        processes,
        backends: Vec::new(),
        faults: Vec::new(),
    };
    let mut usage = Usage::starting_at(Timestamp(at - 10_000));
    let both: Vec<GpuProcess> = processes.iter().chain(&gone).cloned().collect();
    usage.add(&snapshot(both), Duration::from_secs(10));
    let departed = gone.into_iter().map(|process| DepartedProcess {
        process,
        departure: Departure::Ended,
        last_seen: Timestamp(at - 2_000),
    });
    Sample {
        usage,
        snapshot: Arc::new(snapshot(processes)),
        departed: departed.collect(),
        groups: Arc::new([(1000, vec!["ml".to_owned()])].into()),
        accounts: Arc::default(),
        suspected: Arc::default(),
    }
}

/// The device does not list its processes, in any poll of this sample.
fn unlisted(mut sample: Sample) -> Sample {
    for run in sample.usage.runs.values_mut() {
        *run = RunUsage::default();
        run.mark_unreported();
    }
    sample
}

#[test]
fn first_seen_survives_leaving_a_device() {
    let left = |mut sample: Sample| {
        sample.departed[0].departure = Departure::Released;
        sample
    };
    let samples = [
        sample(20_000, vec![known_process(7)], Vec::new(), 1_000),
        left(sample(30_000, Vec::new(), vec![known_process(7)], 1_000)),
        sample(40_000, Vec::new(), Vec::new(), 1_000),
        sample(50_000, vec![known_process(7)], Vec::new(), 1_000),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = BenchRecorder::open(directory.path()).unwrap();
    let mut history = SampleHistory::default();
    let mut live = Vec::new();
    for sample in &samples {
        recording.write(sample).unwrap();
        live.push(to_guard_sample(sample, &mut history, &Utc));
    }
    assert_eq!(test_rows::guard_samples(directory.path()), live);
    let since = |buckets: &[GuardSample]| -> Vec<Vec<i64>> {
        let runs = buckets.iter().map(|sample| sample.runs.values());
        runs.map(|runs| runs.map(|it| it.first_seen.0).collect())
            .collect()
    };
    let expected = [vec![10_000], vec![10_000], vec![], vec![10_000]];
    assert_eq!(since(&live), expected);
    assert_eq!(since(&test_rows::guard_samples(directory.path())), expected);
}

#[test]
fn clock_jump_does_not_age_processes() {
    let month = 30 * 86_400_000;
    let started = |at: i64| GpuProcess {
        started_at: Reading::Value(Timestamp(at)),
        ..known_process(7)
    };
    let samples = [
        sample(100_000, vec![started(80_000)], Vec::new(), 1_000),
        sample(
            month + 110_000,
            vec![started(month + 80_000)],
            Vec::new(),
            1_000,
        ),
        sample(
            month + 120_000,
            vec![started(month + 80_000)],
            Vec::new(),
            1_000,
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = BenchRecorder::open(directory.path()).unwrap();
    let mut history = SampleHistory::default();
    let mut live = Vec::new();
    for sample in &samples {
        recording.write(sample).unwrap();
        live.push(to_guard_sample(sample, &mut history, &Utc));
    }
    let since = |buckets: &[GuardSample]| -> Vec<i64> {
        let runs = buckets.iter().flat_map(|sample| sample.runs.values());
        runs.map(|it| it.first_seen.0).collect()
    };
    let expected = [90_000, month + 20_000, month + 20_000];
    assert_eq!(since(&live), expected);
    assert_eq!(since(&test_rows::guard_samples(directory.path())), expected);
}

#[test]
fn stored_sample_equals_live_sample() {
    let executed = GpuProcess {
        name: Reading::Value("other".into()),
        ..known_process(7)
    };
    let nobody = GpuProcess {
        start_ticks: Reading::Failed("gone".into()),
        ..process(9)
    };
    let samples = [
        // The owner becomes known later, and then the process executes another program.
        sample(20_000, vec![process(7), nobody], Vec::new(), 1_000),
        sample(
            30_000,
            vec![known_process(7), process(8)],
            Vec::new(),
            1_000,
        ),
        sample(40_000, vec![executed.clone()], vec![process(8)], 1_000),
        sample(50_000, vec![executed.clone()], Vec::new(), 1_000),
        unlisted(sample(60_000, vec![executed.clone()], Vec::new(), 1_000)),
        sample(70_000, Vec::new(), vec![executed], 1_000),
        sample(80_000, Vec::new(), Vec::new(), 1_000),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = BenchRecorder::open(directory.path()).unwrap();
    let mut history = SampleHistory::default();
    let mut live = Vec::new();
    for sample in &samples {
        recording.write(sample).unwrap();
        live.push(to_guard_sample(sample, &mut history, &Utc));
    }
    assert_eq!(test_rows::guard_samples(directory.path()), live);

    let names: Vec<Vec<Option<&str>>> = live
        .iter()
        .map(|sample| {
            let runs = sample.runs.values();
            runs.map(|run| run.facts.name.as_deref()).collect()
        })
        .collect();
    assert_eq!(
        names,
        [
            vec![None],
            vec![Some("python"), None],
            vec![Some("other"), None],
            vec![Some("other")],
            vec![Some("other")],
            vec![Some("other")],
            vec![],
        ]
    );
    // An ended process is removed; a process that left and is alive is not.
    let last = live.last().unwrap();
    history.forget(last, &|pid, _| pid == 7);
    let known: Vec<u32> = history.first_seen.keys().map(|run| run.pid).collect();
    assert_eq!(known, [7]);
    history.forget(last, &|_, _| false);
    assert_eq!(history.first_seen, BTreeMap::new());
}

#[test]
fn absent_at_the_end_of_both_samples() {
    let samples = [
        sample(20_000, vec![known_process(7)], Vec::new(), 1_000),
        sample(30_000, Vec::new(), vec![known_process(7)], 1_000),
        sample(40_000, Vec::new(), vec![known_process(7)], 1_000),
        sample(50_000, vec![known_process(7)], Vec::new(), 1_000),
        sample(60_000, Vec::new(), vec![known_process(7)], 1_000),
    ]
    .map(|mut sample| {
        for gone in &mut sample.departed {
            gone.departure = Departure::Released;
        }
        sample
    });
    let (live, stored) = live_and_stored(&samples);
    let present = |buckets: &[GuardSample]| -> Vec<bool> {
        let runs = buckets.iter().flat_map(|sample| sample.runs.values());
        runs.map(|run| run.is_present).collect()
    };
    assert_eq!(present(&live), [true, false, false, true, false]);
    assert_eq!(stored, live);
}

#[test]
fn facts_agree_across_devices() {
    let on_another = |name: &str| GpuProcess {
        device: DeviceId("GPU-1".into()),
        name: Reading::Value(name.into()),
        ..known_process(7)
    };
    let before = || GpuProcess {
        device: DeviceId("GPU-2".into()),
        ..on_another("before")
    };
    let mut sample = sample(
        20_000,
        vec![on_another("now")],
        vec![known_process(7), before()],
        1_000,
    );
    let mut usage = sample.usage.devices.clone();
    for at in 1..3 {
        let device = usage[&DeviceId("GPU-0".into())].clone();
        usage.insert(DeviceId(format!("GPU-{at}")), device);
    }
    sample.usage.devices = usage;
    for run in [on_another("now"), before()] {
        let used = sample.usage.runs.values().next().unwrap().clone();
        sample
            .usage
            .runs
            .insert(DeviceRun::from_process(&run), used);
    }
    let mut gone = sample.clone();
    gone.snapshot = Arc::new(Snapshot {
        processes: Vec::new(),
        ..Snapshot::clone(&sample.snapshot)
    });
    gone.departed.push(DepartedProcess {
        process: on_another("last"),
        departure: Departure::Released,
        last_seen: Timestamp(19_000),
    });
    for (sample, expected) in [(sample, "now"), (gone, "last")] {
        let (live, stored) = live_and_stored(&[sample]);
        let names = live[0].runs.values().map(|run| run.facts.name.as_deref());
        assert_eq!(names.collect::<Vec<_>>(), [Some(expected); 3]);
        assert_eq!(stored, live);
    }
}

#[test]
fn silent_device_keeps_its_facts() {
    let silent = |at: i64| {
        let mut sample = sample(at, vec![known_process(7)], Vec::new(), 1_000);
        let snapshot = Arc::make_mut(&mut sample.snapshot);
        for device in &mut snapshot.devices {
            device.name = Reading::Failed("lost".into());
            device.pci = Reading::Failed("lost".into());
            device.memory_total = Reading::Failed("lost".into());
        }
        sample
    };
    let away = |at: i64| {
        let mut sample = silent(at);
        Arc::make_mut(&mut sample.snapshot).devices.clear();
        sample
    };
    let samples = [
        sample(20_000, vec![known_process(7)], Vec::new(), 1_000),
        silent(30_000),
        away(40_000),
        silent(50_000),
    ];
    let (live, stored) = live_and_stored(&samples);
    let devices = live.iter().flat_map(|sample| sample.devices.values());
    let devices = devices.map(|device| (device.name.as_deref(), device.memory));
    let expected = (Some("H100"), Some(Bytes(900)));
    assert_eq!(devices.collect::<Vec<_>>(), [expected; 4]);
    assert_eq!(stored, live);
}

/// What rules see of these samples, live and in a replay.
fn live_and_stored(samples: &[Sample]) -> (Vec<GuardSample>, Vec<GuardSample>) {
    let directory = tempfile::tempdir().unwrap();
    let mut recording = BenchRecorder::open(directory.path()).unwrap();
    let mut history = SampleHistory::default();
    let mut live = Vec::new();
    for sample in samples {
        recording.write(sample).unwrap();
        live.push(to_guard_sample(sample, &mut history, &Utc));
    }
    (live, test_rows::guard_samples(directory.path()))
}
