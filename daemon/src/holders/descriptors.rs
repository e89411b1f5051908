//! What a process has open, of the devices that are watched.

use super::look::{Care, Missed};
use super::{DeviceNumber, Open};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, openat, readlinkat_raw, statat, statx,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// So many descriptors of one device are kept of a process. CUDA opens each of
/// its files dozens of times, a display server a card some hundred. One more than
/// whoever reads them takes, who can tell from it that there are more.
pub(super) const OPENS: usize = 1_025;

/// So many are kept of all devices.
const OPENS_OF_ALL: usize = 16 * OPENS;

/// So many threads are tried when the first one has ended.
const THREADS: usize = 64;

/// So many threads are asked whether they have descriptors of their own.
const UNSHARED: usize = 4_096;

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
    /// kernels tell since 6.2. One that has as many of its own is not seen.
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
        Ok((is_device && self.numbers.contains(&number)).then_some(number))
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
