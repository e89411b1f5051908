//! Processes of containers and of other PID namespaces, which a driver does not
//! list: they are found by what they have open.

use super::{Box, GIB, us};
use gpukill_tests::harness::{Actor, becomes, eventually, skip};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn a_process_of_a_container_is_named_with_it() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent_related(900, "containerd-shim", 1, &[]);
    it.invent_related(4711, "python", 900, &["/dev/full", "/dev/tty"]);
    it.procfs.write(
        4711,
        "cgroup",
        &format!("0::/system.slice/docker-{CONTAINER}.scope\n"),
    );
    it.procfs.write(
        4711,
        "status",
        "Name:\tpython\nUid:\t1\t1\t1\t1\nNSpid:\t4711\t17\n",
    );
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();
    let expected = json!([["other_namespace", [4711], null, []]]);
    becomes(&expected, || it.findings());
    let holder = &it.held()["holders"][0];
    assert_eq!(holder["inner_pid"], 17);
    assert_eq!(holder["container"], "docker/0123456789ab");
    assert_eq!(holder["holds"], json!(["nvidia7", "nvidia-uvm"]));
    let screen = "  PID  USER                    STATE     HOLDS                LISTED  WHAT IT IS
 4711  container 0123456789ab  sleeping  nvidia7, nvidia-uvm      no  python: in docker/0123456789ab

Most likely 1 process of container 0123456789ab keeps its memory.
  - 4711 (python of container 0123456789ab) has it open, runs in docker/0123456789ab, and the driver does not list it
If it is nobody's any more, its owner can end it
";
    becomes(&screen.to_owned(), || it.screen());
    daemon.stop();
}

#[test]
fn a_real_process_of_another_pid_namespace_is_found() {
    let flags = ["--pid", "--fork", "--kill-child"];
    let mut trial = Command::new("unshare");
    trial.args(flags).arg("true").stderr(Stdio::null());
    if !trial.status().is_ok_and(|status| status.success()) {
        return skip("no PID namespace can be made here");
    }
    let it = Box::new();
    let script = "exec 5</dev/full; exec sleep 1000";
    let outer = Actor::of(
        // A group of its own: this test's may be led from outside.
        Command::new("unshare")
            .process_group(0)
            .args(flags)
            .args(["sh", "-c", script]),
    );
    let inner: u32 = eventually("the process inside", || {
        let children = format!("/proc/{0}/task/{0}/children", outer.pid());
        let child = std::fs::read_to_string(children).ok()?;
        let name = std::fs::read_to_string(format!("/proc/{}/comm", child.trim())).ok()?;
        (name == "sleep\n").then(|| child.trim().parse().unwrap())
    });
    it.procfs.link(outer.pid());
    it.procfs.link(inner);
    it.procfs.link(std::process::id());
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();
    let expected = json!([["other_namespace", [inner], null, []]]);
    becomes(&expected, || it.findings());
    assert_eq!(it.held()["holders"][0]["inner_pid"], 1);
    let us = us();
    let verdict = format!(
        "Most likely 1 process of {us} in a container or namespace keeps its memory.\n  \
           - {inner} (sleep of {us}) has it open, runs as 1 of another PID namespace, and the driver does not list it\n\
         If it is nobody's any more, its owner can end it\n"
    );
    becomes(&verdict, || it.verdict());
    daemon.stop();
}
