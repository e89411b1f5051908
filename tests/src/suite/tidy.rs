//! Rules of the source tree: module dependencies, file headers, file sizes, names of files and
//! types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The test prints files with more lines than this before their tests. Such a file may still be one
/// subject.
const LONG: usize = 600;

/// A file with more lines than this before its tests has several subjects.
const TOO_LONG: usize = 1000;

#[test]
fn files_start_with_a_doc_comment() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(silent, Vec::<PathBuf>::new());
}

#[test]
fn files_stay_below_the_line_limit() {
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
fn file_names_are_specific() {
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

/// The other parts that each part of the daemon may use, lowest part first.
const LAYERS: &[(&str, &[&str])] = &[
    ("args", &[]),
    ("clock", &[]),
    ("config", &[]),
    ("log_events", &[]),
    ("fault", &[]),
    ("logging", &["log_events"]),
    ("systemd", &[]),
    ("heap", &[]),
    ("quiesce", &[]),
    ("procfs", &[]),
    ("fd_scan", &["fault", "procfs", "state"]),
    ("state", &["store"]),
    ("host", &["fault", "procfs"]),
    ("local_time", &[]),
    ("store", &["fault", "local_time", "log_events"]),
    ("sensor", &["backend", "fault"]),
    (
        "backend",
        &["fault", "fd_scan", "procfs", "quiesce", "sensor"],
    ),
    (
        "poll",
        &[
            "backend",
            "clock",
            "config",
            "fault",
            "fd_scan",
            "guard",
            "heap",
            "host",
            "log_events",
            "procfs",
            "rogue",
            "state",
            "store",
            "systemd",
        ],
    ),
    ("terminals", &[]),
    ("evaluator", &["sensor", "store"]),
    (
        "rules_file",
        &["config", "evaluator", "log_events", "store"],
    ),
    ("state_file", &["config", "rules_file"]),
    (
        "rogue",
        &[
            "fault",
            "guard",
            "host",
            "log_events",
            "rules_file",
            "store",
        ],
    ),
    (
        "guard",
        &[
            "config",
            "fault",
            "kill",
            "local_time",
            "log_events",
            "rules_file",
            "state_file",
            "store",
            "terminals",
        ],
    ),
    ("authority", &["config", "host"]),
    (
        "kill",
        &[
            "authority",
            "clock",
            "config",
            "fd_scan",
            "host",
            "log_events",
            "procfs",
            "state",
            "store",
        ],
    ),
    ("reset_helper", &["fd_scan", "procfs"]),
    (
        "reset",
        &[
            "authority",
            "clock",
            "fd_scan",
            "host",
            "kill",
            "log_events",
            "procfs",
            "quiesce",
            "reset_helper",
            "state",
            "store",
        ],
    ),
    (
        "server",
        &[
            "authority",
            "clock",
            "evaluator",
            "fd_scan",
            "guard",
            "host",
            "kill",
            "log_events",
            "poll",
            "quiesce",
            "reset",
            "rogue",
            "rules_file",
            "state",
            "store",
        ],
    ),
];

/// Folders of tests, each with a higher part that they may use.
const TESTS_ABOVE: &[(&str, &str)] = &[("daemon/src/guard/sample/tests", "poll")];

#[test]
fn daemon_modules_respect_layers() {
    let mut broken = Vec::new();
    for (path, text) in sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with("daemon/src"))
    {
        let part = part_of(&path);
        // The parts at the top assemble the others and may use all of them.
        let Some((_, may_use)) = LAYERS.iter().find(|(name, _)| *name == part) else {
            assert!(
                ["bench_api", "bin", "fuzz_api", "lib", "main", "startup"].contains(&part.as_str()),
                "{part} has no place in LAYERS"
            );
            continue;
        };
        let above = TESTS_ABOVE
            .iter()
            .find(|(folder, _)| path.starts_with(folder));
        for used in used_parts(&text) {
            let is_above = above.is_some_and(|(_, name)| *name == used);
            if used != part && !may_use.contains(&used.as_str()) && !is_above {
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
fn only_client_output_prints() {
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
fn only_the_gateway_opens_network_sockets() {
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
    // The server listens and connects to nothing; only the unit that notifies connects.
    let allowed = [
        "gateway/src/connections.rs",
        "gateway/src/notify/http_client.rs",
        "gateway/src/settings.rs",
    ];
    assert_eq!(found, allowed.map(PathBuf::from));
}

/// A signal sent by pid may reach another process when the pid was reused. That window is
/// too small for a runtime test, so the source is searched.
#[test]
fn signals_go_through_pidfds_only() {
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
    // A stopped process is continued wherever the kill ends.
    let allowed = [
        "daemon/src/kill/executor/target.rs",
        "daemon/src/kill/stopped.rs",
        // Names these calls in order to deny them.
        "daemon/src/sensor/confine/calls.rs",
        // Signals the process group of its own child, before it waits for that child.
        "daemon/src/sensor.rs",
    ];
    assert_eq!(found, allowed.map(PathBuf::from));
}

#[test]
fn unsafe_code_stays_in_four_modules() {
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

#[test]
fn types_have_unique_names_per_crate() {
    let all = sources();
    let mut repeated = Vec::new();
    for name in ["proto", "policy", "daemon", "ctl"] {
        let source = Path::new(name).join("src");
        let files = all.iter().filter(|(path, _)| path.starts_with(&source));
        let files: BTreeMap<&Path, &str> = files.map(|(path, text)| (&**path, &**text)).collect();
        let test_modules: Vec<PathBuf> = files
            .iter()
            .flat_map(|(path, text)| test_module_paths(path, text))
            .collect();
        let mut types: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
        for (path, text) in files {
            let module = path.with_extension("");
            if test_modules.iter().all(|tests| !module.starts_with(tests)) {
                for name in visible_types(text) {
                    types.entry(name).or_default().push(path);
                }
            }
        }
        assert!(types.len() > 50, "{name}: the types were not found");
        repeated.extend(types.into_iter().filter(|(_, paths)| paths.len() > 1));
    }
    assert_eq!(repeated, []);
}

/// The modules in files of their own that only tests compile: `#[cfg(test)] mod NAME;`. A path is
/// that of the file without `.rs`.
fn test_module_paths(path: &Path, text: &str) -> Vec<PathBuf> {
    let directory = match path.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "main.rs") => path.with_file_name(""),
        _ => path.with_extension(""),
    };
    let lines = text.lines().zip(text.lines().skip(1));
    let declarations = lines.filter(|(attribute, _)| attribute.trim() == "#[cfg(test)]");
    declarations
        .filter_map(|(_, line)| {
            let name = after_visibility(line.trim()).strip_prefix("mod ")?;
            Some(directory.join(name.strip_suffix(';')?))
        })
        .collect()
}

/// The names of types that other modules may see, outside of a test module at the end of the file.
fn visible_types(text: &str) -> impl Iterator<Item = &str> {
    let next_lines = text.lines().skip(1).chain([""]);
    let lines = text.lines().zip(next_lines);
    let before_tests = lines.take_while(|(line, next)| {
        *line != "#[cfg(test)]" || !(next.starts_with("mod ") && next.ends_with('{'))
    });
    before_tests.filter_map(|(line, _)| {
        let line = line.trim_start();
        let item = after_visibility(line);
        let (kind, name) = item
            .strip_prefix("unsafe ")
            .unwrap_or(item)
            .split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
        let name = name
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()?;
        // Macros have names such as `$name`.
        (item.len() < line.len() && is_type && !name.is_empty()).then_some(name)
    })
}

/// An item without `pub` or `pub(…)`.
fn after_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else {
        return item;
    };
    let rest = match rest.strip_prefix('(') {
        Some(restricted) => restricted.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(item)
}

/// Every source file of the workspace, with its path relative to the workspace.
fn sources() -> BTreeMap<PathBuf, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    let names = [
        "proto",
        "policy",
        "daemon",
        "ctl",
        "gateway",
        "packaging",
        "tests",
    ];
    let mut left: Vec<PathBuf> = names.map(|name| workspace.join(name)).into();
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
