//! Saves the state of the guard in a file, so that a restarted daemon continues where it stopped.
//! The file is valid for one boot of the host, in which a process has one name.

use super::daily_counts::DailyCounts;
use super::sample::{DeviceFacts, SampleHistory};
use crate::state_file;
use gpukill_policy::guard::{GuardState, SavedPart};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::{GuardMode, GuardRecord, RunKey};
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

/// The file as it was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SavedFile {
    /// The part of the state that it has: the state of people with the most jobs is left out of a
    /// whole that is too large.
    pub(super) part: SavedPart,
    pub(super) bytes: usize,
}

impl SavedFile {
    /// Before the first one is written.
    pub(super) const NONE: Self = Self {
        part: SavedPart::WHOLE,
        bytes: 0,
    };

    /// The parts that are tried when the state is saved at once: what fitted before fits now.
    pub(super) fn same_part(self) -> Vec<SavedPart> {
        vec![self.part]
    }

    /// The parts that are tried when there is time: more may fit by now.
    pub(super) fn larger_parts(self) -> Vec<SavedPart> {
        let mut parts = vec![SavedPart::WHOLE, self.part.enlarged(), self.part];
        parts.dedup();
        parts
    }

    /// Whether decisions must be saved at once, and not within a minute. A dry run ends no job, and
    /// a large file takes long to write.
    pub(super) fn must_save_at_once(self, decisions: &[GuardRecord]) -> bool {
        let is_real = |record: &GuardRecord| record.mode > GuardMode::DryRun;
        let is_small = self.bytes < LARGE_FILE_BYTES;
        !decisions.is_empty() && (is_small || decisions.iter().any(is_real))
    }
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

/// Saves the first of these parts of the state that fits, or a smaller one than the last.
///
/// # Errors
/// If the file cannot be written; it is unchanged then.
pub(super) fn save(
    directory: &Path,
    boot: &str,
    rules: &str,
    remembered: &SavedGuardState,
    parts: &[SavedPart],
) -> std::io::Result<SavedFile> {
    save_within(
        directory,
        (boot, rules),
        remembered,
        parts,
        MAX_WRITTEN_BYTES,
    )
}

fn save_within(
    directory: &Path,
    (boot, rules): (&str, &str),
    remembered: &SavedGuardState,
    parts: &[SavedPart],
    longest: usize,
) -> std::io::Result<SavedFile> {
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
    let (part, text) = first_that_fits(parts, &mut |part| match part == SavedPart::WHOLE {
        true => to_text(&remembered.state),
        false => to_text(&remembered.state.to_part(part)),
    })?;
    state_file::write_text(&file_path(directory), &text)?;
    Ok(SavedFile {
        part,
        bytes: text.len(),
    })
}

/// The first of these parts that has a text, or the first smaller one than the last, with it.
fn first_that_fits(
    parts: &[SavedPart],
    to_text: &mut dyn FnMut(SavedPart) -> std::io::Result<Option<String>>,
) -> std::io::Result<(SavedPart, String)> {
    let mut parts = parts.iter().copied();
    let mut next = parts.next();
    while let Some(part) = next {
        if let Some(text) = to_text(part)? {
            return Ok((part, text));
        }
        next = parts.next().or_else(|| part.reduced());
    }
    Err(std::io::Error::other("it is too large"))
}

/// More than is ever written.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Enough for ten thousand processes that each break a rule. The file is written at each decision
/// about real ends: a disk takes some tenths of a second for so much.
const MAX_WRITTEN_BYTES: usize = 16 << 20;

/// A file that a disk writes in some hundredths of a second, as of hundreds of processes that each
/// break some rules.
const LARGE_FILE_BYTES: usize = 1 << 20;

fn file_path(directory: &Path) -> PathBuf {
    directory.join(state_file::GUARD_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::daily_counts::tests::warned;
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
        let save = |longest| {
            let saved = save_within(
                path,
                ("boot", "# Ours."),
                &state,
                &[SavedPart::WHOLE],
                longest,
            );
            saved.map(|saved| saved.part == SavedPart::WHOLE)
        };
        assert!(save(MAX_WRITTEN_BYTES).unwrap());
        assert_eq!(loaded_jobs(path), 500);
        let whole = std::fs::metadata(file_path(path)).unwrap().len();
        let almost = usize::try_from(whole).unwrap() - 1;
        assert!(!save(almost).unwrap());
        assert_eq!(loaded_jobs(path), 256);
        // What is always kept does not fit: the file stays.
        assert!(save(100).is_err());
        assert_eq!(loaded_jobs(path), 256);
    }

    #[test]
    fn too_large_state_is_written_once() {
        let all = std::iter::successors(Some(SavedPart::WHOLE), |part| part.reduced());
        let all: Vec<SavedPart> = all.collect();
        let fits = all[5];
        // How often a text is made, and the part that is saved.
        let save = |parts: Vec<SavedPart>, smallest: usize| {
            let mut made = 0;
            let saved = first_that_fits(&parts, &mut |part| {
                made += 1;
                let at = all.iter().position(|it| *it == part);
                Ok((at >= Some(smallest)).then(String::new))
            });
            (made, saved.map(|(part, _)| part).ok())
        };
        let saved = SavedFile {
            part: fits,
            bytes: MAX_WRITTEN_BYTES,
        };
        assert_eq!(save(SavedFile::NONE.same_part(), 5), (6, Some(fits)));
        assert_eq!(save(saved.same_part(), 5), (1, Some(fits)));
        // At most two attempts at more, and each may succeed.
        assert_eq!(save(saved.larger_parts(), 5), (3, Some(fits)));
        assert_eq!(save(saved.larger_parts(), 4), (2, Some(all[4])));
        assert_eq!(save(saved.larger_parts(), 0), (1, Some(all[0])));
        assert_eq!(save(saved.same_part(), 7), (3, Some(all[7])));
        assert_eq!(save(saved.same_part(), all.len()).1, None);
        assert_eq!(SavedFile::NONE.larger_parts(), [SavedPart::WHOLE]);
        for two in all.windows(2) {
            assert_eq!(two[1].enlarged(), two[0]);
        }
    }

    #[test]
    fn large_file_waits_in_a_dry_run() {
        let [dry, soft] = [GuardMode::DryRun, GuardMode::Soft].map(warned);
        let of = |bytes| SavedFile {
            bytes,
            ..SavedFile::NONE
        };
        let cases = [
            (0, vec![dry.clone()], true),
            (LARGE_FILE_BYTES, vec![dry.clone()], false),
            (LARGE_FILE_BYTES, vec![dry, soft], true),
            (0, vec![], false),
        ];
        for (bytes, decisions, expected) in cases {
            assert_eq!(of(bytes).must_save_at_once(&decisions), expected, "{bytes}");
        }
    }
}
