//! `cargo bench -p gpukill-tests --bench evaluate`: the cost of evaluating one sample, with 10,000
//! processes and 1,000 rules, and with a common box and a common rule file.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

use gpukill_policy::guard::rules::*;
use gpukill_policy::guard::sample::{DeviceSample, GuardSample, ProcessFacts, RunSample};
use gpukill_policy::guard::schedule::{Hours, LocalTime};
use gpukill_policy::guard::{CompiledRules, GuardState, evaluate};
use gpukill_policy::select::compile_pattern;
use gpukill_policy::usage::{DeviceUsage, Gauge, RunUsage};
use gpukill_proto::guard::{GuardMode, Person, RunKey};
use gpukill_proto::model::{DeviceId, NetworkRole};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// The sample interval.
const SAMPLE_MS: u64 = 10_000;

fn main() {
    println!(
        "{:<44} {:>10} {:>10} {:>10} {:>9} {:>8}",
        "", "first ms", "mean ms", "max ms", "records", "KiB kept"
    );
    let simulated = SimulatedProcesses {
        processes: 10_000,
        owners: 500,
        devices: 64,
    };
    let common = SimulatedProcesses {
        processes: 64,
        owners: 8,
        devices: 8,
    };
    measure(
        "10,000 processes, 1,000 rules",
        &simulated,
        many_rules(1.0),
        40,
    );
    measure(
        "10,000 processes, 1,000 rules, none broken",
        &simulated,
        many_rules(1e3),
        40,
    );
    measure(
        "10,000 processes, defaults alone",
        &simulated,
        few_rules(),
        40,
    );
    measure(
        "64 processes, defaults and two rules",
        &common,
        few_rules(),
        8_640,
    );
}

struct SimulatedProcesses {
    processes: u32,
    owners: u32,
    devices: u32,
}

fn measure(name: &str, simulated: &SimulatedProcesses, rules: RuleSet, samples: u32) {
    let compiled = CompiledRules::new(rules);
    let mut memory = GuardState::default();
    let facts: Vec<Arc<ProcessFacts>> = (0..simulated.processes)
        .map(|pid| Arc::new(process_facts(pid, simulated)))
        .collect();
    let mut first = Duration::ZERO;
    let (mut total, mut most) = (Duration::ZERO, Duration::ZERO);
    let mut records = 0;
    for nth in 0..samples {
        let new_sample = sample(simulated, &facts, nth);
        let started_at = Instant::now();
        let evaluation = evaluate(&compiled, &mut memory, &new_sample);
        let took = started_at.elapsed();
        assert_eq!(
            evaluation.overflow.total(),
            0,
            "there is room for all of it"
        );
        records += evaluation.records.len();
        if nth == 0 {
            first = took;
        } else {
            total += took;
            most = most.max(took);
        }
    }
    let kept = serde_json::to_string(&memory).unwrap().len() / 1024;
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    println!(
        "{name:<44} {:>10.3} {:>10.3} {:>10.3} {records:>9} {kept:>8}",
        ms(first),
        ms(total / (samples - 1)),
        ms(most),
    );
}

fn process_facts(pid: u32, simulated: &SimulatedProcesses) -> ProcessFacts {
    let owner = pid % simulated.owners;
    ProcessFacts {
        owner: Some(Person {
            name: format!("user{owner}"),
            uid: Some(1_000 + owner),
        }),
        user: Some((Some(format!("user{owner}")), 1_000 + owner)),
        nameless_uids: Vec::new(),
        is_contained: Some(false),
        in_host_user_namespace: Some(true),
        has_trusted_name: Some(false),
        groups: Some(vec![format!("group{}", owner % 50), "gpu".into()]),
        name: Some("python".into()),
        executable: Some("/usr/bin/python3.11".into()),
        command: Some(format!(
            "python train.py --rank {pid} --lr 0.001 --epochs 90"
        )),
        image: Some(None),
        unit: Some(None),
        pod: Some(None),
        scheduler: Some(None),
        account: Some(None),
        job: Some((format!("tree {}", pid / 4), format!("tree {}", pid / 4))),
        is_orphaned: Some(false),
        suspected: Some(None),
        network: Some(NetworkRole::Private),
    }
}

fn gauge(value: u64) -> Gauge {
    Gauge {
        max: Some(value),
        known_ms: SAMPLE_MS,
        total: u128::from(value) * u128::from(SAMPLE_MS),
        is_failed: false,
    }
}

fn sample(simulated: &SimulatedProcesses, facts: &[Arc<ProcessFacts>], nth: u32) -> GuardSample {
    let from = Timestamp(i64::from(nth) * 10_000);
    let device = |index: u32| {
        let evaluated = DeviceSample {
            index,
            name: Some("NVIDIA H100 80GB HBM3".into()),
            pci: Some(format!("0000:{index:02x}:00.0")),
            memory: Some(Bytes(80 * GIB)),
            is_unified: false,
            usage: DeviceUsage {
                memory: gauge(40 * GIB),
                utilization: gauge(70),
                held_ms: SAMPLE_MS,
                ..DeviceUsage::default()
            },
        };
        (DeviceId(format!("GPU-{index:08x}")), evaluated)
    };
    let runs = (0_u32..).zip(facts).map(|(pid, about)| {
        let device = pid % simulated.devices;
        let run = RunKey {
            pid,
            start_ticks: u64::from(pid) * 7,
            device: DeviceId(format!("GPU-{device:08x}")),
            instance: None,
        };
        let evaluated = RunSample {
            facts: Arc::clone(about),
            first_seen: Timestamp(0),
            usage: RunUsage {
                held_ms: SAMPLE_MS,
                memory: gauge(GIB / 8 * u64::from(pid % 40)),
                utilization: gauge(u64::from((pid * 7 + nth) % 101)),
                ..RunUsage::default()
            },
            is_present: true,
        };
        (Arc::new(run), evaluated)
    });
    GuardSample {
        from,
        until: Timestamp(from.0 + 10_000),
        observed_ms: SAMPLE_MS,
        local_time: LocalTime::default(),
        devices: (0..simulated.devices).map(device).collect(),
        runs: runs.collect(),
    }
}

fn behaviour(name: String, members: Members, conduct: ForbiddenBehaviour) -> BehaviourRule {
    BehaviourRule {
        name,
        members,
        except_users: vec!["root".into()],
        gpus: Vec::new(),
        processes: vec![Glob {
            typed: "python*".into(),
            regex: compile_pattern("^python.*$").unwrap(),
        }],
        command: Some(Pattern {
            typed: "train".into(),
            regex: compile_pattern("train").unwrap(),
        }),
        behaviour: conduct,
        measures: Measures::default(),
        ends_services: false,
    }
}

fn few_rules() -> RuleSet {
    RuleSet {
        mode: GuardMode::DryRun,
        defaults: Limits {
            memory: Some(Bytes(16 * GIB)),
            utilization: Some(Percent(80)),
            duration: Some(Duration::from_secs(12 * 3_600)),
            processes: Some(100),
            idle: Some(Duration::from_secs(1_800)),
            idle_min_memory: Some(Bytes(GIB)),
        },
        behaviours: vec![
            behaviour(
                "waste".into(),
                Members::default(),
                ForbiddenBehaviour::Waste(WasteParams {
                    below: Percent(5),
                    min_memory: Bytes(4 * GIB),
                    hours: Duration::from_secs(7_200),
                }),
            ),
            behaviour(
                "growth".into(),
                Members::default(),
                ForbiddenBehaviour::Growth(GrowthParams {
                    by: Bytes(8 * GIB),
                    within: Duration::from_secs(7_200),
                }),
            ),
        ],
        ..RuleSet::default()
    }
}

/// Rules for 400 persons, 100 groups, 100 devices, 100 times and 300 behaviours.
fn many_rules(wide: f64) -> RuleSet {
    let wide = |gib: u64| Some(Bytes((gib as f64 * wide) as u64 * GIB));
    let user = |nth: u32| UserPolicy {
        name: format!("user{nth}"),
        limits: Limits {
            memory: wide(40),
            processes: Some(50),
            ..Limits::default()
        },
        ..UserPolicy::default()
    };
    let group = |nth: u32| GroupPolicy {
        name: format!("group{nth}"),
        members: Members {
            unix_groups: vec![format!("group{nth}")],
            ..Members::default()
        },
        total_memory: wide(400),
        ..GroupPolicy::default()
    };
    let gpu = |nth: u32| GpuPolicy {
        name: format!("{nth}"),
        gpus: vec![GpuSelector(format!("{nth}"))],
        max_memory: wide(6),
        blocked_users: vec![format!("user{}", nth + 1_000)],
        ..GpuPolicy::default()
    };
    let time = |nth: u32| TimePolicy {
        name: format!("time{nth}"),
        hours: Hours {
            from: u16::try_from(nth).unwrap(),
            to: 1_440,
            days: Vec::new(),
        },
        limits: Limits {
            memory: wide(64),
            ..Limits::default()
        },
        ..TimePolicy::default()
    };
    let one = |nth: u32| {
        let members = Members {
            users: vec![format!("user{nth}")],
            ..Members::default()
        };
        let conduct = ForbiddenBehaviour::Idle(IdleParams {
            limit: Duration::from_secs(600),
            min_memory: Bytes(GIB),
            with_connections: false,
            cpu_below: None,
        });
        behaviour(format!("rule{nth}"), members, conduct)
    };
    RuleSet {
        users: (0..400).map(user).collect(),
        groups: (0..100).map(group).collect(),
        gpus: (0..100).map(gpu).collect(),
        times: (0..100).map(time).collect(),
        behaviours: (0..300).map(one).collect(),
        ..few_rules()
    }
}
