//! Which limits hold for whom, at a moment: of each kind of limit one, from the
//! first of these that says any: the person's own policy (what it says of this time
//! before what it says always), their groups' (the strictest), the defaults. The same
//! for whoever asks and for whoever judges.

mod replaced;

mod held_to;

pub use held_to::{of, protected};
pub use replaced::replaced;

use super::judge::{Policy, UNNAMED};
use super::rules::{Limits, Rules, UserPolicy};
use super::schedule::Civil;
use gpukill_proto::guard::{RuleKind, RuleName};
use std::collections::BTreeMap;
use std::time::Duration;

/// What can be limited of a person.
pub(crate) const PERSONAL: [RuleKind; 5] = [
    RuleKind::Memory,
    RuleKind::Utilization,
    RuleKind::Duration,
    RuleKind::Processes,
    RuleKind::Idle,
];

/// One limit that holds for somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Where it is said, and of what.
    pub rule: RuleName,
    /// In the unit that [`RuleKind`] says; `None` where it is not known which limit
    /// holds.
    pub limit: Option<u64>,
}

/// Whose limits hold for a process: the policy of its owner, and the groups that it
/// counts for. Positions in [`Rules`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Profile {
    pub(crate) user: Option<usize>,
    /// Policies of users that come before it and may be its owner's: what they are
    /// called is not known.
    pub(crate) doubtful_users: Vec<usize>,
    pub(crate) groups: Vec<usize>,
    /// Groups of which it is not known whether it counts for them.
    pub(crate) doubtful: Vec<usize>,
    /// Of both, those for which only the account of its Slurm job speaks, or could, or
    /// a label of its container: that is its own word.
    pub(crate) claimed: Vec<usize>,
    /// Of all groups, those for which such a label speaks, and of users the policy of
    /// whom it names. What these say holds besides, and replaces nothing.
    pub(crate) labelled: Vec<usize>,
    pub(crate) labelled_user: Option<usize>,
}

impl Profile {
    /// The policies of whoever it is, or may be.
    pub(crate) fn users(&self) -> impl Iterator<Item = usize> {
        self.user
            .into_iter()
            .chain(self.doubtful_users.iter().copied())
    }
}

impl Profile {
    /// Whether only a label speaks for this group of it.
    fn is_only_labelled(&self, group: &usize) -> bool {
        self.labelled.contains(group) && !self.doubtful.contains(group)
    }
}

/// Which policy a limit comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Governed {
    By {
        policy: Policy,
        limit: u64,
    },
    /// A policy that may be theirs says it.
    Unknown {
        policy: Policy,
        /// Those that hold where that one does not: of them it is not known either.
        others: Vec<Policy>,
        why: String,
    },
}

/// The limits of a profile at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Resolved {
    pub(crate) by_kind: BTreeMap<RuleKind, Governed>,
    /// Lower limits that hold instead, should its account be another than it says:
    /// between the two it is not known whether a limit is broken.
    pub(crate) doubts: BTreeMap<RuleKind, (Policy, u64)>,
    /// Only who holds so much is idle.
    pub(crate) idle_min_memory: u64,
    /// The same, should its account be another.
    pub(crate) doubtful_idle_min_memory: Option<u64>,
    /// What holds besides.
    pub(crate) besides: Vec<Beside>,
}

/// A limit that holds besides the others, for what a label says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) kind: RuleKind,
    pub(crate) policy: Policy,
    pub(crate) limit: u64,
    /// Only who holds so much is idle by it.
    pub(crate) idle_min_memory: u64,
}

pub(crate) fn resolve(rules: &Rules, profile: &Profile, civil: Civil) -> Resolved {
    let mut resolved = Resolved::default();
    for kind in PERSONAL {
        let of_kind = |limits: &Limits| value(limits, kind);
        let default = of_kind(&rules.defaults);
        let (governed, doubt) = governed(rules, profile, civil, default, &of_kind);
        resolved.by_kind.extend(governed.map(|it| (kind, it)));
        resolved.doubts.extend(doubt.map(|it| (kind, it)));
    }
    let least = |limits: &Limits| limits.idle_min_memory.map(|it| it.0);
    let default = least(&rules.defaults).unwrap_or(0);
    let (governed, doubt) = governed(rules, profile, civil, Some(default), &least);
    resolved.idle_min_memory = match governed {
        Some(Governed::By { limit, .. }) => limit,
        Some(Governed::Unknown { why, .. }) => {
            // Nor is it known then who is idle.
            let idle = resolved.by_kind.get_mut(&RuleKind::Idle);
            if let Some(idle) = idle {
                let (policy, others) = (idle.policy(), idle.others().to_vec());
                *idle = Governed::Unknown {
                    policy,
                    others,
                    why,
                };
            }
            default
        }
        None => default,
    };
    resolved.doubtful_idle_min_memory = doubt.map(|(_, least)| least);
    if resolved.doubtful_idle_min_memory.is_some()
        && let Some(Governed::By { policy, limit }) = resolved.by_kind.get(&RuleKind::Idle)
    {
        let same = (*policy, *limit);
        resolved.doubts.entry(RuleKind::Idle).or_insert(same);
    }
    let besides = PERSONAL.into_iter();
    let besides = besides.flat_map(|kind| besides_of(rules, profile, civil, kind));
    resolved.besides = besides.collect();
    resolved
}

/// What a label of its container makes hold besides.
fn besides_of(rules: &Rules, profile: &Profile, civil: Civil, kind: RuleKind) -> Vec<Beside> {
    type Said<'s> = &'s dyn Fn(&dyn Fn(&Limits) -> Option<u64>) -> Option<u64>;
    let beside = |policy, said: Said<'_>| {
        let least = |limits: &Limits| limits.idle_min_memory.map(|it| it.0);
        Some(Beside {
            kind,
            policy,
            limit: said(&|limits| value(limits, kind))?,
            idle_min_memory: said(&least).or(least(&rules.defaults)).unwrap_or(0),
        })
    };
    let user = profile.labelled_user.and_then(|at| {
        let said = |value: &dyn Fn(&Limits) -> Option<u64>| of_user(&rules.users[at], civil, value);
        beside(Policy::User(at), &said)
    });
    let groups = profile.labelled.iter().filter_map(|at| {
        let said = |value: &dyn Fn(&Limits) -> Option<u64>| value(&rules.groups[*at].limits);
        beside(Policy::Group(*at), &said)
    });
    user.into_iter().chain(groups).collect()
}

/// What holds, and what holds in doubt instead.
type Governing = (Option<Governed>, Option<(Policy, u64)>);

impl Governed {
    /// The one that holds, or the first that may.
    pub(crate) const fn policy(&self) -> Policy {
        match self {
            Self::By { policy, .. } | Self::Unknown { policy, .. } => *policy,
        }
    }

    /// Which else may hold.
    fn others(&self) -> &[Policy] {
        match self {
            Self::By { .. } => &[],
            Self::Unknown { others, .. } => others,
        }
    }
}

/// All policies of which it is not known whether they hold, where one that may be
/// theirs says something.
fn unknown(policy: Policy, why: String, (governed, doubt): Governing) -> Governing {
    let governed = governed.iter();
    let others = governed.flat_map(|it| [&[it.policy()], it.others()].concat());
    let others = others.chain(doubt.map(|(policy, _)| policy)).collect();
    let unknown = Governed::Unknown {
        policy,
        others,
        why,
    };
    (Some(unknown), None)
}

/// What the policies of users say, and else those of groups and the defaults.
fn governed(
    rules: &Rules,
    profile: &Profile,
    civil: Civil,
    default: Option<u64>,
    value: &dyn Fn(&Limits) -> Option<u64>,
) -> Governing {
    let said = |at: usize| {
        let limit = of_user(&rules.users[at], civil, value)?;
        Some((Policy::User(at), limit))
    };
    let by = |(policy, limit)| (Some(Governed::By { policy, limit }), None);
    let own = profile.user.and_then(said).map(by);
    let known = own.unwrap_or_else(|| of_groups(rules, profile, default, value));
    let mut doubtful = profile.doubtful_users.iter().rev().copied();
    let doubtful = doubtful.by_ref().filter_map(said);
    doubtful.fold(known, |known, (policy, _)| {
        unknown(policy, UNNAMED.to_owned(), known)
    })
}

/// The account of a Slurm job is its own word, and who has none leaves it out: it may
/// make a limit stricter, and where it would make one looser, what lies between the
/// two is not known.
fn of_groups(
    rules: &Rules,
    profile: &Profile,
    default: Option<u64>,
    value: &dyn Fn(&Limits) -> Option<u64>,
) -> Governing {
    let of_group = |group: &usize| {
        let limit = value(&rules.groups[*group].limits)?;
        (!profile.is_only_labelled(group)).then_some((limit, *group))
    };
    let is_claimed = |group: &&usize| profile.claimed.contains(group);
    let may_be_of = |group: usize, others: Governing| {
        let name = &rules.groups[group].name;
        let why = format!("whether it belongs to group {name} is not known");
        unknown(Policy::Group(group), why, others)
    };
    let mut vouched = profile.doubtful.iter().filter(|it| !is_claimed(it));
    if let Some((_, group)) = vouched.find_map(of_group) {
        let certain = Profile {
            groups: profile.groups.clone(),
            claimed: profile.claimed.clone(),
            labelled: profile.labelled.clone(),
            ..Profile::default()
        };
        return may_be_of(group, of_groups(rules, &certain, default, value));
    }
    let by = |(limit, policy): (u64, Policy)| Some(Governed::By { policy, limit });
    let beside = |(limit, policy): (u64, Policy)| (policy, limit);
    let of_policy = |(limit, group): (u64, usize)| (limit, Policy::Group(group));
    let said = profile.groups.iter().filter(is_claimed);
    let said = said.filter_map(of_group).min().map(of_policy);
    let unsaid = profile.doubtful.iter().filter(is_claimed);
    let unsaid: Vec<(u64, usize)> = unsaid.filter_map(of_group).collect();
    let unsaid = || unsaid.iter().copied();
    let vouched = profile.groups.iter().filter(|it| !is_claimed(it));
    if let Some(base) = vouched.filter_map(of_group).min().map(of_policy) {
        // Of several groups the strictest holds: another one loosens nothing.
        let strictest = said.map_or(base, |said| said.min(base));
        let least = unsaid().min().map(of_policy);
        let doubt = least.filter(|least| least.0 < strictest.0);
        return (by(strictest), doubt.map(beside));
    }
    let Some(base) = default.map(|limit| (limit, Policy::Default)) else {
        let Some((_, group)) = unsaid().next().filter(|_| said.is_none()) else {
            return (said.and_then(by), None);
        };
        return may_be_of(group, (None, None));
    };
    if let Some(said) = said {
        let is_looser = said.0 > base.0;
        return (by(said), is_looser.then(|| beside(base)));
    }
    let most = unsaid().max().map(of_policy).filter(|it| it.0 > base.0);
    let least = unsaid().min().map(of_policy).filter(|it| it.0 < base.0);
    let doubt = least.or(most.is_some().then_some(base));
    (by(most.unwrap_or(base)), doubt.map(beside))
}

/// What is said of this time replaces what is said of all; of several that are, the
/// strictest.
fn of_user(
    policy: &UserPolicy,
    civil: Civil,
    value: &dyn Fn(&Limits) -> Option<u64>,
) -> Option<u64> {
    let in_force = policy
        .overrides
        .iter()
        .filter(|it| it.hours.contains(civil));
    in_force
        .filter_map(|it| value(&it.limits))
        .min()
        .or_else(|| value(&policy.limits))
}

/// A limit in its kind's unit.
pub(crate) fn value(limits: &Limits, kind: RuleKind) -> Option<u64> {
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

/// Whole milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
