//! The device holders that the fake daemon reports: page by page, three holders on each.

use crate::fake_daemon::NOW;
use gpukill_policy::holders::{find_causes, role};
use gpukill_proto::holders::{
    DeviceHolders, EndPermission, Explanation, Holder, HoldersPage, HoldersReport, ProcessState,
};
use gpukill_proto::model::{DeviceId, GpuUse};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};

const PAGE: usize = 3;

/// A worker of carol's; its leader has ended.
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
        used_for: GpuUse::default(),
        memory: Reading::Unsupported,
    }
}

/// The fake daemon's only device.
pub(crate) fn device(holders: Vec<Holder>) -> DeviceHolders {
    DeviceHolders {
        id: DeviceId("GPU-8f3c0000".into()),
        index: 0,
        name: Reading::Value("NVIDIA H100 80GB HBM3".into()),
        memory_total: Reading::Value(Bytes::mib(81_559)),
        memory_used: Reading::Value(Bytes::mib(4_096)),
        memory_unattributed: Reading::Value(Bytes::mib(4_096)),
        utilization: Reading::Value(Percent(0)),
        busy_without_holder_since: None,
        holders,
        ended: Vec::new(),
        incomplete_reason: None,
    }
}

/// The holders of one device from position `start` on. The device itself takes the first
/// position.
pub(crate) fn page(held: &[DeviceHolders], wanted: Option<&DeviceId>, start: u32) -> HoldersPage {
    let start = usize::try_from(start).expect("small");
    let is_wanted = |device: &&DeviceHolders| wanted.is_none_or(|wanted| device.id == *wanted);
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
            find_causes(device, NOW)
        } else {
            vec![]
        },
        may_end: device.holders.iter().map(|holder| holder.pid).collect(),
        device: DeviceHolders {
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

pub(crate) fn explanation(held: &[DeviceHolders], pid: u32) -> Option<Explanation> {
    let device = held.first()?;
    let holder = device.holders.iter().find(|holder| holder.pid == pid)?;
    Some(Explanation {
        at: NOW,
        pid,
        uses: vec![],
        holds: vec![(device.label(), holder.clone(), role(holder, device))],
        files_read_at: Reading::Value(NOW),
        findings: find_causes(device, NOW)
            .into_iter()
            .map(|found| (0, found))
            .collect(),
        frees: Reading::Unsupported,
        shared_with: Vec::new(),
        may_end: EndPermission {
            people: vec!["carol".into(), "root".into()],
            includes_caller: false,
            never_reason: None,
        },
        guard: Reading::Unsupported,
        rogue: Reading::Unsupported,
    })
}
