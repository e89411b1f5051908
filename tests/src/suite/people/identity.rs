//! Who a process is and since when, and those that are nobody.

use super::{name_of, one_gpu, row_when};
use gpukill_tests::harness::{
    Actor, Invented, NOBODY, Procfs, Stage, becomes, can_act_as_others, eventually,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn a_process_is_shown_with_all_that_the_system_knows_of_it() {
    let stage = Stage::new();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let actor = Actor::start("python train.py");
    let pid = actor.pid();
    stage.play(&one_gpu(&[pid]));
    let daemon = stage.start();
    let uid = rustix::process::getuid().as_raw();
    let user = name_of(uid);
    let row = row_when(&stage, pid, |row| {
        row["user"].is_string() == user.is_some()
            && row["util_pct"].is_u64()
            && row["first_seen"].is_string()
    });

    assert_eq!(row["uid"], uid);
    assert_eq!(row["user"], json!(user));
    assert_eq!(row["proc_name"], "sleep");
    assert_eq!(row["command"], "python train.py 1000");
    let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(row["executable"], executable.to_str().unwrap());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    let ticks = after_name.split(' ').nth(22 - 3).unwrap();
    assert_eq!(row["start_ticks"].to_string(), ticks);
    let started_at = seconds(&row["started_at"]);
    let apart = Duration::from_secs_f64((started_at - before.as_secs_f64()).abs());
    assert!(apart < Duration::from_secs(2), "{row}");
    assert!(seconds(&row["first_seen"]) >= started_at - 2.0, "{row}");

    let second = |row: &Value| {
        let text = row["start_time"].as_str()?;
        text.strip_suffix('s')?.parse::<u64>().ok()
    };
    let running = row_when(&stage, pid, |row| second(row) >= Some(1));
    assert_eq!(running["started_at"], row["started_at"]);
    assert_eq!(running["first_seen"], row["first_seen"]);
    daemon.stop();
}

/// Seconds since 1970 of an RFC 3339 time in UTC, as `date` reads it.
fn seconds(time: &Value) -> f64 {
    let output = Command::new("date")
        .args(["-d", time.as_str().unwrap(), "+%s.%N"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn a_process_of_another_user_is_shown_under_that_users_name() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    // A number without a name, and one that most boxes have a name for.
    let nameless = 3_999_999_999;
    let actors =
        [nameless, NOBODY].map(|uid| Actor::of(Command::new("sleep").arg("1000").uid(uid)));
    stage.play(&one_gpu(&actors.each_ref().map(Actor::pid)));
    let daemon = stage.start();
    let named = name_of(NOBODY);
    let row = row_when(&stage, actors[1].pid(), |row| {
        row["user"].is_string() == named.is_some()
    });
    assert_eq!((&row["uid"], &row["user"]), (&json!(NOBODY), &json!(named)));
    let row = row_when(&stage, actors[0].pid(), |row| {
        row["reasons"]["user"] == "unsupported"
    });
    assert_eq!(
        (&row["uid"], &row["user"]),
        (&json!(nameless), &Value::Null)
    );
    assert_eq!(row["command"], "sleep 1000");
    daemon.stop();
}

#[test]
fn a_user_without_a_name_is_shown_and_chosen_by_number() {
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    procfs.invent(Invented {
        pid: 4242,
        name: "python",
        uid: 3_999_999_998,
        start_ticks: 100,
        cmdline: "python\0train.py\0",
        cgroup: "0::/\n",
    });
    stage.play(&one_gpu(&[4242]));
    let daemon = stage.start_with(
        stage
            .daemon()
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()),
    );
    let row = row_when(&stage, 4242, |row| row["reasons"]["user"] == "unsupported");
    assert_eq!(row["uid"], 3_999_999_998u32);
    let table = stage.table(&["list", "--details", "--user", "3999999998"]);
    let row = table.lines().nth(1).unwrap();
    assert_eq!(row.split_whitespace().nth(2), Some("3999999998"), "{table}");
    assert!(row.ends_with("python train.py"), "{table}");
    daemon.stop();
}

#[test]
fn a_pid_that_is_given_to_another_process_is_another_process() {
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    let first = Invented {
        pid: 4242,
        name: "python",
        uid: 1,
        start_ticks: 1000,
        cmdline: "python\0first.py\0",
        cgroup: "0::/\n",
    };
    procfs.invent(first);
    stage.play(&one_gpu(&[4242]));
    let daemon = stage.start_with(
        stage
            .daemon()
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()),
    );
    let was = row_when(&stage, 4242, |row| {
        row["command"] == "python first.py" && row["first_seen"].is_string()
    });
    procfs.invent(Invented {
        uid: 2,
        start_ticks: 2000,
        cmdline: "python\0second.py\0",
        ..first
    });
    // The list that had the pid before may name the process that has ended.
    let why = "failed: listed since before the process with this pid began";
    let row = row_when(&stage, 4242, |row| row["reasons"]["uid"] == why);
    for field in ["uid", "owner", "proc_name", "command", "start_ticks"] {
        assert_eq!(row[field], Value::Null, "{row}");
        assert_eq!(row["reasons"][field], why, "{row}");
    }
    stage.play(&one_gpu(&[]));
    becomes(&json!([]), || stage.list()["procs"].clone());
    stage.play(&one_gpu(&[4242]));
    let is = row_when(&stage, 4242, |row| {
        row["command"] == "python second.py" && row["first_seen"].is_string()
    });
    assert_eq!((&was["uid"], &is["uid"]), (&json!(1), &json!(2)));
    let ticks = rustix::param::clock_ticks_per_second();
    for (row, start_ticks) in [(&was, 1000), (&is, 2000)] {
        assert_eq!(row["start_ticks"], start_ticks);
        let expected = (Procfs::BOOTED * ticks + start_ticks) / ticks;
        assert_eq!(
            seconds(&row["started_at"]).to_string(),
            expected.to_string()
        );
    }
    assert_ne!(was["first_seen"], is["first_seen"]);
    daemon.stop();
}

#[test]
fn a_process_that_has_ended_says_so_while_the_driver_names_it_and_leaves_when_it_does_not() {
    let stage = Stage::new();
    let stays = Actor::start("stays");
    let ends = Actor::start("ends");
    let ended = ends.pid();
    stage.play(&one_gpu(&[stays.pid(), ended]));
    let daemon = stage.start();
    row_when(&stage, ended, |row| row["command"] == "ends 1000");

    drop(ends);
    let row = row_when(&stage, ended, |row| row["ended_at"].is_string());
    assert_eq!(row["command"], "ends 1000");
    for field in ["cpu_pct", "host_mem_bytes"] {
        assert_eq!(
            row["reasons"][field], "failed: the process has ended",
            "{row}"
        );
    }
    // What the driver says of it is still what the driver says.
    assert_eq!(row["used_mem_mb"], 1024);

    stage.play(&one_gpu(&[stays.pid()]));
    becomes(&1, || stage.list()["procs"].as_array().unwrap().len());
    assert_eq!(stage.list()["procs"][0]["command"], "stays 1000");
    daemon.stop();
}

#[test]
fn a_pid_that_no_system_has_is_nobody_and_a_zombie_is_known_by_its_name() {
    let stage = Stage::new();
    let zombie = Actor::of(&mut Command::new("true"));
    let pid = zombie.pid();
    eventually("the zombie", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.contains(") Z ").then_some(())
    });
    stage.play(&one_gpu(&[pid, u32::MAX - 1]));
    let daemon = stage.start();
    let row = row_when(&stage, u32::MAX - 1, |row| row["proc_name"].is_null());
    assert_eq!(row["reasons"]["proc_name"], "failed: no such process here");
    let row = row_when(&stage, pid, |row| row["uid"].is_u64());
    assert_eq!(row["proc_name"], "true");
    assert!(row["start_ticks"].is_u64());
    for field in ["executable", "command"] {
        assert_eq!(row["reasons"][field], "unsupported", "{row}");
    }
    let table = stage.table(&["list", "--details"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    daemon.stop();
}
