//! How often descriptors are read, what may change between two readings, and
//! what cannot be read.

use super::*;
use crate::backend::drm::clients::look::BELIEVED;

fn holds(client: u64, count: u64) -> String {
    amdgpu(client, &format!("drm-resident-vram: {count}"))
}

/// It has worked some time.
fn works(client: u64, count: u64) -> String {
    let lines = format!("drm-resident-vram: {count}\ndrm-engine-gfx: 9 ns");
    amdgpu(client, &lines)
}

#[test]
fn a_client_is_read_through_one_descriptor_and_the_others_once_in_a_while() {
    let mut stage = Stage::new();
    for fd in [3, 4] {
        stage.open(process(7), fd, &holds(1, 5));
    }
    assert_eq!(memory(&stage.next()), [(7, bytes(5))]);
    // The second one is of another client now, and nobody has looked.
    stage.open(process(7), 4, &holds(2, 100));
    assert_eq!(memory(&stage.next()), [(7, bytes(5))]);
    stage.open(process(7), 3, &holds(1, 6));
    assert_eq!(memory(&stage.next()), [(7, bytes(6))]);
    let used = stage.poll(BELIEVED);
    assert_eq!(memory(&used), [(7, bytes(106))]);
}

#[test]
fn what_was_no_client_of_the_card_is_read_again_once_in_a_while() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, "pos: 0\n");
    assert_eq!(memory(&stage.next()), []);
    stage.open(process(7), 3, &holds(1, 5));
    assert_eq!(memory(&stage.next()), []);
    assert_eq!(memory(&stage.poll(BELIEVED)), [(7, bytes(5))]);
}

#[test]
fn a_descriptor_that_became_another_client_s_is_seen_at_once() {
    let mut stage = Stage::new();
    for fd in [3, 4] {
        stage.open(process(7), fd, &works(1, 5));
    }
    let _ = stage.next();
    stage.open(process(7), 3, &works(2, 100));
    let used = stage.next();
    // The first client is looked for where it was too, and keeps its history.
    assert_eq!(memory(&used), [(7, bytes(105))]);
    assert_eq!(used.utilization, Reading::Unsupported);
    assert_eq!(stage.next().utilization, percent(0));
}

#[test]
fn what_is_closed_or_ended_is_gone_without_a_word() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &holds(1, 5));
    stage.open(process(8), 3, &holds(2, 6));
    let _ = stage.next();
    stage.close(process(7), 3);
    std::fs::remove_dir_all(stage.directory(8)).unwrap();
    let used = stage.next();
    assert_eq!((used.processes, used.unseen), (vec![], None));
    stage.found.processes.clear();
    let _ = stage.next();
    assert_eq!(stage.clients.sight.clients.len(), 0);
}

#[test]
fn that_the_card_has_memory_of_its_own_is_not_forgotten() {
    let mut stage = Stage::new();
    assert!(!stage.next().has_own_memory);
    stage.open(process(7), 3, &holds(1, 5));
    assert!(stage.next().has_own_memory);
    stage.close(process(7), 3);
    assert!(stage.next().has_own_memory);
}

#[test]
fn what_cannot_be_read_is_said() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &holds(1, 5));
    stage.open(process(8), 3, &holds(2, 6));
    stage.close(process(7), 3);
    std::fs::create_dir(stage.directory(7).join("fdinfo/3")).unwrap();
    let used = stage.next();
    let why = "a descriptor cannot be read: Is a directory (os error 21)";
    assert_eq!(used.unseen.as_deref(), Some(why));
    assert_eq!(memory(&used), [(8, bytes(6))]);
    assert_eq!(used.utilization, failed(why));
}

#[test]
fn copies_of_a_descriptor_hide_nothing() {
    let mut stage = Stage::new();
    let copies = 1_500;
    for fd in 0..copies {
        stage.open(process(7), fd, &works(1, 5));
    }
    stage.open(process(7), copies, &holds(2, 9));
    stage.open(process(8), 3, &holds(3, 6));
    // What was read is the least that it holds; the rest has its turn.
    let used = stage.next();
    assert_eq!(memory(&used), [(7, bytes(5)), (8, bytes(6))]);
    let sm = |used: &Used| used.processes[0].utilization.sm.clone();
    assert_eq!(sm(&used), failed("not all of its descriptors are read yet"));
    let _ = stage.next();
    for _ in 0..20 {
        let used = stage.next();
        assert_eq!(memory(&used), [(7, bytes(14)), (8, bytes(6))]);
        assert_eq!((sm(&used), used.fault), (percent(0), None));
    }
}

#[test]
fn who_opens_very_much_hides_neither_others_nor_what_they_hold() {
    let mut stage = Stage::new();
    for fd in 0..=8_192 {
        stage.open(process(7), fd, &works(u64::from(fd / 4_096), 5));
    }
    stage.open(process(8), 3, &holds(5_000, 6));
    (0..9).for_each(|_| drop(stage.next()));
    let used = stage.next();
    assert_eq!(memory(&used), [(7, bytes(10)), (8, bytes(6))]);
    assert_eq!(used.processes[0].utilization.sm, percent(0));
    let why = "it has the card open more often than is read";
    assert_eq!(used.utilization, failed(why));
    assert_eq!(used.unseen, None);
    let fault = "process 7 has card1 open more often than is read: more may be used than is shown";
    assert_eq!(used.fault.as_deref(), Some(fault));
}

#[test]
fn a_client_of_which_too_much_is_told_is_there_and_unknown() {
    let many = |key: &str, count: usize| -> String {
        let lines = (0..count).map(|n| format!("{key}{n}: 1 ns\n"));
        lines.collect()
    };
    let cases = [
        (
            many("drm-engine-e", 65),
            "more than 64 engines are told of it",
        ),
        (
            many("drm-resident-vram", 33),
            "more than 32 kinds of memory are told of it",
        ),
        (" ".repeat(64 << 10), "more than 64 KiB are told of it"),
    ];
    for (lines, why) in cases {
        let mut stage = Stage::new();
        stage.open(process(6), 3, &works(1, 5));
        stage.open(process(7), 3, &works(2, 5));
        let _ = stage.next();
        stage.open(process(7), 3, &amdgpu(2, &lines));
        let used = stage.next();
        assert_eq!(memory(&used), [(6, bytes(5)), (7, failed(why))]);
        let unknown = || [failed(why), failed(why), failed(why)];
        assert_eq!(shares_of(&used.processes[1]), unknown());
        // What all do is not what the others do.
        assert_eq!(shares(&used), unknown());
        let others = [percent(0), percent(0), percent(0)];
        assert_eq!(shares_of(&used.processes[0]), others);
        // Nobody knows since when it has worked what it tells then.
        stage.open(process(7), 3, &works(2, 5));
        let used = stage.next();
        assert_eq!(memory(&used), [(6, bytes(5)), (7, bytes(5))]);
        assert_eq!(used.processes[1].utilization.sm, Reading::Unsupported);
        assert_eq!(stage.next().processes[1].utilization.sm, percent(0));
    }
}

#[test]
fn what_a_person_opens_in_many_processes_delays_nobody_else() {
    let mut stage = Stage::new();
    for pid in 100..120 {
        stage.belongs_to(process(pid), 1);
        for fd in 0..300 {
            stage.open(process(pid), fd, &works(u64::from(pid), 5));
        }
    }
    stage.belongs_to(process(200), 2);
    stage.open(process(200), 3, &works(7, 6));
    let read = |stage: &Stage| stage.clients.sight.read();
    let mut used = stage.next();
    // 1,024 of one person, and all of the other.
    assert_eq!(read(&stage), 1_025);
    let sm = |used: &Used, nth: usize| used.processes[nth].utilization.sm.clone();
    assert_eq!(
        sm(&used, 0),
        failed("not all of its descriptors are read yet")
    );
    assert_eq!(memory(&used)[20], (200, bytes(6)));
    for _ in 0..7 {
        used = stage.next();
        assert_eq!(memory(&used)[20], (200, bytes(6)));
    }
    assert_eq!(
        (memory(&used)[0].clone(), sm(&used, 0)),
        ((100, bytes(5)), percent(0))
    );
}

#[test]
fn of_very_many_clients_of_a_person_some_are_as_they_were_and_unknown() {
    let mut stage = Stage::new();
    let many = 3_000;
    for fd in 0..many {
        stage.open(process(7), fd, &works(u64::from(fd), 5));
    }
    stage.belongs_to(process(8), 2);
    stage.open(process(8), 3, &works(9_000, 6));
    (0..3).for_each(|_| drop(stage.next()));
    for fd in 0..many {
        stage.open(process(7), fd, &works(u64::from(fd), 7));
    }
    stage.open(process(8), 3, &works(9_000, 8));
    let used = stage.next();
    let half_read = (many - 2_048) * 5 + 2_048 * 7;
    assert_eq!(
        memory(&used),
        [(7, bytes(u64::from(half_read))), (8, bytes(8))]
    );
    let sm = |nth: usize| used.processes[nth].utilization.sm.clone();
    assert_eq!(sm(0), failed("not all of its descriptors are read yet"));
    assert_eq!(sm(1), percent(0));
    // The others have their turn at the next poll.
    let used = stage.next();
    assert_eq!(memory(&used)[0], (7, bytes(u64::from(many * 7))));
}

#[test]
fn a_process_of_which_not_all_descriptors_are_kept_is_known_in_part() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &works(1, 5));
    stage.open(process(8), 3, &works(2, 6));
    stage.found.cut.insert(process(7));
    let used = stage.next();
    assert_eq!(memory(&used), [(7, bytes(5)), (8, bytes(6))]);
    let fault = "process 7 has card1 open more often than is read: more may be used than is shown";
    assert_eq!(used.fault.as_deref(), Some(fault));
}
