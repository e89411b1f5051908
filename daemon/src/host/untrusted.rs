//! The parsers of this part as fuzzing calls them: what a process or
//! a container's maker wrote, and what must hold whatever it is.

use super::accounts;
use super::cgroup::{Contained, Group, View};
use super::commands;
use super::containers::format::{Format, Told};
use super::status::{Status, parse_login_uid};
use super::traces::untrusted::arguments;
use crate::procfs::stat::{Stat, terminal};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::COMMAND_MAX;

/// `/proc/PID/stat`.
pub fn stat(bytes: &[u8]) {
    if let Some(stat) = Stat::parse(bytes) {
        assert_shown(&stat.name, 64);
        let terminal = terminal(stat.terminal);
        let name = terminal.known().and_then(Option::as_deref);
        assert_shown(name.unwrap_or_default(), 64);
    }
}

/// `/proc/PID/status`.
pub fn status(bytes: &[u8]) {
    let status = Status::parse(bytes);
    if let Some(uids) = status.uids.known() {
        // Of a line that begins so, and not of a name that holds such a word.
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

/// `/proc/PID/cmdline`, and `environ`, which is written alike.
pub fn command(bytes: &[u8]) {
    let account = accounts::account(bytes).unwrap_or_default();
    assert_shown(&account, 255);
    arguments(bytes);
    match commands::parse(bytes) {
        Reading::Value(command) => assert_shown(&command, COMMAND_MAX),
        // Nothing but the NUL bytes that end arguments.
        Reading::Unsupported => assert!(bytes.iter().all(|byte| *byte == 0)),
        other => assert_eq!(other, Reading::Unsupported),
    }
}

/// `/proc/PID/cgroup`.
pub fn cgroup(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for view in [View::Whole, View::Part] {
        let group = Group::parse(&text, view);
        if let Some(Some(Contained { id, pod, .. })) = group.container.known() {
            assert_shown(&id.runtime, 32);
            assert_shown(&id.id, 256);
            assert_shown(pod.as_deref().unwrap_or_default(), 64);
            // It becomes a part of paths.
            assert!(!id.id.contains('/'), "{id:?}");
        }
        let session = group.session.known().and_then(Option::as_deref);
        assert_shown(session.unwrap_or_default(), 256);
        let rest = format!("{:?} {:?}", group.unit, group.scheduler);
        assert_shown(&rest, 2_048);
    }
}

/// What a container's runtime keeps of it. The first byte is of which kind.
pub fn container(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let format = match kind % 3 {
        0 => Format::Docker,
        1 => Format::Annotations,
        _ => Format::List,
    };
    let text = String::from_utf8_lossy(rest);
    match format.parse(&text, "0123456789abcdef", "owner") {
        Ok(Some(told)) => assert_told(&told),
        Ok(None) => {}
        Err(why) => assert_shown(&why, 200),
    }
}

fn assert_told(told: &Told) {
    for reading in [&told.name, &told.image, &told.pod_name, &told.pod_namespace] {
        assert_shown(reading.known().map_or("", String::as_str), 512);
        assert_shown(reading.failure().unwrap_or_default(), 512);
    }
    assert_shown(told.person.as_deref().unwrap_or_default(), 512);
}

/// Bounded, and nothing that a terminal would obey.
pub(crate) fn assert_shown(text: &str, most: usize) {
    assert!(text.len() <= most, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
