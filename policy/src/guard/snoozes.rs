//! Snoozes: no job of a person is ended for a violation before the moment that the person
//! was promised.
//!
//! They are kept apart from the violation state, which restarts whenever the mode or the
//! rules change: a snooze holds in every mode, over restarts and reloads, until it is over.
//! It is void only when its rule is gone.

use super::enforcement::ended_jobs::PidStart;
use super::evaluate::CompiledRules;
use super::person_key::PersonRef;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{
    Evidence, GuardRecord, GuardStep, OpenViolation, RuleName, RuleSource, ViolationSubject,
};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnoozeList(Vec<SnoozeGrant>);

/// A snooze that was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnoozeGrant {
    rule: RuleName,
    subject: ViolationSubject,
    /// Uid of the owner of the jobs that are not ended.
    owner: u32,
    /// Processes of the violation: their job may have another name by now.
    processes: BTreeSet<PidStart>,
    granted: Timestamp,
    pub(crate) until: Timestamp,
    /// How often the person has asked.
    pub(crate) used: u32,
}

/// How many snoozes of one user are kept: a user cannot read more warnings at once.
const MAX_PER_USER: usize = 256;

/// How long a snooze is kept after it is over, so that a replay of the last day knows of
/// it.
const RETENTION: Duration = Duration::from_secs(24 * 3_600);

impl SnoozeGrant {
    /// Reads a snooze from its record, with the number of requests so far; `None` for any
    /// other record.
    #[must_use]
    pub fn from_record(record: &GuardRecord, process: Option<PidStart>, used: u32) -> Option<Self> {
        let GuardStep::Snoozed { owner, until, .. } = record.step else {
            return None;
        };
        let runs = record.evidence.runs.iter();
        let known = runs.map(|process| (process.run.pid, process.run.start_ticks));
        Some(Self {
            rule: record.rule.clone(),
            subject: record.subject.clone(),
            owner,
            processes: known.chain(process).into_set(),
            granted: record.at,
            until,
            used,
        })
    }

    fn is_active(&self, at: Timestamp) -> bool {
        self.granted <= at && at < self.until
    }

    fn matches(
        &self,
        rule: &RuleName,
        subject: &ViolationSubject,
        processes: &BTreeSet<PidStart>,
    ) -> bool {
        self.rule == *rule
            && match (&self.subject, subject) {
                (ViolationSubject::Job(then), ViolationSubject::Job(now)) => {
                    (then.owner.uid, &then.id) == (now.owner.uid, &now.id)
                        || !self.processes.is_disjoint(processes)
                }
                (ViolationSubject::Person(then), ViolationSubject::Person(now)) => {
                    PersonRef::from(then) == PersonRef::from(now)
                }
                (ViolationSubject::PersonOn(then, on), ViolationSubject::PersonOn(now, device)) => {
                    PersonRef::from(then) == PersonRef::from(now) && on == device
                }
                (then, now) => then == now,
            }
    }

    /// Whether a rule of this name and kind still exists.
    pub(crate) fn has_rule(&self, compiled_rules: &CompiledRules) -> bool {
        let Some(policy) = compiled_rules.find(&self.rule.source) else {
            return false;
        };
        match &self.rule.source {
            RuleSource::Rule(_) => compiled_rules.behaviour_kind(policy) == Some(self.rule.kind),
            RuleSource::Default
            | RuleSource::User(_)
            | RuleSource::Group(_)
            | RuleSource::Gpu(_)
            | RuleSource::Time(_) => true,
        }
    }

    fn into_voided_record(self, compiled_rules: &CompiledRules, at: Timestamp) -> GuardRecord {
        GuardRecord {
            at,
            rule: self.rule,
            subject: self.subject,
            mode: compiled_rules.rules().mode,
            step: GuardStep::SnoozeVoided {
                owner: self.owner,
                until: self.until,
            },
            evidence: Evidence {
                is_service_only_warned: false,
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

impl SnoozeList {
    /// Adds a snooze, in place of an earlier one of the same user for the same violation.
    /// Returns `false` if the user has too many.
    pub(crate) fn grant(&mut self, grant: SnoozeGrant) -> bool {
        let is_same = |known: &SnoozeGrant| {
            known.owner == grant.owner
                && known.matches(&grant.rule, &grant.subject, &grant.processes)
        };
        self.0.retain(|it| !is_same(it));
        let of_user = self.0.iter().filter(|it| it.owner == grant.owner).count();
        let has_room = of_user < MAX_PER_USER;
        if has_room {
            self.0.push(grant);
        }
        has_room
    }

    /// The snoozes that hold for a violation, by user.
    pub(crate) fn active_for(
        &self,
        rule: &RuleName,
        subject: &ViolationSubject,
        at: Timestamp,
        processes: impl FnOnce() -> BTreeSet<PidStart>,
    ) -> BTreeMap<u32, SnoozeGrant> {
        // Usually there is none.
        if self.0.is_empty() {
            return BTreeMap::new();
        }
        let processes = processes();
        let held = self.0.iter().filter(|it| it.is_active(at));
        let held = held.filter(|it| it.matches(rule, subject, &processes));
        held.map(|it| (it.owner, it.clone())).into_map()
    }

    /// Until when no job is ended for a violation, if all the people that it concerns have
    /// snoozed it.
    pub(crate) fn snoozed_until(&self, open: &OpenViolation, at: Timestamp) -> Option<Timestamp> {
        if self.0.is_empty() {
            return None;
        }
        let listed = &open.evidence.runs;
        let owners: BTreeSet<u32> = match &open.subject {
            ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => {
                person.uid.into_iter().into_set()
            }
            ViolationSubject::Job(job) => job.owner.uid.into_iter().into_set(),
            ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_)
            | ViolationSubject::Run(_) => {
                // People that the evidence does not name may not have snoozed.
                let are_all_named = listed.len() >= open.evidence.count as usize;
                let owners = listed.iter().map(|process| process.owner.as_ref()?.uid);
                let owners: Option<_> = owners.collect();
                owners.filter(|_| are_all_named).unwrap_or_default()
            }
        };
        let runs = listed.iter().map(|process| &process.run);
        let processes = runs.map(|run| (run.pid, run.start_ticks)).into_set();
        let of_owner = |owner: &u32| {
            let granted = self.0.iter().filter(|it| it.owner == *owner);
            let granted = granted.filter(|it| it.matches(&open.rule, &open.subject, &processes));
            granted.map(|it| it.until).filter(|until| *until > at).max()
        };
        let snoozed_until: Option<Vec<Timestamp>> = owners.iter().map(of_owner).collect();
        snoozed_until?.into_iter().min()
    }

    /// A violation is over: the person may ask as often as at first for the next one. The
    /// promised moment still holds.
    pub(crate) fn reset_requests(&mut self, rule: &RuleName, subject: &ViolationSubject) {
        let nothing = BTreeSet::new();
        for grant in &mut self.0 {
            if grant.matches(rule, subject, &nothing) {
                grant.used = 0;
            }
        }
    }

    /// The snoozes of the last day, for a replay of that time.
    pub(crate) fn all(&self) -> &[SnoozeGrant] {
        &self.0
    }

    /// Drops snoozes that are over, and returns the records of those that lost their rule.
    pub(crate) fn prune(
        &mut self,
        compiled_rules: &CompiledRules,
        at: Timestamp,
    ) -> Vec<GuardRecord> {
        self.0
            .retain(|it| at < it.until || at.since(it.until) < RETENTION);
        let (kept, gone) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|it| !it.is_active(at) || it.has_rule(compiled_rules));
        self.0 = kept;
        gone.into_iter()
            .map(|it| it.into_voided_record(compiled_rules, at))
            .collect()
    }

    /// Shifts the times by unobserved milliseconds.
    pub(crate) fn shift_time(&mut self, ms: i64) {
        for grant in &mut self.0 {
            grant.granted = Timestamp(grant.granted.0.saturating_add(ms.min(0)));
            grant.until = Timestamp(grant.until.0.saturating_add(ms));
        }
    }
}
