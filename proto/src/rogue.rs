//! Verdicts about suspicious processes on GPUs: crypto miners, disguised processes, abusers of
//! shared resources, and data exfiltrators. A verdict is never a proof; it comes with all its
//! evidence.

mod edit;

pub use edit::{AllowKind, RogueEdit, edited_user};

use crate::guard::{Person, RulesRevision};
use crate::model::{GpuProcess, ProcessKey};
use crate::units::Timestamp;
use crate::words::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// The strength of one kind of indicator on its own.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum IndicatorFamily {
        /// Near-proof: honest work never shows it.
        A = "A",
        /// Strong: honest work shows it now and then.
        B = "B",
        /// Corroborating: meaningless on its own.
        C = "C",
    }
    /// The name on the screen and in JSON.
    name(self)
}

words! {
    /// A class of threat.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Threat {
        /// It mines a cryptocurrency.
        CryptoMiner = "crypto_miner",
        /// It disguises itself.
        SuspiciousProcess = "suspicious_process",
        /// It takes more than its share of shared resources.
        ResourceAbuser = "resource_abuser",
        /// It sends data out of the host.
        DataExfiltrator = "data_exfiltrator",
    }
    /// The name in files and in JSON.
    name(self)
}

impl Threat {
    /// All classes.
    pub const ALL: [Self; 4] = [
        Self::CryptoMiner,
        Self::SuspiciousProcess,
        Self::ResourceAbuser,
        Self::DataExfiltrator,
    ];

    /// The name in words.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::CryptoMiner => "crypto miner",
            Self::SuspiciousProcess => "suspicious process",
            Self::ResourceAbuser => "resource abuser",
            Self::DataExfiltrator => "data exfiltrator",
        }
    }
}

words! {
    /// The risk level of a verdict.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Risk {
        /// From the score `scoring.risk_thresholds.low` on.
        Low = "low",
        /// From `medium` on.
        Medium = "medium",
        /// From `high` on.
        High = "high",
        /// From `critical` on.
        Critical = "critical",
    }
    /// The name in files, on the screen and in JSON.
    name(self)
}

impl Risk {
    /// From the lowest to the highest.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// The level as a number: from 1 for low to 4 for critical.
    #[must_use]
    pub const fn level(self) -> u64 {
        match self {
            Self::Low => 1,
            Self::Medium => 2,
            Self::High => 3,
            Self::Critical => 4,
        }
    }

    /// The risk with this number, if any.
    #[must_use]
    pub fn from_level(level: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|risk| risk.level() == level)
    }
}

/// A fraction from 0 to 1 in thousandths: a confidence, a weight, a score.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Share(u16);

impl Share {
    /// The fraction 1.
    pub const ONE: Self = Self(1_000);

    /// This many thousandths; more than 1000 gives 1.
    #[must_use]
    pub const fn from_thousandths(share: u16) -> Self {
        match share {
            0..=1_000 => Self(share),
            _ => Self::ONE,
        }
    }

    /// The fraction in thousandths, from 0 to 1000.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Share {
    /// `0.97`: truncated and not rounded, so that no value seems to reach a threshold that it
    /// is below.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.0 / 10;
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

/// One piece of evidence for a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indicator {
    /// The kind: `pool_on_command_line`.
    pub kind: String,
    /// The strength of this kind.
    pub family: IndicatorFamily,
    /// The weight.
    pub weight: Share,
    /// The evidence, in words. Untrusted: it quotes the process.
    pub evidence: String,
}

/// A suspicion about a process, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The class of threat.
    pub threat: Threat,
    /// The confidence in the class.
    pub confidence: Share,
    /// The confidence times the weight of the class.
    pub score: Share,
    /// The risk level of the score.
    pub risk: Risk,
    /// The indicators, those with the greatest weight first.
    pub indicators: Vec<Indicator>,
}

impl Verdict {
    /// Whether a rule may act on the verdict: it has indicators of at least two families, one
    /// of them near-proof, and another with at least [`MIN_ACTIONABLE_WEIGHT`]. The process's
    /// own name and arguments count once: two texts that it chose itself are not two
    /// independent indicators.
    #[must_use]
    pub fn is_actionable(&self) -> bool {
        self.missing_evidence().is_none()
    }

    /// The evidence that is missing before a rule may act; `None` if a rule may act.
    #[must_use]
    pub fn missing_evidence(&self) -> Option<MissingEvidence> {
        let (near, other_indicators): (Vec<&Indicator>, Vec<&Indicator>) = self
            .indicators
            .iter()
            .partition(|indicator| indicator.family == IndicatorFamily::A);
        let weighty: Vec<&&Indicator> = other_indicators
            .iter()
            .filter(|it| it.weight >= MIN_ACTIONABLE_WEIGHT)
            .collect();
        let is_only_said = near.iter().all(|indicator| indicator.is_self_chosen());
        let mut proven = weighty.iter();
        match () {
            () if near.is_empty() => Some(MissingEvidence::NearProof),
            () if other_indicators.is_empty() => Some(MissingEvidence::SecondFamily),
            () if weighty.is_empty() => Some(MissingEvidence::Weight),
            () if proven.any(|indicator| !is_only_said || !indicator.is_self_chosen()) => None,
            () => Some(MissingEvidence::Independence),
        }
    }
}

/// Why rules may not act on a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingEvidence {
    /// No indicator of family A.
    NearProof,
    /// No indicator of another family.
    SecondFamily,
    /// No indicator of another family weighs [`MIN_ACTIONABLE_WEIGHT`] or more.
    Weight,
    /// All indicators come from the process's own name and arguments.
    Independence,
}

impl Indicator {
    /// Whether the indicator rests only on the name and the arguments of the process.
    fn is_self_chosen(&self) -> bool {
        SELF_CHOSEN_KINDS.contains(&self.kind.as_str())
    }
}

/// The kinds of indicators that are read from the process's own name and arguments.
const SELF_CHOSEN_KINDS: [&str; 6] = [
    "pool_on_command_line",
    "miner_options",
    "miner_name",
    "kernel_thread_name",
    "system_name_elsewhere",
    "python_without_modules",
];

/// The least weight of a second indicator to act on. Lighter indicators occur in too much
/// honest work: programs in `/tmp`, a file that an upgrade replaced.
pub const MIN_ACTIONABLE_WEIGHT: Share = Share::from_thousandths(300);

/// The summary of a verdict, for `list` and for the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VerdictSummary {
    /// The risk level.
    pub risk: Risk,
    /// The class of threat.
    pub threat: Threat,
    /// Like [`Verdict::is_actionable`].
    pub is_actionable: bool,
}

impl VerdictSummary {
    /// The worst verdict; of equal ones an actionable one.
    #[must_use]
    pub fn worst(verdicts: &[Verdict]) -> Option<Self> {
        let all = verdicts.iter().map(Self::from_verdict);
        all.max_by_key(|it| (it.risk, it.is_actionable))
    }

    /// The verdict that the guard uses: the worst actionable one, else the worst. A miner that
    /// also holds too much memory is a miner.
    #[must_use]
    pub fn most_actionable(verdicts: &[Verdict]) -> Option<Self> {
        let all = verdicts.iter().map(Self::from_verdict);
        all.max_by_key(|it| (it.is_actionable, it.risk))
    }

    fn from_verdict(verdict: &Verdict) -> Self {
        Self {
            risk: verdict.risk,
            threat: verdict.threat,
            is_actionable: verdict.is_actionable(),
        }
    }

    /// The summary for a process, among those of all processes.
    #[must_use]
    pub fn find(process: &GpuProcess, all: &[(ProcessKey, Self)]) -> Option<Self> {
        let key = process.key()?;
        let entry = all.iter().find(|(process, _)| *process == key);
        entry.map(|(_, suspected)| *suspected)
    }
}

/// The assessment of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RogueAssessment {
    /// Since when the assessment has been the same; it is repeated regularly.
    pub at: Timestamp,
    /// The verdicts, the worst first.
    pub verdicts: Vec<Verdict>,
    /// The highest score of any threat, even without a verdict.
    pub score: Share,
    /// All indicators, those with the greatest weight first, even without a verdict.
    pub indicators: Vec<Indicator>,
    /// The entries of the allow lists that match the process, as typed after `rogue allow`.
    pub allowed: Vec<String>,
    /// The evidence that could not be read, and why: `what its network namespace sends: it has
    /// the host's own`.
    pub missing_evidence: Vec<String>,
}

/// A process that has or had a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RogueFinding {
    /// The identity.
    pub process: ProcessKey,
    /// The owner.
    pub owner: Option<Person>,
    /// The uid that it runs as.
    pub uid: Option<u32>,
    /// The kernel's name of the process.
    pub name: Option<String>,
    /// The path of its executable, controls made visible.
    pub executable: Option<String>,
    /// The devices that it used, by their index at that time.
    pub gpus: Vec<u32>,
    /// When the first verdict was found.
    pub since: Timestamp,
    /// When the process was last observed.
    pub last_seen: Timestamp,
    /// Whether it still uses a device.
    pub is_present: bool,
    /// The current verdicts, or the worst that it had; the worst first, and at least one.
    pub verdicts: Vec<Verdict>,
}

/// The answer to `gpukillctl rogue scan`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanReport {
    /// The start of the period that was scanned.
    pub since: Timestamp,
    /// The end of the period that was scanned.
    pub until: Timestamp,
    /// The number of processes that were assessed.
    pub evaluated: u32,
    /// The processes with a verdict, the worst first; as many as fit one answer.
    pub findings: Vec<RogueFinding>,
    /// The number of omitted findings.
    pub more: u32,
}

/// The status of rogue detection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RogueReport {
    /// The rules file.
    pub file: String,
    /// The revision of the rules; `None` if there is no file and the built-in rules apply.
    pub revision: Option<RulesRevision>,
    /// Why the current file is not in force and other rules are: all mistakes.
    pub mistakes: Vec<String>,
    /// The number of watched processes.
    pub watched: u32,
    /// The number of processes that are not watched, because the maximum is reached.
    pub unwatched: u32,
    /// The number of watched processes with a verdict that the caller may see.
    pub findings: u32,
    /// The worst risk among them.
    pub worst: Option<Risk>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_truncated_to_hundredths() {
        let actual = [0, 9, 10, 296, 895, 899, 900, 999, 1_000, 1_001, u16::MAX];
        let actual = actual.map(|it| Share::from_thousandths(it).to_string());
        let expected = [
            "0.00", "0.00", "0.01", "0.29", "0.89", "0.89", "0.90", "0.99", "1.00", "1.00", "1.00",
        ];
        assert_eq!(actual, expected);
    }

    #[test]
    fn acting_needs_two_families_and_weight() {
        let may = |families: &[IndicatorFamily]| {
            let indicator = |family: &IndicatorFamily| Indicator {
                kind: "kind".into(),
                family: *family,
                weight: Share::ONE,
                evidence: String::new(),
            };
            let verdict = Verdict {
                threat: Threat::CryptoMiner,
                confidence: Share::ONE,
                score: Share::ONE,
                risk: Risk::Critical,
                indicators: families.iter().map(indicator).collect(),
            };
            verdict.is_actionable()
        };
        assert!(
            may(&[IndicatorFamily::A, IndicatorFamily::B])
                && may(&[IndicatorFamily::C, IndicatorFamily::A])
        );
        let light = Verdict {
            threat: Threat::CryptoMiner,
            confidence: Share::ONE,
            score: Share::ONE,
            risk: Risk::Critical,
            indicators: [
                (IndicatorFamily::A, 650),
                (IndicatorFamily::B, 299),
                (IndicatorFamily::C, 150),
            ]
            .map(|(family, weight)| Indicator {
                kind: "kind".into(),
                family,
                weight: Share::from_thousandths(weight),
                evidence: String::new(),
            })
            .into(),
        };
        assert!(!light.is_actionable());
        // The name and arguments of a process are one source, however many indicators read
        // them.
        let named = |kinds: &[(&str, IndicatorFamily)]| {
            let indicator = |(kind, family): &(&str, IndicatorFamily)| Indicator {
                kind: (*kind).into(),
                family: *family,
                weight: Share::ONE,
                evidence: String::new(),
            };
            let indicators = kinds.iter().map(indicator).collect();
            Verdict {
                indicators,
                ..light.clone()
            }
            .is_actionable()
        };
        let name = ("miner_name", IndicatorFamily::A);
        let kworker = ("kernel_thread_name", IndicatorFamily::B);
        assert!(!named(&[name, kworker]));
        assert!(!named(&[
            name,
            ("miner_options", IndicatorFamily::A),
            kworker
        ]));
        assert!(named(&[
            name,
            kworker,
            ("executable_location", IndicatorFamily::B)
        ]));
        assert!(named(&[("miner_hash", IndicatorFamily::A), kworker]));
        for families in [
            &[][..],
            &[IndicatorFamily::A],
            &[IndicatorFamily::A, IndicatorFamily::A],
            &[IndicatorFamily::B, IndicatorFamily::C],
        ] {
            assert!(!may(families), "{families:?}");
        }
    }
}
