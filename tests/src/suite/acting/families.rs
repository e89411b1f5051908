//! Whole trees and whole jobs, of real launchers and their workers.

use super::{Box, all, ended, endings, sorted};
use gpukill_tests::harness::{
    NOBODY, Terminal, Troupe, becomes, can_act_as_others, copy_program, eventually, is_over, skip,
};
use serde_json::{Value, json};
use std::process::Command;

/// A launcher that starts its worker anew whenever that ends, and says each pid.
const RESPAWNER: &str =
    "launcher -c 'echo $$; while :; do worker 1000 & echo $!; wait $!; done' & wait; true";

/// What would be ended with these arguments, where that is nobody but the troupe:
/// where the tests run in a service or a container, that is the job of all of
/// them. Says so then.
fn plan_of(it: &Box, troupe: &Troupe, arguments: &[&str]) -> Option<Value> {
    let (code, plan) = it.kill(&[arguments, &["--dry-run"]].concat());
    assert_eq!(code, 0, "{plan:#}");
    let theirs = troupe.left();
    let is_theirs = ended(&plan).iter().all(|pid| theirs.contains(pid));
    if !is_theirs {
        skip("the tests run in a service or a container, which is the job of all of them");
    }
    is_theirs.then_some(plan)
}

#[test]
fn a_launcher_without_a_gpu_is_ended_with_its_workers_and_starts_none_anew() {
    let it = Box::new();
    let troupe = Troupe::run(&it.stage, RESPAWNER);
    let [launcher, worker] = troupe.pids();
    it.lists(&[worker]);
    let arguments = [&worker.to_string(), "--scope", "job"];
    let Some(plan) = plan_of(&it, &troupe, &arguments) else {
        return;
    };
    assert_eq!(ended(&plan), sorted([launcher, worker]));
    let (code, report) = it.kill(&[&arguments[..], &["--yes"]].concat());
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["respawned"], json!([]));
    becomes(&Vec::new(), || troupe.left());
}

#[test]
fn who_starts_it_again_is_named_and_the_rest_of_its_job_too() {
    let it = Box::new();
    let troupe = Troupe::run(&it.stage, RESPAWNER);
    let [launcher, worker] = troupe.pids();
    it.lists(&[worker]);
    let ran = it.says(&[&worker.to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let [anew] = troupe.pids();
    assert!(is_over(worker) && !is_over(anew));
    let outcome = it.recorded()["outcome"].clone();
    let fields = ["pid", "name", "unit", "parent_pid", "parent_name"];
    let named: Value = fields
        .iter()
        .map(|field| outcome["respawned"][0][field].clone())
        .collect();
    assert_eq!(named, json!([anew, "worker", null, launcher, "launcher"]));
    let said = format!("{launcher} (launcher) starts it again, as {anew}: end that first");
    assert!(ran.stdout.replace("\n  ", " ").contains(&said), "{ran:?}");
}

#[test]
fn workers_in_groups_of_their_own_end_with_their_launcher() {
    let it = Box::new();
    let script = "launcher -c 'echo $$; setsid worker 1000 & echo $!; setsid worker 1001 & echo $!; wait' & wait; true";
    let troupe = Troupe::run(&it.stage, script);
    let [launcher, first, second] = troupe.pids();
    // Not before it has its group.
    for pid in [first, second] {
        becomes(&"worker\n".to_owned(), || {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap()
        });
    }
    it.lists(&[first, second]);
    let arguments = [&first.to_string(), "--scope", "job"];
    let Some(plan) = plan_of(&it, &troupe, &arguments) else {
        return;
    };
    let whole = sorted([launcher, first, second]);
    assert_eq!(ended(&plan), whole);
    let (code, report) = it.kill(&[&arguments[..], &["--yes"]].concat());
    assert_eq!(
        (code, endings(&report)),
        (0, all(&whole, "ended", "SIGTERM"))
    );
    becomes(&Vec::new(), || troupe.left());
}

#[test]
fn a_tree_is_what_is_below_and_neither_a_sibling_nor_what_is_above() {
    let it = Box::new();
    let script = "launcher -c 'echo $$
        launcher -c \"echo \\$\\$; worker 1000 & echo \\$!; wait\" & wait_for=$!
        sleep 0.3; worker 1001 & echo $!; wait' & wait; true";
    let troupe = Troupe::run(&it.stage, script);
    let [above, named, below, sibling] = troupe.pids();
    it.lists(&[below, sibling]);
    let (code, report) = it.kill(&[&named.to_string(), "--scope", "tree", "--yes"]);
    let whole = sorted([named, below]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&whole, "ended", "SIGTERM")),
        "{report:#}"
    );
    assert!(is_over(named) && is_over(below));
    assert!(!is_over(above) && !is_over(sibling));
}

#[test]
fn what_a_shell_on_a_terminal_started_with_nohup_ends_and_the_shell_goes_on() {
    let it = Box::new();
    let mut command = Command::new("bash");
    command.args(["--norc", "-i"]).env("HISTFILE", "/dev/null");
    let Some(mut terminal) = Terminal::start(&command, 200, 24) else {
        return skip("no setsid here");
    };
    // What is echoed of the typed line is not what it says.
    terminal.types("nohup sleep 600 >/dev/null 2>&1 & echo 'these''are' $$ $! .\n");
    terminal.until("theseare ");
    let said = terminal.until(" .");
    let pids: Vec<u32> = said
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect();
    let [shell, job] = pids[..] else {
        panic!("{said}");
    };
    becomes(&"sleep\n".to_owned(), || {
        std::fs::read_to_string(format!("/proc/{job}/comm")).unwrap()
    });
    it.lists(&[job]);
    let (code, plan) = it.kill(&[&job.to_string(), "--scope", "job", "--dry-run"]);
    assert_eq!(code, 0);
    if ended(&plan) != [job] {
        assert!(!ended(&plan).contains(&shell), "{plan:#}");
        return skip("the tests run in a service or a container, which is the job of all of them");
    }
    let (code, report) = it.kill(&[&job.to_string(), "--scope", "job"]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[job], "ended", "SIGTERM"))
    );
    terminal.types("echo still=$((40 + 2)) .\n");
    terminal.until("still=42 .");
    assert!(!is_over(shell));
    terminal.types("exit\n");
    assert_eq!(terminal.end().code, 0);
}

#[test]
fn whoever_forks_for_ever_ends_whole_by_force() {
    let it = Box::new();
    // Each ignores SIGTERM, and is there long enough to be many at once.
    let child = "trap \"\" TERM; sleep 2; :";
    let script = format!(
        "launcher -c 'trap \"\" TERM; echo $$; while :; do launcher -c \"{}\" & sleep 0.02; done' & wait; true",
        child.replace('"', "\\\"")
    );
    let troupe = Troupe::run(&it.stage, &script);
    let [launcher] = troupe.pids();
    it.lists(&[launcher]);
    let arguments = ["--scope", "tree", "--yes", "--force", "--timeout-secs", "1"];
    let (code, report) = it.kill(&[&[launcher.to_string().as_str()][..], &arguments[..]].concat());
    let outcomes = report["outcomes"].as_array().unwrap();
    let is_ended = |it: &&Value| it["ending"] == "ended" || it["ending"] == "gone";
    assert_eq!(
        outcomes.iter().filter(is_ended).count(),
        outcomes.len(),
        "{report:#}"
    );
    assert_eq!(code, 0);
    assert!(outcomes.len() > 5, "{report:#}");
    // At once: those whom nobody ends are here a while longer.
    let mut left = troupe.left();
    left.retain(|pid| *pid != troupe.pid());
    assert_eq!(left, Vec::<u32>::new());
}

#[test]
fn whoever_forks_sessions_of_their_own_ends_whole_without_force() {
    let it = Box::new();
    // Of one whose parent has ended before it was seen, nothing tells whose it was.
    let script =
        "launcher -c 'echo $$; while :; do setsid worker 20 & sleep 0.02; done' & wait; true";
    let troupe = Troupe::run(&it.stage, script);
    let [launcher] = troupe.pids();
    it.lists(&[launcher]);
    let (code, report) = it.kill(&[&launcher.to_string(), "--scope", "job", "--yes"]);
    assert_eq!(code, 0, "{report:#}");
    let outcomes = report["outcomes"].as_array().unwrap();
    assert!(outcomes.len() > 5, "{report:#}");
    let mut left = troupe.left();
    left.retain(|pid| *pid != troupe.pid());
    assert_eq!(left, Vec::<u32>::new());
}

#[test]
fn what_was_born_to_a_member_meanwhile_ends_too() {
    let it = Box::new();
    // Its last wish: a child that is planned by nobody.
    let script = "launcher -c 'trap \"worker 1000 & echo \\$!; wait\" TERM; echo $$; worker 1001 & echo $!; wait; wait' & wait; true";
    let troupe = Troupe::run(&it.stage, script);
    let [launcher, worker] = troupe.pids();
    it.lists(&[worker]);
    let (_, report) = it.kill(&[&launcher.to_string(), "--scope", "tree", "--yes"]);
    let [born] = troupe.pids();
    let endings = endings(&report);
    assert!(
        endings
            .as_array()
            .unwrap()
            .contains(&json!([born, "ended", "SIGTERM"])),
        "{report:#}"
    );
    assert!(is_over(born));
}

#[test]
fn one_that_cut_itself_loose_is_a_job_of_its_own() {
    let it = Box::new();
    // It forks twice and begins a session, as daemons do.
    let script = "launcher -c 'echo $$
        (setsid launcher -c \"echo \\$\\$; worker 1000 & echo \\$!; wait\" &)
        sleep 0.3; worker 1001 & echo $!; wait' & wait; true";
    let troupe = Troupe::run(&it.stage, script);
    let [launcher, loose, below, worker] = troupe.pids();
    it.lists(&[below, worker]);
    let arguments = [&below.to_string(), "--scope", "job"];
    let Some(plan) = plan_of(&it, &troupe, &arguments) else {
        return;
    };
    assert_eq!(ended(&plan), sorted([loose, below]), "{plan:#}");
    let (code, report) = it.kill(&[&arguments[..], &["--yes"]].concat());
    assert_eq!(code, 0, "{report:#}");
    assert!(is_over(loose) && is_over(below));
    assert!(!is_over(launcher) && !is_over(worker));
}

#[test]
fn another_users_process_in_the_same_tree_is_spared() {
    if !can_act_as_others() {
        return;
    }
    let has = Command::new("setpriv").arg("--version").output();
    if has.is_err() {
        return skip("no setpriv here");
    }
    let it = Box::new();
    let script = format!(
        "launcher -c 'echo $$; worker 1000 & echo $!
         setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups worker 1001 & echo $!; wait' & wait; true"
    );
    let troupe = Troupe::run(&it.stage, &script);
    let [launcher, own, others] = troupe.pids();
    becomes(&"worker\n".to_owned(), || {
        std::fs::read_to_string(format!("/proc/{others}/comm")).unwrap()
    });
    it.lists(&[own, others]);
    for scope in ["tree", "job"] {
        let arguments = [&launcher.to_string(), "--scope", scope];
        let Some(plan) = plan_of(&it, &troupe, &arguments) else {
            return;
        };
        assert_eq!(ended(&plan), sorted([launcher, own]), "{plan:#}");
    }
    let (code, report) = it.kill(&[&launcher.to_string(), "--scope", "tree", "--yes"]);
    assert_eq!(code, 0, "{report:#}");
    eventually("both end", || {
        (is_over(launcher) && is_over(own)).then_some(())
    });
    assert!(!is_over(others));
}

#[test]
fn a_notebooks_kernel_ends_and_its_server_goes_on() {
    let it = Box::new();
    // A program is what its executable is called, and not what a link to it is.
    copy_program("/bin/sh", it.stage.path("jupyter-lab"));
    let script =
        "jupyter-lab -c 'echo $$; worker 1000 & echo $!; worker 1001 & echo $!; wait' & wait; true";
    let troupe = Troupe::run(&it.stage, script);
    let [server, kernel, other] = troupe.pids();
    it.lists(&[kernel, other]);
    let arguments = [&kernel.to_string(), "--scope", "job"];
    let Some(plan) = plan_of(&it, &troupe, &arguments) else {
        return;
    };
    assert_eq!(ended(&plan), [kernel], "{plan:#}");
    let (code, report) = it.kill(&arguments);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[kernel], "ended", "SIGTERM"))
    );
    assert!(!is_over(server) && !is_over(other));
}
