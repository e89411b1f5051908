//! The cached metadata of a process.

use super::super::cgroup::CgroupContainer;
use super::super::cpu::CpuUsage;
use super::super::process_metadata::ProcessDetails;
use crate::procfs::stat::Stat;
use gpukill_policy::job::{Ancestors, JobFacts, ProcessLineage, determine_job};
use gpukill_proto::model::{Job, ProcessKey, ProcessLocation};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct CachedProcess {
    pub(super) key: ProcessKey,
    /// Its `stat` when the rest was read.
    pub(super) stat: Stat,
    pub(super) read_at: Timestamp,
    /// How long it counts as unchanged.
    pub(super) cache_time: Duration,
    pub(super) cpu: CpuUsage,
    pub(super) cgroup_container: Reading<Option<CgroupContainer>>,
    pub(super) lineage: ProcessLineage,
    pub(super) ancestors: Ancestors,
    pub(super) details: Arc<ProcessDetails>,
}

impl CachedProcess {
    /// Whether `stat` has none of the changes that an exec, the loss of the parent, or a change of
    /// session would cause.
    pub(super) fn is_unchanged(&self, stat: &Stat) -> bool {
        let before = &self.stat;
        let identifiers = |stat: &Stat| (stat.group, stat.session, stat.terminal);
        // An ended process has neither, and its known values are no longer reported.
        let has_ended = matches!(stat.state, 'Z' | 'X');
        self.key.start_ticks == stat.start_ticks
            && !has_executed(before, stat)
            && before.parent == stat.parent
            && (has_ended || identifiers(before) == identifiers(stat))
    }
}

pub(super) fn has_executed(before: &Stat, now: &Stat) -> bool {
    // A process that ends has no stack any more.
    let has_another = before.stack != now.stack && before.stack != 0 && now.stack != 0;
    before.name != now.name || has_another
}

/// The job of a process, from its own facts and its ancestors.
pub(super) fn job_of(
    process: &ProcessLineage,
    ancestors: &Ancestors,
    location: &ProcessLocation,
) -> Reading<Job> {
    let container = match &location.container {
        Reading::Value(container) => Reading::Value(container.as_ref()),
        unknown => unknown.as_unknown(),
    };
    determine_job(JobFacts {
        process,
        ancestors,
        scheduler: &location.scheduler,
        container: &container,
        unit: &location.unit,
    })
}
