//! The shared objects in the mappings of a process (`/proc/PID/maps`; `show_map_vma` in
//! `fs/proc/task_mmu.c`).

use super::reader::error_reason;
use crate::procfs::parse_decimal;
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read as _};

/// How much is read. A process may have 65,530 mappings (the kernel's default of
/// `vm.max_map_count`), of 256 bytes each.
const MAX_BYTES: u64 = 16 << 20;

/// A path has at most 4,096 bytes, in which the kernel writes a line feed as four.
const MAX_LINE_BYTES: u64 = 20 << 10;

/// How many names are kept. Python with all modules of its standard library has 120.
const MAX_NAMES: usize = 1_024;

/// How many bytes of names are kept.
const MAX_NAME_BYTES: usize = 64 << 10;

/// The kernel's suffix for the path of a deleted file.
const DELETED: &[u8] = b" (deleted)";

/// Why the list is unknown. A part of it is not reported, so that nothing counts as absent that was
/// not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MapsError {
    /// Kernel threads and ending processes have no memory of their own.
    Nothing,
    TooMuch,
    NotMappings,
    Unreadable(String),
}

impl MapsError {
    pub(super) fn text(self) -> String {
        match self {
            Self::Nothing => "nothing is mapped".to_owned(),
            Self::TooMuch => "too much is mapped".to_owned(),
            Self::NotMappings => "the list of mappings is malformed".to_owned(),
            Self::Unreadable(why) => why,
        }
    }
}

/// The names of all shared objects, without directories. A library is loaded when a part of it is
/// executable: a read-only mapping is data, even if its name is that of a library.
pub(super) fn libraries(file: impl BufRead) -> Result<BTreeSet<String>, MapsError> {
    let unreadable = |error: io::Error| MapsError::Unreadable(error_reason(&error));
    let mut file = file.take(MAX_BYTES);
    let mut names = BTreeSet::new();
    let mut room = MAX_NAME_BYTES;
    let mut line = Vec::new();
    let mut is_empty = true;
    loop {
        line.clear();
        let length = (&mut file)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        if length.map_err(unreadable)? == 0 {
            break;
        }
        if line.pop() != Some(b'\n') {
            return Err(if file.limit() == 0 {
                MapsError::TooMuch
            } else {
                MapsError::NotMappings
            });
        }
        is_empty = false;
        let code = executable_path(&line).ok_or(MapsError::NotMappings)?;
        let Some(name) = shared_object(code).map(String::from_utf8_lossy) else {
            continue;
        };
        // A library is mapped in several pieces.
        if !names.contains(&*name) {
            room = room.checked_sub(name.len()).ok_or(MapsError::TooMuch)?;
            names.insert(name.into_owned());
        }
        if names.len() > MAX_NAMES {
            return Err(MapsError::TooMuch);
        }
    }
    if file.limit() == 0 {
        return Err(MapsError::TooMuch);
    }
    if is_empty {
        return Err(MapsError::Nothing);
    }
    Ok(names)
}

/// The path of an executable mapping's file, which may contain any byte but a line feed; empty for
/// other mappings: `7f00-7f10 r-xp 00000000 fd:01 1234       /usr/lib/libcuda.so.1`. `None` where
/// the line is malformed.
fn executable_path(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let (field, after) = rest.split_at_checked(end)?;
        rest = after.get(1..)?;
        Some(field)
    };
    let (start, end) = split_at_byte(field()?, b'-')?;
    let permissions = field()?;
    let offset = field()?;
    let (major, minor) = split_at_byte(field()?, b':')?;
    let inode = std::str::from_utf8(field()?).ok()?;
    let numbers = [start, end, offset, major, minor];
    let is_line = is_permissions(permissions) && numbers.into_iter().all(is_hex);
    let is_file = parse_decimal(inode)? != 0;
    let is_executed = permissions.contains(&b'x');
    let path = rest.trim_ascii_start();
    is_line.then_some(if is_file && is_executed { path } else { &[] })
}

fn split_at_byte(field: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = field.iter().position(|byte| *byte == at)?;
    Some((field.get(..position)?, field.get(position + 1..)?))
}

/// `r-xp`: each letter at its place, or a dash; private or shared.
fn is_permissions(field: &[u8]) -> bool {
    let allowed: [&[u8]; 4] = [b"r-", b"w-", b"x-", b"ps"];
    let mut letters = field.iter().zip(allowed);
    field.len() == allowed.len() && letters.all(|(letter, choices)| choices.contains(letter))
}

fn is_hex(field: &[u8]) -> bool {
    (1..=16).contains(&field.len()) && field.iter().all(u8::is_ascii_hexdigit)
}

/// The name of a file that is named like a shared object: `libcuda.so`, or with a version,
/// `libcuda.so.535.54`.
fn shared_object(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_suffix(DELETED).unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = name.iter().rposition(|byte| !is_version(byte))? + 1;
    let (stem, version) = name.split_at_checked(end)?;
    let is_one = stem.ends_with(b".so")
        && (version.is_empty() || version.starts_with(b".") && version.len() > 1);
    is_one.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(inode: u64, path: &str) -> String {
        format!("7f1c2a000000-7f1c2a200000 r-xp 00000000 fd:01 {inode:<26} {path}\n")
    }

    fn read(text: &str) -> Result<Vec<String>, MapsError> {
        libraries(text.as_bytes()).map(|names| names.into_iter().collect())
    }

    #[test]
    fn shared_objects_are_listed_once_by_name() {
        let text = [
            line(11, "/usr/bin/python3.10"),
            line(12, "/usr/lib/libtorch_cuda.so"),
            line(12, "/usr/lib/libtorch_cuda.so"),
            line(13, "/usr/lib/libcuda.so.550.54.15 (deleted)"),
            line(14, "/home/a b/_ctypes.cpython-310-x86_64-linux-gnu.so"),
            line(15, "/memfd:hidden.so (deleted)"),
            line(16, "/opt/lib/one\\012two.so"),
            line(17, "libbare.so"),
            line(18, "/usr/share/notes.source"),
            line(19, "/usr/lib.so/data.bin"),
            line(20, "/dev/nvidia0"),
            line(21, "/tmp/.so"),
            line(22, "/tmp/libx.so.npy"),
            line(22, "/tmp/libx.so.1.npy"),
            line(22, "/tmp/libx.so."),
            line(22, "/tmp/libx.so1"),
            line(22, "/tmp/libx.1.so.2.so"),
            // No files: a process may name its memory freely.
            line(0, "[anon:libtorch.so]"),
            line(0, "/usr/lib/libjax.so"),
            line(0, ""),
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
                .to_owned(),
        ];
        let names = [
            ".so",
            "_ctypes.cpython-310-x86_64-linux-gnu.so",
            "libbare.so",
            "libcuda.so.550.54.15",
            "libtorch_cuda.so",
            "libx.1.so.2.so",
            "memfd:hidden.so",
            "one\\012two.so",
        ];
        assert_eq!(read(&text.concat()), Ok(names.map(String::from).to_vec()));
        // Something is mapped, but no shared object.
        assert_eq!(read(&line(11, "/usr/bin/static")), Ok(vec![]));
    }

    #[test]
    fn only_executable_mappings_count() {
        let piece =
            |permissions: &str| line(12, "/tmp/libxmrig-cuda.so").replace("r-xp", permissions);
        let loaded = ["libxmrig-cuda.so"];
        for (permissions, expected) in [
            (&["r--p"][..], &[][..]),
            (&["r--s", "rw-p", "---p"], &[]),
            (&["r--p", "r-xp", "r--p", "rw-p"], &loaded),
            (&["--xp"], &loaded),
            (&["rwxs"], &loaded),
        ] {
            let text: String = permissions.iter().map(|it| piece(it)).collect();
            assert_eq!(read(&text).unwrap(), expected, "{permissions:?}");
        }
    }

    #[test]
    fn malformed_list_gives_no_names() {
        let good = line(12, "/usr/lib/liba.so");
        let bad = [
            good.replace("7f1c2a000000-", "7f1c2a000000 "),
            good.replace("7f1c2a000000-", "-"),
            good.replace("7f1c2a000000-", "+f1c2a000000-"),
            good.replace("r-xp", "r-x"),
            good.replace("r-xp", "r-xpp"),
            good.replace("r-xp", "rx-p"),
            good.replace("r-xp", "r-x-"),
            good.replace("fd:01", "fd01"),
            good.replace(" 12 ", " -12 "),
            good.replace(" 12 ", " 99999999999999999999 "),
            good.replace(" 12 ", "  "),
            "\n".to_owned(),
            "hello\n".to_owned(),
            // Truncated.
            good.trim_end().to_owned(),
        ];
        for bad in bad {
            let text = [good.as_str(), &bad].concat();
            assert_eq!(read(&text), Err(MapsError::NotMappings), "{bad}");
        }
        assert_eq!(read(""), Err(MapsError::Nothing));
    }

    #[test]
    fn lists_over_the_limits_are_unknown() {
        let many = |count: usize| -> String {
            let lines = (0..count).map(|number| line(1, &format!("/lib{number}.so")));
            lines.collect()
        };
        assert_eq!(read(&many(MAX_NAMES)).map(|it| it.len()), Ok(MAX_NAMES));
        assert_eq!(read(&many(MAX_NAMES + 1)), Err(MapsError::TooMuch));

        let long = |number: usize| line(1, &format!("/{number:0250}.so"));
        let lines: String = (0..=MAX_NAME_BYTES / 253).map(long).collect();
        assert_eq!(read(&lines), Err(MapsError::TooMuch));

        let one = line(1, "/lib.so");
        let times = usize::try_from(MAX_BYTES).unwrap() / one.len() + 1;
        assert_eq!(read(&one.repeat(times)), Err(MapsError::TooMuch));

        let most = usize::try_from(MAX_LINE_BYTES).unwrap();
        let endless = line(1, &"x".repeat(most));
        assert_eq!(read(&endless), Err(MapsError::NotMappings));
        // The longest line that the kernel writes.
        let longest = line(1, &format!("{}.so", "\\012".repeat(4_092)));
        assert_eq!(read(&longest).map(|names| names.len()), Ok(1));
    }

    #[test]
    fn own_mappings_are_read() {
        let file = std::fs::File::open("/proc/self/maps").unwrap();
        let names = libraries(io::BufReader::new(file)).unwrap();
        assert!(
            names.iter().any(|name| name.starts_with("libc.so")),
            "{names:?}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = libraries(&*bytes);
        }

        #[test]
        fn any_path_is_accepted(inode: u64, path in "[^\n]{0,300}") {
            let text = line(inode, &path);
            let names = libraries(text.as_bytes()).unwrap();
            prop_assert!(names.iter().all(|name| name.contains(".so") && !name.contains('/')));
        }
    }
}
