//! Tests of the suggestions, and that a command to copy does no more than it says.

use super::*;
use crate::rogue::evaluate;
use crate::rogue::rules::RogueRules;
use crate::rogue::suspect::Suspect;
use gpukill_proto::guard::Person;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::rogue::Share;
use gpukill_proto::units::Timestamp;

fn indicator(kind: &str, family: IndicatorFamily, evidence: &str) -> Indicator {
    Indicator {
        kind: kind.into(),
        family,
        weight: Share::from_thousandths(600),
        evidence: evidence.into(),
    }
}

fn pool() -> Indicator {
    indicator("pool_on_command_line", IndicatorFamily::A, "names a pool")
}

fn verdict(threat: Threat, risk: Risk, indicators: Vec<Indicator>) -> Verdict {
    Verdict {
        threat,
        confidence: Share::ONE,
        score: Share::ONE,
        risk,
        indicators,
    }
}

fn finding(verdicts: Vec<Verdict>) -> RogueFinding {
    RogueFinding {
        process: ProcessKey {
            pid: 60_990,
            start_ticks: 300,
        },
        owner: Some(Person {
            name: "eve".into(),
            uid: Some(1004),
        }),
        uid: Some(1004),
        name: Some("python3".into()),
        executable: None,
        gpus: vec![2],
        since: Timestamp(0),
        last_seen: Timestamp(60_000),
        is_present: true,
        verdicts,
    }
}

/// The suggestions as a person sees them: the command, or else the text.
fn texts(finding: &RogueFinding) -> Vec<String> {
    let all = advice(finding).into_iter();
    all.map(|it| it.command.unwrap_or(it.text)).collect()
}

const KILL: &str = "gpukillctl kill 60990 --scope job";
const EXPLAIN: &str = "gpukillctl explain 60990";
const ASK: &str = "ask eve about its purpose";
const ALLOW_NAME: &str = "gpukillctl rogue allow process python3@eve";
const ALLOW_ANY_PATH: &str = "gpukillctl rogue allow executable PATH@eve";
const LIMIT: &str = "gpukillctl guard user set eve --idle-limit MINUTES";

#[test]
fn only_near_proof_suggests_an_end() {
    use IndicatorFamily::{B, C};
    use Risk::{Critical, High, Low, Medium};
    use Threat::{CryptoMiner, DataExfiltrator, ResourceAbuser, SuspiciousProcess};
    let port = || indicator("pool_port", B, "connected to 198.51.100.7:4444");
    let idle = || indicator("held_for_nothing", B, "held for 3 days at nothing");
    let long = || indicator("runaway", C, "at full load for 3 days");
    let end = vec![KILL, ALLOW_ANY_PATH];
    let commands = vec![EXPLAIN, ASK, ALLOW_NAME];
    let cases = [
        (CryptoMiner, Critical, vec![pool(), port()], end.clone()),
        (CryptoMiner, High, vec![pool()], end.clone()),
        (SuspiciousProcess, High, vec![pool()], end),
        // A name does not excuse near-proof.
        (
            CryptoMiner,
            Medium,
            vec![pool()],
            vec![EXPLAIN, ASK, ALLOW_ANY_PATH],
        ),
        (CryptoMiner, Critical, vec![port()], commands.clone()),
        (SuspiciousProcess, Critical, vec![port()], commands.clone()),
        (DataExfiltrator, Critical, vec![port()], commands.clone()),
        (ResourceAbuser, High, vec![long()], commands),
        (
            ResourceAbuser,
            Low,
            vec![idle(), long()],
            vec![EXPLAIN, ASK, LIMIT, ALLOW_NAME],
        ),
    ];
    for (threat, risk, indicators, expected) in cases {
        let finding = finding(vec![verdict(threat, risk, indicators)]);
        assert_eq!(texts(&finding), expected, "{threat:?} {risk:?}");
    }
}

#[test]
fn any_verdict_may_suggest_an_end() {
    let odd = verdict(Threat::SuspiciousProcess, Risk::Critical, vec![]);
    let miner = verdict(Threat::CryptoMiner, Risk::High, vec![pool()]);
    assert_eq!(
        texts(&finding(vec![odd, miner]))
            .first()
            .map(String::as_str),
        Some(KILL)
    );
}

#[test]
fn ended_process_has_no_commands() {
    let miner = verdict(Threat::CryptoMiner, Risk::Critical, vec![pool()]);
    let gone = RogueFinding {
        is_present: false,
        ..finding(vec![miner])
    };
    assert_eq!(texts(&gone), [ASK, ALLOW_ANY_PATH]);
    let whats: Vec<&str> = advice(&gone).iter().map(|it| it.kind.name()).collect();
    assert_eq!(whats, ["ask", "allow"]);
    let idle = indicator("held_for_nothing", IndicatorFamily::B, "x");
    let idle = verdict(Threat::ResourceAbuser, Risk::Low, vec![idle]);
    let nobodys = RogueFinding {
        owner: None,
        is_present: false,
        ..finding(vec![idle])
    };
    let with_user = "gpukillctl rogue allow process python3@USER";
    assert_eq!(texts(&nobodys), [with_user]);
}

#[test]
fn allowed_path_is_the_evaluated_one() {
    for executable in [
        "/dev/shm/.x/python3-miner",
        "/dev/shm/m (deleted)",
        "/home/eve/.a: b/c: /d",
        "/tmp/a.out",
        "/tmp/it's",
    ] {
        let suspect = Suspect {
            executable: Some(executable.into()),
            name: Some("kworker/0:1".into()),
            ..Suspect::default()
        };
        let allowed = RogueFinding {
            executable: suspect.executable.clone(),
            ..finding(evaluate(&suspect, &RogueRules::default()))
        };
        let last = texts(&allowed).pop().expect("it is always there");
        let word = quote_for_shell(&format!("{executable}@eve")).expect("it can be shown");
        assert_eq!(last, format!("gpukillctl rogue allow executable {word}"));
    }
}

#[test]
fn interpreter_has_no_allow_command() {
    let of = |executable: &str, indicators: Vec<Indicator>| {
        let finding = RogueFinding {
            executable: Some(executable.into()),
            ..finding(vec![verdict(Threat::CryptoMiner, Risk::Medium, indicators)])
        };
        let allow = advice(&finding).pop().expect("it is always there");
        (allow.text, allow.command.is_some())
    };
    let interpreters = [
        "/usr/bin/python3.11",
        "/opt/conda/bin/python",
        "/bin/bash",
        "/bin/sh",
        "/bin/dash",
        "/usr/bin/perl",
        "/usr/bin/ruby",
        "/usr/bin/node",
        "/usr/lib/jvm/bin/java",
        "/opt/julia/bin/julia",
        "/usr/lib/R/bin/exec/R",
    ];
    for path in interpreters {
        let expected = format!(
            "gpukillctl rogue allow executable {path}@eve hides everything that eve runs with it"
        );
        assert_eq!(of(path, vec![pool()]), (expected, false));
    }
    // Near-proof is still reported for an entry by name.
    let by_name = (ALLOW_NAME.to_owned(), true);
    assert_eq!(of("/usr/bin/python3.11", vec![]), by_name);
    let nobodys = RogueFinding {
        owner: None,
        executable: Some("/usr/bin/python3".into()),
        ..finding(vec![verdict(Threat::CryptoMiner, Risk::High, vec![pool()])])
    };
    let allow = advice(&nobodys).pop().expect("it is always there");
    let expected = "gpukillctl rogue allow executable /usr/bin/python3@USER hides everything that \
                    USER runs with it";
    assert_eq!((allow.text.as_str(), allow.command), (expected, None));
}

#[test]
fn unsafe_names_make_no_command() {
    let of = |executable: &str, change: fn(&mut RogueFinding)| {
        let indicators = vec![indicator("executable_location", IndicatorFamily::B, "x")];
        let mut finding = finding(vec![verdict(
            Threat::SuspiciousProcess,
            Risk::Low,
            indicators,
        )]);
        finding.executable = Some(executable.into());
        change(&mut finding);
        let allow = advice(&finding).pop().expect("it is always there");
        (allow.text, allow.command.is_some())
    };
    let to_fill_in = (ALLOW_ANY_PATH.to_owned(), false);
    let evidence = "/dev/shm/x";
    let whole = "gpukillctl rogue allow executable /dev/shm/x@eve";
    assert_eq!(of(evidence, |_| {}), (whole.to_owned(), true));
    for evidence in [
        "/dev/shm/xxx…",
        r"/dev/shm/\x1b[2J",
        "/dev/shm/\x1b[2J",
        "/dev/shm/\u{202e}x",
    ] {
        assert_eq!(of(evidence, |_| {}), to_fill_in, "{evidence}");
    }
    let strangers: [fn(&mut RogueFinding); 5] = [
        |it| it.owner = None,
        // The owner and the user it runs as differ.
        |it| it.uid = Some(0),
        |it| it.uid = None,
        |it| {
            it.owner = Some(Person {
                name: "eve@corp".into(),
                uid: Some(1004),
            });
        },
        |it| {
            it.owner = Some(Person {
                name: "container web01".into(),
                uid: Some(1004),
            });
        },
    ];
    for stranger in strangers {
        let with_user = "gpukillctl rogue allow executable /dev/shm/x@USER";
        assert_eq!(of(evidence, stranger), (with_user.to_owned(), false));
    }
    // Anyone can use this name.
    let name = "gpukillctl rogue allow process python3@eve".to_owned();
    assert_eq!(of("/memfd:x", |_| {}), (name, true));
}

#[test]
fn names_are_quoted_for_the_shell() {
    let of = |name: &str| {
        let mut finding = finding(vec![verdict(Threat::ResourceAbuser, Risk::Low, vec![])]);
        finding.name = Some(name.into());
        advice(&finding).pop().expect("it is always there").command
    };
    let command = |word: &str| Some(format!("gpukillctl rogue allow process {word}"));
    assert_eq!(of("a;reboot"), command("'a;reboot@eve'"));
    assert_eq!(of("$(reboot)"), command("'$(reboot)@eve'"));
    assert_eq!(of("'`x`"), command(r"''\''`x`@eve'"));
    for unsafe_name in ["-rf", "a\nb", "\x1b[2J", "x\u{200b}", r"a\x1b", ""] {
        assert_eq!(of(unsafe_name), None, "{unsafe_name:?}");
    }
}
