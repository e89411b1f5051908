//! Input of the guard between two samples: the outcome of an enforcement, a request for a
//! snooze, and the admin's confirmation after the guard had stopped.

use super::breaker::CircuitBreaker;
use super::ended_jobs::{EndProgress, EndedJob, PidStart};
use crate::guard::evaluate::CompiledRules;
use crate::guard::limits::milliseconds;
use crate::guard::person_key::PersonKey;
use crate::guard::snoozes::SnoozeGrant;
use crate::guard::state::{GuardState, JobKey};
use crate::guard::warning_state::SnoozeError;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{
    EnforcementOutcome, GuardMode, GuardRecord, GuardStep, OpenViolation, OwnedJob, RulesDoubt,
    RunKey, ViolationSubject,
};
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// A chosen job, from the decision until its outcome is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enforcement {
    /// The decision, with the [`Victim`](gpukill_proto::guard::Victim).
    pub record: GuardRecord,
    /// The job.
    pub job: OwnedJob,
    /// The job's processes on devices, by pid and start in ticks. A pid that now belongs to
    /// another process is left alone.
    pub processes: BTreeSet<PidStart>,
    /// The devices that the job was evaluated on.
    pub devices: BTreeSet<DeviceId>,
    /// When the job was chosen. It distinguishes this enforcement from a later one of the same
    /// job.
    at: Timestamp,
}

impl Enforcement {
    /// The outcome if no process is ended, with the reason.
    #[must_use]
    pub fn unenforced(&self, why: String) -> EnforcementOutcome {
        EnforcementOutcome {
            job: self.job.clone(),
            ended: 0,
            left: u32::try_from(self.processes.len()).unwrap_or(u32::MAX),
            why: Some(why),
        }
    }
}

fn job_key(job: &OwnedJob) -> JobKey {
    JobKey {
        uid: job.owner.uid,
        id: job.id.clone(),
    }
}

/// Whether signals were sent to a chosen job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalStatus {
    /// No process was signalled.
    Unsent,
    /// No process was signalled because too many other jobs are being ended. The job may be
    /// chosen again at once.
    Postponed,
    /// Signals were sent, or may have been sent.
    Sent,
}

/// A request for more time before a job is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnoozeRequest {
    /// The uid of the requester.
    pub requester: u32,
    /// The uid of the process owner.
    pub owner: u32,
    /// The process.
    pub process: PidStart,
    /// The job of the process, if it is known.
    pub job: Option<String>,
}

impl GuardState {
    /// The jobs that these records end. Records of a dry run end no job, and a job that is
    /// left to a scheduler is not ended.
    #[must_use]
    pub fn enforcements(&self, records: &[GuardRecord]) -> Vec<Enforcement> {
        let chosen = records.iter().filter_map(|record| {
            let victim = record.step.victim()?;
            if record.mode <= GuardMode::DryRun || victim.leave_to.is_some() {
                return None;
            }
            let ended = self.ended.get(&job_key(&victim.job))?;
            let devices = victim.runs.iter().map(|it| it.run.device.clone());
            Some(Enforcement {
                record: record.clone(),
                job: victim.job.clone(),
                processes: ended.remaining().copied().into_set(),
                devices: devices.into_set(),
                at: ended.at,
            })
        });
        chosen.collect()
    }

    /// Whether the job is still to get its first signal: the owner has not snoozed since it was
    /// chosen, and the guard was not switched off.
    /// [`withdrawal_reason`](Enforcement::withdrawal_reason) decides whether the rules still
    /// end it.
    #[must_use]
    pub fn is_still_chosen(&self, enforcement: &Enforcement) -> bool {
        let ended = self.ended.get(&job_key(&enforcement.job));
        ended.is_some_and(|it| it.progress == EndProgress::Chosen && it.at == enforcement.at)
    }

    /// Marks the enforcement as started. From now on, a process that may have been signalled is
    /// chosen again only after a wait.
    pub fn mark_started(&mut self, enforcement: &Enforcement) {
        if let Some(ended) = self.ended.get_mut(&job_key(&enforcement.job)) {
            ended.progress = EndProgress::Began;
        }
    }

    /// Records the outcome. A job that was not signalled may be chosen again after a wait;
    /// a postponed job at once.
    pub fn record_outcome(
        &mut self,
        enforcement: &Enforcement,
        (outcome, signals): (EnforcementOutcome, SignalStatus),
        at: Timestamp,
    ) -> GuardRecord {
        let progress = match signals {
            SignalStatus::Sent => EndProgress::Over,
            SignalStatus::Unsent => EndProgress::Failed,
            SignalStatus::Postponed => EndProgress::Postponed,
        };
        let record = &enforcement.record;
        if signals != SignalStatus::Sent {
            let person = PersonKey::from(&enforcement.job.owner);
            self.breaker.remove(&person, record.at);
        }
        let of_job = self.ended.get_mut(&job_key(&enforcement.job));
        if let Some(ended) = of_job.filter(|it| it.at == enforcement.at) {
            ended.progress = progress;
        }
        let violations = self.violations.get_mut(&record.rule);
        if let Some(violation) = violations.and_then(|it| it.of.get_mut(&record.subject)) {
            let has_survived = signals == SignalStatus::Sent && outcome.left > 0;
            violation.record_outcome(outcome.ended > 0, has_survived.then_some(at));
        }
        GuardRecord {
            at,
            step: GuardStep::Outcome(outcome),
            ..record.clone()
        }
    }

    /// Gives the warned owner of a process more time, for each rule that would end the
    /// process.
    ///
    /// # Errors
    /// The reason why no rule grants a snooze. The state is then unchanged.
    pub fn snooze(
        &mut self,
        compiled_rules: &CompiledRules,
        snoozer: &SnoozeRequest,
        at: Timestamp,
    ) -> Result<Vec<GuardRecord>, SnoozeError> {
        let is_ended = |it: &EndedJob| it.was_signalled(&snoozer.process);
        if self.ended.values().any(is_ended) {
            return Err(SnoozeError::TooLate);
        }
        let more = milliseconds(compiled_rules.rules().enforcement.snooze);
        let mut records = Vec::new();
        let mut why = None;
        let violations = self.violations.iter_mut();
        let violations = violations.flat_map(|(rule, violations)| {
            violations
                .of
                .iter_mut()
                .map(move |(subject, violation)| (rule, subject, violation))
        });
        for (rule, subject, violation) in violations {
            let Some(open) = violation.to_open_violation(rule, subject) else {
                continue;
            };
            if !snoozer.matches_violation(&open) {
                continue;
            }
            let Some(opened) = &mut violation.opened else {
                continue;
            };
            match opened.warned.snooze(snoozer.owner, more, at) {
                Ok(granted) => {
                    let record = GuardRecord {
                        at,
                        rule: open.rule,
                        subject: open.subject,
                        mode: open.mode,
                        step: GuardStep::Snoozed {
                            by: snoozer.requester,
                            owner: snoozer.owner,
                            until: granted.until,
                            left: granted.left,
                        },
                        evidence: open.evidence,
                        message: open.message,
                    };
                    let grant =
                        SnoozeGrant::from_record(&record, Some(snoozer.process), granted.used);
                    if !grant.is_some_and(|grant| self.snoozes.grant(grant)) {
                        return Err(SnoozeError::NoneLeft);
                    }
                    records.push(record);
                }
                Err(other) => why = why.min(Some(other)).or(Some(other)),
            }
        }
        for record in &records {
            self.cancel_orders(record, snoozer.owner);
        }
        match (records.is_empty(), why) {
            (false, _) => Ok(records),
            (true, Some(why)) => Err(why),
            (true, None) => Err(SnoozeError::NotBroken),
        }
    }

    /// Cancels the chosen orders of this rule against the jobs of an owner who has snoozed.
    fn cancel_orders(&mut self, record: &GuardRecord, owner: u32) {
        for (job, ended) in &mut self.ended {
            let is_of_rule = ended.rule.as_ref() == Some(&record.rule);
            let is_of_rule = is_of_rule && is_order_for(&record.subject, job, ended);
            let is_chosen = ended.progress == EndProgress::Chosen;
            if is_of_rule && is_chosen && job.uid == Some(owner) {
                ended.progress = EndProgress::Failed;
            }
        }
    }

    /// When the circuit breaker tripped. Since then no job is ended.
    #[must_use]
    pub const fn tripped_at(&self) -> Option<Timestamp> {
        self.breaker.tripped_at()
    }

    /// Whether the circuit breaker tripped in a dry run, which ends no jobs anyway.
    #[must_use]
    pub const fn is_trip_simulated(&self) -> bool {
        self.breaker.is_trip_simulated()
    }

    /// When the circuit breaker tripped for owners who are no user of the host, such as
    /// containers. Since then none of their jobs is ended.
    #[must_use]
    pub const fn others_tripped_at(&self) -> Option<Timestamp> {
        self.breaker.others_tripped_at()
    }

    /// Since when rules on behaviour only warn, because they may not fit this host.
    #[must_use]
    pub fn doubt(&self) -> Option<RulesDoubt> {
        self.doubt_tracker.doubt()
    }

    /// Resets the circuit breaker and confirms the rules as they are now. Earlier ends no
    /// longer count.
    pub fn resume(&mut self) {
        self.breaker = CircuitBreaker::default();
        self.doubt_tracker.confirm();
    }

    /// Adds a snooze that was granted elsewhere, for a test of rules or a replay.
    pub fn add_snooze(&mut self, grant: SnoozeGrant) {
        self.snoozes.grant(grant);
    }

    /// The snoozes of the last day.
    #[must_use]
    pub fn snoozes(&self) -> &[SnoozeGrant] {
        self.snoozes.all()
    }

    /// The state that is kept while the guard does not evaluate: signalled jobs, so that
    /// none is ended twice; the circuit breaker; the fit of the rules; the snoozes.
    #[must_use]
    pub fn into_paused(self) -> Self {
        let mut ended = self.ended;
        ended.retain_entries(|_, it| it.progress.had_signals() || !it.survivors.is_empty());
        Self {
            ended,
            breaker: self.breaker,
            doubt_tracker: self.doubt_tracker,
            snoozes: self.snoozes,
            ..Self::default()
        }
    }

    /// The state after a restart of the daemon. Signals of an earlier run are over, and their
    /// results are unknown: a process that may have been signalled counts as a survivor, and is
    /// signalled again after a wait. A job that was chosen and got no signal counts as not ended,
    /// takes no slot of others, and may be chosen again after a wait.
    #[must_use]
    pub fn into_restarted(mut self) -> Self {
        for ended in self.ended.values_mut() {
            match ended.progress {
                EndProgress::Began => {
                    ended.progress = EndProgress::Over;
                    // Late members get signals too.
                    ended.processes.append(&mut ended.joined);
                }
                EndProgress::Chosen => {
                    ended.progress = EndProgress::Failed;
                    if let Some(person) = &ended.person {
                        self.breaker.remove(person, ended.at);
                    }
                }
                EndProgress::Over | EndProgress::Failed | EndProgress::Postponed => {}
            }
        }
        for (rule, violations) in &mut self.violations {
            for (subject, violation) in &mut violations.of {
                let is_of_this = |(job, ended): &(&JobKey, &EndedJob)| {
                    ended.rule.as_ref() == Some(rule) && is_order_for(subject, job, ended)
                };
                let left = self.ended.iter().filter(is_of_this);
                violation.settle_end(left.map(|(_, it)| it.progress.had_signals()).max());
            }
        }
        self
    }

    /// The state that is kept after a reboot, when no process is the same as before.
    #[must_use]
    pub fn into_rebooted(self) -> Self {
        Self {
            breaker: self.breaker,
            doubt_tracker: self.doubt_tracker,
            ..Self::default()
        }
    }
}

/// Whether the job was chosen for a violation of this subject.
fn is_order_for(subject: &ViolationSubject, job: &JobKey, ended: &EndedJob) -> bool {
    match subject {
        ViolationSubject::Job(evaluated) => evaluated.id == job.id,
        ViolationSubject::Run(run) => ended
            .remaining()
            .any(|it| *it == (run.pid, run.start_ticks)),
        ViolationSubject::Person(_)
        | ViolationSubject::PersonOn(..)
        | ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_) => true,
    }
}

impl SnoozeRequest {
    /// Whether the evidence names the process, or the violation covers everything that its
    /// owner does.
    fn matches_violation(&self, open: &OpenViolation) -> bool {
        let is_it = |run: &RunKey| (run.pid, run.start_ticks) == self.process;
        let processes = &open.evidence.runs;
        if processes.iter().any(|process| is_it(&process.run)) {
            return true;
        }
        // The evidence names only the first of many processes, so this process may be one
        // of the others. An owner who was not warned still gets no more time.
        let are_all_listed = processes.len() >= open.evidence.count as usize;
        match &open.subject {
            ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => {
                person.uid == Some(self.owner)
            }
            ViolationSubject::Job(job) => {
                job.owner.uid == Some(self.owner) && self.job.as_ref() == Some(&job.id)
            }
            ViolationSubject::Run(run) => is_it(run),
            ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_) => !are_all_listed,
        }
    }
}
