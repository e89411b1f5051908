//! `cargo run -p gpukill-tests --example rogue-corpus`: how many miners and how many legitimate
//! workloads of the corpus the shipped rules rate as a risk, and which of them wrongly.
#![allow(clippy::panic, clippy::print_stdout, reason = "a tool of the tests")]

#[path = "../corpus/rogue.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod corpus;

fn main() {
    print!("{}", corpus::Matrix::from_cases(&corpus::cases()));
}
