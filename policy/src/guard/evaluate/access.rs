//! Evaluates access rules: a device, a person or process on it, or a time that is
//! forbidden.

use super::super::limits::PolicyProfile;
use super::compiled_rules::PolicyIndex;
use super::context::{EvaluatedRun, EvaluationContext};
use super::findings::{Findings, NOT_REPORTED, SubjectIndex, ViolationDetails};
use super::owner_match::OWNER_NAME_UNKNOWN;
use super::policy_devices::DeviceSet;
use gpukill_proto::guard::RuleKind;

/// A process that was on a device in any part of the sample counts. If it left before the
/// end, the access was still forbidden, but no process can be ended for it.
pub(crate) fn evaluate(context: &EvaluationContext<'_>, findings: &mut Findings) {
    let rules = context.compiled_rules.rules();
    let closed: Vec<usize> = (0..rules.gpus.len())
        .filter(|at| {
            let maintenance = rules.gpus[*at].maintenance.as_ref();
            maintenance.is_some_and(|hours| hours.contains(context.sample.local_time))
        })
        .collect();
    let is_in_force: Vec<bool> = rules
        .times
        .iter()
        .map(|it| it.hours.contains(context.sample.local_time))
        .collect();
    for (position, run) in context.runs.iter().enumerate() {
        let mut found = |policy, kind, is: Result<bool, &str>| match is {
            Ok(true) if !run.is_reported => {
                findings.add_unknown(policy, kind, SubjectIndex::Run(position), NOT_REPORTED);
            }
            Ok(true) => {
                let held = ViolationDetails::for_access(vec![position]);
                findings.add_violated(policy, kind, SubjectIndex::Run(position), held);
            }
            Ok(false) => {}
            Err(why) => {
                findings.add_unknown(policy, kind, SubjectIndex::Run(position), why.to_owned())
            }
        };
        let covers_device = |policy: PolicyIndex| match policy {
            PolicyIndex::Gpu(at) => context.policy_devices.gpus[at].contains(run.device),
            PolicyIndex::Time(at) if is_in_force[at] => {
                context.policy_devices.times[at].contains(run.device)
            }
            PolicyIndex::Time(_)
            | PolicyIndex::Default
            | PolicyIndex::User(_)
            | PolicyIndex::Group(_)
            | PolicyIndex::Behaviour(_) => Ok(false),
        };
        for (policy, kind) in &run.policy_match.forbidden {
            found(*policy, *kind, covers_device(*policy));
        }
        for (policy, kind, why) in &run.policy_match.doubtful {
            if covers_device(*policy) != Ok(false) {
                found(*policy, *kind, Err(*why));
            }
        }
        for at in &closed {
            let policy = PolicyIndex::Gpu(*at);
            found(policy, RuleKind::Maintenance, covers_device(policy));
        }
        for (policy, is) in device_lists(context, run) {
            found(policy, RuleKind::Gpu, is);
        }
    }
}

/// Evaluates the device lists that apply to a run: those of its owner, otherwise those of
/// each of its groups.
fn device_lists<'a>(
    context: &'a EvaluationContext<'_>,
    run: &EvaluatedRun<'_>,
) -> Vec<(PolicyIndex, Result<bool, &'a str>)> {
    let profile = &context.profiles[run.profile].0;
    let mut unnamed = profile.doubtful_users.iter().copied();
    let unnamed = unnamed.by_ref().filter(|at| has_device_lists(context, *at));
    let unnamed: Vec<usize> = unnamed.collect();
    let known = known_device_lists(context, profile, run.device);
    if unnamed.is_empty() {
        return known;
    }
    let may_be = unnamed.into_iter().map(|at| {
        let (allowed, blocked) = &context.policy_devices.users[at];
        (
            PolicyIndex::User(at),
            is_device_denied(allowed, blocked, run.device),
        )
    });
    may_be
        .chain(known)
        .map(|(policy, is)| match is {
            Ok(false) => (policy, Ok(false)),
            Ok(true) | Err(_) => (policy, Err(OWNER_NAME_UNKNOWN)),
        })
        .collect()
}

/// Whether a user policy has device lists.
fn has_device_lists(context: &EvaluationContext<'_>, user: usize) -> bool {
    let policy = &context.compiled_rules.rules().users[user];
    !policy.allowed_gpus.is_empty() || !policy.blocked_gpus.is_empty()
}

fn known_device_lists<'a>(
    context: &'a EvaluationContext<'_>,
    profile: &'a PolicyProfile,
    device: Option<usize>,
) -> Vec<(PolicyIndex, Result<bool, &'a str>)> {
    let of_user = profile.user.filter(|at| has_device_lists(context, *at));
    if let Some(at) = of_user {
        let (allowed, blocked) = &context.policy_devices.users[at];
        return vec![(
            PolicyIndex::User(at),
            is_device_denied(allowed, blocked, device),
        )];
    }
    let groups = profile.groups.iter().map(|at| {
        let (allowed, blocked) = &context.policy_devices.groups[*at];
        (
            PolicyIndex::Group(*at),
            is_device_denied(allowed, blocked, device),
        )
    });
    // A group with unknown membership denies nothing.
    let doubtful = profile.doubtful.iter().map(|at| {
        let (allowed, blocked) = &context.policy_devices.groups[*at];
        let is = match is_device_denied(allowed, blocked, device) {
            Ok(false) => Ok(false),
            Ok(true) | Err(_) => Err("whether it belongs to the group is not known"),
        };
        (PolicyIndex::Group(*at), is)
    });
    // A label that names a user applies that user's restrictions, and grants nothing.
    let labelled = profile.labelled_user.map(|at| {
        let (allowed, blocked) = &context.policy_devices.users[at];
        (
            PolicyIndex::User(at),
            is_device_denied(allowed, blocked, device),
        )
    });
    groups.chain(doubtful).chain(labelled).collect()
}

fn is_device_denied<'a>(
    allowed: &'a DeviceSet,
    blocked: &'a DeviceSet,
    device: Option<usize>,
) -> Result<bool, &'a str> {
    match (blocked.contains(device), allowed.contains(device)) {
        (Ok(true), _) | (_, Ok(false)) => Ok(true),
        (Err(why), _) | (_, Err(why)) => Err(why),
        (Ok(false), Ok(true)) => Ok(false),
    }
}
