//! No rule acts on what was read before: while nothing fresh is known, nobody is warned and
//! nobody is ended.

use super::super::sentence::on_devices;
use super::words::line;
use super::*;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, DeviceId, GpuProcess, Snapshot, Vendor};
use std::collections::BTreeSet;

fn terminates() -> Measures {
    Measures {
        action: Some(GuardAction::Terminate),
        ..Measures::default()
    }
}

/// What bob does in a bucket of this number.
type Uses = fn(usize, &mut World);

/// A rule of each kind that rests on readings, and what breaks it.
fn broken() -> Vec<(&'static str, Rules, Uses)> {
    let of_default = |limits: Limits| Rules {
        defaults: limits,
        ..rules()
    };
    let of_rule = |conduct: Conduct| Rules {
        behaviours: vec![Behaviour {
            measures: terminates(),
            ..behaviour("rule", conduct)
        }],
        ..rules()
    };
    let of_gpu = |policy: GpuPolicy| Rules {
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            measures: terminates(),
            ..policy
        }],
        ..rules()
    };
    let of_bob = |limits: Limits| Rules {
        users: vec![UserPolicy {
            name: "bob".into(),
            limits,
            measures: terminates(),
            ..UserPolicy::default()
        }],
        ..rules()
    };
    let idles: Uses = |_, world| _ = world.process(100).uses(0, 40, 0);
    let works: Uses = |_, world| _ = world.process(100).uses(0, 40, 90);
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
            of_rule(Conduct::Idle {
                limit: minutes(1),
                min_memory: Bytes(0),
                with_connections: true,
                cpu_below: Some(Percent(5)),
            }),
            |_, world| _ = world.process(100).uses(0, 40, 0).computes(Some(0)),
        ),
        (
            "waste",
            of_rule(Conduct::Waste {
                below: Percent(30),
                min_memory: Bytes(GIB),
                hours: minutes(20),
            }),
            idles,
        ),
        (
            "runaway",
            of_rule(Conduct::Runaway {
                above: Percent(50),
                limit: minutes(1),
                orphaned: false,
            }),
            works,
        ),
        (
            "growth",
            of_rule(Conduct::Growth {
                by: Bytes(GIB),
                within: minutes(4),
            }),
            |nth, world| _ = world.process(100).uses(0, 2 + nth as u64, 50),
        ),
        ("memory", of_default(memory(20)), idles),
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

/// What hides everything from the rules: the driver hangs, or its list of processes fails.
fn blind(world: &mut World, is_list_only: bool) {
    world.devices[0].is_listed = false;
    if !is_list_only {
        world.devices[0].used = None;
        world.devices[0].utilization = None;
    }
}

fn is_end(record: &GuardRecord) -> bool {
    matches!(record.step, GuardStep::Ended(_))
}

/// In how many buckets it comes to an end.
fn to_an_end((guard, world): (&mut Guard, &mut World), uses: Uses) -> usize {
    let ends = |nth: &usize| {
        uses(*nth, world);
        guard.watches(world, 1).iter().any(is_end)
    };
    let ends = (0..400).find(ends);
    ends.expect("it comes to an end")
}

fn start(rules: Rules, mode: GuardMode) -> (Guard, World) {
    let mut rules = Rules { mode, ..rules };
    rules.enforcement.grace = minutes(5);
    rules.enforcement.max_warnings = 20;
    let mut world = World::new(1);
    world.start(100, "bob").uses(0, 1, 0).job("train");
    (Guard::new(rules), world)
}

#[test]
fn nothing_comes_of_a_rule_while_nothing_fresh_is_known() {
    for (what, rules, uses) in broken() {
        for mode in [GuardMode::Soft, GuardMode::Enforce] {
            let (mut guard, mut world) = start(rules.clone(), mode);
            let whole = to_an_end((&mut guard, &mut world), uses);
            for is_list_only in [false, true] {
                let context = format!("{what}, {mode:?}, only the list: {is_list_only}");
                let (mut guard, mut world) = start(rules.clone(), mode);
                for nth in 0..whole {
                    uses(nth, &mut world);
                    guard.watches(&mut world, 1);
                }
                // It would be ended now.
                let seen = world.devices.clone();
                blind(&mut world, is_list_only);
                let told = guard.watches(&mut world, 3);
                // What a device as a whole does is known without the list.
                let is_known = is_list_only && what.contains("of a GPU");
                let is_act = |record: &&GuardRecord| match record.step {
                    GuardStep::Ended(_) => true,
                    GuardStep::Violated | GuardStep::Warned { .. } => !is_known,
                    _ => false,
                };
                let acts: Vec<String> = told.iter().filter(is_act).map(line).collect();
                assert_eq!(acts, [""; 0], "{context}");
                world.devices = seen;
                let still: Uses = match what {
                    // It has to grow through the whole time again.
                    "growth" => uses,
                    _ => |_, _| (),
                };
                to_an_end((&mut guard, &mut world), still);
            }
        }
    }
}

#[test]
fn a_rule_is_kept_while_readings_are_missing_and_decided_by_the_first_that_come() {
    let rules = broken().swap_remove(0).1;
    let (mut guard, mut world) = start(rules, GuardMode::Soft);
    broken()[0].2(0, &mut world);
    // Idle after a minute, to be ended five minutes later.
    guard.watches(&mut world, 35);
    blind(&mut world, false);
    guard.watches(&mut world, 3);
    let open = guard.memory.violations();
    assert_eq!(open.len(), 1);
    world.devices[0].is_listed = true;
    // It works.
    world.process(100).uses(0, 40, 50);
    let told: Vec<String> = guard.watches(&mut world, 1).iter().map(line).collect();
    assert_eq!(told, ["00:06:30 bob (train): default: idle: over [soft]"]);
}

#[test]
fn whether_processes_use_a_gpu_is_told_by_fresh_readings_alone() {
    let id = DeviceId("GPU-0".into());
    let why = Reading::<()>::Failed("Unknown Error (999)".to_owned());
    let mut row = GpuProcess::unknown(id.clone(), 7, Timestamp(0), &why.because());
    row.start_ticks = Reading::Value(70);
    let mut device = Device::unknown(id.clone(), 0, Vendor::Nvidia, &Reading::Unsupported);
    let look = |device: Option<&Device>, rows: &[GpuProcess]| {
        let snapshot = Snapshot {
            host: "box".into(),
            taken_at: Timestamp(0),
            tick: 1,
            devices: device.into_iter().cloned().collect(),
            processes: rows.to_vec(),
            backends: Vec::new(),
            faults: Vec::new(),
        };
        on_devices(&snapshot, &[(7, 70), (8, 80)].into(), &[id.clone()].into())
    };
    let unknown = |why: &str| {
        let text = format!("whether its processes still use a GPU is not known: {why}");
        Err::<BTreeSet<_>, _>(text)
    };
    device.process_count = Reading::Value(1);
    let rows = [row];
    assert_eq!(look(Some(&device), &rows), Ok([(7, 70)].into()));
    let none = "none of its processes uses a GPU any more".to_owned();
    assert_eq!(look(Some(&device), &[]), Err(none));
    device.process_count = why.because();
    let failed = "the list of processes of GPU 0 failed: Unknown Error (999)";
    assert_eq!(look(Some(&device), &[]), unknown(failed));
    device.process_count = Reading::Stale(1, 4);
    let old = "the readings of GPU 0 are 4 s old";
    assert_eq!(look(Some(&device), &rows), unknown(old));
    assert_eq!(look(None, &rows), unknown("GPU-0 is gone"));
}
