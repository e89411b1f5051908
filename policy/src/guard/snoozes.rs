//! Snoozes: nothing of a person is ended for a violation before a moment that they were told.
//!
//! They are kept apart from the violation's own state, which begins anew whenever the mode or
//! the rules change: a snooze holds in every mode, over restarts and reloads, until it is over.
//! It is void only when its rule is gone.

use super::ended::Process;
use super::judge::Rulebook;
use super::whose::Whose;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::{
    Evidence, GuardRecord, GuardStep, OpenViolation, RuleName, RuleSource, Subject,
};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The snoozes that hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snoozes(Vec<Grant>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    rule: RuleName,
    subject: Subject,
    /// Whose jobs are not ended: the user's number.
    owner: u32,
    /// Processes by which the violation was known: a job may have another name by now.
    processes: BTreeSet<Process>,
    granted: Timestamp,
    pub(crate) until: Timestamp,
    /// How often they have asked.
    pub(crate) used: u32,
}

/// How many of one user are kept: nobody is warned of more at once that they could read.
const MAX_OF_USER: usize = 256;

/// How long one that is over is kept, so that a replay of the last day knows of it.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

impl Grant {
    /// As it was recorded, after so many requests; `None` of any other record.
    #[must_use]
    pub fn of(record: &GuardRecord, process: Option<Process>, used: u32) -> Option<Self> {
        let GuardStep::Snoozed { owner, until, .. } = record.step else {
            return None;
        };
        let runs = record.evidence.runs.iter();
        let known = runs.map(|told| (told.run.pid, told.run.start_ticks));
        Some(Self {
            rule: record.rule.clone(),
            subject: record.subject.clone(),
            owner,
            processes: known.chain(process).collect(),
            granted: record.at,
            until,
            used,
        })
    }

    fn holds(&self, at: Timestamp) -> bool {
        self.granted <= at && at < self.until
    }

    fn is_for(&self, rule: &RuleName, subject: &Subject, processes: &BTreeSet<Process>) -> bool {
        self.rule == *rule
            && match (&self.subject, subject) {
                (Subject::Job(then), Subject::Job(now)) => {
                    (then.owner.uid, &then.id) == (now.owner.uid, &now.id)
                        || !self.processes.is_disjoint(processes)
                }
                (Subject::Person(then), Subject::Person(now)) => {
                    Whose::from(then) == Whose::from(now)
                }
                (Subject::PersonOn(then, on), Subject::PersonOn(now, device)) => {
                    Whose::from(then) == Whose::from(now) && on == device
                }
                (then, now) => then == now,
            }
    }

    /// Whether a rule of this name and kind is still there.
    pub(crate) fn has_rule(&self, book: &Rulebook) -> bool {
        let Some(policy) = book.find(&self.rule.source) else {
            return false;
        };
        match &self.rule.source {
            RuleSource::Rule(_) => book.conduct(policy) == Some(self.rule.kind),
            RuleSource::Default
            | RuleSource::User(_)
            | RuleSource::Group(_)
            | RuleSource::Gpu(_)
            | RuleSource::Time(_) => true,
        }
    }

    fn voided(self, book: &Rulebook, at: Timestamp) -> GuardRecord {
        GuardRecord {
            at,
            rule: self.rule,
            subject: self.subject,
            mode: book.rules().mode,
            step: GuardStep::SnoozeVoided {
                owner: self.owner,
                until: self.until,
            },
            evidence: Evidence {
                is_spared_service: false,
                measured: None,
                since: at,
                runs: Vec::new(),
                count: 0,
                unknown: 0,
                threat: None,
            },
            message: None,
        }
    }
}

impl Snoozes {
    /// Notes one, in place of what the same user had for the same. `false` where they have
    /// too many.
    pub(crate) fn grant(&mut self, grant: Grant) -> bool {
        let is_same = |it: &Grant| {
            it.owner == grant.owner && it.is_for(&grant.rule, &grant.subject, &grant.processes)
        };
        self.0.retain(|it| !is_same(it));
        let of_user = self.0.iter().filter(|it| it.owner == grant.owner).count();
        let has_room = of_user < MAX_OF_USER;
        if has_room {
            self.0.push(grant);
        }
        has_room
    }

    /// Those that hold for a violation, by user.
    pub(crate) fn of(
        &self,
        rule: &RuleName,
        subject: &Subject,
        at: Timestamp,
        processes: impl FnOnce() -> BTreeSet<Process>,
    ) -> BTreeMap<u32, Grant> {
        // Mostly there is none.
        if self.0.is_empty() {
            return BTreeMap::new();
        }
        let processes = processes();
        let held = self.0.iter().filter(|it| it.holds(at));
        let held = held.filter(|it| it.is_for(rule, subject, &processes));
        held.map(|it| (it.owner, it.clone())).into_map()
    }

    /// Until when nothing is ended for a violation, as everybody it is about has snoozed it.
    pub(crate) fn until(&self, open: &OpenViolation, at: Timestamp) -> Option<Timestamp> {
        if self.0.is_empty() {
            return None;
        }
        let told = &open.evidence.runs;
        let owners: BTreeSet<u32> = match &open.subject {
            Subject::Person(person) | Subject::PersonOn(person, _) => {
                person.uid.into_iter().collect()
            }
            Subject::Job(job) => job.owner.uid.into_iter().collect(),
            Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) | Subject::Run(_) => {
                // Of those who are not named nobody may have snoozed.
                let are_all_named = told.len() >= open.evidence.count as usize;
                let owners = told.iter().map(|told| told.owner.as_ref()?.uid);
                let owners: Option<_> = owners.collect();
                owners.filter(|_| are_all_named).unwrap_or_default()
            }
        };
        let runs = told.iter().map(|told| &told.run);
        let processes = runs.map(|run| (run.pid, run.start_ticks)).collect();
        let of_owner = |owner: &u32| {
            let granted = self.0.iter().filter(|it| it.owner == *owner);
            let granted = granted.filter(|it| it.is_for(&open.rule, &open.subject, &processes));
            granted.map(|it| it.until).filter(|until| *until > at).max()
        };
        let untils: Option<Vec<Timestamp>> = owners.iter().map(of_owner).collect();
        untils?.into_iter().min()
    }

    /// A violation is over: who breaks the rule again may ask as often as at first. Until
    /// what they were told nothing of theirs is ended all the same.
    pub(crate) fn begin_anew(&mut self, rule: &RuleName, subject: &Subject) {
        let nothing = BTreeSet::new();
        for grant in &mut self.0 {
            if grant.is_for(rule, subject, &nothing) {
                grant.used = 0;
            }
        }
    }

    /// Those of the last day, for whoever judges that time again.
    pub(crate) fn all(&self) -> &[Grant] {
        &self.0
    }

    /// Forgets those that are over, and returns what is to be recorded of those whose rule
    /// is gone.
    pub(crate) fn settle(&mut self, book: &Rulebook, at: Timestamp) -> Vec<GuardRecord> {
        self.0
            .retain(|it| at < it.until || at.since(it.until) < KEPT);
        let (kept, gone) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|it| !it.holds(at) || it.has_rule(book));
        self.0 = kept;
        gone.into_iter().map(|it| it.voided(book, at)).collect()
    }

    /// So much time was nobody's.
    pub(crate) fn moves(&mut self, ms: i64) {
        for grant in &mut self.0 {
            grant.granted = Timestamp(grant.granted.0.saturating_add(ms.min(0)));
            grant.until = Timestamp(grant.until.0.saturating_add(ms));
        }
    }
}
