//! What must hold of every text that a card, or one of its clients, tells: for
//! fuzzing.

/// Bounded, and nothing that a terminal would obey.
pub(super) fn assert_shown(text: &str, most: usize) {
    assert!(text.len() <= most, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
