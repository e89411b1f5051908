//! Who is watched where there are too many.

use super::*;

#[test]
fn one_owners_many_processes_take_nobody_elses_place() {
    let of = |pid: u32, uid: u32| GpuProcess {
        owner: Reading::Value(gpukill_proto::snapshot::Owner {
            name: format!("u{uid}"),
            uid: Some(uid),
            kind: gpukill_proto::snapshot::OwnerKind::User,
        }),
        ..process(pid, "x")
    };
    let mut processes: Vec<GpuProcess> = (1..=50).map(|pid| of(pid, 1001)).collect();
    processes.extend([of(60, 1002), of(61, 1002)]);
    let snapshot = snapshot(1, &processes);
    let (watched, beyond) = present(&snapshot, 10);
    let pids: Vec<u32> = watched.keys().map(|key| key.pid).collect();
    assert_eq!((pids, beyond), (vec![1, 2, 3, 4, 5, 6, 7, 8, 60, 61], 42));
    assert_eq!(present(&snapshot, 52).1, 0);
}
