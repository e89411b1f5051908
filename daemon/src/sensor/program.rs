//! The file of `gpukill-sensor`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program.
pub(super) const NAME: &str = "gpukill-sensor";

/// Where packages put it.
const INSTALLED: &str = "/usr/libexec/gpukill";

/// The program, once it was found: the open file. Daemon and sensor are of one release, also
/// where an upgrade replaces the file under a daemon that runs on.
#[derive(Debug, Default)]
pub(crate) struct Program {
    file: Option<File>,
}

impl Program {
    /// The program as it is installed now, if it is.
    pub(crate) fn find() -> Self {
        let mut program = Self::default();
        // Where it is not there, each start looks for it again and says so.
        let _ = program.open();
        program
    }

    /// Looks for it again at the next start: it may have been installed since.
    pub(crate) fn forget(&mut self) {
        self.file = None;
    }

    /// How it is started, without its arguments.
    ///
    /// # Errors
    /// When it is not installed, or cannot be opened.
    pub(super) fn command(&mut self) -> io::Result<Command> {
        let file = self.open()?;
        // The kernel follows the link before it closes the descriptor for the new program.
        Ok(Command::new(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    fn open(&mut self) -> io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(found()?)?,
        };
        Ok(self.file.insert(file))
    }
}

/// The program: beside this one, else where packages put it.
fn found() -> io::Result<PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|this| this.with_file_name(NAME));
    let installed = Path::new(INSTALLED).join(NAME);
    let mut places = beside.into_iter().chain([installed]);
    places.find(|path| path.is_file()).ok_or_else(|| {
        let why = format!("{NAME} is neither beside gpukilld nor in {INSTALLED}");
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}
