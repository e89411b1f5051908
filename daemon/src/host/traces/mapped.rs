//! The shared objects among what is mapped into a process (`/proc/PID/maps`;
//! `show_map_vma` in `fs/proc/task_mmu.c`).

use super::look::why;
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read as _};

/// More is not read. A process may have 65,530 mappings (`vm.max_map_count`, as the kernel
/// sets it): of 256 bytes each.
const MOST_BYTES: u64 = 16 << 20;

/// A path has 4,096 bytes at most, in which the kernel writes a line feed as four.
const MOST_LINE: u64 = 20 << 10;

/// So many names are kept. Python with all modules of its standard library has 120.
const MOST_NAMES: usize = 1_024;

/// So many bytes of names.
const MOST_TEXT: usize = 64 << 10;

/// What the kernel adds to the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// Why a file tells nothing. What was read of it until then is not told: nobody is to
/// conclude that the rest is not there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Kernel threads have no memory of their own, nor have those that end.
    Nothing,
    TooMuch,
    NotMappings,
    Unreadable(String),
}

impl Broken {
    pub(super) fn words(self) -> String {
        match self {
            Self::Nothing => "nothing is mapped".to_owned(),
            Self::TooMuch => "too much is mapped".to_owned(),
            Self::NotMappings => "the list of what is mapped is not one".to_owned(),
            Self::Unreadable(why) => why,
        }
    }
}

/// The names of all shared objects, without directories. One is loaded when some of it may
/// be executed: what is mapped to be read alone is data, whatever its name.
pub(super) fn libraries(file: impl BufRead) -> Result<BTreeSet<String>, Broken> {
    let unreadable = |error: io::Error| Broken::Unreadable(why(&error));
    let mut file = file.take(MOST_BYTES);
    let mut names = BTreeSet::new();
    let mut room = MOST_TEXT;
    let mut line = Vec::new();
    let mut is_empty = true;
    loop {
        line.clear();
        let length = (&mut file).take(MOST_LINE).read_until(b'\n', &mut line);
        if length.map_err(unreadable)? == 0 {
            break;
        }
        if line.pop() != Some(b'\n') {
            return Err(if file.limit() == 0 {
                Broken::TooMuch
            } else {
                Broken::NotMappings
            });
        }
        is_empty = false;
        let code = code(&line).ok_or(Broken::NotMappings)?;
        let Some(name) = shared_object(code).map(String::from_utf8_lossy) else {
            continue;
        };
        // One is mapped in several pieces.
        if !names.contains(&*name) {
            room = room.checked_sub(name.len()).ok_or(Broken::TooMuch)?;
            names.insert(name.into_owned());
        }
        if names.len() > MOST_NAMES {
            return Err(Broken::TooMuch);
        }
    }
    if file.limit() == 0 {
        return Err(Broken::TooMuch);
    }
    if is_empty {
        return Err(Broken::Nothing);
    }
    Ok(names)
}

/// The path of the file that is mapped to be executed, which may hold any byte but a line
/// feed; empty where none is: `7f00-7f10 r-xp 00000000 fd:01 1234       /usr/lib/libcuda.so.1`.
/// `None` of what is no line of such a file.
fn code(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let (field, after) = rest.split_at_checked(end)?;
        rest = after.get(1..)?;
        Some(field)
    };
    let (begin, end) = split(field()?, b'-')?;
    let permissions = field()?;
    let offset = field()?;
    let (major, minor) = split(field()?, b':')?;
    let inode = std::str::from_utf8(field()?).ok()?;
    let numbers = [begin, end, offset, major, minor];
    let is_line = is_permissions(permissions) && numbers.into_iter().all(is_hex);
    let is_file = u64_of(inode)? != 0;
    let is_executed = permissions.contains(&b'x');
    let path = rest.trim_ascii_start();
    is_line.then_some(if is_file && is_executed { path } else { &[] })
}

fn split(field: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = field.iter().position(|byte| *byte == at)?;
    Some((field.get(..place)?, field.get(place + 1..)?))
}

/// `r-xp`: each letter in its place, or a dash; private or shared.
fn is_permissions(field: &[u8]) -> bool {
    let places: [&[u8]; 4] = [b"r-", b"w-", b"x-", b"ps"];
    let mut letters = field.iter().zip(places);
    field.len() == places.len() && letters.all(|(letter, place)| place.contains(letter))
}

fn is_hex(field: &[u8]) -> bool {
    (1..=16).contains(&field.len()) && field.iter().all(u8::is_ascii_hexdigit)
}

fn u64_of(decimal: &str) -> Option<u64> {
    // `parse` would take a sign.
    let is_number = decimal.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| decimal.parse().ok()).flatten()
}

/// The name of a file that is one by its name: `libcuda.so`, or with a version behind it,
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

    fn read(text: &str) -> Result<Vec<String>, Broken> {
        libraries(text.as_bytes()).map(|names| names.into_iter().collect())
    }

    #[test]
    fn shared_objects_are_told_once_and_by_their_names_alone() {
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
            // No files: a process names its memory as it likes.
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
        // Something is mapped, and no shared object.
        assert_eq!(read(&line(11, "/usr/bin/static")), Ok(vec![]));
    }

    #[test]
    fn a_shared_object_is_one_that_some_of_is_mapped_to_be_executed() {
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
    fn what_is_no_list_of_mappings_tells_of_none() {
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
            // Cut off.
            good.trim_end().to_owned(),
        ];
        for bad in bad {
            let text = [good.as_str(), &bad].concat();
            assert_eq!(read(&text), Err(Broken::NotMappings), "{bad}");
        }
        assert_eq!(read(""), Err(Broken::Nothing));
    }

    #[test]
    fn what_is_mapped_beyond_the_bounds_is_not_taken_for_not_there() {
        let many = |count: usize| -> String {
            let lines = (0..count).map(|number| line(1, &format!("/lib{number}.so")));
            lines.collect()
        };
        assert_eq!(read(&many(MOST_NAMES)).map(|it| it.len()), Ok(MOST_NAMES));
        assert_eq!(read(&many(MOST_NAMES + 1)), Err(Broken::TooMuch));

        let long = |number: usize| line(1, &format!("/{number:0250}.so"));
        let lines: String = (0..=MOST_TEXT / 253).map(long).collect();
        assert_eq!(read(&lines), Err(Broken::TooMuch));

        let one = line(1, "/lib.so");
        let times = usize::try_from(MOST_BYTES).unwrap() / one.len() + 1;
        assert_eq!(read(&one.repeat(times)), Err(Broken::TooMuch));

        let most = usize::try_from(MOST_LINE).unwrap();
        let endless = line(1, &"x".repeat(most));
        assert_eq!(read(&endless), Err(Broken::NotMappings));
        // The longest that the kernel writes.
        let longest = line(1, &format!("{}.so", "\\012".repeat(4_092)));
        assert_eq!(read(&longest).map(|names| names.len()), Ok(1));
    }

    #[test]
    fn what_is_mapped_into_this_very_process_is_read() {
        let file = std::fs::File::open("/proc/self/maps").unwrap();
        let names = libraries(io::BufReader::new(file)).unwrap();
        assert!(
            names.iter().any(|name| name.starts_with("libc.so")),
            "{names:?}"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic_it(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = libraries(&*bytes);
        }

        #[test]
        fn no_path_can_panic_it(inode: u64, path in "[^\n]{0,300}") {
            let text = line(inode, &path);
            let names = libraries(text.as_bytes()).unwrap();
            prop_assert!(names.iter().all(|name| name.contains(".so") && !name.contains('/')));
        }
    }
}
