//! What a process is called, and what its executable is.

use super::{Seen, load, place};
use crate::rogue::rules::Rules;
use crate::rogue::suspect::{Suspect, base};

/// The names of miners, whole and in small letters: those of Falco's rules, others that
/// mine on GPUs, and those under which the Kinsing malware starts one.
const MINERS: [&str; 37] = [
    "bfgminer",
    "bminer",
    "bzminer",
    "ccminer",
    "cgminer",
    "claymore",
    "cpuminer",
    "ethdcrminer64",
    "ethminer",
    "gminer",
    "kawpowminer",
    "kdevtmpfsi",
    "kinsing",
    "lolminer",
    "minerd",
    "minergate",
    "minergate-cli",
    "miniz",
    "nanominer",
    "nbminer",
    "onezerominer",
    "phoenixminer",
    "progpowminer",
    "rigel",
    "sgminer",
    "srbminer",
    "srbminer-multi",
    "t-rex",
    "teamblackminer",
    "teamredminer",
    "trex-miner",
    "wildrig",
    "wildrig-multi",
    "xmr-stak",
    "xmr-stak-rx",
    "xmrig",
    "xmrig-nvidia",
];

/// The name of a known miner, by the kernel's, its file's or its own account.
pub(super) fn as_miner(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let mut called = suspect.called();
    called
        .find(|name| is_miner(name, rules))
        .map(|name| Seen::new(700, format!("it is called {name}")))
}

/// Whether this is the name of a known miner.
pub(super) fn is_miner(name: &str, rules: &Rules) -> bool {
    let of_admin = rules.patterns.miners.iter().map(String::as_str);
    let mut known = MINERS.into_iter().chain(of_admin);
    known.any(|known| known.eq_ignore_ascii_case(name))
}

/// An executable that the admin knows.
pub(super) fn by_hash(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let hash = suspect.sha256.as_ref()?;
    let known = rules.patterns.sha256.iter().find(|known| *known == hash)?;
    Some(Seen::new(
        950,
        format!("its executable has SHA-256 {known}"),
    ))
}

/// Parts of miners that they load: xmrig's for CUDA and OpenCL.
const PARTS: [&str; 2] = ["libxmrig-cuda", "libxmrig-cl"];

/// Whether it is a part of a miner.
pub(super) fn is_part(name: &str) -> bool {
    PARTS.iter().any(|part| name.starts_with(part))
}

/// A part of a miner among what is mapped.
pub(super) fn by_library(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let libraries = suspect.libraries.as_ref()?;
    let part = libraries.iter().find(|name| is_part(name))?;
    Some(Seen::new(700, format!("it has loaded {part}")))
}

/// Programs of the system that have nothing to compute on a GPU, and lie in its own
/// directories.
const SYSTEMS: [&str; 40] = [
    "(sd-pam)",
    "agetty",
    "apache2",
    "auditd",
    "bash",
    "containerd",
    "containerd-shim",
    "cron",
    "crond",
    "curl",
    "dbus-daemon",
    "dhclient",
    "dockerd",
    "gzip",
    "httpd",
    "kubelet",
    "mysqld",
    "nginx",
    "nvidia-persistenced",
    "nvidia-powerd",
    "nvidia-smi",
    "php-cgi",
    "php-fpm",
    "pip",
    "polkitd",
    "postgres",
    "postmaster",
    "redis-server",
    "rsync",
    "rsyslogd",
    "runc",
    "sh",
    "sshd",
    "systemd",
    "systemd-journald",
    "systemd-logind",
    "systemd-udevd",
    "tar",
    "tmux",
    "wget",
];

/// systemd's own programs are called so, and there are more of them with each release.
const SYSTEMD: &str = "systemd-";

/// The name of such a program on what lies elsewhere.
pub(super) fn as_system(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let path = suspect.path()?;
    if crate::kill::protected::is_the_systems(path) {
        return None;
    }
    let is_one = |name: &&str| SYSTEMS.contains(name) || name.starts_with(SYSTEMD);
    let name = suspect.called().find(is_one)?;
    // No package puts a program there.
    let weight = if place::is_temporary(path) { 550 } else { 450 };
    Some(Seen::new(
        weight,
        format!("it is called {name}, and its executable is {path}"),
    ))
}

/// A Python that has loaded nothing that Python loads: whatever it computes with lies in
/// extension modules, which are called for its version. The system's own is one all the
/// same: what it runs may load by `ctypes` alone.
pub(super) fn as_python(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let libraries = suspect.libraries.as_ref().filter(|it| !it.is_empty())?;
    let name = suspect.called().find(|name| is_python(name))?;
    if suspect.path().is_some_and(is_the_systems_python) {
        return None;
    }
    let is_none = !libraries.iter().any(|name| is_module(name))
        && load::has_libraries(suspect) == Some(false);
    is_none.then(|| {
        Seen::new(
            350,
            format!("it is called {name}, and has loaded no module of Python's"),
        )
    })
}

fn is_the_systems_python(path: &str) -> bool {
    is_python(base(path)) && crate::kill::protected::is_the_systems(path)
}

/// Whether it is a part of Python, or a module of it.
pub(super) fn is_module(name: &str) -> bool {
    let parts = [".cpython-", ".abi3.so", ".pypy", "libpython"];
    parts.iter().any(|part| name.contains(part))
}

fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python");
    rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(name: &str, executable: &str, itself: &str) -> bool {
        let suspect = Suspect {
            name: Some(name.into()),
            executable: Some(executable.into()),
            arguments: Some(vec![itself.into()]),
            ..Suspect::default()
        };
        as_miner(&suspect, &Rules::default()).is_some()
    }

    #[test]
    fn a_miner_is_known_by_any_of_its_names_and_by_the_whole_of_it() {
        for (name, executable, itself) in [
            ("xmrig", "/usr/bin/python3", "python3"),
            ("python3", "/home/eve/lolMiner", "python3"),
            ("python3", "/tmp/T-REX (deleted)", "python3"),
            ("python3", "/usr/bin/python3", "./nbminer"),
        ] {
            assert!(
                sees(name, executable, itself),
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
                !sees(name, executable, itself),
                "{name} {executable} {itself}"
            );
        }
    }

    #[test]
    fn a_part_of_a_miner_is_known_by_its_name() {
        let sees = |library: &str| {
            let suspect = Suspect {
                libraries: Some([library.to_owned()].into()),
                ..Suspect::default()
            };
            by_library(&suspect, &Rules::default()).is_some()
        };
        assert!(sees("libxmrig-cuda.so") && !sees("libcuda.so.1"));
    }

    #[test]
    fn a_program_of_the_systems_lies_in_its_directories() {
        let sees = |name: &str, path: &str| {
            let suspect = Suspect {
                name: Some(name.into()),
                executable: Some(path.into()),
                ..Suspect::default()
            };
            as_system(&suspect, &Rules::default()).is_some()
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
    fn a_python_without_a_module_is_none() {
        let sees = |name: &str, libraries: &[&str]| {
            let suspect = Suspect {
                name: Some(name.into()),
                libraries: Some(libraries.iter().map(|it| (*it).to_owned()).collect()),
                ..Suspect::default()
            };
            as_python(&suspect, &Rules::default()).is_some()
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
    fn the_python_of_the_system_is_one_whatever_it_has_loaded() {
        let sees = |path: &str| {
            let suspect = Suspect {
                name: Some("python3".into()),
                executable: Some(path.into()),
                libraries: Some(["libcuda.so.1".to_owned()].into()),
                ..Suspect::default()
            };
            as_python(&suspect, &Rules::default()).is_some()
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
    fn an_executable_is_known_by_all_of_its_hash() {
        let mut rules = Rules::default();
        rules.patterns.sha256 = vec!["ab".repeat(32)];
        let sees = |hash: Option<String>| {
            let suspect = Suspect {
                sha256: hash,
                ..Suspect::default()
            };
            by_hash(&suspect, &rules).is_some()
        };
        assert!(sees(Some("ab".repeat(32))));
        assert!(!sees(Some("ab".repeat(31))) && !sees(None));
    }
}
