//! How much of a text is stored.

use serde_json::json;

/// The most of a plan or an outcome, in bytes. More than a kill of a thousand
/// processes with short command lines has.
pub(super) const MOST_JSON: usize = 256 << 10;

/// The most of other texts, in bytes: a thousand pids and some names.
pub(super) const MOST_TEXT: usize = 16 << 10;

/// As much of the beginning as is kept of JSON that is too long.
const BEGINNING: usize = 1 << 10;

/// The beginning of a text, and how long it was.
pub(super) fn text(mut text: String, most: usize) -> String {
    let length = text.len();
    if length > most {
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&format!("… ({length} bytes)"));
    }
    text
}

/// JSON as it is, or other JSON that says how long it was and how it began: a
/// part of JSON is none.
pub(super) fn json(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let beginning = &text[..text.floor_char_boundary(BEGINNING)];
    json!({"too_long": {"bytes": text.len(), "beginning": beginning}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn what_is_short_stays_as_it_is() {
        assert_eq!(text("1234".into(), 4), "1234");
        assert_eq!(json("[12]".into(), 4), "[12]");
    }

    #[test]
    fn what_is_too_long_says_how_long_it_was() {
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
        fn no_text_is_too_much(text in "(?s).*", times in 1_usize..200, most in 0_usize..4_000) {
            let long = text.repeat(times);
            let cut = super::text(long.clone(), most);
            prop_assert!(cut.len() <= most + 40);
            let cut = json(json!(long).to_string(), most);
            prop_assert!(serde_json::from_str::<Value>(&cut).is_ok());
            prop_assert!(cut.len() <= most.max(6 * BEGINNING + 100));
        }
    }
}
