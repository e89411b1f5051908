//! What the watch for rogues found: a miner, one that has ended, a notebook that holds a
//! device at nothing, and a container that sends much.

use super::{NOW, snapshot};
use gpukill_proto::guard::{Person, RulesRevision};
use gpukill_proto::rogue::{
    Family, Finding, Looked, Risk, RogueReport, ScanReport, Share, Sign, Suspected, Threat, Verdict,
};
use gpukill_proto::snapshot::ProcessKey;

fn sign(kind: &str, family: Family, weight: u16, read: &str) -> Sign {
    Sign {
        kind: kind.into(),
        family,
        weight: Share::thousandths(weight),
        read: read.into(),
    }
}

fn verdict(threat: Threat, score: u16, risk: Risk, signs: Vec<Sign>) -> Verdict {
    Verdict {
        threat,
        confidence: Share::thousandths(score),
        score: Share::thousandths(score),
        risk,
        signs,
    }
}

fn finding(pid: u32, name: &str, gpus: &[u32], verdicts: Vec<Verdict>) -> Finding {
    Finding {
        process: ProcessKey {
            pid,
            start_ticks: u64::from(pid) * 100,
        },
        owner: None,
        uid: None,
        name: Some(name.into()),
        executable: Some(format!("/home/{name}/bin/{name}")),
        gpus: gpus.into(),
        since: NOW.plus_seconds(-7_200),
        last_seen: NOW,
        is_present: true,
        verdicts,
    }
}

fn of(name: &str, uid: u32, finding: Finding) -> Finding {
    Finding {
        owner: Some(Person {
            name: name.into(),
            uid: Some(uid),
        }),
        uid: Some(uid),
        ..finding
    }
}

/// Of a miner that calls itself Python.
fn hidden_miner() -> Vec<Verdict> {
    let place = sign(
        "executable_place",
        Family::B,
        500,
        "executable in shared memory: /dev/shm/.x/python3 (deleted)",
    );
    let signs = vec![
        sign(
            "pool_on_command_line",
            Family::A,
            650,
            "command line names a pool: stratum+tcp://eu.pool.example.org:4444",
        ),
        sign(
            "pool_port",
            Family::B,
            550,
            "connected to 198.51.100.7:4444",
        ),
        place.clone(),
        sign(
            "mining_load",
            Family::C,
            350,
            "99 % for 2h 0m, with 5.1 GiB that do not change, and no library of other work",
        ),
    ];
    let odd = vec![place];
    vec![
        verdict(Threat::CryptoMiner, 949, Risk::Critical, signs),
        verdict(Threat::SuspiciousProcess, 500, Risk::Medium, odd),
    ]
}

/// All that a scan can find.
pub(crate) fn scan() -> ScanReport {
    let name = sign("miner_name", Family::A, 700, "it is called t-rex");
    let ended = Finding {
        last_seen: NOW.plus_seconds(-2_551),
        is_present: false,
        ..finding(
            4_182_017,
            "t-rex",
            &[0, 1, 2, 3, 6],
            vec![verdict(Threat::CryptoMiner, 700, Risk::High, vec![name])],
        )
    };
    let sent = sign(
        "sent_much",
        Family::B,
        600,
        "its network namespace has sent 214 GiB",
    );
    let container = Finding {
        owner: Some(Person {
            name: "container web01".into(),
            uid: None,
        }),
        uid: Some(0),
        ..finding(
            70_001,
            "rclone",
            &[8],
            vec![verdict(
                Threat::DataExfiltrator,
                540,
                Risk::Medium,
                vec![sent],
            )],
        )
    };
    let nothing = sign(
        "held_for_nothing",
        Family::B,
        600,
        "held for 2d 3h, and idle all that time",
    );
    let notebook = finding(
        51_002,
        "python",
        &[5],
        vec![verdict(
            Threat::ResourceAbuser,
            360,
            Risk::Low,
            vec![nothing],
        )],
    );
    let nobodys = Finding {
        name: None,
        gpus: Vec::new(),
        ..finding(
            60_211,
            "",
            &[],
            vec![verdict(Threat::SuspiciousProcess, 320, Risk::Low, vec![])],
        )
    };
    ScanReport {
        since: NOW.plus_seconds(-86_400),
        until: NOW,
        judged: 312,
        findings: vec![
            of(
                "eve",
                1004,
                Finding {
                    executable: Some("/dev/shm/.x/python3 (deleted)".into()),
                    ..finding(60_990, "python3", &[2], hidden_miner())
                },
            ),
            of("mallory", 1013, ended),
            container,
            of("bob", 1001, notebook),
            nobodys,
        ],
        more: 2,
    }
}

/// What is said of two processes of the snapshot that are marked in lists, and of one that
/// is not.
pub(crate) fn suspected() -> Vec<(ProcessKey, Suspected)> {
    let key = |pid: u32| {
        let processes = snapshot().processes;
        let process = processes.iter().find(|it| it.pid == pid);
        let process = process.expect("it is in the snapshot");
        ProcessKey {
            pid,
            start_ticks: *process.start_ticks.known().expect("it is known"),
        }
    };
    let suspected = |risk, threat| Suspected {
        risk,
        threat,
        may_be_acted_on: false,
    };
    vec![
        (
            key(48_213),
            suspected(Risk::Critical, Threat::SuspiciousProcess),
        ),
        (key(71_001), suspected(Risk::Medium, Threat::CryptoMiner)),
        (key(51_002), suspected(Risk::Low, Threat::ResourceAbuser)),
    ]
}

/// A miner, as `explain` tells it.
pub(crate) fn hidden() -> Looked {
    let verdicts = hidden_miner();
    let signs = verdicts.iter().flat_map(|verdict| verdict.signs.clone());
    let mut signs: Vec<Sign> = signs.collect();
    signs.pop();
    Looked {
        at: NOW,
        verdicts,
        score: Share::thousandths(949),
        signs,
        allowed: Vec::new(),
        unseen: Vec::new(),
    }
}

/// What comes to nothing.
pub(crate) fn looked() -> Looked {
    Looked {
        at: NOW,
        verdicts: Vec::new(),
        score: Share::thousandths(50),
        signs: vec![
            sign("runaway", Family::C, 100, "held long at nothing"),
            sign("started_by_cron", Family::C, 100, "started by cron"),
        ],
        allowed: vec!["process python3@bob".into()],
        unseen: vec![
            "what its network namespace sends: it has the box's own".into(),
            "its libraries: not permitted".into(),
        ],
    }
}

/// How the watch stands where there is something to tell.
pub(crate) fn rogue_report() -> RogueReport {
    RogueReport {
        file: "/etc/gpukill/rules/rogue.toml".into(),
        revision: Some(RulesRevision("59cf2a0d5c1a36ab".into())),
        mistakes: vec![
            "line 3: detection.max_memory_usage_gb: \"much\" is no number".into(),
            "line 9: patterns.minerz: there is no such key".into(),
        ],
        watched: 4_096,
        beyond: 12,
        findings: 2,
        worst: Some(Risk::Critical),
    }
}
