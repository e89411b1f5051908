//! Which job each process is part of, by those that were found with it.

use super::member::Member;
use crate::host::commands::NOT_YET;
use crate::host::family;
use gpukill_policy::job::{Ancestors, Facts, job};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Job;
use std::collections::BTreeMap;

/// Everybody, and who is whose parent.
pub(super) struct Kinship<'a> {
    members: &'a BTreeMap<u32, Member>,
    /// Whether there are more processes than were looked at.
    is_cut: bool,
}

/// The ancestors that the children of one process have in common.
struct Line {
    ancestors: Ancestors,
    /// Whether something that matters of one of them is not known.
    lacks_arguments: bool,
}

impl<'a> Kinship<'a> {
    pub(super) fn new(members: &'a BTreeMap<u32, Member>, is_cut: bool) -> Self {
        Self { members, is_cut }
    }

    /// The job of each.
    pub(super) fn jobs(&self) -> BTreeMap<u32, Reading<Job>> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, member) in self.members {
            let siblings = children.entry(member.candidate.parent).or_default();
            siblings.push(*pid);
        }
        let mut jobs = BTreeMap::new();
        for (parent, children) in children {
            // One line at a time, however many there are: each may be long.
            let line = self.line(parent);
            let members = children.iter().filter_map(|pid| self.members.get(pid));
            jobs.extend(members.map(|member| {
                let key = member.candidate.kin.key;
                let first = line.ancestors.line.first();
                // A parent that began after its child has its pid from another,
                // which ended while we looked.
                let is_its = first.is_none_or(|first| first.key.start_ticks <= key.start_ticks);
                let none = Line::none();
                (key.pid, job_of(member, if is_its { &line } else { &none }))
            }));
        }
        jobs
    }

    /// A process and its ancestors.
    fn line(&self, mut pid: u32) -> Line {
        let mut found = Line::none();
        let line = &mut found.ancestors.line;
        let mut born = u64::MAX;
        while pid > 1 {
            let Some(member) = self.members.get(&pid) else {
                found.ancestors.is_cut = self.is_cut;
                break;
            };
            let kin = &member.candidate.kin;
            if kin.key.start_ticks > born {
                break;
            }
            if line.len() == family::MOST {
                found.ancestors.is_cut = true;
                break;
            }
            found.lacks_arguments |= member.lacks_arguments;
            line.push(kin.clone());
            (pid, born) = (member.candidate.parent, kin.key.start_ticks);
        }
        found
    }
}

impl Line {
    fn none() -> Self {
        Self {
            ancestors: Ancestors::default(),
            lacks_arguments: false,
        }
    }
}

fn job_of(member: &Member, line: &Line) -> Reading<Job> {
    let is_of_a_group = matches!(member.candidate.container, Reading::Value(Some(_)))
        || matches!(member.scheduler, Reading::Value(Some(_)));
    if line.lacks_arguments && !is_of_a_group {
        // Who of them is a Jupyter server is not known.
        return Reading::Failed(NOT_YET.into());
    }
    let container = match &member.candidate.container {
        Reading::Value(container) => Reading::Value(container.as_ref()),
        unknown => unknown.because(),
    };
    job(Facts {
        process: &member.candidate.kin,
        ancestors: &line.ancestors,
        scheduler: &member.scheduler,
        container: &container,
        unit: &member.unit,
    })
}
