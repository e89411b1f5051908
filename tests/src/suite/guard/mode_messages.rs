//! Messages about a mode change, about the rules and about the guard itself.

use super::write_rules;
use gpukill_tests::harness::{NOBODY_UID, TestBox, can_run_as_other_users, run_as_user};

/// Standard output and standard error of a command.
fn all_output(test_box: &TestBox, arguments: &[&str]) -> String {
    let ran = test_box.ctl(arguments);
    format!("{}{}", ran.stdout, ran.stderr)
}

#[test]
fn mode_change_is_reported() {
    let test_box = TestBox::new();
    write_rules(&test_box, "[global]\ndry_run = true\n");
    let daemon = test_box.start();
    let set = ["guard", "set", "global.dry_run", "false"];
    let would = all_output(&test_box, &[&set[..], &["--dry-run"]].concat());
    assert!(
        would.contains("\nthe guard would be in mode soft: "),
        "{would}"
    );
    let done = all_output(&test_box, &set);
    assert!(done.starts_with("the guard is in mode soft: "), "{done}");
    let draft = test_box.path("draft.toml");
    std::fs::write(
        &draft,
        "[global]\ndry_run = false\ndefault_memory_limit_gb = 4\n\
         [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n",
    )
    .unwrap();
    let import = ["guard", "import", draft.to_str().unwrap(), "--yes"];
    let done = all_output(&test_box, &import);
    assert!(done.contains("\nthe guard is in mode enforce: "), "{done}");
    // An unchanged mode is not reported.
    std::fs::write(&draft, "[global]\ndry_run = true\n").unwrap();
    let done = all_output(&test_box, &import);
    assert!(done.contains("\nthe guard is in mode dry-run: "), "{done}");
    std::fs::write(
        &draft,
        "[global]\ndry_run = true\ndefault_memory_limit_gb = 4\n",
    )
    .unwrap();
    let done = all_output(&test_box, &import);
    assert!(!done.contains("the guard is"), "{done}");
    // All commands use the same sentence for a disabled guard.
    let off = "the guard is disabled: nothing is evaluated\n";
    let done = all_output(&test_box, &["guard", "disable"]);
    assert!(done.contains(off), "{done}");
    let shown = all_output(&test_box, &["guard", "violations"]);
    assert!(shown.starts_with(off), "{shown}");
    daemon.stop();
}

#[test]
fn users_see_only_mistake_positions() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    write_rules(
        &test_box,
        "[global]\ndry_run = true\ndry_run = true\ndefault_idle_limt_minutes = 5\n",
    );
    let daemon = test_box.start();
    let file = test_box.path("guard.toml").display().to_string();
    let by_root = test_box.ctl(&["guard", "check"]);
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
    let by_nobody = run_as_user(NOBODY_UID, &[], || test_box.ctl(&["guard", "check"]));
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
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["mistakes"].as_array().map(Vec::len), Some(2));
    daemon.stop();
}
