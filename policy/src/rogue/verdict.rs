//! Combines indicators into verdicts.

use super::indicators::{IndicatorKind, indicator_kinds};
use super::rules::{AllowEntry, AllowMatch, RogueRules};
use super::suspect::Suspect;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::rogue::{Indicator, IndicatorFamily, Share, Threat, Verdict};
use std::cmp::Reverse;

/// Returns the verdicts on a process, the worst first. Verdicts below the minimum
/// confidence or a low risk are left out.
#[must_use]
pub fn evaluate(suspect: &Suspect, rules: &RogueRules) -> Vec<Verdict> {
    assess(suspect, rules).verdicts
}

/// The result of all known facts about a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assessment {
    /// As in [`evaluate`].
    pub verdicts: Vec<Verdict>,
    /// The highest score of any threat, even without a verdict.
    pub score: Share,
    /// All indicators that count, the heaviest first.
    pub indicators: Vec<Indicator>,
    /// The allow entries that match.
    pub allowed: Vec<AllowEntry>,
}

/// As [`evaluate`], with the results that give no verdict.
#[must_use]
pub fn assess(suspect: &Suspect, rules: &RogueRules) -> Assessment {
    let allowed: Vec<&AllowEntry> = matching_entries(suspect, rules).collect();
    let counts = family_filter(&allowed);
    let detected: Vec<(&IndicatorKind, Indicator)> = indicator_kinds()
        .iter()
        .filter(|kind| counts(kind.family))
        .filter_map(|kind| Some((kind, detect_indicator(kind, suspect, rules)?)))
        .collect();
    let weighed: Vec<WeightedThreat> = Threat::ALL
        .into_iter()
        .filter_map(|threat| weigh_threat(threat, &detected, rules))
        .collect();
    let score = weighed.iter().map(|it| it.score).max().unwrap_or_default();
    let verdicts = weighed.into_iter().filter_map(|it| it.into_verdict(rules));
    let mut verdicts: Vec<Verdict> = verdicts.collect();
    verdicts.sort_indirect_by_key(|it| (Reverse(it.score), it.threat));
    let mut indicators: Vec<Indicator> = detected
        .into_iter()
        .map(|(_, indicator)| indicator)
        .collect();
    sort_indicators(&mut indicators);
    Assessment {
        verdicts,
        score,
        indicators,
        allowed: allowed.into_iter().cloned().collect(),
    }
}

/// Reassesses recorded verdicts by the current rules: an entry that allows the process
/// now removes them, and the indicators keep their recorded weights.
#[must_use]
pub fn reassess(verdicts: &[Verdict], suspect: &Suspect, rules: &RogueRules) -> Vec<Verdict> {
    let allowed: Vec<&AllowEntry> = matching_entries(suspect, rules).collect();
    let counts = family_filter(&allowed);
    let again = verdicts.iter().filter_map(|verdict| {
        let indicators = verdict
            .indicators
            .iter()
            .filter(|indicator| counts(indicator.family));
        let detected: Vec<(&IndicatorKind, Indicator)> = indicators
            .filter_map(|indicator| {
                let kind = indicator_kinds()
                    .iter()
                    .find(|kind| kind.name == indicator.kind)?;
                Some((kind, indicator.clone()))
            })
            .collect();
        weigh_threat(verdict.threat, &detected, rules)?.into_verdict(rules)
    });
    again.collect()
}

fn detect_indicator(
    kind: &IndicatorKind,
    suspect: &Suspect,
    rules: &RogueRules,
) -> Option<Indicator> {
    let indicator_match = (kind.detect)(suspect, rules)?;
    Some(Indicator {
        kind: kind.name.to_owned(),
        family: kind.family,
        weight: Share::from_thousandths(indicator_match.weight),
        evidence: indicator_match.evidence,
    })
}

/// The families that count: none where the process is allowed, except family A where it
/// is allowed only by a name that it chose itself.
fn family_filter(allowed: &[&AllowEntry]) -> impl Fn(IndicatorFamily) -> bool + use<> {
    let is_allowed = !allowed.is_empty();
    let by_name = |it: &&AllowEntry| matches!(it.by, AllowMatch::Process(_));
    let only_by_name = allowed.iter().all(by_name);
    move |family| !is_allowed || (only_by_name && family == IndicatorFamily::A)
}

/// The allow entries that match the process.
fn matching_entries<'r>(
    suspect: &Suspect,
    rules: &'r RogueRules,
) -> impl Iterator<Item = &'r AllowEntry> {
    rules.allowed.iter().filter(|it| matches_entry(it, suspect))
}

fn matches_entry(allowed: &AllowEntry, suspect: &Suspect) -> bool {
    let by_user = || allowed.user.is_some() && allowed.user == suspect.user;
    let of_user = allowed.user.is_none() || by_user();
    let is_it = match &allowed.by {
        AllowMatch::User => by_user(),
        AllowMatch::Process(name) => suspect.name.as_ref() == Some(name),
        AllowMatch::Executable(path) => {
            suspect.executable.as_ref() == Some(path) && suspect.has_host_executable()
        }
        AllowMatch::Image(image) => suspect.image.iter().flatten().any(|it| it == image),
    };
    of_user && is_it
}

fn sort_indicators(indicators: &mut [Indicator]) {
    indicators.sort_indirect_by_key(|indicator| (Reverse(indicator.weight), indicator.family));
}

struct WeightedThreat {
    threat: Threat,
    confidence: Share,
    score: Share,
    indicators: Vec<Indicator>,
}

impl WeightedThreat {
    /// The verdict; `None` below the thresholds.
    fn into_verdict(self, rules: &RogueRules) -> Option<Verdict> {
        let risk = rules.risk(self.score)?;
        let is_sure = self.confidence >= rules.detection.min_confidence;
        is_sure.then_some(Verdict {
            threat: self.threat,
            confidence: self.confidence,
            score: self.score,
            risk,
            indicators: self.indicators,
        })
    }
}

fn weigh_threat(
    threat: Threat,
    detected: &[(&IndicatorKind, Indicator)],
    rules: &RogueRules,
) -> Option<WeightedThreat> {
    let is_for_threat = |(kind, _): &&(&IndicatorKind, Indicator)| kind.threats.contains(&threat);
    let corroborates =
        |(kind, _): &&(&IndicatorKind, Indicator)| kind.corroborates.contains(&threat);
    detected.iter().find(is_for_threat)?;
    let of_it = detected
        .iter()
        .filter(|it| is_for_threat(it) || corroborates(it));
    let mut indicators: Vec<Indicator> = of_it.map(|(_, indicator)| indicator.clone()).collect();
    sort_indicators(&mut indicators);
    let confidence = combined_confidence(&indicators);
    Some(WeightedThreat {
        threat,
        confidence,
        score: multiply(confidence, rules.weight(threat)),
        indicators,
    })
}

/// The probability that not all indicators are wrong, assuming independence.
fn combined_confidence(indicators: &[Indicator]) -> Share {
    let doubts = indicators.iter().map(|it| 1.0 - to_fraction(it.weight));
    from_fraction(1.0 - doubts.product::<f64>())
}

fn multiply(one: Share, other: Share) -> Share {
    from_fraction(to_fraction(one) * to_fraction(other))
}

fn to_fraction(of: Share) -> f64 {
    f64::from(of.get()) / 1_000.0
}

fn from_fraction(share: f64) -> Share {
    let thousandths = (share.clamp(0.0, 1.0) * 1_000.0).round();
    // It is between 0 and 1000.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Share::from_thousandths(thousandths as u16)
}
