//! The admin's rules after parsing, and their files: how a file is parsed ([`parse`]), linted
//! ([`lint`]), described ([`description`]), edited ([`edit`]), imported ([`import`]) and
//! compared ([`diff`]).

mod behaviour;
pub(crate) mod canonical;
pub mod description;
pub mod diff;
pub mod edit;
mod enforcement;
pub mod import;
pub mod lint;
pub mod parse;

use super::schedule::Hours;
pub use crate::select::Glob;
pub use behaviour::{
    ForbiddenBehaviour, GrowthParams, IdleParams, RogueParams, RunawayParams, WasteParams,
};
pub use enforcement::EnforcementSettings;
use gpukill_proto::guard::{GuardAction, GuardMode, RuleCounts};
use gpukill_proto::units::{Bytes, Percent};
use parse::value_reader::KeyPositions;
use regex_lite::Regex;
use serde::Serialize;
use std::time::Duration;

/// The whole rule set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleSet {
    /// The mode of the guard.
    pub mode: GuardMode,
    /// The mode that a dry run simulates: soft or enforce.
    pub armed_mode: EnforcementMode,
    /// The contradiction between the enforcement switches, if they contradict each other.
    pub switch_conflict: Option<SwitchConflict>,
    /// Limits of people without a limit in another policy.
    pub defaults: Limits,
    /// Warnings, grace period, snoozes and the circuit breaker.
    pub enforcement: EnforcementSettings,
    /// Processes that no rule applies to.
    pub protect: ProtectRules,
    /// Policies of one person each.
    pub users: Vec<UserPolicy>,
    /// Policies of several persons each, or of a project.
    pub groups: Vec<GroupPolicy>,
    /// Policies of one or several devices each.
    pub gpus: Vec<GpuPolicy>,
    /// Policies for hours of the week.
    pub times: Vec<TimePolicy>,
    /// Rules on the behaviour of processes.
    pub behaviours: Vec<BehaviourRule>,
    /// The position of each table and key in the text, by its path. Evaluation does not use
    /// it.
    pub positions: KeyPositions,
}

impl RuleSet {
    /// The number of policies and rules, without the defaults.
    #[must_use]
    pub fn policy_count(&self) -> usize {
        let named = self.users.len() + self.groups.len() + self.gpus.len();
        named + self.times.len() + self.behaviours.len()
    }

    /// The number of policies and rules, and of limits that apply to everybody.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.policy_count() + self.default_limit_count()
    }

    /// The numbers by source.
    #[must_use]
    pub fn counts_by_source(&self) -> RuleCounts {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        RuleCounts {
            defaults: count(self.default_limit_count()),
            users: count(self.users.len()),
            groups: count(self.groups.len()),
            gpus: count(self.gpus.len()),
            times: count(self.times.len()),
            rules: count(self.behaviours.len()),
        }
    }

    /// The number of limits that apply to everybody.
    fn default_limit_count(&self) -> usize {
        let Limits {
            memory,
            utilization,
            duration,
            processes,
            idle,
            // It is part of the idle limit.
            idle_min_memory: _,
        } = &self.defaults;
        let defaults = [
            memory.is_some(),
            utilization.is_some(),
            duration.is_some(),
            processes.is_some(),
            idle.is_some(),
        ];
        defaults.into_iter().filter(|is_set| *is_set).count()
    }
}

/// The mode that a dry run simulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum EnforcementMode {
    /// [`GuardMode::Soft`]
    #[default]
    Soft,
    /// [`GuardMode::Enforce`]
    Enforce,
}

/// Contradicting values of `soft_enforcement` and `hard_enforcement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchConflict {
    /// Both are true.
    Both,
    /// Both are false.
    Neither,
}

impl EnforcementMode {
    /// The mode of the guard that this is.
    #[must_use]
    pub const fn mode(self) -> GuardMode {
        match self {
            Self::Soft => GuardMode::Soft,
            Self::Enforce => GuardMode::Enforce,
        }
    }
}

/// Processes that no rule applies to: they are neither evaluated nor counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ProtectRules {
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Whole names of processes, with `*` and `?`.
    pub processes: Vec<Glob>,
    /// A pattern for command lines.
    pub command: Option<Pattern>,
    /// Images of containers.
    pub images: Vec<Glob>,
    /// Whole names of systemd units, with `*` and `?`. Only units of the system manager
    /// count.
    pub units: Vec<Glob>,
}

impl ProtectRules {
    /// Whether a process of this name may be protected. Such a process is left alone, even
    /// if that is not certain.
    #[must_use]
    pub fn may_protect_name(&self, name: &str) -> bool {
        self.processes.iter().any(|it| it.regex.is_match(name))
    }
}

/// How much one person may use. `None` means no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Memory on all devices together.
    pub memory: Option<Bytes>,
    /// Mean utilization of any one device.
    pub utilization: Option<Percent>,
    /// How long each process may hold a device.
    pub duration: Option<Duration>,
    /// The number of processes, however many devices each uses.
    pub processes: Option<u32>,
    /// How long a process may be idle.
    pub idle: Option<Duration>,
    /// A process that holds less memory of a device than this is not idle.
    pub idle_min_memory: Option<Bytes>,
}

/// The response to violations of a policy, where the policy sets it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Measures {
    /// Only warn, or terminate.
    pub action: Option<GuardAction>,
    /// The mode for this policy. It is never harder than the mode of the guard.
    pub mode: Option<GuardMode>,
    /// Replaces [`EnforcementSettings::grace`].
    pub grace: Option<Duration>,
    /// Replaces [`EnforcementSettings::max_snoozes`].
    pub max_snoozes: Option<u32>,
    /// The admin's own message to the violator.
    pub message: Option<String>,
}

/// The policy of one person. Its values replace those of groups and of the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UserPolicy {
    /// The name or uid of the user.
    pub name: String,
    /// The limits.
    pub limits: Limits,
    /// Jobs of the lowest priority are ended first. `None` means [`DEFAULT_PRIORITY`].
    pub priority: Option<u8>,
    /// The only devices that the user may use. Empty means all.
    pub allowed_gpus: Vec<GpuSelector>,
    /// Devices that the user may not use.
    pub blocked_gpus: Vec<GpuSelector>,
    /// Other limits at certain times.
    pub overrides: Vec<TimeOverride>,
    /// The response to violations.
    pub measures: Measures,
}

/// The priority where no rule sets one. Jobs of a higher priority are ended later.
pub const DEFAULT_PRIORITY: u8 = 5;

/// The highest priority.
pub const MAX_PRIORITY: u8 = 100;

/// Other limits of a person at certain times. They replace those of the person's policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TimeOverride {
    /// The times.
    pub hours: Hours,
    /// The limits.
    pub limits: Limits,
}

/// The members of a group: everyone who matches any of these.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Members {
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Names of Unix groups of the host.
    pub unix_groups: Vec<String>,
    /// Slurm accounts, as the environment of each job names them: see
    /// [`ProcessFacts::account`](super::facts::ProcessFacts::account).
    pub slurm_accounts: Vec<String>,
    /// Kubernetes namespaces.
    pub kubernetes_namespaces: Vec<String>,
    /// Images of containers.
    pub images: Vec<Glob>,
}

/// The policy of a group of persons or of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GroupPolicy {
    /// The name of the group.
    pub name: String,
    /// The members.
    pub members: Members,
    /// Memory of all members together, on all devices.
    pub total_memory: Option<Bytes>,
    /// Mean utilization by all members together, of any one device.
    pub total_utilization: Option<Percent>,
    /// The number of processes of all members together.
    pub total_processes: Option<u32>,
    /// The limits of each member. They replace the defaults.
    pub limits: Limits,
    /// The priority of members without a priority in their own policy.
    pub priority: Option<u8>,
    /// The only devices that members may use. Empty means all.
    pub allowed_gpus: Vec<GpuSelector>,
    /// Devices that members may not use.
    pub blocked_gpus: Vec<GpuSelector>,
    /// The response to violations.
    pub measures: Measures,
}

/// The policy of one or several devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GpuPolicy {
    /// The name of the policy, as it is written.
    pub name: String,
    /// The devices.
    pub gpus: Vec<GpuSelector>,
    /// Memory that each process may hold.
    pub max_memory: Option<Bytes>,
    /// Mean utilization by all processes together.
    pub max_utilization: Option<Percent>,
    /// Memory of the device that must stay free.
    pub reserved_memory: Option<Bytes>,
    /// The only users who may use the devices. Empty means all.
    pub allowed_users: Vec<String>,
    /// Users who may not use the devices.
    pub blocked_users: Vec<String>,
    /// The only processes that may use the devices, by their whole names. Empty means all.
    pub allowed_processes: Vec<Glob>,
    /// Processes that may not use the devices.
    pub blocked_processes: Vec<Glob>,
    /// When nobody may use the devices.
    pub maintenance: Option<Hours>,
    /// The response to violations.
    pub measures: Measures,
}

/// The policy for certain hours of the week. It applies in addition to the other policies;
/// the strictest limit wins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TimePolicy {
    /// The name of the policy.
    pub name: String,
    /// The hours.
    pub hours: Hours,
    /// The limits of each person during these hours.
    pub limits: Limits,
    /// The only users who may use devices during these hours. Empty means all.
    pub allowed_users: Vec<String>,
    /// Users who may not use devices during these hours.
    pub blocked_users: Vec<String>,
    /// The devices that the policy applies to. Empty means all.
    pub gpus: Vec<GpuSelector>,
    /// The response to violations.
    pub measures: Measures,
}

/// A rule on the behaviour of processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BehaviourRule {
    /// The name of the rule.
    pub name: String,
    /// The people that the rule applies to. If it names nobody, it applies to everybody.
    pub members: Members,
    /// Users that the rule does not apply to.
    pub except_users: Vec<String>,
    /// The devices that the rule applies to. Empty means all.
    pub gpus: Vec<GpuSelector>,
    /// Whole names of the processes that the rule applies to. Empty means all.
    pub processes: Vec<Glob>,
    /// A pattern for command lines.
    pub command: Option<Pattern>,
    /// The forbidden behaviour.
    pub behaviour: ForbiddenBehaviour,
    /// Whether services are ended too. It matters for idleness and waste only.
    pub ends_services: bool,
    /// The response to violations.
    pub measures: Measures,
}

/// A device selector as typed: an index, a UUID or its beginning, a PCI address, or a name
/// with `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GpuSelector(pub String);

/// An unanchored regular expression and its source.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Pattern {
    /// As it was typed.
    pub typed: String,
    /// The compiled expression.
    #[serde(skip)]
    pub regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.typed == other.typed
    }
}

impl Eq for Pattern {}
