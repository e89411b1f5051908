//! What is said of one process: its score, a line for each sign, whether rules may go by
//! them, by what it is allowed, and what could not be seen.

use super::{FAMILIES, may_not_act};
use crate::output::look::Look;
use crate::output::value::reading;
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::{Looked, Sign, Verdict};

/// Each with its name, which the first of several has.
pub(in crate::output) fn rows(looked: &Reading<Looked>, look: &Look) -> Vec<(String, String)> {
    let (known, about) = match looked {
        Reading::Value(known) => (known, ""),
        Reading::Stale(known, _) => (known, "~"),
        // Nobody watches it.
        Reading::Unsupported => return Vec::new(),
        Reading::Failed(_) | Reading::Withheld => {
            let why = reading(looked, |_| String::new()).text;
            return vec![("score".to_owned(), why)];
        }
    };
    let dot = look.symbols.dot();
    let families = (!known.signs.is_empty()).then(|| FAMILIES.to_owned());
    let scores: Vec<String> = match known.verdicts.as_slice() {
        [] => vec![nothing(known, about, dot)],
        verdicts => {
            let unruled = may_not_act(verdicts).map(|why| format!("no rule {why}"));
            let verdicts = verdicts.iter().map(|it| format!("{about}{}", verdict(it)));
            let signs = known.signs.iter();
            let signs = signs.map(|sign| format!("{} {}", weighed(sign), sign.read));
            verdicts.chain(signs).chain(unruled).collect()
        }
    };
    let scores = scores.into_iter().chain(families).collect();
    let (allowed, unseen) = (known.allowed.clone(), known.unseen.clone());
    [("score", scores), ("allowed", allowed), ("unseen", unseen)]
        .into_iter()
        .flat_map(|(name, lines)| {
            let names = std::iter::once(name).chain(std::iter::repeat(""));
            names.map(str::to_owned).zip(lines)
        })
        .collect()
}

/// `0.05 no risk · C held long at nothing`
fn nothing(looked: &Looked, about: &str, dot: &str) -> String {
    let signs = looked.signs.iter();
    let signs = signs.map(|sign| format!("{dot}{} {}", sign.family.name(), sign.read));
    let signs: String = signs.collect();
    format!("{about}{} no risk{signs}", looked.score)
}

/// `0.97 critical crypto miner`
fn verdict(verdict: &Verdict) -> String {
    let (risk, threat) = (verdict.risk.name(), verdict.threat.words());
    format!("{} {risk} {threat}", verdict.score)
}

/// `A 0.80`
pub(super) fn weighed(sign: &Sign) -> String {
    format!("{} {}", sign.family.name(), sign.weight)
}
