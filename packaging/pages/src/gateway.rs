//! The pages of gpukill-gateway and of its settings.

use crate::command::{Node, write_arguments, write_beginning, write_commands, write_exit_status};
use crate::daemon;
use crate::reference;
use crate::roff::{Page, PageName, bold, italic, plain};
use clap::{Command, CommandFactory as _};
use gpukill_gateway::args::Args;
use gpukill_gateway::settings::KEYS;

/// The path of the settings.
pub(crate) const SETTINGS: &str = "/etc/gpukill/gateway.toml";

/// The page of the gateway.
pub(crate) fn name() -> PageName {
    PageName::new("gpukill-gateway", 8)
}

/// The command line of the gateway.
pub(crate) fn command() -> Command {
    Args::command()
}

/// The command line of the gateway, with everything that clap adds.
pub(crate) fn built_command() -> Command {
    let mut command = command();
    command.build();
    command
}

/// All pages.
pub(crate) fn pages(date: &str) -> Vec<Page> {
    let command = built_command();
    let root = Node::root(&command);
    let mut pages = vec![gateway_page(&root, date), settings_page(date)];
    add_command_pages(&mut pages, &root, date);
    pages
}

/// Adds the pages of all commands below this one.
fn add_command_pages(pages: &mut Vec<Page>, above: &Node<'_>, date: &str) {
    for node in above.children() {
        pages.push(command_page(&node, date));
        add_command_pages(pages, &node, date);
    }
}

fn gateway_page(root: &Node<'_>, date: &str) -> Page {
    let mut page = Page::new(name(), date, &root.about());
    write_beginning(&mut page, root);
    let what = plain("It is a client of ")
        + daemon::name().words()
        + plain(" without any right, and shows what every user of the host may see. ")
        + plain(
            "systemd holds its addresses: gpukill-gateway.socket starts it at the first request.",
        );
    page.paragraph(&what);
    write_commands(&mut page, root, 8);
    write_arguments(&mut page, root, 8);
    let meanings = [
        (0, "It was stopped, or printed what was requested."),
        (
            1,
            "It cannot listen, for example because another program uses the port.",
        ),
        (
            gpukill_gateway::EXIT_USAGE,
            "The arguments or the settings are wrong, or its user has more rights in gpukilld than \
             every user.",
        ),
    ];
    write_exit_status(&mut page, meanings.map(|(code, it)| (code, it.to_owned())));
    page.section("SIGNALS");
    page.entry(
        &bold("SIGTERM"),
        &plain("Stops it: streams end, and requests are answered for five seconds."),
    );
    page.entry(&bold("SIGINT"), &plain("The same."));
    page.section("ENVIRONMENT");
    for key in KEYS {
        let what = plain("Overrides ")
            + bold(key.name)
            + plain(" in ")
            + bold(&format!("[{}]", key.section))
            + plain(" of ")
            + settings_name().words()
            + plain(".");
        page.entry(&bold(key.variable), &what);
    }
    page.section("FILES");
    let settings = plain("Settings: ") + settings_name().words() + plain(".");
    page.entry(&italic(SETTINGS), &settings);
    page.see_also(&[daemon::name(), settings_name()]);
    page
}

fn command_page(node: &Node<'_>, date: &str) -> Page {
    let mut page = Page::new(node.page(8), date, &node.about());
    write_beginning(&mut page, node);
    if !node.children().is_empty() {
        write_commands(&mut page, node, 8);
    }
    write_arguments(&mut page, node, 8);
    page.see_also(&[name(), settings_name()]);
    page
}

fn settings_name() -> PageName {
    PageName::new("gpukill-gateway.toml", 5)
}

fn settings_page(date: &str) -> Page {
    let mut page = Page::new(settings_name(), date, "settings of gpukill-gateway");
    let commands = reference::ReferenceCommands {
        prints: "gpukill-gateway --print-default-config",
        checks: "gpukill-gateway --check-config",
    };
    reference::write_beginning(&mut page, SETTINGS, &commands);
    let read = plain("It is read when ")
        + name().words()
        + plain(" starts: after a change run ")
        + bold("systemctl restart gpukill-gateway")
        + plain(". Variables of the environment win over the file.");
    page.paragraph(&read);
    reference::write_keys(&mut page, &gpukill_proto::settings::print_defaults(KEYS));
    page.see_also(&[name(), daemon::name()]);
    page
}
