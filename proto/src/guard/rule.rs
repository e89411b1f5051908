//! The names of rules: the place in the rules file, and what the rule limits.

use crate::words::words;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The part of the rules file that defines a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuleSource {
    /// `[global]`, for everybody without another rule.
    Default,
    /// `[user_policies.NAME]`.
    User(String),
    /// `[group_policies.NAME]`.
    Group(String),
    /// `[gpu_policies."GPU"]`.
    Gpu(String),
    /// The `[[time_policies]]` of this name.
    Time(String),
    /// The `[[rules]]` of this name.
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

/// The number of policies and rules from each source.
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
    /// The sum of all.
    #[must_use]
    pub const fn total(self) -> u32 {
        let named = self.users.saturating_add(self.groups);
        let named = named.saturating_add(self.gpus).saturating_add(self.times);
        named
            .saturating_add(self.rules)
            .saturating_add(self.defaults)
    }
}

words! {
    /// The quantity that a rule limits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum RuleKind {
        /// Device memory that a person holds on all devices together, in bytes.
        Memory = "memory",
        /// Utilization of one device by a person's processes together, in percent.
        Utilization = "utilization",
        /// The time for which a process has held a device, in milliseconds.
        Duration = "duration",
        /// The number of processes with which a person holds a device.
        Processes = "processes",
        /// Device memory that a group holds on all devices together, in bytes.
        TotalMemory = "total memory",
        /// Utilization of one device by a group's processes together, in percent.
        TotalUtilization = "total utilization",
        /// The number of processes with which a group holds a device.
        TotalProcesses = "total processes",
        /// Device memory that one process holds on one device, in bytes.
        ProcessMemory = "process memory",
        /// Utilization of one device by all processes, in percent.
        GpuUtilization = "gpu utilization",
        /// Device memory that is reserved for others, in bytes.
        ReservedMemory = "reserved memory",
        /// A device that a person or group may not use.
        Gpu = "gpu",
        /// A person who may not use a device.
        User = "user",
        /// A process that may not use a device.
        Process = "process",
        /// A device that nobody may use during maintenance.
        Maintenance = "maintenance",
        /// A time at which a person may not use devices.
        Hours = "hours",
        /// The time for which memory has been held without any work, in milliseconds.
        Idle = "idle",
        /// Mean utilization of a process that holds much memory for a long time, in percent.
        Waste = "waste",
        /// The time for which a process has worked without a break, in milliseconds.
        Runaway = "runaway",
        /// The growth of the memory of a process, in bytes.
        Growth = "growth",
        /// The risk of a process, as a [`Risk::level`].
        ///
        /// [`Risk::level`]: crate::rogue::Risk::level
        Rogue = "rogue",
    }
    /// The name on the screen and in JSON.
    name(self)
}

impl RuleKind {
    /// Whether the rule forbids access, instead of limiting an amount.
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

    /// Whether the rule is a heuristic about the behaviour of processes.
    #[must_use]
    pub const fn is_behaviour(self) -> bool {
        matches!(
            self,
            Self::Idle | Self::Waste | Self::Runaway | Self::Growth
        )
    }

    /// Whether services are only warned unless the rule says otherwise.
    #[must_use]
    pub const fn only_warns_services(self) -> bool {
        matches!(self, Self::Idle | Self::Waste)
    }
}

/// The name of a rule: its source and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleName {
    /// The part of the rules file.
    pub source: RuleSource,
    /// The quantity that the rule limits.
    pub kind: RuleKind,
}

impl fmt::Display for RuleName {
    /// `default: idle`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.kind.name())
    }
}
