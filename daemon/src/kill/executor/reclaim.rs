//! Steps after all targets have ended: waits until the memory is back, and finds processes that
//! were started again.

use super::Execution;
use super::target::Target;
use crate::fd_scan::full_scan::NewPoll;
use crate::state::whole_milliseconds;
use gpukill_policy::kill::reclaimed::{is_reclaimed, reclaimed_memory};
use gpukill_policy::kill::respawned::find_respawned;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{MemoryReclaim, Stage};
use gpukill_proto::model::{ProcessKey, Snapshot};
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long memory may take to return.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two checks of the memory, and the limits of the wait for a newer poll.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(200);
const POLL_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How long a supervisor may take to start a process again. systemd waits 100 ms by default
/// (`DefaultRestartSec=`).
const RESPAWN_DELAY: Duration = Duration::from_millis(500);

impl Execution<'_> {
    /// Polls until the memory that the ended processes held is free, or the time is over.
    pub(super) fn wait_for_memory(&mut self) {
        let (ended, living): (Vec<&Target>, Vec<&Target>) =
            self.targets.iter().partition(|target| target.has_ended());
        let keys = |of: &[&Target]| of.iter().map(|target| target.key()).into_set();
        let (ended, living): (BTreeSet<ProcessKey>, BTreeSet<ProcessKey>) =
            (keys(&ended), keys(&living));
        if ended.is_disjoint(&self.gpu_users) {
            return;
        }
        self.reporter.set_stage(Stage::Reclaiming);
        let since = self.last_ended_at().unwrap_or_else(Instant::now);
        loop {
            let now = self.wait_for_newer_snapshot();
            let mut memory = reclaimed_memory(
                &ended,
                &living,
                &self.before.snapshot,
                &self.before.holders,
                &now,
            );
            let is_all_free = memory
                .iter()
                .all(|it| is_reclaimed(it) || is_unknowable(it));
            for device in &mut memory {
                if is_reclaimed(device) {
                    let before = self.reporter.returned_after(&device.device);
                    device.after_ms =
                        Some(before.unwrap_or_else(|| whole_milliseconds(since.elapsed())));
                }
            }
            self.reporter.set_memory(memory);
            if is_all_free || since.elapsed() > RECLAIM_TIMEOUT || self.environment.is_stopping() {
                return;
            }
            std::thread::sleep(RECLAIM_INTERVAL);
        }
    }

    fn last_ended_at(&self) -> Option<Instant> {
        self.targets.iter().filter_map(Target::ended_at).max()
    }

    /// The snapshot of a poll that began after now, or the newest one where polls take too long.
    fn wait_for_newer_snapshot(&self) -> Arc<Snapshot> {
        let (state, poll_now) = (&self.environment.state, &*self.environment.poll_now);
        let deadline = Instant::now() + POLL_TIMEOUT;
        let mut poll = NewPoll::after_now(state);
        while !poll.is_published(state, poll_now)
            && Instant::now() < deadline
            && !self.environment.is_stopping()
        {
            std::thread::sleep(POLL_CHECK_INTERVAL);
        }
        Arc::clone(&state.borrow().snapshot)
    }

    /// Reports processes that replaced ended ones, and who started them.
    pub(super) fn report_respawned(&mut self) {
        let ended: BTreeSet<ProcessKey> = self
            .targets
            .iter()
            .filter(|target| target.has_ended())
            .map(Target::key)
            .into_set();
        let Some(at) = self
            .last_ended_at()
            .filter(|_| !self.environment.is_stopping())
        else {
            return;
        };
        std::thread::sleep(RESPAWN_DELAY.saturating_sub(at.elapsed()));
        if let Ok(table) = self
            .environment
            .process_tables
            .read_all(&self.environment.authority.users)
        {
            let new = find_respawned(&ended, &self.members, &self.initial_table, &table);
            self.reporter.set_respawned(new);
        }
    }

    /// A zombie goes when its parent ends. Where the parent was ended now, the zombie is no
    /// failure.
    pub(super) fn mark_reaped_zombies_gone(&mut self) {
        for key in self.reporter.zombies() {
            let now = self.environment.process_tables.read_one(key.pid);
            if !now.is_ok_and(|now| now.lineage.key == key) {
                self.reporter.mark_gone(key);
            }
        }
    }
}

/// Whether waiting longer cannot show more.
fn is_unknowable(memory: &MemoryReclaim) -> bool {
    memory.held.known().is_none() || memory.returned == Reading::Unsupported
}
