//! An edit of one policy leaves all others unchanged.

use super::*;
use crate::guard::rules::RuleSet;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The policies of every kind by name, and the rest.
fn policies_by_name(rules: &RuleSet) -> BTreeMap<(String, String), String> {
    let mut parts = BTreeMap::new();
    let mut put = |kind: &str, name: &str, what: String| {
        parts.insert((kind.to_owned(), name.to_owned()), what);
    };
    for it in &rules.users {
        put("user_policies", &it.name, format!("{it:?}"));
    }
    for it in &rules.groups {
        put("group_policies", &it.name, format!("{it:?}"));
    }
    for it in &rules.gpus {
        put("gpu_policies", &it.name, format!("{it:?}"));
    }
    for it in &rules.times {
        put("time_policies", &it.name, format!("{it:?}"));
    }
    for it in &rules.behaviours {
        put("rules", &it.name, format!("{it:?}"));
    }
    let whole = (
        rules.mode,
        &rules.defaults,
        &rules.enforcement,
        &rules.protect,
    );
    put("", "", format!("{whole:?}"));
    parts
}

fn any_edit() -> impl Strategy<Value = (GuardEdit, PolicyKind, String)> {
    let kind = prop::sample::select(PolicyKind::ALL.to_vec());
    let name = prop::sample::select(vec![
        "alice", "bob", "0", "night", "a b", "é", "\"q\"", "a.b",
    ]);
    let key = prop::sample::select(vec![
        ("priority", "3"),
        ("memory_limit_gb", "3.5"),
        ("memory_limit_gb", ""),
        ("message", "say \"hello\", or # not"),
        ("days_of_week", "mon"),
        ("growth_gb", "1"),
        ("rogue_threats", "crypto_miner,resource_abuser"),
        ("rogue_risk", "high"),
        ("max_memory_gb", "8G"),
        ("members", "x,y"),
    ]);
    let is_removal = any::<bool>();
    (kind, name, key, is_removal).prop_map(|(kind, name, key, is_removal)| {
        let change = if is_removal {
            remove_policy_edit(kind, name)
        } else {
            set_policy_edit(kind, name, &[key])
        };
        (change, kind, name.to_owned())
    })
}

proptest! {
    #[test]
    fn leaves_other_policies_unchanged(edits in prop::collection::vec(any_edit(), 1..8)) {
        let mut text = BEFORE.to_owned();
        for (change, kind, name) in edits {
            let Ok(after) = edit(&text, &change) else {
                continue;
            };
            let mut before = policies_by_name(&parse::parse(&text).unwrap());
            let mut now = policies_by_name(&parse::parse(&after).unwrap());
            let changed = (kind.table().to_owned(), name);
            before.remove(&changed);
            let is_there = now.remove(&changed).is_some();
            prop_assert_eq!(is_there, matches!(change, GuardEdit::SetPolicy { .. }));
            prop_assert_eq!(&now, &before);
            // Comments of other policies stay.
            prop_assert!(after.contains("# The lab's rules."));
            text = after;
        }
    }
}
