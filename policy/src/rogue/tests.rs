//! Tests of verdicts on whole processes.

use super::evaluate;
use super::rules::{AllowEntry, AllowMatch, RogueRules};
use super::suspect::{DeviceLoad, HeldMemory, Suspect, UtilizationShares};
use gpukill_proto::rogue::{IndicatorFamily, Risk, Share, Threat, Verdict};
use proptest::prelude::*;
use std::time::Duration;

/// A process with a miner's load and no other indicator.
fn working_miner() -> Suspect {
    let text = str::to_owned;
    Suspect {
        user: Some(text("eve")),
        name: Some(text("python3")),
        executable: Some(text("/usr/bin/python3.11")),
        arguments: Some(vec![text("python3"), text("train.py")]),
        sha256: None,
        image: Some(None),
        ancestors: Some(vec![text("bash"), text("sshd")]),
        libraries: Some(["libcuda.so.1", "_ctypes.cpython-311.so"].map(text).into()),
        listens: Some([].into()),
        peers: Some([].into()),
        load: Some(DeviceLoad {
            held: Duration::from_secs(7_200),
            seen: Duration::from_secs(7_200),
            utilization: Some(UtilizationShares {
                saturated: 1_000,
                idle: 0,
            }),
            mean: Some(99),
            memory: Some(HeldMemory {
                min: 5 << 30,
                max: 5 << 30,
                steady: 1_000,
            }),
            host_cpu: Some(50),
            bus_bytes: Some(0),
        }),
        ..Suspect::default()
    }
}

fn risks(suspect: &Suspect) -> Vec<(Threat, Risk)> {
    let verdicts = evaluate(suspect, &RogueRules::default());
    verdicts.iter().map(|it| (it.threat, it.risk)).collect()
}

#[test]
fn weak_indicators_give_no_verdict() {
    assert_eq!(risks(&working_miner()), []);
    for executable in [
        "/tmp/pytest-1/test",
        "/usr/bin/python3.11 (deleted)",
        "/home/bob/a.out (deleted)",
    ] {
        let suspect = Suspect {
            executable: Some(executable.into()),
            ..working_miner()
        };
        assert_eq!(risks(&suspect), [], "{executable}");
    }
}

#[test]
fn miner_named_python_is_detected() {
    let mut suspect = working_miner();
    suspect.peers = Some(["203.0.113.7:4444".parse().unwrap()].into());
    assert_eq!(risks(&suspect), [(Threat::CryptoMiner, Risk::High)]);
    suspect.executable = Some("/dev/shm/.x/python3 (deleted)".into());
    let pool = "stratum+tcp://pool.example:4444".to_owned();
    suspect.arguments = Some(vec!["python3".into(), "-o".into(), pool]);
    let verdicts = evaluate(&suspect, &RogueRules::default());
    let worst = &verdicts[0];
    assert_eq!(
        (worst.threat, worst.risk),
        (Threat::CryptoMiner, Risk::Critical)
    );
    assert!(worst.is_actionable());
    let actual: Vec<(&str, IndicatorFamily)> = worst
        .indicators
        .iter()
        .map(|it| (it.kind.as_str(), it.family))
        .collect();
    let expected = [
        ("pool_on_command_line", IndicatorFamily::A),
        ("pool_port", IndicatorFamily::B),
        ("executable_location", IndicatorFamily::B),
        ("mining_load", IndicatorFamily::C),
        ("lasting_connection", IndicatorFamily::C),
    ];
    assert_eq!(actual, expected);
    // 1 - 0.35 x 0.45 x 0.5 x 0.65 x 0.75
    assert_eq!(worst.confidence.to_string(), "0.96");
}

#[test]
fn miner_name_alone_is_high_risk() {
    let suspect = Suspect {
        name: Some("xmrig".into()),
        ..working_miner()
    };
    assert_eq!(risks(&suspect), [(Threat::CryptoMiner, Risk::High)]);
    let bare = Suspect {
        name: Some("xmrig".into()),
        ..Suspect::default()
    };
    assert_eq!(risks(&bare), [(Threat::CryptoMiner, Risk::High)]);
}

#[test]
fn system_name_in_tmp_is_medium_risk() {
    let suspect = Suspect {
        name: Some("systemd-helper".into()),
        executable: Some("/tmp/systemd-helper (deleted)".into()),
        arguments: Some(vec!["systemd-helper".into()]),
        load: None,
        ..working_miner()
    };
    assert_eq!(risks(&suspect), [(Threat::SuspiciousProcess, Risk::Medium)]);
}

#[test]
fn miner_name_is_no_reason_to_act() {
    let named = |name: &str, executable: &str| Suspect {
        name: Some(name.into()),
        executable: Some(executable.into()),
        arguments: Some(vec![name.into()]),
        load: None,
        ..working_miner()
    };
    for (name, executable, acts) in [
        ("kdevtmpfsi", "/home/eve/a", false),
        ("[kdevtmpfsi]", "/home/eve/kdevtmpfsi", false),
        ("kdevtmpfsi", "/tmp/kdevtmpfsi (deleted)", false),
        ("kinsing", "/usr/bin/kinsing", false),
        ("kdevtmpfsi", "/dev/shm/kdevtmpfsi (deleted)", true),
        ("kdevtmpfs", "/home/eve/a", false),
    ] {
        let verdicts = evaluate(&named(name, executable), &RogueRules::default());
        let miner = verdicts.iter().find(|it| it.threat == Threat::CryptoMiner);
        let is_miner = name != "kdevtmpfs";
        assert_eq!(
            miner.map(|it| it.risk >= Risk::High),
            is_miner.then_some(true),
            "{name} {executable}"
        );
        let may_act = verdicts.iter().any(Verdict::is_actionable);
        assert_eq!(may_act, acts, "{name} {executable}");
    }
}

#[test]
fn two_chosen_names_are_no_reason_to_act() {
    let disguised = Suspect {
        name: Some("kworker/0:1".into()),
        executable: Some("/home/eve/a".into()),
        arguments: Some(vec!["xmrig".into(), "--donate-level".into(), "1".into()]),
        load: None,
        ..working_miner()
    };
    let of = |suspect: &Suspect| {
        let verdicts = evaluate(suspect, &RogueRules::default());
        let miner = verdicts
            .into_iter()
            .find(|it| it.threat == Threat::CryptoMiner);
        miner.expect("it calls itself one")
    };
    let verdict = of(&disguised);
    assert_eq!(
        (verdict.risk >= Risk::High, verdict.is_actionable()),
        (true, false)
    );
    let hidden = of(&Suspect {
        executable: Some("/dev/shm/a (deleted)".into()),
        ..disguised
    });
    assert!(hidden.is_actionable());
}

#[test]
fn corroboration_alone_is_no_verdict() {
    let suspect = Suspect {
        executable: Some("/memfd:solver (deleted)".into()),
        ancestors: Some(vec!["php-fpm8.2".into()]),
        load: None,
        ..working_miner()
    };
    assert_eq!(risks(&suspect), [(Threat::SuspiciousProcess, Risk::Medium)]);
}

#[test]
fn allow_entries_hide_but_names_keep_near_proof() {
    let miner = Suspect {
        name: Some("hashcat".into()),
        executable: Some("/dev/shm/hashcat".into()),
        arguments: Some(vec![
            "hashcat".into(),
            "stratum+tcp://pool.example:4444".into(),
        ]),
        image: Some(Some("lab/crack:1".into())),
        ..working_miner()
    };
    let by_rules = |miner: &Suspect, by: AllowMatch, user: Option<&str>| {
        let rules = RogueRules {
            allowed: vec![AllowEntry {
                by,
                user: user.map(str::to_owned),
            }],
            ..RogueRules::default()
        };
        let verdicts = evaluate(miner, &rules);
        let indicators = verdicts.first().map(|it| it.indicators.iter());
        indicators.map(|it| it.map(|indicator| indicator.family).collect::<Vec<_>>())
    };
    let left = |by: AllowMatch, user: Option<&str>| by_rules(&miner, by, user);
    let name = || AllowMatch::Process("hashcat".into());
    let all = left(AllowMatch::User, Some("bob")).unwrap();
    assert_eq!(all.len(), 3);
    // An entry without a user allows nothing.
    assert_eq!(left(AllowMatch::User, None).unwrap(), all);
    assert_eq!(left(AllowMatch::User, Some("eve")), None);
    assert_eq!(left(name(), None), Some(vec![IndicatorFamily::A]));
    assert_eq!(left(name(), Some("eve")), Some(vec![IndicatorFamily::A]));
    assert_eq!(left(name(), Some("bob")).unwrap(), all);
    for part in ["hash", "hashca", "hashcat2", "HASHCAT"] {
        assert_eq!(
            left(AllowMatch::Process(part.into()), None).unwrap(),
            all,
            "{part}"
        );
    }
    // In a container, or in another user namespace, any file may have this path.
    let path = || AllowMatch::Executable("/dev/shm/hashcat".into());
    assert_eq!(left(path(), None).unwrap(), all);
    let on_host = |is_of_host| Suspect {
        image: Some(None),
        is_in_host_namespace: is_of_host,
        ..miner.clone()
    };
    assert_eq!(by_rules(&on_host(Some(true)), path(), None), None);
    assert!(by_rules(&on_host(Some(false)), path(), None).is_some());
    assert!(by_rules(&on_host(None), path(), None).is_some());
    assert_eq!(
        left(AllowMatch::Executable("/dev/shm/".into()), None).unwrap(),
        all
    );
    assert_eq!(left(AllowMatch::Image("lab/crack:1".into()), None), None);
    assert_eq!(
        left(AllowMatch::Image("lab/crack".into()), None).unwrap(),
        all
    );
}

#[test]
fn admin_weights_and_thresholds_apply() {
    let suspect = Suspect {
        name: Some("xmrig".into()),
        ..Suspect::default()
    };
    let mut rules = RogueRules::default();
    rules.weights[0] = Share::from_thousandths(800);
    assert_eq!(
        evaluate(&suspect, &rules)[0].score,
        Share::from_thousandths(560)
    );
    assert_eq!(evaluate(&suspect, &rules)[0].risk, Risk::Medium);
    rules.thresholds = [700, 800, 900, 1_000].map(Share::from_thousandths);
    assert_eq!(evaluate(&suspect, &rules), []);
    let mut rules = RogueRules::default();
    rules.detection.min_confidence = Share::from_thousandths(701);
    assert_eq!(evaluate(&suspect, &rules), []);
}

/// Any process, mostly with facts that an indicator uses.
fn any_suspect() -> impl Strategy<Value = Suspect> {
    let text = prop_oneof![
        any::<String>(),
        Just("stratum+tcp://p.example:1".to_owned()),
        Just("--nicehash".to_owned()),
        Just("xmrig".to_owned()),
        Just("/tmp/x".to_owned()),
        Just("kworker/0:1".to_owned()),
        Just("/memfd:a (deleted)".to_owned()),
        Just("nginx".to_owned()),
    ];
    let texts = proptest::collection::vec(text.clone(), 0..4);
    let ports = proptest::collection::btree_set(any::<u16>(), 0..3);
    (
        proptest::option::of(text.clone()),
        proptest::option::of(text),
        proptest::option::of(texts.clone()),
        proptest::option::of(texts),
        proptest::option::of(ports),
        (
            any::<u16>(),
            any::<u16>(),
            any::<u64>(),
            any::<u64>(),
            any::<u32>(),
        ),
    )
        .prop_map(
            |(name, executable, arguments, ancestors, listens, numbers)| {
                let (saturated, idle, least, most, host) = numbers;
                Suspect {
                    name,
                    executable,
                    arguments,
                    ancestors,
                    listens,
                    peers: Some(["203.0.113.7:4444".parse().unwrap()].into()),
                    load: Some(DeviceLoad {
                        held: Duration::from_secs(u64::from(host)),
                        seen: Duration::from_secs(u64::from(host)),
                        utilization: Some(UtilizationShares { saturated, idle }),
                        mean: Some(host),
                        memory: Some(HeldMemory {
                            min: least,
                            max: most,
                            steady: idle,
                        }),
                        host_cpu: Some(host),
                        bus_bytes: Some(least),
                    }),
                    ..Suspect::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn verdicts_follow_from_their_indicators(suspect in any_suspect()) {
        let rules = RogueRules::default();
        let verdicts = evaluate(&suspect, &rules);
        for verdict in &verdicts {
            prop_assert!(!verdict.indicators.is_empty());
            prop_assert!(verdict.score <= verdict.confidence);
            prop_assert!(verdict.confidence >= verdict.indicators[0].weight);
            let mut kinds: Vec<&str> = verdict.indicators.iter().map(|it| it.kind.as_str()).collect();
            kinds.sort_unstable();
            let count = kinds.len();
            kinds.dedup();
            prop_assert_eq!(kinds.len(), count);
        }
        let less = Suspect {
            arguments: None,
            load: None,
            ..suspect
        };
        let of = |verdicts: &[Verdict], threat| {
            verdicts.iter().find(|it| it.threat == threat).map(|it| it.confidence)
        };
        let fewer = evaluate(&less, &rules);
        for threat in Threat::ALL {
            prop_assert!(of(&fewer, threat) <= of(&verdicts, threat));
        }
    }
}
