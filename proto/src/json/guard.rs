//! The JSON of the guard: its status and its decisions.

use super::{EvidenceDocument, EvidenceProcessDocument, RuleCountsDocument, SCHEMA};
use crate::guard::{
    EnforcementOutcome, Evidence, GuardRecord, GuardReport, GuardStep, MilderPolicy, OpenViolation,
    Person, RulesDoubt, Victim, ViolationPage, ViolationSubject,
};
use crate::units::Timestamp;
use serde::Serialize;

/// The status of the guard.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct GuardDocument {
    /// `disabled`, `dry-run`, `soft`, `enforce`.
    pub mode: &'static str,
    /// The mode that a dry run simulates: `soft` or `enforce`.
    pub armed_mode: &'static str,
    pub rules: u32,
    pub rule_counts: RuleCountsDocument,
    pub file: String,
    /// `null` if there is no file.
    pub revision: Option<String>,
    /// Why the current file is not in force.
    pub mistakes: Vec<String>,
    /// Whether the file has changed since it was read; `null` if unknown.
    pub file_changed: Option<bool>,
    pub evaluated_at: Option<String>,
    pub dropped: u64,
    /// The part of the last sample beyond the limits.
    pub beyond: u64,
    /// Since when no job is ended, because too many were; `null` otherwise.
    pub tripped_at: Option<String>,
    /// Set if behaviour rules concern many people; else `null`.
    pub doubt: Option<RulesDoubtDocument>,
    pub open: u32,
    /// Jobs that a dry run would have ended and that still exist.
    pub would_have_ended: u32,
    pub warned_today: u32,
    pub ended_today: u32,
    /// The counts for dry runs.
    pub simulated_warned_today: u32,
    pub simulated_ended_today: u32,
    /// Whether `tripped_at` comes from a dry run.
    pub trip_simulated: bool,
    /// Services that are idle or waste a GPU; at most 8.
    pub idle_services: Vec<OpenViolationDocument>,
}

impl From<&GuardReport> for GuardDocument {
    fn from(report: &GuardReport) -> Self {
        let GuardReport {
            mode,
            armed_mode,
            rules,
            file,
            revision,
            mistakes,
            is_file_changed,
            evaluated_at,
            dropped,
            overflow: beyond,
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
            armed_mode: armed_mode.name(),
            rules: rules.total(),
            rule_counts: RuleCountsDocument::from(*rules),
            file: file.clone(),
            revision: revision.as_ref().map(|it| it.0.clone()),
            mistakes: mistakes.clone(),
            file_changed: *is_file_changed,
            evaluated_at: evaluated_at.map(Timestamp::to_rfc3339),
            dropped: *dropped,
            beyond: *beyond,
            tripped_at: tripped_at.map(Timestamp::to_rfc3339),
            doubt: doubt.map(RulesDoubtDocument::from),
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

/// Doubt about behaviour rules: they concern many people.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RulesDoubtDocument {
    pub since: String,
    pub people: u32,
    pub of: u32,
    /// Whether these rules only warn until an admin sets the mode again.
    pub only_warn: bool,
}

impl From<RulesDoubt> for RulesDoubtDocument {
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
    /// The open violations.
    pub open: Vec<OpenViolationDocument>,
    /// The violations for which a dry run would have ended jobs that still exist, as of that
    /// time.
    pub would_have_ended: Vec<OpenViolationDocument>,
    /// The decisions, newest first.
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
    /// The source of the rule and its kind: `user alice` and `memory`.
    pub source: String,
    pub kind: &'static str,
    /// The subject in words.
    pub subject: String,
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    /// In `dry-run` no step is carried out.
    pub mode: &'static str,
    /// `violated`, `warned`, `snoozed`, `ended`, `outcome`, `exempt`, `tripped`, `over`.
    pub step: &'static str,
    /// The number of the warning: 1 for the first.
    pub warning: Option<u32>,
    /// When the job is ended if nothing changes; for `snoozed`, until when it is not.
    pub deadline: Option<String>,
    /// The job that is ended.
    pub victim: Option<VictimDocument>,
    /// Why no job is ended, or further facts about the end.
    pub why: Option<String>,
    /// For `snoozed`: the number of remaining snoozes.
    pub snoozes_left: Option<u32>,
    /// For `outcome`: the outcome.
    pub outcome: Option<EnforcementOutcomeDocument>,
    pub evidence: EvidenceDocument,
    pub message: Option<String>,
}

impl GuardRecordDocument {
    pub(super) fn new(id: Option<u64>, record: &GuardRecord) -> Self {
        let owner = subject_owner(&record.subject, &record.evidence);
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
            GuardStep::Exempt(why) => document.why = Some(why.clone()),
            GuardStep::Outcome(outcome) => {
                document.why.clone_from(&outcome.why);
                document.outcome = Some(EnforcementOutcomeDocument::from(outcome));
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

/// The outcome of ending a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the names are the documented JSON fields; units are in them"
)]
pub struct EnforcementOutcomeDocument {
    pub job: String,
    /// The number of its processes that ended.
    pub ended: u32,
    /// The number of its selected processes that survived.
    pub left: u32,
}

impl From<&EnforcementOutcome> for EnforcementOutcomeDocument {
    fn from(outcome: &EnforcementOutcome) -> Self {
        Self {
            job: outcome.job.shown.clone(),
            ended: outcome.ended,
            left: outcome.left,
        }
    }
}

/// An open violation.
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
    /// The largest number of remaining snoozes of a warned owner; `null` without one.
    pub snoozes_left: Option<u32>,
    pub ended_at: Option<String>,
    pub evidence: EvidenceDocument,
    pub message: Option<String>,
    /// `warn` or `dry-run`, if the violator's own policy is milder.
    pub own_policy: Option<&'static str>,
    /// Until when no job is ended for it.
    pub snoozed_until: Option<String>,
    /// Since when the rule has not been violated; `null` while it is.
    pub not_broken_since: Option<String>,
}

impl From<&OpenViolation> for OpenViolationDocument {
    fn from(open: &OpenViolation) -> Self {
        let owner = subject_owner(&open.subject, &open.evidence);
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
            own_policy: open.own_policy.map(MilderPolicy::name),
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
    /// Whether it worked; `null` if unknown.
    pub busy: Option<bool>,
    /// The command that ends a job of a scheduler: the guard does not end it.
    pub leave_to: Option<String>,
    /// The number of its processes; `procs` may be shorter.
    pub count: u32,
    pub procs: Vec<EvidenceProcessDocument>,
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
            procs: victim
                .runs
                .iter()
                .map(EvidenceProcessDocument::from)
                .collect(),
        }
    }
}

/// The owner, if the subject is one person.
fn subject_owner<'a>(subject: &'a ViolationSubject, evidence: &'a Evidence) -> Option<&'a Person> {
    match subject {
        ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => Some(person),
        ViolationSubject::Job(job) => Some(&job.owner),
        ViolationSubject::Run(_) => evidence.runs.first()?.owner.as_ref(),
        ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_) => None,
    }
}
