//! Asks the store for observations from before this daemon. No poll waits for the answer: a later
//! poll takes it.

use crate::store::{DeviceProcess, PastUse, PastUseReceiver, Store};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::TryRecvError;

/// Sends one query at a time.
pub(crate) struct PastUseQuery {
    store: Store,
    boot: String,
    /// When the guard first observed processes on their devices, before this daemon.
    pub(super) guard_first_seen: BTreeMap<DeviceProcess, Timestamp>,
    waiting: Option<(Vec<DeviceProcess>, PastUseReceiver)>,
    /// After a failed query, the earliest time of the next one; the pause doubles with each
    /// failure.
    next_at: Option<Instant>,
    pause: Duration,
}

/// The store's answer: the processes asked about, and their known use.
pub(super) type PastUseAnswer = (Vec<DeviceProcess>, BTreeMap<DeviceProcess, PastUse>);

/// How many processes are in one query: some milliseconds of the store's time.
const MAX_PROCESSES: usize = 1_000;

/// A store that is being opened answers within a second; a broken store is asked once a minute.
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(60);

impl PastUseQuery {
    pub(crate) fn new(
        store: Store,
        boot: String,
        remembered: BTreeMap<DeviceProcess, Timestamp>,
    ) -> Self {
        Self {
            store,
            boot,
            guard_first_seen: remembered,
            waiting: None,
            next_at: None,
            pause: MIN_PAUSE,
        }
    }

    /// The answer that arrived since the last poll.
    pub(super) fn take_answer(&mut self) -> Option<PastUseAnswer> {
        let (queried, mut answer) = self.waiting.take()?;
        match answer.try_recv() {
            Ok(Ok(known)) => {
                self.pause = MIN_PAUSE;
                Some((queried, known))
            }
            Err(TryRecvError::Empty) => {
                self.waiting = Some((queried, answer));
                None
            }
            Ok(Err(_)) | Err(TryRecvError::Closed) => {
                self.next_at = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(MAX_PAUSE);
                None
            }
        }
    }

    /// Asks about these processes unless a query is pending.
    pub(super) fn query(&mut self, wanted: impl Iterator<Item = DeviceProcess>) {
        let is_early = self.next_at.is_some_and(|next| Instant::now() < next);
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
