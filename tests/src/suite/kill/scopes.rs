//! Scopes `tree` and `job` with real launchers and their workers.

use super::single_process::process_state;
use super::{KillBox, all_with_ending, is_in_test_namespaces, outcomes, planned_pids, sorted};
use gpukill_tests::harness::{
    NOBODY_UID, Script, Terminal, can_run_as_other_users, copy_program, eventually,
    eventually_equals, process_has_ended, skip,
};
use serde_json::{Value, json};
use std::process::Command;

/// A launcher that restarts its worker whenever it ends, and prints each pid.
const RESPAWNER: &str =
    "launcher -c 'echo $$; while :; do worker 1000 & echo $!; wait $!; done' & wait; true";

/// The plan for these arguments, if it ends only processes of the script. Where the tests run
/// in a service or a container, the plan also ends processes of the tests: then returns `None`
/// and reports the skip.
fn plan_within_script(it: &KillBox, script: &Script, arguments: &[&str]) -> Option<Value> {
    let (code, plan) = it.kill_json(&[arguments, &["--dry-run"]].concat());
    assert_eq!(code, 0, "{plan:#}");
    let own_pids = script.running_pids();
    let is_own = planned_pids(&plan).iter().all(|pid| own_pids.contains(pid));
    if !is_own {
        skip("the tests run in a service or a container, which is the job of all of them");
    }
    is_own.then_some(plan)
}

#[test]
fn job_scope_includes_the_launcher() {
    let it = KillBox::new();
    let script = Script::run(&it.test_box, RESPAWNER);
    let [launcher, worker] = script.next_pids();
    it.add_gpu_processes(&[worker]);
    let arguments = [&worker.to_string(), "--scope", "job"];
    let Some(plan) = plan_within_script(&it, &script, &arguments) else {
        return;
    };
    assert_eq!(planned_pids(&plan), sorted([launcher, worker]));
    let (code, report) = it.kill_json(&[&arguments[..], &["--yes"]].concat());
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["respawned"], json!([]));
    eventually_equals(&Vec::new(), || script.running_pids());
}

#[test]
fn restarting_parent_is_named() {
    let it = KillBox::new();
    let script = Script::run(&it.test_box, RESPAWNER);
    let [launcher, worker] = script.next_pids();
    it.add_gpu_processes(&[worker]);
    let ran = it.kill_output(&[&worker.to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let [restarted] = script.next_pids();
    assert!(process_has_ended(worker) && !process_has_ended(restarted));
    let outcome = it.newest_action()["outcome"].clone();
    let fields = ["pid", "name", "unit", "parent_pid", "parent_name"];
    let named: Value = fields
        .iter()
        .map(|field| outcome["respawned"][0][field].clone())
        .collect();
    assert_eq!(
        named,
        json!([restarted, "worker", null, launcher, "launcher"])
    );
    let message = format!("{launcher} (launcher) starts it again, as {restarted}: end that first");
    assert!(
        ran.stdout.replace("\n  ", " ").contains(&message),
        "{ran:?}"
    );
}

#[test]
fn job_scope_includes_other_sessions() {
    let it = KillBox::new();
    let commands = "launcher -c 'echo $$; setsid worker 1000 & echo $!; setsid worker 1001 & echo $!; wait' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [launcher, first, second] = script.next_pids();
    // The launcher forks before `setsid` has created the session.
    for pid in [first, second] {
        eventually_equals(&"worker\n".to_owned(), || {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap()
        });
    }
    it.add_gpu_processes(&[first, second]);
    let arguments = [&first.to_string(), "--scope", "job"];
    let Some(plan) = plan_within_script(&it, &script, &arguments) else {
        return;
    };
    let whole = sorted([launcher, first, second]);
    assert_eq!(planned_pids(&plan), whole);
    let (code, report) = it.kill_json(&[&arguments[..], &["--yes"]].concat());
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&whole, "ended", "SIGTERM"))
    );
    eventually_equals(&Vec::new(), || script.running_pids());
}

#[test]
fn tree_scope_is_descendants_only() {
    let it = KillBox::new();
    let commands = "launcher -c 'echo $$
        launcher -c \"echo \\$\\$; worker 1000 & echo \\$!; wait\" & wait_for=$!
        sleep 0.3; worker 1001 & echo $!; wait' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [above, named, below, sibling] = script.next_pids();
    it.add_gpu_processes(&[below, sibling]);
    let (code, report) = it.kill_json(&[&named.to_string(), "--scope", "tree", "--yes"]);
    let whole = sorted([named, below]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&whole, "ended", "SIGTERM")),
        "{report:#}"
    );
    assert!(process_has_ended(named) && process_has_ended(below));
    assert!(!process_has_ended(above) && !process_has_ended(sibling));
}

#[test]
fn interactive_shell_survives_its_nohup_job() {
    let it = KillBox::new();
    let mut command = Command::new("bash");
    command.args(["--norc", "-i"]).env("HISTFILE", "/dev/null");
    let Some(mut terminal) = Terminal::start(&command, 200, 24) else {
        return skip("no setsid here");
    };
    // The terminal echoes the typed line, so the output must differ from it.
    terminal.type_keys("nohup sleep 600 >/dev/null 2>&1 & echo 'these''are' $$ $! .\n");
    terminal.read_until("theseare ");
    let output = terminal.read_until(" .");
    let pids: Vec<u32> = output
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect();
    let [shell, job] = pids[..] else {
        panic!("{output}");
    };
    eventually_equals(&"sleep\n".to_owned(), || {
        std::fs::read_to_string(format!("/proc/{job}/comm")).unwrap()
    });
    it.add_gpu_processes(&[job]);
    let (code, plan) = it.kill_json(&[&job.to_string(), "--scope", "job", "--dry-run"]);
    assert_eq!(code, 0);
    if planned_pids(&plan) != [job] {
        assert!(!planned_pids(&plan).contains(&shell), "{plan:#}");
        return skip("the tests run in a service or a container, which is the job of all of them");
    }
    let (code, report) = it.kill_json(&[&job.to_string(), "--scope", "job"]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[job], "ended", "SIGTERM"))
    );
    terminal.type_keys("echo still=$((40 + 2)) .\n");
    terminal.read_until("still=42 .");
    assert!(!process_has_ended(shell));
    terminal.type_keys("exit\n");
    assert_eq!(terminal.wait().code, 0);
}

#[test]
fn forking_tree_ends_with_force() {
    let it = KillBox::new();
    // Each child ignores SIGTERM and lives for 2 s, so that many exist at once.
    let child = "trap \"\" TERM; sleep 2; :";
    let commands = format!(
        "launcher -c 'trap \"\" TERM; echo $$; while :; do launcher -c \"{}\" & sleep 0.02; done' & wait; true",
        child.replace('"', "\\\"")
    );
    let script = Script::run(&it.test_box, &commands);
    let [launcher] = script.next_pids();
    it.add_gpu_processes(&[launcher]);
    let arguments = ["--scope", "tree", "--yes", "--force", "--timeout-secs", "1"];
    let (code, report) =
        it.kill_json(&[&[launcher.to_string().as_str()][..], &arguments[..]].concat());
    let outcomes = report["outcomes"].as_array().unwrap();
    let is_ended = |it: &&Value| it["outcome"] == "ended" || it["outcome"] == "gone";
    assert_eq!(
        outcomes.iter().filter(is_ended).count(),
        outcomes.len(),
        "{report:#}"
    );
    assert_eq!(code, 0);
    assert!(outcomes.len() > 5, "{report:#}");
    // Checked at once: surviving children still run now.
    let mut left = script.running_pids();
    left.retain(|pid| *pid != script.pid());
    assert_eq!(left, Vec::<u32>::new());
}

#[test]
fn forked_sessions_end_without_force() {
    let it = KillBox::new();
    // A process cannot be attributed to its job if its parent ended before the first scan.
    let commands =
        "launcher -c 'echo $$; while :; do setsid worker 20 & sleep 0.02; done' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [launcher] = script.next_pids();
    it.add_gpu_processes(&[launcher]);
    let (code, report) = it.kill_json(&[&launcher.to_string(), "--scope", "job", "--yes"]);
    assert_eq!(code, 0, "{report:#}");
    let outcomes = report["outcomes"].as_array().unwrap();
    assert!(outcomes.len() > 5, "{report:#}");
    let mut left = script.running_pids();
    left.retain(|pid| *pid != script.pid());
    assert_eq!(left, Vec::<u32>::new());
}

#[test]
fn late_member_ends_too() {
    let it = KillBox::new();
    // The SIGTERM handler starts a child that is in no plan.
    let commands = "launcher -c 'trap \"worker 1000 & echo \\$!; wait\" TERM; echo $$; worker 1001 & echo $!; wait; wait' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [launcher, worker] = script.next_pids();
    it.add_gpu_processes(&[worker]);
    let (_, report) = it.kill_json(&[&launcher.to_string(), "--scope", "tree", "--yes"]);
    let [born] = script.next_pids();
    let endings = outcomes(&report);
    assert!(
        endings
            .as_array()
            .unwrap()
            .contains(&json!([born, "ended", "SIGTERM"])),
        "{report:#}"
    );
    assert!(process_has_ended(born));
}

#[test]
fn daemonized_process_is_its_own_job() {
    let it = KillBox::new();
    // It forks twice and starts a session, as daemons do.
    let commands = "launcher -c 'echo $$
        (setsid launcher -c \"echo \\$\\$; worker 1000 & echo \\$!; wait\" &)
        sleep 0.3; worker 1001 & echo $!; wait' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [launcher, loose, below, worker] = script.next_pids();
    it.add_gpu_processes(&[below, worker]);
    let arguments = [&below.to_string(), "--scope", "job"];
    let Some(plan) = plan_within_script(&it, &script, &arguments) else {
        return;
    };
    assert_eq!(planned_pids(&plan), sorted([loose, below]), "{plan:#}");
    let (code, report) = it.kill_json(&[&arguments[..], &["--yes"]].concat());
    assert_eq!(code, 0, "{report:#}");
    assert!(process_has_ended(loose) && process_has_ended(below));
    assert!(!process_has_ended(launcher) && !process_has_ended(worker));
}

#[test]
fn other_users_process_in_tree_survives() {
    if !can_run_as_other_users() {
        return;
    }
    let has = Command::new("setpriv").arg("--version").output();
    if has.is_err() {
        return skip("no setpriv here");
    }
    let it = KillBox::new();
    let commands = format!(
        "launcher -c 'echo $$; worker 1000 & echo $!
         setpriv --reuid={NOBODY_UID} --regid={NOBODY_UID} --clear-groups worker 1001 & echo $!; wait' & wait; true"
    );
    let script = Script::run(&it.test_box, &commands);
    let [launcher, own, others] = script.next_pids();
    eventually_equals(&"worker\n".to_owned(), || {
        std::fs::read_to_string(format!("/proc/{others}/comm")).unwrap()
    });
    it.add_gpu_processes(&[own, others]);
    for scope in ["tree", "job"] {
        let arguments = [&launcher.to_string(), "--scope", scope];
        let Some(plan) = plan_within_script(&it, &script, &arguments) else {
            return;
        };
        assert_eq!(planned_pids(&plan), sorted([launcher, own]), "{plan:#}");
    }
    let (code, report) = it.kill_json(&[&launcher.to_string(), "--scope", "tree", "--yes"]);
    assert_eq!(code, 0, "{report:#}");
    eventually("both end", || {
        (process_has_ended(launcher) && process_has_ended(own)).then_some(())
    });
    assert!(!process_has_ended(others));
}

#[test]
fn notebook_server_survives_its_kernel() {
    let it = KillBox::new();
    // The name of a program is that of its executable, not of a link to it.
    copy_program("/bin/sh", it.test_box.path("jupyter-lab"));
    let commands =
        "jupyter-lab -c 'echo $$; worker 1000 & echo $!; worker 1001 & echo $!; wait' & wait; true";
    let script = Script::run(&it.test_box, commands);
    let [server, kernel, other] = script.next_pids();
    it.add_gpu_processes(&[kernel, other]);
    let arguments = [&kernel.to_string(), "--scope", "job"];
    let Some(plan) = plan_within_script(&it, &script, &arguments) else {
        return;
    };
    assert_eq!(planned_pids(&plan), [kernel], "{plan:#}");
    let (code, report) = it.kill_json(&arguments);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[kernel], "ended", "SIGTERM"))
    );
    assert!(!process_has_ended(server) && !process_has_ended(other));
}

#[test]
fn zombie_in_scope_is_no_failure() {
    // The first process of a PID namespace inherits orphans, and this test reaps none.
    if !is_in_test_namespaces("kill::scopes::zombie_in_scope_is_no_failure") {
        return;
    }
    let it = KillBox::new();
    let script = Script::run(
        &it.test_box,
        "launcher -c 'sleep 0.5 & echo $!; echo $$; exec worker 1000' & wait; true",
    );
    let [child, parent] = script.next_pids();
    eventually_equals(&Some('Z'), || process_state(child));
    it.add_gpu_processes(&[parent]);
    let (code, report) = it.kill_json(&[&parent.to_string(), "--scope", "tree", "--yes"]);
    let of = |pid: u32| match pid == child {
        true => json!([pid, "zombie", null]),
        false => json!([pid, "ended", "SIGTERM"]),
    };
    let expected: Value = sorted([child, parent]).into_iter().map(of).collect();
    assert_eq!((code, outcomes(&report)), (0, expected), "{report:#}");
    assert_eq!(process_state(child), Some('Z'));
    assert_eq!(it.newest_action()["result"], "done");
}
