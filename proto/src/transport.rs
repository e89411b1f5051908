//! The transport: a preface, then length-delimited frames of bincode.
//!
//! bincode does not describe itself, so both sides agree on the version in the preface before
//! the first frame. Each side limits what it reads.

pub mod codec;
mod connect;
pub mod preface;

pub use connect::{ConnectError, Connection, Readiness, WaitFn, open_socket};

/// The longest request the daemon reads, in bytes.
pub const MAX_REQUEST: usize = 64 * 1024;

/// The longest response a client reads, in bytes.
pub const MAX_RESPONSE: usize = 4 * 1024 * 1024;

/// The longest deadline a request may carry: a replay of a month may take ten minutes on a
/// loaded machine.
pub const MAX_DEADLINE: std::time::Duration = std::time::Duration::from_secs(620);
