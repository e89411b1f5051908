//! The guard: which rule somebody broke, by how much, and what comes of it.

mod asking;
pub mod edit;
mod open;
mod replay;
mod rule;
mod ruled;

pub use asking::{
    EditReport, GuardBrief, GuardReport, MAX_IDLE_SERVICES, MAX_OWN_WARNINGS, Marked, OwnWarning,
    RulesFrom, RulesRevision, RulesText, ViolationPage, ViolationQuery, jobs, of_process,
};
pub use open::{Milder, OpenViolation, Reader, RulesDoubt};
pub use replay::{NotJudged, ReplayReport, ReplayRequest, RuleOutcome};
pub use rule::{RuleCounts, RuleKind, RuleName, RuleSource};
pub use ruled::{HeldTo, JudgedAs, MOST_RULED, Ruled};

use crate::rogue::Threat;
use crate::snapshot::{DeviceId, InstanceId, NetworkRole, ProcessKey};
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How far the guard goes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum GuardMode {
    /// It judges nothing.
    Disabled,
    /// It judges, and records what it would do.
    #[default]
    DryRun,
    /// It warns, reminds, and ends when the grace is over.
    Soft,
    /// It ends at once: what is not allowed at first sight, what is too much after
    /// a second look.
    Enforce,
}

impl GuardMode {
    /// As it is written on the screen, in JSON and in rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::DryRun => "dry-run",
            Self::Soft => "soft",
            Self::Enforce => "enforce",
        }
    }
}

/// What comes of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GuardAction {
    /// Whoever owns it is told.
    Warn,
    /// Its job is ended.
    Terminate,
}

impl GuardAction {
    /// As rules have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Terminate => "terminate",
        }
    }
}

/// One process on one device, as rules see it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JudgedRun {
    /// The process's pid.
    pub pid: u32,
    /// With `pid` it names the process.
    pub start_ticks: u64,
    /// The device.
    pub device: DeviceId,
    /// The part of it, where it is divided.
    pub instance: Option<InstanceId>,
}

impl JudgedRun {
    /// The process, on whatever device.
    #[must_use]
    pub const fn process(&self) -> ProcessKey {
        ProcessKey {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }
}

/// A person: whose processes they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Person {
    /// What to call them.
    pub name: String,
    /// The user, where it is one of this box.
    pub uid: Option<u32>,
}

/// What belongs together and is ended together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JudgedJob {
    /// Whose it is.
    pub owner: Person,
    /// Names it on this box; a process that is in no job is its own.
    pub id: String,
    /// As `list` shows it.
    pub shown: String,
}

/// Whom a rule is broken by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Subject {
    /// All that a person does.
    Person(Person),
    /// What a person does on one device.
    PersonOn(Person, DeviceId),
    /// All that a group does.
    Group(String),
    /// What a group does on one device.
    GroupOn(String, DeviceId),
    /// All on one device.
    Device(DeviceId),
    /// One job, on all devices: of processes that come in dozens one is told of.
    Job(JudgedJob),
    /// One process on one device.
    Run(JudgedRun),
}

impl fmt::Display for Subject {
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

/// A number and its limit, in the unit that [`RuleKind`] says; of what is not
/// allowed at all there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// What was seen.
    pub value: u64,
    /// What is allowed.
    pub limit: u64,
}

/// What a violation is known by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The number and its limit, where it is about a number.
    pub measured: Option<Measured>,
    /// Since when it has been so.
    pub since: Timestamp,
    /// The processes that it is about, at most [`MOST_TOLD`], those that hold most
    /// first.
    pub runs: Vec<Told>,
    /// How many it is about.
    pub count: u32,
    /// Of how many of these something is not known that would add to the number.
    pub unknown: u32,
    /// What it is taken for, where that is what breaks the rule.
    pub threat: Option<Threat>,
    /// It is a service, and only warned about: the rule does not end services.
    pub is_spared_service: bool,
}

/// So many processes are told of in one record.
pub const MOST_TOLD: usize = 16;

/// One process in the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Which.
    pub run: JudgedRun,
    /// The device's index at that time.
    pub gpu_index: u32,
    /// Whose it is.
    pub owner: Option<Person>,
    /// The kernel's name for it.
    pub name: Option<String>,
    /// Bytes of device memory, where known.
    pub memory: Option<u64>,
    /// Mean utilisation in percent, where known.
    pub utilization: Option<u32>,
    /// Its job, as `list` shows it.
    pub job: Option<String>,
    /// Where it runs, and how others use it.
    pub context: ProcessContext,
}

/// Where a process in the evidence runs, and how others use its job. What is not known is
/// left out, as is what does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessContext {
    /// Its systemd unit, of the system's own systemd.
    pub unit: Option<String>,
    /// The image of its container.
    pub image: Option<String>,
    /// How others use its job over TCP.
    pub network_role: Option<NetworkRole>,
    /// Connections of others to its job.
    pub clients: Option<u32>,
}

/// A job that would be ended, and why it and not another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Which.
    pub job: JudgedJob,
    /// Its priority by the rules.
    pub priority: u8,
    /// Its processes on devices, at most [`MOST_TOLD`].
    pub runs: Vec<Told>,
    /// How many they are.
    pub count: u32,
    /// Whether any of them worked when it was chosen; `None` where that is not
    /// known.
    pub is_busy: Option<bool>,
    /// A scheduler or Kubernetes owns it, and this ends it there: the guard does
    /// not.
    pub leave_to: Option<String>,
}

/// What happened to a violation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardStep {
    /// It is beyond doubt.
    Violated,
    /// Its owner is told, for this time; ended at `deadline` if nothing changes.
    Warned {
        /// 1 for the first warning.
        times: u32,
        /// `None` where nothing is ended for it.
        deadline: Option<Timestamp>,
    },
    /// This job is ended for it.
    Ended(Victim),
    /// Nobody could be ended for it: says why.
    Spared(String),
    /// It is over.
    Over,
    /// Whoever was warned asked for more time.
    Snoozed {
        /// Who asked: the user's number.
        by: u32,
        /// Whose jobs are left alone for longer: the user's number.
        owner: u32,
        /// Until when nothing of theirs is ended.
        until: Timestamp,
        /// How often more they may ask.
        left: u32,
    },
    /// A snooze is void before it is over: its rule is gone.
    SnoozeVoided {
        /// Whose it was: the user's number.
        owner: u32,
        /// Until when it would have held.
        until: Timestamp,
    },
    /// What came of ending a job.
    Acted(Acted),
    /// So many jobs would be ended in so short a time that something must be wrong:
    /// nobody is ended any more until an admin says so.
    Tripped {
        /// How many were ended within the time that counts.
        ended: u32,
    },
    /// Rules on behaviour warned or ended so many people within a day that they may not fit
    /// this box.
    Doubted(RulesDoubt),
    /// The rule says something else by now: it begins anew, where it is broken still.
    Outdated,
}

/// What came of ending a job, as the part that acted tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// Which job.
    pub job: JudgedJob,
    /// How many of its processes ended.
    pub ended: u32,
    /// How many of those that were meant go on.
    pub left: u32,
    /// What is to be said besides: why nobody was ended, what did not come back.
    pub why: Option<String>,
}

impl GuardStep {
    /// The job that is ended by it, or left to whoever scheduled it.
    #[must_use]
    pub const fn victim(&self) -> Option<&Victim> {
        match self {
            Self::Ended(victim) => Some(victim),
            Self::Violated
            | Self::Warned { .. }
            | Self::Spared(_)
            | Self::Over
            | Self::Outdated
            | Self::Snoozed { .. }
            | Self::SnoozeVoided { .. }
            | Self::Doubted(_)
            | Self::Acted(_)
            | Self::Tripped { .. } => None,
        }
    }

    /// As it is written on the screen and in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Violated => "violated",
            Self::Warned { .. } => "warned",
            Self::Ended(_) => "ended",
            Self::Spared(_) => "spared",
            Self::Over => "over",
            Self::Snoozed { .. } => "snoozed",
            Self::SnoozeVoided { .. } => "snooze-voided",
            Self::Doubted(_) => "doubted",
            Self::Acted(_) => "acted",
            Self::Tripped { .. } => "tripped",
            Self::Outdated => "outdated",
        }
    }
}

/// One line of what the guard decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardRecord {
    /// When the sample ended that it was decided by.
    pub at: Timestamp,
    /// Which rule.
    pub rule: RuleName,
    /// Broken by whom.
    pub subject: Subject,
    /// How far the guard goes for this rule: in dry run nothing of it is done.
    pub mode: GuardMode,
    /// What happened.
    pub step: GuardStep,
    /// By what it is known.
    pub evidence: Evidence,
    /// The admin's own words to whoever broke it.
    pub message: Option<String>,
}

/// How much more time somebody has by one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snoozed {
    /// Which.
    pub rule: RuleName,
    /// How far the guard goes for it: in dry run nothing would have been ended anyway.
    pub mode: GuardMode,
    /// Until when nothing of theirs is ended for it.
    pub until: Timestamp,
    /// How often more they may ask.
    pub left: u32,
}

/// By so many rules is told that somebody has more time.
pub const MOST_SNOOZED: usize = 64;

/// What could not be judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unjudged {
    /// Which rule.
    pub rule: RuleName,
    /// Of whom.
    pub subject: Subject,
    /// What is not known.
    pub why: String,
}
