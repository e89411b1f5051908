//! Services that are idle or waste a GPU are warned about, and not ended.

use super::*;
use crate::guard::replay::Replay;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use gpukill_proto::snapshot::NetworkRole;

/// Idle for a minute, ended after a grace of a minute.
fn idle() -> Behaviour {
    let conduct = Conduct::Idle {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    };
    with_grace(behaviour("idle", conduct))
}

fn waste() -> Behaviour {
    let conduct = Conduct::Waste {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(1),
    };
    with_grace(behaviour("waste", conduct))
}

fn with_grace(behaviour: Behaviour) -> Behaviour {
    Behaviour {
        measures: Measures {
            grace: Some(minutes(1)),
            ..Measures::default()
        },
        ..behaviour
    }
}

fn soft(behaviour: Behaviour) -> Rules {
    Rules {
        mode: GuardMode::Soft,
        behaviours: vec![behaviour],
        ..rules()
    }
}

fn world(change: impl FnOnce(&mut Process)) -> World {
    let mut world = World::new(1);
    change(world.start(100, "bob").uses(0, 10, 0).job("engine"));
    world
}

fn idle_job() -> World {
    world(|_| ())
}

/// What was decided within this many minutes until an end, without repeats, and whether a record says
/// that the job is a service and only warned about.
fn decided(guard: &mut Guard, world: &mut World, minutes: usize) -> (Vec<&'static str>, bool) {
    let records = guard.watches(world, minutes * 6);
    let mut steps: Vec<&str> = records.iter().map(|it| it.step.name()).collect();
    steps.dedup();
    // Its processes go on here, as nobody ends them.
    let ended = steps.iter().position(|step| *step == "ended");
    steps.truncate(ended.map_or(steps.len(), |at| at + 1));
    let is_spared = records.iter().any(|it| it.evidence.is_spared_service);
    (steps, is_spared)
}

#[test]
fn a_service_is_warned_about_and_ended_only_where_the_rule_says_so() {
    let warned = (vec!["violated", "warned"], true);
    let ended = (vec!["violated", "warned", "ended"], false);
    for rule in [idle, waste] {
        for (port, ends_services, expected) in [
            (Some(8000), false, &warned),
            (Some(8000), true, &ended),
            (None, false, &ended),
        ] {
            let rule = Behaviour {
                ends_services,
                ..rule()
            };
            let mut world = world(|it| {
                if let Some(port) = port {
                    it.serves(port, 0);
                }
            });
            let name = rule.name.clone();
            let mut guard = Guard::new(soft(rule));
            let decided = decided(&mut guard, &mut world, 20);
            assert_eq!(&decided, expected, "{name}: {port:?}, {ends_services}");
        }
    }
}

#[test]
fn a_replay_counts_the_services_that_are_only_warned() {
    for (port, expected) in [(Some(8000), (1, 1, 0)), (None, (1, 0, 1))] {
        let mut world = world(|it| {
            if let Some(port) = port {
                it.serves(port, 0);
            }
        });
        let mut replay = Replay::new(soft(idle()), Timestamp(0));
        for _ in 0..20 {
            replay.add(&world.bucket(TEN_SECONDS)).unwrap();
        }
        let outcomes = replay.finish().outcomes;
        let counts: Vec<_> = outcomes
            .iter()
            .map(|it| (it.warned, it.services, it.ended))
            .collect();
        assert_eq!(counts, [expected], "{port:?}");
    }
}

#[test]
fn limits_of_persons_never_end_a_service_for_being_idle() {
    let mut rules = enforcing();
    rules.defaults.idle = Some(minutes(1));
    let mut guard = Guard::new(rules);
    let mut world = world(|it| _ = it.serves(8000, 0));
    let records = guard.watches(&mut world, 300);
    let is_ended = |record: &GuardRecord| matches!(record.step, GuardStep::Ended(_));
    assert!(!records.iter().any(is_ended), "{records:?}");
    let open = guard.memory.violations();
    assert_eq!(open[0].action, GuardAction::Warn);
    assert!(open[0].evidence.is_spared_service);
}

#[test]
fn a_service_that_holds_too_much_is_ended_as_any_job() {
    let mut rules = enforcing();
    rules.defaults = memory(5);
    let mut guard = Guard::new(rules);
    let mut world = world(|it| _ = it.serves(8000, 0));
    let (steps, is_spared) = decided(&mut guard, &mut world, 1);
    assert_eq!((steps, is_spared), (vec!["violated", "ended"], false));
}

fn notebook(process: &mut Process, clients: u64) {
    process.serves(8888, clients);
    process.about.network = Some(NetworkRole::Notebook(vec![8888]));
}

#[test]
fn a_service_with_clients_is_not_idle_and_a_notebook_without_is() {
    let decided = |change: fn(&mut Process)| {
        let mut guard = Guard::new(soft(idle()));
        decided(&mut guard, &mut world(change), 20).0
    };
    assert_eq!(decided(|it| _ = it.serves(8000, 1)), [""; 0]);
    assert_eq!(decided(|it| notebook(it, 1)), [""; 0]);
    let ended = decided(|it| notebook(it, 0));
    assert_eq!(ended, ["violated", "warned", "ended"]);
}

#[test]
fn a_service_that_served_within_the_window_wastes_nothing() {
    let decided = |change: fn(&mut Process)| {
        let mut guard = Guard::new(soft(waste()));
        decided(&mut guard, &mut world(change), 20)
    };
    assert_eq!(decided(|it| _ = it.serves(8000, 1)).0, [""; 0]);
    assert_eq!(
        decided(|it| _ = it.serves(8000, 0)),
        (vec!["violated", "warned"], true)
    );
    // An open browser does not speak for a notebook that holds much and does little.
    let ended = decided(|it| notebook(it, 1)).0;
    assert_eq!(ended, ["violated", "warned", "ended"]);
}

#[test]
fn nothing_comes_of_a_job_of_which_it_is_not_known_whether_it_is_a_service() {
    for rule in [idle, waste] {
        let mut world = world(|it| it.about.network = None);
        let mut guard = Guard::new(soft(rule()));
        let mut unjudged = Vec::new();
        for _ in 0..60 {
            let judgement = guard.looks(&mut world);
            assert_eq!(judgement.records, []);
            unjudged = judgement.unjudged;
        }
        let why: Vec<&str> = unjudged.iter().map(|it| it.why.as_str()).collect();
        assert_eq!(why, ["whether it is a service is not known"]);
        let ends = Behaviour {
            ends_services: true,
            ..rule()
        };
        let decided = decided(&mut Guard::new(soft(ends)), &mut world, 20).0;
        assert_eq!(decided, ["violated", "warned", "ended"]);
    }
}

#[test]
fn a_job_is_a_service_where_any_process_of_it_is() {
    let mut world = world(|_| ());
    world
        .start(101, "bob")
        .uses(0, 1, 0)
        .job("engine")
        .serves(8000, 0);
    let (steps, is_spared) = decided(&mut Guard::new(soft(idle())), &mut world, 20);
    assert_eq!((steps, is_spared), (vec!["violated", "warned"], true));
}

#[test]
fn a_job_that_is_a_service_no_longer_is_warned_anew_with_the_whole_grace() {
    let mut world = world(|it| _ = it.serves(8000, 0));
    let mut guard = Guard::new(soft(idle()));
    let warned = vec!["violated", "warned"];
    assert_eq!(decided(&mut guard, &mut world, 20), (warned, true));
    world.process(100).about.network = Some(NetworkRole::Private);
    let closed = world.now;
    let records = guard.watches(&mut world, 60);
    let ended = records.iter().find(|it| it.step.name() == "ended");
    let after = ended.map(|it| it.at.0 - closed.0);
    assert_eq!(after, Some(70_000), "{records:?}");
    // A job that becomes a service before its end is not ended.
    let mut world = idle_job();
    let mut guard = Guard::new(soft(idle()));
    guard.watches(&mut world, 8);
    world.process(100).serves(8000, 0);
    let records = guard.watches(&mut world, 60);
    assert!(
        records.iter().all(|it| it.step.name() == "warned"),
        "{records:?}"
    );
}

#[test]
fn evidence_names_the_port_the_clients_the_unit_and_the_image() {
    let mut world = world(|it| {
        it.serves(8000, 0);
        it.about.unit = Some(Some("vllm.service".into()));
        it.about.image = Some(Some("vllm/vllm-openai:v0.9".into()));
    });
    let mut guard = Guard::new(soft(idle()));
    guard.watches(&mut world, 8);
    let open = guard.memory.violations();
    let context = &open[0].evidence.runs[0].context;
    assert_eq!(context.unit.as_deref(), Some("vllm.service"));
    assert_eq!(context.image.as_deref(), Some("vllm/vllm-openai:v0.9"));
    assert_eq!(context.network_role, Some(NetworkRole::Service(vec![8000])));
    assert_eq!(context.clients, Some(0));
}
