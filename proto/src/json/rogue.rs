//! The JSON of rogue detection: a scan, the assessment of one process, and the status.
//! Fractions are numbers from 0 to 1 with three decimals at most.

use super::SCHEMA;
use crate::rogue::{
    Indicator, Risk, RogueAssessment, RogueFinding, RogueReport, ScanReport, Share, Verdict,
    VerdictSummary,
};
use crate::text::sanitize;
use serde::Serialize;

/// What `gpukillctl rogue scan -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ScanDocument {
    /// [`SCHEMA`].
    pub schema: u32,
    pub since: String,
    pub until: String,
    /// The number of assessed processes.
    pub evaluated: u32,
    /// The worst first.
    pub findings: Vec<RogueFindingDocument>,
    /// The number of omitted findings, none of them worse.
    pub more: u32,
}

impl ScanDocument {
    /// A report with recommendations for each finding.
    #[must_use]
    pub fn new(
        report: &ScanReport,
        recommended: impl Fn(&RogueFinding) -> Vec<RecommendationDocument>,
    ) -> Self {
        let findings = report.findings.iter();
        Self {
            schema: SCHEMA,
            since: report.since.to_rfc3339(),
            until: report.until.to_rfc3339(),
            evaluated: report.evaluated,
            findings: findings
                .map(|finding| RogueFindingDocument::new(finding, recommended(finding)))
                .collect(),
            more: report.more,
        }
    }
}

/// A process that has or had a verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RogueFindingDocument {
    pub pid: u32,
    pub start_ticks: u64,
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    /// The uid that it runs as.
    pub uid: Option<u32>,
    pub proc_name: Option<String>,
    pub executable: Option<String>,
    pub gpu_indices: Vec<u32>,
    /// When the first verdict was found.
    pub since: String,
    pub last_seen: String,
    /// Whether it still uses a GPU.
    pub present: bool,
    /// The worst first.
    pub verdicts: Vec<VerdictDocument>,
    pub recommendations: Vec<RecommendationDocument>,
}

impl RogueFindingDocument {
    fn new(finding: &RogueFinding, recommendations: Vec<RecommendationDocument>) -> Self {
        let RogueFinding {
            process,
            owner,
            uid,
            name,
            executable,
            gpus,
            since,
            last_seen,
            is_present,
            verdicts,
        } = finding;
        Self {
            pid: process.pid,
            start_ticks: process.start_ticks,
            owner: owner.as_ref().map(|owner| sanitized(&owner.name)),
            owner_uid: owner.as_ref().and_then(|owner| owner.uid),
            uid: *uid,
            proc_name: name.as_deref().map(sanitized),
            executable: executable.as_deref().map(sanitized),
            gpu_indices: gpus.clone(),
            since: since.to_rfc3339(),
            last_seen: last_seen.to_rfc3339(),
            present: *is_present,
            verdicts: verdicts.iter().map(VerdictDocument::from).collect(),
            recommendations,
        }
    }
}

/// A recommended reaction to a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RecommendationDocument {
    /// `end`, `look`, `ask`, `limit`, `allow`.
    pub what: &'static str,
    pub text: String,
    /// The command, ready to run; `null` if it needs input or there is no command.
    pub command: Option<String>,
}

impl RecommendationDocument {
    /// A recommendation; its texts may quote a process.
    #[must_use]
    pub fn new(what: &'static str, text: &str, command: Option<&str>) -> Self {
        Self {
            what,
            text: sanitized(text),
            command: command.map(str::to_owned),
        }
    }
}

/// A suspicion with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct VerdictDocument {
    /// `crypto_miner`, `suspicious_process`, `resource_abuser`, `data_exfiltrator`.
    pub threat: &'static str,
    pub confidence: f64,
    /// The confidence times the weight of the class.
    pub score: f64,
    /// `low`, `medium`, `high`, `critical`.
    pub risk: &'static str,
    /// Sorted by weight, the greatest first.
    pub indicators: Vec<IndicatorDocument>,
}

impl From<&Verdict> for VerdictDocument {
    fn from(verdict: &Verdict) -> Self {
        let Verdict {
            threat,
            confidence,
            score,
            risk,
            indicators,
        } = verdict;
        Self {
            threat: threat.name(),
            confidence: share_number(*confidence),
            score: share_number(*score),
            risk: risk.name(),
            indicators: indicators.iter().map(IndicatorDocument::from).collect(),
        }
    }
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct IndicatorDocument {
    /// `pool_on_command_line`
    pub kind: String,
    /// `A`: near-proof; `B`: strong; `C`: corroborating.
    pub family: &'static str,
    pub weight: f64,
    /// The evidence, in words; it quotes the process.
    pub evidence: String,
}

impl From<&Indicator> for IndicatorDocument {
    fn from(indicator: &Indicator) -> Self {
        let Indicator {
            kind,
            family,
            weight,
            evidence,
        } = indicator;
        Self {
            kind: sanitized(kind),
            family: family.name(),
            weight: share_number(*weight),
            evidence: sanitized(evidence),
        }
    }
}

/// The latest assessment of a process, in `explain`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RogueAssessmentDocument {
    /// Since when the assessment has been the same.
    pub at: String,
    /// The highest score of any threat, even without a verdict.
    pub score: f64,
    pub verdicts: Vec<VerdictDocument>,
    /// All indicators, even without a verdict.
    pub indicators: Vec<IndicatorDocument>,
    /// The entries of the allow lists that match: the indicators that they cover are left out.
    pub allowed: Vec<String>,
    /// The evidence that could not be read, and why.
    pub missing_evidence: Vec<String>,
}

impl RogueAssessmentDocument {
    pub(super) fn new(looked: &RogueAssessment) -> Self {
        let RogueAssessment {
            at,
            verdicts,
            score,
            indicators,
            allowed,
            missing_evidence,
        } = looked;
        Self {
            at: at.to_rfc3339(),
            score: share_number(*score),
            verdicts: verdicts.iter().map(VerdictDocument::from).collect(),
            indicators: indicators.iter().map(IndicatorDocument::from).collect(),
            allowed: allowed.iter().map(|it| sanitized(it)).collect(),
            missing_evidence: missing_evidence.iter().map(|it| sanitized(it)).collect(),
        }
    }
}

/// The worst verdict of a process, in `list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct VerdictSummaryDocument {
    pub risk: &'static str,
    pub threat: &'static str,
}

impl From<VerdictSummary> for VerdictSummaryDocument {
    fn from(suspected: VerdictSummary) -> Self {
        Self {
            risk: suspected.risk.name(),
            threat: suspected.threat.name(),
        }
    }
}

/// The status of rogue detection, in `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RogueDocument {
    pub file: String,
    /// `null` if there is no file and the built-in rules apply.
    pub revision: Option<String>,
    pub mistakes: Vec<String>,
    pub watched: u32,
    /// The number of processes that are not watched.
    pub beyond: u32,
    pub findings: u32,
    /// The risk of the worst finding.
    pub worst: Option<&'static str>,
}

impl From<&RogueReport> for RogueDocument {
    fn from(report: &RogueReport) -> Self {
        let RogueReport {
            file,
            revision,
            mistakes,
            watched,
            unwatched: beyond,
            findings,
            worst,
        } = report;
        Self {
            file: sanitized(file),
            revision: revision.as_ref().map(|revision| revision.0.clone()),
            mistakes: mistakes.iter().map(|it| sanitized(it)).collect(),
            watched: *watched,
            beyond: *beyond,
            findings: *findings,
            worst: worst.map(Risk::name),
        }
    }
}

fn share_number(share: Share) -> f64 {
    f64::from(share.get()) / 1_000.0
}

/// A text that is safe to print, like all texts in documents.
fn sanitized(text: &str) -> String {
    sanitize(text.as_bytes(), usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_has_at_most_three_decimals() {
        let actual = [0, 1, 50, 296, 970, 1_000].map(|it| {
            let share = share_number(Share::from_thousandths(it));
            serde_json::to_string(&share).unwrap()
        });
        assert_eq!(actual, ["0.0", "0.001", "0.05", "0.296", "0.97", "1.0"]);
    }
}
