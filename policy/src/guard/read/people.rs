//! Keys of `[user_policies.NAME]` and `[group_policies.NAME]`.

use super::at::At;
use super::bounds;
use super::field::{Entry, Field, Keys, Of, Shown, put};
use super::hours::HOURS;
use super::shared::{LIMITS, MEASURES, MEMBERS, PROCESSES};
use crate::guard::rules::{GroupPolicy, HIGHEST_PRIORITY, Override, UserPolicy};

pub(super) const USER_HELP: &str = "What is said of one person. What it says replaces what groups and [global] say of the\n\
     same.";

pub(super) const GROUP_HELP: &str =
    "What is said of several persons, or of a project. Totals hold besides all else.";

/// For both kinds of policies.
const PRIORITY_HELP: &str = "From 0 to 100. Where somebody must be ended, the lowest are first.";

const ALLOWED_HELP: &str = "The only GPUs they may use: indices, UUIDs, PCI addresses, names with *. All where\n\
     there is none.";

const BLOCKED_HELP: &str = "GPUs they may not use, whatever allows them.";

impl Entry for UserPolicy {
    const KEYS: Keys<Self> = &[
        &Of::new(USER, |it: &mut Self| it),
        &Of::new(LIMITS, |it: &mut Self| &mut it.limits),
        &Of::new(PROCESSES, |it: &mut Self| &mut it.limits),
        &Of::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn called(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn check(&mut self, at: &mut At<'_, '_>) {
        at.check_name(&self.name);
    }
}

const USER: &[Field<UserPolicy>] = &[
    Field {
        name: "username",
        shown: Shown::Example("\"alice\""),
        help: "The same as the table's name, if it is there.",
        set: |it, at| at.same_as(&it.name),
    },
    Field {
        name: "priority",
        shown: Shown::Example("7"),
        help: PRIORITY_HELP,
        set: |it, at| it.priority = at.priority(),
    },
    Field {
        name: "allowed_gpus",
        shown: Shown::Example("[0, 1]"),
        help: ALLOWED_HELP,
        set: |it, at| put(&mut it.allowed_gpus, at.gpus()),
    },
    Field {
        name: "blocked_gpus",
        shown: Shown::Example("[\"*A100*\"]"),
        help: BLOCKED_HELP,
        set: |it, at| put(&mut it.blocked_gpus, at.gpus()),
    },
    Field {
        name: "time_overrides",
        shown: Shown::Example(
            "[{ start_time = \"20:00\", end_time = \"08:00\", memory_limit_gb = 64 }]",
        ),
        help: "Other limits at some times: each with start_time, end_time, days_of_week and any of\n\
               the limits above. Of several that hold the strictest counts.",
        set: |it, at| put(&mut it.overrides, at.tables()),
    },
];

impl Entry for Override {
    const KEYS: Keys<Self> = &[
        &Of::new(HOURS, |it: &mut Self| &mut it.hours),
        &Of::new(LIMITS, |it: &mut Self| &mut it.limits),
        &Of::new(PROCESSES, |it: &mut Self| &mut it.limits),
    ];

    fn called(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut At<'_, '_>) {
        self.hours.check_window(at);
    }
}

impl Entry for GroupPolicy {
    const KEYS: Keys<Self> = &[
        &Of::new(GROUP, |it: &mut Self| it),
        &Of::new(MEMBERS, |it: &mut Self| &mut it.members),
        &Of::new(TOTALS, |it: &mut Self| it),
        &Of::new(LIMITS, |it: &mut Self| &mut it.limits),
        &Of::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn called(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn check(&mut self, at: &mut At<'_, '_>) {
        at.check_name(&self.name);
    }
}

const GROUP: &[Field<GroupPolicy>] = &[
    Field {
        name: "group_name",
        shown: Shown::Example("\"researchers\""),
        help: "The same as the table's name, if it is there.",
        set: |it, at| at.same_as(&it.name),
    },
    Field {
        name: "members",
        shown: Shown::Example("[\"alice\", \"bob\"]"),
        help: "Users who belong to it, by name or number.",
        set: |it, at| put(&mut it.members.users, at.users()),
    },
];

const TOTALS: &[Field<GroupPolicy>] = &[
    Field {
        name: "total_memory_limit_gb",
        shown: Shown::Example("64"),
        help: "Memory of all GPUs, for all of them together, in GiB.",
        set: |it, at| it.total_memory = at.gib(),
    },
    Field {
        name: "total_utilization_limit_pct",
        shown: Shown::Example("80"),
        help: "Mean utilisation of any one GPU by all of them together.",
        set: |it, at| it.total_utilization = at.percent(),
    },
    Field {
        name: "max_concurrent_processes",
        shown: Shown::Example("16"),
        help: "Processes of all of them together.",
        set: |it, at| it.total_processes = at.count(bounds::PROCESSES),
    },
    Field {
        name: "max_concurrent_processes_each",
        shown: Shown::Example("4"),
        help: "Processes of each of them. This and the limits below hold for each member of whom\n\
               no user policy says another.",
        set: |it, at| it.limits.processes = at.count(bounds::PROCESSES),
    },
    Field {
        name: "priority",
        shown: Shown::Example("3"),
        help: PRIORITY_HELP,
        set: |it, at| it.priority = at.priority(),
    },
    Field {
        name: "allowed_gpus",
        shown: Shown::Example("[\"0-3\"]"),
        help: ALLOWED_HELP,
        set: |it, at| put(&mut it.allowed_gpus, at.gpus()),
    },
    Field {
        name: "blocked_gpus",
        shown: Shown::Example("[7]"),
        help: BLOCKED_HELP,
        set: |it, at| put(&mut it.blocked_gpus, at.gpus()),
    },
];

impl At<'_, '_> {
    fn priority(&mut self) -> Option<u8> {
        let priority = self.count(u64::from(HIGHEST_PRIORITY))?;
        u8::try_from(priority).ok()
    }
}
