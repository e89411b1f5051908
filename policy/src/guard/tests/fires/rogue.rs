//! What processes are taken for.

mod laws;

use super::*;
use gpukill_proto::guard::Measured;
use gpukill_proto::rogue::{Risk, Suspected, Threat};

const RULE: &str = "rule it: rogue";

const MINER: Suspected = Suspected {
    risk: Risk::High,
    threat: Threat::CryptoMiner,
    may_be_acted_on: true,
};

const NOT_PROVED: Suspected = Suspected {
    may_be_acted_on: false,
    risk: Risk::Critical,
    ..MINER
};

/// Nobody may be a miner or hide what they are, from a high risk on.
fn no_rogues(mode: GuardMode, change: impl FnOnce(&mut Behaviour)) -> Rules {
    let conduct = Conduct::Rogue {
        from: Risk::High,
        threats: vec![Threat::CryptoMiner, Threat::SuspiciousProcess],
    };
    let mut behaviour = behaviour("it", conduct);
    change(&mut behaviour);
    Rules {
        mode,
        behaviours: vec![behaviour],
        ..rules()
    }
}

fn dry_run() -> Rules {
    no_rogues(GuardMode::DryRun, |_| ())
}

/// One process of bob's, taken for this.
fn taken_for(suspected: Option<Option<Suspected>>) -> World {
    bob(|it| _ = it.suspected(suspected))
}

#[test]
fn whoever_is_taken_for_a_threat_on_what_may_be_acted_on_breaks_the_rule() {
    let verdict = |risk, threat| {
        taken_for(Some(Some(Suspected {
            risk,
            threat,
            ..MINER
        })))
    };
    let cases = [
        ("at the level", taken_for(Some(Some(MINER))), Yes),
        (
            "above it",
            verdict(Risk::Critical, Threat::CryptoMiner),
            Yes,
        ),
        ("below it", verdict(Risk::Medium, Threat::CryptoMiner), No),
        (
            "another that is named",
            verdict(Risk::High, Threat::SuspiciousProcess),
            Yes,
        ),
        (
            "one that is not",
            verdict(Risk::Critical, Threat::ResourceAbuser),
            No,
        ),
        (
            "nor this one",
            verdict(Risk::Critical, Threat::DataExfiltrator),
            No,
        ),
        ("on too little", taken_for(Some(Some(NOT_PROVED))), No),
        ("nothing", taken_for(Some(None)), No),
        ("not known", taken_for(None), Unknown),
    ];
    check(&dry_run(), RULE, 2, &cases);
    check(&dry_run(), RULE, 9, &cases);
    // A rule that names no threat is about none.
    let none = no_rogues(GuardMode::DryRun, |it| {
        it.conduct = Conduct::Rogue {
            from: Risk::Low,
            threats: Vec::new(),
        };
    });
    check(&none, RULE, 3, &[("", taken_for(Some(Some(MINER))), No)]);
}

/// What becomes of a rule while the verdicts on bob's process are these, a bucket each.
fn steps(rules: Rules, verdicts: &[Option<Option<Suspected>>]) -> Vec<(usize, &'static str)> {
    let mut world = taken_for(None);
    let mut guard = Guard::new(rules);
    let mut steps = Vec::new();
    for (at, verdict) in (1..).zip(verdicts) {
        world.process(100).suspected(*verdict);
        let records = guard.looks(&mut world).records;
        steps.extend(records.iter().map(|it| (at, it.step.name())));
    }
    steps
}

#[test]
fn it_takes_two_looks_in_a_row() {
    let (yes, no) = (Some(Some(MINER)), Some(None));
    let enforce = || no_rogues(GuardMode::Enforce, |_| ());
    let never = [];
    assert_eq!(steps(enforce(), &[yes]), never);
    assert_eq!(
        steps(enforce(), &[yes, yes]),
        [(2, "violated"), (2, "ended")]
    );
    assert_eq!(steps(enforce(), &[yes, no, yes, no, yes]), never);
    assert_eq!(steps(enforce(), &[yes, None, yes, None, yes]), never);
    let less = Some(Some(NOT_PROVED));
    assert_eq!(steps(enforce(), &[yes, less, yes]), never);
    assert_eq!(steps(enforce(), &[less; 9]), never);
    // Another verdict that breaks the rule is as good.
    let hidden = Some(Some(Suspected {
        threat: Threat::SuspiciousProcess,
        ..MINER
    }));
    assert_eq!(
        steps(enforce(), &[yes, hidden]),
        [(2, "violated"), (2, "ended")]
    );
}

#[test]
fn it_is_over_when_the_verdict_falls_and_not_when_there_is_none_to_be_had() {
    let rules = |settled: u64| {
        let mut rules = no_rogues(GuardMode::Soft, |it| {
            it.measures.action = Some(GuardAction::Warn);
        });
        rules.enforcement.settled_after = Duration::from_secs(settled);
        rules
    };
    let (yes, no) = (Some(Some(MINER)), Some(None));
    let opened = [(2, "violated"), (2, "warned")];
    let over_at = |at| [opened[0], opened[1], (at, "over")];
    assert_eq!(steps(rules(0), &[yes, yes, no]), over_at(3));
    let fallen = [
        Suspected {
            risk: Risk::Medium,
            ..MINER
        },
        NOT_PROVED,
    ];
    for fallen in fallen {
        let verdicts = [yes, yes, Some(Some(fallen))];
        assert_eq!(steps(rules(0), &verdicts), over_at(3), "{fallen:?}");
    }
    let unknown = [yes, yes, None, None, None, None, no];
    assert_eq!(steps(rules(0), &unknown), over_at(7));
    assert_eq!(steps(rules(0), &unknown[..6]), opened);
    // Nor is the time in which none was to be had any in which it did not hold.
    let unknown = [yes, yes, no, None, None, None, no];
    assert_eq!(steps(rules(20), &unknown), over_at(7));
    assert_eq!(steps(rules(30), &unknown), opened);
}

#[test]
fn one_process_is_enough_for_a_job_and_one_of_which_nothing_is_known_for_doubt() {
    let job = |change: fn(&mut World)| {
        let mut world = bob(|it| _ = it.job("tree 100").suspected(Some(None)));
        world.start(101, "bob").uses(1, 1, 50).job("tree 100");
        change(&mut world);
        world
    };
    let miner = || Some(Some(MINER));
    let cases: [(&str, World, Says); 7] = [
        ("none", job(|_| ()), No),
        (
            "one",
            job(|it| _ = it.process(101).suspected(Some(Some(MINER)))),
            Yes,
        ),
        (
            "one of which nothing is known",
            job(|it| _ = it.process(101).suspected(None)),
            Unknown,
        ),
        (
            "one of each",
            job(|it| {
                it.process(100).suspected(None);
                it.process(101).suspected(Some(Some(MINER)));
            }),
            Yes,
        ),
        (
            "it is gone at the end",
            job(|it| it.process(101).suspected(Some(Some(MINER))).is_present = false),
            No,
        ),
        (
            "its device tells of nobody",
            job(|it| {
                it.process(101).suspected(Some(Some(MINER)));
                it.devices[1].is_listed = false;
            }),
            Unknown,
        ),
        (
            "whose it is, is not known",
            job(|it| {
                let process = it.process(101).suspected(Some(Some(MINER)));
                process.about.owner = None;
            }),
            Unknown,
        ),
    ];
    check(&dry_run(), RULE, 2, &cases);
    // What it is known by is the process, and what is ended the job.
    let mut world = job(|_| ());
    world.process(101).suspected(miner());
    let mut guard = Guard::new(no_rogues(GuardMode::Enforce, |_| ()));
    let records = guard.watches(&mut world, 2);
    let [violated, ended] = records.as_slice() else {
        panic!("{records:?}")
    };
    let pids = |told: &[gpukill_proto::guard::Told]| -> Vec<u32> {
        told.iter().map(|it| it.run.pid).collect()
    };
    let evidence = &violated.evidence;
    assert_eq!(pids(&evidence.runs), [101]);
    assert_eq!(evidence.threat, Some(Threat::CryptoMiner));
    let measured = Measured { value: 3, limit: 3 };
    assert_eq!(evidence.measured, Some(measured));
    let victim = ended.step.victim().expect("somebody is ended");
    assert_eq!(
        (victim.job.id.as_str(), pids(&victim.runs)),
        ("tree 100", vec![100, 101])
    );
}

#[test]
fn of_several_the_worst_is_told() {
    let worst = Suspected {
        risk: Risk::Critical,
        threat: Threat::SuspiciousProcess,
        ..MINER
    };
    for order in [[MINER, worst], [worst, MINER]] {
        let mut world = World::new(1);
        for (pid, suspected) in (100..).zip(order) {
            let process = world.start(pid, "bob").uses(0, 1, 50).job("tree 100");
            process.suspected(Some(Some(suspected)));
        }
        let mut guard = Guard::new(dry_run());
        let _ = guard.watches(&mut world, 2);
        let open = guard.memory.violations();
        let told: Vec<_> = open
            .iter()
            .map(|it| (it.evidence.threat, it.evidence.measured, it.evidence.count))
            .collect();
        let measured = Some(Measured { value: 4, limit: 3 });
        let expected = (Some(Threat::SuspiciousProcess), measured, 2);
        assert_eq!(told, [expected]);
    }
}

#[test]
fn who_is_protected_or_excepted_or_not_meant_is_spared() {
    let rule = |change: fn(&mut Behaviour)| no_rogues(GuardMode::DryRun, change);
    let protecting = |change: fn(&mut Protect)| {
        let mut rules = rule(|_| ());
        change(&mut rules.protect);
        rules
    };
    for (rules, expected) in [
        (rule(|_| ()), Yes),
        (rule(|it| it.except_users = names(&["bob"])), No),
        (rule(|it| it.except_users = names(&["alice"])), Yes),
        (rule(|it| it.members.users = names(&["alice"])), No),
        (rule(|it| it.processes = globs(&["py*"])), Yes),
        (rule(|it| it.processes = globs(&["xmrig"])), No),
        (rule(|it| it.command = pattern("serve")), No),
        (rule(|it| it.gpus = gpus("1")), No),
        (protecting(|it| it.users = names(&["bob"])), No),
        (protecting(|it| it.command = pattern("train")), No),
    ] {
        let world = taken_for(Some(Some(MINER)));
        check(&rules, RULE, 3, &[("", world, expected)]);
    }
}

#[test]
fn it_is_warned_of_and_ended_like_any_other() {
    // In which bucket the first warning is, and in which the end.
    let with = |mode, change: fn(&mut Behaviour)| {
        let steps = steps(no_rogues(mode, change), &[Some(Some(MINER)); 40]);
        let at = |name| steps.iter().find(|it| it.1 == name).map(|it| it.0);
        (at("warned"), at("ended"))
    };
    // The grace is five minutes from the second bucket on.
    let soft = GuardMode::Soft;
    assert_eq!(with(soft, |_| ()), (Some(2), Some(32)));
    assert_eq!(
        with(soft, |it| it.measures.grace = Some(minutes(1))),
        (Some(2), Some(8))
    );
    assert_eq!(
        with(soft, |it| it.measures.action = Some(GuardAction::Warn)),
        (Some(2), None)
    );
    let enforce = GuardMode::Enforce;
    assert_eq!(with(enforce, |_| ()), (None, Some(2)));
    assert_eq!(
        with(enforce, |it| it.measures.mode = Some(GuardMode::Soft)),
        (Some(2), Some(32))
    );
    // Not before the verdict is there, whatever the mode.
    for mode in [soft, enforce, GuardMode::DryRun] {
        let verdicts = [Some(Some(NOT_PROVED)); 40];
        assert_eq!(steps(no_rogues(mode, |_| ()), &verdicts), []);
    }
}
