//! The tokens that callers send, known by their SHA-256 digests: the file of the admin, and new
//! tokens.
//!
//! A token has 256 random bits, so its digest is no secret. No token is ever written to a log.

use crate::access::Access;
use crate::log;
use crate::trusted_file::{FileStamp, Secrecy, read_text};
use chrono::DateTime;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::settings::closest_name;
use gpukill_proto::settings::position::ParsedText;
use gpukill_proto::settings::value::choice_error;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The most tokens in a file.
const MAX_TOKENS: usize = 256;

/// The longest name of a token, in bytes.
const MAX_NAME: usize = 64;

/// The keys of a token in the file.
const KEYS: [&str; 4] = ["name", "scope", "sha256", "expires"];

/// The scopes of a token, by their names.
const SCOPES: [Access; 2] = [Access::Look, Access::Metrics];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(crate) fn new(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The digest as 64 hexadecimal digits.
    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    fn from_hex(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        let is_right = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        is_right.then_some(Self(digest))
    }

    /// Compares in the same time whatever the difference.
    fn is_same(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(other.0);
        let difference = pairs.fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(difference) == 0
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A new token: 256 random bits as hexadecimal digits.
///
/// # Errors
/// The kernel gives no random bytes.
pub(crate) fn new_token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    let length = getrandom(&mut bytes, GetRandomFlags::empty())?;
    match length == bytes.len() {
        true => Ok(hex(&bytes)),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The lines of the tokens file for a new token. `name` and `expires` are checked as those of the
/// file.
///
/// # Errors
/// The name or the time is not valid.
pub(crate) fn file_entry(
    name: &str,
    scope: Access,
    expires: Option<&str>,
    token: &str,
) -> Result<String, String> {
    let digest = TokenDigest::new(token).to_hex();
    let mut entry = format!(
        "[[token]]\nname = \"{name}\"\nscope = \"{}\"\nsha256 = \"{digest}\"\n",
        scope.name()
    );
    check_name(name)?;
    if let Some(expires) = expires {
        parse_expiry(expires)?;
        entry.push_str(&format!("expires = {expires}\n"));
    }
    Ok(entry)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownToken {
    digest: TokenDigest,
    access: Access,
    /// Valid before this time.
    expires: Option<Timestamp>,
}

/// The tokens that are valid, and the state of their file.
#[derive(Debug, Default)]
pub(crate) struct Tokens(RwLock<TokenState>);

#[derive(Debug, Default)]
struct TokenState {
    known: Vec<KnownToken>,
    /// The file that was read last, also one with mistakes.
    stamp: Option<FileStamp>,
}

impl Tokens {
    /// The one token of a gateway of one person, for everything.
    pub(crate) fn personal(token: &str) -> Self {
        let known = KnownToken {
            digest: TokenDigest::new(token),
            access: Access::Act,
            expires: None,
        };
        Self(RwLock::new(TokenState {
            known: vec![known],
            stamp: None,
        }))
    }

    /// The tokens of this file; none if there is no such file.
    ///
    /// # Errors
    /// Why the file cannot be read, or all its mistakes: one line each.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let stamp = FileStamp::read(path);
        let known = read_file(path)?;
        Ok(Self(RwLock::new(TokenState { known, stamp })))
    }

    /// The tokens of this text.
    ///
    /// # Errors
    /// All mistakes, one line each.
    #[cfg(test)]
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let known = parse(text)?;
        Ok(Self(RwLock::new(TokenState { known, stamp: None })))
    }

    /// Takes the tokens of another place.
    pub(crate) fn replace(&self, other: Self) {
        let new = other.0.into_inner();
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *state = new.unwrap_or_else(PoisonError::into_inner);
    }

    /// Reads the file again, if it has changed or `is_requested`. A file with mistakes is reported
    /// once, and the tokens stay as they are.
    pub(crate) fn reload(&self, path: &Path, is_requested: bool) {
        let stamp = FileStamp::read(path);
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if stamp == state.stamp && !is_requested {
            return;
        }
        state.stamp = stamp;
        match read_file(path) {
            Ok(known) => {
                log::info(&format!(
                    "{} has {} tokens now",
                    path.display(),
                    known.len()
                ));
                state.known = known;
            }
            Err(mistakes) => {
                mistakes.lines().for_each(log::warn);
                log::warn("the tokens stay as they were");
            }
        }
    }

    /// Whether there is no token.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state.known.is_empty()
    }

    /// What the owner of this token may see now.
    pub(crate) fn access(&self, digest: &TokenDigest, now: Timestamp) -> Option<Access> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // All are compared, so that the time says nothing about which one is right.
        let access = state.known.iter().map(|token| {
            let is_valid = token.expires.is_none_or(|expires| now < expires);
            (token.digest.is_same(digest) && is_valid).then_some(token.access)
        });
        access.fold(None, Ord::max)
    }
}

fn read_file(path: &Path) -> Result<Vec<KnownToken>, String> {
    let shown = path.display();
    let text = match read_text(path, Secrecy::Public) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {shown}: {error}")),
    };
    parse(&text).map_err(|mistakes| {
        let lines = mistakes
            .lines()
            .map(|mistake| format!("{shown}, {mistake}"));
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// Parses the file. The mistakes are one line each.
fn parse(text: &str) -> Result<Vec<KnownToken>, String> {
    let parsed = ParsedText::parse(text);
    let mut mistakes = parsed.errors;
    let mut known = Vec::new();
    // Half a file would have mistakes that are none.
    let table = parsed.is_complete.then(|| parsed.table.get_ref());
    for (key, value) in table.into_iter().flatten() {
        let name: &str = key.get_ref();
        match (name, value.get_ref()) {
            ("token", DeValue::Array(entries)) => {
                for entry in entries.iter() {
                    let Some(token) = parse_entry(entry, &mut mistakes) else {
                        continue;
                    };
                    if known
                        .iter()
                        .any(|it: &KnownToken| it.digest == token.digest)
                    {
                        let what = "another entry has the same sha256";
                        mistakes.push((entry.span().start, what.to_owned()));
                    }
                    known.push(token);
                }
                if entries.len() > MAX_TOKENS {
                    let what = format!("more than {MAX_TOKENS} tokens");
                    mistakes.push((value.span().start, what));
                }
            }
            ("token", _) => mistakes.push((key.span().start, "write [[token]]".into())),
            (other, _) => {
                let what = format!("unknown key {}", sanitize(other.as_bytes(), 80));
                mistakes.push((key.span().start, what));
            }
        }
    }
    if mistakes.is_empty() {
        return Ok(known);
    }
    mistakes.sort_indirect_by_key(|(offset, _)| *offset);
    let lines = mistakes.iter().map(|(offset, what)| {
        let line = parsed.lines.position(*offset).line;
        format!("line {line}: {what}")
    });
    Err(lines.collect::<Vec<_>>().join("\n"))
}

/// Parses one `[[token]]`. Adds its mistakes with their offsets.
fn parse_entry(
    entry: &Spanned<DeValue<'_>>,
    mistakes: &mut Vec<(usize, String)>,
) -> Option<KnownToken> {
    let DeValue::Table(table) = entry.get_ref() else {
        mistakes.push((entry.span().start, "write [[token]]".into()));
        return None;
    };
    let before = mistakes.len();
    for key in table.keys() {
        let name: &str = key.get_ref();
        if !KEYS.contains(&name) {
            let shown = sanitize(name.as_bytes(), 80);
            let what = match closest_name(name, KEYS) {
                Some(closest) => format!("unknown key {shown}; did you mean {closest}?"),
                None => format!("unknown key {shown}"),
            };
            mistakes.push((key.span().start, what));
        }
    }
    let missing = |key: &str| (entry.span().start, format!("the token has no {key}"));
    let mut check = |key: &str, result: Option<Result<(), (usize, String)>>| match result {
        Some(Ok(())) => {}
        Some(Err(mistake)) => mistakes.push(mistake),
        None => mistakes.push(missing(key)),
    };
    let (mut access, mut digest, mut expires) = (Access::None, None, None);
    check("name", field(table, "name", check_name));
    check(
        "scope",
        field(table, "scope", |text| {
            parse_scope(text).map(|it| access = it)
        }),
    );
    check(
        "sha256",
        field(table, "sha256", |text| {
            digest = TokenDigest::from_hex(text);
            match digest {
                Some(_) => Ok(()),
                None => Err("is not 64 hexadecimal digits".into()),
            }
        }),
    );
    if let Some(result) = field(table, "expires", |text| {
        parse_expiry(text).map(|it| expires = Some(it))
    }) {
        check("expires", Some(result));
    }
    let digest = digest.filter(|_| mistakes.len() == before)?;
    Some(KnownToken {
        digest,
        access,
        expires,
    })
}

/// Gives the text of a key to `set`: a text in quotes, or a time. `None` if the key is missing; a
/// mistake has its offset.
fn field(
    table: &DeTable<'_>,
    key: &str,
    set: impl FnOnce(&str) -> Result<(), String>,
) -> Option<Result<(), (usize, String)>> {
    let value = table.get(key)?;
    let result = match value.get_ref() {
        DeValue::String(text) if key != "expires" => set(text),
        DeValue::Datetime(time) if key == "expires" => set(&time.to_string()),
        _ if key == "expires" => Err(EXPIRY_FORM.into()),
        _ => Err("is not a text in quotes".into()),
    };
    Some(result.map_err(|why| (value.span().start, format!("{key}: {why}"))))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    match !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_allowed) {
        true => Ok(()),
        false => Err(format!(
            "{:?} is not a name of at most {MAX_NAME} letters, digits, and . - _ @",
            sanitize(name.as_bytes(), MAX_NAME)
        )),
    }
}

/// The scope with this name.
///
/// # Errors
/// There is none.
pub(crate) fn parse_scope(name: &str) -> Result<Access, String> {
    let found = SCOPES.into_iter().find(|scope| scope.name() == name);
    found.ok_or_else(|| {
        let shown = format!("{:?}", sanitize(name.as_bytes(), 80));
        choice_error(&shown, &SCOPES.map(Access::name))
    })
}

const EXPIRY_FORM: &str = "is not a time with its zone, as 2027-01-31T00:00:00Z";

fn parse_expiry(text: &str) -> Result<Timestamp, String> {
    let time = DateTime::parse_from_rfc3339(text);
    let time = time.map_err(|_| EXPIRY_FORM.to_owned())?;
    Ok(Timestamp(time.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    const NOW: Timestamp = Timestamp(1_795_269_751_250);

    #[test]
    fn new_tokens_differ_and_their_entry_is_accepted() {
        let (one, other) = (new_token().unwrap(), new_token().unwrap());
        assert_eq!(one.len(), 64);
        assert_ne!(one, other);
        let entry = file_entry("grafana", Access::Metrics, None, &one).unwrap();
        let until = Some("2027-01-31T00:00:00Z");
        let later = file_entry("lab.box", Access::Look, until, &other).unwrap();
        let tokens = Tokens::parse(&format!("{entry}{later}")).unwrap();
        let access = |token: &str| tokens.access(&TokenDigest::new(token), NOW);
        assert_eq!(access(&one), Some(Access::Metrics));
        assert_eq!(access(&other), Some(Access::Look));
        assert_eq!(access("other"), None);
        assert!(!entry.contains(&one));
        for (name, expires) in [("a b", None), ("a\"", None), ("a", Some("2027-01-31"))] {
            let refused = file_entry(name, Access::Look, expires, &one);
            assert!(refused.is_err(), "{name} {expires:?}");
        }
    }

    #[test]
    fn token_is_valid_until_it_expires() {
        let token = new_token().unwrap();
        let until = Some("2026-11-21T13:02:31+00:00");
        let entry = file_entry("a", Access::Look, until, &token).unwrap();
        let tokens = Tokens::parse(&entry).unwrap();
        let digest = TokenDigest::new(&token);
        let end = parse_expiry("2026-11-21T13:02:31Z").unwrap();
        let at = |milliseconds| tokens.access(&digest, Timestamp(end.0 + milliseconds));
        assert_eq!((at(-1), at(0)), (Some(Access::Look), None));
    }

    #[test]
    fn all_mistakes_are_reported_without_the_value_of_a_digest() {
        let text = "tokens = 1\n[[token]]\nname = \"a b\"\nscope = \"act\"\nsha256 = \"5ecre7\"\n\
                    [[token]]\nnam = \"b\"\nexpires = 2027-01-31\n";
        let mistakes = Tokens::parse(text).unwrap_err();
        assert_eq!(
            mistakes.lines().collect::<Vec<_>>(),
            [
                "line 1: unknown key tokens",
                "line 3: name: \"a b\" is not a name of at most 64 letters, digits, and . - _ @",
                "line 4: scope: \"act\" is not valid: write look or metrics",
                "line 5: sha256: is not 64 hexadecimal digits",
                "line 6: the token has no name",
                "line 6: the token has no scope",
                "line 6: the token has no sha256",
                "line 7: unknown key nam; did you mean name?",
                "line 8: expires: is not a time with its zone, as 2027-01-31T00:00:00Z",
            ]
        );
        let single = Tokens::parse("[token]\nname = \"a\"\n").unwrap_err();
        assert_eq!(single, "line 1: write [[token]]");
        let entries = |count: usize| -> String {
            let entry = |at: usize| file_entry("a", Access::Look, None, &at.to_string());
            (0..count).map(|at| entry(at).unwrap()).collect()
        };
        assert!(Tokens::parse(&entries(MAX_TOKENS)).is_ok());
        assert!(Tokens::parse(&entries(MAX_TOKENS + 1)).is_err());
        // A copy of an entry with another scope or another time.
        let entry = file_entry("a", Access::Look, None, "x").unwrap();
        let copy = file_entry("b", Access::Metrics, None, "x").unwrap();
        let twice = Tokens::parse(&format!("{entry}{copy}")).unwrap_err();
        assert_eq!(twice, "line 5: another entry has the same sha256");
    }

    #[test]
    fn digest_is_read_strictly() {
        let digest = TokenDigest::new("x");
        let text = digest.to_hex();
        assert_eq!(TokenDigest::from_hex(&text), Some(digest));
        assert_eq!(TokenDigest::from_hex(&text.to_uppercase()), Some(digest));
        let plus = format!("+{}", &text[1..]);
        for wrong in ["", &text[1..], &format!("{text}0"), &plus, &"é".repeat(32)] {
            assert_eq!(TokenDigest::from_hex(wrong), None, "{wrong}");
        }
        assert!(!digest.is_same(&TokenDigest::new("y")));
    }

    #[test]
    fn changed_file_is_read_again_and_one_with_mistakes_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let write = |text: &str| {
            let new = directory.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::set_permissions(&new, Permissions::from_mode(0o644)).unwrap();
            std::fs::rename(new, &path).unwrap();
        };
        let tokens = Tokens::load(&path).unwrap();
        assert!(tokens.is_empty());
        let entry = |token| file_entry("a", Access::Look, None, token).unwrap();
        let knows = |token| tokens.access(&TokenDigest::new(token), NOW).is_some();
        write(&entry("first"));
        tokens.reload(&path, false);
        assert!(knows("first"));
        write("[[token]]\n");
        tokens.reload(&path, false);
        assert!(knows("first"));
        assert!(Tokens::load(&path).is_err());
        write(&entry("second"));
        tokens.reload(&path, true);
        assert!(knows("second") && !knows("first"));
        std::fs::remove_file(&path).unwrap();
        tokens.reload(&path, false);
        assert!(tokens.is_empty());
    }
}
