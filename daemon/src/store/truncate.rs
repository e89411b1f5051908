//! Limits on the length of stored texts.

use serde_json::json;

/// The longest plan or outcome, in bytes: more than a kill of a thousand processes with short
/// command lines has.
pub(super) const MAX_JSON_BYTES: usize = 256 << 10;

/// The longest other text, in bytes: a thousand pids and some names.
pub(super) const MAX_TEXT_BYTES: usize = 16 << 10;

/// The length of the beginning that is kept of too long JSON.
const BEGINNING_BYTES: usize = 1 << 10;

/// Keeps the beginning of a too long text, and notes the original length.
pub(super) fn text(mut text: String, max_bytes: usize) -> String {
    let length = text.len();
    if length > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push_str(&format!("… ({length} bytes)"));
    }
    text
}

/// Replaces too long JSON by a JSON object with its length and its beginning: truncated JSON would
/// be invalid.
pub(super) fn json(text: String, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text;
    }
    let beginning = &text[..text.floor_char_boundary(BEGINNING_BYTES)];
    json!({"too_long": {"bytes": text.len(), "beginning": beginning}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn short_text_stays() {
        assert_eq!(text("1234".into(), 4), "1234");
        assert_eq!(json("[12]".into(), 4), "[12]");
    }

    #[test]
    fn long_text_notes_its_length() {
        assert_eq!(text("aäb".into(), 2), "a… (4 bytes)");
        let long = format!("[\"{}\"]", "ä".repeat(2_000));
        let expected = json!({"too_long": {
            "bytes": 4_004,
            "beginning": format!("[\"{}", "ä".repeat(511)),
        }});
        assert_eq!(
            serde_json::from_str::<Value>(&json(long, 4_003)).unwrap(),
            expected
        );
    }

    proptest! {
        #[test]
        fn result_is_bounded_and_valid(text in "(?s).*", times in 1_usize..200, max_bytes in 0_usize..4_000) {
            let long = text.repeat(times);
            let cut = super::text(long.clone(), max_bytes);
            prop_assert!(cut.len() <= max_bytes + 40);
            let cut = json(json!(long).to_string(), max_bytes);
            prop_assert!(serde_json::from_str::<Value>(&cut).is_ok());
            prop_assert!(cut.len() <= max_bytes.max(6 * BEGINNING_BYTES + 100));
        }
    }
}
