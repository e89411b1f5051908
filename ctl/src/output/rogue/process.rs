//! The rogue watch's view of one process: its score, a line for each indicator, whether rules
//! may act on it, its exemption, and what could not be examined; for a process without a verdict
//! one sentence.

use super::{FAMILIES_LEGEND, no_action_reason};
use crate::output::explain::ExplainDetail;
use crate::output::style::OutputStyle;
use crate::output::value::reading;
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::{Indicator, RogueAssessment, Verdict};

/// The rows with their labels; only the first of several rows has the label.
pub(in crate::output) fn rows(
    looked: &Reading<RogueAssessment>,
    detail: ExplainDetail,
    style: &OutputStyle,
) -> Vec<(String, String)> {
    let (known, prefix) = match looked {
        Reading::Value(known) => (known, ""),
        Reading::Stale(known, _) => (known, "~"),
        // The process is not watched.
        Reading::Unsupported => return Vec::new(),
        Reading::Failed(_) | Reading::Withheld => {
            let why = reading(looked, |_| String::new()).text;
            return vec![("score".to_owned(), why)];
        }
    };
    if known.verdicts.is_empty() && detail == ExplainDetail::Usual {
        return vec![("verdict".to_owned(), harmless_text(known).to_owned())];
    }
    let dot = style.symbols.separator();
    let families = (!known.indicators.is_empty()).then(|| FAMILIES_LEGEND.to_owned());
    let scores: Vec<String> = match known.verdicts.as_slice() {
        [] => vec![no_verdict_text(known, prefix, dot)],
        verdicts => {
            let no_rule = no_action_reason(verdicts).map(|why| format!("no rule {why}"));
            let verdicts = verdicts
                .iter()
                .map(|it| format!("{prefix}{}", verdict_text(it)));
            let indicators = known.indicators.iter();
            let indicators = indicators
                .map(|indicator| format!("{} {}", indicator_weight(indicator), indicator.evidence));
            verdicts.chain(indicators).chain(no_rule).collect()
        }
    };
    let scores = scores.into_iter().chain(families).collect();
    let (allowed, missing) = (known.allowed.clone(), known.missing_evidence.clone());
    [
        ("score", scores),
        ("allowed", allowed),
        ("missing", missing),
    ]
    .into_iter()
    .flat_map(|(name, lines)| {
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        names.map(str::to_owned).zip(lines)
    })
    .collect()
}

/// The verdict on a process that no verdict accuses.
fn harmless_text(looked: &RogueAssessment) -> &'static str {
    match (
        looked.allowed.is_empty(),
        looked.missing_evidence.is_empty(),
    ) {
        (false, _) => "not suspicious: an admin exempts it",
        (true, true) => "not suspicious",
        (true, false) => "not suspicious, as far as it could be examined",
    }
}

/// `0.05 no risk · C held long at nothing`
fn no_verdict_text(looked: &RogueAssessment, prefix: &str, dot: &str) -> String {
    let indicators = looked.indicators.iter();
    let indicators = indicators
        .map(|indicator| format!("{dot}{} {}", indicator.family.name(), indicator.evidence));
    let indicators: String = indicators.collect();
    format!("{prefix}{} no risk{indicators}", looked.score)
}

/// `0.97 critical crypto miner`
fn verdict_text(verdict: &Verdict) -> String {
    let (risk, threat) = (verdict.risk.name(), verdict.threat.label());
    format!("{} {risk} {threat}", verdict.score)
}

/// `A 0.80`
pub(super) fn indicator_weight(indicator: &Indicator) -> String {
    format!("{} {}", indicator.family.name(), indicator.weight)
}
