//! The server functions of the calls, one file per command family, and what several of them use:
//! rights, waiting for a turn, names.

mod audit;
mod backup;
mod forget;
mod guard;
mod holders;
mod kill;
mod quiesce;
mod reset;
mod rogue;
mod rules;
mod status;

use super::fair_queue::{FairQueue, QueuePermit};
use super::is_privileged;
use super::replays::ReplayThread;
use super::session::{Session, lock};
use super::visibility::Visibility;
use crate::store::RecordedEvent;
pub(super) use backup::ConnectionBackup;
use gpukill_policy::access::{Operation, Roles, Ruling, check};
use gpukill_proto::refusal::Refusal;
pub(super) use kill::PendingKillPages;
pub(super) use rules::OfferedRules;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an answer waits for the names of people, and how often it checks.
const NAME_TIMEOUT: Duration = Duration::from_millis(100);
const NAME_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The longest time that a caller waits for others.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// The caller still waits while this is not dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Session {
    /// Checks that the caller has this right. Otherwise the refusal names root and the members of
    /// `group`.
    fn require_right(&self, operation: Operation, asked: &str, group: &str) -> Result<(), Refusal> {
        match check(&self.caller, operation, &self.shared.roles()) {
            Ruling::Allow => Ok(()),
            Ruling::Deny(_) => Err(Refusal::Denied {
                asked: asked.to_owned(),
                ask: format!("root, or someone in group {group}"),
            }),
        }
    }

    /// Records an action of a person. The store may make it wait, but nothing else.
    async fn record(&self, event: RecordedEvent) {
        let store = self.shared.store.clone();
        let recorded = tokio::task::spawn_blocking(move || store.record(event));
        // A store that panicked has logged it.
        let _ = recorded.await;
    }

    /// What this caller may see of other users.
    fn visibility<'a>(&'a self, roles: &'a Roles) -> Visibility<'a> {
        Visibility {
            caller: &self.caller,
            roles,
        }
    }

    /// Waits until the caller may query the store.
    async fn acquire_query_permit(&self) -> QueuePermit {
        self.acquire_permit(&self.shared.query_queue).await
    }

    /// Waits for the place of the caller in this queue.
    async fn acquire_permit(&self, queue: &FairQueue) -> QueuePermit {
        if is_privileged(&self.caller, &self.shared.roles()) {
            FairQueue::privileged_permit()
        } else {
            queue.acquire_plain(self.caller.limit_group).await
        }
    }

    /// Runs a query on the thread for replays: each query keeps a core busy. `query` receives a
    /// function that tells whether the result is still wanted.
    ///
    /// # Errors
    /// The error of the query, or [`Refusal::Busy`] if others take too long.
    async fn run_lookback<T: Send + 'static>(
        &self,
        query: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let permit = tokio::time::timeout(QUEUE_TIMEOUT, self.acquire_replay_thread());
        let permit = permit.await.map_err(|_| Refusal::Busy)?;
        let is_wanted = Arc::new(AtomicBool::new(true));
        // Dropped with this call: at its end, when the caller has gone, and when the caller stops
        // waiting.
        let _waits = CancelOnDrop(Arc::clone(&is_wanted));
        let result = self.replay_thread().run(move || {
            // Held until the query has ended, whether or not the caller still waits.
            let _permit = permit;
            query(&|| is_wanted.load(Ordering::Relaxed))
        });
        result.await.ok_or(Refusal::Internal)?
    }

    /// At most one query of a plain user waits for the thread, and privileged users wait for few.
    async fn acquire_replay_thread(&self) -> impl Send + use<> {
        let permit = self.acquire_permit(&self.shared.replays.queue).await;
        self.replay_thread().acquire(permit).await
    }

    fn replay_thread(&self) -> &ReplayThread {
        let replays = &self.shared.replays;
        match is_privileged(&self.caller, &self.shared.roles()) {
            true => &replays.privileged,
            false => &replays.plain,
        }
    }

    /// Waits a moment for the names of these users.
    async fn wait_for_names(&self, uids: &[u32]) {
        self.wait_for_names_until(uids, Instant::now() + NAME_TIMEOUT)
            .await;
    }

    async fn wait_for_names_until(&self, uids: &[u32], deadline: Instant) {
        let users = &self.shared.authority.users;
        while uids.iter().any(|uid| users.is_name_pending(*uid)) && Instant::now() < deadline {
            tokio::time::sleep(NAME_POLL_INTERVAL).await;
        }
    }
}
