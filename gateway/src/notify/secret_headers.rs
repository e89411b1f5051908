//! Headers that an admin keeps in a file, such as a token: they are sent, and never shown.

use crate::trusted_file::{Secrecy, read_text};
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use std::io;
use std::path::{Path, PathBuf};

/// The most headers.
const MAX_HEADERS: usize = 32;

/// The shortest word that is removed from texts of a server. A shorter one is no secret, and would
/// remove parts of other words.
const MIN_SECRET: usize = 6;

/// Headers that the client writes itself.
#[rustfmt::skip]
const RESERVED: [&str; 7] = [
    "connection", "content-encoding", "content-length", "content-type", "host", "te",
    "transfer-encoding",
];

/// Headers with values that must not be shown.
#[derive(Default)]
pub(crate) struct SecretHeaders(HeaderMap);

impl SecretHeaders {
    /// Reads the file of a setting: a path, or the name of a credential of systemd.
    ///
    /// # Errors
    /// The mistake, without the value of a header.
    pub(crate) fn load(file: &str) -> Result<Self, String> {
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Self::read(file, credentials.as_deref())
    }

    /// Reads a file, or a credential of this directory.
    fn read(file: &str, credentials: Option<&Path>) -> Result<Self, String> {
        let path = resolve_path(file, credentials)?;
        let shown = path.display();
        let text = read_text(&path, Secrecy::Secret).map_err(|error| {
            // The kernel refuses the user; without a number the file is not trusted.
            let is_closed =
                error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_some();
            match is_closed && credentials.is_some_and(|it| path.starts_with(it)) {
                true => format!(
                    "{shown}: systemd has not given the user of the unit access to the credential, \
                     for example because /run has no ACLs in this container: write the path of a \
                     file in place of its name"
                ),
                false => format!("{shown}: {error}"),
            }
        })?;
        Self::parse(&text).map_err(|mistake| format!("{shown}, {mistake}"))
    }

    /// Parses lines of `Name: value`; blank lines and lines that begin with `#` are comments.
    fn parse(text: &str) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = at + 1;
            let (name, value) =
                parse_header(line).ok_or_else(|| format!("line {number}: is not Name: value"))?;
            if RESERVED.contains(&name.as_str()) {
                return Err(format!("line {number}: {name} cannot be set"));
            }
            if headers.len() >= MAX_HEADERS {
                return Err(format!(
                    "line {number}: there are more than {MAX_HEADERS} headers"
                ));
            }
            headers.append(name, value);
        }
        match headers.is_empty() {
            true => Err("line 1: there is no header".into()),
            false => Ok(Self(headers)),
        }
    }

    pub(crate) const fn all(&self) -> &HeaderMap {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text of a server, which may repeat what it was sent, without words of the values.
    pub(crate) fn redact(&self, text: &str) -> String {
        let values = self.0.values().filter_map(|value| value.to_str().ok());
        let words = values.flat_map(str::split_whitespace);
        words
            .filter(|word| word.len() >= MIN_SECRET)
            .fold(text.to_owned(), |text, word| text.replace(word, "[…]"))
    }
}

fn parse_header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    let mut value = HeaderValue::from_str(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// The path of a file, or of a credential if it is a name without a slash.
fn resolve_path(file: &str, credentials: Option<&Path>) -> Result<PathBuf, String> {
    if file.contains('/') {
        return Ok(file.into());
    }
    credentials.map(|it| it.join(file)).ok_or_else(|| {
        format!(
            "{file:?} is the name of a credential, and systemd passes none: write a path with a \
             slash, or add LoadCredential= to the unit"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn mistakes_have_their_line_and_no_value() {
        for (text, expected) in [
            ("", "line 1: there is no header"),
            ("# x\nAuthorization", "line 2: is not Name: value"),
            ("a b: secret", "line 1: is not Name: value"),
            ("x: se\u{1}cret", "line 1: is not Name: value"),
            ("Host: secret", "line 1: host cannot be set"),
        ] {
            assert_eq!(SecretHeaders::parse(text).err().as_deref(), Some(expected));
        }
        let many: String = (0..40).map(|at| format!("x-{at}: 1\n")).collect();
        let mistake = SecretHeaders::parse(&many).err().unwrap();
        assert_eq!(mistake, "line 33: there are more than 32 headers");
    }

    #[test]
    fn values_are_sent_and_never_shown() {
        let text = "# token\n\nAuthorization: Bearer abcdef123\nX-Scope-OrgID: lab\n";
        let headers = SecretHeaders::parse(text).unwrap();
        assert_eq!(headers.all()["authorization"], "Bearer abcdef123");
        assert_eq!(headers.all().len(), 2);
        let shown = format!("{:?}", headers.all());
        assert!(
            !shown.contains("abcdef123") && !shown.contains("lab"),
            "{shown}"
        );
        assert_eq!(
            headers.redact("bad token abcdef123 for lab"),
            "bad token […] for lab"
        );
    }

    #[test]
    fn file_that_other_users_may_read_or_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("headers");
        std::fs::write(&path, "a: b").unwrap();
        for (mode, is_accepted) in [
            (0o600, true),
            (0o640, true),
            (0o400, true),
            (0o440, true),
            (0o644, false),
            (0o602, false),
            (0o620, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let loaded = SecretHeaders::load(path.to_str().unwrap());
            assert_eq!(loaded.is_ok(), is_accepted, "{mode:o}");
        }
        let missing = SecretHeaders::load("/nonexistent/headers").err().unwrap();
        assert!(missing.starts_with("/nonexistent/headers: "), "{missing}");
        let directory = SecretHeaders::load(directory.path().to_str().unwrap());
        assert!(directory.is_err());
    }

    #[test]
    fn name_without_a_slash_is_a_credential() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("otlp-headers");
        std::fs::write(&path, "a: b").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        let credentials = Some(directory.path());
        assert!(SecretHeaders::read("otlp-headers", credentials).is_ok());
        let without = SecretHeaders::read("otlp-headers", None).err().unwrap();
        assert!(without.contains("systemd passes none"), "{without}");
        let missing = SecretHeaders::read("other", credentials).err().unwrap();
        assert!(missing.contains("other: No such file"), "{missing}");
    }
}
