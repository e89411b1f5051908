//! What is kept of a process that was read.

use super::super::cgroup::Contained;
use super::super::cpu::Cpu;
use super::super::identity::Person;
use crate::procfs::stat::Stat;
use gpukill_policy::job::{Ancestors, Facts, Kin, job};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Job, Place, ProcessKey};
use gpukill_proto::units::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// A process that was looked at.
pub(super) struct Known {
    pub(super) key: ProcessKey,
    /// As it was when the rest was read.
    pub(super) stat: Stat,
    pub(super) read_at: Timestamp,
    /// For so long it is taken to be what it was then.
    pub(super) keep: Duration,
    pub(super) cpu: Cpu,
    pub(super) contained: Reading<Option<Contained>>,
    pub(super) itself: Kin,
    pub(super) ancestors: Ancestors,
    pub(super) person: Arc<Person>,
}

impl Known {
    /// Whether nothing of this has changed that would have, had it executed something
    /// else, lost its parent, or gone to another session.
    pub(super) fn is_still(&self, stat: &Stat) -> bool {
        let before = &self.stat;
        let place = |stat: &Stat| (stat.group, stat.session, stat.terminal);
        // Who has ended has neither, and what was known of it is told no more.
        let has_ended = matches!(stat.state, 'Z' | 'X');
        self.key.start_ticks == stat.start_ticks
            && !executes_another(before, stat)
            && before.parent == stat.parent
            && (has_ended || place(before) == place(stat))
    }
}

pub(super) fn executes_another(before: &Stat, now: &Stat) -> bool {
    // Who ends has no stack any more.
    let has_another = before.stack != now.stack && before.stack != 0 && now.stack != 0;
    before.name != now.name || has_another
}

/// The job of a process, by what is known of it and of its ancestors.
pub(super) fn job_of(process: &Kin, ancestors: &Ancestors, place: &Place) -> Reading<Job> {
    let container = match &place.container {
        Reading::Value(container) => Reading::Value(container.as_ref()),
        unknown => unknown.because(),
    };
    job(Facts {
        process,
        ancestors,
        scheduler: &place.scheduler,
        container: &container,
        unit: &place.unit,
    })
}
