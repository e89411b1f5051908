//! A made-up `/proc`, for processes that no test could start.

use std::path::{Path, PathBuf};

/// A tree that a daemon reads instead of `/proc`. It lies in a stage.
pub struct Procfs(PathBuf);

/// A process that does not exist.
#[derive(Debug, Clone, Copy)]
pub struct Invented<'a> {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: &'a str,
    /// Its real user.
    pub uid: u32,
    /// When it started, in ticks after the boot.
    pub start_ticks: u64,
    /// Its arguments, NUL after each.
    pub cmdline: &'a str,
    /// Its `cgroup` file.
    pub cgroup: &'a str,
}

impl Procfs {
    /// When the box of this tree booted, in seconds since 1970.
    pub const BOOTED: u64 = 1_700_000_000;

    /// An empty tree at `root`.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        std::fs::create_dir_all(&root).expect("a directory");
        let stat = format!("cpu 1 2 3\nbtime {}\n", Self::BOOTED);
        std::fs::write(root.join("stat"), stat).expect("a file");
        Self(root)
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Lets a process exist, or changes what one is.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn invent(&self, process: Invented<'_>) {
        let directory = self.0.join(process.pid.to_string());
        std::fs::create_dir_all(&directory).expect("a directory");
        let Invented {
            pid,
            name,
            uid,
            start_ticks,
            cmdline,
            cgroup,
        } = process;
        let files = [
            ("status", format!("Name:\t{name}\nUid:\t{uid}\t0\t0\t0\n")),
            ("cmdline", cmdline.to_owned()),
            ("cgroup", cgroup.to_owned()),
            // Last: it is what a daemon looks at first.
            (
                "stat",
                format!(
                    "{pid} ({name}) S {zeroes}{start_ticks} 0",
                    zeroes = "0 ".repeat(18)
                ),
            ),
        ];
        for (file, text) in files {
            let new = directory.join("new");
            std::fs::write(&new, text).expect("a file");
            std::fs::rename(new, directory.join(file)).expect("a file");
        }
    }

    /// Lets a real process be seen in this tree too.
    ///
    /// # Panics
    /// When it cannot be linked.
    pub fn link(&self, pid: u32) {
        let real = format!("/proc/{pid}");
        std::os::unix::fs::symlink(real, self.0.join(pid.to_string())).expect("a link");
    }
}
