//! Descriptors that are passed from one person's process to another's.

use super::*;

const LINES: &str = "drm-resident-vram: 5";

/// Process 7 is of user 1000, process 8 of user 1001.
fn two_persons() -> Stage {
    let stage = Stage::new();
    stage.belongs_to(process(7), 1000);
    stage.belongs_to(process(8), 1001);
    stage
}

/// Process 7 closes its descriptor of client 1, and the search has seen it.
fn closes(stage: &mut Stage) {
    stage.close(process(7), 3);
    stage.found.processes.remove(&process(7));
}

/// A holder, the first holder, and the user of that.
type Passed = (u32, u32, Option<u32>);

fn passed(used: &Used) -> Vec<Passed> {
    let passed = used.passed.iter();
    passed
        .map(|it| (it.key.pid, it.first.pid, it.first.uid))
        .collect()
}

#[test]
fn a_client_that_went_over_to_another_person_belongs_to_nobody() {
    let mut stage = two_persons();
    stage.open(process(7), 3, &amdgpu(1, LINES));
    assert_eq!(memory(&stage.next()), [(7, bytes(5))]);
    stage.open(process(8), 3, &amdgpu(1, LINES));
    // Held by both.
    let used = stage.next();
    assert_eq!(memory(&used), []);
    assert_eq!(used.sharers, []);
    assert_eq!(passed(&used), [(7, 7, Some(1000)), (8, 7, Some(1000))]);
    closes(&mut stage);
    // By its own client it is known; that one alone counts.
    stage.open(process(8), 4, &amdgpu(2, "drm-resident-vram: 3"));
    let used = stage.next();
    assert_eq!(memory(&used), [(8, bytes(3))]);
    assert_eq!(passed(&used), [(8, 7, Some(1000))]);
    // Nor does it become its first holder's again.
    stage.open(process(7), 3, &amdgpu(1, LINES));
    stage.found.processes.remove(&process(8));
    assert_eq!(memory(&stage.next()), []);
}

#[test]
fn a_client_on_its_way_between_two_processes_is_remembered() {
    let mut stage = two_persons();
    stage.open(process(7), 3, &amdgpu(1, LINES));
    let _ = stage.next();
    closes(&mut stage);
    let used = stage.next();
    assert_eq!((memory(&used), passed(&used)), (vec![], vec![]));
    stage.open(process(8), 3, &amdgpu(1, LINES));
    let used = stage.next();
    assert_eq!(memory(&used), []);
    assert_eq!(passed(&used), [(8, 7, Some(1000))]);
}

#[test]
fn nobody_makes_a_client_be_forgotten_by_opening_many() {
    let mut stage = two_persons();
    stage.open(process(7), 3, &amdgpu(1, LINES));
    let _ = stage.next();
    closes(&mut stage);
    for round in 0..3u64 {
        for fd in 0..900 {
            let client = 100 + round * 900 + u64::from(fd);
            stage.open(process(7), fd, &amdgpu(client, ""));
        }
        let _ = stage.next();
    }
    stage.found.processes.clear();
    let _ = stage.next();
    assert!(stage.clients.origins.remembered() <= 1_024);
    stage.open(process(8), 3, &amdgpu(1, LINES));
    let used = stage.next();
    assert_eq!(memory(&used), []);
    assert_eq!(passed(&used), [(8, 8, Some(1001))]);
    // A new one is its own.
    stage.open(process(8), 3, &amdgpu(9_999, LINES));
    assert_eq!(memory(&stage.next()), [(8, bytes(5))]);
}

#[test]
fn whoever_is_called_logind_and_is_not_root_opens_nothing_for_others() {
    let mut stage = two_persons();
    stage.name(process(7), "systemd-logind");
    for pid in [7, 8] {
        stage.open(process(pid), 3, &amdgpu(1, LINES));
    }
    let used = stage.next();
    assert_eq!(memory(&used), []);
    assert_eq!(passed(&used).len(), 2);
    // The real one does.
    let mut stage = two_persons();
    stage.name(process(7), "systemd-logind");
    stage.belongs_to(process(7), 0);
    stage.open(process(7), 3, &amdgpu(1, LINES));
    let _ = stage.next();
    stage.open(process(8), 3, &amdgpu(1, LINES));
    let used = stage.next();
    assert_eq!(
        (memory(&used), passed(&used)),
        (vec![(8, bytes(5))], vec![])
    );
}

#[test]
fn a_process_that_becomes_another_user_keeps_its_client() {
    let mut stage = two_persons();
    stage.belongs_to(process(7), 0);
    stage.open(process(7), 3, &amdgpu(1, LINES));
    let _ = stage.next();
    stage.belongs_to(process(7), 1000);
    assert_eq!(memory(&stage.next()), [(7, bytes(5))]);
}

#[test]
fn whom_nobody_can_look_at_answers_for_nothing() {
    let mut stage = two_persons();
    std::fs::write(stage.directory(8).join("person"), "?").unwrap();
    stage.open(process(7), 3, &amdgpu(1, LINES));
    let _ = stage.next();
    closes(&mut stage);
    stage.open(process(8), 3, &amdgpu(1, LINES));
    let used = stage.next();
    assert_eq!((memory(&used), passed(&used)), (vec![], vec![]));
}

#[test]
fn a_second_user_of_the_same_person_is_nobody_else() {
    let mut stage = two_persons();
    stage.user_is_of(1001, "1000");
    stage.open(process(7), 3, &amdgpu(1, LINES));
    stage.open(process(8), 3, &amdgpu(1, LINES));
    let used = stage.next();
    assert_eq!(
        (memory(&used), passed(&used)),
        (vec![(7, bytes(5))], vec![])
    );
    // The opener ends, and its child goes on.
    closes(&mut stage);
    let used = stage.next();
    assert_eq!(
        (memory(&used), passed(&used)),
        (vec![(8, bytes(5))], vec![])
    );
    // Somebody else still is.
    stage.belongs_to(process(9), 1002);
    stage.open(process(9), 3, &amdgpu(1, LINES));
    assert_eq!(passed(&stage.next()).len(), 2);
}

#[test]
fn another_user_in_the_same_persons_slice_is_nobody_else() {
    let mut stage = two_persons();
    std::fs::write(stage.directory(8).join("slice"), "1000").unwrap();
    for pid in [7, 8] {
        stage.open(process(pid), 3, &amdgpu(1, LINES));
    }
    let used = stage.next();
    assert_eq!(
        (memory(&used), passed(&used)),
        (vec![(7, bytes(5))], vec![])
    );
    // One user in the slices of two persons is two.
    stage.belongs_to(process(9), 1000);
    std::fs::write(stage.directory(9).join("slice"), "1002").unwrap();
    stage.open(process(9), 3, &amdgpu(1, LINES));
    assert_eq!(passed(&stage.next()).len(), 3);
}

#[test]
fn a_person_that_is_not_known_yet_makes_no_client_nobodys_for_good() {
    for (person, expected, passed_to) in [("1000", vec![(7, bytes(5))], 0), ("1001", vec![], 2)] {
        let mut stage = two_persons();
        stage.user_is_of(1001, "?");
        for pid in [7, 8] {
            stage.open(process(pid), 3, &amdgpu(1, LINES));
        }
        let used = stage.next();
        assert_eq!((memory(&used), passed(&used)), (vec![], vec![]));
        stage.user_is_of(1001, person);
        let used = stage.next();
        assert_eq!(memory(&used), expected);
        assert_eq!(passed(&used).len(), passed_to);
    }
}

#[test]
fn many_users_of_one_person_leave_room_for_somebody_else() {
    let mut stage = two_persons();
    for pid in 100..200 {
        stage.user_is_of(2000 + pid, "?");
        stage.belongs_to(process(pid), 2000 + pid);
        stage.open(process(pid), 3, &amdgpu(1, LINES));
    }
    stage.open(process(7), 3, &amdgpu(1, LINES));
    assert_eq!(memory(&stage.next()), []);
    (100..200).for_each(|pid| stage.user_is_of(2000 + pid, "1000"));
    let used = stage.next();
    assert_eq!(
        (memory(&used), passed(&used)),
        (vec![(7, bytes(5))], vec![])
    );
    stage.open(process(8), 3, &amdgpu(1, LINES));
    assert_eq!(passed(&stage.next()).len(), 102);
}

/// What the kernel keeps of the last user of client 1.
fn last_user(stage: &Stage, pid: u32) {
    let file = stage.root.path().join("sys/kernel/debug/dri/128/clients");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!(
        "command tgid dev master a uid magic name id\n\
         python {pid} 128 n n 0 0 <unset> 1\n"
    );
    std::fs::write(file, text).unwrap();
}

#[test]
fn a_sender_that_ended_before_it_was_seen_is_known_by_the_kernel() {
    let first = |pid, uid| vec![(8, pid, uid)];
    let cases: [(u32, Option<u32>, Vec<Passed>); 4] = [
        // It used it itself, or somebody of the same person did.
        (8, None, vec![]),
        (9, Some(1001), vec![]),
        (7, Some(1000), first(7, Some(1000))),
        // It has ended.
        (6, None, first(6, None)),
    ];
    for (pid, person, expected) in cases {
        let mut stage = two_persons();
        if let Some(person) = person {
            stage.belongs_to(process(pid), person);
        } else if pid != 8 {
            std::fs::create_dir_all(stage.directory(pid)).unwrap();
            std::fs::write(stage.directory(pid).join("person"), "?").unwrap();
        }
        last_user(&stage, pid);
        stage.open(process(8), 3, &amdgpu(1, LINES));
        let used = stage.next();
        assert_eq!(passed(&used), expected, "{pid}");
        assert_eq!(memory(&used).is_empty(), !expected.is_empty(), "{pid}");
    }
}
