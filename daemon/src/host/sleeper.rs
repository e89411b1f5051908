//! Real processes for tests.

use crate::procfs::stat::Stat;
use gpukill_proto::snapshot::ProcessKey;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that is killed when dropped.
pub(super) struct Sleeper(pub(super) Child);

impl Sleeper {
    pub(super) fn start(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stderr(Stdio::null());
        loop {
            match command.spawn() {
                Ok(child) => return Self(child),
                // Another test has forked while we wrote it, and not executed yet.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(super) fn key(&self) -> ProcessKey {
        let pid = self.0.id();
        let stat = Stat::read(Path::new(&format!("/proc/{pid}"))).unwrap();
        ProcessKey {
            pid,
            start_ticks: stat.start_ticks,
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where `sleep` lies.
pub(super) fn sleep() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places = std::env::split_paths(&path).map(|place| place.join("sleep"));
    places
        .find_map(|place| place.canonicalize().ok())
        .expect("sleep is in PATH")
}

/// `sleep` in memory, and a path to it that leads there as long as the file is open.
pub(super) fn in_memory() -> (File, String) {
    use rustix::fs::{MemfdFlags, memfd_create};
    let memory = memfd_create("worker", MemfdFlags::CLOEXEC).unwrap();
    let mut memory = File::from(memory);
    memory.write_all(&std::fs::read(sleep()).unwrap()).unwrap();
    // What is open for writing cannot be executed.
    let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let read_only = File::open(path(&memory)).unwrap();
    drop(memory);
    let path = path(&read_only);
    (read_only, path)
}
