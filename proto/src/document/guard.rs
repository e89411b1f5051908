//! The JSON of the guard: how it stands, and what it decided.

use super::{EvidenceDocument, RuleCountsDocument, SCHEMA, ToldDocument};
use crate::guard::{
    Acted, Evidence, GuardRecord, GuardReport, GuardStep, Milder, OpenViolation, Person,
    RulesDoubt, Subject, Victim, ViolationPage,
};
use crate::units::Timestamp;
use serde::Serialize;

/// How the guard stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct GuardDocument {
    /// `disabled`, `dry-run`, `soft`, `enforce`.
    pub mode: &'static str,
    /// What a dry run rehearses: `soft` or `enforce`.
    pub rehearses: &'static str,
    pub rules: u32,
    pub rule_counts: RuleCountsDocument,
    pub file: String,
    /// `null` where there is no file.
    pub revision: Option<String>,
    /// Why the file as it is now is not in force.
    pub mistakes: Vec<String>,
    /// Whether the file has changed since it was read; `null` where that cannot be told.
    pub file_changed: Option<bool>,
    pub judged_at: Option<String>,
    pub dropped: u64,
    /// How much of the last sample there was no room for.
    pub beyond: u64,
    /// Since when nobody is ended any more, as too many were; `null` while they are.
    pub tripped_at: Option<String>,
    /// That rules on behaviour concern many people, and only warn; else `null`.
    pub doubt: Option<DoubtDocument>,
    pub open: u32,
    /// Jobs that a dry run would have ended, and that are there still.
    pub would_have_ended: u32,
    pub warned_today: u32,
    pub ended_today: u32,
    /// In dry run: what would have been.
    pub simulated_warned_today: u32,
    pub simulated_ended_today: u32,
    /// Of `tripped_at`: that was in a dry run.
    pub trip_simulated: bool,
    /// Services that are idle or waste a GPU; at most 8.
    pub idle_services: Vec<OpenViolationDocument>,
}

impl From<&GuardReport> for GuardDocument {
    fn from(report: &GuardReport) -> Self {
        let GuardReport {
            mode,
            rehearses,
            rules,
            file,
            revision,
            mistakes,
            is_file_changed,
            judged_at,
            dropped,
            beyond,
            open,
            would_have_ended,
            warned_today,
            ended_today,
            simulated_warned_today,
            simulated_ended_today,
            is_trip_simulated,
            tripped_at,
            idle_services,
            doubt,
        } = report;
        Self {
            mode: mode.name(),
            rehearses: rehearses.name(),
            rules: rules.all(),
            rule_counts: RuleCountsDocument::from(*rules),
            file: file.clone(),
            revision: revision.as_ref().map(|it| it.0.clone()),
            mistakes: mistakes.clone(),
            file_changed: *is_file_changed,
            judged_at: judged_at.map(Timestamp::to_rfc3339),
            dropped: *dropped,
            beyond: *beyond,
            tripped_at: tripped_at.map(Timestamp::to_rfc3339),
            doubt: doubt.map(DoubtDocument::from),
            open: *open,
            would_have_ended: *would_have_ended,
            warned_today: *warned_today,
            ended_today: *ended_today,
            simulated_warned_today: *simulated_warned_today,
            simulated_ended_today: *simulated_ended_today,
            trip_simulated: *is_trip_simulated,
            idle_services: idle_services.iter().map(Into::into).collect(),
        }
    }
}

/// Rules on behaviour concern many people.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct DoubtDocument {
    pub since: String,
    pub people: u32,
    pub of: u32,
    /// These rules only warn until an admin sets the mode again.
    pub only_warn: bool,
}

impl From<RulesDoubt> for DoubtDocument {
    fn from(doubt: RulesDoubt) -> Self {
        Self {
            since: doubt.since.to_rfc3339(),
            people: doubt.people,
            of: doubt.of,
            only_warn: doubt.only_warn,
        }
    }
}

/// What `gpukillctl guard violations -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ViolationsDocument {
    pub schema: u32,
    /// Those that go on.
    pub open: Vec<OpenViolationDocument>,
    /// For what jobs would have been ended in a dry run that are there still, as it was
    /// then.
    pub would_have_ended: Vec<OpenViolationDocument>,
    /// What was decided, newest first.
    pub records: Vec<GuardRecordDocument>,
}

impl From<&ViolationPage> for ViolationsDocument {
    fn from(page: &ViolationPage) -> Self {
        let records = page.records.iter();
        let documents = |open: &[OpenViolation]| open.iter().map(Into::into).collect();
        Self {
            schema: SCHEMA,
            open: documents(&page.open),
            would_have_ended: documents(&page.would_have_ended),
            records: records
                .map(|(id, record)| GuardRecordDocument::new(Some(*id), record))
                .collect(),
        }
    }
}

/// One step of a violation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct GuardRecordDocument {
    /// `null` in a replay.
    pub id: Option<u64>,
    pub timestamp: String,
    /// `default: idle`
    pub rule: String,
    /// Where the rule is said, and of what: `user alice` and `memory`.
    pub source: String,
    pub kind: &'static str,
    /// Who broke it, in words.
    pub subject: String,
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    /// In `dry-run` nothing of it is done.
    pub mode: &'static str,
    /// `violated`, `warned`, `snoozed`, `ended`, `acted`, `spared`, `tripped`, `over`.
    pub step: &'static str,
    /// Which warning: 1 is the first.
    pub warning: Option<u32>,
    /// When it is ended, if nothing changes; of `snoozed`, until when it is not.
    pub deadline: Option<String>,
    /// The job that is ended.
    pub victim: Option<VictimDocument>,
    /// Why nobody is, or what there is to say of whoever was.
    pub why: Option<String>,
    /// Of `snoozed`: how often more they may ask.
    pub snoozes_left: Option<u32>,
    /// Of `acted`: what came of it.
    pub outcome: Option<ActedDocument>,
    pub evidence: EvidenceDocument,
    pub message: Option<String>,
}

impl GuardRecordDocument {
    pub(super) fn new(id: Option<u64>, record: &GuardRecord) -> Self {
        let owner = owner(&record.subject, &record.evidence);
        let mut document = Self {
            id,
            timestamp: record.at.to_rfc3339(),
            rule: record.rule.to_string(),
            source: record.rule.source.to_string(),
            kind: record.rule.kind.name(),
            subject: record.subject.to_string(),
            owner: owner.map(|person| person.name.clone()),
            owner_uid: owner.and_then(|person| person.uid),
            mode: record.mode.name(),
            step: record.step.name(),
            warning: None,
            deadline: None,
            victim: None,
            why: None,
            snoozes_left: None,
            outcome: None,
            evidence: EvidenceDocument::from(&record.evidence),
            message: record.message.clone(),
        };
        match &record.step {
            GuardStep::Warned { times, deadline } => {
                document.warning = Some(*times);
                document.deadline = deadline.map(Timestamp::to_rfc3339);
            }
            GuardStep::Snoozed { until, left, .. } => {
                document.deadline = Some(until.to_rfc3339());
                document.snoozes_left = Some(*left);
            }
            GuardStep::SnoozeVoided { until, .. } => {
                document.deadline = Some(until.to_rfc3339());
            }
            GuardStep::Ended(victim) => document.victim = Some(VictimDocument::from(victim)),
            GuardStep::Spared(why) => document.why = Some(why.clone()),
            GuardStep::Acted(acted) => {
                document.why.clone_from(&acted.why);
                document.outcome = Some(ActedDocument::from(acted));
            }
            GuardStep::Violated
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => {}
        }
        document
    }
}

/// What came of ending a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct ActedDocument {
    pub job: String,
    /// How many of its processes ended.
    pub ended: u32,
    /// How many of those that were meant go on.
    pub left: u32,
}

impl From<&Acted> for ActedDocument {
    fn from(acted: &Acted) -> Self {
        Self {
            job: acted.job.shown.clone(),
            ended: acted.ended,
            left: acted.left,
        }
    }
}

/// A violation that goes on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct OpenViolationDocument {
    pub rule: String,
    pub source: String,
    pub kind: &'static str,
    pub subject: String,
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    pub mode: &'static str,
    /// `warn` or `terminate`.
    pub action: &'static str,
    pub violated_at: String,
    pub warned_at: Option<String>,
    pub warnings: u32,
    pub deadline: Option<String>,
    /// How often more the first who may ask for more time; `null` where nobody may.
    pub snoozes_left: Option<u32>,
    pub ended_at: Option<String>,
    pub evidence: EvidenceDocument,
    pub message: Option<String>,
    /// `warn` or `dry-run`, where their own policy spares them.
    pub own_policy: Option<&'static str>,
    /// Nothing is ended for it before this moment.
    pub snoozed_until: Option<String>,
    /// Since when the rule is kept; `null` while it is broken.
    pub not_broken_since: Option<String>,
}

impl From<&OpenViolation> for OpenViolationDocument {
    fn from(open: &OpenViolation) -> Self {
        let owner = owner(&open.subject, &open.evidence);
        Self {
            rule: open.rule.to_string(),
            source: open.rule.source.to_string(),
            kind: open.rule.kind.name(),
            subject: open.subject.to_string(),
            owner: owner.map(|person| person.name.clone()),
            owner_uid: owner.and_then(|person| person.uid),
            mode: open.mode.name(),
            action: open.action.name(),
            violated_at: open.violated_at.to_rfc3339(),
            warned_at: open.warned_at.map(Timestamp::to_rfc3339),
            warnings: open.warnings,
            deadline: open.deadline.map(Timestamp::to_rfc3339),
            snoozes_left: open.readers.iter().map(|it| it.snoozes_left).max(),
            ended_at: open.ended_at.map(Timestamp::to_rfc3339),
            evidence: EvidenceDocument::from(&open.evidence),
            message: open.message.clone(),
            own_policy: open.own_policy.map(Milder::name),
            snoozed_until: open.snoozed_until.map(Timestamp::to_rfc3339),
            not_broken_since: open.not_broken_since.map(Timestamp::to_rfc3339),
        }
    }
}

/// A job that is ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct VictimDocument {
    pub job: String,
    pub owner: String,
    pub owner_uid: Option<u32>,
    pub priority: u8,
    /// Whether it worked; `null` where that is not known.
    pub busy: Option<bool>,
    /// What ends it where it belongs to a scheduler: the guard does not.
    pub leave_to: Option<String>,
    /// How many processes it has; not all are told of.
    pub count: u32,
    pub procs: Vec<ToldDocument>,
}

impl From<&Victim> for VictimDocument {
    fn from(victim: &Victim) -> Self {
        Self {
            job: victim.job.shown.clone(),
            owner: victim.job.owner.name.clone(),
            owner_uid: victim.job.owner.uid,
            priority: victim.priority,
            busy: victim.is_busy,
            leave_to: victim.leave_to.clone(),
            count: victim.count,
            procs: victim.runs.iter().map(ToldDocument::from).collect(),
        }
    }
}

/// Whose it is about, where it is about one person.
fn owner<'a>(subject: &'a Subject, evidence: &'a Evidence) -> Option<&'a Person> {
    match subject {
        Subject::Person(person) | Subject::PersonOn(person, _) => Some(person),
        Subject::Job(job) => Some(&job.owner),
        Subject::Run(_) => evidence.runs.first()?.owner.as_ref(),
        Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) => None,
    }
}
