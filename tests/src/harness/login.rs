//! A terminal of somebody who logged in over the network, and what is written to it.

use super::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;

/// What a test writes behind everything else, to see that nothing is to come.
const END: &str = "-- the end";

/// A terminal that is somebody's. Gone when dropped.
pub struct Login {
    far: File,
    near: File,
    path: String,
}

impl Login {
    /// As sshd leaves it to this user, and as `mesg y` does: it is theirs, and the group
    /// that the system gives to terminals may write to it.
    ///
    /// # Panics
    /// When the system gives no terminal, or not to this user.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        let far = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&far).expect("granted");
        Self::with(File::from(far), Path::new("/"), uid)
    }

    /// The same on a box that has its root directory here.
    ///
    /// # Panics
    /// As [`Self::of`].
    #[must_use]
    pub fn on(root: &Path, uid: u32) -> Self {
        let mut options = File::options();
        options.read(true).write(true);
        options.custom_flags(OFlags::NOCTTY.bits().cast_signed());
        let far = options.open(root.join("dev/pts/ptmx")).expect("a terminal");
        Self::with(far, root, uid)
    }

    fn with(far: File, root: &Path, uid: u32) -> Self {
        unlockpt(&far).expect("unlocked");
        let name = ptsname(&far, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("ASCII").trim_start_matches('/');
        let path = root.join(name).to_str().expect("ASCII").to_owned();
        chown(&path, Some(uid), None).expect("it is given to them");
        let mut options = File::options();
        options.read(true).write(true);
        options.custom_flags(OFlags::NOCTTY.bits().cast_signed());
        let login = Self {
            far,
            near: options.open(&path).expect("a terminal"),
            path,
        };
        login.mode(0o620);
        login
    }

    /// Its name: `/dev/pts/7`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What `mesg n` does.
    ///
    /// # Panics
    /// When it cannot be changed.
    pub fn takes_no_messages(&self) {
        self.mode(0o600);
    }

    fn mode(&self, mode: u32) {
        let mode = Permissions::from_mode(mode);
        std::fs::set_permissions(&self.path, mode).expect("it can be changed");
    }

    /// All that was written to it until now, as it is shown.
    ///
    /// # Panics
    /// When that cannot be read.
    #[must_use]
    pub fn shown(mut self) -> Vec<u8> {
        self.near.write_all(END.as_bytes()).expect("written");
        let mut shown = Vec::new();
        while !shown.ends_with(END.as_bytes()) {
            let patience = Timespec::try_from(PATIENCE).expect("it is short");
            let mut ready = [PollFd::new(&self.far, PollFlags::IN)];
            let ready = poll(&mut ready, Some(&patience)).expect("a terminal");
            assert_eq!(ready, 1, "no end: {:?}", String::from_utf8_lossy(&shown));
            let mut buffer = [0; 4_096];
            let length = self.far.read(&mut buffer).expect("a terminal");
            shown.extend_from_slice(&buffer[..length]);
        }
        shown.truncate(shown.len() - END.len());
        shown
    }
}
