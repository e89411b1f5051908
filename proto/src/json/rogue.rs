//! The JSON of rogue detection: a scan, the assessment of one process, and the status.
//! Fractions are numbers from 0 to 1 with three decimals at most.

use super::SCHEMA;
use super::fields::{document, documents};
use super::schema::described;
use crate::rogue::{
    Indicator, IndicatorFamily, Risk, RogueAssessment, RogueFinding, RogueReport, ScanReport,
    Share, Threat, Verdict, VerdictSummary,
};
use crate::text::sanitize;
use crate::units::Timestamp;

described! {
    /// The document that `gpukillctl rogue scan -o json` prints.
    pub struct ScanDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        pub since: String as Timestamp,
        pub until: String as Timestamp,
        /// The number of assessed processes.
        pub evaluated: u32,
        /// The worst first.
        pub findings: Vec<RogueFindingDocument>,
        /// The number of omitted findings, none of them worse.
        pub more: u32,
    }
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

document! {
    /// A process that has or had a verdict.
    plain RogueFindingDocument(
        finding: &RogueFinding,
        recommended: Vec<RecommendationDocument>
    ) {
        pid: u32 = finding.process.pid,
        start_ticks: u64 = finding.process.start_ticks,
        owner: Option<String> = finding.owner.as_ref().map(|owner| sanitized(&owner.name)),
        owner_uid: Option<u32> = finding.owner.as_ref().and_then(|owner| owner.uid),
        /// The uid that it runs as.
        uid: Option<u32> = finding.uid,
        proc_name: Option<String> = finding.name.as_deref().map(sanitized),
        executable: Option<String> = finding.executable.as_deref().map(sanitized),
        gpu_indices: Vec<u32> = finding.gpus.clone(),
        /// When the first verdict was found.
        since: String as Timestamp = finding.since.to_rfc3339(),
        last_seen: String as Timestamp = finding.last_seen.to_rfc3339(),
        /// Whether it still uses a GPU.
        present: bool = finding.is_present,
        /// The worst first.
        verdicts: Vec<VerdictDocument> = documents(&finding.verdicts),
        recommendations: Vec<RecommendationDocument> = recommended,
    }
}

described! {
    /// A recommended reaction to a finding.
    pub struct RecommendationDocument {
        /// `end`, `look`, `ask`, `limit`, `allow`.
        pub what: &'static str,
        pub text: String,
        /// The command, ready to run; `null` if it needs input or there is no command.
        pub command: Option<String>,
    }
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

document! {
    /// A suspicion with its evidence.
    plain VerdictDocument(verdict: &Verdict) {
        /// `crypto_miner`, `suspicious_process`, `resource_abuser`, `data_exfiltrator`.
        threat: &'static str as Threat = verdict.threat.name(),
        confidence: f64 = share_number(verdict.confidence),
        /// The confidence times the weight of the class.
        score: f64 = share_number(verdict.score),
        /// `low`, `medium`, `high`, `critical`.
        risk: &'static str as Risk = verdict.risk.name(),
        /// Sorted by weight, the greatest first.
        indicators: Vec<IndicatorDocument> = documents(&verdict.indicators),
    }
}

document! {
    /// One piece of evidence.
    plain IndicatorDocument(indicator: &Indicator) {
        /// `pool_on_command_line`
        kind: String = sanitized(&indicator.kind),
        /// `A`: near-proof; `B`: strong; `C`: corroborating.
        family: &'static str as IndicatorFamily = indicator.family.name(),
        weight: f64 = share_number(indicator.weight),
        /// The text that was read, in words; it quotes the process.
        evidence: String = sanitized(&indicator.evidence),
    }
}

document! {
    /// The latest assessment of a process, in `explain`.
    plain RogueAssessmentDocument(assessment: &RogueAssessment) {
        /// Since when the assessment has been the same.
        at: String as Timestamp = assessment.at.to_rfc3339(),
        /// The highest score of any threat, even without a verdict.
        score: f64 = share_number(assessment.score),
        verdicts: Vec<VerdictDocument> = documents(&assessment.verdicts),
        /// All indicators, even without a verdict.
        indicators: Vec<IndicatorDocument> = documents(&assessment.indicators),
        /// The entries of the allow lists that match: the indicators that they cover are left out.
        allowed: Vec<String> = assessment.allowed.iter().map(|it| sanitized(it)).collect(),
        /// The evidence that could not be read, and why.
        missing_evidence: Vec<String> = assessment.missing_evidence.iter().map(|it| sanitized(it)).collect(),
    }
}

document! {
    /// The worst verdict of a process, in `list`.
    plain VerdictSummaryDocument(summary: VerdictSummary) {
        risk: &'static str as Risk = summary.risk.name(),
        threat: &'static str as Threat = summary.threat.name(),
    }
}

document! {
    /// The status of rogue detection, in `status`.
    plain RogueDocument(report: &RogueReport) {
        file: String = sanitized(&report.file),
        /// `null` if there is no file and the built-in rules apply.
        revision: Option<String> = report.revision.as_ref().map(|revision| revision.0.clone()),
        mistakes: Vec<String> = report.mistakes.iter().map(|it| sanitized(it)).collect(),
        watched: u32 = report.watched,
        /// The number of processes that are not watched.
        beyond: u32 = report.unwatched,
        findings: u32 = report.findings,
        /// The risk of the worst finding.
        worst: Option<&'static str> as Option<Risk> = report.worst.map(Risk::name),
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
