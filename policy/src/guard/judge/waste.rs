//! Whether a job holds much for long, and does little with it.

use super::super::limits::milliseconds;
use super::super::memory::window::{Load, Part as _, Waste, Window};
use super::super::memory::{ConductMemory, keep};
use super::conduct::Concern;
use super::finding::{Excess, Findings, Held, Whom};
use super::idle::UNKNOWN_ROLE;
use super::scene::Scene;
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
        let part = part(scene, runs);
        let is_fresh = part.is_known();
        window.add(length, bucket.from, bucket.until, part);
        let first_seen = runs.iter().map(|run| scene.runs[*run].judged.first_seen);
        let began = first_seen.min().unwrap_or(bucket.from);
        let is_service = scene.is_service(&scene.jobs[job].runs) == Some(true);
        match wastes(window, terms, length, bucket.until, began) {
            Wastes::No => {}
            Wastes::Unknown(why) => {
                findings.unknown(concern.policy, RuleKind::Waste, whom, why);
            }
            Wastes::With(_) if !is_fresh => {
                let why = "whether it works now is not known";
                findings.unknown(concern.policy, RuleKind::Waste, whom, why);
            }
            Wastes::With(_)
                if scene.is_service(&scene.jobs[job].runs).is_none()
                    && !scene.book.ends_services(concern.policy) =>
            {
                findings.unknown(concern.policy, RuleKind::Waste, whom, UNKNOWN_ROLE);
            }
            // That somebody used a service within the time speaks against it.
            Wastes::With(_) if is_service && has_served(window) == Some(true) => {}
            Wastes::With(_) if is_service && has_served(window).is_none() => {
                let why = "whether somebody used the service is not known";
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
        let load = Load::of(&usage.utilization, scene.bucket.seen_ms, usage.held_ms);
        part.held_ms = part.held_ms.saturating_add(load.held_ms);
        part.known_ms = part.known_ms.saturating_add(load.known_ms);
        part.total = part.total.saturating_add(load.total);
        part.least = part.least.saturating_add(run.memory.value);
        part.is_memory_unknown |= !run.memory.is_known;
        part.has_served |= usage.connections.most.is_some_and(|most| most > 0);
        part.may_have_served |= usage.connections.is_failed;
    }
    part
}

/// Whether somebody was connected to it within the time; `None` where that is not known.
fn has_served(window: &Window<Waste>) -> Option<bool> {
    let parts = || window.slots().map(|slot| &slot.part);
    match (
        parts().any(|it| it.has_served),
        parts().any(|it| it.may_have_served),
    ) {
        (true, _) => Some(true),
        (false, true) => None,
        (false, false) => Some(false),
    }
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
    let mut load = Load::default();
    let mut may_have_held_less = false;
    for Waste {
        held_ms,
        total: worked,
        known_ms,
        least,
        is_memory_unknown,
        has_served: _,
        may_have_served: _,
    } in window.slots().map(|slot| &slot.part)
    {
        let has_held_less = *least < terms.min_memory.0;
        if has_held_less && !is_memory_unknown {
            return Wastes::No;
        }
        may_have_held_less |= has_held_less;
        load.merge(Load {
            seen_ms: *held_ms,
            held_ms: *held_ms,
            known_ms: *known_ms,
            total: *worked,
        });
    }
    let held = load.held_ms;
    if load.worked() >= u64::from(terms.below.0).saturating_mul(held) {
        return Wastes::No;
    }
    if covers.is_none() {
        return Wastes::Unknown("what it did before it was looked at is not known");
    }
    // Where readings are missing it may have worked as hard as it can.
    if load.most() >= u64::from(terms.below.0).saturating_mul(held) {
        return Wastes::Unknown("whether it worked all the time is not known");
    }
    if may_have_held_less {
        return Wastes::Unknown("how much memory it held all the time is not known");
    }
    Wastes::With(load.total.checked_div(load.known_ms).unwrap_or(0))
}
