//! `cargo bench -p gpukill-tests --bench budget`: counts the costs of gpukill and compares each
//! count with its budget (`budget.toml`). All values are counts, not times, so they do not
//! depend on the load of the machine. The bench fails and names every count that exceeds its
//! budget.
//!
//! `-- --growth` instead prints how costs grow with the GPUs and processes of the host.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "it prints its counts, and ends where it cannot count"
)]

#[path = "boxes.rs"]
#[allow(dead_code, reason = "another bench needs more of it")]
mod boxes;
#[path = "budget/callgrind.rs"]
mod callgrind;
#[path = "budget/clients.rs"]
mod clients;
#[path = "budget/comparison.rs"]
mod comparison;
#[path = "budget/daemon.rs"]
mod daemon;
#[path = "budget/daemon_life.rs"]
#[allow(dead_code, reason = "the bench `store` needs more of it")]
mod daemon_life;
#[path = "budget/gateway.rs"]
mod gateway;
#[path = "budget/growth.rs"]
mod growth;
#[path = "../src/suite/guard/hostile_files.rs"]
mod hostile_files;
#[path = "budget/poll_reads.rs"]
mod poll_reads;
#[path = "process.rs"]
mod process;
#[path = "budget/programs.rs"]
mod programs;
#[path = "training.rs"]
mod training;

use callgrind::Callgrind;
use comparison::{Budgets, Count};
use gpukill_tests::harness::TestBox;
use std::process::ExitCode;
use training::Training;

/// Processes on each of the eight GPUs in the client measurements.
const PROCESSES_PER_GPU: usize = 2;

fn main() -> ExitCode {
    let callgrind = Callgrind::find();
    if std::env::args().any(|argument| argument == "--growth") {
        growth::print(callgrind.as_ref());
        return ExitCode::SUCCESS;
    }
    if callgrind.is_none() {
        println!("instructions skipped: valgrind is not installed");
    }
    let budgets = match Budgets::parse(include_str!("budget.toml")) {
        Ok(budgets) => budgets,
        Err(error) => {
            eprintln!("tests/bench/budget.toml: {error}");
            return ExitCode::FAILURE;
        }
    };
    let comparison = budgets.compare(&measure_all(callgrind.as_ref()));
    print!("{}", comparison.table);
    for failure in &comparison.failures {
        eprintln!("budget: {failure}");
    }
    match comparison.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn measure_all(callgrind: Option<&Callgrind>) -> Vec<Count> {
    let mut counts = programs::program_sizes();
    counts.extend(programs::crate_counts());
    let test_box = TestBox::new();
    let training = Training::start(&test_box, PROCESSES_PER_GPU);
    let daemon = training.start_as_installed(&test_box);
    daemon::wait_for_polls(&test_box, daemon::POLLS_TO_KNOW_PROCESSES);
    counts.extend(clients::measure_clients(&test_box, callgrind));
    counts.push(daemon::count_threads(&daemon));
    counts.extend(gateway::measure_gateway(&test_box));
    daemon.stop();
    drop(training);
    counts.extend(daemon::measure_memory());
    counts
}
