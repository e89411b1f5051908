//! A commented file of every key, from the same tables that read them.

use super::behaviour::{CONDUCTS, Draft};
use super::field::{Entry, Keys, Part, Shown};
use super::{people, whole};
use crate::guard::rules::{GpuPolicy, GroupPolicy, TimePolicy, UserPolicy};
use std::fmt::Write as _;

/// Keys of a table, with what is told of each.
type Told = Vec<(String, Shown, &'static str)>;

/// A commented file of every key. As it is, it says what holds without a file; what
/// is a comment in it is an example.
#[must_use]
pub fn print_reference() -> String {
    let mut text = String::from(
        "# Rules of gpukill's guard. What has no default is a comment, with an example.\n\
         # GB are GiB. Numbers are in the unit that their key names; or write them with one:\n\
         # \"512MiB\", \"90m\", \"1.5h\".\n",
    );
    section(&mut text, "[global]", SECTIONS[0], told(whole::GLOBAL));
    section(
        &mut text,
        "[enforcement]",
        SECTIONS[1],
        told(whole::ENFORCEMENT),
    );
    section(&mut text, "[protect]", SECTIONS[2], told(whole::PROTECT));
    let (user, group) = (told(UserPolicy::KEYS), told(GroupPolicy::KEYS));
    example(&mut text, "[user_policies.alice]", people::USER_HELP, user);
    example(
        &mut text,
        "[group_policies.researchers]",
        people::GROUP_HELP,
        group,
    );
    example(
        &mut text,
        "[gpu_policies.0]",
        SECTIONS[3],
        told(GpuPolicy::KEYS),
    );
    example(
        &mut text,
        "[[time_policies]]",
        SECTIONS[4],
        told(TimePolicy::KEYS),
    );
    for (key, more) in CONDUCTS {
        let (name, help) = conduct(key);
        let is_first = text.find("[[rules]]").is_none();
        let mut keys = told(Draft::KEYS);
        keys.retain(|(key_told, _, _)| {
            let is = |key: &str| key_told == key;
            let is_own = is(key) || more.iter().any(|more| is(more));
            let is_of = |(key, more): &(&str, &[&str])| is(key) || more.iter().any(|more| is(more));
            is_own || is("name") || is_first && !CONDUCTS.iter().any(is_of)
        });
        if let Some((_, shown, _)) = keys.iter_mut().find(|(key, _, _)| key == "name") {
            *shown = Shown::Example(name);
        }
        let help = if is_first {
            format!("{RULES_HELP}\n\n{help}")
        } else {
            help.to_owned()
        };
        example(&mut text, "[[rules]]", &help, keys);
    }
    text
}

const SECTIONS: [&str; 5] = [
    "How far the guard goes, and what holds for everybody of whom nothing else is said.",
    "Warnings and their clocks.",
    "Whom no rule is about: they are not judged, and count for nobody.",
    "What is said of a GPU. It holds besides what is said of persons.",
    "What is said of hours of the week. It holds besides what else is said.",
];

const RULES_HELP: &str = "What is said of what processes do: each rule of one thing. It holds besides what\n\
     else is said.";

/// What an example of this conduct is called, and what it is for.
fn conduct(key: &str) -> (&'static str, &'static str) {
    match key {
        "duration_limit_hours" => ("\"long_jobs\"", "Jobs that hold a GPU for too long."),
        "idle_limit_minutes" => ("\"notebooks\"", "Jobs that hold a GPU and do nothing."),
        "waste_below_pct" => ("\"waste\"", "Jobs that hold much and do little."),
        "runaway_above_pct" => ("\"runaways\"", "Jobs at work without end."),
        "growth_gb" => ("\"leaks\"", "Jobs that hold more and more."),
        _ => (
            "\"rogues\"",
            "Jobs of miners, and of what hides what it is.",
        ),
    }
}

fn told<T>(keys: Keys<T>) -> Told {
    keys.iter()
        .flat_map(|part: &&dyn Part<T>| part.told())
        .collect()
}

/// A table that is there.
fn section(text: &mut String, header: &str, help: &str, keys: Told) {
    table(text, header, help, keys, "");
}

/// A table that is a comment.
fn example(text: &mut String, header: &str, help: &str, keys: Told) {
    table(text, header, help, keys, "# ");
}

fn table(text: &mut String, header: &str, help: &str, keys: Told, comment: &str) {
    text.push('\n');
    for line in help.lines() {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{comment}{header}");
    for (name, shown, help) in keys {
        for line in help.lines() {
            let _ = writeln!(text, "{comment}# {line}");
        }
        let _ = match shown {
            Shown::Default(value) => writeln!(text, "{comment}{name} = {value}"),
            Shown::Example(value) => writeln!(text, "# {name} = {value}"),
        };
    }
}
