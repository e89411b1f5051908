//! What of rules is about nobody and nothing on this box, on which the daemon runs too.

use crate::command::list::person::{no_groups, strangers};
use crate::connect::{Daemon, Patience};
use gpukill_policy::guard::check::here::{Here, groups, names, warnings};
use gpukill_policy::guard::edit::edit;
use gpukill_policy::guard::read::read;
use gpukill_policy::guard::rules::Rules;
use gpukill_policy::select::DeviceName;
use gpukill_proto::guard::edit::{GuardEdit, Warning};

/// What is about users and groups that this box does not know, without asking the
/// daemon.
pub(super) fn about_users(rules: &Rules) -> Vec<Warning> {
    about(rules, &[])
}

/// The same, and what is about GPUs that it does not have.
pub(super) fn about_all(rules: &Rules, daemon: &Daemon, patience: Patience) -> Vec<Warning> {
    // Warnings are not worth an error.
    let sight = daemon.snapshot(None, patience).ok();
    let devices = sight.iter().flat_map(|sight| &sight.snapshot.devices);
    let devices: Vec<DeviceName<'_>> = devices.map(DeviceName::from).collect();
    about(rules, &devices)
}

/// The same of one edit, without what else the rules say.
pub(super) fn about_edit(asked: &GuardEdit, daemon: &Daemon, patience: Patience) -> Vec<Warning> {
    let new = match asked {
        GuardEdit::SetPolicy { .. } | GuardEdit::SetKey { .. } | GuardEdit::Replace(_) => {
            edit("", asked)
        }
        GuardEdit::RemovePolicy { .. } | GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun => {
            return Vec::new();
        }
    };
    // What is no policy alone was one with what is there already.
    match new.map(|text| read(&text)) {
        Ok(Ok(rules)) => about_all(&rules, daemon, patience),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

fn about(rules: &Rules, devices: &[DeviceName<'_>]) -> Vec<Warning> {
    let here = Here {
        strangers: &strangers(names(rules)),
        no_groups: &no_groups(groups(rules)),
        devices,
    };
    warnings(rules, &here)
}
