//! How bytes become calls: a preface, then length-delimited frames of bincode.
//!
//! bincode does not describe itself, so both sides settle the version in the
//! preface before the first frame. Each side bounds what it will read.

pub mod preface;

pub mod codec;

mod connect;

pub use connect::{ConnectError, Connection, Until, Wait, open};

/// The longest request the daemon reads, in bytes.
pub const MAX_REQUEST: usize = 64 * 1024;

/// The longest answer a client reads, in bytes.
pub const MAX_RESPONSE: usize = 4 * 1024 * 1024;

/// The longest deadline a request may carry: rules tried on a month may take ten
/// minutes on a box that is busy with other things.
pub const MAX_DEADLINE: std::time::Duration = std::time::Duration::from_secs(620);
