//! Why a job is not ended, or not yet.

use crate::guard::evaluate::{EvaluatedJob, EvaluationContext};
use crate::guard::violation_state::DueOwners;
use gpukill_proto::guard::{GuardAction, GuardMode, RuleKind};
use std::collections::BTreeSet;

/// Whether the grace period of the owner is over, if there is one.
pub(super) fn is_owner_due(
    context: &EvaluationContext<'_>,
    job: &EvaluatedJob,
    due: &DueOwners,
) -> bool {
    match due {
        DueOwners::Nobody => false,
        DueOwners::Anybody => true,
        DueOwners::Owners { past_grace, .. } => {
            let uid = context.people[job.person].uid;
            uid.is_some_and(|uid| past_grace.contains(&uid))
        }
    }
}

/// Whether the owner was warned, if a warning is needed.
pub(super) fn is_owner_warned(
    context: &EvaluationContext<'_>,
    job: &EvaluatedJob,
    due: &DueOwners,
) -> bool {
    match due {
        DueOwners::Nobody | DueOwners::Anybody => true,
        DueOwners::Owners { warned, .. } => {
            let uid = context.people[job.person].uid;
            uid.is_some_and(|uid| warned.contains(&uid))
        }
    }
}

/// Why the guard does not end a job.
pub(super) fn exemption(
    context: &EvaluationContext<'_>,
    job: &EvaluatedJob,
) -> Option<&'static str> {
    if job.exemption.is_some() {
        return job.exemption;
    }
    let is_unclear = job.runs.iter().any(|run| {
        let facts = &context.runs[*run].sample.facts;
        facts.scheduler.is_none() || facts.host_pod().is_none()
    });
    is_unclear.then_some("whether a scheduler or Kubernetes owns it is not known")
}

/// Why a job is exempt while other jobs of the same violation are not: its owner's own
/// policy is milder.
pub(super) fn milder_policy_exemption(
    context: &EvaluationContext<'_>,
    job: &EvaluatedJob,
    mode: GuardMode,
) -> Option<&'static str> {
    let rules = context.compiled_rules.rules();
    let users = job.runs.iter().flat_map(|run| {
        let (profile, _) = &context.profiles[context.runs[*run].profile];
        profile.users()
    });
    let mut measures = users.map(|at| &rules.users[at].measures);
    measures.find_map(|kind| {
        let is_only_warned = kind.action == Some(GuardAction::Warn);
        let is_dry_run = kind.mode == Some(GuardMode::DryRun) && mode > GuardMode::DryRun;
        match () {
            () if is_only_warned => Some("its owner is only warned"),
            () if is_dry_run => Some("its owner's rules are a dry run"),
            () => None,
        }
    })
}

pub(super) fn format_reasons(reasons: BTreeSet<String>, kind: RuleKind) -> String {
    /// How many reasons are named.
    const NAMED: usize = 3;
    let count = reasons.len();
    let mut named: Vec<String> = reasons.into_iter().take(NAMED).collect();
    if count > NAMED {
        named.push(format!("{} more", count - NAMED));
    }
    if named.is_empty() {
        return format!("no known process would change the {}", kind.name());
    }
    named.join("; ")
}
