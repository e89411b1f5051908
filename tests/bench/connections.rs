//! Measures the reading of connections of 64 processes on a network with a thousand sockets:
//! first processes with few open files, then processes that each have all these sockets.
//!
//! `cargo bench -p gpukill-tests --bench connections`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it prints its measurements")]

use gpukill_tests::harness::TestProcess;
use gpukilld::sockets::count_clients;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

const PROCESSES: u32 = 64;

/// Both ends of a pair are sockets, and a process may have 1,024 files open.
const PAIRS: usize = 499;

const ROUNDS: usize = 20;

fn main() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("it has one");
    let pairs: Vec<(TcpStream, TcpStream)> = (0..PAIRS)
        .map(|_| {
            let client = TcpStream::connect(address).expect("a connection");
            (client, server.accept().expect("its other end").0)
        })
        .collect();
    let processes: Vec<TestProcess> = (0..PROCESSES).map(|_| TestProcess::start("idle")).collect();
    let idle: Vec<u32> = processes.iter().map(TestProcess::pid).collect();
    measure("64 processes with few files", Path::new("/proc"), &idle);

    // This process, under many pids.
    let root = tempfile::tempdir().expect("a directory");
    let busy: Vec<u32> = (1..=PROCESSES).collect();
    for pid in &busy {
        let own = format!("/proc/{}", std::process::id());
        symlink(own, root.path().join(pid.to_string())).expect("a link");
    }
    measure("64 processes with 1,000 sockets each", root.path(), &busy);
    drop(pairs);
}

fn measure(what: &str, root: &Path, pids: &[u32]) {
    let mut took: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            let counts = count_clients(root, pids);
            let took = begin.elapsed();
            assert_eq!(counts.len(), pids.len());
            took
        })
        .collect();
    took.sort_unstable();
    let counts = count_clients(root, pids);
    println!(
        "{what}: median {:?}, longest {:?} of {ROUNDS} readings; the first process has {:?}",
        took[ROUNDS / 2],
        took[ROUNDS - 1],
        counts.first()
    );
}
