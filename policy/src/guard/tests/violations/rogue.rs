//! Rules on rogue verdicts.

mod properties;

use super::*;
use gpukill_proto::guard::Measurement;
use gpukill_proto::rogue::{Risk, Threat, VerdictSummary};

const RULE: &str = "rule it: rogue";

const MINER: VerdictSummary = VerdictSummary {
    risk: Risk::High,
    threat: Threat::CryptoMiner,
    is_actionable: true,
};

const UNPROVED: VerdictSummary = VerdictSummary {
    is_actionable: false,
    risk: Risk::Critical,
    ..MINER
};

/// No process may be a miner or hide what it is, from high risk on.
fn rules_against_rogues(mode: GuardMode, change: impl FnOnce(&mut BehaviourRule)) -> RuleSet {
    let behaviour = ForbiddenBehaviour::Rogue(RogueParams {
        from: Risk::High,
        threats: vec![Threat::CryptoMiner, Threat::SuspiciousProcess],
    });
    let mut behaviour = behaviour_rule("it", behaviour);
    change(&mut behaviour);
    RuleSet {
        mode,
        behaviours: vec![behaviour],
        ..dry_run_rules()
    }
}

fn dry_run_against_rogues() -> RuleSet {
    rules_against_rogues(GuardMode::DryRun, |_| ())
}

/// One process of bob's with this verdict.
fn host_with_verdict(suspected: Option<Option<VerdictSummary>>) -> TestHost {
    host_with_bob(|it| _ = it.suspected(suspected))
}

#[test]
fn proved_threat_breaks_the_rule() {
    let verdict = |risk, threat| {
        host_with_verdict(Some(Some(VerdictSummary {
            risk,
            threat,
            ..MINER
        })))
    };
    let cases = [
        ("at the level", host_with_verdict(Some(Some(MINER))), Yes),
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
        ("on too little", host_with_verdict(Some(Some(UNPROVED))), No),
        ("nothing", host_with_verdict(Some(None)), No),
        ("not known", host_with_verdict(None), Unknown),
    ];
    check(&dry_run_against_rogues(), RULE, 2, &cases);
    check(&dry_run_against_rogues(), RULE, 9, &cases);
    // A rule without threats matches no verdict.
    let none = rules_against_rogues(GuardMode::DryRun, |it| {
        it.behaviour = ForbiddenBehaviour::Rogue(RogueParams {
            from: Risk::Low,
            threats: Vec::new(),
        });
    });
    check(
        &none,
        RULE,
        3,
        &[("", host_with_verdict(Some(Some(MINER))), No)],
    );
}

/// The steps of a rule while the process of bob's has these verdicts, one a sample.
fn steps(
    rules: RuleSet,
    verdicts: &[Option<Option<VerdictSummary>>],
) -> Vec<(usize, &'static str)> {
    let mut world = host_with_verdict(None);
    let mut guard = TestGuard::new(rules);
    let mut steps = Vec::new();
    for (at, verdict) in (1..).zip(verdicts) {
        world.process(100).suspected(*verdict);
        let records = guard.evaluate_next(&mut world).records;
        steps.extend(records.iter().map(|it| (at, it.step.name())));
    }
    steps
}

#[test]
fn needs_two_samples_in_a_row() {
    let (yes, no) = (Some(Some(MINER)), Some(None));
    let enforce = || rules_against_rogues(GuardMode::Enforce, |_| ());
    let never = [];
    assert_eq!(steps(enforce(), &[yes]), never);
    assert_eq!(
        steps(enforce(), &[yes, yes]),
        [(2, "violated"), (2, "ended")]
    );
    assert_eq!(steps(enforce(), &[yes, no, yes, no, yes]), never);
    assert_eq!(steps(enforce(), &[yes, None, yes, None, yes]), never);
    let less = Some(Some(UNPROVED));
    assert_eq!(steps(enforce(), &[yes, less, yes]), never);
    assert_eq!(steps(enforce(), &[less; 9]), never);
    // Another verdict that breaks the rule counts as well.
    let hidden = Some(Some(VerdictSummary {
        threat: Threat::SuspiciousProcess,
        ..MINER
    }));
    assert_eq!(
        steps(enforce(), &[yes, hidden]),
        [(2, "violated"), (2, "ended")]
    );
}

#[test]
fn over_when_the_verdict_is_lower() {
    let rules = |settled: u64| {
        let mut rules = rules_against_rogues(GuardMode::Soft, |it| {
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
        VerdictSummary {
            risk: Risk::Medium,
            ..MINER
        },
        UNPROVED,
    ];
    for fallen in fallen {
        let verdicts = [yes, yes, Some(Some(fallen))];
        assert_eq!(steps(rules(0), &verdicts), over_at(3), "{fallen:?}");
    }
    let unknown = [yes, yes, None, None, None, None, no];
    assert_eq!(steps(rules(0), &unknown), over_at(7));
    assert_eq!(steps(rules(0), &unknown[..6]), opened);
    // Time without a verdict does not count as time without a violation.
    let unknown = [yes, yes, no, None, None, None, no];
    assert_eq!(steps(rules(20), &unknown), over_at(7));
    assert_eq!(steps(rules(30), &unknown), opened);
}

#[test]
fn one_process_decides_for_its_job() {
    let job = |change: fn(&mut TestHost)| {
        let mut world = host_with_bob(|it| _ = it.job("tree 100").suspected(Some(None)));
        world.start(101, "bob").uses(1, 1, 50).job("tree 100");
        change(&mut world);
        world
    };
    let miner = || Some(Some(MINER));
    let cases: [(&str, TestHost, ExpectedResult); 7] = [
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
                it.devices[1].reports_processes = false;
            }),
            Unknown,
        ),
        (
            "its owner is not known",
            job(|it| {
                let process = it.process(101).suspected(Some(Some(MINER)));
                process.facts.owner = None;
            }),
            Unknown,
        ),
    ];
    check(&dry_run_against_rogues(), RULE, 2, &cases);
    // The evidence names the process; the whole job is ended.
    let mut world = job(|_| ());
    world.process(101).suspected(miner());
    let mut guard = TestGuard::new(rules_against_rogues(GuardMode::Enforce, |_| ()));
    let records = guard.evaluate_samples(&mut world, 2);
    let [violated, ended] = records.as_slice() else {
        panic!("{records:?}")
    };
    let pids = |actual: &[gpukill_proto::guard::EvidenceProcess]| -> Vec<u32> {
        actual.iter().map(|it| it.run.pid).collect()
    };
    let evidence = &violated.evidence;
    assert_eq!(pids(&evidence.runs), [101]);
    assert_eq!(evidence.threat, Some(Threat::CryptoMiner));
    let measured = Measurement { value: 3, limit: 3 };
    assert_eq!(evidence.measured, Some(measured));
    let victim = ended.step.victim().expect("somebody is ended");
    assert_eq!(
        (victim.job.id.as_str(), pids(&victim.runs)),
        ("tree 100", vec![100, 101])
    );
}

#[test]
fn reports_the_worst_verdict() {
    let worst = VerdictSummary {
        risk: Risk::Critical,
        threat: Threat::SuspiciousProcess,
        ..MINER
    };
    for order in [[MINER, worst], [worst, MINER]] {
        let mut world = TestHost::new(1);
        for (pid, suspected) in (100..).zip(order) {
            let process = world.start(pid, "bob").uses(0, 1, 50).job("tree 100");
            process.suspected(Some(Some(suspected)));
        }
        let mut guard = TestGuard::new(dry_run_against_rogues());
        let _ = guard.evaluate_samples(&mut world, 2);
        let open = guard.state.violations();
        let actual: Vec<_> = open
            .iter()
            .map(|it| (it.evidence.threat, it.evidence.measured, it.evidence.count))
            .collect();
        let measured = Some(Measurement { value: 4, limit: 3 });
        let expected = (Some(Threat::SuspiciousProcess), measured, 2);
        assert_eq!(actual, [expected]);
    }
}

#[test]
fn exempt_processes_are_not_reported() {
    let rule = |change: fn(&mut BehaviourRule)| rules_against_rogues(GuardMode::DryRun, change);
    let protecting = |change: fn(&mut ProtectRules)| {
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
        let world = host_with_verdict(Some(Some(MINER)));
        check(&rules, RULE, 3, &[("", world, expected)]);
    }
}

#[test]
fn warns_and_ends_like_other_rules() {
    // The sample of the first warning, and the sample of the end.
    let with = |mode, change: fn(&mut BehaviourRule)| {
        let steps = steps(rules_against_rogues(mode, change), &[Some(Some(MINER)); 40]);
        let at = |name| steps.iter().find(|it| it.1 == name).map(|it| it.0);
        (at("warned"), at("ended"))
    };
    // The grace period is five minutes from the second sample on.
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
    // Nothing happens before the verdict is proved, whatever the mode.
    for mode in [soft, enforce, GuardMode::DryRun] {
        let verdicts = [Some(Some(UNPROVED)); 40];
        assert_eq!(steps(rules_against_rogues(mode, |_| ()), &verdicts), []);
    }
}
