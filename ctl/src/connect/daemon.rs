//! A connection to the daemon, and the one way to make a call over it.

use super::timeout::{Backoff, PauseResult, RequestTimeout};
use super::wait_hooks::{WaitHooks, WaitResult, wait};
use crate::exit::{Error, system_error_reason};
use crate::output::message::Messages;
use crate::output::spinner::Spinner;
use gpukill_proto::guard::GuardSummary;
use gpukill_proto::model::{ProcessKey, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::VerdictSummary;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_proto::transport::{ConnectError, Connection, WaitFn, open_socket};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Instant;

/// A whole snapshot with the guard's and the rogue watch's verdicts on its processes.
#[derive(Debug)]
pub(crate) struct AnnotatedSnapshot {
    /// The devices and the processes that use them.
    pub snapshot: Snapshot,
    /// The processes that break rules.
    pub guard: GuardSummary,
    /// The suspicious processes, the worst first.
    pub suspected: Vec<(ProcessKey, VerdictSummary)>,
}

/// Whether a change is made or only planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Report what the change would do.
    DryRun,
    /// Make the change.
    Apply,
}

impl Mode {
    pub(crate) const fn from_dry_run(is_dry_run: bool) -> Self {
        match is_dry_run {
            true => Self::DryRun,
            false => Self::Apply,
        }
    }
}

pub(crate) struct Daemon {
    connection: RefCell<Connection>,
    messages: Messages,
}

/// Makes one call of the service and returns the answer: `call!(daemon, timeout, Explain { pid })`.
/// Hooks for the time of waiting stand before the request; without any, a long wait is shown.
macro_rules! call {
    ($daemon:expr, $timeout:expr, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $crate::connect::call!(
            $daemon,
            $timeout,
            &mut $daemon.wait_line(),
            $name { $($field $(: $value)?),* }
        )
    };
    ($daemon:expr, $timeout:expr, $hooks:expr, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $daemon.call(
            $timeout,
            $hooks,
            &gpukill_proto::service::GpukillRequest::$name { $($field $(: $value)?),* },
            |response| match response {
                gpukill_proto::service::GpukillResponse::$name(answer) => Some(answer),
                _ => None,
            },
        )
    };
}
pub(crate) use call;

impl Daemon {
    /// Connects, and tries again while the daemon is busy.
    pub(crate) fn connect(
        socket: &Path,
        timeout: RequestTimeout,
        messages: Messages,
        hooks: &mut dyn WaitHooks,
    ) -> Result<Self, Error> {
        messages.debug(|| format!("connecting to {}", socket.display()));
        let busy = || Error::Connect(socket.to_owned(), ConnectError::Busy);
        let mut was_busy = false;
        let mut backoff = Backoff::new();
        loop {
            let attempt = match try_connect(socket, timeout, hooks) {
                // The time ended during a repeated attempt: the daemon answered before.
                Err(Error::TimedOut { .. }) if was_busy => return Err(busy()),
                attempt => attempt?,
            };
            match attempt {
                Ok(connection) => {
                    return Ok(Self {
                        connection: RefCell::new(connection),
                        messages,
                    });
                }
                Err(ConnectError::Busy) => match backoff.pause(timeout, hooks)? {
                    PauseResult::Elapsed(length) => {
                        was_busy = true;
                        messages.debug(|| format!("busy: tried again after {length:.0?}"));
                    }
                    PauseResult::OutOfTime => return Err(busy()),
                },
                Err(error) => return Err(Error::Connect(socket.to_owned(), error)),
            }
        }
    }

    /// The line for calls without hooks.
    pub(crate) fn wait_line(&self) -> Option<Spinner> {
        Spinner::waiting_for_daemon(self.messages)
    }

    /// Makes one call, and repeats it while the daemon is busy. [`call!`] names the call and its
    /// answer only once.
    pub(crate) fn call<T>(
        &self,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
        request: &GpukillRequest,
        extract: fn(GpukillResponse) -> Option<Result<T, Refusal>>,
    ) -> Result<T, Error> {
        let mut answer = None;
        // Everything that is the same for all calls is compiled once.
        self.call_until_accepted(timeout, hooks, request, &mut |response| {
            answer = extract(response).transpose()?;
            Ok(())
        })?;
        answer
            .ok_or_else(|| Error::ConnectionLost("the response belongs to another request".into()))
    }

    fn call_until_accepted(
        &self,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
        request: &GpukillRequest,
        accept: &mut dyn FnMut(GpukillResponse) -> Result<(), Refusal>,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::new();
        loop {
            match accept(self.exchange(timeout, hooks, request)?) {
                Ok(()) => return Ok(()),
                Err(Refusal::Busy) => match backoff.pause(timeout, hooks)? {
                    PauseResult::Elapsed(length) => self
                        .messages
                        .debug(|| format!("busy: asking again after {length:.0?}")),
                    PauseResult::OutOfTime => return Err(Refusal::Busy.into()),
                },
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }

    fn exchange(
        &self,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
        request: &GpukillRequest,
    ) -> Result<GpukillResponse, Error> {
        let until = timeout.call_deadline();
        let deadline = until.saturating_duration_since(Instant::now());
        let mut connection = self.connection.borrow_mut();
        let answer = run_with_deadline(until, hooks, |wait| {
            connection.call(request, deadline, wait)
        })?;
        answer.map_err(|error| {
            let failure = connection_error(&error, timeout);
            explain_older_daemon(failure, connection.daemon_version(), PROTOCOL_VERSION)
        })
    }

    /// Requests pages from position `next` on until there are no more. `request_page` makes the
    /// call, keeps the page and returns the position of the next one.
    pub(crate) fn collect_pages(
        &self,
        what: &str,
        mut next: Option<u32>,
        request_page: &mut dyn FnMut(u32) -> Result<Option<u32>, Error>,
    ) -> Result<(), Error> {
        while let Some(start) = next {
            if start > 0 {
                self.messages
                    .debug(|| format!("asking for the {what} from {start} on"));
            }
            next = request_page(start)?;
            if next.is_some_and(|next| next <= start) {
                return Err(Error::ConnectionLost("its pages do not advance".into()));
            }
        }
        Ok(())
    }

    /// A whole snapshot: the newest, or with `after` the first that is newer.
    pub(crate) fn snapshot(
        &self,
        after: Option<u64>,
        timeout: RequestTimeout,
    ) -> Result<AnnotatedSnapshot, Error> {
        self.snapshot_with_hooks(after, timeout, &mut self.wait_line())
    }

    /// A whole snapshot, with hooks for the time of waiting.
    pub(crate) fn snapshot_with_hooks(
        &self,
        after: Option<u64>,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<AnnotatedSnapshot, Error> {
        // Between two pages the daemon may poll and drop the snapshot. Five times in a row mean
        // that it polls faster than it answers.
        for _ in 0..5 {
            let first = call!(self, timeout, hooks, Snapshot { after })?;
            match self.complete_snapshot(first, timeout, hooks) {
                Err(Error::Refused(Refusal::Expired)) => self
                    .messages
                    .debug(|| "the snapshot changed between two pages: asking again".into()),
                result => return result,
            }
        }
        Err(Refusal::Expired.into())
    }

    /// Adds the other pages of a snapshot to the first one.
    ///
    /// # Errors
    /// [`Refusal::Expired`] if the daemon dropped the snapshot between two pages.
    fn complete_snapshot(
        &self,
        first: SnapshotPage,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<AnnotatedSnapshot, Error> {
        // The first page has the guard's summary and the verdicts for the whole snapshot.
        let SnapshotPage {
            mut snapshot,
            next,
            guard,
            verdicts: suspected,
        } = first;
        let polls = snapshot.polls;
        self.collect_pages("processes", next, &mut |start| {
            let page = call!(self, timeout, hooks, MoreProcesses { polls, start })?;
            if page.snapshot.polls != polls {
                return Err(Refusal::Expired.into());
            }
            snapshot.processes.extend(page.snapshot.processes);
            Ok(page.next)
        })?;
        Ok(AnnotatedSnapshot {
            snapshot,
            guard,
            suspected,
        })
    }
}

/// Tries once to connect.
fn try_connect(
    socket: &Path,
    timeout: RequestTimeout,
    hooks: &mut dyn WaitHooks,
) -> Result<Result<Connection, ConnectError>, Error> {
    let until = timeout.deadline();
    let timed_out = || Error::TimedOut {
        seconds: timeout.seconds(),
    };
    let stream = loop {
        let left = until.saturating_duration_since(Instant::now());
        match open_socket(socket, left) {
            Ok(stream) => break stream,
            // A signal arrived.
            Err(ConnectError::Io(error)) if error.kind() == ErrorKind::Interrupted => {
                hooks.on_wake()?;
            }
            Err(ConnectError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                return Err(timed_out());
            }
            Err(error) => return Ok(Err(error)),
        }
    };
    match run_with_deadline(until, hooks, |wait| Connection::handshake(stream, wait))? {
        Err(ConnectError::Io(error)) if error.kind() == ErrorKind::TimedOut => Err(timed_out()),
        entered => Ok(entered),
    }
}

/// Runs an exchange over a stream. Returns the error of a hook that ended the wait; the
/// exchange itself gets `TimedOut` when the time is over.
fn run_with_deadline<T>(
    until: Instant,
    hooks: &mut dyn WaitHooks,
    exchange: impl FnOnce(WaitFn<'_>) -> T,
) -> Result<T, Error> {
    let mut ended = None;
    let done = exchange(
        &mut |stream, ready| match wait(Some((stream, ready)), until, hooks) {
            Ok(WaitResult::Ready) => Ok(()),
            Ok(WaitResult::TimedOut) => Err(ErrorKind::TimedOut.into()),
            Err(failure) => {
                ended = Some(failure);
                Err(ErrorKind::Interrupted.into())
            }
        },
    );
    ended.map_or(Ok(done), Err)
}

/// A daemon of an older minor version hangs up on a call that it does not know.
fn explain_older_daemon(failure: Error, daemon: ProtocolVersion, ours: ProtocolVersion) -> Error {
    match failure {
        Error::ConnectionLost(_) if daemon < ours => Error::OlderDaemon(daemon),
        other => other,
    }
}

fn connection_error(error: &io::Error, timeout: RequestTimeout) -> Error {
    match error.kind() {
        ErrorKind::TimedOut => Error::TimedOut {
            seconds: timeout.seconds(),
        },
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            Error::ConnectionLost("it went away".into())
        }
        _ => Error::ConnectionLost(system_error_reason(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    #[test]
    fn busy_daemon_is_reported_when_the_last_attempt_times_out() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gpukilld.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            let busy = Preface::new(PrefaceStatus::Busy, 0);
            first.write_all(&busy.encode()).unwrap();
            // The later connections stay in the backlog without an answer.
            let (_second, _) = listener.accept().unwrap();
            std::thread::park();
        });
        let timeout = RequestTimeout::starting_now(Duration::from_secs(1));
        let messages = Settings::default().messages();
        let connected = Daemon::connect(&socket, timeout, messages, &mut None::<Spinner>);
        let expected = Error::Connect(socket, ConnectError::Busy).to_string();
        let error = connected.err().map(|error| error.to_string());
        assert_eq!(error, Some(expected));
    }

    #[test]
    fn hang_up_of_an_older_daemon_is_explained() {
        let version = |minor| ProtocolVersion { major: 1, minor };
        let explain = |failure, daemon| explain_older_daemon(failure, version(daemon), version(2));
        let broken = || Error::ConnectionLost("it went away".into());
        let explained = explain(broken(), 1);
        assert!(matches!(explained, Error::OlderDaemon(older) if older == version(1)));
        assert!(matches!(explain(broken(), 2), Error::ConnectionLost(_)));
        assert!(matches!(explain(broken(), 3), Error::ConnectionLost(_)));
        let refused = Error::Refused(Refusal::Internal);
        assert!(matches!(explain(refused, 1), Error::Refused(_)));
    }
}
