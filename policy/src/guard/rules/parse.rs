//! Parses the admin's rules file. All mistakes are reported at once, each with its line and
//! a suggestion. An unknown key or a bad value never becomes a silent default.
//!
//! In reading order: one value at its position ([`value_reader`]) and the kinds of values
//! ([`value`]); the keys of a table ([`field`]); then the keys themselves, first those that
//! several kinds of policies share. Each key is defined once, with its help: [`reference`]
//! prints them from there.

mod behaviour;
mod bounds;
pub mod field;
mod global;
mod gpu;
mod hours;
mod reference;
mod shared;
mod time;
mod users_and_groups;
pub mod value;
pub mod value_reader;

pub use hours::format_toml_time;

pub use reference::print_reference;

use super::{GpuPolicy, GroupPolicy, RuleSet, TimePolicy, UserPolicy};
use field::TableEntry;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::{PolicyKind, RuleMistake};
use gpukill_proto::service::MAX_RULES_BYTES;
use gpukill_proto::settings::position::{ParsedText, TextPosition};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};
use value_reader::{ParseState, TextOrigin, ValueReader};

/// The largest number of policies and rules in a file.
pub const MAX_POLICIES: usize = 10_000;

/// Parses a text of rules.
///
/// # Errors
/// Every mistake, in the order of lines.
pub fn parse(text: &str) -> Result<RuleSet, Vec<RuleMistake>> {
    parse_from(TextOrigin::File, text)
}

/// Parses a text that was generated from another one. Its mistakes have no lines, because
/// nobody has seen the text.
///
/// # Errors
/// Every mistake, in the order of the text.
pub fn parse_generated(text: &str) -> Result<RuleSet, Vec<RuleMistake>> {
    parse_from(TextOrigin::Generated, text).map_err(|mistakes| {
        let nowhere = |mistake| RuleMistake {
            position: None,
            ..mistake
        };
        mistakes.into_iter().map(nowhere).collect()
    })
}

fn parse_from(source: TextOrigin, text: &str) -> Result<RuleSet, Vec<RuleMistake>> {
    if text.len() > MAX_RULES_BYTES {
        let size = text.len();
        return Err(vec![RuleMistake {
            position: Some(TextPosition { line: 1, column: 1 }),
            path: String::new(),
            what: format!("is {size} bytes long: at most {MAX_RULES_BYTES} are allowed"),
            suggestion: None,
        }]);
    }
    let parsed = ParsedText::parse(text);
    let mistake = |(offset, what): (usize, String)| {
        // JSON has `null`, and so have the files in gpu-kill's documentation.
        let is_null = text.get(offset..).is_some_and(|it| it.starts_with("null"));
        RuleMistake {
            position: Some(parsed.lines.position(offset)),
            path: String::new(),
            what: if is_null {
                "null is not a value".to_owned()
            } else {
                what
            },
            suggestion: is_null.then(|| "leave the key out".to_owned()),
        }
    };
    let broken = parsed.errors.into_iter().take(value_reader::MAX_MISTAKES);
    let mut mistakes: Vec<RuleMistake> = broken.map(mistake).collect();
    if !parsed.is_complete {
        return Err(mistakes);
    }
    let mut state = ParseState::new(source, text, parsed.lines);
    let rules = read_root_table(parsed.table.get_ref(), &mut state);
    match (state.finish(), mistakes.is_empty()) {
        (Ok(positions), true) => Ok(RuleSet { positions, ..rules }),
        (Ok(_), false) => Err(mistakes),
        (Err(others), _) => {
            mistakes.extend(others);
            mistakes.sort_indirect_by_key(|it| it.position);
            mistakes.truncate(value_reader::MAX_MISTAKES);
            Err(mistakes)
        }
    }
}

fn read_root_table<'a>(table: &'a DeTable<'a>, state: &mut ParseState<'a>) -> RuleSet {
    let mut global = global::GlobalDraft::default();
    let mut rules = RuleSet::default();
    let mut left = MAX_POLICIES;
    for (key, value) in table {
        let name: &str = key.get_ref();
        let mut at = ValueReader::new(key, value, state);
        match name {
            "global" => at.read_table(global::GLOBAL, &mut global),
            "enforcement" => at.read_table(global::ENFORCEMENT, &mut global),
            "protect" => at.read_table(global::PROTECT, &mut rules.protect),
            "user_policies" => rules.users = read_named_policies(&mut at, &mut left),
            "group_policies" => rules.groups = read_named_policies(&mut at, &mut left),
            "gpu_policies" => rules.gpus = read_named_policies(&mut at, &mut left),
            "time_policies" => rules.times = read_listed_policies(&mut at, &mut left),
            "rules" => {
                let drafts: Vec<behaviour::BehaviourDraft> =
                    read_listed_policies(&mut at, &mut left);
                rules.behaviours = drafts
                    .into_iter()
                    .filter_map(behaviour::BehaviourDraft::into_rule)
                    .collect();
            }
            _ => {
                let kinds = PolicyKind::ALL.map(PolicyKind::table);
                at.report_unknown_key(
                    ["global", "enforcement", "protect"]
                        .into_iter()
                        .chain(kinds),
                );
            }
        }
    }
    global.store_in(&mut rules);
    rules
}

/// A table that exists once.
pub struct Section {
    /// The name of the section.
    pub name: &'static str,
    /// The names of its keys.
    pub keys: Vec<String>,
    /// The names of its keys, each after the name of the section.
    pub paths: Vec<String>,
}

/// The tables that exist once.
#[must_use]
pub fn sections() -> [Section; 3] {
    let section = |name: &'static str, keys: Vec<String>| Section {
        name,
        paths: keys.iter().map(|key| format!("{name}.{key}")).collect(),
        keys,
    };
    [
        section("global", field::names(global::GLOBAL)),
        section("enforcement", field::names(global::ENFORCEMENT)),
        section("protect", field::names(global::PROTECT)),
    ]
}

/// The heading of each kind of table, and the names of its keys.
fn key_tables() -> [(&'static str, Vec<String>); 8] {
    [
        ("[global]", field::names(global::GLOBAL)),
        ("[enforcement]", field::names(global::ENFORCEMENT)),
        ("[protect]", field::names(global::PROTECT)),
        ("[user_policies.NAME]", field::names(UserPolicy::KEYS)),
        ("[group_policies.NAME]", field::names(GroupPolicy::KEYS)),
        ("[gpu_policies.NAME]", field::names(GpuPolicy::KEYS)),
        ("[[time_policies]]", field::names(TimePolicy::KEYS)),
        ("[[rules]]", field::names(behaviour::BehaviourDraft::KEYS)),
    ]
}

/// The policies in a table of tables, by name.
fn read_named_policies<T: TableEntry>(at: &mut ValueReader<'_, '_>, left: &mut usize) -> Vec<T> {
    let DeValue::Table(table) = at.value.get_ref() else {
        let section = at.path.clone();
        at.report_with_suggestion("is not a table", Some(format!("write [{section}.NAME]")));
        return Vec::new();
    };
    let mut policies = Vec::new();
    for (key, value) in table {
        let section = at.path.clone();
        let mut at = at.child(key, value);
        if !count_policy(left, &mut at) {
            break;
        }
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            let what = format!("{} is not a table", at.source_text());
            let suggestion = format!("write [{section}.NAME] above the keys of a policy");
            at.report_with_suggestion(what, Some(suggestion));
            continue;
        }
        policies.extend(T::read(key.get_ref(), &mut at));
    }
    policies
}

/// The policies in a list of tables, with a `name` in each.
fn read_listed_policies<T: TableEntry>(at: &mut ValueReader<'_, '_>, left: &mut usize) -> Vec<T> {
    let DeValue::Array(list) = at.value.get_ref() else {
        let section = at.path.clone();
        at.report_with_suggestion(
            "is not a list of tables",
            Some(format!("write [[{section}]]")),
        );
        return Vec::new();
    };
    let mut names: BTreeMap<&str, TextPosition> = BTreeMap::new();
    let mut policies = Vec::new();
    for (position, value) in list.iter().enumerate() {
        let name = match value.get_ref() {
            DeValue::Table(table) => table.get("name"),
            _ => None,
        };
        let name = name.and_then(|name| name.get_ref().as_str());
        let mut at = match name {
            Some(name) => at.named_item(&field::quote_key(name), value),
            None => at.indexed_item(position, value),
        };
        if !count_policy(left, &mut at) {
            break;
        }
        let text_position = at.position();
        if let Some(before) = name.and_then(|name| names.insert(name, text_position)) {
            at.report_duplicate_name(before);
        }
        policies.extend(T::read(name.unwrap_or_default(), &mut at));
    }
    policies
}

fn count_policy(left: &mut usize, at: &mut ValueReader<'_, '_>) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    if !is_left {
        at.report(format!(
            "exceeds the limit of {MAX_POLICIES} policies and rules"
        ));
    }
    is_left
}

#[cfg(test)]
mod tests;
