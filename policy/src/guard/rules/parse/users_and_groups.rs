//! Keys of `[user_policies.NAME]` and `[group_policies.NAME]`.

use super::bounds;
use super::field::{KeyGroup, TableEntry, TableKeys, fields, store};
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

fields! {
    const USER_FIELDS: UserPolicy;

    username = Example("\"alice\""),
        "Optional. It must equal the name of the table.",
        |it, at| at.check_same_name(&it.name);
    priority = Example("7"),
        PRIORITY_HELP,
        |it, at| it.priority = at.priority();
    allowed_gpus = Example("[0, 1]"),
        ALLOWED_HELP,
        |it, at| store(&mut it.allowed_gpus, at.gpus());
    blocked_gpus = Example("[\"*A100*\"]"),
        BLOCKED_HELP,
        |it, at| store(&mut it.blocked_gpus, at.gpus());
    time_overrides = Example("[{ start_time = \"20:00\", end_time = \"08:00\", memory_limit_gb = 64 }]"),
        "Other limits at certain times: each with start_time, end_time, days_of_week and\n\
         any of the limits above. Where several apply, the strictest counts.",
        |it, at| store(&mut it.overrides, at.tables());
}

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

fields! {
    const GROUP_FIELDS: GroupPolicy;

    group_name = Example("\"researchers\""),
        "Optional. It must equal the name of the table.",
        |it, at| at.check_same_name(&it.name);
    members = Example("[\"alice\", \"bob\"]"),
        "Members, by name or number of the user.",
        |it, at| store(&mut it.members.users, at.users());
}

fields! {
    const TOTAL_FIELDS: GroupPolicy;

    total_memory_limit_gb = Example("64"),
        "Memory on all GPUs of all members together, in GiB.",
        |it, at| it.total_memory = at.gib();
    total_utilization_limit_pct = Example("80"),
        "Mean utilization of any one GPU by all members together.",
        |it, at| it.total_utilization = at.percent();
    max_concurrent_processes = Example("16"),
        "Processes of all members together.",
        |it, at| it.total_processes = at.count(bounds::MAX_PROCESSES);
    max_concurrent_processes_each = Example("4"),
        "Processes of each member. This and the limits below apply to each member without\n\
         a user policy that sets the same limit.",
        |it, at| it.limits.processes = at.count(bounds::MAX_PROCESSES);
    priority = Example("3"),
        PRIORITY_HELP,
        |it, at| it.priority = at.priority();
    allowed_gpus = Example("[\"0-3\"]"),
        ALLOWED_HELP,
        |it, at| store(&mut it.allowed_gpus, at.gpus());
    blocked_gpus = Example("[7]"),
        BLOCKED_HELP,
        |it, at| store(&mut it.blocked_gpus, at.gpus());
}

impl ValueReader<'_, '_> {
    fn priority(&mut self) -> Option<u8> {
        let priority = self.count(u64::from(MAX_PRIORITY))?;
        u8::try_from(priority).ok()
    }
}
