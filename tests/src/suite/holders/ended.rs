//! Processes that have ended and whose memory has not come back: it is on its
//! way, or their parents have not asked how they ended.

use super::{Box, GIB, pick, us};
use gpukill_tests::harness::{Actor, becomes, eventually};
use serde_json::json;
use std::process::Command;

#[test]
fn a_real_zombie_that_the_driver_lists_is_told_with_its_parent() {
    let it = Box::new();
    // A program that does not wait for the child that it was given.
    let script = "sleep 0 & exec sleep 1000";
    let parent = Actor::of(Command::new("sh").args(["-c", script]));
    let zombie: u32 = eventually("the zombie", || {
        let children = format!("/proc/{0}/task/{0}/children", parent.pid());
        let child = std::fs::read_to_string(children).ok()?;
        let child = child.trim();
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        let name = std::fs::read_to_string(format!("/proc/{}/comm", parent.pid())).ok()?;
        let ended = stat.contains("(sleep) Z ") && name == "sleep\n";
        ended.then(|| child.parse().unwrap())
    });
    it.procfs.link(zombie);
    it.procfs.link(parent.pid());
    it.play(35 * GIB, &json!([{"pid": zombie, "memory": 35 * GIB}]));
    let daemon = it.start();
    let of = parent.pid();
    becomes(&json!([["zombie", [zombie], "reap", [of]]]), || {
        it.findings()
    });
    let row = pick(
        &it.held()["holders"],
        &["pid", "state", "role", "parent_pid", "listed"],
    );
    assert_eq!(row, json!([[zombie, "zombie", "zombie", of, true]]));
    let us = us();
    let verdict = format!(
        "Most likely 1 process of {us} that has ended and not been reaped keeps its memory.\n  \
           - {zombie} (sleep of {us}) has ended, and its parent {of} (sleep) has not asked how\n\
         To free it: its parent {of} (sleep) has to ask how it ended; it goes when that ends\n"
    );
    becomes(&verdict, || it.verdict());
    let heading = "GPU 0 H100 80GB HBM3: 35.0 GiB used, all of it listed by the driver";
    let screen = it.stage.ctl(&["holders"]).stdout;
    assert_eq!(screen.lines().next(), Some(heading));

    // It does go when the parent ends.
    let status = Command::new("kill").arg(of.to_string()).status().unwrap();
    assert!(status.success());
    eventually("the zombie is reaped", || {
        let stat = std::fs::metadata(format!("/proc/{zombie}/stat"));
        stat.is_err().then_some(())
    });
    it.play(0, &json!([]));
    becomes(&json!([]), || it.findings());
    becomes(&json!([]), || it.roles());
    daemon.stop();
}

#[test]
fn a_process_whose_first_thread_alone_has_ended_is_not_called_ended() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &[]);
    // What the kernel shows of it: a zombie of two threads, and descriptors only
    // below the other one.
    let stat = std::fs::read_to_string(it.procfs.root().join("4711/stat")).unwrap();
    let mut fields: Vec<&str> = stat.split(' ').collect();
    (fields[2], fields[19]) = ("Z", "2");
    it.procfs.write(4711, "stat", &fields.join(" "));
    let descriptors = it.procfs.root().join("4711/task/4712/fd");
    std::fs::create_dir_all(&descriptors).unwrap();
    std::os::unix::fs::symlink("/dev/full", descriptors.join("5")).unwrap();
    it.play(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    let daemon = it.start();
    let row = json!([[4711, "sleeping", "user", ["nvidia7"]]]);
    let fields = ["pid", "state", "role", "holds"];
    becomes(&row, || pick(&it.held()["holders"], &fields));
    assert_eq!(it.findings(), json!([]));
    it.play(35 * GIB, &json!([]));
    becomes(&json!([["unlisted", [4711], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn memory_of_a_process_that_has_just_ended_is_waited_for() {
    let it = Box::new();
    let actor = Actor::start("python train.py");
    let pid = actor.pid();
    it.procfs.link(pid);
    it.play(35 * GIB, &json!([{"pid": pid, "memory": 35 * GIB}]));
    let daemon = it.start();
    becomes(&json!([[pid, "user"]]), || it.roles());
    assert_eq!(it.findings(), json!([]));

    drop(actor);
    it.play(20 * GIB, &json!([]));
    becomes(&json!([["tearing_down", [pid], "wait", []]]), || {
        it.findings()
    });
    becomes(&json!([]), || it.roles());
    let screen = it.screen();
    let (said, rest) = screen.split_once(") ended ").expect("an end");
    let (_, rest) = rest.split_once(" ago ").expect("an age");
    let us = us();
    let before = format!(
        " nobody has it open\n\n\
         Most likely memory of 1 process that ended just now is on its way back.\n  \
           - {pid} (sleep of {us}"
    );
    assert_eq!(said, before);
    let after = "and held 35.0 GiB\n  - 20.0 GiB are not back yet\nIt frees itself: wait\n";
    assert_eq!(rest, after);

    it.play(0, &json!([]));
    becomes(&json!([]), || it.findings());
    // Who it was is remembered for a while.
    let ended = pick(&it.held()["ended"], &["pid", "proc_name", "used_mem_bytes"]);
    assert_eq!(ended, json!([[pid, "sleep", 35 * GIB]]));
    daemon.stop();
}

#[test]
fn more_memory_than_the_ended_process_held_is_not_put_down_to_it() {
    let it = Box::new();
    let actor = Actor::start("python train.py");
    it.procfs.link(actor.pid());
    it.play(2 * GIB, &json!([{"pid": actor.pid(), "memory": 2 * GIB}]));
    let daemon = it.start();
    becomes(&json!([[actor.pid(), "user"]]), || it.roles());
    drop(actor);
    it.play(35 * GIB, &json!([]));
    becomes(&json!([["unknown", [], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn what_was_unexplained_before_a_process_ended_is_not_said_to_free_itself() {
    let it = Box::new();
    let actor = Actor::start("python train.py");
    let pid = actor.pid();
    it.procfs.link(pid);
    it.play(10 * GIB, &json!([{"pid": pid, "memory": 2 * GIB}]));
    let daemon = it.start();
    becomes(&json!([["unknown", [], null, []]]), || it.findings());
    let verdict = "Who keeps its memory is not known.\n  \
                     - 8.0 GiB are used, and nothing explains them\n  \
                     - the open files of every process were looked at, and none that could hold them \
                   has it open but those that are listed\n";
    becomes(&verdict.to_owned(), || it.verdict());

    drop(actor);
    it.play(10 * GIB, &json!([]));
    let both = json!([
        ["tearing_down", [pid], "wait", []],
        ["unknown", [], null, []],
    ]);
    becomes(&both, || it.findings());
    let expected = "  \
           - 2.0 GiB are not back yet\n  \
           - 8.0 GiB more were used before that, and nothing explained them\n\
         It frees itself: wait\n\n\
         Who keeps the rest of its memory is not known.\n  \
           - 8.0 GiB have been used for longer, and nothing explains them\n  \
           - the open files of every process were looked at, and none that could hold them has it \
         open\n";
    // The driver may have listed it for a moment after its end.
    becomes(&expected.to_owned(), || {
        let verdict = it.verdict();
        let (_, rest) = verdict.split_once(" and held 2.0 GiB\n").expect("an end");
        rest.to_owned()
    });
    daemon.stop();
}
