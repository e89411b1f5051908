//! Reads attributes of sysfs: small files with one value each.

use crate::procfs::read_once;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::io;
use std::path::{Path, PathBuf};

/// No attribute is longer: sysfs writes at most a page, in one piece.
pub(crate) const ATTRIBUTE_MAX: usize = 4_096;

pub(crate) trait Attribute {
    /// Reads the text, as far as there is room.
    ///
    /// # Errors
    /// The kernel's reason why the attribute cannot be read.
    fn read<'a>(&self, room: &'a mut [u8; ATTRIBUTE_MAX]) -> io::Result<&'a [u8]>;
}

impl Attribute for Path {
    fn read<'a>(&self, room: &'a mut [u8; ATTRIBUTE_MAX]) -> io::Result<&'a [u8]> {
        read_once(self, room)
    }
}

impl Attribute for PathBuf {
    fn read<'a>(&self, room: &'a mut [u8; ATTRIBUTE_MAX]) -> io::Result<&'a [u8]> {
        self.as_path().read(room)
    }
}

/// The text of an attribute without its line end, control characters made visible. Anything after a
/// NUL byte is padding of sysfs archives. Unsupported where the driver does not have the attribute.
pub(crate) fn text(file: &(impl Attribute + ?Sized)) -> Reading<String> {
    match file.read(&mut [0; ATTRIBUTE_MAX]) {
        Ok(bytes) => {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            Reading::Value(sanitize(text.trim_ascii(), 512))
        }
        Err(error) => failure(&error),
    }
}

/// An attribute that is one decimal number.
pub(crate) fn number(file: &(impl Attribute + ?Sized)) -> Reading<u64> {
    read_parsed(file, |text| text.parse().ok())
}

/// An attribute that is one decimal number, which may be negative.
pub(crate) fn signed(file: &(impl Attribute + ?Sized)) -> Reading<i64> {
    read_parsed(file, |text| text.parse().ok())
}

/// An attribute that is a hexadecimal number with `0x` before it.
pub(crate) fn hexadecimal(file: &(impl Attribute + ?Sized)) -> Reading<u64> {
    read_parsed(file, |text| {
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    })
}

/// An attribute that `parse` accepts.
pub(crate) fn read_parsed<T>(
    file: &(impl Attribute + ?Sized),
    parse: impl FnOnce(&str) -> Option<T>,
) -> Reading<T> {
    match text(file) {
        Reading::Value(text) => parse(&text).map_or_else(
            || Reading::Failed(format!("not understood: {}", shortened(&text))),
            Reading::Value,
        ),
        unknown => unknown.as_unknown(),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Why an attribute could not be read. Drivers have several errors for an attribute that they do
/// not have.
pub(crate) fn failure<T>(error: &io::Error) -> Reading<T> {
    let code = error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error);
    match code {
        Some(
            rustix::io::Errno::NOENT
            | rustix::io::Errno::NODEV
            | rustix::io::Errno::NOTDIR
            | rustix::io::Errno::NODATA
            | rustix::io::Errno::INVAL
            | rustix::io::Errno::OPNOTSUPP,
        ) => Reading::Unsupported,
        // The same words each time, so that the fault stays the same fault.
        Some(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => {
            Reading::Failed("not permitted now".into())
        }
        Some(rustix::io::Errno::BUSY) => Reading::Failed("the driver is busy".into()),
        _ => Reading::Failed(sanitize(error.to_string().as_bytes(), 80)),
    }
}

/// The entries of a directory, by name; none if it cannot be read.
pub(crate) fn entries(directory: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut all: Vec<(String, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .take(4_096)
        .collect();
    all.sort_indirect();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_is_a_value_or_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x");
        let written = |text: &str| {
            std::fs::write(&file, text).unwrap();
            file.clone()
        };
        assert_eq!(number(&written("42\n")), Reading::Value(42));
        assert_eq!(number(&written("42\n\0\0")), Reading::Value(42));
        assert_eq!(signed(&written("-3\n")), Reading::Value(-3));
        assert_eq!(hexadecimal(&written("0x1002\n")), Reading::Value(0x1002));
        assert_eq!(
            number(&written("a\x1bb\n")),
            Reading::Failed("not understood: a\\x1bb".into())
        );
        assert_eq!(text(&written("\n")), Reading::Value(String::new()));
        assert_eq!(number(Path::new("/nonexistent/x")), Reading::Unsupported);
        assert_eq!(entries(Path::new("/nonexistent")), []);
    }
}
