//! The types, calls and transport that gpukilld and its clients share.
//!
//! Read in this order:
//! - [`units`], [`reading`]: sizes, times, and values that may be unknown.
//! - [`model`]: the GPUs and the processes that use them, at one moment.
//! - [`holders`]: the processes that have devices open, and the causes of unattributed memory.
//! - [`kill`]: ending processes, from the request to the report.
//! - [`reset`]: resetting devices.
//! - [`guard`]: rules, violations, and what the guard did about them.
//! - [`rogue`]: verdicts about suspicious processes, with their evidence.
//! - [`status`], [`audit`], [`refusal`]: the other answers of the daemon.
//! - [`service`]: every call that the daemon answers.
//! - [`transport`]: the preface, the codec, and the client's connection.
//! - [`json`]: the JSON that `-o json` prints.
//! - [`settings`], [`text`]: strict TOML files, and untrusted text made safe to show.
//! - `words`: the words of enumerations.
//!
//! Nothing here decides or acts.
#![forbid(unsafe_code)]

pub mod audit;
pub mod collect;
pub mod guard;
pub mod holders;
pub mod json;
pub mod kill;
pub mod model;
pub mod reading;
pub mod refusal;
pub mod reset;
pub mod rogue;
pub mod service;
pub mod settings;
pub mod status;
pub mod text;
pub mod transport;
pub mod units;
mod words;

/// The version of the wire. Another major version cannot be understood at all; a higher minor
/// version only adds calls at the end of the service.
pub const PROTOCOL_VERSION: ProtocolVersion = ProtocolVersion { major: 1, minor: 0 };

/// The socket of the system's daemon.
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
