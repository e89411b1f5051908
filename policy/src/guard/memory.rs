//! What the guard remembers from one bucket to the next. It can be written down and
//! read again, and goes on from there. What is gone from the box is forgotten.

pub(crate) mod claim;

pub(crate) mod pairs;

pub(crate) mod proof;

pub(crate) mod sight;

pub(crate) mod streak;

pub(crate) mod window;

use super::breaker::Breaker;
use super::bucket::{About, Bucket};
use super::clock::Clock;
use super::ended::{Ended, Process};
use super::fit::Fit;
use super::judge::{Names, Places, Rulebook, Selected, is_called, names};
use super::limits::milliseconds;
use super::simulated::SimulatedEnd;
use super::snoozes::Snoozes;
use crate::digest::Digest;
use claim::Claim;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{JudgedRun, OpenViolation, RuleName, Subject};
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use sight::Sight;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streak::Streak;
use window::{Held, Load, Waste, Window};

/// What the guard remembers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Until when it has judged.
    pub(crate) until: Option<Timestamp>,
    /// By which settings the rest was remembered: below how many percent a process
    /// does nothing, and the milliseconds by whose mean utilisation is judged.
    pub(crate) by: (u32, u64),
    /// What each job did.
    #[serde(with = "pairs::shared")]
    pub(crate) jobs: BTreeMap<Arc<JobKey>, JobMemory>,
    /// Utilisation of each process.
    #[serde(with = "pairs::shared")]
    pub(crate) loads: BTreeMap<Arc<JudgedRun>, Window<Load>>,
    /// Utilisation of each device.
    #[serde(with = "pairs")]
    pub(crate) devices: BTreeMap<DeviceId, Window<Load>>,
    /// What single rules look at.
    #[serde(with = "pairs")]
    pub(crate) conduct: BTreeMap<RuleName, ConductMemory>,
    /// What is violated, and what may be.
    #[serde(with = "pairs")]
    pub(crate) clocks: BTreeMap<RuleName, Clocks>,
    /// Jobs that were ended and have processes still.
    #[serde(with = "pairs")]
    pub(crate) ended: BTreeMap<JobKey, Ended>,
    /// Where somebody was ended a short while ago, and when.
    #[serde(with = "pairs")]
    pub(crate) cooling: BTreeMap<DeviceId, Timestamp>,
    /// How many were ended of late.
    pub(crate) breaker: Breaker,
    /// Whether rules on behaviour concern too many people.
    pub(crate) fit: Fit,
    /// Until when nothing of somebody is ended for a violation.
    pub(crate) snoozes: Snoozes,
    /// Which devices have told who uses them.
    pub(crate) sight: Sight,
    /// Processes that are part of another job by now than they were at first.
    #[serde(with = "pairs")]
    pub(crate) moved: BTreeMap<Process, JobKey>,
    #[serde(skip)]
    pub(crate) cache: Cache,
}

/// Names a job of somebody. What they are called by now is not in it, nor what their
/// container is: that may change while it runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JobKey {
    /// `None` where whose it is has no number: a container's.
    pub(crate) uid: Option<u32>,
    pub(crate) id: String,
}

/// What a job did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobMemory {
    /// As `list` showed it at first: so it keeps its name.
    pub(crate) shown: String,
    /// It does nothing.
    pub(crate) still: Streak,
    /// It does nothing, and nobody is connected to it.
    pub(crate) alone: Streak,
    /// What it holds of each device, and since when.
    #[serde(with = "pairs")]
    pub(crate) claims: BTreeMap<DeviceId, Claim>,
}

/// What one rule looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConductMemory {
    /// Of the rule.
    pub(crate) digest: Digest,
    #[serde(with = "pairs::shared")]
    pub(crate) waste: BTreeMap<Arc<JobKey>, Window<Waste>>,
    #[serde(with = "pairs::shared")]
    pub(crate) runaway: BTreeMap<Arc<JudgedRun>, Peak>,
    /// A job takes little processor time.
    #[serde(with = "pairs::shared")]
    pub(crate) cpu: BTreeMap<Arc<JobKey>, Streak>,
    #[serde(with = "pairs::shared")]
    pub(crate) growth: BTreeMap<Arc<JudgedRun>, Window<Held>>,
}

impl ConductMemory {
    /// Forgets windows, and keeps what bears a short time without readings.
    fn keeps_streaks(&mut self) -> &mut Self {
        self.waste.clear();
        self.runaway.clear();
        self.growth.clear();
        self
    }
}

/// A process that works on and on, and the most that it held meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peak {
    pub(crate) at_work: Streak,
    pub(crate) bytes: u64,
}

/// The clocks of one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clocks {
    /// Of the rule.
    pub(crate) digest: Digest,
    #[serde(with = "pairs")]
    pub(crate) of: BTreeMap<Subject, Clock>,
}

/// What is found once and holds as long as nothing else becomes known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cache {
    /// By which rules.
    rule_set: Option<Digest>,
    names: Names,
    places: Arc<Places>,
    processes: BTreeMap<Process, Known>,
    generation: u64,
}

#[derive(Debug, Clone)]
struct Known {
    about: Arc<About>,
    selected: Arc<Selected>,
    generation: u64,
}

impl Memory {
    /// The violations that go on, each with its clock.
    #[must_use]
    pub fn violations(&self) -> Vec<OpenViolation> {
        let clocks = self.clocks.iter().flat_map(|(rule, clocks)| {
            let of = clocks.of.iter();
            of.filter_map(|(subject, clock)| clock.open(rule, subject))
        });
        let at = self.until.unwrap_or_default();
        let with_snoozes = clocks.map(|open| OpenViolation {
            snoozed_until: self.snoozes.until(&open, at),
            ..open
        });
        with_snoozes.collect()
    }

    /// The jobs that a dry run would have ended and that are there still, with what they
    /// would have been ended for.
    #[must_use]
    pub fn simulated_ends(&self) -> Vec<SimulatedEnd> {
        let clocks = self.clocks.values().flat_map(|clocks| clocks.of.values());
        let opened = clocks.filter_map(|clock| clock.opened.as_ref());
        opened
            .flat_map(|it| it.simulated.values().cloned())
            .collect()
    }

    /// Readies it for a bucket: what the settings say otherwise, and what a gap makes
    /// unknown, is no longer remembered. Whether the bucket follows the last.
    pub(crate) fn turn_to(&mut self, book: &Rulebook, bucket: &Bucket) -> bool {
        let enforcement = &book.rules().enforcement;
        let window = milliseconds(enforcement.utilization_window);
        let by = (enforcement.idle_below.0, window);
        if self.by.0 != by.0 {
            self.jobs.clear();
        }
        if self.by.1 != by.1 {
            self.loads.clear();
            self.devices.clear();
        }
        self.by = by;
        let follows = match self.until {
            Some(until) => follows(until, bucket),
            None => is_steady(bucket),
        };
        if !follows {
            self.loads.clear();
            self.devices.clear();
            let ms = self.missed(bucket);
            let own = self.conduct.values_mut();
            let own = own.flat_map(|it| it.keeps_streaks().cpu.values_mut());
            let of_jobs = self.jobs.values_mut();
            let of_jobs = of_jobs.flat_map(|job| [&mut job.still, &mut job.alone]);
            for streak in of_jobs.chain(own) {
                streak.is_unknown(ms, bucket.until);
            }
            for clock in self.clocks.values_mut().flat_map(|it| it.of.values_mut()) {
                clock.lost_sight();
            }
        }
        if let Some(unjudged) = self.until.map(|until| unjudged(until, bucket))
            && unjudged.unsigned_abs() > GAP
        {
            for clock in self.clocks.values_mut().flat_map(|it| it.of.values_mut()) {
                clock.moves(unjudged);
            }
            for ended in self.ended.values_mut() {
                ended.moves(unjudged);
            }
            for since in self.cooling.values_mut() {
                *since = Timestamp(since.0.saturating_add(unjudged));
            }
            if unjudged < 0 {
                let jobs = self.jobs.values_mut();
                let claims = jobs.flat_map(|job| job.claims.values_mut());
                claims.for_each(|claim| claim.moves(unjudged));
            }
            self.breaker.moves(unjudged);
            self.snoozes.moves(unjudged);
        }
        self.sight.look(bucket, follows);
        self.until = Some(bucket.until);
        // What comes of a rule may be said otherwise: what was measured for it is known still.
        self.conduct.retain(|rule, memory| {
            let policy = book.find(&rule.source);
            policy.is_some_and(|policy| book.measured_digest(policy) == memory.digest)
        });
        follows
    }

    /// How many milliseconds up to the end of this bucket nobody looked; without end where
    /// the clock on the wall was set back.
    fn missed(&self, bucket: &Bucket) -> u64 {
        let last = self.until.filter(|last| *last <= bucket.until);
        last.map_or(u64::MAX, |last| milliseconds(bucket.until.since(last)))
    }

    /// Forgets how hard devices were worked: somebody was ended there, and what they did
    /// says nothing of those who stay.
    pub(crate) fn begins_anew(&mut self, is_one: impl Fn(&DeviceId) -> bool) {
        self.loads.retain(|run, _| !is_one(&run.device));
        self.devices.retain(|device, _| !is_one(device));
    }

    /// Which devices the policies are about.
    pub(crate) fn places(&mut self, book: &Rulebook, bucket: &Bucket) -> Arc<Places> {
        if self.cache.rule_set != Some(book.digest()) {
            self.cache = Cache {
                rule_set: Some(book.digest()),
                ..Cache::default()
            };
        } else if is_called(bucket, &self.cache.names) {
            return Arc::clone(&self.cache.places);
        }
        self.cache.names = names(bucket);
        self.cache.places = Arc::new(Places::of(book.rules(), &self.cache.names));
        Arc::clone(&self.cache.places)
    }

    /// What is said of a process. After [`Memory::places`].
    pub(crate) fn selected(
        &mut self,
        book: &Rulebook,
        run: &JudgedRun,
        about: &Arc<About>,
    ) -> Arc<Selected> {
        let process = (run.pid, run.start_ticks);
        let generation = self.cache.generation;
        if let Some(known) = self.cache.processes.get_mut(&process)
            && (Arc::ptr_eq(&known.about, about) || known.about == *about)
        {
            known.generation = generation;
            return Arc::clone(&known.selected);
        }
        let mut selected = Selected::of(book.rules(), about, Some(process));
        selected.job_key = selected
            .job_key
            .map(|now| self.first_job(process, about, now));
        let selected = Arc::new(selected);
        let known = Known {
            about: Arc::clone(about),
            selected: Arc::clone(&selected),
            generation,
        };
        self.cache.processes.insert(process, known);
        selected
    }

    /// The job that this process counts for, as it is part of this one now: the one that it
    /// was part of at first. Its clocks go on when its parent ends, and when its owner moves
    /// it from one cgroup to the next.
    fn first_job(&mut self, process: Process, about: &About, now: Arc<JobKey>) -> Arc<JobKey> {
        let known = self.cache.processes.get(&process);
        let is_elsewhere = known.is_some_and(|known| !known.about.is_placed_as(about));
        let moved = self.moved.get(&process);
        let was = known.filter(|known| known.about.job.is_some());
        let was = was.and_then(|known| known.selected.job_key.as_deref());
        let first = moved.or(was).filter(|_| !is_elsewhere);
        let Some(first) = first.filter(|first| first.uid == now.uid).cloned() else {
            self.moved.remove(&process);
            return now;
        };
        if first == *now {
            return now;
        }
        self.moved.insert(process, first.clone());
        Arc::new(first)
    }

    /// Forgets the processes that were not asked for since it did so last.
    pub(crate) fn forget_selected(&mut self) {
        let now = self.cache.generation;
        let known = &mut self.cache.processes;
        known.retain(|_, known| known.generation == now);
        self.moved.retain(|process, _| known.contains_key(process));
        self.cache.generation = now.wrapping_add(1);
    }
}

/// Lets go what is remembered of others than these, of whom there are `count`, all
/// remembered.
pub(crate) fn keep<'k, K: Ord + 'k, V>(
    map: &mut BTreeMap<K, V>,
    count: usize,
    there: impl Iterator<Item = &'k K>,
) {
    // Mostly nobody has gone.
    if map.len() != count {
        let there: BTreeSet<&K> = there.into_set();
        map.retain(|key, _| there.contains(key));
    }
}

/// Whether the rules still say what they said when something was remembered.
pub(crate) fn is_current(book: &Rulebook, rule: &RuleName, digest: Digest) -> bool {
    book.find(&rule.source)
        .is_some_and(|policy| book.policy_digest(policy) == digest)
}

/// So many milliseconds that nobody looked are counted as if somebody had: samples are
/// ten seconds each, and a daemon that is started anew is back sooner.
const GAP: u64 = 30_000;

/// How much of the time up to the end of a bucket, by the clock on the wall, nobody
/// looked; less than none where that was set back.
fn unjudged(last: Timestamp, bucket: &Bucket) -> i64 {
    let seen = i64::try_from(bucket.seen_ms).unwrap_or(i64::MAX);
    let by_the_wall = bucket.until.0.saturating_sub(last.0);
    by_the_wall.saturating_sub(seen)
}

/// Whether a bucket begins where the one before ended, and was seen as a whole, by
/// clocks that agree.
fn follows(last: Timestamp, bucket: &Bucket) -> bool {
    let apart = last.0.abs_diff(bucket.from.0);
    bucket.seen_ms > 0 && apart <= slack(bucket) && is_steady(bucket)
}

/// Whether it is as long by the clock on the wall as what was seen of it.
fn is_steady(bucket: &Bucket) -> bool {
    let length = milliseconds(bucket.until.since(bucket.from));
    length.abs_diff(bucket.seen_ms) <= slack(bucket)
}

/// A tenth and a second are for polls that come late.
const fn slack(bucket: &Bucket) -> u64 {
    (bucket.seen_ms / 10).saturating_add(1_000)
}
