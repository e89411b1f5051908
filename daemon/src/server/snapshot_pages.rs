//! Cuts a snapshot into pages that fit a frame, and hides what this caller may not see.

use gpukill_policy::access::{Caller, Roles, may_read_command};
use gpukill_proto::guard::GuardSummary;
use gpukill_proto::model::{GpuProcess, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::service::SnapshotPage;
use gpukill_proto::transport::codec::PageRoom;
use serde::Serialize;

/// The maximum size of the processes on one page. The page also holds the devices, some hundred
/// bytes each, and a frame takes 4 MiB.
pub(super) const MAX_PAGE_BYTES: u64 = 64 << 10;

/// The page that starts with process `start`.
pub(super) fn page(
    snapshot: &Snapshot,
    start: usize,
    caller: &Caller,
    roles: &Roles,
) -> SnapshotPage {
    let (processes, next) = take_page(&snapshot.processes, start, |process| {
        redact(caller, roles, process)
    });
    let snapshot = Snapshot {
        host: snapshot.host.clone(),
        taken_at: snapshot.taken_at,
        polls: snapshot.polls,
        devices: snapshot.devices.clone(),
        processes,
        backends: snapshot.backends.clone(),
        faults: snapshot.faults.clone(),
    };
    SnapshotPage {
        snapshot,
        next,
        // They concern the whole snapshot and are sent with the first page only.
        guard: GuardSummary::default(),
        verdicts: Vec::new(),
    }
}

/// The items from `start` on that fit a page, as shown, and the position of the first one that is
/// missing.
pub(super) fn take_page<T: Serialize>(
    all: &[T],
    start: usize,
    shown: impl Fn(&T) -> T,
) -> (Vec<T>, Option<u32>) {
    let mut room = PageRoom::new(usize::MAX, MAX_PAGE_BYTES);
    let rest = all.get(start..).unwrap_or_default().iter();
    let some: Vec<T> = rest.map(shown).take_while(|it| room.take(it)).collect();
    let end = start.saturating_add(some.len());
    let next = (end < all.len()).then(|| u32::try_from(end).unwrap_or(u32::MAX));
    (some, next)
}

/// A process as this caller may see it.
pub(super) fn redact(caller: &Caller, roles: &Roles, process: &GpuProcess) -> GpuProcess {
    let mut shown = process.clone();
    let namespace_owner = process.namespace_owner.last_known().copied().flatten();
    let owners = (process.uid.last_known().copied(), namespace_owner);
    if !may_read_command(caller, owners, roles) {
        shown.command = Reading::Withheld;
        shown.executable = Reading::Withheld;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_policy::access::LimitGroup;
    use gpukill_proto::model::DeviceId;
    use gpukill_proto::transport::codec::encoded_size;
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
            polls: 7,
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
    fn five_thousand_processes_fit_pages() {
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
    fn start_past_the_end_is_empty() {
        let page = page(
            &snapshot(vec![process(1, 1)]),
            9,
            &caller(1),
            &Roles::default(),
        );
        assert_eq!((page.snapshot.processes.len(), page.next), (0, None));
    }

    #[test]
    fn item_too_large_for_a_page_is_a_page_of_its_own() {
        let large = "x".repeat(2 * MAX_PAGE_BYTES as usize);
        let all = [large, "y".into(), "z".into()];
        let page = |start| take_page(&all, start, String::clone);
        assert_eq!(page(0), (all[..1].to_vec(), Some(1)));
        assert_eq!(page(1), (all[1..].to_vec(), None));
    }

    #[test]
    fn commands_of_others_are_hidden() {
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
