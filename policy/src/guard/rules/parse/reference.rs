//! Prints a commented reference of every key, from the tables that parse them.

use super::behaviour::{BEHAVIOUR_KEYS, BehaviourDraft};
use super::field::{KeySet, ReferenceValue, TableEntry, TableKeys};
use super::{global, users_and_groups};
use crate::guard::rules::{GpuPolicy, GroupPolicy, TimePolicy, UserPolicy};
use std::fmt::Write as _;

/// The keys of a table with their values and help in the reference.
type DocumentedKeys = Vec<(String, ReferenceValue, &'static str)>;

/// A commented file of every key. Unchanged, it has the effect of an absent file: a key
/// without a default is a comment with an example.
#[must_use]
pub fn print_reference() -> String {
    let mut text = String::from(
        "# Rules of gpukill's guard. A key without a default is a comment, with an example.\n\
         # GB means GiB. A number has the unit that its key names; a text has its own unit:\n\
         # \"512MiB\", \"90m\", \"1.5h\".\n",
    );
    write_section(
        &mut text,
        "[global]",
        SECTION_HELP[0],
        documented_keys(global::GLOBAL),
    );
    write_section(
        &mut text,
        "[enforcement]",
        SECTION_HELP[1],
        documented_keys(global::ENFORCEMENT),
    );
    write_section(
        &mut text,
        "[protect]",
        SECTION_HELP[2],
        documented_keys(global::PROTECT),
    );
    let (user, group) = (
        documented_keys(UserPolicy::KEYS),
        documented_keys(GroupPolicy::KEYS),
    );
    write_example(
        &mut text,
        "[user_policies.alice]",
        users_and_groups::USER_HELP,
        user,
    );
    write_example(
        &mut text,
        "[group_policies.researchers]",
        users_and_groups::GROUP_HELP,
        group,
    );
    write_example(
        &mut text,
        "[gpu_policies.0]",
        SECTION_HELP[3],
        documented_keys(GpuPolicy::KEYS),
    );
    write_example(
        &mut text,
        "[[time_policies]]",
        SECTION_HELP[4],
        documented_keys(TimePolicy::KEYS),
    );
    for (key, more) in BEHAVIOUR_KEYS {
        let (name, help) = behaviour_example(key);
        let is_first = text.find("[[rules]]").is_none();
        let mut keys = documented_keys(BehaviourDraft::KEYS);
        keys.retain(|(described, _, _)| {
            let is = |key: &str| described == key;
            let is_own = is(key) || more.iter().any(|more| is(more));
            let is_of = |(key, more): &(&str, &[&str])| is(key) || more.iter().any(|more| is(more));
            is_own || is("name") || is_first && !BEHAVIOUR_KEYS.iter().any(is_of)
        });
        if let Some((_, shown, _)) = keys.iter_mut().find(|(key, _, _)| key == "name") {
            *shown = ReferenceValue::Example(name);
        }
        let help = if is_first {
            format!("{RULES_HELP}\n\n{help}")
        } else {
            help.to_owned()
        };
        write_example(&mut text, "[[rules]]", &help, keys);
    }
    text
}

const SECTION_HELP: [&str; 5] = [
    "The mode of the guard, and limits for everybody without a more specific policy.",
    "Warnings, grace period, snoozes and the circuit breaker.",
    "Processes that no rule applies to: they are neither evaluated nor counted.",
    "The policy of a GPU. It applies in addition to the policies of persons.",
    "The policy for hours of the week. It applies in addition to other policies.",
];

const RULES_HELP: &str = "A rule on the behaviour of processes: each forbids one behaviour. It\n\
                          applies in addition to other policies.";

/// The name and the purpose of the example of a behaviour.
fn behaviour_example(key: &str) -> (&'static str, &'static str) {
    match key {
        "duration_limit_hours" => ("\"long_jobs\"", "Jobs that hold a GPU for too long."),
        "idle_limit_minutes" => ("\"notebooks\"", "Jobs that hold a GPU and are idle."),
        "waste_below_pct" => (
            "\"waste\"",
            "Jobs that hold much memory and use the GPU little.",
        ),
        "runaway_above_pct" => ("\"runaways\"", "Jobs that run without end."),
        "growth_gb" => ("\"leaks\"", "Jobs that hold more and more memory."),
        _ => ("\"rogues\"", "Miners, and jobs that hide what they are."),
    }
}

fn documented_keys<T>(keys: TableKeys<T>) -> DocumentedKeys {
    keys.iter()
        .flat_map(|part: &&dyn KeySet<T>| part.documented_keys())
        .collect()
}

/// Writes a table.
fn write_section(text: &mut String, header: &str, help: &str, keys: DocumentedKeys) {
    write_table(text, header, help, keys, "");
}

/// Writes a table as a comment.
fn write_example(text: &mut String, header: &str, help: &str, keys: DocumentedKeys) {
    write_table(text, header, help, keys, "# ");
}

fn write_table(text: &mut String, header: &str, help: &str, keys: DocumentedKeys, comment: &str) {
    text.push('\n');
    for line in help.lines() {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{comment}{header}");
    for (name, shown, help) in keys {
        for line in help.lines() {
            let _ = writeln!(text, "{comment}# {line}");
        }
        let _ = match shown {
            ReferenceValue::Default(value) => writeln!(text, "{comment}{name} = {value}"),
            ReferenceValue::Example(value) => writeln!(text, "# {name} = {value}"),
        };
    }
}
