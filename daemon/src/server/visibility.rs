//! What a caller may see of the findings of the guard: if other users are hidden, plain users see
//! only their own violations.

use crate::guard::GuardStatus;
use crate::guard::sample::run_key;
use crate::guard::{ActionCounts, CountsByUser};
use gpukill_policy::access::{Caller, Roles, may_read_command};
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::consequences::{is_idle_service, milder_policy_for_violation};
use gpukill_policy::guard::enforcement::ended_jobs::{PidStart, SimulatedEnd, simulated_jobs};
use gpukill_policy::usage::DeviceRun;
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::guard::{
    EvidenceProcess, GuardMode, GuardRecord, GuardStep, GuardSummary, MAX_IDLE_SERVICES,
    MAX_OWN_WARNINGS, OpenViolation, OwnWarning, Person, RunKey, ViolationMark, ViolationSubject,
};
use gpukill_proto::model::{GpuProcess, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// At most this many processes are marked in a list.
const MAX_MARKED: usize = 256;

/// What a caller may see.
#[derive(Clone, Copy)]
pub(super) struct Visibility<'a> {
    pub(super) caller: &'a Caller,
    pub(super) roles: &'a Roles,
}

impl Visibility<'_> {
    /// Whether the caller may see the details of a process.
    pub(super) fn sees_process(&self, process: &GpuProcess) -> bool {
        self.may_read(
            process.uid.last_known().copied(),
            process.namespace_owner.last_known().copied().flatten(),
        )
    }

    /// Whether the caller may see what this user does; for an unknown user, what everyone does.
    pub(super) fn sees_user(&self, uid: Option<u32>) -> bool {
        self.may_read(uid, None)
    }

    /// Whether the caller may see what everyone does.
    pub(super) fn sees_all_users(&self) -> bool {
        self.may_read(None, None)
    }

    fn sees_person(&self, person: &Person) -> bool {
        self.may_read(person.uid, None)
    }

    fn sees_owner(&self, process: &EvidenceProcess) -> bool {
        match &process.owner {
            Some(owner) => self.sees_person(owner),
            None => self.sees_all_users(),
        }
    }

    fn may_read(&self, owner: Option<u32>, namespace_owner: Option<u32>) -> bool {
        may_read_command(self.caller, (owner, namespace_owner), self.roles)
    }

    /// The violation as the caller may see it; `None` if it concerns only others. A warned caller
    /// sees the deadline of the caller's own jobs.
    pub(super) fn redact_violation(
        &self,
        open: &OpenViolation,
        compiled: &CompiledRules,
    ) -> Option<OpenViolation> {
        self.sees_violation(open).then(|| {
            let mut open = open.clone();
            open.evidence
                .runs
                .retain(|process| self.sees_owner(process));
            open.own_policy = milder_policy_for_violation(&open, compiled);
            self.redact_other_owners(&mut open, Some(self.caller.uid));
            open
        })
    }

    /// The idle services among these violations that the caller may see, whatever their
    /// consequence: those that are idle for the longest time.
    pub(super) fn idle_services(
        &self,
        open: &[OpenViolation],
        compiled: &CompiledRules,
    ) -> Vec<OpenViolation> {
        let is_idle = |open: &&OpenViolation| is_broken(open) && is_idle_service(open);
        let services = open.iter().filter(is_idle);
        let mut visible: Vec<OpenViolation> = services
            .filter_map(|open| self.redact_violation(open, compiled))
            .collect();
        visible.sort_indirect_by_key(|open| open.evidence.since);
        visible.truncate(MAX_IDLE_SERVICES);
        visible
    }

    /// A violation about this process of a user, which the caller may see, with the deadline of
    /// that user.
    pub(super) fn redact_for_process(
        &self,
        open: &OpenViolation,
        (pid, owner): (u32, Option<u32>),
        compiled: &CompiledRules,
    ) -> OpenViolation {
        let mut open = open.clone();
        let processes = &mut open.evidence.runs;
        processes.retain(|process| process.run.pid == pid || self.sees_owner(process));
        open.own_policy = milder_policy_for_violation(&open, compiled);
        self.redact_other_owners(&mut open, owner);
        open
    }

    /// Hides the deadlines and snoozes of others; the deadline is the one of this user.
    fn redact_other_owners(&self, open: &mut OpenViolation, uid: Option<u32>) {
        open.deadline = open.deadline_for(uid);
        let is_of_several = matches!(
            open.subject,
            ViolationSubject::Group(_)
                | ViolationSubject::GroupOn(..)
                | ViolationSubject::Device(_)
        );
        if is_of_several && !self.sees_all_users() {
            open.snoozed_until = None;
        }
        open.readers
            .retain(|reader| self.may_read(Some(reader.uid), None));
    }

    /// Redacts a step of a violation: the victim of a violation that others also commit may be one
    /// of them.
    pub(super) fn redact_record(&self, mut record: GuardRecord) -> Option<GuardRecord> {
        if self.sees_all_users() {
            return Some(record);
        }
        let is_seen = match &record.step {
            GuardStep::Ended(victim) => self.sees_person(&victim.job.owner),
            // The reason why nothing is ended may name jobs of others.
            GuardStep::Exempt(_) => match &record.subject {
                ViolationSubject::Group(_)
                | ViolationSubject::GroupOn(..)
                | ViolationSubject::Device(_) => false,
                ViolationSubject::Person(_)
                | ViolationSubject::PersonOn(..)
                | ViolationSubject::Job(_)
                | ViolationSubject::Run(_) => true,
            },
            GuardStep::Outcome(outcome) => self.sees_person(&outcome.job.owner),
            GuardStep::Snoozed { owner, .. } | GuardStep::SnoozeVoided { owner, .. } => {
                return self.may_read(Some(*owner), None).then_some(record);
            }
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => true,
        };
        if !is_seen || !self.concerns_visible_person(&record.subject, &record.evidence.runs) {
            return None;
        }
        record
            .evidence
            .runs
            .retain(|process| self.sees_owner(process));
        Some(record)
    }

    /// Whether it concerns a person that the caller may see.
    fn concerns_visible_person(
        &self,
        subject: &ViolationSubject,
        processes: &[EvidenceProcess],
    ) -> bool {
        match subject {
            ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => {
                self.sees_person(person)
            }
            ViolationSubject::Job(job) => self.sees_person(&job.owner),
            ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_)
            | ViolationSubject::Run(_) => processes.iter().any(|process| self.sees_owner(process)),
        }
    }

    /// The summary of the guard for a list of this snapshot.
    pub(super) fn guard_summary(
        &self,
        compiled: &CompiledRules,
        status: &GuardStatus,
        snapshot: &Snapshot,
    ) -> GuardSummary {
        let GuardStatus {
            open,
            simulated,
            tripped_at,
            ..
        } = status;
        let rules = compiled.rules();
        let visible = open
            .iter()
            .filter(|open| is_broken(open) && self.sees_violation(open));
        let marked = visible.flat_map(|open| match milder_policy_for_violation(open, compiled) {
            None => self.marks(open, snapshot),
            own_policy @ Some(_) => {
                let open = OpenViolation {
                    own_policy,
                    ..open.clone()
                };
                self.marks(&open, snapshot)
            }
        });
        // Neither kind of mark takes the room of the other.
        let gone = self.simulated_marks(simulated, snapshot, MAX_MARKED / 2);
        let is_gone = |mark: &ViolationMark| {
            let mut gone = gone.iter();
            gone.any(|it| (&it.run, &it.rule) == (&mark.run, &mark.rule))
        };
        let marked = marked.filter(|mark| !is_gone(mark));
        let marked: Vec<ViolationMark> = marked.take(MAX_MARKED - gone.len()).collect();
        let marked = marked.into_iter().chain(gone);
        GuardSummary {
            mode: rules.mode,
            is_stopped: tripped_at.is_some() && rules.mode > GuardMode::DryRun,
            has_rules: rules.rule_count() > 0,
            open: self.count_visible(open),
            would_have_ended: self.count_simulated(simulated),
            marks: marked.collect(),
            own_warnings: self.own_warnings(open),
        }
    }

    /// The warnings of the caller for which none of the caller's jobs is ended.
    fn own_warnings(&self, open: &[OpenViolation]) -> Vec<OwnWarning> {
        let visible = open.iter().filter(|open| self.sees_violation(open));
        let warnings = visible.filter_map(|open| OwnWarning::find(open, self.caller.uid));
        warnings.take(MAX_OWN_WARNINGS).collect()
    }

    /// The number of violations that the caller may see. A rule that is no longer broken does not
    /// count.
    pub(super) fn count_visible(&self, open: &[OpenViolation]) -> u32 {
        let broken = open.iter().filter(|open| is_broken(open));
        saturating_count(broken.filter(|open| self.sees_violation(open)).count())
    }

    /// The number of warnings and ends of today: all, or only those of the caller.
    pub(super) fn today_counts(&self, today: &CountsByUser) -> ActionCounts {
        if self.sees_all_users() {
            today.all
        } else {
            today.of.get(&self.caller.uid).copied().unwrap_or_default()
        }
    }

    /// The number of simulated ends that the caller may see.
    pub(super) fn count_simulated(&self, simulated: &[SimulatedEnd]) -> u32 {
        let visible = simulated
            .iter()
            .filter(|end| self.sees_violation(&end.violation));
        saturating_count(simulated_jobs(visible))
    }

    fn sees_violation(&self, open: &OpenViolation) -> bool {
        self.sees_all_users() || self.concerns_visible_person(&open.subject, &open.evidence.runs)
    }

    /// The first `limit` marks of processes in jobs that a dry run counts as ended, as far as the
    /// caller may see them.
    fn simulated_marks(
        &self,
        simulated: &[SimulatedEnd],
        snapshot: &Snapshot,
        limit: usize,
    ) -> Vec<ViolationMark> {
        let visible = simulated
            .iter()
            .filter(|end| self.sees_violation(&end.violation));
        let of_end =
            visible.flat_map(|end| end.processes.iter().map(move |process| (*process, end)));
        // A process may be part of several simulated ends.
        let mut ends: BTreeMap<PidStart, Vec<&SimulatedEnd>> = BTreeMap::new();
        for (process, end) in of_end {
            ends.entry(process).or_default().push(end);
        }
        if ends.is_empty() {
            return Vec::new();
        }
        let runs = snapshot.processes.iter();
        let runs = runs.filter_map(|process| run_key(&DeviceRun::from_process(process)));
        let marks = runs.flat_map(|run| {
            let of_process = ends.get(&(run.pid, run.start_ticks));
            let of_process = of_process.into_iter().flatten();
            of_process.map(move |SimulatedEnd { violation, .. }| ViolationMark {
                run: run.clone(),
                rule: violation.rule.clone(),
                measured: violation.evidence.measured,
                mode: violation.mode,
                deadline: None,
                would_have_ended_at: violation.ended_at,
                is_sole: true,
                can_snooze: false,
            })
        });
        marks.take(limit).collect()
    }

    /// The processes that a violation marks, as far as the caller may see them: those in its
    /// evidence, and if these are only some of a job, the whole job.
    fn marks(&self, open: &OpenViolation, snapshot: &Snapshot) -> Vec<ViolationMark> {
        let processes = open.evidence.runs.iter();
        let all = processes.zip(ViolationMark::from_violation(open));
        let visible = all.filter(|(process, _)| self.sees_owner(process));
        let mut marks: Vec<ViolationMark> = visible.map(|(_, mark)| mark).collect();
        let Some(first) = marks.first().cloned() else {
            return marks;
        };
        if !lists_all_processes(open) && matches!(open.subject, ViolationSubject::Job(_)) {
            let known: BTreeSet<RunKey> = marks.iter().map(|mark| mark.run.clone()).into_set();
            let of_job = snapshot.processes.iter();
            let of_job = of_job.filter(|process| is_process_of_job(open, process));
            let of_job = of_job.filter_map(|process| run_key(&DeviceRun::from_process(process)));
            let new = of_job.filter(|run| !known.contains(run));
            marks.extend(new.map(|run| ViolationMark {
                run,
                ..first.clone()
            }));
        }
        marks
    }
}

/// Whether a violation is about a process.
pub(super) fn is_process_of_violation(open: &OpenViolation, process: &GpuProcess) -> bool {
    let Some(key) = process.key() else {
        return false;
    };
    let is_listed = |listed: &EvidenceProcess| {
        (listed.run.pid, listed.run.start_ticks) == (key.pid, key.start_ticks)
    };
    open.evidence.runs.iter().any(is_listed)
        || (!lists_all_processes(open) && is_process_of_job(open, process))
}

/// Whether a process belongs to a job that a dry run counts as ended.
pub(super) fn is_process_of_simulated_end(end: &SimulatedEnd, process: &GpuProcess) -> bool {
    let key = process.key();
    key.is_some_and(|key| end.processes.contains(&(key.pid, key.start_ticks)))
}

/// Whether the rule is broken now.
fn is_broken(open: &OpenViolation) -> bool {
    open.not_broken_since.is_none()
}

fn lists_all_processes(open: &OpenViolation) -> bool {
    open.evidence.runs.len() >= open.evidence.count as usize
}

fn is_process_of_job(open: &OpenViolation, process: &GpuProcess) -> bool {
    let (ViolationSubject::Job(job), Some(its)) = (&open.subject, process.job.last_known()) else {
        return false;
    };
    // Compared by uid: a name may be learned later, and a container may be renamed.
    let owner = process.owner.last_known();
    its.id() == job.id && owner.is_some_and(|owner| owner.uid == job.owner.uid)
}

fn saturating_count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
