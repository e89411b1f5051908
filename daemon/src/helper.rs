//! gpukill-reset: the one step of a reset that the daemon has no right to do.
//!
//! systemd starts it as root for each connection, with the connection as its
//! standard input and output. It believes nothing: who asks, what is asked and the
//! device are all checked here again, whatever the daemon has checked before. What
//! it runs and reads is fixed; only root's own command line names other places.
//!
//! It resets a GPU, or checks whether a reset could begin: the daemon asks for a
//! check before it ends processes, and a check changes nothing.
//!
//! In reading order: who is [`peer`], what is asked ([`request`]), the [`device`],
//! who [`open`]s it, whether it is the only reset ([`alone`]), and each vendor's own
//! step ([`nvidia`], [`amd`]).

mod peer;

pub(crate) mod request;

mod device;

mod open;

mod alone;

mod nvidia;

mod amd;

use clap::Parser;
use gpukill_proto::text::visible;
use request::{Gpu, Verb};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// What its unit may set. Nothing of it is ever part of a request.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "gpukill-reset",
    version,
    args_override_self = true,
    about = "Resets one GPU for gpukilld. Started by systemd, not by people."
)]
pub struct Args {
    /// Who may ask besides root: a uid [default: the user gpukill]
    #[arg(long, value_name = "UID")]
    pub allow_uid: Option<u32>,
    /// NVIDIA's tool
    #[arg(long, value_name = "PATH", default_value = "/usr/bin/nvidia-smi")]
    pub nvidia_smi: PathBuf,
    /// Where devices are looked up
    #[arg(long, value_name = "PATH", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// Where AMD's reset file is
    #[arg(long, value_name = "PATH", default_value = "/sys/kernel/debug")]
    pub debugfs: PathBuf,
    /// Where processes are looked at
    #[arg(long, value_name = "PATH", default_value = "/proc")]
    pub procfs: PathBuf,
    /// What is locked for as long as a reset goes on
    #[arg(long, value_name = "PATH", default_value = "/run/gpukill-reset.lock")]
    pub lock: PathBuf,
}

/// The longest answer, in bytes.
pub(crate) const LONGEST_ANSWER: usize = 400;

/// What of its text is kept: an answer is one line.
const LONGEST_REASON: usize = 300;

/// Answers the one request that it is started for.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let done = serve(args);
    let (answer, code) = match &done {
        Ok(None) => ("ok\n".to_owned(), ExitCode::SUCCESS),
        Ok(Some(note)) => (format!("ok {}\n", line(note)), ExitCode::SUCCESS),
        Err(Refused::Busy(why)) => (format!("busy {}\n", line(why)), ExitCode::FAILURE),
        Err(Refused::Failed(why)) => (format!("failed {}\n", line(why)), ExitCode::FAILURE),
    };
    // Whoever asked may have gone; what was done is done.
    let _ = std::io::stdout().lock().write_all(answer.as_bytes());
    code
}

/// Why nothing, or not all, was done.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// An earlier reset goes on: later it may be possible.
    Busy(String),
    /// It cannot be done, or failed.
    Failed(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The steps, in order. What comes back says what was not restored. When it comes,
/// the next reset may begin.
fn serve(args: &Args) -> Result<Option<String>, Refused> {
    peer::check(std::io::stdin(), args.allow_uid)?;
    let request = request::receive(std::io::stdin())?;
    let nodes = device::nodes(&request.gpu, args)?;
    match &request.gpu {
        Gpu::Nvidia(_) => nvidia::check(args)?,
        Gpu::Amd(address) => amd::check(address, args)?,
    }
    let alone = alone::alone(&args.lock)?;
    match (request.verb, request.gpu) {
        // Who has it open now is ended before the reset, and looked at again then.
        (Verb::Check, _) => Ok(None),
        (Verb::Reset, Gpu::Nvidia(address)) => {
            let nobody = || open::nobody(&nodes, args);
            Ok(nvidia::reset(&address, args, &alone, nobody)?)
        }
        (Verb::Reset, Gpu::Amd(address)) => {
            open::nobody(&nodes, args)?;
            amd::reset(&address, args, &alone)?;
            Ok(None)
        }
    }
}

/// One line that is harmless on a terminal.
fn line(text: &str) -> String {
    visible(text.as_bytes(), LONGEST_REASON)
}
