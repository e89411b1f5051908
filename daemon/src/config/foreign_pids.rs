//! Whether processes may be ended although the daemon's pids are not the host's.
//! A file says so, and only one that nobody could have written who may not end
//! anybody's processes anyway.

use super::Scope;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What the setting comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ForeignPids {
    /// Nobody allows it.
    #[default]
    Refuse,
    /// It is set where it is not believed; says why.
    NotBelieved(String),
    /// A file that is believed allows it.
    Act,
}

impl ForeignPids {
    /// Set in this file.
    pub(super) fn said_by(file: &Path, metadata: &Metadata, scope: Scope) -> Self {
        let us = rustix::process::getuid().as_raw();
        let (owner, mode) = (metadata.uid(), metadata.mode());
        let is_theirs = match scope {
            Scope::Box => owner == 0,
            Scope::Personal => owner == us || owner == 0,
        };
        let file = file.display();
        if !is_theirs {
            Self::NotBelieved(format!("{file} belongs to uid {owner}"))
        } else if mode & 0o022 != 0 {
            Self::NotBelieved(format!("others may write {file}"))
        } else {
            Self::Act
        }
    }

    /// With what the environment makes of the setting: it may take it back, and
    /// is not believed alone.
    pub(super) fn and_environment(self, is_set: bool) -> Self {
        match (self, is_set) {
            (_, false) => Self::Refuse,
            (Self::Refuse, true) => Self::NotBelieved("no file says so".to_owned()),
            (by_file @ (Self::NotBelieved(_) | Self::Act), true) => by_file,
        }
    }

    /// Why this daemon may end no process, whoever asks.
    pub(crate) fn will_not_act(&self, has_the_hosts_pids: bool) -> Option<String> {
        if has_the_hosts_pids {
            return None;
        }
        let why = "gpukilld is not in the host's PID namespace, so pids may name other \
                   processes: run it on the host, or in a container with the host's PIDs \
                   (hostPID: true)";
        match self {
            Self::Refuse => Some(why.to_owned()),
            Self::NotBelieved(because) => Some(format!(
                "{why}; daemon.foreign_pids is not believed: {because}"
            )),
            Self::Act => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn not_believed(why: &str) -> ForeignPids {
        ForeignPids::NotBelieved(why.to_owned())
    }

    #[test]
    fn only_a_file_of_ones_own_that_nobody_else_may_write_is_believed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let with_mode = |mode| {
            let allowed = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), allowed).unwrap();
            let metadata = file.as_file().metadata().unwrap();
            ForeignPids::said_by(Path::new("/etc/x"), &metadata, Scope::Personal)
        };
        assert_eq!(with_mode(0o644), ForeignPids::Act);
        for mode in [0o664, 0o646] {
            assert_eq!(with_mode(mode), not_believed("others may write /etc/x"));
        }
    }

    #[test]
    fn for_a_box_the_file_is_roots() {
        // Of root, and on every box.
        let roots = std::fs::metadata("/").unwrap();
        let said = |metadata| ForeignPids::said_by(Path::new("/etc/x"), metadata, Scope::Box);
        if roots.uid() == 0 && roots.mode() & 0o022 == 0 {
            assert_eq!(said(&roots), ForeignPids::Act);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(file.path(), Some(1000), None).unwrap();
        }
        let metadata = file.as_file().metadata().unwrap();
        let why = format!("/etc/x belongs to uid {}", metadata.uid());
        assert_eq!(said(&metadata), not_believed(&why));
    }

    #[test]
    fn the_environment_alone_is_not_believed_and_may_take_it_back() {
        let without = not_believed("no file says so");
        assert_eq!(ForeignPids::Refuse.and_environment(true), without);
        assert_eq!(ForeignPids::Act.and_environment(true), ForeignPids::Act);
        assert_eq!(ForeignPids::Act.and_environment(false), ForeignPids::Refuse);
    }

    #[test]
    fn a_daemon_with_the_hosts_pids_acts_and_another_says_why_it_does_not() {
        let all = [
            ForeignPids::Refuse,
            not_believed("no file says so"),
            ForeignPids::Act,
        ];
        for said in &all {
            assert_eq!(said.will_not_act(true), None);
        }
        let why = "gpukilld is not in the host's PID namespace, so pids may name other \
                   processes: run it on the host, or in a container with the host's PIDs \
                   (hostPID: true)";
        assert_eq!(
            all.map(|said| said.will_not_act(false)),
            [
                Some(why.to_owned()),
                Some(format!(
                    "{why}; daemon.foreign_pids is not believed: no file says so"
                )),
                None
            ]
        );
    }
}
