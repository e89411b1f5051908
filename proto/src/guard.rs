//! The guard: which rule somebody broke, by how much, and what comes of it.

pub mod edit;

use crate::snapshot::{DeviceId, InstanceId};
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

/// Where in the rules something is said.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuleSource {
    /// In `[global]`, for everybody of whom nothing else is said.
    Default,
    /// In `[user_policies.NAME]`.
    User(String),
    /// In `[group_policies.NAME]`.
    Group(String),
    /// In `[gpu_policies."GPU"]`.
    Gpu(String),
    /// In the `[[time_policies]]` of this name.
    Time(String),
    /// In the `[[rules]]` of this name.
    Rule(String),
}

impl fmt::Display for RuleSource {
    /// `default`, `user alice`, `gpu 0`, `time business_hours`, `rule notebooks`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User(name) => write!(f, "user {name}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Gpu(name) => write!(f, "gpu {name}"),
            Self::Time(name) => write!(f, "time {name}"),
            Self::Rule(name) => write!(f, "rule {name}"),
        }
    }
}

/// What of somebody's use is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuleKind {
    /// Device memory that a person holds on all devices together, in bytes.
    Memory,
    /// Utilisation of one device by a person's processes together, in percent.
    Utilization,
    /// How long a process has held a device, in milliseconds.
    Duration,
    /// How many processes of a person hold a device.
    Processes,
    /// Device memory that a group holds on all devices together, in bytes.
    TotalMemory,
    /// Utilisation of one device by a group's processes together, in percent.
    TotalUtilization,
    /// How many processes of a group hold a device.
    TotalProcesses,
    /// Device memory that one process holds on one device, in bytes.
    ProcessMemory,
    /// Utilisation of one device by whomever, in percent.
    GpuUtilization,
    /// Device memory that is left for others, in bytes.
    ReservedMemory,
    /// A device that a person or group may not use.
    Gpu,
    /// A person who may not use a device.
    User,
    /// A process that may not use a device.
    Process,
    /// A device that nobody may use now.
    Maintenance,
    /// A time at which a person may not use devices.
    Hours,
    /// How long memory has been held and nothing done, in milliseconds.
    Idle,
    /// Mean utilisation of a process that holds much for long, in percent.
    Waste,
    /// How long a process has been at work without end, in milliseconds.
    Runaway,
    /// How much more memory a process holds than it did, in bytes.
    Growth,
}

impl RuleKind {
    /// What is not allowed at all, as against too much of what is.
    #[must_use]
    pub const fn is_access(self) -> bool {
        match self {
            Self::Gpu | Self::User | Self::Process | Self::Maintenance | Self::Hours => true,
            Self::Memory
            | Self::Utilization
            | Self::Duration
            | Self::Processes
            | Self::TotalMemory
            | Self::TotalUtilization
            | Self::TotalProcesses
            | Self::ProcessMemory
            | Self::GpuUtilization
            | Self::ReservedMemory
            | Self::Idle
            | Self::Waste
            | Self::Runaway
            | Self::Growth => false,
        }
    }

    /// As it is written on the screen and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Utilization => "utilization",
            Self::Duration => "duration",
            Self::Processes => "processes",
            Self::TotalMemory => "total memory",
            Self::TotalUtilization => "total utilization",
            Self::TotalProcesses => "total processes",
            Self::ProcessMemory => "process memory",
            Self::GpuUtilization => "gpu utilization",
            Self::ReservedMemory => "reserved memory",
            Self::Gpu => "gpu",
            Self::User => "user",
            Self::Process => "process",
            Self::Maintenance => "maintenance",
            Self::Hours => "hours",
            Self::Idle => "idle",
            Self::Waste => "waste",
            Self::Runaway => "runaway",
            Self::Growth => "growth",
        }
    }
}

/// Names one rule: what is said where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleName {
    /// Where it is said.
    pub source: RuleSource,
    /// Of what.
    pub kind: RuleKind,
}

impl fmt::Display for RuleName {
    /// `default: idle`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.kind.name())
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
}

impl GuardStep {
    /// As it is written on the screen and in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Violated => "violated",
            Self::Warned { .. } => "warned",
            Self::Ended(_) => "ended",
            Self::Spared(_) => "spared",
            Self::Over => "over",
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

/// A violation that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenViolation {
    /// Which rule.
    pub rule: RuleName,
    /// Broken by whom.
    pub subject: Subject,
    /// How far the guard goes for this rule.
    pub mode: GuardMode,
    /// What comes of it.
    pub action: GuardAction,
    /// When it was beyond doubt.
    pub violated_at: Timestamp,
    /// When its owner was warned first.
    pub warned_at: Option<Timestamp>,
    /// How often.
    pub warnings: u32,
    /// When somebody is ended for it, if nothing changes.
    pub deadline: Option<Timestamp>,
    /// When somebody was last ended for it.
    pub ended_at: Option<Timestamp>,
    /// What is known by now.
    pub evidence: Evidence,
    /// The admin's own words.
    pub message: Option<String>,
}

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
