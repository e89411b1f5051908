//! The values that a report may hold. None of them can hold a name: they are numbers, words of
//! this program, and the two texts at the end of this file, which keep only their numbers.

use crate::ProtocolVersion;
use crate::json::schema::plain_schemas;
use crate::model::{FaultCode, Vitals};
use crate::reading::Reading;
use crate::units::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::fmt::{self, Display, Formatter};
use std::io;

/// A value that a report may hold. `String` does not implement this trait.
pub trait Redacted: Serialize {}

impl Redacted for bool {}
impl Redacted for u8 {}
impl Redacted for u16 {}
impl Redacted for u32 {}
impl Redacted for u64 {}
impl Redacted for &'static str {}
impl Redacted for FaultCode {}
impl Redacted for Printed<Timestamp> {}
impl Redacted for Printed<ProtocolVersion> {}
impl Redacted for Printed<io::ErrorKind> {}
impl Redacted for Printed<FileMode> {}
impl Redacted for Printed<Component> {}
impl<T: Redacted> Redacted for Option<T> {}
impl<T: Redacted> Redacted for Vec<T> {}

/// Defines parts of a report, each field of which is [`Redacted`]; or one part with the sources
/// of its fields, as `document!` does.
macro_rules! redacted {
    (
        $(#[$($about:tt)*])*
        $name:ident($($source:ident: $of:ty),+) {
            $($(#[$($doc:tt)*])* $field:ident: $type:ty = $value:expr,)+
        }
    ) => {
        $crate::json::fields::document! {
            $(#[$($about)*])*
            plain $name($($source: $of),+) {
                $($(#[$($doc)*])* $field: $type = $value,)+
            }
        }

        $crate::json::report::redacted::redacted! { @check $name { $($type,)+ } }
    };
    (@check $name:ident { $($type:ty,)+ }) => {
        impl Redacted for $name {}

        const _: () = {
            const fn require_redacted<T: Redacted>() {}
            $(require_redacted::<$type>();)+
        };
    };
    ($(
        $(#[$($about:tt)*])*
        $name:ident { $($(#[$($doc:tt)*])* $field:ident: $type:ty,)+ }
    )+) => {$(
        $crate::json::schema::described! {
            $(#[$($about)*])*
            pub struct $name {
                $($(#[$($doc)*])* pub $field: $type,)+
            }
        }

        $crate::json::report::redacted::redacted! { @check $name { $($type,)+ } }
    )+};
}

pub(super) use redacted;

/// A value that is written to JSON as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printed<T>(pub T);

impl<T: Display> Display for Printed<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Display> Serialize for Printed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

plain_schemas! {
    Printed<Timestamp> => json!({ "type": "string", "format": "date-time" });
    Printed<Component>, Printed<FileMode>, Printed<ProtocolVersion>, Printed<io::ErrorKind>,
    ModelNumber, SettingKey, Version => json!({ "type": "string" });
}

/// The permission bits of a file, such as `0666`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Display for FileMode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0 & 0o7777)
    }
}

/// The parts other than GPUs that have faults.
#[rustfmt::skip]
const PARTS: [&str; 13] = [
    "amd", "apple", "containers", "drm", "faults", "guard", "intel", "names", "nvidia", "processes",
    "rogue", "settings", "store",
];

/// A part that has a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The GPU with this index.
    Gpu(u16),
    /// A backend, or another part of the daemon.
    Named(&'static str),
    /// A part that this client does not know.
    Unknown,
}

impl Component {
    /// Parses the part in a fault.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let index = text.strip_prefix("GPU ");
        if let Some(index) = index.and_then(|index| index.parse().ok()) {
            return Self::Gpu(index);
        }
        let named = PARTS.into_iter().find(|name| *name == text);
        named.map_or(Self::Unknown, Self::Named)
    }
}

impl Display for Component {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(index) => write!(f, "GPU {index}"),
            Self::Named(name) => f.write_str(name),
            Self::Unknown => f.write_str("another part"),
        }
    }
}

/// The reading that a fault is about, by its name in [`Vitals`].
pub(super) fn failed_reading(code: FaultCode, what: &str) -> Option<&'static str> {
    if code != FaultCode::ReadingFailed {
        return None;
    }
    let (name, _) = what.split_once(": ")?;
    let name = name.strip_suffix(" and others").unwrap_or(name);
    let own = ["name", "PCI address", "memory"];
    let mut all = own.iter().chain(Vitals::WORDS);
    all.find(|known| **known == name).copied()
}

/// The error number of NVML or of the system at the end of the text of a fault: `(999)`,
/// `(os error 13)`. Three digits suffice for both. They can be neither the uid of a login user nor
/// most pids.
pub(super) fn error_number(text: &str) -> Option<u16> {
    let (_, end) = text.rsplit_once('(')?;
    let number = end.trim_end_matches(')');
    let number = number.strip_prefix("os error ").unwrap_or(number);
    number.parse().ok().filter(|number| *number < 1_000)
}

/// The distributions in reports, by their `ID` in os-release(5).
#[rustfmt::skip]
const DISTRIBUTIONS: [&str; 14] = [
    "almalinux", "amzn", "arch", "centos", "debian", "fedora", "nixos", "ol", "opensuse-leap",
    "opensuse-tumbleweed", "rhel", "rocky", "sles", "ubuntu",
];

/// The distribution with this `ID`; `another` for a rare distribution.
#[must_use]
pub fn distribution(id: &str) -> &'static str {
    let mut known = DISTRIBUTIONS.into_iter();
    known.find(|name| *name == id).unwrap_or("another")
}

/// Replaces the rest of a version.
const CUT: &str = "…";

/// The separators of the numbers in a version.
const SEPARATORS: [char; 5] = ['.', '-', '_', '+', '~'];

/// The numbers at the beginning of a version, such as `6.8.0-51-…` for `6.8.0-51-generic`. An IP
/// address is removed entirely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Version(String);

impl Redacted for Version {}

impl Version {
    /// Keeps the numbers of the text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let pieces: Vec<&str> = text.split_inclusive(SEPARATORS).collect();
        let mut address = pieces.windows(4).map(is_address);
        let address = address.position(|is_address| is_address);
        let numbers = pieces.iter().map(|piece| parse_number(piece).is_some());
        let end = numbers.take_while(|is_number| *is_number).count();
        let end = end.min(address.unwrap_or(end));
        let mut kept = pieces.iter().take(end).copied().collect::<String>();
        if end < pieces.len() || end == 0 {
            kept.push_str(CUT);
        }
        Self(kept)
    }

    /// The kept text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Parses a piece of a version. Numbers in versions have at most eight digits.
fn parse_number(piece: &str) -> Option<u32> {
    let digits = piece.trim_end_matches(SEPARATORS);
    let is_plain = digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

/// Whether these are four numbers with the same separator between them.
fn is_address(four: &[&str]) -> bool {
    let mut separators = four.iter().take(3).map(|piece| piece.chars().last());
    let first = separators.next();
    separators.all(|separator| Some(separator) == first)
        && four.iter().all(|piece| parse_number(piece).is_some())
}

/// The numbers in the name of a GPU model, such as `H100 80GB` for `NVIDIA H100 80GB HBM3`. A
/// driver may report any name, so longer runs of letters are removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ModelNumber(String);

impl Redacted for ModelNumber {}

impl ModelNumber {
    /// Keeps the model numbers in the name; `None` if the name has none.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let words = name.split([' ', '/', '[', ']']);
        // Other beginnings may be an address or a UUID.
        let words = words.filter(|word| {
            let (first, is_only) = word
                .split_once('-')
                .map_or((*word, true), |it| (it.0, false));
            is_model_number(first) && (is_only || first.starts_with(char::is_alphabetic))
        });
        let parts = words.flat_map(|word| word.split('-'));
        let parts = parts.filter(|part| is_model_number(part));
        // No known name has more numbers.
        let kept: Vec<&str> = parts.take(4).collect();
        (!kept.is_empty()).then(|| Self(kept.join(" ")))
    }

    /// The kept text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether the word has at most two letters, one to four digits, and at most two letters: `H100`,
/// `MI300X`, `80GB`, `4090`.
fn is_model_number(word: &str) -> bool {
    let head = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let tail = head.trim_start_matches(|c: char| c.is_ascii_digit());
    let (before, digits) = (word.len() - head.len(), head.len() - tail.len());
    let is_suffix = tail.bytes().all(|byte| byte.is_ascii_uppercase());
    before <= 2 && (1..=4).contains(&digits) && tail.len() <= 2 && is_suffix
}

/// The key of a setting: `audit.keep_samples`. Keys are constants of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SettingKey(String);

impl Redacted for SettingKey {}

impl SettingKey {
    /// Keeps the text if it has the form of a key.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let is_plain = |c: char| c.is_ascii_lowercase() || "_.".contains(c);
        let is_key = text.len() <= 64 && text.chars().all(is_plain);
        Self(if is_key { text } else { CUT }.to_owned())
    }

    /// The text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The last known version of a reading.
pub(super) fn version(reading: &Reading<String>) -> Option<Version> {
    reading.last_known().map(|text| Version::parse(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn version_keeps_numbers_without_addresses() {
        for (text, expected) in [
            ("0.1.0", "0.1.0"),
            ("580.65.06", "580.65.06"),
            ("6.8.0-51-generic", "6.8.0-51-…"),
            ("5.14.0-503.el9_5.x86_64", "5.14.0-503.…"),
            ("6.8.0-alice", "6.8.0-…"),
            ("6.8.0 alice", "6.8.…"),
            ("192168001042", "…"),
            ("192.168.17.42", "…"),
            ("192-168-17-42", "…"),
            ("6.8.0-10.0.0.5-generic", "6.8.0-…"),
            ("", "…"),
            ("\u{1b}[2J", "…"),
        ] {
            assert_eq!(Version::parse(text).as_str(), expected, "{text}");
        }
    }

    #[test]
    fn model_keeps_numbers() {
        for (name, expected) in [
            ("NVIDIA H100 80GB HBM3", Some("H100 80GB")),
            ("NVIDIA A100-SXM4-40GB", Some("A100 40GB")),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", Some("4090")),
            ("AMD Instinct MI300X", Some("MI300X")),
            (
                "AMD Radeon RX 7900 XT/7900 XTX/7900M",
                Some("7900 7900 7900M"),
            ),
            ("DG2 [Arc A770]", Some("DG2 A770")),
            ("NVIDIA alice ALICE Bob7", None),
            ("GPU-9e1c0de5-aaaa-bbbb-cccc-0123456789ab", None),
            ("1652823000001 192.168.17.42 192-168-17-42 alice@box7", None),
            ("", None),
        ] {
            let number = ModelNumber::parse(name);
            assert_eq!(number.as_ref().map(ModelNumber::as_str), expected, "{name}");
        }
    }

    #[test]
    fn keeps_only_known_parts_and_readings() {
        for (text, expected) in [
            ("store", "store"),
            ("nvidia", "nvidia"),
            ("GPU 12", "GPU 12"),
            ("GPU alice", "another part"),
            ("GPU 1234567", "another part"),
            ("alice", "another part"),
        ] {
            assert_eq!(Component::parse(text).to_string(), expected, "{text}");
        }
        let reading = |what| failed_reading(FaultCode::ReadingFailed, what);
        assert_eq!(reading("fan and others: alice"), Some("fan"));
        assert_eq!(reading("memory: alice"), Some("memory"));
        assert_eq!(reading("alice: fan"), None);
        for (text, expected) in [
            ("NVML reports an unknown error (999)", Some(999)),
            ("state unknown (NVML refuses the request (2))", Some(2)),
            ("/home/alice: Permission denied (os error 13)", Some(13)),
            ("process (4182)", None),
            ("(alice)", None),
            ("alice 7", None),
        ] {
            assert_eq!(error_number(text), expected, "{text}");
        }
        assert_eq!(distribution("debian"), "debian");
        assert_eq!(distribution("acme-linux"), "another");
        assert_eq!(SettingKey::parse("/home/alice").as_str(), "…");
    }

    proptest! {
        #[test]
        fn never_keeps_three_letters_in_a_row(text: String, name in "[A-Za-z]{3,12}") {
            for text in [format!("{text}{name}"), format!("{name} {text}"), name] {
                let version = Version::parse(&text);
                let model = ModelNumber::parse(&text);
                let model = model.as_ref().map_or("", ModelNumber::as_str);
                for kept in [version.as_str(), model] {
                    let mut runs = kept.split(|c: char| !c.is_alphabetic());
                    prop_assert!(runs.all(|run| run.len() <= 2), "{kept}");
                }
            }
        }
    }
}
