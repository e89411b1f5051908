//! Rule files that are as expensive to read as possible. The bench `budget` includes this file.

use gpukill_tests::harness::{Daemon, TestBox, eventually};
use rustix::process::Signal;
use std::path::Path;

/// This many rules, each with a pattern of about the maximum compiled size.
pub(crate) fn large_patterns(rules: usize) -> String {
    let one = |nth| {
        format!(
            "[[rules]]\nname = \"r{nth}\"\naction = \"warn\"\nduration_limit_hours = 9\n\
             command = 'x{nth}[a-z0-9]{{900}}'\n"
        )
    };
    (0..rules).map(one).collect()
}

/// Rule files that are expensive to read, or consist of mistakes only.
fn hostile_files() -> [String; 3] {
    let mistakes = "user_policies = 7 [\n".repeat(50_000);
    let tables = "[a.a.a.a.a.a.a.a]\n".repeat(50_000);
    [large_patterns(1_000), mistakes, tables]
}

/// Loads each hostile file; the daemon refuses it and reports the first mistakes.
pub(crate) fn refuses_hostile_files(test_box: &TestBox, daemon: &Daemon, rules: &Path) {
    for file in hostile_files() {
        std::fs::write(rules, &file).unwrap();
        daemon.signal(Signal::HUP);
        eventually("it is refused", || {
            let status = test_box.json(&["guard", "status", "-o", "json"]);
            let mistakes = status["mistakes"].as_array()?.len();
            (1..=101).contains(&mistakes).then_some(())
        });
    }
}
