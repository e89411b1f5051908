//! Services that are idle or waste a GPU are warned about, and not ended.

use super::*;
use crate::guard::replay::Replay;
use gpukill_proto::guard::{GuardRecord, GuardStep};
use gpukill_proto::model::NetworkRole;

/// Idle for a minute, ended after a grace period of a minute.
fn idle_rule() -> BehaviourRule {
    let behaviour = ForbiddenBehaviour::Idle(IdleParams {
        limit: minutes(1),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    });
    with_grace(behaviour_rule("idle", behaviour))
}

fn waste_rule() -> BehaviourRule {
    let behaviour = ForbiddenBehaviour::Waste(WasteParams {
        below: Percent(10),
        min_memory: Bytes(0),
        hours: minutes(1),
    });
    with_grace(behaviour_rule("waste", behaviour))
}

fn with_grace(behaviour: BehaviourRule) -> BehaviourRule {
    BehaviourRule {
        measures: Measures {
            grace: Some(minutes(1)),
            ..Measures::default()
        },
        ..behaviour
    }
}

fn soft_rules(behaviour: BehaviourRule) -> RuleSet {
    RuleSet {
        mode: GuardMode::Soft,
        behaviours: vec![behaviour],
        ..dry_run_rules()
    }
}

fn world(change: impl FnOnce(&mut TestProcess)) -> TestHost {
    let mut world = TestHost::new(1);
    change(world.start(100, "bob").uses(0, 10, 0).job("engine"));
    world
}

fn idle_job() -> TestHost {
    world(|_| ())
}

/// The steps in this many minutes up to an end, without repeats, and whether a record
/// states that the job is an exempt service.
fn steps_until_end(
    guard: &mut TestGuard,
    world: &mut TestHost,
    minutes: usize,
) -> (Vec<&'static str>, bool) {
    let records = guard.evaluate_samples(world, minutes * 6);
    let mut steps: Vec<&str> = records.iter().map(|it| it.step.name()).collect();
    steps.dedup();
    // The processes go on, because nothing ends them here.
    let ended = steps.iter().position(|step| *step == "ended");
    steps.truncate(ended.map_or(steps.len(), |at| at + 1));
    let is_only_warned = records.iter().any(|it| it.evidence.is_service_only_warned);
    (steps, is_only_warned)
}

#[test]
fn ended_only_if_the_rule_says_so() {
    let warned = (vec!["violated", "warned"], true);
    let ended = (vec!["violated", "warned", "ended"], false);
    for rule in [idle_rule, waste_rule] {
        for (port, ends_services, expected) in [
            (Some(8000), false, &warned),
            (Some(8000), true, &ended),
            (None, false, &ended),
        ] {
            let rule = BehaviourRule {
                ends_services,
                ..rule()
            };
            let mut world = world(|it| {
                if let Some(port) = port {
                    it.serves(port, 0);
                }
            });
            let name = rule.name.clone();
            let mut guard = TestGuard::new(soft_rules(rule));
            let decided = steps_until_end(&mut guard, &mut world, 20);
            assert_eq!(&decided, expected, "{name}: {port:?}, {ends_services}");
        }
    }
}

#[test]
fn replay_counts_exempt_services() {
    for (port, expected) in [(Some(8000), (1, 1, 0)), (None, (1, 0, 1))] {
        let mut world = world(|it| {
            if let Some(port) = port {
                it.serves(port, 0);
            }
        });
        let mut replay = Replay::new(soft_rules(idle_rule()), Timestamp(0));
        for _ in 0..20 {
            replay.add(&world.next_sample(SAMPLE_MS)).unwrap();
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
fn personal_idle_limits_never_end_services() {
    let mut rules = enforce_rules();
    rules.defaults.idle = Some(minutes(1));
    let mut guard = TestGuard::new(rules);
    let mut world = world(|it| _ = it.serves(8000, 0));
    let records = guard.evaluate_samples(&mut world, 300);
    let is_ended = |record: &GuardRecord| matches!(record.step, GuardStep::Ended(_));
    assert!(!records.iter().any(is_ended), "{records:?}");
    let open = guard.state.violations();
    assert_eq!(open[0].action, GuardAction::Warn);
    assert!(open[0].evidence.is_service_only_warned);
}

#[test]
fn service_over_a_limit_is_ended() {
    let mut rules = enforce_rules();
    rules.defaults = memory_limit(5);
    let mut guard = TestGuard::new(rules);
    let mut world = world(|it| _ = it.serves(8000, 0));
    let (steps, is_only_warned) = steps_until_end(&mut guard, &mut world, 1);
    assert_eq!((steps, is_only_warned), (vec!["violated", "ended"], false));
}

fn notebook(process: &mut TestProcess, clients: u64) {
    process.serves(8888, clients);
    process.facts.network = Some(NetworkRole::Notebook(vec![8888]));
}

#[test]
fn clients_prevent_idleness() {
    let decided = |change: fn(&mut TestProcess)| {
        let mut guard = TestGuard::new(soft_rules(idle_rule()));
        steps_until_end(&mut guard, &mut world(change), 20).0
    };
    assert_eq!(decided(|it| _ = it.serves(8000, 1)), [""; 0]);
    assert_eq!(decided(|it| notebook(it, 1)), [""; 0]);
    let ended = decided(|it| notebook(it, 0));
    assert_eq!(ended, ["violated", "warned", "ended"]);
}

#[test]
fn recent_requests_prevent_waste() {
    let decided = |change: fn(&mut TestProcess)| {
        let mut guard = TestGuard::new(soft_rules(waste_rule()));
        steps_until_end(&mut guard, &mut world(change), 20)
    };
    assert_eq!(decided(|it| _ = it.serves(8000, 1)).0, [""; 0]);
    assert_eq!(
        decided(|it| _ = it.serves(8000, 0)),
        (vec!["violated", "warned"], true)
    );
    // An open browser does not protect a notebook that holds much and does little.
    let ended = decided(|it| notebook(it, 1)).0;
    assert_eq!(ended, ["violated", "warned", "ended"]);
}

#[test]
fn unknown_service_state_ends_nothing() {
    for rule in [idle_rule, waste_rule] {
        let mut world = world(|it| it.facts.network = None);
        let mut guard = TestGuard::new(soft_rules(rule()));
        let mut undetermined = Vec::new();
        for _ in 0..60 {
            let evaluation = guard.evaluate_next(&mut world);
            assert_eq!(evaluation.records, []);
            undetermined = evaluation.undetermined;
        }
        let why: Vec<&str> = undetermined.iter().map(|it| it.why.as_str()).collect();
        assert_eq!(why, ["whether it is a service is not known"]);
        let ends = BehaviourRule {
            ends_services: true,
            ..rule()
        };
        let decided = steps_until_end(&mut TestGuard::new(soft_rules(ends)), &mut world, 20).0;
        assert_eq!(decided, ["violated", "warned", "ended"]);
    }
}

#[test]
fn one_process_makes_a_service() {
    let mut world = world(|_| ());
    world
        .start(101, "bob")
        .uses(0, 1, 0)
        .job("engine")
        .serves(8000, 0);
    let (steps, is_only_warned) =
        steps_until_end(&mut TestGuard::new(soft_rules(idle_rule())), &mut world, 20);
    assert_eq!((steps, is_only_warned), (vec!["violated", "warned"], true));
}

#[test]
fn former_service_gets_a_new_grace() {
    let mut world = world(|it| _ = it.serves(8000, 0));
    let mut guard = TestGuard::new(soft_rules(idle_rule()));
    let warned = vec!["violated", "warned"];
    assert_eq!(steps_until_end(&mut guard, &mut world, 20), (warned, true));
    world.process(100).facts.network = Some(NetworkRole::Private);
    let closed = world.now;
    let records = guard.evaluate_samples(&mut world, 60);
    let ended = records.iter().find(|it| it.step.name() == "ended");
    let after = ended.map(|it| it.at.0 - closed.0);
    assert_eq!(after, Some(70_000), "{records:?}");
    // A job that becomes a service before its end is not ended.
    let mut world = idle_job();
    let mut guard = TestGuard::new(soft_rules(idle_rule()));
    guard.evaluate_samples(&mut world, 8);
    world.process(100).serves(8000, 0);
    let records = guard.evaluate_samples(&mut world, 60);
    assert!(
        records.iter().all(|it| it.step.name() == "warned"),
        "{records:?}"
    );
}

#[test]
fn evidence_has_port_clients_unit_image() {
    let mut world = world(|it| {
        it.serves(8000, 0);
        it.facts.unit = Some(Some("vllm.service".into()));
        it.facts.image = Some(Some("vllm/vllm-openai:v0.9".into()));
    });
    let mut guard = TestGuard::new(soft_rules(idle_rule()));
    guard.evaluate_samples(&mut world, 8);
    let open = guard.state.violations();
    let context = &open[0].evidence.runs[0].context;
    assert_eq!(context.unit.as_deref(), Some("vllm.service"));
    assert_eq!(context.image.as_deref(), Some("vllm/vllm-openai:v0.9"));
    assert_eq!(context.network_role, Some(NetworkRole::Service(vec![8000])));
    assert_eq!(context.clients, Some(0));
}
