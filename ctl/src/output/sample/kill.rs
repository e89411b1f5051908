//! A plan with every fate, and a report with every ending.

use super::{NOW, gib, id};
use gpukill_proto::kill::{
    Ending, Fate, FuseMount, FuseServer, KillHold, KillOutcome, KillPlan, KillReport, KillRequest,
    KillRest, KillScope, KillSelector, KillSignal, KillTarget, MemoryReturn, Reaper, Respawn,
    Stage, Stuck,
};
use gpukill_proto::reading::Reading::{Failed, Unsupported, Value, Withheld};
use gpukill_proto::snapshot::{Job, ProcessKey, Scheduler, SchedulerJob, Unit};

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: u64::from(pid) * 100,
    }
}

fn slurm() -> Job {
    Job::Scheduler(SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: "1234".into(),
        step: Some("0".into()),
    })
}

fn unit(name: &str, manager: Option<u32>) -> Unit {
    Unit {
        name: name.into(),
        manager,
    }
}

/// A worker of alice's that gets SIGTERM.
fn target(pid: u32, holds: &[(u32, u64)]) -> KillTarget {
    let hold = |(index, tenths): &(u32, u64)| KillHold {
        device: id(*index),
        index: *index,
        memory: Value(gib(*tenths)),
    };
    KillTarget {
        key: key(pid),
        name: "python".into(),
        command: Value("python train.py --model llama-70b".into()),
        uid: Value(1000),
        owner: Value("alice".into()),
        holds: holds.iter().map(hold).collect(),
        named: false,
        job: Value(slurm()),
        fate: Fate::End(vec![KillSignal::Terminate]),
        overridden: None,
    }
}

fn request(selector: KillSelector, scope: KillScope) -> KillRequest {
    KillRequest {
        selector,
        scope,
        patience_ms: 5_000,
        ..KillRequest::default()
    }
}

/// alice's job of nine, as `kill 48213 --scope job` means it.
pub(crate) fn plan() -> KillPlan {
    let mut targets: Vec<KillTarget> = (0..4)
        .map(|gpu| target(48_213 + 2 * gpu, &[(gpu, 631)]))
        .collect();
    targets.extend((0..4).map(|worker| KillTarget {
        name: "pt_data_worker".into(),
        command: Value("python train.py --model llama-70b".into()),
        ..target(48_214 + 2 * worker, &[])
    }));
    targets.push(KillTarget {
        name: "torchrun".into(),
        command: Value("/usr/bin/torchrun --nproc 4 train.py".into()),
        ..target(48_200, &[])
    });
    targets.sort_by_key(|target| target.key);
    targets[1].named = true;
    let selector = KillSelector {
        pids: vec![48_213],
        ..KillSelector::default()
    };
    KillPlan {
        at: NOW,
        request: request(selector, KillScope::Job),
        targets,
        ..KillPlan::default()
    }
}

/// A plan of one process with this fate, of whom more goes on.
pub(crate) fn one_target(fate: Fate) -> KillPlan {
    let selector = KillSelector {
        pids: vec![4182],
        ..KillSelector::default()
    };
    KillPlan {
        at: NOW,
        request: request(selector, KillScope::Process),
        targets: vec![KillTarget {
            named: true,
            fate,
            ..target(4182, &[(0, 158)])
        }],
        rest: vec![KillRest {
            pid: 4190,
            job: slurm(),
            others: 7,
        }],
        ..KillPlan::default()
    }
}

/// What `kill --gpu 0-4 --batch` means: of several people, with every fate, and
/// what became of each.
pub(crate) fn report() -> (KillPlan, KillReport) {
    let reaper = || Reaper {
        pid: 4_711,
        name: Value("launcher".into()),
    };
    let ask = || "bob, or someone in group gpukill-operators".to_owned();
    let bobs = |pid, fate| KillTarget {
        uid: Value(1001),
        owner: Value("bob".into()),
        command: Withheld,
        job: Value(Job::Unit {
            unit: unit("vllm.service", None),
            uid: 1001,
        }),
        fate,
        ..target(pid, &[(2, 200)])
    };
    let mut targets = vec![
        target(7, &[(0, 631)]),
        target(48_214, &[(1, 631), (2, 20)]),
        target(48_215, &[(3, 631)]),
        target(48_216, &[(4, 5)]),
        target(48_217, &[(4, 5)]),
        target(48_218, &[(0, 10)]),
        bobs(51_000, Fate::Denied(ask())),
        bobs(
            51_001,
            Fate::Protected(gpukill_proto::kill::Protected::always(
                "it is nvidia-cuda-mps-server, which others need",
            )),
        ),
        bobs(51_002, Fate::Unclear("whose it is is not known".into())),
        bobs(51_003, Fate::Zombie(reaper())),
        target(4_194_304, &[]),
    ];
    targets[2].holds[0].memory = Unsupported;
    targets[5].job = Value(Job::Tree(key(48_218)));
    targets[10].command = Value(String::new());
    targets[10].owner = Failed("timeout".into());
    for target in &mut targets {
        target.named = true;
    }
    let endings = [
        Ending::Ended(KillSignal::Terminate, 800),
        Ending::Ended(KillSignal::Interrupt, 12),
        Ending::Survived(KillSignal::Terminate, 5_000),
        Ending::Uninterruptible(Stuck {
            waits_on: Some("request_wait_answer".into()),
            fuse: Some(FuseMount {
                path: "/home/bob/data".into(),
                servers: vec![FuseServer {
                    pid: 4_711,
                    owner: Value("bob".into()),
                }],
            }),
        }),
        Ending::Gone,
        Ending::Changed("it uses no GPU any more".into()),
        Ending::Denied(ask()),
        Ending::Protected("it is nvidia-cuda-mps-server, which others need".into()),
        Ending::Unclear("whose it is is not known".into()),
        Ending::Zombie(reaper()),
        Ending::Failed("the kernel refused: EPERM".into()),
    ];
    let outcomes = targets
        .iter()
        .zip(endings)
        .map(|(target, ending)| KillOutcome {
            key: target.key,
            name: target.name.clone(),
            command: target.command.clone(),
            ending,
        });
    let respawn = |pid, unit, parent| Respawn {
        key: key(pid),
        name: "python".into(),
        unit,
        parent,
    };
    let memory = |index, held, returned, after_ms| MemoryReturn {
        device: id(index),
        index,
        held: Value(gib(held)),
        returned: Value(gib(returned)),
        after_ms,
        still_held_by: Vec::new(),
    };
    let mut devices = vec![
        memory(0, 631, 631, Some(1_200)),
        memory(1, 631, 631, Some(400)),
        memory(2, 20, 5, None),
        memory(3, 0, 0, None),
        memory(4, 5, 5, None),
    ];
    devices[3].still_held_by = vec![48_215];
    devices[4].returned = Failed("the driver does not answer".into());
    let report = KillReport {
        version: 7,
        stage: Stage::Done,
        outcomes: outcomes.collect(),
        memory: devices,
        respawned: vec![
            respawn(52_001, Some(unit("vllm.service", None)), None),
            respawn(52_002, Some(unit("vllm.service", None)), Some(reaper())),
            respawn(52_003, Some(unit("my train.service", Some(1000))), None),
            respawn(52_004, Some(unit("other.service", Some(1001))), None),
            respawn(52_005, None, Some(reaper())),
            respawn(52_006, None, None),
        ],
        unrecorded: Some("the disk is full".into()),
    };
    let selector = KillSelector {
        gpu: Some("0-4".into()),
        ..KillSelector::default()
    };
    let plan = KillPlan {
        at: NOW,
        request: request(selector, KillScope::Process),
        targets,
        unjudged: 2,
        rest: vec![
            KillRest {
                pid: 48_230,
                job: slurm(),
                others: 7,
            },
            KillRest {
                pid: 48_215,
                job: slurm(),
                others: 1,
            },
        ],
        ..KillPlan::default()
    };
    (plan, report)
}

/// The same, when the daemon was stopped in its middle.
pub(crate) fn interrupted() -> (KillPlan, KillReport) {
    let (plan, mut report) = report();
    report.stage = Stage::Interrupted;
    report.outcomes.truncate(2);
    report.memory.clear();
    report.respawned.clear();
    report.unrecorded = None;
    (plan, report)
}
