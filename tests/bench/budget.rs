//! `cargo bench -p gpukill-tests --bench budget`: what gpukill costs, each count beside its
//! budget (`budget.toml`). All of them are counts, and no times: they do not depend on what
//! else the machine does. Fails, and names every count that is beyond its budget.
//!
//! `-- --growth` prints how costs grow with GPUs and with processes of the host instead.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "it prints its counts, and ends where it cannot count"
)]

#[path = "budget/callgrind.rs"]
mod callgrind;

#[path = "budget/clients.rs"]
mod clients;

#[path = "budget/compare.rs"]
mod compare;

#[path = "budget/daemon.rs"]
mod daemon;

#[path = "budget/growth.rs"]
mod growth;

#[path = "budget/life.rs"]
#[allow(dead_code, reason = "the bench `store` needs more of it")]
mod life;

#[path = "budget/polls.rs"]
mod polls;

#[path = "budget/programs.rs"]
mod programs;

#[path = "../src/suite/guard/junk.rs"]
mod junk;

#[path = "boxes.rs"]
#[allow(dead_code, reason = "another bench needs more of it")]
mod boxes;

#[path = "process.rs"]
mod process;

#[path = "training.rs"]
mod training;

use callgrind::Callgrind;
use compare::{Budgets, Count};
use gpukill_tests::harness::Stage;
use std::process::ExitCode;
use training::Training;

/// Processes on each of the eight GPUs that clients are asked about.
const EACH: usize = 2;

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
    let comparison = budgets.compare(&counts(callgrind.as_ref()));
    print!("{}", comparison.table);
    for failure in &comparison.failures {
        eprintln!("budget: {failure}");
    }
    match comparison.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn counts(callgrind: Option<&Callgrind>) -> Vec<Count> {
    let mut counts = programs::bytes();
    counts.extend(programs::crates());
    let stage = Stage::new();
    let training = Training::on(&stage, EACH);
    let daemon = training.start_as_installed(&stage);
    daemon::settle(&stage, daemon::KNOWN);
    counts.extend(clients::counts(&stage, callgrind));
    counts.push(daemon::threads(&daemon));
    daemon.stop();
    drop(training);
    counts.extend(daemon::memory());
    counts
}
