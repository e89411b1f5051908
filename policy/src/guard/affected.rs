//! What comes of the violations that go on once other rules, or another mode, hold.
//!
//! A change of the mode begins them all anew: whoever is warned of one then has the whole
//! grace from that moment on. What a look or two tells is not known yet: they may be over
//! by then.

use super::judge::{Policy, Rulebook};
use super::rules::{Measures, Rehearsed, Rules};
use crate::select::is_user;
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardRecord, Milder, OpenViolation, Person, Subject, Told,
};
use std::collections::{BTreeMap, BTreeSet};
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
    let people = people(&of.subject, &of.evidence.runs);
    let users = users(rules.rules(), people.into_iter());
    let own = rules.milder(&course, policy, users);
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
    let people: BTreeSet<&Person> = people.collect();
    let spared = people.into_iter();
    let spared = spared.filter_map(|it| Some((it.name.clone(), milder_of(it, rules)?)));
    spared.collect()
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

    #[test]
    fn an_own_policy_that_is_milder_is_told_in_a_dry_run_too() {
        let open = open();
        let with = |global: &str, of_alice: &str| {
            book(&format!(
                "[global]\n{global}\ndefault_memory_limit_gb = 10\n\
                 [user_policies.bob]\nmemory_limit_gb = 15\n\
                 [user_policies.alice]\n{of_alice}\n"
            ))
        };
        let (dry, live) = ("enabled = true", "enabled = true\ndry_run = false");
        for (global, of_alice, expected) in [
            (live, "mode = 'dry-run'", Some(Milder::Rehearsed)),
            (dry, "mode = 'dry-run'", Some(Milder::Rehearsed)),
            (live, "action = 'warn'", Some(Milder::Warned)),
            (dry, "action = 'warn'", Some(Milder::Warned)),
            (
                live,
                "action = 'warn'\nmode = 'dry-run'",
                Some(Milder::Rehearsed),
            ),
            (live, "mode = 'soft'", None),
            (live, "action = 'terminate'", None),
            (live, "priority = 7", None),
            ("enabled = false", "mode = 'dry-run'", None),
        ] {
            let rules = with(global, of_alice);
            let told: Vec<_> = open.iter().map(|open| milder(open, &rules)).collect();
            assert_eq!(told, [expected, None], "{global} {of_alice}");
        }
        // Of several people each has their own, and of the violation there is none.
        let rules = with(live, "action = 'warn'");
        let group = OpenViolation {
            subject: Subject::Group("ml".into()),
            ..open[0].clone()
        };
        assert_eq!(milder(&group, &rules), None);
    }

    #[test]
    fn whoever_records_are_about_is_spared_by_their_own_policy_alone() {
        let rules = "[global]\ndefault_memory_limit_gb = 10\n\
            [user_policies.bob]\nmemory_limit_gb = 15\nmode = 'dry-run'\n\
            [user_policies.carol]\naction = 'warn'\n";
        let mut world = World::new(1);
        world.start(100, "alice").uses(0, 20, 50).job("one");
        world.start(101, "bob").uses(0, 20, 50).job("other");
        let rules = book(rules).rules().clone();
        let mut guard = Guard::new(rules.clone());
        let records = guard.watches(&mut world, 60);
        let ended = records
            .iter()
            .filter(|it| it.step.name() == "ended")
            .count();
        assert_eq!(ended, 2);
        // Carol breaks nothing.
        let expected = BTreeMap::from([("bob".to_owned(), Milder::Rehearsed)]);
        assert_eq!(spared(&records, &rules), expected);
    }
}
