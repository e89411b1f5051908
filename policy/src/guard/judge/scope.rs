//! Whose use one limit adds up: a person's, as far as the same rule holds for it, or a
//! group's.

use super::super::limits::{Governed, value};
use super::super::rules::GroupPolicy;
use super::book::Policy;
use super::finding::{ACCOUNT, Findings, Whom};
use super::scene::Scene;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::RuleKind;
use std::collections::BTreeMap;

/// What one limit adds up.
pub(crate) struct Scope {
    pub(crate) policy: Policy,
    pub(crate) whom: Whom,
    pub(crate) limit: u64,
    /// Positions in the scene.
    pub(crate) cells: Vec<usize>,
    /// Of so many runs it is not known whether they count.
    pub(crate) doubtful: u32,
    /// Why it is not known whether this holds for them.
    pub(crate) doubt: Option<&'static str>,
}

impl Scope {
    /// Its runs.
    pub(crate) fn runs<'s>(&'s self, scene: &'s Scene<'_>) -> impl Iterator<Item = usize> + 's {
        let cells = self.cells.iter();
        cells.flat_map(|cell| scene.cells[*cell].runs.iter().copied())
    }
}

/// The limits of this kind of all persons: each as far as it holds, and those of the
/// time besides.
pub(crate) fn of_persons(scene: &Scene<'_>, kind: RuleKind, findings: &mut Findings) -> Vec<Scope> {
    let mut scopes: BTreeMap<(usize, Policy, Option<&str>), Scope> = BTreeMap::new();
    let times = times(scene, kind);
    for (position, cell) in scene.cells.iter().enumerate() {
        let mut add = |policy, limit, doubt| {
            let scope = scopes.entry((cell.person, policy, doubt));
            let scope = scope.or_insert_with(|| Scope {
                policy,
                whom: Whom::Person(cell.person),
                limit,
                cells: Vec::new(),
                doubtful: 0,
                doubt,
            });
            // A policy says the same of all; were it not so, the lowest holds.
            scope.limit = scope.limit.min(limit);
            scope.cells.push(position);
        };
        let resolved = &scene.profiles[cell.profile].1;
        if let Some((policy, limit)) = resolved.doubts.get(&kind) {
            add(*policy, *limit, Some(ACCOUNT));
        }
        match resolved.by_kind.get(&kind) {
            Some(Governed::By { policy, limit }) => add(*policy, *limit, None),
            Some(Governed::Unknown {
                policy,
                others,
                why,
            }) => {
                for policy in [*policy].iter().chain(others) {
                    findings.unknown(*policy, kind, Whom::Person(cell.person), why.clone());
                }
            }
            None => {}
        }
        for beside in resolved.besides.iter().filter(|it| it.kind == kind) {
            add(beside.policy, beside.limit, None);
        }
        for (policy, limit) in &times {
            match is_meant(scene, *policy, cell.device) {
                Ok(true) => add(*policy, *limit, None),
                Ok(false) => {}
                Err(why) => {
                    let whom = Whom::Person(cell.person);
                    findings.unknown(*policy, kind, whom, why.to_owned());
                }
            }
        }
    }
    if value(&scene.book.rules().defaults, kind).is_some() {
        let runs = scene.runs.iter().enumerate();
        for (position, _) in runs.filter(|(_, run)| run.person.is_none()) {
            let whom = Whom::Run(position);
            findings.unknown(Policy::Default, kind, whom, "whose it is, is not known");
        }
    }
    scopes.into_values().collect()
}

/// The limits of the time, of this kind.
pub(crate) fn times(scene: &Scene<'_>, kind: RuleKind) -> Vec<(Policy, u64)> {
    let times = scene.book.rules().times.iter().enumerate();
    times
        .filter(|(_, time)| time.hours.contains(scene.bucket.civil))
        .filter_map(|(at, time)| Some((Policy::Time(at), value(&time.limits, kind)?)))
        .collect()
}

/// Whether a policy of the time is about the device.
pub(crate) fn is_meant<'s>(
    scene: &'s Scene<'_>,
    policy: Policy,
    device: Option<usize>,
) -> Result<bool, &'s str> {
    match policy {
        Policy::Time(at) => scene.places.times[at].has(device),
        Policy::Default
        | Policy::User(_)
        | Policy::Group(_)
        | Policy::Gpu(_)
        | Policy::Behaviour(_) => Ok(true),
    }
}

/// A total of all groups that have one.
pub(crate) fn of_groups(
    scene: &Scene<'_>,
    limit: impl Fn(&GroupPolicy) -> Option<u64>,
) -> Vec<Scope> {
    let mut scopes: BTreeMap<usize, Scope> = scene
        .book
        .rules()
        .groups
        .iter()
        .enumerate()
        .filter_map(|(at, group)| {
            let scope = Scope {
                policy: Policy::Group(at),
                whom: Whom::Group(at),
                limit: limit(group)?,
                cells: Vec::new(),
                doubtful: 0,
                doubt: None,
            };
            Some((at, scope))
        })
        .into_map();
    if scopes.is_empty() {
        return Vec::new();
    }
    let mut claimed: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (position, cell) in scene.cells.iter().enumerate() {
        let profile = &scene.profiles[cell.profile].0;
        for group in &profile.groups {
            if profile.claimed.contains(group) {
                claimed.entry(*group).or_default().push(position);
            } else if let Some(scope) = scopes.get_mut(group) {
                scope.cells.push(position);
            }
        }
        for group in &profile.doubtful {
            if let Some(scope) = scopes.get_mut(group) {
                let count = u32::try_from(cell.runs.len()).unwrap_or(u32::MAX);
                scope.doubtful = scope.doubtful.saturating_add(count);
            }
        }
    }
    // Nobody is held to what others only say that they belong to.
    let claimed: Vec<Scope> = claimed
        .into_iter()
        .filter_map(|(group, cells)| {
            let vouched = scopes.get(&group)?;
            Some(Scope {
                policy: vouched.policy,
                whom: vouched.whom,
                limit: vouched.limit,
                cells: vouched.cells.iter().copied().chain(cells).collect(),
                doubtful: vouched.doubtful,
                doubt: (!vouched.cells.is_empty()).then_some(ACCOUNT),
            })
        })
        .collect();
    let is_used = |scope: &Scope| !scope.cells.is_empty() || scope.doubtful > 0;
    let vouched = scopes.into_values().filter(is_used);
    vouched.chain(claimed).collect()
}
