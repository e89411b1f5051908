//! Makes the plan: the selected processes, the processes in their scope, and the action
//! for each.

use super::condition::{find_device, visible_command};
use super::contacts::{contact_text, user_names};
use super::device_use::{ProcessDeviceUse, device_use, is_zombie};
use super::protection::{DaemonFamily, protection_of};
use super::resolve::resolve;
use super::scope::{ScopeIndex, find_process, membership_key};
use super::signals::signal_sequence;
use super::{KillContext, ProcessInfo, ProcessTable};
use crate::access::{Operation, Ruling, check};
use crate::memory::{Sharing, combined_memory};
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, SortIndirect as _};
use gpukill_proto::kill::{
    KillPlan, KillRequest, KillScope, KillTarget, PlannedAction, ProtectionReason, Reaper,
    RemainingJob, TargetMemory,
};
use gpukill_proto::model::{Job, ProcessKey, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the plan for a request.
///
/// # Errors
/// As [`super::resolve::resolve`]; [`Refusal::Denied`] where the caller may not make
/// such a request at all, and [`Refusal::NoMatch`] where no process is selected or may
/// be.
pub fn plan(
    request: &KillRequest,
    context: &KillContext<'_>,
    now: Timestamp,
) -> Result<KillPlan, Refusal> {
    if context.caller.contained {
        return Err(Refusal::Denied {
            asked: "end a process from a container: its users are not users of this host".into(),
            ask: format!("someone in group {}", context.operators),
        });
    }
    let selection = resolve(request, context)?;
    if selection.keys.is_empty() && selection.undetermined == 0 {
        return Err(Refusal::NoMatch(
            "no process that uses a GPU is selected".into(),
        ));
    }
    let planner = Planner::new(request, context);
    let parts = planner.collect_processes(&selection.keys);
    let targets: Vec<KillTarget> = parts
        .into_iter()
        .filter_map(|(key, part)| planner.target(key, part))
        .collect();
    let starts = context
        .processes
        .values()
        .map(|it| it.lineage.key.start_ticks);
    Ok(KillPlan {
        at: now,
        youngest_start_ticks: starts.max().unwrap_or_default(),
        request: request.clone(),
        remaining_jobs: planner.remaining_jobs(&targets),
        targets,
        undetermined: selection.undetermined,
    })
}

/// How a process became part of a plan.
#[derive(Debug, Default)]
struct PlannedProcess {
    named: bool,
    /// The vendors of the devices for which it is ended.
    vendors: BTreeSet<Vendor>,
    /// Whether the scope of a named process reaches it.
    reached: bool,
    /// Why its own scope is unknown.
    unclear: Option<String>,
}

struct Planner<'a> {
    request: &'a KillRequest,
    context: &'a KillContext<'a>,
    usage: BTreeMap<ProcessKey, ProcessDeviceUse<'a>>,
    scopes: ScopeIndex<'a>,
    family: DaemonFamily,
    names: BTreeMap<u32, String>,
}

impl<'a> Planner<'a> {
    fn new(request: &'a KillRequest, context: &'a KillContext<'a>) -> Self {
        Self {
            request,
            context,
            usage: device_use(context.snapshot, context.holders),
            scopes: ScopeIndex::new(context.processes),
            family: DaemonFamily::new(context.protection.daemon, context.processes),
            names: user_names(context.processes),
        }
    }

    /// Collects the selected processes and the processes in their scope. The scope of a
    /// protected process is not followed: below a desktop is everything that its user
    /// runs.
    fn collect_processes(
        &self,
        selected: &BTreeSet<ProcessKey>,
    ) -> BTreeMap<ProcessKey, PlannedProcess> {
        let mut parts: BTreeMap<ProcessKey, PlannedProcess> = BTreeMap::new();
        let mut membership_keys = BTreeSet::new();
        let selected = selected
            .iter()
            .filter_map(|key| find_process(self.context.processes, *key));
        for process in selected {
            let key = process.lineage.key;
            // A thousand workers of one job have the same scope.
            match parts.get_mut(&key) {
                Some(part) if membership_keys.contains(&membership_key(process)) => {
                    part.named = true
                }
                Some(_) | None if self.protection(process, true).is_some() => {
                    parts.entry(key).or_default().named = true;
                }
                Some(_) | None => {
                    membership_keys.insert(membership_key(process));
                    self.add(process, &mut parts);
                }
            }
        }
        parts
    }

    /// Adds a selected process and the processes in its scope.
    fn add(&self, process: &ProcessInfo, parts: &mut BTreeMap<ProcessKey, PlannedProcess>) {
        let key = process.lineage.key;
        let reached = self.scopes.processes_in_scope(process, self.request.scope);
        let part = parts.entry(key).or_default();
        part.named = true;
        let reached = match reached {
            Ok(reached) => reached,
            Err(why) => {
                part.unclear = Some(why);
                return;
            }
        };
        // All processes of a job are ended as gently as the one that needs it most.
        let vendors: BTreeSet<Vendor> =
            reached.iter().flat_map(|key| self.vendors(*key)).into_set();
        for other in reached {
            let part = parts.entry(other).or_default();
            part.vendors.extend(&vendors);
            part.reached = true;
        }
    }

    fn vendors(&self, key: ProcessKey) -> BTreeSet<Vendor> {
        let used = self.usage.get(&key);
        let ids = used.into_iter().flat_map(|used| used.memory.keys());
        let devices = ids.filter_map(|id| find_device(self.context, id));
        devices.map(|device| device.vendor).into_set()
    }

    /// Returns why the process is protected. A session host can be named by its pid
    /// only: a condition that happens to hold does not select it.
    fn protection(&self, process: &ProcessInfo, named: bool) -> Option<ProtectionReason> {
        let by_pid = named
            && self
                .request
                .selector
                .pids
                .contains(&process.lineage.key.pid);
        let protected = protection_of(process, &self.family, self.context.protection);
        let protected = protected.filter(|it| !self.overrides(it, named));
        protected.or_else(|| {
            (!by_pid && self.scopes.hosts_sessions(process))
                .then(|| ProtectionReason::always("it hosts sessions: select it by its pid"))
        })
    }

    /// Whether the request overrides this protection. Processes that were only reached
    /// by the scope stay protected.
    fn overrides(&self, protected: &ProtectionReason, named: bool) -> bool {
        self.request.override_protected && named && protected.root_may_override
    }

    /// Returns the protection that the request overrides.
    fn overridden(&self, process: &ProcessInfo, named: bool) -> Option<String> {
        let protected = protection_of(process, &self.family, self.context.protection)?;
        self.overrides(&protected, named).then_some(protected.why)
    }

    fn target(&self, key: ProcessKey, part: PlannedProcess) -> Option<KillTarget> {
        let process = find_process(self.context.processes, key)?;
        let uid = match &process.uids {
            Reading::Value(uids) => Reading::Value(uids.real),
            unknown => unknown.as_unknown(),
        };
        Some(KillTarget {
            key,
            name: process.lineage.name.clone(),
            command: visible_command(process, self.context),
            uid,
            owner: process.owner.clone(),
            holds: self.holds(key),
            named: part.named,
            job: process.job.clone(),
            overridden: self.overridden(process, part.named),
            action: self.planned_action(process, part),
        })
    }

    fn holds(&self, key: ProcessKey) -> Vec<TargetMemory> {
        let Some(used) = self.usage.get(&key) else {
            return Vec::new();
        };
        let devices = used.memory.iter().filter_map(|(id, parts)| {
            let index = find_device(self.context, id).map(|device| device.index);
            let open = || self.context.holders.iter().find(|held| held.id == **id);
            Some(TargetMemory {
                device: (*id).clone(),
                index: index.or_else(|| Some(open()?.index))?,
                memory: combined_memory(parts.iter().map(|part| (*part, Sharing::NONE))),
            })
        });
        let mut holds: Vec<TargetMemory> = devices.collect();
        holds.sort_indirect_by_key(|hold| hold.index);
        holds
    }

    fn planned_action(&self, process: &ProcessInfo, part: PlannedProcess) -> PlannedAction {
        let key = process.lineage.key;
        if let Some(why) = self.protection(process, part.named) {
            return PlannedAction::Protected(why);
        }
        if is_zombie(process, self.usage.get(&key)) {
            return PlannedAction::Zombie(find_reaper(process, self.context.processes));
        }
        let operation = Operation::End {
            uids: process.uids.known().copied(),
            namespace_owner: process.namespace_owner.known().copied().flatten(),
        };
        match check(self.context.caller, operation, self.context.roles) {
            Ruling::Deny(_) if process.uids.known().is_none() => {
                PlannedAction::Unclear("its owner is not known".into())
            }
            Ruling::Deny(_) => PlannedAction::Denied(contact_text(
                process,
                self.context.roles,
                self.context.operators,
                &self.names,
            )),
            Ruling::Allow => match part.unclear {
                Some(why) if !part.reached => PlannedAction::Unclear(why),
                Some(_) | None => {
                    let vendors: Vec<Vendor> = part.vendors.into_iter().collect();
                    PlannedAction::End(signal_sequence(self.request, &vendors))
                }
            },
        }
    }

    /// Jobs of which more processes remain than the plan ends.
    fn remaining_jobs(&self, targets: &[KillTarget]) -> Vec<RemainingJob> {
        let is_ended = |target: &&KillTarget| matches!(target.action, PlannedAction::End(_));
        let ended: BTreeMap<ProcessKey, &KillTarget> = targets
            .iter()
            .filter(is_ended)
            .map(|target| (target.key, target))
            .into_map();
        let mut jobs: BTreeMap<&Job, ProcessKey> = BTreeMap::new();
        for (key, target) in &ended {
            if let Some(job) = target.job.known() {
                jobs.entry(job).or_insert(*key);
            }
        }
        jobs.into_iter()
            .filter_map(|(job, key)| self.remaining_job(job, key, &ended))
            .filter(|remaining| remaining.remaining_processes > 0)
            .collect()
    }

    /// The part of a job that remains when the plan ends `key` and the other `ended`
    /// processes.
    fn remaining_job(
        &self,
        job: &Job,
        key: ProcessKey,
        ended: &BTreeMap<ProcessKey, &KillTarget>,
    ) -> Option<RemainingJob> {
        let find = |key: &ProcessKey| find_process(self.context.processes, *key);
        let members = self
            .scopes
            .processes_in_scope(find(&key)?, KillScope::Job)
            .ok()?;
        let remains = |key: &&ProcessKey| {
            !ended.contains_key(*key)
                && find(key).is_some_and(|process| !is_zombie(process, self.usage.get(*key)))
        };
        let remaining: Vec<&ProcessKey> = members.iter().filter(remains).collect();
        // A process that was reached by its process group may belong to another job.
        let selects_job = |key: &&&ProcessKey| {
            self.usage.contains_key(**key)
                && find(key).is_some_and(|process| process.job.known() == Some(job))
        };
        let selecting = remaining.iter().find(selects_job).map_or(key, |key| **key);
        Some(RemainingJob {
            pid: selecting.pid,
            job: job.clone(),
            remaining_processes: u32::try_from(remaining.len()).unwrap_or(u32::MAX),
        })
    }
}

/// The process that has to reap this one.
pub(super) fn find_reaper(process: &ProcessInfo, table: &ProcessTable) -> Reaper {
    let parent = table.get(&process.parent);
    Reaper {
        pid: process.parent,
        name: parent.map_or(Reading::Unsupported, |parent| {
            Reading::Value(parent.lineage.name.clone())
        }),
    }
}
