//! What the daemon's polls read on a host with many processes.

use super::boxes::{BoxHardware, GpuUsers};
use super::daemon::poll_count;
use super::daemon_life::Reads;
use gpukill_tests::harness::{FakeProcess, FakeProcfs, ProcessChurn, TestBox};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The number of first polls, which read what later polls know.
const WARM_UP_POLLS: u32 = 8;

const COUNTED_POLLS: u32 = 30;

/// The default poll interval.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The pid of the first host process, away from the pids of GPU processes.
const FIRST_PID: u32 = 100_000;

/// Descriptors of each host process.
const DESCRIPTORS: u32 = 26;

/// The average reads of one poll of the daemon, without its sensor, on a box of this kind:
/// eight GPUs with eight processes each, and this many other host processes.
pub(crate) fn reads_per_poll(kind: BoxHardware, processes: u32) -> Reads {
    let test_box = TestBox::new();
    // Its processes must outlive the daemon.
    let users = GpuUsers::start();
    let mut command = if kind == BoxHardware::Nvidia {
        let mut churn = ProcessChurn::new(&test_box);
        churn.replace_processes(64, 64);
        with_installed_defaults(churn.daemon_command())
    } else {
        users.daemon_command(kind, &test_box)
    };
    add_host_processes(&test_box, processes);
    let daemon = test_box.start_with(&mut command);
    std::thread::sleep(POLL_INTERVAL * WARM_UP_POLLS);
    let (polls_before, before) = (poll_count(&test_box), Reads::read_from(&daemon));
    // No client asks meanwhile, because answers cost too.
    std::thread::sleep(POLL_INTERVAL * COUNTED_POLLS);
    let after = Reads::read_from(&daemon);
    let counted = poll_count(&test_box) - polls_before;
    daemon.stop();
    Reads {
        bytes: (after.bytes - before.bytes) / counted,
        calls: (after.calls - before.calls) / counted,
    }
}

/// Sets the defaults of an installed daemon.
pub(crate) fn with_installed_defaults(mut command: Command) -> Command {
    command
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
        .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
    command
}

/// Adds processes without a GPU to the simulated `/proc`. All of them have the same
/// descriptors.
fn add_host_processes(test_box: &TestBox, processes: u32) {
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let descriptors = test_box.path("descriptors");
    std::fs::create_dir(&descriptors).unwrap();
    for number in 0..DESCRIPTORS {
        let files = ["/dev/null", "/dev/zero", "/etc/passwd", "socket:[4711]"];
        let file = Path::new(files[number as usize % files.len()]);
        std::os::unix::fs::symlink(file, descriptors.join(number.to_string())).unwrap();
    }
    for pid in FIRST_PID..FIRST_PID + processes {
        procfs.add_process(FakeProcess {
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
