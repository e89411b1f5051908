//! Rules that cost their reader as much as rules can.

use gpukill_tests::harness::{Daemon, Stage, eventually};
use rustix::process::Signal;
use std::path::Path;

/// So many rules with a pattern each that takes about as much memory as one may.
pub(crate) fn large_patterns(rules: usize) -> String {
    let one = |nth| {
        format!(
            "[[rules]]\nname = \"r{nth}\"\naction = \"warn\"\nduration_limit_hours = 9\n\
             command = 'x{nth}[a-z0-9]{{900}}'\n"
        )
    };
    (0..rules).map(one).collect()
}

/// Files of rules that take much to read, or have nothing but mistakes.
fn hostile_files() -> [String; 3] {
    let mistakes = "user_policies = 7 [\n".repeat(50_000);
    let tables = "[a.a.a.a.a.a.a.a]\n".repeat(50_000);
    [large_patterns(1_000), mistakes, tables]
}

/// Makes each of these the rules in turn; the daemon refuses each with its first mistakes.
pub(crate) fn refuses_hostile_files(stage: &Stage, daemon: &Daemon, rules: &Path) {
    for file in hostile_files() {
        std::fs::write(rules, &file).unwrap();
        daemon.signal(Signal::HUP);
        eventually("it is refused", || {
            let status = stage.json(&["guard", "status", "-o", "json"]);
            let mistakes = status["mistakes"].as_array()?.len();
            (1..=101).contains(&mistakes).then_some(())
        });
    }
}
