//! What comes of the violations that go on once other rules, or another mode, hold.
//!
//! A change of the mode begins them all anew: whoever is warned of one then has the whole
//! grace from that moment on. What a look or two tells is not known yet: they may be over
//! by then.

use super::judge::{Course, Policy, Rulebook};
use super::rules::{Measures, Rehearsed, Rules};
use super::warned::is_read;
use crate::select::is_user;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{
    Evidence, GuardAction, GuardMode, GuardRecord, Milder, OpenViolation, Person, Subject, Told,
};
use gpukill_proto::snapshot::NetworkRole;
use gpukill_proto::units::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What comes of one violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// Nothing: by these rules it is none.
    Nothing,
    /// It is recorded, and nobody is warned or ended.
    Rehearsed(Because),
    /// Whoever it is is warned, and nobody is ended.
    Warned(Because),
    /// A job is ended, not before this moment, if nothing changes.
    EndsNotBefore(Timestamp),
    /// A job is ended at the next look, or the one after it.
    EndsAtOnce,
}

/// Why it is no more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The rule, or the whole.
    OfTheRule,
    /// Their own policy is milder than the rule that they break.
    OfTheirPolicy,
    /// It is a service, and the rule is about idleness or waste.
    IsService,
    /// Nobody can be warned of it, and nothing is ended without a warning.
    NobodyReads,
}

/// What comes of a violation that goes on, once these rules hold from now on.
#[must_use]
pub fn comes(of: &OpenViolation, rules: &Rulebook, now: Timestamp) -> Comes {
    let Some((policy, course)) = course(of, rules) else {
        return Comes::Nothing;
    };
    let own = own_course(of, rules, (policy, &course));
    let because = |is_milder| match is_milder {
        true => Because::OfTheirPolicy,
        false => Because::OfTheRule,
    };
    let not_before = |at: Timestamp| Comes::EndsNotBefore(of.snoozed_until.unwrap_or(at).max(at));
    let ends = own.mode > GuardMode::DryRun && own.action == GuardAction::Terminate;
    if ends && is_spared_service(of, rules, policy) {
        return Comes::Warned(Because::IsService);
    }
    match (own.mode, own.action, own.acts) {
        (GuardMode::Disabled, _, _) => Comes::Nothing,
        (GuardMode::DryRun, _, _) => Comes::Rehearsed(because(own.mode < course.mode)),
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Warn, _) => {
            Comes::Warned(because(own.action != course.action))
        }
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Terminate, Rehearsed::Soft) => {
            match is_read_by_nobody(of) {
                true => Comes::Rehearsed(Because::NobodyReads),
                false => {
                    let grace = i64::try_from(own.grace_ms).unwrap_or(i64::MAX);
                    not_before(Timestamp(now.0.saturating_add(grace)))
                }
            }
        }
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Terminate, Rehearsed::Enforce) => {
            match of.snoozed_until {
                Some(until) if until > now => not_before(until),
                Some(_) | None => Comes::EndsAtOnce,
            }
        }
    }
}

/// A violation as these rules have it, which were judged by others at the last sample: nobody
/// is judged by them yet. `None` where they say nothing of it.
#[must_use]
pub fn under(of: &OpenViolation, judged_by: &Rulebook, rules: &Rulebook) -> Option<OpenViolation> {
    let (policy, course) = course(of, rules)?;
    let before = judged_by.find(&of.rule.source);
    if before.is_some_and(|before| judged_by.policy_digest(before) == rules.policy_digest(policy)) {
        return Some(of.clone());
    }
    let own = own_course(of, rules, (policy, &course));
    let is_spared_service =
        own.action == GuardAction::Terminate && is_spared_service(of, rules, policy);
    Some(OpenViolation {
        mode: own.mode,
        action: match is_spared_service {
            true => GuardAction::Warn,
            false => own.action,
        },
        warned_at: None,
        warnings: 0,
        deadline: None,
        readers: Vec::new(),
        ended_at: None,
        message: course.message.clone(),
        evidence: Evidence {
            is_spared_service,
            ..of.evidence.clone()
        },
        ..of.clone()
    })
}

/// What comes of it by the rule, for whomever nothing milder is said of.
fn course(of: &OpenViolation, rules: &Rulebook) -> Option<(Policy, Course)> {
    let policy = rules.find(&of.rule.source)?;
    if rules
        .conduct(policy)
        .is_some_and(|kind| kind != of.rule.kind)
    {
        return None;
    }
    Some((policy, rules.course(policy, of.rule.kind)?))
}

/// The same for those who broke it.
fn own_course<'c>(
    of: &OpenViolation,
    rules: &Rulebook,
    (policy, course): (Policy, &'c Course),
) -> Cow<'c, Course> {
    let people = people(&of.subject, &of.evidence.runs);
    rules.milder(course, policy, users(rules.rules(), people.into_iter()))
}

/// Whether it is about a service that these rules only warn about.
fn is_spared_service(of: &OpenViolation, rules: &Rulebook, policy: Policy) -> bool {
    is_idle_service(of) && !rules.ends_services(policy)
}

/// Whether it is about a service that is idle, or wastes a device.
#[must_use]
pub fn is_idle_service(of: &OpenViolation) -> bool {
    let is_service = |told: &Told| {
        let role = told.context.network_role.as_ref();
        role.is_some_and(NetworkRole::is_service)
    };
    let is_one = of.evidence.is_spared_service || of.evidence.runs.iter().any(is_service);
    of.rule.kind.spares_services() && is_one
}

/// Whether it is known that nobody by whom it is known reads a warning.
fn is_read_by_nobody(of: &OpenViolation) -> bool {
    let told = &of.evidence.runs;
    let reads = |told: &Told| {
        let uid = told.owner.as_ref().and_then(|owner| owner.uid);
        uid.is_some_and(is_read)
    };
    told.len() >= of.evidence.count as usize && !told.iter().any(reads)
}

/// What the own policy of whoever broke a rule makes of it, where that is one person and
/// somebody would be ended by what the guard does, or by what its dry run rehearses.
#[must_use]
pub fn milder(of: &OpenViolation, rules: &Rulebook) -> Option<Milder> {
    let policy = rules.find(&of.rule.source)?;
    let course = rules.course(policy, of.rule.kind)?;
    let is_fatal = course.action == GuardAction::Terminate;
    let people = people(&of.subject, &of.evidence.runs);
    let own = people
        .into_iter()
        .find_map(|it| milder_of(it, rules.rules()));
    // Of a rule that ends nobody it makes nothing milder; of their own it is what it says.
    let is_own = matches!(policy, Policy::User(_));
    own.filter(|own| is_fatal || is_own || *own == Milder::Rehearsed)
}

/// What a person's own policy makes of every rule that they break.
#[must_use]
pub fn milder_of(person: &Person, rules: &Rules) -> Option<Milder> {
    let lives = match rules.mode {
        GuardMode::DryRun => rules.rehearsed.mode(),
        mode @ (GuardMode::Disabled | GuardMode::Soft | GuardMode::Enforce) => mode,
    };
    users(rules, [person].into_iter()).find_map(|at| {
        let Measures { action, mode, .. } = &rules.users[at].measures;
        let is_rehearsed = lives > GuardMode::DryRun && *mode == Some(GuardMode::DryRun);
        let is_warned = *action == Some(GuardAction::Warn);
        match (is_rehearsed, is_warned) {
            (true, _) => Some(Milder::Rehearsed),
            (false, true) => Some(Milder::Warned),
            (false, false) => None,
        }
    })
}

/// Who of those that records are about is spared by their own policy.
#[must_use]
pub fn spared(records: &[GuardRecord], rules: &Rules) -> BTreeMap<String, Milder> {
    let people = records.iter().flat_map(|record| {
        let of_subject = people(&record.subject, &record.evidence.runs);
        let of_step = record.step.victim().map(|victim| &victim.job.owner);
        of_subject.into_iter().chain(of_step)
    });
    let people: BTreeSet<&Person> = people.into_set();
    let spared = people.into_iter();
    let spared = spared.filter_map(|it| Some((it.name.clone(), milder_of(it, rules)?)));
    spared.into_map()
}

/// Who broke a rule, where that is one person.
fn people<'p>(subject: &'p Subject, told: &'p [Told]) -> Vec<&'p Person> {
    match subject {
        Subject::Person(person) | Subject::PersonOn(person, _) => vec![person],
        Subject::Job(job) => vec![&job.owner],
        Subject::Run(_) => told.iter().filter_map(|it| it.owner.as_ref()).collect(),
        Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) => Vec::new(),
    }
}

/// The policies of these people, by their positions.
fn users<'p>(
    rules: &Rules,
    people: impl Iterator<Item = &'p Person>,
) -> impl Iterator<Item = usize> {
    let of = people.filter_map(|person| {
        let mut users = rules.users.iter();
        users.position(|user| is_user(&user.name, person.uid, Some(&person.name)))
    });
    of.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests;
