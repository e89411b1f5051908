//! The usage that one limit adds up: that of a person under one rule, or that of a group.

use super::super::limits::{ResolvedLimit, limit_value};
use super::super::rules::GroupPolicy;
use super::compiled_rules::PolicyIndex;
use super::context::EvaluationContext;
use super::findings::{Findings, SELF_REPORTED_ACCOUNT, SubjectIndex};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::RuleKind;
use std::collections::BTreeMap;

pub(crate) struct LimitScope {
    pub(crate) policy: PolicyIndex,
    pub(crate) subject: SubjectIndex,
    pub(crate) limit: u64,
    /// Positions in the context.
    pub(crate) cells: Vec<usize>,
    /// The number of runs for which it is unknown whether they count.
    pub(crate) doubtful: u32,
    /// Why it is unknown whether the limit applies to them.
    pub(crate) doubt: Option<&'static str>,
}

impl LimitScope {
    pub(crate) fn runs<'s>(
        &'s self,
        context: &'s EvaluationContext<'_>,
    ) -> impl Iterator<Item = usize> + 's {
        let cells = self.cells.iter();
        cells.flat_map(|cell| context.cells[*cell].runs.iter().copied())
    }
}

/// The limits of this kind of all people, each with the usage that it covers, and those of
/// time policies in addition.
pub(crate) fn person_scopes(
    context: &EvaluationContext<'_>,
    kind: RuleKind,
    findings: &mut Findings,
) -> Vec<LimitScope> {
    let mut scopes: BTreeMap<(usize, PolicyIndex, Option<&str>), LimitScope> = BTreeMap::new();
    let times = time_limits(context, kind);
    for (position, cell) in context.cells.iter().enumerate() {
        let mut add = |policy, limit, doubt| {
            let scope = scopes.entry((cell.person, policy, doubt));
            let scope = scope.or_insert_with(|| LimitScope {
                policy,
                subject: SubjectIndex::Person(cell.person),
                limit,
                cells: Vec::new(),
                doubtful: 0,
                doubt,
            });
            // A policy sets the same limit for all its cells; otherwise the lowest would
            // apply.
            scope.limit = scope.limit.min(limit);
            scope.cells.push(position);
        };
        let resolved = &context.profiles[cell.profile].1;
        if let Some((policy, limit)) = resolved.doubts.get(&kind) {
            add(*policy, *limit, Some(SELF_REPORTED_ACCOUNT));
        }
        match resolved.by_kind.get(&kind) {
            Some(ResolvedLimit::Known { policy, limit }) => add(*policy, *limit, None),
            Some(ResolvedLimit::Unknown {
                policy,
                other_policies,
                why,
            }) => {
                for policy in [*policy].iter().chain(other_policies) {
                    findings.add_unknown(
                        *policy,
                        kind,
                        SubjectIndex::Person(cell.person),
                        why.clone(),
                    );
                }
            }
            None => {}
        }
        for beside in resolved.additional.iter().filter(|it| it.kind == kind) {
            add(beside.policy, beside.limit, None);
        }
        for (policy, limit) in &times {
            match applies_to_device(context, *policy, cell.device) {
                Ok(true) => add(*policy, *limit, None),
                Ok(false) => {}
                Err(why) => {
                    let subject = SubjectIndex::Person(cell.person);
                    findings.add_unknown(*policy, kind, subject, why.to_owned());
                }
            }
        }
    }
    if limit_value(&context.compiled_rules.rules().defaults, kind).is_some() {
        let runs = context.runs.iter().enumerate();
        for (position, _) in runs.filter(|(_, run)| run.person.is_none()) {
            let subject = SubjectIndex::Run(position);
            findings.add_unknown(
                PolicyIndex::Default,
                kind,
                subject,
                "its owner is not known",
            );
        }
    }
    scopes.into_values().collect()
}

/// The limits of this kind from the time policies in force.
pub(crate) fn time_limits(
    context: &EvaluationContext<'_>,
    kind: RuleKind,
) -> Vec<(PolicyIndex, u64)> {
    let times = context.compiled_rules.rules().times.iter().enumerate();
    times
        .filter(|(_, time)| time.hours.contains(context.sample.local_time))
        .filter_map(|(at, time)| Some((PolicyIndex::Time(at), limit_value(&time.limits, kind)?)))
        .collect()
}

/// Whether a policy applies to the device. Only time policies select devices here.
pub(crate) fn applies_to_device<'s>(
    context: &'s EvaluationContext<'_>,
    policy: PolicyIndex,
    device: Option<usize>,
) -> Result<bool, &'s str> {
    match policy {
        PolicyIndex::Time(at) => context.policy_devices.times[at].contains(device),
        PolicyIndex::Default
        | PolicyIndex::User(_)
        | PolicyIndex::Group(_)
        | PolicyIndex::Gpu(_)
        | PolicyIndex::Behaviour(_) => Ok(true),
    }
}

/// The total limit of each group that has one.
pub(crate) fn group_scopes(
    context: &EvaluationContext<'_>,
    limit: impl Fn(&GroupPolicy) -> Option<u64>,
) -> Vec<LimitScope> {
    let mut scopes: BTreeMap<usize, LimitScope> = context
        .compiled_rules
        .rules()
        .groups
        .iter()
        .enumerate()
        .filter_map(|(at, group)| {
            let scope = LimitScope {
                policy: PolicyIndex::Group(at),
                subject: SubjectIndex::Group(at),
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
    for (position, cell) in context.cells.iter().enumerate() {
        let profile = &context.profiles[cell.profile].0;
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
    // A claimed membership does not hold verified members to a total.
    let claimed: Vec<LimitScope> = claimed
        .into_iter()
        .filter_map(|(group, cells)| {
            let verified = scopes.get(&group)?;
            Some(LimitScope {
                policy: verified.policy,
                subject: verified.subject,
                limit: verified.limit,
                cells: verified.cells.iter().copied().chain(cells).collect(),
                doubtful: verified.doubtful,
                doubt: (!verified.cells.is_empty()).then_some(SELF_REPORTED_ACCOUNT),
            })
        })
        .collect();
    let is_used = |scope: &LimitScope| !scope.cells.is_empty() || scope.doubtful > 0;
    let verified = scopes.into_values().filter(is_used);
    verified.chain(claimed).collect()
}
