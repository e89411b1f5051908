//! News from the daemon, one after another, through its absences.

use crate::connect::{Daemon, Meanwhile, Patience, Sight, sleep};
use crate::exit::Failure;
use crate::output::message::Messages;
use crate::settings::Settings;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_WAIT;
use gpukill_proto::transport::ConnectError;
use gpukill_proto::units::Timestamp;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Something to show.
#[derive(Debug)]
pub(super) enum News {
    /// A snapshot that was not seen before.
    Snapshot(Box<Sight>),
    /// The daemon answers, and has nothing newer.
    Unchanged,
    /// The daemon does not answer; it is tried again for so long.
    Away(Failure, Duration),
}

/// A daemon that is restarted is back within seconds. After this it is gone.
const LONGEST_ABSENCE: Duration = Duration::from_secs(30);

/// Between two tries to reach a daemon that is away.
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// The news of one daemon.
pub(super) struct Feed {
    socket: PathBuf,
    timeout: Duration,
    interval: Duration,
    messages: Messages,
    link: Link,
    /// The tick after which news are asked for: none on a new connection, for
    /// another daemon counts its polls anew.
    after: Option<u64>,
    seen: Option<Seen>,
    next_frame: Instant,
}

/// How the daemon can be asked now.
enum Link {
    /// Nothing was tried yet.
    New,
    /// It can.
    Up(Daemon),
    /// It went away, and is given up at that time.
    Away(Instant),
}

/// What names a snapshot: a daemon that is restarted counts from 1 again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    tick: u64,
    taken_at: Timestamp,
}

impl Feed {
    /// Nothing is asked yet.
    pub(super) fn new(socket: PathBuf, settings: &Settings, messages: Messages) -> Self {
        Self {
            socket,
            timeout: settings.timeout,
            interval: settings.watch_interval,
            messages,
            link: Link::New,
            after: None,
            seen: None,
            next_frame: Instant::now(),
        }
    }

    /// The next news, not sooner than a frame may be drawn.
    ///
    /// # Errors
    /// Why there are none; what is heeded meanwhile may end the wait.
    pub(super) fn next(&mut self, meanwhile: &mut dyn Meanwhile) -> Result<News, Failure> {
        sleep(
            self.next_frame.saturating_duration_since(Instant::now()),
            meanwhile,
        )?;
        loop {
            match &self.link {
                Link::New => {
                    let patience = Patience::lasting(self.timeout);
                    self.link = Link::Up(self.connect(patience, meanwhile)?);
                }
                Link::Up(daemon) => {
                    let patience = Patience::lasting(LONGEST_WAIT + self.timeout);
                    match daemon.snapshot_while(self.after, patience, meanwhile) {
                        Ok(sight) => return Ok(self.news(sight)),
                        Err(failure) if passes(&failure) => {
                            self.link = Link::Away(Instant::now() + LONGEST_ABSENCE);
                            return Ok(News::Away(failure, LONGEST_ABSENCE));
                        }
                        Err(failure) => return Err(failure),
                    }
                }
                Link::Away(until) => {
                    let until = *until;
                    sleep(BETWEEN_TRIES, meanwhile)?;
                    let left = until.saturating_duration_since(Instant::now());
                    let patience = Patience::lasting(left.min(self.timeout));
                    match self.connect(patience, meanwhile) {
                        Ok(daemon) => {
                            self.link = Link::Up(daemon);
                            self.after = None;
                        }
                        Err(failure) if passes(&failure) && !left.is_zero() => {
                            return Ok(News::Away(failure, left));
                        }
                        Err(failure) => return Err(failure),
                    }
                }
            }
        }
    }

    fn connect(
        &self,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<Daemon, Failure> {
        Daemon::connect(&self.socket, patience, self.messages, meanwhile)
    }

    fn news(&mut self, sight: Sight) -> News {
        let snapshot = &sight.snapshot;
        let seen = Seen {
            tick: snapshot.tick,
            taken_at: snapshot.taken_at,
        };
        self.after = Some(snapshot.tick);
        // Tick 0 is before the first poll.
        let is_new = self.seen.replace(seen) != Some(seen) && snapshot.tick > 0;
        if !is_new {
            return News::Unchanged;
        }
        self.next_frame = Instant::now() + self.interval;
        News::Snapshot(Box::new(sight))
    }
}

/// Whether a daemon that is restarted could answer so for a moment.
fn passes(failure: &Failure) -> bool {
    match failure {
        Failure::Broken(_)
        | Failure::OlderDaemon(_)
        | Failure::TimedOut { .. }
        | Failure::NothingPolled => true,
        Failure::Connect(_, error) => match error {
            ConnectError::NoDaemon
            | ConnectError::Busy
            | ConnectError::NotGpukilld
            | ConnectError::Io(_) => true,
            ConnectError::NotPermitted | ConnectError::Version(_) | ConnectError::TurnedAway(_) => {
                false
            }
        },
        Failure::Refused(refusal) => match refusal {
            Refusal::Busy | Refusal::Expired | Refusal::Unavailable(_) => true,
            Refusal::Denied { .. }
            | Refusal::Invalid(_)
            | Refusal::NoMatch(_)
            | Refusal::TooSlow(_)
            | Refusal::Internal => false,
        },
        Failure::Usage(_)
        | Failure::Settings { .. }
        | Failure::SettingsFile(..)
        | Failure::UnsafeSocket(..)
        | Failure::NoDaemon(_)
        | Failure::NoSuchDevice(_)
        | Failure::NoSuchProcess(_)
        | Failure::NoMatch(_)
        | Failure::Vendor(_)
        | Failure::NotDone { .. }
        | Failure::System(_)
        | Failure::Output(_)
        | Failure::ReaderGone => false,
    }
}
