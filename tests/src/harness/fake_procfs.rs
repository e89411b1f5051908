//! A simulated `/proc`, for processes that no test could start.

use std::path::{Path, PathBuf};

/// A directory in a test box that the daemon reads instead of `/proc`.
pub struct FakeProcfs(PathBuf);

/// A simulated process.
#[derive(Debug, Clone, Copy)]
pub struct FakeProcess<'a> {
    /// Pid.
    pub pid: u32,
    /// Process name.
    pub name: &'a str,
    /// Real user id.
    pub uid: u32,
    /// Start time, in clock ticks after boot.
    pub start_ticks: u64,
    /// Arguments, each ended by NUL.
    pub cmdline: &'a str,
    /// The text of its `cgroup` file.
    pub cgroup: &'a str,
}

/// Further fields of a simulated process. The default of each is 0: no relation and no usage.
#[derive(Debug, Clone, Copy, Default)]
pub struct FakeProcessDetails {
    /// The pid of its parent.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// The device number of its terminal.
    pub terminal: u32,
    /// Processor time, in clock ticks.
    pub cpu_ticks: u64,
    /// Memory of the host, in pages.
    pub resident_pages: u64,
}

impl FakeProcfs {
    /// The simulated boot time, in seconds since 1970.
    pub const BOOT_TIME: u64 = 1_700_000_000;

    /// Creates an empty tree at `root`.
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        std::fs::create_dir_all(&root).expect("a directory");
        let stat = format!("cpu 1 2 3\nbtime {}\n", Self::BOOT_TIME);
        std::fs::write(root.join("stat"), stat).expect("a file");
        // `/proc/self/fdinfo` gives the pid of a pidfd. Processes that are linked here are
        // real, so the real directory answers.
        std::fs::create_dir_all(root.join("self")).expect("a directory");
        let handles = root.join("self/fdinfo");
        // The link may exist already.
        let _ = std::os::unix::fs::symlink("/proc/self/fdinfo", handles);
        Self(root)
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Adds a process, or changes an existing one.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn add_process(&self, process: FakeProcess<'_>) {
        self.add_process_with_details(process, FakeProcessDetails::default());
    }

    /// Adds a process with these further fields.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn add_process_with_details(&self, process: FakeProcess<'_>, related: FakeProcessDetails) {
        let directory = self.0.join(process.pid.to_string());
        std::fs::create_dir_all(&directory).expect("a directory");
        let FakeProcess {
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
            // Written last, because the daemon reads it first.
            (
                "stat",
                format!("{pid} ({name}) S {}", related.stat_fields(start_ticks)),
            ),
        ];
        for (file, text) in files {
            let new = directory.join("new");
            std::fs::write(&new, text).expect("a file");
            std::fs::rename(new, directory.join(file)).expect("a file");
        }
    }

    /// The text of a `stat` file.
    #[must_use]
    pub fn stat_text(pid: u32, name: &str, start_ticks: u64) -> String {
        let fields = FakeProcessDetails::default().stat_fields(start_ticks);
        format!("{pid} ({name}) S {fields}")
    }

    /// Writes a file of a simulated process.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, pid: u32, file: &str, text: &str) {
        let directory = self.0.join(pid.to_string());
        let new = directory.join("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, directory.join(file)).expect("a file");
    }

    /// Opens `file` as descriptor `fd` of a simulated process, with `fdinfo` as the kernel's
    /// text about it.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn add_descriptor(&self, pid: u32, fd: u32, file: &str, fdinfo: &str) {
        let directory = self.0.join(pid.to_string());
        std::fs::create_dir_all(directory.join("fdinfo")).expect("a directory");
        std::fs::create_dir_all(directory.join("fd")).expect("a directory");
        self.write(pid, &format!("fdinfo/{fd}"), fdinfo);
        let link = directory.join("fd").join(fd.to_string());
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(file, link).expect("a link");
    }

    /// Links a real process into this tree, with other texts in place of some of its files. A
    /// file with the text `None` is left out.
    ///
    /// # Panics
    /// When the process has ended, or a file cannot be written.
    pub fn link_with_changed_files(&self, pid: u32, files: &[(&str, Option<&str>)]) {
        let real = PathBuf::from(format!("/proc/{pid}"));
        let new = self.0.join("new");
        std::fs::create_dir(&new).expect("a directory");
        for entry in std::fs::read_dir(&real).expect("a process") {
            let name = entry.expect("an entry").file_name();
            let changed = files.iter().find(|(file, _)| *file == name);
            match changed {
                Some((file, Some(text))) => std::fs::write(new.join(file), text),
                Some((_, None)) => Ok(()),
                // The daemon reads the target of this link, so a copy of the link is needed: a
                // link to it would give the wrong target.
                None if name == "exe" => match std::fs::read_link(real.join("exe")) {
                    Ok(file) => std::os::unix::fs::symlink(file, new.join("exe")),
                    // Only some users may read it.
                    Err(_) => Ok(()),
                },
                None => std::os::unix::fs::symlink(real.join(&name), new.join(&name)),
            }
            .expect("a file");
        }
        // In one step, so that the daemon never sees an incomplete process.
        std::fs::rename(new, self.0.join(pid.to_string())).expect("a directory");
    }

    /// Removes a process from the tree.
    ///
    /// # Panics
    /// When the tree has no such process.
    pub fn remove_process(&self, pid: u32) {
        let gone = self.0.join("gone");
        std::fs::rename(self.0.join(pid.to_string()), &gone).expect("a process");
        // This removes links, not the files of the real process.
        std::fs::remove_dir_all(gone).expect("a directory");
    }

    /// Links a real process into this tree.
    ///
    /// # Panics
    /// When it cannot be linked.
    pub fn link_real_process(&self, pid: u32) {
        let real = format!("/proc/{pid}");
        std::os::unix::fs::symlink(real, self.0.join(pid.to_string())).expect("a link");
    }
}

impl FakeProcessDetails {
    /// The fields 4 to 24 of `stat`.
    fn stat_fields(self, start_ticks: u64) -> String {
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
