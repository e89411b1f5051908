//! The JSON of an entry of the record of what was done.

use super::fields::{document, within};
use crate::audit::ActionRecord;
use crate::reading::Reading;
use crate::units::Timestamp;
use serde_json::Value;

document! {
    /// One entry of `gpukillctl audit actions -o json`.
    ActionDocument(record: &ActionRecord) {
        id: u64 = record.id,
        /// When it was asked for, or happened.
        timestamp: String = record.at.to_rfc3339(),
        /// In a word: `kill`, `reset`, `xid`.
        kind: String = record.kind.clone(),
        uid: Option<u32> = record.uid,
        user: Option<String> = record.user.clone(),
        gpu_id: Option<String> = record.device.as_ref().map(|device| device.0.clone()),
        /// What was asked for, as options of the command; or what happened.
        what: Option<String> = record.what.clone(),
        /// How often.
        times: u64 = record.times,
        /// `null` while it is under way, and of what only happened.
        result: Option<String> = record.word.clone(),
        /// When it was over.
        finished_at: Option<String> = record.finished_at.map(Timestamp::to_rfc3339),
        /// Why it was refused, or is not known.
        why: Option<String> = record.why.clone(),
        /// What was planned.
        plan: Option<Value> = embedded(&record.plan),
        /// What came of it.
        outcome: Option<Value> = embedded(&record.outcome),
    }
}

impl From<&ActionRecord> for ActionDocument {
    fn from(record: &ActionRecord) -> Self {
        Self::new(record)
    }
}

/// The longest text that is embedded, in bytes. The daemon stores no more than
/// 256 KiB of a plan and of an outcome.
const LONGEST: usize = 1 << 20;

/// JSON as the value that it is; a text that is none as a string. None is `null`
/// without a reason.
fn embedded(text: &Reading<String>) -> Reading<Option<Value>> {
    match text {
        // Of what only happened, and of what is not over, there is none.
        Reading::Unsupported => Reading::Value(None),
        Reading::Value(_) | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => {
            within(text, |text| {
                if text.len() > LONGEST {
                    return Reading::Failed(format!("longer than {LONGEST} bytes"));
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
    fn a_plan_is_the_value_that_it_is_and_what_is_no_json_stays_a_text() {
        let value = |text: &str| embedded(&Reading::Value(text.into()));
        let some = |value| Reading::Value(Some(value));
        assert_eq!(
            value("{\"targets\":[{\"pid\":1}]}"),
            some(json!({"targets": [{"pid": 1}]}))
        );
        assert_eq!(value("{\"targets\":["), some(json!("{\"targets\":[")));
        // Deeper than a reader of JSON follows.
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert_eq!(value(&deep), some(json!(deep)));
        assert_eq!(
            value(&"1".repeat((1 << 20) + 1)),
            Reading::Failed("longer than 1048576 bytes".into())
        );
        assert_eq!(embedded(&Reading::Unsupported), Reading::Value(None));
        assert_eq!(embedded(&Reading::Withheld), Reading::Withheld);
    }
}
