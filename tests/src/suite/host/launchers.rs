//! Real processes, started as users start them, and the jobs that they belong to.

use super::jobs::tree_job;
use super::{gpu_with_processes, row_when};
use gpukill_tests::harness::{
    Terminal, TestBox, TestProcess, can_see_all_cgroups, eventually, eventually_equals, skip,
};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A shell script that prints pids. Dropping it ends the shell and those processes.
struct LauncherScript {
    shell: Child,
    pids: Vec<u32>,
}

impl LauncherScript {
    /// Runs `script` with bash, where `launcher` is another shell and `worker` sleeps, and
    /// reads `pids` pids.
    fn run(test_box: &TestBox, script: &str, pids: usize) -> Self {
        for (name, program) in [("launcher", "/bin/sh"), ("worker", "/bin/sleep")] {
            let link = test_box.path(name);
            if !link.exists() {
                std::os::unix::fs::symlink(program, link).unwrap();
            }
        }
        let mut shell = Command::new("bash")
            .args(["-c", script])
            .env("PATH", path_with_programs(test_box))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let pids = lines
            .take(pids)
            .map(|line| line.unwrap().trim().parse().unwrap());
        Self {
            pids: pids.collect(),
            shell,
        }
    }
}

fn path_with_programs(test_box: &TestBox) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = [PathBuf::from(test_box.directory())].into_iter();
    std::env::join_paths(directories.chain(std::env::split_paths(&path))).unwrap()
}

impl Drop for LauncherScript {
    fn drop(&mut self) {
        for pid in &self.pids {
            let pid = i32::try_from(*pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            // It may have ended already.
            let _ = rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL);
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn launcher_and_workers_are_one_job() {
    if !can_see_all_cgroups() {
        return;
    }
    let test_box = TestBox::new();
    let script = LauncherScript::run(
        &test_box,
        "launcher -c 'worker 1000 & echo $!; worker 1000 & echo $!; echo $$; wait'; true",
        3,
    );
    let [first, second, launcher] = script.pids[..] else {
        panic!("{:?}", script.pids);
    };
    test_box.set_driver_state(&gpu_with_processes(&[first, second, launcher]));
    let daemon = test_box.start();
    for pid in [first, second, launcher] {
        let row = row_when(&test_box, pid, |row| row["job"].is_string());
        let own_group = row["job_kind"] == "unit";
        if own_group {
            return skip("the tests run in a service, which is the job of all of them");
        }
        assert_eq!(row["job"], tree_job(launcher), "{row:#}");
        let parents = row["parents"].as_array().unwrap();
        let above = if pid == launcher { 0 } else { 1 };
        assert_eq!(parents[above]["pid"], script.shell.id());
        assert_eq!(parents[above]["name"], "bash");
        // The shell's parent is this test.
        assert_eq!(parents[above + 1]["pid"], std::process::id());
    }
    daemon.stop();
}

#[test]
fn workers_in_own_sessions_keep_their_launcher() {
    if !can_see_all_cgroups() {
        return;
    }
    let test_box = TestBox::new();
    // A worker under nohup, a launcher under setsid, and a worker under setsid as torchrun
    // starts it.
    let script = LauncherScript::run(
        &test_box,
        "nohup worker 1000 & echo $!
         setsid launcher -c 'echo $$; worker 1000 & echo $!; wait' &
         launcher -c 'echo $$; setsid worker 1000 & echo $!; wait' & wait",
        5,
    );
    let mut pids = script.pids.clone();
    pids.sort_unstable();
    test_box.set_driver_state(&gpu_with_processes(&pids));
    let daemon = test_box.start();
    let rows: Vec<Value> = pids
        .iter()
        .map(|pid| {
            // The shell may be between fork and exec.
            row_when(&test_box, *pid, |row| {
                row["job"].is_string()
                    && ["worker", "launcher"].contains(&row["proc_name"].as_str().unwrap())
            })
        })
        .collect();
    if rows[0]["job_kind"] == "unit" {
        return skip("the tests run in a service, which is the job of all of them");
    }
    for row in &rows {
        let parent = &row["parents"][0];
        let expected = match parent["name"].as_str() {
            Some("launcher") => parent["pid"].as_u64(),
            _ => row["pid"].as_u64(),
        };
        assert_eq!(row["job"], format!("tree {}", expected.unwrap()), "{row:#}");
    }
    let below = rows
        .iter()
        .filter(|row| row["parents"][0]["name"] == "launcher");
    assert_eq!(below.count(), 2);
    daemon.stop();
}

#[test]
fn terminal_and_load_of_a_real_process() {
    let test_box = TestBox::new();
    let mut command = Command::new("sh");
    command.args(["-c", "echo pid $$ .; while :; do :; done"]);
    let Some(mut terminal) = Terminal::start(&command, 80, 24) else {
        return skip("no setsid here");
    };
    let output = terminal.read_until(" .");
    let pid: u32 = output.split_whitespace().nth(1).unwrap().parse().unwrap();
    let idle = TestProcess::start("idle");
    test_box.set_driver_state(&gpu_with_processes(&[pid, idle.pid()]));
    let daemon = test_box.start();
    let on = std::fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
    // The process uses a core, or as much of one as other processes leave.
    let row = row_when(&test_box, pid, |row| row["cpu_pct"].as_u64() >= Some(10));
    assert_eq!(
        row["terminal"],
        on.strip_prefix("/dev").unwrap().to_str().unwrap()
    );
    eventually_equals(&json!(0), || {
        let row = row_when(&test_box, idle.pid(), |_| true);
        row["cpu_pct"].clone()
    });
    let resident = eventually("its size", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", idle.pid())).ok()?;
        let pages = stat
            .rsplit(") ")
            .next()?
            .split(' ')
            .nth(24 - 3)?
            .parse::<u64>()
            .ok()?;
        (pages > 0).then_some(pages * rustix::param::page_size() as u64)
    });
    row_when(&test_box, idle.pid(), |row| {
        row["host_mem_bytes"] == resident
    });
    daemon.stop();
}
