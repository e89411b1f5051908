//! The daemon's own state files: JSON with a version, in the state directory. A file that is
//! broken, has another version or may be written by another user is an error, and the caller then
//! starts with an empty state. The refused file is kept, and is a fault until an admin removes it.

use crate::config::open_trusted;
use crate::rules_file::file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The version of every state file.
pub(crate) const VERSION: u32 = 1;

/// The first key of every state file. Other keys belong to the individual file.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

/// The name of the state file of the guard.
pub(crate) const GUARD_FILE: &str = "guard.json";

/// The name of the file of sockets that have had clients.
pub(crate) const SOCKETS_FILE: &str = "sockets.json";

/// Each state file, and what is forgotten without it.
const STATE_FILES: [(&str, &str); 2] = [
    (
        GUARD_FILE,
        "earlier warnings, grace periods, snoozes and ended jobs, and whether the circuit breaker \
         is open, are forgotten",
    ),
    (
        SOCKETS_FILE,
        "which jobs have had clients is forgotten: an idle service may count as a job that no \
         client uses",
    ),
];

/// Reads a file of at most `longest` bytes; `None` if the file does not exist. A file that cannot
/// be used is kept under another name: see [`refusals`].
///
/// # Errors
/// The reason why the file cannot be used.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, longest: u64) -> Result<Option<T>, String> {
    read_content(path, longest).inspect_err(|_| keep_refused(path))
}

/// The next state would take the place of the refused file. A directory stays: it shows what is
/// wrong by preventing that.
fn keep_refused(path: &Path) {
    if path.symlink_metadata().is_ok_and(|it| !it.is_dir())
        && let Err(error) = std::fs::rename(path, refused_path(path))
    {
        tracing::warn!(path = %path.display(), %error, "a refused file cannot be kept");
    }
}

fn refused_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".refused");
    name.into()
}

/// The faults about the refused state files that are kept in this directory: what is forgotten,
/// why, and what to do. While a file is kept, its text stays the same.
pub(crate) fn refusals(directory: &Path) -> Vec<String> {
    let refused = STATE_FILES.iter().filter_map(|(name, loss)| {
        let refused = refused_path(&directory.join(name));
        let why = match open_trusted(&refused) {
            Ok(None) => return None,
            Ok(Some(_)) => "it is broken, or another version of gpukilld wrote it".to_owned(),
            Err(error) => error.to_string(),
        };
        let kept = refused.display();
        Some(format!(
            "the saved state in {name} was refused: {loss}; it is kept as {kept} ({why}): remove \
             it when you have seen this"
        ))
    });
    refused.collect()
}

fn read_content<T: DeserializeOwned>(path: &Path, longest: u64) -> Result<Option<T>, String> {
    let Some(text) = file::read_at_most(path, longest).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let malformed = |error: serde_json::Error| format!("it is broken: {error}");
    let Header { version } = serde_json::from_str(&text).map_err(malformed)?;
    if version != VERSION {
        return Err(format!(
            "another version of gpukilld wrote it (version {version}, this one knows {VERSION})"
        ));
    }
    serde_json::from_str(&text).map(Some).map_err(malformed)
}

/// Replaces a file.
///
/// # Errors
/// When the file cannot be written. The old file then stays unchanged.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> std::io::Result<()> {
    write_text(path, &serde_json::to_string(content)?)
}

/// As [`write`], with the content as [`to_text_within`] makes it.
///
/// # Errors
/// When the file cannot be written. The old file then stays unchanged.
pub(crate) fn write_text(path: &Path, text: &str) -> std::io::Result<()> {
    file::replace_private(path, text)
}

/// The text of a file; `None` if it is longer than `longest` bytes.
///
/// # Errors
/// When the content has no JSON form.
pub(crate) fn to_text_within(
    content: &impl Serialize,
    longest: usize,
) -> std::io::Result<Option<String>> {
    let mut text = BoundedText {
        bytes: Vec::new(),
        longest,
    };
    match serde_json::to_writer(&mut text, content) {
        Ok(()) => {}
        // Nothing else fails to be written.
        Err(error) if error.is_io() => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let text = String::from_utf8(text.bytes).map_err(std::io::Error::other)?;
    Ok(Some(text))
}

/// Takes bytes up to a limit. A state that is far too large is never in memory twice.
struct BoundedText {
    bytes: Vec<u8>,
    longest: usize,
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len().saturating_add(bytes.len()) > self.longest {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Content {
        version: u32,
        name: String,
    }

    #[test]
    fn text_is_bounded() {
        let content = json!({"version": 1, "name": "a"});
        let text = content.to_string();
        let within = |longest| to_text_within(&content, longest).unwrap();
        assert_eq!(within(text.len()).as_deref(), Some(text.as_str()));
        assert_eq!(within(text.len() - 1), None);
    }

    #[test]
    fn refuses_broken_and_other_versions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        assert_eq!(read::<Content>(&path, 100), Ok(None));
        let refusal = |content: Value| {
            write(&path, &content).unwrap();
            read::<Content>(&path, 100).err().unwrap_or_default()
        };
        let good = json!({"version": 1, "name": "a"});
        assert_eq!(refusal(good), "");
        for version in [0, 2] {
            let expected = format!(
                "another version of gpukilld wrote it (version {version}, this one knows 1)"
            );
            assert_eq!(refusal(json!({"version": version, "other": []})), expected);
        }
        for malformed in [
            json!({"name": "a"}),
            json!({"version": 1}),
            json!({"version": 1, "name": "a", "more": 1}),
            json!([]),
        ] {
            assert!(refusal(malformed).starts_with("it is broken: "));
        }
    }

    #[test]
    fn refused_file_is_kept_and_reported_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(refusals(directory), [""; 0]);
        for name in [GUARD_FILE, SOCKETS_FILE] {
            let path = directory.join(name);
            std::fs::write(&path, "theirs").unwrap();
            assert!(read::<Content>(&path, 100).is_err());
            // A new state is written and read, and the old one is still there.
            write(&path, &json!({"version": 1, "name": "ours"})).unwrap();
            let ours = read::<Content>(&path, 100).unwrap().unwrap();
            assert_eq!(ours.name, "ours");
            let refused = refused_path(&path);
            assert_eq!(std::fs::read_to_string(&refused).unwrap(), "theirs");
            let faults = refusals(directory);
            let begins = format!("the saved state in {name} was refused: ");
            let [fault] = &faults[..] else {
                panic!("{faults:?}");
            };
            assert!(fault.starts_with(&begins), "{fault}");
            assert!(
                fault.contains("(it is broken, or another version"),
                "{fault}"
            );
            std::fs::remove_file(&refused).unwrap();
            assert_eq!(refusals(directory), [""; 0]);
        }
        // A directory stays in its place.
        let path = directory.join(GUARD_FILE);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read::<Content>(&path, 100).is_err());
        assert!(path.is_dir());
        assert_eq!(refusals(directory), [""; 0]);
    }
}
