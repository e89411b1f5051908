//! Rules in words, one line for each policy: `bob: at most 8 GiB, only GPU 0`.

use super::{
    BehaviourRule, ForbiddenBehaviour, Glob, GpuPolicy, GpuSelector, GroupPolicy, Limits, Measures,
    Members, RogueParams, RuleSet, TimePolicy, UserPolicy,
};
use crate::guard::schedule::Hours;
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::guard::{GuardAction, GuardMode};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;

/// A policy in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDescription {
    /// The kind of the policy; `None` for the limits of users without another policy.
    pub kind: Option<PolicyKind>,
    /// The name of the policy.
    pub name: String,
    /// `bob: at most 8 GiB`
    pub text: String,
    /// The mode for the policy. It is never harder than the mode of the guard.
    pub mode: GuardMode,
}

/// All policies in words, in the order of the kinds. The text comes from the rules file: it may
/// contain control characters.
#[must_use]
pub fn describe_policies(rules: &RuleSet) -> Vec<PolicyDescription> {
    let describe = |kind, name: &str, who: String, terms: Terms, measures: &Measures| {
        let mode = measures
            .mode
            .map_or(rules.mode, |mode| mode.min(rules.mode));
        PolicyDescription {
            kind,
            name: name.to_owned(),
            text: format!("{who}: {}", terms.finish(measures)),
            mode,
        }
    };
    let mut all = Vec::new();
    let defaults = Terms::default().limits(&rules.defaults);
    if !defaults.0.is_empty() {
        let by_default = "by default".to_owned();
        all.push(describe(
            None,
            "",
            by_default,
            defaults,
            &Measures::default(),
        ));
    }
    for it in &rules.users {
        let who = it.name.clone();
        let (kind, terms) = (Some(PolicyKind::User), Terms::from_user(it));
        all.push(describe(kind, &it.name, who, terms, &it.measures));
    }
    for it in &rules.groups {
        let who = format!("group {}{}", it.name, in_brackets(members(&it.members)));
        let (kind, terms) = (Some(PolicyKind::Group), Terms::from_group(it));
        all.push(describe(kind, &it.name, who, terms, &it.measures));
    }
    for it in &rules.gpus {
        let own_name = [GpuSelector(it.name.clone())];
        let gpus = (it.gpus != own_name).then(|| gpus_text(&it.gpus));
        let who = format!("GPU {}{}", it.name, in_brackets(gpus.into_iter().collect()));
        let (kind, terms) = (Some(PolicyKind::Gpu), Terms::from_gpu(it));
        all.push(describe(kind, &it.name, who, terms, &it.measures));
    }
    for it in &rules.times {
        let who = format!("{} ({})", it.name, hours_text(&it.hours));
        let (kind, terms) = (Some(PolicyKind::Time), Terms::from_time(it));
        all.push(describe(kind, &it.name, who, terms, &it.measures));
    }
    for it in &rules.behaviours {
        let who = format!("rule {}{}", it.name, in_brackets(applies_to(it)));
        let (kind, terms) = (Some(PolicyKind::Rule), Terms::from_behaviour(it));
        all.push(describe(kind, &it.name, who, terms, &it.measures));
    }
    all
}

/// The terms of a policy, in the order in which they are read.
#[derive(Default)]
struct Terms(Vec<String>);

impl Terms {
    fn from_user(policy: &UserPolicy) -> Self {
        let mut terms = Self::default()
            .limits(&policy.limits)
            .gpus(&policy.allowed_gpus, &policy.blocked_gpus)
            .priority(policy.priority);
        for it in &policy.overrides {
            let limits = Self::default().limits(&it.limits).joined();
            terms.0.push(format!("{} {limits}", hours_text(&it.hours)));
        }
        terms
    }

    fn from_group(policy: &GroupPolicy) -> Self {
        let memory = policy.total_memory.map(size_text);
        let utilization = policy.total_utilization.map(share_text);
        let processes = policy.total_processes.map(processes_text);
        let totals = [memory, utilization, processes].into_iter().flatten();
        let totals = totals.map(|total| format!("at most {total} together"));
        Self(totals.collect())
            .limits(&policy.limits)
            .gpus(&policy.allowed_gpus, &policy.blocked_gpus)
            .priority(policy.priority)
    }

    fn from_gpu(policy: &GpuPolicy) -> Self {
        let memory = policy.max_memory.map(size_text);
        let utilization = policy.max_utilization;
        let reserved = policy.reserved_memory.map(size_text);
        let maintenance = policy.maintenance.as_ref().map(hours_text);
        let terms = [
            memory.map(|most| format!("at most {most} a process")),
            utilization.map(|most| format!("at most {} % busy", most.0)),
            reserved.map(|free| format!("{free} stay free")),
            maintenance.map(|hours| format!("in maintenance {hours}")),
        ];
        Self(terms.into_iter().flatten().collect())
            .names("", &policy.allowed_users, &policy.blocked_users)
            .names(
                "program ",
                &globs(&policy.allowed_processes),
                &globs(&policy.blocked_processes),
            )
    }

    fn from_time(policy: &TimePolicy) -> Self {
        let mut terms = Self::default().limits(&policy.limits).names(
            "",
            &policy.allowed_users,
            &policy.blocked_users,
        );
        if !policy.gpus.is_empty() {
            terms.0.push(format!("on {}", gpus_text(&policy.gpus)));
        }
        terms
    }

    fn from_behaviour(rule: &BehaviourRule) -> Self {
        let mut terms = vec![behaviour_text(&rule.behaviour)];
        if rule.ends_services {
            terms.push("services too".to_owned());
        }
        Self(terms)
    }

    fn limits(mut self, limits: &Limits) -> Self {
        let idle = limits.idle.map(|limit| {
            let memory = limits.idle_min_memory.unwrap_or_default();
            idle_text(limit, memory)
        });
        let terms = [
            limits.memory.map(size_text),
            limits.utilization.map(share_text),
            limits.processes.map(processes_text),
            limits
                .duration
                .map(|most| format!("{} a process", length_text(most))),
        ];
        let terms = terms.into_iter().flatten();
        self.0.extend(terms.map(|most| format!("at most {most}")));
        self.0.extend(idle);
        self
    }

    fn gpus(mut self, allowed: &[GpuSelector], blocked: &[GpuSelector]) -> Self {
        if !allowed.is_empty() {
            self.0.push(format!("only {}", gpus_text(allowed)));
        }
        if !blocked.is_empty() {
            self.0.push(format!("not {}", gpus_text(blocked)));
        }
        self
    }

    fn names(mut self, what: &str, allowed: &[String], blocked: &[String]) -> Self {
        if !allowed.is_empty() {
            self.0.push(format!("only {what}{}", list_text(allowed)));
        }
        if !blocked.is_empty() {
            self.0.push(format!("not {what}{}", list_text(blocked)));
        }
        self
    }

    fn priority(mut self, priority: Option<u8>) -> Self {
        self.0.extend(priority.map(|it| format!("priority {it}")));
        self
    }

    fn joined(&self) -> String {
        self.0.join(", ")
    }

    /// The terms, and what is done about a violation where the policy sets it.
    fn finish(mut self, measures: &Measures) -> String {
        if self.0.is_empty() {
            self.0.push("no limit of its own".to_owned());
        }
        if measures.action == Some(GuardAction::Warn) {
            self.0.push("only warned".to_owned());
        }
        let mode = measures.mode.map(|mode| format!("mode {}", mode.name()));
        let grace = measures.grace;
        let grace = grace.map(|grace| format!("grace {}", length_text(grace)));
        let snoozes = measures.max_snoozes.map(|most| match most {
            1 => "1 snooze".to_owned(),
            several => format!("{several} snoozes"),
        });
        self.0.extend([mode, grace, snoozes].into_iter().flatten());
        self.joined()
    }
}

fn behaviour_text(behaviour: &ForbiddenBehaviour) -> String {
    match behaviour {
        ForbiddenBehaviour::Duration(most) => format!("at most {} a process", length_text(*most)),
        ForbiddenBehaviour::Idle(idle) => {
            let mut text = idle_text(idle.limit, idle.min_memory);
            if let Some(Percent(cpu)) = idle.cpu_below {
                text.push_str(&format!(" and under {cpu} % of a core"));
            }
            if idle.with_connections {
                text.push_str(", with clients too");
            }
            text
        }
        ForbiddenBehaviour::Waste(waste) => format!(
            "at least {} % busy over {} with {} or more",
            waste.below.0,
            length_text(waste.hours),
            size_text(waste.min_memory)
        ),
        ForbiddenBehaviour::Runaway(runaway) => {
            let orphan = if runaway.orphaned {
                ", without a parent"
            } else {
                ""
            };
            let (above, limit) = (runaway.above.0, length_text(runaway.limit));
            format!("at most {limit} above {above} %{orphan}")
        }
        ForbiddenBehaviour::Growth(growth) => format!(
            "memory grows by at most {} within {}",
            size_text(growth.by),
            length_text(growth.within)
        ),
        ForbiddenBehaviour::Rogue(RogueParams { from, threats }) => {
            let threats: Vec<String> = threats.iter().map(|it| it.label().to_owned()).collect();
            let threats = match threats.is_empty() {
                true => "rogues".to_owned(),
                false => list_text(&threats),
            };
            format!("no {threats} of risk {} or more", from.name())
        }
    }
}

fn idle_text(limit: Duration, min_memory: Bytes) -> String {
    let limit = length_text(limit);
    match min_memory {
        Bytes(0) => format!("idle for at most {limit}"),
        memory => format!(
            "idle for at most {limit} with {} or more",
            size_text(memory)
        ),
    }
}

/// The people, GPUs and programs that a rule applies to; empty for all.
fn applies_to(rule: &BehaviourRule) -> Vec<String> {
    let mut parts = members(&rule.members);
    if !rule.except_users.is_empty() {
        parts.push(format!("not {}", list_text(&rule.except_users)));
    }
    if !rule.gpus.is_empty() {
        parts.push(gpus_text(&rule.gpus));
    }
    if !rule.processes.is_empty() {
        parts.push(format!("program {}", list_text(&globs(&rule.processes))));
    }
    parts.extend(
        rule.command
            .iter()
            .map(|it| format!("command {}", it.typed)),
    );
    parts
}

fn members(members: &Members) -> Vec<String> {
    let lists = [
        ("", &members.users),
        ("Unix group ", &members.unix_groups),
        ("account ", &members.slurm_accounts),
        ("namespace ", &members.kubernetes_namespaces),
        ("image ", &globs(&members.images)),
    ];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
    lists
        .map(|(what, names)| format!("{what}{}", list_text(names)))
        .collect()
}

fn in_brackets(parts: Vec<String>) -> String {
    match parts.is_empty() {
        true => String::new(),
        false => format!(" ({})", parts.join("; ")),
    }
}

fn gpus_text(gpus: &[GpuSelector]) -> String {
    let names: Vec<String> = gpus.iter().map(|gpu| gpu.0.clone()).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("GPU{plural} {}", list_text(&names))
}

fn globs(globs: &[Glob]) -> Vec<String> {
    globs.iter().map(|glob| glob.typed.clone()).collect()
}

/// `alice, bob, carol, 4 more`: a list may have thousands of names.
fn list_text(names: &[String]) -> String {
    const MAX_NAMES: usize = 4;
    let mut listed = names[..names.len().min(MAX_NAMES)].join(", ");
    if names.len() > MAX_NAMES {
        listed.push_str(&format!(", {} more", names.len() - MAX_NAMES));
    }
    listed
}

/// `22:00-06:00 Monday, Friday`
fn hours_text(hours: &Hours) -> String {
    let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    let mut text = format!("{}-{}", time(hours.from), time(hours.to));
    let days: Vec<&str> = hours.days.iter().map(|day| &day.name()[..3]).collect();
    if !days.is_empty() {
        text.push_str(&format!(" {}", days.join(", ")));
    }
    text
}

/// `8 GiB`, `1.5 GiB`, `512 MiB`
fn size_text(bytes: Bytes) -> String {
    match bytes {
        Bytes(0) => "0 GiB".to_owned(),
        _ if bytes.as_mib() < 1024 => format!("{} MiB", bytes.as_mib()),
        _ if bytes.as_mib().is_multiple_of(1024) => format!("{} GiB", bytes.as_mib() / 1024),
        _ => format!("{} GiB", bytes.gib_text()),
    }
}

fn share_text(percent: Percent) -> String {
    format!("{} % of a GPU", percent.0)
}

fn processes_text(count: u32) -> String {
    match count {
        1 => "1 process".to_owned(),
        several => format!("{several} processes"),
    }
}

/// `12h`, `1h 30m`
fn length_text(length: Duration) -> String {
    let text = format_duration(length);
    let text = text.trim_end_matches(" 0h").trim_end_matches(" 0m");
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::rules::parse::parse;

    fn described(text: &str) -> Vec<String> {
        let rules = parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let all = describe_policies(&rules).into_iter();
        all.map(|it| format!("{} [{}]", it.text, it.mode.name()))
            .collect()
    }

    #[test]
    fn each_policy_is_one_line() {
        let text = "[global]\ndry_run = false\ndefault_memory_limit_gb = 16\n\
            default_idle_limit_minutes = 90\ndefault_idle_min_memory_gb = 0.5\n\
            [user_policies.bob]\nmemory_limit_gb = 8\npriority = 7\nallowed_gpus = [0, '2-3']\n\
            max_concurrent_processes = 1\n\
            [user_policies.eve]\nmode = 'dry-run'\ngrace = '10m'\n\
            [group_policies.ml]\nmembers = ['a', 'b', 'c', 'd', 'e', 'f']\n\
            total_memory_limit_gb = 40.5\naction = 'warn'\n\
            [gpu_policies.0]\nmax_memory_gb = 24\nreserved_memory_gb = 2\n\
            blocked_users = ['eve']\nallowed_processes = ['python*']\n\
            [[time_policies]]\nname = 'night'\nstart_time = '22:00'\nend_time = '06:00'\n\
            days_of_week = ['mon', 'fri']\nduration_limit_hours = 12\n\
            [[rules]]\nname = 'notebooks'\nprocesses = ['jupyter*']\nidle_limit_minutes = 60\n\
            idle_min_memory_gb = 4\n";
        assert_eq!(
            described(text),
            [
                "by default: at most 16 GiB, idle for at most 1h 30m with 512 MiB or more [soft]",
                "bob: at most 8 GiB, at most 1 process, only GPUs 0, 2, 3, priority 7 [soft]",
                "eve: no limit of its own, mode dry-run, grace 10m [dry-run]",
                "group ml (a, b, c, d, 2 more): at most 40.5 GiB together, only warned [soft]",
                "GPU 0: at most 24 GiB a process, 2 GiB stay free, not eve, only program python* \
                [soft]",
                "night (22:00-06:00 Mon, Fri): at most 12h a process [soft]",
                "rule notebooks (program jupyter*): idle for at most 1h with 4 GiB or more [soft]",
            ]
        );
    }

    #[test]
    fn no_rules_are_no_lines() {
        assert_eq!(described(""), Vec::<String>::new());
    }

    #[test]
    fn policy_is_never_harder_than_the_guard() {
        let text = "[global]\ndry_run = true\n[user_policies.bob]\nmemory_limit_gb = 8\n\
            mode = 'enforce'\n";
        assert_eq!(
            described(text),
            ["bob: at most 8 GiB, mode enforce [dry-run]"]
        );
    }
}
