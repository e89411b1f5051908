//! Whether processes may be ended although the daemon does not use the host's pids. A file must
//! allow it, and only a file that nobody could have written without the right to end all processes
//! anyway.

use super::DaemonScope;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The effect of the setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ForeignPids {
    /// No file allows it.
    #[default]
    Refuse,
    /// It is set where it is not trusted; holds the reason.
    NotTrusted(String),
    /// A trusted file allows it.
    Allow,
}

impl ForeignPids {
    /// The effect of the setting in this file.
    pub(super) fn from_file(file: &Path, metadata: &Metadata, scope: DaemonScope) -> Self {
        let own_uid = rustix::process::getuid().as_raw();
        let (owner, mode) = (metadata.uid(), metadata.mode());
        let is_trusted_owner = match scope {
            DaemonScope::Host => owner == 0,
            DaemonScope::Personal => owner == own_uid || owner == 0,
        };
        let file = file.display();
        if !is_trusted_owner {
            Self::NotTrusted(format!("{file} belongs to uid {owner}"))
        } else if mode & 0o022 != 0 {
            Self::NotTrusted(format!("others may write {file}"))
        } else {
            Self::Allow
        }
    }

    /// Combines it with the environment, which may withdraw the setting but is not trusted alone.
    pub(super) fn with_environment(self, is_set: bool) -> Self {
        match (self, is_set) {
            (_, false) => Self::Refuse,
            (Self::Refuse, true) => Self::NotTrusted("no file sets it".to_owned()),
            (by_file @ (Self::NotTrusted(_) | Self::Allow), true) => by_file,
        }
    }

    /// Why this daemon may end no process; `None` if it may.
    pub(crate) fn disabled_reason(&self, has_the_hosts_pids: bool) -> Option<String> {
        if has_the_hosts_pids {
            return None;
        }
        let why = "gpukilld is not in the host's PID namespace, so pids may name other \
                   processes: run it on the host, or in a container with the host's PIDs \
                   (hostPID: true)";
        match self {
            Self::Refuse => Some(why.to_owned()),
            Self::NotTrusted(because) => Some(format!(
                "{why}; daemon.foreign_pids is not trusted: {because}"
            )),
            Self::Allow => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn not_believed(why: &str) -> ForeignPids {
        ForeignPids::NotTrusted(why.to_owned())
    }

    #[test]
    fn only_own_private_file_is_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let with_mode = |mode| {
            let allowed = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), allowed).unwrap();
            let metadata = file.as_file().metadata().unwrap();
            ForeignPids::from_file(Path::new("/etc/x"), &metadata, DaemonScope::Personal)
        };
        assert_eq!(with_mode(0o644), ForeignPids::Allow);
        for mode in [0o664, 0o646] {
            assert_eq!(with_mode(mode), not_believed("others may write /etc/x"));
        }
    }

    #[test]
    fn host_file_must_belong_to_root() {
        // It belongs to root, and exists on every host.
        let roots = std::fs::metadata("/").unwrap();
        let decision =
            |metadata| ForeignPids::from_file(Path::new("/etc/x"), metadata, DaemonScope::Host);
        if roots.uid() == 0 && roots.mode() & 0o022 == 0 {
            assert_eq!(decision(&roots), ForeignPids::Allow);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(file.path(), Some(1000), None).unwrap();
        }
        let metadata = file.as_file().metadata().unwrap();
        let why = format!("/etc/x belongs to uid {}", metadata.uid());
        assert_eq!(decision(&metadata), not_believed(&why));
    }

    #[test]
    fn environment_may_only_withdraw() {
        let without = not_believed("no file sets it");
        assert_eq!(ForeignPids::Refuse.with_environment(true), without);
        assert_eq!(
            ForeignPids::Allow.with_environment(true),
            ForeignPids::Allow
        );
        assert_eq!(
            ForeignPids::Allow.with_environment(false),
            ForeignPids::Refuse
        );
    }

    #[test]
    fn disabled_unless_pids_are_the_hosts() {
        let all = [
            ForeignPids::Refuse,
            not_believed("no file sets it"),
            ForeignPids::Allow,
        ];
        for decision in &all {
            assert_eq!(decision.disabled_reason(true), None);
        }
        let why = "gpukilld is not in the host's PID namespace, so pids may name other \
                   processes: run it on the host, or in a container with the host's PIDs \
                   (hostPID: true)";
        assert_eq!(
            all.map(|decision| decision.disabled_reason(false)),
            [
                Some(why.to_owned()),
                Some(format!(
                    "{why}; daemon.foreign_pids is not trusted: no file sets it"
                )),
                None
            ]
        );
    }
}
