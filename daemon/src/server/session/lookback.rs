//! Long queries of the past: one at a time, and only while the caller waits.

use super::Session;
use crate::server::is_privileged;
use crate::server::replays::ReplayThread;
use gpukill_proto::refusal::Refusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
    /// Runs a query on the thread for replays: each query keeps a core busy. `look` receives a
    /// function that tells whether the result is still wanted.
    ///
    /// # Errors
    /// The error of the query, or [`Refusal::Busy`] if others take too long.
    pub(super) async fn run_lookback<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = tokio::time::timeout(QUEUE_TIMEOUT, self.acquire_replay_thread());
        let turn = turn.await.map_err(|_| Refusal::Busy)?;
        let is_wanted = Arc::new(AtomicBool::new(true));
        // Dropped with this call: at its end, when the caller has gone, and when the caller stops
        // waiting.
        let _waits = CancelOnDrop(Arc::clone(&is_wanted));
        let looked = self.replay_thread().run(move || {
            // Held until the query has ended, whether or not the caller still waits.
            let _turn = turn;
            look(&|| is_wanted.load(Ordering::Relaxed))
        });
        looked.await.ok_or(Refusal::Internal)?
    }

    /// At most one query of a plain user waits for the thread, and privileged users wait for few.
    async fn acquire_replay_thread(&self) -> impl Send + use<> {
        let turn = self.acquire_permit(&self.shared.replays.queue).await;
        self.replay_thread().acquire(turn).await
    }

    /// The thread for the replays of this caller.
    fn replay_thread(&self) -> &ReplayThread {
        let replays = &self.shared.replays;
        match is_privileged(&self.caller, &self.shared.roles()) {
            true => &replays.privileged,
            false => &replays.plain,
        }
    }
}
