//! The guard: which rule was violated, by how much, and what the guard does about it.

pub mod edit;
mod open_violation;
mod process_status;
mod queries;
mod replay;
mod rule;

pub use open_violation::{MilderPolicy, OpenViolation, RulesDoubt, UnfinishedEnd, WarnedOwner};
pub use process_status::{AppliedLimit, MAX_GUARD_ENTRIES, ProcessGuardStatus};
pub use queries::{
    AffectedViolation, EditReport, GuardReport, GuardSummary, MAX_AFFECTED_VIOLATIONS,
    MAX_IDLE_SERVICES, MAX_OWN_WARNINGS, OwnWarning, RuleSetSource, RulesRevision, RulesText,
    ViolationMark, ViolationPage, ViolationQuery, count_jobs, find_marks,
};
pub use replay::{ReplayReport, ReplayRequest, RuleOutcome, UnevaluatedTime};
pub use rule::{RuleCounts, RuleKind, RuleName, RuleSource};

use crate::model::{DeviceId, InstanceId, NetworkRole, ProcessKey};
use crate::rogue::Threat;
use crate::units::Timestamp;
use crate::words::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// How far the guard goes.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
    )]
    pub enum GuardMode {
        /// It evaluates nothing.
        Disabled = "disabled",
        /// It evaluates, and records what it would do.
        #[default]
        DryRun = "dry-run",
        /// It warns, reminds, and ends jobs when the grace period is over.
        Soft = "soft",
        /// It ends jobs at once: for an access violation on first observation, for an exceeded
        /// limit after a second, confirming observation.
        Enforce = "enforce",
    }
    /// The name on the screen, in JSON and in rules.
    name(self)
}

words! {
    /// The action for a violation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum GuardAction {
        /// Warn the owner.
        Warn = "warn",
        /// End the job.
        Terminate = "terminate",
    }
    /// The name in rules.
    name(self)
}

/// Identifies one process on one device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// The pid.
    pub pid: u32,
    /// Identifies the process together with `pid`.
    pub start_ticks: u64,
    /// The device.
    pub device: DeviceId,
    /// The instance, if the device is divided.
    pub instance: Option<InstanceId>,
}

impl RunKey {
    /// The identity of the process, without the device.
    #[must_use]
    pub const fn process(&self) -> ProcessKey {
        ProcessKey {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }
}

/// A person who owns processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The uid, if the person is a user of this host.
    pub uid: Option<u32>,
}

/// A job and its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OwnedJob {
    /// The owner.
    pub owner: Person,
    /// The id of the job on this host; a process without a job has an id of its own.
    pub id: String,
    /// The name of the job in `list`.
    pub shown: String,
}

/// The subject of a violation: what a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ViolationSubject {
    /// All processes of a person.
    Person(Person),
    /// The processes of a person on one device.
    PersonOn(Person, DeviceId),
    /// All processes of a group.
    Group(String),
    /// The processes of a group on one device.
    GroupOn(String, DeviceId),
    /// All processes on one device.
    Device(DeviceId),
    /// One job, on all devices: a violation of dozens of processes is reported once.
    Job(OwnedJob),
    /// One process on one device.
    Run(RunKey),
}

impl fmt::Display for ViolationSubject {
    /// `alice`, `alice on GPU-1a2b`, `group ml`, `GPU-1a2b`, `alice's slurm 1234.0`,
    /// `4711`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(person) => f.write_str(&person.name),
            Self::PersonOn(person, device) => write!(f, "{} on {}", person.name, device.0),
            Self::Group(name) => write!(f, "group {name}"),
            Self::GroupOn(name, device) => write!(f, "group {name} on {}", device.0),
            Self::Device(device) => f.write_str(&device.0),
            Self::Job(job) => write!(f, "{}'s {}", job.owner.name, job.shown),
            Self::Run(run) => write!(f, "{}", run.pid),
        }
    }
}

/// A measured value and its limit, in the unit of the [`RuleKind`]. Access violations have
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    /// The measured value.
    pub value: u64,
    /// The limit.
    pub limit: u64,
}

/// The evidence for a violation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The measured value and its limit, if the rule is about a number.
    pub measured: Option<Measurement>,
    /// Since when the rule has been violated.
    pub since: Timestamp,
    /// The processes involved, at most [`MAX_EVIDENCE_PROCESSES`], those that hold most memory
    /// first; a process once for each of its devices.
    pub runs: Vec<EvidenceProcess>,
    /// The number of all these entries.
    pub count: u32,
    /// The number of these processes with an unknown fact that could add to the value.
    pub unknown: u32,
    /// The class of threat, if the rule is about threats.
    pub threat: Option<Threat>,
    /// The job is a service and is only warned about, because the rule does not end services.
    pub is_service_only_warned: bool,
}

/// The most processes that one record lists.
pub const MAX_EVIDENCE_PROCESSES: usize = 16;

/// One process in the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceProcess {
    /// The identity of the process on its device.
    pub run: RunKey,
    /// The index of the device at that time.
    pub gpu_index: u32,
    /// The owner.
    pub owner: Option<Person>,
    /// The kernel's name of the process.
    pub name: Option<String>,
    /// Bytes of device memory, if known.
    pub memory: Option<u64>,
    /// Mean utilization in percent, if known.
    pub utilization: Option<u32>,
    /// The name of its job in `list`.
    pub job: Option<String>,
    /// The location and network use.
    pub context: ProcessContext,
}

/// The location of a process in the evidence, and the network use of its job. Facts that are
/// unknown or do not apply are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessContext {
    /// Its systemd unit, if the system's own systemd runs it.
    pub unit: Option<String>,
    /// The image of its container.
    pub image: Option<String>,
    /// How clients outside the job use it over TCP.
    pub network_role: Option<NetworkRole>,
    /// The number of connections of others to its job.
    pub clients: Option<u32>,
}

/// A job that is selected to be ended, and the reasons for the selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// The job.
    pub job: OwnedJob,
    /// Its priority from the rules.
    pub priority: u8,
    /// Its processes on devices, at most [`MAX_EVIDENCE_PROCESSES`].
    pub runs: Vec<EvidenceProcess>,
    /// The number of its processes on devices.
    pub count: u32,
    /// Whether any of its processes worked at the time of the selection; `None` if unknown.
    pub is_busy: Option<bool>,
    /// The command that ends a job of a scheduler or of Kubernetes: the guard does not end it.
    pub leave_to: Option<String>,
}

words! {
    /// A step of a violation.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum GuardStep {
        /// The violation is confirmed.
        Violated = "violated",
        /// The owner is warned.
        Warned {
            /// The number of this warning; 1 for the first.
            times: u32,
            /// When the job is ended if nothing changes; `None` if nothing is ended.
            deadline: Option<Timestamp>,
        } = "warned",
        /// This job is ended for it.
        Ended(Victim) = "ended",
        /// No job could be ended for it: says why.
        Exempt(String) = "exempt",
        /// The violation is over.
        Over = "over",
        /// A warned owner asked for more time.
        Snoozed {
            /// The uid of the requester.
            by: u32,
            /// The uid of the owner of the jobs.
            owner: u32,
            /// Until when no job of this owner is ended.
            until: Timestamp,
            /// The number of remaining snoozes.
            left: u32,
        } = "snoozed",
        /// A snooze is void before its end, because its rule no longer exists.
        SnoozeVoided {
            /// The uid of the owner of the jobs.
            owner: u32,
            /// The end of the snooze.
            until: Timestamp,
        } = "snooze-voided",
        /// The outcome of ending a job.
        Outcome(EnforcementOutcome) = "outcome",
        /// Ending so many jobs in so short a time indicates a mistake: no job is ended until an
        /// admin resumes the guard.
        Tripped {
            /// The number of jobs that were ended within the counting window.
            ended: u32,
        } = "tripped",
        /// Behaviour rules warned or ended jobs of so many people within a day that they may not
        /// fit this host.
        Doubted(RulesDoubt) = "doubted",
        /// The rule has changed: the violation starts again if the new rule is violated too.
        Outdated = "outdated",
    }
    /// The name on the screen and in JSON.
    name(&self)
}

/// The outcome of ending a job, as the kill reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnforcementOutcome {
    /// The job.
    pub job: OwnedJob,
    /// The number of its processes that ended.
    pub ended: u32,
    /// The number of its selected processes that survived; at least 1 if processes of it may be
    /// left that were not seen.
    pub left: u32,
    /// Further facts: why nothing was ended, what was not reclaimed.
    pub why: Option<String>,
}

impl GuardStep {
    /// The job that the step ends, or leaves to its scheduler.
    #[must_use]
    pub const fn victim(&self) -> Option<&Victim> {
        match self {
            Self::Ended(victim) => Some(victim),
            Self::Violated
            | Self::Warned { .. }
            | Self::Exempt(_)
            | Self::Over
            | Self::Outdated
            | Self::Snoozed { .. }
            | Self::SnoozeVoided { .. }
            | Self::Doubted(_)
            | Self::Outcome(_)
            | Self::Tripped { .. } => None,
        }
    }
}

/// One recorded step of a violation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardRecord {
    /// The end of the sample that the decision rests on.
    pub at: Timestamp,
    /// The rule.
    pub rule: RuleName,
    /// The subject of the violation.
    pub subject: ViolationSubject,
    /// The mode for this rule: in dry run no step is carried out.
    pub mode: GuardMode,
    /// The step.
    pub step: GuardStep,
    /// The evidence.
    pub evidence: Evidence,
    /// The admin's message to the owner.
    pub message: Option<String>,
}

impl GuardRecord {
    /// The names of all decisions in counters.
    #[rustfmt::skip]
    pub const DECISIONS: [&'static str; 16] = [
        "violated", "would_warn", "warned", "would_end", "selected", "left_to_scheduler", "ended",
        "gone", "failed", "exempt", "snoozed", "snooze_voided", "doubted", "tripped", "over",
        "outdated",
    ];

    /// The name of the decision in counters. Unlike the name of the step it tells a dry run, and a
    /// job that was selected from one that was ended.
    #[must_use]
    pub const fn decision(&self) -> &'static str {
        let is_dry_run = matches!(self.mode, GuardMode::DryRun);
        match &self.step {
            GuardStep::Violated => "violated",
            GuardStep::Warned { .. } if is_dry_run => "would_warn",
            GuardStep::Warned { .. } => "warned",
            GuardStep::Ended(victim) if victim.leave_to.is_some() => "left_to_scheduler",
            GuardStep::Ended(_) if is_dry_run => "would_end",
            GuardStep::Ended(_) => "selected",
            GuardStep::Outcome(outcome) => match (outcome.ended, outcome.left) {
                // It ended by itself.
                (0, 0) => "gone",
                (_, 0) => "ended",
                (_, _) => "failed",
            },
            GuardStep::Exempt(_) => "exempt",
            GuardStep::Snoozed { .. } => "snoozed",
            GuardStep::SnoozeVoided { .. } => "snooze_voided",
            GuardStep::Doubted(_) => "doubted",
            GuardStep::Tripped { .. } => "tripped",
            GuardStep::Over => "over",
            GuardStep::Outdated => "outdated",
        }
    }
}

/// The snooze of an owner for one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnoozedRule {
    /// The rule.
    pub rule: RuleName,
    /// The mode for the rule: in dry run nothing would have been ended anyway.
    pub mode: GuardMode,
    /// Until when no job of the owner is ended for it.
    pub until: Timestamp,
    /// The number of remaining snoozes.
    pub left: u32,
}

/// The most rules in the answer to a snooze.
pub const MAX_SNOOZED_RULES: usize = 64;

/// A rule that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnevaluatedRule {
    /// The rule.
    pub rule: RuleName,
    /// The subject.
    pub subject: ViolationSubject,
    /// The unknown fact.
    pub why: String,
}
