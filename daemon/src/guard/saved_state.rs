//! Saves the state of the guard in a file, so that a restarted daemon continues where it stopped.
//! The file is valid for one boot of the host, in which a process has one name.

use super::daily_counts::DailyCounts;
use super::sample::{DeviceFacts, SampleHistory};
use crate::state_file;
use gpukill_policy::guard::{GuardState, SavedPart};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::RunKey;
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The state that is saved.
#[derive(Debug, Default)]
pub(super) struct SavedGuardState {
    pub(super) state: GuardState,
    pub(super) history: SampleHistory,
    pub(super) counts: DailyCounts,
}

/// The file. Writing it copies nothing of the state.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GuardStateFile<'a> {
    version: u32,
    boot: Cow<'a, str>,
    /// The rules that were in force last, as they were written.
    rules: Cow<'a, str>,
    memory: Cow<'a, GuardState>,
    first: Vec<(Cow<'a, RunKey>, Timestamp)>,
    devices: Cow<'a, BTreeMap<DeviceId, DeviceFacts>>,
    today: Cow<'a, DailyCounts>,
}

/// Loads the state, and the rules that were in force last. A file that is broken or of another
/// version counts as empty.
pub(super) fn load(directory: &Path, boot: &str) -> (SavedGuardState, Option<String>) {
    let path = file_path(directory);
    let written: GuardStateFile<'static> = match state_file::read(&path, MAX_FILE_BYTES) {
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
    let rules = Some(written.rules.into_owned()).filter(|rules| !rules.is_empty());
    let state = written.memory.into_owned();
    if written.boot != boot {
        let remembered = SavedGuardState {
            state: state.into_rebooted(),
            ..SavedGuardState::default()
        };
        return (remembered, rules);
    }
    let first = written.first.into_iter();
    let remembered = SavedGuardState {
        state: state.into_restarted(),
        history: SampleHistory {
            first_seen: first
                .map(|(run, since)| (run.into_owned(), since))
                .into_map(),
            devices: written.devices.into_owned(),
        },
        counts: written.today.into_owned(),
    };
    (remembered, rules)
}

/// Saves this part of the state, or a smaller one that fits, and returns which.
///
/// # Errors
/// If the file cannot be written; it is unchanged then.
pub(super) fn save(
    directory: &Path,
    boot: &str,
    rules: &str,
    (remembered, part): (&SavedGuardState, SavedPart),
) -> std::io::Result<SavedPart> {
    let limits = (part, MAX_WRITTEN_BYTES);
    save_within(directory, (boot, rules), remembered, limits)
}

fn save_within(
    directory: &Path,
    (boot, rules): (&str, &str),
    remembered: &SavedGuardState,
    (mut part, longest): (SavedPart, usize),
) -> std::io::Result<SavedPart> {
    let to_text = |memory: &GuardState| {
        let first = remembered.history.first_seen.iter();
        let written = GuardStateFile {
            version: state_file::VERSION,
            boot: Cow::Borrowed(boot),
            rules: Cow::Borrowed(rules),
            memory: Cow::Borrowed(memory),
            first: first
                .map(|(run, since)| (Cow::Borrowed(run), *since))
                .collect(),
            devices: Cow::Borrowed(&remembered.history.devices),
            today: Cow::Borrowed(&remembered.counts),
        };
        state_file::to_text_within(&written, longest)
    };
    let text = loop {
        let made = match part == SavedPart::WHOLE {
            true => to_text(&remembered.state)?,
            false => to_text(&remembered.state.to_part(part))?,
        };
        match made {
            Some(text) => break text,
            None => {
                let reduced = part.reduced();
                part = reduced.ok_or_else(|| std::io::Error::other("it is too large"))?;
            }
        }
    };
    state_file::write_text(&file_path(directory), &text)?;
    Ok(part)
}

/// More than is ever written.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Enough for ten thousand processes that each break a rule. The file is written at each decision:
/// a disk takes some tenths of a second for so much.
const MAX_WRITTEN_BYTES: usize = 16 << 20;

fn file_path(directory: &Path) -> PathBuf {
    directory.join(state_file::GUARD_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The state about this many jobs.
    fn state_about(jobs: usize) -> SavedGuardState {
        let streak = json!([0, null, null, 0, 0]);
        let job = |nth: usize| {
            let state = json!({
                "shown": "job", "idle_streak": streak, "unconnected_streak": streak, "claims": [],
            });
            json!([{"uid": 1_000, "id": format!("job {nth}")}, state])
        };
        let mut state = serde_json::to_value(GuardState::default()).unwrap();
        state["jobs"] = (0..jobs).map(job).collect::<Value>();
        SavedGuardState {
            state: serde_json::from_value(state).unwrap(),
            ..SavedGuardState::default()
        }
    }

    fn loaded_jobs(directory: &Path) -> usize {
        let (loaded, rules) = load(directory, "boot");
        assert_eq!(rules.as_deref(), Some("# Ours."));
        let state = serde_json::to_value(&loaded.state).unwrap();
        state["jobs"].as_array().unwrap().len()
    }

    #[test]
    fn saved_state_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let state = state_about(500);
        let save_within =
            |part, longest| save_within(path, ("boot", "# Ours."), &state, (part, longest));
        let (whole, longest) = (SavedPart::WHOLE, MAX_WRITTEN_BYTES);
        assert_eq!(save_within(whole, longest).unwrap(), whole);
        assert_eq!(loaded_jobs(path), 500);
        let bytes = std::fs::metadata(file_path(path)).unwrap().len();
        let almost = usize::try_from(bytes).unwrap() - 1;
        let part = save_within(whole, almost).unwrap();
        assert_eq!((part == whole, loaded_jobs(path)), (false, 256));
        // The next save does not try more than that.
        assert_eq!(save_within(part, longest).unwrap(), part);
        assert_eq!(loaded_jobs(path), 256);
        // What is always kept does not fit: the file stays.
        assert!(save_within(whole, 100).is_err());
        assert_eq!(loaded_jobs(path), 256);
    }
}
