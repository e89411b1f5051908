//! Properties of any text from a card or one of its clients, for fuzzing.

/// Asserts that the text is bounded and free of terminal control characters.
pub(super) fn assert_printable(text: &str, most: usize) {
    assert!(text.len() <= most, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
