//! The sixteen bytes that each side sends before anything else.
//!
//! ```text
//! 0..4  "GPKL"   4..6 major   6..8 minor   8..10 status   10..12 zero   12..16 longest frame read
//! ```
//! Numbers are little-endian. The daemon speaks first, so that a client always
//! reads why it is refused. This layout never changes: it is what lets two
//! versions tell each other apart.

use crate::{PROTOCOL_VERSION, ProtocolVersion};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The length of a preface.
pub const LENGTH: usize = 16;

const MAGIC: [u8; 4] = *b"GPKL";

/// What one side says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// The wire it speaks.
    pub version: ProtocolVersion,
    /// Whether the connection may go on.
    pub status: Status,
    /// The longest frame it reads.
    pub max_frame: u32,
}

/// Whether the connection may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It may.
    Welcome,
    /// Too many connections: try again.
    Busy,
    /// Something newer than this side knows.
    Other(u16),
}

impl Status {
    const fn code(self) -> u16 {
        match self {
            Self::Welcome => 0,
            Self::Busy => 2,
            Self::Other(code) => code,
        }
    }

    const fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Welcome,
            2 => Self::Busy,
            other => Self::Other(other),
        }
    }
}

impl Preface {
    /// This build's preface.
    #[must_use]
    pub fn ours(status: Status, max_frame: usize) -> Self {
        let max_frame = u32::try_from(max_frame).unwrap_or(u32::MAX);
        Self {
            version: PROTOCOL_VERSION,
            status,
            max_frame,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.major.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.version.minor.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.status.code().to_le_bytes());
        bytes[12..].copy_from_slice(&self.max_frame.to_le_bytes());
        bytes
    }

    /// Reads it from its bytes; `None` when the other side is no gpukill.
    #[must_use]
    pub fn decode(bytes: &[u8; LENGTH]) -> Option<Self> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        bytes.starts_with(&MAGIC).then(|| Self {
            version: ProtocolVersion {
                major: short(4),
                minor: short(6),
            },
            status: Status::from_code(short(8)),
            max_frame: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
        })
    }

    /// Sends it.
    ///
    /// # Errors
    /// As the stream gives them.
    pub async fn send(self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.encode()).await
    }

    /// Receives the other side's.
    ///
    /// # Errors
    /// As the stream gives them; `InvalidData` when the other side is no gpukill.
    pub async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = [0; LENGTH];
        stream.read_exact(&mut bytes).await?;
        Self::decode(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a gpukill preface"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_fixed_for_ever() {
        let preface = Preface {
            version: ProtocolVersion { major: 1, minor: 3 },
            status: Status::Busy,
            max_frame: 0x0102_0304,
        };
        assert_eq!(
            preface.encode(),
            *b"GPKL\x01\0\x03\0\x02\0\0\0\x04\x03\x02\x01"
        );
        assert_eq!(Preface::decode(&preface.encode()), Some(preface));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_preface_or_none(bytes: [u8; LENGTH]) {
            if let Some(preface) = Preface::decode(&bytes) {
                let again = preface.encode();
                prop_assert_eq!(&again[..10], &bytes[..10]);
                prop_assert_eq!(&again[12..], &bytes[12..]);
            } else {
                prop_assert_ne!(&bytes[..4], b"GPKL");
            }
        }
    }
}
