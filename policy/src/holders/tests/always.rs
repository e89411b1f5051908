//! What holds whatever was seen.

use super::*;
use crate::holders::role::protection;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Reading<String>> {
    let names = prop_oneof![
        Just("python"),
        Just("torchrun"),
        Just("nvidia-persiste"),
        Just("nv-hostengine"),
        Just("gpukilld: GPU 6"),
        Just("Xorg"),
        Just("gnome-session-b"),
        Just("nvidia-cuda-mps"),
        Just("systemd"),
        Just(""),
    ];
    prop_oneof![
        9 => names.prop_map(|name| Value(name.to_owned())),
        1 => Just(Failed("x".into())),
    ]
}

fn state() -> impl Strategy<Value = Reading<ProcessState>> {
    prop_oneof![
        Just(Value(ProcessState::Running)),
        Just(Value(ProcessState::Sleeping)),
        Just(Value(ProcessState::Zombie)),
        Just(Value(ProcessState::Uninterruptible(None))),
        Just(Value(ProcessState::Uninterruptible(Some(
            "nvidia_close".into()
        )))),
        Just(Failed("x".into())),
    ]
}

fn pid() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..6, Just(u32::MAX)]
}

fn memory() -> impl Strategy<Value = Reading<Bytes>> {
    prop_oneof![
        any::<u64>().prop_map(|bytes| Value(Bytes(bytes))),
        Just(Value(Bytes(0))),
        Just(Unsupported),
        Just(Failed("x".into())),
    ]
}

fn anybody() -> impl Strategy<Value = Holder> {
    (
        (pid(), name(), state(), pid(), name(), pid()),
        (any::<[bool; 6]>(), memory(), any::<[bool; 2]>()),
    )
        .prop_map(
            |((pid, name, state, parent, parent_name, group), (is, memory, [shares, is_roots]))| {
                let base = if is[0] { contained(pid) } else { holder(pid) };
                Holder {
                    name,
                    state,
                    parent: Value(parent),
                    parent_name,
                    group: Value(group),
                    group_leader_is_here: Value(is[1]),
                    holds_this_device: is[2],
                    listed: is[3],
                    shares_with: shares.then_some(5),
                    passed_from: None,
                    uid: Value(if is_roots { 0 } else { 1000 }),
                    used_for: Use {
                        graphics: is[4],
                        mps: is[5],
                        compute: is[1],
                    },
                    start_ticks: if is[5] { Failed("x".into()) } else { Value(7) },
                    memory,
                    ..base
                }
            },
        )
}

fn anything() -> impl Strategy<Value = HeldDevice> {
    (
        proptest::collection::vec(anybody(), 0..8),
        proptest::collection::vec((pid(), any::<u8>(), -90i64..90), 0..4),
        (memory(), memory(), any::<u32>()),
        proptest::option::of(-90i64..90),
        any::<bool>(),
    )
        .prop_map(
            |(holders, gone, (used, unattributed, percent), busy, seen)| HeldDevice {
                memory_used: used,
                memory_unattributed: unattributed,
                utilization: Value(Percent(percent)),
                busy_alone_since: busy.map(|seconds| NOW.plus_seconds(-seconds)),
                ended: gone
                    .into_iter()
                    .map(|(pid, tenths, seconds)| ended(pid, tenths.into(), seconds))
                    .collect(),
                unseen: (!seen).then(|| "x".to_owned()),
                ..device(holders)
            },
        )
}

proptest! {
    #[test]
    fn a_command_names_persons_orphans_only(seen in anything()) {
        for found in findings(&seen, NOW) {
            let Some(Remedy::End(pids)) = found.remedy else { continue };
            prop_assert_eq!(found.cause, Cause::Orphans);
            prop_assert!(seen.unseen.is_none());
            prop_assert!(!pids.is_empty() && pids.len() <= 1000);
            for pid in pids {
                prop_assert!(pid > 1);
                let mut holders = seen.holders.iter().filter(|holder| holder.pid == pid);
                let is_a_persons_orphan = holders.any(|holder| {
                    let name = holder.name.known().map_or("", String::as_str);
                    protection(pid, name).is_none()
                        && holder.uid.known().is_some_and(|uid| *uid >= 1000)
                        && matches!(role(holder, &seen), Role::Orphan { .. })
                });
                prop_assert!(is_a_persons_orphan, "{pid}");
            }
        }
    }

    #[test]
    fn unknown_is_said_where_nothing_else_is_known_and_nobody_only_after_a_whole_search(seen in anything()) {
        let found = findings(&seen, NOW);
        let unknown = found.iter().any(|found| found.cause == Cause::Unknown);
        let of_none = |found: &Finding| matches!(found.cause, Cause::Unknown | Cause::BusyAlone);
        // What is on its way back leaves open whose the rest is.
        let waited_for = |found: &Finding| found.cause == Cause::TearingDown;
        let alone = found.iter().all(|found| of_none(found) || waited_for(found));
        prop_assert!(!unknown || alone);
        if seen.unseen.is_some() {
            for said in found.iter().flat_map(|found| &found.evidence) {
                prop_assert!(!said.contains("the open files of every process were looked at"), "{said}");
            }
        }
    }

    #[test]
    fn a_listed_process_that_explains_all_leaves_no_cause(mut seen in anything()) {
        let used = seen.memory_used.known().copied().unwrap_or(Bytes(1 << 35));
        seen.memory_used = Value(used);
        seen.memory_unattributed = Value(Bytes(0));
        seen.holders.push(listed(70_000, Value(used)));
        prop_assert_eq!(findings(&seen, NOW), []);
    }
}
