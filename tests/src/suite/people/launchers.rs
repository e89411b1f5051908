//! Real processes, started as people start them, and the jobs they are part of.

use super::jobs::tree;
use super::{one_gpu, row_when};
use gpukill_tests::harness::{Actor, Stage, Terminal, becomes, eventually, sees_all_cgroups, skip};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Real processes: a script of a shell that is called as one wants, which prints
/// pids. All of its session ends when it is dropped.
struct Script {
    shell: Child,
    pids: Vec<u32>,
}

impl Script {
    /// Runs `script` with bash, where `launcher` is another shell and `worker`
    /// does nothing, and reads so many pids.
    fn run(stage: &Stage, script: &str, pids: usize) -> Self {
        for (name, program) in [("launcher", "/bin/sh"), ("worker", "/bin/sleep")] {
            let link = stage.path(name);
            if !link.exists() {
                std::os::unix::fs::symlink(program, link).unwrap();
            }
        }
        let mut shell = Command::new("bash")
            .args(["-c", script])
            .env("PATH", path_with(stage))
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

fn path_with(stage: &Stage) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = [PathBuf::from(stage.directory())].into_iter();
    std::env::join_paths(directories.chain(std::env::split_paths(&path))).unwrap()
}

impl Drop for Script {
    fn drop(&mut self) {
        for pid in &self.pids {
            let pid = i32::try_from(*pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL);
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn a_real_launcher_and_its_workers_are_one_job_below_the_shell() {
    if !sees_all_cgroups() {
        return;
    }
    let stage = Stage::new();
    let script = Script::run(
        &stage,
        "launcher -c 'worker 1000 & echo $!; worker 1000 & echo $!; echo $$; wait'; true",
        3,
    );
    let [first, second, launcher] = script.pids[..] else {
        panic!("{:?}", script.pids);
    };
    stage.play(&one_gpu(&[first, second, launcher]));
    let daemon = stage.start();
    for pid in [first, second, launcher] {
        let row = row_when(&stage, pid, |row| row["job"].is_string());
        let own_group = row["job_kind"] == "unit";
        if own_group {
            return skip("the tests run in a service, which is the job of all of them");
        }
        assert_eq!(row["job"], tree(launcher), "{row:#}");
        let parents = row["parents"].as_array().unwrap();
        let above = if pid == launcher { 0 } else { 1 };
        assert_eq!(parents[above]["pid"], script.shell.id());
        assert_eq!(parents[above]["name"], "bash");
        // It is ours: so are its ancestors, up to this test.
        assert_eq!(parents[above + 1]["pid"], std::process::id());
    }
    daemon.stop();
}

#[test]
fn real_processes_in_sessions_of_their_own_keep_their_launcher() {
    if !sees_all_cgroups() {
        return;
    }
    let stage = Stage::new();
    // Under nohup, with setsid around the launcher, and around the worker as
    // torchrun does it.
    let script = Script::run(
        &stage,
        "nohup worker 1000 & echo $!
         setsid launcher -c 'echo $$; worker 1000 & echo $!; wait' &
         launcher -c 'echo $$; setsid worker 1000 & echo $!; wait' & wait",
        5,
    );
    let mut pids = script.pids.clone();
    pids.sort_unstable();
    stage.play(&one_gpu(&pids));
    let daemon = stage.start();
    let rows: Vec<Value> = pids
        .iter()
        .map(|pid| {
            // The shell may be between fork and exec.
            row_when(&stage, *pid, |row| {
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
fn a_real_process_on_a_terminal_shows_it_and_its_load() {
    let stage = Stage::new();
    let mut command = Command::new("sh");
    command.args(["-c", "echo pid $$ .; while :; do :; done"]);
    let Some(mut terminal) = Terminal::start(&command, 80, 24) else {
        return skip("no setsid here");
    };
    let said = terminal.until(" .");
    let pid: u32 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    let idle = Actor::start("idle");
    stage.play(&one_gpu(&[pid, idle.pid()]));
    let daemon = stage.start();
    let on = std::fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
    // It takes a core, or what the others on this machine leave of it.
    let row = row_when(&stage, pid, |row| row["cpu_pct"].as_u64() >= Some(10));
    assert_eq!(
        row["terminal"],
        on.strip_prefix("/dev").unwrap().to_str().unwrap()
    );
    becomes(&json!(0), || {
        let row = row_when(&stage, idle.pid(), |_| true);
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
    row_when(&stage, idle.pid(), |row| row["host_mem_bytes"] == resident);
    daemon.stop();
}
