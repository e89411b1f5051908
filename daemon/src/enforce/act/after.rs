//! What is looked at when all have ended that will: whether the memory came back,
//! and whether somebody starts them again.

use super::Act;
use super::target::Target;
use crate::look::NewPoll;
use crate::state::whole_milliseconds;
use gpukill_policy::kill::respawned::respawned;
use gpukill_policy::kill::returned::{is_back, returned};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{MemoryReturn, Stage};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{ProcessKey, Snapshot};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long memory may take to come back.
const RELEASE: Duration = Duration::from_secs(10);

/// The time between two looks for it, and for the poll that sees it.
const RELEASE_STEP: Duration = Duration::from_millis(200);
const POLL_PATIENCE: Duration = Duration::from_secs(2);
const POLL_STEP: Duration = Duration::from_millis(10);

/// How long whoever starts a process again may take for it. systemd waits a tenth
/// of a second by default (`DefaultRestartSec=`).
const RESPAWN: Duration = Duration::from_millis(500);

impl Act<'_> {
    /// Polls until what the ended ones held is free, or too long.
    pub(super) fn wait_for_memory(&mut self) {
        let (ended, living): (Vec<&Target>, Vec<&Target>) =
            self.targets.iter().partition(|target| target.has_ended());
        let keys = |of: &[&Target]| of.iter().map(|target| target.key()).collect();
        let (ended, living): (BTreeSet<ProcessKey>, BTreeSet<ProcessKey>) =
            (keys(&ended), keys(&living));
        if ended.is_disjoint(&self.uses) {
            return;
        }
        self.told.stage(Stage::Releasing);
        let since = self.last_end().unwrap_or_else(Instant::now);
        loop {
            let now = self.newer_snapshot();
            let mut memory = returned(
                &ended,
                &living,
                &self.before.snapshot,
                &self.before.holders,
                &now,
            );
            let all_is_back = memory.iter().all(|it| is_back(it) || cannot_be_known(it));
            for device in &mut memory {
                if is_back(device) {
                    let before = self.told.returned_after(&device.device);
                    device.after_ms =
                        Some(before.unwrap_or_else(|| whole_milliseconds(since.elapsed())));
                }
            }
            self.told.memory(memory);
            if all_is_back || since.elapsed() > RELEASE || self.means.is_stopping() {
                return;
            }
            std::thread::sleep(RELEASE_STEP);
        }
    }

    fn last_end(&self) -> Option<Instant> {
        self.targets.iter().filter_map(Target::ended_at).max()
    }

    /// A snapshot of a poll that began after now, or the newest where polls take
    /// too long.
    fn newer_snapshot(&self) -> Arc<Snapshot> {
        let (state, hurry) = (&self.means.state, &*self.means.hurry);
        let deadline = Instant::now() + POLL_PATIENCE;
        let mut poll = NewPoll::after_now(state);
        while !poll.is_published(state, hurry) && Instant::now() < deadline {
            std::thread::sleep(POLL_STEP);
        }
        Arc::clone(&state.borrow().snapshot)
    }

    /// New processes in the place of ended ones, and who started them.
    pub(super) fn look_for_respawned(&mut self) {
        let ended: BTreeSet<ProcessKey> = self
            .targets
            .iter()
            .filter(|target| target.has_ended())
            .map(Target::key)
            .into_set();
        let Some(at) = self.last_end().filter(|_| !self.means.is_stopping()) else {
            return;
        };
        std::thread::sleep(RESPAWN.saturating_sub(at.elapsed()));
        if let Ok(crowd) = self.means.crowds.everybody(&self.means.authority.users) {
            let new = respawned(&ended, &self.members, &self.first, &crowd);
            self.told.respawned(new);
        }
    }

    /// Those that had ended go with the parent that did not ask how, where that
    /// was ended now: they are no failure then.
    pub(super) fn look_for_the_reaped(&mut self) {
        for key in self.told.zombies() {
            let now = self.means.crowds.one(key.pid);
            if !now.is_ok_and(|now| now.kin.key == key) {
                self.told.is_gone(key);
            }
        }
    }
}

/// Whether no wait would tell more of it.
fn cannot_be_known(memory: &MemoryReturn) -> bool {
    memory.held.known().is_none() || memory.returned == Reading::Unsupported
}
