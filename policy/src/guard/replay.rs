//! Rules tried on the past: bucket after bucket, by the judge that judges live.
//!
//! Whatever the rules say of their mode, they are rehearsed: whoever would have been
//! ended is gone from then on, and what they went on to use is what was freed.

use super::bucket::{About, Bucket};
use super::ghosts::Process;
use super::judge::{Judgement, Rulebook, judge};
use super::memory::{JobKey, Memory};
use super::rules::Rules;
use gpukill_proto::guard::{
    GuardMode, GuardRecord, GuardStep, JudgedRun, NotJudged, OpenViolation, Person, RuleName,
    RuleOutcome, Subject, Victim,
};
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many records are kept; more are counted.
pub const MOST_RECORDS: usize = 1_000;

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
    /// For which rule a job was ended.
    ended_for: BTreeMap<JobKey, RuleName>,
    judged: u64,
    people: BTreeSet<Person>,
    runs: BTreeSet<Arc<JudgedRun>>,
    /// Who was there in the bucket before, in its order.
    there: Vec<(Arc<JudgedRun>, Arc<About>)>,
    outcomes: BTreeMap<RuleName, RuleOutcome>,
    records: Vec<GuardRecord>,
    more_records: u64,
    not_judged: BTreeMap<(RuleName, String), Unknown>,
}

#[derive(Debug, Default)]
struct Unknown {
    subjects: BTreeSet<Subject>,
    for_ms: u64,
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
    /// Violations that went on at the end.
    pub open: Vec<OpenViolation>,
    /// What could not be judged, the longest first.
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
            people: BTreeSet::new(),
            runs: BTreeSet::new(),
            there: Vec::new(),
            outcomes: BTreeMap::new(),
            records: Vec::new(),
            more_records: 0,
            not_judged: BTreeMap::new(),
        }
    }

    /// Judges the next bucket.
    pub fn add(&mut self, bucket: &Bucket) {
        if bucket.until <= self.since {
            let _ = judge(&self.nothing, &mut self.memory, bucket);
            return;
        }
        self.judged += 1;
        self.meet(bucket);
        let Judgement {
            records, unjudged, ..
        } = judge(&self.book, &mut self.memory, bucket);
        // Before those of this bucket are added, who held devices in all of it.
        self.add_freed(bucket);
        for record in &records {
            self.count(record);
        }
        for unjudged in unjudged {
            let key = (unjudged.rule, unjudged.why);
            let unknown = self.not_judged.entry(key).or_default();
            unknown.subjects.insert(unjudged.subject);
            unknown.for_ms = unknown.for_ms.saturating_add(bucket.seen_ms);
        }
        let room = MOST_RECORDS.saturating_sub(self.records.len());
        let more = records.len().saturating_sub(room);
        self.more_records = self.more_records.saturating_add(more as u64);
        self.records.extend(records.into_iter().take(room));
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
            if !self.runs.contains(run) {
                self.runs.insert(Arc::clone(run));
            }
            if let Some(owner) = &about.owner
                && !self.people.contains(owner)
            {
                self.people.insert(owner.clone());
            }
        }
    }

    /// What those use who would have been gone.
    fn add_freed(&mut self, bucket: &Bucket) {
        self.ended_for
            .retain(|job, _| self.memory.ended.contains_key(job));
        if self.ended_for.is_empty() {
            return;
        }
        // How long each process held devices.
        let mut held: BTreeMap<Process, u64> = BTreeMap::new();
        for (run, judged) in &bucket.runs {
            let of_process = held.entry((run.pid, run.start_ticks)).or_default();
            *of_process = of_process.saturating_add(judged.usage.shared_ms());
        }
        for (job, rule) in &self.ended_for {
            let Some(ended) = self.memory.ended.get(job) else {
                continue;
            };
            let of_its = ended.all().filter_map(|it| held.get(it));
            let freed = of_its.fold(0, |sum: u64, ms| sum.saturating_add(*ms));
            let outcome = outcome(&mut self.outcomes, rule);
            outcome.freed_ms = outcome.freed_ms.saturating_add(freed);
        }
    }

    fn count(&mut self, record: &GuardRecord) {
        let outcome = outcome(&mut self.outcomes, &record.rule);
        match &record.step {
            GuardStep::Violated => outcome.violated += 1,
            GuardStep::Warned { times: 1, .. } => outcome.warned += 1,
            GuardStep::Ended(Victim {
                leave_to: Some(_), ..
            }) => outcome.left += 1,
            GuardStep::Ended(victim) => {
                let job = JobKey {
                    owner: victim.job.owner.clone(),
                    id: victim.job.id.clone(),
                };
                self.ended_for.insert(job, record.rule.clone());
                outcome.ended += 1;
                // Who may have worked is to be looked at too.
                outcome.ended_busy += u64::from(victim.is_busy != Some(false));
            }
            GuardStep::Warned { .. } | GuardStep::Spared(_) | GuardStep::Over => {}
        }
    }

    /// What came of it.
    #[must_use]
    pub fn finish(self) -> Replayed {
        let mut outcomes: Vec<RuleOutcome> = self.outcomes.into_values().collect();
        outcomes.sort_by_key(|it| Reverse((it.freed_ms, it.ended, it.warned)));
        let mut not_judged: Vec<NotJudged> = self
            .not_judged
            .into_iter()
            .map(|((rule, why), unknown)| NotJudged {
                rule,
                why,
                subjects: unknown.subjects.len() as u64,
                for_ms: unknown.for_ms,
            })
            .collect();
        not_judged.sort_by_key(|it| Reverse(it.for_ms));
        not_judged.truncate(MOST_NOT_JUDGED);
        Replayed {
            judged: self.judged,
            people: self.people.len(),
            runs: self.runs.len(),
            outcomes,
            records: self.records,
            more_records: self.more_records,
            open: self.memory.violations(),
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
        freed_ms: 0,
    })
}
