//! Scans processes below `/proc`, by device number and not by name.

use super::DeviceNumber;
use super::descriptors::{
    DIRECTORY, DescriptorReader, descriptor_count, parse_number, skip_reason,
};
use super::scanner::{
    FdScanner, FileScope, PidList, PidRange, ProcessActivity, ProcessScan, ScanEffort, SkipReason,
};
use crate::procfs::stat::Stat;
use gpukill_proto::collect::SortIndirect as _;
use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    Mode, OFlags, PROC_SUPER_MAGIC, RawDir, SeekFrom, fstat, fstatfs, open, openat, readlinkat_raw,
    seek,
};
use rustix::io::Errno;
use rustix::path::DecInt;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x20_0000;

/// How many descriptors of a process are read, on any file: a quarter of a second.
const MAX_DESCRIPTORS: usize = 65_536;

/// How many processes are listed; an excess is reported.
const MAX_PROCESSES: usize = 200_000;

/// The initial PID namespace of a kernel always has this number (`include/uapi/linux/nsfs.h`).
const INITIAL_PID_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// A process tree: `/proc` except in tests.
pub(super) struct ProcfsScanner {
    root: OwnedFd,
    /// Whether this is a procfs, and not a directory that looks like one.
    is_procfs: bool,
    /// Whether this is the procfs of the daemon's own PID namespace.
    is_own_namespace: bool,
    /// Whether the kernel reports the number of a process's descriptors: since 6.2.
    counts_descriptors: bool,
    /// Whether process 1 is that of the host, and not of a container.
    sees_host_init: bool,
    bounds: ScanBounds,
    /// Grows with each scan, so that each starts at other threads.
    scan_count: AtomicU32,
}

/// The limits; other values than [`ScanBounds::DEFAULT`] only in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScanBounds {
    processes: usize,
    descriptors: usize,
}

impl ScanBounds {
    const DEFAULT: Self = Self {
        processes: MAX_PROCESSES,
        descriptors: MAX_DESCRIPTORS,
    };
}

impl ProcfsScanner {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let root = open(root, DIRECTORY, Mode::empty())?;
        let is_procfs = fstatfs(&root).is_ok_and(|of| of.f_type == PROC_SUPER_MAGIC);
        let mut buffer = [MaybeUninit::uninit(); 32];
        let own = std::process::id().to_string();
        let is_own = readlinkat_raw(&root, c"self", &mut buffer)
            .is_ok_and(|(target, _)| target == own.as_bytes());
        // The link `self` resolves only in the procfs of a namespace that the daemon is in.
        let sees_host_init = readlinkat_raw(&root, c"self/ns/pid", &mut buffer)
            .is_ok_and(|(target, _)| target == INITIAL_PID_NAMESPACE);
        let own = openat(&root, c"self", DIRECTORY, Mode::empty());
        // The daemon itself has some.
        let counts_descriptors =
            own.is_ok_and(|own| descriptor_count(&own).is_some_and(|own| own > 0));
        Ok(Self {
            root,
            is_procfs,
            is_own_namespace: is_own,
            counts_descriptors,
            sees_host_init,
            bounds: ScanBounds::DEFAULT,
            scan_count: AtomicU32::new(0),
        })
    }

    /// A process's directory. All other files are opened relative to it: it stays with that
    /// process, and is empty when the process has ended, even if the PID is reused
    /// (`proc_pid_make_inode` in `fs/proc/base.c` keeps the process).
    fn process(&self, pid: u32) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.root, DecInt::new(pid), flags, Mode::empty())
    }
}

impl FdScanner for ProcfsScanner {
    fn newest_pid(&self) -> Option<u32> {
        // The value is of the reader's namespace, not of this procfs.
        if !(self.is_procfs && self.is_own_namespace) {
            return None;
        }
        let mut buffer = [0; 128];
        let text = read_start(&self.root, c"loadavg", &mut buffer).ok()?;
        let last = text.trim_ascii_end().rsplit(|byte| *byte == b' ').next()?;
        std::str::from_utf8(last).ok()?.parse().ok()
    }

    fn activity(&self, pid: u32) -> Option<ProcessActivity> {
        // The clock id names a process of the daemon's own namespace.
        if !(self.is_procfs && self.is_own_namespace && self.counts_descriptors) {
            return None;
        }
        let descriptors = descriptor_count(&self.process(pid).ok()?)?;
        let pid = Pid::from_raw(pid.try_into().ok()?);
        let ran = ClockId::pid_cpu_clock_id(pid).ok()?.now().ok()?;
        let seconds = u64::try_from(ran.tv_sec()).ok()?;
        let rest = u64::try_from(ran.tv_nsec()).ok()?;
        let time = seconds.checked_mul(1_000_000_000)?.checked_add(rest)?;
        ProcessActivity::new(time, descriptors)
    }

    fn list_pids(&self, which: PidRange) -> io::Result<PidList> {
        let directory = openat(&self.root, c".", DIRECTORY, Mode::empty())?;
        let (mut after, mut until) = (0, u32::MAX);
        if let PidRange::Between(first, last) = which {
            (after, until) = (first, last);
            // The kernel's position in this directory is a PID plus a small number (`TGID_OFFSET`
            // in `fs/proc/base.c`): this is before those.
            seek(&directory, SeekFrom::Start(first.into()))?;
        }
        let mut pids = Vec::new();
        let mut is_cut = false;
        let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
        // The kernel fills the buffer even with entries beyond the range.
        let size = match which {
            PidRange::All => buffer.len(),
            PidRange::Between(..) => 1_024,
        };
        let mut entries = RawDir::new(&directory, &mut buffer[..size]);
        while let Some(entry) = entries.next() {
            let Some(pid) = parse_number(entry?.file_name()) else {
                continue;
            };
            // The kernel lists PIDs in ascending order.
            if self.is_procfs && pid > until {
                break;
            }
            if pids.len() >= self.bounds.processes {
                is_cut = true;
                break;
            }
            if pid > after && pid <= until {
                pids.push(pid);
            }
        }
        pids.sort_indirect();
        // Every PID namespace has a process 1; `hidepid=` hides the processes of other users.
        let first_missing = which == PidRange::All && pids.first() != Some(&1);
        Ok(PidList {
            pids,
            others_hidden: self.is_procfs && first_missing,
            is_truncated: is_cut,
        })
    }

    fn scan_process(
        &self,
        pid: u32,
        numbers: &[DeviceNumber],
        scope: FileScope,
        effort: ScanEffort,
        threads: &[u32],
    ) -> ProcessScan {
        let threads = ThreadSelection {
            effort,
            known: threads,
            scan_number: self.scan_count.fetch_add(1, Ordering::Relaxed),
        };
        let descriptors = DescriptorReader::new(numbers, scope, self.bounds.descriptors);
        match self
            .process(pid)
            .and_then(|it| scan_directory(&it, descriptors, threads))
        {
            Ok(scan) => self.classify_denied(pid, scan),
            Err(Errno::NOENT | Errno::SRCH | Errno::NOTDIR) => ProcessScan::Gone,
            // Without its start time it cannot be identified.
            Err(error) => ProcessScan::Process {
                start_ticks: 0,
                uid: 0,
                name: String::new(),
                descriptors: 0,
                opens: Vec::new(),
                skipped: Some(skip_reason(error)),
            },
        }
    }

    fn hides_processes(&self) -> bool {
        // As for a list of all processes: process 1 always exists.
        self.is_procfs && self.process(1).is_err()
    }
}

impl ProcfsScanner {
    /// Decides whether a denied process leaves the result incomplete, and whether it belongs to the
    /// daemon's own user.
    fn classify_denied(&self, pid: u32, mut scan: ProcessScan) -> ProcessScan {
        if let ProcessScan::Process {
            uid,
            name,
            skipped: missed,
            ..
        } = &mut scan
            && *missed == Some(SkipReason::NotPermitted)
        {
            if pid == 1 && self.sees_host_init && INIT_NAMES.contains(&name.as_str()) {
                *missed = None;
            } else if *uid == rustix::process::geteuid().as_raw() {
                *missed = Some(SkipReason::OwnNotPermitted);
            }
        }
        scan
    }
}

/// The kernel's names for process 1 of a host. It does not use a device itself; the files that it
/// keeps open for logind (`FDSTORE=1` of `sd_notify(3)`) logind has open, too.
const INIT_NAMES: [&str; 5] = ["systemd", "init", "openrc-init", "runit", "dinit"];

/// The threads to scan in addition to the first one.
#[derive(Clone, Copy)]
struct ThreadSelection<'a> {
    effort: ScanEffort,
    /// Threads known to have devices in descriptors of their own.
    known: &'a [u32],
    /// Selects the other threads that come first.
    scan_number: u32,
}

fn scan_directory(
    process: &OwnedFd,
    mut descriptors: DescriptorReader<'_>,
    threads: ThreadSelection<'_>,
) -> rustix::io::Result<ProcessScan> {
    let stat = read_stat(process)?;
    if stat.flags & KERNEL_THREAD != 0 {
        return Ok(ProcessScan::KernelThread);
    }
    if has_ended(&stat) {
        return Ok(ProcessScan::Gone);
    }
    if stat.state == 'Z' {
        descriptors.read_surviving_threads(process);
    } else {
        descriptors.read_table(process, None);
        if stat.threads > 1 {
            if threads.effort == ScanEffort::AllThreads {
                descriptors.read_unshared_threads(process);
            }
            descriptors.compare_threads(
                process,
                threads.known,
                threads.scan_number,
                threads.effort,
            );
        }
    }
    // It may have ended meanwhile: an empty table then says nothing about earlier descriptors.
    if descriptors.read_count == 0 && openat(process, c"stat", OFlags::PATH, Mode::empty()).is_err()
    {
        return Ok(ProcessScan::Gone);
    }
    descriptors.opens.sort_indirect();
    descriptors.opens.dedup();
    Ok(ProcessScan::Process {
        start_ticks: stat.start_ticks,
        // The directory always belongs to the effective user, even where the process hides itself
        // (`task_dump_owner` in `fs/proc/base.c`).
        uid: fstat(process)?.st_uid,
        name: stat.name,
        descriptors: descriptors.read_count,
        opens: descriptors.opens,
        skipped: descriptors.skipped,
    })
}

/// Whether only the exit status is left for the parent.
fn has_ended(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X' | 'x') && stat.threads <= 1
}

fn read_stat(process: &OwnedFd) -> rustix::io::Result<Stat> {
    let mut buffer = [0; 1024];
    let text = read_start(process, c"stat", &mut buffer)?;
    // A process that ends shows nothing, or garbage.
    Stat::parse(text).ok_or(Errno::SRCH)
}

/// Reads the beginning of a file that the kernel provides without blocking.
fn read_start<'a>(
    directory: impl AsFd,
    name: &CStr,
    buffer: &'a mut [u8],
) -> rustix::io::Result<&'a [u8]> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(directory, name, flags, Mode::empty())?;
    let length = rustix::io::read(file, &mut *buffer)?;
    Ok(buffer.get(..length).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::OpenDescriptor;
    use super::super::descriptors::MAX_OPENS_PER_DEVICE;
    use super::*;
    use std::fs::{File, create_dir_all, write};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use tempfile::TempDir;

    /// `/dev/full`, with the same number on every Linux.
    const FULL: DeviceNumber = DeviceNumber { major: 1, minor: 7 };
    const NULL: DeviceNumber = DeviceNumber { major: 1, minor: 3 };

    struct FakeProcfs(TempDir);

    impl FakeProcfs {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn process(&self, pid: u32, state: char, flags: u32, threads: u32) -> PathBuf {
            let directory = self.0.path().join(pid.to_string());
            create_dir_all(directory.join("fd")).unwrap();
            let text = format!(
                "{pid} (x) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 900 0 0"
            );
            write(directory.join("stat"), text).unwrap();
            directory
        }

        fn scan(&self, pid: u32, scope: FileScope) -> ProcessScan {
            let tree = ProcfsScanner::open(self.0.path()).unwrap();
            tree.scan_process(pid, &[FULL, NULL], scope, ScanEffort::FirstThread, &[])
        }
    }

    fn open(fd: u32, number: DeviceNumber, thread: Option<u32>) -> OpenDescriptor {
        OpenDescriptor { number, fd, thread }
    }

    fn process(
        descriptors: usize,
        opens: Vec<OpenDescriptor>,
        missed: Option<SkipReason>,
    ) -> ProcessScan {
        ProcessScan::Process {
            start_ticks: 900,
            uid: rustix::process::geteuid().as_raw(),
            name: "x".to_owned(),
            descriptors,
            opens,
            skipped: missed,
        }
    }

    fn scan(tree: &ProcfsScanner, pid: u32, effort: ScanEffort) -> ProcessScan {
        tree.scan_process(pid, &[FULL], FileScope::AnyFile, effort, &[])
    }

    /// The descriptors of a process that exists.
    fn opens_of(tree: &ProcfsScanner, pid: u32, effort: ScanEffort) -> Vec<OpenDescriptor> {
        match scan(tree, pid, effort) {
            ProcessScan::Process { opens, .. } => opens,
            ProcessScan::Gone | ProcessScan::KernelThread => panic!("it is there"),
        }
    }

    #[test]
    fn device_is_known_by_number() {
        let it = FakeProcfs::new();
        let directory = it.process(7, 'S', 0, 1);
        let alias = it.0.path().join("a GPU");
        symlink("/dev/full", &alias).unwrap();
        write(it.0.path().join("full"), "no device").unwrap();
        let targets = [
            (3, Path::new("/dev/full")),
            (4, &alias),
            (5, Path::new("/dev/null")),
            (6, Path::new("/dev/zero")),
            (7, &it.0.path().join("full")),
            (8, Path::new("socket:[81]")),
            (9, Path::new("/dev/gone")),
        ];
        for (fd, target) in targets {
            symlink(target, directory.join(format!("fd/{fd}"))).unwrap();
        }
        let opens = vec![open(5, NULL, None), open(3, FULL, None)];
        assert_eq!(
            it.scan(7, FileScope::OnlyDev),
            process(7, opens.clone(), Some(SkipReason::OutsideDev))
        );
        let opens = vec![opens[0], opens[1], open(4, FULL, None)];
        assert_eq!(it.scan(7, FileScope::AnyFile), process(7, opens, None));
    }

    #[test]
    fn host_init_hides_nothing_container_init_may() {
        let it = FakeProcfs::new();
        let us = rustix::process::geteuid().as_raw();
        let scan = |name: &str, uid, missed| ProcessScan::Process {
            start_ticks: 900,
            uid,
            name: name.to_owned(),
            descriptors: 1,
            opens: Vec::new(),
            skipped: missed,
        };
        let own = it.0.path().join("self/ns/pid");
        create_dir_all(own.parent().unwrap()).unwrap();
        let tree_in = |namespace: Option<&str>| {
            let _ = std::fs::remove_file(&own);
            if let Some(namespace) = namespace {
                symlink(namespace, &own).unwrap();
            }
            ProcfsScanner::open(it.0.path()).unwrap()
        };
        let host = tree_in(Some("pid:[4026531836]"));
        let elsewhere = [tree_in(Some("pid:[4026532281]")), tree_in(None)];
        let refused = Some(SkipReason::NotPermitted);
        let own = Some(SkipReason::OwnNotPermitted);
        let cases = [
            (true, 1, "systemd", us, refused, None),
            (true, 1, "init", us + 1, refused, None),
            (
                true,
                1,
                "systemd",
                us,
                Some(SkipReason::TooMany),
                Some(SkipReason::TooMany),
            ),
            (true, 1, "python", us, refused, own),
            (true, 7, "systemd", us, refused, own),
            (true, 7, "systemd", us + 1, refused, refused),
            (false, 1, "systemd", us, refused, own),
            (false, 1, "systemd", us + 1, refused, refused),
        ];
        for (is_host, pid, name, uid, missed, expected) in cases {
            let trees = if is_host {
                std::slice::from_ref(&host)
            } else {
                elsewhere.as_slice()
            };
            for tree in trees {
                let classified = tree.classify_denied(pid, scan(name, uid, missed));
                let case = (is_host, pid, name, uid, missed);
                assert_eq!(classified, scan(name, uid, expected), "{case:?}");
            }
        }
    }

    #[test]
    fn real_process_is_scanned() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let pid = std::process::id();
        let it = FakeProcfs::new();
        let itself = it.0.path().join(pid.to_string());
        symlink(format!("/proc/{pid}"), itself).unwrap();
        let tree = ProcfsScanner::open(it.0.path()).unwrap();
        let scan = scan(&tree, pid, ScanEffort::FirstThread);
        let ProcessScan::Process {
            start_ticks,
            uid,
            descriptors,
            opens,
            skipped: missed,
            ..
        } = scan
        else {
            panic!("it is there");
        };
        let fd = full.as_raw_fd().cast_unsigned();
        assert!(opens.contains(&open(fd, FULL, None)));
        let stat = read_stat(&tree.process(pid).unwrap()).unwrap();
        assert_eq!((start_ticks, missed), (stat.start_ticks, None));
        let own = rustix::process::geteuid().as_raw();
        assert!(uid == own && descriptors > 3, "{uid} {descriptors}");
    }

    #[test]
    fn unshared_thread_is_scanned_on_demand() {
        let tree = ProcfsScanner::open(Path::new("/proc")).unwrap();
        let pid = std::process::id();
        let (sender, receiver) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            #[expect(
                deprecated,
                reason = "the newer one is unsafe: this thread opens its own"
            )]
            rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).unwrap();
            let own = [(); 40].map(|()| File::options().write(true).open("/dev/full").unwrap());
            let fds = own.each_ref().map(|it| it.as_raw_fd().cast_unsigned());
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            sender.send((thread.cast_unsigned(), fds)).unwrap();
            // Its end closes them.
            released.recv().unwrap_err();
        });
        let (number, fds) = receiver.recv().unwrap();
        let opens = opens_of(&tree, pid, ScanEffort::AllThreads).into_iter();
        let own = opens.filter(|it| it.thread == Some(number));
        let descriptors: Vec<u32> = own.map(|it| it.fd).collect();
        drop(release);
        thread.join().unwrap();
        if std::fs::metadata("/proc/self/fd").unwrap().len() == 0 {
            eprintln!("skipped: this kernel does not tell how many descriptors there are");
            return;
        }
        assert!(
            fds.iter().all(|fd| descriptors.contains(fd)),
            "{descriptors:?}"
        );
    }

    /// The part of a process in the next test.
    const PART: &str = "GPUKILL_THREAD_PART";

    #[test]
    fn thread_part() {
        if std::env::var_os(PART).is_none() {
            return;
        }
        let mut shared = Some(File::open("/dev/null").unwrap());
        let threads: Vec<_> = (0..40)
            .map(|number| {
                let shared = shared.take_if(|_| number == 20);
                std::thread::spawn(move || {
                    if shared.is_some() {
                        #[expect(
                            deprecated,
                            reason = "the newer one is unsafe: this thread replaces its own"
                        )]
                        rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).unwrap();
                        // The same number as the other threads, but one other file.
                        drop(shared);
                        let _full = File::open("/dev/full").unwrap();
                        std::thread::sleep(std::time::Duration::from_secs(600));
                    }
                    std::thread::sleep(std::time::Duration::from_secs(600));
                })
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
    }

    #[test]
    fn equal_sized_unshared_table_is_found_soon() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fd_scan::procfs_scanner::tests::thread_part"])
            .env(PART, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let tree = ProcfsScanner::open(Path::new("/proc")).unwrap();
        let scan = |threads: &[u32]| {
            let effort = ScanEffort::FirstThread;
            match tree.scan_process(child.id(), &[FULL], FileScope::AnyFile, effort, threads) {
                ProcessScan::Process { opens, .. } => opens,
                ProcessScan::Gone | ProcessScan::KernelThread => Vec::new(),
            }
        };
        let is_there = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id()));
            let tasks = tasks.into_iter().flatten().flatten();
            let fds = tasks.flat_map(|task| std::fs::read_dir(task.path().join("fd")));
            let mut links = fds
                .flatten()
                .flatten()
                .map(|fd| std::fs::read_link(fd.path()));
            links.any(|link| link.is_ok_and(|link| link == Path::new("/dev/full")))
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !is_there() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let found = (0..16).map(|_| scan(&[])).find(|opens| !opens.is_empty());
        let thread = found.as_ref().and_then(|opens| opens[0].thread);
        // A known thread is read at each scan.
        let known: Vec<u32> = thread.into_iter().collect();
        let again: Vec<Vec<OpenDescriptor>> = (0..4).map(|_| scan(&known)).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert_eq!(found, [open(found[0].fd, FULL, thread)]);
        assert!(thread.is_some());
        assert!(again.iter().all(|opens| *opens == found), "{again:?}");
    }

    #[test]
    fn process_without_descriptors_is_distinguished() {
        let it = FakeProcfs::new();
        it.process(2, 'S', 0x20_8040, 1);
        it.process(3, 'Z', 0, 1);
        create_dir_all(it.0.path().join("4")).unwrap();
        it.process(5, 'S', 0, 1);
        let scans = [2, 3, 4, 5, 6].map(|pid| it.scan(pid, FileScope::AnyFile));
        let expected = [
            ProcessScan::KernelThread,
            ProcessScan::Gone,
            ProcessScan::Gone,
            process(0, vec![], None),
            ProcessScan::Gone,
        ];
        assert_eq!(scans, expected);
    }

    #[test]
    fn living_thread_shows_files_of_ended_first() {
        let it = FakeProcfs::new();
        let directory = it.process(7, 'Z', 0, 3);
        for thread in [7, 8] {
            create_dir_all(directory.join(format!("task/{thread}/fd"))).unwrap();
        }
        symlink("/dev/full", directory.join("task/8/fd/5")).unwrap();
        let opens = vec![open(5, FULL, Some(8))];
        assert_eq!(it.scan(7, FileScope::AnyFile), process(1, opens, None));
    }

    #[test]
    fn some_descriptors_of_every_device_are_kept() {
        let it = FakeProcfs::new();
        let directory = it.process(7, 'S', 0, 1);
        let many = u32::try_from(MAX_OPENS_PER_DEVICE).unwrap() + 5;
        for fd in 0..many {
            symlink("/dev/full", directory.join(format!("fd/{fd}"))).unwrap();
        }
        symlink("/dev/null", directory.join(format!("fd/{many}"))).unwrap();
        let ProcessScan::Process { opens, .. } = it.scan(7, FileScope::AnyFile) else {
            panic!("it is there");
        };
        assert_eq!(opens.len(), MAX_OPENS_PER_DEVICE + 1);
        assert!(opens.contains(&open(many, NULL, None)));
    }

    #[test]
    fn path_only_descriptor_is_not_open() {
        let tree = ProcfsScanner::open(Path::new("/proc")).unwrap();
        let full = |flags| rustix::fs::open("/dev/full", flags, Mode::empty()).unwrap();
        let access_for_ioctl_only = OFlags::WRONLY | OFlags::RDWR;
        let open = [OFlags::RDONLY, OFlags::WRONLY, access_for_ioctl_only].map(full);
        let named = [OFlags::PATH, OFlags::PATH | OFlags::CLOEXEC].map(full);
        let pid = std::process::id();
        let opens = opens_of(&tree, pid, ScanEffort::FirstThread);
        let is_found = |fd: &OwnedFd| {
            opens
                .iter()
                .any(|open| open.fd.cast_signed() == fd.as_raw_fd())
        };
        assert_eq!(open.each_ref().map(is_found), [true; 3]);
        assert_eq!(named.each_ref().map(is_found), [false; 2]);
    }

    #[test]
    fn denied_process_is_not_an_empty_one() {
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: nothing is hidden from root");
            return;
        }
        let it = FakeProcfs::new();
        let directory = it.process(7, 'S', 0, 1).join("fd");
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o000)).unwrap();
        let scan = it.scan(7, FileScope::AnyFile);
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(scan, process(0, vec![], Some(SkipReason::OwnNotPermitted)));
    }

    #[test]
    fn lists_only_numeric_names() {
        let it = FakeProcfs::new();
        for name in ["12", "9", "self", "100", "loadavg"] {
            create_dir_all(it.0.path().join(name)).unwrap();
        }
        let tree = ProcfsScanner::open(it.0.path()).unwrap();
        let listed = PidList {
            pids: vec![9, 12, 100],
            others_hidden: false,
            is_truncated: false,
        };
        assert_eq!(tree.list_pids(PidRange::All).unwrap(), listed);
        assert_eq!(tree.newest_pid(), None);
        assert_eq!(tree.activity(9), None);
    }

    #[test]
    fn too_many_processes_truncate_the_list() {
        let it = FakeProcfs::new();
        for pid in 1..=4 {
            create_dir_all(it.0.path().join(pid.to_string())).unwrap();
        }
        let mut tree = ProcfsScanner::open(it.0.path()).unwrap();
        let real = ScanBounds {
            processes: 200_000,
            descriptors: 65_536,
        };
        assert_eq!(tree.bounds, real);
        for (processes, listed, is_cut) in [(3, 3, true), (4, 4, false)] {
            tree.bounds.processes = processes;
            let all = tree.list_pids(PidRange::All).unwrap();
            assert_eq!((all.pids.len(), all.is_truncated), (listed, is_cut));
        }
    }

    #[test]
    fn too_many_descriptors_are_reported() {
        let it = FakeProcfs::new();
        let directory = it.process(7, 'S', 0, 1);
        for fd in 0..4 {
            symlink("/dev/full", directory.join(format!("fd/{fd}"))).unwrap();
        }
        let mut tree = ProcfsScanner::open(it.0.path()).unwrap();
        for (most, reason) in [(3, Some(SkipReason::TooMany)), (4, None)] {
            tree.bounds.descriptors = most;
            let scan = scan(&tree, 7, ScanEffort::FirstThread);
            let ProcessScan::Process {
                descriptors,
                opens,
                skipped: missed,
                ..
            } = scan
            else {
                panic!("it is there");
            };
            assert_eq!((descriptors, opens.len(), missed), (most, most, reason));
        }
    }

    #[test]
    fn activity_changes_only_when_it_runs() {
        let tree = ProcfsScanner::open(Path::new("/proc")).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let stat_of = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !stat_of().contains("(cat) S") {
            std::thread::yield_now();
        }
        let before = tree.activity(pid).unwrap();
        assert_eq!(tree.activity(pid), Some(before));
        // It ends at the end of its input.
        drop(child.stdin.take());
        while !stat_of().contains("(cat) Z") {
            std::thread::yield_now();
        }
        assert_ne!(tree.activity(pid), Some(before));
        child.wait().unwrap();
        assert_eq!(tree.activity(pid), None);
        assert_ne!(tree.activity(std::process::id()), None);
        // A file that another process opens in a shared table takes no processor time here.
        assert_ne!(ProcessActivity::new(7, 3), ProcessActivity::new(7, 4));
        assert_ne!(ProcessActivity::new(7, 3), ProcessActivity::new(8, 3));
        assert_eq!(ProcessActivity::new(0, 3), None);
        let process = tree.process(std::process::id()).unwrap();
        assert_eq!(
            descriptor_count(&process).unwrap() > 0,
            tree.counts_descriptors
        );
    }

    #[test]
    fn new_process_is_between_newest_pids() {
        let tree = ProcfsScanner::open(Path::new("/proc")).unwrap();
        let before = tree.newest_pid().unwrap();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let newest = tree.newest_pid().unwrap();
        let all = tree.list_pids(PidRange::All).unwrap();
        let listed = tree.list_pids(PidRange::Between(child.id() - 1, child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(listed.unwrap().pids, [child.id()]);
        assert!(all.pids.is_sorted() && all.pids.contains(&child.id()));
        // Not after PIDs wrapped around.
        assert!(newest < before || (before + 1..=newest).contains(&child.id()));
    }

    #[test]
    fn activity_needs_the_own_namespace() {
        let mut tree = ProcfsScanner::open(Path::new("/proc")).unwrap();
        let pid = std::process::id();
        assert_eq!(tree.activity(pid).is_some(), tree.is_own_namespace);
        assert_eq!(tree.activity(u32::MAX), None);
        tree.is_own_namespace = false;
        assert_eq!((tree.activity(pid), tree.newest_pid()), (None, None));
        // A fake procfs has PIDs of its own.
        let made_up = FakeProcfs::new();
        made_up.process(pid, 'S', 0, 1);
        symlink(pid.to_string(), made_up.0.path().join("self")).unwrap();
        let tree = ProcfsScanner::open(made_up.0.path()).unwrap();
        assert!(tree.is_own_namespace);
        assert_eq!(tree.activity(pid), None);
    }
}
