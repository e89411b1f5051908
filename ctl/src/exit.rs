//! How a run can end: the exit codes, what can go wrong, and the one mapping
//! from the second to the first.

mod of_command;

use crate::versions;
use gpukill_policy::kill::success::Success;
use gpukill_policy::select::NoSuchDevice;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::settings::Mistake;
use gpukill_proto::transport::ConnectError;
use gpukill_proto::{DEFAULT_SOCKET, PROTOCOL_VERSION, ProtocolVersion};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use of_command::of;

/// The exit codes. Scripts rely on the numbers.
///
/// Nobody types them: they are an enum of values so that the manual can list them all,
/// with the words that stand here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[repr(u8)]
pub enum Exit {
    /// What was asked is done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// A vendor library or driver failed, so what was asked cannot be answered.
    VendorFailed = 2,
    /// The arguments or the settings are wrong.
    BadUsage = 3,
    /// The caller may not do this.
    NotPermitted = 4,
    /// This box cannot do this.
    NotSupported = 5,
    /// The daemon cannot be reached, is busy, or is of another version.
    Unreachable = 6,
    /// Some of it is done.
    PartlyDone = 7,
    /// Nothing matched what was asked for.
    NoMatch = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

impl From<Success> for Exit {
    fn from(success: Success) -> Self {
        match success {
            Success::All => Self::Done,
            Success::Part => Self::PartlyDone,
            Success::Refused => Self::NotPermitted,
            Success::Nobody => Self::NoMatch,
            Success::Failed => Self::Failed,
        }
    }
}

/// How the daemon that is asked runs, as far as its socket tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// The system does, where the box's socket is.
    AsService,
    /// Somebody does.
    ByHand,
}

impl Runs {
    /// The daemon that listens there.
    pub(crate) fn at(socket: &Path) -> Self {
        if socket == Path::new(DEFAULT_SOCKET) {
            Self::AsService
        } else {
            Self::ByHand
        }
    }
}

/// Why a run ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument that only its meaning shows to be wrong.
    Usage(String),
    /// Mistakes in the settings, all of them.
    Settings {
        /// The file that was read, if there was one.
        file: Option<PathBuf>,
        /// Those with a line are in the file, the others in the environment.
        mistakes: Vec<Mistake>,
    },
    /// The settings file cannot be read.
    SettingsFile(PathBuf, io::Error),
    /// There is no socket at the box's place, and somebody else could stand at that of
    /// the user's own: its directory, and why.
    UnsafeSocket(PathBuf, &'static str),
    /// There is no socket at the usual places: the box's and the user's own.
    NoDaemon([PathBuf; 2]),
    /// There is no connection to the daemon.
    Connect(PathBuf, ConnectError),
    /// The daemon did not answer in time.
    TimedOut {
        /// How long it was waited for, in seconds.
        seconds: u64,
    },
    /// The daemon has not polled for the first time yet.
    NothingPolled,
    /// The connection broke while an answer was awaited.
    Broken(String),
    /// The connection broke, and the daemon speaks this older wire: it may not know
    /// what was asked.
    OlderDaemon(ProtocolVersion),
    /// The daemon answered with a refusal.
    Refused(Refusal),
    /// A selector names no device, or several.
    NoSuchDevice(NoSuchDevice),
    /// A process that was asked about is none that the daemon knows.
    NoSuchProcess(String),
    /// A filter leaves nothing.
    NoMatch(String),
    /// A vendor's library or driver failed, and so there is no answer.
    Vendor(String),
    /// What was asked is not done, or not known to be.
    NotDone {
        /// What is so instead.
        what: String,
        /// What the person can do next, where there is something.
        hint: Option<String>,
        /// How that counts.
        exit: Exit,
    },
    /// The kernel refuses something that every run needs.
    System(io::Error),
    /// What was to be printed could not be.
    Output(io::Error),
    /// The reader of the output has seen enough.
    ReaderGone,
}

impl Failure {
    /// The exit code for it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Settings { .. } | Self::SettingsFile(..) => Exit::BadUsage,
            Self::Connect(_, ConnectError::NotPermitted) => Exit::NotPermitted,
            Self::Connect(
                _,
                ConnectError::NoDaemon
                | ConnectError::Busy
                | ConnectError::Version(_)
                | ConnectError::TurnedAway(_)
                | ConnectError::NotGpukilld
                | ConnectError::Io(_),
            )
            | Self::NoDaemon(_)
            | Self::UnsafeSocket(..)
            | Self::TimedOut { .. }
            | Self::NothingPolled
            | Self::Broken(_)
            | Self::OlderDaemon(_) => Exit::Unreachable,
            Self::Refused(refusal) => exit_of(refusal),
            Self::NoSuchDevice(NoSuchDevice::Ambiguous { .. } | NoSuchDevice::Backwards { .. }) => {
                Exit::BadUsage
            }
            Self::NoSuchDevice(NoSuchDevice::Unknown { .. })
            | Self::NoSuchProcess(_)
            | Self::NoMatch(_) => Exit::NoMatch,
            Self::Vendor(_) => Exit::VendorFailed,
            Self::NotDone { exit, .. } => *exit,
            Self::System(_) | Self::Output(_) => Exit::Failed,
            Self::ReaderGone => Exit::Done,
        }
    }

    /// What the person can do next, where there is something.
    pub(crate) fn hint(&self, runs: Runs) -> Option<String> {
        let hint = match self {
            Self::Connect(socket, error) => return connect_hint(socket, error, runs),
            Self::Refused(Refusal::Internal) | Self::Broken(_) => match runs {
                Runs::AsService => "see its messages: systemctl status gpukilld",
                Runs::ByHand => "see its messages where it runs",
            },
            Self::OlderDaemon(_) => versions::renew_daemon(runs),
            Self::Refused(refusal) => return refusal.hint(),
            Self::NotDone { hint, .. } => return hint.clone(),
            Self::NoDaemon(_) => START,
            Self::UnsafeSocket(directory, _) => {
                let directory = directory.display();
                return Some(format!("{START_SERVICE}; or remove {directory}, as root"));
            }
            Self::TimedOut { .. } => "wait longer: --request-timeout 30",
            Self::NothingPolled => "try again in a moment, or wait longer: --request-timeout 30",
            Self::Vendor(_) => "see gpukillctl status",
            Self::NoSuchProcess(_) => {
                "see who does: gpukillctl list --details, or gpukillctl holders"
            }
            Self::NoSuchDevice(NoSuchDevice::Ambiguous { .. }) => "type more of it",
            Self::Usage(_)
            | Self::Settings { .. }
            | Self::SettingsFile(..)
            | Self::NoSuchDevice(NoSuchDevice::Unknown { .. } | NoSuchDevice::Backwards { .. })
            | Self::NoMatch(_)
            | Self::System(_)
            | Self::Output(_)
            | Self::ReaderGone => return None,
        };
        Some(hint.to_owned())
    }
}

fn exit_of(refusal: &Refusal) -> Exit {
    match refusal {
        Refusal::Denied { .. } => Exit::NotPermitted,
        Refusal::Invalid(_) => Exit::BadUsage,
        Refusal::NoMatch(_) => Exit::NoMatch,
        Refusal::Busy => Exit::Unreachable,
        Refusal::Unavailable(_) | Refusal::TooSlow(_) | Refusal::Expired | Refusal::Internal => {
            Exit::Failed
        }
    }
}

/// Where the box's daemon does not run, and one's own could be another's.
const START_SERVICE: &str = "see why: systemctl status gpukilld";

/// Where no daemon runs.
const START: &str = "see why: systemctl status gpukilld; or run one for yourself: gpukilld --user";

fn connect_hint(socket: &Path, error: &ConnectError, runs: Runs) -> Option<String> {
    match error {
        ConnectError::NoDaemon => Some(START.into()),
        ConnectError::NotPermitted => {
            Some(format!("see who may open it: ls -l {}", socket.display()))
        }
        ConnectError::Busy => Some("try again, or wait longer: --request-timeout 30".into()),
        ConnectError::Version(daemon) if *daemon < PROTOCOL_VERSION => {
            Some(versions::renew_daemon(runs).into())
        }
        ConnectError::Version(_) | ConnectError::TurnedAway(_) => {
            Some(versions::RENEW_CLIENT.into())
        }
        ConnectError::NotGpukilld | ConnectError::Io(_) => {
            Some("is it the right socket? name another with --socket PATH".into())
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what)
            | Self::NoSuchProcess(what)
            | Self::NoMatch(what)
            | Self::NotDone { what, .. }
            | Self::Vendor(what) => f.write_str(what),
            Self::Settings { file, mistakes } => write_mistakes(f, file.as_deref(), mistakes),
            Self::SettingsFile(path, error) => {
                let (path, why) = (path.display(), unreadable(error));
                write!(f, "cannot read the settings {path}: {why}")
            }
            Self::UnsafeSocket(path, why) => {
                let path = path.display();
                write!(
                    f,
                    "no gpukilld at {DEFAULT_SOCKET}, and none is believed in {path}: {why}"
                )
            }
            Self::NoDaemon([of_the_box, own]) => {
                let (of_the_box, own) = (of_the_box.display(), own.display());
                write!(f, "no gpukilld at {of_the_box} or {own}")
            }
            Self::Connect(socket, error) => {
                let socket = socket.display();
                match error {
                    ConnectError::NoDaemon => write!(f, "no gpukilld at {socket}"),
                    ConnectError::NotPermitted => write!(f, "cannot open {socket}: not permitted"),
                    ConnectError::Busy => write!(f, "gpukilld at {socket} is busy"),
                    ConnectError::Version(daemon) => {
                        f.write_str(&versions::of_wires(*daemon, PROTOCOL_VERSION))
                    }
                    ConnectError::TurnedAway(_) => write!(f, "{error}"),
                    ConnectError::NotGpukilld => {
                        write!(f, "what answers at {socket} is no gpukilld")
                    }
                    // The one thing that can be wrong with a path is its length.
                    ConnectError::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        write!(
                            f,
                            "cannot connect to {socket}: a socket's path has at most 107 bytes"
                        )
                    }
                    ConnectError::Io(error) => write!(f, "cannot connect to {socket}: {error}"),
                }
            }
            Self::TimedOut { seconds } => write!(f, "gpukilld did not answer within {seconds} s"),
            Self::NothingPolled => f.write_str("gpukilld has just started and has no reading yet"),
            Self::Broken(how) => write!(f, "gpukilld ended the connection: {how}"),
            Self::OlderDaemon(daemon) => {
                let older = versions::of_wires(*daemon, PROTOCOL_VERSION);
                write!(f, "{older}, and it hung up: it may not know what was asked")
            }
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::NoSuchDevice(error) => write!(f, "{error}"),
            Self::System(error) => write!(f, "cannot run: {error}"),
            Self::Output(error) => write!(f, "cannot write the output: {error}"),
            Self::ReaderGone => f.write_str("the reader of the output is gone"),
        }
    }
}

/// Why a file cannot be read, where the library's words say little.
pub(crate) fn unreadable(error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file",
        io::ErrorKind::PermissionDenied => "you may not read it",
        io::ErrorKind::IsADirectory => "it is a directory",
        io::ErrorKind::InvalidData => "it is not UTF-8",
        io::ErrorKind::FileTooLarge => "it is longer than a settings file can be",
        // The kinds of the library, of which more may come.
        _ => return error.to_string(),
    };
    why.to_owned()
}

fn write_mistakes(
    f: &mut fmt::Formatter<'_>,
    file: Option<&Path>,
    mistakes: &[Mistake],
) -> fmt::Result {
    let ending = if mistakes.len() == 1 { "" } else { "s" };
    write!(f, "{} mistake{ending} in the settings", mistakes.len())?;
    for mistake in mistakes {
        match (file, mistake.line) {
            (Some(file), Some(_)) => write!(f, "\n  {}, {mistake}", file.display())?,
            _ => write!(f, "\n  {mistake}")?,
        }
    }
    Ok(())
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NoSuchDevice> for Failure {
    fn from(error: NoSuchDevice) -> Self {
        Self::NoSuchDevice(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Output(error),
        }
    }
}

#[cfg(test)]
mod tests;
