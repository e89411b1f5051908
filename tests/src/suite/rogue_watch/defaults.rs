//! What the built-in rules and the admin's limit on memory say of real processes.

use super::{Scene, sleeps};
use gpukill_tests::harness::becomes;
use serde_json::Value;
use std::time::{Duration, Instant};

#[test]
fn a_known_miner_is_of_high_risk_and_a_deleted_system_helper_of_medium() {
    let mut scene = Scene::new();
    let miner = scene.program("bin", "kdevtmpfsi");
    scene.plays("miner", &mut sleeps(&miner));
    let helper = scene.program("bin", "systemd-helper");
    scene.plays("helper", &mut sleeps(&helper));
    std::fs::remove_file(&helper).unwrap();
    let daemon = scene.stage.start();
    let expected = [("helper", "medium"), ("miner", "high")];
    let expected = expected.map(|(name, risk)| (name, Some(risk.to_owned())));
    becomes(&expected.into(), || scene.taken());
    daemon.stop();
}

/// Memory counts once it has been held for a minute.
const HELD: Duration = Duration::from_secs(180);

#[test]
fn explain_names_the_limit_on_memory_that_an_admin_has_set() {
    let mut scene = Scene::new();
    let honest = scene.program("honest", "python3.11");
    let pid = scene.plays("holder", &mut sleeps(&honest)).to_string();
    let daemon = scene.stage.start();
    let key = ["rogue", "set", "detection.max_memory_usage_gb", "0.5"];
    let ran = scene.stage.ctl(&key);
    assert_eq!(ran.code, 0, "{ran:?}");
    let began = Instant::now();
    let explained = || scene.stage.json(&["explain", &pid, "-o", "json"]);
    let signs = |explained: &Value| -> String {
        let signs = explained["rogue"]["signs"].as_array().cloned();
        signs.map(Value::Array).unwrap_or_default().to_string()
    };
    let mut seen = signs(&explained());
    while !seen.contains("detection.max_memory_usage_gb") {
        assert!(began.elapsed() < HELD, "{seen}");
        std::thread::sleep(Duration::from_secs(1));
        seen = signs(&explained());
    }
    assert!(seen.contains("more than the 0.5 GiB"), "{seen}");
    assert!(
        scene
            .stage
            .ctl(&["explain", &pid])
            .stdout
            .contains("max_memory_usage_gb")
    );
    daemon.stop();
}
