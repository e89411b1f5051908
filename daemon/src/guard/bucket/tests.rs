//! Rules see the same live and in a replay.

mod charged;

mod stream;

mod taken;

use super::*;
use crate::audit::{Departed, Departure, Recording, told};
use chrono::Utc;
use gpukill_policy::usage::{RunUsage, Usage};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{
    Container, ContainerId, GpuProcess, Job, Owner, OwnerKind, Place, ProcessKey, Scheduler,
    SchedulerJob, Snapshot, Unit, Vendor,
};
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
        first_seen: unknown.because(),
        ..GpuProcess::unknown(DeviceId("GPU-0".into()), pid, Timestamp(0), &unknown)
    }
}

fn known(pid: u32) -> GpuProcess {
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
        place: Place {
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
        tick: 1,
        devices: vec![device(memory)],
        processes,
        backends: Vec::new(),
        faults: Vec::new(),
    };
    let mut usage = Usage::starting(Timestamp(at - 10_000));
    let both: Vec<GpuProcess> = processes.iter().chain(&gone).cloned().collect();
    usage.add(&snapshot(both), Duration::from_secs(10));
    let departed = gone.into_iter().map(|process| Departed {
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

/// The device did not tell who uses it, in no poll of it.
fn unlisted(mut sample: Sample) -> Sample {
    for run in sample.usage.runs.values_mut() {
        *run = RunUsage::default();
        run.is_untold();
    }
    sample
}

#[test]
fn who_leaves_a_device_and_comes_back_has_held_it_since_the_first_time() {
    let left = |mut sample: Sample| {
        sample.departed[0].departure = Departure::Left;
        sample
    };
    let samples = [
        sample(20_000, vec![known(7)], Vec::new(), 1_000),
        left(sample(30_000, Vec::new(), vec![known(7)], 1_000)),
        sample(40_000, Vec::new(), Vec::new(), 1_000),
        sample(50_000, vec![known(7)], Vec::new(), 1_000),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = Recording::open(directory.path()).unwrap();
    let mut seen = Seen::default();
    let mut live = Vec::new();
    for sample in &samples {
        recording.write(sample).unwrap();
        live.push(bucket(sample, &mut seen, &Utc));
    }
    assert_eq!(told::buckets(directory.path()), live);
    let since = |buckets: &[Bucket]| -> Vec<Vec<i64>> {
        let runs = buckets.iter().map(|bucket| bucket.runs.values());
        runs.map(|runs| runs.map(|it| it.first_seen.0).collect())
            .collect()
    };
    let expected = [vec![10_000], vec![10_000], vec![], vec![10_000]];
    assert_eq!(since(&live), expected);
    assert_eq!(since(&told::buckets(directory.path())), expected);
}

#[test]
fn a_clock_that_is_set_forward_makes_nobody_older() {
    let month = 30 * 86_400_000;
    let began = |at: i64| GpuProcess {
        started_at: Reading::Value(Timestamp(at)),
        ..known(7)
    };
    let samples = [
        sample(100_000, vec![began(80_000)], Vec::new(), 1_000),
        sample(
            month + 110_000,
            vec![began(month + 80_000)],
            Vec::new(),
            1_000,
        ),
        sample(
            month + 120_000,
            vec![began(month + 80_000)],
            Vec::new(),
            1_000,
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = Recording::open(directory.path()).unwrap();
    let mut seen = Seen::default();
    let mut live = Vec::new();
    for sample in &samples {
        recording.write(sample).unwrap();
        live.push(bucket(sample, &mut seen, &Utc));
    }
    let since = |buckets: &[Bucket]| -> Vec<i64> {
        let runs = buckets.iter().flat_map(|bucket| bucket.runs.values());
        runs.map(|it| it.first_seen.0).collect()
    };
    let expected = [90_000, month + 20_000, month + 20_000];
    assert_eq!(since(&live), expected);
    assert_eq!(since(&told::buckets(directory.path())), expected);
}

#[test]
fn what_was_stored_says_the_same_to_rules_as_what_was_seen() {
    let executed = GpuProcess {
        name: Reading::Value("other".into()),
        ..known(7)
    };
    let nobody = GpuProcess {
        start_ticks: Reading::Failed("gone".into()),
        ..process(9)
    };
    let samples = [
        // Whose it is becomes known later, and then it executes something else.
        sample(20_000, vec![process(7), nobody], Vec::new(), 1_000),
        sample(30_000, vec![known(7), process(8)], Vec::new(), 1_000),
        sample(40_000, vec![executed.clone()], vec![process(8)], 1_000),
        sample(50_000, vec![executed.clone()], Vec::new(), 1_000),
        unlisted(sample(60_000, vec![executed.clone()], Vec::new(), 1_000)),
        sample(70_000, Vec::new(), vec![executed], 1_000),
        sample(80_000, Vec::new(), Vec::new(), 1_000),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = Recording::open(directory.path()).unwrap();
    let mut seen = Seen::default();
    let mut live = Vec::new();
    for sample in &samples {
        recording.write(sample).unwrap();
        live.push(bucket(sample, &mut seen, &Utc));
    }
    assert_eq!(told::buckets(directory.path()), live);

    let names: Vec<Vec<Option<&str>>> = live
        .iter()
        .map(|bucket| {
            let runs = bucket.runs.values();
            runs.map(|run| run.about.name.as_deref()).collect()
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
    // Who has ended is forgotten, and who left and lives is not.
    let last = live.last().unwrap();
    seen.forget(last, &|pid, _| pid == 7);
    let known: Vec<u32> = seen.first.keys().map(|run| run.pid).collect();
    assert_eq!(known, [7]);
    seen.forget(last, &|_, _| false);
    assert_eq!(seen.first, BTreeMap::new());
}

#[test]
fn who_left_in_two_samples_was_at_the_end_of_neither() {
    let samples = [
        sample(20_000, vec![known(7)], Vec::new(), 1_000),
        sample(30_000, Vec::new(), vec![known(7)], 1_000),
        sample(40_000, Vec::new(), vec![known(7)], 1_000),
        sample(50_000, vec![known(7)], Vec::new(), 1_000),
        sample(60_000, Vec::new(), vec![known(7)], 1_000),
    ]
    .map(|mut sample| {
        for gone in &mut sample.departed {
            gone.departure = Departure::Left;
        }
        sample
    });
    let (live, stored) = both(&samples);
    let present = |buckets: &[Bucket]| -> Vec<bool> {
        let runs = buckets.iter().flat_map(|bucket| bucket.runs.values());
        runs.map(|run| run.is_present).collect()
    };
    assert_eq!(present(&live), [true, false, false, true, false]);
    assert_eq!(stored, live);
}

#[test]
fn of_a_process_of_two_devices_one_thing_is_known() {
    let on_another = |name: &str| GpuProcess {
        device: DeviceId("GPU-1".into()),
        name: Reading::Value(name.into()),
        ..known(7)
    };
    let before = || GpuProcess {
        device: DeviceId("GPU-2".into()),
        ..on_another("before")
    };
    let mut sample = sample(
        20_000,
        vec![on_another("now")],
        vec![known(7), before()],
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
        sample.usage.runs.insert(Run::of(&run), used);
    }
    let mut gone = sample.clone();
    gone.snapshot = Arc::new(Snapshot {
        processes: Vec::new(),
        ..Snapshot::clone(&sample.snapshot)
    });
    gone.departed.push(Departed {
        process: on_another("last"),
        departure: Departure::Left,
        last_seen: Timestamp(19_000),
    });
    for (sample, expected) in [(sample, "now"), (gone, "last")] {
        let (live, stored) = both(&[sample]);
        let names = live[0].runs.values().map(|run| run.about.name.as_deref());
        assert_eq!(names.collect::<Vec<_>>(), [Some(expected); 3]);
        assert_eq!(stored, live);
    }
}

#[test]
fn a_device_that_says_nothing_of_itself_for_a_while_is_what_it_was() {
    let silent = |at: i64| {
        let mut sample = sample(at, vec![known(7)], Vec::new(), 1_000);
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
        sample(20_000, vec![known(7)], Vec::new(), 1_000),
        silent(30_000),
        away(40_000),
        silent(50_000),
    ];
    let (live, stored) = both(&samples);
    let told = live.iter().flat_map(|bucket| bucket.devices.values());
    let told = told.map(|device| (device.name.as_deref(), device.memory));
    let expected = (Some("H100"), Some(Bytes(900)));
    assert_eq!(told.collect::<Vec<_>>(), [expected; 4]);
    assert_eq!(stored, live);
}

/// What rules see of these samples, live and in a replay.
fn both(samples: &[Sample]) -> (Vec<Bucket>, Vec<Bucket>) {
    let directory = tempfile::tempdir().unwrap();
    let mut recording = Recording::open(directory.path()).unwrap();
    let mut seen = Seen::default();
    let mut live = Vec::new();
    for sample in samples {
        recording.write(sample).unwrap();
        live.push(bucket(sample, &mut seen, &Utc));
    }
    (live, told::buckets(directory.path()))
}
