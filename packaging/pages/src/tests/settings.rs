//! The settings file that a package installs.

use crate::settings::{commented, commented_gateway};
use clap::Parser as _;
use gpukill_gateway::args::Args;
use gpukill_gateway::settings::Settings;
use gpukilld::config::{Config, ConfigError, DaemonScope, KEYS, load, print_default};

fn read(text: &str) -> Result<Config, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gpukilld.toml");
    std::fs::write(&file, text).unwrap();
    load(Some(&file), DaemonScope::Host, &[])
}

/// The lines with keys, each with its index.
fn keys(text: &str) -> Vec<(usize, &str)> {
    let is_key = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| is_key(line)).collect()
}

/// The file with these lines uncommented.
fn with(text: &str, places: &[usize]) -> String {
    let lines = text.lines().enumerate().map(|(place, line)| {
        let line = match places.contains(&place) {
            true => line.strip_prefix('#').unwrap(),
            false => line,
        };
        format!("{line}\n")
    });
    lines.collect()
}

#[test]
fn unchanged_file_sets_nothing() {
    let text = commented();
    assert_eq!(read(&text), read(""));
    assert_eq!(read(&text), read(&print_default()));
    let set: Vec<&str> = text
        .lines()
        .filter(|it| !it.is_empty() && !it.starts_with(['#', '[']))
        .collect();
    assert_eq!(set, Vec::<&str>::new());
}

#[test]
fn every_key_can_be_uncommented() {
    let text = commented();
    let keys = keys(&text);
    let mut expected = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('[') {
            section = head.trim_end_matches(']');
        } else if line.starts_with('#') && !line.starts_with("# ") {
            let name = line.trim_start_matches('#').split(" =").next().unwrap();
            expected.push(format!("{section}.{name}"));
        }
    }
    assert_eq!(
        expected,
        KEYS.iter()
            .map(gpukill_proto::settings::Key::path)
            .collect::<Vec<_>>()
    );
    // A key without a default needs a value first.
    let whole: Vec<(usize, &str)> = keys
        .into_iter()
        .filter(|(_, it)| !it.ends_with('='))
        .collect();
    let without = KEYS.iter().filter(|it| it.default.is_empty()).count();
    assert_eq!(whole.len(), KEYS.len() - without);
    for (place, line) in &whole {
        assert_eq!(read(&with(&text, &[*place])), read(""), "{line}");
    }
    let all: Vec<usize> = whole.iter().map(|(place, _)| *place).collect();
    assert_eq!(read(&with(&text, &all)), read(""));
    // The uncommented lines have an effect: another value gives another configuration.
    let changed = with(&text, &all).replace("poll_interval = \"2s\"", "poll_interval = \"3s\"");
    assert_ne!(read(&changed), read(""));
}

#[test]
fn head_states_how_to_check() {
    let text = commented();
    let mut lines = text.lines();
    assert!(
        lines
            .by_ref()
            .take(2)
            .any(|it| it.contains("gpukilld --check-config"))
    );
    assert_eq!(lines.next(), Some(""));
    assert_eq!(lines.next(), Some("[daemon]"));
}

#[test]
fn file_of_the_gateway_sets_nothing_until_a_key_is_uncommented() {
    let read = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        // Whatever the umask of the test.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&file, mode).unwrap();
        let words = ["gpukill-gateway", "--config", file.to_str().unwrap()];
        Settings::load(&Args::try_parse_from(words).unwrap())
    };
    let text = commented_gateway();
    let defaults = read("").unwrap();
    assert_eq!(read(&text).unwrap(), defaults);
    let keys = keys(&text);
    assert_eq!(keys.len(), gpukill_gateway::settings::KEYS.len());
    // A key without a default needs a value first.
    let whole = keys.iter().filter(|(_, line)| !line.ends_with('='));
    let all: Vec<usize> = whole.map(|(place, _)| *place).collect();
    let uncommented = with(&text, &all);
    assert_eq!(read(&uncommented).unwrap(), defaults);
    let changed = uncommented.replace("max_streams = 256", "max_streams = 7");
    assert_eq!(read(&changed).unwrap().max_streams, 7);
}
