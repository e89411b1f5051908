//! Entry point for fuzzing the fdinfo parser, with the properties that must hold for any input.

use super::{ENGINES_MAX, NAME_MAX, REGIONS_MAX, TEXT_MAX, parse};
use gpukill_proto::reading::Reading;

/// `/proc/PID/fdinfo/FD`.
pub fn fdinfo(bytes: &[u8]) {
    let Some(parsed) = parse(bytes) else {
        return;
    };
    assert!(bytes.len() <= TEXT_MAX || parsed.oversize_reason.is_some());
    assert!(
        parsed.oversize_reason.is_none()
            || (parsed.engines.is_empty() && parsed.regions.is_empty())
    );
    assert!(!parsed.driver.is_empty());
    assert_printable(&parsed.driver, NAME_MAX);
    assert_printable(parsed.pdev.as_deref().unwrap_or_default(), NAME_MAX);
    assert!(parsed.engines.len() <= ENGINES_MAX && parsed.regions.len() <= REGIONS_MAX);
    for (name, engine) in &parsed.engines {
        assert_name(name);
        for number in [
            &engine.busy,
            &engine.cycles,
            &engine.total_cycles,
            &engine.hertz,
            &engine.capacity,
        ] {
            assert_number(number);
        }
    }
    for (name, region) in &parsed.regions {
        assert_name(name);
        assert_number(&region.resident);
        assert_number(&region.alias);
        assert_number(&region.shared);
        let resident = region.resident().known();
        assert!(region.shared_resident().as_ref() <= resident);
        match &region.resident {
            Reading::Unsupported => assert_eq!(region.resident(), &region.alias),
            parsed => assert_eq!(region.resident(), parsed),
        }
    }
    // A parsed number occurs in the text, digit by digit.
    if let Some(id) = parsed.client {
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains(&id.to_string()), "{id}");
    }
    assert_eq!(parse(bytes), Some(parsed));
}

fn assert_name(name: &str) {
    assert!(!name.is_empty());
    assert_printable(name, NAME_MAX);
}

/// A value, unsupported, or a failure with a printable reason.
fn assert_number(number: &Reading<u64>) {
    match number {
        Reading::Value(_) | Reading::Unsupported => {}
        other => assert_printable(other.failure().expect("a reason"), 80),
    }
}

/// Asserts that the text is bounded and free of terminal control characters.
pub(crate) fn assert_printable(text: &str, max_bytes: usize) {
    assert!(text.len() <= max_bytes, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
