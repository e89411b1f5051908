//! The clocks go on a step: what was found confirms, warns, ends; what was not found
//! settles; what is gone is over.

use super::super::bucket::Bucket;
use super::super::clock::Clock;
use super::super::memory::{Clocks, Memory, is_current};
use super::super::victims::{Choice, Ended, choose};
use super::book::Course;
use super::finding::{Finding, Findings, Held};
use super::scene::Scene;
use gpukill_proto::guard::{Evidence, GuardRecord, GuardStep, RuleName, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Takes it, for every clock there is or begins.
pub(crate) fn take(
    scene: &Scene<'_>,
    memory: &mut Memory,
    findings: &Findings,
    is_seen: bool,
) -> Vec<GuardRecord> {
    let mut records = Vec::new();
    let mut clocks = std::mem::take(&mut memory.clocks);
    outdated(scene, &mut clocks, &mut records);
    for (policy, kind) in findings.of.keys() {
        let of_rule = clocks.entry(scene.book.name(*policy, *kind)).or_default();
        of_rule.print = scene.book.print_of(*policy);
    }
    let there = There::of(scene, &clocks);
    let mut ended = Ended::of(memory, scene);
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
            rule,
            course: &course,
            records: &mut records,
            is_judged: is_seen || rule.kind.is_access(),
        };
        for (subject, finding) in found {
            if let Finding::Holds(held) = finding {
                let since = held.since.unwrap_or(scene.bucket.from);
                let clock = of_rule.of.entry(subject.clone());
                clock.or_insert_with(|| Clock::starting(since));
            }
        }
        of_rule
            .of
            .retain(|subject, clock| match found.get(subject) {
                Some(Finding::Holds(held)) => look.holds(subject, clock, held, &mut ended),
                Some(Finding::Unknown(_)) if there.has(scene, subject) => {
                    clock.lost_sight();
                    true
                }
                Some(Finding::Unknown(_)) | None => {
                    look.holds_not(subject, clock, there.has(scene, subject))
                }
            });
    }
    clocks.retain(|_, of_rule| !of_rule.of.is_empty());
    memory.clocks = clocks;
    ended.remember(memory);
    records
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
                records.extend(over(scene.bucket, rule, subject, clock));
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
        evidence: opened.evidence.clone(),
        message: opened.message.clone(),
    })
}

/// A look at one rule.
struct Look<'l, 'a> {
    scene: &'l Scene<'a>,
    rule: &'l RuleName,
    course: &'l Course,
    records: &'l mut Vec<GuardRecord>,
    /// The bucket tells whether it holds, where anything does.
    is_judged: bool,
}

impl Look<'_, '_> {
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
        let at = self.scene.bucket.until;
        let evidence = held.evidence(self.scene, clock.since);
        let turn = clock.holds(self.rule.kind, self.course, at, evidence.clone());
        for step in turn.steps {
            self.record(subject, step, &evidence);
        }
        if turn.is_due {
            let left_to = clock.opened.as_ref().and_then(|it| it.left_to.clone());
            match choose(self.scene, held, self.rule.kind, ended, left_to.as_ref()) {
                Choice::Nobody(why) => {
                    if let Some(step) = clock.spared(why) {
                        self.record(subject, step, &evidence);
                    }
                }
                Choice::NotYet => clock.looks_anew(),
                Choice::Job { job, victim } => {
                    let key = self.scene.jobs[job].key.clone();
                    let is_left = victim.leave_to.is_some();
                    if ended.end(self.scene, job, self.course.mode, is_left) {
                        clock.ended(at);
                    } else {
                        clock.looks_anew();
                        if let Some(opened) = &mut clock.opened {
                            opened.left_to = Some(key);
                        }
                    }
                    self.record(subject, GuardStep::Ended(victim), &evidence);
                }
            }
        }
        true
    }

    /// Whether the clock stays.
    fn holds_not(&mut self, subject: &Subject, clock: &mut Clock, is_there: bool) -> bool {
        let is_over = match (is_there, self.is_judged) {
            (false, _) => true,
            (true, true) => clock.holds_not(self.scene.bucket.seen_ms, self.course.settled_ms),
            (true, false) => {
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

    fn record(&mut self, subject: &Subject, step: GuardStep, evidence: &Evidence) {
        self.records.push(GuardRecord {
            at: self.scene.bucket.until,
            rule: self.rule.clone(),
            subject: subject.clone(),
            mode: self.course.mode,
            step,
            evidence: evidence.clone(),
            message: self.course.message.clone(),
        });
    }
}

/// Which subjects of clocks are there still.
struct There(BTreeSet<Subject>);

impl There {
    fn of(scene: &Scene<'_>, clocks: &BTreeMap<RuleName, Clocks>) -> Self {
        let mut there = BTreeSet::new();
        if clocks.is_empty() {
            return Self(there);
        }
        for cell in &scene.cells {
            let person = scene.people[cell.person];
            let profile = &scene.profiles[cell.profile].0;
            let groups = profile.groups.iter().chain(&profile.doubtful);
            let groups = groups.map(|at| &scene.book.rules().groups[*at].name);
            let device = cell.device.map(|at| scene.devices[at].0);
            there.insert(Subject::Person(person.clone()));
            if let Some(device) = device {
                there.insert(Subject::PersonOn(person.clone(), device.clone()));
            }
            for group in groups {
                there.insert(Subject::Group(group.clone()));
                if let Some(device) = device {
                    there.insert(Subject::GroupOn(group.clone(), device.clone()));
                }
            }
        }
        let devices = scene.devices.iter();
        there.extend(devices.map(|(id, _)| Subject::Device((*id).clone())));
        there.extend(scene.jobs.iter().map(|job| Subject::Job(job.judged())));
        Self(there)
    }

    fn has(&self, scene: &Scene<'_>, subject: &Subject) -> bool {
        match subject {
            Subject::Run(run) => scene.runs.binary_search_by(|it| it.key.cmp(run)).is_ok(),
            Subject::Person(_)
            | Subject::PersonOn(..)
            | Subject::Group(_)
            | Subject::GroupOn(..)
            | Subject::Device(_)
            | Subject::Job(_) => self.0.contains(subject),
        }
    }
}
