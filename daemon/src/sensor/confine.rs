//! What the sensor may do to the box beside reading it: work with devices, and nothing
//! to the daemon, whose user it has.
//!
//! What it is kept from, a driver's library has no use for while it reads: each refusal
//! is an error to it (`EPERM`, `EACCES`), and not its end. Not kept from it is reading.

mod calls;

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    path_beneath_rules,
};
use seccompiler::apply_filter;
use std::io;

/// Below it, it may write to files that are there, as far as their modes and the unit let
/// it. It makes, renames and removes none anywhere: `/dev/shm` is everybody's. Not `/proc`
/// and `/sys`: settings of the kernel's are open to root without any capability, and a
/// person's own cgroups to that person.
const DEVICES: &str = "/dev";

/// Confines the calling thread and every one that it starts from now on.
///
/// # Errors
/// When the kernel has no filters of system calls. One without Landlock (before 5.13, or
/// switched off) is none: then the sensor could write to what the daemon's user owns.
pub(super) fn confine() -> io::Result<()> {
    keep_to_devices().map_err(io::Error::other)?;
    for filter in calls::filters().map_err(io::Error::other)? {
        apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn keep_to_devices() -> Result<(), RulesetError> {
    // With truncating, which Linux 6.2 can refuse; older kernels refuse what they know.
    let writing = AccessFs::from_write(ABI::V3);
    Ruleset::default()
        .handle_access(writing)?
        .create()?
        .add_rules(path_beneath_rules([DEVICES], AccessFs::WriteFile))?
        .restrict_self()?;
    Ok(())
}
