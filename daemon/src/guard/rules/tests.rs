//! Files and edits of rules, without a daemon around them.

use super::*;

#[test]
fn without_a_file_the_built_in_defaults_hold_and_limit_nobody() {
    let rules = understood(None).unwrap();
    assert_eq!(rules.revision, None);
    assert_eq!(rules.rules().policies(), 0);
    assert_eq!(rules.rules().mode, GuardMode::DryRun);
}

#[test]
fn rules_that_would_end_somebody_are_rehearsed() {
    let text = "[global]\nenabled = true\ndry_run = false\n";
    let rules = understood(Some(text.into())).unwrap();
    assert_eq!(rules.rules().mode, GuardMode::DryRun);
    assert_eq!(rules.revision, Some(revision(text)));
    assert_ne!(revision(text), revision("[global]\nenabled = false\n"));
}

#[test]
fn every_mistake_is_told() {
    let text = "[global]\nenabeld = true\ndry_run = 3\n";
    let mistakes = understood(Some(text.into())).unwrap_err();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}
