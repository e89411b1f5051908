//! The JSON of the guard: its status and its decisions.

use super::fields::{document, documents};
use super::schema::{described, object_schema};
use super::{EvidenceDocument, EvidenceProcessDocument, SCHEMA};
use crate::guard::{
    EnforcementOutcome, Evidence, GuardAction, GuardMode, GuardRecord, GuardReport, GuardStep,
    MilderPolicy, OpenViolation, Person, RuleCounts, RuleKind, RulesDoubt, UnfinishedEnd, Victim,
    ViolationPage, ViolationSubject,
};
use crate::units::Timestamp;

document! {
    /// The status of the guard.
    plain GuardDocument(report: &GuardReport) {
        /// `disabled`, `dry-run`, `soft`, `enforce`.
        mode: &'static str as GuardMode = report.mode.name(),
        /// The mode that a dry run simulates: `soft` or `enforce`.
        armed_mode: &'static str as GuardMode = report.armed_mode.name(),
        rules: u32 = report.rules.total(),
        rule_counts: RuleCounts = report.rules,
        file: String = report.file.clone(),
        /// `null` if there is no file.
        revision: Option<String> = report.revision.as_ref().map(|it| it.0.clone()),
        /// Why the current file is not in force.
        mistakes: Vec<String> = report.mistakes.clone(),
        /// Whether the file has changed since it was read; `null` if unknown.
        file_changed: Option<bool> = report.is_file_changed,
        evaluated_at: Option<String> as Option<Timestamp> = report.evaluated_at.map(Timestamp::to_rfc3339),
        dropped: u64 = report.dropped,
        /// The part of the last sample beyond the limits.
        beyond: u64 = report.overflow,
        /// Since when no job is ended, because too many were; `null` otherwise.
        tripped_at: Option<String> as Option<Timestamp> = report.tripped_at.map(Timestamp::to_rfc3339),
        /// Set if behaviour rules concern many people; else `null`.
        doubt: Option<RulesDoubtDocument> = report.doubt.map(RulesDoubtDocument::from),
        open: u32 = report.open,
        /// Jobs that a dry run would have ended and that still exist.
        would_have_ended: u32 = report.would_have_ended,
        warned_today: u32 = report.warned_today,
        ended_today: u32 = report.ended_today,
        /// The counts for dry runs.
        simulated_warned_today: u32 = report.simulated_warned_today,
        simulated_ended_today: u32 = report.simulated_ended_today,
        /// Whether `tripped_at` comes from a dry run.
        trip_simulated: bool = report.is_trip_simulated,
        /// Services that are idle or waste a GPU; at most 8.
        idle_services: Vec<OpenViolationDocument> = documents(&report.idle_services),
    }
}

object_schema! {
    /// The number of policies and rules from each part of the rules file.
    RuleCounts { defaults: u32, users: u32, groups: u32, gpus: u32, times: u32, rules: u32, }
}

document! {
    /// Doubt about behaviour rules: they concern many people.
    plain RulesDoubtDocument(doubt: RulesDoubt) {
        since: String as Timestamp = doubt.since.to_rfc3339(),
        people: u32 = doubt.people,
        of: u32 = doubt.of,
        /// Whether these rules only warn until an admin sets the mode again.
        only_warn: bool = doubt.only_warn,
    }
}

document! {
    /// The document that `gpukillctl guard violations -o json` prints.
    plain ViolationsDocument(page: &ViolationPage) {
        schema: u32 = SCHEMA,
        /// The open violations.
        open: Vec<OpenViolationDocument> = documents(&page.open),
        /// The violations for which a dry run would have ended jobs that still exist, as of that
        /// time.
        would_have_ended: Vec<OpenViolationDocument> = documents(&page.would_have_ended),
        /// The decisions, newest first.
        records: Vec<GuardRecordDocument> = page
            .records
            .iter()
            .map(|(id, record)| GuardRecordDocument::new(Some(*id), record))
            .collect(),
    }
}

described! {
    /// One step of a violation.
    pub struct GuardRecordDocument {
        /// `null` in a replay.
        pub id: Option<u64>,
        pub timestamp: String as Timestamp,
        /// `default: idle`
        pub rule: String,
        /// The source of the rule and its kind: `user alice` and `memory`.
        pub source: String,
        pub kind: &'static str as RuleKind,
        /// The subject in words.
        pub subject: String,
        pub owner: Option<String>,
        pub owner_uid: Option<u32>,
        /// In `dry-run` no step is carried out.
        pub mode: &'static str as GuardMode,
        /// `violated`, `warned`, `snoozed`, `ended`, `outcome`, `exempt`, `tripped`, `over`.
        pub step: &'static str as GuardStep,
        /// The number of the warning: 1 for the first.
        pub warning: Option<u32>,
        /// When the job is ended if nothing changes; for `snoozed`, until when it is not.
        pub deadline: Option<String> as Option<Timestamp>,
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

document! {
    /// The outcome of ending a job.
    plain EnforcementOutcomeDocument(outcome: &EnforcementOutcome) {
        job: String = outcome.job.shown.clone(),
        /// The number of its processes that ended.
        ended: u32 = outcome.ended,
        /// The number of its selected processes that survived.
        left: u32 = outcome.left,
    }
}

document! {
    /// An open violation.
    plain OpenViolationDocument(open: &OpenViolation) {
        rule: String = open.rule.to_string(),
        source: String = open.rule.source.to_string(),
        kind: &'static str as RuleKind = open.rule.kind.name(),
        subject: String = open.subject.to_string(),
        owner: Option<String> = subject_owner(&open.subject, &open.evidence).map(|it| it.name.clone()),
        owner_uid: Option<u32> = subject_owner(&open.subject, &open.evidence).and_then(|it| it.uid),
        mode: &'static str as GuardMode = open.mode.name(),
        /// `warn` or `terminate`.
        action: &'static str as GuardAction = open.action.name(),
        violated_at: String as Timestamp = open.violated_at.to_rfc3339(),
        warned_at: Option<String> as Option<Timestamp> = open.warned_at.map(Timestamp::to_rfc3339),
        warnings: u32 = open.warnings,
        deadline: Option<String> as Option<Timestamp> = open.deadline.map(Timestamp::to_rfc3339),
        /// The largest number of remaining snoozes of a warned owner; `null` without one.
        snoozes_left: Option<u32> = open.readers.iter().map(|it| it.snoozes_left).max(),
        ended_at: Option<String> as Option<Timestamp> = open.ended_at.map(Timestamp::to_rfc3339),
        /// Since when a job is being ended for it.
        ending_since: Option<String> as Option<Timestamp> = match open.unfinished_end {
            Some(UnfinishedEnd::UnderWay(since)) => Some(since.to_rfc3339()),
            Some(UnfinishedEnd::Survived(_)) | None => None,
        },
        /// When a process of the job was last found to have survived its signals.
        survived_at: Option<String> as Option<Timestamp> = match open.unfinished_end {
            Some(UnfinishedEnd::Survived(at)) => Some(at.to_rfc3339()),
            Some(UnfinishedEnd::UnderWay(_)) | None => None,
        },
        evidence: EvidenceDocument = EvidenceDocument::from(&open.evidence),
        message: Option<String> = open.message.clone(),
        /// `warn` or `dry-run`, if the violator's own policy is milder.
        own_policy: Option<&'static str> as Option<MilderPolicy> = open.own_policy.map(MilderPolicy::name),
        /// Until when no job is ended for it.
        snoozed_until: Option<String> as Option<Timestamp> = open.snoozed_until.map(Timestamp::to_rfc3339),
        /// Since when the rule has not been violated; `null` while it is.
        not_broken_since: Option<String> as Option<Timestamp> = open.not_broken_since.map(Timestamp::to_rfc3339),
    }
}

document! {
    /// A job that is ended.
    plain VictimDocument(victim: &Victim) {
        job: String = victim.job.shown.clone(),
        owner: String = victim.job.owner.name.clone(),
        owner_uid: Option<u32> = victim.job.owner.uid,
        priority: u8 = victim.priority,
        /// Whether it worked; `null` if unknown.
        busy: Option<bool> = victim.is_busy,
        /// The command that ends a job of a scheduler: the guard does not end it.
        leave_to: Option<String> = victim.leave_to.clone(),
        /// The number of its processes; `procs` may be shorter.
        count: u32 = victim.count,
        procs: Vec<EvidenceProcessDocument> = documents(&victim.runs),
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
