//! The kernel's data about a process, for the benches.

use std::path::PathBuf;

/// A file of a process in `/proc`.
pub(crate) fn process_file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// A number in `status`; sizes are in KiB.
pub(crate) fn status_field(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(process_file(pid, "status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}
