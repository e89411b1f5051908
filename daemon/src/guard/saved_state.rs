//! Saves the state of the guard in a file, so that a restarted daemon continues where it stopped.
//! The file is valid for one boot of the host, in which a process has one name.

use super::daily_counts::DailyCounts;
use super::sample::{DeviceFacts, SampleHistory};
use crate::state_file;
use gpukill_policy::guard::GuardState;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::RunKey;
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the file in the state directory.
const FILE: &str = "guard.json";

/// The state that is saved.
#[derive(Debug, Default)]
pub(super) struct SavedGuardState {
    pub(super) state: GuardState,
    pub(super) history: SampleHistory,
    pub(super) counts: DailyCounts,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GuardStateFile {
    version: u32,
    boot: String,
    /// The rules that were in force last, as they were written.
    rules: String,
    memory: GuardState,
    first: Vec<(RunKey, Timestamp)>,
    devices: BTreeMap<DeviceId, DeviceFacts>,
    today: DailyCounts,
}

/// Loads the state, and the rules that were in force last. A file that is broken or of another
/// version counts as empty.
pub(super) fn load(directory: &Path, boot: &str) -> (SavedGuardState, Option<String>) {
    let path = file_path(directory);
    let written: GuardStateFile = match state_file::read(&path, MAX_FILE_BYTES) {
        Ok(Some(written)) => written,
        Ok(None) => return (SavedGuardState::default(), None),
        Err(why) => {
            tracing::warn!(
                path = %path.display(), why,
                "cannot use the saved state of the guard: it starts empty"
            );
            return (SavedGuardState::default(), None);
        }
    };
    let rules = Some(written.rules).filter(|rules| !rules.is_empty());
    if written.boot != boot {
        let remembered = SavedGuardState {
            state: written.memory.into_rebooted(),
            ..SavedGuardState::default()
        };
        return (remembered, rules);
    }
    let remembered = SavedGuardState {
        state: written.memory.into_restarted(),
        history: SampleHistory {
            first_seen: written.first.into_iter().into_map(),
            devices: written.devices,
        },
        counts: written.today,
    };
    (remembered, rules)
}

/// Saves the state.
///
/// # Errors
/// If the file cannot be written; it is unchanged then.
pub(super) fn save(
    directory: &Path,
    boot: &str,
    rules: &str,
    remembered: &SavedGuardState,
) -> std::io::Result<()> {
    let written = GuardStateFile {
        version: state_file::VERSION,
        boot: boot.to_owned(),
        rules: rules.to_owned(),
        memory: remembered.state.clone(),
        first: remembered
            .history
            .first_seen
            .iter()
            .map(|(run, since)| (run.clone(), *since))
            .collect(),
        devices: remembered.history.devices.clone(),
        today: remembered.counts.clone(),
    };
    state_file::write(&file_path(directory), &written)
}

/// Enough for ten thousand processes that each break several rules.
const MAX_FILE_BYTES: u64 = 64 << 20;

fn file_path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}
