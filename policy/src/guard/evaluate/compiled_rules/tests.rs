//! Digests of rules: only keys that affect an evaluation change them.

use super::*;
use crate::guard::rules::parse::parse;
use proptest::prelude::*;
use toml::{Table, Value};

/// A table of the file with its keys: `[global]`, `[user_policies."alice"]`, `[[rules]]`.
type Block = (String, Vec<(String, Value)>);

/// The tables of a file with every key.
fn blocks() -> Vec<Block> {
    let text = include_str!("../../rules/parse/tests/every_field.toml");
    let file: Table = toml::from_str(text).unwrap();
    let keys = |table: &Table| table.clone().into_iter().collect();
    let mut blocks = Vec::new();
    for (section, content) in &file {
        match content {
            Value::Array(list) => blocks.extend(list.iter().map(|table| {
                let table = table.as_table().unwrap();
                (format!("[[{section}]]"), keys(table))
            })),
            Value::Table(table) if section.ends_with("_policies") => {
                blocks.extend(table.iter().map(|(name, policy)| {
                    let header = format!("[{section}.{name:?}]");
                    (header, keys(policy.as_table().unwrap()))
                }));
            }
            Value::Table(table) => blocks.push((format!("[{section}]"), keys(table))),
            _ => panic!("{section} is no table"),
        }
    }
    blocks
}

fn to_toml(blocks: &[Block]) -> String {
    let mut text = String::new();
    for (header, keys) in blocks {
        text.push_str(&format!("{header}\n"));
        for (key, value) in keys {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    text
}

fn compile(text: &str) -> CompiledRules {
    CompiledRules::new(parse(text).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:?}")))
}

fn digests(text: &str) -> RuleDigests {
    compile(text).digests().clone()
}

/// Other valid or invalid values for a key.
fn other_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Integer(number) => vec![(number + 1).into(), (number - 1).into()],
        Value::Float(number) => vec![(number + 1.0).into()],
        Value::Boolean(is) => vec![(!is).into()],
        Value::Array(list) => vec![list[1..].to_vec().into()],
        Value::String(text) => vec![format!("{text}x").into(), "warn".into(), "soft".into()],
        Value::Datetime(_) | Value::Table(_) => Vec::new(),
    }
}

/// The rules without the fields that do not affect an evaluation.
fn evaluated_part(rules: &RuleSet) -> RuleSet {
    RuleSet {
        positions: BTreeMap::new(),
        switch_conflict: None,
        ..rules.clone()
    }
}

#[test]
fn changed_key_changes_the_digest() {
    let blocks = blocks();
    let before = compile(&to_toml(&blocks));
    let mut changed = 0;
    for (position, (header, keys)) in blocks.iter().enumerate() {
        for (at, (key, value)) in keys.iter().enumerate() {
            // The key is removed, or has another value.
            let variants = std::iter::once(None).chain(other_values(value).into_iter().map(Some));
            for variant in variants {
                let mut blocks = blocks.clone();
                match &variant {
                    Some(value) => blocks[position].1[at].1 = value.clone(),
                    None => drop(blocks[position].1.remove(at)),
                }
                let Ok(rules) = parse(&to_toml(&blocks)) else {
                    continue;
                };
                let is_same = evaluated_part(&rules) == evaluated_part(&before.rules);
                let after = CompiledRules::new(rules);
                let what = format!("{header} {key} {variant:?}");
                assert_eq!(after.is_same(&before), is_same, "{what}");
                let is_of_policy = !header.starts_with("[protect]");
                if is_of_policy {
                    let are_same = after.digests().policies == before.digests().policies;
                    assert_eq!(are_same, is_same, "{what}");
                }
                changed += usize::from(!is_same);
            }
        }
    }
    // Most keys can be left out or have another value.
    assert!(changed > 100, "{changed}");
}

#[test]
fn spelling_of_values_does_not_matter() {
    let spelled = |memory: &str, duration: &str, days: &str| {
        let text = format!(
            "[user_policies.alice]\nmemory_limit_gb = {memory}\nduration_limit_hours = {duration}\n\
             [[time_policies]]\nname = \"night\"\nmax_concurrent_processes = 1\n\
             days_of_week = {days}\n"
        );
        digests(&text)
    };
    let expected = spelled("16", "1.5", "[\"Monday\", \"Tuesday\"]");
    assert_eq!(spelled("16.0", "\"90m\"", "[\"tue\", \"mon\"]"), expected);
    assert_eq!(spelled("\"16GiB\"", "\"1.5h\"", "\"Mon-Tue\""), expected);
    assert_ne!(spelled("16", "1.5", "[\"Monday\"]"), expected);
}

#[test]
fn kind_of_policy_matters() {
    let limit = "memory_limit_gb = 16\n";
    let user = compile(&format!("[user_policies.a]\n{limit}"));
    let group = compile(&format!("[group_policies.a]\nmembers = [\"b\"]\n{limit}"));
    assert_ne!(
        user.policy_digest(PolicyIndex::User(0)),
        group.policy_digest(PolicyIndex::Group(0))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn order_and_comments_do_not_matter(
        order in Just(blocks()).prop_shuffle(),
        turns in prop::collection::vec(any::<usize>(), 64),
        comment in "[ -~]{0,20}",
    ) {
        // The order of tables in a list matters.
        let mut lists: BTreeMap<String, Vec<Block>> = BTreeMap::new();
        for block in blocks().into_iter().rev() {
            lists.entry(block.0.clone()).or_default().push(block);
        }
        let mut shuffled: Vec<Block> = order
            .iter()
            .filter_map(|(header, _)| lists.get_mut(header)?.pop())
            .collect();
        for ((_, keys), turn) in shuffled.iter_mut().zip(&turns) {
            let middle = turn % keys.len().max(1);
            keys.rotate_left(middle);
            if turn % 2 == 1 {
                keys.reverse();
            }
        }
        let text = to_toml(&shuffled);
        let text = text.replace('\n', &format!(" # {comment}\n\n"));
        let expected = digests(&to_toml(&blocks()));
        prop_assert_eq!(digests(&text), expected);
    }
}
