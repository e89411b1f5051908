//! Keys of what there is one of: how far the guard goes, what holds for everybody of
//! whom nothing else is said, warnings, and whom no rule is about.

use super::bounds;
use super::field::{Field, Keys, Of, Shown, put};
use super::shared::{LIMITS, PROCESSES};
use super::value::Unit;
use crate::guard::rules::{
    Contradiction, Enforcement, Limits, PersonBy, Protect, Rehearsed, Rules,
};
use gpukill_proto::guard::GuardMode;
use std::time::Duration;

/// What `[global]` and `[enforcement]` say.
#[derive(Debug, Default)]
pub(super) struct Whole {
    is_disabled: bool,
    acts: bool,
    soft: Option<bool>,
    hard: Option<bool>,
    person: PersonBy,
    defaults: Limits,
    enforcement: Enforcement,
}

impl Whole {
    /// Puts it into the rules.
    pub(super) fn finish(self, rules: &mut Rules) {
        // Who asks for both gets the milder; who asks for hard alone is meant so,
        // though soft is what holds when nothing is said.
        let is_hard = self.hard == Some(true) && self.soft != Some(true);
        let is_neither = self.soft == Some(false) && !is_hard;
        rules.rehearsed = if is_hard {
            Rehearsed::Enforce
        } else {
            Rehearsed::Soft
        };
        rules.mode = if self.is_disabled {
            GuardMode::Disabled
        } else if !self.acts || is_neither {
            GuardMode::DryRun
        } else {
            rules.rehearsed.mode()
        };
        rules.contradiction = if self.soft == Some(true) && self.hard == Some(true) {
            Some(Contradiction::Both)
        } else {
            is_neither.then_some(Contradiction::Neither)
        };
        rules.person = self.person;
        rules.defaults = self.defaults;
        rules.enforcement = self.enforcement;
    }
}

/// `[global]`
pub(super) const GLOBAL: Keys<Whole> = &[
    &Of::new(SWITCHES, |it: &mut Whole| it),
    &Of::prefixed("default_", LIMITS, |it: &mut Whole| &mut it.defaults),
    &Of::prefixed("default_", PROCESSES, |it: &mut Whole| &mut it.defaults),
];

const SWITCHES: &[Field<Whole>] = &[
    Field {
        name: "enabled",
        shown: Shown::Default("true"),
        help: "Whether the guard judges anything.",
        set: |it, at| put(&mut it.is_disabled, at.truth().map(|is| !is)),
    },
    Field {
        name: "dry_run",
        shown: Shown::Default("true"),
        help: "Whether it only records what it would do.",
        set: |it, at| put(&mut it.acts, at.truth().map(|is| !is)),
    },
    Field {
        name: "person",
        shown: Shown::Default("\"owner\""),
        help: "Whose what a process does is: \"owner\", whom it runs as or whose its container is;\n\
               or \"login\", who logged in to start it, also through sudo and su (needs\n\
               pam_loginuid wherever people log in: without it they can say that they are anybody).\n\
               What runs in a server that several share, as tmux, Jupyter or a cron started by\n\
               hand, is then of whoever logged in to start that server.",
        set: |it, at| put(&mut it.person, at.word(PERSONS)),
    },
];

const PERSONS: &[(&str, PersonBy)] = &[("owner", PersonBy::Owner), ("login", PersonBy::Login)];

/// `[enforcement]`
pub(super) const ENFORCEMENT: Keys<Whole> = &[
    &Of::new(HOW_FAR, |it: &mut Whole| it),
    &Of::new(CLOCKS, |it: &mut Whole| &mut it.enforcement),
];

const HOW_FAR: &[Field<Whole>] = &[
    Field {
        name: "soft_enforcement",
        shown: Shown::Default("true"),
        help: "Warns, reminds, and ends jobs when the grace is over.",
        set: |it, at| it.soft = at.truth(),
    },
    Field {
        name: "hard_enforcement",
        shown: Shown::Default("false"),
        help: "Ends jobs at once: for what is not allowed at first sight, for what is too much\n\
               after a second look, for idleness and waste after a warning and the grace.\n\
               Set soft_enforcement = false with it.",
        set: |it, at| it.hard = at.truth(),
    },
];

const CLOCKS: &[Field<Enforcement>] = &[
    Field {
        name: "grace_period_seconds",
        shown: Shown::Default("300"),
        help: "From the first warning to the end. Idleness and waste have one in every mode,\n\
               of 300 where this is 0.",
        set: |it, at| {
            let grace = at.duration(Unit::Seconds, Duration::ZERO, bounds::GRACE);
            put(&mut it.grace, grace);
        },
    },
    Field {
        name: "max_warnings",
        shown: Shown::Default("3"),
        help: "Warnings within the grace, evenly spread.",
        set: |it, at| put(&mut it.max_warnings, at.count(bounds::WARNINGS)),
    },
    Field {
        name: "utilization_window_minutes",
        shown: Shown::Default("5"),
        help: "Utilisation is judged by its mean over so long.",
        set: |it, at| {
            let window = at.duration(Unit::Minutes, bounds::SHORTEST, bounds::WINDOW);
            put(&mut it.utilization_window, window);
        },
    },
    Field {
        name: "idle_below_pct",
        shown: Shown::Default("5"),
        help: "What is below this does nothing.",
        set: |it, at| put(&mut it.idle_below, at.percent()),
    },
    Field {
        name: "settled_after_minutes",
        shown: Shown::Default("5"),
        help: "A violation that was not seen for so long is over, and its warnings forgotten.",
        set: |it, at| {
            let settled = at.duration(Unit::Minutes, Duration::ZERO, bounds::WINDOW);
            put(&mut it.settled_after, settled);
        },
    },
    Field {
        name: "max_snoozes",
        shown: Shown::Default("1"),
        help: "How often whoever is warned may ask for more time: gpukillctl guard snooze PID.",
        set: |it, at| put(&mut it.max_snoozes, at.count(bounds::WARNINGS)),
    },
    Field {
        name: "snooze_minutes",
        shown: Shown::Default("30"),
        help: "How much more that gives them.",
        set: |it, at| {
            let snooze = at.duration(Unit::Minutes, bounds::SHORTEST, bounds::WINDOW);
            put(&mut it.snooze, snooze);
        },
    },
    Field {
        name: "cooldown_seconds",
        shown: Shown::Default("60"),
        help: "So long after a job was ended for what is too much no other is for the same, nor\n\
               for what is too much of that GPU: its memory comes back first.",
        set: |it, at| {
            let cooldown = at.duration(Unit::Seconds, Duration::ZERO, bounds::GRACE);
            put(&mut it.cooldown, cooldown);
        },
    },
    Field {
        name: "max_ended_per_10_minutes",
        shown: Shown::Default("5"),
        help: "Before more jobs than that are ended in ten minutes, of which each person counts\n\
               two at most, something must be wrong, and\n\
               the guard goes back to dry run until an admin says soft or enforce again.",
        set: |it, at| put(&mut it.max_ended, at.count_from(1, bounds::ENDED)),
    },
];

/// `[protect]`
pub(super) const PROTECT: Keys<Protect> = &[&Of::new(PROTECTED, |it: &mut Protect| it)];

const PROTECTED: &[Field<Protect>] = &[
    Field {
        name: "users",
        shown: Shown::Example("[\"gdm\"]"),
        help: "Users, by name or number.",
        set: |it, at| put(&mut it.users, at.users()),
    },
    Field {
        name: "processes",
        shown: Shown::Example("[\"Xorg\", \"gnome-*\"]"),
        help: "Whole names of processes, with * and ?. A name counts for root and system accounts\n\
               (below UID_MIN of login.defs), and for the display server of the person at a seat.\n\
               No other process of a person is protected by name, nor any in a container: images,\n\
               units and users protect those.",
        set: |it, at| put(&mut it.processes, at.globs()),
    },
    Field {
        name: "command",
        shown: Shown::Example("\"--production\""),
        help: "A regular expression for command lines, into which anybody can write it. As long as\n\
               one cannot be read it protects too: in doubt nobody is judged.",
        set: |it, at| it.command = at.pattern(),
    },
    Field {
        name: "images",
        shown: Shown::Example("[\"*/triton:*\"]"),
        help: "Images of containers, with * and ?: of those that root runs, since who runs one\n\
               themselves can call its image anything.",
        set: |it, at| put(&mut it.images, at.globs()),
    },
    Field {
        name: "units",
        shown: Shown::Example("[\"ollama.service\", \"vllm@*.service\"]"),
        help: "Units of the system's own systemd, with * and ?. What people call units below a\n\
               systemd of their own does not count, and a pattern names no login session and\n\
               no user@UID.service.",
        set: |it, at| put(&mut it.units, at.globs()),
    },
];
