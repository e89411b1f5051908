//! Who may be up to no good on a GPU: miners, odd processes, abusers of what is shared,
//! and who carries data away. A verdict is never a proof; it comes with all it rests on.

mod edit;

pub use edit::{AllowBy, RogueEdit};

use crate::guard::{Person, RulesRevision};
use crate::snapshot::{GpuProcess, ProcessKey};
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much one kind of sign proves, alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// Nearly a proof: nobody says so of themselves who does honest work.
    A,
    /// Strong: honest work shows it now and then.
    B,
    /// It corroborates others, and means nothing alone.
    C,
}

impl Family {
    /// As it is written on the screen and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        }
    }
}

/// What somebody may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Threat {
    /// It earns somebody coins.
    CryptoMiner,
    /// It hides what it is.
    SuspiciousProcess,
    /// It takes more than its share of what all use.
    ResourceAbuser,
    /// It carries data away.
    DataExfiltrator,
}

impl Threat {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::CryptoMiner,
        Self::SuspiciousProcess,
        Self::ResourceAbuser,
        Self::DataExfiltrator,
    ];

    /// As it is written in files and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CryptoMiner => "crypto_miner",
            Self::SuspiciousProcess => "suspicious_process",
            Self::ResourceAbuser => "resource_abuser",
            Self::DataExfiltrator => "data_exfiltrator",
        }
    }

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::CryptoMiner => "crypto miner",
            Self::SuspiciousProcess => "suspicious process",
            Self::ResourceAbuser => "resource abuser",
            Self::DataExfiltrator => "data exfiltrator",
        }
    }
}

/// How much of a threat somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Risk {
    /// From `scoring.risk_thresholds.low` on.
    Low,
    /// From `medium` on.
    Medium,
    /// From `high` on.
    High,
    /// From `critical` on.
    Critical,
}

impl Risk {
    /// From the least to the greatest.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// As it is written in files, on the screen and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// As a number: from 1 for low to 4 for critical.
    #[must_use]
    pub const fn level(self) -> u64 {
        match self {
            Self::Low => 1,
            Self::Medium => 2,
            Self::High => 3,
            Self::Critical => 4,
        }
    }

    /// The one of this number, if any.
    #[must_use]
    pub fn of_level(level: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|risk| risk.level() == level)
    }
}

/// A share of one, in thousandths: a confidence, a weight, a score.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Share(u16);

impl Share {
    /// All of it.
    pub const ONE: Self = Self(1_000);

    /// So many thousandths; more than all is all.
    #[must_use]
    pub const fn thousandths(share: u16) -> Self {
        match share {
            0..=1_000 => Self(share),
            _ => Self::ONE,
        }
    }

    /// In thousandths, from 0 to 1000.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Share {
    /// `0.97`: cut and not rounded, so that nothing looks as if it had come to a threshold
    /// that it is below.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.0 / 10;
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

/// One sign that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sign {
    /// Which kind: `pool_on_command_line`.
    pub kind: String,
    /// How much such a sign proves.
    pub family: Family,
    /// How much it weighs.
    pub weight: Share,
    /// What was read, in words. Untrusted: it quotes the process.
    pub read: String,
}

/// What somebody may be, and what that rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What.
    pub threat: Threat,
    /// How sure that is.
    pub confidence: Share,
    /// The same, by how bad such a threat is.
    pub score: Share,
    /// What that score is called.
    pub risk: Risk,
    /// What speaks for it, the weightiest first.
    pub signs: Vec<Sign>,
}

impl Verdict {
    /// Whether a rule may act on it: signs of two families at least, one of them near a
    /// proof, and another one that weighs something. What a process says of itself, in its
    /// name and its arguments, counts once: two words that it chose are no two signs.
    #[must_use]
    pub fn may_be_acted_on(&self) -> bool {
        self.lacks().is_none()
    }

    /// What it lacks for a rule to act on it; `None` where a rule may.
    #[must_use]
    pub fn lacks(&self) -> Option<Lacks> {
        let (near, others): (Vec<&Sign>, Vec<&Sign>) =
            self.signs.iter().partition(|sign| sign.family == Family::A);
        let weighty: Vec<&&Sign> = others.iter().filter(|it| it.weight >= WEIGHTY).collect();
        let is_only_said = near.iter().all(|sign| sign.is_self_chosen());
        let mut proven = weighty.iter();
        match () {
            () if near.is_empty() => Some(Lacks::NearProof),
            () if others.is_empty() => Some(Lacks::Second),
            () if weighty.is_empty() => Some(Lacks::Weight),
            () if proven.any(|sign| !is_only_said || !sign.is_self_chosen()) => None,
            () => Some(Lacks::Independence),
        }
    }
}

/// What keeps rules from acting on a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacks {
    /// No sign of family A.
    NearProof,
    /// No sign of another family.
    Second,
    /// No sign of another family weighs [`WEIGHTY`] or more.
    Weight,
    /// All signs are the process's own name and arguments.
    Independence,
}

impl Sign {
    /// Whether it rests on nothing but what the process calls itself and its arguments.
    fn is_self_chosen(&self) -> bool {
        SELF_CHOSEN.contains(&self.kind.as_str())
    }
}

/// The kinds of signs that are read from a process's own name and arguments.
const SELF_CHOSEN: [&str; 6] = [
    "pool_on_command_line",
    "miner_options",
    "miner_name",
    "kernel_thread_name",
    "system_name_elsewhere",
    "python_without_modules",
];

/// What weighs less is seen of too much honest work to end anybody's: programs in `/tmp`,
/// a file that an upgrade replaced.
pub const WEIGHTY: Share = Share::thousandths(300);

/// What `list` tells of a verdict, and what the guard may go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Suspected {
    /// How much of a threat.
    pub risk: Risk,
    /// Which.
    pub threat: Threat,
    /// As [`Verdict::may_be_acted_on`].
    pub may_be_acted_on: bool,
}

impl Suspected {
    /// The worst of these; of equals the one that may be acted on.
    #[must_use]
    pub fn worst(verdicts: &[Verdict]) -> Option<Self> {
        let all = verdicts.iter().map(Self::by);
        all.max_by_key(|it| (it.risk, it.may_be_acted_on))
    }

    /// What the guard goes by: the worst that may be acted on, else the worst. A miner
    /// that holds too much besides is a miner.
    #[must_use]
    pub fn to_act_on(verdicts: &[Verdict]) -> Option<Self> {
        let all = verdicts.iter().map(Self::by);
        all.max_by_key(|it| (it.may_be_acted_on, it.risk))
    }

    fn by(verdict: &Verdict) -> Self {
        Self {
            risk: verdict.risk,
            threat: verdict.threat,
            may_be_acted_on: verdict.may_be_acted_on(),
        }
    }

    /// What is told of a process, among what is told of all.
    #[must_use]
    pub fn of(process: &GpuProcess, all: &[(ProcessKey, Self)]) -> Option<Self> {
        let key = process.key()?;
        let its = all.iter().find(|(process, _)| *process == key);
        its.map(|(_, suspected)| *suspected)
    }
}

/// What a process looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Since when it looks so: it is looked at again and again.
    pub at: Timestamp,
    /// What it may be, the worst first.
    pub verdicts: Vec<Verdict>,
    /// Of any threat the highest score, also where that comes to no verdict.
    pub score: Share,
    /// All that was seen that speaks for anything, the weightiest first, also where it
    /// comes to nothing.
    pub signs: Vec<Sign>,
    /// By which entries of the lists it is allowed, as they are typed after
    /// `rogue allow`.
    pub allowed: Vec<String>,
    /// What could not be looked at, and why: `what its network namespace sends: it has
    /// the box's own`.
    pub unseen: Vec<String>,
}

/// A process of which there is a verdict, or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which.
    pub process: ProcessKey,
    /// Whose it is.
    pub owner: Option<Person>,
    /// As whom it runs: the user's number.
    pub uid: Option<u32>,
    /// The kernel's name for it.
    pub name: Option<String>,
    /// The path of its executable, controls made visible.
    pub executable: Option<String>,
    /// The devices that it used, by their index then.
    pub gpus: Vec<u32>,
    /// When the first verdict was there.
    pub since: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
    /// Whether it still uses a device.
    pub is_present: bool,
    /// What it may be, or was taken for at its worst; the worst first, and one at least.
    pub verdicts: Vec<Verdict>,
}

/// The answer to `gpukillctl rogue scan`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanReport {
    /// From when on was looked.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// How many processes were judged.
    pub judged: u32,
    /// Those of them with a verdict, the worst first; as many as one answer holds.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub more: u32,
}

/// How the watch for rogues stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RogueReport {
    /// Where its rules are written.
    pub file: String,
    /// Names what they say; `None` where there is no file, and the built-in ones hold.
    pub revision: Option<RulesRevision>,
    /// Why the file as it is now is not in force, and others are: every mistake.
    pub mistakes: Vec<String>,
    /// How many processes are watched.
    pub watched: u32,
    /// How many more there are than are watched.
    pub beyond: u32,
    /// How many of the watched there is a verdict of; of those that whoever asks may see.
    pub findings: u32,
    /// The worst of them.
    pub worst: Option<Risk>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_in_hundredths_that_it_has_and_is_no_more_than_all() {
        let told = [0, 9, 10, 296, 895, 899, 900, 999, 1_000, 1_001, u16::MAX];
        let told = told.map(|it| Share::thousandths(it).to_string());
        let expected = [
            "0.00", "0.00", "0.01", "0.29", "0.89", "0.89", "0.90", "0.99", "1.00", "1.00", "1.00",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn nobody_acts_on_looks_nor_on_one_family() {
        let may = |families: &[Family]| {
            let sign = |family: &Family| Sign {
                kind: "kind".into(),
                family: *family,
                weight: Share::ONE,
                read: String::new(),
            };
            let verdict = Verdict {
                threat: Threat::CryptoMiner,
                confidence: Share::ONE,
                score: Share::ONE,
                risk: Risk::Critical,
                signs: families.iter().map(sign).collect(),
            };
            verdict.may_be_acted_on()
        };
        assert!(may(&[Family::A, Family::B]) && may(&[Family::C, Family::A]));
        let light = Verdict {
            threat: Threat::CryptoMiner,
            confidence: Share::ONE,
            score: Share::ONE,
            risk: Risk::Critical,
            signs: [(Family::A, 650), (Family::B, 299), (Family::C, 150)]
                .map(|(family, weight)| Sign {
                    kind: "kind".into(),
                    family,
                    weight: Share::thousandths(weight),
                    read: String::new(),
                })
                .into(),
        };
        assert!(!light.may_be_acted_on());
        // What it calls itself is one family, however many signs read it.
        let named = |kinds: &[(&str, Family)]| {
            let sign = |(kind, family): &(&str, Family)| Sign {
                kind: (*kind).into(),
                family: *family,
                weight: Share::ONE,
                read: String::new(),
            };
            let signs = kinds.iter().map(sign).collect();
            Verdict {
                signs,
                ..light.clone()
            }
            .may_be_acted_on()
        };
        let name = ("miner_name", Family::A);
        let kworker = ("kernel_thread_name", Family::B);
        assert!(!named(&[name, kworker]));
        assert!(!named(&[name, ("miner_options", Family::A), kworker]));
        assert!(named(&[name, kworker, ("executable_place", Family::B)]));
        assert!(named(&[("miner_hash", Family::A), kworker]));
        for families in [
            &[][..],
            &[Family::A],
            &[Family::A, Family::A],
            &[Family::B, Family::C],
        ] {
            assert!(!may(families), "{families:?}");
        }
    }
}
