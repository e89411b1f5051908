//! What polls of the daemon cost beside many processes of the host.

use super::boxes::{Kind, Users};
use super::callgrind::Callgrind;
use super::life::{Life, live};
use gpukill_tests::harness::{Churn, Invented, Procfs, Stage};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The first polls read what later ones know.
const FIRST: u32 = 8;

/// How many polls are counted.
const COUNTED: u32 = 16;

/// As by default.
const INTERVAL: Duration = Duration::from_secs(2);

/// The pid of the first process of the host: those that use GPUs have others.
const FIRST_PID: u32 = 100_000;

/// Descriptors of each process of the host.
const DESCRIPTORS: u32 = 26;

/// What one poll of the daemon costs on average, without its sensor.
pub(crate) struct Cost {
    /// Where valgrind is installed.
    pub(crate) instructions: Option<u64>,
    /// What it reads of files.
    pub(crate) bytes: u64,
    /// How often it reads.
    pub(crate) reads: u64,
}

/// What a poll costs on a box of this kind, eight GPUs with eight processes each, beside so
/// many other processes of the host. A daemon that makes few polls is subtracted from one
/// that makes more: what is done once falls out.
pub(crate) fn cost(kind: Kind, processes: u32, callgrind: Option<&Callgrind>) -> Cost {
    let few = life(kind, processes, FIRST, callgrind);
    let more = life(kind, processes, FIRST + COUNTED, callgrind);
    let polls = more.polls - few.polls;
    let each = |few: u64, more: u64| more.saturating_sub(few) / polls;
    let instructions = few.instructions.zip(more.instructions);
    Cost {
        instructions: instructions.map(|(few, more)| each(few, more)),
        bytes: each(few.bytes, more.bytes),
        reads: each(few.reads, more.reads),
    }
}

fn life(kind: Kind, processes: u32, polls: u32, callgrind: Option<&Callgrind>) -> Life {
    let stage = Stage::new();
    // What it holds must outlive the daemon.
    let users = Users::start();
    let command = if kind == Kind::Nvidia {
        let mut churn = Churn::on(&stage);
        churn.turn_over(64, 64);
        as_installed(churn.daemon())
    } else {
        users.daemon(kind, &stage)
    };
    invent_host(&stage, processes);
    live(&stage, command, INTERVAL * polls, callgrind)
}

/// The daemon as a user runs it.
pub(crate) fn as_installed(mut command: Command) -> Command {
    command
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
        .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
    command
}

/// Processes that use no GPU, in the tree of the box. All of them have the same descriptors.
fn invent_host(stage: &Stage, processes: u32) {
    let procfs = Procfs::at(stage.path("proc"));
    let descriptors = stage.path("descriptors");
    std::fs::create_dir(&descriptors).unwrap();
    for number in 0..DESCRIPTORS {
        let files = ["/dev/null", "/dev/zero", "/etc/passwd", "socket:[4711]"];
        let file = Path::new(files[number as usize % files.len()]);
        std::os::unix::fs::symlink(file, descriptors.join(number.to_string())).unwrap();
    }
    for pid in FIRST_PID..FIRST_PID + processes {
        procfs.invent(Invented {
            pid,
            name: "sleep",
            uid: 1,
            start_ticks: 100,
            cmdline: "sleep\x00100000\x00",
            cgroup: "0::/system.slice/host.service\n",
        });
        let own = procfs.root().join(pid.to_string()).join("fd");
        std::os::unix::fs::symlink(&descriptors, own).unwrap();
    }
}
