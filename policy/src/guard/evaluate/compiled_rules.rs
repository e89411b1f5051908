//! Rules prepared for evaluation: policies by source, the response to a violation, and
//! digests that show whether a policy has changed.

use super::super::limits::PolicyProfile;
use super::super::limits::milliseconds;
use super::super::rules::canonical::policy_toml;
use super::super::rules::{
    DEFAULT_PRIORITY, EnforcementMode, EnforcementSettings, Measures, RuleSet,
};
use crate::digest::{Digest, digest_parts, digest_text};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::guard::{GuardAction, GuardMode, RuleKind, RuleName, RuleSource};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

/// Rules prepared for evaluation.
#[derive(Debug, Clone)]
pub struct CompiledRules {
    rules: RuleSet,
    by_source: BTreeMap<RuleSource, PolicyIndex>,
    /// Computed at first use: a client seldom needs them.
    digests: OnceLock<RuleDigests>,
    /// Whether a preview evaluates them.
    is_preview: bool,
}

/// Digests that show what of the rules has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RuleDigests {
    /// Everything that affects an evaluation.
    all: Digest,
    /// The behaviour rules and idle limits.
    behaviours: Digest,
    /// The keys of each policy, and the settings that decide the response to a violation.
    policies: BTreeMap<PolicyIndex, Digest>,
    /// The keys of each behaviour rule that decide what it measures.
    measured: Vec<Digest>,
}

impl RuleDigests {
    fn new(rules: &RuleSet) -> Self {
        let shared = rules.shared_toml();
        let protect = policy_toml("protect", &rules.protect);
        let policies = policies(rules).into_iter();
        let texts: Vec<(PolicyIndex, String)> = policies
            .map(|policy| (policy, toml_of_policy(rules, policy)))
            .collect();
        let all = [shared.as_str(), protect.as_str()].into_iter();
        let all = all.chain(texts.iter().map(|(_, text)| text.as_str()));
        let of_policy = |(policy, text): &(PolicyIndex, String)| {
            (*policy, digest_parts([shared.as_str(), text.as_str()]))
        };
        let measured = rules.behaviours.iter();
        Self {
            all: digest_parts(all),
            behaviours: digest_text(&rules.behaviour_toml()),
            policies: texts.iter().map(of_policy).into_map(),
            measured: measured
                .map(|rule| digest_text(&rules.measured_toml(rule)))
                .collect(),
        }
    }
}

/// A policy, by its position in [`RuleSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyIndex {
    Default,
    User(usize),
    Group(usize),
    Gpu(usize),
    Time(usize),
    Behaviour(usize),
}

/// The response to a violation of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleResponse {
    /// The effective mode.
    pub(crate) mode: GuardMode,
    /// How the guard acts in this mode, or would act in a dry run.
    pub(crate) acting_mode: EnforcementMode,
    pub(crate) action: GuardAction,
    pub(crate) grace_ms: u64,
    pub(crate) max_warnings: u32,
    pub(crate) max_snoozes: u32,
    pub(crate) settled_ms: u64,
    pub(crate) message: Option<String>,
}

impl CompiledRules {
    /// Prepares these rules.
    #[must_use]
    pub fn new(rules: RuleSet) -> Self {
        let mut compiled = Self {
            rules,
            by_source: BTreeMap::new(),
            digests: OnceLock::new(),
            is_preview: false,
        };
        // The first of two policies with the same name wins: it is inserted last.
        for policy in policies(&compiled.rules).into_iter().rev() {
            compiled.by_source.insert(compiled.source(policy), policy);
        }
        compiled
    }

    /// The rules that were prepared.
    #[must_use]
    pub const fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// The same rules for a preview: each grace period counts as over, and no job waits until
    /// others have been ended. Their digests are the same.
    pub(crate) fn to_preview(&self) -> Self {
        Self {
            is_preview: true,
            ..self.clone()
        }
    }

    /// Whether a preview evaluates them.
    pub(crate) const fn is_preview(&self) -> bool {
        self.is_preview
    }

    /// Whether both have the same evaluation.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }

    fn digests(&self) -> &RuleDigests {
        self.digests.get_or_init(|| RuleDigests::new(&self.rules))
    }

    /// Equal for rules with the same evaluation.
    pub(crate) fn digest(&self) -> Digest {
        self.digests().all
    }

    /// Equal for policies with the same keys and the same response to a violation.
    pub(crate) fn policy_digest(&self, policy: PolicyIndex) -> Digest {
        let found = self.digests().policies.get(&policy);
        found.copied().unwrap_or_default()
    }

    /// Digest of what a behaviour policy measures, and on which processes. A change of
    /// the response alone does not change it, so that measurements of past hours are kept.
    pub(crate) fn measured_digest(&self, policy: PolicyIndex) -> Digest {
        let PolicyIndex::Behaviour(at) = policy else {
            return Digest::default();
        };
        let found = self.digests().measured.get(at);
        found.copied().unwrap_or_default()
    }

    /// Digest of all behaviour rules and idle limits, whatever the mode and whatever
    /// else applies to the same people.
    pub(crate) fn behaviour_digest(&self) -> Digest {
        self.digests().behaviours
    }

    /// The kind of a behaviour policy; `None` for any other policy.
    pub(crate) fn behaviour_kind(&self, policy: PolicyIndex) -> Option<RuleKind> {
        match policy {
            PolicyIndex::Behaviour(at) => {
                self.rules.behaviours.get(at).map(|it| it.behaviour.kind())
            }
            PolicyIndex::Default
            | PolicyIndex::User(_)
            | PolicyIndex::Group(_)
            | PolicyIndex::Gpu(_)
            | PolicyIndex::Time(_) => None,
        }
    }

    pub(crate) fn source(&self, policy: PolicyIndex) -> RuleSource {
        let rules = &self.rules;
        match policy {
            PolicyIndex::Default => RuleSource::Default,
            PolicyIndex::User(at) => RuleSource::User(rules.users[at].name.clone()),
            PolicyIndex::Group(at) => RuleSource::Group(rules.groups[at].name.clone()),
            PolicyIndex::Gpu(at) => RuleSource::Gpu(rules.gpus[at].name.clone()),
            PolicyIndex::Time(at) => RuleSource::Time(rules.times[at].name.clone()),
            PolicyIndex::Behaviour(at) => RuleSource::Rule(rules.behaviours[at].name.clone()),
        }
    }

    pub(crate) fn rule_name(&self, policy: PolicyIndex, kind: RuleKind) -> RuleName {
        RuleName {
            source: self.source(policy),
            kind,
        }
    }

    /// The policy with this source, if there is one.
    pub(crate) fn find(&self, source: &RuleSource) -> Option<PolicyIndex> {
        self.by_source.get(source).copied()
    }

    /// The response to a violation; `None` if the guard does not evaluate the rule.
    pub(crate) fn response(&self, policy: PolicyIndex, kind: RuleKind) -> Option<RuleResponse> {
        let defaults = Measures::default();
        let rules = &self.rules;
        let measures = match policy {
            PolicyIndex::Default => &defaults,
            PolicyIndex::User(at) => &rules.users[at].measures,
            PolicyIndex::Group(at) => &rules.groups[at].measures,
            PolicyIndex::Gpu(at) => &rules.gpus[at].measures,
            PolicyIndex::Time(at) => &rules.times[at].measures,
            PolicyIndex::Behaviour(at) => &rules.behaviours[at].measures,
        };
        // A policy's own mode can only be milder than the guard's.
        let own = measures.mode.unwrap_or(GuardMode::Enforce);
        let mode = rules.mode.min(own);
        let dry_run_as = match (rules.armed_mode, own) {
            (EnforcementMode::Enforce, GuardMode::Soft) | (EnforcementMode::Soft, _) => {
                EnforcementMode::Soft
            }
            (
                EnforcementMode::Enforce,
                GuardMode::Disabled | GuardMode::DryRun | GuardMode::Enforce,
            ) => EnforcementMode::Enforce,
        };
        let acts = match mode {
            GuardMode::Disabled => return None,
            GuardMode::DryRun => dry_run_as,
            GuardMode::Soft => EnforcementMode::Soft,
            GuardMode::Enforce => EnforcementMode::Enforce,
        };
        let grace = measures.grace.unwrap_or(rules.enforcement.grace);
        let (acts, grace) = match has_grace(kind) {
            true if grace == Duration::ZERO => {
                (EnforcementMode::Soft, EnforcementSettings::default().grace)
            }
            true => (EnforcementMode::Soft, grace),
            false => (acts, grace),
        };
        Some(RuleResponse {
            mode,
            acting_mode: acts,
            action: measures.action.unwrap_or(default_action(kind)),
            grace_ms: match self.is_preview {
                true => 0,
                false => milliseconds(grace),
            },
            max_warnings: rules.enforcement.max_warnings.max(1),
            max_snoozes: measures
                .max_snoozes
                .unwrap_or(rules.enforcement.max_snoozes),
            settled_ms: milliseconds(rules.enforcement.settled_after),
            message: measures.message.clone(),
        })
    }

    /// The response for these users: a user's own policy can make it milder, whichever rule
    /// is violated.
    pub(crate) fn milder_response<'c>(
        &self,
        response: &'c RuleResponse,
        policy: PolicyIndex,
        users: impl Iterator<Item = usize>,
    ) -> Cow<'c, RuleResponse> {
        let mut milder = Cow::Borrowed(response);
        for at in users.filter(|at| policy != PolicyIndex::User(*at)) {
            let Measures {
                action,
                mode,
                grace,
                max_snoozes,
                message: _,
            } = &self.rules.users[at].measures;
            if *action == Some(GuardAction::Warn) && milder.action != GuardAction::Warn {
                milder.to_mut().action = GuardAction::Warn;
            }
            if let Some(mode) = mode.filter(|mode| *mode < milder.mode) {
                milder.to_mut().mode = mode;
            }
            if *mode == Some(GuardMode::Soft) && milder.acting_mode != EnforcementMode::Soft {
                milder.to_mut().acting_mode = EnforcementMode::Soft;
            }
            let grace_ms = grace.map(milliseconds).filter(|ms| *ms > milder.grace_ms);
            if let Some(grace_ms) = grace_ms.filter(|_| !self.is_preview) {
                milder.to_mut().grace_ms = grace_ms;
            }
            if let Some(max) = max_snoozes.filter(|max| *max > milder.max_snoozes) {
                milder.to_mut().max_snoozes = max;
            }
        }
        milder
    }

    /// Whether violations of this policy end services too.
    pub(crate) fn ends_services(&self, policy: PolicyIndex) -> bool {
        match policy {
            PolicyIndex::Behaviour(at) => self.rules.behaviours[at].ends_services,
            PolicyIndex::Default
            | PolicyIndex::User(_)
            | PolicyIndex::Group(_)
            | PolicyIndex::Gpu(_)
            | PolicyIndex::Time(_) => false,
        }
    }

    /// The priority of a process: the lowest is ended first.
    pub(crate) fn priority(&self, profile: &PolicyProfile) -> u8 {
        let of = |at: &usize| self.rules.users[*at].priority;
        // A higher priority that may be the owner's counts.
        let may_be = profile.doubtful_users.iter().filter_map(of).max();
        let known = self.known_priority(profile);
        may_be.map_or(known, |may_be| may_be.max(known))
    }

    fn known_priority(&self, profile: &PolicyProfile) -> u8 {
        let of_user = profile.user.and_then(|at| self.rules.users[at].priority);
        if let Some(of_user) = of_user {
            return of_user;
        }
        // A group with unknown membership raises the priority like any other group. A claim
        // of the process itself never raises it.
        let of = |at: usize| self.rules.users[at].priority;
        let groups = profile.groups.iter().chain(&profile.doubtful);
        let is_claimed = |at: &&usize| profile.claimed.contains(at);
        let (claimed, verified): (Vec<&usize>, Vec<&usize>) = groups.partition(is_claimed);
        let of_group = |at: &usize| self.rules.groups[*at].priority;
        let verified = verified.into_iter().filter_map(of_group).max();
        let priority = verified.unwrap_or(DEFAULT_PRIORITY);
        let claimed = claimed.into_iter().filter(|at| profile.groups.contains(at));
        let labelled = profile.labelled_user.and_then(of);
        let claimed = claimed.filter_map(of_group).chain(labelled).min();
        claimed.map_or(priority, |claimed| claimed.min(priority))
    }
}

/// Whether a violation of this kind is followed by a warning and a grace period in every
/// mode: inactivity is a guess, and the person may be about to work.
pub(crate) const fn has_grace(kind: RuleKind) -> bool {
    matches!(kind, RuleKind::Idle | RuleKind::Waste)
}

/// The action if the rule sets none: high utilization only warns.
const fn default_action(kind: RuleKind) -> GuardAction {
    match kind {
        RuleKind::Utilization | RuleKind::TotalUtilization | RuleKind::GpuUtilization => {
            GuardAction::Warn
        }
        RuleKind::Memory
        | RuleKind::Duration
        | RuleKind::Processes
        | RuleKind::TotalMemory
        | RuleKind::TotalProcesses
        | RuleKind::ProcessMemory
        | RuleKind::ReservedMemory
        | RuleKind::Gpu
        | RuleKind::User
        | RuleKind::Process
        | RuleKind::Maintenance
        | RuleKind::Hours
        | RuleKind::Idle
        | RuleKind::Waste
        | RuleKind::Runaway
        | RuleKind::Growth
        | RuleKind::Rogue => GuardAction::Terminate,
    }
}

/// All policies, in order.
fn policies(rules: &RuleSet) -> Vec<PolicyIndex> {
    let mut policies = vec![PolicyIndex::Default];
    policies.extend((0..rules.users.len()).map(PolicyIndex::User));
    policies.extend((0..rules.groups.len()).map(PolicyIndex::Group));
    policies.extend((0..rules.gpus.len()).map(PolicyIndex::Gpu));
    policies.extend((0..rules.times.len()).map(PolicyIndex::Time));
    policies.extend((0..rules.behaviours.len()).map(PolicyIndex::Behaviour));
    policies
}

fn toml_of_policy(rules: &RuleSet, policy: PolicyIndex) -> String {
    match policy {
        PolicyIndex::Default => policy_toml("global", &rules.defaults),
        PolicyIndex::User(at) => policy_toml(PolicyKind::User.table(), &rules.users[at]),
        PolicyIndex::Group(at) => policy_toml(PolicyKind::Group.table(), &rules.groups[at]),
        PolicyIndex::Gpu(at) => policy_toml(PolicyKind::Gpu.table(), &rules.gpus[at]),
        PolicyIndex::Time(at) => policy_toml(PolicyKind::Time.table(), &rules.times[at]),
        PolicyIndex::Behaviour(at) => policy_toml(PolicyKind::Rule.table(), &rules.behaviours[at]),
    }
}

#[cfg(test)]
mod tests;
