//! Evaluates whether a process of a job has a rogue verdict that permits an action. A
//! verdict on weaker evidence violates no rule, whatever its risk.

use super::super::rules::RogueParams;
use super::behaviour::BehaviourCheck;
use super::context::{EvaluatedRun, EvaluationContext};
use super::findings::{Excess, Findings, NOT_REPORTED, SubjectIndex, ViolationDetails};
use gpukill_proto::guard::{Measurement, RuleKind};
use gpukill_proto::rogue::VerdictSummary;

pub(crate) fn evaluate(
    context: &EvaluationContext<'_>,
    check: &BehaviourCheck,
    terms: &RogueParams,
    findings: &mut Findings,
) {
    let (policy, kind) = (check.policy, RuleKind::Rogue);
    for (job, runs) in check.jobs() {
        let subject = SubjectIndex::Job(job);
        let mut worst: Option<VerdictSummary> = None;
        let mut taken = Vec::new();
        for position in runs {
            match violating_verdict(&context.runs[*position], terms) {
                Ok(None) => {}
                Ok(Some(suspected)) => {
                    taken.push(*position);
                    worst = worst.max(Some(suspected));
                }
                Err(why) => findings.add_unknown(policy, kind, subject, why),
            }
        }
        if let Some(worst) = worst {
            let held = ViolationDetails {
                measured: Some(Measurement {
                    value: worst.risk.level(),
                    limit: terms.from.level(),
                }),
                since: None,
                runs: taken,
                unknown: 0,
                excess: Excess::All,
                threat: Some(worst.threat),
            };
            findings.add_violated(policy, kind, subject, held);
        }
    }
}

/// The verdict on a present process if it violates the rule, or why that is unknown.
fn violating_verdict(
    run: &EvaluatedRun<'_>,
    terms: &RogueParams,
) -> Result<Option<VerdictSummary>, &'static str> {
    if !run.sample.is_present {
        return Ok(None);
    }
    let suspected = run.sample.facts.suspected;
    let suspected = suspected.ok_or("whether it has a rogue verdict is not known")?;
    let is_meant = |verdict: &VerdictSummary| {
        verdict.is_actionable
            && verdict.risk >= terms.from
            && terms.threats.contains(&verdict.threat)
    };
    match suspected.filter(is_meant) {
        Some(_) if !run.is_reported => Err(NOT_REPORTED),
        suspected => Ok(suspected),
    }
}
