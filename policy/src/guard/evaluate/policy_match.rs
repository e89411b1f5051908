//! Which policies apply to a process, whatever device it uses and however much. This is
//! computed once, until other facts become known.

use super::super::limits::PolicyProfile;
use super::super::rules::{Glob, GpuPolicy, Members, Pattern, ProtectRules, RuleSet};
use super::super::sample::ProcessFacts;
use super::super::state::JobKey;
use super::compiled_rules::PolicyIndex;
use super::owner_match::{self, OWNER_NAME_UNKNOWN, names_owner, names_process_user};
use crate::holders::program_names::truncate_name;
use crate::kill::protection::is_system_path;
use gpukill_proto::guard::RuleKind;
use std::sync::Arc;

/// The policies that apply to a process. Numbers are positions in [`RuleSet`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PolicyMatch {
    /// Whether no rule applies to it. An unknown protection counts as protection.
    pub(crate) is_protected: bool,
    pub(crate) profile: PolicyProfile,
    /// Policies that forbid it the devices that they apply to.
    pub(crate) forbidden: Vec<(PolicyIndex, RuleKind)>,
    /// Policies that may forbid it devices, and what is unknown.
    pub(crate) doubtful: Vec<(PolicyIndex, RuleKind, &'static str)>,
    /// Behaviour rules that select it.
    pub(crate) behaviours: Vec<usize>,
    /// Behaviour rules that may select it, and what is unknown.
    pub(crate) doubtful_behaviours: Vec<(usize, &'static str)>,
    /// Id of its job on this host, and how `list` shows it. A process without a job is a
    /// job of its own.
    pub(crate) job: (String, String),
    /// Key of its job among all people's, if its owner is known.
    pub(crate) job_key: Option<Arc<JobKey>>,
}

impl PolicyMatch {
    /// Matches a process. `process` names the job of a process that has none.
    pub(crate) fn new(rules: &RuleSet, facts: &ProcessFacts, process: Option<(u32, u64)>) -> Self {
        let job = job_id_and_label(facts, process);
        let job_key = facts.owner.as_ref().map(|owner| JobKey {
            uid: owner.uid,
            id: job.0.clone(),
        });
        let owner_reason = unknown_owner_reason(facts);
        let mut selected = Self {
            is_protected: is_protected(&rules.protect, facts) != Some(false),
            profile: build_profile(rules, facts),
            job,
            job_key: job_key.map(Arc::new),
            ..Self::default()
        };
        for (at, policy) in rules.gpus.iter().enumerate() {
            selected.forbid(
                PolicyIndex::Gpu(at),
                RuleKind::User,
                is_denied(&policy.allowed_users, &policy.blocked_users, facts),
                owner_reason,
            );
            let is_forbidden = is_process_denied(policy, facts);
            selected.forbid(
                PolicyIndex::Gpu(at),
                RuleKind::Process,
                is_forbidden,
                NAME_UNKNOWN,
            );
        }
        for (at, policy) in rules.times.iter().enumerate() {
            let is_forbidden = is_denied(&policy.allowed_users, &policy.blocked_users, facts);
            selected.forbid(
                PolicyIndex::Time(at),
                RuleKind::Hours,
                is_forbidden,
                owner_reason,
            );
        }
        for (at, behaviour) in rules.behaviours.iter().enumerate() {
            let (applies, why) = matches_behaviour(behaviour, facts);
            match applies {
                Some(true) => selected.behaviours.push(at),
                Some(false) => {}
                None => selected.doubtful_behaviours.push((at, why)),
            }
        }
        selected
    }

    fn forbid(&mut self, policy: PolicyIndex, kind: RuleKind, is: Option<bool>, why: &'static str) {
        match is {
            Some(true) => self.forbidden.push((policy, kind)),
            Some(false) => {}
            None => self.doubtful.push((policy, kind, why)),
        }
    }
}

const OWNER_UNKNOWN: &str = "its owner is not known";
const NAME_UNKNOWN: &str = "its name is not known";
const COMMAND_UNKNOWN: &str = "its command line is not known";
const MEMBERSHIP_UNKNOWN: &str = "whether the rule applies to it is not known";

/// Why it is unknown whether a rule names its owner.
const fn unknown_owner_reason(facts: &ProcessFacts) -> &'static str {
    match facts.owner {
        Some(_) => OWNER_NAME_UNKNOWN,
        None => OWNER_UNKNOWN,
    }
}

/// The id of its job, and how `list` shows it.
fn job_id_and_label(facts: &ProcessFacts, process: Option<(u32, u64)>) -> (String, String) {
    if let Some(job) = &facts.job {
        return job.clone();
    }
    let (pid, start_ticks) = process.unwrap_or_default();
    let shown = format!("process {pid}");
    (format!("process {pid} {start_ticks}"), shown)
}

fn build_profile(rules: &RuleSet, facts: &ProcessFacts) -> PolicyProfile {
    let mut profile = PolicyProfile::default();
    for (at, policy) in rules.users.iter().enumerate() {
        match names_owner(&[&policy.name], facts) {
            Some(true) => {
                profile.user = Some(at);
                break;
            }
            Some(false) => {}
            None if facts.owner.is_none() => break,
            None => profile.doubtful_users.push(at),
        }
    }
    let mut users = rules.users.iter();
    profile.labelled_user =
        users.position(|policy| owner_match::names_claimed_owner(&[&policy.name], facts));
    for (at, policy) in rules.groups.iter().enumerate() {
        let members = &policy.members;
        let verified = is_verified_member(members, facts);
        let is_member = match verified {
            Some(false) => is_claimed_member(members, facts),
            Some(true) | None => verified,
        };
        if verified == Some(false) && is_member != Some(false) {
            profile.claimed.push(at);
        }
        if verified != Some(true) && is_labelled_member(members, facts) {
            profile.labelled.push(at);
        }
        match is_member {
            Some(true) => profile.groups.push(at),
            Some(false) => {}
            None => profile.doubtful.push(at),
        }
    }
    profile
}

/// Whether any condition holds; `None` if none is known to hold and one is unknown.
pub(super) fn any(conditions: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut answer = Some(false);
    for condition in conditions {
        match condition {
            Some(true) => return Some(true),
            Some(false) => {}
            None => answer = None,
        }
    }
    answer
}

fn all<const N: usize>(conditions: [Option<bool>; N]) -> Option<bool> {
    any(conditions.map(|it| it.map(|it| !it))).map(|it| !it)
}

/// Whether a list matches a value. An empty list matches nothing, even if the value is
/// unknown.
fn is_listed<L, T>(list: &[L], what: Option<&T>, is: impl Fn(&L, &T) -> bool) -> Option<bool> {
    if list.is_empty() {
        return Some(false);
    }
    what.map(|what| list.iter().any(|each| is(each, what)))
}

/// Whether it counts for these members.
fn is_member_of(members: &Members, facts: &ProcessFacts) -> Option<bool> {
    any([
        is_verified_member(members, facts),
        is_claimed_member(members, facts),
    ])
}

/// Whether it counts by a label, or by the pod or image of a container of its user's own.
fn is_labelled_member(members: &Members, facts: &ProcessFacts) -> bool {
    let own = facts.is_in_user_container();
    let pod = facts.pod.iter().flatten().next().filter(|_| own);
    let image = facts.image.iter().flatten().next().filter(|_| own);
    let mut namespaces = members.kubernetes_namespaces.iter();
    let mut images = members.images.iter();
    owner_match::names_claimed_owner(&members.users, facts)
        || pod.is_some_and(|(namespace, _)| namespaces.any(|typed| typed == namespace))
        || image.is_some_and(|image| images.any(|glob| glob.regex.is_match(image)))
}

/// Whether it counts by its own claim: a label, or the account of its job.
fn is_claimed_member(members: &Members, facts: &ProcessFacts) -> Option<bool> {
    let accounts = &members.slurm_accounts;
    any([
        Some(is_labelled_member(members, facts)),
        is_listed(accounts, facts.account.as_ref(), |typed, it| {
            it.as_ref() == Some(typed)
        }),
    ])
}

/// Whether it counts by facts that it cannot choose.
fn is_verified_member(members: &Members, facts: &ProcessFacts) -> Option<bool> {
    any([
        names_owner(&members.users, facts),
        is_listed(&members.unix_groups, facts.groups.as_ref(), |typed, it| {
            it.contains(typed)
        }),
        is_listed(
            &members.kubernetes_namespaces,
            facts.host_pod().as_ref(),
            |typed, it| it.is_some_and(|(namespace, _)| namespace == typed),
        ),
        matches_image(&members.images, facts),
    ])
}

fn matches_image(images: &[Glob], facts: &ProcessFacts) -> Option<bool> {
    is_listed(images, facts.host_image().as_ref(), |glob, it| {
        it.is_some_and(|image| glob.regex.is_match(image))
    })
}

/// Whether its name matches: the kernel's, which is cut to 15 bytes, or that of its
/// executable. If one of the two is unknown, that one may match.
fn matches_process_name(globs: &[Glob], facts: &ProcessFacts) -> Option<bool> {
    let file = facts.executable.as_deref().map(|path| {
        let base = path.rsplit_once('/');
        base.map_or(path, |(_, base)| base)
    });
    let is_one = |glob: &Glob, name: &&str| glob.regex.is_match(name);
    any([
        is_listed(globs, file.as_ref(), is_one),
        is_listed(globs, facts.name.as_deref().as_ref(), is_one),
    ])
}

/// Whether its name protects it. As with kills, only a trusted name counts: of root and
/// system accounts, and of the display server at a seat. In a container the image decides
/// where files lie, for every user, so no name protects there. Unknown facts protect.
fn is_protected_by_name(globs: &[Glob], facts: &ProcessFacts) -> Option<bool> {
    all([facts.has_trusted_name, has_matching_name(globs, facts)])
}

/// Whether its name and its executable match. A process of root outside containers needs
/// only the name.
fn has_matching_name(globs: &[Glob], facts: &ProcessFacts) -> Option<bool> {
    let is_contained = facts.is_contained;
    if facts.in_host_user_namespace == Some(false) || is_contained == Some(true) {
        return Some(false);
    }
    let is_such = |name: &str| globs.iter().any(|it| it.regex.is_match(name));
    let is_roots = facts.user.as_ref().is_some_and(|(_, uid)| *uid == 0);
    let Some(path) = facts.executable.as_deref() else {
        return matches_process_name(globs, facts);
    };
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    if is_roots && is_contained == Some(false) {
        return matches_process_name(globs, facts);
    }
    if !is_system_path(path) {
        return Some(false);
    }
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    if is_such(file) {
        return Some(true);
    }
    // The kernel cuts a long name.
    let of_file = truncate_name(file);
    match &facts.name {
        Some(name) => Some(name == of_file && is_such(name)),
        None if is_such(of_file) => None,
        None => Some(false),
    }
}

fn matches_command(pattern: Option<&Pattern>, facts: &ProcessFacts) -> Option<bool> {
    match pattern {
        None => Some(false),
        Some(pattern) => facts
            .command
            .as_ref()
            .map(|command| pattern.regex.is_match(command)),
    }
}

/// Whether each key of `[protect]` protects it.
fn protections(protect: &ProtectRules, facts: &ProcessFacts) -> [(&'static str, Option<bool>); 6] {
    // In a user namespace of their own, people choose the user that a process runs as.
    let runs_as = match facts.in_host_user_namespace {
        Some(false) => Some(false),
        Some(true) | None => names_process_user(&protect.users, facts),
    };
    let unit = is_listed(&protect.units, facts.unit.as_ref(), |glob, it| {
        it.as_ref().is_some_and(|unit| glob.names_unit(unit))
    });
    let command = matches_command(protect.command.as_ref(), facts);
    [
        ("users names its owner", names_owner(&protect.users, facts)),
        ("users names the user it runs as", runs_as),
        (
            "processes names it",
            is_protected_by_name(&protect.processes, facts),
        ),
        ("command matches its command line", command),
        (
            "images names its image",
            matches_image(&protect.images, facts),
        ),
        ("units names its unit", unit),
    ]
}

fn is_protected(protect: &ProtectRules, facts: &ProcessFacts) -> Option<bool> {
    any(protections(protect, facts).map(|(_, protects)| protects))
}

/// Why no rule applies to a process; `None` if rules apply.
pub(crate) fn describe_protection(protect: &ProtectRules, facts: &ProcessFacts) -> Option<String> {
    let parts = protections(protect, facts);
    let first = |wanted| parts.iter().find(|(_, protects)| *protects == wanted);
    let known = first(Some(true)).map(|(what, _)| format!("protect.{what}"));
    known.or_else(|| {
        let (what, _) = first(None)?;
        Some(format!("whether protect.{what} is not known"))
    })
}

/// Whether lists of allowed and blocked users deny access. Blocked outranks allowed.
fn is_denied(allowed: &[String], blocked: &[String], facts: &ProcessFacts) -> Option<bool> {
    let is_blocked = any([
        names_owner(blocked, facts),
        Some(owner_match::names_claimed_owner(blocked, facts)),
    ]);
    let is_missing = if allowed.is_empty() {
        Some(false)
    } else {
        names_owner(allowed, facts).map(|is_allowed| !is_allowed)
    };
    any([is_blocked, is_missing])
}

fn is_process_denied(policy: &GpuPolicy, facts: &ProcessFacts) -> Option<bool> {
    let is_blocked = matches_process_name(&policy.blocked_processes, facts);
    let is_missing = if policy.allowed_processes.is_empty() {
        Some(false)
    } else {
        matches_process_name(&policy.allowed_processes, facts).map(|is_allowed| !is_allowed)
    };
    any([is_blocked, is_missing])
}

/// Whether all selectors of a behaviour rule match, and what is unknown otherwise.
fn matches_behaviour(
    behaviour: &super::super::rules::BehaviourRule,
    facts: &ProcessFacts,
) -> (Option<bool>, &'static str) {
    let is_member = match behaviour.members.is_empty() {
        true => Some(true),
        false => is_member_of(&behaviour.members, facts),
    };
    let is_exempt = names_owner(&behaviour.except_users, facts);
    let is_called = match behaviour.processes.is_empty() {
        true => Some(true),
        false => matches_process_name(&behaviour.processes, facts),
    };
    let runs = match &behaviour.command {
        None => Some(true),
        Some(pattern) => matches_command(Some(pattern), facts),
    };
    let conditions = [
        (is_member, MEMBERSHIP_UNKNOWN),
        (is_exempt.map(|it| !it), unknown_owner_reason(facts)),
        (is_called, NAME_UNKNOWN),
        (runs, COMMAND_UNKNOWN),
    ];
    if conditions.iter().any(|(holds, _)| *holds == Some(false)) {
        return (Some(false), "");
    }
    let unknown = conditions.iter().find(|(holds, _)| holds.is_none());
    unknown.map_or((Some(true), ""), |(_, why)| (None, *why))
}

impl Members {
    /// Whether it selects no process by any list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let texts = [
            &self.users,
            &self.unix_groups,
            &self.slurm_accounts,
            &self.kubernetes_namespaces,
        ];
        texts.iter().all(|list| list.is_empty()) && self.images.is_empty()
    }
}
