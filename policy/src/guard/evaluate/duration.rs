//! Evaluates how long a job has held a device, by the process that has held one the
//! longest.

use super::super::limits::milliseconds;
use super::behaviour::BehaviourCheck;
use super::context::EvaluationContext;
use super::findings::{Excess, Findings, NOT_REPORTED, SubjectIndex, ViolationDetails};
use gpukill_proto::guard::{Measurement, RuleKind};
use std::time::Duration;

pub(crate) fn evaluate(
    context: &EvaluationContext<'_>,
    concern: &BehaviourCheck,
    limit: Duration,
    findings: &mut Findings,
) {
    let limit = milliseconds(limit);
    let is_over = |since| milliseconds(context.sample.until.since(since)) > limit;
    for (job, runs) in concern.jobs() {
        let subject = SubjectIndex::Job(job);
        let present = runs.iter().map(|run| &context.runs[*run]);
        let present = present.filter(|run| run.sample.is_present);
        let over = present.filter(|run| is_over(run.sample.first_seen));
        let (reported, unreported): (Vec<_>, Vec<_>) = over.partition(|run| run.is_reported);
        // A device that does not report its processes decides nothing.
        let longest = reported.iter().map(|run| run.sample.first_seen).min();
        if let Some(since) = longest {
            let value = milliseconds(context.sample.until.since(since));
            let held = ViolationDetails {
                measured: Some(Measurement { value, limit }),
                since: Some(since),
                runs: runs.to_vec(),
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            let rule = (concern.policy, concern.doubt);
            findings.add_violated_unless(rule, RuleKind::Duration, subject, held);
        } else if !unreported.is_empty() {
            findings.add_unknown(concern.policy, RuleKind::Duration, subject, NOT_REPORTED);
        }
    }
}
