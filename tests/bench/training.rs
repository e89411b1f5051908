//! A box of eight GPUs with training processes, for the benches.

use gpukill_tests::harness::{
    Daemon, FakeProcess, FakeProcessDetails, FakeProcfs, TestBox, TestProcess,
};
use serde_json::{Value, json};
use std::process::Command;

const GPUS: usize = 8;

/// The pid of the shell that started all processes. It leads their session.
const SHELL: u32 = 2;

/// A start time long ago, in clock ticks after boot.
const START_TICKS: u64 = 100;

/// The processes; they end when dropped.
pub(crate) struct Training {
    _processes: Vec<TestProcess>,
    procfs: FakeProcfs,
}

impl Training {
    /// Starts this many processes on each GPU of the box. The simulated `/proc` has no other
    /// process, and all belong to one shell in one session, so that the place where the bench
    /// runs makes no difference.
    pub(crate) fn start(test_box: &TestBox, each: usize) -> Self {
        let processes: Vec<TestProcess> = (0..GPUS * each)
            .map(|_| TestProcess::start("python train.py --model llama-70b"))
            .collect();
        let gpus: Vec<Value> = processes.chunks(each).map(gpu_state).collect();
        test_box.set_driver_state(&json!({"gpus": gpus}));
        let procfs = FakeProcfs::new(test_box.path("proc"));
        add_shell(&procfs);
        for process in &processes {
            let pid = process.pid();
            let stat = stat_text(pid);
            let files = [("stat", Some(stat.as_str())), ("cgroup", Some(SESSION))];
            procfs.link_with_changed_files(pid, &files);
        }
        Self {
            _processes: processes,
            procfs,
        }
    }

    /// The daemon that reads the simulated `/proc`, not yet started.
    pub(crate) fn daemon_command(&self, test_box: &TestBox) -> Command {
        let mut command = test_box.daemon_command();
        command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root());
        command
    }

    /// Starts this daemon with the defaults of an installation instead of those of the tests.
    pub(crate) fn start_as_installed(&self, test_box: &TestBox) -> Daemon {
        let mut command = self.daemon_command(test_box);
        command
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
            .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
        test_box.start_with(&mut command)
    }
}

/// The `cgroup` file of a login of root.
const SESSION: &str = "0::/user.slice/user-0.slice/session-1.scope\n";

fn add_shell(procfs: &FakeProcfs) {
    let invented = |pid, name, cmdline, cgroup| FakeProcess {
        pid,
        name,
        uid: 0,
        start_ticks: START_TICKS,
        cmdline,
        cgroup,
    };
    procfs.add_process(invented(1, "systemd", "/sbin/init\0", "0::/init.scope\n"));
    let leads = FakeProcessDetails {
        parent: 1,
        group: SHELL,
        session: SHELL,
        ..FakeProcessDetails::default()
    };
    procfs.add_process_with_details(invented(SHELL, "bash", "-bash\0", SESSION), leads);
}

/// The text of proc_pid_stat(5) for a process of this shell.
fn stat_text(pid: u32) -> String {
    // The fields 8 to 21.
    let between = "0 ".repeat(14);
    format!("{pid} (python) S {SHELL} {pid} {SHELL} 0 {between}{START_TICKS} 0 500\n")
}

fn gpu_state(processes: &[TestProcess]) -> Value {
    let memory = (60u64 << 30) / processes.len() as u64;
    let processes: Vec<Value> = processes
        .iter()
        .map(|process| json!({"pid": process.pid(), "memory": memory, "sm": 48}))
        .collect();
    json!({
        "memory": {"total": 80u64 << 30, "used": 61u64 << 30},
        "utilization": {"gpu": 97, "memory": 40},
        "temperature": 71, "power_mw": 688_000, "power_limit_mw": 700_000,
        "ecc": {"enabled": true},
        "processes": processes,
    })
}
