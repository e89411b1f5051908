//! What may stand in a report: numbers, words of ours, and a [`Word`], which is made of
//! a text in few ways, each of which lets through only what names nobody. A text itself
//! may not: a field of type `String` does not compile.

use super::{model, sentence};
use crate::units::Timestamp;
use serde::Serialize;

/// What a report may hold.
pub trait Tellable: Serialize {}

impl Tellable for bool {}
impl Tellable for u8 {}
impl Tellable for u32 {}
impl Tellable for u64 {}
impl Tellable for i64 {}
impl Tellable for &'static str {}
impl Tellable for Word {}
impl<T: Tellable> Tellable for Option<T> {}
impl<T: Tellable> Tellable for Vec<T> {}

/// Defines parts of a report, each field of which is [`Tellable`].
macro_rules! told {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)+ })+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[allow(
            missing_docs,
            reason = "the names are the documented JSON fields; units are in them"
        )]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Tellable for $name {}

        const _: () = {
            const fn is_tellable<T: Tellable>() {}
            $(is_tellable::<$type>();)+
        };
    )+};
}

pub(super) use told;

/// Stands for what is left out.
pub(super) const LEFT_OUT: &str = "…";

/// A text that names nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Word(String);

/// So many digits has a number of a version; a longer one may be another's number.
const MOST_DIGITS: usize = 8;

/// What stands in versions besides numbers: kinds of kernels and of releases. Whoever
/// builds a kernel may add a name of theirs.
const FLAVOURS: [&str; 38] = [
    "aarch64",
    "alpha",
    "amd64",
    "arch1",
    "arch2",
    "arm64",
    "aws",
    "azure",
    "beta",
    "cachyos",
    "cloud",
    "default",
    "dev",
    "fips",
    "gcp",
    "generic",
    "gke",
    "hwe",
    "ibm",
    "kvm",
    "liquorix",
    "longterm",
    "lowlatency",
    "lts",
    "microsoft",
    "nvidia",
    "oem",
    "oracle",
    "preempt",
    "pve",
    "raspi",
    "realtime",
    "standard",
    "tegra",
    "uek",
    "wsl2",
    "zen1",
    "x86",
];

/// The same, with a number behind it: `el9`, `fc42`, `deb12u1`, `rc2`.
const NUMBERED: [&str; 9] = ["amzn", "bpo", "deb", "el", "fc", "lp", "rc", "rt", "v"];

/// The distributions, as os-release(5) has their `ID`.
const DISTRIBUTIONS: [&str; 28] = [
    "almalinux",
    "alpine",
    "amzn",
    "arch",
    "azurelinux",
    "bottlerocket",
    "centos",
    "cos",
    "debian",
    "endeavouros",
    "fedora",
    "flatcar",
    "gentoo",
    "kali",
    "linuxmint",
    "manjaro",
    "mariner",
    "nixos",
    "ol",
    "opensuse-leap",
    "opensuse-tumbleweed",
    "pop",
    "rhel",
    "rocky",
    "sles",
    "steamos",
    "ubuntu",
    "void",
];

/// The parts of which there are faults, besides GPUs.
const PARTS: [&str; 13] = [
    "amd",
    "apple",
    "containers",
    "drm",
    "faults",
    "guard",
    "intel",
    "names",
    "nvidia",
    "processes",
    "rogue",
    "settings",
    "store",
];

impl Word {
    /// What it says.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A word of ours.
    #[must_use]
    pub fn of(word: &'static str) -> Self {
        Self(word.to_owned())
    }

    /// A moment, RFC 3339.
    #[must_use]
    pub fn moment(at: Timestamp) -> Self {
        Self(at.to_rfc3339())
    }

    /// A version: its numbers, and the kinds of releases and kernels that everybody
    /// has: `6.8.0-51-generic`. Of `6.8.0-alice` it is `6.8.0-…`. What has the form of
    /// an address is left out with all behind it.
    #[must_use]
    pub fn version(text: &str) -> Self {
        let pieces: Vec<&str> = text.split_inclusive(BETWEEN).collect();
        let address = address_in(&pieces);
        let mut shown = String::new();
        for (at, piece) in pieces.into_iter().enumerate() {
            let word = piece.trim_end_matches(BETWEEN);
            if Some(at) == address || !is_of_a_version(word) {
                shown.push_str(LEFT_OUT);
                break;
            }
            shown.push_str(piece);
        }
        Self(shown)
    }

    /// The version of a distribution, as os-release(5) has its `VERSION_ID`: two numbers
    /// at most, which is what tells apart what packages are built for. Of `3.20.3` it is
    /// `3.20.…`.
    #[must_use]
    pub fn release(text: &str) -> Self {
        let numbers: Vec<&str> = text.split('.').collect();
        let are_numbers = numbers.iter().copied().all(is_number);
        Self(match numbers.as_slice() {
            [_] | [_, _] if are_numbers => text.to_owned(),
            [major, minor, _] if are_numbers => format!("{major}.{minor}.{LEFT_OUT}"),
            _ => LEFT_OUT.to_owned(),
        })
    }

    /// The model of a GPU, as its driver names it, in the words that models have.
    #[must_use]
    pub fn model(text: &str) -> Self {
        Self(model::told(text))
    }

    /// A distribution by its `ID`, where many have that.
    #[must_use]
    pub fn distribution(id: &str) -> Self {
        Self(one_of(&DISTRIBUTIONS, id).unwrap_or("another").to_owned())
    }

    /// The part of which a fault is: `store`, `GPU 3`.
    #[must_use]
    pub fn part(text: &str) -> Self {
        let number = text.strip_prefix("GPU ");
        let is_gpu = number.is_some_and(|it| it.len() <= 4 && is_number(it));
        if is_gpu {
            return Self(text.to_owned());
        }
        Self(one_of(&PARTS, text).unwrap_or("another part").to_owned())
    }

    /// What is wrong, in the words of it that are ours: what a sentence names is left
    /// out, and so is all of one that is not known here.
    #[must_use]
    pub fn sentence(text: &str) -> Self {
        let known = sentence::known(text);
        Self(known.unwrap_or_else(|| format!("{LEFT_OUT} (in words that may name somebody)")))
    }

    /// The key of a setting: a name of ours, of letters, `_` and one point.
    #[must_use]
    pub fn key(text: &str) -> Self {
        let is_plain = |c: char| c.is_ascii_lowercase() || "_.".contains(c);
        let is_key = text.len() <= 64 && text.chars().all(is_plain);
        Self(if is_key { text } else { LEFT_OUT }.to_owned())
    }

    /// The bits that say who may do what with a file: `0666`.
    #[must_use]
    pub fn mode(bits: u32) -> Self {
        Self(format!("{:04o}", bits & 0o7777))
    }

    /// What the kernel says went wrong, in the words that the library has for its kind.
    #[must_use]
    pub fn of_error(kind: std::io::ErrorKind) -> Self {
        Self(kind.to_string())
    }
}

/// What stands between the parts of a version.
const BETWEEN: [char; 5] = ['.', '-', '_', '+', '~'];

/// The piece at which four numbers begin that all have the same between them. No version
/// that is looked for has four, but for the kernel of WSL: `5.15.167.4-microsoft-…`.
fn address_in(pieces: &[&str]) -> Option<usize> {
    let is_of_wsl = match pieces {
        // A kernel's first number has one digit.
        [first, _, _, _, "microsoft-", ..] => first.len() == "5.".len(),
        _ => false,
    };
    let fours = pieces.windows(4).enumerate().skip(is_of_wsl.into());
    let mut addresses = fours.filter(|(_, four)| are_an_address(four));
    addresses.next().map(|(at, _)| at)
}

fn are_an_address(four: &[&str]) -> bool {
    let mut numbers = four.iter().map(|piece| piece.trim_end_matches(BETWEEN));
    let mut ends = four.iter().take(3).map(|piece| piece.chars().last());
    let first = ends.next();
    numbers.all(is_number) && ends.all(|end| Some(end) == first)
}

fn one_of(known: &[&'static str], text: &str) -> Option<&'static str> {
    known.iter().copied().find(|it| *it == text)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= MOST_DIGITS && text.bytes().all(|it| it.is_ascii_digit())
}

fn is_of_a_version(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    // `deb12u1`
    let is_numbered = |rest: &str| rest.is_empty() || rest.split('u').all(is_number);
    let mut numbered = NUMBERED.iter();
    is_number(&word)
        || one_of(&FLAVOURS, &word).is_some()
        // What `x86_64` leaves is a number.
        || numbered.any(|it| word.strip_prefix(it).is_some_and(is_numbered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_version_whatever_somebody_added_is_left_out() {
        for (text, expected) in [
            ("0.1.0", "0.1.0"),
            ("1.0.0-rc.2", "1.0.0-rc.2"),
            ("580.65.06", "580.65.06"),
            ("6.8.0-51-generic", "6.8.0-51-generic"),
            ("6.1.0-28-cloud-amd64", "6.1.0-28-cloud-amd64"),
            ("5.14.0-503.el9_5.x86_64", "5.14.0-503.el9_5.x86_64"),
            ("252.39-1~deb12u1", "252.39-1~deb12u1"),
            (
                "5.15.167.4-microsoft-standard-WSL2",
                "5.15.167.4-microsoft-standard-WSL2",
            ),
            ("6.8.0-alice", "6.8.0-…"),
            ("6.8.0-generic-box07.example.org", "6.8.0-generic-…"),
            ("6.8.0 alice", "6.8.…"),
            ("192168001042", "…"),
            ("", ""),
            ("\u{1b}[2J", "…"),
        ] {
            assert_eq!(Word::version(text).as_str(), expected, "{text}");
        }
    }

    #[test]
    fn a_distribution_a_part_and_a_key_are_known_ones_or_none() {
        assert_eq!(Word::distribution("debian").as_str(), "debian");
        assert_eq!(Word::distribution("acme-linux").as_str(), "another");
        for (part, expected) in [
            ("store", "store"),
            ("GPU 12", "GPU 12"),
            ("GPU alice", "another part"),
            ("GPU 1234567", "another part"),
            ("alice", "another part"),
        ] {
            assert_eq!(Word::part(part).as_str(), expected, "{part}");
        }
        assert_eq!(
            Word::key("audit.keep_samples").as_str(),
            "audit.keep_samples"
        );
        assert_eq!(Word::key("/home/alice").as_str(), "…");
    }

    #[test]
    fn an_address_is_no_version() {
        for (text, expected) in [
            ("192.168.17.42", "…"),
            ("10.0.0.5", "…"),
            ("9.9.9.9", "…"),
            ("1.0.0.0.5", "…"),
            ("192-168-17-42", "…"),
            ("6.8.0-10.0.0.5-generic", "6.8.0-…"),
            ("10.0.0.5-microsoft-standard-WSL2", "…"),
            ("5.15.167.4-microsoft-10.0.0.5", "5.15.167.4-microsoft-…"),
            ("5.15.167.4-generic", "…"),
        ] {
            assert_eq!(Word::version(text).as_str(), expected, "{text}");
        }
    }

    #[test]
    fn a_distribution_has_a_version_of_two_numbers_at_most() {
        for (text, expected) in [
            ("12", "12"),
            ("24.04", "24.04"),
            ("3.20.3", "3.20.…"),
            ("192.168.17.42", "…"),
            ("24.04.alice", "…"),
            ("alice", "…"),
            ("", "…"),
        ] {
            assert_eq!(Word::release(text).as_str(), expected, "{text}");
        }
    }

    #[test]
    fn the_lists_have_their_order() {
        for list in [
            &FLAVOURS[..FLAVOURS.len() - 1],
            &NUMBERED,
            &DISTRIBUTIONS,
            &PARTS,
        ] {
            assert!(list.is_sorted(), "{list:?}");
        }
    }
}
