//! The words that gpukilld and its clients share.
//!
//! Read in this order:
//! - [`units`], [`reading`]: sizes, times, and values that may be unknown.
//! - [`snapshot`]: the GPUs and who uses them, at one moment.
//! - [`holders`]: who has devices open, and whose unexplained memory is.
//! - [`kill`]: ending processes, from the request to the report.
//! - [`reset`]: resetting devices.
//! - [`rogue`]: who may be up to no good, and what that rests on.
//! - [`status`], [`audit`], [`refusal`]: the other answers of the daemon.
//! - [`service`]: every call the daemon answers, on one page.
//! - [`transport`]: the preface, the codec, and `connect`.
//! - [`document`]: the JSON that `-o json` prints.
//! - [`settings`], [`text`]: strict TOML files, and untrusted text made safe to show.
//!
//! Nothing here decides or acts.
#![forbid(unsafe_code)]

pub mod units;

pub mod reading;

pub mod snapshot;

pub mod holders;

pub mod kill;

pub mod reset;

pub mod status;

pub mod audit;

pub mod guard;

pub mod rogue;

pub mod refusal;

pub mod service;

pub mod transport;

pub mod document;

pub mod collect;

pub mod settings;

pub mod text;

/// The version of the wire. Another major cannot be understood at all; a
/// higher minor only adds calls at the end of the service.
pub const PROTOCOL_VERSION: ProtocolVersion = ProtocolVersion { major: 1, minor: 0 };

/// Where the daemon of the box listens.
pub const DEFAULT_SOCKET: &str = "/run/gpukill/gpukilld.sock";

/// A version of the wire.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct ProtocolVersion {
    /// Changes when anything already sent changes its form or meaning.
    pub major: u16,
    /// Grows when calls are added.
    pub minor: u16,
}

impl std::fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
