//! What the sensor may do to the box beside reading it: work with devices, and nothing
//! to the daemon, whose user it has.
//!
//! What it is kept from, a driver's library has no use for: each refusal is an error to
//! it (`EPERM`, `EACCES`), and never its end. Not kept from it is reading.

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    path_beneath_rules,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};
use std::collections::BTreeMap;
use std::io;

/// Below these it may make, change and remove files, as far as their modes and the unit
/// let it. The store, the rules and the sockets lie elsewhere.
const WRITABLE: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What it may not do at all.
const REFUSED: [libc::c_long; 16] = [
    // Signals. A library that gives up sends one to itself, by `tgkill` (`raise(3)`).
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    // Whose a file is and who may open it: Landlock sees none of these.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    // Priorities of all of a user's processes at once.
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    // It would do some of the above past this filter.
    libc::SYS_io_uring_setup,
];

/// Since Linux 6.6, by this number everywhere; libc does not have it for all.
const FCHMODAT2: libc::c_long = 452;

/// What it may do to itself alone, named by 0 as the first argument, and not to others
/// of its user: limits, cores, scheduling.
const TO_ITSELF: [libc::c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Confines the calling thread and every one that it starts from now on.
///
/// # Errors
/// When the kernel has no filters of system calls. One without Landlock (before 5.13, or
/// switched off) is none: then the sensor could write to what the daemon's user owns.
pub(super) fn confine() -> io::Result<()> {
    keep_to_devices().map_err(io::Error::other)?;
    let filter = filter().map_err(io::Error::other)?;
    apply_filter(&filter).map_err(io::Error::other)
}

fn keep_to_devices() -> Result<(), RulesetError> {
    // With truncating, which Linux 6.2 can refuse; older kernels refuse what they know.
    let writing = AccessFs::from_write(ABI::V3);
    Ruleset::default()
        .handle_access(writing)?
        .create()?
        .add_rules(path_beneath_rules(WRITABLE, writing))?
        .restrict_self()?;
    Ok(())
}

fn filter() -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::from(REFUSED.map(|call| (call, Vec::new())));
    for call in TO_ITSELF {
        rules.insert(call, vec![of_another_than(0)?]);
    }
    let own = vec![of_another_than(std::process::id())?];
    rules.insert(libc::SYS_tgkill, own);
    #[cfg(target_arch = "x86_64")]
    for old in [libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown] {
        rules.insert(old, Vec::new());
    }
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let machine = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refused, machine)?.try_into()
}

/// Where the first argument is another pid than this.
fn of_another_than(pid: u32) -> Result<SeccompRule, BackendError> {
    let first = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, pid.into())?;
    SeccompRule::new(vec![first])
}
