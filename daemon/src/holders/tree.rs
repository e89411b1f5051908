//! Looking into processes below `/proc`, by numbers of devices, not by names.

use super::look::{Care, Eyes, Listed, Looked, Missed, Which};
use super::{DeviceNumber, Open};
use crate::procfs::stat::Stat;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, RawDir, SeekFrom, StatxFlags, fstatfs, open,
    openat, readlinkat_raw, seek, statx,
};
use rustix::io::Errno;
use rustix::path::DecInt;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x20_0000;

/// So many descriptors of one device are kept of a process. CUDA opens each of
/// its files dozens of times, a display server a card some hundred. One more than
/// whoever reads them takes, who can tell from it that there are more.
const OPENS: usize = 1_025;

/// So many are kept of all devices.
const OPENS_OF_ALL: usize = 16 * OPENS;

/// So many descriptors of a process are looked at, whatever they are open on: a
/// quarter of a second.
const DESCRIPTORS: usize = 65_536;

/// So many threads are tried when the first one has ended.
const THREADS: usize = 64;

/// So many processes are listed.
const PROCESSES: usize = 200_000;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// A tree of processes: `/proc`, but in tests.
pub(super) struct Tree {
    root: OwnedFd,
    /// A `/proc`, and not a directory that looks like one.
    is_procfs: bool,
    /// The `/proc` of the PID namespace that this process is in.
    is_own: bool,
}

impl Tree {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let root = open(root, DIRECTORY, Mode::empty())?;
        let is_procfs = fstatfs(&root).is_ok_and(|of| of.f_type == PROC_SUPER_MAGIC);
        let mut buffer = [MaybeUninit::uninit(); 16];
        let own = std::process::id().to_string();
        let is_own = readlinkat_raw(&root, c"self", &mut buffer)
            .is_ok_and(|(target, _)| target == own.as_bytes());
        Ok(Self {
            root,
            is_procfs,
            is_own,
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
        let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
        let mut entries = RawDir::new(&directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let Some(pid) = number(entry?.file_name()) else {
                continue;
            };
            // They come in ascending order from the kernel.
            if self.is_procfs && pid > until || pids.len() >= PROCESSES {
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
        })
    }

    fn look(&self, pid: u32, numbers: &[DeviceNumber], care: Care) -> Looked {
        match self
            .process(pid)
            .and_then(|it| look_into(&it, numbers, care))
        {
            Ok(looked) => looked,
            Err(Errno::NOENT | Errno::SRCH | Errno::NOTDIR) => Looked::Gone,
            // Without its start time it cannot be named.
            Err(error) => Looked::Process {
                start_ticks: 0,
                opens: Vec::new(),
                missed: Some(missed(error)),
            },
        }
    }
}

fn look_into(
    process: &OwnedFd,
    numbers: &[DeviceNumber],
    care: Care,
) -> rustix::io::Result<Looked> {
    let stat = stat(process)?;
    if stat.flags & KERNEL_THREAD != 0 {
        return Ok(Looked::Kernel);
    }
    if has_ended(&stat) {
        return Ok(Looked::Gone);
    }
    let mut descriptors = Descriptors {
        numbers,
        care,
        opens: Vec::new(),
        of_number: BTreeMap::new(),
        looked_at: 0,
        missed: None,
    };
    if stat.state == 'Z' {
        descriptors.read_of_threads(process);
    } else {
        descriptors.read_of(process, None);
    }
    // It may have ended meanwhile: no descriptors are not what it had open then.
    if descriptors.opens.is_empty()
        && openat(process, c"stat", OFlags::PATH, Mode::empty()).is_err()
    {
        return Ok(Looked::Gone);
    }
    descriptors.opens.sort_unstable();
    Ok(Looked::Process {
        start_ticks: stat.start_ticks,
        opens: descriptors.opens,
        missed: descriptors.missed,
    })
}

/// Nothing is left of it but what its parent has yet to fetch.
fn has_ended(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X' | 'x') && stat.threads <= 1
}

/// What is found among a process's descriptors.
struct Descriptors<'a> {
    numbers: &'a [DeviceNumber],
    care: Care,
    opens: Vec<Open>,
    /// How many of each device.
    of_number: BTreeMap<DeviceNumber, usize>,
    /// How many there were, of whatever kind.
    looked_at: usize,
    missed: Option<Missed>,
}

impl Descriptors<'_> {
    /// Threads share their descriptors, all but few: the first that has any
    /// shows what the first thread had.
    fn read_of_threads(&mut self, process: &OwnedFd) {
        let tasks = match openat(process, c"task", DIRECTORY, Mode::empty()) {
            Ok(tasks) => tasks,
            Err(error) => return self.miss(error),
        };
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let mut entries = RawDir::new(&tasks, &mut buffer);
        let mut tried = 0;
        while let Some(Ok(entry)) = entries.next() {
            let Some(thread) = number(entry.file_name()) else {
                continue;
            };
            tried += 1;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(&tasks, entry.file_name(), flags, Mode::empty());
            let seen = directory.is_ok_and(|directory| self.read_of(&directory, Some(thread)));
            if seen || tried >= THREADS {
                return;
            }
        }
    }

    /// Reads the descriptors of a process or thread; whether it has any.
    fn read_of(&mut self, of: &OwnedFd, thread: Option<u32>) -> bool {
        let directory = match openat(of, c"fd", DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(error) => {
                self.miss(error);
                return false;
            }
        };
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let mut entries = RawDir::new(&directory, &mut buffer);
        let mut any = false;
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.miss(error);
                    break;
                }
            };
            let Some(fd) = number(entry.file_name()) else {
                continue;
            };
            any = true;
            self.looked_at += 1;
            if self.looked_at > DESCRIPTORS {
                self.missed = Some(Missed::TooMany);
                break;
            }
            match self.device(&directory, entry.file_name()) {
                Ok(Some(number)) => self.keep(Open { number, fd, thread }),
                Ok(None) => {}
                Err(Errno::ACCESS | Errno::PERM) => {
                    // The others are not permitted either.
                    self.missed = Some(Missed::NotPermitted);
                    break;
                }
                Err(error) => self.miss(error),
            }
        }
        any
    }

    fn keep(&mut self, open: Open) {
        let before = self.of_number.entry(open.number).or_default();
        *before += 1;
        if *before > OPENS {
            return;
        }
        if self.opens.len() >= OPENS_OF_ALL {
            self.missed = Some(Missed::TooMany);
            return;
        }
        self.opens.push(open);
    }

    /// The number of the device that a descriptor is open on, if it is watched.
    fn device(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
    ) -> rustix::io::Result<Option<DeviceNumber>> {
        const DEV: &[u8] = b"/dev/";
        let mut buffer = [MaybeUninit::uninit(); DEV.len()];
        let (target, _) = readlinkat_raw(directory, name, &mut buffer)?;
        // Sockets, pipes and the like have no path. Of the rest the name proves
        // nothing: in a container a GPU can be called `/dev/null`.
        if !target.starts_with(b"/") {
            return Ok(None);
        }
        if self.care == Care::OnlyDev && target != DEV {
            self.missed = self.missed.or(Some(Missed::NotAsked));
            return Ok(None);
        }
        // Without asking a server: it may be gone.
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let file = statx(directory, name, flags, StatxFlags::TYPE)?;
        let number = DeviceNumber {
            major: file.stx_rdev_major,
            minor: file.stx_rdev_minor,
        };
        let is_device = FileType::from_raw_mode(file.stx_mode.into()) == FileType::CharacterDevice;
        Ok((is_device && self.numbers.contains(&number)).then_some(number))
    }

    fn miss(&mut self, error: Errno) {
        // Closed or ended meanwhile.
        if !matches!(error, Errno::NOENT | Errno::SRCH) {
            self.missed = Some(missed(error));
        }
    }
}

fn missed(error: Errno) -> Missed {
    match error {
        Errno::ACCESS | Errno::PERM => Missed::NotPermitted,
        _ => Missed::Failed,
    }
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

fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir_all, write};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::process::Command;
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
            tree.look(pid, &[FULL, NULL], care)
        }
    }

    fn open(fd: u32, number: DeviceNumber, thread: Option<u32>) -> Open {
        Open { number, fd, thread }
    }

    fn process(opens: Vec<Open>, missed: Option<Missed>) -> Looked {
        Looked::Process {
            start_ticks: 900,
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
            process(opens.clone(), Some(Missed::NotAsked))
        );
        let opens = vec![opens[0], opens[1], open(4, FULL, None)];
        assert_eq!(it.look(7, Care::Anything), process(opens, None));
    }

    #[test]
    fn a_real_process_is_looked_into_through_a_link() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let pid = std::process::id();
        let it = MadeUp::new();
        let itself = it.0.path().join(pid.to_string());
        symlink(format!("/proc/{pid}"), itself).unwrap();
        let tree = Tree::open(it.0.path()).unwrap();
        let looked = tree.look(pid, &[FULL], Care::Anything);
        let Looked::Process {
            start_ticks,
            opens,
            missed,
        } = looked
        else {
            panic!("it is there");
        };
        let fd = full.as_raw_fd().cast_unsigned();
        assert!(opens.contains(&open(fd, FULL, None)));
        let stat = stat(&tree.process(pid).unwrap()).unwrap();
        assert_eq!((start_ticks, missed), (stat.start_ticks, None));
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
            process(vec![], None),
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
        assert_eq!(it.look(7, Care::Anything), process(opens, None));
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
        assert_eq!(looked, process(vec![], Some(Missed::NotPermitted)));
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
        };
        assert_eq!(tree.list(Which::All).unwrap(), listed);
        assert_eq!(tree.newest(), None);
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
}
