//! Keys of `[[time_policies]]`.

use super::bounds;
use super::field::{KeyGroup, TableEntry, TableKeys, fields, store};
use super::hours::HOURS;
use super::shared::{LIMITS, MEASURES, PROCESSES};
use super::value_reader::ValueReader;
use crate::guard::rules::TimePolicy;

impl TableEntry for TimePolicy {
    const KEYS: TableKeys<Self> = &[
        &KeyGroup::new(NAME_FIELDS, |it: &mut Self| it),
        &KeyGroup::new(HOURS, |it: &mut Self| &mut it.hours),
        &KeyGroup::new(LIMITS, |it: &mut Self| &mut it.limits),
        &KeyGroup::new(PROCESSES, |it: &mut Self| &mut it.limits),
        &KeyGroup::new(USER_LIST_FIELDS, |it: &mut Self| it),
        &KeyGroup::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn with_name(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut ValueReader<'_, '_>) {
        at.check_has_name();
        self.hours.check_window(at);
    }
}

fields! {
    const NAME_FIELDS: TimePolicy;

    name = Example("\"business_hours\""),
        "The name of the policy.",
        |it, at| store(&mut it.name, at.name());
}

fields! {
    const USER_LIST_FIELDS: TimePolicy;

    allowed_users = Example("[\"alice\", \"bob\"]"),
        "The only users who may use GPUs during these hours, by name or number. By\n\
         default all.",
        |it, at| store(&mut it.allowed_users, at.users());
    blocked_users = Example("[\"carol\"]"),
        "Users who may not use GPUs during these hours, even if another key allows them.",
        |it, at| store(&mut it.blocked_users, at.users());
    gpus = Example("[0]"),
        "Only for these GPUs. By default for all.",
        |it, at| store(&mut it.gpus, at.gpus());
}

impl ValueReader<'_, '_> {
    /// An item of a list of tables needs a `name`.
    pub(super) fn check_has_name(&mut self) {
        if !self.has_key("name") {
            let max = bounds::MAX_NAME_BYTES;
            let suggestion = format!("write name = \"…\", of at most {max} bytes");
            self.report_with_suggestion("has no name", Some(suggestion));
        }
    }
}
