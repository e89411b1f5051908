//! The terminal of a person who logged in over the network, and its output.

use super::TIMEOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;

/// What a test writes last, to know that no more output follows.
const END_MARK: &str = "-- the end";

/// A terminal that belongs to a user. It is removed when dropped.
pub struct LoginTerminal {
    controller: File,
    terminal: File,
    path: String,
}

impl LoginTerminal {
    /// Creates a terminal as sshd does, and allows messages as `mesg y` does: the user owns it,
    /// and the terminal group of the system may write to it.
    ///
    /// # Panics
    /// When the system gives no terminal, or not to this user.
    #[must_use]
    pub fn new(uid: u32) -> Self {
        let far = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&far).expect("granted");
        Self::new_with_pty(File::from(far), Path::new("/"), uid)
    }

    /// The same on a box with `root` as its root directory.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn new_below_root(root: &Path, uid: u32) -> Self {
        let mut options = File::options();
        options.read(true).write(true);
        options.custom_flags(OFlags::NOCTTY.bits().cast_signed());
        let far = options.open(root.join("dev/pts/ptmx")).expect("a terminal");
        Self::new_with_pty(far, root, uid)
    }

    fn new_with_pty(far: File, root: &Path, uid: u32) -> Self {
        unlockpt(&far).expect("unlocked");
        let name = ptsname(&far, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("ASCII").trim_start_matches('/');
        let path = root.join(name).to_str().expect("ASCII").to_owned();
        chown(&path, Some(uid), None).expect("it is given to them");
        let mut options = File::options();
        options.read(true).write(true);
        options.custom_flags(OFlags::NOCTTY.bits().cast_signed());
        let login = Self {
            controller: far,
            terminal: options.open(&path).expect("a terminal"),
            path,
        };
        login.set_mode(0o620);
        login
    }

    /// The path, such as `/dev/pts/7`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Refuses messages, as `mesg n` does.
    ///
    /// # Panics
    /// When the mode cannot be changed.
    pub fn refuse_messages(&self) {
        self.set_mode(0o600);
    }

    fn set_mode(&self, mode: u32) {
        let mode = Permissions::from_mode(mode);
        std::fs::set_permissions(&self.path, mode).expect("it can be changed");
    }

    /// Returns all output that was written until now.
    ///
    /// # Panics
    /// When the terminal cannot be read.
    #[must_use]
    pub fn into_output(mut self) -> Vec<u8> {
        self.terminal
            .write_all(END_MARK.as_bytes())
            .expect("written");
        let mut shown = Vec::new();
        while !shown.ends_with(END_MARK.as_bytes()) {
            let timeout = Timespec::try_from(TIMEOUT).expect("it is short");
            let mut ready = [PollFd::new(&self.controller, PollFlags::IN)];
            let ready = poll(&mut ready, Some(&timeout)).expect("a terminal");
            assert_eq!(ready, 1, "no end: {:?}", String::from_utf8_lossy(&shown));
            let mut buffer = [0; 4_096];
            let length = self.controller.read(&mut buffer).expect("a terminal");
            shown.extend_from_slice(&buffer[..length]);
        }
        shown.truncate(shown.len() - END_MARK.len());
        shown
    }
}
