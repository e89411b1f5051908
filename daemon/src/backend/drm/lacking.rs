//! The attributes of one card, and which of them its driver does not have: most
//! cards lack most of what some card has, and are not asked for it at each poll.

use super::sysfs::{ATTRIBUTE_MAX, Attribute};
use crate::procfs::file::read_once;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So often what a card lacks is asked for again: as often as what it seldom tells.
const AGAIN: Duration = Duration::from_secs(16);

/// The attributes below one directory.
#[derive(Debug)]
pub(crate) struct Attributes {
    directory: PathBuf,
    /// Those that were not there, and when the first of them was asked for.
    lacking: RefCell<BTreeSet<&'static str>>,
    since: Option<Instant>,
}

impl Attributes {
    /// Nothing was asked for yet.
    pub(crate) fn below(directory: PathBuf) -> Self {
        Self {
            directory,
            lacking: RefCell::default(),
            since: None,
        }
    }

    /// Begins a poll. Every now and then everything is asked for again.
    pub(crate) fn at(&mut self, now: Instant) {
        let is_old = |since| now.saturating_duration_since(since) >= AGAIN;
        if self.since.is_none_or(is_old) {
            self.lacking.get_mut().clear();
            self.since = Some(now);
        }
    }

    /// Asks for everything again at the next poll.
    pub(crate) fn forget(&mut self) {
        self.since = None;
    }

    /// The one with this name.
    pub(crate) fn named(&self, name: &'static str) -> Named<'_> {
        Named { of: self, name }
    }
}

/// One attribute of a card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    of: &'a Attributes,
    name: &'static str,
}

impl Attribute for Named<'_> {
    fn read<'a>(&self, room: &'a mut [u8; ATTRIBUTE_MAX]) -> io::Result<&'a [u8]> {
        if self.of.lacking.borrow().contains(self.name) {
            return Err(rustix::io::Errno::NOENT.into());
        }
        let told = read_once(&self.of.directory.join(self.name), room);
        // One that is there and tells nothing may tell something the next time.
        if let Err(error) = &told
            && error.kind() == io::ErrorKind::NotFound
        {
            self.of.lacking.borrow_mut().insert(self.name);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs;
    use super::*;
    use gpukill_proto::reading::Reading;

    #[test]
    fn what_a_card_lacks_is_asked_for_again_every_sixteen_seconds_and_when_it_woke() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text| std::fs::write(directory.path().join(name), text).unwrap();
        let mut attributes = Attributes::below(directory.path().to_owned());
        let began = Instant::now();
        let mut told = |seconds, woke| {
            if woke {
                attributes.forget();
            }
            attributes.at(began + Duration::from_secs(seconds));
            ["a", "b"].map(|name| sysfs::number(&attributes.named(name)))
        };
        let (none, some) = (Reading::Unsupported, Reading::Value);
        write("a", "1\n");
        assert_eq!(told(0, false), [some(1), none.clone()]);
        write("a", "2\n");
        write("b", "3\n");
        // What is there is read each time.
        assert_eq!(told(2, false), [some(2), none.clone()]);
        assert_eq!(told(15, false), [some(2), none]);
        assert_eq!(told(16, false), [some(2), some(3)]);
        std::fs::remove_file(directory.path().join("b")).unwrap();
        assert_eq!(told(18, false), [some(2), Reading::Unsupported]);
        write("b", "4\n");
        assert_eq!(told(20, true), [some(2), some(4)]);
    }

    #[test]
    fn what_failed_is_not_lacking() {
        let directory = tempfile::tempdir().unwrap();
        let mut attributes = Attributes::below(directory.path().to_owned());
        attributes.at(Instant::now());
        let file = directory.path().join("a");
        // A directory cannot be read.
        std::fs::create_dir(&file).unwrap();
        let told = || sysfs::number(&attributes.named("a"));
        assert!(told().failure().is_some());
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, "7\n").unwrap();
        assert_eq!(told(), Reading::Value(7));
    }
}
