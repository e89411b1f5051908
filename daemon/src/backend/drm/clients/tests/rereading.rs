//! Tests of how often descriptors are read, of changes between two readings, and of descriptors
//! that cannot be read.

use super::*;
use crate::backend::drm::clients::scan::RECHECK_INTERVAL;

fn memory_report(client: u64, count: u64) -> String {
    amdgpu(client, &format!("drm-resident-vram: {count}"))
}

/// The client has worked before.
fn busy_report(client: u64, count: u64) -> String {
    let lines = format!("drm-resident-vram: {count}\ndrm-engine-gfx: 9 ns");
    amdgpu(client, &lines)
}

#[test]
fn client_is_read_through_one_descriptor() {
    let mut fixture = ClientFixture::new();
    for fd in [3, 4] {
        fixture.open(process(7), fd, &memory_report(1, 5));
    }
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(5))]);
    // The second descriptor now belongs to another client, which has not been read yet.
    fixture.open(process(7), 4, &memory_report(2, 100));
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(5))]);
    fixture.open(process(7), 3, &memory_report(1, 6));
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(6))]);
    let used = fixture.poll(RECHECK_INTERVAL);
    assert_eq!(memory(&used), [(7, bytes(106))]);
}

#[test]
fn foreign_descriptors_are_rechecked() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, "pos: 0\n");
    assert_eq!(memory(&fixture.poll_next_second()), []);
    fixture.open(process(7), 3, &memory_report(1, 5));
    assert_eq!(memory(&fixture.poll_next_second()), []);
    assert_eq!(memory(&fixture.poll(RECHECK_INTERVAL)), [(7, bytes(5))]);
}

#[test]
fn changed_descriptor_is_noticed_at_once() {
    let mut fixture = ClientFixture::new();
    for fd in [3, 4] {
        fixture.open(process(7), fd, &busy_report(1, 5));
    }
    let _ = fixture.poll_next_second();
    fixture.open(process(7), 3, &busy_report(2, 100));
    let used = fixture.poll_next_second();
    // The first client is found at its other descriptor, and keeps its history.
    assert_eq!(memory(&used), [(7, bytes(105))]);
    assert_eq!(used.utilization, Reading::Unsupported);
    assert_eq!(fixture.poll_next_second().utilization, percent(0));
}

#[test]
fn closed_or_ended_is_no_fault() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &memory_report(1, 5));
    fixture.open(process(8), 3, &memory_report(2, 6));
    let _ = fixture.poll_next_second();
    fixture.close(process(7), 3);
    std::fs::remove_dir_all(fixture.directory(8)).unwrap();
    let used = fixture.poll_next_second();
    assert_eq!((used.processes, used.incomplete_reason), (vec![], None));
    fixture.found.processes.clear();
    let _ = fixture.poll_next_second();
    assert_eq!(fixture.clients.scan_state.clients.len(), 0);
}

#[test]
fn own_memory_is_remembered() {
    let mut fixture = ClientFixture::new();
    assert!(!fixture.poll_next_second().has_own_memory);
    fixture.open(process(7), 3, &memory_report(1, 5));
    assert!(fixture.poll_next_second().has_own_memory);
    fixture.close(process(7), 3);
    assert!(fixture.poll_next_second().has_own_memory);
}

#[test]
fn unreadable_descriptor_is_reported() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &memory_report(1, 5));
    fixture.open(process(8), 3, &memory_report(2, 6));
    fixture.close(process(7), 3);
    std::fs::create_dir(fixture.directory(7).join("fdinfo/3")).unwrap();
    let used = fixture.poll_next_second();
    let why = "a descriptor cannot be read: Is a directory (os error 21)";
    assert_eq!(used.incomplete_reason.as_deref(), Some(why));
    assert_eq!(memory(&used), [(8, bytes(6))]);
    assert_eq!(used.utilization, failed(why));
}

#[test]
fn descriptor_copies_hide_nothing() {
    let mut fixture = ClientFixture::new();
    let copies = 1_500;
    for fd in 0..copies {
        fixture.open(process(7), fd, &busy_report(1, 5));
    }
    fixture.open(process(7), copies, &memory_report(2, 9));
    fixture.open(process(8), 3, &memory_report(3, 6));
    // The memory that was read is a lower bound; the rest is read later.
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), [(7, bytes(5)), (8, bytes(6))]);
    let sm = |used: &CardUsage| used.processes[0].utilization.sm.clone();
    assert_eq!(sm(&used), failed("not all of its descriptors are read yet"));
    let _ = fixture.poll_next_second();
    for _ in 0..20 {
        let used = fixture.poll_next_second();
        assert_eq!(memory(&used), [(7, bytes(14)), (8, bytes(6))]);
        assert_eq!((sm(&used), used.fault), (percent(0), None));
    }
}

#[test]
fn many_descriptors_hide_no_other_process() {
    let mut fixture = ClientFixture::new();
    for fd in 0..=8_192 {
        fixture.open(process(7), fd, &busy_report(u64::from(fd / 4_096), 5));
    }
    fixture.open(process(8), 3, &memory_report(5_000, 6));
    (0..9).for_each(|_| drop(fixture.poll_next_second()));
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), [(7, bytes(10)), (8, bytes(6))]);
    assert_eq!(used.processes[0].utilization.sm, percent(0));
    let why = "it has the card open too often to read all descriptors";
    assert_eq!(used.utilization, failed(why));
    assert_eq!(used.incomplete_reason, None);
    let fault = "process 7 has card1 open too often to read all descriptors: actual use may be \
                 higher than shown";
    assert_eq!(used.fault.as_deref(), Some(fault));
}

#[test]
fn oversized_report_is_unknown() {
    let many = |key: &str, count: usize| -> String {
        let lines = (0..count).map(|n| format!("{key}{n}: 1 ns\n"));
        lines.collect()
    };
    let cases = [
        (
            many("drm-engine-e", 65),
            "its driver reports more than 64 engines",
        ),
        (
            many("drm-resident-vram", 33),
            "its driver reports more than 32 memory regions",
        ),
        (" ".repeat(64 << 10), "its fdinfo is longer than 64 KiB"),
    ];
    for (lines, why) in cases {
        let mut fixture = ClientFixture::new();
        fixture.open(process(6), 3, &busy_report(1, 5));
        fixture.open(process(7), 3, &busy_report(2, 5));
        let _ = fixture.poll_next_second();
        fixture.open(process(7), 3, &amdgpu(2, &lines));
        let used = fixture.poll_next_second();
        assert_eq!(memory(&used), [(6, bytes(5)), (7, failed(why))]);
        let unknown = || [failed(why), failed(why), failed(why)];
        assert_eq!(shares_of(&used.processes[1]), unknown());
        // The activity of the others is not the activity of all.
        assert_eq!(shares(&used), unknown());
        let others = [percent(0), percent(0), percent(0)];
        assert_eq!(shares_of(&used.processes[0]), others);
        // The start of the work that is reported then is unknown.
        fixture.open(process(7), 3, &busy_report(2, 5));
        let used = fixture.poll_next_second();
        assert_eq!(memory(&used), [(6, bytes(5)), (7, bytes(5))]);
        assert_eq!(used.processes[1].utilization.sm, Reading::Unsupported);
        assert_eq!(
            fixture.poll_next_second().processes[1].utilization.sm,
            percent(0)
        );
    }
}

#[test]
fn one_persons_processes_delay_no_other() {
    let mut fixture = ClientFixture::new();
    for pid in 100..120 {
        fixture.set_person(process(pid), 1);
        for fd in 0..300 {
            fixture.open(process(pid), fd, &busy_report(u64::from(pid), 5));
        }
    }
    fixture.set_person(process(200), 2);
    fixture.open(process(200), 3, &busy_report(7, 6));
    let read = |fixture: &ClientFixture| fixture.clients.scan_state.descriptors_read();
    let mut used = fixture.poll_next_second();
    // 1,024 of one person, and all of the other.
    assert_eq!(read(&fixture), 1_025);
    let sm = |used: &CardUsage, nth: usize| used.processes[nth].utilization.sm.clone();
    assert_eq!(
        sm(&used, 0),
        failed("not all of its descriptors are read yet")
    );
    assert_eq!(memory(&used)[20], (200, bytes(6)));
    for _ in 0..7 {
        used = fixture.poll_next_second();
        assert_eq!(memory(&used)[20], (200, bytes(6)));
    }
    assert_eq!(
        (memory(&used)[0].clone(), sm(&used, 0)),
        ((100, bytes(5)), percent(0))
    );
}

#[test]
fn unread_clients_keep_memory_but_no_share() {
    let mut fixture = ClientFixture::new();
    let many = 3_000;
    for fd in 0..many {
        fixture.open(process(7), fd, &busy_report(u64::from(fd), 5));
    }
    fixture.set_person(process(8), 2);
    fixture.open(process(8), 3, &busy_report(9_000, 6));
    (0..3).for_each(|_| drop(fixture.poll_next_second()));
    for fd in 0..many {
        fixture.open(process(7), fd, &busy_report(u64::from(fd), 7));
    }
    fixture.open(process(8), 3, &busy_report(9_000, 8));
    let used = fixture.poll_next_second();
    let half_read = (many - 2_048) * 5 + 2_048 * 7;
    assert_eq!(
        memory(&used),
        [(7, bytes(u64::from(half_read))), (8, bytes(8))]
    );
    let sm = |nth: usize| used.processes[nth].utilization.sm.clone();
    assert_eq!(sm(0), failed("not all of its descriptors are read yet"));
    assert_eq!(sm(1), percent(0));
    // The others are read at the next poll.
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used)[0], (7, bytes(u64::from(many * 7))));
}

#[test]
fn truncated_descriptor_list_is_a_fault() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &busy_report(1, 5));
    fixture.open(process(8), 3, &busy_report(2, 6));
    fixture.found.truncated.insert(process(7));
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), [(7, bytes(5)), (8, bytes(6))]);
    let fault = "process 7 has card1 open too often to read all descriptors: actual use may be \
                 higher than shown";
    assert_eq!(used.fault.as_deref(), Some(fault));
}
