//! Consent: what a caller must confirm before processes end.

use super::{KillBox, all_with_ending, outcomes, planned_pids, recorded_actions, sorted};
use gpukill_tests::harness::{Terminal, TestProcess, eventually, process_has_ended, skip};
use serde_json::json;

fn start_two() -> [TestProcess; 2] {
    ["python one.py", "python two.py"].map(TestProcess::start)
}

fn sorted_pids(processes: &[TestProcess; 2]) -> [u32; 2] {
    sorted([processes[0].pid(), processes[1].pid()])
}

#[test]
fn dry_run_ends_nothing_and_lists_targets() {
    let it = KillBox::new();
    let processes = start_two();
    let pids = sorted_pids(&processes);
    it.add_gpu_processes(&pids);
    let arguments = ["--command", "python", "--batch"];
    let (code, plan) = it.kill_json(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!((code, planned_pids(&plan)), (0, pids.to_vec()));
    let ran = it.kill_output(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        pids.iter().all(|pid| ran.stdout.contains(&pid.to_string())),
        "{ran:?}"
    );
    assert!(
        ran.stdout
            .contains("\ndry run: nothing was ended; the real run:"),
        "{ran:?}"
    );
    assert!(!pids.iter().any(|pid| process_has_ended(*pid)));
    assert!(recorded_actions(&it.test_box).is_empty());

    let (code, report) = it.kill_json(&arguments);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&pids, "ended", "SIGTERM"))
    );
    let carried_out = &it.newest_action()["plan"];
    assert_eq!(carried_out["targets"], plan["targets"]);
}

#[test]
fn several_processes_need_confirmation() {
    let it = KillBox::new();
    let processes = start_two();
    let both = sorted_pids(&processes);
    it.add_gpu_processes(&both);
    let [one, other] = both.map(|pid| pid.to_string());
    // A selector with several matches needs --batch as well as --yes; typed pids need only
    // --yes.
    let refused: [(&[&str], &str); 3] = [
        (&["--command", "python"], "add --batch"),
        (&["--command", "python", "--yes"], "add --batch"),
        (&[&one, &other], "add --yes"),
    ];
    for (arguments, hint) in refused {
        let ran = it.kill_output(arguments);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains(hint), "{ran:?}");
        assert!(
            both.iter().all(|pid| ran.stdout.contains(&pid.to_string())),
            "{ran:?}"
        );
        assert!(!both.iter().any(|pid| process_has_ended(*pid)));
    }
    let (code, report) = it.kill_json(&[&one, &other, "--yes"]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&both, "ended", "SIGTERM"))
    );
}

#[test]
fn unknown_memory_is_not_no_match() {
    let it = KillBox::new();
    let process = TestProcess::start("python one.py");
    it.add_gpu_processes(&[process.pid()]);
    let ran = it.kill_output(&["--gpu", "0", "--min-memory", "2G"]);
    let nobody = "gpukillctl: no process that uses a GPU is selected\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (8, nobody));

    // The driver does not report how much memory the process holds.
    it.test_box
        .set_driver_state(&json!({"gpus": [{"processes": [{"pid": process.pid()}]}]}));
    let arguments = ["--gpu", "0", "--min-memory", "2G", "--dry-run"];
    let (code, plan) = eventually("its memory is not known", || {
        let (code, plan) = it.kill_json(&arguments);
        (code != 8).then_some((code, plan))
    });
    assert_eq!(
        (code, &plan["targets"], &plan["undetermined"]),
        (2, &json!([]), &json!(1))
    );
    let ran = it.kill_output(&["--gpu", "0", "--min-memory", "2G"]);
    let not_known = "gpukillctl: it is not known whether 1 process is selected\n\
                     hint: see gpukillctl status\n";
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (2, "", not_known)
    );
    // Nothing was refused, so nothing is recorded.
    assert!(recorded_actions(&it.test_box).is_empty());
    assert!(!process_has_ended(process.pid()));
}

#[test]
fn single_match_needs_no_confirmation() {
    let it = KillBox::new();
    let processes = start_two();
    it.add_gpu_processes(&sorted_pids(&processes));
    let (code, report) = it.kill_json(&["--command", "two[.]py"]);
    let pid = processes[1].pid();
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[pid], "ended", "SIGTERM"))
    );
    let ran = it.kill_output(&["--command", "three[.]py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (8, ""), "{ran:?}");
    assert!(!process_has_ended(processes[0].pid()));
}

#[test]
fn terminal_prompts_for_several_processes() {
    let it = KillBox::new();
    let processes = start_two();
    let both = sorted_pids(&processes);
    it.add_gpu_processes(&both);
    let [one, other] = both.map(|pid| pid.to_string());
    let client = it.test_box.client_command(&["kill", &one, &other]);
    let answered = |answer: &str| {
        let mut terminal = Terminal::start(&client, 120, 40)?;
        let shown = terminal.read_until("[y/N]");
        assert!(shown.contains("2 processes of "), "{shown}");
        terminal.type_keys(answer);
        Some(terminal.wait())
    };
    for no in ["n\n", "\n", "\x04"] {
        let Some(ran) = answered(no) else {
            return skip("no setsid here");
        };
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stdout.contains("nothing was ended"), "{ran:?}");
        assert!(!both.iter().any(|pid| process_has_ended(*pid)));
    }
    assert!(recorded_actions(&it.test_box).is_empty());
    let ran = answered("y\n").unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(both.iter().all(|pid| process_has_ended(*pid)));
}

#[test]
fn process_that_ended_before_confirmation_is_gone() {
    let it = KillBox::new();
    let [first, second] = start_two();
    let (gone, ended) = (first.pid(), second.pid());
    it.add_gpu_processes(&[gone, ended]);
    let client = it
        .test_box
        .client_command(&["kill", &gone.to_string(), &ended.to_string()]);
    let Some(mut terminal) = Terminal::start(&client, 120, 40) else {
        return skip("no setsid here");
    };
    terminal.read_until("[y/N]");
    drop(first);
    terminal.type_keys("y\n");
    let ran = terminal.wait();
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut expected = [
        json!([gone, "gone", null]),
        json!([ended, "ended", "SIGTERM"]),
    ];
    expected.sort_by_key(|it| it[0].as_u64());
    assert_eq!(outcomes(&it.newest_action()["outcome"]), json!(expected));
    eventually("it ends", || process_has_ended(ended).then_some(()));
}

#[test]
fn signal_timeout_is_respected() {
    let it = KillBox::new();
    let script = gpukill_tests::harness::Script::run(
        &it.test_box,
        "trap 'sleep 1.5; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = script.next_pids();
    it.add_gpu_processes(&[pid]);
    let (code, report) = it.kill_json(&[&pid.to_string(), "--timeout-secs", "20", "--force"]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[pid], "ended", "SIGTERM"))
    );
    let after = report["outcomes"][0]["after_ms"].as_u64().unwrap();
    // The process sleeps for 1.5 s after the signal; the measurement starts a little later.
    assert!((1_000..15_000).contains(&after), "{report:#}");
    let ran = it.kill_output(&["1", "--timeout-secs", "0"]);
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn terminal_shows_progress() {
    let it = KillBox::new();
    let script = gpukill_tests::harness::Script::run(
        &it.test_box,
        "trap 'sleep 1.5; exit' TERM; echo $$; while :; do sleep 0.05; done",
    );
    let [pid] = script.next_pids();
    it.add_gpu_processes(&[pid]);
    let client = it
        .test_box
        .client_command(&["kill", &pid.to_string(), "--timeout-secs", "20"]);
    let Some(mut terminal) = Terminal::start(&client, 120, 40) else {
        return skip("no setsid here");
    };
    terminal.read_until(&format!("\r0 of 1 ended, waiting for {pid} ("));
    terminal.read_until("\r1 of 1 ended, waiting for the memory");
    let ran = terminal.wait();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("\r\x1b[K  ended  "), "{ran:?}");
}
