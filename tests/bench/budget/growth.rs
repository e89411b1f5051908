//! How costs grow with what a box has. These have no budgets: they are for people.

use super::boxes::Kind;
use super::callgrind::Callgrind;
use super::clients::instructions;
use super::compare::grouped;
use super::daemon::{KNOWN, settle};
use super::life::Reads;
use super::polls::{as_installed, reads};
use gpukill_tests::harness::{Invented, Procfs, Stage};
use serde_json::{Value, json};
use std::process::Command;

/// NVML's reader takes no more.
const MOST_GPUS: u32 = 250;

/// Above every pid that Linux gives.
const FIRST_PID: u32 = 5_000_000;

/// Prints all of them.
pub(crate) fn print(callgrind: Option<&Callgrind>) {
    match callgrind {
        Some(callgrind) => print_lists(callgrind),
        None => println!("instructions skipped: valgrind is not installed"),
    }
    println!(
        "\n{:<8} {:>16} {:>13} {:>7}",
        "one poll", "host processes", "bytes read", "reads"
    );
    for kind in [Kind::Nvidia, Kind::AmdClients] {
        for processes in [100, 1_000, 10_000] {
            let Reads { bytes, calls } = reads(kind, processes);
            println!(
                "{:<8} {:>16} {:>13} {calls:>7}",
                kind.name(),
                grouped(processes.into()),
                grouped(bytes),
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
        let stage = Stage::new();
        let processes = 2 * gpus;
        let gpus = gpus.min(MOST_GPUS);
        let daemon = stage.start_with(&mut play(&stage, gpus, processes));
        settle(&stage, KNOWN);
        let count = |arguments: &[&str]| grouped(instructions(&stage, callgrind, arguments));
        println!(
            "{gpus:<6} {processes:>10} {:>16} {:>16} {:>16}",
            count(&["list"]),
            count(&["list", "-o", "json"]),
            count(&["status"]),
        );
        daemon.stop();
    }
}

/// So many processes on so many GPUs, in a tree of their own.
fn play(stage: &Stage, gpus: u32, processes: u32) -> Command {
    let procfs = Procfs::at(stage.path("proc"));
    for pid in FIRST_PID..FIRST_PID + processes {
        procfs.invent(Invented {
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
    stage.play(&json!({"gpus": (0..gpus).map(gpu).collect::<Vec<_>>()}));
    let mut command = as_installed(stage.daemon());
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    command
}
