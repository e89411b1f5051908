//! A device that is gone, and processes that have ended: no violation waits for them.

use super::*;
use crate::guard::bucket::Bucket;
use crate::guard::losses::Losses;
use crate::guard::replay::{Replay, Replayed};
use crate::samples::backend;
use gpukill_proto::guard::{GuardStep, OpenViolation, Subject};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{
    BackendState, Device, DeviceId, FaultCode, Loss, LossKind, Snapshot, Vendor,
};

/// bob holds too much on two devices together, and is where he may not be on the second.
fn broken() -> (Guard, World) {
    let rules = Rules {
        defaults: memory(80),
        gpus: vec![GpuPolicy {
            name: "1".into(),
            gpus: gpus("1"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    let (mut guard, mut world) = (Guard::new(rules), World::new(2));
    let process = world.start(100, "bob").job("train");
    process.uses(0, 62, 50).uses(1, 30, 50);
    guard.watches(&mut world, 3);
    assert_eq!(guard.memory.violations().len(), 2);
    world.devices[1].is_there = false;
    (guard, world)
}

/// What a snapshot says where the driver has told of the first device, and lists these no
/// more; with none of these it has not told yet.
fn losses(gone: &[&str]) -> Losses {
    let device = |id: &str, lost| Device {
        lost,
        ..Device::unknown(
            DeviceId(id.into()),
            1,
            Vendor::Nvidia,
            &Reading::Unsupported,
        )
    };
    let loss = Loss {
        since: Timestamp(0),
        reason: "it is not on the PCI bus".into(),
        kind: LossKind::Gone,
    };
    let gone = gone.iter().map(|id| device(id, Some(loss.clone())));
    Losses::of(&Snapshot {
        devices: gone.chain([device("GPU-0", None)]).collect(),
        ..snapshot(BackendState::Starting)
    })
}

fn snapshot(state: BackendState) -> Snapshot {
    Snapshot {
        backends: vec![backend(state)],
        host: "box".into(),
        taken_at: Timestamp(0),
        tick: 1,
        devices: Vec::new(),
        processes: Vec::new(),
        faults: Vec::new(),
    }
}

/// What goes on after so many buckets, where the daemon says this besides.
fn goes_on(
    (guard, world): (&mut Guard, &mut World),
    buckets: usize,
    (gone, lives): (&[&str], bool),
) -> Vec<String> {
    let losses = losses(gone);
    for _ in 0..buckets {
        guard.memory.loses(&losses, &|_, _| lives);
        let records = guard.watches(world, 1);
        assert!(
            records
                .iter()
                .all(|it| !matches!(it.step, GuardStep::Ended(_)))
        );
    }
    let open = guard.memory.violations().into_iter();
    let shown = open.map(|it| match it.subject {
        Subject::Run(_) => format!("{} of a process", it.rule),
        _ => it.rule.to_string(),
    });
    shown.collect()
}

const BOTH: [&str; 2] = ["default: memory", "gpu 1: user of a process"];

#[test]
fn what_was_held_of_a_device_that_is_gone_is_not_waited_for() {
    let (mut guard, mut world) = broken();
    // It may come back, and what it holds is not known.
    let away = goes_on((&mut guard, &mut world), 28, (&[], true));
    assert_eq!(away, BOTH);
    // Its driver does not list it any more: the rest, 62 GiB, is not too much.
    let gone = goes_on((&mut guard, &mut world), 1, (&["GPU-1"], true));
    assert_eq!(gone, ["default: memory"]);
    let none = [""; 0];
    let settled = goes_on((&mut guard, &mut world), 30, (&["GPU-1"], true));
    assert_eq!(settled, none);
}

#[test]
fn a_violation_ends_with_its_process_whatever_its_device_says() {
    let (mut guard, mut world) = broken();
    world.processes.clear();
    world.devices[0].is_there = false;
    let lives = goes_on((&mut guard, &mut world), 3, (&[], true));
    assert_eq!(lives, BOTH);
    let ended = goes_on((&mut guard, &mut world), 1, (&[], false));
    assert_eq!(ended, ["default: memory"]);
    let settled = goes_on((&mut guard, &mut world), 30, (&[], false));
    assert_eq!(settled, [""; 0]);
}

#[test]
fn a_process_that_is_only_out_of_sight_is_still_known() {
    let (mut guard, mut world) = broken();
    let open = guard.memory.violations();
    let kept = goes_on((&mut guard, &mut world), 300, (&[], true));
    assert_eq!(kept, BOTH);
    assert_eq!(guard.memory.violations(), open);
}

/// A device that was away before the daemon was started has no row: only where the drivers
/// have told of all devices it is known that it is gone.
#[test]
fn a_device_that_is_away_since_before_a_restart_is_gone_once_its_driver_has_told() {
    for (state, expected) in [
        (BackendState::Starting, &BOTH[..]),
        (
            BackendState::Failed(FaultCode::SensorHangs, "it hangs".into()),
            &BOTH[..],
        ),
        (BackendState::Quiesced(Timestamp(0)), &BOTH[..]),
        (BackendState::Ready, &["default: memory"][..]),
    ] {
        let (mut guard, mut world) = broken();
        let text = serde_json::to_string(&guard.memory).unwrap();
        guard.memory = serde_json::from_str(&text).unwrap();
        world.now = Timestamp(world.now.0 + 300_000);
        let with_a_row = |index: u32| {
            let id = DeviceId(format!("GPU-{index}"));
            Device::unknown(id, index, Vendor::Nvidia, &Reading::Unsupported)
        };
        let losses = Losses::of(&Snapshot {
            devices: vec![with_a_row(0)],
            ..snapshot(state.clone())
        });
        for _ in 0..2 {
            guard.memory.loses(&losses, &|_, _| true);
            guard.watches(&mut world, 1);
        }
        let open = guard.memory.violations().into_iter();
        let shown: Vec<String> = open
            .map(|it| match it.subject {
                Subject::Run(_) => format!("{} of a process", it.rule),
                _ => it.rule.to_string(),
            })
            .collect();
        assert_eq!(shown, expected, "{state:?}");
        // What is held of the others is judged as before.
        let open = guard.memory.violations().remove(0);
        let is_over = open.not_broken_since.is_some();
        assert_eq!(is_over, state == BackendState::Ready, "{state:?}");
    }
}

/// The same samples, live and tried: a device is away from some moment on, and its process
/// has ended or has not.
fn tried(samples: &[Bucket], losses: &Losses, lives: bool) -> (Vec<String>, Replayed) {
    let (guard, _) = broken();
    let mut live = Memory::default();
    let mut replay = Replay::new(guard.book.rules().clone(), Timestamp(0));
    let (newest, before) = samples.split_last().unwrap();
    for sample in before {
        let _ = crate::guard::judge(&guard.book, &mut live, sample);
        replay.add(sample).unwrap();
    }
    live.loses(losses, &|_, _| lives);
    let _ = crate::guard::judge(&guard.book, &mut live, newest);
    replay.loses(losses.clone(), &|_, _| lives);
    replay.add(newest).unwrap();
    let named = |it: OpenViolation| format!("{} {:?}", it.rule, it.evidence.runs);
    let live = live.violations().into_iter();
    let live = live.filter(|it| it.not_broken_since.is_none()).map(named);
    (live.collect(), replay.finish())
}

#[test]
fn a_test_says_of_a_device_that_is_lost_what_the_guard_says() {
    // Away, and the driver has not told; gone; and away with its process ended.
    for (gone, lives, expected, why) in [
        (&[][..], true, 2, "GPU 1 told nothing"),
        (
            &["GPU-1"],
            true,
            0,
            "GPU 1 is gone (it is not on the PCI bus)",
        ),
        (&[], false, 0, "GPU 1 told nothing"),
    ] {
        let (_, mut world) = broken();
        world.now = Timestamp(0);
        world.devices[1].is_there = true;
        let mut samples: Vec<Bucket> = (0..4).map(|_| world.bucket(TEN_SECONDS)).collect();
        world.devices[1].is_there = false;
        if !lives {
            world.process(100).uses.remove(&1);
        }
        samples.extend((0..4).map(|_| world.bucket(TEN_SECONDS)));
        let (live, replayed) = tried(&samples, &losses(gone), lives);
        let open = replayed.open.into_iter();
        let open: Vec<String> = open
            .map(|it| format!("{} {:?}", it.rule, it.evidence.runs))
            .collect();
        assert_eq!(open, live, "{gone:?}");
        assert_eq!(open.len(), expected, "{gone:?}: {open:?}");
        let of_devices = replayed.not_judged.iter().filter(|it| it.rule.is_none());
        let of_devices: Vec<_> = of_devices.map(|it| (it.why.as_str(), it.for_ms)).collect();
        assert_eq!(of_devices, [(why, 40_000)], "{gone:?}");
    }
}
