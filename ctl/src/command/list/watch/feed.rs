//! Receives snapshots from the daemon one after another, across its restarts.

use crate::connect::{AnnotatedSnapshot, Daemon, RequestTimeout, WaitHooks, sleep};
use crate::exit::Error;
use crate::output::message::Messages;
use crate::settings::Settings;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::MAX_WAIT;
use gpukill_proto::transport::ConnectError;
use gpukill_proto::units::Timestamp;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) enum Update {
    /// A new snapshot.
    Snapshot(Box<AnnotatedSnapshot>),
    /// The daemon answers and has nothing newer.
    Unchanged,
    /// The daemon does not answer; retries go on for this long.
    Away(Error, Duration),
}

/// A restarted daemon is back within seconds. After this time it is considered gone.
const MAX_ABSENCE: Duration = Duration::from_secs(30);

/// Pause between two attempts to reach a daemon that is away.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct SnapshotFeed {
    socket: PathBuf,
    timeout: Duration,
    interval: Duration,
    messages: Messages,
    link: ConnectionState,
    /// The poll after which updates are requested. `None` on a new connection, because another
    /// daemon counts its polls from the start.
    after: Option<u64>,
    last_seen: Option<SnapshotId>,
    next_frame: Instant,
}

enum ConnectionState {
    /// No attempt was made yet.
    New,
    /// Connected.
    Up(Daemon),
    /// The daemon went away; retries end at this time.
    Away(Instant),
}

/// Identifies a snapshot. The poll number alone does not, because a restarted daemon counts
/// from 1.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SnapshotId {
    polls: u64,
    taken_at: Timestamp,
}

impl SnapshotFeed {
    /// A feed without a connection.
    pub(super) fn new(socket: PathBuf, settings: &Settings) -> Self {
        Self {
            socket,
            timeout: settings.timeout,
            interval: settings.watch_interval,
            messages: settings.messages(),
            link: ConnectionState::New,
            after: None,
            last_seen: None,
            next_frame: Instant::now(),
        }
    }

    /// Waits for the next update, not before the next frame is due.
    ///
    /// # Errors
    /// The daemon is gone or refuses, or a hook ended the wait.
    pub(super) fn next_update(&mut self, hooks: &mut dyn WaitHooks) -> Result<Update, Error> {
        sleep(
            self.next_frame.saturating_duration_since(Instant::now()),
            hooks,
        )?;
        loop {
            match &self.link {
                ConnectionState::New => {
                    let timeout = RequestTimeout::starting_now(self.timeout);
                    self.link = ConnectionState::Up(self.connect(timeout, hooks)?);
                }
                ConnectionState::Up(daemon) => {
                    let timeout = RequestTimeout::starting_now(MAX_WAIT + self.timeout);
                    match daemon.snapshot_with_hooks(self.after, timeout, hooks) {
                        Ok(annotated) => return Ok(self.update_from(annotated)),
                        Err(failure) if is_transient(&failure) => {
                            self.link = ConnectionState::Away(Instant::now() + MAX_ABSENCE);
                            return Ok(Update::Away(failure, MAX_ABSENCE));
                        }
                        Err(failure) => return Err(failure),
                    }
                }
                ConnectionState::Away(until) => {
                    let until = *until;
                    sleep(RETRY_INTERVAL, hooks)?;
                    let left = until.saturating_duration_since(Instant::now());
                    let timeout = RequestTimeout::starting_now(left.min(self.timeout));
                    match self.connect(timeout, hooks) {
                        Ok(daemon) => {
                            self.link = ConnectionState::Up(daemon);
                            self.after = None;
                        }
                        Err(failure) if is_transient(&failure) && !left.is_zero() => {
                            return Ok(Update::Away(failure, left));
                        }
                        Err(failure) => return Err(failure),
                    }
                }
            }
        }
    }

    fn connect(&self, timeout: RequestTimeout, hooks: &mut dyn WaitHooks) -> Result<Daemon, Error> {
        Daemon::connect(&self.socket, timeout, self.messages, hooks)
    }

    fn update_from(&mut self, annotated: AnnotatedSnapshot) -> Update {
        let snapshot = &annotated.snapshot;
        let id = SnapshotId {
            polls: snapshot.polls,
            taken_at: snapshot.taken_at,
        };
        self.after = Some(snapshot.polls);
        // Poll number 0 is before the first poll.
        let is_new = self.last_seen.replace(id) != Some(id) && snapshot.polls > 0;
        if !is_new {
            return Update::Unchanged;
        }
        self.next_frame = Instant::now() + self.interval;
        Update::Snapshot(Box::new(annotated))
    }
}

/// Whether the error can be the transient state of a restarting daemon.
fn is_transient(failure: &Error) -> bool {
    match failure {
        Error::ConnectionLost(_)
        | Error::OlderDaemon(_)
        | Error::TimedOut { .. }
        | Error::NothingPolled => true,
        Error::Connect(_, error) => match error {
            ConnectError::NoDaemon
            | ConnectError::Busy
            | ConnectError::NotGpukilld
            | ConnectError::Io(_) => true,
            ConnectError::NotPermitted | ConnectError::Version(_) | ConnectError::Refused(_) => {
                false
            }
        },
        Error::Refused(refusal) => match refusal {
            Refusal::Busy | Refusal::Expired | Refusal::Unavailable(_) => true,
            Refusal::Denied { .. }
            | Refusal::Invalid(_)
            | Refusal::NoMatch(_)
            | Refusal::TooSlow(_)
            | Refusal::Internal => false,
        },
        Error::Usage(_)
        | Error::Settings { .. }
        | Error::SettingsFile(..)
        | Error::UnsafeSocket(..)
        | Error::NoDaemon(_)
        | Error::NoSuchDevice(_)
        | Error::NoSuchProcess(_)
        | Error::NoMatch(_)
        | Error::Vendor(_)
        | Error::NotDone { .. }
        | Error::System(_)
        | Error::Output(_)
        | Error::ReaderGone => false,
    }
}
