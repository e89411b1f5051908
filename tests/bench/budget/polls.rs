//! What polls of the daemon read beside many processes of the host.

use super::boxes::{Kind, Users};
use super::daemon::polls;
use super::life::Reads;
use gpukill_tests::harness::{Churn, Invented, Procfs, Stage};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The first polls read what later ones know.
const FIRST: u32 = 8;

/// How many polls are counted.
const COUNTED: u32 = 30;

/// As by default.
const INTERVAL: Duration = Duration::from_secs(2);

/// The pid of the first process of the host: those that use GPUs have others.
const FIRST_PID: u32 = 100_000;

/// Descriptors of each process of the host.
const DESCRIPTORS: u32 = 26;

/// What one poll of the daemon, without its sensor, reads on average on a box of this kind,
/// eight GPUs with eight processes each, beside so many other processes of the host.
pub(crate) fn reads(kind: Kind, processes: u32) -> Reads {
    let stage = Stage::new();
    // What it holds must outlive the daemon.
    let users = Users::start();
    let mut command = if kind == Kind::Nvidia {
        let mut churn = Churn::on(&stage);
        churn.turn_over(64, 64);
        as_installed(churn.daemon())
    } else {
        users.daemon(kind, &stage)
    };
    invent_host(&stage, processes);
    let daemon = stage.start_with(&mut command);
    std::thread::sleep(INTERVAL * FIRST);
    let (polls_before, before) = (polls(&stage), Reads::by(&daemon));
    // Nobody asks it meanwhile: answers cost too.
    std::thread::sleep(INTERVAL * COUNTED);
    let after = Reads::by(&daemon);
    let counted = polls(&stage) - polls_before;
    daemon.stop();
    Reads {
        bytes: (after.bytes - before.bytes) / counted,
        calls: (after.calls - before.calls) / counted,
    }
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
