//! What the signs come to.

use super::rules::{Allowed, AllowedBy, Rules};
use super::signs::{Kind, kinds};
use super::suspect::Suspect;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::rogue::{Family, Share, Sign, Threat, Verdict};
use std::cmp::Reverse;

/// What a process may be, the worst first: what is not sure enough, or less than a low
/// risk, is not told.
#[must_use]
pub fn judge(suspect: &Suspect, rules: &Rules) -> Vec<Verdict> {
    assess(suspect, rules).verdicts
}

/// What all that is known of a process comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assessment {
    /// As [`judge`] has them.
    pub verdicts: Vec<Verdict>,
    /// Of any threat the highest score, also where that is no verdict.
    pub score: Share,
    /// All that counts and was seen, the weightiest first.
    pub signs: Vec<Sign>,
    /// By which entries of the lists it is allowed.
    pub allowed: Vec<Allowed>,
}

/// As [`judge`], with what comes to nothing.
#[must_use]
pub fn assess(suspect: &Suspect, rules: &Rules) -> Assessment {
    let allowed: Vec<&Allowed> = allowed(suspect, rules).collect();
    let counts = counts(&allowed);
    let seen: Vec<(&Kind, Sign)> = kinds()
        .iter()
        .filter(|kind| counts(kind.family))
        .filter_map(|kind| Some((kind, sign(kind, suspect, rules)?)))
        .collect();
    let weighed = Threat::ALL.into_iter();
    let weighed = weighed.filter_map(|threat| weigh(threat, &seen, rules));
    let weighed: Vec<Weighed> = weighed.collect();
    let score = weighed.iter().map(|it| it.score).max().unwrap_or_default();
    let told = weighed.into_iter().filter_map(|it| it.told(rules));
    let mut verdicts: Vec<Verdict> = told.collect();
    verdicts.sort_indirect_by_key(|it| (Reverse(it.score), it.threat));
    let mut signs: Vec<Sign> = seen.into_iter().map(|(_, sign)| sign).collect();
    sort(&mut signs);
    Assessment {
        verdicts,
        score,
        signs,
        allowed: allowed.into_iter().cloned().collect(),
    }
}

/// What a process was found to be, by the rules of now: whom they allow is nothing any
/// more, and what signs weigh is what they weighed then.
#[must_use]
pub fn again(found: &[Verdict], suspect: &Suspect, rules: &Rules) -> Vec<Verdict> {
    let allowed: Vec<&Allowed> = allowed(suspect, rules).collect();
    let counts = counts(&allowed);
    let again = found.iter().filter_map(|verdict| {
        let signs = verdict.signs.iter().filter(|sign| counts(sign.family));
        let seen: Vec<(&Kind, Sign)> = signs
            .filter_map(|sign| {
                let kind = kinds().iter().find(|kind| kind.name == sign.kind)?;
                Some((kind, sign.clone()))
            })
            .collect();
        weigh(verdict.threat, &seen, rules)?.told(rules)
    });
    again.collect()
}

fn sign(kind: &Kind, suspect: &Suspect, rules: &Rules) -> Option<Sign> {
    let seen = (kind.look)(suspect, rules)?;
    Some(Sign {
        kind: kind.name.to_owned(),
        family: kind.family,
        weight: Share::thousandths(seen.weight),
        read: seen.read,
    })
}

/// What of a family counts: nothing where somebody is allowed, but what is nearly a proof
/// where they are so by a name that they chose themselves.
fn counts(allowed: &[&Allowed]) -> impl Fn(Family) -> bool + use<> {
    let is_allowed = !allowed.is_empty();
    let by_name = |it: &&Allowed| matches!(it.by, AllowedBy::Process(_));
    let only_by_name = allowed.iter().all(by_name);
    move |family| !is_allowed || (only_by_name && family == Family::A)
}

/// The entries of the lists that mean it.
fn allowed<'r>(suspect: &Suspect, rules: &'r Rules) -> impl Iterator<Item = &'r Allowed> {
    rules.allowed.iter().filter(|it| is(it, suspect))
}

fn is(allowed: &Allowed, suspect: &Suspect) -> bool {
    let by_user = || allowed.user.is_some() && allowed.user == suspect.user;
    let of_user = allowed.user.is_none() || by_user();
    let is_it = match &allowed.by {
        AllowedBy::User => by_user(),
        AllowedBy::Process(name) => suspect.name.as_ref() == Some(name),
        AllowedBy::Executable(path) => {
            suspect.executable.as_ref() == Some(path) && suspect.is_on_the_box()
        }
        AllowedBy::Image(image) => suspect.image.iter().flatten().any(|it| it == image),
    };
    of_user && is_it
}

fn sort(signs: &mut [Sign]) {
    signs.sort_indirect_by_key(|sign| (Reverse(sign.weight), sign.family));
}

/// What speaks for a threat, weighed.
struct Weighed {
    threat: Threat,
    confidence: Share,
    score: Share,
    signs: Vec<Sign>,
}

impl Weighed {
    /// As it is told; `None` where it is too little for that.
    fn told(self, rules: &Rules) -> Option<Verdict> {
        let risk = rules.risk(self.score)?;
        let is_sure = self.confidence >= rules.detection.min_confidence;
        is_sure.then_some(Verdict {
            threat: self.threat,
            confidence: self.confidence,
            score: self.score,
            risk,
            signs: self.signs,
        })
    }
}

fn weigh(threat: Threat, seen: &[(&Kind, Sign)], rules: &Rules) -> Option<Weighed> {
    let speaks = |(kind, _): &&(&Kind, Sign)| kind.threats.contains(&threat);
    let corroborates = |(kind, _): &&(&Kind, Sign)| kind.corroborates.contains(&threat);
    seen.iter().find(speaks)?;
    let of_it = seen.iter().filter(|it| speaks(it) || corroborates(it));
    let mut signs: Vec<Sign> = of_it.map(|(_, sign)| sign.clone()).collect();
    sort(&mut signs);
    let confidence = confidence(&signs);
    Some(Weighed {
        threat,
        confidence,
        score: times(confidence, rules.weight(threat)),
        signs,
    })
}

/// That not all of them are mistaken, were they of no account to each other.
fn confidence(signs: &[Sign]) -> Share {
    let doubts = signs.iter().map(|it| 1.0 - share(it.weight));
    rounded(1.0 - doubts.product::<f64>())
}

fn times(one: Share, other: Share) -> Share {
    rounded(share(one) * share(other))
}

fn share(of: Share) -> f64 {
    f64::from(of.get()) / 1_000.0
}

fn rounded(share: f64) -> Share {
    let thousandths = (share.clamp(0.0, 1.0) * 1_000.0).round();
    // It lies between 0 and 1000.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Share::thousandths(thousandths as u16)
}
