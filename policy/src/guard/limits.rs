//! Resolves the limits that apply at a moment. For each kind of limit the first of these
//! that sets one wins: the person's own policy (for the current time before its general
//! limits), their groups (the strictest), the defaults. Queries and evaluations share this
//! code.

mod effective;
mod replaced;

pub use effective::{effective_limits, protection_reason};
pub use replaced::replaced_limits;

use super::evaluate::{OWNER_NAME_UNKNOWN, PolicyIndex};
use super::rules::{Limits, RuleSet, UserPolicy};
use super::schedule::LocalTime;
use gpukill_proto::guard::{RuleKind, RuleName};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const PERSON_LIMIT_KINDS: [RuleKind; 5] = [
    RuleKind::Memory,
    RuleKind::Utilization,
    RuleKind::Duration,
    RuleKind::Processes,
    RuleKind::Idle,
];

/// A limit that applies to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveLimit {
    /// The rule that sets it, and its kind.
    pub rule: RuleName,
    /// In the unit of its [`RuleKind`]; `None` if it is unknown which limit applies.
    pub limit: Option<u64>,
}

/// The policies that limit a process: that of its owner, and those of the groups that it
/// counts for. Numbers are positions in [`RuleSet`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct PolicyProfile {
    pub(crate) user: Option<usize>,
    /// Earlier policies of users that may be its owner's: the owner's name is unknown.
    pub(crate) doubtful_users: Vec<usize>,
    pub(crate) groups: Vec<usize>,
    /// Groups for which it is unknown whether the process counts for them.
    pub(crate) doubtful: Vec<usize>,
    /// The groups of both lists that only a claim of the process supports, or could: the
    /// account of its Slurm job, or a label of its container.
    pub(crate) claimed: Vec<usize>,
    /// The groups that such a label supports, and the policy of the user that it names.
    /// Their limits apply in addition, and replace nothing.
    pub(crate) labelled: Vec<usize>,
    pub(crate) labelled_user: Option<usize>,
}

impl PolicyProfile {
    /// The user policies that are its owner's, or may be.
    pub(crate) fn users(&self) -> impl Iterator<Item = usize> {
        self.user
            .into_iter()
            .chain(self.doubtful_users.iter().copied())
    }
}

impl PolicyProfile {
    /// Whether only a label supports this group.
    fn is_only_labelled(&self, group: &usize) -> bool {
        self.labelled.contains(group) && !self.doubtful.contains(group)
    }
}

/// The policy that a limit comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResolvedLimit {
    Known {
        policy: PolicyIndex,
        limit: u64,
    },
    /// A policy that may apply sets it.
    Unknown {
        policy: PolicyIndex,
        /// The policies that apply if that one does not: these are unknown too.
        other_policies: Vec<PolicyIndex>,
        why: String,
    },
}

/// The limits of a profile at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResolvedLimits {
    pub(crate) by_kind: BTreeMap<RuleKind, ResolvedLimit>,
    /// Lower limits that apply instead, if the claimed account is false: between the two it
    /// is unknown whether a limit is violated.
    pub(crate) doubts: BTreeMap<RuleKind, (PolicyIndex, u64)>,
    /// Only a job that holds this much counts as idle.
    pub(crate) idle_min_memory: u64,
    /// The same, if the claimed account is false.
    pub(crate) doubtful_idle_min_memory: Option<u64>,
    /// Limits that apply in addition.
    pub(crate) additional: Vec<AdditionalLimit>,
}

/// A limit that a label adds to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdditionalLimit {
    pub(crate) kind: RuleKind,
    pub(crate) policy: PolicyIndex,
    pub(crate) limit: u64,
    /// Only a job that holds this much counts as idle by it.
    pub(crate) idle_min_memory: u64,
}

pub(crate) fn resolve_limits(
    rules: &RuleSet,
    profile: &PolicyProfile,
    local_time: LocalTime,
) -> ResolvedLimits {
    let mut resolved = ResolvedLimits::default();
    for kind in PERSON_LIMIT_KINDS {
        let of_kind = |limits: &Limits| limit_value(limits, kind);
        let default = of_kind(&rules.defaults);
        let (governed, doubt) = resolve_kind(rules, profile, local_time, default, &of_kind);
        resolved.by_kind.extend(governed.map(|it| (kind, it)));
        resolved.doubts.extend(doubt.map(|it| (kind, it)));
    }
    let idle_min_memory = |limits: &Limits| limits.idle_min_memory.map(|it| it.0);
    let default = idle_min_memory(&rules.defaults).unwrap_or(0);
    let (governed, doubt) =
        resolve_kind(rules, profile, local_time, Some(default), &idle_min_memory);
    resolved.idle_min_memory = match governed {
        Some(ResolvedLimit::Known { limit, .. }) => limit,
        Some(ResolvedLimit::Unknown { why, .. }) => {
            // It is then unknown too which jobs are idle.
            let idle = resolved.by_kind.get_mut(&RuleKind::Idle);
            if let Some(idle) = idle {
                let (policy, other_policies) = (idle.policy(), idle.other_policies().to_vec());
                *idle = ResolvedLimit::Unknown {
                    policy,
                    other_policies,
                    why,
                };
            }
            default
        }
        None => default,
    };
    resolved.doubtful_idle_min_memory = doubt.map(|(_, idle_min_memory)| idle_min_memory);
    if resolved.doubtful_idle_min_memory.is_some()
        && let Some(ResolvedLimit::Known { policy, limit }) = resolved.by_kind.get(&RuleKind::Idle)
    {
        let same = (*policy, *limit);
        resolved.doubts.entry(RuleKind::Idle).or_insert(same);
    }
    let additional = PERSON_LIMIT_KINDS.into_iter();
    let additional =
        additional.flat_map(|kind| additional_limits(rules, profile, local_time, kind));
    resolved.additional = additional.collect();
    resolved
}

/// The limits that a label of its container adds.
fn additional_limits(
    rules: &RuleSet,
    profile: &PolicyProfile,
    local_time: LocalTime,
    kind: RuleKind,
) -> Vec<AdditionalLimit> {
    type LimitLookup<'s> = &'s dyn Fn(&dyn Fn(&Limits) -> Option<u64>) -> Option<u64>;
    let beside = |policy, limit_of: LimitLookup<'_>| {
        let idle_min_memory = |limits: &Limits| limits.idle_min_memory.map(|it| it.0);
        Some(AdditionalLimit {
            kind,
            policy,
            limit: limit_of(&|limits| limit_value(limits, kind))?,
            idle_min_memory: limit_of(&idle_min_memory)
                .or(idle_min_memory(&rules.defaults))
                .unwrap_or(0),
        })
    };
    let user = profile.labelled_user.and_then(|at| {
        let limit_of = |value: &dyn Fn(&Limits) -> Option<u64>| {
            user_limit(&rules.users[at], local_time, value)
        };
        beside(PolicyIndex::User(at), &limit_of)
    });
    let groups = profile.labelled.iter().filter_map(|at| {
        let limit_of = |value: &dyn Fn(&Limits) -> Option<u64>| value(&rules.groups[*at].limits);
        beside(PolicyIndex::Group(*at), &limit_of)
    });
    user.into_iter().chain(groups).collect()
}

/// The limit that applies, and the one that applies instead in doubt.
type LimitAndDoubt = (Option<ResolvedLimit>, Option<(PolicyIndex, u64)>);

impl ResolvedLimit {
    /// The policy that applies, or the first that may.
    pub(crate) const fn policy(&self) -> PolicyIndex {
        match self {
            Self::Known { policy, .. } | Self::Unknown { policy, .. } => *policy,
        }
    }

    /// The other policies that may apply.
    fn other_policies(&self) -> &[PolicyIndex] {
        match self {
            Self::Known { .. } => &[],
            Self::Unknown { other_policies, .. } => other_policies,
        }
    }
}

/// Marks all policies as unknown, because one that may apply sets a limit.
fn mark_unknown(
    policy: PolicyIndex,
    why: String,
    (governed, doubt): LimitAndDoubt,
) -> LimitAndDoubt {
    let governed = governed.iter();
    let other_policies = governed.flat_map(|it| [&[it.policy()], it.other_policies()].concat());
    let other_policies = other_policies
        .chain(doubt.map(|(policy, _)| policy))
        .collect();
    let unknown = ResolvedLimit::Unknown {
        policy,
        other_policies,
        why,
    };
    (Some(unknown), None)
}

/// The limit of the user policies, otherwise that of the groups and the defaults.
fn resolve_kind(
    rules: &RuleSet,
    profile: &PolicyProfile,
    local_time: LocalTime,
    default: Option<u64>,
    value: &dyn Fn(&Limits) -> Option<u64>,
) -> LimitAndDoubt {
    let user_policy_limit = |at: usize| {
        let limit = user_limit(&rules.users[at], local_time, value)?;
        Some((PolicyIndex::User(at), limit))
    };
    let by = |(policy, limit)| (Some(ResolvedLimit::Known { policy, limit }), None);
    let own = profile.user.and_then(user_policy_limit).map(by);
    let known = own.unwrap_or_else(|| group_limit(rules, profile, default, value));
    let mut doubtful = profile.doubtful_users.iter().rev().copied();
    let doubtful = doubtful.by_ref().filter_map(user_policy_limit);
    doubtful.fold(known, |known, (policy, _)| {
        mark_unknown(policy, OWNER_NAME_UNKNOWN.to_owned(), known)
    })
}

/// The account of a Slurm job is a claim of the process, which can leave it out. It may
/// make a limit stricter; where it would make one looser, the range between the two is
/// unknown.
fn group_limit(
    rules: &RuleSet,
    profile: &PolicyProfile,
    default: Option<u64>,
    value: &dyn Fn(&Limits) -> Option<u64>,
) -> LimitAndDoubt {
    let of_group = |group: &usize| {
        let limit = value(&rules.groups[*group].limits)?;
        (!profile.is_only_labelled(group)).then_some((limit, *group))
    };
    let is_claimed = |group: &&usize| profile.claimed.contains(group);
    let may_be_of = |group: usize, other_policies: LimitAndDoubt| {
        let name = &rules.groups[group].name;
        let why = format!("whether it belongs to group {name} is not known");
        mark_unknown(PolicyIndex::Group(group), why, other_policies)
    };
    let mut verified = profile.doubtful.iter().filter(|it| !is_claimed(it));
    if let Some((_, group)) = verified.find_map(of_group) {
        let certain = PolicyProfile {
            groups: profile.groups.clone(),
            claimed: profile.claimed.clone(),
            labelled: profile.labelled.clone(),
            ..PolicyProfile::default()
        };
        return may_be_of(group, group_limit(rules, &certain, default, value));
    }
    let by = |(limit, policy): (u64, PolicyIndex)| Some(ResolvedLimit::Known { policy, limit });
    let beside = |(limit, policy): (u64, PolicyIndex)| (policy, limit);
    let of_policy = |(limit, group): (u64, usize)| (limit, PolicyIndex::Group(group));
    let claimed = profile.groups.iter().filter(is_claimed);
    let claimed = claimed.filter_map(of_group).min().map(of_policy);
    let maybe_claimed = profile.doubtful.iter().filter(is_claimed);
    let maybe_claimed: Vec<(u64, usize)> = maybe_claimed.filter_map(of_group).collect();
    let maybe_claimed = || maybe_claimed.iter().copied();
    let verified = profile.groups.iter().filter(|it| !is_claimed(it));
    if let Some(base) = verified.filter_map(of_group).min().map(of_policy) {
        // The strictest of several groups applies: another group loosens nothing.
        let strictest = claimed.map_or(base, |claimed| claimed.min(base));
        let least = maybe_claimed().min().map(of_policy);
        let doubt = least.filter(|least| least.0 < strictest.0);
        return (by(strictest), doubt.map(beside));
    }
    let Some(base) = default.map(|limit| (limit, PolicyIndex::Default)) else {
        let Some((_, group)) = maybe_claimed().next().filter(|_| claimed.is_none()) else {
            return (claimed.and_then(by), None);
        };
        return may_be_of(group, (None, None));
    };
    if let Some(claimed) = claimed {
        let is_looser = claimed.0 > base.0;
        return (by(claimed), is_looser.then(|| beside(base)));
    }
    let most = maybe_claimed()
        .max()
        .map(of_policy)
        .filter(|it| it.0 > base.0);
    let least = maybe_claimed()
        .min()
        .map(of_policy)
        .filter(|it| it.0 < base.0);
    let doubt = least.or(most.is_some().then_some(base));
    (by(most.unwrap_or(base)), doubt.map(beside))
}

/// A limit for the current time replaces the general one; the strictest of several applies.
fn user_limit(
    policy: &UserPolicy,
    local_time: LocalTime,
    value: &dyn Fn(&Limits) -> Option<u64>,
) -> Option<u64> {
    let in_force = policy
        .overrides
        .iter()
        .filter(|it| it.hours.contains(local_time));
    in_force
        .filter_map(|it| value(&it.limits))
        .min()
        .or_else(|| value(&policy.limits))
}

/// A limit in the unit of its kind.
pub(crate) fn limit_value(limits: &Limits, kind: RuleKind) -> Option<u64> {
    match kind {
        RuleKind::Memory => limits.memory.map(|it| it.0),
        RuleKind::Utilization => limits.utilization.map(|it| u64::from(it.0)),
        RuleKind::Duration => limits.duration.map(milliseconds),
        RuleKind::Processes => limits.processes.map(u64::from),
        RuleKind::Idle => limits.idle.map(milliseconds),
        RuleKind::TotalMemory
        | RuleKind::TotalUtilization
        | RuleKind::TotalProcesses
        | RuleKind::ProcessMemory
        | RuleKind::GpuUtilization
        | RuleKind::ReservedMemory
        | RuleKind::Gpu
        | RuleKind::User
        | RuleKind::Process
        | RuleKind::Maintenance
        | RuleKind::Hours
        | RuleKind::Waste
        | RuleKind::Runaway
        | RuleKind::Growth
        | RuleKind::Rogue => None,
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
