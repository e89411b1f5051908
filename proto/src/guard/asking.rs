//! Questions to the guard, and its answers.

use super::{
    GuardAction, GuardMode, GuardRecord, JudgedRun, OpenViolation, RuleCounts, RuleName,
    RulesDoubt, Subject, Told,
};
use crate::collect::SortIndirect as _;
use crate::snapshot::GpuProcess;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How the guard stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// How far it goes.
    pub mode: GuardMode,
    /// What a dry run rehearses: [`GuardMode::Soft`] or [`GuardMode::Enforce`].
    pub rehearses: GuardMode,
    /// How many policies and rules there are.
    pub rules: RuleCounts,
    /// Where they are written.
    pub file: String,
    /// Names what they say; `None` where there is no file, and the built-in
    /// defaults hold.
    pub revision: Option<RulesRevision>,
    /// Why the file as it is now is not in force, and others are: every mistake.
    pub mistakes: Vec<String>,
    /// Whether the file says something else than when it was last read; `None` where
    /// that cannot be told.
    pub is_file_changed: Option<bool>,
    /// When the last sample was judged.
    pub judged_at: Option<Timestamp>,
    /// Samples that came too fast to be judged, since start.
    pub dropped: u64,
    /// How much of the last sample there was no room for: violations that were not
    /// opened, and what rules do not look back over.
    pub beyond: u64,
    /// Since when nobody is ended any more, whatever the mode: too many were in a short
    /// time. An admin has it go on.
    pub tripped_at: Option<Timestamp>,
    /// That rules on behaviour concern many people: until an admin confirms them they only
    /// warn.
    pub doubt: Option<RulesDoubt>,
    /// How many violations go on, without those of rules that are no longer broken.
    pub open: u32,
    /// How many jobs would have been ended in a dry run, and are there still.
    pub would_have_ended: u32,
    /// How many were warned since midnight.
    pub warned_today: u32,
    /// How many jobs were ended since midnight.
    pub ended_today: u32,
    /// How many would have been warned since midnight, while that was a dry run.
    pub simulated_warned_today: u32,
    /// How many jobs would have been ended since midnight, while that was a dry run.
    pub simulated_ended_today: u32,
    /// Of [`GuardReport::tripped_at`]: it was a dry run then, and ended nobody before either.
    pub is_trip_simulated: bool,
    /// Services that are idle or waste a GPU: those that have been so for longest, at most
    /// [`MAX_IDLE_SERVICES`].
    pub idle_services: Vec<OpenViolation>,
}

/// As many services are listed.
pub const MAX_IDLE_SERVICES: usize = 8;

/// Names what a file of rules says: another text has another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RulesRevision(pub String);

/// What `list` shows of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuardBrief {
    /// How far it goes.
    pub mode: GuardMode,
    /// Whether it ends nobody in that mode, as too many were ended.
    pub is_stopped: bool,
    /// Whether any rule is in force: without any nobody is limited.
    pub has_rules: bool,
    /// How many violations that the caller may see go on, without those of rules that are no
    /// longer broken.
    pub open: u32,
    /// How many jobs would have been ended in a dry run, and are there still; of those
    /// that whoever asks may see.
    pub would_have_ended: u32,
    /// The processes that are told of in either; not all, where they are many.
    pub marked: Vec<Marked>,
    /// The caller's own jobs that break a rule for which nothing is ended, at most
    /// [`MAX_OWN_WARNINGS`].
    pub own_warnings: Vec<OwnWarning>,
}

/// As many warnings of the caller are listed.
pub const MAX_OWN_WARNINGS: usize = 16;

/// A warning that the caller has of a rule for which nothing of theirs is ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWarning {
    /// The first of their processes that break the rule.
    pub pid: u32,
    /// The rule.
    pub rule: RuleName,
    /// Whether one job breaks it; else several do together.
    pub is_sole: bool,
    /// The admin's own words.
    pub message: Option<String>,
}

impl OwnWarning {
    /// The one that this user has of a violation, if any: in a dry run nobody is warned.
    #[must_use]
    pub fn find(open: &OpenViolation, uid: u32) -> Option<Self> {
        let only_warns = open.action == GuardAction::Warn && open.mode > GuardMode::DryRun;
        let goes_on = open.not_broken_since.is_none();
        if !only_warns || open.warned_at.is_none() || !goes_on {
            return None;
        }
        let is_own = |told: &&Told| told.owner.as_ref().is_some_and(|it| it.uid == Some(uid));
        let first = open.evidence.runs.iter().find(is_own)?;
        Some(Self {
            pid: first.run.pid,
            rule: open.rule.clone(),
            is_sole: is_of_one_job(open),
            message: open.message.clone(),
        })
    }
}

/// A process that breaks a rule, or is part of what does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// Which.
    pub run: JudgedRun,
    /// The rule.
    pub rule: RuleName,
    /// How far the guard goes for it.
    pub mode: GuardMode,
    /// When a job is ended for that, if nothing changes.
    pub deadline: Option<Timestamp>,
    /// When its own job would have been ended for it in a dry run: it goes on.
    pub would_have_ended_at: Option<Timestamp>,
    /// Whether that job is its own; else it is one of several that break the rule
    /// together, and another may be chosen.
    pub is_sole: bool,
    /// Whether its owner, who was warned, may ask for more time.
    pub can_snooze: bool,
}

impl Marked {
    /// Those of the processes of a job that would have been ended in a dry run for this
    /// violation.
    #[must_use]
    pub fn all_of_simulated(end: &OpenViolation) -> Vec<Self> {
        let mut marks = Self::all_of(end);
        for mark in &mut marks {
            mark.deadline = None;
            mark.would_have_ended_at = end.ended_at;
            (mark.is_sole, mark.can_snooze) = (true, false);
        }
        marks
    }

    /// Those of the processes that a violation tells of.
    #[must_use]
    pub fn all_of(open: &OpenViolation) -> Vec<Self> {
        let is_sole = is_of_one_job(open);
        let mark = |told: &Told| {
            let owner = told.owner.as_ref().and_then(|owner| owner.uid);
            let reader = owner.and_then(|owner| open.reader(owner));
            Self {
                run: told.run.clone(),
                rule: open.rule.clone(),
                mode: open.mode,
                // Where their own policy spares them there is no end to wait for.
                deadline: match open.own_policy {
                    Some(_) => None,
                    None => open.deadline_of(owner),
                },
                would_have_ended_at: None,
                is_sole,
                can_snooze: reader.is_some_and(|reader| reader.snoozes_left > 0),
            }
        };
        open.evidence.runs.iter().map(mark).collect()
    }
}

/// Whether all that a violation is about is one job, so that it is known which is
/// ended for it.
fn is_of_one_job(open: &OpenViolation) -> bool {
    jobs(open) == Some(1)
}

/// How many jobs a violation is about; `None` where not all processes are told of.
#[must_use]
pub fn jobs(open: &OpenViolation) -> Option<usize> {
    match &open.subject {
        Subject::Job(_) | Subject::Run(_) => Some(1),
        Subject::Person(_)
        | Subject::PersonOn(..)
        | Subject::Group(_)
        | Subject::GroupOn(..)
        | Subject::Device(_) => {
            let told = &open.evidence.runs;
            // A process that is in no job is its own.
            let job = |told: &Told| match &told.job {
                Some(job) => (told.owner.clone(), Some(job.clone()), 0),
                None => (told.owner.clone(), None, told.run.pid),
            };
            let jobs: BTreeSet<_> = told.iter().map(job).collect();
            (told.len() >= open.evidence.count as usize).then_some(jobs.len())
        }
    }
}

/// The marks of one process on one device: first the one for which it would be gone, then
/// the one that ends a job first before the others.
#[must_use]
pub fn of_process<'a>(process: &GpuProcess, marked: &'a [Marked]) -> Vec<&'a Marked> {
    let Some(start_ticks) = process.start_ticks.known().copied() else {
        return Vec::new();
    };
    let is_its = |mark: &&Marked| {
        let run = &mark.run;
        (run.pid, run.start_ticks) == (process.pid, start_ticks)
            && run.device == process.device
            && run.instance == process.instance
    };
    let mut marks: Vec<&Marked> = marked.iter().filter(is_its).collect();
    marks.sort_indirect_by(|one, other| {
        let urgency = |mark: &Marked| {
            let is_there = mark.would_have_ended_at.is_none();
            (
                is_there,
                mark.deadline.is_none(),
                mark.deadline,
                !mark.is_sole,
            )
        };
        (urgency(one), &one.rule).cmp(&(urgency(other), &other.rule))
    });
    marks
}

/// Which violations are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolationQuery {
    /// Not before this moment.
    pub since: Timestamp,
    /// Before this moment.
    pub until: Timestamp,
    /// Of this person, by name or number.
    pub user: Option<String>,
    /// Records older than this one: the `next` of the page before.
    pub before: Option<u64>,
    /// At most so many records; the daemon has a maximum of its own.
    pub limit: u32,
}

/// Some of what the guard decided, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ViolationPage {
    /// Those that go on, of all that are asked for; with the first page alone, and
    /// at most so many as a page has.
    pub open: Vec<OpenViolation>,
    /// What jobs would have been ended for in a dry run that are there still, with what
    /// was known then: as many, and with the first page alone too. Each job is the
    /// subject, and the processes are its own.
    pub would_have_ended: Vec<OpenViolation>,
    /// With their ids, which grow with time and fit in 53 bits.
    pub records: Vec<(u64, GuardRecord)>,
    /// Where the next page begins; `None` when this is the last one.
    pub next: Option<u64>,
}

/// Which rules are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RulesFrom {
    /// Those in force.
    Force,
    /// Those that this connection offered.
    Offered,
}

/// A part of the text of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesText {
    /// Where they are written.
    pub file: String,
    /// Names what is written there; `None` where there is no file.
    pub revision: Option<RulesRevision>,
    /// Bytes of the text from the offset that was asked for; none at its end.
    pub part: Vec<u8>,
}

/// What an edit changed, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditReport {
    /// Names what was written before.
    pub before: Option<RulesRevision>,
    /// Names what is written now.
    pub after: RulesRevision,
    /// The lines in which the new rules differ from those in force, as `diff -u` has
    /// them; cut where they are many. Where the file had changes that were not read yet,
    /// they are among them.
    pub difference: String,
    /// What of the new rules can never hold, contradicts itself, means nothing on this
    /// box, or is not done by this version; whom the edit lets begin anew, and what of it
    /// may not last.
    pub warnings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{
        Evidence, JudgedJob, Milder, Person, ProcessContext, Reader, RuleKind, RuleSource,
    };
    use crate::reading::Reading;
    use crate::snapshot::DeviceId;

    fn told(pid: u32, job: Option<&str>) -> Told {
        Told {
            run: JudgedRun {
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

    fn open(subject: Subject, runs: Vec<Told>, count: u32) -> OpenViolation {
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
            evidence: Evidence {
                measured: None,
                since: Timestamp(0),
                runs,
                count,
                unknown: 0,
                threat: None,
                is_spared_service: false,
            },
            message: None,
        }
    }

    #[test]
    fn whose_job_is_ended_is_known_only_where_there_is_one() {
        let job = Subject::Job(JudgedJob {
            owner: alice(),
            id: "tree 1 7".into(),
            shown: "tree 1".into(),
        });
        let person = || Subject::Person(alice());
        let of_one = || vec![told(1, Some("tree 1")), told(2, Some("tree 1"))];
        let cases = [
            ("a job", open(job, of_one(), 70), true),
            ("one of one job", open(person(), of_one(), 2), true),
            ("more than are told of", open(person(), of_one(), 3), false),
            (
                "two jobs",
                open(person(), vec![told(1, Some("a")), told(2, Some("b"))], 2),
                false,
            ),
            (
                "two in no job",
                open(person(), vec![told(1, None), told(2, None)], 2),
                false,
            ),
        ];
        for (what, open, expected) in cases {
            let marks = Marked::all_of(&open);
            let said: Vec<bool> = marks.iter().map(|mark| mark.is_sole).collect();
            assert_eq!(said, vec![expected; 2], "{what}");
        }
    }

    #[test]
    fn each_process_is_marked_with_the_end_of_whose_it_is() {
        let bob = Person {
            name: "bob".into(),
            uid: Some(1001),
        };
        let mut of_bob = told(2, None);
        of_bob.owner = Some(bob);
        let mut of_nobody = told(3, None);
        of_nobody.owner = None;
        let runs = vec![told(1, None), of_bob, of_nobody];
        let mut open = open(Subject::Group("ml".into()), runs, 3);
        let deadlines = |open: &OpenViolation| -> Vec<Option<Timestamp>> {
            Marked::all_of(open)
                .iter()
                .map(|mark| mark.deadline)
                .collect()
        };
        let [first, later] = [Some(Timestamp(9)), Some(Timestamp(20))];
        assert_eq!(deadlines(&open), [first, first, first]);
        // Bob asked for more time.
        let reader = |(uid, deadline)| Reader {
            uid,
            deadline: Timestamp(deadline),
            snoozes_left: 1,
        };
        open.readers = [(1000, 9), (1001, 20)].map(reader).into();
        assert_eq!(deadlines(&open), [first, later, first]);
        // Where nobody is ended, nobody is later.
        let warned = OpenViolation {
            deadline: None,
            ..open.clone()
        };
        assert_eq!(deadlines(&warned), [None, None, None]);
        open.own_policy = Some(Milder::Rehearsed);
        assert_eq!(deadlines(&open), [None, None, None]);
    }

    #[test]
    fn a_process_has_the_marks_of_its_own_the_soonest_first() {
        let mark = |pid, start_ticks, deadline: Option<i64>| {
            let mut mark =
                Marked::all_of(&open(Subject::Person(alice()), vec![told(pid, None)], 1)).remove(0);
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
            // An earlier process of this pid, and another one.
            mark(1, 6, Some(1)),
            mark(2, 7, Some(1)),
        ];
        let device = DeviceId("GPU-0".into());
        let mut process = GpuProcess::unknown(device, 1, Timestamp(0), &Reading::Unsupported);
        assert_eq!(of_process(&process, &marked), Vec::<&Marked>::new());
        process.start_ticks = Reading::Value(7);
        let soonest_first = [&marked[3], &marked[2], &marked[1], &marked[0]];
        assert_eq!(of_process(&process, &marked), soonest_first);
        process.device = DeviceId("GPU-1".into());
        assert_eq!(of_process(&process, &marked), Vec::<&Marked>::new());
    }
}
