//! The ends of lines and the mark of an editor, through edits.

use super::*;

#[test]
fn one_line_that_ends_otherwise_stays_the_only_one() {
    let text = "# a\n[global]\r\nenabled = true\n# b\ndry_run = true # x\n\n# c\n";
    let after = done(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, text.replace("dry_run = true", "dry_run = false"));
    let after = done(text, &set(PolicyKind::User, "a", &[("priority", "1")]));
    assert_eq!(after.matches("\r\n").count(), 1, "{after:?}");
    assert!(after.starts_with("# a\n[global]\r\n"), "{after:?}");
    // What is new in a file of the other kind ends as that does.
    let text = "[global]\r\ndry_run = true\r\n# b\n";
    let after = done(text, &GuardEdit::SetMode(GuardMode::Disabled));
    assert_eq!(
        after,
        "[global]\r\ndry_run = true\r\nenabled = false\r\n# b\n"
    );
}

#[test]
fn the_mark_of_an_editor_stays() {
    let text = "\u{feff}[global]\ndry_run = true\n";
    let after = done(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, "\u{feff}[global]\ndry_run = false\n");
}
