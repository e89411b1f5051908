//! The parser as fuzzing calls it: what the kernel wrote of a descriptor, and
//! what must hold whatever it is.

use super::{ENGINES_MAX, NAME_MAX, REGIONS_MAX, TEXT_MAX, parse};
use crate::backend::drm::untrusted::assert_shown;
use gpukill_proto::reading::Reading;

/// `/proc/PID/fdinfo/FD`.
pub fn fdinfo(bytes: &[u8]) {
    let Some(told) = parse(bytes) else {
        return;
    };
    assert!(bytes.len() <= TEXT_MAX || told.too_much.is_some());
    assert!(told.too_much.is_none() || (told.engines.is_empty() && told.regions.is_empty()));
    assert!(!told.driver.is_empty());
    assert_shown(&told.driver, NAME_MAX);
    assert_shown(told.pdev.as_deref().unwrap_or_default(), NAME_MAX);
    assert!(told.engines.len() <= ENGINES_MAX && told.regions.len() <= REGIONS_MAX);
    for (name, engine) in &told.engines {
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
    for (name, region) in &told.regions {
        assert_name(name);
        assert_number(&region.resident);
        assert_number(&region.alias);
        assert_number(&region.shared);
        let resident = region.resident().known();
        assert!(region.resident_and_shared().as_ref() <= resident);
        match &region.resident {
            Reading::Unsupported => assert_eq!(region.resident(), &region.alias),
            told => assert_eq!(region.resident(), told),
        }
    }
    // What was understood is in the text, digit by digit.
    if let Some(id) = told.client {
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains(&id.to_string()), "{id}");
    }
    assert_eq!(parse(bytes), Some(told));
}

fn assert_name(name: &str) {
    assert!(!name.is_empty());
    assert_shown(name, NAME_MAX);
}

/// A value, untold, or not understood: nothing else, and words that may be shown.
fn assert_number(number: &Reading<u64>) {
    match number {
        Reading::Value(_) | Reading::Unsupported => {}
        other => assert_shown(other.failure().expect("a reason"), 80),
    }
}
