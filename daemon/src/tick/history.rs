//! Asks the store what was seen of processes before this daemon was started. No poll
//! waits for the answer: it is taken when it has come.

use crate::audit::{DeviceProcess, PastUse, PastUses, Store};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::TryRecvError;

/// Asks one question at a time.
pub(crate) struct History {
    store: Store,
    boot: String,
    /// When the guard saw processes on their devices first, before this daemon.
    pub(super) remembered: BTreeMap<DeviceProcess, Timestamp>,
    waiting: Option<(Vec<DeviceProcess>, PastUses)>,
    /// After a question that failed there is none before this, and the pause after the
    /// next that fails is so long.
    next: Option<Instant>,
    pause: Duration,
}

/// What the store answered: the processes that it was asked about, and what it knows.
pub(super) type Answer = (Vec<DeviceProcess>, BTreeMap<DeviceProcess, PastUse>);

/// So many processes in one question: some milliseconds of the store.
const MAX_PROCESSES: usize = 1_000;

/// A store that is being opened answers within a second; one that is broken is asked
/// each minute.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl History {
    pub(crate) fn new(
        store: Store,
        boot: String,
        remembered: BTreeMap<DeviceProcess, Timestamp>,
    ) -> Self {
        Self {
            store,
            boot,
            remembered,
            waiting: None,
            next: None,
            pause: SHORTEST_PAUSE,
        }
    }

    /// What has come since the last poll.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let (asked, mut answer) = self.waiting.take()?;
        match answer.try_recv() {
            Ok(Ok(known)) => {
                self.pause = SHORTEST_PAUSE;
                Some((asked, known))
            }
            Err(TryRecvError::Empty) => {
                self.waiting = Some((asked, answer));
                None
            }
            Ok(Err(_)) | Err(TryRecvError::Closed) => {
                self.next = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                None
            }
        }
    }

    /// Asks about these, unless a question waits already.
    pub(super) fn ask(&mut self, wanted: impl Iterator<Item = DeviceProcess>) {
        let is_early = self.next.is_some_and(|next| Instant::now() < next);
        if self.waiting.is_some() || is_early {
            return;
        }
        let wanted: Vec<DeviceProcess> = wanted.take(MAX_PROCESSES).collect();
        if wanted.is_empty() {
            return;
        }
        let answer = self.store.past_use(self.boot.clone(), wanted.clone());
        self.waiting = answer.map(|answer| (wanted, answer));
    }
}
