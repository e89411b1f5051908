//! The system calls that the daemon's children may not make, as kernel filters (seccomp(2)).

use gpukill_proto::collect::IntoMap as _;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};
use std::collections::BTreeMap;

/// The calls that are refused with any arguments.
const REFUSED_CALLS: [libc::c_long; 33] = [
    // Signals. A library that aborts signals itself, with `tgkill` (`raise(3)`).
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    // Memory and descriptors of other processes: without Landlock nothing else protects a daemon
    // that a person started, which has no capabilities either.
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    // Owner, permissions and times of files: Landlock does not cover these.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_utimensat,
    // A lock on a file of the store needs no write access, and would stop the recording.
    libc::SYS_flock,
    // The daemon's clients, the reset helper and journald identify the peer of a socket, and would
    // see the daemon's user. NVML uses a socket for persistence mode, only to set it.
    libc::SYS_socket,
    // Leaving the process group that is ended with the sensor.
    libc::SYS_setsid,
    libc::SYS_setpgid,
    // In a namespace of its own the process would have every capability.
    libc::SYS_unshare,
    // Priorities of all processes of a user at once, and their keys.
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_keyctl,
    // It would allow some of the above past this filter.
    libc::SYS_io_uring_setup,
];

/// The same with the legacy calls, which other architectures never had.
#[cfg(target_arch = "x86_64")]
const LEGACY_CALLS: [libc::c_long; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY_CALLS: [libc::c_long; 0] = [];

/// Since Linux 6.6, 6.13 and 6.17, with the same numbers on every architecture; libc does not
/// define them for all.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// Calls that a process may apply only to itself, with 0 as the first argument, and not to other
/// processes of its user: limits, cores, scheduling.
const OWN_PROCESS_ONLY: [libc::c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Whether record locks without waiting (`F_SETLK`) are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordLocks {
    /// Refused. NVML locks the log that it writes in debug mode.
    Refused,
    /// Allowed: SQLite locks the files that it reads.
    Allowed,
}

/// Refused `fcntl` commands: those that make the kernel send a signal to another process when a
/// descriptor is ready (`F_SETOWN`; `F_SETSIG` makes it SIGKILL), and other kinds of file locks.
const REFUSED_FCNTL: [libc::c_int; 8] = [
    libc::F_SETOWN,
    F_SETSIG,
    F_SETOWN_EX,
    libc::F_SETLKW,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_SETLEASE,
    libc::F_NOTIFY,
];

/// From the kernel's `fcntl.h` (asm-generic).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

/// Refused `ioctl` requests: the equivalents of `F_SETOWN` (`FIOSETOWN`, `SIOCSPGRP`), and those
/// that type into the terminal from which a daemon was started (`TIOCSTI`, `TIOCLINUX`).
const REFUSED_IOCTL: [u64; 4] = [0x8901, 0x8902, 0x5412, 0x541c];

/// Refused `ioctl` types (the second byte): those with which the owner of a file changes it without
/// opening it for writing (`f`, `v`, `X`; 0x94 is btrfs). NVIDIA's type is `F`.
const REFUSED_IOCTL_TYPES: [u64; 4] = [0x6600, 0x7600, 0x5800, 0x9400];

/// With these a new process would be a child of the daemon, or root of its own namespace.
const REFUSED_CLONE_FLAGS: [libc::c_int; 2] = [libc::CLONE_PARENT, libc::CLONE_NEWUSER];

/// From here on x86 has second numbers for the same calls (x32), if the kernel was built with them.
const X32_CALLS: u32 = 0x4000_0000;

/// The filters to apply, in this order.
pub(super) fn filters(locks: RecordLocks) -> Result<[BpfProgram; 2], BackendError> {
    // The call hides its flags in memory. A caller that gets ENOSYS falls back to `clone`.
    let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([
        compile(hidden, libc::ENOSYS)?,
        refuse_x32_calls(compile(refusal_rules(locks)?, libc::EPERM)?),
    ])
}

type CallRules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

fn refusal_rules(locks: RecordLocks) -> Result<CallRules, BackendError> {
    let mut rules: CallRules = REFUSED_CALLS
        .into_iter()
        .chain(LEGACY_CALLS)
        .map(|call| (call, Vec::new()))
        .into_map();
    for call in OWN_PROCESS_ONLY {
        rules.insert(call, vec![first_argument_is(SeccompCmpOp::Ne, 0)?]);
    }
    let own = first_argument_is(SeccompCmpOp::Ne, std::process::id().into())?;
    rules.insert(libc::SYS_tgkill, vec![own]);

    let bit = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        first_argument_is(SeccompCmpOp::MaskedEq(flag), flag)
    };
    let clone: Result<_, _> = REFUSED_CLONE_FLAGS.into_iter().map(bit).collect();
    rules.insert(libc::SYS_clone, clone?);

    let command =
        |command: libc::c_int| second_argument_is(SeccompCmpOp::Eq, command.unsigned_abs().into());
    let lock = (locks == RecordLocks::Refused).then_some(libc::F_SETLK);
    let fcntl: Result<_, _> = REFUSED_FCNTL.into_iter().chain(lock).map(command).collect();
    rules.insert(libc::SYS_fcntl, fcntl?);

    let one = |request| second_argument_is(SeccompCmpOp::Eq, request);
    let kind = |kind| second_argument_is(SeccompCmpOp::MaskedEq(0xff00), kind);
    let kinds = REFUSED_IOCTL_TYPES.into_iter().map(kind);
    let ioctl: Result<_, _> = REFUSED_IOCTL.into_iter().map(one).chain(kinds).collect();
    rules.insert(libc::SYS_ioctl, ioctl?);
    Ok(rules)
}

fn compile(rules: CallRules, refusal: libc::c_int) -> Result<BpfProgram, BackendError> {
    let refused = SeccompAction::Errno(refusal.unsigned_abs());
    let machine = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refused, machine)?.try_into()
}

/// Prepends a check that refuses calls with the other numbers. The jumps of the program are
/// relative.
fn refuse_x32_calls(program: BpfProgram) -> BpfProgram {
    let step = |code: u32, if_not, k| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf: if_not,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let number_at = 0;
    let mut filter = vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, number_at),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32_CALLS),
        step(libc::BPF_RET | libc::BPF_K, 0, refused),
    ];
    filter.extend(program);
    filter
}

fn first_argument_is(operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    argument_is(0, operator, value)
}

fn second_argument_is(operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    argument_is(1, operator, value)
}

/// Compares the lower half of this argument.
fn argument_is(at: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(at, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}
