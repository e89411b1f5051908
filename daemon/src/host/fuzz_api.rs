//! The parsers of this module for fuzzing: text written by a process or by the creator of a
//! container, and what must hold for any text.

use super::accounts;
use super::cgroup::{CgroupContainer, CgroupLocation, CgroupView};
use super::commands;
use super::containers::format::{ContainerFacts, ContainerFileFormat};
use super::evidence::fuzz_api::arguments;
use super::status::{StatusFile, parse_login_uid};
use crate::procfs::stat::{Stat, terminal_name};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::MAX_COMMAND_BYTES;

/// `/proc/PID/stat`.
pub fn stat(bytes: &[u8]) {
    if let Some(stat) = Stat::parse(bytes) {
        assert_printable(&stat.name, 64);
        let terminal = terminal_name(stat.terminal);
        let name = terminal.known().and_then(Option::as_deref);
        assert_printable(name.unwrap_or_default(), 64);
    }
}

/// `/proc/PID/status`.
pub fn status(bytes: &[u8]) {
    let status = StatusFile::parse(bytes);
    if let Some(uids) = status.uids.known() {
        // From a line with this start, not from a name that contains it.
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines().filter(|line| line.starts_with("Uid:"));
        let real = uids.real.to_string();
        assert!(lines.any(|line| line.contains(&real)));
    }
}

/// `/proc/PID/loginuid`.
pub fn login_uid(bytes: &[u8]) {
    assert_ne!(parse_login_uid(bytes), Reading::Value(Some(u32::MAX)));
}

/// `/proc/PID/cmdline`, and `environ`, which has the same format.
pub fn command(bytes: &[u8]) {
    let account = accounts::parse_account(bytes).unwrap_or_default();
    assert_printable(&account, 255);
    arguments(bytes);
    match commands::parse_displayed(bytes) {
        Reading::Value(command) => assert_printable(&command, MAX_COMMAND_BYTES),
        // Only NUL bytes, which end arguments.
        Reading::Unsupported => assert!(bytes.iter().all(|byte| *byte == 0)),
        other => assert_eq!(other, Reading::Unsupported),
    }
}

/// `/proc/PID/cgroup`.
pub fn cgroup(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for view in [CgroupView::Whole, CgroupView::Part] {
        let group = CgroupLocation::parse(&text, view, None);
        if let Some(Some(CgroupContainer { id, pod, .. })) = group.container.known() {
            assert_printable(&id.runtime, 32);
            assert_printable(&id.id, 256);
            assert_printable(pod.as_deref().unwrap_or_default(), 64);
            // It becomes a part of paths.
            assert!(!id.id.contains('/'), "{id:?}");
        }
        let session = group.session.known().and_then(Option::as_deref);
        assert_printable(session.unwrap_or_default(), 256);
        let rest = format!("{:?} {:?}", group.unit, group.scheduler);
        assert_printable(&rest, 2_048);
    }
}

/// A runtime's file about a container. The first byte selects the format.
pub fn container(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let format = match kind % 3 {
        0 => ContainerFileFormat::Docker,
        1 => ContainerFileFormat::Annotations,
        _ => ContainerFileFormat::List,
    };
    let text = String::from_utf8_lossy(rest);
    match format.parse(&text, "0123456789abcdef", "owner") {
        Ok(Some(facts)) => assert_container_facts(&facts),
        Ok(None) => {}
        Err(why) => assert_printable(&why, 200),
    }
}

fn assert_container_facts(facts: &ContainerFacts) {
    for reading in [
        &facts.name,
        &facts.image,
        &facts.pod_name,
        &facts.pod_namespace,
    ] {
        assert_printable(reading.known().map_or("", String::as_str), 512);
        assert_printable(reading.failure().unwrap_or_default(), 512);
    }
    assert_printable(facts.person.as_deref().unwrap_or_default(), 512);
}

/// Bounded, and without control characters.
pub(crate) fn assert_printable(text: &str, max_bytes: usize) {
    assert!(text.len() <= max_bytes, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
