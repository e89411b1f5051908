//! Whether a job is at work without end: one of its processes works in every bucket,
//! and frees nothing.

use super::super::limits::milliseconds;
use super::super::memory::streak::{Streak, Through};
use super::super::memory::{ConductMemory, Peak, keep};
use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, Whom};
use super::scene::{Run, Scene, is_known};
use gpukill_proto::guard::{Measured, RuleKind};
use gpukill_proto::units::{Percent, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Over how much, for how long, and whether only where the parent has ended.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) above: Percent,
    pub(crate) limit: Duration,
    pub(crate) orphaned: bool,
}

pub(crate) fn judge(
    scene: &Scene<'_>,
    memory: &mut ConductMemory,
    concern: &Concern,
    terms: Terms,
    findings: &mut Findings,
) {
    let limit = milliseconds(terms.limit).max(1);
    for (job, runs) in concern.jobs() {
        let whom = Whom::Job(job);
        let mut worst: Option<(Timestamp, usize, u64)> = None;
        for position in runs {
            let run = &scene.runs[*position];
            let began = run.judged.first_seen;
            let peak = memory.runaway.entry(Arc::clone(run.key));
            let peak = peak.or_insert_with(|| Peak {
                at_work: Streak::from(began.min(scene.bucket.until).max(scene.bucket.from)),
                bytes: 0,
            });
            note(peak, scene, run, terms.above);
            let through = peak.at_work.through(limit, scene.bucket.until, began);
            let is_meant = match (terms.orphaned, run.judged.about.is_orphaned) {
                (false, _) | (true, Some(true)) => Some(true),
                (true, is_orphaned) => is_orphaned,
            };
            match (through, is_meant) {
                (Through::Not, _) | (_, Some(false)) => {}
                (Through::Unknown, _) | (Through::Since(..), None) => {
                    let why = match is_meant {
                        None => "whether its parent has ended is not known",
                        Some(_) => "whether it worked all the time is not known",
                    };
                    findings.unknown(concern.policy, RuleKind::Runaway, whom, why);
                }
                (Through::Since(since, value), Some(true)) => {
                    let this = (since, *position, value);
                    worst = Some(worst.map_or(this, |worst| worst.min(this)));
                }
            }
        }
        if let Some((since, position, value)) = worst {
            let held = Held {
                measured: Some(Measured { value, limit }),
                since: Some(since),
                runs: vec![position],
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            findings.holds(concern.policy, RuleKind::Runaway, whom, held);
        }
    }
    let there = concern.runs.iter().map(|run| scene.runs[*run].key);
    keep(&mut memory.runaway, concern.runs.len(), there);
}

/// Notes whether it worked in this bucket, and whether its memory fell meanwhile.
fn note(peak: &mut Peak, scene: &Scene<'_>, run: &Run<'_>, above: Percent) {
    let usage = &run.judged.usage;
    let held = if is_known(&usage.memory, usage.held_ms) {
        usage.memory.mean()
    } else {
        None
    };
    let works = is_known(&usage.utilization, usage.held_ms).then(|| {
        let all = u128::from(above.0) * u128::from(usage.utilization.known_ms);
        usage.utilization.total > all
    });
    match (works, held) {
        (Some(false), held) => {
            peak.at_work.breaks(scene.bucket.until);
            peak.bytes = held.unwrap_or(0);
        }
        (None, _) | (_, None) => {
            let bucket = scene.bucket;
            peak.at_work.is_unknown(bucket.seen_ms, bucket.until);
        }
        // A twentieth is what caches give back and take again.
        (Some(true), Some(held)) if held < peak.bytes - peak.bytes / 20 => {
            peak.at_work.breaks(scene.bucket.from);
            peak.bytes = held;
        }
        (Some(true), Some(held)) => {
            peak.at_work.goes_on();
            peak.bytes = peak.bytes.max(held);
        }
    }
}
