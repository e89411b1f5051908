//! gpukill-reset: the one step of a reset for which the daemon has no right.
//!
//! systemd starts it as root for each connection, with the connection as its standard input and
//! output. It trusts nothing: the peer, the request and the device are all checked here again,
//! whatever the daemon has checked before. The programs that it runs and the files that it reads
//! are fixed; only the command line, which root writes, names other paths.
//!
//! It resets a GPU, or checks whether a reset could start: the daemon requests a check before it
//! ends processes, and a check changes nothing.
//!
//! In reading order: the [`peer`], the [`request`], the [`device`], the processes that have it open
//! ([`open_files`]), the lock that allows one reset at a time ([`reset_lock`]), and the step of
//! each vendor ([`nvidia`], [`amd`]).

mod amd;
mod device;
mod nvidia;
mod open_files;
mod peer;
pub(crate) mod request;
mod reset_lock;

use clap::Parser;
use gpukill_proto::text::sanitize;
use request::{RequestedGpu, ResetVerb};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// The options that the unit may set. A request never contains any of them.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "gpukill-reset",
    version,
    args_override_self = true,
    about = "Resets one GPU for gpukilld. Started by systemd, not by users."
)]
pub struct ResetHelperArgs {
    /// Uid that may send requests in addition to root [default: the user gpukill]
    #[arg(long, value_name = "UID")]
    pub allow_uid: Option<u32>,
    /// Path of nvidia-smi
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/nvidia-smi")]
    pub nvidia_smi: PathBuf,
    /// Where devices are looked up
    #[arg(long, value_name = "PATH", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// Where the reset file of AMD is
    #[arg(long, value_name = "PATH", default_value = "/sys/kernel/debug")]
    pub debugfs: PathBuf,
    /// Where processes are read
    #[arg(long, value_name = "PATH", default_value = "/proc")]
    pub procfs: PathBuf,
    /// The file that is locked during a reset
    #[arg(long, value_name = "PATH", default_value = "/run/gpukill-reset.lock")]
    pub lock: PathBuf,
}

/// The maximum length of an answer, in bytes.
pub(crate) const MAX_ANSWER_BYTES: usize = 400;

/// The maximum length of the reason: an answer is one line.
const MAX_REASON_BYTES: usize = 300;

/// Answers the one request of this connection.
#[must_use]
pub fn run(args: &ResetHelperArgs) -> ExitCode {
    let done = serve(args);
    let (answer, code) = match &done {
        Ok(None) => ("ok\n".to_owned(), ExitCode::SUCCESS),
        Ok(Some(note)) => (format!("ok {}\n", single_line(note)), ExitCode::SUCCESS),
        Err(HelperError::Busy(why)) => (format!("busy {}\n", single_line(why)), ExitCode::FAILURE),
        Err(HelperError::Failed(why)) => {
            (format!("failed {}\n", single_line(why)), ExitCode::FAILURE)
        }
    };
    // The peer may have gone; the reset is done all the same.
    let _ = std::io::stdout().lock().write_all(answer.as_bytes());
    code
}

/// Why the request, or a part of it, was not carried out.
#[derive(Debug, PartialEq, Eq)]
enum HelperError {
    /// Another reset is running: a retry may succeed.
    Busy(String),
    /// It is impossible, or it failed.
    Failed(String),
}

impl From<String> for HelperError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Carries out the request. Returns a note about state that was not restored, or about a result
/// that is not known. When it returns, the
/// next reset may start.
fn serve(args: &ResetHelperArgs) -> Result<Option<String>, HelperError> {
    peer::check(std::io::stdin(), args.allow_uid)?;
    let request = request::receive(std::io::stdin())?;
    let mut nodes = device::device_numbers(&request.gpu, args)?;
    match &request.gpu {
        RequestedGpu::Nvidia(_) => nvidia::check(args)?,
        RequestedGpu::Amd(address) => amd::check(address, args)?,
    }
    let alone = reset_lock::acquire(&args.lock)?;
    match (request.verb, request.gpu) {
        // Processes that have it open are ended before the reset, and the check is repeated then.
        (ResetVerb::Check, _) => Ok(None),
        (ResetVerb::Reset, RequestedGpu::Nvidia(address)) => {
            let check = || open_files::check_unused(&nodes, args);
            Ok(nvidia::reset(&address, args, &alone, check)?)
        }
        (ResetVerb::Reset, RequestedGpu::Amd(address)) => {
            let mut hive = device::hive_device_numbers(&address, args)?;
            let is_in_hive = !hive.is_empty();
            nodes.append(&mut hive);
            open_files::check_unused(&nodes, args).map_err(|why| match is_in_hive {
                true => format!("it is reset with all GPUs of its XGMI hive: {why}"),
                false => why,
            })?;
            Ok(amd::reset(&address, args, &alone)?)
        }
    }
}

/// One line that is safe to print on a terminal.
fn single_line(text: &str) -> String {
    sanitize(text.as_bytes(), MAX_REASON_BYTES)
}
