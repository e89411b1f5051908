//! One client behind several descriptors and several processes: counted once,
//! and one process answers for it.

use super::*;
use proptest::prelude::*;

const USED: &str = "drm-resident-vram: 5\ndrm-engine-gfx: 100000000 ns";
const USED_MORE: &str = "drm-resident-vram: 6\ndrm-engine-gfx: 400000000 ns";

/// Who answers for a client that these have open.
fn owners(holders: &[(ProcessKey, &str)]) -> Vec<(u32, Reading<Bytes>)> {
    let mut stage = Stage::new();
    for (key, name) in holders {
        stage.name(*key, name);
        if *name == "systemd-logind" || key.pid == 1 {
            stage.belongs_to(*key, 0);
        }
        stage.open(*key, 3, &amdgpu(1, USED));
    }
    memory(&stage.next())
}

fn started(pid: u32, start_ticks: u64) -> ProcessKey {
    ProcessKey { pid, start_ticks }
}

#[test]
fn the_oldest_process_that_did_not_open_it_for_another_answers_for_a_client() {
    let logind = "systemd-logind";
    let cases: [(&[(ProcessKey, &str)], u32); 9] = [
        (&[(started(7, 70), "Xorg")], 7),
        (&[(started(7, 70), "python"), (started(8, 80), "python")], 7),
        // Pids start again from the beginning some day.
        (&[(started(7, 90), "python"), (started(8, 80), "python")], 8),
        (&[(started(7, 80), "python"), (started(8, 80), "python")], 7),
        (&[(started(1, 0), "systemd"), (started(8, 80), "Xorg")], 8),
        (&[(started(5, 50), logind), (started(8, 80), "Xorg")], 8),
        (
            &[
                (started(1, 0), "init"),
                (started(5, 50), logind),
                (started(8, 80), "Xorg"),
                (started(9, 90), "Xwayland"),
            ],
            8,
        ),
        // There is nobody else.
        (&[(started(1, 0), "systemd"), (started(5, 50), logind)], 1),
        (&[(started(5, 50), logind)], 5),
    ];
    for (holders, owner) in cases {
        assert_eq!(owners(holders), [(owner, bytes(5))], "{holders:?}");
    }
}

#[test]
fn whoever_shares_a_client_is_told_with_the_one_for_whom_it_counts() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &amdgpu(1, USED));
    stage.open(process(8), 3, &amdgpu(1, USED));
    stage.open(process(9), 3, &amdgpu(2, USED));
    let sharer = Sharer {
        key: process(8),
        with: 7,
    };
    assert_eq!(stage.next().sharers, [sharer]);
}

#[test]
fn who_shares_a_client_has_only_what_is_its_own() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &amdgpu(1, USED));
    stage.open(process(8), 3, &amdgpu(1, USED));
    stage.open(process(8), 4, &amdgpu(2, "drm-resident-vram: 1"));
    let _ = stage.next();
    for pid in [7, 8] {
        stage.open(process(pid), 3, &amdgpu(1, USED_MORE));
    }
    let used = stage.next();
    assert_eq!(memory(&used), [(7, bytes(6)), (8, bytes(1))]);
    assert_eq!(used.utilization, percent(30));
    assert_eq!(used.processes[1].utilization.sm, percent(0));
}

#[test]
fn a_client_goes_over_to_who_is_left() {
    let mut stage = Stage::new();
    for pid in [7, 8] {
        stage.open(process(pid), 3, &amdgpu(1, USED));
    }
    assert_eq!(memory(&stage.next()), [(7, bytes(5))]);
    // The file is gone before who looks for descriptors has seen it.
    stage.close(process(7), 3);
    stage.open(process(8), 3, &amdgpu(1, USED_MORE));
    let used = stage.next();
    assert_eq!(memory(&used), [(8, bytes(6))]);
    assert_eq!(used.utilization, percent(30));
}

#[test]
fn numbers_of_clients_are_of_one_device() {
    // Without a PCI address: of one device file.
    let mut stage = Stage::with("msm", None);
    for fd in [3, 4] {
        let text = "drm-driver: msm\ndrm-client-id: 1\ndrm-resident-memory: 5\n";
        stage.open(process(7), fd, text);
    }
    assert_eq!(memory(&stage.next()), [(7, bytes(5))]);
    stage.found.processes.get_mut(&process(7)).unwrap()[0].number = CARD;
    assert_eq!(memory(&stage.next()), [(7, bytes(10))]);
}

#[test]
fn descriptors_without_a_client_s_number_are_a_client_each() {
    let mut stage = Stage::with("old", None);
    for (pid, fd) in [(7, 3), (7, 4), (8, 3)] {
        let text = "drm-driver: old\ndrm-resident-memory: 5\ndrm-engine-e: 0 ns\n";
        stage.open(process(pid), fd, text);
    }
    let _ = stage.next();
    let used = stage.next();
    assert_eq!(memory(&used), [(7, bytes(10)), (8, bytes(5))]);
    assert_eq!(used.utilization, percent(0));
}

/// How much of what each process holds of its own memory is its alone.
fn alone(used: &Used) -> Vec<(u32, Reading<Bytes>)> {
    let shared = sharing(&used.processes);
    let clients = used.processes.iter().map(|client| {
        let sharing = shared.get(&client.key).copied().unwrap_or(Sharing::NONE);
        (client.key.pid, sharing.alone(&client.memory))
    });
    clients.collect()
}

#[test]
fn buffers_that_other_clients_have_too_are_told_from_a_process_s_own() {
    let untold = || failed("its driver does not tell what it shares");
    let cases = [
        (vec!["drm-resident-vram: 9\ndrm-shared-vram: 0"], bytes(9)),
        (vec!["drm-resident-vram: 9\ndrm-shared-vram: 4"], bytes(5)),
        // Of two kinds of its own memory.
        (
            vec![
                "drm-resident-vram: 9\ndrm-shared-vram: 4\n\
                 drm-resident-vram1: 3\ndrm-shared-vram1: 8",
            ],
            bytes(5),
        ),
        (
            vec!["drm-resident-vram: 9\ndrm-shared-vram: 4\ndrm-resident-vram1: 3"],
            untold(),
        ),
        // What the host's memory has is no part of it.
        (
            vec!["drm-resident-vram: 9\ndrm-shared-vram: 4\ndrm-resident-gtt: 3"],
            bytes(5),
        ),
        (vec!["drm-resident-vram: 9"], untold()),
        (
            vec![
                "drm-resident-vram: 9\ndrm-shared-vram: 4",
                "drm-resident-vram: 7\ndrm-shared-vram: 1",
            ],
            bytes(11),
        ),
        (
            vec![
                "drm-resident-vram: 9\ndrm-shared-vram: 4",
                "drm-resident-vram: 7",
            ],
            untold(),
        ),
    ];
    for (clients, expected) in cases {
        let mut stage = Stage::new();
        for (id, lines) in (1u32..).zip(&clients) {
            stage.open(process(7), id, &amdgpu(u64::from(id), lines));
        }
        assert_eq!(alone(&stage.next()), [(7, expected)], "{clients:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn more_descriptors_of_the_same_clients_change_no_sum(
        copies in proptest::collection::vec((0u64..4, 2u32..7, 10u32..30), 0..20),
        polls in 1usize..4,
    ) {
        let told = |copies: &[(u64, u32, u32)]| {
            let mut stage = Stage::new();
            let mut used = stage.next();
            for poll in 0..=polls as u64 {
                let text = |client: u64| {
                    let gfx = poll * (client + 1) * 50_000_000;
                    amdgpu(client, &format!("drm-resident-vram: {client}\ndrm-engine-gfx: {gfx} ns"))
                };
                // The oldest has the originals.
                for client in 0..4 {
                    stage.open(process(1 + 1), client as u32, &text(client));
                }
                for (client, pid, fd) in copies {
                    // One descriptor is of one client.
                    stage.open(process(*pid), fd * 4 + *client as u32, &text(*client));
                }
                used = stage.next();
            }
            // Who else has them open is told besides.
            used.sharers.clear();
            used
        };
        prop_assert_eq!(told(&copies), told(&[]));
    }
}
