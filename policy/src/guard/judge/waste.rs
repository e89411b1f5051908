//! Whether a job holds much for long, and does little with it.

use super::super::limits::milliseconds;
use super::super::memory::window::{Waste, Window};
use super::super::memory::{ConductMemory, keep};
use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, Whom};
use super::scene::{Scene, is_known};
use gpukill_proto::guard::{Measured, RuleKind};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Under how much, while it holds how much, for how long.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) below: Percent,
    pub(crate) min_memory: Bytes,
    pub(crate) hours: Duration,
}

pub(crate) fn judge(
    scene: &Scene<'_>,
    memory: &mut ConductMemory,
    concern: &Concern,
    terms: Terms,
    findings: &mut Findings,
) {
    let bucket = scene.bucket;
    let length = milliseconds(terms.hours).max(1);
    for (job, runs) in concern.jobs() {
        let whom = Whom::Job(job);
        let key = &scene.jobs[job].key;
        let window = memory.waste.entry(Arc::clone(key));
        let window = window.or_insert_with(|| Window::from(bucket.from));
        window.add(length, bucket.from, bucket.until, part(scene, runs));
        let first_seen = runs.iter().map(|run| scene.runs[*run].judged.first_seen);
        let began = first_seen.min().unwrap_or(bucket.from);
        match wastes(window, terms, length, bucket.until, began) {
            Wastes::No => {}
            Wastes::Unknown(why) => {
                findings.unknown(concern.policy, RuleKind::Waste, whom, why);
            }
            Wastes::With(value) => {
                let limit = u64::from(terms.below.0);
                let length = i64::try_from(length).unwrap_or(i64::MAX);
                let held = Held {
                    measured: Some(Measured { value, limit }),
                    since: Some(Timestamp(bucket.until.0.saturating_sub(length))),
                    runs: runs.to_vec(),
                    unknown: 0,
                    excess: Excess::All,
                    threat: None,
                };
                findings.holds(concern.policy, RuleKind::Waste, whom, held);
            }
        }
    }
    let there = concern.jobs().map(|(job, _)| &scene.jobs[job].key);
    keep(&mut memory.waste, concern.jobs().count(), there);
}

fn part(scene: &Scene<'_>, runs: &[usize]) -> Waste {
    let mut part = Waste::default();
    for run in runs {
        let run = &scene.runs[*run];
        let usage = &run.judged.usage;
        let total = u64::try_from(usage.utilization.total).unwrap_or(u64::MAX);
        part.held_ms = part.held_ms.saturating_add(usage.held_ms);
        part.total = part.total.saturating_add(total);
        part.is_load_unknown |= !is_known(&usage.utilization, usage.held_ms);
        part.least = part.least.saturating_add(run.memory.value);
        part.is_memory_unknown |= !run.memory.is_known;
    }
    part
}

enum Wastes {
    No,
    Unknown(&'static str),
    /// With a mean utilisation of so many percent.
    With(u64),
}

fn wastes(
    window: &Window<Waste>,
    terms: Terms,
    length: u64,
    until: Timestamp,
    began: Timestamp,
) -> Wastes {
    let covers = window.covers(length, until, began);
    if covers == Some(false) {
        return Wastes::No;
    }
    let (mut total, mut held) = (0_u128, 0_u128);
    let (mut is_load_unknown, mut may_have_held_less) = (false, false);
    for Waste {
        held_ms,
        total: worked,
        is_load_unknown: is_unknown,
        least,
        is_memory_unknown,
    } in window.slots().map(|slot| &slot.part)
    {
        let has_held_less = *least < terms.min_memory.0;
        if has_held_less && !is_memory_unknown {
            return Wastes::No;
        }
        may_have_held_less |= has_held_less;
        is_load_unknown |= is_unknown;
        total += u128::from(*worked);
        held += u128::from(*held_ms);
    }
    if total >= u128::from(terms.below.0) * held {
        return Wastes::No;
    }
    if covers.is_none() {
        return Wastes::Unknown("what it did before it was looked at is not known");
    }
    if is_load_unknown {
        return Wastes::Unknown("whether it worked all the time is not known");
    }
    if may_have_held_less {
        return Wastes::Unknown("how much memory it held all the time is not known");
    }
    Wastes::With(u64::try_from(total.checked_div(held).unwrap_or(0)).unwrap_or(u64::MAX))
}
