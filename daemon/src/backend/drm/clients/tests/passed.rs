//! Tests of descriptors that are passed between processes of different persons.

use super::*;

const LINES: &str = "drm-resident-vram: 5";

/// Process 7 belongs to user 1000, process 8 to user 1001.
fn two_persons() -> ClientFixture {
    let fixture = ClientFixture::new();
    fixture.set_person(process(7), 1000);
    fixture.set_person(process(8), 1001);
    fixture
}

/// Process 7 closes its descriptor of client 1, and the descriptor scan has noticed.
fn close_and_forget(fixture: &mut ClientFixture) {
    fixture.close(process(7), 3);
    fixture.found.processes.remove(&process(7));
}

/// A holder, the first holder, and the first holder's user.
type PassedHolder = (u32, u32, Option<u32>);

fn passed(used: &CardUsage) -> Vec<PassedHolder> {
    let passed = used.passed_clients.iter();
    passed
        .map(|it| (it.key.pid, it.first.pid, it.first.uid))
        .collect()
}

/// The process that owns the only client, with its five bytes, at the next poll.
#[track_caller]
fn only_owner(fixture: &mut ClientFixture) -> u32 {
    let used = fixture.poll_next_second();
    let owners = memory(&used);
    assert_eq!((owners.len(), passed(&used)), (1, vec![]));
    assert_eq!(owners[0].1, bytes(5));
    owners[0].0
}

#[test]
fn passed_client_has_no_owner() {
    let mut fixture = two_persons();
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(5))]);
    fixture.open(process(8), 3, &amdgpu(1, LINES));
    // Held by both.
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), []);
    assert_eq!(used.shared_clients, []);
    assert_eq!(passed(&used), [(7, 7, Some(1000)), (8, 7, Some(1000))]);
    close_and_forget(&mut fixture);
    // Its own client is known; only that one counts.
    fixture.open(process(8), 4, &amdgpu(2, "drm-resident-vram: 3"));
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), [(8, bytes(3))]);
    assert_eq!(passed(&used), [(8, 7, Some(1000))]);
    // The client does not return to its first holder either.
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    fixture.found.processes.remove(&process(8));
    assert_eq!(memory(&fixture.poll_next_second()), []);
}

#[test]
fn client_in_transit_is_remembered() {
    let mut fixture = two_persons();
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    let _ = fixture.poll_next_second();
    close_and_forget(&mut fixture);
    let used = fixture.poll_next_second();
    assert_eq!((memory(&used), passed(&used)), (vec![], vec![]));
    fixture.open(process(8), 3, &amdgpu(1, LINES));
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), []);
    assert_eq!(passed(&used), [(8, 7, Some(1000))]);
}

#[test]
fn forgotten_clients_have_no_owner() {
    let mut fixture = two_persons();
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    let _ = fixture.poll_next_second();
    close_and_forget(&mut fixture);
    for round in 0..3u64 {
        for fd in 0..900 {
            let client = 100 + round * 900 + u64::from(fd);
            fixture.open(process(7), fd, &amdgpu(client, ""));
        }
        let _ = fixture.poll_next_second();
    }
    fixture.found.processes.clear();
    let _ = fixture.poll_next_second();
    assert!(fixture.clients.origins.origin_count() <= 1_024);
    fixture.open(process(8), 3, &amdgpu(1, LINES));
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), []);
    assert_eq!(passed(&used), [(8, 8, Some(1001))]);
    // A new client belongs to its opener.
    fixture.open(process(8), 3, &amdgpu(9_999, LINES));
    assert_eq!(memory(&fixture.poll_next_second()), [(8, bytes(5))]);
}

#[test]
fn only_root_logind_opens_for_others() {
    let in_container = format!("/docker/0a1b{LOGIND_UNIT}");
    for root_of in [None, Some("/docker/0a1b"), Some(in_container.as_str())] {
        let mut fixture = two_persons();
        fixture.set_name(process(7), "systemd-logind");
        if let Some(cgroup) = root_of {
            fixture.set_logind(process(7), cgroup);
        }
        for pid in [7, 8] {
            fixture.open(process(pid), 3, &amdgpu(1, LINES));
        }
        let used = fixture.poll_next_second();
        assert_eq!(memory(&used), [], "{root_of:?}");
        assert_eq!(passed(&used).len(), 2, "{root_of:?}");
    }
    // The real logind does, also where gpukilld is in a cgroup namespace of its own.
    for above in ["", "/../.."] {
        let mut fixture = two_persons();
        fixture.set_logind(process(7), &format!("{above}{LOGIND_UNIT}"));
        fixture.open(process(7), 3, &amdgpu(1, LINES));
        let _ = fixture.poll_next_second();
        fixture.open(process(8), 3, &amdgpu(1, LINES));
        assert_eq!(only_owner(&mut fixture), 8, "{above}");
    }
}

#[test]
fn process_keeps_client_after_setuid() {
    let mut fixture = two_persons();
    fixture.set_person(process(7), 0);
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    let _ = fixture.poll_next_second();
    fixture.set_person(process(7), 1000);
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(5))]);
}

#[test]
fn uninspectable_process_owns_nothing() {
    let mut fixture = two_persons();
    std::fs::write(fixture.directory(8).join("person"), "?").unwrap();
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    let _ = fixture.poll_next_second();
    close_and_forget(&mut fixture);
    fixture.open(process(8), 3, &amdgpu(1, LINES));
    let used = fixture.poll_next_second();
    assert_eq!((memory(&used), passed(&used)), (vec![], vec![]));
}

#[test]
fn users_of_one_person_are_the_same() {
    let mut fixture = two_persons();
    fixture.set_users_person(1001, "1000");
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    fixture.open(process(8), 3, &amdgpu(1, LINES));
    assert_eq!(only_owner(&mut fixture), 7);
    // The opener ends, and its child continues.
    close_and_forget(&mut fixture);
    assert_eq!(only_owner(&mut fixture), 8);
    // A third person still counts as different.
    fixture.set_person(process(9), 1002);
    fixture.open(process(9), 3, &amdgpu(1, LINES));
    assert_eq!(passed(&fixture.poll_next_second()).len(), 2);
}

#[test]
fn slice_decides_the_person() {
    let mut fixture = two_persons();
    std::fs::write(fixture.directory(8).join("slice"), "1000").unwrap();
    for pid in [7, 8] {
        fixture.open(process(pid), 3, &amdgpu(1, LINES));
    }
    assert_eq!(only_owner(&mut fixture), 7);
    // One user in the slices of two persons counts as two persons.
    fixture.set_person(process(9), 1000);
    std::fs::write(fixture.directory(9).join("slice"), "1002").unwrap();
    fixture.open(process(9), 3, &amdgpu(1, LINES));
    assert_eq!(passed(&fixture.poll_next_second()).len(), 3);
}

#[test]
fn unknown_person_is_resolved_later() {
    for (person, expected, passed_to) in [("1000", vec![(7, bytes(5))], 0), ("1001", vec![], 2)] {
        let mut fixture = two_persons();
        fixture.set_users_person(1001, "?");
        for pid in [7, 8] {
            fixture.open(process(pid), 3, &amdgpu(1, LINES));
        }
        let used = fixture.poll_next_second();
        assert_eq!((memory(&used), passed(&used)), (vec![], vec![]));
        fixture.set_users_person(1001, person);
        let used = fixture.poll_next_second();
        assert_eq!(memory(&used), expected);
        assert_eq!(passed(&used).len(), passed_to);
    }
}

#[test]
fn many_users_do_not_hide_another_person() {
    let mut fixture = two_persons();
    for pid in 100..200 {
        fixture.set_users_person(2000 + pid, "?");
        fixture.set_person(process(pid), 2000 + pid);
        fixture.open(process(pid), 3, &amdgpu(1, LINES));
    }
    fixture.open(process(7), 3, &amdgpu(1, LINES));
    assert_eq!(memory(&fixture.poll_next_second()), []);
    (100..200).for_each(|pid| fixture.set_users_person(2000 + pid, "1000"));
    assert_eq!(only_owner(&mut fixture), 7);
    fixture.open(process(8), 3, &amdgpu(1, LINES));
    assert_eq!(passed(&fixture.poll_next_second()).len(), 102);
}

/// Writes the kernel's record of the last user of client 1.
fn last_user(fixture: &ClientFixture, pid: u32) {
    let file = fixture.root.path().join("sys/kernel/debug/dri/128/clients");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!(
        "command tgid dev master a uid magic name id\n\
         python {pid} 128 n n 0 0 <unset> 1\n"
    );
    std::fs::write(file, text).unwrap();
}

#[test]
fn kernel_record_reveals_ended_sender() {
    let first = |pid, uid| vec![(8, pid, uid)];
    let cases: [(u32, Option<u32>, Vec<PassedHolder>); 4] = [
        // The last user is the holder itself, or a process of the same person.
        (8, None, vec![]),
        (9, Some(1001), vec![]),
        (7, Some(1000), first(7, Some(1000))),
        // It has ended.
        (6, None, first(6, None)),
    ];
    for (pid, person, expected) in cases {
        let mut fixture = two_persons();
        if let Some(person) = person {
            fixture.set_person(process(pid), person);
        } else if pid != 8 {
            std::fs::create_dir_all(fixture.directory(pid)).unwrap();
            std::fs::write(fixture.directory(pid).join("person"), "?").unwrap();
        }
        last_user(&fixture, pid);
        fixture.open(process(8), 3, &amdgpu(1, LINES));
        let used = fixture.poll_next_second();
        assert_eq!(passed(&used), expected, "{pid}");
        assert_eq!(memory(&used).is_empty(), !expected.is_empty(), "{pid}");
    }
}
