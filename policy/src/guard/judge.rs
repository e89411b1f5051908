//! Who breaks which rule in a bucket, and what comes of it.
//!
//! First the bucket is put in order ([`scene`]) and added to what is remembered; then
//! each kind of rule is looked at, a file each; then the clocks of what was found go
//! on a step ([`super::clock`]), and whose is over chooses somebody
//! ([`super::victims`]).

mod bounds;

mod book;

mod selected;

mod named;

mod places;

mod scene;

mod there;

mod finding;

mod scope;

mod access;

mod amounts;

mod utilization;

mod conduct;

mod duration;

mod idle;

mod claims;

mod waste;

mod runaway;

mod growth;

mod rogue;

mod steps;

pub use book::Rulebook;
pub(crate) use book::{Course, Policy, has_grace};
pub use bounds::Beyond;
pub(crate) use bounds::Bounds;
pub(crate) use finding::{Excess, Held, seen};
use gpukill_proto::collect::IntoSet as _;
pub(crate) use idle::is_busy;
pub(crate) use named::UNNAMED;
pub(crate) use places::{Names, Places, is_called, names};
pub(crate) use scene::{Job, Scene};
pub(crate) use selected::{Selected, protection};

use super::bucket::Bucket;
use super::memory::{ConductMemory, Memory};
use super::rules::Conduct;
use conduct::Concern;
use finding::{Finding, Findings, Whom};
use gpukill_proto::guard::{GuardMode, GuardRecord, Unjudged};
use std::collections::BTreeSet;

/// What came of one bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Judgement {
    /// What the guard decided, by rule and subject.
    pub records: Vec<GuardRecord>,
    /// What could not be judged: at most [`MOST_UNJUDGED`].
    pub unjudged: Vec<Unjudged>,
    /// How much more could not be judged.
    pub unjudged_besides: usize,
    /// What there was no room for.
    pub beyond: Beyond,
}

/// So much that could not be judged is told of in one bucket: of each process of a
/// crowded box one thing.
pub const MOST_UNJUDGED: usize = 10_000;

/// Judges a bucket by these rules and by what is remembered of those before it.
pub fn judge(book: &Rulebook, memory: &mut Memory, bucket: &Bucket) -> Judgement {
    judge_within(&Bounds::LIVE, book, memory, bucket)
}

/// As [`judge`], of which no more is kept than this. What goes on goes on; what there is
/// no room for is told of by its number alone.
pub(crate) fn judge_within(
    bounds: &Bounds,
    book: &Rulebook,
    memory: &mut Memory,
    bucket: &Bucket,
) -> Judgement {
    if book.rules().mode == GuardMode::Disabled {
        *memory = std::mem::take(memory).at_rest();
        return Judgement::default();
    }
    let bucket = &*bucket.by(book.rules().person);
    let follows = memory.turn_to(book, bucket);
    let mut scene = scene::scene(book, memory, bucket);
    let mut findings = Findings::within(bounds.findings);
    let mut beyond = Beyond::default();
    access::judge(&scene, &mut findings);
    idle::remember(memory, &mut scene);
    // The first bucket after a gap tells of a moment, and of no time.
    let is_seen = bucket.seen_ms > 0;
    if is_seen {
        utilization::remember(memory, &mut scene);
        amounts::judge(&scene, &mut findings);
        utilization::judge(&scene, memory, &mut findings);
        let concerns = conduct::concerns(&scene, &mut findings);
        let mut room = bounds.looked_back;
        for concern in &concerns {
            // The first rules have the room, so that it is not taken in turns.
            match room.checked_sub(concern.looked_back()) {
                Some(left) => {
                    room = left;
                    look_at(&scene, memory, concern, &mut findings);
                }
                None => {
                    beyond.looked_back += concern.looked_back();
                    let kind = concern.conduct.kind();
                    memory.conduct.remove(&book.name(concern.policy, kind));
                    for (job, _) in concern.jobs() {
                        let why = "rules look back over more than there is room for";
                        findings.unknown(concern.policy, kind, Whom::Job(job), why);
                    }
                }
            }
        }
        // What nobody is there for any more is forgotten.
        let names = concerns.iter();
        let names = names.map(|it| book.name(it.policy, it.conduct.kind()));
        let names: BTreeSet<_> = names.into_set();
        memory.conduct.retain(|rule, _| names.contains(rule));
    }
    let (unjudged, unjudged_besides) = unjudged(&scene, &findings);
    let when = (is_seen, follows);
    let records = steps::take(&scene, memory, &findings, when, bounds, &mut beyond);
    beyond.findings = findings.beyond;
    Judgement {
        records,
        unjudged,
        unjudged_besides,
        beyond,
    }
}

fn look_at(scene: &Scene<'_>, memory: &mut Memory, concern: &Concern, findings: &mut Findings) {
    match concern.conduct.clone() {
        Conduct::Duration(limit) => duration::judge(scene, concern, limit, findings),
        Conduct::Idle {
            limit,
            min_memory,
            with_connections,
            cpu_below,
        } => {
            let terms = idle::Terms {
                limit,
                min_memory,
                with_connections,
                cpu_below,
            };
            let memory = remembered(scene, memory, concern);
            idle::judge(scene, memory, concern, terms, findings);
        }
        Conduct::Waste {
            below,
            min_memory,
            hours,
        } => {
            let terms = waste::Terms {
                below,
                min_memory,
                hours,
            };
            let memory = remembered(scene, memory, concern);
            waste::judge(scene, memory, concern, terms, findings);
        }
        Conduct::Runaway {
            above,
            limit,
            orphaned,
        } => {
            let terms = runaway::Terms {
                above,
                limit,
                orphaned,
            };
            let memory = remembered(scene, memory, concern);
            runaway::judge(scene, memory, concern, terms, findings);
        }
        Conduct::Growth { by, within } => {
            let terms = growth::Terms { by, within };
            let memory = remembered(scene, memory, concern);
            growth::judge(scene, memory, concern, terms, findings);
        }
        Conduct::Rogue { from, threats } => {
            let terms = rogue::Terms {
                from,
                threats: &threats,
            };
            rogue::judge(scene, concern, terms, findings);
        }
    }
}

/// What a rule's own memory holds.
fn remembered<'m>(
    scene: &Scene<'_>,
    memory: &'m mut Memory,
    concern: &Concern,
) -> &'m mut ConductMemory {
    let rule = scene.book.name(concern.policy, concern.conduct.kind());
    let digest = scene.book.measured_digest(concern.policy);
    let memory = memory.conduct.entry(rule).or_default();
    memory.digest = digest;
    memory
}

/// What could not be judged, by rule and subject.
fn unjudged(scene: &Scene<'_>, findings: &Findings) -> (Vec<Unjudged>, usize) {
    let book = scene.book;
    let mut unjudged = Vec::new();
    let mut besides = 0;
    for ((policy, kind), of_rule) in &findings.of {
        if book.course(*policy, *kind).is_none() {
            continue;
        }
        let unknown = of_rule.iter().filter_map(|(whom, finding)| match finding {
            Finding::Holds(_) | Finding::Stale => None,
            Finding::Unknown(why) => Some((scene.subject(*whom), why)),
        });
        let mut unknown: Vec<_> = unknown.collect();
        unknown.sort_unstable();
        let room = MOST_UNJUDGED - unjudged.len();
        besides += unknown.len().saturating_sub(room);
        unjudged.extend(
            unknown
                .into_iter()
                .take(room)
                .map(|(subject, why)| Unjudged {
                    rule: book.name(*policy, *kind),
                    subject,
                    why: why.clone().into_owned(),
                }),
        );
    }
    (unjudged, besides)
}
