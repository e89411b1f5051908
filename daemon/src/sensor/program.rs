//! Finds the executable of `gpukill-sensor`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const PROGRAM_NAME: &str = "gpukill-sensor";

/// The installation directory of packages.
const INSTALL_DIRECTORY: &str = "/usr/libexec/gpukill";

/// The open executable, once found. Daemon and sensor stay of the same release, even if an upgrade
/// replaces the file while the daemon runs.
#[derive(Debug, Default)]
pub(crate) struct Program {
    file: Option<File>,
}

impl Program {
    /// The installed program, if there is one.
    pub(crate) fn find() -> Self {
        let mut program = Self::default();
        // If it is missing, each start looks for it again and reports it.
        let _ = program.open();
        program
    }

    /// Looks for the program again at the next start: it may have been installed since.
    pub(crate) fn forget(&mut self) {
        self.file = None;
    }

    /// The command without its arguments.
    ///
    /// # Errors
    /// When the program is not installed, or cannot be opened.
    pub(super) fn command(&mut self) -> io::Result<Command> {
        let file = self.open()?;
        // The kernel follows the link before it closes the descriptor for the new program.
        Ok(Command::new(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    fn open(&mut self) -> io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(find_path()?)?,
        };
        Ok(self.file.insert(file))
    }
}

/// The path of the program: beside the daemon, else in the installation directory.
fn find_path() -> io::Result<PathBuf> {
    let program = std::env::current_exe().ok();
    let program = program.map(|this| this.with_file_name(PROGRAM_NAME));
    let installed = Path::new(INSTALL_DIRECTORY).join(PROGRAM_NAME);
    let mut paths = program.into_iter().chain([installed]);
    paths.find(|path| path.is_file()).ok_or_else(|| {
        let why = format!("{PROGRAM_NAME} is neither beside gpukilld nor in {INSTALL_DIRECTORY}");
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}
