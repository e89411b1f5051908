//! What `kill` needs to be told or asked before it ends several.

use crate::daemon::Daemon;
use crate::killed::{end, ended, plan, report};
use crate::killing::{begun, daemon, three, three_ended};
use crate::terminal::Terminal;
use crate::{client, run, stderr, stdout};
use gpukill_proto::reading::Reading;
use std::process::Stdio;

#[test]
fn off_a_terminal_several_need_a_yes_and_a_selector_needs_batch() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path(), three(), vec![three_ended()]);
    let needs_yes = "gpukillctl: 3 processes would be ended, and nobody is here to be asked\n\
                     hint: add --yes to end them all\n";
    let needs_batch = "gpukillctl: 3 processes are meant, and nothing was ended\n\
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
        let before = begun(&daemon);
        let output = run(&daemon.socket, arguments);
        let code = if expected.is_some() { 3 } else { 0 };
        let expected = (Some(code), expected.unwrap_or_default().to_owned());
        assert_eq!(
            (output.status.code(), stderr(&output)),
            expected,
            "{arguments}"
        );
        // They are listed in any case.
        assert_eq!(
            stdout(&output).matches("python train.py").count(),
            3,
            "{arguments}"
        );
        assert_eq!(
            begun(&daemon) - before,
            usize::from(code == 0),
            "{arguments}"
        );
    }
}

#[test]
fn where_all_is_one_terminal_what_is_asked_about_stands_there_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path(), three(), vec![three_ended()]);
    let (mut terminal, slave) = Terminal::open();
    let mut child = client(&daemon.socket, "kill 7 8 9 --color never")
        .stdin(slave.try_clone().expect("cloned"))
        .stderr(slave.try_clone().expect("cloned"))
        .stdout(slave)
        .spawn()
        .expect("it runs");
    let about = "3 processes of alice on GPU 0, 3.0 GiB\r\n";
    assert_eq!(terminal.until("[y/N] "), format!("{about}End them? [y/N] "));
    terminal.types("y\n");
    let rest = terminal.until("in 1.2 s\r\n");
    assert_eq!(rest.matches("SIGTERM, 0.8 s\r\n").count(), 3, "{rest}");
    assert!(!rest.contains("processes of alice"), "{rest}");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// Runs on a terminal, types this at the question, and gives what the terminal
/// showed from there to `until`, the exit code, and standard output.
pub(crate) fn answered(
    daemon: &Daemon,
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
    let asked = terminal.until(question);
    terminal.types(typed);
    let answered = terminal.until(until);
    let output = child.wait_with_output().expect("it ends");
    let shown = (asked + &answered).replace("\r\n", "\n");
    (shown, output.status.code(), stdout(&output))
}

#[test]
fn on_a_terminal_several_are_asked_about_and_only_yes_ends_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path(), three(), vec![three_ended()]);
    let about = "3 processes of alice on GPU 0, 3.0 GiB\n";
    let question = "End them? [y/N] ";
    for (before, typed) in ["y\n", "YES\n"].into_iter().enumerate() {
        let (shown, code, printed) = answered(&daemon, "kill 7 8 9", question, typed, "\n");
        assert_eq!(code, Some(0));
        // Standard output is read by somebody else: the question says what about.
        let echoed = typed.to_owned();
        assert_eq!(shown, format!("{about}{question}{echoed}"));
        assert_eq!(
            printed,
            format!(
                "{about}  \
                   ended  7  python train.py  SIGTERM, 0.8 s\n  \
                   ended  8  python train.py  SIGTERM, 0.8 s\n  \
                   ended  9  python train.py  SIGTERM, 0.8 s\n\
                 memory: GPU 0 gave back 3.0 of 3.0 GiB in 1.2 s\n"
            )
        );
        assert_eq!(begun(&daemon), before + 1);
    }
    let nothing = "gpukillctl: nothing was ended\n";
    for (typed, echoed) in [
        ("n\n", "n\n"),
        ("\n", "\n"),
        ("nyes\n", "nyes\n"),
        ("\x04", "\n"),
    ] {
        let (shown, code, _) = answered(
            &daemon,
            "kill 7 8 9",
            question,
            typed,
            "nothing was ended\r\n",
        );
        assert_eq!((code, begun(&daemon)), (Some(1), 2), "{typed:?}");
        assert_eq!(
            shown,
            format!("{about}{question}{echoed}{nothing}"),
            "{typed:?}"
        );
    }
}

#[test]
fn whoever_is_asked_sees_all_that_a_selector_means_in_any_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path(), three(), vec![three_ended()]);
    let line = "kill --gpu 0 --batch -o json";
    let (shown, code, printed) = answered(&daemon, line, "End them? [y/N] ", "y\n", "\n");
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
fn on_a_terminal_one_is_asked_about_that_is_anothers_or_uses_no_gpu() {
    let question = "End it? [y/N] ";
    let (mut of_bob, mut without) = (plan(&[(7, end())]), plan(&[(7, end())]));
    of_bob.targets[0].owner = Reading::Value("bob".into());
    without.targets[0].holds.clear();
    for (planned, about) in [
        (
            of_bob,
            "bob's process 7 on GPU 0, 1.0 GiB: python train.py\n",
        ),
        (without, "alice's process 7 on no GPU: python train.py\n"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = daemon(directory.path(), planned, vec![report(&[(7, ended())])]);
        let (shown, code, _) = answered(&daemon, "kill 7", question, "n\n", "ended\r\n");
        let nothing = "gpukillctl: nothing was ended\n";
        assert_eq!(shown, format!("{about}{question}n\n{nothing}"));
        assert_eq!((code, begun(&daemon)), (Some(1), 0));
        let (_, code, _) = answered(&daemon, "kill 7", question, "y\n", "\n");
        assert_eq!((code, begun(&daemon)), (Some(0), 1));
        // Nobody is there, and who it is was typed.
        assert_eq!(run(&daemon.socket, "kill 7").status.code(), Some(0));
    }
}
