//! What a person has to say before anybody is ended.

use super::{Box, all, ended, endings, recorded, sorted};
use gpukill_tests::harness::{Actor, Terminal, eventually, is_over, skip};
use serde_json::json;

fn two() -> [Actor; 2] {
    ["python one.py", "python two.py"].map(Actor::start)
}

fn pids(actors: &[Actor; 2]) -> [u32; 2] {
    sorted([actors[0].pid(), actors[1].pid()])
}

#[test]
fn a_dry_run_ends_nobody_and_tells_exactly_who_will_be_ended() {
    let it = Box::new();
    let actors = two();
    let pids = pids(&actors);
    it.lists(&pids);
    let arguments = ["--command", "python", "--batch"];
    let (code, plan) = it.kill(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!((code, ended(&plan)), (0, pids.to_vec()));
    let ran = it.says(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        pids.iter().all(|pid| ran.stdout.contains(&pid.to_string())),
        "{ran:?}"
    );
    assert!(!pids.iter().any(|pid| is_over(*pid)));
    assert!(recorded(&it.stage).is_empty());

    let (code, report) = it.kill(&arguments);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&pids, "ended", "SIGTERM"))
    );
    let carried_out = &it.recorded()["plan"];
    assert_eq!(carried_out["targets"], plan["targets"]);
}

#[test]
fn several_are_ended_only_when_that_was_said() {
    let it = Box::new();
    let actors = two();
    let both = pids(&actors);
    it.lists(&both);
    let [one, other] = both.map(|pid| pid.to_string());
    // Of a selector that means several --yes is not enough, and of pids that were
    // typed --batch is not asked for.
    let refused: [(&[&str], &str); 3] = [
        (&["--command", "python"], "add --batch"),
        (&["--command", "python", "--yes"], "add --batch"),
        (&[&one, &other], "add --yes"),
    ];
    for (arguments, hint) in refused {
        let ran = it.says(arguments);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains(hint), "{ran:?}");
        assert!(
            both.iter().all(|pid| ran.stdout.contains(&pid.to_string())),
            "{ran:?}"
        );
        assert!(!both.iter().any(|pid| is_over(*pid)));
    }
    let (code, report) = it.kill(&[&one, &other, "--yes"]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&both, "ended", "SIGTERM"))
    );
}

#[test]
fn that_nobody_is_meant_is_said_only_where_it_is_known() {
    let it = Box::new();
    let actor = Actor::start("python one.py");
    it.lists(&[actor.pid()]);
    let ran = it.says(&["--gpu", "0", "--min-memory", "2G"]);
    let nobody = "gpukillctl: no process that uses a GPU is meant\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (8, nobody));

    // The driver does not say what it holds.
    it.stage
        .play(&json!({"gpus": [{"processes": [{"pid": actor.pid()}]}]}));
    let arguments = ["--gpu", "0", "--min-memory", "2G", "--dry-run"];
    let (code, plan) = eventually("its memory is not known", || {
        let (code, plan) = it.kill(&arguments);
        (code != 8).then_some((code, plan))
    });
    assert_eq!(
        (code, &plan["targets"], &plan["unjudged"]),
        (2, &json!([]), &json!(1))
    );
    let ran = it.says(&["--gpu", "0", "--min-memory", "2G"]);
    let not_known = "gpukillctl: whether 1 process is meant is not known\n\
                     hint: see gpukillctl status\n";
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (2, "", not_known)
    );
    // Nothing was refused, and so nothing is recorded.
    assert!(recorded(&it.stage).is_empty());
    assert!(!is_over(actor.pid()));
}

#[test]
fn a_selector_that_means_one_needs_nothing() {
    let it = Box::new();
    let actors = two();
    it.lists(&pids(&actors));
    let (code, report) = it.kill(&["--command", "two[.]py"]);
    let pid = actors[1].pid();
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[pid], "ended", "SIGTERM"))
    );
    let ran = it.says(&["--command", "three[.]py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (8, ""), "{ran:?}");
    assert!(!is_over(actors[0].pid()));
}

#[test]
fn on_a_terminal_several_are_asked_about() {
    let it = Box::new();
    let actors = two();
    let both = pids(&actors);
    it.lists(&both);
    let [one, other] = both.map(|pid| pid.to_string());
    let client = it.stage.client(&["kill", &one, &other]);
    let answered = |answer: &str| {
        let mut terminal = Terminal::start(&client, 120, 40)?;
        let shown = terminal.until("[y/N]");
        assert!(shown.contains("2 processes of "), "{shown}");
        terminal.types(answer);
        Some(terminal.end())
    };
    for no in ["n\n", "\n", "\x04"] {
        let Some(ran) = answered(no) else {
            return skip("no setsid here");
        };
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stdout.contains("nothing was ended"), "{ran:?}");
        assert!(!both.iter().any(|pid| is_over(*pid)));
    }
    assert!(recorded(&it.stage).is_empty());
    let ran = answered("y\n").unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(both.iter().all(|pid| is_over(*pid)));
}

#[test]
fn who_ended_while_a_person_thought_about_it_is_gone() {
    let it = Box::new();
    let [first, second] = two();
    let (gone, ended) = (first.pid(), second.pid());
    it.lists(&[gone, ended]);
    let client = it
        .stage
        .client(&["kill", &gone.to_string(), &ended.to_string()]);
    let Some(mut terminal) = Terminal::start(&client, 120, 40) else {
        return skip("no setsid here");
    };
    terminal.until("[y/N]");
    drop(first);
    terminal.types("y\n");
    let ran = terminal.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut expected = [
        json!([gone, "gone", null]),
        json!([ended, "ended", "SIGTERM"]),
    ];
    expected.sort_by_key(|it| it[0].as_u64());
    assert_eq!(endings(&it.recorded()["outcome"]), json!(expected));
    eventually("it ends", || is_over(ended).then_some(()));
}

#[test]
fn each_signal_has_the_time_that_was_given() {
    let it = Box::new();
    let troupe = gpukill_tests::harness::Troupe::run(
        &it.stage,
        "trap 'sleep 1.5; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = troupe.pids();
    it.lists(&[pid]);
    let (code, report) = it.kill(&[&pid.to_string(), "--timeout-secs", "20", "--force"]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[pid], "ended", "SIGTERM"))
    );
    let after = report["outcomes"][0]["after_ms"].as_u64().unwrap();
    // It sleeps for 1.5 s from the signal on; what is counted begins a little later.
    assert!((1_000..15_000).contains(&after), "{report:#}");
    let ran = it.says(&["1", "--timeout-secs", "0"]);
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn whoever_waits_at_a_terminal_sees_for_whom_and_then_for_what() {
    let it = Box::new();
    let troupe = gpukill_tests::harness::Troupe::run(
        &it.stage,
        "trap 'sleep 1.5; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = troupe.pids();
    it.lists(&[pid]);
    let client = it
        .stage
        .client(&["kill", &pid.to_string(), "--timeout-secs", "20"]);
    let Some(mut terminal) = Terminal::start(&client, 120, 40) else {
        return skip("no setsid here");
    };
    terminal.until(&format!("\r0 of 1 ended, waiting for {pid} ("));
    terminal.until("\r1 of 1 ended, waiting for the memory");
    let ran = terminal.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("\r\x1b[K  ended  "), "{ran:?}");
}
