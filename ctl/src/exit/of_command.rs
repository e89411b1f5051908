//! Which exit codes each command can give. A debug build holds every run to it.

use super::Exit;
use Exit::{
    BadUsage, Done, Failed, NoMatch, NotPermitted, NotSupported, PartlyDone, Unreachable,
    VendorFailed,
};
use clap::ValueEnum as _;

/// Those that ask no daemon.
const ALONE: &[Exit] = &[Done, Failed, BadUsage];

/// Those that ask one.
const ASKING: &[Exit] = &[Done, Failed, BadUsage, NotPermitted, Unreachable];

/// Those that ask for something that may not be there.
const NAMING: &[Exit] = &[Done, Failed, BadUsage, NotPermitted, Unreachable, NoMatch];

/// Those that ask for what only a driver knows.
const LOOKING: &[Exit] = &[
    Done,
    Failed,
    VendorFailed,
    BadUsage,
    NotPermitted,
    Unreachable,
    NoMatch,
];

const KILLING: &[Exit] = &[
    Done,
    Failed,
    VendorFailed,
    BadUsage,
    NotPermitted,
    Unreachable,
    PartlyDone,
    NoMatch,
];

const RESETTING: &[Exit] = &[
    Done,
    Failed,
    BadUsage,
    NotPermitted,
    NotSupported,
    Unreachable,
    PartlyDone,
    NoMatch,
];

/// The codes of a command, by its names behind the program's; of the program itself all.
#[must_use]
pub fn of(path: &[&str]) -> &'static [Exit] {
    match path {
        [] => Exit::value_variants(),
        ["completions"] | ["guard" | "rogue", "check" | "reference"] => ALONE,
        ["list" | "holders" | "explain"] => LOOKING,
        ["kill"] => KILLING,
        ["reset"] => RESETTING,
        ["audit"] | ["audit", "actions" | "export"] => NAMING,
        ["guard", "violations" | "snooze"] => NAMING,
        _ => ASKING,
    }
}
