//! The parsed contents of the admin's file `rogue.toml`.

use gpukill_proto::rogue::{AllowKind, Risk, Share, Threat};
use gpukill_proto::units::{Bytes, Percent};
use std::fmt;
use std::time::Duration;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RogueRules {
    /// Thresholds of detection.
    pub detection: Detection,
    /// Patterns of detection.
    pub patterns: Patterns,
    /// Processes that are not reported.
    pub allowed: Vec<AllowEntry>,
    /// The weight of each threat, in the order of [`Threat::ALL`].
    pub weights: [Share; 4],
    /// The lowest score of each risk, in the order of [`Risk::ALL`].
    pub thresholds: [Share; 4],
}

/// `[detection]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    /// A process with more memory is a memory hog; `None` for no limit.
    pub max_memory: Option<Bytes>,
    /// A process with a higher mean utilization over the whole observed time saturates
    /// a device.
    pub max_utilization: Percent,
    /// A process that holds a device idle for longer counts as forgotten; one that
    /// works for longer without end counts as a runaway.
    pub max_duration: Duration,
    /// A process may exfiltrate data if its own network namespace sends more.
    pub max_sent: Bytes,
    /// Verdicts of lower confidence are not reported.
    pub min_confidence: Share,
}

/// `[patterns]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patterns {
    /// Full names of miner executables, in addition to the known ones.
    pub miners: Vec<String>,
    /// Arguments that only miners have, in addition to the known ones: whole arguments.
    pub arguments: Vec<String>,
    /// SHA-256 of miner executables, in lower-case hexadecimal.
    pub sha256: Vec<String>,
    /// Ports of mining pools, in addition to the known ones.
    pub ports: Vec<u16>,
}

/// Processes that are not reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    /// The property that the entry matches.
    pub by: AllowMatch,
    /// The entry applies only where this user runs the process.
    pub user: Option<String>,
}

/// The property that an allow entry matches; a part never matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowMatch {
    /// Every process of the user.
    User,
    /// The kernel's name, which a process chooses: near-proof indicators still count.
    Process(String),
    /// The path of the executable.
    Executable(String),
    /// The image of the container.
    Image(String),
}

impl AllowEntry {
    fn parts(&self) -> (AllowKind, Option<&str>) {
        match &self.by {
            AllowMatch::User => (AllowKind::User, None),
            AllowMatch::Process(name) => (AllowKind::Process, Some(name)),
            AllowMatch::Executable(path) => (AllowKind::Executable, Some(path)),
            AllowMatch::Image(image) => (AllowKind::Image, Some(image)),
        }
    }

    /// The kind of the list that contains such entries.
    pub(super) fn kind(&self) -> AllowKind {
        self.parts().0
    }

    /// The entry as written in its list: `what`, `what@user`, or a user.
    pub(super) fn text(&self) -> String {
        let parts = [self.parts().1, self.user.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        parts.join("@")
    }
}

impl fmt::Display for AllowEntry {
    /// Formats the entry as typed after `rogue allow`: `executable
    /// /usr/bin/hashcat@bob`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind().name(), self.text())
    }
}

impl Default for RogueRules {
    fn default() -> Self {
        Self {
            detection: Detection::default(),
            patterns: Patterns::default(),
            allowed: Vec::new(),
            weights: [1_000, 800, 600, 900].map(Share::from_thousandths),
            thresholds: [300, 500, 700, 900].map(Share::from_thousandths),
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
            min_confidence: Share::from_thousandths(500),
        }
    }
}

impl RogueRules {
    /// The weight of a threat.
    #[must_use]
    pub fn weight(&self, threat: Threat) -> Share {
        match threat {
            Threat::CryptoMiner => self.weights[0],
            Threat::SuspiciousProcess => self.weights[1],
            Threat::ResourceAbuser => self.weights[2],
            Threat::DataExfiltrator => self.weights[3],
        }
    }

    /// The risk of a score.
    #[must_use]
    pub fn risk(&self, score: Share) -> Option<Risk> {
        let named = Risk::ALL.into_iter().zip(self.thresholds);
        named
            .filter(|(_, from)| score >= *from)
            .map(|(risk, _)| risk)
            .max()
    }
}
