//! The uids of a process and its PID in its own namespace, from `status` and `loginuid`.

use crate::procfs::{read_at_most, read_failure, read_status};
use gpukill_policy::access::Uids;
use gpukill_proto::reading::Reading;
use std::io;
use std::path::Path;

/// The used parts of `/proc/PID/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatusFile {
    pub(super) uids: Reading<Uids>,
    /// Its PID in its own PID namespace; `None` where it is the same.
    pub(super) inner_pid: Reading<Option<u32>>,
}

impl StatusFile {
    pub(super) fn read(directory: &Path) -> Self {
        match read_status(directory) {
            Ok(text) => Self::parse(&text),
            Err(error) => {
                let why: Reading<()> = read_failure(error);
                Self {
                    uids: why.as_unknown(),
                    inner_pid: why.as_unknown(),
                }
            }
        }
    }

    pub(super) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let numbers = |label: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(label))?;
            let numbers = line.split_ascii_whitespace().map(str::parse);
            numbers.collect::<Result<Vec<u32>, _>>().ok()
        };
        let uids = match numbers("Uid:").as_deref() {
            Some([real, effective, saved, ..]) => Reading::Value(Uids {
                real: *real,
                effective: *effective,
                saved: *saved,
            }),
            Some(_) | None => Reading::Failed("no Uid line".into()),
        };
        // From the outermost visible namespace to its own. Linux before 4.1 has no such line.
        let inner_pid = match numbers("NSpid:").as_deref() {
            Some([outer, .., inner]) => Reading::Value((inner != outer).then_some(*inner)),
            Some([_]) => Reading::Value(None),
            Some([]) | None => Reading::Unsupported,
        };
        Self { uids, inner_pid }
    }
}

/// The user who logged in, also if the uid has changed since; `None` without a login.
pub(super) fn login_uid(directory: &Path) -> Reading<Option<u32>> {
    match read_at_most(&directory.join("loginuid"), 64) {
        Ok(text) => parse_login_uid(&text),
        // A kernel without audit has no such file, or refuses to read it.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
            ) =>
        {
            Reading::Unsupported
        }
        Err(error) => read_failure(error),
    }
}

pub(super) fn parse_login_uid(text: &[u8]) -> Reading<Option<u32>> {
    let number = std::str::from_utf8(text).ok().map(str::trim);
    match number.and_then(|number| number.parse().ok()) {
        // -1: never set.
        Some(u32::MAX) => Reading::Value(None),
        Some(uid) => Reading::Value(Some(uid)),
        None => Reading::Failed("no number".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn uids_and_inner_pid_are_read() {
        let read = |text: &str| StatusFile::parse(text.as_bytes());
        let status = read("Name:\tx\nUid:\t1000\t1001\t1002\t1003\nNSpid:\t4242\t17\t1\n");
        let uids = Uids {
            real: 1000,
            effective: 1001,
            saved: 1002,
        };
        assert_eq!(status.uids, Reading::Value(uids));
        assert_eq!(status.inner_pid, Reading::Value(Some(1)));
        assert_eq!(read("NSpid:\t4242\n").inner_pid, Reading::Value(None));
        assert_eq!(read("NSpid:\t7\t7\n").inner_pid, Reading::Value(None));
        let without = read("Name:\tx\n");
        assert_eq!(without.uids, Reading::Failed("no Uid line".into()));
        assert_eq!(without.inner_pid, Reading::Unsupported);
    }

    #[test]
    fn login_uid_is_a_number_none_or_unsupported() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(login_uid(directory.path()), Reading::Unsupported);
        let read = |text: &str| {
            std::fs::write(directory.path().join("loginuid"), text).unwrap();
            login_uid(directory.path())
        };
        assert_eq!(read("1000"), Reading::Value(Some(1000)));
        assert_eq!(read("0\n"), Reading::Value(Some(0)));
        assert_eq!(read("4294967295"), Reading::Value(None));
        assert_eq!(read("x"), Reading::Failed("no number".into()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (StatusFile::parse(&bytes), parse_login_uid(&bytes));
        }
    }
}
