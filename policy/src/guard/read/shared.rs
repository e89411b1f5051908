//! Keys that several kinds of policies have: how much, what comes of it, and who
//! belongs to it.

use super::bounds;
use super::field::{Field, Shown, put};
use super::value::Unit;
use crate::guard::rules::{Limits, Measures, Members};
use gpukill_proto::guard::{GuardAction, GuardMode};
use std::time::Duration;

/// How much a person may use.
pub(super) const LIMITS: &[Field<Limits>] = &[
    Field {
        name: "memory_limit_gb",
        shown: Shown::Example("16"),
        help: "Memory of all GPUs together, in GiB; or with its unit: \"512MiB\".",
        set: |it, at| it.memory = at.gib(),
    },
    Field {
        name: "utilization_limit_pct",
        shown: Shown::Example("80"),
        help: "Mean utilisation of any one GPU. It only warns, unless action says otherwise.",
        set: |it, at| it.utilization = at.percent(),
    },
    Field {
        name: "duration_limit_hours",
        shown: Shown::Example("12"),
        help: "How long a process may hold a GPU, in hours; or with its unit: \"90m\".",
        set: |it, at| {
            it.duration = at.duration(Unit::Hours, Duration::ZERO, bounds::LONGEST);
        },
    },
    Field {
        name: "idle_limit_minutes",
        shown: Shown::Example("120"),
        help: "How long a job may hold a GPU and do nothing, in minutes. Where clients are\n\
               connected to it, it is not idle.",
        set: |it, at| {
            it.idle = at.duration(Unit::Minutes, bounds::SHORTEST, bounds::WINDOW);
        },
    },
    Field {
        name: "idle_min_memory_gb",
        shown: Shown::Example("1"),
        help: "Only what holds as much is idle, in GiB.",
        set: |it, at| it.idle_min_memory = at.gib(),
    },
];

/// How many processes a person may have.
pub(super) const PROCESSES: &[Field<Limits>] = &[Field {
    name: "max_concurrent_processes",
    shown: Shown::Example("4"),
    help: "Processes that hold a GPU at the same time, however many GPUs each holds.",
    set: |it, at| it.processes = at.count(bounds::PROCESSES),
}];

/// The words for what comes of a violation.
pub(super) const ACTIONS: &[(&str, GuardAction)] = &[
    (GuardAction::Warn.name(), GuardAction::Warn),
    (GuardAction::Terminate.name(), GuardAction::Terminate),
];

/// The words for how far the guard goes.
const MODES: &[(&str, GuardMode)] = &[
    (GuardMode::DryRun.name(), GuardMode::DryRun),
    (GuardMode::Soft.name(), GuardMode::Soft),
    (GuardMode::Enforce.name(), GuardMode::Enforce),
];

/// What comes of it.
pub(super) const MEASURES: &[Field<Measures>] = &[
    Field {
        name: "action",
        shown: Shown::Example("\"warn\""),
        help: "What comes of breaking this: \"warn\" or \"terminate\". A user's \"warn\" holds for\n\
               every rule that they break.",
        set: |it, at| it.action = at.word(ACTIONS),
    },
    Field {
        name: "mode",
        shown: Shown::Example("\"dry-run\""),
        help: "How far the guard goes for this: \"dry-run\", \"soft\" or \"enforce\", and never\n\
               further than it goes for the whole. A user's holds for every rule that they\n\
               break, where it is milder.",
        set: |it, at| it.mode = at.word(MODES),
    },
    Field {
        name: "grace",
        shown: Shown::Example("\"10m\""),
        help: "From the first warning to the end, in place of grace_period_seconds. A user's\n\
               holds for every rule that they break, where it is longer.",
        set: |it, at| it.grace = at.duration(Unit::Written, Duration::ZERO, bounds::GRACE),
    },
    Field {
        name: "max_snoozes",
        shown: Shown::Example("2"),
        help: "How often whoever is warned may ask for more time, in place of the one of\n\
               [enforcement].",
        set: |it, at| it.max_snoozes = at.count(bounds::WARNINGS),
    },
    Field {
        name: "message",
        shown: Shown::Example("\"Ask in #gpus for more.\""),
        help: "Your own words to whoever breaks it.",
        set: |it, at| it.message = at.text(bounds::MESSAGE),
    },
];

/// Who belongs to it, besides users.
pub(super) const MEMBERS: &[Field<Members>] = &[
    Field {
        name: "unix_groups",
        shown: Shown::Example("[\"students\"]"),
        help: "Groups of the box whose users belong to it.",
        set: |it, at| put(&mut it.unix_groups, at.names()),
    },
    Field {
        name: "slurm_accounts",
        shown: Shown::Example("[\"vision\"]"),
        help: "Accounts of Slurm whose jobs belong to it. A job says itself what its account is:\n\
               what that would make looser, compared with [global], is not judged.",
        set: |it, at| put(&mut it.slurm_accounts, at.names()),
    },
    Field {
        name: "kubernetes_namespaces",
        shown: Shown::Example("[\"training\"]"),
        help: "Namespaces of Kubernetes whose pods belong to it.",
        set: |it, at| put(&mut it.kubernetes_namespaces, at.names()),
    },
    Field {
        name: "images",
        shown: Shown::Example("[\"*/pytorch:*\"]"),
        help: "Images whose containers belong to it.",
        set: |it, at| put(&mut it.images, at.globs()),
    },
];
