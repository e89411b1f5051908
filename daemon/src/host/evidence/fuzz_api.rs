//! The evidence parsers for fuzzing, and what must hold for any input.

use super::{libraries, network, reader};

/// `/proc/PID/maps`.
pub fn mappings(bytes: &[u8]) {
    let Ok(names) = libraries::libraries(bytes) else {
        return;
    };
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    assert!(names.len() <= lines.min(1_024) && lines > 0);
    assert!(names.iter().map(String::len).sum::<usize>() <= 64 << 10);
    let text = String::from_utf8_lossy(bytes);
    for name in &names {
        assert!(
            is_shared_object(name) && !name.contains(['/', '\n']),
            "{name:?}"
        );
        let mut lines = text.lines();
        let is_executed = |line: &str| {
            let permissions = line.split(' ').nth(1).unwrap_or_default();
            line.contains(name.as_str()) && permissions.contains('x')
        };
        assert!(lines.any(is_executed), "{name:?}");
    }
}

/// `libcuda.so.1`.
fn is_shared_object(name: &str) -> bool {
    let (_, version) = name.rsplit_once(".so").unwrap_or(("", "none"));
    let mut characters = version.chars();
    characters.all(|it| it.is_ascii_digit() || it == '.')
}

/// `/proc/PID/net/dev`.
pub fn sent(bytes: &[u8]) {
    if network::total_sent(bytes).is_some_and(|sent| sent > 0) {
        assert!(bytes.ends_with(b"\n") && bytes.contains(&b':'));
    }
}

/// `/proc/PID/cmdline`, each argument by itself.
pub(crate) fn arguments(bytes: &[u8]) {
    let reader::EvidenceArguments { arguments, cut } = reader::split_arguments(bytes);
    assert!(arguments.len() <= 1_024);
    assert!(arguments.iter().map(String::len).sum::<usize>() <= 32 << 10);
    assert!(arguments.iter().all(|argument| !argument.contains('\0')));
    let is_written = bytes.iter().any(|byte| *byte != 0);
    assert!(is_written || arguments.is_empty());
    // Everything is returned, or marked as cut.
    let is_whole = arguments.join("\0") == String::from_utf8_lossy(bytes).trim_end_matches('\0');
    assert!(is_whole || cut.is_some());
}
