//! Processes that belong together: scheduler jobs, services and process trees, simulated
//! and real.

use super::{gpu_with_processes, row_when, select_fields};
use gpukill_tests::harness::{Daemon, FakeProcess, FakeProcessDetails, FakeProcfs, TestBox};
use serde_json::{Value, json};

/// A simulated process of user 1000 in this cgroup.
fn fake_process<'a>(pid: u32, name: &'a str, cgroup: &'a str) -> FakeProcess<'a> {
    FakeProcess {
        pid,
        name,
        uid: 1000,
        start_ticks: u64::from(pid),
        cmdline: "x\0",
        cgroup,
    }
}

fn start_with_procfs(test_box: &TestBox, procfs: &FakeProcfs) -> Daemon {
    let mut daemon = test_box.daemon_command();
    test_box.start_with(daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()))
}

#[test]
fn job_is_scheduler_container_unit_or_tree() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let hash = "a".repeat(64);
    let user = "user.slice/user-1000.slice";
    let cases = [
        (
            "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0".to_owned(),
            json!(["scheduler", "slurm 1234.0"]),
        ),
        (
            "4:memory:/slurm_n1/uid_1000/job_77/step_batch\n1:name=systemd:/system.slice/slurmd.service"
                .to_owned(),
            json!(["scheduler", "slurm 77.batch"]),
        ),
        ("4:memory:/pbs_jobs.service/jobid/12.srv".to_owned(), json!(["scheduler", "pbs 12.srv"])),
        (
            format!("0::/system.slice/docker-{hash}.scope"),
            json!(["container", "docker/aaaaaaaaaaaa"]),
        ),
        ("0::/system.slice/train.service".to_owned(), json!(["unit", "train.service"])),
        (
            format!("0::/{user}/user@1000.service/app.slice/train.service"),
            json!(["unit", "train.service"]),
        ),
        (format!("0::/{user}/session-3.scope"), json!(["tree", null])),
        (
            format!("0::/{user}/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope"),
            json!(["tree", null]),
        ),
        ("0::/system.slice/jupyterhub.service".to_owned(), json!(["tree", null])),
        // Slurm's own processes, outside of the cgroup of any job.
        ("0::/system.slice/slurmstepd.scope".to_owned(), json!(["tree", null])),
        ("0::/".to_owned(), json!(["tree", null])),
        ("0::/../x".to_owned(), json!([null, null])),
    ];
    let pids: Vec<u32> = (1001..).take(cases.len()).collect();
    for (pid, (cgroup, _)) in pids.iter().zip(&cases) {
        procfs.add_process(fake_process(*pid, "python", cgroup));
    }
    test_box.set_driver_state(&gpu_with_processes(&pids));
    let daemon = start_with_procfs(&test_box, &procfs);
    for (pid, (cgroup, expected)) in pids.iter().zip(cases) {
        let row = row_when(&test_box, *pid, |row| row["proc_name"] == "python");
        let mut expected = expected;
        if expected[0] == "tree" {
            expected[1] = tree_job(*pid);
        }
        assert_eq!(json!([row["job_kind"], row["job"]]), expected, "{cgroup}");
    }
    let session = row_when(&test_box, pids[6], |_| true);
    let place = select_fields(&session, &["session", "unit", "unit_manager_uid"]);
    assert_eq!(
        place,
        json!({"session": "3", "unit": "session-3.scope", "unit_manager_uid": null})
    );
    let slurm = row_when(&test_box, pids[0], |_| true);
    assert_eq!(
        select_fields(&slurm, &["scheduler", "scheduler_job", "scheduler_step"]),
        json!({"scheduler": "slurm", "scheduler_job": "1234", "scheduler_step": "0"})
    );
    daemon.stop();
}

/// The text that shows the process tree below this process.
pub(super) fn tree_job(root: u32) -> Value {
    json!(format!("tree {root}"))
}

#[test]
fn workers_without_launcher_are_own_jobs() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let worker = fake_process(40, "python", "0::/");
    let below = |parent| FakeProcessDetails {
        parent,
        group: 20,
        session: 10,
        ..FakeProcessDetails::default()
    };
    procfs.add_process_with_details(fake_process(10, "bash", "0::/"), below(1));
    procfs.add_process_with_details(fake_process(20, "torchrun", "0::/"), below(10));
    procfs.add_process_with_details(worker, below(20));
    test_box.set_driver_state(&gpu_with_processes(&[40]));
    let daemon = start_with_procfs(&test_box, &procfs);
    let row = row_when(&test_box, 40, |row| row["job"] == tree_job(20));
    assert_eq!(
        row["parents"],
        json!([
            {"pid": 20, "start_ticks": 20, "name": "torchrun"},
            {"pid": 10, "start_ticks": 10, "name": "bash"},
        ])
    );
    // The change is visible at the next poll, and does not wait until the other fields are
    // stale.
    procfs.add_process_with_details(worker, below(1));
    let started_at = std::time::Instant::now();
    let row = row_when(&test_box, 40, |row| row["job"] == tree_job(40));
    assert_eq!(row["parents"], json!([]));
    assert!(started_at.elapsed() < std::time::Duration::from_secs(15));
    daemon.stop();
}

#[test]
fn panes_of_a_scoped_tmux_are_two_jobs() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let scope = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope";
    // The server and its panes lead sessions.
    let below = |pid, parent| FakeProcessDetails {
        parent,
        group: pid,
        session: match parent {
            1 | 10 => pid,
            pane => pane,
        },
        ..FakeProcessDetails::default()
    };
    let family = [
        (10, "tmux: server", 1),
        (20, "bash", 10),
        (21, "python", 20),
        (30, "bash", 10),
        (31, "python", 30),
    ];
    for (pid, name, parent) in family {
        procfs.add_process_with_details(fake_process(pid, name, scope), below(pid, parent));
    }
    test_box.set_driver_state(&gpu_with_processes(&[10, 21, 31]));
    let daemon = start_with_procfs(&test_box, &procfs);
    for pid in [10, 21, 31] {
        let row = row_when(&test_box, pid, |row| row["job"].is_string());
        assert_eq!(row["job"], tree_job(pid), "{row:#}");
        assert_eq!(row["unit"], "run-r1.scope");
    }
    daemon.stop();
}

#[test]
fn distant_job_root_is_found_parents_are_limited() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    for pid in 10..60 {
        let parent = if pid == 10 { 1 } else { pid - 1 };
        let below = FakeProcessDetails {
            parent,
            ..FakeProcessDetails::default()
        };
        procfs.add_process_with_details(fake_process(pid, "train", "0::/"), below);
    }
    procfs.add_process(fake_process(1, "train", "0::/"));
    test_box.set_driver_state(&gpu_with_processes(&[1, 59]));
    let daemon = start_with_procfs(&test_box, &procfs);
    let row = row_when(&test_box, 59, |row| row["job"].is_string());
    assert_eq!(row["job"], tree_job(10));
    assert_eq!(row["parents"].as_array().map(Vec::len), Some(16));
    let first = row_when(&test_box, 1, |row| row["proc_name"] == "train");
    assert_eq!(first["job"], Value::Null);
    assert_eq!(
        first["reasons"]["job"],
        "failed: process 1 is not a job: all other processes are below it"
    );
    daemon.stop();
}

#[test]
fn process_has_host_usage_and_login_uid() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let process = fake_process(40, "python", "0::/");
    let taken = FakeProcessDetails {
        terminal: 136 << 8 | 4,
        resident_pages: 1 << 10,
        ..FakeProcessDetails::default()
    };
    procfs.add_process_with_details(process, taken);
    procfs.write(40, "loginuid", "1001");
    procfs.write(
        40,
        "status",
        "Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t40\t9\t1\n",
    );
    procfs.add_process(fake_process(41, "python", "0::/"));
    procfs.write(41, "loginuid", "4294967295");
    procfs.add_process(fake_process(42, "python", "0::/"));
    test_box.set_driver_state(&gpu_with_processes(&[40, 41, 42]));
    let daemon = start_with_procfs(&test_box, &procfs);
    let row = row_when(&test_box, 40, |row| row["cpu_pct"] == 0);
    let found = select_fields(
        &row,
        &["host_mem_bytes", "login_uid", "inner_pid", "terminal"],
    );
    let page = rustix::param::page_size() as u64;
    let expected = json!({
        "host_mem_bytes": page << 10,
        "login_uid": 1001,
        "inner_pid": 1,
        "terminal": "pts/4",
    });
    assert_eq!(found, expected);
    let service = row_when(&test_box, 41, |_| true);
    assert_eq!(
        (&service["login_uid"], &service["reasons"]["login_uid"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(service["terminal"], Value::Null);
    let unaudited = row_when(&test_box, 42, |_| true);
    assert_eq!(unaudited["reasons"]["login_uid"], "unsupported");

    // More processor time than the box has had: whatever the interval is, it is shown, and
    // only for a while.
    let mut cpu_ticks = 0;
    row_when(&test_box, 40, |row| {
        // The value is shown for one poll, which a slow client may miss.
        cpu_ticks += 1_000_000;
        procfs.add_process_with_details(process, FakeProcessDetails { cpu_ticks, ..taken });
        row["cpu_pct"].as_u64() > Some(1000)
    });
    row_when(&test_box, 40, |row| row["cpu_pct"] == 0);
    daemon.stop();
}
