//! One look at the traces of a process.

use super::mapped::{self, Broken};
use super::{Traces, network};
use crate::procfs::file::read_at_most;
use crate::procfs::stat::Stat;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::text::visible;
use std::collections::BTreeSet;
use std::fs::{File, read_link};
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The kernel gives no more of a link: `PATH_MAX`.
const EXECUTABLE_MAX: usize = 4 << 10;

/// So many bytes of a command line are read, and kept.
const CMDLINE_MAX: usize = 32 << 10;

/// So many arguments are kept.
const ARGUMENTS_MAX: usize = 1_024;

/// Of a thread that ends, and may have let go of its memory already (`PF_EXITING` in
/// `include/linux/sched.h`).
const EXITING: u32 = 0x4;

/// A command line, as far as it is told.
pub(super) struct CommandLine {
    pub(super) arguments: Vec<String>,
    /// Why there is more of it than this, where there is.
    pub(super) cut: Option<&'static str>,
}

/// Reads what is to be known of a process, whose directory lies below this root.
///
/// # Errors
/// When it is another process by now, or executes something else than it did before.
pub(super) fn read(process: ProcessKey, root: &Path) -> Result<Traces, String> {
    let directory = root.join(process.pid.to_string());
    let before = stat(&directory, process)?;
    let mut unseen = Vec::new();
    let executable = told("its executable", executable(&directory), &mut unseen);
    let line = told("its arguments", command_line(&directory), &mut unseen);
    let cut = line.as_ref().and_then(|line| line.cut);
    unseen.extend(cut.map(|why| format!("the rest of its command line: {why}")));
    let libraries = told("its libraries", libraries(&directory), &mut unseen);
    let sent = network::sending(root, &directory);
    // All this was read by the pid, one after the other.
    let after = stat(&directory, process)?;
    // It begins elsewhere after each exec.
    if before.stack != after.stack {
        return Err("it executes something else".to_owned());
    }
    Ok(Traces {
        executable,
        arguments: line.map(|line| line.arguments),
        libraries,
        sent,
        unseen,
    })
}

fn stat(directory: &Path, process: ProcessKey) -> Result<Stat, String> {
    match Stat::read(directory) {
        Ok(stat) if stat.start_ticks == process.start_ticks => Ok(stat),
        Ok(_) => Err("it has ended".to_owned()),
        Err(error) => Err(why(&error)),
    }
}

fn told<T>(what: &str, read: Result<T, String>, unseen: &mut Vec<String>) -> Option<T> {
    read.map_err(|why| unseen.push(format!("{what}: {why}")))
        .ok()
}

/// Why something of a process that is there still could not be read.
pub(in crate::host) fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "not permitted".to_owned(),
        io::ErrorKind::NotFound => "there is none".to_owned(),
        _ => visible(error.to_string().as_bytes(), 80),
    }
}

/// What the link says, which nobody follows.
fn executable(directory: &Path) -> Result<String, String> {
    let link = read_link(directory.join("exe")).map_err(|error| why(&error))?;
    let bytes = link.as_os_str().as_bytes();
    if bytes.len() > EXECUTABLE_MAX {
        return Err("its path is too long".to_owned());
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn command_line(directory: &Path) -> Result<CommandLine, String> {
    // One byte more than is kept tells whether there is more.
    let most = CMDLINE_MAX as u64 + 1;
    let cmdline = read_at_most(&directory.join("cmdline"), most).map_err(|error| why(&error))?;
    if cmdline.is_empty() && has_lost_its_first_thread(directory)? {
        return Err("its first thread has ended".to_owned());
    }
    Ok(split(&cmdline))
}

/// The kernel tells the command line of the first thread, which has none once that has let
/// go of its memory, whatever the others have.
fn has_lost_its_first_thread(directory: &Path) -> Result<bool, String> {
    let stat = Stat::read(directory).map_err(|error| why(&error))?;
    let has_ended = matches!(stat.state, 'Z' | 'X') || stat.flags & EXITING != 0;
    Ok(has_ended && stat.threads > 1)
}

/// The arguments of a command line, each as it was given, as far as there is room for
/// them. They are separated by NUL bytes; who rewrites its title may pad it with many.
pub(super) fn split(cmdline: &[u8]) -> CommandLine {
    let read = cmdline.get(..CMDLINE_MAX).unwrap_or(cmdline);
    let mut line = CommandLine {
        arguments: Vec::new(),
        cut: (read.len() < cmdline.len()).then_some("it is longer than 32 KiB"),
    };
    let end = read.iter().rposition(|byte| *byte != 0);
    let Some(written) = end.and_then(|last| read.get(..=last)) else {
        return line;
    };
    let mut room = CMDLINE_MAX;
    for argument in written.split(|byte| *byte == 0) {
        if line.arguments.len() == ARGUMENTS_MAX {
            line.cut = Some("it has more than 1,024 arguments");
            break;
        }
        let argument = String::from_utf8_lossy(argument).into_owned();
        // What is no UTF-8 grows.
        let Some(left) = room.checked_sub(argument.len()) else {
            line.cut = Some("it is longer than 32 KiB");
            break;
        };
        room = left;
        line.arguments.push(argument);
    }
    line
}

fn libraries(directory: &Path) -> Result<BTreeSet<String>, String> {
    let file = File::open(directory.join("maps")).map_err(|error| why(&error))?;
    mapped::libraries(BufReader::new(file)).map_err(Broken::words)
}
