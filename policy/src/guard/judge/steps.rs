//! The clocks go on a step: what was found confirms, warns, ends; what was not found
//! settles; what is gone is over.

mod clocks;

mod simulated;

use super::super::breaker::{Breaker, Counted};
use super::super::clock::{Clock, Due, Opened};
use super::super::fit::Fit;
use super::super::memory::proof::Proof;
use super::super::memory::sight::Sight;
use super::super::memory::{JobKey, JobMemory, Memory};
use super::super::simulated::SimulatedEnd;
use super::super::snoozes::{Grant, Snoozes};
use super::super::victims::{Choice, Chosen, Ended, Terms, choose, process};
use super::super::whose::PersonKey;
use super::book::{Course, Policy};
use super::bounds::{Beyond, Bounds};
use super::finding::{Excess, Finding, Findings, Held};
use super::scene::Scene;
use clocks::{is_of_processes, outdated, over, start};
use gpukill_proto::guard::{GuardAction, GuardMode, GuardRecord, GuardStep, RuleName, Subject};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes it, for every clock there is or begins.
pub(crate) fn take(
    scene: &Scene<'_>,
    memory: &mut Memory,
    findings: &Findings,
    (is_seen, follows): (bool, bool),
    bounds: &Bounds,
    beyond: &mut Beyond,
) -> Vec<GuardRecord> {
    let mut records = Vec::new();
    let mut clocks = std::mem::take(&mut memory.clocks);
    outdated(scene, &mut clocks, &mut records);
    records.extend(memory.snoozes.settle(scene.book, scene.bucket.until));
    let mut snoozes = std::mem::take(&mut memory.snoozes);
    let mut fit = std::mem::take(&mut memory.fit);
    for (policy, kind) in findings.of.keys() {
        let of_rule = clocks.entry(scene.book.name(*policy, *kind)).or_default();
        of_rule.digest = scene.book.policy_digest(*policy);
    }
    let going: usize = clocks.values().map(|of_rule| of_rule.of.len()).sum();
    let mut room = bounds.violations.saturating_sub(going);
    // Of what is not among the findings it is not known then that it does not hold.
    let is_whole = findings.beyond == 0;
    let mut ended = Ended::of(memory, scene);
    let sight = std::mem::take(&mut memory.sight);
    let jobs = std::mem::take(&mut memory.jobs);
    let mut breaker = std::mem::take(&mut memory.breaker);
    breaker.forget(scene.bucket.until);
    for (rule, of_rule) in &mut clocks {
        let Some(policy) = scene.book.find(&rule.source) else {
            continue;
        };
        let Some(course) = scene.book.course(policy, rule.kind) else {
            continue;
        };
        let nothing = BTreeMap::new();
        let found = findings.of.get(&(policy, rule.kind)).unwrap_or(&nothing);
        let mut look = Look {
            scene,
            sight: &sight,
            jobs: &jobs,
            rule,
            of_rule: (policy, &course),
            course: Cow::Borrowed(&course),
            records: &mut records,
            is_judged: is_whole && (is_seen || rule.kind.is_access()),
            follows,
            breaker: &mut breaker,
            snoozes: &mut snoozes,
            fit: &fit,
        };
        let mut whoms = start(scene, &mut of_rule.of, found, &mut room, beyond).into_iter();
        of_rule.of.retain(|subject, clock| {
            let whom = whoms.next().flatten();
            match whom.and_then(|whom| found.get(&whom)) {
                Some(Finding::Holds(held)) => look.holds(subject, clock, held, &mut ended),
                Some(Finding::Unknown(_) | Finding::Stale) => {
                    clock.lost_sight();
                    true
                }
                None => look.holds_not(subject, clock, whom.is_some()),
            }
        });
    }
    clocks.retain(|_, of_rule| !of_rule.of.is_empty());
    if let Some((rule, subject, clock, step)) = fit.count(scene, &clocks) {
        let opened = clock.opened.as_ref();
        records.extend(opened.map(|opened| GuardRecord {
            at: scene.bucket.until,
            rule: rule.clone(),
            subject: subject.clone(),
            mode: opened.mode,
            step,
            evidence: opened.evidence.told(),
            message: opened.message.clone(),
        }));
    }
    memory.snoozes = snoozes;
    memory.fit = fit;
    memory.clocks = clocks;
    memory.sight = sight;
    memory.jobs = jobs;
    memory.breaker = breaker;
    ended.remember(memory);
    records
}

/// A look at one rule.
struct Look<'l, 'a> {
    scene: &'l Scene<'a>,
    sight: &'l Sight,
    jobs: &'l BTreeMap<Arc<JobKey>, JobMemory>,
    rule: &'l RuleName,
    /// What comes of it for whomever nothing milder is said of.
    of_rule: (Policy, &'l Course),
    /// What comes of it for whom is looked at.
    course: Cow<'l, Course>,
    records: &'l mut Vec<GuardRecord>,
    /// The bucket tells whether it holds, where anything does.
    is_judged: bool,
    /// The bucket begins where the last one ended, by clocks that agree: while they do
    /// not, or after nobody looked, nobody is ended.
    follows: bool,
    breaker: &'l mut Breaker,
    snoozes: &'l mut Snoozes,
    fit: &'l Fit,
}

impl<'l> Look<'l, '_> {
    /// Whether the clock stays.
    fn holds(
        &mut self,
        subject: &Subject,
        clock: &mut Clock,
        held: &Held,
        ended: &mut Ended,
    ) -> bool {
        if let Some(since) = held.since {
            clock.holds_since(self.rule.kind, since);
        }
        self.course = self.course_of(subject, held);
        let is_spared_service = self.course.action == GuardAction::Terminate
            && self.rule.kind.spares_services()
            && !self.scene.book.ends_services(self.of_rule.0)
            && self.is_service(held);
        let is_doubted = !self.is_dry_run() && self.fit.only_warns(self.rule.kind);
        if is_spared_service || is_doubted {
            self.course.to_mut().action = GuardAction::Warn;
        }
        let at = self.scene.bucket.until;
        let since = clock.since;
        let proof = || Proof {
            is_spared_service,
            ..held.proof(self.scene, since)
        };
        let processes = || {
            held.runs
                .iter()
                .map(|run| process(self.scene, *run))
                .collect()
        };
        let snoozes = self.snoozes.of(self.rule, subject, at, processes);
        let turn = clock.holds(self.rule.kind, &self.course, (at, &snoozes), proof);
        for step in turn.steps {
            self.record(subject, step, clock);
        }
        if turn.due != Due::Nobody && self.follows {
            self.ends(subject, clock, held, (&turn.due, &snoozes), ended);
        }
        self.update_simulated(subject, clock);
        true
    }

    /// Whether it is about a service: the whole job counts.
    fn is_service(&self, held: &Held) -> bool {
        let jobs = held.runs.iter().filter_map(|run| self.scene.runs[*run].job);
        let mut runs = jobs.map(|job| &self.scene.jobs[job].runs);
        runs.any(|runs| self.scene.is_service(runs) == Some(true))
    }

    /// What comes of it for whoever this is: where that is one person, their own policy may
    /// be milder than the rule.
    fn course_of(&self, subject: &Subject, held: &Held) -> Cow<'l, Course> {
        let (policy, course) = self.of_rule;
        let users = held.runs.iter().flat_map(|run| {
            let (profile, _) = &self.scene.profiles[self.scene.runs[*run].profile];
            profile.users()
        });
        match subject {
            Subject::Person(_) | Subject::PersonOn(..) | Subject::Job(_) | Subject::Run(_) => {
                self.scene.book.milder(course, policy, users)
            }
            Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) => Cow::Borrowed(course),
        }
    }

    /// Somebody is to be ended, where anybody may be.
    fn ends(
        &mut self,
        subject: &Subject,
        clock: &mut Clock,
        held: &Held,
        (due, snoozes): (&Due, &BTreeMap<u32, Grant>),
        ended: &mut Ended,
    ) {
        if held.excess != Excess::All && self.is_cooling(subject, clock, ended) {
            return clock.looks_anew();
        }
        let nothing = BTreeMap::new();
        let opened = clock.opened.as_ref();
        let terms = Terms {
            due,
            mode: self.course.mode,
            jobs: self.jobs,
            left_to: opened.and_then(|it| it.left_to.as_ref()),
            snoozes,
            simulated: opened.map_or(&nothing, |it| &it.simulated),
        };
        match choose(self.scene, held, ended, &terms) {
            Choice::Nobody(why) => {
                let why = || why.told(self.scene, self.rule.kind);
                if let Some(step) = clock.spared(why) {
                    self.record(subject, step, clock);
                }
            }
            Choice::NotDue => {}
            Choice::NotYet => clock.looks_anew(),
            Choice::Job(chosen) => self.chosen(subject, clock, chosen, ended),
        }
    }

    /// Whether somebody was ended for this a short while ago, or, where it is about a whole
    /// device, on that: what they held is still coming back.
    fn is_cooling(&self, subject: &Subject, clock: &Clock, ended: &Ended) -> bool {
        let cooldown = self.scene.book.rules().enforcement.cooldown;
        let at = self.scene.bucket.until;
        let ended_at = clock.opened.as_ref().and_then(Opened::ended_at);
        // A clock that was set back a little ends nothing.
        let of_this = ended_at.is_some_and(|since| at.since(since.min(at)) < cooldown);
        let of_device = match subject {
            Subject::Device(device) => ended.is_cooling(device),
            Subject::Person(_)
            | Subject::PersonOn(..)
            | Subject::Group(_)
            | Subject::GroupOn(..)
            | Subject::Job(_)
            | Subject::Run(_) => false,
        };
        of_this || of_device
    }

    fn chosen(&mut self, subject: &Subject, clock: &mut Clock, chosen: Chosen, ended: &mut Ended) {
        let at = self.scene.bucket.until;
        let key = JobKey::clone(&self.scene.jobs[chosen.job].key);
        let mode = self.course.mode;
        // A rule that is only rehearsed while others act ends nobody that counts.
        let is_rehearsed = mode == GuardMode::DryRun && !self.is_dry_run();
        let stays = chosen.victim.leave_to.is_some() || is_rehearsed;
        if stays {
            clock.looks_anew();
            if let Some(opened) = &mut clock.opened {
                opened.left_to = Some(key);
            }
            self.record(subject, GuardStep::Ended(chosen.victim), clock);
            return;
        }
        let most = self.scene.book.rules().enforcement.max_ended;
        let counted = match self.is_dry_run() {
            true => Counted::Rehearsed,
            false => Counted::Ended,
        };
        let person = PersonKey::from(&chosen.victim.job.owner);
        // It is still due at the next look.
        if !self.is_dry_run() && !ended.has_place(&person) {
            return;
        }
        let is_repeated = chosen.is_repeated && self.breaker.allows_again(most);
        if !is_repeated && !self.breaker.allows(counted, &person, most) {
            if let Some(ended) = self.breaker.trip(counted, most, at) {
                self.record(subject, GuardStep::Tripped { ended }, clock);
            }
            // A dry run goes on, and tells of all; else nobody is ended any more.
            if !self.is_dry_run() {
                return clock.looks_anew();
            }
        }
        if !is_repeated {
            self.breaker.add(counted, person, at);
        }
        clock.ended(at);
        if self.is_dry_run() {
            let processes = chosen.runs.iter().map(|run| process(self.scene, *run));
            let open = clock.open(self.rule, subject);
            let end = open.map(|open| SimulatedEnd::of(open, &chosen.victim, processes.collect()));
            if let (Some(opened), Some(end)) = (&mut clock.opened, end) {
                opened.simulated.insert((key, chosen.part), end);
            }
        } else {
            ended.end(self.scene, &chosen, self.rule);
        }
        self.record(subject, GuardStep::Ended(chosen.victim), clock);
    }

    fn is_dry_run(&self) -> bool {
        self.scene.book.rules().mode == GuardMode::DryRun
    }

    /// Whether the clock stays.
    fn holds_not(&mut self, subject: &Subject, clock: &mut Clock, is_there: bool) -> bool {
        self.update_simulated(subject, clock);
        let is_over = match (is_there, self.is_judged) {
            _ if !self.is_in_sight(subject, clock) => {
                clock.lost_sight();
                false
            }
            (false, _) if is_of_processes(subject) || clock.has_ended_somebody() => true,
            // Whoever ends their own for a moment may be back in the next.
            (_, true) => clock.holds_not(self.rule.kind, self.scene.bucket, self.course.settled_ms),
            (_, false) => {
                clock.lost_sight();
                false
            }
        };
        if is_over {
            self.snoozes.begin_anew(self.rule, subject);
            let over = over(self.scene.bucket, self.rule, subject, clock);
            self.records.extend(over);
        }
        !is_over
    }

    /// Whether all devices by which it is known have told who uses them.
    fn is_in_sight(&self, subject: &Subject, clock: &Clock) -> bool {
        let own = match subject {
            Subject::PersonOn(_, device)
            | Subject::GroupOn(_, device)
            | Subject::Device(device) => Some(device),
            Subject::Run(run) => Some(&run.device),
            Subject::Person(_) | Subject::Group(_) | Subject::Job(_) => None,
        };
        // Where all that it was known by have ended, no device tells more of them.
        let has_nobody = |opened: &Opened| opened.evidence.count == 0;
        let has_nobody = clock.opened.as_ref().is_some_and(has_nobody);
        let is_of_device = matches!(subject, Subject::Device(_));
        let own = own.filter(|_| is_of_device || !has_nobody);
        let opened = clock.opened.iter();
        let known_by = opened.flat_map(|it| &it.evidence.runs);
        let known_by = known_by.map(|seen| &seen.run.device);
        self.sight.is_of_all(own.into_iter().chain(known_by))
    }

    fn record(&mut self, subject: &Subject, step: GuardStep, clock: &Clock) {
        let Some(opened) = &clock.opened else {
            return;
        };
        self.records.push(GuardRecord {
            at: self.scene.bucket.until,
            rule: self.rule.clone(),
            subject: subject.clone(),
            mode: self.course.mode,
            step,
            evidence: opened.evidence.told(),
            message: self.course.message.clone(),
        });
    }
}
