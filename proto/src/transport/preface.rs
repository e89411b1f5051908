//! The sixteen bytes that each side sends first.
//!
//! ```text
//! 0..4  "GPKL"   4..6 major   6..8 minor   8..10 status   10..12 zero   12..16 longest frame read
//! ```
//! Numbers are little-endian. The daemon sends first, so that a client always reads why it is
//! refused. This layout never changes: it lets two versions recognise each other.

use crate::{PROTOCOL_VERSION, ProtocolVersion};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The length of a preface in bytes.
pub const PREFACE_LENGTH: usize = 16;

const MAGIC: [u8; 4] = *b"GPKL";

/// The preface of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// The version of the wire that this side speaks.
    pub version: ProtocolVersion,
    /// Whether the connection may continue.
    pub status: PrefaceStatus,
    /// The longest frame that this side reads, in bytes.
    pub max_frame: u32,
}

/// Whether the connection may continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefaceStatus {
    /// The connection may continue.
    Welcome,
    /// Too many connections: try again.
    Busy,
    /// A status that only newer versions know.
    Other(u16),
}

impl PrefaceStatus {
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
    /// The preface of this build.
    #[must_use]
    pub fn new(status: PrefaceStatus, max_frame: usize) -> Self {
        let max_frame = u32::try_from(max_frame).unwrap_or(u32::MAX);
        Self {
            version: PROTOCOL_VERSION,
            status,
            max_frame,
        }
    }

    /// Encodes the preface.
    #[must_use]
    pub fn encode(self) -> [u8; PREFACE_LENGTH] {
        let mut bytes = [0; PREFACE_LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.major.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.version.minor.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.status.code().to_le_bytes());
        bytes[12..].copy_from_slice(&self.max_frame.to_le_bytes());
        bytes
    }

    /// Decodes a preface; `None` if the other side is not gpukill.
    #[must_use]
    pub fn decode(bytes: &[u8; PREFACE_LENGTH]) -> Option<Self> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        bytes.starts_with(&MAGIC).then(|| Self {
            version: ProtocolVersion {
                major: short(4),
                minor: short(6),
            },
            status: PrefaceStatus::from_code(short(8)),
            max_frame: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
        })
    }

    /// Sends the preface.
    ///
    /// # Errors
    /// An error of the stream.
    pub async fn send(self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.encode()).await
    }

    /// Receives the preface of the other side.
    ///
    /// # Errors
    /// An error of the stream; `InvalidData` if the other side is not gpukill.
    pub async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = [0; PREFACE_LENGTH];
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
    fn layout_is_fixed() {
        let preface = Preface {
            version: ProtocolVersion { major: 1, minor: 3 },
            status: PrefaceStatus::Busy,
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
        fn arbitrary_bytes_decode_or_lack_the_magic(bytes: [u8; PREFACE_LENGTH]) {
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
