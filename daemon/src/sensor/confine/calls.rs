//! The system calls that the daemon's children may not make, as filters of the kernel's
//! (seccomp(2)).

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};
use std::collections::BTreeMap;

/// What they may not do at all.
const REFUSED: [libc::c_long; 33] = [
    // Signals. A library that gives up sends one to itself, by `tgkill` (`raise(3)`).
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    // Others' memory and descriptors; where there is no Landlock nothing else keeps it
    // from a daemon that a person started, and that has no capability either.
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    // Whose a file is, who may open it, and its times: Landlock sees none of these.
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
    // A lock on a file of the store, which needs no right to write, would stop the record.
    libc::SYS_flock,
    // The daemon's clients, the reset helper and journald ask a socket who is there, and
    // would hear the daemon's user. NVML has one for persistence mode, to set it.
    libc::SYS_socket,
    // Out of the group of processes that is ended with it.
    libc::SYS_setsid,
    libc::SYS_setpgid,
    // In a namespace of its own it would have every capability.
    libc::SYS_unshare,
    // Priorities of all of a user's processes at once, and their keys.
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_keyctl,
    // It would do some of the above past this filter.
    libc::SYS_io_uring_setup,
];

/// The same by the calls of old, which other machines never had.
#[cfg(target_arch = "x86_64")]
const OLD: [libc::c_long; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: [libc::c_long; 0] = [];

/// Since Linux 6.6, 6.13 and 6.17, by these numbers everywhere; libc does not have them
/// for all.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// What it may do to itself alone, named by 0 as the first argument, and not to others
/// of its user: limits, cores, scheduling.
const TO_ITSELF: [libc::c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Whether parts of open files may be locked without waiting (`F_SETLK`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    /// They may not. NVML locks the log that it writes when it is debugged.
    Refused,
    /// They may: whoever reads a file of SQLite's locks it.
    OfRecords,
}

/// What `fcntl` may not do: have the kernel send somebody a signal when a descriptor is
/// ready (`F_SETOWN`; `F_SETSIG` makes it SIGKILL), and lock files in other ways.
const FCNTL: [libc::c_int; 8] = [
    libc::F_SETOWN,
    F_SETSIG,
    F_SETOWN_EX,
    libc::F_SETLKW,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_SETLEASE,
    libc::F_NOTIFY,
];

/// By `fcntl.h` of the kernel's (asm-generic).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

/// What `ioctl` may not do: the same as `F_SETOWN` (`FIOSETOWN`, `SIOCSPGRP`), and type on
/// the terminal that a daemon was started on (`TIOCSTI`, `TIOCLINUX`).
const IOCTL: [u64; 4] = [0x8901, 0x8902, 0x5412, 0x541c];

/// Of which kinds (the second byte) an `ioctl` may not be: those by which a file's owner
/// changes it without opening it for writing (`f`, `v`, `X`; 0x94 is btrfs). NVIDIA's is `F`.
const IOCTL_OF_FILES: [u64; 4] = [0x6600, 0x7600, 0x5800, 0x9400];

/// With these a new process would be the daemon's child, or root of its own namespace.
const CLONE: [libc::c_int; 2] = [libc::CLONE_PARENT, libc::CLONE_NEWUSER];

/// From here on x86 has numbers of a second kind for the same calls (x32), where its
/// kernel was built with them.
const OTHER_NUMBERS: u32 = 0x4000_0000;

/// What to have the kernel apply, one after the other.
pub(super) fn filters(locks: Locks) -> Result<[BpfProgram; 2], BackendError> {
    // It hides its flags in memory. Whoever hears that it is not there uses `clone`.
    let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([
        compile(hidden, libc::ENOSYS)?,
        without_other_numbers(compile(refused(locks)?, libc::EPERM)?),
    ])
}

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

fn refused(locks: Locks) -> Result<Rules, BackendError> {
    let mut rules: Rules = REFUSED
        .into_iter()
        .chain(OLD)
        .map(|call| (call, Vec::new()))
        .collect();
    for call in TO_ITSELF {
        rules.insert(call, vec![first_is(SeccompCmpOp::Ne, 0)?]);
    }
    let own = first_is(SeccompCmpOp::Ne, std::process::id().into())?;
    rules.insert(libc::SYS_tgkill, vec![own]);

    let bit = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        first_is(SeccompCmpOp::MaskedEq(flag), flag)
    };
    let clone: Result<_, _> = CLONE.into_iter().map(bit).collect();
    rules.insert(libc::SYS_clone, clone?);

    let command = |command: libc::c_int| second_is(SeccompCmpOp::Eq, command.unsigned_abs().into());
    let lock = (locks == Locks::Refused).then_some(libc::F_SETLK);
    let fcntl: Result<_, _> = FCNTL.into_iter().chain(lock).map(command).collect();
    rules.insert(libc::SYS_fcntl, fcntl?);

    let one = |request| second_is(SeccompCmpOp::Eq, request);
    let kind = |kind| second_is(SeccompCmpOp::MaskedEq(0xff00), kind);
    let kinds = IOCTL_OF_FILES.into_iter().map(kind);
    let ioctl: Result<_, _> = IOCTL.into_iter().map(one).chain(kinds).collect();
    rules.insert(libc::SYS_ioctl, ioctl?);
    Ok(rules)
}

fn compile(rules: Rules, refusal: libc::c_int) -> Result<BpfProgram, BackendError> {
    let refused = SeccompAction::Errno(refusal.unsigned_abs());
    let machine = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refused, machine)?.try_into()
}

/// Puts before it that calls by other numbers fail. Its jumps are relative.
fn without_other_numbers(program: BpfProgram) -> BpfProgram {
    let step = |code: u32, if_not, k| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf: if_not,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let number_at = 0;
    let mut whole = vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, number_at),
        step(
            libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
            1,
            OTHER_NUMBERS,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, refused),
    ];
    whole.extend(program);
    whole
}

fn first_is(how: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    argument_is(0, how, value)
}

fn second_is(how: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    argument_is(1, how, value)
}

/// Where the lower half of this argument compares so.
fn argument_is(at: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(at, SeccompCmpArgLen::Dword, how, value)?;
    SeccompRule::new(vec![condition])
}
