//! Keys of `[[time_policies]]`.

use super::at::At;
use super::bounds;
use super::field::{Entry, Field, Keys, Of, Shown, put};
use super::hours::HOURS;
use super::shared::{LIMITS, MEASURES, PROCESSES};
use crate::guard::rules::TimePolicy;

impl Entry for TimePolicy {
    const KEYS: Keys<Self> = &[
        &Of::new(NAME, |it: &mut Self| it),
        &Of::new(HOURS, |it: &mut Self| &mut it.hours),
        &Of::new(LIMITS, |it: &mut Self| &mut it.limits),
        &Of::new(PROCESSES, |it: &mut Self| &mut it.limits),
        &Of::new(WHO, |it: &mut Self| it),
        &Of::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn called(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut At<'_, '_>) {
        at.check_named();
        self.hours.check_window(at);
    }
}

const NAME: &[Field<TimePolicy>] = &[Field {
    name: "name",
    shown: Shown::Example("\"business_hours\""),
    help: "What it is called.",
    set: |it, at| put(&mut it.name, at.name()),
}];

const WHO: &[Field<TimePolicy>] = &[
    Field {
        name: "allowed_users",
        shown: Shown::Example("[\"alice\", \"bob\"]"),
        help: "The only users who may use GPUs then, by name or number. All where there is none.",
        set: |it, at| put(&mut it.allowed_users, at.users()),
    },
    Field {
        name: "blocked_users",
        shown: Shown::Example("[\"carol\"]"),
        help: "Users who may not, whatever allows them.",
        set: |it, at| put(&mut it.blocked_users, at.users()),
    },
    Field {
        name: "gpus",
        shown: Shown::Example("[0]"),
        help: "Only about these GPUs. About all where there is none.",
        set: |it, at| put(&mut it.gpus, at.gpus()),
    },
];

impl At<'_, '_> {
    /// What stands in a list of tables has its name in it.
    pub(super) fn check_named(&mut self) {
        if !self.has("name") {
            let most = bounds::NAME;
            let suggestion = format!("write name = \"…\", of at most {most} bytes");
            self.wrong_with("has no name", Some(suggestion));
        }
    }
}
