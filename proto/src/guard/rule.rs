//! Names rules: where they are said, and of what.

use serde::{Deserialize, Serialize};
use std::fmt;

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

/// How many policies and rules there are of each source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuleCounts {
    /// Limits in `[global]`, for everybody.
    pub defaults: u32,
    /// `[user_policies]`
    pub users: u32,
    /// `[group_policies]`
    pub groups: u32,
    /// `[gpu_policies]`
    pub gpus: u32,
    /// `[[time_policies]]`
    pub times: u32,
    /// `[[rules]]`
    pub rules: u32,
}

impl RuleCounts {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> u32 {
        let named = self.users.saturating_add(self.groups);
        let named = named.saturating_add(self.gpus).saturating_add(self.times);
        named
            .saturating_add(self.rules)
            .saturating_add(self.defaults)
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
    /// How much of a threat a process is taken for, as [`Risk::level`] tells it.
    ///
    /// [`Risk::level`]: crate::rogue::Risk::level
    Rogue,
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
            | Self::Growth
            | Self::Rogue => false,
        }
    }

    /// Whether it guesses by what processes do.
    #[must_use]
    pub const fn is_of_behaviour(self) -> bool {
        matches!(
            self,
            Self::Idle | Self::Waste | Self::Runaway | Self::Growth
        )
    }

    /// Whether services are only warned about where the rule does not say otherwise.
    #[must_use]
    pub const fn spares_services(self) -> bool {
        matches!(self, Self::Idle | Self::Waste)
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
            Self::Rogue => "rogue",
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
