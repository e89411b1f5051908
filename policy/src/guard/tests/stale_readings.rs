//! No rule acts on old readings: while nothing fresh is known, no warning is shown and no job
//! is ended.

use super::super::enforcement::plan_check::processes_on_devices;
use super::record_text::record_line;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use gpukill_proto::model::{Device, DeviceId, GpuProcess, Snapshot, Vendor};
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

fn terminate_measures() -> Measures {
    Measures {
        action: Some(GuardAction::Terminate),
        ..Measures::default()
    }
}

/// What bob does in the sample of this number.
type UseStep = fn(usize, &mut TestHost);

/// A rule of each kind that depends on readings, and behaviour that breaks it.
fn violations_of_each_kind() -> Vec<(&'static str, RuleSet, UseStep)> {
    let of_default = |limits: Limits| RuleSet {
        defaults: limits,
        ..dry_run_rules()
    };
    let of_rule = |behaviour: ForbiddenBehaviour| RuleSet {
        behaviours: vec![BehaviourRule {
            measures: terminate_measures(),
            ..behaviour_rule("rule", behaviour)
        }],
        ..dry_run_rules()
    };
    let of_gpu = |policy: GpuPolicy| RuleSet {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            measures: terminate_measures(),
            ..policy
        }],
        ..dry_run_rules()
    };
    let of_bob = |limits: Limits| RuleSet {
        users: vec![UserPolicy {
            name: "bob".into(),
            limits,
            measures: terminate_measures(),
            ..UserPolicy::default()
        }],
        ..dry_run_rules()
    };
    let idles: UseStep = |_, world| _ = world.process(100).uses(0, 40, 0);
    let works: UseStep = |_, world| _ = world.process(100).uses(0, 40, 90);
    vec![
        (
            "idle",
            of_default(Limits {
                idle: Some(minutes(1)),
                ..Limits::default()
            }),
            idles,
        ),
        (
            "idle, with little processor time",
            of_rule(ForbiddenBehaviour::Idle(IdleParams {
                limit: minutes(1),
                min_memory: Bytes(0),
                with_connections: true,
                cpu_below: Some(Percent(5)),
            })),
            |_, world| _ = world.process(100).uses(0, 40, 0).computes(Some(0)),
        ),
        (
            "waste",
            of_rule(ForbiddenBehaviour::Waste(WasteParams {
                below: Percent(30),
                min_memory: Bytes(GIB),
                hours: minutes(20),
            })),
            idles,
        ),
        (
            "runaway",
            of_rule(ForbiddenBehaviour::Runaway(RunawayParams {
                above: Percent(50),
                limit: minutes(1),
                orphaned: false,
            })),
            works,
        ),
        (
            "growth",
            of_rule(ForbiddenBehaviour::Growth(GrowthParams {
                by: Bytes(GIB),
                within: minutes(4),
            })),
            |nth, world| _ = world.process(100).uses(0, 2 + nth as u64, 50),
        ),
        ("memory", of_default(memory_limit(20)), idles),
        (
            "duration",
            of_default(Limits {
                duration: Some(minutes(1)),
                ..Limits::default()
            }),
            idles,
        ),
        (
            "processes",
            of_default(Limits {
                processes: Some(0),
                ..Limits::default()
            }),
            idles,
        ),
        (
            "utilization",
            of_bob(Limits {
                utilization: Some(Percent(20)),
                ..Limits::default()
            }),
            works,
        ),
        (
            "utilization of a GPU",
            of_gpu(GpuPolicy {
                max_utilization: Some(Percent(20)),
                ..GpuPolicy::default()
            }),
            |_, world| {
                world.process(100).uses(0, 40, 90);
                world.devices[0].utilization = Some(90);
            },
        ),
        (
            "reserved memory of a GPU",
            of_gpu(GpuPolicy {
                reserved_memory: gib(60),
                ..GpuPolicy::default()
            }),
            idles,
        ),
        (
            "memory of a process",
            of_gpu(GpuPolicy {
                max_memory: gib(10),
                ..GpuPolicy::default()
            }),
            idles,
        ),
        (
            "access",
            of_gpu(GpuPolicy {
                blocked_users: names(&["bob"]),
                ..GpuPolicy::default()
            }),
            idles,
        ),
    ]
}

/// Hides everything from the rules: the driver hangs, or its list of processes fails.
fn hide_readings(world: &mut TestHost, is_list_only: bool) {
    world.devices[0].reports_processes = false;
    if !is_list_only {
        world.devices[0].used = None;
        world.devices[0].utilization = None;
    }
}

fn is_end(record: &GuardRecord) -> bool {
    matches!(record.step, GuardStep::Ended(_))
}

/// The number of samples until a job is ended.
fn samples_until_end((guard, world): (&mut TestGuard, &mut TestHost), uses: UseStep) -> usize {
    let ends = |nth: &usize| {
        uses(*nth, world);
        guard.evaluate_samples(world, 1).iter().any(is_end)
    };
    let ends = (0..400).find(ends);
    ends.expect("it comes to an end")
}

fn start(rules: RuleSet, mode: GuardMode) -> (TestGuard, TestHost) {
    let mut rules = RuleSet { mode, ..rules };
    rules.enforcement.grace = minutes(5);
    rules.enforcement.max_warnings = 20;
    let mut world = TestHost::new(1);
    world.start(100, "bob").uses(0, 1, 0).job("train");
    (TestGuard::new(rules), world)
}

#[test]
fn stale_readings_cause_no_action() {
    for (what, rules, uses) in violations_of_each_kind() {
        for mode in [GuardMode::Soft, GuardMode::Enforce] {
            let (mut guard, mut world) = start(rules.clone(), mode);
            let whole = samples_until_end((&mut guard, &mut world), uses);
            for is_list_only in [false, true] {
                let context = format!("{what}, {mode:?}, only the list: {is_list_only}");
                let (mut guard, mut world) = start(rules.clone(), mode);
                for nth in 0..whole {
                    uses(nth, &mut world);
                    guard.evaluate_samples(&mut world, 1);
                }
                // The job would be ended now.
                let devices = world.devices.clone();
                hide_readings(&mut world, is_list_only);
                let actual = guard.evaluate_samples(&mut world, 3);
                // The values of a whole device are known without the list.
                let is_known = is_list_only && what.contains("of a GPU");
                let is_act = |record: &&GuardRecord| match record.step {
                    GuardStep::Ended(_) => true,
                    GuardStep::Violated | GuardStep::Warned { .. } => !is_known,
                    _ => false,
                };
                let acts: Vec<String> = actual.iter().filter(is_act).map(record_line).collect();
                assert_eq!(acts, [""; 0], "{context}");
                world.devices = devices;
                let still: UseStep = match what {
                    // The memory must grow through the whole window again.
                    "growth" => uses,
                    _ => |_, _| (),
                };
                samples_until_end((&mut guard, &mut world), still);
            }
        }
    }
}

#[test]
fn first_fresh_reading_decides() {
    let rules = violations_of_each_kind().swap_remove(0).1;
    let (mut guard, mut world) = start(rules, GuardMode::Soft);
    violations_of_each_kind()[0].2(0, &mut world);
    // The job is idle after a minute and would be ended five minutes later.
    guard.evaluate_samples(&mut world, 35);
    hide_readings(&mut world, false);
    guard.evaluate_samples(&mut world, 3);
    let open = guard.state.violations();
    assert_eq!(open.len(), 1);
    world.devices[0].reports_processes = true;
    // The job works again.
    world.process(100).uses(0, 40, 50);
    let actual: Vec<String> = guard
        .evaluate_samples(&mut world, 1)
        .iter()
        .map(record_line)
        .collect();
    assert_eq!(actual, ["00:06:30 bob (train): default: idle: over [soft]"]);
}

#[test]
fn gpu_use_needs_fresh_readings() {
    let id = DeviceId("GPU-0".into());
    let why = Reading::<()>::Failed("Unknown Error (999)".to_owned());
    let mut row = GpuProcess::unknown(id.clone(), 7, Timestamp(0), &why.as_unknown());
    row.start_ticks = Reading::Value(70);
    let mut device = Device::unknown(id.clone(), 0, Vendor::Nvidia, &Reading::Unsupported);
    let sampled_memory = |device: Option<&Device>, rows: &[GpuProcess]| {
        let snapshot = Snapshot {
            host: "box".into(),
            taken_at: Timestamp(0),
            polls: 1,
            devices: device.into_iter().cloned().collect(),
            processes: rows.to_vec(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        processes_on_devices(&snapshot, &[(7, 70), (8, 80)].into(), &[id.clone()].into())
    };
    let unknown = |why: &str| {
        let text = format!("whether its processes still use a GPU is not known: {why}");
        Err::<BTreeSet<_>, _>(text)
    };
    device.process_count = Reading::Value(1);
    let rows = [row];
    assert_eq!(sampled_memory(Some(&device), &rows), Ok([(7, 70)].into()));
    let none = "none of its processes uses a GPU any more".to_owned();
    assert_eq!(sampled_memory(Some(&device), &[]), Err(none));
    device.process_count = why.as_unknown();
    let failed = "the list of processes of GPU 0 failed: Unknown Error (999)";
    assert_eq!(sampled_memory(Some(&device), &[]), unknown(failed));
    device.process_count = Reading::Stale(1, 4);
    let old = "the readings of GPU 0 are 4 s old";
    assert_eq!(sampled_memory(Some(&device), &rows), unknown(old));
    assert_eq!(sampled_memory(None, &rows), unknown("GPU-0 is gone"));
}
