//! How long a job has held a device: its process that has held one the longest.

use super::super::limits::milliseconds;
use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, UNTOLD, Whom};
use super::scene::Scene;
use gpukill_proto::guard::{Measured, RuleKind};
use std::time::Duration;

pub(crate) fn judge(
    scene: &Scene<'_>,
    concern: &Concern,
    limit: Duration,
    findings: &mut Findings,
) {
    let limit = milliseconds(limit);
    let is_over = |since| milliseconds(scene.bucket.until.since(since)) > limit;
    for (job, runs) in concern.jobs() {
        let whom = Whom::Job(job);
        let present = runs.iter().map(|run| &scene.runs[*run]);
        let present = present.filter(|run| run.judged.is_present);
        let over = present.filter(|run| is_over(run.judged.first_seen));
        let (told, untold): (Vec<_>, Vec<_>) = over.partition(|run| run.is_told);
        // A device that does not tell who uses it decides nothing.
        let longest = told.iter().map(|run| run.judged.first_seen).min();
        if let Some(since) = longest {
            let value = milliseconds(scene.bucket.until.since(since));
            let held = Held {
                measured: Some(Measured { value, limit }),
                since: Some(since),
                runs: runs.to_vec(),
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            let rule = (concern.policy, concern.doubt);
            findings.holds_unless(rule, RuleKind::Duration, whom, held);
        } else if !untold.is_empty() {
            findings.unknown(concern.policy, RuleKind::Duration, whom, UNTOLD);
        }
    }
}
