//! A box of eight GPUs on which real processes train, for the benches.

use gpukill_tests::harness::{Actor, Daemon, Invented, Procfs, Related, Stage};
use serde_json::{Value, json};
use std::process::Command;

const GPUS: usize = 8;

/// The pid of the shell that started all of them. It leads their session.
const SHELL: u32 = 2;

/// As if all of them began long ago, in clock ticks after the boot.
const STARTED: u64 = 100;

/// The processes, until it is dropped.
pub(crate) struct Training {
    _processes: Vec<Actor>,
    procfs: Procfs,
}

impl Training {
    /// Lets so many processes train on each GPU of this box. Nobody else is there, and
    /// where the bench runs makes no difference: all are of one shell in one session.
    pub(crate) fn on(stage: &Stage, each: usize) -> Self {
        let processes: Vec<Actor> = (0..GPUS * each)
            .map(|_| Actor::start("python train.py --model llama-70b"))
            .collect();
        let gpus: Vec<Value> = processes.chunks(each).map(gpu).collect();
        stage.play(&json!({"gpus": gpus}));
        let procfs = Procfs::at(stage.path("proc"));
        invent_shell(&procfs);
        for actor in &processes {
            let pid = actor.pid();
            let stat = stat(pid);
            let files = [("stat", Some(stat.as_str())), ("cgroup", Some(SESSION))];
            procfs.dress(pid, &files);
        }
        Self {
            _processes: processes,
            procfs,
        }
    }

    /// The daemon that sees them, not yet started.
    pub(crate) fn daemon(&self, stage: &Stage) -> Command {
        let mut command = stage.daemon();
        command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root());
        command
    }

    /// Starts that daemon as a user runs it, not as the tests do.
    pub(crate) fn start_as_installed(&self, stage: &Stage) -> Daemon {
        let mut command = self.daemon(stage);
        command
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
            .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
        stage.start_with(&mut command)
    }
}

/// What `cgroup` has of a login of root's.
const SESSION: &str = "0::/user.slice/user-0.slice/session-1.scope\n";

fn invent_shell(procfs: &Procfs) {
    let invented = |pid, name, cmdline, cgroup| Invented {
        pid,
        name,
        uid: 0,
        start_ticks: STARTED,
        cmdline,
        cgroup,
    };
    procfs.invent(invented(1, "systemd", "/sbin/init\0", "0::/init.scope\n"));
    let leads = Related {
        parent: 1,
        group: SHELL,
        session: SHELL,
        ..Related::default()
    };
    procfs.invent_related(invented(SHELL, "bash", "-bash\0", SESSION), leads);
}

/// What proc_pid_stat(5) has of a process of that shell.
fn stat(pid: u32) -> String {
    // From the eighth field to the 21st.
    let between = "0 ".repeat(14);
    format!("{pid} (python) S {SHELL} {pid} {SHELL} 0 {between}{STARTED} 0 500\n")
}

fn gpu(processes: &[Actor]) -> Value {
    let memory = (60u64 << 30) / processes.len() as u64;
    let processes: Vec<Value> = processes
        .iter()
        .map(|actor| json!({"pid": actor.pid(), "memory": memory, "sm": 48}))
        .collect();
    json!({
        "memory": {"total": 80u64 << 30, "used": 61u64 << 30},
        "utilization": {"gpu": 97, "memory": 40},
        "temperature": 71, "power_mw": 688_000, "power_limit_mw": 700_000,
        "ecc": {"enabled": true},
        "processes": processes,
    })
}
