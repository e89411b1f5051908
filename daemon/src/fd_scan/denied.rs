//! Describes the processes that the system does not let the daemon scan.

use gpukill_proto::text::sanitize;
use std::collections::BTreeMap;

/// How many are named.
pub(super) const MAX_NAMED: usize = 3;

/// How many names are kept: those of the lowest PIDs.
const MAX_KEPT_NAMES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct DeniedNames(BTreeMap<u32, String>);

/// The denied processes of a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeniedProcesses {
    /// The first [`MAX_NAMED`], ascending.
    pub(super) first: Vec<u32>,
    pub(super) has_more: bool,
    /// At least one belongs to another user.
    pub(super) any_of_others: bool,
}

impl DeniedNames {
    pub(super) fn insert(&mut self, pid: u32, name: &str) {
        self.0.insert(pid, sanitize(name.as_bytes(), 64));
        if self.0.len() > MAX_KEPT_NAMES {
            self.0.pop_last();
        }
    }

    pub(super) fn remove(&mut self, pid: u32) {
        self.0.remove(&pid);
    }

    /// The text about them. It does not give the number of many processes: the number changes all
    /// the time, and each change would be a new fault.
    pub(super) fn describe(&self, refused: &DeniedProcesses) -> String {
        let subject = match (refused.has_more, refused.any_of_others) {
            (true, true) => return OTHERS_DENIED.to_owned(),
            (true, false) => format!(
                "processes {} and others",
                self.list_names(&refused.first, ", ")
            ),
            (false, _) => match refused.first.as_slice() {
                [only] => format!("process {}", self.format_name(*only)),
                few => format!("processes {}", self.list_names(few, " and ")),
            },
        };
        format!("{subject} cannot be scanned: not permitted")
    }

    fn list_names(&self, pids: &[u32], last: &str) -> String {
        let named: Vec<String> = pids.iter().map(|pid| self.format_name(*pid)).collect();
        match named.split_last() {
            Some((end, before)) if !before.is_empty() => {
                format!("{}{last}{end}", before.join(", "))
            }
            Some(_) | None => named.concat(),
        }
    }

    fn format_name(&self, pid: u32) -> String {
        match self.0.get(&pid) {
            Some(name) => format!("{pid} ({name})"),
            None => pid.to_string(),
        }
    }
}

/// For many processes, or where they are not even listed (`hidepid=`).
pub(super) const OTHERS_DENIED: &str = "other users' processes cannot be scanned: not permitted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_few_and_summarizes_many() {
        let mut names = DeniedNames::default();
        for (pid, name) in [(1, "systemd"), (7, "a\u{1b}b"), (9, "sshd")] {
            names.insert(pid, name);
        }
        let text = |first: &[u32], more, of_others| {
            let first = first.to_vec();
            let text = names.describe(&DeniedProcesses {
                first,
                has_more: more,
                any_of_others: of_others,
            });
            let end = " cannot be scanned: not permitted";
            text.strip_suffix(end).map(str::to_owned)
        };
        let text = |first: &[u32], more, of_others| text(first, more, of_others).unwrap();
        assert_eq!(text(&[1], false, false), "process 1 (systemd)");
        assert_eq!(text(&[9], false, true), "process 9 (sshd)");
        assert_eq!(text(&[1, 8], false, true), "processes 1 (systemd) and 8");
        let three = text(&[1, 8, 9], false, false);
        assert_eq!(three, "processes 1 (systemd), 8 and 9 (sshd)");
        let many = text(&[1, 8, 9], true, false);
        assert_eq!(many, "processes 1 (systemd), 8, 9 (sshd) and others");
        assert_eq!(text(&[1, 8, 9], true, true), "other users' processes");
        assert!(!text(&[7], false, false).contains('\u{1b}'));
    }

    #[test]
    fn keeps_only_names_that_can_be_reported() {
        let mut names = DeniedNames::default();
        for pid in (1..=1_000).rev() {
            names.insert(pid, "x");
        }
        assert_eq!(names.0.len(), MAX_KEPT_NAMES);
        assert_eq!(names.format_name(1), "1 (x)");
        names.remove(1);
        assert_eq!(names.format_name(1), "1");
    }
}
