//! One connection to gpukilld, and the one way to make a call over it. It blocks, so it belongs to
//! a thread of its own.

use crate::memory::MAX_ROWS;
use crate::problem::{Problem, exit_code};
use axum::http::StatusCode;
use gpukill_proto::guard::GuardSummary;
use gpukill_proto::model::{ProcessKey, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::VerdictSummary;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_proto::transport::{ConnectError, Connection, MAX_DEADLINE, Readiness, open_socket};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// There is no connection.
    #[error("{}", connect_message(.0))]
    Connect(ConnectError),
    /// The daemon did not answer within this many seconds.
    #[error("gpukilld has not answered within {0} s")]
    TimedOut(u64),
    /// The connection broke; says how.
    #[error("the connection to gpukilld was lost: {0}")]
    Lost(String),
    /// The daemon is older than the call.
    #[error("gpukilld speaks protocol {0} and does not know this call")]
    OlderDaemon(ProtocolVersion),
    /// The daemon refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An answer of several pages has more rows than a daemon may have.
    #[error(
        "the answer of gpukilld has more than {} rows, which the gateway does not hold",
        MAX_ROWS
    )]
    TooManyRows,
    /// This user has more rights in the daemon than the gateway may have.
    #[error(
        "the user {0} has more rights in gpukilld than every user, and this gateway would show \
         everybody what {0} may see: start it as another user, as gpukill-gateway.service does, or \
         run gpukillctl web for a gateway of your own"
    )]
    TooManyRights(String),
}

fn connect_message(error: &ConnectError) -> String {
    match error {
        ConnectError::NoDaemon => "gpukilld is not running".into(),
        ConnectError::NotPermitted => {
            "the socket of gpukilld cannot be opened: permission denied".into()
        }
        ConnectError::Busy => "gpukilld is busy".into(),
        ConnectError::Version(daemon) => {
            format!("gpukilld speaks protocol {daemon}, this gateway {PROTOCOL_VERSION}")
        }
        ConnectError::Refused(_) | ConnectError::NotGpukilld => error.to_string(),
        ConnectError::Io(error) => format!("cannot connect to gpukilld: {error}"),
    }
}

impl CallError {
    /// What can be done about it.
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Connect(ConnectError::NoDaemon) | Self::Lost(_) => {
                "see why: systemctl status gpukilld"
            }
            Self::Connect(ConnectError::Version(_) | ConnectError::Refused(_))
            | Self::OlderDaemon(_) => {
                "install the same version of both, and restart gpukilld and gpukill-gateway"
            }
            Self::Connect(ConnectError::Busy) | Self::TimedOut(_) => "try again",
            Self::Connect(
                ConnectError::NotPermitted | ConnectError::NotGpukilld | ConnectError::Io(_),
            ) => "is daemon.socket in gateway.toml the right socket?",
            Self::Refused(refusal) => return refusal.hint(),
            Self::TooManyRows | Self::TooManyRights(_) => return None,
        };
        Some(hint.into())
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let (status, retry_after) = match &error {
            CallError::Refused(refusal) => return refusal.clone().into(),
            CallError::TimedOut(_) => (StatusCode::GATEWAY_TIMEOUT, None),
            CallError::OlderDaemon(_) => (StatusCode::NOT_IMPLEMENTED, None),
            CallError::Connect(_)
            | CallError::Lost(_)
            | CallError::TooManyRows
            | CallError::TooManyRights(_) => (StatusCode::SERVICE_UNAVAILABLE, Some(2)),
        };
        let mut problem =
            Self::new(status, error.to_string()).with_exit_code(exit_code::UNREACHABLE);
        if let Some(hint) = error.hint() {
            problem = problem.with_hint(hint);
        }
        match retry_after {
            Some(seconds) => problem.with_retry_after(seconds),
            None => problem,
        }
    }
}

/// A whole snapshot with the guard's and the rogue watch's verdicts on its processes.
#[derive(Debug)]
pub(crate) struct AnnotatedSnapshot {
    /// The devices and the processes that use them.
    pub(crate) snapshot: Snapshot,
    /// The processes that break rules.
    pub(crate) guard: GuardSummary,
    /// The suspicious processes, the worst first.
    pub(crate) verdicts: Vec<(ProcessKey, VerdictSummary)>,
}

/// A connection with the time by which its calls must be answered.
#[derive(Debug)]
pub(crate) struct DaemonConnection {
    connection: Connection,
    timeout: Duration,
    until: Instant,
}

/// Makes one call of the service and returns the answer: `call!(daemon, Explain { pid })`.
macro_rules! call {
    ($daemon:expr, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $daemon.call(
            &gpukill_proto::service::GpukillRequest::$name { $($field $(: $value)?),* },
            |response| match response {
                gpukill_proto::service::GpukillResponse::$name(answer) => Some(answer),
                _ => None,
            },
        )
    };
}
pub(crate) use call;

impl DaemonConnection {
    /// Connects. All calls must be answered within `timeout` from now.
    ///
    /// # Errors
    /// There is no connection within that time.
    pub(crate) fn open(socket: &Path, timeout: Duration) -> Result<Self, CallError> {
        let until = Instant::now() + timeout;
        let failed = |error| match error {
            ConnectError::Io(error) if is_timeout(&error) => CallError::TimedOut(timeout.as_secs()),
            other => CallError::Connect(other),
        };
        let stream = open_socket(socket, timeout).map_err(failed)?;
        let connection =
            Connection::handshake(stream, &mut |stream: &UnixStream, ready: Readiness| {
                wait(stream, ready, until)
            });
        Ok(Self {
            connection: connection.map_err(failed)?,
            timeout,
            until,
        })
    }

    /// The following calls must be answered within `timeout` from now.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.until = Instant::now() + timeout;
    }

    /// Makes one call. [`call!`] names the call and its answer only once.
    ///
    /// # Errors
    /// One of [`CallError`]. After an error other than a refusal, every further call fails.
    pub(crate) fn call<T>(
        &mut self,
        request: &GpukillRequest,
        extract: fn(GpukillResponse) -> Option<Result<T, Refusal>>,
    ) -> Result<T, CallError> {
        let until = self.until;
        let left = until.saturating_duration_since(Instant::now());
        let answer = self.connection.call(
            request,
            left.min(MAX_DEADLINE),
            &mut |stream: &UnixStream, ready: Readiness| wait(stream, ready, until),
        );
        let response = answer.map_err(|error| self.call_error(&error))?;
        match extract(response) {
            Some(answer) => Ok(answer?),
            None => Err(CallError::Lost(
                "the response belongs to another request".into(),
            )),
        }
    }

    fn call_error(&self, error: &io::Error) -> CallError {
        let daemon = self.connection.daemon_version();
        match error.kind() {
            ErrorKind::TimedOut => CallError::TimedOut(self.timeout.as_secs()),
            // A daemon of an older minor version hangs up on a call that it does not know.
            ErrorKind::UnexpectedEof if daemon < PROTOCOL_VERSION => CallError::OlderDaemon(daemon),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                CallError::Lost("it closed the connection".into())
            }
            _ => CallError::Lost(error.to_string()),
        }
    }

    /// A whole snapshot: the newest, or with `after` the first with more polls.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(crate) fn snapshot(&mut self, after: Option<u64>) -> Result<AnnotatedSnapshot, CallError> {
        // Between two pages the daemon may poll and drop the snapshot. Five times in a row mean
        // that it polls faster than it answers.
        for _ in 0..5 {
            let first = call!(self, Snapshot { after })?;
            match self.complete_snapshot(first) {
                Err(CallError::Refused(Refusal::Expired)) => {}
                result => return result,
            }
        }
        Err(Refusal::Expired.into())
    }

    /// Adds the other pages of a snapshot to the first one, which has the guard's summary and the
    /// verdicts for the whole snapshot.
    fn complete_snapshot(&mut self, first: SnapshotPage) -> Result<AnnotatedSnapshot, CallError> {
        let SnapshotPage {
            mut snapshot,
            mut next,
            guard,
            verdicts,
        } = first;
        let polls = snapshot.polls;
        while let Some(start) = next {
            let page = call!(self, MoreProcesses { polls, start })?;
            if page.snapshot.polls != polls {
                return Err(Refusal::Expired.into());
            }
            snapshot.processes.extend(page.snapshot.processes);
            check_rows(snapshot.processes.len())?;
            next = page.next;
            if next.is_some_and(|next| next <= start) {
                return Err(CallError::Lost("its pages do not advance".into()));
            }
        }
        Ok(AnnotatedSnapshot {
            snapshot,
            guard,
            verdicts,
        })
    }
}

/// Checks the number of rows so far of an answer of several pages, which a daemon may send for ever.
///
/// # Errors
/// There are more than a daemon may have.
pub(crate) fn check_rows(rows: usize) -> Result<(), CallError> {
    match rows > MAX_ROWS {
        true => Err(CallError::TooManyRows),
        false => Ok(()),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    // A connection that the kernel does not admit in time fails with `WouldBlock`.
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// Waits until the stream is ready.
///
/// # Errors
/// `TimedOut` after `until`, or the kernel's error.
fn wait(stream: &UnixStream, readiness: Readiness, until: Instant) -> io::Result<()> {
    let flags = match readiness {
        Readiness::Readable => PollFlags::IN,
        Readiness::Writable => PollFlags::OUT,
    };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let longest = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(stream, flags)], longest.as_ref()) {
            Ok(0) if left.is_zero() => return Err(ErrorKind::TimedOut.into()),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    #[test]
    fn daemon_of_another_version_and_missing_daemon_are_explained() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gpukilld.sock");
        let short = Duration::from_secs(20);
        let missing = DaemonConnection::open(&socket, short).unwrap_err();
        assert_eq!(missing.to_string(), "gpukilld is not running");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut preface = Preface::new(PrefaceStatus::Welcome, 0);
            preface.version.major = 9;
            stream.write_all(&preface.encode()).unwrap();
        });
        let error = DaemonConnection::open(&socket, short).unwrap_err();
        server.join().unwrap();
        assert_eq!(
            error.to_string(),
            format!("gpukilld speaks protocol 9.0, this gateway {PROTOCOL_VERSION}")
        );
        assert!(error.hint().unwrap().contains("same version"));
    }

    #[test]
    fn rows_of_an_answer_are_limited() {
        assert!(check_rows(MAX_ROWS).is_ok());
        let error = check_rows(MAX_ROWS + 1).unwrap_err();
        assert!(error.to_string().contains("more than 20000 rows"));
        assert_eq!(
            Problem::from(error).status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
    }

    #[test]
    fn silent_daemon_times_out() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gpukilld.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let error = DaemonConnection::open(&socket, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, CallError::TimedOut(_)), "{error}");
    }
}
