//! The clocks go on a step: what was found confirms, warns, ends; what was not found
//! settles; what is gone is over.

use super::super::breaker::{Breaker, Counted};
use super::super::bucket::Bucket;
use super::super::clock::{Clock, Due, Opened};
use super::super::memory::sight::Sight;
use super::super::memory::{Clocks, JobKey, Memory, is_current};
use super::super::victims::{Choice, Ended, choose};
use super::book::{Course, Policy};
use super::bounds::{Beyond, Bounds};
use super::finding::{Excess, Finding, Findings, Held, Whom};
use super::scene::Scene;
use gpukill_proto::guard::{GuardMode, GuardRecord, GuardStep, RuleName, Subject, Victim};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

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
    for (policy, kind) in findings.of.keys() {
        let of_rule = clocks.entry(scene.book.name(*policy, *kind)).or_default();
        of_rule.print = scene.book.print_of(*policy);
    }
    let going: usize = clocks.values().map(|of_rule| of_rule.of.len()).sum();
    let mut room = bounds.violations.saturating_sub(going);
    // Of what is not among the findings it is not known then that it does not hold.
    let is_whole = findings.beyond == 0;
    let mut ended = Ended::of(memory, scene);
    let sight = std::mem::take(&mut memory.sight);
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
            rule,
            of_rule: (policy, &course),
            course: Cow::Borrowed(&course),
            records: &mut records,
            is_judged: is_whole && (is_seen || rule.kind.is_access()),
            follows,
            breaker: &mut breaker,
        };
        let mut whoms = start(scene, &mut of_rule.of, found, &mut room, beyond).into_iter();
        of_rule.of.retain(|subject, clock| {
            let whom = whoms.next().flatten();
            match whom.and_then(|whom| found.get(&whom)) {
                Some(Finding::Holds(held)) => look.holds(subject, clock, held, &mut ended),
                Some(Finding::Unknown(_)) => {
                    clock.lost_sight();
                    true
                }
                None => look.holds_not(subject, clock, whom.is_some()),
            }
        });
    }
    clocks.retain(|_, of_rule| !of_rule.of.is_empty());
    memory.clocks = clocks;
    memory.sight = sight;
    memory.breaker = breaker;
    ended.remember(memory);
    records
}

/// Starts a clock for whom a rule holds that has none, as long as there is room. Whose
/// the clocks are, in their order: `None` of who is gone.
fn start(
    scene: &Scene<'_>,
    clocks: &mut BTreeMap<Subject, Clock>,
    found: &BTreeMap<Whom, Finding>,
    room: &mut usize,
    beyond: &mut Beyond,
) -> Vec<Option<Whom>> {
    let whose = |clocks: &BTreeMap<Subject, Clock>| -> Vec<Option<Whom>> {
        clocks.keys().map(|it| scene.find(it)).collect()
    };
    let before = whose(clocks);
    let going: BTreeSet<Whom> = before.iter().copied().flatten().collect();
    for (whom, finding) in found {
        if let Finding::Holds(held) = finding
            && !going.contains(whom)
        {
            let Some(left) = room.checked_sub(1) else {
                beyond.violations += 1;
                continue;
            };
            *room = left;
            let since = held.since.unwrap_or(scene.bucket.from);
            let clock = clocks.entry(scene.subject(*whom));
            clock.or_insert_with(|| Clock::starting(since));
        }
    }
    // Mostly none begins.
    if clocks.len() == before.len() {
        before
    } else {
        whose(clocks)
    }
}

/// What the rules no longer say, or say otherwise, is over.
fn outdated(
    scene: &Scene<'_>,
    clocks: &mut BTreeMap<RuleName, Clocks>,
    records: &mut Vec<GuardRecord>,
) {
    clocks.retain(|rule, of_rule| {
        let is_current = is_current(scene.book, rule, of_rule.print)
            && scene
                .book
                .find(&rule.source)
                .is_some_and(|policy| scene.book.course(policy, rule.kind).is_some());
        if !is_current {
            for (subject, clock) in &of_rule.of {
                let over = over(scene.bucket, rule, subject, clock);
                records.extend(over.map(|over| GuardRecord {
                    step: GuardStep::Outdated,
                    is_rehearsed: false,
                    ..over
                }));
            }
        }
        is_current
    });
}

fn over(bucket: &Bucket, rule: &RuleName, subject: &Subject, clock: &Clock) -> Option<GuardRecord> {
    let opened = clock.opened.as_ref()?;
    Some(GuardRecord {
        at: bucket.until,
        rule: rule.clone(),
        subject: subject.clone(),
        mode: opened.mode,
        step: GuardStep::Over,
        evidence: opened.evidence.told(),
        message: opened.message.clone(),
        is_rehearsed: clock.is_rehearsed(),
    })
}

/// Whether it is no more once its processes are gone: who comes after them is another.
const fn is_of_processes(subject: &Subject) -> bool {
    match subject {
        Subject::Job(_) | Subject::Run(_) => true,
        Subject::Person(_)
        | Subject::PersonOn(..)
        | Subject::Group(_)
        | Subject::GroupOn(..)
        | Subject::Device(_) => false,
    }
}

/// A look at one rule.
struct Look<'l, 'a> {
    scene: &'l Scene<'a>,
    sight: &'l Sight,
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
            clock.since = since;
        }
        self.course = self.course_of(subject, held);
        let at = self.scene.bucket.until;
        let since = clock.since;
        let proof = || held.proof(self.scene, since);
        let turn = clock.holds(self.rule.kind, &self.course, at, proof);
        for step in turn.steps {
            self.record(subject, step, clock);
        }
        if turn.due != Due::Nobody && self.follows {
            self.ends(subject, clock, held, &turn.due, ended);
        }
        true
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
        due: &Due,
        ended: &mut Ended,
    ) {
        if held.excess != Excess::All && self.is_cooling(subject, clock, ended) {
            return clock.looks_anew();
        }
        let left_to = clock.opened.as_ref().and_then(|it| it.left_to.clone());
        match choose(
            self.scene,
            held,
            ended,
            left_to.as_ref(),
            (due, self.course.mode),
        ) {
            Choice::Nobody(why) => {
                let why = || why.told(self.scene, self.rule.kind);
                if let Some(step) = clock.spared(why) {
                    self.record(subject, step, clock);
                }
            }
            Choice::NotDue => {}
            Choice::NotYet => clock.looks_anew(),
            Choice::Job { job, victim } => self.chosen(subject, clock, (job, victim), ended),
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

    fn chosen(
        &mut self,
        subject: &Subject,
        clock: &mut Clock,
        (job, victim): (usize, Victim),
        ended: &mut Ended,
    ) {
        let at = self.scene.bucket.until;
        let key = JobKey::clone(&self.scene.jobs[job].key);
        let mode = self.course.mode;
        // A rule that is only rehearsed while others act ends nobody that counts.
        let is_rehearsed = mode == GuardMode::DryRun && !self.is_dry_run();
        let stays = victim.leave_to.is_some() || is_rehearsed;
        if stays {
            clock.looks_anew();
            if let Some(opened) = &mut clock.opened {
                opened.left_to = Some(key);
            }
            self.record(subject, GuardStep::Ended(victim), clock);
            return;
        }
        let most = self.scene.book.rules().enforcement.max_ended;
        let counted = match self.is_dry_run() {
            true => Counted::Rehearsed,
            false => Counted::Ended,
        };
        if !self.breaker.lets(counted, most) {
            if let Some(ended) = self.breaker.trips(counted, at) {
                self.record(subject, GuardStep::Tripped { ended }, clock);
            }
            // Rehearsed, all are told of; else nobody is ended any more.
            if !self.is_dry_run() {
                clock.looks_anew();
                return;
            }
        }
        self.breaker.counts(counted, at);
        ended.end(self.scene, job, self.rule);
        clock.ended(at);
        ended.shows(&key, clock.open(self.rule, subject), &victim);
        self.record(subject, GuardStep::Ended(victim), clock);
    }

    fn is_dry_run(&self) -> bool {
        self.scene.book.rules().mode == GuardMode::DryRun
    }

    /// Whether the clock stays.
    fn holds_not(&mut self, subject: &Subject, clock: &mut Clock, is_there: bool) -> bool {
        let is_over = match (is_there, self.is_judged) {
            _ if !self.is_in_sight(subject, clock) => {
                clock.lost_sight();
                false
            }
            (false, _) if is_of_processes(subject) || clock.has_ended_somebody() => true,
            // Whoever ends their own for a moment may be back in the next.
            (_, true) => clock.holds_not(self.scene.bucket.seen_ms, self.course.settled_ms),
            (_, false) => {
                clock.lost_sight();
                false
            }
        };
        if is_over {
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
            is_rehearsed: false,
        });
    }
}
