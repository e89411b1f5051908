//! A plan with every kind of blocker and every fate, and a report with every ending.

use super::{NOW, id, report};
use gpukill_proto::kill::{KillReport, Stage};
use gpukill_proto::reading::Reading::{Unsupported, Value};
use gpukill_proto::reset::{
    Blocker, ResetEnding, ResetFate, ResetOutcome, ResetPlan, ResetReport, ResetRequest,
    ResetTarget, Unblock,
};
use gpukill_proto::snapshot::{ProcessKey, Vendor};

fn blocker(pid: Option<u32>, what: &str, remedy: Unblock) -> Blocker {
    Blocker {
        process: pid.map(|pid| ProcessKey {
            pid,
            start_ticks: 7,
        }),
        what: what.into(),
        remedy,
    }
}

/// What the daemon takes away from each GPU of NVIDIA.
fn daemons() -> [Blocker; 2] {
    [
        blocker(None, "persistence mode", Unblock::Daemon),
        blocker(None, "gpukilld's own sensor", Unblock::Daemon),
    ]
}

fn forced() -> Blocker {
    blocker(Some(48_213), "alice's python (pid 48213)", Unblock::Force)
}

fn persons() -> Vec<Blocker> {
    let of_processes = [
        (
            1_200,
            "root's nv-hostengine (pid 1200): it is nv-hostengine, which others need; stop it \
             first: systemctl stop nvidia-dcgm",
        ),
        (
            1_300,
            "root's Xorg (pid 1300): it is Xorg, which others need",
        ),
        (
            4_711,
            "bob's train (pid 4711): it has ended, and waits for its parent 4710",
        ),
        (
            51_000,
            "root's nvidia-smi (pid 51000): it is resetting a GPU: try again when it has ended",
        ),
    ];
    let others = [
        "9 more processes: end some first",
        "MIG mode: its 7 instances would be gone after a reset; switch it off first: nvidia-smi -i \
         0000:23:00.0 -mig 0",
        "somebody had gpukilld let go of the driver: gpukillctl resume",
    ];
    let of_processes = of_processes.map(|(pid, what)| blocker(Some(pid), what, Unblock::Person));
    let others = others.map(|what| blocker(None, what, Unblock::Person));
    of_processes.into_iter().chain(others).collect()
}

fn target(index: u32, vendor: Vendor, name: &str, fate: ResetFate) -> ResetTarget {
    ResetTarget {
        device: id(index),
        index,
        name: Value(name.into()),
        vendor,
        pci: Value(format!("0000:{:02x}:00.0", 0x1b + 8 * index)),
        blockers: Vec::new(),
        peers: Vec::new(),
        notes: Vec::new(),
        fate,
    }
}

const HOPPER: &str = "NVIDIA H100 80GB HBM3";
const LINKS: &str = "whether it has NVLinks is not known: before Ampere, or without the fabric \
                     manager that its NVSwitches need, it cannot be reset without its peers";
const FELL_OFF: &str = "it has fallen off the bus (XID 79), where no software reaches it: reboot \
                        the box, and where that does not help, switch its power off and on";

/// One that nobody holds, one with all that may be in the way, one of a hive, and
/// some that cannot be reset.
pub(crate) fn reset_plan() -> ResetPlan {
    let mut free = target(0, Vendor::Nvidia, HOPPER, ResetFate::Reset);
    free.blockers = daemons().into();
    free.notes = vec![LINKS.into()];
    let mut held = target(1, Vendor::Nvidia, HOPPER, ResetFate::Blocked);
    held.blockers = persons();
    held.blockers.push(forced());
    held.blockers.extend(daemons());
    let mut of_a_hive = target(3, Vendor::Amd, "AMD Instinct MI300X", ResetFate::Reset);
    of_a_hive.peers = vec![4, 5];
    of_a_hive.notes = vec![
        "all that uses it is aborted, and what its memory holds is lost".into(),
        "there may be other holders: not permitted; the helper looks again, and resets nothing \
         that somebody holds"
            .into(),
    ];
    let lost = ResetFate::Unsupported(FELL_OFF.into());
    let unknown =
        ResetFate::Unsupported("its driver is not known to have a reset: reboot the box".into());
    let mut nameless = target(6, Vendor::Other, "", unknown);
    (nameless.name, nameless.pci) = (Unsupported, Unsupported);
    ResetPlan {
        at: NOW,
        request: ResetRequest {
            gpu: None,
            force: false,
            patience_ms: 5_000,
            dry_run: true,
        },
        devices: vec![
            free,
            held,
            target(2, Vendor::Nvidia, HOPPER, lost),
            of_a_hive,
            nameless,
        ],
    }
}

/// Two GPUs on a box without the helper; somebody uses one of them.
pub(crate) fn reset_without_helper() -> ResetPlan {
    let missing = "gpukill-reset is not installed or not started: there is no socket \
                   /run/gpukill-reset.sock";
    let mut plan = held_by_one();
    plan.devices[0].fate = ResetFate::Unsupported(missing.into());
    let mut free = target(
        2,
        Vendor::Nvidia,
        HOPPER,
        ResetFate::Unsupported(missing.into()),
    );
    free.blockers = daemons().into();
    plan.devices.push(free);
    plan
}

/// One GPU that only what `--force` ends is in the way of.
pub(crate) fn held_by_one() -> ResetPlan {
    let mut plan = reset_plan();
    plan.devices.truncate(2);
    plan.devices.remove(0);
    plan.devices[0].blockers = [forced()].into_iter().chain(daemons()).collect();
    plan
}

fn outcome(index: u32, ending: ResetEnding) -> ResetOutcome {
    ResetOutcome {
        device: id(index),
        index,
        ended: None,
        ending,
        note: None,
    }
}

/// `--all --force`: some are reset, one is held again by who was started again, and
/// one does not come back.
pub(crate) fn reset_report() -> ResetReport {
    let ended: KillReport = report().1;
    let again = vec![
        blocker(Some(52_003), "alice's python (pid 52003)", Unblock::Force),
        blocker(
            Some(1_300),
            "root's Xorg (pid 1300): it is Xorg, which others need",
            Unblock::Person,
        ),
    ];
    let failed = "nvidia-smi ended with 4: it has no permission: Insufficient Permissions";
    let unreachable = "its reset was done, and it does not answer now (GPU_IS_LOST): reboot the \
                       box, and where that does not help, switch its power off and on";
    let note = "persistence mode is off now, and could not be switched on: nvidia-smi did not end \
                within 15 s, and was killed";
    ResetReport {
        version: 7,
        stage: Stage::Done,
        outcomes: vec![
            outcome(0, ResetEnding::Reset(4_250)),
            ResetOutcome {
                ended: Some(ended),
                ..outcome(1, ResetEnding::Blocked(again))
            },
            outcome(2, ResetEnding::Unsupported(FELL_OFF.into())),
            ResetOutcome {
                note: Some(note.into()),
                ..outcome(3, ResetEnding::Reset(12_000))
            },
            outcome(4, ResetEnding::Failed(failed.into())),
            outcome(5, ResetEnding::Unreachable(unreachable.into())),
        ],
        unrecorded: None,
    }
}
