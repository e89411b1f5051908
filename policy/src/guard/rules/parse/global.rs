//! Keys of the sections that exist once: `[global]`, `[enforcement]` and `[protect]`.

use super::bounds;
use super::field::{KeyGroup, TableKeys, fields, store};
use super::shared::{LIMITS, PROCESSES};
use super::value::TimeUnit;
use crate::guard::rules::{
    EnforcementMode, EnforcementSettings, Limits, ProtectRules, RuleSet, SwitchConflict,
};
use gpukill_proto::guard::GuardMode;

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

fields! {
    const SWITCHES: GlobalDraft;

    enabled = Default("true"),
        "Whether the guard evaluates rules.",
        |draft, at| store(&mut draft.is_disabled, at.boolean().map(|is| !is));
    dry_run = Default("true"),
        "Whether the guard only records what it would do.",
        |draft, at| store(&mut draft.is_armed, at.boolean().map(|is| !is));
}

pub(super) const ENFORCEMENT: TableKeys<GlobalDraft> = &[
    &KeyGroup::new(MODE_FIELDS, |draft: &mut GlobalDraft| draft),
    &KeyGroup::new(WARNING_FIELDS, |draft: &mut GlobalDraft| {
        &mut draft.enforcement
    }),
];

fields! {
    const MODE_FIELDS: GlobalDraft;

    soft_enforcement = Default("true"),
        "Warns, reminds, and ends jobs when the grace period is over.",
        |draft, at| draft.soft = at.boolean();
    hard_enforcement = Default("false"),
        "Ends jobs without a grace period: for access violations at the first sample, for\n\
         limits after a second sample. Idleness and waste still have a warning and a\n\
         grace period.\n\
         Set soft_enforcement = false with it.",
        |draft, at| draft.hard = at.boolean();
}

fields! {
    const WARNING_FIELDS: EnforcementSettings;

    grace_period_seconds = Default("300"),
        "Time from the first warning to the end. Idleness and waste have a grace period\n\
         in every mode, of 300 seconds where this is 0.",
        |draft, at| store(&mut draft.grace, at.length(TimeUnit::Seconds, bounds::MAX_GRACE));
    max_warnings = Default("3"),
        "Number of warnings within the grace period, evenly spread.",
        |draft, at| store(&mut draft.max_warnings, at.count(bounds::MAX_WARNINGS));
    utilization_window_minutes = Default("5"),
        "Utilization limits use the mean over this time.",
        |draft, at| store(&mut draft.utilization_window, at.window(TimeUnit::Minutes));
    idle_below_pct = Default("5"),
        "A process with less utilization than this is idle.",
        |draft, at| store(&mut draft.idle_below, at.percent());
    settled_after_minutes = Default("5"),
        "A violation that was not observed for this long is over, and its warnings are\n\
         forgotten.",
        |draft, at| store(&mut draft.settled_after, at.length(TimeUnit::Minutes, bounds::MAX_WINDOW));
    max_snoozes = Default("1"),
        "How often a warned person may ask for more time: gpukillctl guard snooze PID.",
        |draft, at| store(&mut draft.max_snoozes, at.count(bounds::MAX_WARNINGS));
    snooze_minutes = Default("30"),
        "How much time a snooze adds.",
        |draft, at| store(&mut draft.snooze, at.window(TimeUnit::Minutes));
    cooldown_seconds = Default("60"),
        "After ending a job for exceeding a limit, wait this long before ending another\n\
         for the same limit or a limit of that GPU, so that its memory can be released.",
        |draft, at| store(&mut draft.cooldown, at.length(TimeUnit::Seconds, bounds::MAX_GRACE));
    max_ended_per_10_minutes = Default("5"),
        "Circuit breaker: before more jobs than this are ended in ten minutes, each\n\
         person counted at most twice, the guard goes back to dry run until an admin sets\n\
         soft or enforce again.",
        |draft, at| store(&mut draft.max_ended, at.count_within(1, bounds::MAX_ENDED));
}

pub(super) const PROTECT: TableKeys<ProtectRules> = &[&KeyGroup::new(
    PROTECT_FIELDS,
    |draft: &mut ProtectRules| draft,
)];

fields! {
    const PROTECT_FIELDS: ProtectRules;

    users = Example("[\"gdm\"]"),
        "Users, by name or number.",
        |draft, at| store(&mut draft.users, at.users());
    processes = Example("[\"Xorg\", \"gnome-*\"]"),
        "Whole names of processes, with * and ?. A name protects processes of root and\n\
         system accounts (below UID_MIN of login.defs), and the display server of the\n\
         person at a seat. It protects no other process of a person and none in a\n\
         container: images, units and users protect those.",
        |draft, at| store(&mut draft.processes, at.globs());
    command = Example("\"--production\""),
        "A regular expression for command lines. Any user can write matching text into\n\
         their own command line. A command line that cannot be read counts as matching:\n\
         in doubt no rule applies.",
        |draft, at| draft.command = at.pattern();
    images = Example("[\"*/triton:*\"]"),
        "Images of containers that root runs, with * and ?. Other containers do not\n\
         count, because a user who runs a container can name its image freely.",
        |draft, at| store(&mut draft.images, at.globs());
    units = Example("[\"ollama.service\", \"vllm@*.service\"]"),
        "Units of the system manager, with * and ?. Units of a user's own systemd do not\n\
         count, and a pattern matches no login session and no user@UID.service.",
        |draft, at| store(&mut draft.units, at.globs());
}
