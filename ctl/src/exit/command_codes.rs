//! The exit codes that each command can return. Debug builds check every run against them.

use super::Exit;
use Exit::{
    BadUsage, Done, Failed, NoMatch, NotPermitted, NotSupported, PartlyDone, Unreachable,
    VendorFailed,
};
use clap::ValueEnum as _;

/// Commands that need no daemon.
const OFFLINE_CODES: &[Exit] = &[Done, Failed, BadUsage];

/// Commands that call the daemon.
const CALL_CODES: &[Exit] = &[Done, Failed, BadUsage, NotPermitted, Unreachable];

/// Commands that name something that may not exist.
const LOOKUP_CODES: &[Exit] = &[Done, Failed, BadUsage, NotPermitted, Unreachable, NoMatch];

/// Commands that need facts which only a driver knows.
#[rustfmt::skip]
const DRIVER_CODES: &[Exit] = &[
    Done, Failed, VendorFailed, BadUsage, NotPermitted, Unreachable, NoMatch,
];

#[rustfmt::skip]
const KILL_CODES: &[Exit] = &[
    Done, Failed, VendorFailed, BadUsage, NotPermitted, Unreachable, PartlyDone, NoMatch,
];

#[rustfmt::skip]
const ARCHIVE_CODES: &[Exit] = &[
    Done, Failed, BadUsage, NotPermitted, NotSupported, Unreachable, PartlyDone,
];

#[rustfmt::skip]
const RESET_CODES: &[Exit] = &[
    Done, Failed, BadUsage, NotPermitted, NotSupported, Unreachable, PartlyDone, NoMatch,
];

/// The program that the command becomes returns the others.
const WEB_CODES: &[Exit] = &[Done, Failed, BadUsage, NotSupported, Unreachable];

/// The exit codes of a command, by its names after the program's; all codes for the program
/// itself.
#[must_use]
pub fn command_exit_codes(path: &[&str]) -> &'static [Exit] {
    match path {
        [] => Exit::value_variants(),
        ["completions"] | ["guard" | "rogue", "check" | "reference"] => OFFLINE_CODES,
        ["list" | "holders" | "explain"] => DRIVER_CODES,
        ["kill"] => KILL_CODES,
        ["web"] => WEB_CODES,
        ["reset"] => RESET_CODES,
        ["audit", "archive"] => ARCHIVE_CODES,
        ["audit"]
        | [
            "audit",
            "actions" | "timeline" | "export" | "series" | "report",
        ] => LOOKUP_CODES,
        ["guard", "violations" | "snooze"] | ["forget"] => LOOKUP_CODES,
        _ => CALL_CODES,
    }
}
