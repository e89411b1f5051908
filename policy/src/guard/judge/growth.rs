//! Whether a job holds more and more: the mean of one of its processes rises from each
//! quarter of the time to the next, and by enough in all.

use super::super::limits::milliseconds;
use super::super::memory::window::{Held as Memory, Window};
use super::super::memory::{ConductMemory, keep};
use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, Whom};
use super::scene::{Run, Scene, is_known};
use gpukill_proto::guard::{Measured, RuleKind};
use gpukill_proto::units::{Bytes, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// By how much, in how long.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) by: Bytes,
    pub(crate) within: Duration,
}

pub(crate) fn judge(
    scene: &Scene<'_>,
    memory: &mut ConductMemory,
    concern: &Concern,
    terms: Terms,
    findings: &mut Findings,
) {
    let bucket = scene.bucket;
    let length = milliseconds(terms.within).max(1);
    let start = i64::try_from(length).unwrap_or(i64::MAX);
    let start = Timestamp(bucket.until.0.saturating_sub(start));
    for (job, runs) in concern.jobs() {
        let whom = Whom::Job(job);
        let mut worst: Option<(u64, usize)> = None;
        for position in runs {
            let run = &scene.runs[*position];
            let window = memory.growth.entry(Arc::clone(run.key));
            let window = window.or_insert_with(|| Window::from(bucket.from));
            window.add(length, bucket.from, bucket.until, part(run));
            match window.covers(length, bucket.until, run.judged.first_seen) {
                Some(false) => {}
                None => {
                    let why = "what it held before it was looked at is not known";
                    findings.unknown(concern.policy, RuleKind::Growth, whom, why);
                }
                Some(true) if window.slots().any(|slot| slot.part.is_unknown) => {
                    let why = "how much memory it held all the time is not known";
                    findings.unknown(concern.policy, RuleKind::Growth, whom, why);
                }
                Some(true) => {
                    let grown = grown(window, start, length, terms.by);
                    let this = grown.map(|grown| (grown, *position));
                    worst = worst.max(this);
                }
            }
        }
        if let Some((value, position)) = worst {
            let held = Held {
                measured: Some(Measured {
                    value,
                    limit: terms.by.0,
                }),
                since: Some(start),
                runs: vec![position],
                unknown: 0,
                excess: Excess::All,
                threat: None,
            };
            findings.holds(concern.policy, RuleKind::Growth, whom, held);
        }
    }
    let there = concern.runs.iter().map(|run| scene.runs[*run].key);
    keep(&mut memory.growth, concern.runs.len(), there);
}

fn part(run: &Run<'_>) -> Memory {
    let usage = &run.judged.usage;
    let mean = usage.memory.mean().unwrap_or(0);
    Memory {
        total: (mean >> 10).saturating_mul(usage.held_ms),
        known_ms: usage.held_ms,
        is_unknown: !is_known(&usage.memory, usage.held_ms),
    }
}

/// By how many bytes it grew in the whole window, where that is at least `by`, and it did
/// so in each quarter. Single samples do not count: a service takes and gives back memory
/// with each request.
fn grown(window: &Window<Memory>, start: Timestamp, length: u64, by: Bytes) -> Option<u64> {
    let mut quarters = [(0_u64, 0_u64); 4];
    for slot in window.slots() {
        let middle = slot.from.0.midpoint(slot.until.0);
        let into = milliseconds(Timestamp(middle).since(start));
        let quarter = into.saturating_mul(4) / length;
        let quarter = usize::try_from(quarter).unwrap_or(3).min(3);
        let (total, known) = &mut quarters[quarter];
        *total = total.saturating_add(slot.part.total);
        *known = known.saturating_add(slot.part.known_ms);
    }
    // A quarter of which nothing was seen has no mean, and is none that grew.
    let mean = |(total, known): (u64, u64)| total.checked_div(known).map(|kib| kib << 10);
    let [first, second, third, last] = quarters.map(mean);
    let means = [first?, second?, third?, last?];
    let least = by.0 / LEAST_STEP;
    let steps = means.windows(2);
    let grows = steps
        .map(|two| two[1].checked_sub(two[0]))
        .all(|step| step.is_some_and(|step| step > 0 && step >= least));
    // The middles of the first and the last quarter are three quarters of the time apart.
    let grown = (means[3].saturating_sub(means[0]) / 3).saturating_mul(4);
    (grows && grown >= by.0).then_some(grown)
}

/// Each quarter must have a quarter of what an even growth would give it, so that noise in
/// one does not count as growth.
const LEAST_STEP: u64 = 16;
