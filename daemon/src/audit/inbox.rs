//! What people have the daemon do, on its way to the thread that writes. It does
//! not wait behind samples, and who brings it is not held up by a full queue.

use super::acts::{End, MOST_UNDER_WAY};
use super::refusals::Refusals;
use super::{Act, ActId};
use crate::catalogue::tell;
use gpukill_proto::units::Timestamp;
use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most ends that wait: of each act that may be under way some.
const MOST_ENDS: usize = 4 * MOST_UNDER_WAY;

/// An act that is about to be done, and who waits for its row.
pub(super) struct Intent {
    pub(super) act: Act,
    pub(super) at: Timestamp,
    /// When it is not waited for any more.
    pub(super) deadline: Instant,
    /// A rendezvous: whoever was told took it, and whoever gave up was not told.
    pub(super) answer: SyncSender<Result<ActId, String>>,
}

/// What was brought, and not fetched yet.
#[derive(Default)]
pub(super) struct Inbox {
    intents: VecDeque<Intent>,
    ends: VecDeque<(ActId, End)>,
    pub(super) refusals: Refusals,
}

impl Inbox {
    /// Takes an intent, or says why not.
    pub(super) fn intend(&mut self, intent: Intent) -> Result<(), String> {
        if self.intents.len() >= MOST_UNDER_WAY {
            return Err("too many acts wait for the store".into());
        }
        self.intents.push_back(intent);
        Ok(())
    }

    /// Takes an end.
    pub(super) fn end(&mut self, id: ActId, end: End) {
        if self.ends.len() >= MOST_ENDS {
            tell!(NotRecorded, act = id.0; "too many ends wait for the store: not recorded");
            return;
        }
        self.ends.push_back((id, end));
    }

    /// Gives out what waits: the ends, and one intent.
    pub(super) fn fetch(&mut self) -> (VecDeque<(ActId, End)>, Option<Intent>) {
        (std::mem::take(&mut self.ends), self.intents.pop_front())
    }
}

/// Nothing panics while it holds this lock; if something did, what is in it is
/// whole all the same.
pub(super) fn open(inbox: &Mutex<Inbox>) -> MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}
