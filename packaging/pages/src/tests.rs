//! The generated files are complete, contain nothing hidden, and are valid for the programs
//! that read them.

mod pages;
mod references;
mod settings;
mod tools;

use super::*;
use std::os::unix::ffi::OsStrExt as _;

/// The date of the pages in these tests.
const DATE: &str = "2026-11-22";

/// The text of a file, which must exist.
fn text(path: &str) -> String {
    let files = files(DATE);
    let found = files.get(Path::new(path));
    found.unwrap_or_else(|| panic!("no {path}")).clone()
}

/// The text of a page without escape signs.
fn page_text(path: &str) -> String {
    let mut said = text(path);
    for (escaped, sign) in [
        (r"\-", "-"),
        (r"\(aq", "'"),
        (r"\(ga", "`"),
        (r"\(ha", "^"),
        (r"\(ti", "~"),
        (r"\(dq", "\""),
        (r"\e", "\\"),
    ] {
        said = said.replace(escaped, sign);
    }
    said
}

#[test]
fn date_is_source_date_epoch_or_empty() {
    let day = |epoch: &[u8]| date(OsStr::from_bytes(epoch)).ok();
    assert_eq!(day(b"1790000000").as_deref(), Some("2026-09-21"));
    for wrong in [
        b"".as_slice(),
        b"today",
        b"1e9",
        b"\xff",
        b"99999999999999999",
    ] {
        assert_eq!(day(wrong), None, "{wrong:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("man/man8/gpukilld.8");
    let title = || {
        let page = std::fs::read_to_string(&page).unwrap();
        page.lines().next().unwrap().to_owned()
    };
    write(directory.path(), None).unwrap();
    assert!(
        title().starts_with(r#".TH "GPUKILLD" 8 "" "#),
        "{}",
        title()
    );
    write(directory.path(), Some(OsStr::new("1790000000"))).unwrap();
    assert!(title().starts_with(r#".TH "GPUKILLD" 8 "2026-09-21" "#));
    assert!(write(directory.path(), Some(OsStr::new("today"))).is_err());
}

#[test]
fn same_sources_give_the_same_bytes() {
    assert_eq!(files(""), files(""));
}
