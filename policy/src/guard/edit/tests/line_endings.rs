//! Edits keep line endings and the byte order mark.

use super::*;

#[test]
fn keeps_a_single_different_line_ending() {
    let text = "# a\n[global]\r\nenabled = true\n# b\ndry_run = true # x\n\n# c\n";
    let after = apply(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, text.replace("dry_run = true", "dry_run = false"));
    let after = apply(
        text,
        &set_policy_edit(PolicyKind::User, "a", &[("priority", "1")]),
    );
    assert_eq!(after.matches("\r\n").count(), 1, "{after:?}");
    assert!(after.starts_with("# a\n[global]\r\n"), "{after:?}");
    // A new line gets the line ending of the file.
    let text = "[global]\r\ndry_run = true\r\n# b\n";
    let after = apply(text, &GuardEdit::SetMode(GuardMode::Disabled));
    assert_eq!(
        after,
        "[global]\r\ndry_run = true\r\nenabled = false\r\n# b\n"
    );
}

#[test]
fn keeps_the_byte_order_mark() {
    let text = "\u{feff}[global]\ndry_run = true\n";
    let after = apply(text, &GuardEdit::ToggleDryRun);
    assert_eq!(after, "\u{feff}[global]\ndry_run = false\n");
}
