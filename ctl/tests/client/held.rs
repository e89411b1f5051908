//! Who has devices open, as the stand-in daemon tells it: page by page, three
//! holders on each.

use crate::daemon::NOW;
use gpukill_policy::holders::{findings, role};
use gpukill_proto::holders::{
    Explanation, HeldDevice, Holder, HoldersPage, HoldersReport, MayEnd, ProcessState,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, Use};
use gpukill_proto::units::{Bytes, Percent};

const PAGE: usize = 3;

/// One of carol's workers, whose leader has ended.
pub(crate) fn worker(pid: u32) -> Holder {
    Holder {
        pid,
        start_ticks: Reading::Value(1),
        uid: Reading::Value(1003),
        user: Reading::Value("carol".into()),
        owner: Reading::Unsupported,
        namespace_owner: Reading::Value(None),
        name: Reading::Value("python".into()),
        command: Reading::Withheld,
        state: Reading::Value(ProcessState::Sleeping),
        parent: Reading::Value(1),
        parent_name: Reading::Value("systemd".into()),
        group: Reading::Value(60_190),
        group_leader_is_here: Reading::Value(false),
        inner_pid: Reading::Value(None),
        container: Reading::Value(None),
        holds: vec!["nvidia0".into(), "nvidia-uvm".into()],
        holds_this_device: true,
        listed: false,
        shares_with: None,
        passed_from: None,
        used_for: Use::default(),
        memory: Reading::Unsupported,
    }
}

/// The stand-in's one device.
pub(crate) fn device(holders: Vec<Holder>) -> HeldDevice {
    HeldDevice {
        id: DeviceId("GPU-8f3c0000".into()),
        index: 0,
        name: Reading::Value("NVIDIA H100 80GB HBM3".into()),
        memory_total: Reading::Value(Bytes::mib(81_559)),
        memory_used: Reading::Value(Bytes::mib(4_096)),
        memory_unattributed: Reading::Value(Bytes::mib(4_096)),
        utilization: Reading::Value(Percent(0)),
        busy_alone_since: None,
        holders,
        ended: Vec::new(),
        unseen: None,
    }
}

/// The holders from `start` on. Of one device only: its own place is the first.
pub(crate) fn page(held: &[HeldDevice], wanted: Option<&DeviceId>, start: u32) -> HoldersPage {
    let start = usize::try_from(start).expect("small");
    let is_wanted = |device: &&HeldDevice| wanted.is_none_or(|wanted| device.id == *wanted);
    let Some(device) = held.iter().find(is_wanted) else {
        return HoldersPage {
            at: NOW,
            devices: vec![],
            next: None,
        };
    };
    let first = start.saturating_sub(1);
    let end = device.holders.len().min(first + PAGE);
    let holders = device.holders[first..end].to_vec();
    let report = HoldersReport {
        roles: holders.iter().map(|holder| role(holder, device)).collect(),
        findings: if start == 0 {
            findings(device, NOW)
        } else {
            vec![]
        },
        device: HeldDevice {
            holders,
            ..device.clone()
        },
    };
    let next = (end < device.holders.len()).then(|| u32::try_from(end + 1).expect("small"));
    HoldersPage {
        at: NOW,
        devices: vec![report],
        next,
    }
}

/// What is known of a holder.
pub(crate) fn explained(held: &[HeldDevice], pid: u32) -> Option<Explanation> {
    let device = held.first()?;
    let holder = device.holders.iter().find(|holder| holder.pid == pid)?;
    Some(Explanation {
        at: NOW,
        pid,
        uses: vec![],
        holds: vec![(device.label(), holder.clone(), role(holder, device))],
        findings: findings(device, NOW)
            .into_iter()
            .map(|found| (0, found))
            .collect(),
        frees: Reading::Unsupported,
        shared_with: Vec::new(),
        may_end: MayEnd {
            people: vec!["carol".into(), "root".into()],
            you: false,
            never: None,
        },
        guard: Reading::Unsupported,
        rogue: Reading::Unsupported,
    })
}
