//! Tests of whole decisions, on a synthetic host.

mod fixture;

use super::outcome::{ResetCompletion, completion, refused_completion};
use super::response::{ResetResponse, check_response};
use super::*;
use crate::fixtures::nvidia_backend;
use fixture::{DAEMON, GpuTestHost, request};
use gpukill_proto::kill::Stage;
use gpukill_proto::model::{BackendState, EventKind, GpuEvent, Loss, LossKind, RecoveryAction};
use gpukill_proto::reading::Reading;
use gpukill_proto::reset::{Blocker, ResetOutcome, ResetReport, ResetResult};
use gpukill_proto::units::Bytes;

/// The remedy for each blocker, with the pid of processes.
fn remedies(target: &ResetTarget) -> Vec<(Option<u32>, Unblocker)> {
    let blockers = target.blockers.iter();
    blockers
        .map(|blocker| (blocker.process.map(|key| key.pid), blocker.remedy))
        .collect()
}

const SENSOR: (Option<u32>, Unblocker) = (None, Unblocker::Daemon);

#[test]
fn free_gpu_is_blocked_by_the_sensor_only() {
    let it = GpuTestHost::new(&[Vendor::Nvidia]);
    let target = it.plan_first(false);
    assert_eq!(target.action, PlannedReset::Reset);
    assert_eq!(remedies(&target), [SENSOR]);
    assert_eq!(target.notes, [""; 0]);
    // Devices of the same vendor may share links with it.
    let it = GpuTestHost::new(&[Vendor::Nvidia, Vendor::Nvidia, Vendor::Amd]);
    let notes: Vec<usize> = it
        .plan(false)
        .expect("a plan")
        .devices
        .iter()
        .map(|target| target.notes.len())
        .collect();
    assert_eq!(notes, [1, 1, 1]);
}

#[test]
fn only_operators_may_reset() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.caller.groups.clear();
    let denied = Refusal::Denied {
        asked: "reset a GPU".into(),
        ask: "root, or someone in group gpukill-operators".into(),
    };
    assert_eq!(it.plan(false), Err(denied.clone()));
    // Root of a container has no special rights.
    it.caller.uid = 0;
    it.caller.contained = true;
    assert_eq!(it.plan(false), Err(denied));
    it.caller.contained = false;
    assert!(it.plan(false).is_ok());
}

#[test]
fn force_ends_holders_but_not_protected() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia, Vendor::Nvidia]);
    it.hold(0, 4711, "python");
    it.hold(1, 4712, "python");
    let target = it.plan_first(false);
    assert_eq!(target.action, PlannedReset::Blocked);
    assert_eq!(remedies(&target), [(Some(4711), Unblocker::Force), SENSOR]);
    assert_eq!(target.blockers[0].what, "alice's python (pid 4711)");
    assert_eq!(force_kill_request(&target, &request(false)), None);
    let target = it.plan_first(true);
    assert_eq!(target.action, PlannedReset::Reset);
    let kill = force_kill_request(&target, &request(true)).expect("a kill");
    assert_eq!(
        (kill.selector.pids.clone(), kill.force, kill.any_process),
        (vec![4711], true, false)
    );
    it.hold(0, 12, "Xorg");
    let target = it.plan_first(true);
    assert_eq!(target.action, PlannedReset::Blocked);
    assert_eq!(
        remedies(&target),
        [
            (Some(12), Unblocker::Person),
            (Some(4711), Unblocker::Force),
            SENSOR
        ]
    );
}

#[test]
fn running_reset_tool_is_never_ended() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "nvidia-smi");
    let holder = &mut it.holders[0].holders[0];
    holder.command = Reading::Value("nvidia-smi --gpu-reset -i 0000:1b:00.0".into());
    assert_eq!(it.plan_first(true).action, PlannedReset::Reset);
    it.holders[0].holders[0].uid = Reading::Value(0);
    let target = it.plan_first(true);
    assert_eq!(target.action, PlannedReset::Blocked);
    assert_eq!(remedies(&target), [(Some(4711), Unblocker::Person), SENSOR]);
    assert_eq!(
        target.blockers[0].what,
        "alice's nvidia-smi (pid 4711): it is resetting a GPU: try again when it has ended"
    );
    it.holders[0].holders[0].command = Reading::Value("nvidia-smi --loop=1".into());
    assert_eq!(it.plan_first(true).action, PlannedReset::Reset);
}

#[test]
fn shared_files_do_not_block() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "nvtop");
    it.holders[0].holders[0].holds_this_device = false;
    assert_eq!(remedies(&it.plan_first(false)), [SENSOR]);
    it.holders[0].holders[0].listed = true;
    assert_eq!(it.plan_first(false).action, PlannedReset::Blocked);
}

#[test]
fn reused_pid_is_not_ended() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "python");
    if let Some(other) = it.process_table.get_mut(&4711) {
        other.lineage.key.start_ticks = 8;
    }
    assert_eq!(
        remedies(&it.plan_first(true))[0],
        (Some(4711), Unblocker::Person)
    );
    it.holders[0].holders[0].start_ticks = Reading::Failed("no such process".into());
    let target = it.plan_first(true);
    assert_eq!(remedies(&target)[0], (None, Unblocker::Person));
    assert_eq!(target.action, PlannedReset::Blocked);
}

#[test]
fn daemon_removes_sensor_and_persistence_mode() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.hold(0, 901, "gpukilld: GPU 0");
    it.holders[0].holders[0].parent = Reading::Value(DAEMON);
    it.hold(0, 601, "nvidia-persiste");
    it.snapshot.devices[0].vitals.persistence = Reading::Value(true);
    let target = it.plan_first(false);
    assert_eq!(target.action, PlannedReset::Reset);
    assert_eq!(
        remedies(&target),
        [(Some(601), Unblocker::Daemon), SENSOR, SENSOR]
    );
    it.snapshot.devices[0].vitals.mig = Reading::Value(true);
    assert_eq!(it.plan_first(true).action, PlannedReset::Blocked);
}

#[test]
fn quiesced_driver_needs_a_person() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.snapshot.backends = vec![nvidia_backend(BackendState::Quiesced(Timestamp(9)))];
    assert_eq!(it.plan_first(true).action, PlannedReset::Blocked);
}

#[test]
fn holders_of_the_whole_hive_block() {
    let mut it = GpuTestHost::new(&[Vendor::Amd, Vendor::Amd, Vendor::Amd]);
    let hive = |unlisted: &[&str]| Hive {
        name: "77".into(),
        unlisted: unlisted.iter().map(|&address| address.into()).collect(),
    };
    for index in [0, 1] {
        it.hives
            .insert(DeviceId(format!("GPU-{index}")), Ok(hive(&[])));
    }
    it.hold(1, 4711, "python");
    it.hold(2, 4712, "python");
    let target = it.plan_first(false);
    assert_eq!(target.peers, [1]);
    assert_eq!(remedies(&target), [(Some(4711), Unblocker::Force)]);
    assert_eq!(
        target.blockers[0].what,
        "on GPU 1: alice's python (pid 4711)"
    );
    // A process on both is in the way on the device itself.
    it.hold(0, 4711, "python");
    assert_eq!(
        it.plan_first(false).blockers[0].what,
        "alice's python (pid 4711)"
    );
    // Members that are not listed are named.
    it.hives
        .insert(DeviceId("GPU-0".into()), Ok(hive(&["0000:c3:00.0"])));
    let target = it.plan_first(true);
    let is_named = |note: &String| note.contains("the device at 0000:c3:00.0 is reset too");
    assert_eq!(target.notes.iter().filter(|note| is_named(note)).count(), 1);
    // No device is reset that may be in a hive that cannot be read.
    it.hives
        .insert(DeviceId("GPU-2".into()), Err("it cannot be read".into()));
    let targets = it.plan(true).expect("a plan").devices;
    let actions: Vec<&PlannedReset> = targets.iter().map(|target| &target.action).collect();
    assert_eq!(actions, [&PlannedReset::Blocked; 3]);
    let what = "whether GPU 2 is reset with it is not known: it cannot be read";
    assert!(targets[0].blockers.iter().any(|it| it.what == what));
}

#[test]
fn changed_hive_is_not_reset() {
    let it = GpuTestHost::new(&[Vendor::Amd]);
    let planned = it.plan_first(false);
    let mut now = planned.clone();
    assert_eq!(changed_peers(&planned, &now), None);
    now.peers = vec![1, 2];
    assert_eq!(
        changed_peers(&planned, &now).as_deref(),
        Some(
            "the GPUs that are reset with it changed: no other by the plan, GPU 1, GPU 2 now: \
             nothing was done"
        )
    );
    assert!(changed_peers(&now, &planned).is_some());
}

#[test]
fn unsupported_devices() {
    let unsupported = |change: &dyn Fn(&mut GpuTestHost), vendor| {
        let mut it = GpuTestHost::new(&[vendor]);
        it.hold(0, 4711, "python");
        change(&mut it);
        let target = it.plan_first(true);
        assert_eq!(target.blockers, Vec::<Blocker>::new());
        matches!(target.action, PlannedReset::Unsupported(_))
    };
    for vendor in [Vendor::Intel, Vendor::Apple, Vendor::Other] {
        assert!(unsupported(&|_| {}, vendor), "{vendor:?}");
    }
    assert!(unsupported(
        &|it| it.snapshot.devices[0].memory_unified = true,
        Vendor::Amd
    ));
    assert!(unsupported(
        &|it| it.snapshot.devices[0].pci = Reading::Failed("x".into()),
        Vendor::Nvidia
    ));
    let reboot = Reading::Value(RecoveryAction::Reboot);
    assert!(unsupported(
        &|it| it.snapshot.devices[0].vitals.recovery_action = reboot.clone(),
        Vendor::Nvidia
    ));
    assert!(unsupported(&|it| mark_lost(it, Some(79)), Vendor::Nvidia));
}

#[test]
fn helper_refusal_is_unsupported() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "python");
    let id = DeviceId("GPU-0".into());
    let why = || "there is none".to_owned();
    for check in [HelperCheck::NoAnswer(why()), HelperCheck::Refused(why())] {
        it.checks.insert(id.clone(), check);
        for force in [false, true] {
            let target = it.plan_first(force);
            assert_eq!(target.action, PlannedReset::Unsupported(why()));
            assert_eq!(remedies(&target), [(Some(4711), Unblocker::Force), SENSOR]);
        }
        assert_eq!(
            refused_completion(&it.plan(true).expect("a plan")),
            ResetCompletion::Unsupported
        );
    }
    // A device without a check is not reset.
    it.checks.clear();
    assert!(matches!(
        it.plan_first(true).action,
        PlannedReset::Unsupported(_)
    ));
}

#[test]
fn busy_helper_blocks() {
    let mut it = GpuTestHost::new(&[Vendor::Amd]);
    it.hold(0, 4711, "python");
    let busy = HelperCheck::Busy("an earlier reset goes on".into());
    it.checks.insert(DeviceId("GPU-0".into()), busy);
    let target = it.plan_first(true);
    assert_eq!(target.action, PlannedReset::Blocked);
    assert!(remedies(&target).contains(&(None, Unblocker::Person)));
}

/// Marks the first device as unreachable, with this last XID.
fn mark_lost(it: &mut GpuTestHost, xid: Option<u64>) {
    let device = &mut it.snapshot.devices[0];
    device.lost = Some(Loss {
        since: Timestamp(1),
        reason: "GPU_IS_LOST".into(),
        kind: LossKind::Lost,
    });
    device.last_xid = xid.map(|xid| GpuEvent {
        device: None,
        instance: None,
        at: Timestamp(1),
        kind: EventKind::Xid(xid),
    });
}

#[test]
fn lost_gpu_can_be_tried() {
    for xid in [None, Some(48)] {
        let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
        mark_lost(&mut it, xid);
        assert_eq!(it.plan_first(false).action, PlannedReset::Reset);
    }
}

#[test]
fn unknown_holders_block() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    it.holders.clear();
    assert_eq!(it.plan_first(true).action, PlannedReset::Blocked);
}

#[test]
fn blockers_for_a_person_come_first() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    for pid in 5_000..5_100 {
        it.hold(0, pid, "python");
    }
    it.hold(0, 9_000, "Xorg");
    let target = it.plan_first(true);
    assert_eq!(remedies(&target)[0], (Some(9_000), Unblocker::Person));
    assert_eq!(target.blockers.len(), 66);
    assert_eq!(target.action, PlannedReset::Blocked);
}

#[test]
fn response_needs_fresh_readings() {
    let mut it = GpuTestHost::new(&[Vendor::Nvidia]);
    let id = DeviceId("GPU-0".into());
    let stands = |it: &GpuTestHost| check_response(&id, Vendor::Nvidia, &it.snapshot);
    assert!(matches!(stands(&it), ResetResponse::NotRead(_)));
    it.snapshot.backends = vec![nvidia_backend(BackendState::Ready)];
    assert_eq!(stands(&it), ResetResponse::Healthy);
    let device = |it: &mut GpuTestHost, action| {
        it.snapshot.devices[0].vitals.recovery_action = Reading::Value(action);
    };
    device(&mut it, RecoveryAction::Reset);
    assert_eq!(stands(&it), ResetResponse::Advised("reset".into()));
    device(&mut it, RecoveryAction::None);
    it.snapshot.devices[0].memory_used = Reading::Stale(Bytes(0), 3);
    assert!(matches!(stands(&it), ResetResponse::NotRead(_)));
    it.snapshot.devices[0].memory_used = Reading::Failed("unknown error".into());
    assert_eq!(
        stands(&it),
        ResetResponse::Unreachable("unknown error".into())
    );
    mark_lost(&mut it, None);
    assert_eq!(
        stands(&it),
        ResetResponse::Unreachable("GPU_IS_LOST".into())
    );
    it.snapshot.devices.clear();
    assert!(matches!(stands(&it), ResetResponse::Unreachable(_)));
    it.snapshot.backends = vec![nvidia_backend(BackendState::Quiesced(Timestamp(9)))];
    assert!(matches!(stands(&it), ResetResponse::NotRead(_)));
}

#[test]
fn worst_outcome_decides() {
    let report = |endings: Vec<ResetResult>| ResetReport {
        version: 1,
        stage: Stage::Done,
        outcomes: endings
            .into_iter()
            .map(|ending| ResetOutcome {
                device: DeviceId("GPU-0".into()),
                index: 0,
                ended: None,
                result: ending,
                note: None,
            })
            .collect(),
        unrecorded: None,
    };
    let why = || "x".to_owned();
    let reset = || ResetResult::Reset(1);
    let unsupported = || ResetResult::Unsupported(why());
    for (endings, expected) in [
        (vec![reset(), reset()], ResetCompletion::All),
        (vec![reset(), unsupported()], ResetCompletion::Partial),
        (
            vec![ResetResult::Unreachable(why()), reset()],
            ResetCompletion::Partial,
        ),
        (
            vec![unsupported(), unsupported()],
            ResetCompletion::Unsupported,
        ),
        (
            vec![unsupported(), ResetResult::Failed(why())],
            ResetCompletion::Failed,
        ),
        (
            vec![ResetResult::Blocked(Vec::new())],
            ResetCompletion::Failed,
        ),
        (Vec::new(), ResetCompletion::Failed),
    ] {
        assert_eq!(
            completion(&report(endings.clone())),
            expected,
            "{endings:?}"
        );
    }
    let mut it = GpuTestHost::new(&[Vendor::Intel]);
    assert_eq!(
        refused_completion(&it.plan(false).expect("a plan")),
        ResetCompletion::Unsupported
    );
    it = GpuTestHost::new(&[Vendor::Intel, Vendor::Nvidia]);
    it.hold(1, 4711, "python");
    assert_eq!(
        refused_completion(&it.plan(false).expect("a plan")),
        ResetCompletion::Failed
    );
}
