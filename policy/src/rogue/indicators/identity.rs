//! Indicators from the name and the executable of a process.

use super::{IndicatorMatch, load, origin};
use crate::rogue::rules::RogueRules;
use crate::rogue::suspect::{Suspect, file_name};

/// Full names of miners in lower case: those in Falco's rules, other GPU miners, and
/// names under which the Kinsing malware starts a miner.
#[rustfmt::skip]
const MINER_NAMES: [&str; 37] = [
    "bfgminer", "bminer", "bzminer", "ccminer", "cgminer", "claymore", "cpuminer", "ethdcrminer64",
    "ethminer", "gminer", "kawpowminer", "kdevtmpfsi", "kinsing", "lolminer", "minerd", "minergate",
    "minergate-cli", "miniz", "nanominer", "nbminer", "onezerominer", "phoenixminer",
    "progpowminer", "rigel", "sgminer", "srbminer", "srbminer-multi", "t-rex", "teamblackminer",
    "teamredminer", "trex-miner", "wildrig", "wildrig-multi", "xmr-stak", "xmr-stak-rx", "xmrig",
    "xmrig-nvidia",
];

/// The name of a known miner: the kernel's name, the file name or the process's own
/// title.
pub(super) fn miner_name(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let mut called = suspect.names();
    called
        .find(|name| is_miner_name(name, rules))
        .map(|name| IndicatorMatch::new(700, format!("its name is {name}")))
}

pub(super) fn is_miner_name(name: &str, rules: &RogueRules) -> bool {
    let of_admin = rules.patterns.miners.iter().map(String::as_str);
    let mut known = MINER_NAMES.into_iter().chain(of_admin);
    known.any(|known| known.eq_ignore_ascii_case(name))
}

/// An executable that the admin listed.
pub(super) fn miner_hash(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let hash = suspect.sha256.as_ref()?;
    let known = rules.patterns.sha256.iter().find(|known| *known == hash)?;
    Some(IndicatorMatch::new(
        950,
        format!("its executable has SHA-256 {known}"),
    ))
}

/// Libraries that miners load: xmrig's for CUDA and OpenCL.
const MINER_LIBRARIES: [&str; 2] = ["libxmrig-cuda", "libxmrig-cl"];

pub(super) fn is_miner_library(name: &str) -> bool {
    MINER_LIBRARIES.iter().any(|part| name.starts_with(part))
}

/// A miner library among the mapped files.
pub(super) fn miner_library(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let libraries = suspect.libraries.as_ref()?;
    let part = libraries.iter().find(|name| is_miner_library(name))?;
    Some(IndicatorMatch::new(700, format!("it has loaded {part}")))
}

/// System programs that have no use for a GPU and lie in system directories.
#[rustfmt::skip]
const SYSTEM_PROGRAMS: [&str; 40] = [
    "(sd-pam)", "agetty", "apache2", "auditd", "bash", "containerd", "containerd-shim", "cron",
    "crond", "curl", "dbus-daemon", "dhclient", "dockerd", "gzip", "httpd", "kubelet", "mysqld",
    "nginx", "nvidia-persistenced", "nvidia-powerd", "nvidia-smi", "php-cgi", "php-fpm", "pip",
    "polkitd", "postgres", "postmaster", "redis-server", "rsync", "rsyslogd", "runc", "sh", "sshd",
    "systemd", "systemd-journald", "systemd-logind", "systemd-udevd", "tar", "tmux", "wget",
];

/// The prefix of systemd's own programs, of which every release has more.
const SYSTEMD_PREFIX: &str = "systemd-";

/// The name of a system program for a file elsewhere.
pub(super) fn system_name_elsewhere(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let path = suspect.path()?;
    if crate::kill::protection::is_system_path(path) {
        return None;
    }
    let is_one = |name: &&str| SYSTEM_PROGRAMS.contains(name) || name.starts_with(SYSTEMD_PREFIX);
    let name = suspect.names().find(is_one)?;
    // No package installs a program there.
    let weight = if origin::is_temporary(path) { 550 } else { 450 };
    Some(IndicatorMatch::new(
        weight,
        format!("its name is {name}, and its executable is {path}"),
    ))
}

/// A Python without any Python module: its computations need extension modules with
/// the version in their file names. The system's own Python is excluded: a script may
/// load libraries by `ctypes` alone.
pub(super) fn python_without_modules(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let libraries = suspect.libraries.as_ref().filter(|it| !it.is_empty())?;
    let name = suspect.names().find(|name| is_python_name(name))?;
    if suspect.path().is_some_and(is_system_python) {
        return None;
    }
    let is_none = !libraries.iter().any(|name| is_python_module(name))
        && load::has_workload_library(suspect) == Some(false);
    is_none.then(|| {
        IndicatorMatch::new(
            350,
            format!("its name is {name}, and it has loaded no Python module"),
        )
    })
}

fn is_system_python(path: &str) -> bool {
    is_python_name(file_name(path)) && crate::kill::protection::is_system_path(path)
}

/// Whether it is a Python library or an extension module.
pub(super) fn is_python_module(name: &str) -> bool {
    let parts = [".cpython-", ".abi3.so", ".pypy", "libpython"];
    parts.iter().any(|part| name.contains(part))
}

fn is_python_name(name: &str) -> bool {
    let rest = name.strip_prefix("python");
    rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detects(name: &str, executable: &str, itself: &str) -> bool {
        let suspect = Suspect {
            name: Some(name.into()),
            executable: Some(executable.into()),
            arguments: Some(vec![itself.into()]),
            ..Suspect::default()
        };
        miner_name(&suspect, &RogueRules::default()).is_some()
    }

    #[test]
    fn miner_is_recognized_by_any_full_name() {
        for (name, executable, itself) in [
            ("xmrig", "/usr/bin/python3", "python3"),
            ("python3", "/home/eve/lolMiner", "python3"),
            ("python3", "/tmp/T-REX (deleted)", "python3"),
            ("python3", "/usr/bin/python3", "./nbminer"),
        ] {
            assert!(
                detects(name, executable, itself),
                "{name} {executable} {itself}"
            );
        }
        for (name, executable, itself) in [
            ("data-miner", "/opt/dataminer/bin/miner", "miner"),
            ("xmrig2py", "/usr/bin/python3", "python3 xmrig_paper.py"),
            ("hashcat", "/usr/bin/hashcat", "hashcat"),
            ("python3", "/home/eve/xmrig/venv/bin/python3", "python3"),
        ] {
            assert!(
                !detects(name, executable, itself),
                "{name} {executable} {itself}"
            );
        }
    }

    #[test]
    fn miner_library_is_recognized() {
        let sees = |library: &str| {
            let suspect = Suspect {
                libraries: Some([library.to_owned()].into()),
                ..Suspect::default()
            };
            miner_library(&suspect, &RogueRules::default()).is_some()
        };
        assert!(sees("libxmrig-cuda.so") && !sees("libcuda.so.1"));
    }

    #[test]
    fn system_name_elsewhere_is_recognized() {
        let sees = |name: &str, path: &str| {
            let suspect = Suspect {
                name: Some(name.into()),
                executable: Some(path.into()),
                ..Suspect::default()
            };
            system_name_elsewhere(&suspect, &RogueRules::default()).is_some()
        };
        assert!(sees("nvidia-smi", "/home/eve/bin/nvidia-smi"));
        assert!(sees("3", "/dev/shm/.fonts/apache2 (deleted)"));
        assert!(sees("systemd-helper", "/tmp/systemd-helper (deleted)"));
        assert!(!sees(
            "systemd-resolve",
            "/usr/lib/systemd/systemd-resolved"
        ));
        assert!(!sees("systemdish", "/home/eve/systemdish"));
        assert!(!sees("nvidia-smi", "/usr/bin/nvidia-smi"));
        assert!(!sees("bash", "/bin/bash") && !sees("train", "/home/bob/train"));
    }

    #[test]
    fn python_without_module_is_recognized() {
        let sees = |name: &str, libraries: &[&str]| {
            let suspect = Suspect {
                name: Some(name.into()),
                libraries: Some(libraries.iter().map(|it| (*it).to_owned()).collect()),
                ..Suspect::default()
            };
            python_without_modules(&suspect, &RogueRules::default()).is_some()
        };
        assert!(sees("python3.11", &["libcuda.so.1"]) && sees("python", &["libcuda.so.1"]));
        for modules in [
            "_ctypes.cpython-310-x86_64-linux-gnu.so",
            "_driver.abi3.so",
            "libpython3.11.so.1.0",
            "libtorch_cuda.so",
        ] {
            assert!(!sees("python3", &["libcuda.so.1", modules]), "{modules}");
        }
        assert!(!sees("pythonista", &["libcuda.so.1"]) && !sees("python3", &[]));
    }

    #[test]
    fn system_python_is_excluded() {
        let sees = |path: &str| {
            let suspect = Suspect {
                name: Some("python3".into()),
                executable: Some(path.into()),
                libraries: Some(["libcuda.so.1".to_owned()].into()),
                ..Suspect::default()
            };
            python_without_modules(&suspect, &RogueRules::default()).is_some()
        };
        for path in [
            "/usr/bin/python3.11",
            "/usr/bin/python3.11 (deleted)",
            "/opt/conda/bin/python",
        ] {
            assert!(!sees(path), "{path}");
        }
        for path in [
            "/home/eve/bin/python3.11",
            "/dev/shm/python3",
            "/usr/bin/perl",
            "/usr/bin/python3/miner",
            "/python3",
            "python3",
        ] {
            assert!(sees(path), "{path}");
        }
    }

    #[test]
    fn executable_matches_the_whole_hash() {
        let mut rules = RogueRules::default();
        rules.patterns.sha256 = vec!["ab".repeat(32)];
        let sees = |hash: Option<String>| {
            let suspect = Suspect {
                sha256: hash,
                ..Suspect::default()
            };
            miner_hash(&suspect, &rules).is_some()
        };
        assert!(sees(Some("ab".repeat(32))));
        assert!(!sees(Some("ab".repeat(31))) && !sees(None));
    }
}
