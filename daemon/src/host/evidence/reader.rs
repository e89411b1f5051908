//! One read of the evidence of a process.

use super::libraries::{self, MapsError};
use super::{ProcessEvidence, network};
use crate::procfs::read_at_most;
use crate::procfs::stat::Stat;
use gpukill_proto::model::ProcessKey;
use gpukill_proto::text::sanitize;
use std::collections::BTreeSet;
use std::fs::{File, read_link};
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The longest link target of the kernel: `PATH_MAX`.
const EXECUTABLE_MAX: usize = 4 << 10;

/// How many bytes of a command line are read and kept.
const CMDLINE_MAX: usize = 32 << 10;

/// How many arguments are kept.
const ARGUMENTS_MAX: usize = 1_024;

/// The flag of a thread that ends and may have released its memory (`PF_EXITING` in
/// `include/linux/sched.h`).
const EXITING: u32 = 0x4;

/// The readable part of a command line.
pub(super) struct EvidenceArguments {
    pub(super) arguments: Vec<String>,
    /// Why it is incomplete, where it is.
    pub(super) cut: Option<&'static str>,
}

/// Reads the evidence of the process with this key, from its directory below this root.
///
/// # Errors
/// When the process has ended, or executed another program during the read.
pub(super) fn read_evidence(process: ProcessKey, root: &Path) -> Result<ProcessEvidence, String> {
    let directory = root.join(process.pid.to_string());
    let before = read_stat(&directory, process)?;
    let mut missing = Vec::new();
    let executable = note_failure("its executable", executable(&directory), &mut missing);
    let line = note_failure("its arguments", command_line(&directory), &mut missing);
    let cut = line.as_ref().and_then(|line| line.cut);
    missing.extend(cut.map(|why| format!("the rest of its command line: {why}")));
    let libraries = note_failure("its libraries", libraries(&directory), &mut missing);
    let sent = network::network_sent(root, &directory);
    // All this was read by PID, one file after the other.
    let after = read_stat(&directory, process)?;
    // The stack starts elsewhere after each exec.
    if before.stack != after.stack {
        return Err("it executed another program".to_owned());
    }
    Ok(ProcessEvidence {
        executable,
        arguments: line.map(|line| line.arguments),
        libraries,
        sent,
        unavailable: missing,
    })
}

fn read_stat(directory: &Path, process: ProcessKey) -> Result<Stat, String> {
    match Stat::read(directory) {
        Ok(stat) if stat.start_ticks == process.start_ticks => Ok(stat),
        Ok(_) => Err("it has ended".to_owned()),
        Err(error) => Err(error_reason(&error)),
    }
}

fn note_failure<T>(what: &str, read: Result<T, String>, missing: &mut Vec<String>) -> Option<T> {
    read.map_err(|why| missing.push(format!("{what}: {why}")))
        .ok()
}

/// Why a part of a running process could not be read.
pub(in crate::host) fn error_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "not permitted".to_owned(),
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        _ => sanitize(error.to_string().as_bytes(), 80),
    }
}

/// The link target, which is not followed.
fn executable(directory: &Path) -> Result<String, String> {
    let link = read_link(directory.join("exe")).map_err(|error| error_reason(&error))?;
    let bytes = link.as_os_str().as_bytes();
    if bytes.len() > EXECUTABLE_MAX {
        return Err("its path is too long".to_owned());
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn command_line(directory: &Path) -> Result<EvidenceArguments, String> {
    // One byte more than is kept shows whether there is more.
    let max_bytes = CMDLINE_MAX as u64 + 1;
    let cmdline = read_at_most(&directory.join("cmdline"), max_bytes)
        .map_err(|error| error_reason(&error))?;
    if cmdline.is_empty() && has_lost_its_first_thread(directory)? {
        return Err("its first thread has ended".to_owned());
    }
    Ok(split_arguments(&cmdline))
}

/// Whether the first thread has ended and others run. The kernel reads the command line through the
/// first thread, which has none once it has released its memory.
fn has_lost_its_first_thread(directory: &Path) -> Result<bool, String> {
    let stat = Stat::read(directory).map_err(|error| error_reason(&error))?;
    let has_ended = matches!(stat.state, 'Z' | 'X') || stat.flags & EXITING != 0;
    Ok(has_ended && stat.threads > 1)
}

/// Splits a command line into arguments, as far as there is room. NUL bytes separate them; a
/// process that rewrites its title may pad it with many.
pub(super) fn split_arguments(cmdline: &[u8]) -> EvidenceArguments {
    let read = cmdline.get(..CMDLINE_MAX).unwrap_or(cmdline);
    let mut line = EvidenceArguments {
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
        // Replaced invalid UTF-8 grows.
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
    let file = File::open(directory.join("maps")).map_err(|error| error_reason(&error))?;
    libraries::libraries(BufReader::new(file)).map_err(MapsError::text)
}
