//! A snapshot cut into pages that fit a frame, and what this caller may see of
//! it.

use gpukill_policy::access::{Caller, Operation, Roles, Ruling, check};
use gpukill_proto::guard::GuardBrief;
use gpukill_proto::reading::Reading;
use gpukill_proto::service::SnapshotPage;
use gpukill_proto::snapshot::{GpuProcess, Snapshot};
use gpukill_proto::transport::codec::encoded_size;

/// The most bytes of processes on one page. A page has the devices besides,
/// some hundred bytes each, and a frame takes 4 MiB.
pub(super) const PAGE: u64 = 64 << 10;

/// The page that begins with process `start`.
pub(super) fn page(
    snapshot: &Snapshot,
    start: usize,
    caller: &Caller,
    roles: &Roles,
) -> SnapshotPage {
    let mut size = 0;
    let rest = snapshot.processes.get(start..).unwrap_or_default();
    let processes: Vec<GpuProcess> = rest
        .iter()
        .map(|process| shown_to(caller, roles, process))
        .take_while(|process| {
            size += encoded_size(process).unwrap_or(PAGE);
            size <= PAGE
        })
        .collect();
    // A process that alone is too large is skipped: it would be for ever.
    let taken = processes
        .len()
        .max(usize::from(!rest.is_empty() && processes.is_empty()));
    let end = start + taken;
    let next = (end < snapshot.processes.len()).then(|| u32::try_from(end).unwrap_or(u32::MAX));
    let snapshot = Snapshot {
        host: snapshot.host.clone(),
        taken_at: snapshot.taken_at,
        tick: snapshot.tick,
        devices: snapshot.devices.clone(),
        processes,
        backends: snapshot.backends.clone(),
        faults: snapshot.faults.clone(),
    };
    SnapshotPage {
        snapshot,
        next,
        // Of the whole, and not of a page: whoever asks first gets it.
        guard: GuardBrief::default(),
        suspected: Vec::new(),
    }
}

/// A process as this caller may see it.
pub(super) fn shown_to(caller: &Caller, roles: &Roles, process: &GpuProcess) -> GpuProcess {
    let mut shown = process.clone();
    match check(
        caller,
        Operation::ReadCommand {
            owner: process.uid.last_known().copied(),
            namespace_owner: process.namespace_owner.last_known().copied().flatten(),
        },
        roles,
    ) {
        Ruling::Allow => {}
        Ruling::Deny(_) => {
            shown.command = Reading::Withheld;
            shown.executable = Reading::Withheld;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_policy::access::LimitGroup;
    use gpukill_proto::snapshot::DeviceId;
    use gpukill_proto::units::Timestamp;

    fn process(pid: u32, uid: u32) -> GpuProcess {
        let device = DeviceId("GPU-0".into());
        GpuProcess {
            uid: Reading::Value(uid),
            executable: Reading::Value("/usr/bin/python3".into()),
            command: Reading::Value("x".repeat(512)),
            ..GpuProcess::unknown(device, pid, Timestamp(0), &Reading::Unsupported)
        }
    }

    fn snapshot(processes: Vec<GpuProcess>) -> Snapshot {
        Snapshot {
            host: "box".into(),
            taken_at: Timestamp(0),
            tick: 7,
            devices: Vec::new(),
            processes,
            backends: Vec::new(),
            faults: Vec::new(),
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

    #[test]
    fn five_thousand_processes_arrive_whole_in_pages_that_fit() {
        let whole = snapshot((1..=5_000).map(|pid| process(pid, 1000)).collect());
        let (mut start, mut pids, mut pages) = (0, Vec::new(), 0);
        loop {
            let page = page(&whole, start, &caller(1000), &Roles::default());
            assert!(encoded_size(&page).unwrap() < 1 << 20);
            pids.extend(page.snapshot.processes.iter().map(|process| process.pid));
            pages += 1;
            match page.next {
                Some(next) => start = next as usize,
                None => break,
            }
        }
        assert_eq!(pids, (1..=5_000).collect::<Vec<_>>());
        assert!(pages > 5, "{pages}");
    }

    #[test]
    fn a_start_behind_the_end_is_an_empty_last_page() {
        let page = page(
            &snapshot(vec![process(1, 1)]),
            9,
            &caller(1),
            &Roles::default(),
        );
        assert_eq!((page.snapshot.processes.len(), page.next), (0, None));
    }

    #[test]
    fn others_command_lines_are_hidden_where_the_admin_says_so() {
        let whole = snapshot(vec![process(1, 1000), process(2, 1001)]);
        let hidden = Roles {
            hide_other_users: true,
            ..Roles::default()
        };
        let shown = page(&whole, 0, &caller(1000), &hidden).snapshot.processes;
        assert_eq!(shown[0], whole.processes[0]);
        assert_eq!(shown[1].command, Reading::Withheld);
        assert_eq!(shown[1].executable, Reading::Withheld);
        assert_eq!(shown[1].memory, whole.processes[1].memory);
    }
}
