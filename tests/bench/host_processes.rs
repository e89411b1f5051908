//! Processes without a GPU for the benches: as many as a host has, with 26 descriptors each.

use gpukill_tests::harness::TestProcess;
use rustix::fs::{Mode, OFlags};
use std::fs::read_dir;
use std::os::fd::OwnedFd;
use std::process::Command;

/// Real processes that sleep until they are dropped.
#[derive(Default)]
pub(crate) struct HostProcesses(Vec<TestProcess>);

impl HostProcesses {
    /// Starts processes until the host has this many.
    pub(crate) fn grow_to(&mut self, many: usize) {
        let descriptors = descriptors();
        // Other processes end meanwhile.
        loop {
            let before = host_pids().len();
            if before >= many {
                break;
            }
            let new =
                (before..many).map(|_| TestProcess::spawn(Command::new("sleep").arg("100000")));
            self.0.extend(new);
        }
        drop(descriptors);
    }
}

pub(crate) fn host_pids() -> Vec<u32> {
    let entries = read_dir("/proc").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .filter_map(|name| name.to_string_lossy().parse().ok())
        .collect()
}

/// The number of open descriptors of all processes with readable descriptors.
pub(crate) fn open_descriptors() -> usize {
    let of = |pid| read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    host_pids().into_iter().map(of).sum()
}

/// The descriptors that a process on a real host has open and these processes inherit: pipes,
/// sockets, files, `/dev/null`. With standard input, output and error there are 26.
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
