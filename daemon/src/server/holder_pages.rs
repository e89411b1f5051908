//! Cuts the holders of devices into pages that fit a frame, and hides what this caller may not see.

use super::snapshot_pages::MAX_PAGE_BYTES;
use gpukill_policy::access::{Caller, Operation, Roles, Ruling, Uids, check, may_read_command};
use gpukill_policy::holders::{find_causes, role};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::holders::{
    DeviceHolders, EndedHolder, Holder, HoldersPage, HoldersReport, Role,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::transport::codec::PageRoom;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// At most this many ended holders are reported for one device: the last ones.
const MAX_ENDED_HOLDERS: usize = 64;

/// One answer that a connection reads page by page. Each device has a position in it, followed by
/// one position for each of its holders.
pub(super) struct HoldersAnswer {
    at: Timestamp,
    devices: Vec<HoldersReport>,
}

impl HoldersAnswer {
    /// What is known of these devices now.
    pub(super) fn new<'a>(
        devices: impl IntoIterator<Item = &'a DeviceHolders>,
        at: Timestamp,
    ) -> Self {
        let devices = devices.into_iter().map(|device| {
            let roles = device.holders.iter().map(|holder| role(holder, device));
            HoldersReport {
                roles: roles.collect(),
                findings: find_causes(device, at),
                may_end: Vec::new(),
                device: device.clone(),
            }
        });
        Self {
            at,
            devices: devices.collect(),
        }
    }

    pub(super) fn page(&self, start: usize, caller: &Caller, roles: &Roles) -> HoldersPage {
        let mut page = HoldersPageBuilder {
            room: PageRoom::new(usize::MAX, MAX_PAGE_BYTES),
            devices: Vec::new(),
        };
        let mut position = 0;
        let mut next = None;
        'devices: for report in &self.devices {
            let behind = position + 1 + report.device.holders.len();
            if behind <= start {
                position = behind;
                continue;
            }
            let mut taken = if position >= start {
                if !page.push_device(&report_without_holders(report, caller, roles)) {
                    next = Some(position);
                    break;
                }
                position += 1;
                0
            } else {
                // The holders of the previous page's device continue.
                let continued = empty_report(&report.device, Vec::new());
                page.devices.push(continued);
                let taken = start - position - 1;
                position = start;
                taken
            };
            while let Some((holder, role)) = report
                .device
                .holders
                .get(taken)
                .zip(report.roles.get(taken))
            {
                if !page.push_holder(&redact(caller, roles, holder), *role) {
                    next = Some(position);
                    break 'devices;
                }
                position += 1;
                taken += 1;
            }
        }
        HoldersPage {
            at: self.at,
            devices: page.devices,
            next: next.map(|next| u32::try_from(next).unwrap_or(u32::MAX)),
        }
    }
}

/// A page that is being filled.
struct HoldersPageBuilder {
    room: PageRoom,
    devices: Vec<HoldersReport>,
}

impl HoldersPageBuilder {
    /// Adds a device without its holders, if there is room.
    fn push_device(&mut self, head: &HoldersReport) -> bool {
        let fits = self.room.take(head);
        if fits {
            self.devices.push(head.clone());
        }
        fits
    }

    /// Adds a holder of the last device, if there is room.
    fn push_holder(&mut self, holder: &Holder, role: Role) -> bool {
        let fits = self.room.take(holder);
        if let Some(last) = self.devices.last_mut().filter(|_| fits) {
            last.device.holders.push(holder.clone());
            last.roles.push(role);
        }
        fits
    }
}

/// A device with its findings, and without its holders.
fn report_without_holders(report: &HoldersReport, caller: &Caller, roles: &Roles) -> HoldersReport {
    let ended = report.device.ended.iter().take(MAX_ENDED_HOLDERS);
    let named = report.findings.iter().flat_map(|finding| &finding.pids);
    let named: BTreeSet<u32> = named.copied().into_set();
    let holders = report.device.holders.iter();
    let may_end = holders
        .filter(|holder| named.contains(&holder.pid) && may_end(caller, roles, holder))
        .map(|holder| holder.pid);
    HoldersReport {
        may_end: may_end.collect(),
        findings: report.findings.clone(),
        ..empty_report(&report.device, ended.cloned().collect())
    }
}

fn empty_report(device: &DeviceHolders, ended: Vec<EndedHolder>) -> HoldersReport {
    HoldersReport {
        device: DeviceHolders {
            id: device.id.clone(),
            index: device.index,
            name: device.name.clone(),
            memory_total: device.memory_total.clone(),
            memory_used: device.memory_used.clone(),
            memory_unattributed: device.memory_unattributed.clone(),
            utilization: device.utilization.clone(),
            busy_without_holder_since: device.busy_without_holder_since,
            holders: Vec::new(),
            ended,
            incomplete_reason: device.incomplete_reason.clone(),
        },
        roles: Vec::new(),
        findings: Vec::new(),
        may_end: Vec::new(),
    }
}

fn may_end(caller: &Caller, roles: &Roles, holder: &Holder) -> bool {
    let operation = Operation::End {
        uids: holder.uid.last_known().copied().map(Uids::from_single),
        namespace_owner: holder.namespace_owner.last_known().copied().flatten(),
    };
    check(caller, operation, roles) == Ruling::Allow
}

/// A holder as this caller may see it.
pub(super) fn redact(caller: &Caller, roles: &Roles, holder: &Holder) -> Holder {
    let mut shown = holder.clone();
    let namespace_owner = holder.namespace_owner.last_known().copied().flatten();
    let owners = (holder.uid.last_known().copied(), namespace_owner);
    if !may_read_command(caller, owners, roles) {
        shown.command = Reading::Withheld;
    }
    shown
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use gpukill_policy::access::LimitGroup;
    use gpukill_proto::holders::{Cause, ProcessState};
    use gpukill_proto::model::{DeviceId, GpuUse, ProcessKey};
    use gpukill_proto::transport::codec::encoded_size;
    use gpukill_proto::units::{Bytes, Percent};

    pub(in crate::server) const NOW: Timestamp = Timestamp(1_795_269_751_250);

    pub(in crate::server) fn holder(pid: u32, uid: u32) -> Holder {
        Holder {
            pid,
            start_ticks: Reading::Value(1),
            uid: Reading::Value(uid),
            user: Reading::Unsupported,
            owner: Reading::Unsupported,
            namespace_owner: Reading::Value(None),
            name: Reading::Value("python".into()),
            command: Reading::Value("x".repeat(512)),
            state: Reading::Value(ProcessState::Sleeping),
            parent: Reading::Value(1),
            parent_name: Reading::Value("systemd".into()),
            group: Reading::Value(7),
            group_leader_is_here: Reading::Value(false),
            inner_pid: Reading::Value(None),
            container: Reading::Value(None),
            holds: vec!["nvidia0".into()],
            holds_this_device: true,
            listed: false,
            shares_with: None,
            passed_from: None,
            used_for: GpuUse::default(),
            memory: Reading::Unsupported,
        }
    }

    pub(in crate::server) fn device(index: u32, holders: Vec<Holder>) -> DeviceHolders {
        DeviceHolders {
            id: DeviceId(format!("GPU-{index}")),
            index,
            name: Reading::Value("H100".into()),
            memory_total: Reading::Value(Bytes(80 << 30)),
            memory_used: Reading::Value(Bytes(35 << 30)),
            memory_unattributed: Reading::Value(Bytes(35 << 30)),
            utilization: Reading::Value(Percent(0)),
            busy_without_holder_since: None,
            holders,
            ended: vec![EndedHolder {
                key: ProcessKey {
                    pid: 7,
                    start_ticks: 1,
                },
                name: Reading::Unsupported,
                user: Reading::Unsupported,
                memory: Reading::Unsupported,
                unattributed_before: Reading::Unsupported,
                at: NOW,
            }],
            incomplete_reason: None,
        }
    }

    fn caller(uid: u32) -> Caller {
        Caller {
            uid,
            groups: [uid].into(),
            contained: false,
            limit_group: LimitGroup::Person(uid),
        }
    }

    /// All pages put together as a client does, and their number.
    fn fetch_all(
        answer: &HoldersAnswer,
        caller: &Caller,
        roles: &Roles,
    ) -> (Vec<HoldersReport>, usize) {
        let (mut whole, mut start, mut pages): (Vec<HoldersReport>, _, _) = (Vec::new(), 0, 0);
        loop {
            let page = answer.page(start, caller, roles);
            assert!(encoded_size(&page).unwrap() < 128 << 10);
            pages += 1;
            for report in page.devices {
                match whole
                    .last_mut()
                    .filter(|last| last.device.id == report.device.id)
                {
                    Some(last) => {
                        last.device.holders.extend(report.device.holders);
                        last.roles.extend(report.roles);
                        assert_eq!((report.findings, report.device.ended), (vec![], vec![]));
                    }
                    None => whole.push(report),
                }
            }
            match page.next {
                Some(next) => {
                    assert!(next as usize > start);
                    start = next as usize;
                }
                None => return (whole, pages),
            }
        }
    }

    #[test]
    fn five_thousand_holders_fit_pages() {
        let devices = [
            device(0, vec![]),
            device(1, (2..5_002).map(|pid| holder(pid, 1000)).collect()),
            device(2, vec![]),
            device(3, (2..300).map(|pid| holder(pid, 1000)).collect()),
        ];
        let answer = HoldersAnswer::new(&devices, NOW);
        let (whole, pages) = fetch_all(&answer, &caller(1000), &Roles::default());
        let without_rights = |report: HoldersReport| HoldersReport {
            may_end: Vec::new(),
            ..report
        };
        // A finding names the first processes only.
        let named = whole[1].findings.iter().flat_map(|finding| &finding.pids);
        let named: BTreeSet<u32> = named.copied().collect();
        assert!(whole[1].may_end.iter().eq(&named), "{named:?}");
        let whole: Vec<_> = whole.into_iter().map(without_rights).collect();
        assert_eq!(whole, answer.devices);
        assert!(pages > 40, "{pages}");
        assert_eq!(whole[0].findings[0].cause, Cause::Unknown);
        assert_eq!(whole[1].findings[0].cause, Cause::Orphans);
        assert_eq!(whole[1].roles.len(), 5_000);
    }

    #[test]
    fn page_starts_anywhere() {
        let devices = [
            device(0, vec![holder(2, 1000), holder(3, 1000)]),
            device(1, vec![holder(4, 1000)]),
        ];
        let answer = HoldersAnswer::new(&devices, NOW);
        let from = |start| {
            let page = answer.page(start, &caller(1000), &Roles::default());
            assert_eq!(page.next, None);
            let pids = |report: HoldersReport| {
                let holders = report.device.holders.iter().map(|holder| holder.pid);
                (report.device.index, holders.collect::<Vec<_>>())
            };
            page.devices.into_iter().map(pids).collect::<Vec<_>>()
        };
        assert_eq!(from(0), [(0, vec![2, 3]), (1, vec![4])]);
        assert_eq!(from(1), [(0, vec![2, 3]), (1, vec![4])]);
        assert_eq!(from(2), [(0, vec![3]), (1, vec![4])]);
        assert_eq!(from(3), [(1, vec![4])]);
        assert_eq!(from(4), [(1, vec![4])]);
        assert_eq!(from(5), []);
        assert_eq!(from(usize::MAX), []);
    }

    #[test]
    fn caller_may_end_own_processes_of_findings() {
        let devices = [device(0, vec![holder(2, 1000), holder(3, 1001)])];
        let answer = HoldersAnswer::new(&devices, NOW);
        assert_eq!(answer.devices[0].findings[0].pids, [2, 3]);
        let roles = Roles {
            operator_group: Some(7),
            ..Roles::default()
        };
        let may_end = |caller: &Caller| answer.page(0, caller, &roles).devices[0].may_end.clone();
        let operator = Caller {
            groups: [7].into(),
            ..caller(1002)
        };
        assert_eq!(may_end(&caller(1001)), [3]);
        assert_eq!(may_end(&caller(1002)), [0; 0]);
        assert_eq!(may_end(&operator), [2, 3]);
    }

    #[test]
    fn commands_of_others_are_hidden() {
        let devices = [device(0, vec![holder(2, 1000), holder(3, 1001)])];
        let hidden = Roles {
            hide_other_users: true,
            ..Roles::default()
        };
        let answer = HoldersAnswer::new(&devices, NOW);
        let (whole, _) = fetch_all(&answer, &caller(1000), &hidden);
        let expected = Holder {
            command: Reading::Withheld,
            ..holder(3, 1001)
        };
        assert_eq!(whole[0].device.holders, [holder(2, 1000), expected]);
    }
}
