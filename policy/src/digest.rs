//! Digests that identify texts and rules.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The first half of a SHA-256, shown as 32 hex digits. 128 bits suffice: accidental collisions
/// do not happen, only admins write the identified texts, and half a SHA-256 leaves room for
/// other words on a line.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(u128);

/// Digests a text.
#[must_use]
pub fn digest_text(text: &str) -> Digest {
    digest_parts([text])
}

/// Digests the concatenation of these parts.
#[must_use]
pub fn digest_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    let bytes = hasher.finalize();
    let half = bytes.iter().take(16);
    Digest(half.fold(0, |digest, byte| (digest << 8) | u128::from(*byte)))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digest = u128::from_str_radix(&text, 16).ok().map(Self);
        digest
            .filter(|digest| digest.to_string() == text)
            .ok_or_else(|| serde::de::Error::custom("a digest has 32 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_first_half_of_sha_256() {
        // FIPS 180-4, examples of NIST.
        for (text, expected) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb924"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223"),
        ] {
            assert_eq!(digest_text(text).to_string(), expected);
        }
        assert_eq!(digest_parts(["a", "", "bc"]), digest_text("abc"));
    }

    #[test]
    fn survives_json() {
        let digest = digest_text("abc");
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(json, "\"ba7816bf8f01cfea414140de5dae2223\"");
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        for broken in [
            "\"\"",
            "\"ba78\"",
            "7",
            "\"BA7816BF8F01CFEA414140DE5DAE2223\"",
        ] {
            assert!(serde_json::from_str::<Digest>(broken).is_err(), "{broken}");
        }
    }
}
