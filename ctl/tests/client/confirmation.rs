//! The confirmation that `kill` needs before it ends several processes.

use crate::fake_daemon::FakeDaemon;
use crate::fake_kill::{ended_outcome, plan, planned_end, report};
use crate::kill::{daemon, started_count, three_ended_report, three_targets};
use crate::terminal::Terminal;
use crate::{client, run, stderr, stdout};
use gpukill_proto::reading::Reading;
use std::process::Stdio;

#[test]
fn without_terminal_several_need_yes_and_batch() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(
        directory.path(),
        three_targets(),
        vec![three_ended_report()],
    );
    let needs_yes = "gpukillctl: 3 processes would be ended, and there is no terminal to ask on\n\
                     hint: add --yes to end them all\n";
    let needs_batch = "gpukillctl: 3 processes are selected, and nothing was ended\n\
                       hint: add --batch to end them all, or name PIDs\n";
    for (arguments, expected) in [
        ("kill 7 8 9", Some(needs_yes)),
        ("kill 7 8 9 --scope job", Some(needs_yes)),
        ("kill --user alice", Some(needs_batch)),
        ("kill --user alice --yes", Some(needs_batch)),
        ("kill 7 8 9 --user alice --yes", Some(needs_batch)),
        ("kill 7 8 9 --yes", None),
        ("kill 7 8 9 --batch", None),
        ("kill --user alice --batch", None),
        ("kill --user alice --batch --yes", None),
    ] {
        let before = started_count(&daemon);
        let output = run(&daemon.socket, arguments);
        let code = if expected.is_some() { 3 } else { 0 };
        let expected = (Some(code), expected.unwrap_or_default().to_owned());
        assert_eq!(
            (output.status.code(), stderr(&output)),
            expected,
            "{arguments}"
        );
        // The processes are listed in any case.
        assert_eq!(
            stdout(&output).matches("python train.py").count(),
            3,
            "{arguments}"
        );
        assert_eq!(
            started_count(&daemon) - before,
            usize::from(code == 0),
            "{arguments}"
        );
    }
}

#[test]
fn plan_is_printed_once_on_a_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(
        directory.path(),
        three_targets(),
        vec![three_ended_report()],
    );
    let (mut terminal, slave) = Terminal::open();
    let mut child = client(&daemon.socket, "kill 7 8 9 --color never")
        .stdin(slave.try_clone().expect("cloned"))
        .stderr(slave.try_clone().expect("cloned"))
        .stdout(slave)
        .spawn()
        .expect("it runs");
    let summary = "3 processes of alice on GPU 0, 3.0 GiB\r\n";
    assert_eq!(
        terminal.read_until("[y/N] "),
        format!("{summary}End them? [y/N] ")
    );
    terminal.type_text("y\n");
    let rest = terminal.read_until("in 1.2 s\r\n");
    assert_eq!(rest.matches("SIGTERM, 0.8 s\r\n").count(), 3, "{rest}");
    assert!(!rest.contains("processes of alice"), "{rest}");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// Runs on a terminal, types `typed` at the question, and returns the terminal's text from
/// there to `until`, the exit code, and standard output.
pub(crate) fn run_with_answer(
    daemon: &FakeDaemon,
    arguments: &str,
    question: &str,
    typed: &str,
    until: &str,
) -> (String, Option<i32>, String) {
    let (mut terminal, slave) = Terminal::open();
    let child = client(&daemon.socket, arguments)
        .stdin(slave.try_clone().expect("cloned"))
        .stderr(slave)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let asked = terminal.read_until(question);
    terminal.type_text(typed);
    let answered = terminal.read_until(until);
    let output = child.wait_with_output().expect("it ends");
    let shown = (asked + &answered).replace("\r\n", "\n");
    (shown, output.status.code(), stdout(&output))
}

#[test]
fn only_yes_ends_several() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(
        directory.path(),
        three_targets(),
        vec![three_ended_report()],
    );
    let summary = "3 processes of alice on GPU 0, 3.0 GiB\n";
    let question = "End them? [y/N] ";
    for (before, typed) in ["y\n", "YES\n"].into_iter().enumerate() {
        let (shown, code, printed) = run_with_answer(&daemon, "kill 7 8 9", question, typed, "\n");
        assert_eq!(code, Some(0));
        // Standard output has another reader, so the question shows the plan.
        let echoed = typed.to_owned();
        assert_eq!(shown, format!("{summary}{question}{echoed}"));
        assert_eq!(
            printed,
            format!(
                "{summary}  \
                   ended  7  python train.py  SIGTERM, 0.8 s\n  \
                   ended  8  python train.py  SIGTERM, 0.8 s\n  \
                   ended  9  python train.py  SIGTERM, 0.8 s\n\
                 memory: GPU 0 gave back 3.0 of 3.0 GiB in 1.2 s\n"
            )
        );
        assert_eq!(started_count(&daemon), before + 1);
    }
    let nothing = "gpukillctl: nothing was ended\n";
    for (typed, echoed) in [
        ("n\n", "n\n"),
        ("\n", "\n"),
        ("nyes\n", "nyes\n"),
        ("\x04", "\n"),
    ] {
        let (shown, code, _) = run_with_answer(
            &daemon,
            "kill 7 8 9",
            question,
            typed,
            "nothing was ended\r\n",
        );
        assert_eq!((code, started_count(&daemon)), (Some(1), 2), "{typed:?}");
        assert_eq!(
            shown,
            format!("{summary}{question}{echoed}{nothing}"),
            "{typed:?}"
        );
    }
}

#[test]
fn question_shows_the_plan_in_any_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(
        directory.path(),
        three_targets(),
        vec![three_ended_report()],
    );
    let line = "kill --gpu 0 --batch -o json";
    let (shown, code, printed) = run_with_answer(&daemon, line, "End them? [y/N] ", "y\n", "\n");
    assert_eq!(code, Some(0));
    let listed = "\
3 processes of alice on GPU 0, 3.0 GiB
 PID  USER   GPU  MEMORY  JOB     SIGNALS  COMMAND
   7  alice    0    1.0G  tree 7  SIGTERM  python train.py
   8  alice    0    1.0G  tree 8  SIGTERM  python train.py
   9  alice    0    1.0G  tree 9  SIGTERM  python train.py
End them? [y/N] y
";
    assert_eq!(shown, listed);
    let document: serde_json::Value = serde_json::from_str(&printed).expect("it is JSON");
    assert_eq!(document["outcomes"].as_array().map(Vec::len), Some(3));
}

#[test]
fn question_for_another_users_or_gpuless_process() {
    let question = "End it? [y/N] ";
    let (mut of_bob, mut without) = (plan(&[(7, planned_end())]), plan(&[(7, planned_end())]));
    of_bob.targets[0].owner = Reading::Value("bob".into());
    without.targets[0].holds.clear();
    for (planned, summary) in [
        (
            of_bob,
            "bob's process 7 on GPU 0, 1.0 GiB: python train.py\n",
        ),
        (without, "alice's process 7 on no GPU: python train.py\n"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = daemon(
            directory.path(),
            planned,
            vec![report(&[(7, ended_outcome())])],
        );
        let (shown, code, _) = run_with_answer(&daemon, "kill 7", question, "n\n", "ended\r\n");
        let nothing = "gpukillctl: nothing was ended\n";
        assert_eq!(shown, format!("{summary}{question}n\n{nothing}"));
        assert_eq!((code, started_count(&daemon)), (Some(1), 0));
        let (_, code, _) = run_with_answer(&daemon, "kill 7", question, "y\n", "\n");
        assert_eq!((code, started_count(&daemon)), (Some(0), 1));
        // Nobody can be asked, and the process was typed.
        assert_eq!(run(&daemon.socket, "kill 7").status.code(), Some(0));
    }
}

#[test]
fn process_chosen_by_a_selector_is_asked_about() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(
        directory.path(),
        plan(&[(7, planned_end())]),
        vec![report(&[(7, ended_outcome())])],
    );
    let question = "End it? [y/N] ";
    for arguments in ["kill --user alice", "kill --mine", "kill --gpu 0 --batch"] {
        let (shown, code, _) =
            run_with_answer(&daemon, arguments, question, "n\n", "nothing was ended\r\n");
        assert!(shown.contains("process 7 on GPU 0"), "{shown}");
        assert_eq!((code, started_count(&daemon)), (Some(1), 0), "{arguments}");
    }
    // Nobody can be asked.
    let output = run(&daemon.socket, "kill --user alice");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (_, code, _) = run_with_answer(&daemon, "kill --user alice", question, "y\n", "\n");
    assert_eq!((code, started_count(&daemon)), (Some(0), 2));
}
