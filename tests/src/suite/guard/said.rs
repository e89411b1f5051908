//! What the guard says of a change, of its rules and of itself is so.

use super::has_rules;
use gpukill_tests::harness::{NOBODY, Stage, acting_as, can_act_as_others};

/// What a command prints, with what it says besides.
fn said(stage: &Stage, arguments: &[&str]) -> String {
    let ran = stage.ctl(arguments);
    format!("{}{}", ran.stdout, ran.stderr)
}

#[test]
fn whatever_arms_the_guard_says_so() {
    let stage = Stage::new();
    has_rules(&stage, "[global]\ndry_run = true\n");
    let daemon = stage.start();
    let set = ["guard", "set", "global.dry_run", "false"];
    let would = said(&stage, &[&set[..], &["--dry-run"]].concat());
    assert!(
        would.contains("\nthe guard would be in mode soft: "),
        "{would}"
    );
    let done = said(&stage, &set);
    assert!(done.contains("\nthe guard is in mode soft: "), "{done}");
    let draft = stage.path("draft.toml");
    std::fs::write(
        &draft,
        "[global]\ndry_run = false\ndefault_memory_limit_gb = 4\n\
         [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n",
    )
    .unwrap();
    let import = ["guard", "import", draft.to_str().unwrap(), "--yes"];
    let done = said(&stage, &import);
    assert!(done.contains("\nthe guard is in mode enforce: "), "{done}");
    // The same mode is nothing new.
    std::fs::write(&draft, "[global]\ndry_run = true\n").unwrap();
    let done = said(&stage, &import);
    assert!(done.contains("\nthe guard is in mode dry-run: "), "{done}");
    std::fs::write(
        &draft,
        "[global]\ndry_run = true\ndefault_memory_limit_gb = 4\n",
    )
    .unwrap();
    let done = said(&stage, &import);
    assert!(!done.contains("the guard is"), "{done}");
    // One word for a guard that is off, wherever it is told.
    let off = "the guard is disabled: nothing is judged\n";
    let done = said(&stage, &["guard", "disable"]);
    assert!(done.contains(off), "{done}");
    let shown = said(&stage, &["guard", "violations"]);
    assert!(shown.starts_with(off), "{shown}");
    daemon.stop();
}

#[test]
fn who_may_not_read_the_file_of_the_rules_is_told_of_its_mistakes_all_the_same() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    has_rules(
        &stage,
        "[global]\ndry_run = true\ndry_run = true\ndefault_idle_limt_minutes = 5\n",
    );
    let daemon = stage.start();
    let file = stage.path("guard.toml").display().to_string();
    let by_root = stage.ctl(&["guard", "check"]);
    assert_eq!(by_root.code, 3, "{by_root:?}");
    assert!(
        by_root
            .stdout
            .contains("line 3, column 1: duplicate key dry_run\n")
    );
    assert!(
        by_root
            .stdout
            .contains("line 4, column 1: global.default_idle_limt_minutes: ")
    );
    let by_nobody = acting_as(NOBODY, &[], || stage.ctl(&["guard", "check"]));
    assert_eq!(
        (by_nobody.code, by_nobody.stdout.as_str()),
        (
            3,
            format!(
                "a mistake in line 3, column 1\na mistake in line 4, column 1\n{file}: 2 mistakes\n"
            )
            .as_str()
        ),
        "{by_nobody:?}"
    );
    let status = stage.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["mistakes"].as_array().map(Vec::len), Some(2));
    daemon.stop();
}
