//! What the admin's file `rogue.toml` says, once it is understood.

use gpukill_proto::rogue::{AllowBy, Risk, Share, Threat};
use gpukill_proto::units::{Bytes, Percent};
use std::fmt;
use std::time::Duration;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// What is much.
    pub detection: Detection,
    /// What is looked for.
    pub patterns: Patterns,
    /// Whom nobody looks for.
    pub allowed: Vec<Allowed>,
    /// How bad each threat is, in the order of [`Threat::ALL`].
    pub weights: [Share; 4],
    /// From which score on a risk has its name, in the order of [`Risk::ALL`].
    pub thresholds: [Share; 4],
}

/// `[detection]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    /// Who holds more is a memory hog; `None` where nobody is.
    pub max_memory: Option<Bytes>,
    /// Who works harder, all the time that is looked at, saturates a device.
    pub max_utilization: Percent,
    /// Who holds a device for longer and does nothing has forgotten it, and who works for
    /// longer without an end may have run away.
    pub max_duration: Duration,
    /// Who sends more out of a network namespace of their own may carry data away.
    pub max_sent: Bytes,
    /// What is less sure is not told.
    pub min_confidence: Share,
}

/// `[patterns]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patterns {
    /// Names of miners' executables, whole, besides those that are known.
    pub miners: Vec<String>,
    /// Words that miners' command lines have and no others, besides what is known:
    /// whole arguments.
    pub arguments: Vec<String>,
    /// SHA-256 of miners' executables, in small hexadecimal digits.
    pub sha256: Vec<String>,
    /// Ports of pools, besides those that are known.
    pub ports: Vec<u16>,
}

/// Whom nobody looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// By what.
    pub by: AllowedBy,
    /// Only where this user runs it.
    pub user: Option<String>,
}

/// By what somebody is allowed. Nothing matches a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedBy {
    /// Whoever it is: the user.
    User,
    /// The kernel's name, which a process chooses: what is nearly a proof counts still.
    Process(String),
    /// The path of its executable.
    Executable(String),
    /// The image of its container.
    Image(String),
}

impl fmt::Display for Allowed {
    /// As it is typed after `rogue allow`: `executable /usr/bin/hashcat@bob`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, what) = match &self.by {
            AllowedBy::User => {
                let user = self.user.as_deref().unwrap_or_default();
                return write!(f, "{} {user}", AllowBy::User.name());
            }
            AllowedBy::Process(name) => (AllowBy::Process, name),
            AllowedBy::Executable(path) => (AllowBy::Executable, path),
            AllowedBy::Image(image) => (AllowBy::Image, image),
        };
        write!(f, "{} {what}", by.name())?;
        match &self.user {
            Some(user) => write!(f, "@{user}"),
            None => Ok(()),
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            detection: Detection::default(),
            patterns: Patterns::default(),
            allowed: Vec::new(),
            weights: [1_000, 800, 600, 900].map(Share::thousandths),
            thresholds: [300, 500, 700, 900].map(Share::thousandths),
        }
    }
}

impl Default for Detection {
    fn default() -> Self {
        Self {
            max_memory: None,
            max_utilization: Percent(95),
            max_duration: Duration::from_secs(24 * 3_600),
            max_sent: Bytes(100 << 30),
            min_confidence: Share::thousandths(500),
        }
    }
}

impl Rules {
    /// How bad a threat is.
    #[must_use]
    pub fn weight(&self, threat: Threat) -> Share {
        match threat {
            Threat::CryptoMiner => self.weights[0],
            Threat::SuspiciousProcess => self.weights[1],
            Threat::ResourceAbuser => self.weights[2],
            Threat::DataExfiltrator => self.weights[3],
        }
    }

    /// What a score is called.
    #[must_use]
    pub fn risk(&self, score: Share) -> Option<Risk> {
        let named = Risk::ALL.into_iter().zip(self.thresholds);
        named
            .filter(|(_, from)| score >= *from)
            .map(|(risk, _)| risk)
            .max()
    }
}
