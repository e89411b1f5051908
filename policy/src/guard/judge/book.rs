//! The rules, made ready to judge by: which policy is where, what comes of each, and
//! whether it still is what it was.

use super::super::limits::Profile;
use super::super::limits::milliseconds;
use super::super::rules::canonical::policy_toml;
use super::super::rules::{Enforcement, Measures, PRIORITY, Rehearsed, Rules};
use crate::digest::{Digest, digest_parts, digest_text};
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::guard::{GuardAction, GuardMode, RuleKind, RuleName, RuleSource};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rules that are ready to judge by.
#[derive(Debug, Clone)]
pub struct Rulebook {
    rules: Rules,
    /// Of everything that decides on a judgement.
    digest: Digest,
    /// Of the rules on behaviour.
    behaviour_digest: Digest,
    /// In the order of [`policies`].
    digests: Vec<(Policy, PolicyDigests)>,
    named: BTreeMap<RuleSource, Policy>,
}

/// The digests of one policy.
#[derive(Debug, Clone, Copy, Default)]
struct PolicyDigests {
    /// Of all its keys, and of the settings that decide what comes of it.
    whole: Digest,
    /// Of the keys that decide what it measures.
    measured: Digest,
}

/// Which policy: its position in [`Rules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Policy {
    Default,
    User(usize),
    Group(usize),
    Gpu(usize),
    Time(usize),
    Behaviour(usize),
}

/// What comes of a violation of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Course {
    /// How far the guard goes.
    pub(crate) mode: GuardMode,
    /// What that is, or what dry run rehearses.
    pub(crate) acts: Rehearsed,
    pub(crate) action: GuardAction,
    pub(crate) grace_ms: u64,
    pub(crate) max_warnings: u32,
    pub(crate) max_snoozes: u32,
    pub(crate) settled_ms: u64,
    pub(crate) message: Option<String>,
}

impl Rulebook {
    /// Of these rules.
    #[must_use]
    pub fn of(rules: Rules) -> Self {
        let shared = rules.shared_toml();
        let policies = policies(&rules);
        let texts: Vec<String> = policies
            .iter()
            .map(|policy| toml_of_policy(&rules, *policy))
            .collect();
        let protect = rules.protect_toml();
        let all = [&shared, &protect].into_iter().chain(&texts);
        let digest = digest_parts(all.map(String::as_str));
        let digests = policies.iter().zip(&texts).map(|(policy, text)| {
            let measured = match policy {
                Policy::Behaviour(at) => digest_text(&rules.measured_toml(&rules.behaviours[*at])),
                Policy::Default
                | Policy::User(_)
                | Policy::Group(_)
                | Policy::Gpu(_)
                | Policy::Time(_) => Digest::default(),
            };
            let whole = digest_parts([shared.as_str(), text]);
            (*policy, PolicyDigests { whole, measured })
        });
        let mut book = Self {
            digest,
            behaviour_digest: digest_text(&rules.behaviour_toml()),
            digests: digests.collect(),
            named: BTreeMap::new(),
            rules,
        };
        // Of two that are called the same, the first.
        for policy in policies.into_iter().rev() {
            book.named.insert(book.source(policy), policy);
        }
        book
    }

    /// What they say.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether others say the same.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// Differs where anything that decides on a judgement differs.
    pub(crate) const fn digest(&self) -> Digest {
        self.digest
    }

    /// Differs where a policy, or what comes of it, differs.
    pub(crate) fn policy_digest(&self, policy: Policy) -> Digest {
        self.digests_of(policy).whole
    }

    /// Differs where what a rule on behaviour measures differs, and of which processes: not
    /// where only what comes of it does, so that what is known of hours stays known.
    pub(crate) fn measured_digest(&self, policy: Policy) -> Digest {
        self.digests_of(policy).measured
    }

    fn digests_of(&self, policy: Policy) -> PolicyDigests {
        let found = self.digests.binary_search_by_key(&policy, |(at, _)| *at);
        found.map_or_else(
            |_| PolicyDigests::default(),
            |position| self.digests[position].1,
        )
    }

    /// Differs where what is said of behaviour differs, whatever the mode, and whatever else
    /// is said of the same people.
    pub(crate) const fn behaviour_digest(&self) -> Digest {
        self.behaviour_digest
    }

    /// What a rule on behaviour is about; `None` of any other policy.
    pub(crate) fn conduct(&self, policy: Policy) -> Option<RuleKind> {
        match policy {
            Policy::Behaviour(at) => self.rules.behaviours.get(at).map(|it| it.conduct.kind()),
            Policy::Default
            | Policy::User(_)
            | Policy::Group(_)
            | Policy::Gpu(_)
            | Policy::Time(_) => None,
        }
    }

    pub(crate) fn source(&self, policy: Policy) -> RuleSource {
        let rules = &self.rules;
        match policy {
            Policy::Default => RuleSource::Default,
            Policy::User(at) => RuleSource::User(rules.users[at].name.clone()),
            Policy::Group(at) => RuleSource::Group(rules.groups[at].name.clone()),
            Policy::Gpu(at) => RuleSource::Gpu(rules.gpus[at].name.clone()),
            Policy::Time(at) => RuleSource::Time(rules.times[at].name.clone()),
            Policy::Behaviour(at) => RuleSource::Rule(rules.behaviours[at].name.clone()),
        }
    }

    pub(crate) fn name(&self, policy: Policy, kind: RuleKind) -> RuleName {
        RuleName {
            source: self.source(policy),
            kind,
        }
    }

    /// The policy that is called so, where there is one.
    pub(crate) fn find(&self, source: &RuleSource) -> Option<Policy> {
        self.named.get(source).copied()
    }

    /// What comes of a violation; `None` where the guard does not judge it.
    pub(crate) fn course(&self, policy: Policy, kind: RuleKind) -> Option<Course> {
        let defaults = Measures::default();
        let rules = &self.rules;
        let measures = match policy {
            Policy::Default => &defaults,
            Policy::User(at) => &rules.users[at].measures,
            Policy::Group(at) => &rules.groups[at].measures,
            Policy::Gpu(at) => &rules.gpus[at].measures,
            Policy::Time(at) => &rules.times[at].measures,
            Policy::Behaviour(at) => &rules.behaviours[at].measures,
        };
        // A policy's own mode is only ever the milder one.
        let own = measures.mode.unwrap_or(GuardMode::Enforce);
        let mode = rules.mode.min(own);
        let rehearsed = match (rules.rehearsed, own) {
            (Rehearsed::Enforce, GuardMode::Soft) | (Rehearsed::Soft, _) => Rehearsed::Soft,
            (Rehearsed::Enforce, GuardMode::Disabled | GuardMode::DryRun | GuardMode::Enforce) => {
                Rehearsed::Enforce
            }
        };
        let acts = match mode {
            GuardMode::Disabled => return None,
            GuardMode::DryRun => rehearsed,
            GuardMode::Soft => Rehearsed::Soft,
            GuardMode::Enforce => Rehearsed::Enforce,
        };
        let grace = measures.grace.unwrap_or(rules.enforcement.grace);
        let (acts, grace) = match has_grace(kind) {
            true if grace == Duration::ZERO => (Rehearsed::Soft, Enforcement::default().grace),
            true => (Rehearsed::Soft, grace),
            false => (acts, grace),
        };
        Some(Course {
            mode,
            acts,
            action: measures.action.unwrap_or(action(kind)),
            grace_ms: milliseconds(grace),
            max_warnings: rules.enforcement.max_warnings.max(1),
            max_snoozes: measures
                .max_snoozes
                .unwrap_or(rules.enforcement.max_snoozes),
            settled_ms: milliseconds(rules.enforcement.settled_after),
            message: measures.message.clone(),
        })
    }

    /// The same for what these users do: what their own policies say of how far the guard
    /// goes makes it milder, whatever rule they break.
    pub(crate) fn milder<'c>(
        &self,
        course: &'c Course,
        policy: Policy,
        users: impl Iterator<Item = usize>,
    ) -> Cow<'c, Course> {
        let mut milder = Cow::Borrowed(course);
        for at in users.filter(|at| policy != Policy::User(*at)) {
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
            if *mode == Some(GuardMode::Soft) && milder.acts != Rehearsed::Soft {
                milder.to_mut().acts = Rehearsed::Soft;
            }
            if let Some(grace_ms) = grace.map(milliseconds).filter(|ms| *ms > milder.grace_ms) {
                milder.to_mut().grace_ms = grace_ms;
            }
            if let Some(most) = max_snoozes.filter(|most| *most > milder.max_snoozes) {
                milder.to_mut().max_snoozes = most;
            }
        }
        milder
    }

    /// Whether services are ended for this too.
    pub(crate) fn ends_services(&self, policy: Policy) -> bool {
        match policy {
            Policy::Behaviour(at) => self.rules.behaviours[at].ends_services,
            Policy::Default
            | Policy::User(_)
            | Policy::Group(_)
            | Policy::Gpu(_)
            | Policy::Time(_) => false,
        }
    }

    /// Who is ended first: the lowest.
    pub(crate) fn priority(&self, profile: &Profile) -> u8 {
        let of = |at: &usize| self.rules.users[*at].priority;
        // Whoever may be one is spared as long.
        let may_be = profile.doubtful_users.iter().filter_map(of).max();
        let known = self.known_priority(profile);
        may_be.map_or(known, |may_be| may_be.max(known))
    }

    fn known_priority(&self, profile: &Profile) -> u8 {
        let of_user = profile.user.and_then(|at| self.rules.users[at].priority);
        if let Some(of_user) = of_user {
            return of_user;
        }
        // Whoever may belong to a group is spared as long as its members; but whoever
        // only says so is spared no longer than before.
        let of = |at: usize| self.rules.users[at].priority;
        let groups = profile.groups.iter().chain(&profile.doubtful);
        let is_claimed = |at: &&usize| profile.claimed.contains(at);
        let (claimed, vouched): (Vec<&usize>, Vec<&usize>) = groups.partition(is_claimed);
        let of_group = |at: &usize| self.rules.groups[*at].priority;
        let vouched = vouched.into_iter().filter_map(of_group).max();
        let priority = vouched.unwrap_or(PRIORITY);
        let claimed = claimed.into_iter().filter(|at| profile.groups.contains(at));
        let labelled = profile.labelled_user.and_then(of);
        let claimed = claimed.filter_map(of_group).chain(labelled).min();
        claimed.map_or(priority, |claimed| claimed.min(priority))
    }
}

/// Whether a violation of this kind is warned of in every mode before a job is ended: that
/// somebody does nothing is a guess, and they may be about to work.
pub(crate) const fn has_grace(kind: RuleKind) -> bool {
    matches!(kind, RuleKind::Idle | RuleKind::Waste)
}

/// What comes of a violation where the rule does not say: whoever works hard is
/// only told.
const fn action(kind: RuleKind) -> GuardAction {
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

/// All of them, in order.
fn policies(rules: &Rules) -> Vec<Policy> {
    let mut policies = vec![Policy::Default];
    policies.extend((0..rules.users.len()).map(Policy::User));
    policies.extend((0..rules.groups.len()).map(Policy::Group));
    policies.extend((0..rules.gpus.len()).map(Policy::Gpu));
    policies.extend((0..rules.times.len()).map(Policy::Time));
    policies.extend((0..rules.behaviours.len()).map(Policy::Behaviour));
    policies
}

/// The canonical TOML of a policy.
fn toml_of_policy(rules: &Rules, policy: Policy) -> String {
    match policy {
        Policy::Default => policy_toml("global", &rules.defaults),
        Policy::User(at) => policy_toml(PolicyKind::User.table(), &rules.users[at]),
        Policy::Group(at) => policy_toml(PolicyKind::Group.table(), &rules.groups[at]),
        Policy::Gpu(at) => policy_toml(PolicyKind::Gpu.table(), &rules.gpus[at]),
        Policy::Time(at) => policy_toml(PolicyKind::Time.table(), &rules.times[at]),
        Policy::Behaviour(at) => policy_toml(PolicyKind::Rule.table(), &rules.behaviours[at]),
    }
}

#[cfg(test)]
mod tests;
