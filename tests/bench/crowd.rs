//! Processes that have nothing to do with a GPU, for the benches: so many as a
//! host has, with 26 descriptors each.

use gpukill_tests::harness::Actor;
use rustix::fs::{Mode, OFlags};
use std::fs::read_dir;
use std::os::fd::OwnedFd;
use std::process::Command;

/// Real processes that sleep, until it is dropped.
#[derive(Default)]
pub(crate) struct Crowd(Vec<Actor>);

impl Crowd {
    /// Starts as many as the host lacks.
    pub(crate) fn grow_to(&mut self, many: usize) {
        let descriptors = descriptors();
        // Others end meanwhile.
        loop {
            let before = processes().len();
            if before >= many {
                break;
            }
            let new = (before..many).map(|_| Actor::of(Command::new("sleep").arg("100000")));
            self.0.extend(new);
        }
        drop(descriptors);
    }
}

/// The pids of all processes of the host.
pub(crate) fn processes() -> Vec<u32> {
    let entries = read_dir("/proc").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .filter_map(|name| name.to_string_lossy().parse().ok())
        .collect()
}

/// How many descriptors they have open, of those that may be looked into.
pub(crate) fn open_descriptors() -> usize {
    let of = |pid| read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    processes().into_iter().map(of).sum()
}

/// What a process on a real host has open, and the crowd inherits: pipes,
/// sockets, files, `/dev/null`. With its own three, 26.
fn descriptors() -> Vec<OwnedFd> {
    let mut all: Vec<OwnedFd> = Vec::new();
    for _ in 0..4 {
        let (one, other) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::empty()).unwrap();
        all.extend([one, other]);
    }
    for _ in 0..4 {
        let (one, other) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::empty(),
            None,
        )
        .unwrap();
        all.extend([one, other]);
    }
    let files = ["/dev/null", "/etc/passwd", "/proc/self/stat", "/dev/zero"];
    for file in files.iter().cycle().take(7) {
        all.push(rustix::fs::open(*file, OFlags::RDONLY, Mode::empty()).unwrap());
    }
    all
}
