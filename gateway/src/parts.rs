//! Parts of the newest snapshot: made on threads of their own, few at a time and a large one alone,
//! and kept for equal requests while the snapshot is the newest. A caller has a share of the turns,
//! so that none keeps the others waiting.

use crate::access::Access;
use crate::document::{Document, RouteAnswer};
use crate::gateway::Gateway;
use crate::memory::{LARGE_PART, MAX_KEPT_PARTS};
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::routes::MAX_QUEUED;
use crate::shares::{Requester, Shares};
use crate::upstream::Frame;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most parts that are made at once.
const MAX_PARTS: u32 = 4;

/// The most parts of one caller that are made, or wait for a turn of all.
const MAX_CALLER_PARTS: usize = 2;

/// Makes a part of a snapshot, as far as the caller may see it.
pub(crate) type PartFn = fn(&Frame, &Parameters, Access) -> RouteAnswer;

/// The turns of requests for parts, and the parts of the newest snapshot.
pub(crate) struct Parts {
    turns: Arc<Semaphore>,
    shares: Shares<Semaphore>,
    kept: Mutex<KeptParts>,
}

/// The right to make a part, until it is dropped.
pub(crate) struct PartTurn {
    _of_all: OwnedSemaphorePermit,
    _of_caller: OwnedSemaphorePermit,
}

#[derive(Default)]
struct KeptParts {
    /// The number of the snapshot.
    sequence: u64,
    /// Those without a filter, of which there are few, by path and access.
    whole: BTreeMap<String, Arc<Document>>,
    /// The others, the oldest first.
    filtered: VecDeque<(String, Arc<Document>)>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MAX_PARTS as usize)),
            shares: Shares::default(),
            kept: Mutex::default(),
        }
    }
}

impl Parts {
    /// Waits for the turn to make a part of a snapshot with so many bytes. A large snapshot needs all
    /// turns.
    ///
    /// # Errors
    /// The turn does not come in time.
    pub(crate) async fn take_turn(
        &self,
        requester: Requester,
        snapshot_size: usize,
    ) -> Result<PartTurn, Problem> {
        let share = self.share(requester);
        let all = Arc::clone(&self.turns);
        let weight = match snapshot_size > LARGE_PART {
            true => MAX_PARTS,
            false => 1,
        };
        let turn = async {
            let of_caller = share.acquire_owned().await.ok()?;
            let of_all = all.acquire_many_owned(weight).await.ok()?;
            Some(PartTurn {
                _of_all: of_all,
                _of_caller: of_caller,
            })
        };
        match tokio::time::timeout(MAX_QUEUED, turn).await {
            Ok(Some(turn)) => Ok(turn),
            Ok(None) | Err(_) => Err(Problem::busy("the gateway has too many requests", 2)),
        }
    }

    /// The turns of one caller.
    fn share(&self, requester: Requester) -> Arc<Semaphore> {
        let turns = || Arc::new(Semaphore::new(MAX_CALLER_PARTS));
        self.shares.of(requester, turns)
    }

    fn lock(&self) -> MutexGuard<'_, KeptParts> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptParts {
    /// A part of this snapshot.
    fn find(&self, sequence: u64, key: &str) -> Option<Arc<Document>> {
        if sequence != self.sequence {
            return None;
        }
        let filtered = || self.filtered.iter().find(|(known, _)| known == key);
        let found = self.whole.get(key);
        let found = found.or_else(|| filtered().map(|(_, document)| document));
        found.cloned()
    }

    /// Keeps a part of this snapshot, and forgets those of older ones. The parts with a filter have a
    /// limit of bytes.
    fn keep(&mut self, sequence: u64, key: String, is_whole: bool, document: &Arc<Document>) {
        if sequence < self.sequence {
            return;
        }
        if sequence > self.sequence {
            *self = Self {
                sequence,
                ..Self::default()
            };
        }
        if is_whole {
            self.whole.insert(key, Arc::clone(document));
            return;
        }
        if document.size() > MAX_KEPT_PARTS {
            return;
        }
        self.filtered.push_back((key, Arc::clone(document)));
        let size = |all: &VecDeque<(String, Arc<Document>)>| -> usize {
            all.iter().map(|(_, document)| document.size()).sum()
        };
        while size(&self.filtered) > MAX_KEPT_PARTS {
            self.filtered.pop_front();
        }
    }
}

/// Answers with a part of the newest snapshot: one that an equal request got, or else a new one.
///
/// # Errors
/// There is no current snapshot, the turn does not come in time, or the parameters select nothing.
pub(crate) async fn answer(
    gateway: &Arc<Gateway>,
    path: &'static str,
    make: PartFn,
    parameters: Parameters,
    access: Access,
    requester: Requester,
) -> Result<Arc<Document>, Problem> {
    let key = format!("{path} {} {}", access.name(), parameters.key());
    let frame = newest(gateway)?;
    if let Some(kept) = gateway.parts.lock().find(frame.sequence, &key) {
        return Ok(kept);
    }
    let snapshot_size = frame.document.size();
    // A request that waits keeps no old snapshot in memory.
    drop(frame);
    let turn = gateway.parts.take_turn(requester, snapshot_size).await?;
    let frame = newest(gateway)?;
    if let Some(kept) = gateway.parts.lock().find(frame.sequence, &key) {
        return Ok(kept);
    }
    let gateway = Arc::clone(gateway);
    // A large snapshot takes a while to serialize.
    let made = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, also when the client is gone.
        let _turn = turn;
        let document = Arc::new(make(&frame, &parameters, access)?);
        let mut kept = gateway.parts.lock();
        kept.keep(frame.sequence, key, parameters.is_empty(), &document);
        drop(kept);
        Ok::<_, Problem>(document)
    });
    made.await.map_err(|_| Problem::internal())?
}

fn newest(gateway: &Gateway) -> Result<Arc<Frame>, Problem> {
    gateway.view().current().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Peer;
    use futures::FutureExt as _;

    fn document(bytes: usize) -> Arc<Document> {
        Arc::new(Document::json(&"x".repeat(bytes)).unwrap())
    }

    fn take(parts: &Parts, uid: u32, size: usize) -> Option<PartTurn> {
        let requester = Requester::Peer(Peer::User(uid));
        parts.take_turn(requester, size).now_or_never()?.ok()
    }

    #[tokio::test]
    async fn large_part_is_made_alone() {
        let parts = Parts::default();
        let small = take(&parts, 1, 1);
        assert!(small.is_some() && take(&parts, 2, LARGE_PART + 1).is_none());
        drop(small);
        let large = take(&parts, 2, LARGE_PART + 1);
        assert!(large.is_some() && take(&parts, 1, 1).is_none());
        drop(large);
        assert!(take(&parts, 1, 1).is_some());
    }

    #[tokio::test]
    async fn one_caller_leaves_turns_to_others() {
        let parts = Parts::default();
        let first: Vec<PartTurn> = std::iter::from_fn(|| take(&parts, 1, 1)).collect();
        assert_eq!(first.len(), MAX_CALLER_PARTS);
        assert!(take(&parts, 2, 1).is_some());
        drop(first);
        assert!(take(&parts, 1, 1).is_some());
        drop(parts.share(Requester::Peer(Peer::User(3))));
        assert_eq!(parts.shares.count(), 1);
    }

    #[test]
    fn parts_are_those_of_the_newest_snapshot() {
        let mut kept = KeptParts::default();
        let part = document(1);
        kept.keep(7, "a".into(), true, &part);
        kept.keep(7, "b".into(), false, &part);
        for key in ["a", "b"] {
            let found = kept.find(7, key);
            assert!(found.is_some_and(|it| Arc::ptr_eq(&it, &part)), "{key}");
            assert!(kept.find(8, key).is_none(), "{key}");
        }
        // One that was begun before the newest snapshot came.
        kept.keep(6, "c".into(), true, &part);
        assert!(kept.find(6, "c").is_none() && kept.find(7, "a").is_some());
        kept.keep(8, "c".into(), false, &part);
        assert!(kept.find(7, "a").is_none() && kept.find(8, "a").is_none());
        assert!(kept.find(8, "c").is_some());
    }

    #[test]
    fn filtered_parts_are_bounded_in_bytes() {
        let mut kept = KeptParts::default();
        let part = document(MAX_KEPT_PARTS / 3);
        for number in 0..10 {
            kept.keep(1, number.to_string(), false, &part);
        }
        assert_eq!(kept.filtered.len(), 2);
        assert!(kept.find(1, "9").is_some() && kept.find(1, "7").is_none());
        kept.keep(1, "long".into(), false, &document(MAX_KEPT_PARTS));
        assert!(kept.find(1, "long").is_none() && kept.find(1, "9").is_some());
        kept.keep(1, "whole".into(), true, &document(MAX_KEPT_PARTS));
        assert!(kept.find(1, "whole").is_some());
    }
}
