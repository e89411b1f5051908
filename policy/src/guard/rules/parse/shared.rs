//! Keys that several kinds of policies share: limits, measures and members.

use super::bounds;
use super::field::{Field, ReferenceValue, store};
use super::value::TimeUnit;
use crate::guard::rules::{Limits, Measures, Members};
use gpukill_proto::guard::{GuardAction, GuardMode};
use std::time::Duration;

/// Limits of a person.
pub(super) const LIMITS: &[Field<Limits>] = &[
    Field {
        name: "memory_limit_gb",
        reference_value: ReferenceValue::Example("16"),
        help: "Memory on all GPUs together, in GiB; or with a unit: \"512MiB\".",
        set: |draft, at| draft.memory = at.gib(),
    },
    Field {
        name: "utilization_limit_pct",
        reference_value: ReferenceValue::Example("80"),
        help: "Mean utilization of any one GPU. It only warns, unless action is \"terminate\".",
        set: |draft, at| draft.utilization = at.percent(),
    },
    Field {
        name: "duration_limit_hours",
        reference_value: ReferenceValue::Example("12"),
        help: "How long a process may hold a GPU, in hours; or with a unit: \"90m\".",
        set: |draft, at| {
            draft.duration = at.duration(TimeUnit::Hours, Duration::ZERO, bounds::MAX_DURATION);
        },
    },
    Field {
        name: "idle_limit_minutes",
        reference_value: ReferenceValue::Example("120"),
        help: "How long a job may hold a GPU and be idle, in minutes. A job with connected\n\
               clients is not idle.",
        set: |draft, at| {
            draft.idle = at.duration(TimeUnit::Minutes, bounds::MIN_WINDOW, bounds::MAX_WINDOW);
        },
    },
    Field {
        name: "idle_min_memory_gb",
        reference_value: ReferenceValue::Example("1"),
        help: "A job that holds less memory than this is not idle, in GiB.",
        set: |draft, at| draft.idle_min_memory = at.gib(),
    },
];

/// The limit on a person's processes.
pub(super) const PROCESSES: &[Field<Limits>] = &[Field {
    name: "max_concurrent_processes",
    reference_value: ReferenceValue::Example("4"),
    help: "Processes that hold a GPU at the same time, however many GPUs each holds.",
    set: |draft, at| draft.processes = at.count(bounds::MAX_PROCESSES),
}];

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

/// The response to violations.
pub(super) const MEASURES: &[Field<Measures>] = &[
    Field {
        name: "action",
        reference_value: ReferenceValue::Example("\"warn\""),
        help: "What is done about a violation: \"warn\" or \"terminate\". \"warn\" in a user\n\
               policy applies to every rule that the user breaks.",
        set: |draft, at| draft.action = at.keyword(ACTIONS),
    },
    Field {
        name: "mode",
        reference_value: ReferenceValue::Example("\"dry-run\""),
        help: "The mode for this policy: \"dry-run\", \"soft\" or \"enforce\". It is never harder\n\
               than the mode of the guard. In a user policy it applies to every rule that the\n\
               user breaks, where it is milder.",
        set: |draft, at| draft.mode = at.keyword(MODES),
    },
    Field {
        name: "grace",
        reference_value: ReferenceValue::Example("\"10m\""),
        help: "Time from the first warning to the end. It replaces grace_period_seconds. In a\n\
               user policy it applies to every rule that the user breaks, where it is longer.",
        set: |draft, at| {
            draft.grace = at.duration(TimeUnit::Explicit, Duration::ZERO, bounds::MAX_GRACE)
        },
    },
    Field {
        name: "max_snoozes",
        reference_value: ReferenceValue::Example("2"),
        help: "How often a warned person may ask for more time. It replaces max_snoozes of\n\
               [enforcement].",
        set: |draft, at| draft.max_snoozes = at.count(bounds::MAX_WARNINGS),
    },
    Field {
        name: "message",
        reference_value: ReferenceValue::Example("\"Ask in #gpus for more.\""),
        help: "A message to the person who breaks the rule.",
        set: |draft, at| draft.message = at.text(bounds::MAX_MESSAGE_BYTES),
    },
];

/// Members of a group beside users.
pub(super) const MEMBERS: &[Field<Members>] = &[
    Field {
        name: "unix_groups",
        reference_value: ReferenceValue::Example("[\"students\"]"),
        help: "Unix groups of the host; their users are members.",
        set: |draft, at| store(&mut draft.unix_groups, at.names()),
    },
    Field {
        name: "slurm_accounts",
        reference_value: ReferenceValue::Example("[\"vision\"]"),
        help: "Slurm accounts; their jobs are members. The account is stated by the job itself:\n\
               a rule that the account would loosen, compared with [global], is not evaluated.",
        set: |draft, at| store(&mut draft.slurm_accounts, at.names()),
    },
    Field {
        name: "kubernetes_namespaces",
        reference_value: ReferenceValue::Example("[\"training\"]"),
        help: "Kubernetes namespaces; their pods are members.",
        set: |draft, at| store(&mut draft.kubernetes_namespaces, at.names()),
    },
    Field {
        name: "images",
        reference_value: ReferenceValue::Example("[\"*/pytorch:*\"]"),
        help: "Container images; their containers are members.",
        set: |draft, at| store(&mut draft.images, at.globs()),
    },
];
