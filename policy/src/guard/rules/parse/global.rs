//! Keys of the sections that exist once: `[global]`, `[enforcement]` and `[protect]`.

use super::bounds;
use super::field::{Field, KeyGroup, ReferenceValue, TableKeys, store};
use super::shared::{LIMITS, PROCESSES};
use super::value::TimeUnit;
use crate::guard::rules::{
    EnforcementMode, EnforcementSettings, Limits, ProtectRules, RuleSet, SwitchConflict,
};
use gpukill_proto::guard::GuardMode;
use std::time::Duration;

/// The values of `[global]` and `[enforcement]`.
#[derive(Debug, Default)]
pub(super) struct GlobalDraft {
    is_disabled: bool,
    is_armed: bool,
    soft: Option<bool>,
    hard: Option<bool>,
    defaults: Limits,
    enforcement: EnforcementSettings,
}

impl GlobalDraft {
    /// Stores the values in the rules.
    pub(super) fn store_in(self, rules: &mut RuleSet) {
        // If both switches are on, the milder mode applies. `hard_enforcement` alone is
        // enough, although soft is the default.
        let is_hard = self.hard == Some(true) && self.soft != Some(true);
        let is_not_soft_or_hard = self.soft == Some(false) && !is_hard;
        rules.armed_mode = if is_hard {
            EnforcementMode::Enforce
        } else {
            EnforcementMode::Soft
        };
        rules.mode = if self.is_disabled {
            GuardMode::Disabled
        } else if !self.is_armed || is_not_soft_or_hard {
            GuardMode::DryRun
        } else {
            rules.armed_mode.mode()
        };
        rules.switch_conflict = if self.soft == Some(true) && self.hard == Some(true) {
            Some(SwitchConflict::Both)
        } else {
            is_not_soft_or_hard.then_some(SwitchConflict::Neither)
        };
        rules.defaults = self.defaults;
        rules.enforcement = self.enforcement;
    }
}

pub(super) const GLOBAL: TableKeys<GlobalDraft> = &[
    &KeyGroup::new(SWITCHES, |draft: &mut GlobalDraft| draft),
    &KeyGroup::prefixed("default_", LIMITS, |draft: &mut GlobalDraft| {
        &mut draft.defaults
    }),
    &KeyGroup::prefixed("default_", PROCESSES, |draft: &mut GlobalDraft| {
        &mut draft.defaults
    }),
];

const SWITCHES: &[Field<GlobalDraft>] = &[
    Field {
        name: "enabled",
        reference_value: ReferenceValue::Default("true"),
        help: "Whether the guard evaluates rules.",
        set: |draft, at| store(&mut draft.is_disabled, at.boolean().map(|is| !is)),
    },
    Field {
        name: "dry_run",
        reference_value: ReferenceValue::Default("true"),
        help: "Whether the guard only records what it would do.",
        set: |draft, at| store(&mut draft.is_armed, at.boolean().map(|is| !is)),
    },
];

pub(super) const ENFORCEMENT: TableKeys<GlobalDraft> = &[
    &KeyGroup::new(MODE_FIELDS, |draft: &mut GlobalDraft| draft),
    &KeyGroup::new(WARNING_FIELDS, |draft: &mut GlobalDraft| {
        &mut draft.enforcement
    }),
];

const MODE_FIELDS: &[Field<GlobalDraft>] = &[
    Field {
        name: "soft_enforcement",
        reference_value: ReferenceValue::Default("true"),
        help: "Warns, reminds, and ends jobs when the grace period is over.",
        set: |draft, at| draft.soft = at.boolean(),
    },
    Field {
        name: "hard_enforcement",
        reference_value: ReferenceValue::Default("false"),
        help: "Ends jobs without a grace period: for access violations at the first sample, for\n\
               limits after a second sample. Idleness and waste still have a warning and a\n\
               grace period.\n\
               Set soft_enforcement = false with it.",
        set: |draft, at| draft.hard = at.boolean(),
    },
];

const WARNING_FIELDS: &[Field<EnforcementSettings>] = &[
    Field {
        name: "grace_period_seconds",
        reference_value: ReferenceValue::Default("300"),
        help: "Time from the first warning to the end. Idleness and waste have a grace period\n\
               in every mode, of 300 seconds where this is 0.",
        set: |draft, at| {
            let grace = at.duration(TimeUnit::Seconds, Duration::ZERO, bounds::MAX_GRACE);
            store(&mut draft.grace, grace);
        },
    },
    Field {
        name: "max_warnings",
        reference_value: ReferenceValue::Default("3"),
        help: "Number of warnings within the grace period, evenly spread.",
        set: |draft, at| store(&mut draft.max_warnings, at.count(bounds::MAX_WARNINGS)),
    },
    Field {
        name: "utilization_window_minutes",
        reference_value: ReferenceValue::Default("5"),
        help: "Utilization limits use the mean over this time.",
        set: |draft, at| {
            let window = at.duration(TimeUnit::Minutes, bounds::MIN_WINDOW, bounds::MAX_WINDOW);
            store(&mut draft.utilization_window, window);
        },
    },
    Field {
        name: "idle_below_pct",
        reference_value: ReferenceValue::Default("5"),
        help: "A process with less utilization than this is idle.",
        set: |draft, at| store(&mut draft.idle_below, at.percent()),
    },
    Field {
        name: "settled_after_minutes",
        reference_value: ReferenceValue::Default("5"),
        help: "A violation that was not observed for this long is over, and its warnings are\n\
               forgotten.",
        set: |draft, at| {
            let settled = at.duration(TimeUnit::Minutes, Duration::ZERO, bounds::MAX_WINDOW);
            store(&mut draft.settled_after, settled);
        },
    },
    Field {
        name: "max_snoozes",
        reference_value: ReferenceValue::Default("1"),
        help: "How often a warned person may ask for more time: gpukillctl guard snooze PID.",
        set: |draft, at| store(&mut draft.max_snoozes, at.count(bounds::MAX_WARNINGS)),
    },
    Field {
        name: "snooze_minutes",
        reference_value: ReferenceValue::Default("30"),
        help: "How much time a snooze adds.",
        set: |draft, at| {
            let snooze = at.duration(TimeUnit::Minutes, bounds::MIN_WINDOW, bounds::MAX_WINDOW);
            store(&mut draft.snooze, snooze);
        },
    },
    Field {
        name: "cooldown_seconds",
        reference_value: ReferenceValue::Default("60"),
        help: "After ending a job for exceeding a limit, wait this long before ending another\n\
               for the same limit or a limit of that GPU, so that its memory can be released.",
        set: |draft, at| {
            let cooldown = at.duration(TimeUnit::Seconds, Duration::ZERO, bounds::MAX_GRACE);
            store(&mut draft.cooldown, cooldown);
        },
    },
    Field {
        name: "max_ended_per_10_minutes",
        reference_value: ReferenceValue::Default("5"),
        help: "Circuit breaker: before more jobs than this are ended in ten minutes, each\n\
               person counted at most twice, the guard goes back to dry run until an admin sets\n\
               soft or enforce again.",
        set: |draft, at| store(&mut draft.max_ended, at.count_within(1, bounds::MAX_ENDED)),
    },
];

pub(super) const PROTECT: TableKeys<ProtectRules> = &[&KeyGroup::new(
    PROTECT_FIELDS,
    |draft: &mut ProtectRules| draft,
)];

const PROTECT_FIELDS: &[Field<ProtectRules>] = &[
    Field {
        name: "users",
        reference_value: ReferenceValue::Example("[\"gdm\"]"),
        help: "Users, by name or number.",
        set: |draft, at| store(&mut draft.users, at.users()),
    },
    Field {
        name: "processes",
        reference_value: ReferenceValue::Example("[\"Xorg\", \"gnome-*\"]"),
        help: "Whole names of processes, with * and ?. A name protects processes of root and\n\
               system accounts (below UID_MIN of login.defs), and the display server of the\n\
               person at a seat. It protects no other process of a person and none in a\n\
               container: images, units and users protect those.",
        set: |draft, at| store(&mut draft.processes, at.globs()),
    },
    Field {
        name: "command",
        reference_value: ReferenceValue::Example("\"--production\""),
        help: "A regular expression for command lines. Any user can write matching text into\n\
               their own command line. A command line that cannot be read counts as matching:\n\
               in doubt no rule applies.",
        set: |draft, at| draft.command = at.pattern(),
    },
    Field {
        name: "images",
        reference_value: ReferenceValue::Example("[\"*/triton:*\"]"),
        help: "Images of containers that root runs, with * and ?. Other containers do not\n\
               count, because a user who runs a container can name its image freely.",
        set: |draft, at| store(&mut draft.images, at.globs()),
    },
    Field {
        name: "units",
        reference_value: ReferenceValue::Example("[\"ollama.service\", \"vllm@*.service\"]"),
        help: "Units of the system manager, with * and ?. Units of a user's own systemd do not\n\
               count, and a pattern matches no login session and no user@UID.service.",
        set: |draft, at| store(&mut draft.units, at.globs()),
    },
];
