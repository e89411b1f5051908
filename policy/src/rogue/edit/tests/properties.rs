//! Properties of every edit, in any order.

use super::*;
use crate::rogue::rules::RogueRules;
use proptest::prelude::*;

/// The rules of a file, independent of the order of its allow lists.
fn parsed_rules(text: &str) -> RogueRules {
    let mut rules = read::read(text).unwrap();
    rules.allowed.sort_by_key(|it| format!("{it:?}"));
    rules
}

fn any_edit() -> impl Strategy<Value = RogueEdit> {
    let by = prop::sample::select(AllowKind::ALL.to_vec());
    let what = prop::sample::select(vec![
        "hashcat",
        "crack@bob",
        "bob",
        "/opt/x",
        "/opt/x@eve",
        "é",
        "a\"b",
        "a # b",
        "a\nb",
        "img@sha256:0",
    ]);
    let key = prop::sample::select(vec![
        ("detection.max_memory_usage_gb", "8"),
        ("detection.max_memory_usage_gb", ""),
        ("max_duration_hours", "0.5"),
        ("patterns.pool_ports", "1,2"),
        ("patterns.user_whitelist", "x, y"),
        ("patterns.process_whitelist", ""),
        ("scoring.risk_thresholds.high", "0.75"),
        ("scoring.risk_thresholds.high", "0.1"),
        ("metadata.version", "1.0"),
        ("metadata.last_modified", ""),
    ]);
    (by, what, key, 0..4).prop_map(|(by, what, (path, value), which)| match which {
        0 => set(path, value),
        1 => disallow(by, what),
        _ => allow(by, what),
    })
}

/// Files in various formats.
fn any_file() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        BEFORE,
        "patterns = { user_whitelist = ['x'] }\n",
        "[patterns]\nuser_whitelist = ['x' # c\n , 'bob']\nprocess_whitelist = [\n'hashcat', # h\n# i\n]",
        "patterns.process_whitelist = [ # none\n]\n[scoring]\nrisk_thresholds.low = 0.1\n",
    ])
}

proptest! {
    #[test]
    fn valid_file_stays_valid(
        file in any_file(),
        edits in prop::collection::vec(any_edit(), 1..8),
    ) {
        let mut text = file.to_owned();
        for change in edits {
            let Ok(after) = edit(&text, &change, NOW) else {
                continue;
            };
            prop_assert!(read::read(&after).is_ok(), "{:?}: {}", change, after);
            prop_assert!(edit(&after, &set("detection.max_sent_gb", "7"), NOW).is_ok());
            text = after;
        }
    }

    #[test]
    fn allow_and_disallow_cancel_out(
        file in any_file(),
        edits in prop::collection::vec(any_edit(), 0..4),
        by in prop::sample::select(AllowKind::ALL.to_vec()),
        what in "/[ -~é]{1,12}",
    ) {
        let mut text = file.to_owned();
        for change in edits {
            text = edit(&text, &change, NOW).unwrap_or(text);
        }
        let before = parsed_rules(&text);
        let comments = |text: &str| text.matches('#').count();
        if let Ok(allowed) = edit(&text, &allow(by, &what), NOW) {
            prop_assert_eq!(parsed_rules(&allowed).allowed.len(), before.allowed.len() + 1);
            let after = edit(&allowed, &disallow(by, &what), NOW).unwrap();
            prop_assert_eq!(parsed_rules(&after), before, "{}", after);
            prop_assert!(comments(&after) >= comments(&text), "{} {}", text, after);
        }
    }
}
