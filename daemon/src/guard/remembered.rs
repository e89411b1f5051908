//! What the guard remembers, in a file: a daemon that is started anew goes on where
//! it was. It is of one boot of the box alone, in which a process has one name.

use super::bucket::{Facts, Seen};
use super::today::Today;
use crate::state_file;
use gpukill_policy::guard::Memory;
use gpukill_proto::guard::JudgedRun;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file, in the daemon's own directory.
const FILE: &str = "guard.json";

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) memory: Memory,
    pub(super) seen: Seen,
    pub(super) today: Today,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    boot: String,
    /// The rules that were in force last, as they were written.
    rules: String,
    memory: Memory,
    first: Vec<(JudgedRun, Timestamp)>,
    devices: BTreeMap<DeviceId, Facts>,
    today: Today,
}

/// Reads it: what is remembered, and the rules that were in force last. A file that is
/// broken or of another version counts as none.
pub(super) fn load(directory: &Path, boot: &str) -> (Remembered, Option<String>) {
    let path = path(directory);
    let written: Written = match state_file::read(&path, MOST) {
        Ok(Some(written)) => written,
        Ok(None) => return (Remembered::default(), None),
        Err(why) => {
            tracing::warn!(path = %path.display(), why, "what the guard remembers cannot be used: it starts empty");
            return (Remembered::default(), None);
        }
    };
    let rules = Some(written.rules).filter(|rules| !rules.is_empty());
    if written.boot != boot {
        let remembered = Remembered {
            memory: written.memory.after_a_boot(),
            ..Remembered::default()
        };
        return (remembered, rules);
    }
    let remembered = Remembered {
        memory: written.memory,
        seen: Seen {
            first: written.first.into_iter().collect(),
            devices: written.devices,
        },
        today: written.today,
    };
    (remembered, rules)
}

/// Writes it.
///
/// # Errors
/// When it cannot be written; then it is as it was.
pub(super) fn save(
    directory: &Path,
    boot: &str,
    rules: &str,
    remembered: &Remembered,
) -> std::io::Result<()> {
    let written = Written {
        version: state_file::VERSION,
        boot: boot.to_owned(),
        rules: rules.to_owned(),
        memory: remembered.memory.clone(),
        first: remembered
            .seen
            .first
            .iter()
            .map(|(run, since)| (run.clone(), *since))
            .collect(),
        devices: remembered.seen.devices.clone(),
        today: remembered.today.clone(),
    };
    state_file::write(&path(directory), &written)
}

/// Ten thousand processes of which each breaks several rules.
const MOST: u64 = 64 << 20;

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}
