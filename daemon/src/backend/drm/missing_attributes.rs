//! The attributes of one card, with those that its driver does not have: most cards lack most
//! attributes, and the missing ones are not opened at each poll.

use super::sysfs::{ATTRIBUTE_MAX, Attribute};
use crate::procfs::read_once;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often missing attributes are tried again: the interval of the slow attributes.
const RETRY_INTERVAL: Duration = Duration::from_secs(16);

/// The attributes below one directory.
#[derive(Debug)]
pub(crate) struct CardAttributes {
    directory: PathBuf,
    /// The missing ones, and when the first of them was tried.
    missing: RefCell<BTreeSet<&'static str>>,
    since: Option<Instant>,
}

impl CardAttributes {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            missing: RefCell::default(),
            since: None,
        }
    }

    /// Begins a poll. At intervals, missing attributes are tried again.
    pub(crate) fn begin_poll(&mut self, now: Instant) {
        let is_old = |since| now.saturating_duration_since(since) >= RETRY_INTERVAL;
        if self.since.is_none_or(is_old) {
            self.missing.get_mut().clear();
            self.since = Some(now);
        }
    }

    /// Tries all attributes again at the next poll.
    pub(crate) fn retry_all(&mut self) {
        self.since = None;
    }

    pub(crate) fn attribute(&self, name: &'static str) -> CardAttribute<'_> {
        CardAttribute {
            attributes: self,
            name,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct CardAttribute<'a> {
    attributes: &'a CardAttributes,
    name: &'static str,
}

impl Attribute for CardAttribute<'_> {
    fn read<'a>(&self, room: &'a mut [u8; ATTRIBUTE_MAX]) -> io::Result<&'a [u8]> {
        if self.attributes.missing.borrow().contains(self.name) {
            return Err(rustix::io::Errno::NOENT.into());
        }
        let result = read_once(&self.attributes.directory.join(self.name), room);
        // An attribute that exists and fails may be readable the next time.
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::NotFound
        {
            self.attributes.missing.borrow_mut().insert(self.name);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs;
    use super::*;
    use gpukill_proto::reading::Reading;

    #[test]
    fn missing_attributes_are_retried() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text| std::fs::write(directory.path().join(name), text).unwrap();
        let mut attributes = CardAttributes::new(directory.path().to_owned());
        let start = Instant::now();
        let mut result = |seconds, woke| {
            if woke {
                attributes.retry_all();
            }
            attributes.begin_poll(start + Duration::from_secs(seconds));
            ["a", "b"].map(|name| sysfs::number(&attributes.attribute(name)))
        };
        let (none, some) = (Reading::Unsupported, Reading::Value);
        write("a", "1\n");
        assert_eq!(result(0, false), [some(1), none.clone()]);
        write("a", "2\n");
        write("b", "3\n");
        // An existing attribute is read each time.
        assert_eq!(result(2, false), [some(2), none.clone()]);
        assert_eq!(result(15, false), [some(2), none]);
        assert_eq!(result(16, false), [some(2), some(3)]);
        std::fs::remove_file(directory.path().join("b")).unwrap();
        assert_eq!(result(18, false), [some(2), Reading::Unsupported]);
        write("b", "4\n");
        assert_eq!(result(20, true), [some(2), some(4)]);
    }

    #[test]
    fn failed_attribute_is_not_missing() {
        let directory = tempfile::tempdir().unwrap();
        let mut attributes = CardAttributes::new(directory.path().to_owned());
        attributes.begin_poll(Instant::now());
        let file = directory.path().join("a");
        // Reading a directory fails.
        std::fs::create_dir(&file).unwrap();
        let result = || sysfs::number(&attributes.attribute("a"));
        assert!(result().failure().is_some());
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, "7\n").unwrap();
        assert_eq!(result(), Reading::Value(7));
    }
}
