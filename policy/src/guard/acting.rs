//! What the guard is told between two buckets: what becomes of a job that it chose to
//! end, that somebody who was warned asks for more time, and that it is to go on after
//! it had stopped.

use super::breaker::Breaker;
use super::ended::{Ended, Process, Progress};
use super::judge::Rulebook;
use super::limits::milliseconds;
use super::memory::{JobKey, Memory, is_current};
use super::snoozes::Grant;
use super::warned::NotSnoozed;
use super::whose::PersonKey;
use gpukill_proto::guard::{
    Acted, GuardMode, GuardRecord, GuardStep, JudgedRun, OpenViolation, RulesDoubt, Subject,
};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeSet;

/// A job that was chosen, for whoever ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// What was decided, with the [`Victim`](gpukill_proto::guard::Victim).
    pub record: GuardRecord,
    /// Its processes on devices, by pid and start in ticks: none of them is another one
    /// by now, or it is left alone.
    pub processes: BTreeSet<Process>,
    /// When it was chosen, by which it is told from the same job chosen later.
    at: Timestamp,
    job: JobKey,
}

/// Whether a job that was chosen had signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signals {
    /// None was sent to any of its processes.
    Unsent,
    /// None was sent, as too many others are being ended: it is tried again at once.
    Postponed,
    /// They were, or may have been.
    Sent,
}

/// Who asks for more time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snoozer<'a> {
    /// The user who asks.
    pub by: u32,
    /// Whose process it is.
    pub owner: u32,
    /// The process.
    pub process: Process,
    /// Its job, where that is known.
    pub job: Option<&'a str>,
}

impl Memory {
    /// The jobs that these records say are ended, for real: what a dry run tells, and what
    /// a scheduler ends, is left out.
    #[must_use]
    pub fn endings(&self, records: &[GuardRecord]) -> Vec<Ending> {
        let endings = records.iter().filter_map(|record| {
            let victim = record.step.victim()?;
            if record.mode <= GuardMode::DryRun || victim.leave_to.is_some() {
                return None;
            }
            let job = JobKey {
                uid: victim.job.owner.uid,
                id: victim.job.id.clone(),
            };
            let ended = self.ended.get(&job)?;
            Some(Ending {
                record: record.clone(),
                processes: ended.all().copied().collect(),
                at: ended.at,
                job,
            })
        });
        endings.collect()
    }

    /// Whether signals may be sent for it now: all rules are in force as they were when it
    /// was chosen, and this is no rehearsal, and its owner was given no more time.
    #[must_use]
    pub fn may_begin(&self, book: &Rulebook, ending: &Ending) -> bool {
        let rule = &ending.record.rule;
        let policy = book.find(&rule.source);
        let course = policy.and_then(|policy| book.course(policy, rule.kind));
        let acts = course.is_some_and(|course| course.mode > GuardMode::DryRun);
        let ended = self.ended.get(&ending.job);
        let is_it = |ended: &&Ended| {
            ended.progress == Progress::Chosen
                && ended.at == ending.at
                && ended.rule_set == book.digest()
        };
        let ended = ended.filter(is_it);
        let by = ended.and_then(|ended| ended.rule.as_ref());
        acts && by.is_some_and(|(rule, digest)| is_current(book, rule, *digest))
    }

    /// Signals are about to be sent: whatever happens from here on, a process that had them
    /// is chosen again only after a while.
    pub fn begins(&mut self, ending: &Ending) {
        if let Some(ended) = self.ended.get_mut(&ending.job) {
            ended.progress = Progress::Began;
        }
    }

    /// What came of it, to be recorded. Where no signal was sent, it may be tried again
    /// after a while; where it only waits for others that are being ended, at once.
    pub fn acted(
        &mut self,
        ending: &Ending,
        (acted, signals): (Acted, Signals),
        at: Timestamp,
    ) -> GuardRecord {
        let progress = match signals {
            Signals::Sent => Progress::Over,
            Signals::Unsent => Progress::Failed,
            Signals::Postponed => Progress::Postponed,
        };
        if signals != Signals::Sent
            && let Some(victim) = ending.record.step.victim()
        {
            let person = PersonKey::from(&victim.job.owner);
            self.breaker.remove(&person, ending.record.at);
        }
        let of_job = self.ended.get_mut(&ending.job);
        if let Some(ended) = of_job.filter(|it| it.at == ending.at) {
            ended.progress = progress;
        }
        if acted.ended == 0 {
            let record = &ending.record;
            let clocks = self.clocks.get_mut(&record.rule);
            if let Some(clock) = clocks.and_then(|it| it.of.get_mut(&record.subject)) {
                clock.ended_nobody();
            }
        }
        GuardRecord {
            at,
            step: GuardStep::Acted(acted),
            ..ending.record.clone()
        }
    }

    /// Gives whoever was warned of a process more time, for each rule that would end it.
    ///
    /// # Errors
    /// Why no rule gives any; then nothing is changed.
    pub fn snooze(
        &mut self,
        book: &Rulebook,
        snoozer: Snoozer<'_>,
        at: Timestamp,
    ) -> Result<Vec<GuardRecord>, NotSnoozed> {
        let is_ended = |it: &Ended| it.has_signalled(&snoozer.process);
        if self.ended.values().any(is_ended) {
            return Err(NotSnoozed::TooLate);
        }
        let more = milliseconds(book.rules().enforcement.snooze);
        let mut records = Vec::new();
        let mut why = None;
        let clocks = self.clocks.iter_mut();
        let clocks = clocks.flat_map(|(rule, clocks)| {
            clocks
                .of
                .iter_mut()
                .map(move |(subject, clock)| (rule, subject, clock))
        });
        for (rule, subject, clock) in clocks {
            let Some(open) = clock.open(rule, subject) else {
                continue;
            };
            if !snoozer.is_about(&open) {
                continue;
            }
            let Some(opened) = &mut clock.opened else {
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
                            by: snoozer.by,
                            owner: snoozer.owner,
                            until: granted.until,
                            left: granted.left,
                        },
                        evidence: open.evidence,
                        message: open.message,
                    };
                    let grant = Grant::of(&record, Some(snoozer.process), granted.used);
                    if !grant.is_some_and(|grant| self.snoozes.grant(grant)) {
                        return Err(NotSnoozed::NoneLeft);
                    }
                    records.push(record);
                }
                Err(other) => why = why.min(Some(other)).or(Some(other)),
            }
        }
        for record in &records {
            self.spare_the_chosen(record, snoozer.owner);
        }
        match (records.is_empty(), why) {
            (false, _) => Ok(records),
            (true, Some(why)) => Err(why),
            (true, None) => Err(NotSnoozed::NotBroken),
        }
    }

    /// Whoever was given more time is not ended for that rule, though chosen a moment ago.
    fn spare_the_chosen(&mut self, record: &GuardRecord, owner: u32) {
        for (job, ended) in &mut self.ended {
            let is_of_rule = ended.rule.as_ref().is_some_and(|it| it.0 == record.rule);
            let is_of_rule = is_of_rule && is_of(&record.subject, job, ended);
            let is_chosen = ended.progress == Progress::Chosen;
            if is_of_rule && is_chosen && job.uid == Some(owner) {
                ended.progress = Progress::Failed;
            }
        }
    }

    /// Since when nobody is ended any more, as too many were.
    #[must_use]
    pub const fn tripped_at(&self) -> Option<Timestamp> {
        self.breaker.tripped_at()
    }

    /// Whether that was in a dry run, which ended nobody before either.
    #[must_use]
    pub const fn is_trip_simulated(&self) -> bool {
        self.breaker.is_trip_simulated()
    }

    /// Since when rules on behaviour only warn, as they may not fit this box.
    #[must_use]
    pub const fn doubt(&self) -> Option<RulesDoubt> {
        self.fit.doubt()
    }

    /// An admin says that it is to go on, by the rules as they are: who was ended before
    /// counts no more.
    pub fn goes_on(&mut self) {
        self.breaker = Breaker::default();
        self.fit.confirm();
    }

    /// Notes a snooze that was granted elsewhere: a test and a replay know of it too.
    pub fn snoozed(&mut self, grant: Grant) {
        self.snoozes.grant(grant);
    }

    /// The snoozes of the last day.
    #[must_use]
    pub fn snoozes(&self) -> &[Grant] {
        self.snoozes.all()
    }

    /// What holds while nobody is judged: who had signals is not ended a second time when
    /// somebody judges again, a guard that has stopped has stopped, and a snooze holds.
    #[must_use]
    pub fn at_rest(self) -> Self {
        let mut ended = self.ended;
        ended.retain(|_, it| it.progress.had_signals() || !it.survivors.is_empty());
        Self {
            ended,
            breaker: self.breaker,
            fit: self.fit,
            snoozes: self.snoozes,
            ..Self::default()
        }
    }

    /// What holds after the box was started anew, where no process is what it was.
    #[must_use]
    pub fn after_a_boot(self) -> Self {
        Self {
            breaker: self.breaker,
            fit: self.fit,
            ..Self::default()
        }
    }
}

/// Whether a job was chosen for what is violated by this.
fn is_of(subject: &Subject, job: &JobKey, ended: &Ended) -> bool {
    match subject {
        Subject::Job(judged) => judged.id == job.id,
        Subject::Run(run) => ended.all().any(|it| *it == (run.pid, run.start_ticks)),
        Subject::Person(_)
        | Subject::PersonOn(..)
        | Subject::Group(_)
        | Subject::GroupOn(..)
        | Subject::Device(_) => true,
    }
}

impl Snoozer<'_> {
    /// Whether a violation is known by that process, or is of all that its owner does.
    fn is_about(&self, open: &OpenViolation) -> bool {
        let is_it = |run: &JudgedRun| (run.pid, run.start_ticks) == self.process;
        let told = &open.evidence.runs;
        if told.iter().any(|told| is_it(&told.run)) {
            return true;
        }
        // Of many the first are told alone: it may be one of the others. Whoever was not
        // warned gets no more time all the same.
        let are_all_told = told.len() >= open.evidence.count as usize;
        match &open.subject {
            Subject::Person(person) | Subject::PersonOn(person, _) => {
                person.uid == Some(self.owner)
            }
            Subject::Job(job) => {
                job.owner.uid == Some(self.owner) && self.job == Some(job.id.as_str())
            }
            Subject::Run(run) => is_it(run),
            Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) => !are_all_told,
        }
    }
}
