//! What comes of the violations that go on once other rules, or another mode, hold.
//!
//! A change of the mode begins them all anew: whoever is warned of one then has the whole
//! grace from that moment on. What a look or two tells is not known yet: they may be over
//! by then.

use super::judge::{Course, Policy, Rulebook};
use super::rules::{Rehearsed, Rules};
use crate::select::is_user;
use gpukill_proto::guard::{GuardAction, GuardMode, OpenViolation, Person, Subject, Told};
use std::borrow::Cow;
use std::time::Duration;

/// What comes of one violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// Nothing: by these rules it is none.
    Nothing,
    /// It is recorded, and nobody is warned or ended.
    Rehearsed(Because),
    /// Whoever it is is warned, and nobody is ended.
    Warned(Because),
    /// A job is ended after so long, if nothing changes.
    EndsAfter(Duration),
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
}

/// What comes of a violation that goes on, once these rules hold.
#[must_use]
pub fn comes(of: &OpenViolation, rules: &Rulebook) -> Comes {
    let policy = rules.find(&of.rule.source);
    let course = policy.and_then(|policy| Some((policy, rules.course(policy, of.rule.kind)?)));
    let Some((policy, course)) = course else {
        return Comes::Nothing;
    };
    let own = own(of, policy, &course, rules);
    let because = |is_milder| match is_milder {
        true => Because::OfTheirPolicy,
        false => Because::OfTheRule,
    };
    match (own.mode, own.action, own.acts) {
        (GuardMode::Disabled, _, _) => Comes::Nothing,
        (GuardMode::DryRun, _, _) => Comes::Rehearsed(because(own.mode < course.mode)),
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Warn, _) => {
            Comes::Warned(because(own.action != course.action))
        }
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Terminate, Rehearsed::Soft) => {
            Comes::EndsAfter(Duration::from_millis(own.grace_ms))
        }
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Terminate, Rehearsed::Enforce) => {
            Comes::EndsAtOnce
        }
    }
}

/// What comes of the rule for whoever broke it, where that is one person.
fn own<'c>(
    of: &OpenViolation,
    policy: Policy,
    course: &'c Course,
    rules: &Rulebook,
) -> Cow<'c, Course> {
    match &of.subject {
        Subject::Person(person) | Subject::PersonOn(person, _) => {
            rules.milder(course, policy, users(rules.rules(), [person].into_iter()))
        }
        Subject::Job(job) => rules.milder(
            course,
            policy,
            users(rules.rules(), [&job.owner].into_iter()),
        ),
        Subject::Run(_) => {
            let owners = of.evidence.runs.iter().filter_map(owner);
            rules.milder(course, policy, users(rules.rules(), owners))
        }
        Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) => Cow::Borrowed(course),
    }
}

const fn owner(told: &Told) -> Option<&Person> {
    told.owner.as_ref()
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
mod tests {
    use super::super::read::read;
    use super::super::testing::{Guard, World};
    use super::*;

    fn book(text: &str) -> Rulebook {
        Rulebook::of(read(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}")))
    }

    /// Alice breaks a rule of everybody's, bob one of his own, with what both hold.
    fn open() -> Vec<OpenViolation> {
        let rules = "[global]\ndefault_memory_limit_gb = 10\n\
            [user_policies.bob]\nmemory_limit_gb = 15\n";
        let mut world = World::new(1);
        world.start(100, "alice").uses(0, 20, 50).job("one");
        world.start(101, "bob").uses(0, 20, 50).job("other");
        let mut guard = Guard::new(book(rules).rules().clone());
        guard.watches(&mut world, 3);
        guard.memory.violations()
    }

    #[test]
    fn what_comes_of_violations_follows_from_the_rules_and_from_whose_they_are() {
        let open = open();
        let limits = "[user_policies.bob]\nmemory_limit_gb = 15\n";
        let mild = |of_alice: &str| format!("{limits}[user_policies.alice]\n{of_alice}\n");
        let global = |mode: &str, rest: &str| {
            let soft = mode == "soft";
            format!(
                "[global]\nenabled = true\ndry_run = {}\ndefault_memory_limit_gb = 10\n\
                 [enforcement]\nsoft_enforcement = {soft}\nhard_enforcement = {}\n\
                 grace_period_seconds = 60\n{rest}",
                mode == "dry-run",
                !soft
            )
        };
        let minute = Comes::EndsAfter(Duration::from_secs(60));
        let hour = Comes::EndsAfter(Duration::from_secs(3_600));
        let (rule, own) = (Because::OfTheRule, Because::OfTheirPolicy);
        for (rules, of_alice, of_bob) in [
            (global("soft", limits), minute, minute),
            (
                global("enforce", limits),
                Comes::EndsAtOnce,
                Comes::EndsAtOnce,
            ),
            (
                global("dry-run", limits),
                Comes::Rehearsed(rule),
                Comes::Rehearsed(rule),
            ),
            // The whole policy of one who broke another rule is milder.
            (
                global("soft", &mild("mode = 'dry-run'")),
                Comes::Rehearsed(own),
                minute,
            ),
            (
                global("enforce", &mild("action = 'warn'")),
                Comes::Warned(own),
                Comes::EndsAtOnce,
            ),
            (
                global("enforce", &mild("mode = 'soft'\ngrace = '1h'")),
                hour,
                Comes::EndsAtOnce,
            ),
            // What a rule says of itself is the rule's.
            (
                global("soft", &format!("{limits}action = 'warn'\n")),
                minute,
                Comes::Warned(rule),
            ),
            // It is said no more.
            (global("soft", ""), minute, Comes::Nothing),
            (
                "[global]\nenabled = false\n".into(),
                Comes::Nothing,
                Comes::Nothing,
            ),
        ] {
            let rules = book(&rules);
            let come: Vec<Comes> = open.iter().map(|open| comes(open, &rules)).collect();
            assert_eq!(come, [of_alice, of_bob], "{:?}", rules.rules());
        }
    }
}
