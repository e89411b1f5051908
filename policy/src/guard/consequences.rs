//! Predicts what happens to open violations when other rules or another mode take effect.
//!
//! A change of the mode restarts all violations: a warned owner then has the whole grace
//! period from that moment on. The next samples are not predicted: a violation may be over
//! by then.

use super::evaluate::{CompiledRules, PolicyIndex, RuleResponse};
use super::rules::{EnforcementMode, Measures, RuleSet};
use super::warning_state::can_read_warnings;
use crate::select::names_user;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{
    AffectedViolation, Evidence, EvidenceProcess, GuardAction, GuardMode, GuardRecord,
    MilderPolicy, OpenViolation, Person, ViolationSubject,
};
use gpukill_proto::model::NetworkRole;
use gpukill_proto::units::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The consequence of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// Nothing: these rules do not forbid it.
    Nothing,
    /// The violation is recorded; no warning is shown and no job is ended.
    DryRun(ConsequenceReason),
    /// The owner is warned; no job is ended.
    Warned(ConsequenceReason),
    /// A job is ended, not before this time, if nothing changes.
    EndsNotBefore(Timestamp),
    /// A job is ended at the next sample or the one after it.
    EndsAtOnce,
    /// The rules would end a job, and the guard ends none, for a reason of its own.
    Exempt,
}

/// Why nothing worse happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsequenceReason {
    /// The rule itself or the mode of the guard is no harder.
    Rule,
    /// The violator's own policy is milder than the broken rule.
    OwnPolicy,
    /// The job is a service, and the rule is about idleness or waste.
    Service,
    /// No person can be warned, and soft mode ends no job without a warning.
    NoReader,
}

/// Predicts what happens to an open violation if these rules take effect now.
#[must_use]
pub fn predict_consequence(
    of: &OpenViolation,
    rules: &CompiledRules,
    now: Timestamp,
) -> Consequence {
    let Some((policy, response)) = rule_response(of, rules) else {
        return Consequence::Nothing;
    };
    let own = own_response(of, rules, (policy, &response));
    let because = |is_milder| match is_milder {
        true => ConsequenceReason::OwnPolicy,
        false => ConsequenceReason::Rule,
    };
    let not_before =
        |at: Timestamp| Consequence::EndsNotBefore(of.snoozed_until.unwrap_or(at).max(at));
    let ends = own.mode > GuardMode::DryRun && own.action == GuardAction::Terminate;
    if ends && is_exempt_service(of, rules, policy) {
        return Consequence::Warned(ConsequenceReason::Service);
    }
    match (own.mode, own.action, own.acting_mode) {
        (GuardMode::Disabled, _, _) => Consequence::Nothing,
        (GuardMode::DryRun, _, _) => Consequence::DryRun(because(own.mode < response.mode)),
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Warn, _) => {
            Consequence::Warned(because(own.action != response.action))
        }
        (GuardMode::Soft | GuardMode::Enforce, GuardAction::Terminate, EnforcementMode::Soft) => {
            match has_no_reader(of) {
                true => Consequence::DryRun(ConsequenceReason::NoReader),
                false => {
                    let grace = i64::try_from(own.grace_ms).unwrap_or(i64::MAX);
                    not_before(Timestamp(now.0.saturating_add(grace)))
                }
            }
        }
        (
            GuardMode::Soft | GuardMode::Enforce,
            GuardAction::Terminate,
            EnforcementMode::Enforce,
        ) => match of.snoozed_until {
            Some(until) if until > now => not_before(until),
            Some(_) | None => Consequence::EndsAtOnce,
        },
    }
}

/// Predicts what happens to a violation that the guard has previewed by these rules: as
/// [`predict_consequence`], except that no end is predicted where the preview found none.
#[must_use]
pub fn predict_affected(
    affected: &AffectedViolation,
    rules: &CompiledRules,
    now: Timestamp,
) -> Consequence {
    let AffectedViolation { open, exempt } = affected;
    match predict_consequence(open, rules, now) {
        Consequence::EndsAtOnce | Consequence::EndsNotBefore(_)
            if open.action == GuardAction::Warn =>
        {
            Consequence::Warned(ConsequenceReason::Rule)
        }
        Consequence::EndsAtOnce | Consequence::EndsNotBefore(_) if exempt.is_some() => {
            Consequence::Exempt
        }
        consequence => consequence,
    }
}

/// The violation under the new rules, before a sample is evaluated by them. `evaluated_by` are
/// the rules of the last sample. `None` if the new rules do not forbid it.
#[must_use]
pub fn violation_under(
    of: &OpenViolation,
    evaluated_by: &CompiledRules,
    rules: &CompiledRules,
) -> Option<OpenViolation> {
    let (policy, response) = rule_response(of, rules)?;
    let before = evaluated_by.find(&of.rule.source);
    if before
        .is_some_and(|before| evaluated_by.policy_digest(before) == rules.policy_digest(policy))
    {
        return Some(of.clone());
    }
    let own = own_response(of, rules, (policy, &response));
    let is_service_only_warned =
        own.action == GuardAction::Terminate && is_exempt_service(of, rules, policy);
    Some(OpenViolation {
        mode: own.mode,
        action: match is_service_only_warned {
            true => GuardAction::Warn,
            false => own.action,
        },
        warned_at: None,
        warnings: 0,
        deadline: None,
        readers: Vec::new(),
        ended_at: None,
        unfinished_end: None,
        message: response.message.clone(),
        evidence: Evidence {
            is_service_only_warned,
            ..of.evidence.clone()
        },
        ..of.clone()
    })
}

/// The response of the rule to the violation, without the milder policies of persons.
fn rule_response(of: &OpenViolation, rules: &CompiledRules) -> Option<(PolicyIndex, RuleResponse)> {
    let policy = rules.find(&of.rule.source)?;
    if rules
        .behaviour_kind(policy)
        .is_some_and(|kind| kind != of.rule.kind)
    {
        return None;
    }
    Some((policy, rules.response(policy, of.rule.kind)?))
}

/// The same, with the milder policies of the violators.
fn own_response<'c>(
    of: &OpenViolation,
    rules: &CompiledRules,
    (policy, response): (PolicyIndex, &'c RuleResponse),
) -> Cow<'c, RuleResponse> {
    let people = subject_people(&of.subject, &of.evidence.runs);
    rules.milder_response(
        response,
        policy,
        user_policy_positions(rules.rules(), people.into_iter()),
    )
}

/// Whether the job is a service that these rules only warn about.
fn is_exempt_service(of: &OpenViolation, rules: &CompiledRules, policy: PolicyIndex) -> bool {
    is_idle_service(of) && !rules.ends_services(policy)
}

/// Whether the job is a service that is idle or wastes a device.
#[must_use]
pub fn is_idle_service(of: &OpenViolation) -> bool {
    let is_service = |process: &EvidenceProcess| {
        let role = process.context.network_role.as_ref();
        role.is_some_and(NetworkRole::is_service)
    };
    let is_one = of.evidence.is_service_only_warned || of.evidence.runs.iter().any(is_service);
    of.rule.kind.only_warns_services() && is_one
}

/// Whether it is known that no owner in the evidence reads warnings.
fn has_no_reader(of: &OpenViolation) -> bool {
    let processes = &of.evidence.runs;
    let reads = |process: &EvidenceProcess| {
        let uid = process.owner.as_ref().and_then(|owner| owner.uid);
        uid.is_some_and(can_read_warnings)
    };
    processes.len() >= of.evidence.count as usize && !processes.iter().any(reads)
}

/// How the violator's own policy softens the broken rule. Only for a violation by one
/// person, and only if a job would be ended, for real or in a dry run.
#[must_use]
pub fn milder_policy_for_violation(
    of: &OpenViolation,
    rules: &CompiledRules,
) -> Option<MilderPolicy> {
    let policy = rules.find(&of.rule.source)?;
    let response = rules.response(policy, of.rule.kind)?;
    let is_fatal = response.action == GuardAction::Terminate;
    let people = subject_people(&of.subject, &of.evidence.runs);
    let own = people
        .into_iter()
        .find_map(|it| milder_policy_of(it, rules.rules()));
    // A rule that only warns cannot be softened. The setting of the person's own policy is
    // reported anyway when that policy is the broken rule.
    let is_own = matches!(policy, PolicyIndex::User(_));
    own.filter(|own| is_fatal || is_own || *own == MilderPolicy::DryRun)
}

/// How a person's own policy softens every rule that the person breaks.
#[must_use]
pub fn milder_policy_of(person: &Person, rules: &RuleSet) -> Option<MilderPolicy> {
    let lives = match rules.mode {
        GuardMode::DryRun => rules.armed_mode.mode(),
        mode @ (GuardMode::Disabled | GuardMode::Soft | GuardMode::Enforce) => mode,
    };
    user_policy_positions(rules, [person].into_iter()).find_map(|at| {
        let Measures { action, mode, .. } = &rules.users[at].measures;
        let is_dry_run = lives > GuardMode::DryRun && *mode == Some(GuardMode::DryRun);
        let is_warned = *action == Some(GuardAction::Warn);
        match (is_dry_run, is_warned) {
            (true, _) => Some(MilderPolicy::DryRun),
            (false, true) => Some(MilderPolicy::Warned),
            (false, false) => None,
        }
    })
}

/// The people in these records who have a milder policy of their own, by name.
#[must_use]
pub fn milder_policies_by_person(
    records: &[GuardRecord],
    rules: &RuleSet,
) -> BTreeMap<String, MilderPolicy> {
    let people = records.iter().flat_map(|record| {
        let of_subject = subject_people(&record.subject, &record.evidence.runs);
        let of_step = record.step.victim().map(|victim| &victim.job.owner);
        of_subject.into_iter().chain(of_step)
    });
    let people: BTreeSet<&Person> = people.into_set();
    let milder = people.into_iter();
    let milder = milder.filter_map(|it| Some((it.name.clone(), milder_policy_of(it, rules)?)));
    milder.into_map()
}

/// The person who broke a rule, if it is a single person.
fn subject_people<'p>(
    subject: &'p ViolationSubject,
    processes: &'p [EvidenceProcess],
) -> Vec<&'p Person> {
    match subject {
        ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => vec![person],
        ViolationSubject::Job(job) => vec![&job.owner],
        ViolationSubject::Run(_) => processes
            .iter()
            .filter_map(|it| it.owner.as_ref())
            .collect(),
        ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_) => Vec::new(),
    }
}

/// The positions of these people's user policies.
fn user_policy_positions<'p>(
    rules: &RuleSet,
    people: impl Iterator<Item = &'p Person>,
) -> impl Iterator<Item = usize> {
    let of = people.filter_map(|person| {
        let mut users = rules.users.iter();
        users.position(|user| names_user(&user.name, person.uid, Some(&person.name)))
    });
    of.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests;
