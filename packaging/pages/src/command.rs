//! The parts of a page that come from the command line: synopsis, arguments, options and
//! commands. Hidden parts are left out.

use crate::roff::{Page, PageName, RoffText, bold, italic, join, plain, with_bold_code};
use clap::{Arg, Command};

/// clap's own command, which has no page: the manual takes its place.
const HELP: &str = "help";

/// A command and its path in the tree.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    /// The names from the program's on: `["gpukillctl", "guard", "user"]`.
    pub path: Vec<&'a str>,
    /// The built definition.
    pub command: &'a Command,
}

impl<'a> Node<'a> {
    pub(crate) fn root(command: &'a Command) -> Self {
        let path = vec![command.get_name()];
        Self { path, command }
    }

    /// The direct subcommands, in the order of the help.
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

    /// The page of the command.
    pub(crate) fn page(&self, section: u8) -> PageName {
        PageName::new(self.path.join("-"), section)
    }

    /// The description, in one sentence.
    pub(crate) fn about(&self) -> String {
        let about = self.command.get_about();
        about.map(ToString::to_string).unwrap_or_default()
    }
}

/// Writes SYNOPSIS and DESCRIPTION.
pub(crate) fn write_beginning(page: &mut Page, node: &Node<'_>) {
    page.section("SYNOPSIS");
    let called = node.path.join(" ");
    let usage = node.command.clone().render_usage().to_string();
    for line in usage.trim_start_matches("Usage:").lines() {
        let rest = line.trim().strip_prefix(&called).unwrap_or_default();
        page.paragraph(&(bold(&called) + plain(rest)));
    }
    page.section("DESCRIPTION");
    let about = node.about();
    page.paragraph(&(with_bold_code(about.trim_end_matches('.')) + plain(".")));
}

/// Writes COMMANDS, if there are any.
pub(crate) fn write_commands(page: &mut Page, node: &Node<'_>, section: u8) {
    let children = node.children();
    if !children.is_empty() {
        page.section("COMMANDS");
    }
    for child in children {
        page.entry(
            &child.page(section).words(),
            &with_bold_code(&child.about()),
        );
    }
}

/// Writes ARGUMENTS and OPTIONS, by heading. The options of every command are on the program's
/// page only, to which the other pages point.
pub(crate) fn write_arguments(page: &mut Page, node: &Node<'_>, section: u8) {
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
        write_argument(page, argument);
    }
    page.section("OPTIONS");
    if !is_root {
        let program = node.path.first().copied().unwrap_or_default();
        let elsewhere = plain("Options of every command, and the settings: ");
        page.paragraph(&(elsewhere + PageName::new(program, section).words() + plain(".")));
    }
    for heading in headings(&options) {
        if let Some(heading) = heading {
            page.subsection(heading);
        }
        let below = options.iter().filter(|it| it.get_help_heading() == heading);
        for option in below {
            write_argument(page, option);
        }
    }
}

/// Each heading once, in order; options without a heading come first.
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

fn write_argument(page: &mut Page, argument: &Arg) {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    page.entry(
        &argument_tag(argument),
        &(with_bold_code(&help) + default(argument)),
    );
    let values = argument.get_possible_values();
    let values: Vec<_> = values.iter().filter(|it| !it.is_hide_set()).collect();
    if values.is_empty() || argument.is_hide_possible_values_set() {
        return;
    }
    if values.iter().any(|it| it.get_help().is_some()) {
        page.nested_entries(values.iter().map(|value| {
            let help = value.get_help().map(ToString::to_string);
            (
                bold(value.get_name()),
                with_bold_code(&help.unwrap_or_default()),
            )
        }));
    } else {
        let names = join(values.iter().map(|it| bold(it.get_name())), ", ");
        page.entry_paragraph(&(plain("One of ") + names + plain(".")));
    }
}

/// `-o, --output FORMAT`
fn argument_tag(argument: &Arg) -> RoffText {
    let short = argument.get_short().map(|it| format!("-{it}"));
    let long = argument.get_long().map(|it| format!("--{it}"));
    let aliases = argument.get_visible_aliases().unwrap_or_default();
    let aliases = aliases.iter().map(|it| format!("--{it}"));
    let names = short.into_iter().chain(long).chain(aliases);
    let names = join(names.map(|it| bold(&it)), ", ");
    match value(argument) {
        Some(value) if argument.is_positional() => value,
        Some(value) => names + value,
        None => names,
    }
}

/// The placeholder of an argument's value, if it takes one.
fn value(argument: &Arg) -> Option<RoffText> {
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

/// The default, unless the help states it already.
fn default(argument: &Arg) -> RoffText {
    let takes = argument.get_num_args().is_some_and(|it| it.takes_values());
    let values = argument.get_default_values();
    if !takes || values.is_empty() || argument.is_hide_default_value_set() {
        return RoffText::default();
    }
    let values: Vec<_> = values.iter().map(|it| it.to_string_lossy()).collect();
    plain(&format!(" [default: {}]", values.join(",")))
}

/// Writes EXIT STATUS.
pub(crate) fn write_exit_status(page: &mut Page, codes: impl IntoIterator<Item = (u8, String)>) {
    page.section("EXIT STATUS");
    for (code, meaning) in codes {
        page.entry(&bold(&code.to_string()), &with_bold_code(&meaning));
    }
}
