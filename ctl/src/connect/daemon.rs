//! A connection to the daemon, and the calls that only read.

use super::timeout::{Backoff, PauseResult, RequestTimeout};
use super::wait_hooks::{NoHooks, WaitHooks, WaitResult, wait};
use crate::exit::Error;
use crate::output::message::Messages;
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSummary,
};
use gpukill_proto::guard::GuardSummary;
use gpukill_proto::holders::{DeviceLabel, Explanation, HoldersReport};
use gpukill_proto::model::{DeviceId, ProcessKey, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::VerdictSummary;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_proto::status::DaemonStatus;
use gpukill_proto::transport::{ConnectError, Connection, WaitFn, open_socket};
use gpukill_proto::units::Timestamp;
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

pub(crate) struct Daemon {
    connection: RefCell<Connection>,
    pub(super) messages: Messages,
}

/// Makes one call of the service and returns its answer.
macro_rules! question {
    ($daemon:expr, $patience:expr, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        question!($daemon, $patience, &mut $crate::connect::NoHooks, $name { $($field $(: $value)?),* })
    };
    ($daemon:expr, $patience:expr, $meanwhile:expr, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $daemon.call(
            $patience,
            $meanwhile,
            &gpukill_proto::service::GpukillRequest::$name { $($field $(: $value)?),* },
            |response| match response {
                gpukill_proto::service::GpukillResponse::$name(answer) => Some(answer),
                _ => None,
            },
        )
    };
}
pub(super) use question;

impl Daemon {
    /// Connects, and tries again while the daemon is busy.
    pub(crate) fn connect(
        socket: &Path,
        patience: RequestTimeout,
        messages: Messages,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<Self, Error> {
        messages.debug(|| format!("connecting to {}", socket.display()));
        let mut backoff = Backoff::new();
        loop {
            match try_connect(socket, patience, meanwhile)? {
                Ok(connection) => {
                    return Ok(Self {
                        connection: RefCell::new(connection),
                        messages,
                    });
                }
                Err(ConnectError::Busy) => match backoff.pause(patience, meanwhile)? {
                    PauseResult::Elapsed(length) => {
                        messages.debug(|| format!("busy: tried again after {length:.0?}"));
                    }
                    PauseResult::OutOfTime => {
                        return Err(Error::Connect(socket.to_owned(), ConnectError::Busy));
                    }
                },
                Err(error) => return Err(Error::Connect(socket.to_owned(), error)),
            }
        }
    }

    /// A whole snapshot: the newest, or with `after` the first that is newer.
    pub(crate) fn snapshot(
        &self,
        after: Option<u64>,
        patience: RequestTimeout,
    ) -> Result<AnnotatedSnapshot, Error> {
        self.snapshot_with_hooks(after, patience, &mut NoHooks)
    }

    /// A whole snapshot, with hooks for the time of waiting.
    pub(crate) fn snapshot_with_hooks(
        &self,
        after: Option<u64>,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<AnnotatedSnapshot, Error> {
        // Between two pages the daemon may poll and drop the snapshot. Five times in a row mean
        // that it polls faster than it answers.
        for _ in 0..5 {
            if let Some(sight) = self.pages(after, patience, meanwhile)? {
                return Ok(sight);
            }
            self.messages
                .debug(|| "the snapshot changed between two pages: asking again".into());
        }
        Err(Refusal::Expired.into())
    }

    /// All pages of one snapshot; `None` when the daemon dropped it between two pages.
    fn pages(
        &self,
        after: Option<u64>,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
    ) -> Result<Option<AnnotatedSnapshot>, Error> {
        let SnapshotPage {
            mut snapshot,
            mut next,
            guard,
            verdicts: suspected,
        } = question!(self, patience, meanwhile, Snapshot { after })?;
        let tick = snapshot.tick;
        while let Some(start) = next {
            self.messages
                .debug(|| format!("asking for the processes from {start} on"));
            let more = question!(self, patience, meanwhile, MoreProcesses { tick, start });
            let page = match more {
                Ok(page) if page.snapshot.tick == tick => page,
                Ok(_) | Err(Error::Refused(Refusal::Expired)) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            if page.next.is_some_and(|next| next <= start) {
                return Err(Error::ConnectionLost("its pages do not advance".into()));
            }
            snapshot.processes.extend(page.snapshot.processes);
            next = page.next;
        }
        // The first page has these two for the whole snapshot.
        Ok(Some(AnnotatedSnapshot {
            snapshot,
            guard,
            suspected,
        }))
    }

    /// The processes that have one device or any device open: all pages of one answer, and its
    /// time.
    pub(crate) fn holders(
        &self,
        device: Option<DeviceId>,
        patience: RequestTimeout,
    ) -> Result<(Timestamp, Vec<HoldersReport>), Error> {
        let mut whole: Vec<HoldersReport> = Vec::new();
        let mut start = 0;
        loop {
            let page = question!(
                self,
                patience,
                Holders {
                    device: device.clone(),
                    start
                }
            )?;
            for report in page.devices {
                match whole.last_mut() {
                    Some(last) if last.device.id == report.device.id => {
                        last.device.holders.extend(report.device.holders);
                        last.roles.extend(report.roles);
                    }
                    Some(_) | None => whole.push(report),
                }
            }
            match page.next {
                None => return Ok((page.at, whole)),
                Some(next) if next <= start => {
                    return Err(Error::ConnectionLost("its pages do not advance".into()));
                }
                Some(next) => {
                    self.messages
                        .debug(|| format!("asking for the holders from {next} on"));
                    start = next;
                }
            }
        }
    }

    pub(crate) fn explain(&self, pid: u32, patience: RequestTimeout) -> Result<Explanation, Error> {
        question!(self, patience, Explain { pid })
    }

    pub(crate) fn status(&self, patience: RequestTimeout) -> Result<DaemonStatus, Error> {
        question!(self, patience, Status {})
    }

    /// One page of records.
    pub(crate) fn audit(
        &self,
        query: &AuditQuery,
        patience: RequestTimeout,
    ) -> Result<AuditPage, Error> {
        question!(
            self,
            patience,
            Audit {
                query: query.clone()
            }
        )
    }

    /// The summary of a time range.
    pub(crate) fn audit_summary(
        &self,
        filter: &AuditFilter,
        patience: RequestTimeout,
    ) -> Result<AuditSummary, Error> {
        question!(
            self,
            patience,
            AuditSummary {
                filter: filter.clone()
            }
        )
    }

    /// One page of recorded actions.
    pub(crate) fn audit_actions(
        &self,
        query: &ActionQuery,
        patience: RequestTimeout,
    ) -> Result<ActionPage, Error> {
        question!(
            self,
            patience,
            AuditActions {
                query: query.clone()
            }
        )
    }

    /// Releases the NVIDIA driver; returns the end of the quiesce.
    pub(crate) fn quiesce(
        &self,
        seconds: u64,
        patience: RequestTimeout,
    ) -> Result<Timestamp, Error> {
        question!(self, patience, Quiesce { seconds })
    }

    /// Ends a quiesce.
    pub(crate) fn resume(&self, patience: RequestTimeout) -> Result<(), Error> {
        question!(self, patience, Resume {})
    }

    /// Removes devices that are gone; returns the removed devices.
    pub(crate) fn forget_gpus(
        &self,
        gpu: &str,
        patience: RequestTimeout,
    ) -> Result<Vec<DeviceLabel>, Error> {
        question!(
            self,
            patience,
            ForgetGpus {
                gpu: gpu.to_owned()
            }
        )
    }

    /// Makes one call, and repeats it while the daemon is busy.
    pub(super) fn call<T>(
        &self,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
        request: &GpukillRequest,
        answer: fn(GpukillResponse) -> Option<Result<T, Refusal>>,
    ) -> Result<T, Error> {
        let mut backoff = Backoff::new();
        loop {
            match answer(self.exchange(patience, meanwhile, request)?) {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(Refusal::Busy)) => match backoff.pause(patience, meanwhile)? {
                    PauseResult::Elapsed(length) => self
                        .messages
                        .debug(|| format!("busy: asking again after {length:.0?}")),
                    PauseResult::OutOfTime => return Err(Refusal::Busy.into()),
                },
                Some(Err(refusal)) => return Err(refusal.into()),
                None => {
                    return Err(Error::ConnectionLost(
                        "the response belongs to another request".into(),
                    ));
                }
            }
        }
    }

    fn exchange(
        &self,
        patience: RequestTimeout,
        meanwhile: &mut dyn WaitHooks,
        request: &GpukillRequest,
    ) -> Result<GpukillResponse, Error> {
        let until = patience.call_deadline();
        let deadline = until.saturating_duration_since(Instant::now());
        let mut connection = self.connection.borrow_mut();
        let answer = run_with_deadline(until, meanwhile, |wait| {
            connection.call(request, deadline, wait)
        })?;
        answer.map_err(|error| {
            let failure = connection_error(&error, patience);
            explain_older_daemon(failure, connection.daemon_version(), PROTOCOL_VERSION)
        })
    }
}

/// Tries once to connect.
fn try_connect(
    socket: &Path,
    patience: RequestTimeout,
    meanwhile: &mut dyn WaitHooks,
) -> Result<Result<Connection, ConnectError>, Error> {
    let until = patience.deadline();
    let timed_out = || Error::TimedOut {
        seconds: patience.seconds(),
    };
    let stream = loop {
        let left = until.saturating_duration_since(Instant::now());
        match open_socket(socket, left) {
            Ok(stream) => break stream,
            // A signal arrived.
            Err(ConnectError::Io(error)) if error.kind() == ErrorKind::Interrupted => {
                meanwhile.on_wake()?;
            }
            Err(ConnectError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                return Err(timed_out());
            }
            Err(error) => return Ok(Err(error)),
        }
    };
    match run_with_deadline(until, meanwhile, |wait| Connection::handshake(stream, wait))? {
        Err(ConnectError::Io(error)) if error.kind() == ErrorKind::TimedOut => Err(timed_out()),
        entered => Ok(entered),
    }
}

/// Runs an exchange over a stream. Returns the error of a hook that ended the wait; the
/// exchange itself gets `TimedOut` when the time is over.
fn run_with_deadline<T>(
    until: Instant,
    meanwhile: &mut dyn WaitHooks,
    exchange: impl FnOnce(WaitFn<'_>) -> T,
) -> Result<T, Error> {
    let mut ended = None;
    let done = exchange(
        &mut |stream, ready| match wait(Some((stream, ready)), until, meanwhile) {
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

fn connection_error(error: &io::Error, patience: RequestTimeout) -> Error {
    match error.kind() {
        ErrorKind::TimedOut => Error::TimedOut {
            seconds: patience.seconds(),
        },
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            Error::ConnectionLost("it went away".into())
        }
        _ => Error::ConnectionLost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hang_up_of_an_older_daemon_is_explained() {
        let version = |minor| ProtocolVersion { major: 1, minor };
        let of = |failure, daemon| explain_older_daemon(failure, version(daemon), version(2));
        let broken = || Error::ConnectionLost("it went away".into());
        assert!(matches!(of(broken(), 1), Error::OlderDaemon(told) if told == version(1)));
        assert!(matches!(of(broken(), 2), Error::ConnectionLost(_)));
        assert!(matches!(of(broken(), 3), Error::ConnectionLost(_)));
        let refused = Error::Refused(Refusal::Internal);
        assert!(matches!(of(refused, 1), Error::Refused(_)));
    }
}
