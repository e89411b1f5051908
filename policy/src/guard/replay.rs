//! Rules tried on the past: bucket after bucket, by the judge that judges live.
//!
//! Whatever the rules say of their mode, it is a dry run: a job that would have been ended
//! goes on, as it did, and what it went on to use is what was freed.

mod silences;

mod too_much;

use super::bucket::{About, Bucket};
use super::ended::Process;
use super::judge::{Beyond, Bounds, Judgement, Rulebook, judge_within};
use super::losses::Losses;
use super::memory::Memory;
use super::rules::Rules;
use super::snoozes::Grant;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardStep, JudgedJob, JudgedRun, NotJudged, OpenViolation, RuleName,
    RuleOutcome, Subject, Victim,
};
use gpukill_proto::units::Timestamp;
use silences::Silences;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;
pub use too_much::TooMuch;

/// So many records are kept; more are counted.
pub const MOST_RECORDS: usize = 1_000;

/// So many policies times processes are looked at in one bucket: each may be about
/// each.
const MOST_PAIRS: usize = 1_000_000;

/// So many processes, persons, and things that could not be judged are counted.
const MOST_COUNTED: usize = 200_000;

/// So many kinds of what could not be judged are kept.
const MOST_NOT_JUDGED: usize = 100;

/// A replay that goes on.
#[derive(Debug)]
pub struct Replay {
    book: Rulebook,
    /// Of no rules, for what comes before.
    nothing: Rulebook,
    since: Timestamp,
    memory: Memory,
    /// The jobs that each rule would have ended, and their processes that are there still.
    ended_for: BTreeMap<(RuleName, JudgedJob), BTreeSet<Process>>,
    judged: u64,
    people: Distinct,
    runs: Distinct,
    /// Who was there in the bucket before, in its order.
    there: Vec<(Arc<JudgedRun>, Arc<About>)>,
    outcomes: BTreeMap<RuleName, RuleOutcome>,
    records: Vec<GuardRecord>,
    more_records: u64,
    not_judged: BTreeMap<(RuleName, String), Unknown>,
    /// How many subjects these have in all.
    subjects: usize,
    silences: Silences,
    losses: Losses,
}

#[derive(Debug, Default)]
struct Unknown {
    first: Option<Subject>,
    subjects: Distinct,
    for_ms: u64,
}

/// How many different ones there were. Names are long and many: of each a number is
/// kept that two hardly ever share.
#[derive(Debug, Default)]
struct Distinct(BTreeSet<u64>);

impl Distinct {
    /// Whether it is a new one.
    fn add(&mut self, one: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        one.hash(&mut hasher);
        self.0.insert(hasher.finish())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Replayed {
    /// How many buckets were judged.
    pub judged: u64,
    /// How many persons used a device.
    pub people: usize,
    /// How many processes did, each on each device.
    pub runs: usize,
    /// What came of each rule that did anything, the one that freed most first.
    pub outcomes: Vec<RuleOutcome>,
    /// The oldest first, at most [`MOST_RECORDS`].
    pub records: Vec<GuardRecord>,
    /// How many more there were.
    pub more_records: u64,
    /// Rules that were broken at the end.
    pub open: Vec<OpenViolation>,
    /// What could not be judged: devices, then by each rule the longest first.
    pub not_judged: Vec<NotJudged>,
}

impl Replay {
    /// Of these rules, as if they had been in force from then on. What comes before is
    /// only looked at: who was idle by then is.
    #[must_use]
    pub fn new(rules: Rules, since: Timestamp) -> Self {
        let nothing = Rules {
            enforcement: rules.enforcement.clone(),
            protect: rules.protect.clone(),
            person: rules.person,
            ..Rules::default()
        };
        let rules = Rules {
            mode: GuardMode::DryRun,
            ..rules
        };
        Self {
            book: Rulebook::of(rules),
            nothing: Rulebook::of(nothing),
            since,
            memory: Memory::default(),
            ended_for: BTreeMap::new(),
            judged: 0,
            people: Distinct::default(),
            runs: Distinct::default(),
            there: Vec::new(),
            outcomes: BTreeMap::new(),
            records: Vec::new(),
            more_records: 0,
            not_judged: BTreeMap::new(),
            subjects: 0,
            silences: Silences::default(),
            losses: Losses::default(),
        }
    }

    /// What is known of now, besides the samples, where the next bucket is the newest that
    /// there is: as [`Memory::loses`], which the guard asks before each.
    pub fn loses(&mut self, losses: Losses, lives: &dyn Fn(u32, u64) -> bool) {
        self.memory.loses(&losses, lives);
        self.losses = losses;
    }

    /// Notes a snooze that was granted by now. One of a rule that these rules lack says
    /// nothing here.
    pub fn snoozed(&mut self, grant: Grant) {
        if grant.has_rule(&self.book) {
            self.memory.snoozed(grant);
        }
    }

    /// Judges the next bucket.
    ///
    /// # Errors
    /// When it would keep too much: then it is of no use any more.
    pub fn add(&mut self, bucket: &Bucket) -> Result<(), TooMuch> {
        let tried = Bounds::TRIED;
        self.silences.add(bucket, bucket.until > self.since);
        if bucket.until <= self.since {
            let _ = judge_within(&tried, &self.nothing, &mut self.memory, bucket);
            return Ok(());
        }
        let (policies, processes) = (self.book.rules().policies(), bucket.runs.len());
        if policies.saturating_mul(processes) > MOST_PAIRS {
            return Err(TooMuch::Pairs(policies, processes));
        }
        self.judged += 1;
        self.meet(bucket);
        if self.runs.len() > MOST_COUNTED {
            return Err(TooMuch::Processes);
        }
        let Judgement {
            records,
            unjudged,
            unjudged_besides: _,
            beyond,
        } = judge_within(&tried, &self.book, &mut self.memory, bucket);
        match beyond {
            Beyond {
                looked_back: 1.., ..
            } => return Err(TooMuch::LookedBack),
            Beyond {
                violations: 1.., ..
            }
            | Beyond { findings: 1.., .. } => return Err(TooMuch::Violations),
            Beyond {
                findings: 0,
                violations: 0,
                looked_back: 0,
            } => {}
        }
        // Before those of this bucket are added, who held devices in all of it.
        self.add_freed(bucket);
        for record in &records {
            self.count(record);
        }
        for unjudged in unjudged {
            let key = (unjudged.rule, unjudged.why);
            let unknown = self.not_judged.entry(key).or_default();
            self.subjects += usize::from(unknown.subjects.add(&unjudged.subject));
            unknown.for_ms = unknown.for_ms.saturating_add(bucket.seen_ms);
            unknown.first.get_or_insert(unjudged.subject);
        }
        if self.subjects > MOST_COUNTED {
            return Err(TooMuch::NotJudged);
        }
        let room = MOST_RECORDS.saturating_sub(self.records.len());
        let more = records.len().saturating_sub(room);
        self.more_records = self.more_records.saturating_add(more as u64);
        self.records.extend(records.into_iter().take(room));
        Ok(())
    }

    /// Notes who is there. Most were in the bucket before.
    fn meet(&mut self, bucket: &Bucket) {
        let there = bucket.runs.iter();
        let there = there.map(|(run, judged)| (Arc::clone(run), Arc::clone(&judged.about)));
        let before = std::mem::replace(&mut self.there, there.collect());
        let mut before = before.iter().peekable();
        for now in &self.there {
            let is_same = |old: &&(Arc<JudgedRun>, Arc<About>)| {
                Arc::ptr_eq(&old.0, &now.0) && Arc::ptr_eq(&old.1, &now.1)
            };
            let (run, about) = now;
            while before
                .next_if(|old| !is_same(old) && old.0 < *run)
                .is_some()
            {}
            if before.next_if(is_same).is_some() {
                continue;
            }
            self.runs.add(run);
            let about = about.by(self.book.rules().person);
            if let Some(owner) = &about.owner {
                self.people.add(owner);
            }
        }
    }

    /// What the jobs use that would have been gone.
    fn add_freed(&mut self, bucket: &Bucket) {
        if self.ended_for.is_empty() {
            return;
        }
        // How long each process held devices.
        let mut held: BTreeMap<Process, u64> = BTreeMap::new();
        for (run, judged) in &bucket.runs {
            let of_process = held.entry((run.pid, run.start_ticks)).or_default();
            *of_process = of_process.saturating_add(judged.usage.shared_ms());
        }
        let outcomes = &mut self.outcomes;
        self.ended_for.retain(|(rule, _), processes| {
            processes.retain(|process| held.contains_key(process));
            let of_its = processes.iter().filter_map(|it| held.get(it));
            let freed = of_its.fold(0, |sum: u64, ms| sum.saturating_add(*ms));
            let outcome = outcome(outcomes, rule);
            outcome.freed_ms = outcome.freed_ms.saturating_add(freed);
            !processes.is_empty()
        });
    }

    fn count(&mut self, record: &GuardRecord) {
        let is_first = self.memory.is_first_warning(record);
        let outcome = outcome(&mut self.outcomes, &record.rule);
        match &record.step {
            GuardStep::Violated => outcome.violated += 1,
            GuardStep::Warned { .. } if is_first => {
                outcome.warned += 1;
                outcome.services += u64::from(record.evidence.is_spared_service);
            }
            GuardStep::Ended(Victim {
                leave_to: Some(_), ..
            }) => outcome.left += 1,
            GuardStep::Ended(victim) => {
                let job = (record.rule.clone(), victim.job.clone());
                let ends = self.memory.simulated_ends().into_iter();
                let mut ends = ends.filter(|end| {
                    end.violation.rule == record.rule
                        && end.violation.subject == Subject::Job(victim.job.clone())
                });
                let processes = ends.next().map(|end| end.processes).unwrap_or_default();
                // A rule ends a job once, though it would find it broken again.
                let before = self.ended_for.entry(job).or_default();
                let is_known = !before.is_empty();
                before.extend(processes);
                if is_known {
                    return;
                }
                outcome.ended += 1;
                // Who may have worked is to be looked at too.
                outcome.ended_busy += u64::from(victim.is_busy != Some(false));
            }
            GuardStep::Warned { .. }
            | GuardStep::Spared(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Acted(_)
            | GuardStep::Tripped { .. } => {}
        }
    }

    /// What came of it.
    #[must_use]
    pub fn finish(self) -> Replayed {
        let mut outcomes: Vec<RuleOutcome> = self.outcomes.into_values().collect();
        outcomes.sort_indirect_by_key(|it| Reverse((it.freed_ms, it.ended, it.warned)));
        let mut not_judged: Vec<NotJudged> = self
            .not_judged
            .into_iter()
            .filter_map(|((rule, why), unknown)| {
                Some(NotJudged {
                    rule: Some(rule),
                    why,
                    subject: unknown.first?,
                    subjects: unknown.subjects.len() as u64,
                    for_ms: unknown.for_ms,
                })
            })
            .collect();
        not_judged.sort_indirect_by_key(|it| Reverse(it.for_ms));
        let mut of_devices = self.silences.told(&self.losses);
        of_devices.append(&mut not_judged);
        let mut not_judged = of_devices;
        not_judged.truncate(MOST_NOT_JUDGED);
        Replayed {
            judged: self.judged,
            people: self.people.len(),
            runs: self.runs.len(),
            outcomes,
            records: self.records,
            more_records: self.more_records,
            open: {
                let open = self.memory.violations().into_iter();
                open.filter(|it| it.not_broken_since.is_none()).collect()
            },
            not_judged,
        }
    }
}

fn outcome<'a>(
    outcomes: &'a mut BTreeMap<RuleName, RuleOutcome>,
    rule: &RuleName,
) -> &'a mut RuleOutcome {
    outcomes.entry(rule.clone()).or_insert_with(|| RuleOutcome {
        rule: rule.clone(),
        violated: 0,
        warned: 0,
        ended: 0,
        ended_busy: 0,
        left: 0,
        services: 0,
        freed_ms: 0,
    })
}
