//! `cargo bench -p gpukill-tests --bench list`: the cost of listing the GPUs, as whole
//! processes, compared with other tools in the same run over the same stand-in NVML: 8 GPUs
//! with 2 processes each.
//!
//! gpustat and nvitop run with `$PYTHON` (by default `python3`) and are left out with a message
//! if it lacks them. Each round runs all tools in turn, so that a noisy moment affects all of
//! them. The bench `budget` counts the costs that do not depend on the machine.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "training.rs"]
mod training;

use gpukill_tests::harness::TestBox;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use training::Training;

const ROUNDS: usize = 300;

/// The Python tools take a second each; fewer rounds suffice.
const SLOW_ROUNDS: usize = 10;

struct Tool {
    name: &'static str,
    command: Command,
    rounds: usize,
    times: Vec<Duration>,
}

fn main() {
    let test_box = TestBox::new();
    let training = Training::start(&test_box, 2);
    let daemon = training.start_as_installed(&test_box);

    let mut tools = tools(&test_box);
    for round in 0..ROUNDS {
        for tool in tools
            .iter_mut()
            .filter(|tool| round % (ROUNDS / tool.rounds) == 0)
        {
            let started_at = Instant::now();
            let status = tool.command.status().unwrap();
            tool.times.push(started_at.elapsed());
            assert!(status.success(), "{} ended with {status}", tool.name);
        }
    }
    print_times(&mut tools);
    daemon.stop();
}

fn tools(test_box: &TestBox) -> Vec<Tool> {
    let mut list = test_box.client_command(&["list"]);
    list.stdout(Stdio::null());
    let mut details = test_box.client_command(&["list", "--details"]);
    details.stdout(Stdio::null());
    let tool = |name, command, rounds| Tool {
        name,
        command,
        rounds,
        times: Vec::new(),
    };
    let mut tools = vec![
        tool("/bin/true", Command::new("/bin/true"), ROUNDS),
        tool("gpukillctl list", list, ROUNDS),
        tool("gpukillctl list --details", details, ROUNDS),
    ];
    for (name, module, arguments) in [
        ("gpustat", "gpustat", &[][..]),
        ("nvitop -1", "nvitop", &["-1"]),
    ] {
        match python(test_box, module, arguments) {
            Some(command) => tools.push(tool(name, command, SLOW_ROUNDS)),
            None => println!("left out: {name} (set PYTHON to one that has the module {module})"),
        }
    }
    tools
}

fn python(test_box: &TestBox, module: &str, arguments: &[&str]) -> Option<Command> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    command
        .args(["-m", module])
        .args(arguments)
        .env("LD_LIBRARY_PATH", test_box.path("lib"))
        .env("FAKE_NVML_STATE", test_box.path("state.json"))
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(test_box.path("python.log")).unwrap());
    command
        .status()
        .is_ok_and(|status| status.success())
        .then_some(command)
}

fn print_times(tools: &mut [Tool]) {
    println!(
        "\n{:<26} {:>6} {:>10} {:>10} {:>12}",
        "whole process", "runs", "median ms", "p95 ms", "x /bin/true"
    );
    let mut base = 0.0;
    for tool in tools {
        tool.times.sort_unstable();
        let at =
            |share: usize| tool.times[(tool.times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
        if base == 0.0 {
            base = at(50);
        }
        let ratio = at(50) / base;
        println!(
            "{:<26} {:>6} {:>10.2} {:>10.2} {ratio:>12.1}",
            tool.name,
            tool.times.len(),
            at(50),
            at(95)
        );
    }
}
