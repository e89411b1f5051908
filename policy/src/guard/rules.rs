//! What the admin's file of rules says, once it is understood. How that is written,
//! `read` knows.

pub(crate) mod canonical;

mod conduct;

mod enforcement;

use super::read::at::Places;
use super::schedule::Hours;
pub use crate::select::Glob;
pub use conduct::Conduct;
pub use enforcement::Enforcement;
use gpukill_proto::guard::{GuardAction, GuardMode, RuleCounts};
use gpukill_proto::units::{Bytes, Percent};
use regex_lite::Regex;
use serde::Serialize;
use std::time::Duration;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// How far the guard goes.
    pub mode: GuardMode,
    /// How far it would go, of which dry run is the rehearsal: soft or enforce.
    pub rehearsed: Rehearsed,
    /// Whose what a process does is.
    pub person: PersonBy,
    /// What these two were made of, where that is hardly meant.
    pub contradiction: Option<Contradiction>,
    /// What holds for whomever nothing else is said of.
    pub defaults: Limits,
    /// Everything about warnings and their clocks.
    pub enforcement: Enforcement,
    /// Whom no rule is about.
    pub protect: Protect,
    /// One person each.
    pub users: Vec<UserPolicy>,
    /// Several persons each, or what is not a person: a project.
    pub groups: Vec<GroupPolicy>,
    /// One device each, or several.
    pub gpus: Vec<GpuPolicy>,
    /// Hours of the week.
    pub times: Vec<TimePolicy>,
    /// What processes do.
    pub behaviours: Vec<Behaviour>,
    /// Where in its text each table and key stands, by its path. Means nothing to a
    /// judgement.
    pub places: Places,
}

impl Rules {
    /// How many policies and rules there are, besides the defaults.
    #[must_use]
    pub fn policies(&self) -> usize {
        let named = self.users.len() + self.groups.len() + self.gpus.len();
        named + self.times.len() + self.behaviours.len()
    }

    /// The same, and each limit that holds for everybody.
    #[must_use]
    pub fn count(&self) -> usize {
        self.policies() + self.set_defaults()
    }

    /// How many there are of each source.
    #[must_use]
    pub fn counts(&self) -> RuleCounts {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        RuleCounts {
            defaults: count(self.set_defaults()),
            users: count(self.users.len()),
            groups: count(self.groups.len()),
            gpus: count(self.gpus.len()),
            times: count(self.times.len()),
            rules: count(self.behaviours.len()),
        }
    }

    /// How many limits hold for everybody.
    fn set_defaults(&self) -> usize {
        let Limits {
            memory,
            utilization,
            duration,
            processes,
            idle,
            // It is part of the one before.
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

/// Whose what a process does is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum PersonBy {
    /// Whom to ask: whom it runs as, or whose its container is.
    #[default]
    Owner,
    /// Whoever logged in to start it, under whatever name it runs now.
    Login,
}

/// What a dry run rehearses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Rehearsed {
    /// [`GuardMode::Soft`]
    #[default]
    Soft,
    /// [`GuardMode::Enforce`]
    Enforce,
}

/// What is written of soft and hard enforcement, where only one can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contradiction {
    /// Both are true.
    Both,
    /// Both are false.
    Neither,
}

impl Rehearsed {
    /// The mode that it is.
    #[must_use]
    pub const fn mode(self) -> GuardMode {
        match self {
            Self::Soft => GuardMode::Soft,
            Self::Enforce => GuardMode::Enforce,
        }
    }
}

/// Whom no rule is about: they are not judged, and count for nobody.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Protect {
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Whole names of processes, with `*` and `?`.
    pub processes: Vec<Glob>,
    /// On command lines.
    pub command: Option<Pattern>,
    /// Images of containers.
    pub images: Vec<Glob>,
    /// Whole names of systemd units, with `*` and `?`; of the system's own systemd alone.
    pub units: Vec<Glob>,
}

impl Protect {
    /// Whether a process may be protected that is called so: where that is not sure, it is
    /// left alone.
    #[must_use]
    pub fn may_name(&self, name: &str) -> bool {
        self.processes.iter().any(|it| it.regex.is_match(name))
    }
}

/// How much one person may use. `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// On all devices together.
    pub memory: Option<Bytes>,
    /// Of any one device.
    pub utilization: Option<Percent>,
    /// Each process on a device.
    pub duration: Option<Duration>,
    /// Processes, however many devices each uses.
    pub processes: Option<u32>,
    /// How long a process may do nothing.
    pub idle: Option<Duration>,
    /// Only a process that holds so much of a device is idle.
    pub idle_min_memory: Option<Bytes>,
}

/// What comes of a violation of a policy, where it says so itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Measures {
    /// Warn alone, or end.
    pub action: Option<GuardAction>,
    /// How far the guard goes for this; never further than the whole does.
    pub mode: Option<GuardMode>,
    /// In place of [`Enforcement::grace`].
    pub grace: Option<Duration>,
    /// In place of [`Enforcement::max_snoozes`].
    pub max_snoozes: Option<u32>,
    /// The admin's own words to whoever broke it.
    pub message: Option<String>,
}

/// What is said of one person. What it says replaces what groups and defaults say
/// of the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UserPolicy {
    /// Their name, or their number.
    pub name: String,
    /// How much.
    pub limits: Limits,
    /// Who is ended first: the lowest. `None` is [`PRIORITY`].
    pub priority: Option<u8>,
    /// The only devices they may use; all where this is empty.
    pub allowed_gpus: Vec<GpuSelector>,
    /// Devices they may not use.
    pub blocked_gpus: Vec<GpuSelector>,
    /// Other limits at some times.
    pub overrides: Vec<Override>,
    /// What comes of it.
    pub measures: Measures,
}

/// Where no rule says another. The higher, the longer it is spared.
pub const PRIORITY: u8 = 5;

/// The highest there is.
pub const HIGHEST_PRIORITY: u8 = 100;

/// Other limits of a person at some times. What it says replaces what the person's
/// policy says of the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Override {
    /// When.
    pub hours: Hours,
    /// How much.
    pub limits: Limits,
}

/// Who belongs to a group: whoever is meant by any of these.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Members {
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Names of groups of the box.
    pub unix_groups: Vec<String>,
    /// Accounts of Slurm, as each job's own environment names its: see
    /// [`About::account`](super::about::About::account).
    pub slurm_accounts: Vec<String>,
    /// Namespaces of Kubernetes.
    pub kubernetes_namespaces: Vec<String>,
    /// Images of containers.
    pub images: Vec<Glob>,
}

/// What is said of a group of persons, or of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GroupPolicy {
    /// What to call it.
    pub name: String,
    /// Who belongs to it.
    pub members: Members,
    /// All of them together, on all devices.
    pub total_memory: Option<Bytes>,
    /// All of them together, of any one device.
    pub total_utilization: Option<Percent>,
    /// All of them together.
    pub total_processes: Option<u32>,
    /// Each of them. Replaces the defaults.
    pub limits: Limits,
    /// Of its members, where their own policy says none.
    pub priority: Option<u8>,
    /// The only devices they may use; all where this is empty.
    pub allowed_gpus: Vec<GpuSelector>,
    /// Devices they may not use.
    pub blocked_gpus: Vec<GpuSelector>,
    /// What comes of it.
    pub measures: Measures,
}

/// What is said of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GpuPolicy {
    /// As it is written.
    pub name: String,
    /// Which.
    pub gpus: Vec<GpuSelector>,
    /// Each process.
    pub max_memory: Option<Bytes>,
    /// All together.
    pub max_utilization: Option<Percent>,
    /// What stays free of what the device has.
    pub reserved_memory: Option<Bytes>,
    /// The only users who may use it; all where this is empty.
    pub allowed_users: Vec<String>,
    /// Users who may not.
    pub blocked_users: Vec<String>,
    /// The only processes that may use it, by their whole names; all where this
    /// is empty.
    pub allowed_processes: Vec<Glob>,
    /// Processes that may not.
    pub blocked_processes: Vec<Glob>,
    /// When nobody may.
    pub maintenance: Option<Hours>,
    /// What comes of it.
    pub measures: Measures,
}

/// What is said of hours of the week. It holds besides what else is said: the
/// strictest wins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TimePolicy {
    /// What to call it.
    pub name: String,
    /// When.
    pub hours: Hours,
    /// How much each person may use then.
    pub limits: Limits,
    /// The only users who may use devices then; all where this is empty.
    pub allowed_users: Vec<String>,
    /// Users who may not.
    pub blocked_users: Vec<String>,
    /// About these devices alone; about all where this is empty.
    pub gpus: Vec<GpuSelector>,
    /// What comes of it.
    pub measures: Measures,
}

/// What is said of what processes do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Behaviour {
    /// What to call it.
    pub name: String,
    /// Whose; everybody's where this names nobody.
    pub members: Members,
    /// Nobody of these.
    pub except_users: Vec<String>,
    /// On these devices alone; on all where this is empty.
    pub gpus: Vec<GpuSelector>,
    /// Processes of these names alone, whole; of all where this is empty.
    pub processes: Vec<Glob>,
    /// On command lines.
    pub command: Option<Pattern>,
    /// What they must not do.
    pub conduct: Conduct,
    /// Whether services are ended for it too. It matters where they are idle or waste a
    /// GPU.
    pub ends_services: bool,
    /// What comes of it.
    pub measures: Measures,
}

/// A device, as it is typed: an index, a UUID or the beginning of one, a PCI
/// address, or a name with `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GpuSelector(pub String);

/// An unanchored regular expression, and what was typed.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Pattern {
    /// As it was typed.
    pub typed: String,
    /// What that means.
    #[serde(skip)]
    pub regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.typed == other.typed
    }
}

impl Eq for Pattern {}
