//! Whole decisions, on a box that is made up.

mod scene;

use super::answering::{Standing, standing};
use super::success::{Success, refused, success};
use super::*;
use crate::samples::backend;
use gpukill_proto::kill::Stage;
use gpukill_proto::reading::Reading;
use gpukill_proto::reset::{Blocker, ResetEnding, ResetOutcome, ResetReport};
use gpukill_proto::snapshot::{BackendState, EventKind, GpuEvent, Loss, LossKind, RecoveryAction};
use gpukill_proto::units::Bytes;
use scene::{Box, DAEMON, request};

/// Who takes what away, by the pid of processes.
fn told(target: &ResetTarget) -> Vec<(Option<u32>, Unblock)> {
    let blockers = target.blockers.iter();
    blockers
        .map(|blocker| (blocker.process.map(|key| key.pid), blocker.remedy))
        .collect()
}

const SENSOR: (Option<u32>, Unblock) = (None, Unblock::Daemon);

#[test]
fn a_free_gpu_is_reset_and_the_sensor_alone_goes_before() {
    let it = Box::new(&[Vendor::Nvidia]);
    let target = it.first(false);
    assert_eq!(target.fate, ResetFate::Reset);
    assert_eq!(told(&target), [SENSOR]);
    assert_eq!(target.notes, [""; 0]);
    // Others of its kind may share links with it.
    let it = Box::new(&[Vendor::Nvidia, Vendor::Nvidia, Vendor::Amd]);
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
fn only_who_may_end_anybodys_processes_may_reset() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.caller.groups.clear();
    let denied = Refusal::Denied {
        asked: "reset a GPU".into(),
        ask: "root, or someone in group gpukill-operators".into(),
    };
    assert_eq!(it.plan(false), Err(denied.clone()));
    // Root of a container is nobody special.
    it.caller.uid = 0;
    it.caller.contained = true;
    assert_eq!(it.plan(false), Err(denied));
    it.caller.contained = false;
    assert!(it.plan(false).is_ok());
}

#[test]
fn holders_are_named_and_end_with_force_alone_and_what_is_protected_never() {
    let mut it = Box::new(&[Vendor::Nvidia, Vendor::Nvidia]);
    it.hold(0, 4711, "python");
    it.hold(1, 4712, "python");
    let target = it.first(false);
    assert_eq!(target.fate, ResetFate::Blocked);
    assert_eq!(told(&target), [(Some(4711), Unblock::Force), SENSOR]);
    assert_eq!(target.blockers[0].what, "alice's python (pid 4711)");
    assert_eq!(forced(&target, &request(false)), None);
    let target = it.first(true);
    assert_eq!(target.fate, ResetFate::Reset);
    let kill = forced(&target, &request(true)).expect("a kill");
    assert_eq!(
        (kill.selector.pids.clone(), kill.force, kill.any_process),
        (vec![4711], true, false)
    );
    it.hold(0, 12, "Xorg");
    let target = it.first(true);
    assert_eq!(target.fate, ResetFate::Blocked);
    assert_eq!(
        told(&target),
        [
            (Some(12), Unblock::Person),
            (Some(4711), Unblock::Force),
            SENSOR
        ]
    );
}

#[test]
fn roots_tool_at_a_reset_is_never_ended_and_another_of_that_name_is() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "nvidia-smi");
    let holder = &mut it.holders[0].holders[0];
    holder.command = Reading::Value("nvidia-smi --gpu-reset -i 0000:1b:00.0".into());
    assert_eq!(it.first(true).fate, ResetFate::Reset);
    it.holders[0].holders[0].uid = Reading::Value(0);
    let target = it.first(true);
    assert_eq!(target.fate, ResetFate::Blocked);
    assert_eq!(told(&target), [(Some(4711), Unblock::Person), SENSOR]);
    assert_eq!(
        target.blockers[0].what,
        "alice's nvidia-smi (pid 4711): it is resetting a GPU: try again when it has ended"
    );
    it.holders[0].holders[0].command = Reading::Value("nvidia-smi --loop=1".into());
    assert_eq!(it.first(true).fate, ResetFate::Reset);
}

#[test]
fn who_has_only_files_open_that_all_gpus_share_is_not_in_the_way() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "nvtop");
    it.holders[0].holders[0].holds_this_device = false;
    assert_eq!(told(&it.first(false)), [SENSOR]);
    it.holders[0].holders[0].listed = true;
    assert_eq!(it.first(false).fate, ResetFate::Blocked);
}

#[test]
fn a_pid_that_is_another_process_by_now_is_nothing_that_force_ends() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "python");
    if let Some(other) = it.crowd.get_mut(&4711) {
        other.kin.key.start_ticks = 8;
    }
    assert_eq!(told(&it.first(true))[0], (Some(4711), Unblock::Person));
    it.holders[0].holders[0].start_ticks = Reading::Failed("no such process".into());
    let target = it.first(true);
    assert_eq!(told(&target)[0], (None, Unblock::Person));
    assert_eq!(target.fate, ResetFate::Blocked);
}

#[test]
fn the_own_sensor_and_persistence_are_the_daemons_and_mig_is_a_persons() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.hold(0, 901, "gpukilld: GPU 0");
    it.holders[0].holders[0].parent = Reading::Value(DAEMON);
    it.hold(0, 601, "nvidia-persiste");
    it.snapshot.devices[0].vitals.persistence = Reading::Value(true);
    let target = it.first(false);
    assert_eq!(target.fate, ResetFate::Reset);
    assert_eq!(
        told(&target),
        [(Some(601), Unblock::Daemon), SENSOR, SENSOR]
    );
    it.snapshot.devices[0].vitals.mig = Reading::Value(true);
    assert_eq!(it.first(true).fate, ResetFate::Blocked);
}

#[test]
fn a_driver_that_somebody_had_let_go_of_is_theirs_to_take_again() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.snapshot.backends = vec![backend(BackendState::Quiesced(Timestamp(9)))];
    assert_eq!(it.first(true).fate, ResetFate::Blocked);
}

#[test]
fn a_hive_is_reset_as_a_whole_and_so_its_holders_are_all_in_the_way() {
    let mut it = Box::new(&[Vendor::Amd, Vendor::Amd, Vendor::Amd]);
    for index in [0, 1] {
        it.hives
            .insert(DeviceId(format!("GPU-{index}")), "77".into());
    }
    it.hold(1, 4711, "python");
    it.hold(2, 4712, "python");
    let target = it.first(false);
    assert_eq!(target.peers, [1]);
    assert_eq!(told(&target), [(Some(4711), Unblock::Force)]);
}

#[test]
fn what_cannot_be_reset_is_unsupported_whoever_holds_it() {
    let unsupported = |change: &dyn Fn(&mut Box), vendor| {
        let mut it = Box::new(&[vendor]);
        it.hold(0, 4711, "python");
        change(&mut it);
        let target = it.first(true);
        assert_eq!(target.blockers, Vec::<Blocker>::new());
        matches!(target.fate, ResetFate::Unsupported(_))
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
    assert!(unsupported(&|it| lose(it, Some(79)), Vendor::Nvidia));
}

#[test]
fn a_gpu_that_the_helper_cannot_reset_is_unsupported_and_its_holders_are_named() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.hold(0, 4711, "python");
    let id = DeviceId("GPU-0".into());
    let why = || "there is none".to_owned();
    for check in [HelperCheck::NoAnswer(why()), HelperCheck::Refused(why())] {
        it.checks.insert(id.clone(), check);
        for force in [false, true] {
            let target = it.first(force);
            assert_eq!(target.fate, ResetFate::Unsupported(why()));
            assert_eq!(told(&target), [(Some(4711), Unblock::Force), SENSOR]);
        }
        assert_eq!(
            refused(&it.plan(true).expect("a plan")),
            Success::Unsupported
        );
    }
    // One that was not asked about is not reset.
    it.checks.clear();
    assert!(matches!(it.first(true).fate, ResetFate::Unsupported(_)));
}

#[test]
fn a_helper_that_is_at_another_reset_stands_in_the_way_and_nobody_is_ended() {
    let mut it = Box::new(&[Vendor::Amd]);
    it.hold(0, 4711, "python");
    let busy = HelperCheck::Busy("an earlier reset goes on".into());
    it.checks.insert(DeviceId("GPU-0".into()), busy);
    let target = it.first(true);
    assert_eq!(target.fate, ResetFate::Blocked);
    assert!(told(&target).contains(&(None, Unblock::Person)));
}

/// The driver cannot reach the first device; its last error was this.
fn lose(it: &mut Box, xid: Option<u64>) {
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
fn a_gpu_that_is_lost_otherwise_can_be_tried() {
    for xid in [None, Some(48)] {
        let mut it = Box::new(&[Vendor::Nvidia]);
        lose(&mut it, xid);
        assert_eq!(it.first(false).fate, ResetFate::Reset);
    }
}

#[test]
fn a_gpu_whose_holders_are_not_known_yet_is_not_reset() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    it.holders.clear();
    assert_eq!(it.first(true).fate, ResetFate::Blocked);
}

#[test]
fn of_very_many_holders_those_that_force_does_not_end_are_told_first() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    for pid in 5_000..5_100 {
        it.hold(0, pid, "python");
    }
    it.hold(0, 9_000, "Xorg");
    let target = it.first(true);
    assert_eq!(told(&target)[0], (Some(9_000), Unblock::Person));
    assert_eq!(target.blockers.len(), 66);
    assert_eq!(target.fate, ResetFate::Blocked);
}

#[test]
fn whether_a_gpu_answers_is_told_by_fresh_readings_alone() {
    let mut it = Box::new(&[Vendor::Nvidia]);
    let id = DeviceId("GPU-0".into());
    let stands = |it: &Box| standing(&id, Vendor::Nvidia, &it.snapshot);
    assert!(matches!(stands(&it), Standing::Unread(_)));
    it.snapshot.backends = vec![backend(BackendState::Ready)];
    assert_eq!(stands(&it), Standing::Well);
    let device = |it: &mut Box, action| {
        it.snapshot.devices[0].vitals.recovery_action = Reading::Value(action);
    };
    device(&mut it, RecoveryAction::Reset);
    assert_eq!(stands(&it), Standing::Advised("reset".into()));
    device(&mut it, RecoveryAction::None);
    it.snapshot.devices[0].memory_used = Reading::Stale(Bytes(0), 3);
    assert!(matches!(stands(&it), Standing::Unread(_)));
    it.snapshot.devices[0].memory_used = Reading::Failed("unknown error".into());
    assert_eq!(stands(&it), Standing::Silent("unknown error".into()));
    lose(&mut it, None);
    assert_eq!(stands(&it), Standing::Silent("GPU_IS_LOST".into()));
    it.snapshot.devices.clear();
    assert!(matches!(stands(&it), Standing::Silent(_)));
    it.snapshot.backends = vec![backend(BackendState::Quiesced(Timestamp(9)))];
    assert!(matches!(stands(&it), Standing::Unread(_)));
}

#[test]
fn a_reset_is_as_good_as_its_worst_part() {
    let report = |endings: Vec<ResetEnding>| ResetReport {
        version: 1,
        stage: Stage::Done,
        outcomes: endings
            .into_iter()
            .map(|ending| ResetOutcome {
                device: DeviceId("GPU-0".into()),
                index: 0,
                ended: None,
                ending,
                note: None,
            })
            .collect(),
        unrecorded: None,
    };
    let why = || "x".to_owned();
    let reset = || ResetEnding::Reset(1);
    let unsupported = || ResetEnding::Unsupported(why());
    for (endings, expected) in [
        (vec![reset(), reset()], Success::All),
        (vec![reset(), unsupported()], Success::Part),
        (
            vec![ResetEnding::Unreachable(why()), reset()],
            Success::Part,
        ),
        (vec![unsupported(), unsupported()], Success::Unsupported),
        (
            vec![unsupported(), ResetEnding::Failed(why())],
            Success::Failed,
        ),
        (vec![ResetEnding::Blocked(Vec::new())], Success::Failed),
        (Vec::new(), Success::Failed),
    ] {
        assert_eq!(success(&report(endings.clone())), expected, "{endings:?}");
    }
    let mut it = Box::new(&[Vendor::Intel]);
    assert_eq!(
        refused(&it.plan(false).expect("a plan")),
        Success::Unsupported
    );
    it = Box::new(&[Vendor::Intel, Vendor::Nvidia]);
    it.hold(1, 4711, "python");
    assert_eq!(refused(&it.plan(false).expect("a plan")), Success::Failed);
}
