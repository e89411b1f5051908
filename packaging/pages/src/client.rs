//! The manual pages of gpukillctl: one for each command at every depth.

use crate::command::{Node, write_arguments, write_beginning, write_commands, write_exit_status};
use crate::daemon;
use crate::reference;
use crate::roff::{Page, PageName, bold, italic, plain, with_bold_code};
use clap::{Command, ValueEnum as _};
use gpukill_proto::DEFAULT_SOCKET;
use gpukillctl::args::examples;
use gpukillctl::exit::{self, Exit};

/// The path of the client's settings.
pub(crate) const SETTINGS: &str = "~/.config/gpukill/config.toml";

/// The whole command line.
pub(crate) fn command() -> Command {
    gpukillctl::args::command()
}

/// The whole command line, with everything that clap adds.
pub(crate) fn built_command() -> Command {
    let mut command = command();
    command.build();
    command
}

/// The program's page.
pub(crate) fn name() -> PageName {
    PageName::new("gpukillctl", 1)
}

/// All pages.
pub(crate) fn pages(date: &str) -> Vec<Page> {
    pages_of(&built_command(), date)
}

/// All pages of a built command line.
pub(crate) fn pages_of(command: &Command, date: &str) -> Vec<Page> {
    let root = Node::root(command);
    let children = root.children();
    let mut pages = vec![root_page(&root, date)];
    add_pages(&children, &[&root], date, &mut pages);
    pages
}

/// Adds the pages of sibling commands and of all their subcommands. `above` are their parents,
/// the nearest last.
fn add_pages(nodes: &[Node<'_>], above: &[&Node<'_>], date: &str, pages: &mut Vec<Page>) {
    for node in nodes {
        pages.push(page(node, nodes, above, date));
        let above: Vec<&Node<'_>> = above.iter().copied().chain([node]).collect();
        add_pages(&node.children(), &above, date, pages);
    }
}

fn root_page(root: &Node<'_>, date: &str) -> Page {
    let mut page = Page::new(root.page(1), date, &root.about());
    write_beginning(&mut page, root);
    let asks = plain("It asks ") + daemon::name().words() + plain(" over its socket.");
    page.paragraph(&asks);
    write_commands(&mut page, root, 1);
    write_arguments(&mut page, root, 1);
    write_exit_status(&mut page, codes(Exit::value_variants()));
    environment(&mut page);
    page.section("FILES");
    let file = plain("Settings in TOML: the keys that ENVIRONMENT names. ")
        + plain("XDG_CONFIG_HOME stands for ~/.config where it is set.");
    page.entry(&italic(SETTINGS), &file);
    page.entry(&italic(DEFAULT_SOCKET), &plain("The daemon's socket."));
    let mut others: Vec<PageName> = root.children().iter().map(|it| it.page(1)).collect();
    others.push(daemon::name());
    page.see_also(&others);
    page
}

fn page(node: &Node<'_>, siblings: &[Node<'_>], above: &[&Node<'_>], date: &str) -> Page {
    let mut page = Page::new(node.page(1), date, &node.about());
    write_beginning(&mut page, node);
    write_commands(&mut page, node, 1);
    write_arguments(&mut page, node, 1);
    let path = node.path.get(1..).unwrap_or_default();
    if !node.command.is_subcommand_required_set() {
        write_exit_status(&mut page, codes(exit::command_exit_codes(path)));
    }
    let rules = reference::rules_of(&node.path);
    if let Some(rules) = &rules {
        page.section("FILES");
        let file = plain("The rules: ") + rules.name.words() + plain(".");
        page.entry(&italic(rules.path), &file);
    }
    let examples = examples(path);
    if !examples.is_empty() {
        page.section("EXAMPLES");
    }
    for example in examples {
        let line = format!("gpukillctl {}", example.line);
        page.entry(
            &bold(&line),
            &with_bold_code(&format!("{}.", capitalize(example.effect))),
        );
    }
    let mut others: Vec<PageName> = above.last().iter().map(|it| it.page(1)).collect();
    others.extend(node.children().iter().map(|it| it.page(1)));
    let beside = siblings.iter().filter(|it| it.path != node.path);
    others.extend(beside.map(|it| it.page(1)));
    others.extend(rules.map(|it| it.name));
    page.see_also(&others);
    page
}

/// A sentence with a capital letter and a full stop.
fn capitalize(words: &str) -> String {
    let mut rest = words.chars();
    let first = rest.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(rest).collect()
}

/// These exit codes, with the texts of their definition.
pub(crate) fn codes(exits: &[Exit]) -> impl Iterator<Item = (u8, String)> {
    exits.iter().map(|exit| {
        let value = exit.to_possible_value();
        let help = value.and_then(|it| it.get_help().map(ToString::to_string));
        (*exit as u8, help.unwrap_or_default() + ".")
    })
}

fn environment(page: &mut Page) {
    page.section("ENVIRONMENT");
    let order = plain("An option wins over a variable, that over the key in ")
        + italic(SETTINGS)
        + plain(", that over the default.");
    page.paragraph(&order);
    for documented in gpukillctl::setting_docs() {
        let mut words = with_bold_code(documented.help) + plain(" Key: ") + bold(documented.key);
        if !documented.default.is_empty() {
            let default = documented.default.trim_matches('"');
            words = words + plain(&format!(" [default: {default}]"));
        }
        page.entry(&bold(documented.variable), &words);
    }
    let colour = plain("Where it is set and not empty, nothing is coloured by itself.");
    page.entry(&bold("NO_COLOR"), &colour);
}
