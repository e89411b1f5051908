//! The daemon's own state files: JSON with a version, in the state directory. A file that is
//! broken or has another version is an error, and the caller then starts with an empty state.

use crate::rules_file::file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// The version of every state file.
pub(crate) const VERSION: u32 = 1;

/// The first key of every state file. Other keys belong to the individual file.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

/// Reads a file of at most `longest` bytes; `None` if the file does not exist.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, longest: u64) -> Result<Option<T>, String> {
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
}
