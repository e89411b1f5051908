//! Who is ended for a violation: one whole job, of the lowest priority that there is. Of
//! several people who share what is too much, the one who claimed last; within the newest
//! claims of that person one that suffices alone, else the one that frees most; of these one
//! that has done nothing, then the newest. Never who is protected, never a job of which a part
//! is or is somebody else's, never who came before others who may not be ended and hold all
//! that is too much, and nobody while another that was ended is still going.
//! What processes hold that survived their signals counts as freed: others are ended only for
//! what is too much without it, and the survivors are tried again where there are no others.

mod candidates;

mod spared;

mod told;

use super::clock::Due;
use super::ended::{Ended as EndedJob, Part, Process, Progress};
use super::judge::{Excess, Held, Job, Scene};
use super::memory::{JobKey, JobMemory, Memory};
use super::places::has_place;
use super::simulated::{JobPart, SimulatedEnd};
use super::snoozes::Grant;
use super::whose::PersonKey;
use candidates::{
    Candidate, Kept, began, best, claimed, frees, is_idle, is_known, is_newest, priority,
};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{GuardMode, RuleKind, RuleName, Victim};
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use spared::{is_due, is_warned, left_alone, may_not, why_nobody};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use told::victim;

/// Whom.
pub(crate) enum Choice {
    /// This job.
    Job(Chosen),
    /// Somebody is going already, or is gone.
    NotYet,
    /// Who is to go has more time.
    NotDue,
    /// Nobody may be, and why.
    Nobody(Reasons),
}

/// A job to be ended, or in a container that several users share the part of one of them.
pub(crate) struct Chosen {
    pub(crate) job: usize,
    pub(crate) runs: Vec<usize>,
    pub(crate) part: Option<Part>,
    pub(crate) victim: Victim,
    /// These processes survived signals before.
    pub(crate) is_repeated: bool,
}

/// Why nobody is: put in words only when they are said.
pub(crate) struct Reasons(Vec<Reason>);

enum Reason {
    /// It is not known whose a process is.
    Unowned,
    /// That job was ended.
    IsStillThere(usize),
    /// That job came before others who may not be ended.
    CameBefore(usize),
    /// What is so of that job.
    Of(usize, &'static str),
}

impl Reasons {
    /// In words.
    pub(crate) fn told(&self, scene: &Scene<'_>, kind: RuleKind) -> String {
        let shown = |job: &usize| scene.jobs[*job].shown();
        let words = self.0.iter().map(|reason| match reason {
            Reason::Unowned => "whose a process is, is not known".to_owned(),
            Reason::IsStillThere(job) => format!("{} was ended, and is there still", shown(job)),
            Reason::CameBefore(job) => {
                format!("{}: others who may not be ended came after it", shown(job))
            }
            Reason::Of(job, why) => format!("{}: {why}", shown(job)),
        });
        why_nobody(words.collect(), kind)
    }
}

/// Who was ended, in this bucket or before, and is there still.
pub(crate) struct Ended {
    jobs: BTreeMap<JobKey, EndedJob>,
    /// What those who are ended in this bucket used.
    devices: BTreeSet<DeviceId>,
    /// Where somebody was ended a short while ago, and when.
    cooling: BTreeMap<DeviceId, Timestamp>,
    at: Timestamp,
}

impl Ended {
    pub(crate) fn of(memory: &mut Memory, scene: &Scene<'_>) -> Self {
        let at = scene.bucket.until;
        let cooldown = scene.book.rules().enforcement.cooldown;
        let mut cooling = std::mem::take(&mut memory.cooling);
        for since in cooling.values_mut() {
            // A clock that was set back a little ends nothing.
            *since = at.min(*since);
        }
        cooling.retain(|_, since| at.since(*since) < cooldown);
        Self {
            jobs: std::mem::take(&mut memory.ended),
            devices: BTreeSet::new(),
            cooling,
            at,
        }
    }

    pub(crate) fn remember(self, memory: &mut Memory) {
        memory.ended = self.jobs;
        memory.cooling = self.cooling;
        memory.begins_anew(|device| self.devices.contains(device));
    }

    /// Notes that a job is ended.
    pub(crate) fn end(&mut self, scene: &Scene<'_>, chosen: &Chosen, rule: &RuleName) {
        let job = &scene.jobs[chosen.job];
        let used = chosen.runs.iter().map(|run| &scene.runs[*run].key.device);
        let used: BTreeSet<DeviceId> = used.cloned().into_set();
        self.cooling
            .extend(used.iter().map(|device| (device.clone(), self.at)));
        self.devices.extend(used.iter().cloned());
        let policy = scene.book.find(&rule.source);
        let rule = policy.map(|policy| (rule.clone(), scene.book.policy_digest(policy)));
        let mut before = self.jobs.remove(job.key.as_ref());
        let survivors = before.as_mut().map(|it| std::mem::take(&mut it.survivors));
        let before = before.filter(|it| it.user == chosen.part);
        let in_vain = before.as_ref().filter(|it| !it.progress.had_signals());
        let ended = EndedJob {
            at: self.at,
            rule,
            rule_set: scene.book.digest(),
            progress: Progress::Chosen,
            tries: in_vain.map_or(0, EndedJob::tries_after),
            person: Some(PersonKey::from(&chosen.victim.job.owner)),
            user: chosen.part,
            processes: chosen.runs.iter().map(|run| process(scene, *run)).collect(),
            joined: before.iter().flat_map(EndedJob::all).copied().collect(),
            survivors: survivors.unwrap_or_default(),
            devices: used,
        };
        self.jobs.insert(JobKey::clone(&job.key), ended);
    }

    /// Whether a job of this person can be ended beside those that are being ended.
    pub(crate) fn has_place(&self, person: &PersonKey) -> bool {
        let under_way = || self.jobs.values().filter(|it| it.is_being_ended(self.at));
        let is_theirs = |it: &&EndedJob| it.person.as_ref() == Some(person);
        has_place(under_way().filter(is_theirs).count(), under_way().count())
    }

    /// Whether what somebody held on a device is still coming back.
    pub(crate) fn is_cooling(&self, device: &DeviceId) -> bool {
        self.cooling.contains_key(device)
    }
}

pub(crate) fn process(scene: &Scene<'_>, run: usize) -> Process {
    let key = scene.runs[run].key;
    (key.pid, key.start_ticks)
}

/// What else a choice depends on.
pub(crate) struct Terms<'a> {
    pub(crate) due: &'a Due,
    pub(crate) mode: GuardMode,
    /// What is remembered of each job.
    pub(crate) jobs: &'a BTreeMap<Arc<JobKey>, JobMemory>,
    /// A job that others end, of which they were told.
    pub(crate) left_to: Option<&'a JobKey>,
    /// Who has more time, and until when.
    pub(crate) snoozes: &'a BTreeMap<u32, Grant>,
    /// In a dry run: the jobs that would have been ended for it before.
    pub(crate) simulated: &'a BTreeMap<JobPart, SimulatedEnd>,
}

/// Chooses, of the jobs that a condition is known by.
pub(crate) fn choose(scene: &Scene<'_>, held: &Held, ended: &Ended, terms: &Terms<'_>) -> Choice {
    let Terms {
        due,
        mode,
        jobs: known,
        left_to,
        snoozes,
        simulated,
    } = *terms;
    let is_there = |run: &usize| scene.runs[*run].judged.is_present;
    let runs: Vec<usize> = held.runs.iter().copied().filter(is_there).collect();
    if runs.is_empty() && !held.runs.is_empty() {
        return Choice::NotYet;
    }
    let mut jobs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut spared = Vec::new();
    // What is not known of processes may be enough.
    let frees_at_most = |runs: &[usize]| match is_known(scene, runs, held.excess) {
        true => frees(scene, runs, held.excess),
        false => u64::MAX,
    };
    // Of what these hold others are not ended who came before.
    let mut kept: Vec<Kept> = Vec::new();
    for run in runs {
        match scene.runs[run].job {
            Some(job) => jobs.entry(job).or_default().push(run),
            None => {
                spared.push(Reason::Unowned);
                kept.push(Kept {
                    person: None,
                    priority: 0,
                    claimed: claimed(scene, None, &[run], held.excess),
                    holds: frees_at_most(&[run]),
                });
            }
        }
    }
    for position in jobs.keys() {
        let job = &scene.jobs[*position];
        if left_to == Some(job.key.as_ref()) {
            return Choice::NotYet;
        }
        let was_ended = ended.jobs.get(job.key.as_ref());
        if was_ended.is_some_and(|it| it.is_going(ended.at)) {
            return Choice::NotYet;
        }
    }
    let mut fresh = Vec::new();
    let mut repeated = Vec::new();
    // Without the jobs that a dry run would have ended it would be so much less, and without
    // the processes that survived their signals.
    let (mut would_be_free, mut survive) = (None, None);
    let add = |sum: &mut Option<u64>, frees: u64| {
        *sum = Some(sum.unwrap_or(0).saturating_add(frees));
    };
    for (position, runs) in &jobs {
        let job = &scene.jobs[*position];
        let was_ended = ended.jobs.get(job.key.as_ref());
        let (survivors, others): (Vec<usize>, Vec<usize>) = runs
            .iter()
            .partition(|run| was_ended.is_some_and(|it| it.has_signalled(&process(scene, **run))));
        if !survivors.is_empty() {
            spared.push(Reason::IsStillThere(*position));
            add(&mut survive, frees_at_most(&survivors));
        }
        let is_due = |run: &usize| {
            was_ended.is_some_and(|it| it.is_due_again(&process(scene, *run), ended.at))
        };
        let due_again: Vec<usize> = survivors.into_iter().filter(is_due).collect();
        if others.is_empty() && due_again.is_empty() {
            continue;
        }
        let memory = known.get(job.key.as_ref());
        let keeps = |runs: &[usize]| Kept {
            person: Some(job.person),
            priority: priority(scene, job),
            claimed: claimed(scene, memory, runs, held.excess),
            holds: frees_at_most(runs),
        };
        let why = may_not(scene, job).or_else(|| left_alone(scene, job, mode));
        let unread = (!is_warned(scene, job, due)).then_some("its owner cannot be warned");
        if let Some(why) = why.or(unread) {
            spared.push(Reason::Of(*position, why));
            kept.push(keeps(&others));
            continue;
        }
        let candidate = |part, runs: &[usize], is_repeated| Candidate {
            job: *position,
            person: job.person,
            part,
            is_repeated,
            priority: priority(scene, job),
            claimed: claimed(scene, memory, runs, held.excess),
            frees: frees(scene, runs, held.excess),
            is_idle: is_idle(scene, job),
            began: began(scene, runs),
        };
        for (part, runs) in parts(scene, job, &others) {
            let part_of_job = (JobKey::clone(&job.key), part);
            if simulated.contains_key(&part_of_job) {
                add(&mut would_be_free, frees_at_most(&runs));
                continue;
            }
            match candidate(part, &runs, false) {
                candidate if candidate.frees > 0 => fresh.push(candidate),
                _ => {
                    spared.push(Reason::Of(*position, "what it holds is not known"));
                    kept.push(keeps(&runs));
                }
            }
        }
        let again = parts(scene, job, &due_again).into_iter();
        let again = again.map(|(part, runs)| candidate(part, &runs, true));
        repeated.extend(again.filter(|candidate| candidate.frees > 0));
    }
    let excess = [would_be_free, survive]
        .into_iter()
        .flatten()
        .try_fold(held.excess, Excess::without);
    if let Some(excess) = excess {
        let came_before = fresh.extract_if(.., |it| !is_newest(it, &kept, excess));
        spared.extend(came_before.map(|it| Reason::CameBefore(it.job)));
    }
    let of_fresh = excess.and_then(|excess| best(&fresh, excess));
    let chosen = of_fresh.or_else(|| best(&repeated, held.excess));
    let has_more_time = |job: &Job| {
        let uid = scene.people[job.person].uid;
        uid.is_some_and(|uid| snoozes.contains_key(&uid))
    };
    match chosen {
        // Who is to be ended is no other because it has more time left.
        Some(chosen)
            if has_more_time(&scene.jobs[chosen.job])
                || !is_due(scene, &scene.jobs[chosen.job], due) =>
        {
            Choice::NotDue
        }
        Some(chosen) => {
            let job = &scene.jobs[chosen.job];
            let is_of_part = |run: &usize| {
                let part = || scene.user_in_container(*run).map(Part);
                chosen.part.is_none() || part() == chosen.part
            };
            let was_ended = ended.jobs.get(job.key.as_ref());
            let is_meant = |run: &usize| {
                let process = process(scene, *run);
                match chosen.is_repeated {
                    true => was_ended.is_some_and(|it| it.is_due_again(&process, ended.at)),
                    false => was_ended.is_none_or(|it| !it.has_signalled(&process)),
                }
            };
            let runs = job.runs.iter().copied().filter(is_of_part);
            let runs: Vec<usize> = runs.filter(is_meant).collect();
            Choice::Job(Chosen {
                job: chosen.job,
                victim: victim(scene, chosen, &runs),
                runs,
                part: chosen.part,
                is_repeated: chosen.is_repeated,
            })
        }
        None if survive.is_none() && would_be_free.is_some() => Choice::NotYet,
        None => Choice::Nobody(Reasons(spared)),
    }
}

/// The runs by which a job is known, apart by user where several share its container.
fn parts(scene: &Scene<'_>, job: &Job, runs: &[usize]) -> BTreeMap<Option<Part>, Vec<usize>> {
    if !runs.is_empty() && !scene.is_shared(job) {
        return [(None, runs.to_vec())].into();
    }
    let mut parts: BTreeMap<Option<Part>, Vec<usize>> = BTreeMap::new();
    for run in runs {
        let part = scene.user_in_container(*run).map(Part);
        parts.entry(part).or_default().push(*run);
    }
    parts
}
