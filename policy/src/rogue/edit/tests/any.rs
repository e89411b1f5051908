//! Whatever is changed, and in whatever order.

use super::*;
use crate::rogue::rules::Rules;
use proptest::prelude::*;

/// What a file says, whatever the order of its lists of whom it allows.
fn said(text: &str) -> Rules {
    let mut rules = read::read(text).unwrap();
    rules.allowed.sort_by_key(|it| format!("{it:?}"));
    rules
}

fn any_edit() -> impl Strategy<Value = RogueEdit> {
    let by = prop::sample::select(AllowBy::ALL.to_vec());
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

/// Files in various forms.
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
    fn a_change_of_a_good_file_gives_a_good_file(
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
    fn who_is_allowed_and_then_is_not_leaves_the_rules_as_they_were(
        file in any_file(),
        edits in prop::collection::vec(any_edit(), 0..4),
        by in prop::sample::select(AllowBy::ALL.to_vec()),
        what in "/[ -~é]{1,12}",
    ) {
        let mut text = file.to_owned();
        for change in edits {
            text = edit(&text, &change, NOW).unwrap_or(text);
        }
        let before = said(&text);
        let comments = |text: &str| text.matches('#').count();
        if let Ok(allowed) = edit(&text, &allow(by, &what), NOW) {
            prop_assert_eq!(said(&allowed).allowed.len(), before.allowed.len() + 1);
            let after = edit(&allowed, &disallow(by, &what), NOW).unwrap();
            prop_assert_eq!(said(&after), before, "{}", after);
            prop_assert!(comments(&after) >= comments(&text), "{} {}", text, after);
        }
    }
}
