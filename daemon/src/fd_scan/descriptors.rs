//! Reads the descriptors of a process that are open on watched devices.

use super::scanner::{FileScope, ScanEffort, SkipReason};
use super::{DeviceNumber, OpenDescriptor};
use gpukill_proto::collect::IntoSet as _;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, openat, readlinkat_raw, statat, statx,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// How many descriptors of one device are kept per process. CUDA opens each of its files dozens of
/// times, a display server a card some hundred times; copies cost a process nothing and must not
/// hide other descriptors. It is one more than readers take, so that a reader sees that there are
/// more.
pub(super) const MAX_OPENS_PER_DEVICE: usize = 8_193;

/// How many are kept of all devices.
const MAX_OPENS: usize = 2 * MAX_OPENS_PER_DEVICE;

/// How many threads are tried when the first one has ended.
const MAX_TRIED_THREADS: usize = 64;

/// How many threads are checked for descriptors of their own.
const MAX_CHECKED_THREADS: usize = 4_096;

/// How many descriptors of other threads are compared per scan: 2 ms, which a scan of a big process
/// takes anyway. It covers a program of 20 threads with 25 descriptors each.
const MAX_COMPARED: usize = 512;

/// The same for a requested scan, and for a process with a thread that is known to hold a device.
const MAX_COMPARED_ON_REQUEST: usize = 4_096;

pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

pub(super) struct DescriptorReader<'a> {
    numbers: &'a [DeviceNumber],
    scope: FileScope,
    /// How many are read.
    limit: usize,
    pub(super) opens: Vec<OpenDescriptor>,
    /// How many of each device.
    count_by_device: BTreeMap<DeviceNumber, usize>,
    /// How many descriptors were read, of any kind.
    pub(super) read_count: usize,
    pub(super) skipped: Option<SkipReason>,
}

impl<'a> DescriptorReader<'a> {
    pub(super) fn new(numbers: &'a [DeviceNumber], scope: FileScope, limit: usize) -> Self {
        Self {
            numbers,
            scope,
            limit,
            opens: Vec::new(),
            count_by_device: BTreeMap::new(),
            read_count: 0,
            skipped: None,
        }
    }

    /// Reads threads that have a descriptor table of their own (`unshare`). They are found by a
    /// number of descriptors that differs from the first thread's, which kernels report since 6.2.
    /// A table of equal size is left to [`Self::compare_threads`].
    pub(super) fn read_unshared_threads(&mut self, process: &OwnedFd) {
        let Ok(tasks) = openat(process, c"task", DIRECTORY, Mode::empty()) else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let mut entries = RawDir::new(&tasks, &mut buffer);
        let is_as_many =
            |own: Option<u64>| own.is_none() || own == descriptor_count_at(process, b"fd");
        let mut tried = 0;
        while let Some(Ok(entry)) = entries.next() {
            let Some(thread) = parse_number(entry.file_name()) else {
                continue;
            };
            tried += 1;
            if tried > MAX_CHECKED_THREADS {
                self.skipped = Some(SkipReason::TooMany);
                return;
            }
            let name = [entry.file_name().to_bytes(), b"/fd"].concat();
            // In a busy process the numbers differ for moments.
            if (0..3).any(|_| is_as_many(descriptor_count_at(&tasks, &name))) {
                continue;
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(directory) = openat(&tasks, entry.file_name(), flags, Mode::empty()) {
                self.read_table(&directory, Some(thread));
            }
        }
    }

    /// Reads descriptors of threads for devices that the first thread does not have at the same
    /// descriptor number: first the known threads, then the others, starting at a different one
    /// each time. A thread with the same device at the same number counts as sharing the table.
    pub(super) fn compare_threads(
        &mut self,
        process: &OwnedFd,
        known: &[u32],
        scan_number: u32,
        effort: ScanEffort,
    ) {
        let Ok(tasks) = openat(process, c"task", DIRECTORY, Mode::empty()) else {
            return;
        };
        let first = self.opens.iter().filter(|open| open.thread.is_none());
        let first: BTreeSet<_> = first.map(|open| (open.fd, open.number)).into_set();
        let mut others = other_threads(&tasks);
        others.retain(|thread| !known.contains(thread));
        // Fibonacci hashing: scans of one process do not start at neighbouring threads.
        let threads = u64::try_from(others.len()).unwrap_or(u64::MAX);
        let start = (u64::from(scan_number.wrapping_mul(2_654_435_769)) * threads) >> 32;
        others.rotate_left(usize::try_from(start).unwrap_or(0));
        let mut left = match effort {
            ScanEffort::FirstThread => MAX_COMPARED,
            ScanEffort::AllThreads => MAX_COMPARED_ON_REQUEST,
        };
        for thread in known.iter().copied().chain(others) {
            if left == 0 {
                return;
            }
            self.compare_thread(&tasks, thread, &first, &mut left);
        }
    }

    /// Reads up to `left` descriptors of a thread for devices that are not in `first`.
    fn compare_thread(
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
            let Some(fd) = parse_number(entry.file_name()) else {
                continue;
            };
            if *left == 0 {
                return;
            }
            *left -= 1;
            if let Ok(Some(number)) = self.watched_device(&directory, entry.file_name())
                && !first.contains(&(fd, number))
            {
                let thread = Some(thread);
                self.add(OpenDescriptor { number, fd, thread });
            }
        }
    }

    /// Reads the threads after the first one has ended. Most threads share one table: the first
    /// thread with descriptors shows what the ended one had.
    pub(super) fn read_surviving_threads(&mut self, process: &OwnedFd) {
        let tasks = match openat(process, c"task", DIRECTORY, Mode::empty()) {
            Ok(tasks) => tasks,
            Err(error) => return self.record_error(error),
        };
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let mut entries = RawDir::new(&tasks, &mut buffer);
        let mut tried = 0;
        while let Some(Ok(entry)) = entries.next() {
            let Some(thread) = parse_number(entry.file_name()) else {
                continue;
            };
            tried += 1;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(&tasks, entry.file_name(), flags, Mode::empty());
            let is_read =
                directory.is_ok_and(|directory| self.read_table(&directory, Some(thread)));
            if is_read || tried >= MAX_TRIED_THREADS {
                return;
            }
        }
    }

    /// Reads the descriptors of a process or thread. Returns whether it has any.
    pub(super) fn read_table(&mut self, descriptor: &OwnedFd, thread: Option<u32>) -> bool {
        let directory = match openat(descriptor, c"fd", DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(error) => {
                self.record_error(error);
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
                    self.record_error(error);
                    break;
                }
            };
            let Some(fd) = parse_number(entry.file_name()) else {
                continue;
            };
            any = true;
            if self.read_count >= self.limit {
                self.skipped = Some(SkipReason::TooMany);
                break;
            }
            self.read_count += 1;
            match self.watched_device(&directory, entry.file_name()) {
                Ok(Some(number)) => self.add(OpenDescriptor { number, fd, thread }),
                Ok(None) => {}
                Err(Errno::ACCESS | Errno::PERM) => {
                    // The other descriptors are denied, too.
                    self.skipped = Some(SkipReason::NotPermitted);
                    break;
                }
                Err(error) => self.record_error(error),
            }
        }
        any
    }

    fn add(&mut self, open: OpenDescriptor) {
        let before = self.count_by_device.entry(open.number).or_default();
        *before += 1;
        if *before > MAX_OPENS_PER_DEVICE {
            return;
        }
        if self.opens.len() >= MAX_OPENS {
            self.skipped = Some(SkipReason::TooMany);
            return;
        }
        self.opens.push(open);
    }

    fn watched_device(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
    ) -> rustix::io::Result<Option<DeviceNumber>> {
        // The name proves nothing: a container can name a GPU `/dev/null`. Reading the name costs
        // as much as the number, so it is read only to avoid files that may block.
        if self.scope == FileScope::OnlyDev && !self.is_below_dev(directory, name)? {
            return Ok(None);
        }
        // Without asking a file server, which may be gone.
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let file = statx(directory, name, flags, StatxFlags::TYPE)?;
        let number = DeviceNumber::new(file.stx_rdev_major, file.stx_rdev_minor);
        let is_device = FileType::from_raw_mode(file.stx_mode.into()) == FileType::CharacterDevice;
        let is_watched = is_device && self.numbers.contains(&number);
        Ok((is_watched && !is_path_only(directory, name)).then_some(number))
    }

    /// Whether the file is below `/dev`. Sockets, pipes and the like have no path and are no
    /// devices.
    fn is_below_dev(&mut self, directory: &OwnedFd, name: &CStr) -> rustix::io::Result<bool> {
        const DEV: &[u8] = b"/dev/";
        let mut buffer = [MaybeUninit::uninit(); DEV.len()];
        let (target, _) = readlinkat_raw(directory, name, &mut buffer)?;
        if target.starts_with(b"/") && target != DEV {
            self.skipped = self.skipped.or(Some(SkipReason::OutsideDev));
        }
        Ok(target == DEV)
    }

    fn record_error(&mut self, error: Errno) {
        // Closed or ended meanwhile.
        if !matches!(error, Errno::NOENT | Errno::SRCH) {
            self.skipped = Some(skip_reason(error));
        }
    }
}

/// Whether a descriptor only names a file (`O_PATH`). Such a descriptor gives no access to the
/// driver, and any user may have it, regardless of the file's mode. False where this cannot be
/// determined.
///
/// The mode of the link shows how the file is open (`tid_fd_update_inode` in `fs/proc/fd.c`). A
/// file that is open for neither reading nor writing may still be open for `ioctl` (`open(2)`,
/// access mode 3): the flags decide. The driver does not take part in reading the flags of an
/// `O_PATH` descriptor.
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

/// Whether the start of a file in `/proc/PID/fdinfo` shows `O_PATH`.
fn has_path_flag(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines
        .find_map(|line| line.strip_prefix(b"flags:"))
        .and_then(|flags| std::str::from_utf8(flags.trim_ascii()).ok())
        .and_then(|flags| u32::from_str_radix(flags, 8).ok())
        .is_some_and(|flags| flags & OFlags::PATH.bits() != 0)
}

/// The threads of a process up to the limit, without the first, which is listed first.
fn other_threads(tasks: &OwnedFd) -> Vec<u32> {
    let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
    let mut entries = RawDir::new(tasks, &mut buffer);
    let mut threads = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        threads.extend(parse_number(entry.file_name()));
        if threads.len() > MAX_CHECKED_THREADS {
            break;
        }
    }
    threads.split_off(threads.len().min(1))
}

pub(super) fn skip_reason(error: Errno) -> SkipReason {
    match error {
        Errno::ACCESS | Errno::PERM => SkipReason::NotPermitted,
        _ => SkipReason::Failed,
    }
}

pub(super) fn parse_number(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

/// The number of descriptors of the process with this directory. Kernels before 6.2 report 0.
pub(super) fn descriptor_count(process: &OwnedFd) -> Option<u64> {
    descriptor_count_at(process, b"fd")
}

fn descriptor_count_at(descriptor: &OwnedFd, name: &[u8]) -> Option<u64> {
    let stat = statat(descriptor, name, AtFlags::empty()).ok()?;
    u64::try_from(stat.st_size).ok()
}
