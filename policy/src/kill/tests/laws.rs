//! Properties of every plan, on any host and for any request.

use super::super::late_members::find_forked;
use super::super::protection::protection_of;
use super::super::reclaimed::reclaimed_memory;
use super::super::scope::ScopeIndex;
use super::super::*;
use super::fixture::*;
use crate::access::{Operation, Ruling, check};
use gpukill_proto::kill::{KillPlan, KillRequest, KillScope, KillSelector, PlannedAction};
use gpukill_proto::model::{ProcessKey, Vendor};
use gpukill_proto::units::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NAMES: [&str; 12] = [
    "python",
    "torchrun",
    "bash",
    "sh",
    "sshd",
    "tmux: server",
    "Xorg",
    "nv-hostengine",
    "slurmstepd",
    "conmon",
    "kitty",
    "train",
];

/// One process, as numbers that each choose one of its properties.
type ProcessChoice = (u32, [u8; 8], Option<(usize, u64)>);

fn choice() -> impl Strategy<Value = ProcessChoice> {
    (
        0..40u32,
        any::<[u8; 8]>(),
        proptest::option::of((0..5usize, 1..9u64)),
    )
}

fn add(test_host: &mut KillTestHost, pid: u32, choice: &ProcessChoice) {
    let (parent, chosen, uses) = choice;
    let pick = |at: usize, among: u8| chosen[at] % among;
    let uid = [0, ALICE, ALICE, ALICE, BOB, 100_999][usize::from(pick(0, 6))];
    let name = NAMES[usize::from(chosen[1]) % NAMES.len()];
    // The parent existed before.
    let parent = 100 + parent % (pid - 99);
    let parent = if parent == pid { 1 } else { parent };
    let process = test_host.add(process(pid, parent, uid, name));
    process.lineage.group = 100 + u32::from(pick(2, 40));
    process.lineage.session = 100 + u32::from(pick(3, 40));
    process.lineage.on_terminal = pick(3, 2) == 0;
    if pick(4, 4) == 0 {
        process.uids = Reading::Value(Uids {
            real: uid,
            effective: 0,
            saved: uid,
        });
    }
    match pick(5, 8) {
        0 | 1 => process.container = Reading::Value(Some(container('a', "train", None))),
        2 => {
            process.container = Reading::Value(Some(container('c', "mine", Some(ALICE))));
            process.namespace_owner = Reading::Value(Some(ALICE));
            process.lineage.namespace_creator = Some(ALICE);
        }
        3 => process.lineage.unit = Some(unit("train.service", None)),
        4 => process.container = Reading::Failed("x".into()),
        5 => process.uids = Reading::Failed("x".into()),
        _ => {}
    }
    match pick(6, 16) {
        0 => process.state = ProcessState::Zombie,
        1 => process.lineage.executable = Some("/home/eve/x".into()),
        2 => process.lineage.executable = None,
        3 => process.is_kernel_thread = true,
        4 => process.command = Reading::Failed("x".into()),
        _ => {}
    }
    if let Some((gpu, gib)) = uses {
        test_host.list_process(pid, *gpu, *gib);
    }
}

fn host_of(choices: &[ProcessChoice]) -> KillTestHost {
    let mut test_host = KillTestHost::new();
    test_host.protection.users = vec!["4242".into()];
    test_host.protection.containers = vec!["prod".into()];
    for (at, choice) in choices.iter().enumerate() {
        add(&mut test_host, 100 + u32::try_from(at).unwrap(), choice);
    }
    test_host.with_jobs()
}

fn any_host() -> impl Strategy<Value = Vec<ProcessChoice>> {
    proptest::collection::vec(choice(), 1..40)
}

fn any_scope() -> impl Strategy<Value = KillScope> {
    prop_oneof![
        Just(KillScope::Process),
        Just(KillScope::Tree),
        Just(KillScope::Job),
        Just(KillScope::Container),
    ]
}

fn any_selector() -> impl Strategy<Value = KillSelector> {
    let maybe = |texts: &'static [&'static str]| {
        proptest::option::weighted(0.3, proptest::sample::select(texts).prop_map(str::to_owned))
    };
    (
        proptest::collection::vec(100..140u32, 0..3),
        maybe(&["python", "^t", "s"]),
        maybe(&["alice", "of"]),
        maybe(&["0", "0-2", "4"]),
        maybe(&["alice", "1001", "root"]),
        maybe(&["train", "mine"]),
        maybe(&["train.service", "tree 103"]),
        proptest::option::weighted(0.2, (1..9u64).prop_map(|gib| Bytes(gib * GIB))),
        proptest::collection::btree_set(Just(Vendor::Nvidia), 0..2),
    )
        .prop_map(
            |(pids, filter, command, gpu, user, container, job, min_memory, vendors)| {
                KillSelector {
                    pids,
                    filter,
                    command,
                    gpu,
                    user,
                    container,
                    image: None,
                    job,
                    min_memory,
                    vendors,
                }
            },
        )
}

fn any_caller() -> impl Strategy<Value = Caller> {
    prop_oneof![
        Just(caller(ALICE, &[ALICE])),
        Just(caller(BOB, &[])),
        Just(olga()),
        Just(caller(0, &[])),
        Just(Caller {
            contained: true,
            ..caller(0, &[0, OPERATORS])
        }),
        Just(Caller {
            contained: true,
            ..caller(ALICE, &[OPERATORS])
        }),
    ]
}

fn ended(plan: &KillPlan) -> BTreeSet<ProcessKey> {
    let targets = plan.targets.iter();
    let ended = targets.filter(|target| matches!(target.action, PlannedAction::End(_)));
    ended.map(|target| target.key).collect()
}

fn all(plan: &KillPlan) -> BTreeSet<ProcessKey> {
    plan.targets.iter().map(|target| target.key).collect()
}

/// Adds the conditions of `by` that `selector` lacks.
fn narrowed(selector: &KillSelector, by: &KillSelector) -> KillSelector {
    let or = |own: &Option<String>, other: &Option<String>| own.clone().or_else(|| other.clone());
    KillSelector {
        pids: if selector.pids.is_empty() {
            by.pids.clone()
        } else {
            selector.pids.clone()
        },
        filter: or(&selector.filter, &by.filter),
        command: or(&selector.command, &by.command),
        gpu: or(&selector.gpu, &by.gpu),
        user: or(&selector.user, &by.user),
        container: or(&selector.container, &by.container),
        image: or(&selector.image, &by.image),
        job: or(&selector.job, &by.job),
        min_memory: selector.min_memory.or(by.min_memory),
        vendors: if selector.vendors.is_empty() {
            by.vendors.clone()
        } else {
            selector.vendors.clone()
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn protected_foreign_and_session_hosts_survive(
        choices in any_host(),
        selector in any_selector(),
        scope in any_scope(),
        caller in any_caller(),
        force: bool,
    ) {
        let test_host = host_of(&choices);
        let request = KillRequest { force, ..request(selector, scope) };
        let Ok(plan) = test_host.plan(&caller, &request) else { return Ok(()) };
        let plain = caller.uid != 0 && (caller.contained || caller.groups.is_empty() || caller.uid == ALICE);
        let scopes = ScopeIndex::new(&test_host.process_table);
        for key in ended(&plan) {
            let process = &test_host.process_table[&key.pid];
            let family = test_host.daemon_family();
            prop_assert_eq!(protection_of(process, &family, &test_host.protection), None);
            let namespace_owner = process.namespace_owner.known().copied().flatten();
            let operation = Operation::End { uids: process.uids.known().copied(), namespace_owner };
            prop_assert_eq!(check(&caller, operation, &test_host.roles), Ruling::Allow);
            if plain {
                let is_all = process.uids == Reading::Value(Uids::from_single(caller.uid));
                prop_assert!(is_all || namespace_owner == Some(caller.uid));
            }
            prop_assert!(!scopes.hosts_sessions(process) || request.selector.pids.contains(&key.pid));
            prop_assert!(process.state != ProcessState::Zombie);
        }
        for target in &plan.targets {
            if let PlannedAction::End(signals) = &target.action {
                prop_assert!(!signals.is_empty());
                prop_assert_eq!(signals.contains(&gpukill_proto::kill::KillSignal::Kill), force);
            }
        }
        // The targets are sorted by pid, without duplicates.
        prop_assert!(plan.targets.windows(2).all(|two| two[0].key.pid < two[1].key.pid));
        for rest in &plan.remaining_jobs {
            prop_assert!(rest.remaining_processes > 0);
            let named = test_host.process_table.get(&rest.pid).unwrap();
            prop_assert_eq!(named.job.known(), Some(&rest.job));
            let is_ended = ended(&plan).contains(&named.lineage.key);
            let users = device_use::device_users(&test_host.snapshot, &test_host.holders);
            prop_assert!(is_ended || users.contains(&named.lineage.key));
        }
    }

    #[test]
    fn tree_and_job_stay_within_a_person(
        choices in any_host(),
        at in 0..40usize,
        scope in any_scope(),
    ) {
        let test_host = host_of(&choices);
        let pid = 100 + u32::try_from(at % choices.len()).unwrap();
        let process = &test_host.process_table[&pid];
        let scopes = ScopeIndex::new(&test_host.process_table);
        let Ok(keys) = scopes.processes_in_scope(process, scope) else {
            return Ok(());
        };
        let alone = scopes.processes_in_scope(process, KillScope::Process).unwrap();
        // Every scope includes the process itself.
        prop_assert!(alone.is_subset(&keys));
        let of_container = matches!(process.job.known(), Some(Job::Container { .. }));
        for key in keys.iter().filter(|key| **key != process.lineage.key) {
            let other = &test_host.process_table[&key.pid];
            prop_assert!(!scopes.hosts_sessions(other), "{}", other.lineage.name);
            let one_person = match scope {
                KillScope::Process | KillScope::Tree => true,
                KillScope::Job => !of_container,
                KillScope::Container => false,
            };
            prop_assert!(!one_person || other.lineage.person() == process.lineage.person());
        }
    }

    #[test]
    fn narrower_request_ends_no_other(
        choices in any_host(),
        selector in any_selector(),
        by in any_selector(),
        scope in any_scope(),
        caller in any_caller(),
    ) {
        let test_host = host_of(&choices);
        prop_assume!(selector != KillSelector::default());
        let less = narrowed(&selector, &by);
        let Ok(less_plan) = test_host.plan(&caller, &request(less.clone(), scope)) else {
            return Ok(());
        };
        let plan = test_host.plan(&caller, &request(selector.clone(), scope));
        prop_assert!(plan.is_ok(), "{plan:?}");
        let plan = plan.unwrap();
        // A session host is ended, with its job, where its pid names it, and not where
        // another condition holds for it.
        let scopes = ScopeIndex::new(&test_host.process_table);
        let keeps = |pid: &u32| {
            let process = test_host.process_table.get(pid);
            process.is_some_and(|process| scopes.hosts_sessions(process))
        };
        if less.pids == selector.pids || !less.pids.iter().any(keeps) {
            prop_assert!(all(&less_plan).is_subset(&all(&plan)));
            prop_assert!(ended(&less_plan).is_subset(&ended(&plan)));
        }
    }

    #[test]
    fn late_member_rounds_terminate(
        choices in any_host(),
        later in any_host(),
        parents in proptest::collection::vec(100..160u32, 60),
        members in proptest::collection::btree_set(100..140u32, 1..5),
        scope in any_scope(),
    ) {
        let first = host_of(&choices);
        let mut now = host_of(&choices);
        for (at, choice) in later.iter().enumerate() {
            add(&mut now, 140 + u32::try_from(at).unwrap(), choice);
        }
        let mut now = now.with_jobs();
        // Parents as they may be read while the process table changes, cycles included.
        for (process, parent) in now.process_table.values_mut().zip(parents) {
            if process.lineage.key.pid >= 100 {
                process.parent = parent;
            }
        }
        let scopes = ScopeIndex::new(&now.process_table);
        let member = |process: &ProcessInfo| (process.lineage.key, process.clone());
        let members = members.iter().filter_map(|pid| first.process_table.get(pid));
        let mut members: BTreeMap<ProcessKey, ProcessInfo> = members.map(member).collect();
        let people: BTreeSet<Option<u32>> = members.values().map(|it| it.lineage.person()).collect();
        for round in 0.. {
            prop_assert!(round <= now.process_table.len());
            let born = find_forked(&members, scope, &first.process_table, &now.process_table);
            if born.is_empty() {
                break;
            }
            prop_assert!(scope != KillScope::Process);
            for key in &born {
                let process = &now.process_table[&key.pid];
                prop_assert!(people.contains(&process.lineage.person()) && process.lineage.uid.is_some());
                prop_assert!(!members.contains_key(key));
                prop_assert!(!first.process_table.contains_key(&key.pid));
                prop_assert!(!scopes.hosts_sessions(process));
            }
            members.extend(born.iter().map(|key| member(&now.process_table[&key.pid])));
        }
    }

    #[test]
    fn reclaimed_memory_is_bounded_by_held(
        choices in any_host(),
        later in any_host(),
        gone in any::<u64>(),
        before_gib in 0..9u64,
        after_gib in 0..9u64,
    ) {
        let mut before = host_of(&choices);
        let mut now = host_of(&later);
        for (test_host, gib) in [(&mut before, before_gib), (&mut now, after_gib)] {
            for device in &mut test_host.snapshot.devices {
                device.memory_unattributed = Reading::Value(Bytes(gib * GIB));
            }
        }
        let keys = before.process_table.keys().filter(|pid| gone >> (*pid % 64) & 1 == 1);
        let ended = keys.map(|pid| before.process_table[pid].lineage.key);
        let ended: BTreeSet<ProcessKey> = ended.collect();
        let sum = |test_host: &KillTestHost, device: &gpukill_proto::model::DeviceId| -> u64 {
            let of = test_host.snapshot.processes.iter();
            let of_ended = of.filter(|p| p.device == *device && ended.contains(&p.key().unwrap()));
            of_ended.map(|p| p.memory.known().unwrap().0).sum()
        };
        for part in reclaimed_memory(&ended, &BTreeSet::new(), &before.snapshot, &[], &now.snapshot) {
            let held = sum(&before, &part.device);
            prop_assert_eq!(part.held.known(), Some(&Bytes(held)));
            let returned = part.returned.known().unwrap().0;
            prop_assert!(returned <= held);
            prop_assert!(returned <= held.saturating_sub(sum(&now, &part.device)));
            let new = (after_gib * GIB).saturating_sub(before_gib * GIB);
            prop_assert!(returned <= held.saturating_sub(new));
        }
        // Without a change, no memory is reclaimed.
        for part in reclaimed_memory(&ended, &BTreeSet::new(), &before.snapshot, &[], &before.snapshot) {
            prop_assert_eq!(part.returned, Reading::Value(Bytes(0)));
        }
    }
}
