//! Memory of ended processes that has not come back: the driver is still releasing it, or
//! the parents have not reaped the processes.

use super::{GIB, HoldersBox, own_user_name, select_fields};
use gpukill_tests::harness::{TestProcess, eventually, eventually_equals};
use serde_json::json;
use std::process::Command;

#[test]
fn listed_zombie_has_its_parent() {
    let it = HoldersBox::new();
    // A program that does not wait for the child that it inherited with `exec`.
    let script = "sleep 0 & exec sleep 1000";
    let parent = TestProcess::spawn(Command::new("sh").args(["-c", script]));
    let zombie: u32 = eventually("the zombie", || {
        let children = format!("/proc/{0}/task/{0}/children", parent.pid());
        let child = std::fs::read_to_string(children).ok()?;
        let child = child.trim();
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        let name = std::fs::read_to_string(format!("/proc/{}/comm", parent.pid())).ok()?;
        let ended = stat.contains("(sleep) Z ") && name == "sleep\n";
        ended.then(|| child.parse().unwrap())
    });
    it.procfs.link_real_process(zombie);
    it.procfs.link_real_process(parent.pid());
    it.set_driver_state(35 * GIB, &json!([{"pid": zombie, "memory": 35 * GIB}]));
    let daemon = it.start();
    let of = parent.pid();
    eventually_equals(&json!([["zombie", [zombie], "reap", [of]]]), || {
        it.findings()
    });
    let row = select_fields(
        &it.first_gpu_document()["holders"],
        &["pid", "state", "role", "parent_pid", "listed"],
    );
    assert_eq!(row, json!([[zombie, "zombie", "zombie", of, true]]));
    let us = own_user_name();
    let verdict = format!(
        "Most likely 1 process of {us} that has ended and not been reaped keeps its memory.\n  \
           - {zombie} (sleep of {us}) has ended, and its parent {of} (sleep) has not reaped it\n\
         To free it: its parent {of} (sleep) has to reap it; it goes when that ends\n"
    );
    eventually_equals(&verdict, || it.text_below_table());
    let heading = "GPU 0 H100 80GB HBM3: 35.0 GiB used, all of it listed by the driver";
    let screen = it.test_box.ctl(&["holders"]).stdout;
    assert_eq!(screen.lines().next(), Some(heading));

    // The zombie is gone when its parent ends.
    let status = Command::new("kill").arg(of.to_string()).status().unwrap();
    assert!(status.success());
    eventually("the zombie is reaped", || {
        let stat = std::fs::metadata(format!("/proc/{zombie}/stat"));
        stat.is_err().then_some(())
    });
    it.set_driver_state(0, &json!([]));
    eventually_equals(&json!([]), || it.findings());
    eventually_equals(&json!([]), || it.roles());
    daemon.stop();
}

#[test]
fn process_with_ended_main_thread_is_alive() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &[]);
    // The kernel shows such a process as a zombie with two threads, and descriptors
    // only below the other thread.
    let stat = std::fs::read_to_string(it.procfs.root().join("4711/stat")).unwrap();
    let mut fields: Vec<&str> = stat.split(' ').collect();
    (fields[2], fields[19]) = ("Z", "2");
    it.procfs.write(4711, "stat", &fields.join(" "));
    let descriptors = it.procfs.root().join("4711/task/4712/fd");
    std::fs::create_dir_all(&descriptors).unwrap();
    std::os::unix::fs::symlink("/dev/full", descriptors.join("5")).unwrap();
    it.set_driver_state(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    let daemon = it.start();
    let row = json!([[4711, "sleeping", "user", ["nvidia7"]]]);
    let fields = ["pid", "state", "role", "holds"];
    eventually_equals(&row, || {
        select_fields(&it.first_gpu_document()["holders"], &fields)
    });
    assert_eq!(it.findings(), json!([]));
    it.set_driver_state(35 * GIB, &json!([]));
    eventually_equals(&json!([["unlisted", [4711], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn memory_of_ended_process_is_awaited() {
    let it = HoldersBox::new();
    let process = TestProcess::start("python train.py");
    let pid = process.pid();
    it.procfs.link_real_process(pid);
    it.set_driver_state(35 * GIB, &json!([{"pid": pid, "memory": 35 * GIB}]));
    let daemon = it.start();
    eventually_equals(&json!([[pid, "user"]]), || it.roles());
    assert_eq!(it.findings(), json!([]));

    drop(process);
    it.set_driver_state(20 * GIB, &json!([]));
    eventually_equals(&json!([["tearing_down", [pid], "wait", []]]), || {
        it.findings()
    });
    eventually_equals(&json!([]), || it.roles());
    let screen = it.screen();
    let (evidence, rest) = screen.split_once(") ended ").expect("an end");
    let (_, rest) = rest.split_once(" ago ").expect("an age");
    let us = own_user_name();
    let before = format!(
        " nobody has it open\n\n\
         Most likely memory of 1 process that ended just now is on its way back.\n  \
           - {pid} (sleep of {us}"
    );
    assert_eq!(evidence, before);
    let after = "and held 35.0 GiB\n  - 20.0 GiB are not released yet\nIt frees itself: wait\n";
    assert_eq!(rest, after);

    it.set_driver_state(0, &json!([]));
    eventually_equals(&json!([]), || it.findings());
    // The identity of the process is remembered for a while.
    let ended = select_fields(
        &it.first_gpu_document()["ended"],
        &["pid", "proc_name", "used_mem_bytes"],
    );
    assert_eq!(ended, json!([[pid, "sleep", 35 * GIB]]));
    daemon.stop();
}

#[test]
fn excess_memory_is_not_of_ended_process() {
    let it = HoldersBox::new();
    let process = TestProcess::start("python train.py");
    it.procfs.link_real_process(process.pid());
    it.set_driver_state(2 * GIB, &json!([{"pid": process.pid(), "memory": 2 * GIB}]));
    let daemon = it.start();
    eventually_equals(&json!([[process.pid(), "user"]]), || it.roles());
    drop(process);
    it.set_driver_state(35 * GIB, &json!([]));
    eventually_equals(&json!([["unknown", [], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn earlier_unattributed_memory_is_not_awaited() {
    let it = HoldersBox::new();
    let process = TestProcess::start("python train.py");
    let pid = process.pid();
    it.procfs.link_real_process(pid);
    it.set_driver_state(10 * GIB, &json!([{"pid": pid, "memory": 2 * GIB}]));
    let daemon = it.start();
    eventually_equals(&json!([["unknown", [], null, []]]), || it.findings());
    let verdict = "Who keeps its memory is not known.\n  \
                     - 8.0 GiB are used, and no process explains them\n  \
                     - all open files were scanned, and only listed processes that could hold \
                   the memory have the device open\n";
    eventually_equals(&verdict.to_owned(), || it.text_below_table());

    drop(process);
    it.set_driver_state(10 * GIB, &json!([]));
    let both = json!([
        ["tearing_down", [pid], "wait", []],
        ["unknown", [], null, []],
    ]);
    eventually_equals(&both, || it.findings());
    let expected = "  \
           - 2.0 GiB are not released yet\n  \
           - 8.0 GiB more were already unattributed before\n\
         It frees itself: wait\n\n\
         Who keeps the rest of its memory is not known.\n  \
           - 8.0 GiB have been unattributed for longer\n  \
           - all open files were scanned, and no process that could hold the memory \
         has the device open\n";
    // The driver may have listed the process for a moment after its end.
    eventually_equals(&expected.to_owned(), || {
        let verdict = it.text_below_table();
        let rest = verdict.split_once(" and held 2.0 GiB\n");
        rest.map(|(_, rest)| rest.to_owned()).unwrap_or(verdict)
    });
    daemon.stop();
}
