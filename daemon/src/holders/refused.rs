//! Which processes the system does not let us look into, in words.

use gpukill_proto::text::visible;
use std::collections::BTreeMap;

/// So many are named.
pub(super) const NAMED: usize = 3;

/// Names are kept of so many, those with the lowest pids.
const KEPT: usize = 64;

/// What these processes are called.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<u32, String>);

/// Those that a pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// The first [`NAMED`], ascending.
    pub(super) first: Vec<u32>,
    /// There are more.
    pub(super) more: bool,
    /// One of them at least is another user's.
    pub(super) of_others: bool,
}

impl Names {
    pub(super) fn keep(&mut self, pid: u32, name: &str) {
        self.0.insert(pid, visible(name.as_bytes(), 64));
        if self.0.len() > KEPT {
            self.0.pop_last();
        }
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }

    /// What is told of them. It says nothing of how many they are where they are
    /// many: that changes all the time, and would be a new fault each time.
    pub(super) fn sentence(&self, refused: &Refused) -> String {
        let who = match (refused.more, refused.of_others) {
            (true, true) => return OTHERS.to_owned(),
            (true, false) => format!("processes {} and others", self.list(&refused.first, ", ")),
            (false, _) => match refused.first.as_slice() {
                [only] => format!("process {}", self.one(*only)),
                few => format!("processes {}", self.list(few, " and ")),
            },
        };
        format!("{who} cannot be looked into: not permitted")
    }

    fn list(&self, pids: &[u32], last: &str) -> String {
        let named: Vec<String> = pids.iter().map(|pid| self.one(*pid)).collect();
        match named.split_last() {
            Some((end, before)) if !before.is_empty() => {
                format!("{}{last}{end}", before.join(", "))
            }
            Some(_) | None => named.concat(),
        }
    }

    fn one(&self, pid: u32) -> String {
        match self.0.get(&pid) {
            Some(name) => format!("{pid} ({name})"),
            None => pid.to_string(),
        }
    }
}

/// Where they are many, or where they are not even listed (`hidepid=`).
pub(super) const OTHERS: &str = "other users' processes cannot be looked into: not permitted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_named_and_many_are_others_only_where_they_are() {
        let mut names = Names::default();
        for (pid, name) in [(1, "systemd"), (7, "a\u{1b}b"), (9, "sshd")] {
            names.keep(pid, name);
        }
        let said = |first: &[u32], more, of_others| {
            let first = first.to_vec();
            let said = names.sentence(&Refused {
                first,
                more,
                of_others,
            });
            let end = " cannot be looked into: not permitted";
            said.strip_suffix(end).map(str::to_owned)
        };
        let said = |first: &[u32], more, of_others| said(first, more, of_others).unwrap();
        assert_eq!(said(&[1], false, false), "process 1 (systemd)");
        assert_eq!(said(&[9], false, true), "process 9 (sshd)");
        assert_eq!(said(&[1, 8], false, true), "processes 1 (systemd) and 8");
        let three = said(&[1, 8, 9], false, false);
        assert_eq!(three, "processes 1 (systemd), 8 and 9 (sshd)");
        let many = said(&[1, 8, 9], true, false);
        assert_eq!(many, "processes 1 (systemd), 8, 9 (sshd) and others");
        assert_eq!(said(&[1, 8, 9], true, true), "other users' processes");
        assert!(!said(&[7], false, false).contains('\u{1b}'));
    }

    #[test]
    fn no_more_names_are_kept_than_are_ever_told() {
        let mut names = Names::default();
        for pid in (1..=1_000).rev() {
            names.keep(pid, "x");
        }
        assert_eq!(names.0.len(), KEPT);
        assert_eq!(names.one(1), "1 (x)");
        names.forget(1);
        assert_eq!(names.one(1), "1");
    }
}
