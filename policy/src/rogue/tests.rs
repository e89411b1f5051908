//! Verdicts on whole processes.

use super::judge;
use super::rules::{Allowed, AllowedBy, Rules};
use super::suspect::{Held, Load, Shares, Suspect};
use gpukill_proto::rogue::{Family, Risk, Share, Threat, Verdict};
use proptest::prelude::*;
use std::time::Duration;

/// A process that works as miners do, and is nothing else.
fn works() -> Suspect {
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
        load: Some(Load {
            held: Duration::from_secs(7_200),
            seen: Duration::from_secs(7_200),
            utilization: Some(Shares {
                saturated: 1_000,
                idle: 0,
            }),
            mean: Some(99),
            memory: Some(Held {
                least: 5 << 30,
                most: 5 << 30,
                steady: 1_000,
            }),
            host_cpu: Some(50),
            bus: Some(0),
        }),
        ..Suspect::default()
    }
}

fn risks(suspect: &Suspect) -> Vec<(Threat, Risk)> {
    let verdicts = judge(suspect, &Rules::default());
    verdicts.iter().map(|it| (it.threat, it.risk)).collect()
}

#[test]
fn looks_alone_are_told_of_nobody() {
    assert_eq!(risks(&works()), []);
    for executable in [
        "/tmp/pytest-1/test",
        "/usr/bin/python3.11 (deleted)",
        "/home/bob/a.out (deleted)",
    ] {
        let suspect = Suspect {
            executable: Some(executable.into()),
            ..works()
        };
        assert_eq!(risks(&suspect), [], "{executable}");
    }
}

#[test]
fn a_miner_called_python_is_one_by_what_it_does() {
    let mut suspect = works();
    suspect.peers = Some(["203.0.113.7:4444".parse().unwrap()].into());
    assert_eq!(risks(&suspect), [(Threat::CryptoMiner, Risk::High)]);
    suspect.executable = Some("/dev/shm/.x/python3 (deleted)".into());
    let pool = "stratum+tcp://pool.example:4444".to_owned();
    suspect.arguments = Some(vec!["python3".into(), "-o".into(), pool]);
    let verdicts = judge(&suspect, &Rules::default());
    let worst = &verdicts[0];
    assert_eq!(
        (worst.threat, worst.risk),
        (Threat::CryptoMiner, Risk::Critical)
    );
    assert!(worst.may_be_acted_on());
    let told: Vec<(&str, Family)> = worst
        .signs
        .iter()
        .map(|it| (it.kind.as_str(), it.family))
        .collect();
    let expected = [
        ("pool_on_command_line", Family::A),
        ("pool_port", Family::B),
        ("executable_place", Family::B),
        ("mining_load", Family::C),
        ("lasting_connection", Family::C),
    ];
    assert_eq!(told, expected);
    // 1 - 0.35 x 0.45 x 0.5 x 0.65 x 0.75
    assert_eq!(worst.confidence.to_string(), "0.96");
}

#[test]
fn a_known_miner_by_its_name_is_of_high_risk_at_least() {
    let suspect = Suspect {
        name: Some("xmrig".into()),
        ..works()
    };
    assert_eq!(risks(&suspect), [(Threat::CryptoMiner, Risk::High)]);
    let bare = Suspect {
        name: Some("xmrig".into()),
        ..Suspect::default()
    };
    assert_eq!(risks(&bare), [(Threat::CryptoMiner, Risk::High)]);
}

#[test]
fn a_system_name_on_a_deleted_temporary_file_is_of_medium_risk() {
    let suspect = Suspect {
        name: Some("systemd-helper".into()),
        executable: Some("/tmp/systemd-helper (deleted)".into()),
        arguments: Some(vec!["systemd-helper".into()]),
        load: None,
        ..works()
    };
    assert_eq!(risks(&suspect), [(Threat::SuspiciousProcess, Risk::Medium)]);
}

#[test]
fn the_name_of_a_miner_is_of_high_risk_and_no_reason_to_act() {
    let named = |name: &str, executable: &str| Suspect {
        name: Some(name.into()),
        executable: Some(executable.into()),
        arguments: Some(vec![name.into()]),
        load: None,
        ..works()
    };
    for (name, executable, acts) in [
        ("kdevtmpfsi", "/home/eve/a", false),
        ("[kdevtmpfsi]", "/home/eve/kdevtmpfsi", false),
        ("kdevtmpfsi", "/tmp/kdevtmpfsi (deleted)", false),
        ("kinsing", "/usr/bin/kinsing", false),
        ("kdevtmpfsi", "/dev/shm/kdevtmpfsi (deleted)", true),
        ("kdevtmpfs", "/home/eve/a", false),
    ] {
        let verdicts = judge(&named(name, executable), &Rules::default());
        let miner = verdicts.iter().find(|it| it.threat == Threat::CryptoMiner);
        let is_miner = name != "kdevtmpfs";
        assert_eq!(
            miner.map(|it| it.risk >= Risk::High),
            is_miner.then_some(true),
            "{name} {executable}"
        );
        let may_act = verdicts.iter().any(Verdict::may_be_acted_on);
        assert_eq!(may_act, acts, "{name} {executable}");
    }
}

#[test]
fn two_names_that_a_process_chose_are_no_reason_to_act() {
    let disguised = Suspect {
        name: Some("kworker/0:1".into()),
        executable: Some("/home/eve/a".into()),
        arguments: Some(vec!["xmrig".into(), "--donate-level".into(), "1".into()]),
        load: None,
        ..works()
    };
    let of = |suspect: &Suspect| {
        let verdicts = judge(suspect, &Rules::default());
        let miner = verdicts
            .into_iter()
            .find(|it| it.threat == Threat::CryptoMiner);
        miner.expect("it calls itself one")
    };
    let said = of(&disguised);
    assert_eq!(
        (said.risk >= Risk::High, said.may_be_acted_on()),
        (true, false)
    );
    let hidden = of(&Suspect {
        executable: Some("/dev/shm/a (deleted)".into()),
        ..disguised
    });
    assert!(hidden.may_be_acted_on());
}

#[test]
fn what_only_corroborates_makes_no_miner() {
    let suspect = Suspect {
        executable: Some("/memfd:solver (deleted)".into()),
        ancestors: Some(vec!["php-fpm8.2".into()]),
        load: None,
        ..works()
    };
    assert_eq!(risks(&suspect), [(Threat::SuspiciousProcess, Risk::Medium)]);
}

#[test]
fn whom_the_admin_allows_is_not_looked_at_but_a_name_is_no_leave_to_mine() {
    let miner = Suspect {
        name: Some("hashcat".into()),
        executable: Some("/dev/shm/hashcat".into()),
        arguments: Some(vec![
            "hashcat".into(),
            "stratum+tcp://pool.example:4444".into(),
        ]),
        image: Some(Some("lab/crack:1".into())),
        ..works()
    };
    let by_rules = |miner: &Suspect, by: AllowedBy, user: Option<&str>| {
        let rules = Rules {
            allowed: vec![Allowed {
                by,
                user: user.map(str::to_owned),
            }],
            ..Rules::default()
        };
        let verdicts = judge(miner, &rules);
        let signs = verdicts.first().map(|it| it.signs.iter());
        signs.map(|it| it.map(|sign| sign.family).collect::<Vec<_>>())
    };
    let left = |by: AllowedBy, user: Option<&str>| by_rules(&miner, by, user);
    let name = || AllowedBy::Process("hashcat".into());
    let all = left(AllowedBy::User, Some("bob")).unwrap();
    assert_eq!(all.len(), 3);
    // Nobody is allowed by nothing.
    assert_eq!(left(AllowedBy::User, None).unwrap(), all);
    assert_eq!(left(AllowedBy::User, Some("eve")), None);
    assert_eq!(left(name(), None), Some(vec![Family::A]));
    assert_eq!(left(name(), Some("eve")), Some(vec![Family::A]));
    assert_eq!(left(name(), Some("bob")).unwrap(), all);
    for part in ["hash", "hashca", "hashcat2", "HASHCAT"] {
        assert_eq!(
            left(AllowedBy::Process(part.into()), None).unwrap(),
            all,
            "{part}"
        );
    }
    // In a container, and in a namespace of one's own, any file may lie there.
    let path = || AllowedBy::Executable("/dev/shm/hashcat".into());
    assert_eq!(left(path(), None).unwrap(), all);
    let on_the_box = |is_of_the_box| Suspect {
        image: Some(None),
        is_of_the_box,
        ..miner.clone()
    };
    assert_eq!(by_rules(&on_the_box(Some(true)), path(), None), None);
    assert!(by_rules(&on_the_box(Some(false)), path(), None).is_some());
    assert!(by_rules(&on_the_box(None), path(), None).is_some());
    assert_eq!(
        left(AllowedBy::Executable("/dev/shm/".into()), None).unwrap(),
        all
    );
    assert_eq!(left(AllowedBy::Image("lab/crack:1".into()), None), None);
    assert_eq!(
        left(AllowedBy::Image("lab/crack".into()), None).unwrap(),
        all
    );
}

#[test]
fn the_admins_weights_and_thresholds_hold() {
    let suspect = Suspect {
        name: Some("xmrig".into()),
        ..Suspect::default()
    };
    let mut rules = Rules::default();
    rules.weights[0] = Share::thousandths(800);
    assert_eq!(judge(&suspect, &rules)[0].score, Share::thousandths(560));
    assert_eq!(judge(&suspect, &rules)[0].risk, Risk::Medium);
    rules.thresholds = [700, 800, 900, 1_000].map(Share::thousandths);
    assert_eq!(judge(&suspect, &rules), []);
    let mut rules = Rules::default();
    rules.detection.min_confidence = Share::thousandths(701);
    assert_eq!(judge(&suspect, &rules), []);
}

/// Any process, mostly of what some sign looks for.
fn anybody() -> impl Strategy<Value = Suspect> {
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
                    load: Some(Load {
                        held: Duration::from_secs(u64::from(host)),
                        seen: Duration::from_secs(u64::from(host)),
                        utilization: Some(Shares { saturated, idle }),
                        mean: Some(host),
                        memory: Some(Held {
                            least,
                            most,
                            steady: idle,
                        }),
                        host_cpu: Some(host),
                        bus: Some(least),
                    }),
                    ..Suspect::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn every_verdict_rests_on_its_signs_and_knowing_less_makes_nobody_worse(suspect in anybody()) {
        let rules = Rules::default();
        let verdicts = judge(&suspect, &rules);
        for verdict in &verdicts {
            prop_assert!(!verdict.signs.is_empty());
            prop_assert!(verdict.score <= verdict.confidence);
            prop_assert!(verdict.confidence >= verdict.signs[0].weight);
            let mut kinds: Vec<&str> = verdict.signs.iter().map(|it| it.kind.as_str()).collect();
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
        let fewer = judge(&less, &rules);
        for threat in Threat::ALL {
            prop_assert!(of(&fewer, threat) <= of(&verdicts, threat));
        }
    }
}
