//! What the guard remembers, in a file: a daemon that is started anew goes on where
//! it was. It is of one boot of the box alone, in which a process has one name.

use super::bucket::{Facts, Seen};
use super::today::Today;
use crate::rules_file::file;
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
struct Written {
    version: u32,
    boot: String,
    /// The rules that were in force last, as they were written.
    rules: String,
    memory: Memory,
    first: Vec<(JudgedRun, Timestamp)>,
    #[serde(default)]
    devices: BTreeMap<DeviceId, Facts>,
    #[serde(default)]
    today: Today,
}

/// The only form so far.
const VERSION: u32 = 1;

/// Reads it: what is remembered, and the rules that were in force last. One that is
/// broken or of another form is as good as none.
pub(super) fn load(directory: &Path, boot: &str) -> (Remembered, Option<String>) {
    let path = path(directory);
    let text = match file::read_at_most(&path, MOST) {
        Ok(Some(text)) => text,
        Ok(None) => return (Remembered::default(), None),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "what the guard remembers cannot be read");
            return (Remembered::default(), None);
        }
    };
    let Ok(written) = serde_json::from_str::<Written>(&text) else {
        tracing::warn!(path = %path.display(), "what the guard remembers is in another form: it begins anew");
        return (Remembered::default(), None);
    };
    if written.version != VERSION {
        return (Remembered::default(), None);
    }
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
        version: VERSION,
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
    let text = serde_json::to_string(&written)?;
    file::replace_private(&path(directory), &text)
}

/// Ten thousand processes of which each breaks several rules.
const MOST: u64 = 64 << 20;

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}
