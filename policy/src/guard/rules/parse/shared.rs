//! Keys that several kinds of policies share: limits, measures and members.

use super::bounds;
use super::field::{fields, store};
use super::value::TimeUnit;
use crate::guard::rules::{Limits, Measures, Members};
use gpukill_proto::guard::{GuardAction, GuardMode};

fields! {
    /// Limits of a person.
    pub(super) const LIMITS: Limits;

    memory_limit_gb = Example("16"),
        "Memory on all GPUs together, in GiB; or with a unit: \"512MiB\".",
        |draft, at| draft.memory = at.gib();
    utilization_limit_pct = Example("80"),
        "Mean utilization of any one GPU. It only warns, unless action is \"terminate\".",
        |draft, at| draft.utilization = at.percent();
    duration_limit_hours = Example("12"),
        "How long a process may hold a GPU, in hours; or with a unit: \"90m\".",
        |draft, at| draft.duration = at.length(TimeUnit::Hours, bounds::MAX_DURATION);
    idle_limit_minutes = Example("120"),
        "How long a job may hold a GPU and be idle, in minutes. A job with connected\n\
         clients is not idle.",
        |draft, at| draft.idle = at.window(TimeUnit::Minutes);
    idle_min_memory_gb = Example("1"),
        "A job that holds less memory than this is not idle, in GiB.",
        |draft, at| draft.idle_min_memory = at.gib();
}

fields! {
    /// The limit on a person's processes.
    pub(super) const PROCESSES: Limits;

    max_concurrent_processes = Example("4"),
        "Processes that hold a GPU at the same time, however many GPUs each holds.",
        |draft, at| draft.processes = at.count(bounds::MAX_PROCESSES);
}

/// The words for actions.
pub(super) const ACTIONS: &[(&str, GuardAction)] = &[
    (GuardAction::Warn.name(), GuardAction::Warn),
    (GuardAction::Terminate.name(), GuardAction::Terminate),
];

/// The words for modes.
const MODES: &[(&str, GuardMode)] = &[
    (GuardMode::DryRun.name(), GuardMode::DryRun),
    (GuardMode::Soft.name(), GuardMode::Soft),
    (GuardMode::Enforce.name(), GuardMode::Enforce),
];

fields! {
    /// The response to violations.
    pub(super) const MEASURES: Measures;

    action = Example("\"warn\""),
        "What is done about a violation: \"warn\" or \"terminate\". \"warn\" in a user\n\
         policy applies to every rule that the user breaks.",
        |draft, at| draft.action = at.keyword(ACTIONS);
    mode = Example("\"dry-run\""),
        "The mode for this policy: \"dry-run\", \"soft\" or \"enforce\". It is never harder\n\
         than the mode of the guard. In a user policy it applies to every rule that the\n\
         user breaks, where it is milder.",
        |draft, at| draft.mode = at.keyword(MODES);
    grace = Example("\"10m\""),
        "Time from the first warning to the end. It replaces grace_period_seconds. In a\n\
         user policy it applies to every rule that the user breaks, where it is longer.",
        |draft, at| draft.grace = at.length(TimeUnit::Explicit, bounds::MAX_GRACE);
    max_snoozes = Example("2"),
        "How often a warned person may ask for more time. It replaces max_snoozes of\n\
         [enforcement].",
        |draft, at| draft.max_snoozes = at.count(bounds::MAX_WARNINGS);
    message = Example("\"Ask in #gpus for more.\""),
        "A message to the person who breaks the rule.",
        |draft, at| draft.message = at.text(bounds::MAX_MESSAGE_BYTES);
}

fields! {
    /// Members of a group beside users.
    pub(super) const MEMBERS: Members;

    unix_groups = Example("[\"students\"]"),
        "Unix groups of the host; their users are members.",
        |draft, at| store(&mut draft.unix_groups, at.names());
    slurm_accounts = Example("[\"vision\"]"),
        "Slurm accounts; their jobs are members. The account is stated by the job itself:\n\
         a rule that the account would loosen, compared with [global], is not evaluated.",
        |draft, at| store(&mut draft.slurm_accounts, at.names());
    kubernetes_namespaces = Example("[\"training\"]"),
        "Kubernetes namespaces; their pods are members.",
        |draft, at| store(&mut draft.kubernetes_namespaces, at.names());
    images = Example("[\"*/pytorch:*\"]"),
        "Container images; their containers are members.",
        |draft, at| store(&mut draft.images, at.globs());
}
