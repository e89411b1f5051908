//! The cause of an uninterruptible wait, and the processes that could end it.

use crate::reading::Reading;
use serde::{Deserialize, Serialize};

/// The cause of an uninterruptible wait.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UninterruptibleWait {
    /// The kernel function, if reported.
    pub waits_on: Option<String>,
    /// The FUSE filesystem, if the process waits on one.
    pub fuse: Option<FuseMount>,
}

/// A filesystem that a process serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseMount {
    /// The mount point, as the waiting process sees it.
    pub path: String,
    /// The processes that serve it; empty if the kernel does not report them.
    pub servers: Vec<FuseServer>,
}

/// A process that serves a FUSE filesystem: processes that wait on the filesystem continue when
/// the server ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseServer {
    /// The pid.
    pub pid: u32,
    /// The name of its owner.
    pub owner: Reading<String>,
}
