//! `reset`: the confirmation, and how it is followed across a broken connection and until
//! Ctrl-C.

use crate::client;
use crate::confirmation::run_with_answer;
use crate::fake_daemon::{FakeDaemon, Script};
use crate::fake_reset::{one, report};
use crate::kill::output_parts;
use crate::watch::{TEST_TIMEOUT, signal};
use crate::{run, stderr, stdout};
use gpukill_proto::kill::Stage;
use rustix::process::Signal;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const PLANNED: &str = "\
GPU 3 H100 80GB HBM3 at 0000:1b:00.0: would be reset
  gpukill ends    gpukilld's own sensor
";
const QUESTION: &str = "Reset it? What it does now is lost. [y/N] ";
const DONE: &str = "GPU 3: reset, and it answers, after 4.2 s\n";

fn daemon(directory: &Path) -> FakeDaemon {
    let daemon = FakeDaemon::start(directory, Script::default());
    *daemon.script.resets.reports.lock().expect("not poisoned") = one();
    daemon
}

fn started_count(daemon: &FakeDaemon) -> usize {
    daemon.script.resets.started.load(SeqCst)
}

#[test]
fn only_yes_resets() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path());
    for (before, typed) in ["y\n", "YES\n"].into_iter().enumerate() {
        let (shown, code, printed) =
            run_with_answer(&daemon, "reset --gpu 3", QUESTION, typed, "\n");
        assert_eq!(
            (code, started_count(&daemon)),
            (Some(0), before + 1),
            "{typed:?}"
        );
        assert_eq!(shown, format!("{QUESTION}{typed}"));
        assert_eq!(printed, format!("{PLANNED}{DONE}"));
    }
    let nothing = "gpukillctl: nothing was reset\n";
    for (typed, echoed) in [
        ("n\n", "n\n"),
        ("\n", "\n"),
        ("nyes\n", "nyes\n"),
        // The end of the input.
        ("\x04", "\n"),
    ] {
        let until = "nothing was reset\r\n";
        let (shown, code, printed) =
            run_with_answer(&daemon, "reset --gpu 3", QUESTION, typed, until);
        assert_eq!((code, started_count(&daemon)), (Some(1), 2), "{typed:?}");
        assert_eq!(shown, format!("{QUESTION}{echoed}{nothing}"), "{typed:?}");
        assert_eq!(printed, PLANNED);
    }
}

#[test]
fn question_shows_the_plan_in_any_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path());
    let line = "reset --gpu 3 -o json";
    let (shown, code, printed) = run_with_answer(&daemon, line, QUESTION, "y\n", "\n");
    assert_eq!(code, Some(0));
    assert_eq!(shown, format!("{PLANNED}{QUESTION}y\n"));
    let document: serde_json::Value = serde_json::from_str(&printed).expect("it is JSON");
    assert_eq!(document["outcomes"][0]["outcome"], "reset");
}

#[test]
fn without_terminal_a_reset_needs_yes() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path());
    let nobody = "gpukillctl: nothing was reset: there is no terminal to ask on\n\
                  hint: --yes does it without asking\n";
    for (arguments, expected) in [
        ("reset --gpu 3", (Some(3), PLANNED.into(), nobody.into())),
        (
            "reset --gpu 3 --dry-run",
            (Some(0), PLANNED.into(), String::new()),
        ),
    ] {
        assert_eq!(output_parts(&run(&daemon.socket, arguments)), expected);
    }
    assert_eq!(started_count(&daemon), 0);
    let output = run(&daemon.socket, "reset --gpu 3 --yes");
    assert_eq!(output_parts(&output), (Some(0), DONE.into(), String::new()));
    assert_eq!(started_count(&daemon), 1);
}

#[test]
fn broken_connection_is_restored_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = FakeDaemon::start(directory.path(), Script::default());
    daemon.script.resets.hang_ups.store(1, SeqCst);
    let output = run(&daemon.socket, "reset --all --yes");
    let broke = "gpukillctl: gpukilld ended the connection: it went away";
    let warned = broke.replace("gpukillctl: ", "warning: ");
    let again = format!("{warned}; reconnecting to follow the reset\n");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), again.clone())
    );
    let counts = ["GPU 0: ", "GPU 1: "].map(|gpu| stdout(&output).matches(gpu).count());
    assert_eq!(counts, [1, 1]);
    daemon.script.resets.hang_ups.store(2, SeqCst);
    let output = run(&daemon.socket, "reset --all --yes");
    let lost = format!(
        "{again}{broke}: the outcome for the GPUs is not known\n\
         hint: see their state: gpukillctl list\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(6), lost));
}

#[test]
fn ctrl_c_leaves_the_reset_running() {
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = FakeDaemon::start(directory.path(), Script::default());
        let resets = &daemon.script.resets;
        *resets.reports.lock().expect("not poisoned") = vec![report(1, Stage::Ending)];
        let child = client(&daemon.socket, "reset --all --yes -o json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let since = Instant::now();
        while resets.followed.load(SeqCst) == 0 {
            assert!(since.elapsed() < TEST_TIMEOUT);
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(&child, number);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (
                Some(1),
                "gpukillctl: no longer followed: it continues in gpukilld\n\
                 hint: see their state: gpukillctl list\n"
                    .into()
            )
        );
    }
}
