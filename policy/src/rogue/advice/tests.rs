//! What is advised of whom, and that what can be copied does no more than it says.

use super::*;
use crate::rogue::judge;
use crate::rogue::rules::Rules;
use crate::rogue::suspect::Suspect;
use gpukill_proto::guard::Person;
use gpukill_proto::rogue::Share;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;

fn sign(kind: &str, family: Family, read: &str) -> Sign {
    Sign {
        kind: kind.into(),
        family,
        weight: Share::thousandths(600),
        read: read.into(),
    }
}

fn pool() -> Sign {
    sign("pool_on_command_line", Family::A, "names a pool")
}

fn verdict(threat: Threat, risk: Risk, signs: Vec<Sign>) -> Verdict {
    Verdict {
        threat,
        confidence: Share::ONE,
        score: Share::ONE,
        risk,
        signs,
    }
}

fn finding(verdicts: Vec<Verdict>) -> Finding {
    Finding {
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

/// What is advised, as a person sees it: what can be copied, and else the words.
fn told(finding: &Finding) -> Vec<String> {
    let all = advice(finding).into_iter();
    all.map(|it| it.command.unwrap_or(it.text)).collect()
}

const KILL: &str = "gpukillctl kill 60990 --scope job";
const EXPLAIN: &str = "gpukillctl explain 60990";
const ASK: &str = "ask eve what it is for";
const ALLOW_NAME: &str = "gpukillctl rogue allow process python3@eve";
const ALLOW_ANY_PATH: &str = "gpukillctl rogue allow executable PATH@eve";
const LIMIT: &str = "gpukillctl guard user set eve --idle-limit MINUTES";

#[test]
fn only_what_is_as_good_as_proved_is_to_be_ended() {
    use Family::{B, C};
    use Risk::{Critical, High, Low, Medium};
    use Threat::{CryptoMiner, DataExfiltrator, ResourceAbuser, SuspiciousProcess};
    let port = || sign("pool_port", B, "connected to 198.51.100.7:4444");
    let idle = || sign("held_for_nothing", B, "held for 3 days at nothing");
    let long = || sign("runaway", C, "at full load for 3 days");
    let end = vec![KILL, ALLOW_ANY_PATH];
    let look = vec![EXPLAIN, ASK, ALLOW_NAME];
    let cases = [
        (CryptoMiner, Critical, vec![pool(), port()], end.clone()),
        (CryptoMiner, High, vec![pool()], end.clone()),
        (SuspiciousProcess, High, vec![pool()], end),
        // A name does not excuse what is nearly a proof.
        (
            CryptoMiner,
            Medium,
            vec![pool()],
            vec![EXPLAIN, ASK, ALLOW_ANY_PATH],
        ),
        (CryptoMiner, Critical, vec![port()], look.clone()),
        (SuspiciousProcess, Critical, vec![port()], look.clone()),
        (DataExfiltrator, Critical, vec![port()], look.clone()),
        (ResourceAbuser, High, vec![long()], look),
        (
            ResourceAbuser,
            Low,
            vec![idle(), long()],
            vec![EXPLAIN, ASK, LIMIT, ALLOW_NAME],
        ),
    ];
    for (threat, risk, signs, expected) in cases {
        let finding = finding(vec![verdict(threat, risk, signs)]);
        assert_eq!(told(&finding), expected, "{threat:?} {risk:?}");
    }
}

#[test]
fn any_of_several_verdicts_may_call_for_its_end() {
    let odd = verdict(Threat::SuspiciousProcess, Risk::Critical, vec![]);
    let miner = verdict(Threat::CryptoMiner, Risk::High, vec![pool()]);
    assert_eq!(
        told(&finding(vec![odd, miner])).first().map(String::as_str),
        Some(KILL)
    );
}

#[test]
fn what_has_ended_is_neither_ended_nor_explained() {
    let miner = verdict(Threat::CryptoMiner, Risk::Critical, vec![pool()]);
    let gone = Finding {
        is_present: false,
        ..finding(vec![miner])
    };
    assert_eq!(told(&gone), [ASK, ALLOW_ANY_PATH]);
    let whats: Vec<&str> = advice(&gone).iter().map(|it| it.what.name()).collect();
    assert_eq!(whats, ["ask", "allow"]);
    let idle = sign("held_for_nothing", Family::B, "x");
    let idle = verdict(Threat::ResourceAbuser, Risk::Low, vec![idle]);
    let nobodys = Finding {
        owner: None,
        is_present: false,
        ..finding(vec![idle])
    };
    let of_whom = "gpukillctl rogue allow process python3@USER";
    assert_eq!(told(&nobodys), [of_whom]);
}

#[test]
fn the_path_that_is_allowed_is_the_one_that_was_judged() {
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
        let allowed = Finding {
            executable: suspect.executable.clone(),
            ..finding(judge(&suspect, &Rules::default()))
        };
        let last = told(&allowed).pop().expect("it is always there");
        let word = shell_word(&format!("{executable}@eve")).expect("it can be shown");
        assert_eq!(last, format!("gpukillctl rogue allow executable {word}"));
    }
}

#[test]
fn an_interpreter_is_not_allowed_by_a_command_to_copy() {
    let of = |executable: &str, signs: Vec<Sign>| {
        let finding = Finding {
            executable: Some(executable.into()),
            ..finding(vec![verdict(Threat::CryptoMiner, Risk::Medium, signs)])
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
        let expected =
            format!("gpukillctl rogue allow executable {path}@eve hides all that eve runs with it");
        assert_eq!(of(path, vec![pool()]), (expected, false));
    }
    // By its name, what is nearly a proof is told all the same.
    let by_name = (ALLOW_NAME.to_owned(), true);
    assert_eq!(of("/usr/bin/python3.11", vec![]), by_name);
    let nobodys = Finding {
        owner: None,
        executable: Some("/usr/bin/python3".into()),
        ..finding(vec![verdict(Threat::CryptoMiner, Risk::High, vec![pool()])])
    };
    let allow = advice(&nobodys).pop().expect("it is always there");
    let expected =
        "gpukillctl rogue allow executable /usr/bin/python3@USER hides all that USER runs with it";
    assert_eq!((allow.text.as_str(), allow.command), (expected, None));
}

#[test]
fn no_command_is_made_of_what_is_not_whole_or_nobodys() {
    let of = |executable: &str, change: fn(&mut Finding)| {
        let signs = vec![sign("executable_place", Family::B, "x")];
        let mut finding = finding(vec![verdict(Threat::SuspiciousProcess, Risk::Low, signs)]);
        finding.executable = Some(executable.into());
        change(&mut finding);
        let allow = advice(&finding).pop().expect("it is always there");
        (allow.text, allow.command.is_some())
    };
    let to_fill_in = (ALLOW_ANY_PATH.to_owned(), false);
    let read = "/dev/shm/x";
    let whole = "gpukillctl rogue allow executable /dev/shm/x@eve";
    assert_eq!(of(read, |_| {}), (whole.to_owned(), true));
    for read in [
        "/dev/shm/xxx…",
        r"/dev/shm/\x1b[2J",
        "/dev/shm/\x1b[2J",
        "/dev/shm/\u{202e}x",
    ] {
        assert_eq!(of(read, |_| {}), to_fill_in, "{read}");
    }
    let strangers: [fn(&mut Finding); 5] = [
        |it| it.owner = None,
        // Whose it is, and as whom it runs, are not the same.
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
        let of_whom = "gpukillctl rogue allow executable /dev/shm/x@USER";
        assert_eq!(of(read, stranger), (of_whom.to_owned(), false));
    }
    // Anybody can be called so.
    let name = "gpukillctl rogue allow process python3@eve".to_owned();
    assert_eq!(of("/memfd:x", |_| {}), (name, true));
}

#[test]
fn a_name_stays_one_word_and_does_nothing_in_a_shell() {
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
