//! Documents for programs. The output is harmless on a terminal too.

use crate::exit::Error;
use gpukill_proto::text::sanitize;
use serde::Serialize;

/// A document on several lines.
pub(crate) fn pretty(document: &impl Serialize) -> Result<String, Error> {
    finish_document(serde_json::to_string_pretty(document))
}

pub(crate) fn on_one_line(document: &impl Serialize) -> Result<String, Error> {
    finish_document(serde_json::to_string(document))
}

fn finish_document(text: serde_json::Result<String>) -> Result<String, Error> {
    let text = text.map_err(|error| Error::Output(error.into()))?;
    Ok(escape_controls(text) + "\n")
}

/// Escapes every character that could control a terminal. Outside its strings JSON has only
/// ASCII, and inside them an escape is the same character.
fn escape_controls(text: String) -> String {
    if text.bytes().all(|byte| byte.is_ascii() && byte != 0x7f) {
        return text;
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmless(c) {
            safe.push(c);
        } else {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            safe.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    safe
}

fn is_harmless(c: char) -> bool {
    let mut buffer = [0; 4];
    let text = c.encode_utf8(&mut buffer);
    c == '\n' || sanitize(text.as_bytes(), 16) == *text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_without_change() {
        let hostile = "naïve \u{1b}[2J \u{9b}2J \u{7f} \u{202e}x\u{e0041}";
        let text = on_one_line(&hostile).expect("it is a string");
        assert_eq!(
            text,
            "\"naïve \\u001b[2J \\u009b2J \\u007f \\u202ex\\udb40\\udc41\"\n"
        );
        assert_eq!(
            serde_json::from_str::<String>(&text).expect("it is JSON"),
            hostile
        );
    }
}
