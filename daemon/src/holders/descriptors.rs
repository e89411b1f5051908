//! What a process has open, of the devices that are watched.

use super::look::{Care, Depth, Missed};
use super::{DeviceNumber, Open};
use gpukill_proto::collect::IntoSet as _;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, openat, readlinkat_raw, statat, statx,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// So many descriptors of one device are kept of a process. CUDA opens each of
/// its files dozens of times, a display server a card some hundred; copies cost a process
/// nothing, and must not hide what lies behind them. One more than whoever reads them
/// takes, who can tell from it that there are more.
pub(super) const OPENS: usize = 8_193;

/// So many are kept of all devices.
const OPENS_OF_ALL: usize = 2 * OPENS;

/// So many threads are tried when the first one has ended.
const THREADS: usize = 64;

/// So many threads are asked whether they have descriptors of their own.
const UNSHARED: usize = 4_096;

/// So many descriptors of other threads are compared at a look: 2 ms, as long as a look at
/// a big process takes anyway. A program of 20 threads with 25 descriptors each is seen whole.
const COMPARED: usize = 512;

/// So many where somebody waits for who holds a device, and of a process of which a thread
/// was found to.
const COMPARED_ON_REQUEST: usize = 4_096;

pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// What is found among a process's descriptors.
pub(super) struct Descriptors<'a> {
    numbers: &'a [DeviceNumber],
    care: Care,
    /// So many are looked at.
    most: usize,
    pub(super) opens: Vec<Open>,
    /// How many of each device.
    of_number: BTreeMap<DeviceNumber, usize>,
    /// How many there were, of whatever kind.
    pub(super) looked_at: usize,
    pub(super) missed: Option<Missed>,
}

impl<'a> Descriptors<'a> {
    pub(super) fn new(numbers: &'a [DeviceNumber], care: Care, most: usize) -> Self {
        Self {
            numbers,
            care,
            most,
            opens: Vec::new(),
            of_number: BTreeMap::new(),
            looked_at: 0,
            missed: None,
        }
    }

    /// Reads those of threads that have descriptors of their own (`unshare`). They
    /// are known by having another number of them than the first thread, which
    /// kernels tell since 6.2. One that has as many of its own is for
    /// [`Self::compare_threads`].
    pub(super) fn read_of_unshared(&mut self, process: &OwnedFd) {
        let Ok(tasks) = openat(process, c"task", DIRECTORY, Mode::empty()) else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let mut entries = RawDir::new(&tasks, &mut buffer);
        let is_as_many = |own: Option<u64>| own.is_none() || own == count_at(process, b"fd");
        let mut tried = 0;
        while let Some(Ok(entry)) = entries.next() {
            let Some(thread) = number(entry.file_name()) else {
                continue;
            };
            tried += 1;
            if tried > UNSHARED {
                self.missed = Some(Missed::TooMany);
                return;
            }
            let name = [entry.file_name().to_bytes(), b"/fd"].concat();
            // Of a busy process they differ for moments.
            if (0..3).any(|_| is_as_many(count_at(&tasks, &name))) {
                continue;
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(directory) = openat(&tasks, entry.file_name(), flags, Mode::empty()) {
                self.read_of(&directory, Some(thread));
            }
        }
    }

    /// Reads descriptors of threads for devices that the first thread does not have at the
    /// same number: first of those that were seen to have some, then of the others, which
    /// begin at another one each time. One that has each device where the first thread has
    /// the same one is not told from those that share.
    pub(super) fn compare_threads(
        &mut self,
        process: &OwnedFd,
        known: &[u32],
        turn: u32,
        depth: Depth,
    ) {
        let Ok(tasks) = openat(process, c"task", DIRECTORY, Mode::empty()) else {
            return;
        };
        let first = self.opens.iter().filter(|open| open.thread.is_none());
        let first: BTreeSet<_> = first.map(|open| (open.fd, open.number)).into_set();
        let mut others = others(&tasks);
        others.retain(|thread| !known.contains(thread));
        // By Fibonacci hashing: looks at one process do not begin beside each other.
        let threads = u64::try_from(others.len()).unwrap_or(u64::MAX);
        let begin = (u64::from(turn.wrapping_mul(2_654_435_769)) * threads) >> 32;
        others.rotate_left(usize::try_from(begin).unwrap_or(0));
        let mut left = match depth {
            Depth::Process => COMPARED,
            Depth::Threads => COMPARED_ON_REQUEST,
        };
        for thread in known.iter().copied().chain(others) {
            if left == 0 {
                return;
            }
            self.compare(&tasks, thread, &first, &mut left);
        }
    }

    /// Reads so many descriptors of a thread for devices that are not these.
    fn compare(
        &mut self,
        tasks: &OwnedFd,
        thread: u32,
        first: &BTreeSet<(u32, DeviceNumber)>,
        left: &mut usize,
    ) {
        let name = format!("{thread}/fd");
        let Ok(directory) = openat(tasks, name, DIRECTORY, Mode::empty()) else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let mut entries = RawDir::new(&directory, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let Some(fd) = number(entry.file_name()) else {
                continue;
            };
            if *left == 0 {
                return;
            }
            *left -= 1;
            if let Ok(Some(number)) = self.device(&directory, entry.file_name())
                && !first.contains(&(fd, number))
            {
                let thread = Some(thread);
                self.keep(Open { number, fd, thread });
            }
        }
    }

    /// Threads share their descriptors, all but few: the first that has any
    /// shows what the first thread had.
    pub(super) fn read_of_threads(&mut self, process: &OwnedFd) {
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
    pub(super) fn read_of(&mut self, of: &OwnedFd, thread: Option<u32>) -> bool {
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
            if self.looked_at >= self.most {
                self.missed = Some(Missed::TooMany);
                break;
            }
            self.looked_at += 1;
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
        // The name proves nothing: in a container a GPU can be called `/dev/null`.
        // It costs as much as the number, and is asked for only where it tells
        // what may hang.
        if self.care == Care::OnlyDev && !self.may_be_asked(directory, name)? {
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
        let is_watched = is_device && self.numbers.contains(&number);
        Ok((is_watched && !is_path_only(directory, name)).then_some(number))
    }

    /// Whether it is below `/dev`. Sockets, pipes and the like have no path, and
    /// are no devices.
    fn may_be_asked(&mut self, directory: &OwnedFd, name: &CStr) -> rustix::io::Result<bool> {
        const DEV: &[u8] = b"/dev/";
        let mut buffer = [MaybeUninit::uninit(); DEV.len()];
        let (target, _) = readlinkat_raw(directory, name, &mut buffer)?;
        if target.starts_with(b"/") && target != DEV {
            self.missed = self.missed.or(Some(Missed::NotAsked));
        }
        Ok(target == DEV)
    }

    fn miss(&mut self, error: Errno) {
        // Closed or ended meanwhile.
        if !matches!(error, Errno::NOENT | Errno::SRCH) {
            self.missed = Some(missed(error));
        }
    }
}

/// Whether a descriptor only names a file (`O_PATH`). It gives no access to the driver, and
/// anybody may have one, whatever the file's mode. In doubt it does not.
///
/// The mode of its link says how the file is open (`tid_fd_update_inode` of `fs/proc/fd.c`).
/// A file that is open for neither reading nor writing may still be open for `ioctl`
/// (`open(2)`, access mode 3): the flags tell. The driver takes no part in telling those of
/// an `O_PATH` descriptor.
fn is_path_only(directory: &OwnedFd, name: &CStr) -> bool {
    const OWNER_MAY_READ_OR_WRITE: u16 = 0o600;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let link = statx(directory, name, flags, StatxFlags::MODE);
    if link.is_ok_and(|link| link.stx_mode & OWNER_MAY_READ_OR_WRITE != 0) {
        return false;
    }
    let file = [b"../fdinfo/", name.to_bytes()].concat();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = openat(directory, file, flags, Mode::empty()) else {
        return false;
    };
    let mut buffer = [0; 64];
    let length = rustix::io::read(file, &mut buffer).unwrap_or(0);
    has_path_flag(buffer.get(..length).unwrap_or_default())
}

/// Whether the beginning of a file of `/proc/PID/fdinfo` tells of `O_PATH`.
fn has_path_flag(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    let flags = lines.find_map(|line| line.strip_prefix(b"flags:"));
    let flags = flags.and_then(|flags| std::str::from_utf8(flags.trim_ascii()).ok());
    let flags = flags.and_then(|flags| u32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & OFlags::PATH.bits() != 0)
}

/// The threads of a process, as many as are asked, but for the first, which is listed first.
fn others(tasks: &OwnedFd) -> Vec<u32> {
    let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
    let mut entries = RawDir::new(tasks, &mut buffer);
    let mut threads = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        threads.extend(number(entry.file_name()));
        if threads.len() > UNSHARED {
            break;
        }
    }
    threads.split_off(threads.len().min(1))
}

pub(super) fn missed(error: Errno) -> Missed {
    match error {
        Errno::ACCESS | Errno::PERM => Missed::NotPermitted,
        _ => Missed::Failed,
    }
}

pub(super) fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

/// How many descriptors the process with this directory has. Kernels before 6.2
/// say 0 of everybody.
pub(super) fn count(process: &OwnedFd) -> Option<u64> {
    count_at(process, b"fd")
}

fn count_at(of: &OwnedFd, name: &[u8]) -> Option<u64> {
    let stat = statat(of, name, AtFlags::empty()).ok()?;
    u64::try_from(stat.st_size).ok()
}
