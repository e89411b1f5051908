//! Tests of one client behind several descriptors and processes: it counts once, for one process.

use super::*;
use proptest::prelude::*;

const USED: &str = "drm-resident-vram: 5\ndrm-engine-gfx: 100000000 ns";
const USED_MORE: &str = "drm-resident-vram: 6\ndrm-engine-gfx: 400000000 ns";

/// The owner of a client with these holders: pid, start and name of each.
fn owners(holders: &[(u32, u64, &str)]) -> Vec<(u32, Reading<Bytes>)> {
    let mut fixture = ClientFixture::new();
    for (pid, start_ticks, name) in holders {
        let key = ProcessKey::new(*pid, *start_ticks);
        fixture.set_name(key, name);
        match *name {
            "systemd-logind" => fixture.set_logind(key, LOGIND_UNIT),
            _ if *pid == 1 => fixture.set_person(key, 0),
            _ => {}
        }
        fixture.open(key, 3, &amdgpu(1, USED));
    }
    memory(&fixture.poll_next_second())
}

#[test]
fn oldest_process_owns_a_client() {
    type Holder<'a> = (u32, u64, &'a str);
    let logind = (5, 50, "systemd-logind");
    let xorg = (8, 80, "Xorg");
    let python = (8, 80, "python");
    let cases: [(&[Holder<'_>], u32); 9] = [
        (&[(7, 70, "Xorg")], 7),
        (&[(7, 70, "python"), python], 7),
        // Pids wrap around some day.
        (&[(7, 90, "python"), python], 8),
        (&[(7, 80, "python"), python], 7),
        (&[(1, 0, "systemd"), xorg], 8),
        (&[logind, xorg], 8),
        (&[(1, 0, "init"), logind, xorg, (9, 90, "Xwayland")], 8),
        // There is no other process.
        (&[(1, 0, "systemd"), logind], 1),
        (&[logind], 5),
    ];
    for (holders, owner) in cases {
        assert_eq!(owners(holders), [(owner, bytes(5))], "{holders:?}");
    }
}

#[test]
fn shared_client_names_the_owner() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &amdgpu(1, USED));
    fixture.open(process(8), 3, &amdgpu(1, USED));
    fixture.open(process(9), 3, &amdgpu(2, USED));
    let shared_client = SharedClient {
        key: process(8),
        owner_pid: 7,
    };
    assert_eq!(fixture.poll_next_second().shared_clients, [shared_client]);
}

#[test]
fn shared_client_counts_only_its_own_clients() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &amdgpu(1, USED));
    fixture.open(process(8), 3, &amdgpu(1, USED));
    fixture.open(process(8), 4, &amdgpu(2, "drm-resident-vram: 1"));
    let _ = fixture.poll_next_second();
    for pid in [7, 8] {
        fixture.open(process(pid), 3, &amdgpu(1, USED_MORE));
    }
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), [(7, bytes(6)), (8, bytes(1))]);
    assert_eq!(used.utilization, percent(30));
    assert_eq!(used.processes[1].utilization.sm, percent(0));
}

#[test]
fn client_moves_to_the_remaining_holder() {
    let mut fixture = ClientFixture::new();
    for pid in [7, 8] {
        fixture.open(process(pid), 3, &amdgpu(1, USED));
    }
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(5))]);
    // The file is gone before the descriptor scan has noticed.
    fixture.close(process(7), 3);
    fixture.open(process(8), 3, &amdgpu(1, USED_MORE));
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), [(8, bytes(6))]);
    assert_eq!(used.utilization, percent(30));
}

#[test]
fn client_numbers_belong_to_one_device() {
    // Without a PCI address, numbers belong to one device file.
    let mut fixture = ClientFixture::with_driver("msm", None);
    for fd in [3, 4] {
        let text = "drm-driver: msm\ndrm-client-id: 1\ndrm-resident-memory: 5\n";
        fixture.open(process(7), fd, text);
    }
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(5))]);
    fixture.found.processes.get_mut(&process(7)).unwrap()[0].number = CARD;
    assert_eq!(memory(&fixture.poll_next_second()), [(7, bytes(10))]);
}

#[test]
fn unnumbered_descriptors_are_separate_clients() {
    let mut fixture = ClientFixture::with_driver("old", None);
    for (pid, fd) in [(7, 3), (7, 4), (8, 3)] {
        let text = "drm-driver: old\ndrm-resident-memory: 5\ndrm-engine-e: 0 ns\n";
        fixture.open(process(pid), fd, text);
    }
    let _ = fixture.poll_next_second();
    let used = fixture.poll_next_second();
    assert_eq!(memory(&used), [(7, bytes(10)), (8, bytes(5))]);
    assert_eq!(used.utilization, percent(0));
}

/// The part of each process's own memory that no other process may hold.
fn exclusive_memory(used: &CardUsage) -> Vec<(u32, Reading<Bytes>)> {
    let shared = sharing_by_process(&used.processes);
    let clients = used.processes.iter().map(|client| {
        let sharing = shared.get(&client.key).copied().unwrap_or(Sharing::NONE);
        (client.key.pid, sharing.exclusive_memory(&client.memory))
    });
    clients.collect()
}

#[test]
fn shared_buffers_are_separated() {
    let unreported = || failed("its driver does not report shared memory");
    let cases = [
        (vec!["drm-resident-vram: 9\ndrm-shared-vram: 0"], bytes(9)),
        (vec!["drm-resident-vram: 9\ndrm-shared-vram: 4"], bytes(5)),
        // Two kinds of its own memory.
        (
            vec![
                "drm-resident-vram: 9\ndrm-shared-vram: 4\n\
                 drm-resident-vram1: 3\ndrm-shared-vram1: 8",
            ],
            bytes(5),
        ),
        (
            vec!["drm-resident-vram: 9\ndrm-shared-vram: 4\ndrm-resident-vram1: 3"],
            unreported(),
        ),
        // The host's memory is not part of it.
        (
            vec!["drm-resident-vram: 9\ndrm-shared-vram: 4\ndrm-resident-gtt: 3"],
            bytes(5),
        ),
        (vec!["drm-resident-vram: 9"], unreported()),
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
            unreported(),
        ),
    ];
    for (clients, expected) in cases {
        let mut fixture = ClientFixture::new();
        for (id, lines) in (1u32..).zip(&clients) {
            fixture.open(process(7), id, &amdgpu(u64::from(id), lines));
        }
        assert_eq!(
            exclusive_memory(&fixture.poll_next_second()),
            [(7, expected)],
            "{clients:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn descriptor_copies_change_no_sum(
        copies in proptest::collection::vec((0u64..4, 2u32..7, 10u32..30), 0..20),
        polls in 1usize..4,
    ) {
        let use_with = |copies: &[(u64, u32, u32)]| {
            let mut fixture = ClientFixture::new();
            let mut used = fixture.poll_next_second();
            for poll in 0..=polls as u64 {
                let text = |client: u64| {
                    let gfx = poll * (client + 1) * 50_000_000;
                    amdgpu(client, &format!("drm-resident-vram: {client}\ndrm-engine-gfx: {gfx} ns"))
                };
                // The oldest process has the originals.
                for client in 0..4 {
                    fixture.open(process(1 + 1), client as u32, &text(client));
                }
                for (client, pid, fd) in copies {
                    // One descriptor belongs to one client.
                    fixture.open(process(*pid), fd * 4 + *client as u32, &text(*client));
                }
                used = fixture.poll_next_second();
            }
            // The other holders are listed separately.
            used.shared_clients.clear();
            used
        };
        prop_assert_eq!(use_with(&copies), use_with(&[]));
    }
}
