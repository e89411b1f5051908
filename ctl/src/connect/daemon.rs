//! A connection to the daemon, and the questions that only look.

use super::meanwhile::{Meanwhile, Nothing, Waited, wait};
use super::patience::{Backoff, Patience, Pause};
use crate::exit::Failure;
use crate::output::message::Messages;
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSummary,
};
use gpukill_proto::guard::GuardBrief;
use gpukill_proto::holders::{DeviceLabel, Explanation, HoldersReport};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::Suspected;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_proto::snapshot::{DeviceId, ProcessKey, Snapshot};
use gpukill_proto::status::Status;
use gpukill_proto::transport::{ConnectError, Connection, Wait, open};
use gpukill_proto::units::Timestamp;
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Instant;

/// A whole snapshot, what the guard says of who is in it, and who of them may be a rogue.
#[derive(Debug)]
pub(crate) struct Sight {
    /// The devices and who uses them.
    pub snapshot: Snapshot,
    /// Who breaks rules.
    pub guard: GuardBrief,
    /// Who may be a rogue, the worst first.
    pub suspected: Vec<(ProcessKey, Suspected)>,
}

/// A connection to the daemon.
pub(crate) struct Daemon {
    connection: RefCell<Connection>,
    pub(super) messages: Messages,
}

/// Asks one question of the service, and gives the answer to it.
macro_rules! question {
    ($daemon:expr, $patience:expr, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        question!($daemon, $patience, &mut $crate::connect::Nothing, $name { $($field $(: $value)?),* })
    };
    ($daemon:expr, $patience:expr, $meanwhile:expr, $name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $daemon.ask(
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
    /// Connects, trying again while the daemon is busy.
    pub(crate) fn connect(
        socket: &Path,
        patience: Patience,
        messages: Messages,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<Self, Failure> {
        messages.debug(|| format!("connecting to {}", socket.display()));
        let mut backoff = Backoff::new();
        loop {
            match one_try(socket, patience, meanwhile)? {
                Ok(connection) => {
                    return Ok(Self {
                        connection: RefCell::new(connection),
                        messages,
                    });
                }
                Err(ConnectError::Busy) => match backoff.pause(patience, meanwhile)? {
                    Pause::Over(length) => {
                        messages.debug(|| format!("busy: tried again after {length:.0?}"));
                    }
                    Pause::OutOfPatience => {
                        return Err(Failure::Connect(socket.to_owned(), ConnectError::Busy));
                    }
                },
                Err(error) => return Err(Failure::Connect(socket.to_owned(), error)),
            }
        }
    }

    /// A whole snapshot: the newest, or with `after` the first that is newer.
    pub(crate) fn snapshot(
        &self,
        after: Option<u64>,
        patience: Patience,
    ) -> Result<Sight, Failure> {
        self.snapshot_while(after, patience, &mut Nothing)
    }

    /// The same, with something to do while it is waited for.
    pub(crate) fn snapshot_while(
        &self,
        after: Option<u64>,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<Sight, Failure> {
        // Between two pages the daemon may poll and let the snapshot go; five
        // times in a row means that it polls faster than it answers.
        for _ in 0..5 {
            if let Some(sight) = self.pages(after, patience, meanwhile)? {
                return Ok(sight);
            }
            self.messages
                .debug(|| "the snapshot changed between two pages: asking again".into());
        }
        Err(Refusal::Expired.into())
    }

    /// All pages of one snapshot; `None` when the daemon let it go between two.
    fn pages(
        &self,
        after: Option<u64>,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<Option<Sight>, Failure> {
        let SnapshotPage {
            mut snapshot,
            mut next,
            guard,
            suspected,
        } = question!(self, patience, meanwhile, Snapshot { after })?;
        let tick = snapshot.tick;
        while let Some(start) = next {
            self.messages
                .debug(|| format!("asking for the processes from {start} on"));
            let more = question!(self, patience, meanwhile, MoreProcesses { tick, start });
            let page = match more {
                Ok(page) if page.snapshot.tick == tick => page,
                Ok(_) | Err(Failure::Refused(Refusal::Expired)) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            if page.next.is_some_and(|next| next <= start) {
                return Err(Failure::Broken("its pages do not advance".into()));
            }
            snapshot.processes.extend(page.snapshot.processes);
            next = page.next;
        }
        // The first page has both of the whole.
        Ok(Some(Sight {
            snapshot,
            guard,
            suspected,
        }))
    }

    /// Who has a device open, or all devices: all pages of one answer, and when it
    /// was given.
    pub(crate) fn holders(
        &self,
        device: Option<DeviceId>,
        patience: Patience,
    ) -> Result<(Timestamp, Vec<HoldersReport>), Failure> {
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
                    return Err(Failure::Broken("its pages do not advance".into()));
                }
                Some(next) => {
                    self.messages
                        .debug(|| format!("asking for the holders from {next} on"));
                    start = next;
                }
            }
        }
    }

    /// All that is known of one process.
    pub(crate) fn explain(&self, pid: u32, patience: Patience) -> Result<Explanation, Failure> {
        question!(self, patience, Explain { pid })
    }

    /// How the daemon stands.
    pub(crate) fn status(&self, patience: Patience) -> Result<Status, Failure> {
        question!(self, patience, Status {})
    }

    /// One page of records.
    pub(crate) fn audit(
        &self,
        query: &AuditQuery,
        patience: Patience,
    ) -> Result<AuditPage, Failure> {
        question!(
            self,
            patience,
            Audit {
                query: query.clone()
            }
        )
    }

    /// What a stretch of the past comes to.
    pub(crate) fn audit_summary(
        &self,
        filter: &AuditFilter,
        patience: Patience,
    ) -> Result<AuditSummary, Failure> {
        question!(
            self,
            patience,
            AuditSummary {
                filter: filter.clone()
            }
        )
    }

    /// One page of what was done.
    pub(crate) fn audit_actions(
        &self,
        query: &ActionQuery,
        patience: Patience,
    ) -> Result<ActionPage, Failure> {
        question!(
            self,
            patience,
            AuditActions {
                query: query.clone()
            }
        )
    }

    /// Lets go of the NVIDIA driver; gives the end of it.
    pub(crate) fn quiesce(&self, seconds: u64, patience: Patience) -> Result<Timestamp, Failure> {
        question!(self, patience, Quiesce { seconds })
    }

    /// Reads the NVIDIA driver again.
    pub(crate) fn resume(&self, patience: Patience) -> Result<(), Failure> {
        question!(self, patience, Resume {})
    }

    /// Drops devices that are gone; gives those.
    pub(crate) fn forget_gpus(
        &self,
        gpu: &str,
        patience: Patience,
    ) -> Result<Vec<DeviceLabel>, Failure> {
        question!(
            self,
            patience,
            ForgetGpus {
                gpu: gpu.to_owned()
            }
        )
    }

    /// Asks one question, again and again while the daemon is busy.
    pub(super) fn ask<T>(
        &self,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
        request: &GpukillRequest,
        answer: fn(GpukillResponse) -> Option<Result<T, Refusal>>,
    ) -> Result<T, Failure> {
        let mut backoff = Backoff::new();
        loop {
            match answer(self.exchange(patience, meanwhile, request)?) {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(Refusal::Busy)) => match backoff.pause(patience, meanwhile)? {
                    Pause::Over(length) => self
                        .messages
                        .debug(|| format!("busy: asking again after {length:.0?}")),
                    Pause::OutOfPatience => return Err(Refusal::Busy.into()),
                },
                Some(Err(refusal)) => return Err(refusal.into()),
                None => return Err(Failure::Broken("it answers another question".into())),
            }
        }
    }

    fn exchange(
        &self,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
        request: &GpukillRequest,
    ) -> Result<GpukillResponse, Failure> {
        let until = patience.deadline_of_a_call();
        let deadline = until.saturating_duration_since(Instant::now());
        let mut connection = self.connection.borrow_mut();
        let answer = waiting(until, meanwhile, |wait| {
            connection.ask(request, deadline, wait)
        })?;
        answer.map_err(|error| {
            let failure = broken(&error, patience);
            of_an_older_one(failure, connection.daemon(), PROTOCOL_VERSION)
        })
    }
}

/// Connects once.
fn one_try(
    socket: &Path,
    patience: Patience,
    meanwhile: &mut dyn Meanwhile,
) -> Result<Result<Connection, ConnectError>, Failure> {
    let until = patience.until();
    let timed_out = || Failure::TimedOut {
        seconds: patience.seconds(),
    };
    let stream = loop {
        let left = until.saturating_duration_since(Instant::now());
        match open(socket, left) {
            Ok(stream) => break stream,
            // A signal.
            Err(ConnectError::Io(error)) if error.kind() == ErrorKind::Interrupted => {
                meanwhile.heed()?;
            }
            Err(ConnectError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                return Err(timed_out());
            }
            Err(error) => return Ok(Err(error)),
        }
    };
    match waiting(until, meanwhile, |wait| Connection::enter(stream, wait))? {
        Err(ConnectError::Io(error)) if error.kind() == ErrorKind::TimedOut => Err(timed_out()),
        entered => Ok(entered),
    }
}

/// Does what waits for a stream. Gives what is heeded meanwhile as the failure where that ends
/// it, and `TimedOut` as its error where the time is over.
fn waiting<T>(
    until: Instant,
    meanwhile: &mut dyn Meanwhile,
    exchange: impl FnOnce(Wait<'_>) -> T,
) -> Result<T, Failure> {
    let mut ended = None;
    let done = exchange(
        &mut |stream, ready| match wait(Some((stream, ready)), until, meanwhile) {
            Ok(Waited::Ready) => Ok(()),
            Ok(Waited::Over) => Err(ErrorKind::TimedOut.into()),
            Err(failure) => {
                ended = Some(failure);
                Err(ErrorKind::Interrupted.into())
            }
        },
    );
    ended.map_or(Ok(done), Err)
}

/// A daemon of an older minor version hangs up at a call that it does not know.
fn of_an_older_one(failure: Failure, daemon: ProtocolVersion, ours: ProtocolVersion) -> Failure {
    match failure {
        Failure::Broken(_) if daemon < ours => Failure::OlderDaemon(daemon),
        other => other,
    }
}

fn broken(error: &io::Error, patience: Patience) -> Failure {
    match error.kind() {
        ErrorKind::TimedOut => Failure::TimedOut {
            seconds: patience.seconds(),
        },
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            Failure::Broken("it went away".into())
        }
        _ => Failure::Broken(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_hangs_up_is_told_to_be_older_where_it_is() {
        let version = |minor| ProtocolVersion { major: 1, minor };
        let of = |failure, daemon| of_an_older_one(failure, version(daemon), version(2));
        let broken = || Failure::Broken("it went away".into());
        assert!(matches!(of(broken(), 1), Failure::OlderDaemon(told) if told == version(1)));
        assert!(matches!(of(broken(), 2), Failure::Broken(_)));
        assert!(matches!(of(broken(), 3), Failure::Broken(_)));
        let refused = Failure::Refused(Refusal::Internal);
        assert!(matches!(of(refused, 1), Failure::Refused(_)));
    }
}
