//! A device that is gone, and processes that have ended: no violation waits for them.

use super::*;
use crate::fixtures::nvidia_backend;
use crate::guard::device_losses::DeviceLosses;
use crate::guard::replay::{Replay, ReplayResult};
use crate::guard::sample::GuardSample;
use gpukill_proto::guard::{GuardStep, OpenViolation, ViolationSubject};
use gpukill_proto::model::{
    BackendState, Device, DeviceId, FaultCode, Loss, LossKind, Snapshot, Vendor,
};
use gpukill_proto::reading::Reading;

/// bob holds too much on two devices together, and may not use the second one.
fn two_violations() -> (TestGuard, TestHost) {
    let rules = RuleSet {
        defaults: memory_limit(80),
        gpus: vec![GpuPolicy {
            name: "1".into(),
            gpus: gpus("1"),
            blocked_users: names(&["bob"]),
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    let (mut guard, mut world) = (TestGuard::new(rules), TestHost::new(2));
    let process = world.start(100, "bob").job("train");
    process.uses(0, 62, 50).uses(1, 30, 50);
    guard.evaluate_samples(&mut world, 3);
    assert_eq!(guard.state.violations().len(), 2);
    world.devices[1].is_present = false;
    (guard, world)
}

/// The losses of a snapshot in which the driver lists the first device and these devices
/// are gone. Without such a device, the driver has not reported yet.
fn losses(gone: &[&str]) -> DeviceLosses {
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
    DeviceLosses::from_snapshot(&Snapshot {
        devices: gone.chain([device("GPU-0", None)]).collect(),
        ..snapshot(BackendState::Starting)
    })
}

fn snapshot(state: BackendState) -> Snapshot {
    Snapshot {
        backends: vec![nvidia_backend(state)],
        host: "box".into(),
        taken_at: Timestamp(0),
        polls: 1,
        devices: Vec::new(),
        processes: Vec::new(),
        faults: Vec::new(),
    }
}

/// The violations that go on after this many samples with these facts from the daemon.
fn open_after(
    (guard, world): (&mut TestGuard, &mut TestHost),
    samples: usize,
    (gone, lives): (&[&str], bool),
) -> Vec<String> {
    let losses = losses(gone);
    for _ in 0..samples {
        guard.state.apply_losses(&losses, &|_, _| lives);
        let records = guard.evaluate_samples(world, 1);
        assert!(
            records
                .iter()
                .all(|it| !matches!(it.step, GuardStep::Ended(_)))
        );
    }
    let open = guard.state.violations().into_iter();
    let shown = open.map(|it| match it.subject {
        ViolationSubject::Run(_) => format!("{} of a process", it.rule),
        _ => it.rule.to_string(),
    });
    shown.collect()
}

const BOTH: [&str; 2] = ["default: memory", "gpu 1: user of a process"];

#[test]
fn gone_device_holds_nothing_up() {
    let (mut guard, mut world) = two_violations();
    // The device may come back, and what bob holds of it is not known.
    let away = open_after((&mut guard, &mut world), 28, (&[], true));
    assert_eq!(away, BOTH);
    // The driver does not list the device any more: the rest, 62 GiB, is not too much.
    let gone = open_after((&mut guard, &mut world), 1, (&["GPU-1"], true));
    assert_eq!(gone, ["default: memory"]);
    let none = [""; 0];
    let settled = open_after((&mut guard, &mut world), 30, (&["GPU-1"], true));
    assert_eq!(settled, none);
}

#[test]
fn violation_ends_with_its_process() {
    let (mut guard, mut world) = two_violations();
    world.processes.clear();
    world.devices[0].is_present = false;
    let lives = open_after((&mut guard, &mut world), 3, (&[], true));
    assert_eq!(lives, BOTH);
    let ended = open_after((&mut guard, &mut world), 1, (&[], false));
    assert_eq!(ended, ["default: memory"]);
    let settled = open_after((&mut guard, &mut world), 30, (&[], false));
    assert_eq!(settled, [""; 0]);
}

#[test]
fn unobserved_process_stays_known() {
    let (mut guard, mut world) = two_violations();
    let open = guard.state.violations();
    let kept = open_after((&mut guard, &mut world), 300, (&[], true));
    assert_eq!(kept, BOTH);
    assert_eq!(guard.state.violations(), open);
}

/// A device that was absent before the daemon started has no row. It is known to be gone
/// only if the drivers have reported all devices.
#[test]
fn absent_device_is_gone_once_drivers_report() {
    for (state, expected) in [
        (BackendState::Starting, &BOTH[..]),
        (
            BackendState::Failed(FaultCode::SensorHangs, "it hangs".into()),
            &BOTH[..],
        ),
        (BackendState::Quiesced(Timestamp(0)), &BOTH[..]),
        (BackendState::Ready, &["default: memory"][..]),
    ] {
        let (mut guard, mut world) = two_violations();
        let text = serde_json::to_string(&guard.state).unwrap();
        guard.state = serde_json::from_str(&text).unwrap();
        // A longer time without samples would settle the violation.
        world.now = Timestamp(world.now.0 + 200_000);
        let with_a_row = |index: u32| {
            let id = DeviceId(format!("GPU-{index}"));
            Device::unknown(id, index, Vendor::Nvidia, &Reading::Unsupported)
        };
        let losses = DeviceLosses::from_snapshot(&Snapshot {
            devices: vec![with_a_row(0)],
            ..snapshot(state.clone())
        });
        for _ in 0..2 {
            guard.state.apply_losses(&losses, &|_, _| true);
            guard.evaluate_samples(&mut world, 1);
        }
        let open = guard.state.violations().into_iter();
        let shown: Vec<String> = open
            .map(|it| match it.subject {
                ViolationSubject::Run(_) => format!("{} of a process", it.rule),
                _ => it.rule.to_string(),
            })
            .collect();
        assert_eq!(shown, expected, "{state:?}");
        // What is held of the other devices is evaluated as before.
        let open = guard.state.violations().remove(0);
        let is_over = open.not_broken_since.is_some();
        assert_eq!(is_over, state == BackendState::Ready, "{state:?}");
    }
}

/// The same samples, live and in a test of rules: a device is absent from some time on, and
/// its process has ended or has not.
fn live_and_replayed(
    samples: &[GuardSample],
    losses: &DeviceLosses,
    lives: bool,
) -> (Vec<String>, ReplayResult) {
    let (guard, _) = two_violations();
    let mut live = GuardState::default();
    let mut replay = Replay::new(guard.compiled_rules.rules().clone(), Timestamp(0));
    let (newest, before) = samples.split_last().unwrap();
    for sample in before {
        let _ = crate::guard::evaluate(&guard.compiled_rules, &mut live, sample);
        replay.add(sample).unwrap();
    }
    live.apply_losses(losses, &|_, _| lives);
    let _ = crate::guard::evaluate(&guard.compiled_rules, &mut live, newest);
    replay.apply_losses(losses.clone(), &|_, _| lives);
    replay.add(newest).unwrap();
    let named = |it: OpenViolation| format!("{} {:?}", it.rule, it.evidence.runs);
    let live = live.violations().into_iter();
    let live = live.filter(|it| it.not_broken_since.is_none()).map(named);
    (live.collect(), replay.finish())
}

#[test]
fn test_agrees_about_lost_devices() {
    // Absent, and the driver has not reported; gone; and absent with its process ended.
    for (gone, lives, expected, why) in [
        (&[][..], true, 2, "GPU 1 reported nothing"),
        (
            &["GPU-1"],
            true,
            0,
            "GPU 1 is gone (it is not on the PCI bus)",
        ),
        (&[], false, 0, "GPU 1 reported nothing"),
    ] {
        let (_, mut world) = two_violations();
        world.now = Timestamp(0);
        world.devices[1].is_present = true;
        let mut samples: Vec<GuardSample> = (0..4).map(|_| world.next_sample(SAMPLE_MS)).collect();
        world.devices[1].is_present = false;
        if !lives {
            world.process(100).uses.remove(&1);
        }
        samples.extend((0..4).map(|_| world.next_sample(SAMPLE_MS)));
        let (live, replayed) = live_and_replayed(&samples, &losses(gone), lives);
        let open = replayed.open.into_iter();
        let open: Vec<String> = open
            .map(|it| format!("{} {:?}", it.rule, it.evidence.runs))
            .collect();
        assert_eq!(open, live, "{gone:?}");
        assert_eq!(open.len(), expected, "{gone:?}: {open:?}");
        let of_devices = replayed.not_evaluated.iter().filter(|it| it.rule.is_none());
        let of_devices: Vec<_> = of_devices.map(|it| (it.why.as_str(), it.for_ms)).collect();
        assert_eq!(of_devices, [(why, 40_000)], "{gone:?}");
    }
}
