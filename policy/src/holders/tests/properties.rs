//! Properties of every finding.

use super::*;
use crate::holders::role::program_protection;
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

fn any_holder() -> impl Strategy<Value = Holder> {
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
                    used_for: GpuUse {
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

fn any_device() -> impl Strategy<Value = DeviceHolders> {
    (
        proptest::collection::vec(any_holder(), 0..8),
        proptest::collection::vec((pid(), any::<u8>(), -90i64..90), 0..4),
        (memory(), memory(), any::<u32>()),
        proptest::option::of(-90i64..90),
        any::<bool>(),
    )
        .prop_map(
            |(holders, gone, (used, unattributed, percent), busy, is_complete)| DeviceHolders {
                memory_used: used,
                memory_unattributed: unattributed,
                utilization: Value(Percent(percent)),
                busy_without_holder_since: busy.map(|seconds| NOW.plus_seconds(-seconds)),
                ended: gone
                    .into_iter()
                    .map(|(pid, tenths, seconds)| ended(pid, tenths.into(), seconds))
                    .collect(),
                incomplete_reason: (!is_complete).then(|| "x".to_owned()),
                ..device(holders)
            },
        )
}

proptest! {
    #[test]
    fn command_names_only_orphans_of_people(device in any_device()) {
        for found in find_causes(&device, NOW) {
            let Some(Remedy::End(pids)) = found.remedy else { continue };
            prop_assert_eq!(found.cause, Cause::Orphans);
            prop_assert!(device.incomplete_reason.is_none());
            prop_assert!(!pids.is_empty() && pids.len() <= 1000);
            for pid in pids {
                prop_assert!(pid > 1);
                let mut holders = device.holders.iter().filter(|holder| holder.pid == pid);
                let is_a_persons_orphan = holders.any(|holder| {
                    let name = holder.name.known().map_or("", String::as_str);
                    program_protection(pid, name).is_none()
                        && holder.uid.known().is_some_and(|uid| *uid >= 1000)
                        && matches!(role(holder, &device), Role::Orphan { .. })
                });
                prop_assert!(is_a_persons_orphan, "{pid}");
            }
        }
    }

    #[test]
    fn unknown_cause_stands_alone(device in any_device()) {
        let found = find_causes(&device, NOW);
        let unknown = found.iter().any(|found| found.cause == Cause::Unknown);
        let of_none = |found: &HolderFinding| matches!(found.cause, Cause::Unknown | Cause::BusyWithoutHolder);
        // Teardown leaves open which process holds the rest.
        let waited_for = |found: &HolderFinding| found.cause == Cause::TearingDown;
        let alone = found.iter().all(|found| of_none(found) || waited_for(found));
        prop_assert!(!unknown || alone);
        if device.incomplete_reason.is_some() {
            for text in found.iter().flat_map(|found| &found.evidence) {
                prop_assert!(!text.contains("all open files were scanned"), "{text}");
            }
        }
    }

    #[test]
    fn fully_explained_memory_has_no_cause(mut device in any_device()) {
        let used = device.memory_used.known().copied().unwrap_or(Bytes(1 << 35));
        device.memory_used = Value(used);
        device.memory_unattributed = Value(Bytes(0));
        device.holders.push(listed(70_000, Value(used)));
        prop_assert_eq!(find_causes(&device, NOW), []);
    }
}
