//! Looking into processes below `/proc`, by numbers of devices, not by names.

use super::DeviceNumber;
use super::descriptors::{DIRECTORY, Descriptors, count, missed, number};
use super::look::{Care, Depth, Eyes, Listed, Looked, Missed, Ran, Which};
use crate::procfs::stat::Stat;
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

/// So many descriptors of a process are looked at, whatever they are open on: a
/// quarter of a second.
const DESCRIPTORS: usize = 65_536;

/// So many processes are listed: more are told of.
const PROCESSES: usize = 200_000;

/// The first PID namespace of a kernel always has this number
/// (`include/uapi/linux/nsfs.h`).
const FIRST_PID_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// A tree of processes: `/proc`, but in tests.
pub(super) struct Tree {
    root: OwnedFd,
    /// A `/proc`, and not a directory that looks like one.
    is_procfs: bool,
    /// The `/proc` of the PID namespace that this process is in.
    is_own: bool,
    /// Whether the kernel tells how many descriptors a process has: since 6.2.
    counts_descriptors: bool,
    /// Process 1 is the host's, and not what somebody runs in a container.
    has_hosts_first: bool,
    bounds: Bounds,
    /// Grows with each look: each begins at other threads.
    looks: AtomicU32,
}

/// How much is looked at; other than in [`Bounds::REAL`] only in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    processes: usize,
    descriptors: usize,
}

impl Bounds {
    const REAL: Self = Self {
        processes: PROCESSES,
        descriptors: DESCRIPTORS,
    };
}

impl Tree {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let root = open(root, DIRECTORY, Mode::empty())?;
        let is_procfs = fstatfs(&root).is_ok_and(|of| of.f_type == PROC_SUPER_MAGIC);
        let mut buffer = [MaybeUninit::uninit(); 32];
        let own = std::process::id().to_string();
        let is_own = readlinkat_raw(&root, c"self", &mut buffer)
            .is_ok_and(|(target, _)| target == own.as_bytes());
        // Only in the `/proc` of a namespace that we are in do we find ourselves.
        let has_hosts_first = readlinkat_raw(&root, c"self/ns/pid", &mut buffer)
            .is_ok_and(|(target, _)| target == FIRST_PID_NAMESPACE);
        let own = openat(&root, c"self", DIRECTORY, Mode::empty());
        // This one has some.
        let counts_descriptors = own.is_ok_and(|own| count(&own).is_some_and(|own| own > 0));
        Ok(Self {
            root,
            is_procfs,
            is_own,
            counts_descriptors,
            has_hosts_first,
            bounds: Bounds::REAL,
            looks: AtomicU32::new(0),
        })
    }

    /// A process's directory. All else is opened relative to it: it stays that
    /// process's own, and is empty when the process has ended, whoever gets the
    /// pid then (`proc_pid_make_inode` in `fs/proc/base.c` keeps the process).
    fn process(&self, pid: u32) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.root, DecInt::new(pid), flags, Mode::empty())
    }
}

impl Eyes for Tree {
    fn newest(&self) -> Option<u32> {
        // It is of the namespace of whoever reads it, not of this `/proc`.
        if !(self.is_procfs && self.is_own) {
            return None;
        }
        let mut buffer = [0; 128];
        let text = read(&self.root, c"loadavg", &mut buffer).ok()?;
        let last = text.trim_ascii_end().rsplit(|byte| *byte == b' ').next()?;
        std::str::from_utf8(last).ok()?.parse().ok()
    }

    fn ran(&self, pid: u32) -> Option<Ran> {
        // The clock is that of a process of our own namespace.
        if !(self.is_procfs && self.is_own && self.counts_descriptors) {
            return None;
        }
        let descriptors = count(&self.process(pid).ok()?)?;
        let pid = Pid::from_raw(pid.try_into().ok()?);
        let ran = ClockId::pid_cpu_clock_id(pid).ok()?.now().ok()?;
        let seconds = u64::try_from(ran.tv_sec()).ok()?;
        let rest = u64::try_from(ran.tv_nsec()).ok()?;
        let time = seconds.checked_mul(1_000_000_000)?.checked_add(rest)?;
        Ran::new(time, descriptors)
    }

    fn list(&self, which: Which) -> io::Result<Listed> {
        let directory = openat(&self.root, c".", DIRECTORY, Mode::empty())?;
        let (mut after, mut until) = (0, u32::MAX);
        if let Which::Between(first, last) = which {
            (after, until) = (first, last);
            // The kernel's position in this directory is a pid and a small
            // number (`TGID_OFFSET` in `fs/proc/base.c`): this is before those.
            seek(&directory, SeekFrom::Start(first.into()))?;
        }
        let mut pids = Vec::new();
        let mut is_cut = false;
        let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
        // The kernel fills it, also with those after the last that is wanted.
        let size = match which {
            Which::All => buffer.len(),
            Which::Between(..) => 1_024,
        };
        let mut entries = RawDir::new(&directory, &mut buffer[..size]);
        while let Some(entry) = entries.next() {
            let Some(pid) = number(entry?.file_name()) else {
                continue;
            };
            // They come in ascending order from the kernel.
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
        pids.sort_unstable();
        // Every PID namespace has a process 1. `hidepid=` leaves out others'.
        let first_missing = which == Which::All && pids.first() != Some(&1);
        Ok(Listed {
            pids,
            others_hidden: self.is_procfs && first_missing,
            is_cut,
        })
    }

    fn look(
        &self,
        pid: u32,
        numbers: &[DeviceNumber],
        care: Care,
        depth: Depth,
        threads: &[u32],
    ) -> Looked {
        let threads = Threads {
            depth,
            known: threads,
            turn: self.looks.fetch_add(1, Ordering::Relaxed),
        };
        let descriptors = Descriptors::new(numbers, care, self.bounds.descriptors);
        match self
            .process(pid)
            .and_then(|it| look_into(&it, descriptors, threads))
        {
            Ok(looked) => self.judged(pid, looked),
            Err(Errno::NOENT | Errno::SRCH | Errno::NOTDIR) => Looked::Gone,
            // Without its start time it cannot be named.
            Err(error) => Looked::Process {
                start_ticks: 0,
                uid: 0,
                name: String::new(),
                descriptors: 0,
                opens: Vec::new(),
                missed: Some(missed(error)),
            },
        }
    }
}

impl Tree {
    /// Whose it is that may not be looked into, and whether that leaves anything
    /// open.
    fn judged(&self, pid: u32, mut looked: Looked) -> Looked {
        if let Looked::Process {
            uid, name, missed, ..
        } = &mut looked
            && *missed == Some(Missed::NotPermitted)
        {
            if pid == 1 && self.has_hosts_first && INITS.contains(&name.as_str()) {
                *missed = None;
            } else if *uid == rustix::process::geteuid().as_raw() {
                *missed = Some(Missed::OwnNotPermitted);
            }
        }
        looked
    }
}

/// What starts a host and its services, by the kernel's name for process 1. It
/// works with no device itself; what it keeps open for logind (`FDSTORE=1` of
/// `sd_notify(3)`), logind has open too.
const INITS: [&str; 5] = ["systemd", "init", "openrc-init", "runit", "dinit"];

/// Whose descriptors are looked at beside the first thread's.
#[derive(Clone, Copy)]
struct Threads<'a> {
    depth: Depth,
    /// They were seen to have devices in descriptors of their own.
    known: &'a [u32],
    /// Which of the others come first.
    turn: u32,
}

fn look_into(
    process: &OwnedFd,
    mut descriptors: Descriptors<'_>,
    threads: Threads<'_>,
) -> rustix::io::Result<Looked> {
    let stat = stat(process)?;
    if stat.flags & KERNEL_THREAD != 0 {
        return Ok(Looked::Kernel);
    }
    if has_ended(&stat) {
        return Ok(Looked::Gone);
    }
    if stat.state == 'Z' {
        descriptors.read_of_threads(process);
    } else {
        descriptors.read_of(process, None);
        if stat.threads > 1 {
            if threads.depth == Depth::Threads {
                descriptors.read_of_unshared(process);
            }
            descriptors.compare_threads(process, threads.known, threads.turn, threads.depth);
        }
    }
    // It may have ended meanwhile: no descriptors are not what it had open then.
    if descriptors.looked_at == 0 && openat(process, c"stat", OFlags::PATH, Mode::empty()).is_err()
    {
        return Ok(Looked::Gone);
    }
    descriptors.opens.sort_unstable();
    descriptors.opens.dedup();
    Ok(Looked::Process {
        start_ticks: stat.start_ticks,
        // The directory is always of the effective user, whatever a process hides
        // (`task_dump_owner` in `fs/proc/base.c`).
        uid: fstat(process)?.st_uid,
        name: stat.name,
        descriptors: descriptors.looked_at,
        opens: descriptors.opens,
        missed: descriptors.missed,
    })
}

/// Nothing is left of it but what its parent has yet to fetch.
fn has_ended(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X' | 'x') && stat.threads <= 1
}

fn stat(process: &OwnedFd) -> rustix::io::Result<Stat> {
    let mut buffer = [0; 1024];
    let text = read(process, c"stat", &mut buffer)?;
    // Nothing, or nonsense, is what a process shows that ends.
    Stat::parse(text).ok_or(Errno::SRCH)
}

/// The beginning of a file. The kernel gives these at once.
fn read<'a>(
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
    use super::super::Open;
    use super::super::descriptors::OPENS;
    use super::*;
    use std::fs::{File, create_dir_all, write};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use tempfile::TempDir;

    /// `/dev/full`, as everywhere on Linux.
    const FULL: DeviceNumber = DeviceNumber { major: 1, minor: 7 };
    const NULL: DeviceNumber = DeviceNumber { major: 1, minor: 3 };

    struct MadeUp(TempDir);

    impl MadeUp {
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

        fn look(&self, pid: u32, care: Care) -> Looked {
            let tree = Tree::open(self.0.path()).unwrap();
            tree.look(pid, &[FULL, NULL], care, Depth::Process, &[])
        }
    }

    fn open(fd: u32, number: DeviceNumber, thread: Option<u32>) -> Open {
        Open { number, fd, thread }
    }

    fn process(descriptors: usize, opens: Vec<Open>, missed: Option<Missed>) -> Looked {
        Looked::Process {
            start_ticks: 900,
            uid: rustix::process::geteuid().as_raw(),
            name: "x".to_owned(),
            descriptors,
            opens,
            missed,
        }
    }

    #[test]
    fn a_device_is_known_by_its_number_whatever_it_is_called() {
        let it = MadeUp::new();
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
            it.look(7, Care::OnlyDev),
            process(7, opens.clone(), Some(Missed::NotAsked))
        );
        let opens = vec![opens[0], opens[1], open(4, FULL, None)];
        assert_eq!(it.look(7, Care::Anything), process(7, opens, None));
    }

    #[test]
    fn what_starts_the_host_hides_nothing_and_the_first_of_a_container_may() {
        let it = MadeUp::new();
        let us = rustix::process::geteuid().as_raw();
        let looked = |name: &str, uid, missed| Looked::Process {
            start_ticks: 900,
            uid,
            name: name.to_owned(),
            descriptors: 1,
            opens: Vec::new(),
            missed,
        };
        let own = it.0.path().join("self/ns/pid");
        create_dir_all(own.parent().unwrap()).unwrap();
        let tree_in = |namespace: Option<&str>| {
            let _ = std::fs::remove_file(&own);
            if let Some(namespace) = namespace {
                symlink(namespace, &own).unwrap();
            }
            Tree::open(it.0.path()).unwrap()
        };
        let host = tree_in(Some("pid:[4026531836]"));
        let elsewhere = [tree_in(Some("pid:[4026532281]")), tree_in(None)];
        let refused = Some(Missed::NotPermitted);
        let own = Some(Missed::OwnNotPermitted);
        let cases = [
            (true, 1, "systemd", us, refused, None),
            (true, 1, "init", us + 1, refused, None),
            (
                true,
                1,
                "systemd",
                us,
                Some(Missed::TooMany),
                Some(Missed::TooMany),
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
                let judged = tree.judged(pid, looked(name, uid, missed));
                let case = (is_host, pid, name, uid, missed);
                assert_eq!(judged, looked(name, uid, expected), "{case:?}");
            }
        }
    }

    #[test]
    fn a_real_process_is_looked_into_through_a_link() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let pid = std::process::id();
        let it = MadeUp::new();
        let itself = it.0.path().join(pid.to_string());
        symlink(format!("/proc/{pid}"), itself).unwrap();
        let tree = Tree::open(it.0.path()).unwrap();
        let looked = tree.look(pid, &[FULL], Care::Anything, Depth::Process, &[]);
        let Looked::Process {
            start_ticks,
            uid,
            descriptors,
            opens,
            missed,
            ..
        } = looked
        else {
            panic!("it is there");
        };
        let fd = full.as_raw_fd().cast_unsigned();
        assert!(opens.contains(&open(fd, FULL, None)));
        let stat = stat(&tree.process(pid).unwrap()).unwrap();
        assert_eq!((start_ticks, missed), (stat.start_ticks, None));
        let own = rustix::process::geteuid().as_raw();
        assert!(uid == own && descriptors > 3, "{uid} {descriptors}");
    }

    #[test]
    fn a_thread_with_descriptors_of_its_own_is_looked_into_on_demand() {
        let tree = Tree::open(Path::new("/proc")).unwrap();
        let pid = std::process::id();
        let (tell, told) = std::sync::mpsc::channel();
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
            tell.send((thread.cast_unsigned(), fds)).unwrap();
            // Its end closes them.
            released.recv().unwrap_err();
        });
        let (number, fds) = told.recv().unwrap();
        let of_thread = |depth| {
            let Looked::Process { opens, .. } = tree.look(pid, &[FULL], Care::Anything, depth, &[])
            else {
                panic!("it is there");
            };
            let own = opens.into_iter().filter(|it| it.thread == Some(number));
            own.map(|it| it.fd).collect::<Vec<u32>>()
        };
        let seen = of_thread(Depth::Threads);
        drop(release);
        thread.join().unwrap();
        if std::fs::metadata("/proc/self/fd").unwrap().len() == 0 {
            eprintln!("skipped: this kernel does not tell how many descriptors there are");
            return;
        }
        assert!(fds.iter().all(|fd| seen.contains(fd)), "{seen:?}");
    }

    /// What the process of the next test does in place of a test.
    const PART: &str = "GPUKILL_THREAD_PART";

    #[test]
    fn a_part_in_the_next_test() {
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
                        // As many as the others have, one of them another file.
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
    fn a_thread_with_as_many_descriptors_of_its_own_is_found_within_some_looks() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holders::tree::tests::a_part_in_the_next_test"])
            .env(PART, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let tree = Tree::open(Path::new("/proc")).unwrap();
        let look = |threads: &[u32]| {
            let depth = Depth::Process;
            match tree.look(child.id(), &[FULL], Care::Anything, depth, threads) {
                Looked::Process { opens, .. } => opens,
                Looked::Gone | Looked::Kernel => Vec::new(),
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
        let found = (0..16).map(|_| look(&[])).find(|opens| !opens.is_empty());
        let thread = found.as_ref().and_then(|opens| opens[0].thread);
        // Once it was found, each look sees it.
        let known: Vec<u32> = thread.into_iter().collect();
        let again: Vec<Vec<Open>> = (0..4).map(|_| look(&known)).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert_eq!(found, [open(found[0].fd, FULL, thread)]);
        assert!(thread.is_some());
        assert!(again.iter().all(|opens| *opens == found), "{again:?}");
    }

    #[test]
    fn what_has_no_descriptors_of_its_own_is_told_apart() {
        let it = MadeUp::new();
        it.process(2, 'S', 0x20_8040, 1);
        it.process(3, 'Z', 0, 1);
        create_dir_all(it.0.path().join("4")).unwrap();
        it.process(5, 'S', 0, 1);
        let looks = [2, 3, 4, 5, 6].map(|pid| it.look(pid, Care::Anything));
        let expected = [
            Looked::Kernel,
            Looked::Gone,
            Looked::Gone,
            process(0, vec![], None),
            Looked::Gone,
        ];
        assert_eq!(looks, expected);
    }

    #[test]
    fn where_the_first_thread_has_ended_a_living_one_shows_what_is_open() {
        let it = MadeUp::new();
        let directory = it.process(7, 'Z', 0, 3);
        for thread in [7, 8] {
            create_dir_all(directory.join(format!("task/{thread}/fd"))).unwrap();
        }
        symlink("/dev/full", directory.join("task/8/fd/5")).unwrap();
        let opens = vec![open(5, FULL, Some(8))];
        assert_eq!(it.look(7, Care::Anything), process(1, opens, None));
    }

    #[test]
    fn of_many_descriptors_some_of_every_device_are_kept() {
        let it = MadeUp::new();
        let directory = it.process(7, 'S', 0, 1);
        let many = u32::try_from(OPENS).unwrap() + 5;
        for fd in 0..many {
            symlink("/dev/full", directory.join(format!("fd/{fd}"))).unwrap();
        }
        symlink("/dev/null", directory.join(format!("fd/{many}"))).unwrap();
        let Looked::Process { opens, .. } = it.look(7, Care::Anything) else {
            panic!("it is there");
        };
        assert_eq!(opens.len(), OPENS + 1);
        assert!(opens.contains(&open(many, NULL, None)));
    }

    #[test]
    fn a_descriptor_that_only_names_a_device_is_not_one_that_is_open() {
        let tree = Tree::open(Path::new("/proc")).unwrap();
        let full = |flags| rustix::fs::open("/dev/full", flags, Mode::empty()).unwrap();
        let access_for_ioctl_only = OFlags::WRONLY | OFlags::RDWR;
        let open = [OFlags::RDONLY, OFlags::WRONLY, access_for_ioctl_only].map(full);
        let named = [OFlags::PATH, OFlags::PATH | OFlags::CLOEXEC].map(full);
        let pid = std::process::id();
        let looked = tree.look(pid, &[FULL], Care::Anything, Depth::Process, &[]);
        let Looked::Process { opens, .. } = looked else {
            panic!("it is there");
        };
        let is_found = |fd: &OwnedFd| {
            opens
                .iter()
                .any(|open| open.fd.cast_signed() == fd.as_raw_fd())
        };
        assert_eq!(open.each_ref().map(is_found), [true; 3]);
        assert_eq!(named.each_ref().map(is_found), [false; 2]);
    }

    #[test]
    fn a_process_of_somebody_else_is_not_a_process_without_devices() {
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: nothing is hidden from root");
            return;
        }
        let it = MadeUp::new();
        let directory = it.process(7, 'S', 0, 1).join("fd");
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o000)).unwrap();
        let looked = it.look(7, Care::Anything);
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(looked, process(0, vec![], Some(Missed::OwnNotPermitted)));
    }

    #[test]
    fn processes_are_listed_by_number_and_nothing_else_is() {
        let it = MadeUp::new();
        for name in ["12", "9", "self", "100", "loadavg"] {
            create_dir_all(it.0.path().join(name)).unwrap();
        }
        let tree = Tree::open(it.0.path()).unwrap();
        let listed = Listed {
            pids: vec![9, 12, 100],
            others_hidden: false,
            is_cut: false,
        };
        assert_eq!(tree.list(Which::All).unwrap(), listed);
        assert_eq!(tree.newest(), None);
        assert_eq!(tree.ran(9), None);
    }

    #[test]
    fn of_more_processes_than_are_listed_it_is_said_that_there_are_more() {
        let it = MadeUp::new();
        for pid in 1..=4 {
            create_dir_all(it.0.path().join(pid.to_string())).unwrap();
        }
        let mut tree = Tree::open(it.0.path()).unwrap();
        let real = Bounds {
            processes: 200_000,
            descriptors: 65_536,
        };
        assert_eq!(tree.bounds, real);
        for (processes, listed, is_cut) in [(3, 3, true), (4, 4, false)] {
            tree.bounds.processes = processes;
            let all = tree.list(Which::All).unwrap();
            assert_eq!((all.pids.len(), all.is_cut), (listed, is_cut));
        }
    }

    #[test]
    fn of_more_descriptors_than_are_looked_at_it_is_said_that_there_are_more() {
        let it = MadeUp::new();
        let directory = it.process(7, 'S', 0, 1);
        for fd in 0..4 {
            symlink("/dev/full", directory.join(format!("fd/{fd}"))).unwrap();
        }
        let mut tree = Tree::open(it.0.path()).unwrap();
        for (most, told) in [(3, Some(Missed::TooMany)), (4, None)] {
            tree.bounds.descriptors = most;
            let looked = tree.look(7, &[FULL], Care::Anything, Depth::Process, &[]);
            let Looked::Process {
                descriptors,
                opens,
                missed,
                ..
            } = looked
            else {
                panic!("it is there");
            };
            assert_eq!((descriptors, opens.len(), missed), (most, most, told));
        }
    }

    #[test]
    fn the_clock_of_a_process_goes_on_only_while_it_runs() {
        let tree = Tree::open(Path::new("/proc")).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let stat_of = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !stat_of().contains("(cat) S") {
            std::thread::yield_now();
        }
        let before = tree.ran(pid).unwrap();
        assert_eq!(tree.ran(pid), Some(before));
        // At the end of its input it ends.
        drop(child.stdin.take());
        while !stat_of().contains("(cat) Z") {
            std::thread::yield_now();
        }
        assert_ne!(tree.ran(pid), Some(before));
        child.wait().unwrap();
        assert_eq!(tree.ran(pid), None);
        assert_ne!(tree.ran(std::process::id()), None);
        // What another process opens in a table that both have, none of ours ran for.
        assert_ne!(Ran::new(7, 3), Ran::new(7, 4));
        assert_ne!(Ran::new(7, 3), Ran::new(8, 3));
        assert_eq!(Ran::new(0, 3), None);
        let process = tree.process(std::process::id()).unwrap();
        assert_eq!(count(&process).unwrap() > 0, tree.counts_descriptors);
    }

    #[test]
    fn a_process_that_began_is_between_the_newest_pids() {
        let tree = Tree::open(Path::new("/proc")).unwrap();
        let before = tree.newest().unwrap();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let newest = tree.newest().unwrap();
        let all = tree.list(Which::All).unwrap();
        let listed = tree.list(Which::Between(child.id() - 1, child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(listed.unwrap().pids, [child.id()]);
        assert!(all.pids.is_sorted() && all.pids.contains(&child.id()));
        // But where pids began again from below.
        assert!(newest < before || (before + 1..=newest).contains(&child.id()));
    }

    #[test]
    fn how_long_a_process_ran_is_told_only_of_those_of_our_own_namespace() {
        let mut tree = Tree::open(Path::new("/proc")).unwrap();
        let pid = std::process::id();
        assert_eq!(tree.ran(pid).is_some(), tree.is_own);
        assert_eq!(tree.ran(u32::MAX), None);
        tree.is_own = false;
        assert_eq!((tree.ran(pid), tree.newest()), (None, None));
        // What only looks like a `/proc` has pids of its own.
        let made_up = MadeUp::new();
        made_up.process(pid, 'S', 0, 1);
        symlink(pid.to_string(), made_up.0.path().join("self")).unwrap();
        let tree = Tree::open(made_up.0.path()).unwrap();
        assert!(tree.is_own);
        assert_eq!(tree.ran(pid), None);
    }
}
