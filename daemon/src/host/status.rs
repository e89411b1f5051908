//! Who a process runs as, and as which number it sees itself: `status` and
//! `loginuid`.

use crate::procfs::file::{failed, read_at_most};
use crate::procfs::status;
use gpukill_policy::access::Uids;
use gpukill_proto::reading::Reading;
use std::io;
use std::path::Path;

/// What of `/proc/PID/status` is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) uids: Reading<Uids>,
    /// Its pid in its own PID namespace; `None` where that is the same.
    pub(super) inner_pid: Reading<Option<u32>>,
}

impl Status {
    /// From the directory of a process.
    pub(super) fn read(directory: &Path) -> Self {
        match status::read(directory) {
            Ok(text) => Self::parse(&text),
            Err(error) => {
                let why: Reading<()> = failed(error);
                Self {
                    uids: why.because(),
                    inner_pid: why.because(),
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
        // From the outermost namespace that we see to its own. Linux before 4.1
        // has no such line.
        let inner_pid = match numbers("NSpid:").as_deref() {
            Some([outer, .., inner]) => Reading::Value((inner != outer).then_some(*inner)),
            Some([_]) => Reading::Value(None),
            Some([]) | None => Reading::Unsupported,
        };
        Self { uids, inner_pid }
    }
}

/// Who logged in, whoever a process runs as now; `None` when nobody did.
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
        Err(error) => failed(error),
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
    fn users_and_the_inner_pid_are_read_from_status() {
        let read = |text: &str| Status::parse(text.as_bytes());
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
    fn a_login_is_a_number_or_none_or_not_kept_by_this_kernel() {
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
        fn no_bytes_can_panic_them(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Status::parse(&bytes), parse_login_uid(&bytes));
        }
    }
}
