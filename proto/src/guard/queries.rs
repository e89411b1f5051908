//! Queries to the guard, and their results.

use super::{
    EvidenceProcess, GuardAction, GuardMode, GuardRecord, Measurement, OpenViolation, RuleCounts,
    RuleName, RulesDoubt, RunKey, ViolationSubject,
};
use crate::collect::{IntoSet as _, SortIndirect as _};
use crate::model::GpuProcess;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The status of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// The mode.
    pub mode: GuardMode,
    /// The mode that a dry run simulates: [`GuardMode::Soft`] or [`GuardMode::Enforce`].
    pub armed_mode: GuardMode,
    /// The number of policies and rules.
    pub rules: RuleCounts,
    /// The rules file.
    pub file: String,
    /// The revision of the rules; `None` if there is no file and the built-in defaults apply.
    pub revision: Option<RulesRevision>,
    /// Why the current file is not in force and other rules are: all mistakes.
    pub mistakes: Vec<String>,
    /// Whether the file has changed since it was last read; `None` if unknown.
    pub is_file_changed: Option<bool>,
    /// The time of the last evaluated sample.
    pub evaluated_at: Option<Timestamp>,
    /// The number of samples since the start that arrived too fast to be evaluated.
    pub dropped: u64,
    /// The part of the last sample beyond the limits: violations that were not opened or were
    /// dropped, and data that rules do not look back over.
    pub overflow: u64,
    /// Since when no job is ended in any mode, because too many were ended in a short time. An
    /// admin resumes the guard.
    pub tripped_at: Option<Timestamp>,
    /// Set if behaviour rules concern many people: until an admin confirms these rules they
    /// only warn.
    pub doubt: Option<RulesDoubt>,
    /// The number of open violations, without those of rules that are no longer violated.
    pub open: u32,
    /// The number of jobs that a dry run would have ended and that still exist.
    pub would_have_ended: u32,
    /// The number of violations with a first warning since midnight.
    pub warned_today: u32,
    /// The number of jobs ended since midnight.
    pub ended_today: u32,
    /// The number of violations since midnight with a first warning in a dry run.
    pub simulated_warned_today: u32,
    /// The number of jobs that a dry run would have ended since midnight.
    pub simulated_ended_today: u32,
    /// Whether [`GuardReport::tripped_at`] comes from a dry run, which ended no job before
    /// either.
    pub is_trip_simulated: bool,
    /// Services that are idle or waste a GPU: those with the longest such time, at most
    /// [`MAX_IDLE_SERVICES`].
    pub idle_services: Vec<OpenViolation>,
}

/// The most services that are listed.
pub const MAX_IDLE_SERVICES: usize = 8;

/// Identifies the text of a rules file: another text has another revision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RulesRevision(pub String);

/// The summary of the guard for `list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuardSummary {
    /// The mode.
    pub mode: GuardMode,
    /// Whether no job is ended in that mode, because too many were ended.
    pub is_stopped: bool,
    /// Whether any rule is in force: without rules there are no limits.
    pub has_rules: bool,
    /// The number of open violations that the caller may see, without those of rules that are
    /// no longer violated.
    pub open: u32,
    /// The number of jobs that a dry run would have ended and that still exist, of those that
    /// the caller may see.
    pub would_have_ended: u32,
    /// The processes of these violations and jobs; incomplete if there are many.
    pub marks: Vec<ViolationMark>,
    /// The caller's own jobs that violate a rule without any end for it, at most
    /// [`MAX_OWN_WARNINGS`].
    pub own_warnings: Vec<OwnWarning>,
}

/// The most warnings of the caller that are listed.
pub const MAX_OWN_WARNINGS: usize = 16;

/// A warning of the caller for a rule that ends none of the caller's jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWarning {
    /// The pid of the caller's first process that violates the rule.
    pub pid: u32,
    /// The rule.
    pub rule: RuleName,
    /// The measured value and its limit, if the rule is about a number.
    pub measured: Option<Measurement>,
    /// Whether one job violates the rule alone; else several jobs do together.
    pub is_sole: bool,
    /// The admin's message.
    pub message: Option<String>,
}

impl OwnWarning {
    /// The warning that this user has for a violation, if any: a dry run warns nobody.
    #[must_use]
    pub fn find(open: &OpenViolation, uid: u32) -> Option<Self> {
        let only_warns = open.action == GuardAction::Warn && open.mode > GuardMode::DryRun;
        let goes_on = open.not_broken_since.is_none();
        if !only_warns || open.warned_at.is_none() || !goes_on {
            return None;
        }
        let is_own = |process: &&EvidenceProcess| {
            process.owner.as_ref().is_some_and(|it| it.uid == Some(uid))
        };
        let first = open.evidence.runs.iter().find(is_own)?;
        Some(Self {
            pid: first.run.pid,
            rule: open.rule.clone(),
            measured: open.evidence.measured,
            is_sole: has_single_job(open),
            message: open.message.clone(),
        })
    }
}

/// Marks a process that violates a rule, alone or with others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolationMark {
    /// The process.
    pub run: RunKey,
    /// The rule.
    pub rule: RuleName,
    /// The measured value and its limit, if the rule is about a number.
    pub measured: Option<Measurement>,
    /// The mode for the rule.
    pub mode: GuardMode,
    /// When a job is ended for the violation if nothing changes.
    pub deadline: Option<Timestamp>,
    /// When a dry run would have ended the job of this process, which still exists.
    pub would_have_ended_at: Option<Timestamp>,
    /// Whether that job is the one of this process; else several jobs violate the rule
    /// together, and another may be selected.
    pub is_sole: bool,
    /// Whether its warned owner may ask for more time.
    pub can_snooze: bool,
}

impl ViolationMark {
    /// Marks for the processes of a job that a dry run would have ended for this violation.
    #[must_use]
    pub fn from_simulated_end(end: &OpenViolation) -> Vec<Self> {
        let mut marks = Self::from_violation(end);
        for mark in &mut marks {
            mark.deadline = None;
            mark.would_have_ended_at = end.ended_at;
            (mark.is_sole, mark.can_snooze) = (true, false);
        }
        marks
    }

    /// Marks for the processes in the evidence of a violation.
    #[must_use]
    pub fn from_violation(open: &OpenViolation) -> Vec<Self> {
        let is_sole = has_single_job(open);
        let mark = |process: &EvidenceProcess| {
            let owner = process.owner.as_ref().and_then(|owner| owner.uid);
            let reader = owner.and_then(|owner| open.warned_owner(owner));
            Self {
                run: process.run.clone(),
                rule: open.rule.clone(),
                measured: open.evidence.measured,
                mode: open.mode,
                // A milder policy of the owner means that nothing is ended.
                deadline: match open.own_policy {
                    Some(_) => None,
                    None => open.deadline_for(owner),
                },
                would_have_ended_at: None,
                is_sole,
                can_snooze: reader.is_some_and(|reader| reader.snoozes_left > 0),
            }
        };
        open.evidence.runs.iter().map(mark).collect()
    }
}

/// Whether a violation concerns one job only, so that the job to be ended is known.
fn has_single_job(open: &OpenViolation) -> bool {
    count_jobs(open) == Some(1)
}

/// The number of jobs of a violation; `None` if its evidence does not list all processes.
#[must_use]
pub fn count_jobs(open: &OpenViolation) -> Option<usize> {
    match &open.subject {
        ViolationSubject::Job(_) | ViolationSubject::Run(_) => Some(1),
        ViolationSubject::Person(_)
        | ViolationSubject::PersonOn(..)
        | ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_) => {
            let processes = &open.evidence.runs;
            // A process without a job is a job of its own.
            let job = |process: &EvidenceProcess| match &process.job {
                Some(job) => (process.owner.clone(), Some(job.clone()), 0),
                None => (process.owner.clone(), None, process.run.pid),
            };
            let jobs: BTreeSet<_> = processes.iter().map(job).into_set();
            (processes.len() >= open.evidence.count as usize).then_some(jobs.len())
        }
    }
}

/// The marks of one process on one device: simulated ends first, then by deadline, the earliest
/// first.
#[must_use]
pub fn find_marks<'a>(process: &GpuProcess, marked: &'a [ViolationMark]) -> Vec<&'a ViolationMark> {
    let Some(start_ticks) = process.start_ticks.known().copied() else {
        return Vec::new();
    };
    let is_its = |mark: &&ViolationMark| {
        let run = &mark.run;
        (run.pid, run.start_ticks) == (process.pid, start_ticks)
            && run.device == process.device
            && run.instance == process.instance
    };
    let mut marks: Vec<&ViolationMark> = marked.iter().filter(is_its).collect();
    marks.sort_indirect_by(|one, other| {
        let sort_key = |mark: &ViolationMark| {
            let is_there = mark.would_have_ended_at.is_none();
            (
                is_there,
                mark.deadline.is_none(),
                mark.deadline,
                !mark.is_sole,
            )
        };
        (sort_key(one), &one.rule).cmp(&(sort_key(other), &other.rule))
    });
    marks
}

/// A query for violations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolationQuery {
    /// The earliest time.
    pub since: Timestamp,
    /// The end of the period, exclusive.
    pub until: Timestamp,
    /// Violations of this person, by name or number.
    pub user: Option<String>,
    /// Records older than this one: the `next` of the page before.
    pub before: Option<u64>,
    /// The most records to return; the daemon has its own maximum.
    pub limit: u32,
}

/// One page of guard decisions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ViolationPage {
    /// The open violations that match the query, at most as many as a page holds; on the first
    /// page only.
    pub open: Vec<OpenViolation>,
    /// The violations for which a dry run would have ended jobs that still exist, with the
    /// evidence of that time; at most as many as a page holds, and on the first page only. The
    /// job is the subject, and the processes are those of the job.
    pub would_have_ended: Vec<OpenViolation>,
    /// The records with their ids, which grow with time and fit in 53 bits.
    pub records: Vec<(u64, GuardRecord)>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<u64>,
}

/// Selects the rules of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleSetSource {
    /// The rules in force.
    InForce,
    /// The rules that this connection uploaded.
    Offered,
}

/// A part of the text of a rules file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesText {
    /// The rules file.
    pub file: String,
    /// The revision of the text; `None` if there is no file.
    pub revision: Option<RulesRevision>,
    /// Bytes of the text from the requested offset; empty at its end.
    pub part: Vec<u8>,
}

/// The effect of an edit, made or simulated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditReport {
    /// The previous revision.
    pub before: Option<RulesRevision>,
    /// The new revision.
    pub after: RulesRevision,
    /// The lines in which the new rules differ from those in force, in the format of `diff -u`;
    /// truncated if long. It includes changes of the file that were not yet read.
    pub difference: String,
    /// Lints that the previous rules did not have (rules that never match, contradict each
    /// other, mean nothing on this host, or are not implemented by this version), the violations
    /// that the edit restarts, and changes that may not last.
    pub warnings: Vec<String>,
    /// For a simulated edit of the guard's rules: the violations that it would begin or restart,
    /// those that end a job first, at most [`MAX_AFFECTED_VIOLATIONS`]. `None` if they are not
    /// known.
    pub affected: Option<Vec<AffectedViolation>>,
}

/// The most violations that an edit lists.
pub const MAX_AFFECTED_VIOLATIONS: usize = 256;

/// A violation of rules that are not in force yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedViolation {
    /// The violation as it would be, without its grace period.
    pub open: OpenViolation,
    /// Why the guard would end no job for it, although the rules say so.
    pub exempt: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{
        Evidence, MilderPolicy, OwnedJob, Person, ProcessContext, RuleKind, RuleSource, WarnedOwner,
    };
    use crate::model::DeviceId;
    use crate::reading::Reading;

    fn evidence_process(pid: u32, job: Option<&str>) -> EvidenceProcess {
        EvidenceProcess {
            run: RunKey {
                pid,
                start_ticks: 7,
                device: DeviceId("GPU-0".into()),
                instance: None,
            },
            gpu_index: 0,
            owner: Some(alice()),
            name: None,
            memory: None,
            utilization: None,
            job: job.map(str::to_owned),
            context: ProcessContext::default(),
        }
    }

    fn alice() -> Person {
        Person {
            name: "alice".into(),
            uid: Some(1000),
        }
    }

    fn violation(
        subject: ViolationSubject,
        runs: Vec<EvidenceProcess>,
        count: u32,
    ) -> OpenViolation {
        OpenViolation {
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
            subject,
            mode: GuardMode::Soft,
            action: GuardAction::Terminate,
            violated_at: Timestamp(0),
            warned_at: None,
            warnings: 0,
            deadline: Some(Timestamp(9)),
            readers: Vec::new(),
            own_policy: None,
            snoozed_until: None,
            not_broken_since: None,
            ended_at: None,
            unfinished_end: None,
            evidence: Evidence {
                measured: None,
                since: Timestamp(0),
                runs,
                count,
                unknown: 0,
                threat: None,
                is_service_only_warned: false,
            },
            message: None,
        }
    }

    #[test]
    fn sole_job_is_known_only_for_one_job() {
        let job = ViolationSubject::Job(OwnedJob {
            owner: alice(),
            id: "tree 1 7".into(),
            shown: "tree 1".into(),
        });
        let person = || ViolationSubject::Person(alice());
        let of_one = || {
            vec![
                evidence_process(1, Some("tree 1")),
                evidence_process(2, Some("tree 1")),
            ]
        };
        let cases = [
            ("a job", violation(job, of_one(), 70), true),
            ("one of one job", violation(person(), of_one(), 2), true),
            (
                "more than are reported",
                violation(person(), of_one(), 3),
                false,
            ),
            (
                "two jobs",
                violation(
                    person(),
                    vec![
                        evidence_process(1, Some("a")),
                        evidence_process(2, Some("b")),
                    ],
                    2,
                ),
                false,
            ),
            (
                "two in no job",
                violation(
                    person(),
                    vec![evidence_process(1, None), evidence_process(2, None)],
                    2,
                ),
                false,
            ),
        ];
        for (what, open, expected) in cases {
            let marks = ViolationMark::from_violation(&open);
            let actual: Vec<bool> = marks.iter().map(|mark| mark.is_sole).collect();
            assert_eq!(actual, vec![expected; 2], "{what}");
        }
    }

    #[test]
    fn marks_have_the_owners_deadline() {
        let bob = Person {
            name: "bob".into(),
            uid: Some(1001),
        };
        let mut of_bob = evidence_process(2, None);
        of_bob.owner = Some(bob);
        let mut of_nobody = evidence_process(3, None);
        of_nobody.owner = None;
        let runs = vec![evidence_process(1, None), of_bob, of_nobody];
        let mut open = violation(ViolationSubject::Group("ml".into()), runs, 3);
        let deadlines = |open: &OpenViolation| -> Vec<Option<Timestamp>> {
            ViolationMark::from_violation(open)
                .iter()
                .map(|mark| mark.deadline)
                .collect()
        };
        let [first, later] = [Some(Timestamp(9)), Some(Timestamp(20))];
        assert_eq!(deadlines(&open), [first, first, first]);
        // Bob asked for more time.
        let reader = |(uid, deadline)| WarnedOwner {
            uid,
            deadline: Timestamp(deadline),
            snoozes_left: 1,
        };
        open.readers = [(1000, 9), (1001, 20)].map(reader).into();
        assert_eq!(deadlines(&open), [first, later, first]);
        // Without a deadline there is no later one.
        let warned = OpenViolation {
            deadline: None,
            ..open.clone()
        };
        assert_eq!(deadlines(&warned), [None, None, None]);
        open.own_policy = Some(MilderPolicy::DryRun);
        assert_eq!(deadlines(&open), [None, None, None]);
    }

    #[test]
    fn find_marks_sorts_by_deadline() {
        let mark = |pid, start_ticks, deadline: Option<i64>| {
            let mut mark = ViolationMark::from_violation(&violation(
                ViolationSubject::Person(alice()),
                vec![evidence_process(pid, None)],
                1,
            ))
            .remove(0);
            mark.run.start_ticks = start_ticks;
            mark.deadline = deadline.map(Timestamp);
            mark
        };
        let mut gone = mark(1, 7, None);
        gone.would_have_ended_at = Some(Timestamp(1));
        let marked = [
            mark(1, 7, None),
            mark(1, 7, Some(5)),
            mark(1, 7, Some(2)),
            gone,
            // An earlier process with this pid, and another process.
            mark(1, 6, Some(1)),
            mark(2, 7, Some(1)),
        ];
        let device = DeviceId("GPU-0".into());
        let mut process = GpuProcess::unknown(device, 1, Timestamp(0), &Reading::Unsupported);
        assert_eq!(find_marks(&process, &marked), Vec::<&ViolationMark>::new());
        process.start_ticks = Reading::Value(7);
        let soonest_first = [&marked[3], &marked[2], &marked[1], &marked[0]];
        assert_eq!(find_marks(&process, &marked), soonest_first);
        process.device = DeviceId("GPU-1".into());
        assert_eq!(find_marks(&process, &marked), Vec::<&ViolationMark>::new());
    }
}
