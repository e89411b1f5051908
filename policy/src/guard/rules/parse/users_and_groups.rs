//! Keys of `[user_policies.NAME]` and `[group_policies.NAME]`.

use super::bounds;
use super::field::{Field, KeyGroup, ReferenceValue, TableEntry, TableKeys, store};
use super::hours::HOURS;
use super::shared::{LIMITS, MEASURES, MEMBERS, PROCESSES};
use super::value_reader::ValueReader;
use crate::guard::rules::{GroupPolicy, MAX_PRIORITY, TimeOverride, UserPolicy};

pub(super) const USER_HELP: &str = "The policy of one person. Its limits replace those of groups\n\
                                    and of [global].";

pub(super) const GROUP_HELP: &str = "The policy of several persons, or of a project. Totals apply in addition to all\n\
     else.";

/// For user and group policies.
const PRIORITY_HELP: &str = "From 0 to 100. Jobs of the lowest priority are ended first.";

const ALLOWED_HELP: &str = "The only GPUs they may use: indices, UUIDs, PCI addresses, names\n\
                            with *. By default all.";

const BLOCKED_HELP: &str = "GPUs they may not use, even if another key allows them.";

impl TableEntry for UserPolicy {
    const KEYS: TableKeys<Self> = &[
        &KeyGroup::new(USER_FIELDS, |it: &mut Self| it),
        &KeyGroup::new(LIMITS, |it: &mut Self| &mut it.limits),
        &KeyGroup::new(PROCESSES, |it: &mut Self| &mut it.limits),
        &KeyGroup::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn with_name(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn check(&mut self, at: &mut ValueReader<'_, '_>) {
        at.check_name(&self.name);
    }
}

const USER_FIELDS: &[Field<UserPolicy>] = &[
    Field {
        name: "username",
        reference_value: ReferenceValue::Example("\"alice\""),
        help: "Optional. It must equal the name of the table.",
        set: |it, at| at.check_same_name(&it.name),
    },
    Field {
        name: "priority",
        reference_value: ReferenceValue::Example("7"),
        help: PRIORITY_HELP,
        set: |it, at| it.priority = at.priority(),
    },
    Field {
        name: "allowed_gpus",
        reference_value: ReferenceValue::Example("[0, 1]"),
        help: ALLOWED_HELP,
        set: |it, at| store(&mut it.allowed_gpus, at.gpus()),
    },
    Field {
        name: "blocked_gpus",
        reference_value: ReferenceValue::Example("[\"*A100*\"]"),
        help: BLOCKED_HELP,
        set: |it, at| store(&mut it.blocked_gpus, at.gpus()),
    },
    Field {
        name: "time_overrides",
        reference_value: ReferenceValue::Example(
            "[{ start_time = \"20:00\", end_time = \"08:00\", memory_limit_gb = 64 }]",
        ),
        help: "Other limits at certain times: each with start_time, end_time, days_of_week and\n\
               any of the limits above. Where several apply, the strictest counts.",
        set: |it, at| store(&mut it.overrides, at.tables()),
    },
];

impl TableEntry for TimeOverride {
    const KEYS: TableKeys<Self> = &[
        &KeyGroup::new(HOURS, |it: &mut Self| &mut it.hours),
        &KeyGroup::new(LIMITS, |it: &mut Self| &mut it.limits),
        &KeyGroup::new(PROCESSES, |it: &mut Self| &mut it.limits),
    ];

    fn with_name(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut ValueReader<'_, '_>) {
        self.hours.check_window(at);
    }
}

impl TableEntry for GroupPolicy {
    const KEYS: TableKeys<Self> = &[
        &KeyGroup::new(GROUP_FIELDS, |it: &mut Self| it),
        &KeyGroup::new(MEMBERS, |it: &mut Self| &mut it.members),
        &KeyGroup::new(TOTAL_FIELDS, |it: &mut Self| it),
        &KeyGroup::new(LIMITS, |it: &mut Self| &mut it.limits),
        &KeyGroup::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn with_name(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn check(&mut self, at: &mut ValueReader<'_, '_>) {
        at.check_name(&self.name);
    }
}

const GROUP_FIELDS: &[Field<GroupPolicy>] = &[
    Field {
        name: "group_name",
        reference_value: ReferenceValue::Example("\"researchers\""),
        help: "Optional. It must equal the name of the table.",
        set: |it, at| at.check_same_name(&it.name),
    },
    Field {
        name: "members",
        reference_value: ReferenceValue::Example("[\"alice\", \"bob\"]"),
        help: "Members, by name or number of the user.",
        set: |it, at| store(&mut it.members.users, at.users()),
    },
];

const TOTAL_FIELDS: &[Field<GroupPolicy>] = &[
    Field {
        name: "total_memory_limit_gb",
        reference_value: ReferenceValue::Example("64"),
        help: "Memory on all GPUs of all members together, in GiB.",
        set: |it, at| it.total_memory = at.gib(),
    },
    Field {
        name: "total_utilization_limit_pct",
        reference_value: ReferenceValue::Example("80"),
        help: "Mean utilization of any one GPU by all members together.",
        set: |it, at| it.total_utilization = at.percent(),
    },
    Field {
        name: "max_concurrent_processes",
        reference_value: ReferenceValue::Example("16"),
        help: "Processes of all members together.",
        set: |it, at| it.total_processes = at.count(bounds::MAX_PROCESSES),
    },
    Field {
        name: "max_concurrent_processes_each",
        reference_value: ReferenceValue::Example("4"),
        help: "Processes of each member. This and the limits below apply to each member without\n\
               a user policy that sets the same limit.",
        set: |it, at| it.limits.processes = at.count(bounds::MAX_PROCESSES),
    },
    Field {
        name: "priority",
        reference_value: ReferenceValue::Example("3"),
        help: PRIORITY_HELP,
        set: |it, at| it.priority = at.priority(),
    },
    Field {
        name: "allowed_gpus",
        reference_value: ReferenceValue::Example("[\"0-3\"]"),
        help: ALLOWED_HELP,
        set: |it, at| store(&mut it.allowed_gpus, at.gpus()),
    },
    Field {
        name: "blocked_gpus",
        reference_value: ReferenceValue::Example("[7]"),
        help: BLOCKED_HELP,
        set: |it, at| store(&mut it.blocked_gpus, at.gpus()),
    },
];

impl ValueReader<'_, '_> {
    fn priority(&mut self) -> Option<u8> {
        let priority = self.count(u64::from(MAX_PRIORITY))?;
        u8::try_from(priority).ok()
    }
}
