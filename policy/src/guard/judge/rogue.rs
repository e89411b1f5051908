//! Whether a job is taken for a threat: one of its processes is, by signs that may be
//! acted on. A verdict that rests on less breaks nothing, whatever its risk.

use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, UNTOLD, Whom};
use super::scene::{Run, Scene};
use gpukill_proto::guard::{Measured, RuleKind};
use gpukill_proto::rogue::{Risk, Suspected, Threat};

/// From which risk on, and which threats.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'t> {
    pub(crate) from: Risk,
    pub(crate) threats: &'t [Threat],
}

pub(crate) fn judge(
    scene: &Scene<'_>,
    concern: &Concern,
    terms: Terms<'_>,
    findings: &mut Findings,
) {
    let (policy, kind) = (concern.policy, RuleKind::Rogue);
    for (job, runs) in concern.jobs() {
        let whom = Whom::Job(job);
        let mut worst: Option<Suspected> = None;
        let mut taken = Vec::new();
        for position in runs {
            match takes(&scene.runs[*position], terms) {
                Ok(None) => {}
                Ok(Some(suspected)) => {
                    taken.push(*position);
                    worst = worst.max(Some(suspected));
                }
                Err(why) => findings.unknown(policy, kind, whom, why),
            }
        }
        if let Some(worst) = worst {
            let held = Held {
                measured: Some(Measured {
                    value: worst.risk.level(),
                    limit: terms.from.level(),
                }),
                since: None,
                runs: taken,
                unknown: 0,
                excess: Excess::All,
                threat: Some(worst.threat),
            };
            findings.holds(policy, kind, whom, held);
        }
    }
}

/// What a process that is there is taken for, where that is against the rule; or why
/// that is not known.
fn takes(run: &Run<'_>, terms: Terms<'_>) -> Result<Option<Suspected>, &'static str> {
    if !run.judged.is_present {
        return Ok(None);
    }
    let suspected = run.judged.about.suspected;
    let suspected = suspected.ok_or("whether it is a rogue is not known")?;
    let is_meant = |it: &Suspected| {
        it.may_be_acted_on && it.risk >= terms.from && terms.threats.contains(&it.threat)
    };
    match suspected.filter(is_meant) {
        Some(_) if !run.is_told => Err(UNTOLD),
        suspected => Ok(suspected),
    }
}
