//! Determines the job of each process from the process table.

use super::entry::ProcessEntry;
use crate::host::ancestors;
use crate::host::commands::NOT_READ_YET;
use gpukill_policy::job::{Ancestors, JobFacts, determine_job};
use gpukill_proto::model::Job;
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// All processes by parent.
pub(super) struct JobMembership<'a> {
    members: &'a BTreeMap<u32, ProcessEntry>,
    /// Whether there are more processes than were read.
    is_truncated: bool,
}

/// The ancestors that the children of one process share.
struct AncestorChain {
    ancestors: Ancestors,
    /// Whether relevant arguments of an ancestor are unknown.
    lacks_arguments: bool,
}

impl<'a> JobMembership<'a> {
    pub(super) fn new(members: &'a BTreeMap<u32, ProcessEntry>, is_cut: bool) -> Self {
        Self {
            members,
            is_truncated: is_cut,
        }
    }

    pub(super) fn jobs(&self) -> BTreeMap<u32, Reading<Job>> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, member) in self.members {
            let siblings = children.entry(member.info.parent).or_default();
            siblings.push(*pid);
        }
        let mut jobs = BTreeMap::new();
        for (parent, children) in children {
            // One chain at a time: there may be many, and each may be long.
            let line = self.chain(parent);
            let members = children.iter().filter_map(|pid| self.members.get(pid));
            jobs.extend(members.map(|member| {
                let key = member.info.lineage.key;
                let first = line.ancestors.processes.first();
                // A parent that started after its child has a reused PID: the real parent ended
                // during the read.
                let is_its = first.is_none_or(|first| first.key.start_ticks <= key.start_ticks);
                let none = AncestorChain::empty();
                (key.pid, job_of(member, if is_its { &line } else { &none }))
            }));
        }
        jobs
    }

    fn chain(&self, mut pid: u32) -> AncestorChain {
        let mut chain = AncestorChain::empty();
        let line = &mut chain.ancestors.processes;
        let mut latest_start = u64::MAX;
        while pid > 1 {
            let Some(member) = self.members.get(&pid) else {
                chain.ancestors.is_truncated = self.is_truncated;
                break;
            };
            let lineage = &member.info.lineage;
            if lineage.key.start_ticks > latest_start {
                break;
            }
            if line.len() == ancestors::MAX_ANCESTORS {
                chain.ancestors.is_truncated = true;
                break;
            }
            chain.lacks_arguments |= member.lacks_arguments;
            line.push(lineage.clone());
            (pid, latest_start) = (member.info.parent, lineage.key.start_ticks);
        }
        chain
    }
}

impl AncestorChain {
    fn empty() -> Self {
        Self {
            ancestors: Ancestors::default(),
            lacks_arguments: false,
        }
    }
}

fn job_of(member: &ProcessEntry, line: &AncestorChain) -> Reading<Job> {
    let is_of_a_group = matches!(member.info.container, Reading::Value(Some(_)))
        || matches!(member.scheduler, Reading::Value(Some(_)));
    if line.lacks_arguments && !is_of_a_group {
        // Any of them may be a Jupyter server.
        return Reading::Failed(NOT_READ_YET.into());
    }
    let container = match &member.info.container {
        Reading::Value(container) => Reading::Value(container.as_ref()),
        unknown => unknown.as_unknown(),
    };
    determine_job(JobFacts {
        process: &member.info.lineage,
        ancestors: &line.ancestors,
        scheduler: &member.scheduler,
        container: &container,
        unit: &member.unit,
    })
}
