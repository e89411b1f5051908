//! What every program's page takes from its command line: how it is called, and its
//! arguments, options and commands. Nothing that the help hides is told.

use crate::roff::{Name, Page, Words, bold, italic, joined, marked, plain};
use clap::{Arg, Command};

/// clap makes this command itself; the manual is what it shows.
const HELP: &str = "help";

/// One command of a tree, and how one gets to it.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    /// The names from the program's on: `["gpukillctl", "guard", "user"]`.
    pub path: Vec<&'a str>,
    /// Its definition, built.
    pub command: &'a Command,
}

impl<'a> Node<'a> {
    pub(crate) fn root(command: &'a Command) -> Self {
        let path = vec![command.get_name()];
        Self { path, command }
    }

    /// The commands right below it, as the help orders them.
    pub(crate) fn children(&self) -> Vec<Self> {
        let shown = self.command.get_subcommands();
        let shown = shown.filter(|it| !it.is_hide_set() && it.get_name() != HELP);
        let mut shown: Vec<_> = shown.collect();
        shown.sort_by_key(|it| it.get_display_order());
        shown
            .into_iter()
            .map(|command| {
                let mut path = self.path.clone();
                path.push(command.get_name());
                Self { path, command }
            })
            .collect()
    }

    /// Its page.
    pub(crate) fn page(&self, section: u8) -> Name {
        Name::new(self.path.join("-"), section)
    }

    /// What it is for, in one sentence.
    pub(crate) fn about(&self) -> String {
        let about = self.command.get_about();
        about.map(ToString::to_string).unwrap_or_default()
    }
}

/// SYNOPSIS and DESCRIPTION.
pub(crate) fn beginning(page: &mut Page, node: &Node<'_>) {
    page.section("SYNOPSIS");
    let called = node.path.join(" ");
    let usage = node.command.clone().render_usage().to_string();
    for line in usage.trim_start_matches("Usage:").lines() {
        let rest = line.trim().strip_prefix(&called).unwrap_or_default();
        page.paragraph(&(bold(&called) + plain(rest)));
    }
    page.section("DESCRIPTION");
    let about = node.about();
    page.paragraph(&(marked(about.trim_end_matches('.')) + plain(".")));
}

/// COMMANDS, where there are any.
pub(crate) fn commands(page: &mut Page, node: &Node<'_>, section: u8) {
    let children = node.children();
    if !children.is_empty() {
        page.section("COMMANDS");
    }
    for child in children {
        page.entry(&child.page(section).words(), &marked(&child.about()));
    }
}

/// ARGUMENTS and OPTIONS, by their headings. Options of every command are on the
/// program's page alone, to which the others point.
pub(crate) fn arguments(page: &mut Page, node: &Node<'_>, section: u8) {
    let is_root = node.path.len() == 1;
    let shown = node.command.get_arguments();
    let shown = shown.filter(|it| !it.is_hide_set() && (is_root || !it.is_global_set()));
    let (positional, mut options): (Vec<&Arg>, Vec<&Arg>) =
        shown.partition(|it| it.is_positional());
    options.sort_by_key(|it| it.get_display_order());
    if !positional.is_empty() {
        page.section("ARGUMENTS");
    }
    for argument in positional {
        explained(page, argument);
    }
    page.section("OPTIONS");
    if !is_root {
        let program = node.path.first().copied().unwrap_or_default();
        let elsewhere = plain("Options of every command, and the settings: ");
        page.paragraph(&(elsewhere + Name::new(program, section).words() + plain(".")));
    }
    for heading in headings(&options) {
        if let Some(heading) = heading {
            page.subsection(heading);
        }
        let below = options.iter().filter(|it| it.get_help_heading() == heading);
        for option in below {
            explained(page, option);
        }
    }
}

/// Each heading once, in their order; what has none comes first.
fn headings<'a>(options: &[&'a Arg]) -> Vec<Option<&'a str>> {
    let mut headings = vec![None];
    for option in options {
        let heading = option.get_help_heading();
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings
}

fn explained(page: &mut Page, argument: &Arg) {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    page.entry(&tag(argument), &(marked(&help) + default(argument)));
    let values = argument.get_possible_values();
    let values: Vec<_> = values.iter().filter(|it| !it.is_hide_set()).collect();
    if values.is_empty() || argument.is_hide_possible_values_set() {
        return;
    }
    if values.iter().any(|it| it.get_help().is_some()) {
        page.within(values.iter().map(|value| {
            let help = value.get_help().map(ToString::to_string);
            (bold(value.get_name()), marked(&help.unwrap_or_default()))
        }));
    } else {
        let names = joined(values.iter().map(|it| bold(it.get_name())), ", ");
        page.more(&(plain("One of ") + names + plain(".")));
    }
}

/// `-o, --output FORMAT`
fn tag(argument: &Arg) -> Words {
    let short = argument.get_short().map(|it| format!("-{it}"));
    let long = argument.get_long().map(|it| format!("--{it}"));
    let aliases = argument.get_visible_aliases().unwrap_or_default();
    let aliases = aliases.iter().map(|it| format!("--{it}"));
    let names = short.into_iter().chain(long).chain(aliases);
    let names = joined(names.map(|it| bold(&it)), ", ");
    match value(argument) {
        Some(value) if argument.is_positional() => value,
        Some(value) => names + value,
        None => names,
    }
}

/// What stands for an argument's value, where it takes one.
fn value(argument: &Arg) -> Option<Words> {
    let range = argument.get_num_args()?;
    if !range.takes_values() {
        return None;
    }
    let id = argument.get_id().as_str().to_uppercase();
    let name = match argument.get_value_names() {
        Some(names) => names.join(" "),
        None => id,
    };
    let more = if range.max_values() > 1 { "..." } else { "" };
    let name = italic(&name) + plain(more);
    let blank = if argument.is_positional() { "" } else { " " };
    if range.min_values() == 0 {
        let bracket = format!("{blank}[");
        Some(plain(&bracket) + name + plain("]"))
    } else {
        Some(plain(blank) + name)
    }
}

/// The default, where the help does not have it already.
fn default(argument: &Arg) -> Words {
    let takes = argument.get_num_args().is_some_and(|it| it.takes_values());
    let values = argument.get_default_values();
    if !takes || values.is_empty() || argument.is_hide_default_value_set() {
        return Words::default();
    }
    let values: Vec<_> = values.iter().map(|it| it.to_string_lossy()).collect();
    plain(&format!(" [default: {}]", values.join(",")))
}

/// EXIT STATUS.
pub(crate) fn exit_status(page: &mut Page, codes: impl IntoIterator<Item = (u8, String)>) {
    page.section("EXIT STATUS");
    for (code, meaning) in codes {
        page.entry(&bold(&code.to_string()), &marked(&meaning));
    }
}
