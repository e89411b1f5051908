//! Which processes are watched if there are too many.

use super::*;

#[test]
fn one_owner_cannot_displace_others() {
    let of = |pid: u32, uid: u32| GpuProcess {
        owner: Reading::Value(gpukill_proto::model::Owner {
            name: format!("u{uid}"),
            uid: Some(uid),
            kind: gpukill_proto::model::OwnerKind::User,
        }),
        ..process(pid, "x")
    };
    let mut processes: Vec<GpuProcess> = (1..=50).map(|pid| of(pid, 1001)).collect();
    processes.extend([of(60, 1002), of(61, 1002)]);
    let snapshot = snapshot(1, &processes);
    let (watched, beyond) = select_present(&snapshot, 10);
    let pids: Vec<u32> = watched.keys().map(|key| key.pid).collect();
    assert_eq!((pids, beyond), (vec![1, 2, 3, 4, 5, 6, 7, 8, 60, 61], 42));
    assert_eq!(select_present(&snapshot, 52).1, 0);
}
