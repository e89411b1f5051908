//! Long looks at the past: one at a time, as long as whoever asked waits.

use super::Session;
use crate::server::is_privileged;
use crate::server::replays::Lane;
use gpukill_proto::refusal::Refusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest that somebody waits for others.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whoever asked still waits, as long as it is not dropped.
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Session {
    /// Does this on the thread that looks at the past: each look keeps a core busy. It is
    /// told whether it is wanted still.
    ///
    /// # Errors
    /// Its own, and [`Refusal::Busy`] where others take too long.
    pub(super) async fn look_back<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = tokio::time::timeout(PATIENCE, self.turn_to_look_back());
        let turn = turn.await.map_err(|_| Refusal::Busy)?;
        let is_wanted = Arc::new(AtomicBool::new(true));
        // Goes with this call: when it is over, when whoever asked has gone, and when
        // they do not want to wait any longer.
        let _waits = Waits(Arc::clone(&is_wanted));
        let looked = self.lane().run(move || {
            // Until it has ended, whether or not whoever asked still waits.
            let _turn = turn;
            look(&|| is_wanted.load(Ordering::Relaxed))
        });
        looked.await.ok_or(Refusal::Internal)?
    }

    /// Of a plain user one look waits for this, and those who run the box wait for few.
    async fn turn_to_look_back(&self) -> impl Send + use<> {
        let turn = self.turn_of(&self.shared.replays.turns).await;
        self.lane().only(turn).await
    }

    /// Where the caller's rules are tried.
    fn lane(&self) -> &Lane {
        let replays = &self.shared.replays;
        match is_privileged(&self.caller, &self.shared.roles()) {
            true => &replays.of_privileged,
            false => &replays.of_plain,
        }
    }
}
