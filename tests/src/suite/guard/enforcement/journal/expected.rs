//! The expected journal entries about alice and bob.

use super::{ALICE, BOB, GPU};
use serde_json::{Value, json};

/// The kinds and numbers of entries that each command of the document finds.
pub(super) const KINDS_BY_COMMAND: [&[(&str, usize)]; 7] = [
    &[
        ("action-ended", 2),
        ("action-refused", 1),
        ("action-started", 2),
        ("alert-over", 1),
        ("alert-started", 1),
        ("breaker-reset", 1),
        ("breaker-tripped", 1),
        ("fault-over", 1),
        ("fault-started", 1),
        ("job-ended", 2),
        ("job-gone", 1),
        ("owner-notified", 4),
        ("rogue-rules-in-force", 1),
        ("rule-changed", 1),
        ("rule-satisfied", 2),
        ("rule-violated", 3),
        ("rules-in-force", 2),
        ("snoozed", 1),
        ("started", 1),
        ("stopped", 1),
        ("warned", 4),
    ],
    &[("job-ended", 2)],
    &[("rule-violated", 3), ("warned", 4)],
    &[
        ("job-ended", 1),
        ("rule-changed", 1),
        ("rule-satisfied", 1),
        ("rule-violated", 2),
        ("snoozed", 1),
        ("warned", 3),
    ],
    &[
        ("job-ended", 1),
        ("owner-notified", 2),
        ("rule-changed", 1),
        ("rule-satisfied", 1),
        ("rule-violated", 2),
        ("snoozed", 1),
        ("warned", 3),
    ],
    &[
        ("alert-started", 1),
        ("job-ended", 2),
        ("job-gone", 1),
        ("rule-violated", 3),
        ("warned", 4),
    ],
    &[
        ("action-ended", 1),
        ("action-refused", 1),
        ("action-started", 1),
    ],
];

/// An entry about a decision in this mode, for a person with this process on the GPU,
/// with this message and these additional fields.
fn decision_entry(
    uid: u32,
    pid: u32,
    mode: &str,
    priority: u8,
    words: &str,
    more: &Value,
) -> Value {
    let (gib, limit) = (1_u64 << 30, 1_u64 << 29);
    let decided = json!({
        "MESSAGE": words, "PRIORITY": priority.to_string(), "RULE": "default: memory",
        "GPUKILL_SUBJECT": uid.to_string(), "GPUKILL_MODE": mode, "GPU_UUID": GPU,
        "VALUE": gib.to_string(), "LIMIT": limit.to_string(),
        "PID": pid.to_string(), "UID": uid.to_string(),
    });
    merge(decided, more)
}

/// An entry about a message to a person on this many terminals.
fn message_entry(uid: u32, action: &str, terminals: u32) -> Value {
    let words = match terminals {
        0 => "no terminal of the user who breaks a rule accepts a message",
        _ => "the user who breaks a rule is notified on their terminals",
    };
    json!({
        "MESSAGE": words, "PRIORITY": "6", "RULE": "default: memory",
        "GPUKILL_SUBJECT": uid.to_string(), "GPUKILL_MODE": "soft", "UID": uid.to_string(),
        "ACTION": action, "GPUKILL_TERMINALS": terminals.to_string(),
    })
}

/// The first object with the fields of the second added.
fn merge(mut one: Value, more: &Value) -> Value {
    let more = more.as_object().unwrap().clone();
    one.as_object_mut().unwrap().extend(more);
    one
}

/// The expected entries of each kind. The pids are those of alice's process on the GPU, of
/// bob's process, and of bob's launcher.
pub(super) fn expected_entries(
    [alices, bobs, bobs_launcher]: [u32; 3],
) -> Vec<(&'static str, Value)> {
    let varies = "it varies";
    let nothing = json!({});
    let of_alice = |mode: &str, priority: u8, words: &str, more: &Value| {
        decision_entry(ALICE, alices, mode, priority, words, more)
    };
    let of_bob = |priority: u8, words: &str, more: &Value| {
        decision_entry(BOB, bobs, "soft", priority, words, more)
    };
    let warning =
        |times: &str| json!({"ACTION": "warn", "GPUKILL_TIMES": times, "GPUKILL_DEADLINE": varies});
    let job = |uid: u32| json!({"GPUKILL_JOB": varies, "GPUKILL_OWNER": uid.to_string()});
    let ends = |uid: u32| merge(job(uid), &json!({"ACTION": "terminate"}));
    let alert = json!({
        "GPUKILL_GPU": "0", "GPU_UUID": GPU, "GPUKILL_QUANTITY": "temperature", "LIMIT": "85",
    });
    let edit = json!({
        "ACTION": "rules_edit", "GPUKILL_ACTION_ID": varies, "PRIORITY": "6",
    });
    let kill = json!({
        "ACTION": "kill", "GPUKILL_ACTION_ID": varies, "GPU_UUID": GPU, "PRIORITY": "6",
        "PID": [bobs.to_string(), bobs_launcher.to_string()], "UID": BOB.to_string(),
    });
    let begins = |action: &Value, asked: &str| {
        let more = json!({
            "MESSAGE": "an action starts", "GPUKILL_REQUEST": asked, "GPUKILL_PLAN": varies,
            "GPUKILL_CALLER_UID": "0",
        });
        merge(action.clone(), &more)
    };
    let over = |action: &Value| {
        let more = json!({
            "MESSAGE": "an action ended", "GPUKILL_RESULT": "done", "GPUKILL_OUTCOME": varies,
        });
        merge(action.clone(), &more)
    };
    let rules = |mode: &str| {
        json!({
            "MESSAGE": "rules are in force", "PRIORITY": "6", "GPUKILL_MODE": mode,
            "GPUKILL_RULES": "2", "GPUKILL_REVISION": varies,
        })
    };
    vec![
        (
            "alert-started",
            json!([merge(
                alert.clone(),
                &json!({
                    "MESSAGE": "alert on GPU 0: temperature at or above 85 °C",
                    "PRIORITY": "4", "VALUE": "91",
                })
            )]),
        ),
        (
            "alert-over",
            json!([merge(
                alert,
                &json!({
                    "MESSAGE": "alert is over on GPU 0: temperature at or above 85 °C",
                    "PRIORITY": "6", "VALUE": "80",
                })
            )]),
        ),
        ("rules-in-force", json!([rules("dry-run"), rules("soft")])),
        (
            "action-started",
            json!([
                begins(&edit, "mode soft"),
                begins(&kill, "guard: default: memory"),
            ]),
        ),
        ("action-ended", json!([over(&edit), over(&kill)])),
        (
            "action-refused",
            json!([{
                "MESSAGE": "an action was refused", "PRIORITY": "6", "ACTION": "kill",
                "GPUKILL_REQUEST": alices.to_string(), "GPUKILL_CALLER_UID": BOB.to_string(),
                "GPUKILL_PLAN": varies, "GPUKILL_TIMES": "1",
                "GPUKILL_WHY":
                    format!("process {alices} does not belong to the caller: ask {ALICE}, or root"),
            }]),
        ),
        (
            "rule-violated",
            json!([
                of_alice("soft", 4, "a rule is broken", &nothing),
                of_bob(4, "a rule is broken", &nothing),
                of_alice("dry-run", 4, "a rule is broken", &nothing),
            ]),
        ),
        (
            "warned",
            json!([
                of_alice(
                    "soft",
                    4,
                    "the user who breaks a rule is warned",
                    &warning("1")
                ),
                of_bob(4, "the user who breaks a rule is warned", &warning("1")),
                of_alice(
                    "soft",
                    4,
                    "the user who breaks a rule is warned",
                    &warning("1")
                ),
                of_alice(
                    "dry-run",
                    4,
                    "the user who breaks a rule would be warned",
                    &warning("1")
                ),
            ]),
        ),
        (
            "owner-notified",
            json!([
                message_entry(ALICE, "warn", 1),
                message_entry(BOB, "warn", 0),
                message_entry(ALICE, "warn", 1),
                message_entry(BOB, "terminate", 0),
            ]),
        ),
        (
            "snoozed",
            json!([of_alice(
                "soft",
                6,
                "the deadline of a warned user is postponed",
                &json!({
                    "GPUKILL_CALLER_UID": ALICE.to_string(), "GPUKILL_DEADLINE": varies,
                    "GPUKILL_LEFT": "0",
                })
            )]),
        ),
        (
            "job-ended",
            json!([
                of_bob(4, "a job is ended", &ends(BOB)),
                of_alice("dry-run", 4, "a job would be ended", &ends(ALICE)),
            ]),
        ),
        (
            "job-gone",
            json!([of_bob(
                4,
                "a job that broke a rule has ended",
                &merge(
                    job(BOB),
                    &json!({"GPUKILL_ENDED": "2", "GPUKILL_LEFT": "0"})
                )
            )]),
        ),
        (
            "breaker-tripped",
            json!([{
                "MESSAGE": "too many jobs would be ended: the guard ends no more jobs",
                "PRIORITY": "3", "RULE": "default: memory", "GPUKILL_MODE": "soft",
                "GPUKILL_SUBJECT": ALICE.to_string(), "GPUKILL_ENDED": "1",
            }]),
        ),
        (
            "breaker-reset",
            json!([{
                "MESSAGE": "the guard ends jobs again", "PRIORITY": "4",
                "GPUKILL_CALLER_UID": "0",
            }]),
        ),
    ]
}
