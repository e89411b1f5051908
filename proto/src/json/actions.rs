//! The JSON of a recorded action.

use super::fields::{and_then_ref, document};
use crate::audit::ActionRecord;
use crate::reading::Reading;
use crate::units::Timestamp;
use serde_json::Value;

document! {
    /// One entry of `gpukillctl audit actions -o json`.
    ActionDocument(record: &ActionRecord) {
        id: u64 = record.id,
        /// The time of the request or event.
        timestamp: String as Timestamp = record.at.to_rfc3339(),
        /// The kind in one word: `kill`, `reset`, `xid`.
        kind: String = record.kind.clone(),
        uid: Option<u32> = record.uid,
        user: Option<String> = record.user.clone(),
        gpu_id: Option<String> = record.device.as_ref().map(|device| device.0.clone()),
        /// The request as options of the command, or the event in words.
        what: Option<String> = record.what.clone(),
        /// The number of occurrences.
        times: u64 = record.times,
        /// `null` for an action in progress and for an event.
        result: Option<String> = record.result.clone(),
        /// The end of the action.
        finished_at: Option<String> as Option<Timestamp> = record.finished_at.map(Timestamp::to_rfc3339),
        /// Why it was refused, or why its result is unknown.
        why: Option<String> = record.why.clone(),
        plan: Option<Value> = parse_embedded(&record.plan),
        outcome: Option<Value> = parse_embedded(&record.outcome),
    }
}

/// The longest text that is embedded as JSON, in bytes. The daemon stores at most 256 KiB of a
/// plan and of an outcome.
const MAX_EMBEDDED_BYTES: usize = 1 << 20;

/// Parses a text as JSON; a text that is not JSON becomes a string. A missing text is `null`
/// without a reason.
fn parse_embedded(text: &Reading<String>) -> Reading<Option<Value>> {
    match text {
        // Events and unfinished actions have none.
        Reading::Unsupported => Reading::Value(None),
        Reading::Value(_) | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
            and_then_ref(text, |text| {
                if text.len() > MAX_EMBEDDED_BYTES {
                    return Reading::Failed(format!("longer than {MAX_EMBEDDED_BYTES} bytes"));
                }
                let value = serde_json::from_str(text);
                Reading::Value(Some(value.unwrap_or_else(|_| Value::String(text.clone()))))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_json_stays_a_string() {
        let value = |text: &str| parse_embedded(&Reading::Value(text.into()));
        let some = |value| Reading::Value(Some(value));
        assert_eq!(
            value("{\"targets\":[{\"pid\":1}]}"),
            some(json!({"targets": [{"pid": 1}]}))
        );
        assert_eq!(value("{\"targets\":["), some(json!("{\"targets\":[")));
        // Deeper than the JSON parser allows.
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert_eq!(value(&deep), some(json!(deep)));
        assert_eq!(
            value(&"1".repeat((1 << 20) + 1)),
            Reading::Failed("longer than 1048576 bytes".into())
        );
        assert_eq!(parse_embedded(&Reading::Unsupported), Reading::Value(None));
        assert_eq!(parse_embedded(&Reading::Withheld), Reading::Withheld);
    }
}
