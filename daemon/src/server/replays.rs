//! Where rules are tried on the past: on one thread for plain users and one for those who
//! run the box, one after the other on each.
//!
//! What a replay needs is tens of megabytes for a while. On threads that take turns each
//! would keep its own (glibc gives every thread an arena), and the daemon would hold the
//! sum of them. Two, so that no plain user's replay, of a minute maybe, is in an admin's
//! way; and so two children that try rules at most.

use super::turns::{Turn, Turns};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Work for the thread.
type Work = Box<dyn FnOnce() + Send>;

/// Gives turns to whoever tries rules. Clones give the same.
#[derive(Clone)]
pub(crate) struct Replays {
    pub(super) turns: Turns,
    pub(super) of_plain: Lane,
    pub(super) of_privileged: Lane,
}

/// A thread, and whose turn it is on it. Clones are the same.
#[derive(Clone)]
pub(crate) struct Lane {
    only: Arc<Semaphore>,
    thread: Arc<Mutex<Option<Sender<Work>>>>,
}

impl Default for Replays {
    fn default() -> Self {
        let lane = || Lane {
            only: Arc::new(Semaphore::new(1)),
            thread: Arc::default(),
        };
        Self {
            turns: Turns::default(),
            of_plain: lane(),
            of_privileged: lane(),
        }
    }
}

/// The thread is one's own as long as this is not dropped.
pub(super) type Only = (Turn, Option<OwnedSemaphorePermit>);

impl Lane {
    /// Waits until the thread is free for whoever has this turn.
    pub(super) async fn only(&self, turn: Turn) -> Only {
        // It is never closed.
        (turn, Arc::clone(&self.only).acquire_owned().await.ok())
    }

    /// Does it on the thread; `None` where there is none, or it broke off.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, doing) = oneshot::channel();
        let work = move || {
            // Whoever asked may have gone.
            let _ = done.send(work());
        };
        self.give(Box::new(work))?;
        doing.await.ok()
    }

    fn give(&self, work: Work) -> Option<()> {
        // Nothing panics while it holds this lock.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match thread.take() {
            Some(sender) => sender,
            None => started()?,
        };
        sender.send(work).ok()?;
        *thread = Some(sender);
        Some(())
    }
}

/// A thread that does what it is given, as long as there may be more.
fn started() -> Option<Sender<Work>> {
    let (sender, given) = channel::<Work>();
    let run = move || {
        for work in given {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::error!("a replay panicked");
            }
        }
    };
    let thread = std::thread::Builder::new().name("replay".into()).spawn(run);
    match thread {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(%error, "no thread for a replay");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_plain_user_is_in_the_way_of_those_who_run_the_box() {
        use futures::FutureExt as _;
        use std::sync::mpsc::channel;
        let replays = Replays::default();
        let taken = |lane: &Lane| lane.only(Turns::privileged()).now_or_never();
        let plain = taken(&replays.of_plain);
        assert!(plain.is_some() && taken(&replays.of_plain).is_none());
        assert!(taken(&replays.of_privileged).is_some());
        let (go_on, waits) = channel::<()>();
        let busy = replays.of_plain.run(move || waits.recv().is_err());
        let admins = replays.of_privileged.run(|| true);
        let (admins, busy) = tokio::join!(
            async {
                let admins = admins.await;
                drop(go_on);
                admins
            },
            busy
        );
        assert_eq!((admins, busy), (Some(true), Some(true)));
    }

    #[tokio::test]
    async fn one_that_breaks_off_does_not_keep_others_from_their_turn() {
        let replays = Replays::default().of_plain;
        let broken = replays.run(|| panic!("as a mistake of ours would")).await;
        assert_eq!(broken, None::<()>);
        let named = || std::thread::current().name().map(str::to_owned);
        let (first, second) = (replays.run(named).await, replays.run(named).await);
        assert_eq!(first, Some(Some("replay".to_owned())));
        assert_eq!(second, first);
    }
}
