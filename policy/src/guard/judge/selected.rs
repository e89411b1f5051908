//! Which policies are about a process, whatever device it uses and however much: found
//! once, as long as nothing else becomes known of it.

use super::super::bucket::About;
use super::super::limits::Profile;
use super::super::memory::JobKey;
use super::super::rules::{Glob, GpuPolicy, Members, Pattern, Protect, Rules, TimePolicy};
use super::book::Policy;
use super::named::{self, UNNAMED, is_owner, runs_as};
use crate::holders::names::cut;
use crate::kill::protected::is_the_systems;
use gpukill_proto::guard::RuleKind;
use std::sync::Arc;

/// What is said of a process. Positions in [`Rules`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Selected {
    /// No rule is about it. Nor is any about one of which that is not known.
    pub(crate) is_protected: bool,
    pub(crate) profile: Profile,
    /// What forbids it a device, where it uses one that the policy is about.
    pub(crate) forbidden: Vec<(Policy, RuleKind)>,
    /// What may forbid it one, and what is not known.
    pub(crate) doubtful: Vec<(Policy, RuleKind, &'static str)>,
    /// The behaviours that it must not show.
    pub(crate) behaviours: Vec<usize>,
    /// Those that it may have to avoid, and what is not known.
    pub(crate) doubtful_behaviours: Vec<(usize, &'static str)>,
    /// What names its job on this box, and how `list` shows it. A process that is in
    /// no job is its own.
    pub(crate) job: (String, String),
    /// Names it among everybody's, where it is known whose it is.
    pub(crate) job_key: Option<Arc<JobKey>>,
}

impl Selected {
    /// Of this process. One of which the pid is not said is in no job.
    pub(crate) fn of(rules: &Rules, about: &About, process: Option<(u32, u64)>) -> Self {
        let job = job(about, process);
        let job_key = about.owner.as_ref().map(|owner| JobKey {
            uid: owner.uid,
            id: job.0.clone(),
        });
        let whose = whose(about);
        let mut selected = Self {
            is_protected: protects(&rules.protect, about) != Some(false),
            profile: profile(rules, about),
            job,
            job_key: job_key.map(Arc::new),
            ..Self::default()
        };
        for (at, policy) in rules.gpus.iter().enumerate() {
            selected.forbid(Policy::Gpu(at), RuleKind::User, user(policy, about), whose);
            let is_forbidden = process_name(policy, about);
            selected.forbid(Policy::Gpu(at), RuleKind::Process, is_forbidden, NAME);
        }
        for (at, policy) in rules.times.iter().enumerate() {
            let is_forbidden = hours(policy, about);
            selected.forbid(Policy::Time(at), RuleKind::Hours, is_forbidden, whose);
        }
        for (at, behaviour) in rules.behaviours.iter().enumerate() {
            let (means, why) = behaviour_means(behaviour, about);
            match means {
                Some(true) => selected.behaviours.push(at),
                Some(false) => {}
                None => selected.doubtful_behaviours.push((at, why)),
            }
        }
        selected
    }

    fn forbid(&mut self, policy: Policy, kind: RuleKind, is: Option<bool>, why: &'static str) {
        match is {
            Some(true) => self.forbidden.push((policy, kind)),
            Some(false) => {}
            None => self.doubtful.push((policy, kind, why)),
        }
    }
}

const OWNER: &str = "whose it is, is not known";
const NAME: &str = "its name is not known";
const COMMAND: &str = "its command line is not known";
const MEMBERS: &str = "whether it is one of those that the rule is about is not known";

/// Why it is not known whether it is of one whom a rule names.
const fn whose(about: &About) -> &'static str {
    match about.owner {
        Some(_) => UNNAMED,
        None => OWNER,
    }
}

/// The name of a job of one, and what it is called.
fn job(about: &About, process: Option<(u32, u64)>) -> (String, String) {
    if let Some(job) = &about.job {
        return job.clone();
    }
    let (pid, start_ticks) = process.unwrap_or_default();
    let shown = format!("process {pid}");
    (format!("process {pid} {start_ticks}"), shown)
}

fn profile(rules: &Rules, about: &About) -> Profile {
    let mut profile = Profile::default();
    for (at, policy) in rules.users.iter().enumerate() {
        match is_owner(&[&policy.name], about) {
            Some(true) => {
                profile.user = Some(at);
                break;
            }
            Some(false) => {}
            None if about.owner.is_none() => break,
            None => profile.doubtful_users.push(at),
        }
    }
    let mut users = rules.users.iter();
    profile.labelled_user = users.position(|policy| named::says_so(&[&policy.name], about));
    for (at, policy) in rules.groups.iter().enumerate() {
        let members = &policy.members;
        let vouched = is_vouched_for(members, about);
        let is_member = match vouched {
            Some(false) => says_so(members, about),
            Some(true) | None => vouched,
        };
        if vouched == Some(false) && is_member != Some(false) {
            profile.claimed.push(at);
        }
        if vouched != Some(true) && is_labelled(members, about) {
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

/// Whether any of these holds; `None` where none is known to, and of one it is not
/// known.
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

/// Whether a list is about something; a list of nothing is about nothing, whatever
/// is known.
fn listed<L, T>(list: &[L], what: Option<&T>, is: impl Fn(&L, &T) -> bool) -> Option<bool> {
    if list.is_empty() {
        return Some(false);
    }
    what.map(|what| list.iter().any(|each| is(each, what)))
}

/// Whether it counts for those that are meant.
fn belongs(members: &Members, about: &About) -> Option<bool> {
    any([is_vouched_for(members, about), says_so(members, about)])
}

/// Whether it does by a label, or by what is said of a container of its user's own.
fn is_labelled(members: &Members, about: &About) -> bool {
    let own = about.contains_itself();
    let pod = about.pod.iter().flatten().next().filter(|_| own);
    let image = about.image.iter().flatten().next().filter(|_| own);
    let mut namespaces = members.kubernetes_namespaces.iter();
    let mut images = members.images.iter();
    named::says_so(&members.users, about)
        || pod.is_some_and(|(namespace, _)| namespaces.any(|typed| typed == namespace))
        || image.is_some_and(|image| images.any(|glob| glob.regex.is_match(image)))
}

/// Whether it does by its own word: a label, or the account of its job.
fn says_so(members: &Members, about: &About) -> Option<bool> {
    let accounts = &members.slurm_accounts;
    any([
        Some(is_labelled(members, about)),
        listed(accounts, about.account.as_ref(), |typed, it| {
            it.as_ref() == Some(typed)
        }),
    ])
}

/// Whether it does by what others say of it.
fn is_vouched_for(members: &Members, about: &About) -> Option<bool> {
    any([
        is_owner(&members.users, about),
        listed(&members.unix_groups, about.groups.as_ref(), |typed, it| {
            it.contains(typed)
        }),
        listed(
            &members.kubernetes_namespaces,
            about.pod_of_the_box().as_ref(),
            |typed, it| it.is_some_and(|(namespace, _)| namespace == typed),
        ),
        of_image(&members.images, about),
    ])
}

fn of_image(images: &[Glob], about: &About) -> Option<bool> {
    listed(images, about.image_of_the_box().as_ref(), |glob, it| {
        it.is_some_and(|image| glob.regex.is_match(image))
    })
}

/// Whether it is called so: by the kernel's name for it, which is cut to 15 bytes,
/// or by its executable's. Where one of the two is not known, it may be by that one.
fn is_called(globs: &[Glob], about: &About) -> Option<bool> {
    let file = about.executable.as_deref().map(|path| {
        let base = path.rsplit_once('/');
        base.map_or(path, |(_, base)| base)
    });
    let is_one = |glob: &Glob, name: &&str| glob.regex.is_match(name);
    any([
        listed(globs, file.as_ref(), is_one),
        listed(globs, about.name.as_deref().as_ref(), is_one),
    ])
}

/// Whether its name protects it. As with kills, the name counts where it is trusted: of
/// root and system accounts, and of the display server at a seat. In a container files
/// lie where its image says, whoever runs it: of none there the name protects. What is
/// not known of these protects.
fn protects_name(globs: &[Glob], about: &About) -> Option<bool> {
    all([about.has_trusted_name, has_such_name(globs, about)])
}

/// Whether it is called so, and its executable too. Root's own names are root's.
fn has_such_name(globs: &[Glob], about: &About) -> Option<bool> {
    let is_contained = about.is_contained;
    if about.is_of_the_box == Some(false) || is_contained == Some(true) {
        return Some(false);
    }
    let is_such = |name: &str| globs.iter().any(|it| it.regex.is_match(name));
    let is_roots = about.user.as_ref().is_some_and(|(_, uid)| *uid == 0);
    let Some(path) = about.executable.as_deref() else {
        return is_called(globs, about);
    };
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    if is_roots && is_contained == Some(false) {
        return is_called(globs, about);
    }
    if !is_the_systems(path) {
        return Some(false);
    }
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    if is_such(file) {
        return Some(true);
    }
    // The kernel keeps the beginning of a long name.
    let of_file = cut(file);
    match &about.name {
        Some(name) => Some(name == of_file && is_such(name)),
        None if is_such(of_file) => None,
        None => Some(false),
    }
}

fn runs_command(pattern: Option<&Pattern>, about: &About) -> Option<bool> {
    match pattern {
        None => Some(false),
        Some(pattern) => about
            .command
            .as_ref()
            .map(|command| pattern.regex.is_match(command)),
    }
}

/// Whether each part of `[protect]` protects it.
fn protections(protect: &Protect, about: &About) -> [(&'static str, Option<bool>); 6] {
    // Who it runs as inside a namespace of somebody's own is theirs to say.
    let runs_as = match about.is_of_the_box {
        Some(false) => Some(false),
        Some(true) | None => runs_as(&protect.users, about),
    };
    let unit = listed(&protect.units, about.unit.as_ref(), |glob, it| {
        it.as_ref().is_some_and(|unit| glob.names_unit(unit))
    });
    let command = runs_command(protect.command.as_ref(), about);
    [
        ("users names its owner", is_owner(&protect.users, about)),
        ("users names whom it runs as", runs_as),
        (
            "processes names it",
            protects_name(&protect.processes, about),
        ),
        ("command matches its command line", command),
        ("images names its image", of_image(&protect.images, about)),
        ("units names its unit", unit),
    ]
}

fn protects(protect: &Protect, about: &About) -> Option<bool> {
    any(protections(protect, about).map(|(_, protects)| protects))
}

/// Why no rule is about a process; `None` where rules are.
pub(crate) fn protection(protect: &Protect, about: &About) -> Option<String> {
    let parts = protections(protect, about);
    let first = |wanted| parts.iter().find(|(_, protects)| *protects == wanted);
    let known = first(Some(true)).map(|(what, _)| format!("protect.{what}"));
    known.or_else(|| {
        let (what, _) = first(None)?;
        Some(format!("whether protect.{what} is not known"))
    })
}

/// Whether lists of who may and who may not keep somebody away. That they may not
/// counts for more.
fn kept_away(allowed: &[String], blocked: &[String], about: &About) -> Option<bool> {
    let is_blocked = any([
        is_owner(blocked, about),
        Some(named::says_so(blocked, about)),
    ]);
    let is_missing = if allowed.is_empty() {
        Some(false)
    } else {
        is_owner(allowed, about).map(|is_allowed| !is_allowed)
    };
    any([is_blocked, is_missing])
}

fn user(policy: &GpuPolicy, about: &About) -> Option<bool> {
    kept_away(&policy.allowed_users, &policy.blocked_users, about)
}

fn process_name(policy: &GpuPolicy, about: &About) -> Option<bool> {
    let is_blocked = is_called(&policy.blocked_processes, about);
    let is_missing = if policy.allowed_processes.is_empty() {
        Some(false)
    } else {
        is_called(&policy.allowed_processes, about).map(|is_allowed| !is_allowed)
    };
    any([is_blocked, is_missing])
}

fn hours(policy: &TimePolicy, about: &About) -> Option<bool> {
    kept_away(&policy.allowed_users, &policy.blocked_users, about)
}

/// Whether a behaviour's selectors all mean it, and else what is not known.
fn behaviour_means(
    behaviour: &super::super::rules::Behaviour,
    about: &About,
) -> (Option<bool>, &'static str) {
    let is_member = match behaviour.members.names_nobody() {
        true => Some(true),
        false => belongs(&behaviour.members, about),
    };
    let is_excepted = is_owner(&behaviour.except_users, about);
    let is_called = match behaviour.processes.is_empty() {
        true => Some(true),
        false => is_called(&behaviour.processes, about),
    };
    let runs = match &behaviour.command {
        None => Some(true),
        Some(pattern) => runs_command(Some(pattern), about),
    };
    let conditions = [
        (is_member, MEMBERS),
        (is_excepted.map(|it| !it), whose(about)),
        (is_called, NAME),
        (runs, COMMAND),
    ];
    if conditions.iter().any(|(holds, _)| *holds == Some(false)) {
        return (Some(false), "");
    }
    let unknown = conditions.iter().find(|(holds, _)| holds.is_none());
    unknown.map_or((Some(true), ""), |(_, why)| (None, *why))
}

impl Members {
    /// Whether it means nobody.
    #[must_use]
    pub fn names_nobody(&self) -> bool {
        let texts = [
            &self.users,
            &self.unix_groups,
            &self.slurm_accounts,
            &self.kubernetes_namespaces,
        ];
        texts.iter().all(|list| list.is_empty()) && self.images.is_empty()
    }
}
