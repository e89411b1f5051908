//! Indicators from the origin of a process and from what it pretends to be.

use super::{IndicatorMatch, identity, load};
use crate::rogue::rules::RogueRules;
use crate::rogue::suspect::{Suspect, file_name};

/// Hidden directories in which people usually keep programs.
#[rustfmt::skip]
const COMMON_HIDDEN_DIRECTORIES: [&str; 34] = [
    ".asdf", ".bun", ".cache", ".cargo", ".conda", ".config", ".cursor-server", ".deno", ".jupyter",
    ".julia", ".lmstudio", ".local", ".mamba", ".micromamba", ".nix-profile", ".nox", ".npm",
    ".nvm", ".ollama", ".pixi", ".pyenv", ".rbenv", ".rustup", ".snakemake", ".steam", ".tox",
    ".triton", ".uv", ".var", ".venv", ".venvs", ".virtualenvs", ".vscode-server", ".wine",
];

/// An executable in a temporary or hidden place.
pub(super) fn executable_location(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let path = suspect.path()?;
    let whole = suspect.executable.as_deref().unwrap_or(path);
    let found = |weight, what: &str| {
        Some(IndicatorMatch::new(
            weight,
            format!("executable {what}: {whole}"),
        ))
    };
    if let Some(name) = path.strip_prefix("/memfd:") {
        // Container runtimes run a copy of themselves for a moment.
        return match name.starts_with("runc_cloned:") {
            true => None,
            false => found(500, "has no file"),
        };
    }
    if path.starts_with("/dev/shm/") {
        return found(500, "in shared memory");
    }
    let mut directories = path.split('/').rev().skip(1);
    if let Some(directory) = directories.find(|part| is_hidden(part)) {
        // A self-extracting program unpacks to this directory while it runs.
        let is_image = path.starts_with("/tmp/.mount_");
        let weight = if is_image { 100 } else { 300 };
        return found(weight, &format!("in the hidden directory {directory}"));
    }
    if is_temporary(path) {
        return found(200, "in a temporary directory");
    }
    // An upgrade replaced a file of the system.
    let is_upgraded = crate::kill::protection::is_system_path(path);
    match suspect.is_deleted() && !is_upgraded {
        true => found(150, "is deleted"),
        false => None,
    }
}

/// Whether a file lies in a temporary directory that anyone can write.
pub(super) fn is_temporary(path: &str) -> bool {
    ["/tmp/", "/var/tmp/", "/run/user/", "/dev/shm/"]
        .iter()
        .any(|it| path.starts_with(it))
}

fn is_hidden(part: &str) -> bool {
    part.len() > 1
        && part.starts_with('.')
        && part != ".."
        && !COMMON_HIDDEN_DIRECTORIES.contains(&part)
}

#[rustfmt::skip]
const KERNEL_THREAD_PREFIXES: [&str; 22] = [
    "cpuhp/", "idle_inject/", "irq/", "jbd2/", "kauditd", "kblockd", "kcompactd", "kdevtmpfs",
    "khugepaged", "kintegrityd", "ksmd", "ksoftirqd/", "kstrp", "kswapd", "kthreadd", "kthrotld",
    "kworker", "migration/", "rcu_", "scsi_eh_", "watchdogd", "xfsaild",
];

/// The name of a kernel thread for a process with an executable.
pub(super) fn kernel_thread_name(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    suspect.executable.as_ref()?;
    let itself = suspect.arguments.iter().flatten().next();
    let names = [suspect.name.as_ref(), itself].into_iter().flatten();
    let is_one = |name: &&String| {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        // One name is one piece of evidence: a miner's name counts as a miner's name.
        let is_miner = identity::is_miner_name(file_name(bare), rules);
        !is_miner
            && KERNEL_THREAD_PREFIXES
                .iter()
                .any(|thread| bare.starts_with(thread))
    };
    names.into_iter().find(is_one).map(|name| {
        IndicatorMatch::new(600, format!("its name is {name}, and it has an executable"))
    })
}

/// Servers that accept requests from strangers.
#[rustfmt::skip]
const SERVERS: [&str; 17] = [
    "apache2", "caddy", "clickhouse-serv", "httpd", "lighttpd", "mariadbd", "mongod", "mysqld",
    "nginx", "php", "php-cgi", "php-fpm", "postgres", "postmaster", "redis-server", "tomcat",
    "w3wp",
];
const CRONS: [&str; 5] = ["anacron", "atd", "cron", "crond", "fcron"];

/// Number of nearest ancestors that are checked.
const MAX_ANCESTORS: usize = 6;

fn nearest_ancestor_named<'s>(suspect: &'s Suspect, names: &[&str]) -> Option<&'s str> {
    let ancestors = suspect.ancestors.as_ref()?;
    let is_one = |name: &&str| {
        let bare = file_name(name).trim_end_matches(':');
        // `php-fpm8.2` and `php-fpm7.4` are php-fpm.
        let unnumbered = bare.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        names.contains(&bare) || names.contains(&unnumbered)
    };
    let nearest = ancestors.iter().take(MAX_ANCESTORS);
    nearest.map(String::as_str).find(is_one)
}

pub(super) fn started_by_server(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let server = nearest_ancestor_named(suspect, &SERVERS)?;
    // Some servers compute with the libraries of such work.
    let weight = if load::has_workload_library(suspect) == Some(true) {
        150
    } else {
        500
    };
    Some(IndicatorMatch::new(weight, format!("started by {server}")))
}

pub(super) fn started_by_cron(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let cron = nearest_ancestor_named(suspect, &CRONS)?;
    Some(IndicatorMatch::new(100, format!("started by {cron}")))
}

/// Repeated attempts that access rules refused.
pub(super) fn repeated_refusals(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let times = suspect.refused;
    let weight = match times {
        0 | 1 => return None,
        2..=4 => 400,
        _ => 600,
    };
    let evidence = format!("refused a device {times} times");
    Some(IndicatorMatch::new(weight, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(
        detect: fn(&Suspect, &RogueRules) -> Option<IndicatorMatch>,
        change: impl FnOnce(&mut Suspect),
    ) -> Option<u16> {
        let mut suspect = Suspect::default();
        change(&mut suspect);
        detect(&suspect, &RogueRules::default()).map(|indicator| indicator.weight)
    }

    #[test]
    fn executable_location_weights() {
        for (path, expected) in [
            ("/memfd:x (deleted)", Some(500)),
            ("/memfd:runc_cloned:/proc/self/exe (deleted)", None),
            ("/dev/shm/.x/python3", Some(500)),
            ("/home/eve/.x/python3", Some(300)),
            ("/tmp/.X11-unix/m (deleted)", Some(300)),
            ("/tmp/.mount_blendeX/usr/bin/blender", Some(100)),
            ("/tmp/pytest-of-bob/test_kernel", Some(200)),
            ("/var/tmp/build/a.out", Some(200)),
            ("/home/bob/build/a.out (deleted)", Some(150)),
            ("/usr/bin/python3.11 (deleted)", None),
            ("/home/bob/.venv/bin/python3", None),
            ("/home/bob/.local/share/uv/python/bin/python3", None),
            ("/home/bob/train", None),
            ("/home/bob/../train", None),
        ] {
            let actual = weight(executable_location, |it| it.executable = Some(path.into()));
            assert_eq!(actual, expected, "{path}");
        }
    }

    #[test]
    fn kernel_thread_name_with_executable() {
        for (name, expected) in [
            ("kworker/0:1", Some(600)),
            ("[kworker/u8:2]", Some(600)),
            ("rcu_sched", Some(600)),
            ("kubelet", None),
            ("[celeryd: main]", None),
            ("python3", None),
        ] {
            let actual = weight(kernel_thread_name, |it| {
                it.name = Some(name.into());
                it.executable = Some("/usr/bin/python3".into());
            });
            assert_eq!(actual, expected, "{name}");
            // A kernel thread has no executable.
            assert_eq!(
                weight(kernel_thread_name, |it| it.name = Some(name.into())),
                None
            );
        }
    }

    #[test]
    fn nearest_ancestors_are_checked() {
        let of = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect());
        let server = |names| weight(started_by_server, |it| it.ancestors = of(names));
        assert_eq!(
            server(&["sh", "php-fpm8.2", "php-fpm: master", "systemd"]),
            Some(500)
        );
        assert_eq!(server(&["bash", "sshd", "systemd"]), None);
        assert_eq!(server(&["a", "b", "c", "d", "e", "f", "nginx"]), None);
        let serves = weight(started_by_server, |it| {
            it.ancestors = of(&["apache2"]);
            it.libraries = Some(["libtorch_cuda.so".to_owned()].into());
        });
        assert_eq!(serves, Some(150));
        let cron = weight(started_by_cron, |it| {
            it.ancestors = of(&["sh", "cron", "cron"])
        });
        assert_eq!(cron, Some(100));
    }

    #[test]
    fn repeated_refusals_count() {
        let actual =
            [0, 1, 2, 4, 5, 900].map(|times| weight(repeated_refusals, |it| it.refused = times));
        assert_eq!(
            actual,
            [None, None, Some(400), Some(400), Some(600), Some(600)]
        );
    }
}
