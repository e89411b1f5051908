//! What of the guard's findings a caller may see: where others' doings are hidden,
//! nobody but those who run the box sees who breaks rules, only that they do so
//! themselves.

use crate::guard::Standing;
use crate::guard::bucket::judged_run;
use crate::guard::{Counted, Tally};
use gpukill_policy::access::{Caller, Operation, Roles, Ruling, check};
use gpukill_policy::guard::about::About;
use gpukill_policy::guard::affected::{is_idle_service, milder};
use gpukill_policy::guard::rules::PersonBy;
use gpukill_policy::guard::{Process, Rulebook, SimulatedEnd, simulated_jobs};
use gpukill_policy::usage::Run;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{
    GuardBrief, GuardMode, GuardRecord, GuardStep, JudgedRun, MAX_IDLE_SERVICES, MAX_OWN_WARNINGS,
    Marked, OpenViolation, OwnWarning, Person, Subject, Told,
};
use gpukill_proto::snapshot::{GpuProcess, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// So many processes are marked in a list.
const MOST_MARKED: usize = 256;

/// What a caller may see.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) caller: &'a Caller,
    pub(super) roles: &'a Roles,
}

impl Sight<'_> {
    /// Whether a process's doings are no secret to the caller.
    pub(super) fn of_process(&self, process: &GpuProcess) -> bool {
        self.reads(
            process.uid.last_known().copied(),
            process.namespace_owner.last_known().copied().flatten(),
        )
    }

    /// Whether what this user does is none; of one who is not known, whether nobody's is.
    pub(super) fn of_user(&self, uid: Option<u32>) -> bool {
        self.reads(uid, None)
    }

    /// Whether nobody's doings are.
    fn of_everybody(&self) -> bool {
        self.reads(None, None)
    }

    fn of_person(&self, person: &Person) -> bool {
        self.reads(person.uid, None)
    }

    fn of_owner(&self, told: &Told) -> bool {
        match &told.owner {
            Some(owner) => self.of_person(owner),
            None => self.of_everybody(),
        }
    }

    fn reads(&self, owner: Option<u32>, namespace_owner: Option<u32>) -> bool {
        let read = Operation::ReadCommand {
            owner,
            namespace_owner,
        };
        check(self.caller, read, self.roles) == Ruling::Allow
    }

    /// The violation as the caller may see it; `None` where it is others' alone. Whoever
    /// was warned of it is told of their own end.
    pub(super) fn open(&self, open: &OpenViolation, book: &Rulebook) -> Option<OpenViolation> {
        self.sees(open).then(|| {
            let mut open = open.clone();
            open.evidence.runs.retain(|told| self.of_owner(told));
            open.own_policy = milder(&open, book);
            self.only_seen(&mut open, Some(self.caller.uid));
            open
        })
    }

    /// The services among these that are idle, as the caller may see them, whatever comes of
    /// that: those that have been so for longest.
    pub(super) fn idle_services(
        &self,
        open: &[OpenViolation],
        book: &Rulebook,
    ) -> Vec<OpenViolation> {
        let is_idle = |open: &&OpenViolation| is_broken(open) && is_idle_service(open);
        let services = open.iter().filter(is_idle);
        let mut seen: Vec<OpenViolation> =
            services.filter_map(|open| self.open(open, book)).collect();
        seen.sort_indirect_by_key(|open| open.evidence.since);
        seen.truncate(MAX_IDLE_SERVICES);
        seen
    }

    /// The violation that is about this process of a user's, which the caller may see, with
    /// when theirs is ended.
    pub(super) fn open_of(
        &self,
        open: &OpenViolation,
        (pid, owner): (u32, Option<u32>),
        book: &Rulebook,
    ) -> OpenViolation {
        let mut open = open.clone();
        let told = &mut open.evidence.runs;
        told.retain(|told| told.run.pid == pid || self.of_owner(told));
        open.own_policy = milder(&open, book);
        self.only_seen(&mut open, owner);
        open
    }

    /// How much time others have, and how often they may ask for more, is theirs; what is
    /// told of the end is this user's.
    fn only_seen(&self, open: &mut OpenViolation, whose: Option<u32>) {
        open.deadline = open.deadline_of(whose);
        let is_of_several = matches!(
            open.subject,
            Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_)
        );
        if is_of_several && !self.of_everybody() {
            open.snoozed_until = None;
        }
        open.readers
            .retain(|reader| self.reads(Some(reader.uid), None));
    }

    /// The same of a step of one: who is ended for what others do too may be one of
    /// those.
    pub(super) fn record(&self, mut record: GuardRecord) -> Option<GuardRecord> {
        if self.of_everybody() {
            return Some(record);
        }
        let is_seen = match &record.step {
            GuardStep::Ended(victim) => self.of_person(&victim.job.owner),
            // Why nobody is ended may name others' jobs.
            GuardStep::Spared(_) => match &record.subject {
                Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) => false,
                Subject::Person(_) | Subject::PersonOn(..) | Subject::Job(_) | Subject::Run(_) => {
                    true
                }
            },
            GuardStep::Acted(acted) => self.of_person(&acted.job.owner),
            GuardStep::Snoozed { owner, .. } | GuardStep::SnoozeVoided { owner, .. } => {
                return self.reads(Some(*owner), None).then_some(record);
            }
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => true,
        };
        if !is_seen || !self.is_about(&record.subject, &record.evidence.runs) {
            return None;
        }
        record.evidence.runs.retain(|told| self.of_owner(told));
        Some(record)
    }

    /// Whether it is about anybody whom the caller sees.
    fn is_about(&self, subject: &Subject, told: &[Told]) -> bool {
        match subject {
            Subject::Person(person) | Subject::PersonOn(person, _) => self.of_person(person),
            Subject::Job(job) => self.of_person(&job.owner),
            Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) | Subject::Run(_) => {
                told.iter().any(|told| self.of_owner(told))
            }
        }
    }

    /// What a list of this snapshot shows of the guard.
    pub(super) fn brief(
        &self,
        book: &Rulebook,
        standing: &Standing,
        snapshot: &Snapshot,
    ) -> GuardBrief {
        let Standing {
            open,
            simulated,
            tripped_at,
            ..
        } = standing;
        let rules = book.rules();
        let seen = open
            .iter()
            .filter(|open| is_broken(open) && self.sees(open));
        let marked = seen.flat_map(|open| match milder(open, book) {
            None => self.marks(open, rules.person, snapshot),
            own_policy @ Some(_) => {
                let open = OpenViolation {
                    own_policy,
                    ..open.clone()
                };
                self.marks(&open, rules.person, snapshot)
            }
        });
        // Neither leaves no room for the other.
        let mut gone = self.marks_of_simulated(simulated, snapshot);
        gone.truncate(MOST_MARKED / 2);
        let is_gone = |mark: &Marked| {
            let mut gone = gone.iter();
            gone.any(|it| (&it.run, &it.rule) == (&mark.run, &mark.rule))
        };
        let marked = marked.filter(|mark| !is_gone(mark));
        let marked: Vec<Marked> = marked.take(MOST_MARKED - gone.len()).collect();
        let marked = marked.into_iter().chain(gone);
        GuardBrief {
            mode: rules.mode,
            is_stopped: tripped_at.is_some() && rules.mode > GuardMode::DryRun,
            has_rules: rules.count() > 0,
            open: self.count(open),
            would_have_ended: self.count_simulated(simulated),
            marked: marked.collect(),
            own_warnings: self.own_warnings(open),
        }
    }

    /// What the caller was warned of, where nothing of theirs is ended for it.
    fn own_warnings(&self, open: &[OpenViolation]) -> Vec<OwnWarning> {
        let seen = open.iter().filter(|open| self.sees(open));
        let warnings = seen.filter_map(|open| OwnWarning::find(open, self.caller.uid));
        warnings.take(MAX_OWN_WARNINGS).collect()
    }

    /// How many of these violations the caller sees. A rule that is no longer broken does not
    /// count.
    pub(super) fn count(&self, open: &[OpenViolation]) -> u32 {
        let broken = open.iter().filter(|open| is_broken(open));
        count(broken.filter(|open| self.sees(open)).count())
    }

    /// How many were warned and ended today: all, or only the caller's own.
    pub(super) fn today(&self, today: &Tally) -> Counted {
        if self.of_everybody() {
            today.all
        } else {
            today.of.get(&self.caller.uid).copied().unwrap_or_default()
        }
    }

    /// How many jobs would have been ended in a dry run, of those that the caller sees.
    pub(super) fn count_simulated(&self, simulated: &[SimulatedEnd]) -> u32 {
        let seen = simulated.iter().filter(|end| self.sees(&end.violation));
        count(simulated_jobs(seen))
    }

    fn sees(&self, open: &OpenViolation) -> bool {
        self.of_everybody() || self.is_about(&open.subject, &open.evidence.runs)
    }

    /// The processes of jobs that would have been ended, of those that the caller sees.
    fn marks_of_simulated(&self, simulated: &[SimulatedEnd], snapshot: &Snapshot) -> Vec<Marked> {
        let seen = simulated.iter().filter(|end| self.sees(&end.violation));
        let of_end = seen.flat_map(|end| end.processes.iter().map(move |process| (*process, end)));
        // One process may be of several rules.
        let mut ends: BTreeMap<Process, Vec<&SimulatedEnd>> = BTreeMap::new();
        for (process, end) in of_end {
            ends.entry(process).or_default().push(end);
        }
        if ends.is_empty() {
            return Vec::new();
        }
        let runs = snapshot.processes.iter();
        let runs = runs.filter_map(|process| judged_run(&Run::of(process)));
        let marks = runs.flat_map(|run| {
            let of_process = ends.get(&(run.pid, run.start_ticks));
            let of_process = of_process.into_iter().flatten();
            of_process.map(move |SimulatedEnd { violation, .. }| Marked {
                run: run.clone(),
                rule: violation.rule.clone(),
                mode: violation.mode,
                deadline: None,
                would_have_ended_at: violation.ended_at,
                is_sole: true,
                can_snooze: false,
            })
        });
        marks.collect()
    }

    /// The processes that a violation marks, of those that the caller sees: those that
    /// it tells of, and where these are only some of a job's, all of that job.
    fn marks(&self, open: &OpenViolation, by: PersonBy, snapshot: &Snapshot) -> Vec<Marked> {
        let told = open.evidence.runs.iter();
        let all = told.zip(Marked::all_of(open));
        let seen = all.filter(|(told, _)| self.of_owner(told));
        let mut marks: Vec<Marked> = seen.map(|(_, mark)| mark).collect();
        let Some(first) = marks.first().cloned() else {
            return marks;
        };
        if !is_whole(open) && matches!(open.subject, Subject::Job(_)) {
            let known: BTreeSet<JudgedRun> = marks.iter().map(|mark| mark.run.clone()).into_set();
            let of_job = snapshot.processes.iter();
            let of_job = of_job.filter(|process| is_of_its_job(open, by, process));
            let of_job = of_job.filter_map(|process| judged_run(&Run::of(process)));
            let new = of_job.filter(|run| !known.contains(run));
            marks.extend(new.map(|run| Marked {
                run,
                ..first.clone()
            }));
        }
        marks
    }
}

/// Whether a violation of rules that mean this person is about a process.
pub(super) fn is_part(open: &OpenViolation, by: PersonBy, process: &GpuProcess) -> bool {
    let Some(key) = process.key() else {
        return false;
    };
    let is_it = |told: &Told| (told.run.pid, told.run.start_ticks) == (key.pid, key.start_ticks);
    open.evidence.runs.iter().any(is_it) || (!is_whole(open) && is_of_its_job(open, by, process))
}

/// Whether a process is one of a job that would have been ended.
pub(super) fn is_part_of_simulated(end: &SimulatedEnd, process: &GpuProcess) -> bool {
    let key = process.key();
    key.is_some_and(|key| end.processes.contains(&(key.pid, key.start_ticks)))
}

/// Whether the rule is broken now.
fn is_broken(open: &OpenViolation) -> bool {
    open.not_broken_since.is_none()
}

/// Whether a violation tells of all that it is about.
fn is_whole(open: &OpenViolation) -> bool {
    open.evidence.runs.len() >= open.evidence.count as usize
}

fn is_of_its_job(open: &OpenViolation, by: PersonBy, process: &GpuProcess) -> bool {
    let (Subject::Job(job), Some(its)) = (&open.subject, process.job.last_known()) else {
        return false;
    };
    if its.id() != job.id {
        return false;
    }
    // Who it is hangs on nobody's groups.
    let person = About::of(process, &BTreeMap::new()).person(by);
    // A name may come late, and a container may be renamed.
    person.is_some_and(|person| person.uid == job.owner.uid)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
