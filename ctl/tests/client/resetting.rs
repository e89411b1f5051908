//! `reset`: what an answer does, and how it is followed: through a break of the
//! connection, and to Ctrl-C.

use crate::asking::answered;
use crate::client;
use crate::daemon::{Daemon, Script};
use crate::killing::said;
use crate::resets::{one, report};
use crate::watching::{PATIENCE, signal};
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

fn daemon(directory: &Path) -> Daemon {
    let daemon = Daemon::start(directory, Script::default());
    *daemon.script.resets.reports.lock().expect("not poisoned") = one();
    daemon
}

fn begun(daemon: &Daemon) -> usize {
    daemon.script.resets.begun.load(SeqCst)
}

#[test]
fn on_a_terminal_a_reset_is_asked_about_and_only_yes_does_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path());
    for (before, typed) in ["y\n", "YES\n"].into_iter().enumerate() {
        let (shown, code, printed) = answered(&daemon, "reset --gpu 3", QUESTION, typed, "\n");
        assert_eq!((code, begun(&daemon)), (Some(0), before + 1), "{typed:?}");
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
        let (shown, code, printed) = answered(&daemon, "reset --gpu 3", QUESTION, typed, until);
        assert_eq!((code, begun(&daemon)), (Some(1), 2), "{typed:?}");
        assert_eq!(shown, format!("{QUESTION}{echoed}{nothing}"), "{typed:?}");
        assert_eq!(printed, PLANNED);
    }
}

#[test]
fn whoever_is_asked_sees_the_plan_where_a_program_reads_the_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path());
    let line = "reset --gpu 3 -o json";
    let (shown, code, printed) = answered(&daemon, line, QUESTION, "y\n", "\n");
    assert_eq!(code, Some(0));
    assert_eq!(shown, format!("{PLANNED}{QUESTION}y\n"));
    let document: serde_json::Value = serde_json::from_str(&printed).expect("it is JSON");
    assert_eq!(document["outcomes"][0]["ending"], "reset");
}

#[test]
fn off_a_terminal_a_reset_needs_a_yes_and_a_dry_run_does_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path());
    let nobody = "gpukillctl: nothing was reset: nobody can be asked here\n\
                  hint: --yes does it without asking\n";
    for (arguments, expected) in [
        ("reset --gpu 3", (Some(3), PLANNED.into(), nobody.into())),
        (
            "reset --gpu 3 --dry-run",
            (Some(0), PLANNED.into(), String::new()),
        ),
    ] {
        assert_eq!(said(&run(&daemon.socket, arguments)), expected);
    }
    assert_eq!(begun(&daemon), 0);
    let output = run(&daemon.socket, "reset --gpu 3 --yes");
    assert_eq!(said(&output), (Some(0), DONE.into(), String::new()));
    assert_eq!(begun(&daemon), 1);
}

#[test]
fn a_connection_that_breaks_is_made_anew_once_and_each_gpu_is_told_of_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(directory.path(), Script::default());
    daemon.script.resets.hang_ups.store(1, SeqCst);
    let output = run(&daemon.socket, "reset --all --yes");
    let broke = "gpukillctl: gpukilld ended the connection: it went away";
    let again = format!("{broke}; asking again what becomes of the reset\n");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), again.clone())
    );
    let told = ["GPU 0: ", "GPU 1: "].map(|gpu| stdout(&output).matches(gpu).count());
    assert_eq!(told, [1, 1]);
    daemon.script.resets.hang_ups.store(2, SeqCst);
    let output = run(&daemon.socket, "reset --all --yes");
    let lost = format!(
        "{again}{broke}: what became of the GPUs is not known\n\
         hint: see how they stand: gpukillctl list\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(6), lost));
}

#[test]
fn ctrl_c_leaves_and_says_that_it_goes_on() {
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = Daemon::start(directory.path(), Script::default());
        let resets = &daemon.script.resets;
        *resets.reports.lock().expect("not poisoned") = vec![report(1, Stage::Ending)];
        let child = client(&daemon.socket, "reset --all --yes -o json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let since = Instant::now();
        while resets.followed.load(SeqCst) == 0 {
            assert!(since.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(&child, number);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (
                Some(1),
                "gpukillctl: not followed any more: it goes on in gpukilld\n\
                 hint: see how they stand: gpukillctl list\n"
                    .into()
            )
        );
    }
}
