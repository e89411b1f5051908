//! Exit codes, errors, and the one mapping from errors to exit codes.

mod command_codes;

use crate::versions;
use gpukill_policy::kill::outcome::KillCompletion;
use gpukill_policy::select::DeviceSelectorError;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::settings::SettingMistake;
use gpukill_proto::transport::ConnectError;
use gpukill_proto::{DEFAULT_SOCKET, PROTOCOL_VERSION, ProtocolVersion};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use command_codes::command_exit_codes;

/// The exit codes. Scripts rely on the numbers. A new code also needs an entry in
/// [`command_exit_codes`] for the commands that return it.
///
/// The enum derives `ValueEnum` only so that the manual can list every code with the words
/// below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[repr(u8)]
pub enum Exit {
    /// The request is done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// A vendor library or driver failed, so what was asked cannot be answered.
    VendorFailed = 2,
    /// The arguments or the settings are wrong, or a named GPU does not exist.
    BadUsage = 3,
    /// The caller may not do this.
    NotPermitted = 4,
    /// This host cannot do this.
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

impl From<KillCompletion> for Exit {
    fn from(success: KillCompletion) -> Self {
        match success {
            KillCompletion::All => Self::Done,
            KillCompletion::Partial => Self::PartlyDone,
            KillCompletion::Refused => Self::NotPermitted,
            KillCompletion::NothingToEnd => Self::NoMatch,
            KillCompletion::Failed => Self::Failed,
        }
    }
}

/// Who started the daemon, as far as its socket shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonKind {
    /// The service manager: the socket is the host's.
    Service,
    /// A person: the socket is their own.
    Manual,
}

impl DaemonKind {
    pub(crate) fn from_socket(socket: &Path) -> Self {
        if socket == Path::new(DEFAULT_SOCKET) {
            Self::Service
        } else {
            Self::Manual
        }
    }
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// An argument that is wrong only by its meaning.
    #[error("{0}")]
    Usage(String),
    /// All mistakes in the settings.
    #[error("{}", list_mistakes(.file.as_deref(), .mistakes))]
    Settings {
        /// The file that was read, if any.
        file: Option<PathBuf>,
        /// Mistakes with a line are in the file, the others in the environment.
        mistakes: Vec<SettingMistake>,
    },
    /// The settings file cannot be read.
    #[error("cannot read the settings {}: {}", .0.display(), read_error_reason(.1))]
    SettingsFile(PathBuf, io::Error),
    /// The host has no socket, and another user could answer at the user's own: its directory,
    /// and why.
    #[error("no gpukilld at {DEFAULT_SOCKET}, and {0} is not trusted: {1}")]
    UnsafeSocket(PathBuf, &'static str),
    /// There is no socket at the usual paths: the host's and the user's own.
    #[error("no gpukilld at {} or {}", .0[0].display(), .0[1].display())]
    NoDaemon([PathBuf; 2]),
    /// The connection to the daemon failed.
    #[error("{}", connect_failure(.0, .1))]
    Connect(PathBuf, ConnectError),
    /// The daemon did not answer in time.
    #[error("gpukilld did not answer within {seconds} s")]
    TimedOut {
        /// The request timeout, in seconds.
        seconds: u64,
    },
    /// The daemon has not finished its first poll.
    #[error("gpukilld has just started and has no reading yet")]
    NothingPolled,
    /// The connection broke before the answer.
    #[error("gpukilld ended the connection: {0}")]
    ConnectionLost(String),
    /// The connection broke, and the daemon speaks this older protocol: it may not know the
    /// call.
    #[error(
        "{}, and it hung up: it may not know the request",
        versions::protocol_mismatch(*.0, PROTOCOL_VERSION)
    )]
    OlderDaemon(ProtocolVersion),
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A selector matches no device, or several.
    #[error(transparent)]
    NoSuchDevice(#[from] DeviceSelectorError),
    /// The daemon does not know the process.
    #[error("{0}")]
    NoSuchProcess(String),
    /// A filter matches nothing.
    #[error("{0}")]
    NoMatch(String),
    /// A vendor's library or driver failed, so there is no answer.
    #[error("{0}")]
    Vendor(String),
    /// The request is not done, or not known to be done.
    #[error("{what}")]
    NotDone {
        /// The result instead.
        what: String,
        /// A hint for the person, if any.
        hint: Option<String>,
        exit: Exit,
    },
    /// The kernel refuses something that every run needs.
    #[error("cannot run: {}", system_error_reason(.0))]
    System(io::Error),
    /// The output could not be written.
    #[error("cannot write the output: {}", system_error_reason(.0))]
    Output(io::Error),
    /// The reader of the output is gone.
    #[error("the reader of the output is gone")]
    ReaderGone,
}

impl Error {
    pub(crate) fn exit_code(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Settings { .. } | Self::SettingsFile(..) => Exit::BadUsage,
            Self::Connect(_, ConnectError::NotPermitted) => Exit::NotPermitted,
            Self::Connect(
                _,
                ConnectError::NoDaemon
                | ConnectError::Busy
                | ConnectError::Version(_)
                | ConnectError::Refused(_)
                | ConnectError::NotGpukilld
                | ConnectError::Io(_),
            )
            | Self::NoDaemon(_)
            | Self::UnsafeSocket(..)
            | Self::TimedOut { .. }
            | Self::NothingPolled
            | Self::ConnectionLost(_)
            | Self::OlderDaemon(_) => Exit::Unreachable,
            Self::Refused(refusal) => refusal_exit_code(refusal),
            Self::NoSuchDevice(
                DeviceSelectorError::Unknown { .. }
                | DeviceSelectorError::Ambiguous { .. }
                | DeviceSelectorError::ReversedRange { .. },
            ) => Exit::BadUsage,
            Self::NoSuchDevice(DeviceSelectorError::Unmatched { .. })
            | Self::NoSuchProcess(_)
            | Self::NoMatch(_) => Exit::NoMatch,
            Self::Vendor(_) => Exit::VendorFailed,
            Self::NotDone { exit, .. } => *exit,
            Self::System(_) | Self::Output(_) => Exit::Failed,
            Self::ReaderGone => Exit::Done,
        }
    }

    /// A hint for the person, if any.
    pub(crate) fn hint(&self, runs: DaemonKind) -> Option<String> {
        let hint = match self {
            Self::Connect(socket, error) => return connect_hint(socket, error, runs),
            Self::Refused(Refusal::Internal) | Self::ConnectionLost(_) => match runs {
                DaemonKind::Service => "see its messages: systemctl status gpukilld",
                DaemonKind::Manual => "see its messages where it runs",
            },
            Self::OlderDaemon(_) => versions::upgrade_daemon(runs),
            Self::Refused(refusal) => return refusal.hint(),
            Self::NotDone { hint, .. } => return hint.clone(),
            Self::NoDaemon(_) => START_HINT,
            Self::UnsafeSocket(directory, _) => {
                let directory = directory.display();
                return Some(format!("{SERVICE_HINT}; or remove {directory}, as root"));
            }
            Self::TimedOut { .. } => "wait longer: --request-timeout 30",
            Self::NothingPolled => "try again in a moment, or wait longer: --request-timeout 30",
            Self::Vendor(_) => "see gpukillctl status",
            Self::NoSuchProcess(_) => {
                "processes on GPUs now: gpukillctl list --details; earlier ones: gpukillctl audit"
            }
            Self::NoSuchDevice(DeviceSelectorError::Ambiguous { .. }) => "type more of it",
            Self::Usage(_)
            | Self::Settings { .. }
            | Self::SettingsFile(..)
            | Self::NoSuchDevice(
                DeviceSelectorError::Unknown { .. }
                | DeviceSelectorError::Unmatched { .. }
                | DeviceSelectorError::ReversedRange { .. },
            )
            | Self::NoMatch(_)
            | Self::System(_)
            | Self::Output(_)
            | Self::ReaderGone => return None,
        };
        Some(hint.to_owned())
    }
}

fn refusal_exit_code(refusal: &Refusal) -> Exit {
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

/// When the host's daemon does not run and the user's own is not trusted.
const SERVICE_HINT: &str = "see why: systemctl status gpukilld";

/// When no daemon runs.
const START_HINT: &str =
    "see why: systemctl status gpukilld; or run one for yourself: gpukilld --user";

fn connect_hint(socket: &Path, error: &ConnectError, runs: DaemonKind) -> Option<String> {
    match error {
        ConnectError::NoDaemon => Some(START_HINT.into()),
        // Each directory above it matters too: one of mode 0700 hides the socket.
        ConnectError::NotPermitted => Some(format!(
            "see who may open it, and each directory above it: namei -l {}",
            socket.display()
        )),
        ConnectError::Busy => Some("try again, or wait longer: --request-timeout 30".into()),
        ConnectError::Version(daemon) if *daemon < PROTOCOL_VERSION => {
            Some(versions::upgrade_daemon(runs).into())
        }
        ConnectError::Version(_) | ConnectError::Refused(_) => {
            Some(versions::UPGRADE_CLIENT.into())
        }
        ConnectError::NotGpukilld | ConnectError::Io(_) => {
            Some("is it the right socket? name another with --socket PATH".into())
        }
    }
}

fn connect_failure(socket: &Path, error: &ConnectError) -> String {
    let socket = socket.display();
    match error {
        ConnectError::NoDaemon => format!("no gpukilld at {socket}"),
        ConnectError::NotPermitted => format!("cannot open {socket}: permission denied"),
        ConnectError::Busy => format!("gpukilld at {socket} is busy"),
        ConnectError::Version(daemon) => versions::protocol_mismatch(*daemon, PROTOCOL_VERSION),
        ConnectError::Refused(_) => error.to_string(),
        ConnectError::NotGpukilld => format!("the program at {socket} is not gpukilld"),
        // The only invalid property of a path is its length.
        ConnectError::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
            format!("cannot connect to {socket}: a socket's path has at most 107 bytes")
        }
        ConnectError::Io(error) => {
            let why = system_error_reason(error);
            format!("cannot connect to {socket}: {why}")
        }
    }
}

/// Why a file cannot be read, where the standard library's message says little.
pub(crate) fn read_error_reason(error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file",
        io::ErrorKind::IsADirectory => "it is a directory",
        io::ErrorKind::InvalidData => "it is not UTF-8",
        io::ErrorKind::FileTooLarge => "it is longer than a settings file can be",
        // Other kinds, to which the library may add.
        _ => return system_error_reason(error),
    };
    why.to_owned()
}

/// The reason of a system error as a part of a message: in lower case, and without the number
/// that the standard library appends.
pub(crate) fn system_error_reason(error: &io::Error) -> String {
    let mut why = error.to_string();
    if error.raw_os_error().is_some()
        && let Some(end) = why.rfind(" (os error ")
    {
        why.truncate(end);
        if let Some(first) = why.get_mut(..1) {
            first.make_ascii_lowercase();
        }
    }
    why
}

fn list_mistakes(file: Option<&Path>, mistakes: &[SettingMistake]) -> String {
    let ending = if mistakes.len() == 1 { "" } else { "s" };
    let mut text = format!("{} mistake{ending} in the settings", mistakes.len());
    for mistake in mistakes {
        text += &match (file, mistake.line) {
            (Some(file), Some(_)) => format!("\n  {}, {mistake}", file.display()),
            _ => format!("\n  {mistake}"),
        };
    }
    text
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Output(error),
        }
    }
}

#[cfg(test)]
mod tests;
