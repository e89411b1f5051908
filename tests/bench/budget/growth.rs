//! How costs grow with the size of a box. These values have no budgets; they are for people.

use super::boxes::BoxHardware;
use super::callgrind::Callgrind;
use super::clients::instructions;
use super::comparison::format_grouped;
use super::daemon::{POLLS_TO_KNOW_PROCESSES, wait_for_polls};
use super::daemon_life::Reads;
use super::poll_reads::{reads_per_poll, with_installed_defaults};
use gpukill_tests::harness::{FakeProcess, FakeProcfs, TestBox};
use serde_json::{Value, json};
use std::process::Command;

/// The maximum that the NVML backend reads.
const MAX_GPUS: u32 = 250;

/// Above every pid that Linux assigns.
const FIRST_PID: u32 = 5_000_000;

/// Prints all tables.
pub(crate) fn print(callgrind: Option<&Callgrind>) {
    match callgrind {
        Some(callgrind) => print_lists(callgrind),
        None => println!("instructions skipped: valgrind is not installed"),
    }
    println!(
        "\n{:<8} {:>16} {:>13} {:>7}",
        "one poll", "host processes", "bytes read", "reads"
    );
    for kind in [BoxHardware::Nvidia, BoxHardware::AmdClients] {
        for processes in [100, 1_000, 10_000] {
            let Reads { bytes, calls } = reads_per_poll(kind, processes);
            println!(
                "{:<8} {:>16} {:>13} {calls:>7}",
                kind.name(),
                format_grouped(processes.into()),
                format_grouped(bytes),
            );
        }
    }
}

fn print_lists(callgrind: &Callgrind) {
    println!(
        "{:<6} {:>10} {:>16} {:>16} {:>16}",
        "GPUs", "processes", "list", "list -o json", "status"
    );
    for gpus in [1, 8, 64, 1_000] {
        let test_box = TestBox::new();
        let processes = 2 * gpus;
        let gpus = gpus.min(MAX_GPUS);
        let daemon = test_box.start_with(&mut simulate_box(&test_box, gpus, processes));
        wait_for_polls(&test_box, POLLS_TO_KNOW_PROCESSES);
        let count =
            |arguments: &[&str]| format_grouped(instructions(&test_box, callgrind, arguments));
        println!(
            "{gpus:<6} {processes:>10} {:>16} {:>16} {:>16}",
            count(&["list"]),
            count(&["list", "-o", "json"]),
            count(&["status"]),
        );
        daemon.stop();
    }
}

/// Simulates this many processes on this many GPUs, in a simulated `/proc`.
fn simulate_box(test_box: &TestBox, gpus: u32, processes: u32) -> Command {
    let procfs = FakeProcfs::new(test_box.path("proc"));
    for pid in FIRST_PID..FIRST_PID + processes {
        procfs.add_process(FakeProcess {
            pid,
            name: "python",
            uid: 0,
            start_ticks: 100,
            cmdline: "python\0train.py\0--model\0llama-70b\0",
            cgroup: "0::/user.slice/user-0.slice/session-1.scope\n",
        });
    }
    let gpu = |gpu: u32| {
        let pids = (FIRST_PID..FIRST_PID + processes).filter(|pid| pid % gpus == gpu);
        let processes: Vec<Value> = pids
            .map(|pid| json!({"pid": pid, "memory": 1u64 << 30, "sm": 12}))
            .collect();
        json!({"processes": processes})
    };
    test_box.set_driver_state(&json!({"gpus": (0..gpus).map(gpu).collect::<Vec<_>>()}));
    let mut command = with_installed_defaults(test_box.daemon_command());
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    command
}
