//! The script of a month on a box with 8 GPUs, and the store that the daemon writes of it. The
//! samples, the record and the ends of runs come from the daemon's own writers, with a manual clock.
//!
//! The month is April 2024, which begins with a Monday. All times are in UTC.

use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EnforcementOutcome, Evidence, EvidenceProcess, GuardMode, GuardRecord, GuardStep, Measurement,
    OwnedJob, Person, ProcessContext, RuleKind, RuleName, RuleSource, RunKey, Victim,
    ViolationSubject,
};
use gpukill_proto::kill::{
    KillPlan, KillReport, KillRequest, KillSelector, KillSignal, KillTarget, MemoryReclaim,
    Outcome, PlannedAction, ProcessOutcome, Stage, TargetMemory,
};
use gpukill_proto::model::{
    Container, ContainerId, Device, DeviceId, EventKind, GpuEvent, GpuProcess, Job, Loss, LossKind,
    Owner, OwnerKind, ProcessKey, Scheduler, SchedulerJob, Snapshot, Unit, Vendor,
};
use gpukill_proto::reading::Reading::{Unsupported, Value};
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use gpukill_tests::harness::test_uid;
use gpukilld::bench_api::DaemonRunBench;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const GPUS: u32 = 8;

pub(super) const GPU_NAME: &str = "NVIDIA H100 80GB HBM3";

/// A moment of the month: the day, the hour and the minute.
pub(super) const fn at(day: i64, hour: i64, minute: i64) -> Timestamp {
    /// 2024-04-01 00:00 in seconds since 1970.
    const APRIL: i64 = 1_711_929_600;
    let minutes = ((day - 1) * 24 + hour) * 60 + minute;
    Timestamp((APRIL + minutes * 60) * 1000)
}

pub(super) fn gpu_id(gpu: u32) -> DeviceId {
    DeviceId(format!("GPU-8f3c0000-0000-0000-0000-00000000000{gpu}"))
}

/// A user of the box.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: &'static str,
    pub(super) uid: u32,
}

const fn user(name: &'static str, number: u32) -> User {
    User {
        name,
        uid: test_uid(number),
    }
}

pub(super) const ALICE: User = user("alice", 431);
pub(super) const BOB: User = user("bob", 432);
pub(super) const CAROL: User = user("carol", 433);
pub(super) const DAVE: User = user("dave", 434);
pub(super) const ERIN: User = user("erin", 435);
pub(super) const FRANK: User = user("frank", 436);
/// A system account.
pub(super) const OLLAMA: User = user("ollama", 437);
/// The user that the daemon runs as, which requests the kills of the guard.
const GPUKILL: User = user("gpukill", 438);
/// The name of a container with processes of root.
const CONTAINER: &str = "etl";

/// How the job of a process is found.
#[derive(Clone, Copy)]
enum JobKind {
    Slurm(&'static str),
    Unit(&'static str),
    /// Below the first process of a [`Work`].
    Tree,
    Container,
}

/// From when on, the utilization of each process, which is unknown without a number, and the memory
/// that each process holds on each of its GPUs, in GiB.
type Phase = (Timestamp, Option<u32>, u64);

/// The work of a job: processes that start and end together.
struct Work {
    user: User,
    job: JobKind,
    command: &'static str,
    /// The pids, each with its GPUs.
    processes: &'static [(u32, &'static [u32])],
    phases: &'static [Phase],
    end: Timestamp,
}

/// Alice's job that a person ends.
const DEBUG: Work = Work {
    user: ALICE,
    job: JobKind::Tree,
    command: "python debug.py",
    processes: &[(2101, &[6])],
    phases: &[(at(3, 9, 0), Some(30), 8)],
    end: at(3, 9, 30),
};

/// Carol's notebook, idle since 23:36, that the guard ends.
const NOTEBOOK: Work = Work {
    user: CAROL,
    job: JobKind::Tree,
    command: "python -m ipykernel_launcher -f kernel-9a.json",
    processes: &[(4101, &[4])],
    phases: &[(at(16, 22, 0), Some(55), 48), (at(16, 23, 36), Some(0), 48)],
    end: at(17, 9, 12),
};

/// Dave's job that erin ends with the second attempt.
const SWEEP: Work = Work {
    user: DAVE,
    job: JobKind::Unit("sweep.service"),
    command: "python sweep.py --trials 200",
    processes: &[(5301, &[2]), (5302, &[2])],
    phases: &[(at(21, 6, 0), Some(45), 12)],
    end: at(21, 10, 24),
};

/// Frank's job in the hours in which he may not use GPUs.
const INFERENCE: Work = Work {
    user: FRANK,
    job: JobKind::Tree,
    command: "python infer.py --batch 64",
    processes: &[(7101, &[3])],
    phases: &[(at(25, 21, 0), Some(72), 18)],
    end: at(25, 22, 0),
};

/// All work of the month, by user.
static WORK: [Work; 27] = [
    Work {
        user: ALICE,
        job: JobKind::Slurm("4601"),
        command: "python pretrain.py --config base.yaml",
        processes: &[(2001, &[0, 1])],
        phases: &[(at(2, 0, 0), Some(80), 60)],
        end: at(5, 0, 0),
    },
    DEBUG,
    // Across the time in which the daemon does not run.
    Work {
        user: ALICE,
        job: JobKind::Slurm("4655"),
        command: "python train.py --model vit",
        processes: &[(2201, &[0])],
        phases: &[(at(8, 12, 0), Some(60), 40)],
        end: at(11, 12, 0),
    },
    // From week 2 into week 3.
    Work {
        user: ALICE,
        job: JobKind::Slurm("4690"),
        command: "python pretrain.py --config large.yaml",
        processes: &[(2301, &[0]), (2302, &[1]), (2303, &[2])],
        phases: &[(at(14, 12, 0), Some(90), 70)],
        end: at(16, 12, 0),
    },
    // Until the reboot.
    Work {
        user: ALICE,
        job: JobKind::Slurm("4720"),
        command: "python train.py --model vit",
        processes: &[(2401, &[0])],
        phases: &[(at(22, 0, 0), Some(50), 40)],
        end: at(24, 6, 0),
    },
    Work {
        user: BOB,
        job: JobKind::Tree,
        command: "python -m ipykernel_launcher -f kernel-1b.json",
        processes: &[(3001, &[5])],
        phases: &[(at(2, 9, 0), Some(60), 12), (at(2, 11, 0), Some(0), 12)],
        end: at(2, 19, 0),
    },
    Work {
        user: BOB,
        job: JobKind::Slurm("4620"),
        command: "python train.py --model llama-8b",
        processes: &[(3101, &[2, 3])],
        phases: &[(at(4, 8, 0), Some(95), 50)],
        end: at(5, 8, 0),
    },
    // Two processes on one GPU at once.
    Work {
        user: BOB,
        job: JobKind::Tree,
        command: "python preprocess.py --shard 0",
        processes: &[(3201, &[4])],
        phases: &[(at(8, 10, 0), Some(40), 10)],
        end: at(8, 16, 0),
    },
    Work {
        user: BOB,
        job: JobKind::Tree,
        command: "python preprocess.py --shard 1",
        processes: &[(3202, &[4])],
        phases: &[(at(8, 12, 0), Some(40), 10)],
        end: at(8, 18, 0),
    },
    // Beside dave's work, without a utilization of each process.
    Work {
        user: BOB,
        job: JobKind::Tree,
        command: "python infer.py",
        processes: &[(3301, &[6])],
        phases: &[(at(13, 9, 0), None, 20)],
        end: at(13, 12, 0),
    },
    Work {
        user: BOB,
        job: JobKind::Tree,
        command: "python eval.py --dataset c4",
        processes: &[(3401, &[1])],
        phases: &[(at(19, 0, 0), Some(0), 16)],
        end: at(19, 6, 0),
    },
    // Until the reboot.
    Work {
        user: BOB,
        job: JobKind::Slurm("4730"),
        command: "python train.py --model llama-8b",
        processes: &[(3501, &[5])],
        phases: &[(at(23, 18, 0), Some(97), 50)],
        end: at(24, 6, 0),
    },
    Work {
        user: CAROL,
        job: JobKind::Slurm("4660"),
        command: "python finetune.py --lora 16",
        processes: &[(4001, &[5]), (4002, &[6])],
        phases: &[(at(11, 10, 0), Some(85), 30)],
        end: at(11, 16, 0),
    },
    NOTEBOOK,
    // Its command line resembles `finetune.py`.
    Work {
        user: DAVE,
        job: JobKind::Tree,
        command: "python train.py --init finetune",
        processes: &[(5001, &[2])],
        phases: &[(at(12, 18, 0), Some(70), 24)],
        end: at(13, 6, 0),
    },
    Work {
        user: DAVE,
        job: JobKind::Tree,
        command: "python render.py",
        processes: &[(5101, &[6])],
        phases: &[(at(13, 9, 0), None, 20)],
        end: at(13, 12, 0),
    },
    // Until the GPU is lost.
    Work {
        user: DAVE,
        job: JobKind::Tree,
        command: "python train.py --model resnet",
        processes: &[(5201, &[5])],
        phases: &[(at(20, 8, 0), Some(88), 36)],
        end: at(20, 14, 6),
    },
    SWEEP,
    Work {
        user: ERIN,
        job: JobKind::Tree,
        command: "python eval.py --suite long",
        processes: &[(6001, &[3])],
        phases: &[(at(12, 19, 0), Some(66), 28)],
        end: at(13, 2, 0),
    },
    Work {
        user: ERIN,
        job: JobKind::Slurm("4700"),
        command: "python pretrain.py --config moe.yaml",
        processes: &[(6101, &[4]), (6102, &[5]), (6103, &[6]), (6104, &[7])],
        phases: &[(at(15, 0, 0), Some(92), 64)],
        end: at(16, 0, 0),
    },
    Work {
        user: ERIN,
        job: JobKind::Slurm("4711"),
        command: "python train.py --model moe",
        processes: &[(6201, &[6])],
        phases: &[
            (at(18, 0, 0), Some(77), 20),
            (at(18, 6, 0), Some(77), 44),
            (at(18, 13, 0), Some(77), 71),
            (at(18, 14, 0), Some(77), 44),
        ],
        end: at(19, 0, 0),
    },
    Work {
        user: FRANK,
        job: JobKind::Tree,
        command: "python finetune.py --lora 8",
        processes: &[(7001, &[3])],
        phases: &[(at(13, 3, 6), Some(81), 22)],
        end: at(13, 7, 0),
    },
    INFERENCE,
    // Across a restart of the daemon.
    Work {
        user: OLLAMA,
        job: JobKind::Unit("ollama.service"),
        command: "/usr/local/bin/ollama serve",
        processes: &[(801, &[7])],
        phases: &[(at(5, 0, 0), Some(10), 6)],
        end: at(8, 0, 0),
    },
    // Until the reboot, and after it.
    Work {
        user: OLLAMA,
        job: JobKind::Unit("ollama.service"),
        command: "/usr/local/bin/ollama serve",
        processes: &[(802, &[7])],
        phases: &[(at(22, 0, 0), Some(10), 6)],
        end: at(24, 6, 0),
    },
    Work {
        user: OLLAMA,
        job: JobKind::Unit("ollama.service"),
        command: "/usr/local/bin/ollama serve",
        processes: &[(803, &[7])],
        phases: &[(at(24, 6, 30), Some(10), 6)],
        end: at(30, 0, 0),
    },
    Work {
        user: User {
            name: "root",
            uid: 0,
        },
        job: JobKind::Container,
        command: "python etl.py",
        processes: &[(9001, &[0])],
        phases: &[(at(26, 8, 0), Some(40), 14)],
        end: at(26, 20, 0),
    },
];

/// The runs of the daemon: the boot of the host, the start and the end. The first restart takes
/// minutes, the second 13 hours, and the third is a reboot.
const DAEMON_RUNS: [(&str, Timestamp, Timestamp); 4] = [
    (FIRST_BOOT, at(1, 0, 0), at(6, 14, 0)),
    (FIRST_BOOT, at(6, 14, 12), at(9, 21, 0)),
    (FIRST_BOOT, at(10, 10, 0), at(24, 6, 0)),
    (SECOND_BOOT, at(24, 6, 12), at(31, 0, 0)),
];
const FIRST_BOOT: &str = "0b1e6f3a-0000-4000-8000-000000000001";
const SECOND_BOOT: &str = "0b1e6f3a-0000-4000-8000-000000000002";

/// The GPU that is lost, from when to when.
const LOST_GPU: u32 = 5;
const LOST_FROM: Timestamp = at(20, 14, 6);
pub(super) const LOST_UNTIL: Timestamp = at(20, 15, 36);
pub(super) const XID_AT: Timestamp = LOST_FROM.plus_seconds(10);
pub(super) const LOSS_SEEN_AT: Timestamp = LOST_FROM.plus_seconds(12);

/// The longest time between two polls. At each start and each end of work there is one more.
const POLL_INTERVAL: Duration = Duration::from_secs(1_800);

/// When kills are requested: some seconds after the last poll in which their processes are seen.
pub(super) const KILL_DELAY_SECONDS: i64 = 5;

/// The first attempt to end [`SWEEP`].
pub(super) const FAILED_KILL_AT: Timestamp = at(21, 10, 5);

pub(super) const EDIT_AT: Timestamp = at(10, 16, 20);

impl Work {
    const fn start(&self) -> Timestamp {
        self.phases[0].0
    }

    /// Whether a poll at this time, which covers the time before it, observes the work.
    fn is_observed(&self, at: Timestamp) -> bool {
        self.start() < at && at <= self.end
    }

    /// The phase before this time.
    fn phase(&self, at: Timestamp) -> &Phase {
        let mut phases = self.phases.iter().rev();
        phases.find(|phase| phase.0 < at).unwrap()
    }

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: u64::from(pid) * 100,
        }
    }

    fn owner(&self) -> Owner {
        match self.job {
            JobKind::Container => Owner {
                name: format!("container {CONTAINER}"),
                uid: None,
                kind: OwnerKind::Container,
            },
            JobKind::Slurm(_) | JobKind::Unit(_) | JobKind::Tree => Owner {
                name: self.user.name.into(),
                uid: Some(self.user.uid),
                kind: OwnerKind::User,
            },
        }
    }

    fn job(&self) -> Job {
        match self.job {
            JobKind::Slurm(id) => Job::Scheduler(SchedulerJob {
                scheduler: Scheduler::Slurm,
                job: id.into(),
                step: None,
            }),
            JobKind::Unit(name) => Job::Unit {
                unit: Unit {
                    name: name.into(),
                    manager: None,
                },
                uid: self.user.uid,
            },
            JobKind::Tree => Job::Tree(Self::key(self.processes[0].0)),
            JobKind::Container => Job::Container {
                id: container_id(),
                manager: None,
            },
        }
    }

    fn name(&self) -> String {
        let program = self.command.split(' ').next().unwrap();
        program.rsplit('/').next().unwrap().into()
    }

    /// Each pid with each of its GPUs.
    fn places(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let each = self.processes.iter();
        each.flat_map(|(pid, gpus)| gpus.iter().map(|gpu| (*pid, *gpu)))
    }

    /// The memory that each process holds of a GPU at the end.
    fn memory_on(&self, gpu: u32) -> TargetMemory {
        TargetMemory {
            device: gpu_id(gpu),
            index: gpu,
            memory: Value(Bytes(self.phase(self.end).2 << 30)),
        }
    }

    /// A process on a GPU, as a poll at this time observes it.
    fn row(&self, pid: u32, gpu: u32, at: Timestamp) -> GpuProcess {
        let (_, utilization, gib) = *self.phase(at);
        let mut row = GpuProcess {
            start_ticks: Value(Self::key(pid).start_ticks),
            started_at: Value(self.start()),
            memory: Value(Bytes(gib << 30)),
            utilization: utilization.map_or(Unsupported, |percent| Value(Percent(percent))),
            uid: Value(self.user.uid),
            user: Value(self.user.name.into()),
            owner: Value(self.owner()),
            namespace_owner: Value(None),
            name: Value(self.name()),
            command: Value(self.command.into()),
            job: Value(self.job()),
            ..GpuProcess::unknown(gpu_id(gpu), pid, self.start(), &Unsupported)
        };
        if let JobKind::Container = self.job {
            row.location.container = Value(Some(Container {
                id: container_id(),
                manager: None,
                name: Value(CONTAINER.into()),
                image: Value("registry.example/etl:3".into()),
                pod: None,
            }));
        }
        row
    }
}

fn container_id() -> ContainerId {
    ContainerId {
        runtime: "docker".into(),
        id: "4e7".repeat(22)[..64].into(),
    }
}

/// The host as a poll at this time observes it.
fn snapshot(at: Timestamp) -> Snapshot {
    let works = WORK.iter().filter(|work| work.is_observed(at));
    let rows = works.flat_map(|work| work.places().map(|(pid, gpu)| work.row(pid, gpu, at)));
    let processes: Vec<GpuProcess> = rows.collect();
    Snapshot {
        host: "box".into(),
        taken_at: at,
        polls: 1,
        devices: (0..GPUS).map(|gpu| device(gpu, at, &processes)).collect(),
        processes,
        backends: Vec::new(),
        faults: Vec::new(),
    }
}

/// A GPU with these processes, and with the sum of their memory and of their utilization.
fn device(gpu: u32, at: Timestamp, processes: &[GpuProcess]) -> Device {
    let mut device = Device::unknown(gpu_id(gpu), gpu, Vendor::Nvidia, &Unsupported);
    device.name = Value(GPU_NAME.into());
    device.memory_total = Value(Bytes(80 << 30));
    if gpu == LOST_GPU && LOST_FROM < at && at <= LOST_UNTIL {
        device.lost = Some(Loss {
            since: LOSS_SEEN_AT,
            reason: "GPU is lost".into(),
            kind: LossKind::Lost,
        });
        return device;
    }
    let here = processes
        .iter()
        .filter(|process| process.device == device.id);
    let here: Vec<&GpuProcess> = here.collect();
    let memory = here.iter().filter_map(|process| process.memory.known());
    let memory: u64 = memory.map(|bytes| bytes.0).sum();
    // Half of the GPU for a process with an unknown share.
    let shares = here.iter().map(|process| process.utilization.known());
    let shares = shares.map(|share| share.map_or(50, |percent| percent.0));
    let percent = shares.sum::<u32>().min(100);
    device.process_count = Value(u32::try_from(here.len()).unwrap());
    device.memory_used = Value(Bytes(memory));
    device.memory_unattributed = Value(Bytes(0));
    device.vitals.utilization = Value(Percent(percent));
    device.vitals.temperature = Value(Celsius(40));
    device.vitals.power = Value(Milliwatts(u64::from(100 + 5 * percent) * 1000));
    device
}

/// The times of the polls of one run of the daemon.
fn poll_times(start: Timestamp, end: Timestamp) -> BTreeSet<Timestamp> {
    let interval = i64::try_from(POLL_INTERVAL.as_secs()).unwrap();
    let regular = (0..).map(|number| at(1, 0, 0).plus_seconds(number * interval));
    let regular = regular.take_while(|time| *time <= end);
    let changes = WORK.iter().flat_map(|work| {
        let phases = work.phases.iter().map(|phase| phase.0);
        phases.chain([work.end])
    });
    let all = regular.chain(changes);
    let all = all.chain([start, end, LOST_FROM, LOST_UNTIL]);
    all.filter(|time| (start..=end).contains(time)).collect()
}

/// Writes the store of the month into this directory.
pub(super) fn write_month(directory: &Path) -> Result<(), String> {
    let mut record = record().into_iter().peekable();
    for (boot, start, end) in DAEMON_RUNS {
        let mut run = DaemonRunBench::start(directory, boot, start, POLL_INTERVAL)?;
        for time in poll_times(start, end) {
            while let Some((_, write)) = record.next_if(|(at, _)| *at <= time) {
                write(&mut run)?;
            }
            run.poll(&Arc::new(snapshot(time)))?;
        }
        run.stop(end)?;
    }
    Ok(())
}

/// Writes an entry of the record.
type WriteEntry = Box<dyn Fn(&mut DaemonRunBench) -> Result<(), String>>;

/// An entry of the record, with its time.
type Entry = (Timestamp, WriteEntry);

fn entry(
    at: Timestamp,
    write: impl Fn(&mut DaemonRunBench) -> Result<(), String> + 'static,
) -> Entry {
    (at, Box::new(write))
}

/// The record of the month, the oldest entry first.
fn record() -> Vec<Entry> {
    let debug = KillSelector {
        pids: vec![2101],
        ..KillSelector::default()
    };
    let mut all = vec![kill(&DEBUG, ALICE, debug, KillSignal::Terminate), edit()];
    all.extend(idle_end());
    all.extend(loss());
    all.push(failed_kill());
    all.push(kill(&SWEEP, ERIN, sweep_selector(), KillSignal::Kill));
    all.extend(hours_end());
    all.sort_by_key(|(at, _)| *at);
    all
}

fn edit() -> Entry {
    let edit = GuardEdit::SetKey {
        path: "global.default_idle_limit_minutes".into(),
        value: "480".into(),
    };
    let difference = "-default_idle_limit_minutes = 600\n+default_idle_limit_minutes = 480\n";
    entry(EDIT_AT, move |run| {
        run.edit_rules(EDIT_AT, ALICE.uid, &edit, difference)
    })
}

/// The XID, the loss of the GPU and its return.
fn loss() -> [Entry; 3] {
    let xid = GpuEvent {
        device: Some(gpu_id(LOST_GPU)),
        instance: None,
        at: XID_AT,
        kind: EventKind::Xid(79),
    };
    let gpu = |time| device(LOST_GPU, time, &[]);
    let faults = move |run: &DaemonRunBench, at, before, after| {
        run.change_faults(at, &gpu(before), &gpu(after))
    };
    [
        entry(XID_AT, move |run| run.device_event(&xid)),
        entry(LOSS_SEEN_AT, move |run| {
            faults(run, LOSS_SEEN_AT, LOST_FROM, LOST_UNTIL)
        }),
        entry(LOST_UNTIL, move |run| {
            faults(run, LOST_UNTIL, LOST_UNTIL, LOST_FROM)
        }),
    ]
}

fn sweep_selector() -> KillSelector {
    KillSelector {
        job: Some("sweep.service".into()),
        ..KillSelector::default()
    }
}

/// The plan to end all processes of a work, made at this time.
fn plan(work: &Work, at: Timestamp, selector: KillSelector, signal: KillSignal) -> KillPlan {
    let targets = work.processes.iter().map(|(pid, gpus)| KillTarget {
        key: Work::key(*pid),
        name: work.name(),
        command: Value(work.command.into()),
        uid: Value(work.user.uid),
        owner: Value(work.owner().name),
        holds: gpus.iter().map(|gpu| work.memory_on(*gpu)).collect(),
        named: true,
        job: Value(work.job()),
        action: PlannedAction::End(signals(signal)),
        overridden: None,
    });
    KillPlan {
        at,
        request: KillRequest {
            selector,
            force: signal == KillSignal::Kill,
            signal_timeout_ms: 5_000,
            ..KillRequest::default()
        },
        targets: targets.collect(),
        ..KillPlan::default()
    }
}

/// The signals up to this one.
fn signals(last: KillSignal) -> Vec<KillSignal> {
    let all = [KillSignal::Terminate, KillSignal::Kill];
    all.into_iter().filter(|signal| *signal <= last).collect()
}

/// A report with this outcome for each process of a work, and with the memory that is free again.
fn report(work: &Work, outcome: &Outcome, memory: Vec<MemoryReclaim>) -> KillReport {
    let outcomes = work.processes.iter().map(|(pid, _)| ProcessOutcome {
        key: Work::key(*pid),
        name: work.name(),
        command: Value(work.command.into()),
        outcome: outcome.clone(),
    });
    KillReport {
        version: 1,
        stage: Stage::Done,
        outcomes: outcomes.collect(),
        memory,
        respawned: Vec::new(),
        unchecked: None,
        unrecorded: None,
    }
}

/// The kill by this user that ends a work with this signal.
fn kill(work: &'static Work, user: User, selector: KillSelector, signal: KillSignal) -> Entry {
    let request = selector.to_string();
    kill_by_request(work, user, (selector, request), signal)
}

fn kill_by_request(
    work: &'static Work,
    user: User,
    (selector, request): (KillSelector, String),
    signal: KillSignal,
) -> Entry {
    let at = work.end.plus_seconds(KILL_DELAY_SECONDS);
    let plan = plan(work, at, selector, signal);
    let held = work.places().map(|(_, gpu)| work.memory_on(gpu));
    let memory = held.map(|held| MemoryReclaim {
        device: held.device,
        index: held.index,
        held: held.memory.clone(),
        returned: held.memory,
        after_ms: Some(400),
        still_held_by: Vec::new(),
    });
    let report = report(work, &Outcome::Ended(signal, 800), memory.collect());
    entry(at, move |run| {
        let end = (&report, at.plus_seconds(2));
        run.kill(user.uid, &request, &plan, end)
    })
}

/// The kill of [`SWEEP`] that no process obeys.
fn failed_kill() -> Entry {
    let signal = KillSignal::Terminate;
    let plan = plan(&SWEEP, FAILED_KILL_AT, sweep_selector(), signal);
    let report = report(&SWEEP, &Outcome::Survived(signal, 5_000), Vec::new());
    let request = sweep_selector().to_string();
    entry(FAILED_KILL_AT, move |run| {
        let end = (&report, FAILED_KILL_AT.plus_seconds(5));
        run.kill(ERIN.uid, &request, &plan, end)
    })
}

/// The end of [`NOTEBOOK`], which has been idle for eight hours.
fn idle_end() -> Vec<Entry> {
    let violated_at = at(17, 7, 36);
    let snoozed_at = at(17, 7, 48).plus_seconds(10);
    let snoozed = GuardStep::Snoozed {
        by: CAROL.uid,
        owner: CAROL.uid,
        until: NOTEBOOK.end,
        left: 1,
    };
    let violation = Violation {
        work: &NOTEBOOK,
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Idle,
        },
        since: at(16, 23, 36),
        limit: Some(Duration::from_secs(8 * 3_600)),
    };
    violation.entries(vec![
        (violated_at, GuardStep::Violated),
        (violated_at, warning(at(17, 8, 36))),
        (snoozed_at, snoozed),
    ])
}

/// The end of [`INFERENCE`], in hours in which frank may not use GPUs.
fn hours_end() -> Vec<Entry> {
    let violated_at = at(25, 21, 30);
    let violation = Violation {
        work: &INFERENCE,
        rule: RuleName {
            source: RuleSource::Time("nights".into()),
            kind: RuleKind::Hours,
        },
        since: at(25, 21, 0),
        limit: None,
    };
    violation.entries(vec![
        (violated_at, GuardStep::Violated),
        (violated_at, warning(INFERENCE.end)),
    ])
}

const fn warning(deadline: Timestamp) -> GuardStep {
    GuardStep::Warned {
        times: 1,
        deadline: Some(deadline),
    }
}

/// A violation of a rule by a work, for which the guard ends it.
struct Violation {
    work: &'static Work,
    rule: RuleName,
    since: Timestamp,
    limit: Option<Duration>,
}

impl Violation {
    /// These steps, then the decision to end the job, the kill and its outcome.
    fn entries(self, mut steps: Vec<(Timestamp, GuardStep)>) -> Vec<Entry> {
        let (work, job) = (self.work, self.owned_job());
        let victim = Victim {
            job: job.clone(),
            priority: 5,
            runs: self.evidence(work.end),
            count: 1,
            is_busy: Some(false),
            leave_to: None,
        };
        let outcome = EnforcementOutcome {
            job,
            ended: 1,
            left: 0,
            why: None,
        };
        let over_at = work.end.plus_seconds(KILL_DELAY_SECONDS + 2);
        steps.push((work.end, GuardStep::Ended(victim)));
        steps.push((over_at, GuardStep::Outcome(outcome)));
        let selector = KillSelector {
            pids: work.processes.iter().map(|(pid, _)| *pid).collect(),
            ..KillSelector::default()
        };
        let request = (selector, format!("guard: {}", self.rule));
        let kill = kill_by_request(work, GPUKILL, request, KillSignal::Terminate);
        let steps = steps.into_iter().map(|(at, step)| {
            let decision = self.decision(at, step);
            entry(at, move |run| run.decide(&decision))
        });
        steps.chain([kill]).collect()
    }

    fn decision(&self, at: Timestamp, step: GuardStep) -> GuardRecord {
        let milliseconds = |length: Duration| u64::try_from(length.as_millis()).unwrap();
        GuardRecord {
            at,
            rule: self.rule.clone(),
            subject: ViolationSubject::Job(self.owned_job()),
            mode: GuardMode::Soft,
            step,
            evidence: Evidence {
                measured: self.limit.map(|limit| Measurement {
                    value: milliseconds(at.since(self.since)),
                    limit: milliseconds(limit),
                }),
                since: self.since,
                runs: self.evidence(at),
                count: 1,
                unknown: 0,
                threat: None,
                is_service_only_warned: false,
            },
            message: None,
        }
    }

    fn owned_job(&self) -> OwnedJob {
        let job = self.work.job();
        OwnedJob {
            owner: self.person(),
            id: job.id(),
            shown: job.to_string(),
        }
    }

    fn person(&self) -> Person {
        Person {
            name: self.work.user.name.into(),
            uid: Some(self.work.user.uid),
        }
    }

    fn evidence(&self, at: Timestamp) -> Vec<EvidenceProcess> {
        let runs = self.work.places().map(|(pid, gpu)| {
            let row = self.work.row(pid, gpu, at);
            EvidenceProcess {
                run: RunKey {
                    pid,
                    start_ticks: Work::key(pid).start_ticks,
                    device: gpu_id(gpu),
                    instance: None,
                },
                gpu_index: gpu,
                owner: Some(self.person()),
                name: Some(self.work.name()),
                memory: row.memory.known().map(|memory| memory.0),
                utilization: row.utilization.known().map(|percent| percent.0),
                job: Some(self.work.job().to_string()),
                context: ProcessContext::default(),
            }
        });
        runs.collect()
    }
}
