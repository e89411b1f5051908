//! Processes of containers and of other PID namespaces, which a driver does not list: their
//! open files reveal them.

use super::{GIB, HoldersBox, own_user_name};
use gpukill_tests::harness::{TestProcess, eventually, eventually_equals, skip};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn container_process_is_named_with_container() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process_with_parent(900, "containerd-shim", 1, &[]);
    it.add_process_with_parent(4711, "python", 900, &["/dev/full", "/dev/tty"]);
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
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();
    let expected = json!([["other_namespace", [4711], null, []]]);
    eventually_equals(&expected, || it.findings());
    let holder = &it.first_gpu_document()["holders"][0];
    assert_eq!(holder["inner_pid"], 17);
    assert_eq!(holder["container"], "docker/0123456789ab");
    assert_eq!(holder["holds"], json!(["nvidia7", "nvidia-uvm"]));
    let screen = "  PID  USER                    STATE     HOLDS                LISTED  WHAT IT IS
 4711  container 0123456789ab  sleeping  nvidia7, nvidia-uvm      no  python: in docker/0123456789ab

Most likely 1 process of container 0123456789ab keeps its memory.
  - 4711 (python of container 0123456789ab) has the device open, runs in docker/0123456789ab, and the driver does not list it
";
    let screen = format!("{screen}{}", it.end_hint(4711, "an operator"));
    eventually_equals(&screen, || it.screen());
    daemon.stop();
}

#[test]
fn real_process_of_other_pid_namespace_is_found() {
    let flags = ["--pid", "--fork", "--kill-child"];
    let mut trial = Command::new("unshare");
    trial.args(flags).arg("true").stderr(Stdio::null());
    if !trial.status().is_ok_and(|status| status.success()) {
        return skip("no PID namespace can be made here");
    }
    let it = HoldersBox::new();
    let script = "exec 5</dev/full; exec sleep 1000";
    let outer = TestProcess::spawn(
        // A process group of its own: a process outside of the test may lead the group of
        // this test.
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
    it.procfs.link_real_process(outer.pid());
    it.procfs.link_real_process(inner);
    it.procfs.link_real_process(std::process::id());
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();
    let expected = json!([["other_namespace", [inner], null, []]]);
    eventually_equals(&expected, || it.findings());
    assert_eq!(it.first_gpu_document()["holders"][0]["inner_pid"], 1);
    let us = own_user_name();
    let verdict = format!(
        "Most likely 1 process of {us} in a container or namespace keeps its memory.\n  \
           - {inner} (sleep of {us}) has the device open, runs as 1 of another PID namespace, and the driver does not list it\n{}",
        it.end_hint(inner, &format!("{us} or an operator"))
    );
    eventually_equals(&verdict, || it.text_below_table());
    daemon.stop();
}
