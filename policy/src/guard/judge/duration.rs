//! How long a job has held a device: its process that has held one the longest.

use super::super::limits::milliseconds;
use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, UNTOLD, Whom};
use super::scene::Scene;
use gpukill_proto::guard::{Measured, RuleKind};
use std::cmp::Reverse;
use std::time::Duration;

pub(crate) fn judge(
    scene: &Scene<'_>,
    concern: &Concern,
    limit: Duration,
    findings: &mut Findings,
) {
    let limit = milliseconds(limit);
    for (job, runs) in concern.jobs() {
        let is_there = |run: &&usize| scene.runs[**run].judged.is_present;
        let longest = runs.iter().filter(is_there).min_by_key(|run| {
            let run = &scene.runs[**run];
            (run.judged.first_seen, Reverse(run.memory.value))
        });
        let Some(longest) = longest else {
            continue;
        };
        let since = scene.runs[*longest].judged.first_seen;
        let value = milliseconds(scene.bucket.until.since(since));
        if value > limit {
            let held = Held {
                measured: Some(Measured { value, limit }),
                since: Some(since),
                runs: runs.to_vec(),
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            let rule = (concern.policy, concern.doubt);
            if !runs
                .iter()
                .filter(is_there)
                .any(|run| scene.runs[*run].is_told)
            {
                let (why, whom) = (UNTOLD, Whom::Job(job));
                findings.unknown(concern.policy, RuleKind::Duration, whom, why);
                continue;
            }
            findings.holds_unless(rule, RuleKind::Duration, Whom::Job(job), held);
        }
    }
}
