//! Where a process comes from, and what it passes itself off as.

use super::{Seen, called, load};
use crate::rogue::rules::Rules;
use crate::rogue::suspect::{Suspect, base};

/// Directories with a dot before their name in which people keep programs.
const KEPT: [&str; 34] = [
    ".asdf",
    ".bun",
    ".cache",
    ".cargo",
    ".conda",
    ".config",
    ".cursor-server",
    ".deno",
    ".jupyter",
    ".julia",
    ".lmstudio",
    ".local",
    ".mamba",
    ".micromamba",
    ".nix-profile",
    ".nox",
    ".npm",
    ".nvm",
    ".ollama",
    ".pixi",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".snakemake",
    ".steam",
    ".tox",
    ".triton",
    ".uv",
    ".var",
    ".venv",
    ".venvs",
    ".virtualenvs",
    ".vscode-server",
    ".wine",
];

/// An executable that lies where nothing stays, or where nobody looks.
pub(super) fn executable(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let path = suspect.path()?;
    let whole = suspect.executable.as_deref().unwrap_or(path);
    let seen = |weight, what: &str| Some(Seen::new(weight, format!("executable {what}: {whole}")));
    if let Some(name) = path.strip_prefix("/memfd:") {
        // Container runtimes run a copy of themselves for a moment.
        return match name.starts_with("runc_cloned:") {
            true => None,
            false => seen(500, "has no file"),
        };
    }
    if path.starts_with("/dev/shm/") {
        return seen(500, "in shared memory");
    }
    let mut directories = path.split('/').rev().skip(1);
    if let Some(directory) = directories.find(|part| is_hidden(part)) {
        // What a whole program is unpacked to while it runs.
        let is_image = path.starts_with("/tmp/.mount_");
        let weight = if is_image { 100 } else { 300 };
        return seen(weight, &format!("in the hidden directory {directory}"));
    }
    if is_temporary(path) {
        return seen(200, "in a directory for temporary files");
    }
    // Of the system's own an upgrade has taken the place.
    let is_upgraded = crate::kill::protected::is_the_systems(path);
    match suspect.is_deleted() && !is_upgraded {
        true => seen(150, "is deleted"),
        false => None,
    }
}

/// Whether a file lies where files are soon gone, and anybody may put one.
pub(super) fn is_temporary(path: &str) -> bool {
    ["/tmp/", "/var/tmp/", "/run/user/", "/dev/shm/"]
        .iter()
        .any(|it| path.starts_with(it))
}

fn is_hidden(part: &str) -> bool {
    part.len() > 1 && part.starts_with('.') && part != ".." && !KEPT.contains(&part)
}

/// How threads of the kernel are called.
const THREADS: [&str; 22] = [
    "cpuhp/",
    "idle_inject/",
    "irq/",
    "jbd2/",
    "kauditd",
    "kblockd",
    "kcompactd",
    "kdevtmpfs",
    "khugepaged",
    "kintegrityd",
    "ksmd",
    "ksoftirqd/",
    "kstrp",
    "kswapd",
    "kthreadd",
    "kthrotld",
    "kworker",
    "migration/",
    "rcu_",
    "scsi_eh_",
    "watchdogd",
    "xfsaild",
];

/// The name of a kernel's thread on what has an executable.
pub(super) fn kernel_thread(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    suspect.executable.as_ref()?;
    let itself = suspect.arguments.iter().flatten().next();
    let names = [suspect.name.as_ref(), itself].into_iter().flatten();
    let is_one = |name: &&String| {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        // One name is one piece of evidence: a miner's counts as that.
        let is_miner = called::is_miner(base(bare), rules);
        !is_miner && THREADS.iter().any(|thread| bare.starts_with(thread))
    };
    names.into_iter().find(is_one).map(|name| {
        Seen::new(
            600,
            format!("it calls itself {name}, and has an executable"),
        )
    })
}

/// Servers to which strangers speak.
const SERVERS: [&str; 17] = [
    "apache2",
    "caddy",
    "clickhouse-serv",
    "httpd",
    "lighttpd",
    "mariadbd",
    "mongod",
    "mysqld",
    "nginx",
    "php",
    "php-cgi",
    "php-fpm",
    "postgres",
    "postmaster",
    "redis-server",
    "tomcat",
    "w3wp",
];
const CRONS: [&str; 5] = ["anacron", "atd", "cron", "crond", "fcron"];

/// So many of those who started it, one the other, are looked at.
const NEAREST: usize = 6;

fn started_by<'s>(suspect: &'s Suspect, names: &[&str]) -> Option<&'s str> {
    let ancestors = suspect.ancestors.as_ref()?;
    let is_one = |name: &&str| {
        let bare = base(name).trim_end_matches(':');
        // `php-fpm8.2` and `php-fpm7.4` are php-fpm.
        let unnumbered = bare.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        names.contains(&bare) || names.contains(&unnumbered)
    };
    let nearest = ancestors.iter().take(NEAREST);
    nearest.map(String::as_str).find(is_one)
}

pub(super) fn started_by_server(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let server = started_by(suspect, &SERVERS)?;
    // Some serve what they compute with the libraries of such work.
    let weight = if load::has_libraries(suspect) == Some(true) {
        150
    } else {
        500
    };
    Some(Seen::new(weight, format!("started by {server}")))
}

pub(super) fn started_by_cron(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let cron = started_by(suspect, &CRONS)?;
    Some(Seen::new(100, format!("started by {cron}")))
}

/// Attempts that rules of access refused.
pub(super) fn refused(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    match suspect.refused {
        0 | 1 => None,
        times @ 2..=4 => Some(Seen::new(400, format!("refused a device {times} times"))),
        times => Some(Seen::new(600, format!("refused a device {times} times"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(
        look: fn(&Suspect, &Rules) -> Option<Seen>,
        change: impl FnOnce(&mut Suspect),
    ) -> Option<u16> {
        let mut suspect = Suspect::default();
        change(&mut suspect);
        look(&suspect, &Rules::default()).map(|seen| seen.weight)
    }

    #[test]
    fn where_an_executable_lies_weighs_as_much_as_honest_people_put_none_there() {
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
            let told = weight(executable, |it| it.executable = Some(path.into()));
            assert_eq!(told, expected, "{path}");
        }
    }

    #[test]
    fn a_name_of_the_kernels_threads_is_seen_on_what_has_an_executable() {
        for (name, expected) in [
            ("kworker/0:1", Some(600)),
            ("[kworker/u8:2]", Some(600)),
            ("rcu_sched", Some(600)),
            ("kubelet", None),
            ("[celeryd: main]", None),
            ("python3", None),
        ] {
            let told = weight(kernel_thread, |it| {
                it.name = Some(name.into());
                it.executable = Some("/usr/bin/python3".into());
            });
            assert_eq!(told, expected, "{name}");
            // A thread of the kernel itself has none.
            assert_eq!(
                weight(kernel_thread, |it| it.name = Some(name.into())),
                None
            );
        }
    }

    #[test]
    fn who_started_it_is_looked_for_among_the_nearest() {
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
    fn who_tries_again_after_a_refusal_means_it() {
        let told = [0, 1, 2, 4, 5, 900].map(|times| weight(refused, |it| it.refused = times));
        assert_eq!(
            told,
            [None, None, Some(400), Some(400), Some(600), Some(600)]
        );
    }
}
