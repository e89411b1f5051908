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

/// How a made-up process is related to others, and what it has taken. Nothing
/// and nobody where not said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Related {
    /// Its parent's pid.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// The device number of its terminal.
    pub terminal: u32,
    /// Processor time, in clock ticks.
    pub cpu_ticks: u64,
    /// Memory of the host, in pages.
    pub resident_pages: u64,
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
        // A handle on a process says in the real one whose it is, and those that
        // are linked here are real.
        std::fs::create_dir_all(root.join("self")).expect("a directory");
        let handles = root.join("self/fdinfo");
        // It may have been made before.
        let _ = std::os::unix::fs::symlink("/proc/self/fdinfo", handles);
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
        self.invent_related(process, Related::default());
    }

    /// Lets a process exist that others are related to.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn invent_related(&self, process: Invented<'_>, related: Related) {
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
                format!("{pid} ({name}) S {}", related.fields(start_ticks)),
            ),
        ];
        for (file, text) in files {
            let new = directory.join("new");
            std::fs::write(&new, text).expect("a file");
            std::fs::rename(new, directory.join(file)).expect("a file");
        }
    }

    /// Writes one more file of a made-up process, or another text into one.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, pid: u32, file: &str, text: &str) {
        let directory = self.0.join(pid.to_string());
        let new = directory.join("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, directory.join(file)).expect("a file");
    }

    /// Lets a made-up process have this file open as descriptor `fd`, and the
    /// kernel tell this of it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn open(&self, pid: u32, fd: u32, file: &str, fdinfo: &str) {
        let directory = self.0.join(pid.to_string());
        std::fs::create_dir_all(directory.join("fdinfo")).expect("a directory");
        std::fs::create_dir_all(directory.join("fd")).expect("a directory");
        self.write(pid, &format!("fdinfo/{fd}"), fdinfo);
        let link = directory.join("fd").join(fd.to_string());
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(file, link).expect("a link");
    }

    /// Lets a real process be seen in this tree with other texts in place of some of
    /// its files; without those of which there is none.
    ///
    /// # Panics
    /// When it is gone, or cannot be written.
    pub fn dress(&self, pid: u32, files: &[(&str, Option<&str>)]) {
        let real = PathBuf::from(format!("/proc/{pid}"));
        let new = self.0.join("new");
        std::fs::create_dir(&new).expect("a directory");
        for entry in std::fs::read_dir(&real).expect("a process") {
            let name = entry.expect("an entry").file_name();
            let told = files.iter().find(|(file, _)| *file == name);
            match told {
                Some((file, Some(text))) => std::fs::write(new.join(file), text),
                Some((_, None)) => Ok(()),
                // What a link says is what it says to whoever reads it, and not where
                // the link to it leads.
                None if name == "exe" => match std::fs::read_link(real.join("exe")) {
                    Ok(file) => std::os::unix::fs::symlink(file, new.join("exe")),
                    // It is not for everybody to know.
                    Err(_) => Ok(()),
                },
                None => std::os::unix::fs::symlink(real.join(&name), new.join(&name)),
            }
            .expect("a file");
        }
        // In one step: no daemon should see it half dressed.
        std::fs::rename(new, self.0.join(pid.to_string())).expect("a directory");
    }

    /// Lets a process be seen no more.
    ///
    /// # Panics
    /// When it was not to be seen.
    pub fn forget(&self, pid: u32) {
        let gone = self.0.join("gone");
        std::fs::rename(self.0.join(pid.to_string()), &gone).expect("a process");
        // What is linked stays as it is.
        std::fs::remove_dir_all(gone).expect("a directory");
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

impl Related {
    /// The fields of `stat` from the fourth to the 24th.
    fn fields(self, start_ticks: u64) -> String {
        let mut fields = [0; 21];
        let of_stat = [
            (4, u64::from(self.parent)),
            (5, u64::from(self.group)),
            (6, u64::from(self.session)),
            (7, u64::from(self.terminal)),
            (14, self.cpu_ticks),
            (22, start_ticks),
            (24, self.resident_pages),
        ];
        for (number, value) in of_stat {
            fields[number - 4] = value;
        }
        fields.map(|field| field.to_string()).join(" ")
    }
}
