//! `explain` names the rule behind a verdict.
//!
//! libtest starts the tests in the order of their names. This test waits for more than a minute,
//! so it has a module at the top level, with a name that makes it start early.

use crate::rogue_scan::{RogueBox, sleep_command};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The longest wait: memory counts after it was held for a minute.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(180);

#[test]
fn explain_names_the_memory_limit() {
    let mut rogue_box = RogueBox::new();
    let honest = rogue_box.create_program("honest", "python3.11");
    let pid = rogue_box
        .start_on_gpu("holder", &mut sleep_command(&honest))
        .to_string();
    let daemon = rogue_box.test_box.start();
    let key = ["rogue", "set", "detection.max_memory_usage_gb", "0.5"];
    let ran = rogue_box.test_box.ctl(&key);
    assert_eq!(ran.code, 0, "{ran:?}");
    let started_at = Instant::now();
    let explained = || rogue_box.test_box.json(&["explain", &pid, "-o", "json"]);
    let indicators = |explained: &Value| -> String {
        let indicators = explained["rogue"]["indicators"].as_array().cloned();
        indicators.map(Value::Array).unwrap_or_default().to_string()
    };
    let mut seen = indicators(&explained());
    while !seen.contains("detection.max_memory_usage_gb") {
        assert!(started_at.elapsed() < MEMORY_TIMEOUT, "{seen}");
        std::thread::sleep(Duration::from_secs(1));
        seen = indicators(&explained());
    }
    assert!(seen.contains("more than the 0.5 GiB"), "{seen}");
    assert!(
        rogue_box
            .test_box
            .ctl(&["explain", &pid, "--details"])
            .stdout
            .contains("max_memory_usage_gb")
    );
    daemon.stop();
}
