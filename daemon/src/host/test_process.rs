//! Real processes for tests.

use crate::procfs::stat::Stat;
use gpukill_proto::model::ProcessKey;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(super) struct TestProcess(pub(super) Child);

impl TestProcess {
    pub(super) fn start(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stderr(Stdio::null());
        loop {
            match command.spawn() {
                Ok(child) => return Self(child),
                // Another test forked while the file was written, and has not executed yet.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(super) fn key(&self) -> ProcessKey {
        let pid = self.0.id();
        let stat = Stat::read(Path::new(&format!("/proc/{pid}"))).unwrap();
        ProcessKey::new(pid, stat.start_ticks)
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn sleep_path() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut paths = std::env::split_paths(&path).map(|path| path.join("sleep"));
    paths
        .find_map(|path| path.canonicalize().ok())
        .expect("sleep is in PATH")
}

/// `sleep` in memory, and a path to it that is valid while the file is open.
pub(super) fn sleep_in_memory() -> (File, String) {
    use rustix::fs::{MemfdFlags, memfd_create};
    let memory = memfd_create("worker", MemfdFlags::CLOEXEC).unwrap();
    let mut memory = File::from(memory);
    memory
        .write_all(&std::fs::read(sleep_path()).unwrap())
        .unwrap();
    // A file that is open for writing cannot be executed.
    let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let read_only = File::open(path(&memory)).unwrap();
    drop(memory);
    let path = path(&read_only);
    (read_only, path)
}
