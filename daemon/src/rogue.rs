//! The watch for rogues: looks at whoever uses a device, on a thread of its own.
//!
//! What a poll does not tell of a process, [`witness`] reads; what it looks like, and when
//! it is looked at again, [`known`] keeps; [`watch`] is the thread. By which rules,
//! [`rules`] keeps. What it comes to is `policy::rogue`'s.

pub(crate) mod rules;

mod witness;

mod known;

mod watch;

pub(crate) mod scan;

use crate::audit::{Sample, Store, Suspicions};
use crate::faults::FaultCause;
use crate::guard;
use gpukill_proto::rogue::{Finding, Looked};
use gpukill_proto::snapshot::{FaultCode, ProcessKey, Snapshot};
use rules::{InForce, Keeper};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch as channel;
use watch::{Order, Watch};
#[cfg(test)]
pub(crate) use witness::Blind;
pub(crate) use witness::{OfProc, Witness};

/// So many polls and samples may wait: the next poll tells what one that is dropped did.
const QUEUE: usize = 4;

/// How long the end of the thread is waited for.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// What is known now.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Everybody who is watched and was looked at.
    pub(crate) looked: BTreeMap<ProcessKey, Arc<Looked>>,
    /// Those of whom there is a verdict, the worst first.
    pub(crate) findings: Vec<Finding>,
    /// The same for the guard.
    pub(crate) suspicions: Arc<Suspicions>,
    /// How many there was no room for.
    pub(crate) beyond: u32,
    /// What is wrong with reading what they are.
    pub(crate) fault: Option<String>,
}

/// The watch's near side. Clones share it.
#[derive(Clone)]
pub(crate) struct Rogue {
    pub(crate) keeper: Arc<Keeper>,
    orders: SyncSender<Order>,
    standing: channel::Receiver<Arc<Standing>>,
    /// Tells nothing but that the thread has ended.
    ended: Arc<Mutex<Receiver<()>>>,
}

impl Rogue {
    /// Starts the thread. `boot` names this boot of the box: of whom was told in it before
    /// is not told again.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        keeper: Keeper,
        witness: Box<dyn Witness>,
        store: Store,
        boot: String,
    ) -> std::io::Result<Self> {
        let keeper = Arc::new(keeper);
        let (standing, told) = channel::channel(Arc::default());
        let (orders, received) = sync_channel(QUEUE);
        let (ending, ended) = sync_channel(1);
        let watch = Watch::new(keeper.subscribe(), witness, store, standing);
        std::thread::Builder::new()
            .name("rogue".into())
            .spawn(move || {
                let _told_at_the_end = ending;
                watch.run(&boot, &received);
            })?;
        Ok(Self {
            keeper,
            orders,
            standing: told,
            ended: Arc::new(Mutex::new(ended)),
        })
    }

    /// Looks at whoever is in this poll. Never waits: a poll that comes while the last is
    /// looked at is left out.
    pub(crate) fn poll(&self, snapshot: &Arc<Snapshot>, guard: Arc<guard::Standing>) {
        let _ = self
            .orders
            .try_send(Order::Poll(Arc::clone(snapshot), guard));
    }

    /// Adds what a sample tells of how devices were used. Never waits.
    pub(crate) fn sample(&self, sample: &Sample) {
        let _ = self
            .orders
            .try_send(Order::Sample(Box::new(sample.clone())));
    }

    /// The rules in force.
    pub(crate) fn in_force(&self) -> InForce {
        self.keeper.subscribe().borrow().clone()
    }

    /// What is known now.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing.borrow())
    }

    /// What the guard may go by.
    pub(crate) fn suspicions(&self) -> Arc<Suspicions> {
        Arc::clone(&self.standing.borrow().suspicions)
    }

    /// What is wrong with it, in words for faults.
    pub(crate) fn faults(&self) -> Vec<FaultCause> {
        // How many changes all the time: `status` tells it.
        let standing = self.standing();
        let all = [
            (FaultCode::RulesMistaken, self.keeper.fault()),
            (
                FaultCode::ProcessesUnwatched,
                (standing.beyond > 0)
                    .then(|| "more processes use GPUs than are watched".to_owned()),
            ),
            (FaultCode::EvidenceStuck, standing.fault.clone()),
        ];
        let all = all.into_iter();
        all.filter_map(|(code, what)| Some(FaultCause::new(code, what?)))
            .collect()
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        // One that has ended already needs no telling; one that is behind ends with us.
        let is_told = self.orders.try_send(Order::Stop).is_ok();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if is_told && ended.recv_timeout(STOP_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::debug!("the watch for rogues did not end in time");
        }
    }
}
