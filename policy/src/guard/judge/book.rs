//! The rules, made ready to judge by: which policy is where, what comes of each, and
//! whether it still is what it was.

use super::super::limits::Profile;
use super::super::limits::milliseconds;
use super::super::rules::{Enforcement, Limits, Measures, PRIORITY, Rehearsed, Rules};
use gpukill_proto::guard::{GuardAction, GuardMode, RuleKind, RuleName, RuleSource};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

/// Rules that are ready to judge by.
#[derive(Debug, Clone)]
pub struct Rulebook {
    rules: Rules,
    /// Of the whole, and of each policy in the order of [`Rulebook::policies`].
    print: u64,
    prints: Vec<(Policy, Prints)>,
    named: BTreeMap<RuleSource, Policy>,
}

/// The fingerprints of one policy.
#[derive(Debug, Clone, Copy, Default)]
struct Prints {
    /// Of all that it says, and of what comes of it.
    whole: u64,
    /// Of what it measures.
    measured: u64,
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
        let whole = print(&rules);
        let enforcement = (
            &rules.enforcement,
            rules.mode,
            rules.rehearsed,
            rules.person,
        );
        let prints = policies(&rules)
            .into_iter()
            .map(|policy| {
                let whole = match policy {
                    Policy::Default => print(&(&rules.defaults, enforcement)),
                    Policy::User(at) => print(&(&rules.users[at], enforcement)),
                    Policy::Group(at) => print(&(&rules.groups[at], enforcement)),
                    Policy::Gpu(at) => print(&(&rules.gpus[at], enforcement)),
                    Policy::Time(at) => print(&(&rules.times[at], enforcement)),
                    Policy::Behaviour(at) => print(&(&rules.behaviours[at], enforcement)),
                };
                let measured = match policy {
                    Policy::Behaviour(at) => {
                        print(&(rules.behaviours[at].measured(), rules.person))
                    }
                    Policy::Default
                    | Policy::User(_)
                    | Policy::Group(_)
                    | Policy::Gpu(_)
                    | Policy::Time(_) => 0,
                };
                (policy, Prints { whole, measured })
            })
            .collect();
        let mut book = Self {
            print: whole,
            prints,
            named: BTreeMap::new(),
            rules,
        };
        // Of two that are called the same, the first.
        for policy in policies(&book.rules).into_iter().rev() {
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
    pub const fn says_the_same(&self, other: &Self) -> bool {
        self.print == other.print
    }

    /// Differs where anything in them differs.
    pub(crate) const fn print(&self) -> u64 {
        self.print
    }

    /// Differs where what this policy says, or what comes of it, differs.
    pub(crate) fn print_of(&self, policy: Policy) -> u64 {
        self.prints_of(policy).whole
    }

    /// Differs where what a rule on behaviour measures differs, and of which processes: not
    /// where only what comes of it does, so that what is known of hours stays known.
    pub(crate) fn print_of_measured(&self, policy: Policy) -> u64 {
        self.prints_of(policy).measured
    }

    fn prints_of(&self, policy: Policy) -> Prints {
        let found = self.prints.binary_search_by_key(&policy, |(at, _)| *at);
        found.map_or_else(|_| Prints::default(), |position| self.prints[position].1)
    }

    /// Differs where what is said of behaviour differs, whatever the mode, and whatever else
    /// is said of the same people.
    pub(crate) fn print_of_behaviour(&self) -> u64 {
        let rules = &self.rules;
        let idle = |limits: &Limits| {
            let of = (limits.idle, limits.idle_min_memory);
            (of != (None, None)).then_some(of)
        };
        let users = rules.users.iter().map(|it| (&it.name, idle(&it.limits)));
        let groups = rules.groups.iter().map(|it| (&it.name, idle(&it.limits)));
        let times = rules.times.iter().map(|it| (&it.name, idle(&it.limits)));
        let all = users.chain(groups).chain(times);
        let all: Vec<_> = all.filter(|(_, idle)| idle.is_some()).collect();
        let behaviours = rules.behaviours.iter();
        let behaviours = behaviours.filter(|it| it.conduct.kind().is_of_behaviour());
        let behaviours: Vec<_> = behaviours.collect();
        print(&(behaviours, idle(&rules.defaults), all))
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

/// A number that two different texts hardly ever share: FNV-1a, 64 bits
/// (RFC 9923, offset basis and prime of its section 5).
struct Print(u64);

impl Write for Print {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

fn print(said: &impl fmt::Debug) -> u64 {
    let mut print = Print(0xcbf2_9ce4_8422_2325);
    // Writing to a number cannot fail.
    let _ = write!(print, "{said:?}");
    print.0
}
