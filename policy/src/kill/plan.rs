//! The plan: whom a request means, what belongs to them, and what is to become of
//! each.

use super::belongs::{Kindred, keeps_work, whole};
use super::condition::{device, shown_command};
use super::meant::meant;
use super::people::{names, whom_to_ask};
use super::protected::protection;
use super::signals::signals;
use super::usage::{Usage, is_zombie, usage};
use super::{Candidate, Crowd, Seen};
use crate::access::{Operation, Ruling, check};
use crate::memory::{Sharing, held};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::kill::{
    Fate, KillHold, KillPlan, KillRequest, KillRest, KillScope, KillTarget, Protected, Reaper,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{Job, ProcessKey, Vendor};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What would be done for this request.
///
/// # Errors
/// As [`super::meant::meant`], [`Refusal::Denied`] where the caller may not ask
/// for it at all, and [`Refusal::NoMatch`] where it is known that nobody is meant.
pub fn plan(request: &KillRequest, seen: &Seen<'_>, now: Timestamp) -> Result<KillPlan, Refusal> {
    if seen.caller.contained {
        return Err(Refusal::Denied {
            asked: "end a process from a container: its users are not those of this box".into(),
            ask: format!("someone in group {}", seen.operators),
        });
    }
    let meant = meant(request, seen)?;
    if meant.keys.is_empty() && meant.unjudged == 0 {
        return Err(Refusal::NoMatch(
            "no process that uses a GPU is meant".into(),
        ));
    }
    let planner = Planner::new(request, seen);
    let parts = planner.parts(&meant.keys);
    let targets: Vec<KillTarget> = parts
        .into_iter()
        .filter_map(|(key, part)| planner.target(key, part))
        .collect();
    let starts = seen.crowd.values().map(|it| it.kin.key.start_ticks);
    Ok(KillPlan {
        at: now,
        youngest_start_ticks: starts.max().unwrap_or_default(),
        request: request.clone(),
        rest: planner.rest(&targets),
        targets,
        unjudged: meant.unjudged,
    })
}

/// How one process came into a plan.
#[derive(Debug, Default)]
struct Part {
    /// The request names it.
    named: bool,
    /// The vendors of the devices for whose sake it is ended.
    vendors: BTreeSet<Vendor>,
    /// The scope of one that is named reaches it.
    reached: bool,
    /// Why its own scope cannot be told.
    unclear: Option<String>,
}

struct Planner<'a> {
    request: &'a KillRequest,
    seen: &'a Seen<'a>,
    usage: BTreeMap<ProcessKey, Usage<'a>>,
    kindred: Kindred<'a>,
    names: BTreeMap<u32, String>,
}

impl<'a> Planner<'a> {
    fn new(request: &'a KillRequest, seen: &'a Seen<'a>) -> Self {
        Self {
            request,
            seen,
            usage: usage(seen.snapshot, seen.holders),
            kindred: Kindred::new(seen.crowd),
            names: names(seen.crowd),
        }
    }

    /// All that are meant, and what is reached from them. From what is protected
    /// nothing is: below a desktop is all that its user does.
    fn parts(&self, meant: &BTreeSet<ProcessKey>) -> BTreeMap<ProcessKey, Part> {
        let mut parts: BTreeMap<ProcessKey, Part> = BTreeMap::new();
        let mut wholes = BTreeSet::new();
        let meant = meant.iter().filter_map(|key| at(self.seen.crowd, *key));
        for process in meant {
            let key = process.kin.key;
            // A thousand workers of one job reach the same.
            match parts.get_mut(&key) {
                Some(part) if wholes.contains(&whole(process)) => part.named = true,
                Some(_) | None if self.protected(process, true).is_some() => {
                    parts.entry(key).or_default().named = true;
                }
                Some(_) | None => {
                    wholes.insert(whole(process));
                    self.add(process, &mut parts);
                }
            }
        }
        parts
    }

    /// Adds a process that is meant, and what its scope reaches from it.
    fn add(&self, process: &Candidate, parts: &mut BTreeMap<ProcessKey, Part>) {
        let key = process.kin.key;
        let reached = self.kindred.reach(process, self.request.scope);
        let part = parts.entry(key).or_default();
        part.named = true;
        let reached = match reached {
            Ok(reached) => reached,
            Err(why) => {
                part.unclear = Some(why);
                return;
            }
        };
        // All of a job are ended as gently as the one that needs it most.
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
        let devices = ids.filter_map(|id| device(self.seen, id));
        devices.map(|device| device.vendor).into_set()
    }

    /// Why nobody ends it. What keeps people's work may be named by its pid, and by
    /// nothing else: a condition that it happens to meet does not mean it.
    fn protected(&self, process: &Candidate, named: bool) -> Option<Protected> {
        let by_pid = named && self.request.selector.pids.contains(&process.kin.key.pid);
        let protected = protection(process, self.seen.crowd, self.seen.protection);
        let protected = protected.filter(|it| !self.overrides(it, named));
        protected.or_else(|| {
            (!by_pid && keeps_work(process))
                .then(|| Protected::always("it keeps people's work: only its pid names it"))
        })
    }

    /// Whether the request ends what is protected for this reason all the same: what
    /// its scope reaches besides stays protected.
    fn overrides(&self, protected: &Protected, named: bool) -> bool {
        self.request.override_protected && named && protected.root_may_override
    }

    /// Why the process is protected, where the request overrides that.
    fn overridden(&self, process: &Candidate, named: bool) -> Option<String> {
        let protected = protection(process, self.seen.crowd, self.seen.protection)?;
        self.overrides(&protected, named).then_some(protected.why)
    }

    fn target(&self, key: ProcessKey, part: Part) -> Option<KillTarget> {
        let process = at(self.seen.crowd, key)?;
        let uid = match &process.uids {
            Reading::Value(uids) => Reading::Value(uids.real),
            unknown => unknown.because(),
        };
        Some(KillTarget {
            key,
            name: process.kin.name.clone(),
            command: shown_command(process, self.seen),
            uid,
            owner: process.owner.clone(),
            holds: self.holds(key),
            named: part.named,
            job: process.job.clone(),
            overridden: self.overridden(process, part.named),
            fate: self.fate(process, part),
        })
    }

    fn holds(&self, key: ProcessKey) -> Vec<KillHold> {
        let Some(used) = self.usage.get(&key) else {
            return Vec::new();
        };
        let devices = used.memory.iter().filter_map(|(id, parts)| {
            let index = device(self.seen, id).map(|device| device.index);
            let open = || self.seen.holders.iter().find(|held| held.id == **id);
            Some(KillHold {
                device: (*id).clone(),
                index: index.or_else(|| Some(open()?.index))?,
                memory: held(parts.iter().map(|part| (*part, Sharing::NONE))),
            })
        });
        let mut holds: Vec<KillHold> = devices.collect();
        holds.sort_indirect_by_key(|hold| hold.index);
        holds
    }

    fn fate(&self, process: &Candidate, part: Part) -> Fate {
        let key = process.kin.key;
        if let Some(why) = self.protected(process, part.named) {
            return Fate::Protected(why);
        }
        if is_zombie(process, self.usage.get(&key)) {
            return Fate::Zombie(reaper(process, self.seen.crowd));
        }
        let operation = Operation::End {
            uids: process.uids.known().copied(),
            namespace_owner: process.namespace_owner.known().copied().flatten(),
        };
        match check(self.seen.caller, operation, self.seen.roles) {
            Ruling::Deny(_) if process.uids.known().is_none() => {
                Fate::Unclear("whose it is is not known".into())
            }
            Ruling::Deny(_) => Fate::Denied(whom_to_ask(
                process,
                self.seen.roles,
                self.seen.operators,
                &self.names,
            )),
            Ruling::Allow => match part.unclear {
                Some(why) if !part.reached => Fate::Unclear(why),
                Some(_) | None => {
                    let vendors: Vec<Vendor> = part.vendors.into_iter().collect();
                    Fate::End(signals(self.request, &vendors))
                }
            },
        }
    }

    /// The jobs of which more goes on than the plan ends.
    fn rest(&self, targets: &[KillTarget]) -> Vec<KillRest> {
        let is_ended = |target: &&KillTarget| matches!(target.fate, Fate::End(_));
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
        let rest = jobs.into_iter().filter_map(|(job, key)| {
            let process = at(self.seen.crowd, key)?;
            let whole = self.kindred.reach(process, KillScope::Job).ok()?;
            let goes_on = |other: &&ProcessKey| {
                let process = at(self.seen.crowd, **other);
                !ended.contains_key(*other)
                    && process.is_some_and(|process| !is_zombie(process, self.usage.get(*other)))
            };
            let others: Vec<&ProcessKey> = whole.iter().filter(goes_on).collect();
            // One that joined it by its process group may be of a job of its own.
            let names_it = |other: &&&ProcessKey| {
                let process = at(self.seen.crowd, ***other);
                self.usage.contains_key(**other)
                    && process.is_some_and(|process| process.job.known() == Some(job))
            };
            let by = others.iter().find(names_it).map_or(key, |other| **other);
            Some(KillRest {
                pid: by.pid,
                job: job.clone(),
                others: u32::try_from(others.len()).unwrap_or(u32::MAX),
            })
        });
        rest.filter(|rest| rest.others > 0).collect()
    }
}

/// Who has to ask how a process ended.
pub(super) fn reaper(process: &Candidate, crowd: &Crowd) -> Reaper {
    let parent = crowd.get(&process.parent);
    Reaper {
        pid: process.parent,
        name: parent.map_or(Reading::Unsupported, |parent| {
            Reading::Value(parent.kin.name.clone())
        }),
    }
}

fn at(crowd: &Crowd, key: ProcessKey) -> Option<&Candidate> {
    crowd.get(&key.pid).filter(|process| process.kin.key == key)
}
