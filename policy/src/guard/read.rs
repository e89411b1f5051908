//! Reads the admin's file of rules. Every mistake is found at once, each with its
//! line and what was probably meant; nothing unknown or wrong ever becomes a silent
//! default.
//!
//! In reading order: one value where it stands ([`at`]) and what values there are
//! ([`value`]); the keys of a table ([`field`]); then the keys themselves, those that
//! several kinds of policies have first. Each key is in one place alone, with its
//! help: [`reference`] prints them from there.

pub mod at;

pub mod value;

pub mod field;

mod bounds;

mod shared;

mod hours;

mod whole;

mod people;

mod gpu;

mod time;

mod behaviour;

mod reference;

pub use hours::value_of_time;

pub use reference::print_reference;

use super::rules::Rules;
use at::{At, Found, Source};
use field::Entry;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::{Mistake, PolicyKind};
use gpukill_proto::settings::place::{Lines, Place, are_only_twice, broken};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// The largest file of rules, in bytes.
pub const LARGEST: usize = 1 << 20;

/// The most policies and rules in it.
pub const MOST_POLICIES: usize = 10_000;

/// What a text of rules says.
///
/// # Errors
/// Every mistake in it, in the order of their lines.
pub fn read(text: &str) -> Result<Rules, Vec<Mistake>> {
    read_from(Source::File, text)
}

/// The same of a text that was made of another. Its mistakes have no lines, for
/// nobody ever saw those.
///
/// # Errors
/// Every mistake in it, in the order in which the text has them.
pub fn read_made(text: &str) -> Result<Rules, Vec<Mistake>> {
    read_from(Source::Made, text).map_err(|mistakes| {
        let nowhere = |mistake| Mistake {
            place: None,
            ..mistake
        };
        mistakes.into_iter().map(nowhere).collect()
    })
}

fn read_from(source: Source, text: &str) -> Result<Rules, Vec<Mistake>> {
    if text.len() > LARGEST {
        let size = text.len();
        return Err(vec![Mistake {
            place: Some(Place { line: 1, column: 1 }),
            path: String::new(),
            what: format!("is {size} bytes long: at most {LARGEST} are read"),
            suggestion: None,
        }]);
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = Lines::of(text);
    let mut mistakes = Vec::new();
    if !errors.is_empty() {
        let broken = broken(&errors, &lines).into_iter();
        let mistake = |(offset, what): (usize, String)| {
            // As JSON has it, and the files of gpu-kill's documentation.
            let is_null = text.get(offset..).is_some_and(|it| it.starts_with("null"));
            Mistake {
                place: Some(lines.place(offset)),
                path: String::new(),
                what: if is_null {
                    "there is no null".to_owned()
                } else {
                    what
                },
                suggestion: is_null.then(|| "leave the key out".to_owned()),
            }
        };
        mistakes.extend(broken.take(at::MOST_MISTAKES).map(mistake));
        // What else there is, is known only where all of the text was understood.
        if !are_only_twice(&errors) {
            return Err(mistakes);
        }
    }
    let mut found = Found::new(source, text, lines);
    let rules = read_file(table.get_ref(), &mut found);
    match (found.finish(), mistakes.is_empty()) {
        (Ok(places), true) => Ok(Rules { places, ..rules }),
        (Ok(_), false) => Err(mistakes),
        (Err(others), _) => {
            mistakes.extend(others);
            mistakes.sort_indirect_by_key(|it| it.place);
            mistakes.truncate(at::MOST_MISTAKES);
            Err(mistakes)
        }
    }
}

fn read_file<'a>(table: &'a DeTable<'a>, found: &mut Found<'a>) -> Rules {
    let mut whole = whole::Whole::default();
    let mut rules = Rules::default();
    let mut left = MOST_POLICIES;
    for (key, value) in table {
        let name: &str = key.get_ref();
        let mut at = At::new(key, value, found);
        match name {
            "global" => at.table(whole::GLOBAL, &mut whole),
            "enforcement" => at.table(whole::ENFORCEMENT, &mut whole),
            "protect" => at.table(whole::PROTECT, &mut rules.protect),
            "user_policies" => rules.users = named(&mut at, &mut left),
            "group_policies" => rules.groups = named(&mut at, &mut left),
            "gpu_policies" => rules.gpus = named(&mut at, &mut left),
            "time_policies" => rules.times = listed(&mut at, &mut left),
            "rules" => {
                let drafts: Vec<behaviour::Draft> = listed(&mut at, &mut left);
                rules.behaviours = drafts
                    .into_iter()
                    .filter_map(behaviour::Draft::behaviour)
                    .collect();
            }
            _ => {
                let kinds = PolicyKind::ALL.map(PolicyKind::table);
                at.unknown(
                    ["global", "enforcement", "protect"]
                        .into_iter()
                        .chain(kinds),
                );
            }
        }
    }
    whole.finish(&mut rules);
    rules
}

/// A table there is one of.
pub struct Section {
    /// What it is called.
    pub name: &'static str,
    /// Its keys.
    pub keys: Vec<String>,
    /// Its keys, each behind the section's name.
    pub paths: Vec<String>,
}

/// The tables there are one of.
#[must_use]
pub fn sections() -> [Section; 3] {
    let section = |name: &'static str, keys: Vec<String>| Section {
        name,
        paths: keys.iter().map(|key| format!("{name}.{key}")).collect(),
        keys,
    };
    [
        section("global", field::names(whole::GLOBAL)),
        section("enforcement", field::names(whole::ENFORCEMENT)),
        section("protect", field::names(whole::PROTECT)),
    ]
}

/// The policies of a table that has one table for each, by its name.
fn named<T: Entry>(at: &mut At<'_, '_>, left: &mut usize) -> Vec<T> {
    let DeValue::Table(table) = at.value.get_ref() else {
        let section = at.path.clone();
        at.wrong_with("is no table", Some(format!("write [{section}.NAME]")));
        return Vec::new();
    };
    let mut policies = Vec::new();
    for (key, value) in table {
        let mut at = at.key(key, value);
        if !is_left(left, &mut at) {
            break;
        }
        policies.extend(T::read(key.get_ref(), &mut at));
    }
    policies
}

/// The policies of a list of tables, each with its name in it.
fn listed<T: Entry>(at: &mut At<'_, '_>, left: &mut usize) -> Vec<T> {
    let DeValue::Array(list) = at.value.get_ref() else {
        let section = at.path.clone();
        at.wrong_with("is no list of tables", Some(format!("write [[{section}]]")));
        return Vec::new();
    };
    let mut names: BTreeMap<&str, Place> = BTreeMap::new();
    let mut policies = Vec::new();
    for (position, value) in list.iter().enumerate() {
        let name = match value.get_ref() {
            DeValue::Table(table) => table.get("name"),
            _ => None,
        };
        let name = name.and_then(|name| name.get_ref().as_str());
        let mut at = match name {
            Some(name) => at.item(&field::key(name), value),
            None => at.numbered(position, value),
        };
        if !is_left(left, &mut at) {
            break;
        }
        let place = at.place();
        if let Some(before) = name.and_then(|name| names.insert(name, place)) {
            at.is_of_two(before);
        }
        policies.extend(T::read(name.unwrap_or_default(), &mut at));
    }
    policies
}

fn is_left(left: &mut usize, at: &mut At<'_, '_>) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    if !is_left {
        at.wrong(format!("is one too many: at most {MOST_POLICIES} are read"));
    }
    is_left
}

#[cfg(test)]
mod tests;
