//! What a process waits on that no signal reaches, and who could free it.

use crate::reading::Reading;
use serde::{Deserialize, Serialize};

/// What a process waits on that no signal reaches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stuck {
    /// The function of the kernel, where that is told.
    pub waits_on: Option<String>,
    /// The FUSE filesystem, where it waits on one.
    pub fuse: Option<FuseMount>,
}

/// A filesystem that a process serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseMount {
    /// Where it is mounted, as the process that waits sees it.
    pub path: String,
    /// The processes that serve it; none where the kernel does not tell.
    pub servers: Vec<FuseServer>,
}

/// A process that serves a FUSE filesystem: what waits on that goes on when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseServer {
    /// Its pid.
    pub pid: u32,
    /// What to call whoever it belongs to.
    pub owner: Reading<String>,
}
