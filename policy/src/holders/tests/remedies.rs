//! Whom a command names, and whom it never names.

use super::*;

/// What the findings of this device say to end.
fn to_be_ended(device: &HeldDevice) -> Vec<u32> {
    let found = findings(device, NOW);
    let remedies = found.into_iter().filter_map(|found| found.remedy);
    let ends = remedies.filter_map(|remedy| match remedy {
        Remedy::End(pids) => Some(pids),
        Remedy::Reset | Remedy::Reap(_) | Remedy::Wait => None,
    });
    ends.flatten().collect()
}

#[test]
fn an_orphan_that_may_be_more_than_that_is_named_in_no_command() {
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
        ("below who knows whom", below(Failed("x".into())), false),
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
        let pids = to_be_ended(&device(vec![holder, listed]));
        assert_eq!(pids, if is_named { vec![pid] } else { vec![] }, "{what}");
    }
}

#[test]
fn only_the_orphans_of_a_finding_that_may_be_named_are_in_its_command() {
    let shell = Holder {
        name: Value("bash".into()),
        ..worker(9)
    };
    let both = device(vec![worker(7), shell]);
    let found = &findings(&both, NOW)[0];
    assert_eq!(found.pids, [7, 9]);
    assert_eq!(found.remedy, Some(Remedy::End(vec![7])));
}

#[test]
fn a_command_names_a_thousand_at_most() {
    for (number, expected) in [(999, 999), (1000, 1000), (1001, 1000)] {
        let many = device((2..2 + number).map(worker).collect());
        let pids: Vec<u32> = (2..2 + expected).collect();
        assert_eq!(to_be_ended(&many), pids);
    }
}

#[test]
fn after_a_search_that_was_not_complete_nothing_is_ended_or_reset() {
    let mut unseen = device(vec![worker(7)]);
    assert_eq!(to_be_ended(&unseen), [7]);
    unseen.unseen = Some("x".into());
    let found = findings(&unseen, NOW);
    assert_eq!((found[0].cause, &found[0].remedy), (Cause::Orphans, &None));
}

#[test]
fn a_parent_with_the_pid_of_one_that_has_ended_makes_no_orphan() {
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
        assert_eq!(to_be_ended(&again), [0; 0]);
    }
}

#[test]
fn a_leader_that_has_ended_is_known_though_nobody_asked_whether_it_is_here() {
    let unasked = Holder {
        group_leader_is_here: Failed("x".into()),
        ..worker(7)
    };
    let mut left = device(vec![unasked]);
    left.ended = vec![ended(60_190, 356, 7_800)];
    assert_eq!(to_be_ended(&left), [7]);
    // It let go of the device, and goes on.
    left.holders[0].group_leader_is_here = Value(true);
    assert_eq!(role(&left.holders[0], &left), Role::Unlisted);
}

#[test]
fn a_process_that_shares_a_client_is_no_candidate_whatever_else_it_is() {
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
        assert_eq!(role(&shared.holders[0], &shared), Role::Sharer);
        let found = findings(&shared, NOW);
        assert_eq!((found.len(), found[0].cause), (1, Cause::Unknown));
    }
    let with_itself = Holder {
        shares_with: Some(7),
        ..holder(7)
    };
    assert_eq!(role(&with_itself, &device(vec![])), Role::Unlisted);
}

#[test]
fn a_monitor_by_name_only_is_told_of_in_every_finding_and_nothing_is_ended() {
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
    let said = "nvtop 4711 of carol has it open too, and is taken for a monitor by its name only";
    for (monitor, is_told) in cases {
        let watched = device(vec![worker(7), holder(8), monitor]);
        let found = findings(&watched, NOW);
        let causes: Vec<Cause> = found.iter().map(|found| found.cause).collect();
        assert_eq!(causes, [Cause::Orphans, Cause::Unlisted]);
        for found in &found {
            assert_eq!(found.evidence.iter().any(|text| text == said), is_told);
        }
        let ends = if is_told { vec![] } else { vec![7] };
        assert_eq!(to_be_ended(&watched), ends);
    }
}

#[test]
fn whoever_holds_a_passed_descriptor_is_named_and_no_command_ends_it() {
    let passed = |holder: Holder| Holder {
        passed_from: Some(FirstHolder {
            pid: 70_000,
            uid: Some(1_001),
        }),
        ..holder
    };
    // Its leader has ended: by itself it would be an orphan.
    let held = device(vec![passed(worker(7))]);
    assert_eq!(role(&held.holders[0], &held), Role::Passed);
    let found = findings(&held, NOW);
    assert_eq!((found.len(), found[0].cause), (1, Cause::Unlisted));
    assert_eq!(
        (found[0].pids.as_slice(), &found[0].remedy),
        (&[7][..], &None)
    );
    let says = "7 holds a descriptor that was passed between processes of several users: its \
        memory is counted for nobody";
    assert_eq!(found[0].evidence.last().map(String::as_str), Some(says));
    // By what it opened itself it is a user.
    let user = passed(listed(7, Value(gib(1))));
    assert_eq!(role(&user, &device(vec![])), Role::User);
}
