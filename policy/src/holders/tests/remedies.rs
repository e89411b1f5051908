//! Tests of which processes a suggested command names.

use super::*;

/// The pids that the findings of this device suggest to end.
fn suggested_pids(device: &DeviceHolders) -> Vec<u32> {
    let found = find_causes(device, NOW);
    let remedies = found.into_iter().filter_map(|found| found.remedy);
    let ends = remedies.filter_map(|remedy| match remedy {
        Remedy::End(pids) => Some(pids),
        Remedy::Reset | Remedy::Reap(_) | Remedy::Wait => None,
    });
    ends.flatten().collect()
}

#[test]
fn doubtful_orphan_is_in_no_command() {
    let called = |name: &str| Holder {
        name: Value(name.into()),
        ..worker(7)
    };
    let of = |uid| Holder { uid, ..worker(7) };
    let below = |parent| Holder {
        parent,
        ..worker(7)
    };
    let cases = [
        ("a worker", worker(7), true),
        ("of the first person", of(Value(1000)), true),
        ("of a system's service", of(Value(999)), false),
        ("of root", of(Value(0)), false),
        ("of who knows", of(Failed("x".into())), false),
        ("of someone a while ago", of(Reading::Stale(1003, 9)), false),
        ("a multiplexer", called("tmux: server"), false),
        ("a shell", called("bash"), false),
        ("a reaper", called("dumb-init"), false),
        ("a runtime", called("containerd-shim"), false),
        ("a monitor", called("nvtop"), false),
        ("a display server", called("Xorg"), false),
        ("an MPS server", called("nvidia-cuda-mps"), false),
        (
            "without a name",
            Holder {
                name: Failed("x".into()),
                ..worker(7)
            },
            false,
        ),
        ("below a listed one", below(Value(70_000)), false),
        ("below an unknown parent", below(Failed("x".into())), false),
        (
            "of a listed one's group",
            Holder {
                group: Value(70_000),
                ..worker(7)
            },
            false,
        ),
        (
            "process 1",
            Holder {
                pid: 1,
                parent: Value(0),
                ..worker(7)
            },
            false,
        ),
        (
            "it leads itself",
            Holder {
                group: Value(7),
                ..worker(7)
            },
            false,
        ),
        (
            "it shares with another",
            Holder {
                shares_with: Some(70_000),
                ..worker(7)
            },
            false,
        ),
    ];
    for (what, holder, is_named) in cases {
        let pid = holder.pid;
        let listed = listed(70_000, Value(gib(1)));
        let pids = suggested_pids(&device(vec![holder, listed]));
        assert_eq!(pids, if is_named { vec![pid] } else { vec![] }, "{what}");
    }
}

#[test]
fn command_names_endable_orphans_only() {
    let shell = Holder {
        name: Value("bash".into()),
        ..worker(9)
    };
    let both = device(vec![worker(7), shell]);
    let found = &find_causes(&both, NOW)[0];
    assert_eq!(found.pids, [7, 9]);
    assert_eq!(found.remedy, Some(Remedy::End(vec![7])));
}

#[test]
fn command_names_at_most_1000() {
    for (number, expected) in [(999, 999), (1000, 1000), (1001, 1000)] {
        let many = device((2..2 + number).map(worker).collect());
        let pids: Vec<u32> = (2..2 + expected).collect();
        assert_eq!(suggested_pids(&many), pids);
    }
}

#[test]
fn incomplete_scan_suggests_no_end() {
    let mut incomplete = device(vec![worker(7)]);
    assert_eq!(suggested_pids(&incomplete), [7]);
    incomplete.incomplete_reason = Some("x".into());
    let found = find_causes(&incomplete, NOW);
    assert_eq!((found[0].cause, &found[0].remedy), (Cause::Orphans, &None));
}

#[test]
fn reused_parent_pid_makes_no_orphan() {
    let child = Holder {
        parent: Value(60_190),
        ..holder(7)
    };
    for child in [
        child.clone(),
        Holder {
            group: Value(60_191),
            ..child
        },
    ] {
        let mut again = device(vec![child]);
        again.ended = vec![ended(60_190, 356, 7_800)];
        assert_eq!(role(&again.holders[0], &again), Role::Unlisted);
        assert_eq!(suggested_pids(&again), [0; 0]);
    }
}

#[test]
fn ended_leader_is_known_from_history() {
    let worker_of_ended_leader = Holder {
        group_leader_is_here: Failed("x".into()),
        ..worker(7)
    };
    let mut left = device(vec![worker_of_ended_leader]);
    left.ended = vec![ended(60_190, 356, 7_800)];
    assert_eq!(suggested_pids(&left), [7]);
    // The leader released the device and is still running.
    left.holders[0].group_leader_is_here = Value(true);
    assert_eq!(role(&left.holders[0], &left), Role::Unlisted);
}

#[test]
fn shared_client_is_never_ended() {
    let shares = |holder: Holder| Holder {
        shares_with: Some(70_000),
        ..holder
    };
    let stuck = ProcessState::Uninterruptible(None);
    for holder in [
        holder(7),
        worker(7),
        contained(7),
        in_state(7, stuck),
        named(7, "nvtop"),
        named(7, "Xorg"),
    ] {
        let shared = device(vec![shares(holder), listed(70_000, Value(gib(1)))]);
        assert_eq!(role(&shared.holders[0], &shared), Role::SharedClient);
        let found = find_causes(&shared, NOW);
        assert_eq!((found.len(), found[0].cause), (1, Cause::Unknown));
    }
    let with_itself = Holder {
        shares_with: Some(7),
        ..holder(7)
    };
    assert_eq!(role(&with_itself, &device(vec![])), Role::Unlisted);
}

#[test]
fn monitor_by_name_prevents_end() {
    let nvtop = |uid| Holder {
        uid,
        ..named(4711, "nvtop")
    };
    let shared_only = Holder {
        holds_this_device: false,
        ..nvtop(Value(1003))
    };
    let cases = [
        (nvtop(Value(1000)), true),
        (nvtop(Failed("x".into())), true),
        (nvtop(Value(999)), false),
        (shared_only, false),
    ];
    let search_text =
        "nvtop 4711 of carol has the device open too, and counts as a monitor only by its name";
    for (monitor, is_named) in cases {
        let watched = device(vec![worker(7), holder(8), monitor]);
        let found = find_causes(&watched, NOW);
        let causes: Vec<Cause> = found.iter().map(|found| found.cause).collect();
        assert_eq!(causes, [Cause::Orphans, Cause::Unlisted]);
        for found in &found {
            assert_eq!(
                found.evidence.iter().any(|text| text == search_text),
                is_named
            );
        }
        let ends = if is_named { vec![] } else { vec![7] };
        assert_eq!(suggested_pids(&watched), ends);
    }
}

#[test]
fn passed_descriptor_holder_is_not_ended() {
    let passed = |holder: Holder| Holder {
        passed_from: Some(FirstHolder {
            pid: 70_000,
            uid: Some(1_001),
        }),
        ..holder
    };
    // Its leader has ended: without the descriptor it would be an orphan.
    let held = device(vec![passed(worker(7))]);
    assert_eq!(role(&held.holders[0], &held), Role::Passed);
    let found = find_causes(&held, NOW);
    assert_eq!((found.len(), found[0].cause), (1, Cause::Unlisted));
    assert_eq!(
        (found[0].pids.as_slice(), &found[0].remedy),
        (&[7][..], &None)
    );
    let says = "7 holds a descriptor that was passed between processes of several users: its \
                memory is attributed to no process";
    assert_eq!(found[0].evidence.last().map(String::as_str), Some(says));
    // Listed memory makes it a user of the device.
    let user = passed(listed(7, Value(gib(1))));
    assert_eq!(role(&user, &device(vec![])), Role::User);
}
