//! The JSON of what is said of rogues: of a scan, of one process, and of the watch for
//! them. Shares are numbers from 0 to 1 with three decimals at most.

use super::SCHEMA;
use crate::rogue::{
    Finding, Looked, Risk, RogueReport, ScanReport, Share, Sign, Suspected, Verdict,
};
use crate::text::visible;
use serde::Serialize;

/// What `gpukillctl rogue scan -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct ScanDocument {
    /// [`SCHEMA`].
    pub schema: u32,
    pub since: String,
    pub until: String,
    /// How many processes were judged.
    pub judged: u32,
    /// The worst first.
    pub findings: Vec<SuspectDocument>,
    /// How many more there are, none of them worse.
    pub more: u32,
}

impl ScanDocument {
    /// A report, with what is recommended about each finding.
    #[must_use]
    pub fn new(
        report: &ScanReport,
        recommended: impl Fn(&Finding) -> Vec<RecommendationDocument>,
    ) -> Self {
        let findings = report.findings.iter();
        Self {
            schema: SCHEMA,
            since: report.since.to_rfc3339(),
            until: report.until.to_rfc3339(),
            judged: report.judged,
            findings: findings
                .map(|finding| SuspectDocument::new(finding, recommended(finding)))
                .collect(),
            more: report.more,
        }
    }
}

/// A process of which there is a verdict, or was.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct SuspectDocument {
    pub pid: u32,
    pub start_ticks: u64,
    pub owner: Option<String>,
    pub owner_uid: Option<u32>,
    /// As whom it runs.
    pub uid: Option<u32>,
    pub proc_name: Option<String>,
    pub executable: Option<String>,
    pub gpu_indices: Vec<u32>,
    /// When the first verdict was there.
    pub since: String,
    pub last_seen: String,
    /// Whether it still uses a GPU.
    pub present: bool,
    /// The worst first.
    pub verdicts: Vec<VerdictDocument>,
    pub recommendations: Vec<RecommendationDocument>,
}

impl SuspectDocument {
    fn new(finding: &Finding, recommendations: Vec<RecommendationDocument>) -> Self {
        let Finding {
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
            owner: owner.as_ref().map(|owner| shown(&owner.name)),
            owner_uid: owner.as_ref().and_then(|owner| owner.uid),
            uid: *uid,
            proc_name: name.as_deref().map(shown),
            executable: executable.as_deref().map(shown),
            gpu_indices: gpus.clone(),
            since: since.to_rfc3339(),
            last_seen: last_seen.to_rfc3339(),
            present: *is_present,
            verdicts: verdicts.iter().map(VerdictDocument::from).collect(),
            recommendations,
        }
    }
}

/// What a person can do about a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RecommendationDocument {
    /// `end`, `look`, `ask`, `limit`, `allow`.
    pub what: &'static str,
    pub text: String,
    /// What does it as it stands; `null` where something is to be filled in, or there is
    /// no command for it.
    pub command: Option<String>,
}

impl RecommendationDocument {
    /// Of texts that may quote a process.
    #[must_use]
    pub fn new(what: &'static str, text: &str, command: Option<&str>) -> Self {
        Self {
            what,
            text: shown(text),
            command: command.map(str::to_owned),
        }
    }
}

/// What somebody may be, and what that rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct VerdictDocument {
    /// `crypto_miner`, `suspicious_process`, `resource_abuser`, `data_exfiltrator`.
    pub threat: &'static str,
    pub confidence: f64,
    /// The confidence, by how bad such a threat is.
    pub score: f64,
    /// `low`, `medium`, `high`, `critical`.
    pub risk: &'static str,
    /// The weightiest first.
    pub signs: Vec<SignDocument>,
}

impl From<&Verdict> for VerdictDocument {
    fn from(verdict: &Verdict) -> Self {
        let Verdict {
            threat,
            confidence,
            score,
            risk,
            signs,
        } = verdict;
        Self {
            threat: threat.name(),
            confidence: share(*confidence),
            score: share(*score),
            risk: risk.name(),
            signs: signs.iter().map(SignDocument::from).collect(),
        }
    }
}

/// One sign that was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct SignDocument {
    /// `pool_on_command_line`
    pub kind: String,
    /// `A`, near a proof; `B`, strong; `C`, which corroborates others.
    pub family: &'static str,
    pub weight: f64,
    /// What was read, in words; it quotes the process.
    pub read: String,
}

impl From<&Sign> for SignDocument {
    fn from(sign: &Sign) -> Self {
        let Sign {
            kind,
            family,
            weight,
            read,
        } = sign;
        Self {
            kind: shown(kind),
            family: family.name(),
            weight: share(*weight),
            read: shown(read),
        }
    }
}

/// A process as it was looked at last, in `explain`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct LookedDocument {
    /// Since when it looks so.
    pub at: String,
    /// The highest score of any threat, also where it comes to no verdict.
    pub score: f64,
    pub verdicts: Vec<VerdictDocument>,
    /// All that were seen, also where they come to nothing.
    pub signs: Vec<SignDocument>,
    /// By which entries of the lists it is allowed: what they leave out is in no sign.
    pub allowed: Vec<String>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

impl LookedDocument {
    pub(super) fn of(looked: &Looked) -> Self {
        let Looked {
            at,
            verdicts,
            score,
            signs,
            allowed,
            unseen,
        } = looked;
        Self {
            at: at.to_rfc3339(),
            score: share(*score),
            verdicts: verdicts.iter().map(VerdictDocument::from).collect(),
            signs: signs.iter().map(SignDocument::from).collect(),
            allowed: allowed.iter().map(|it| shown(it)).collect(),
            unseen: unseen.iter().map(|it| shown(it)).collect(),
        }
    }
}

/// That a process may be a rogue, as `list` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct SuspectedDocument {
    pub risk: &'static str,
    pub threat: &'static str,
}

impl From<Suspected> for SuspectedDocument {
    fn from(suspected: Suspected) -> Self {
        Self {
            risk: suspected.risk.name(),
            threat: suspected.threat.name(),
        }
    }
}

/// How the watch for rogues stands, in `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct RogueDocument {
    pub file: String,
    /// `null` where there is no file, and the built-in rules hold.
    pub revision: Option<String>,
    pub mistakes: Vec<String>,
    pub watched: u32,
    /// How many more processes there are than are watched.
    pub beyond: u32,
    pub findings: u32,
    /// The risk of the worst of them.
    pub worst: Option<&'static str>,
}

impl From<&RogueReport> for RogueDocument {
    fn from(report: &RogueReport) -> Self {
        let RogueReport {
            file,
            revision,
            mistakes,
            watched,
            beyond,
            findings,
            worst,
        } = report;
        Self {
            file: shown(file),
            revision: revision.as_ref().map(|revision| revision.0.clone()),
            mistakes: mistakes.iter().map(|it| shown(it)).collect(),
            watched: *watched,
            beyond: *beyond,
            findings: *findings,
            worst: worst.map(Risk::name),
        }
    }
}

fn share(share: Share) -> f64 {
    f64::from(share.get()) / 1_000.0
}

/// A text safe to print, as all texts in documents are.
fn shown(text: &str) -> String {
    visible(text.as_bytes(), usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_three_decimals_at_most() {
        let told = [0, 1, 50, 296, 970, 1_000].map(|it| {
            let share = share(Share::thousandths(it));
            serde_json::to_string(&share).unwrap()
        });
        assert_eq!(told, ["0.0", "0.001", "0.05", "0.296", "0.97", "1.0"]);
    }
}
