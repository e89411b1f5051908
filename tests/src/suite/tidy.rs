//! The house keeps its own rules: who may know whom, headers, sizes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file with more lines than this before its tests is named; it may be one subject all the same.
const LONG: usize = 600;

/// A file with more lines than this before its tests is several subjects.
const TOO_LONG: usize = 1000;

#[test]
fn every_file_says_at_its_top_what_it_is_for() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(silent, Vec::<PathBuf>::new());
}

#[test]
fn no_file_is_too_long_to_read() {
    let before_tests = |text: &str| {
        text.lines()
            .take_while(|line| *line != "#[cfg(test)]")
            .count()
    };
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (path, before_tests(&text)))
        .filter(|(_, lines)| *lines > LONG)
        .collect();
    println!("files over {LONG} lines: {long:?}");
    let too_long = long.into_iter().filter(|(_, lines)| *lines > TOO_LONG);
    assert_eq!(too_long.collect::<Vec<_>>(), Vec::<(PathBuf, usize)>::new());
}

#[test]
fn no_file_is_called_mod_rs_or_after_nothing() {
    let bad = [
        "mod.rs",
        "utils.rs",
        "helpers.rs",
        "common.rs",
        "misc.rs",
        "manager.rs",
    ];
    let found: Vec<_> = sources()
        .into_keys()
        .filter(|path| bad.iter().any(|name| path.ends_with(name)))
        .collect();
    assert_eq!(found, Vec::<PathBuf>::new());
}

/// What each part of the daemon may use of the others, lowest first.
const LAYERS: &[(&str, &[&str])] = &[
    ("args", &[]),
    ("clock", &[]),
    ("config", &[]),
    ("catalogue", &[]),
    ("logging", &["catalogue"]),
    ("systemd", &[]),
    ("heap", &[]),
    ("quiesce", &[]),
    ("procfs", &[]),
    ("holders", &["procfs"]),
    ("faults", &["catalogue"]),
    ("state", &["audit"]),
    ("host", &["procfs"]),
    ("civil", &[]),
    ("audit", &["catalogue", "civil"]),
    ("sensor", &["backend"]),
    ("backend", &["holders", "procfs", "quiesce", "sensor"]),
    ("tick", &["audit", "backend", "faults", "holders", "host"]),
    ("gather", &["audit", "procfs"]),
    (
        "poller",
        &[
            "audit",
            "catalogue",
            "clock",
            "config",
            "gather",
            "guard",
            "heap",
            "rogue",
            "state",
            "systemd",
            "tick",
        ],
    ),
    ("terminals", &[]),
    ("evaluator", &["audit", "sensor"]),
    ("rules_file", &["audit", "catalogue", "config", "evaluator"]),
    ("state_file", &["rules_file"]),
    (
        "rogue",
        &["audit", "catalogue", "guard", "host", "rules_file"],
    ),
    (
        "guard",
        &[
            "audit",
            "catalogue",
            "civil",
            "config",
            "enforce",
            "gather",
            "rules_file",
            "state_file",
            "terminals",
        ],
    ),
    ("look", &["holders", "state"]),
    ("authority", &["config", "host"]),
    (
        "enforce",
        &[
            "audit",
            "authority",
            "catalogue",
            "clock",
            "host",
            "look",
            "procfs",
            "state",
        ],
    ),
    ("helper", &["holders", "procfs"]),
    (
        "reset",
        &[
            "audit",
            "authority",
            "catalogue",
            "clock",
            "enforce",
            "helper",
            "host",
            "look",
            "procfs",
            "quiesce",
            "state",
        ],
    ),
    (
        "server",
        &[
            "audit",
            "authority",
            "catalogue",
            "clock",
            "enforce",
            "evaluator",
            "guard",
            "host",
            "look",
            "quiesce",
            "reset",
            "rogue",
            "rules_file",
            "state",
        ],
    ),
];

#[test]
fn leaves_of_the_daemon_do_not_know_each_other() {
    let mut broken = Vec::new();
    for (path, text) in sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with("daemon/src"))
    {
        let part = part_of(&path);
        // The parts above all others put them together.
        let Some((_, may_use)) = LAYERS.iter().find(|(name, _)| *name == part) else {
            assert!(
                ["bin", "lib", "main", "startup", "untrusted"].contains(&part.as_str()),
                "{part} has no place in LAYERS"
            );
            continue;
        };
        for used in used_parts(&text) {
            if used != part && !may_use.contains(&used.as_str()) {
                broken.push(format!("{}: {part} may not use {used}", path.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

fn part_of(path: &Path) -> String {
    let below = path.strip_prefix("daemon/src").unwrap();
    let first = below
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_string_lossy()
        .into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// The parts named in `use crate::…`, also in braces, and in `crate::x::y`.
fn used_parts(text: &str) -> Vec<String> {
    let word = |text: &str| {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut parts = Vec::new();
    for after in text.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                parts.extend(list.split(',').map(|item| word(item.trim())));
            }
            None => parts.push(word(after)),
        }
    }
    parts.retain(|part| !part.is_empty() && part.chars().all(|c| c.is_lowercase() || c == '_'));
    parts
}

#[test]
fn only_the_clients_output_prints() {
    let printing: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| {
            path.starts_with("ctl/src")
                && !path.starts_with("ctl/src/output")
                && path != Path::new("ctl/src/output.rs")
        })
        .filter(|(_, text)| {
            [
                "println!",
                "print!(",
                "eprint",
                "io::stdout()",
                "io::stderr()",
            ]
            .iter()
            .any(|word| text.contains(word))
        })
        .map(|(path, _)| path)
        .collect();
    assert_eq!(printing, Vec::<PathBuf>::new());
}

#[test]
fn nothing_that_ships_opens_a_network_socket() {
    let words = [
        "TcpListener",
        "TcpStream",
        "UdpSocket",
        "std::net::",
        "AddressFamily::INET",
    ];
    let found: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| !path.starts_with("tests"))
        .filter(|(_, text)| words.iter().any(|word| text.contains(word)))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(found, Vec::<PathBuf>::new());
}

/// A signal that is sent by number may reach another: that window is too small for
/// a test that runs.
#[test]
fn signals_are_sent_in_one_place_and_through_handles_alone() {
    let words = [
        "pidfd_send_signal(",
        "kill_process",
        "kill_current",
        "tgkill",
        "libc::kill",
        "signal::kill",
        "cgroup.kill",
    ];
    let before_tests = |text: &str| {
        text.split("#[cfg(test)]")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let found: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with("daemon/src"))
        .filter(|(path, _)| {
            !path
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
        })
        .filter(|(_, text)| {
            let text = before_tests(text);
            words.iter().any(|word| text.contains(word))
        })
        .map(|(path, _)| path)
        .collect();
    // Whoever was stopped for a moment is let go on wherever the kill ends.
    let allowed = [
        "daemon/src/enforce/act/target.rs",
        "daemon/src/enforce/frozen.rs",
        // Names them to have them refused.
        "daemon/src/sensor/confine/calls.rs",
        // Its own child's group, before that is waited for.
        "daemon/src/sensor.rs",
    ];
    assert_eq!(found, allowed.map(PathBuf::from));
}

#[test]
fn only_four_modules_of_the_daemon_are_allowed_unsafe_code() {
    let found: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| !path.starts_with("tests"))
        .filter(|(_, text)| text.contains("allow(unsafe_code") || text.contains("unsafe {"))
        .map(|(path, _)| path)
        .collect();
    let allowed = [
        "daemon/src/heap.rs",
        "daemon/src/host/namespace.rs",
        "daemon/src/sensor/nvml/raw.rs",
        "daemon/src/server/peer.rs",
    ];
    assert_eq!(found, allowed.map(PathBuf::from));
}

/// Every source file of the workspace, relative to it.
fn sources() -> BTreeMap<PathBuf, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    let mut left: Vec<PathBuf> = ["proto", "policy", "daemon", "ctl", "packaging", "tests"]
        .map(|name| workspace.join(name))
        .into();
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(workspace).unwrap().to_owned(), text);
            }
        }
    }
    assert!(found.len() > 50, "the sources were not found");
    found
}
