//! The pages of gpukilld and gpukill-reset.

use crate::client;
use crate::command::{Node, write_arguments, write_beginning, write_commands, write_exit_status};
use crate::reference;
use crate::roff::{Page, PageName, bold, italic, plain, with_bold_code};
use clap::{Command, CommandFactory as _};
use gpukilld::args::Args;
use gpukilld::config::{ENVIRONMENT_PREFIX, KEYS};

/// The path of the settings.
pub(crate) const SETTINGS: &str = "/etc/gpukill/gpukilld.toml";

/// The keys with default files that the daemon reads or creates.
pub(crate) const PATH_KEYS: [&str; 4] = [
    "daemon.socket",
    "daemon.state_dir",
    "guard.rules",
    "rogue.rules",
];

/// Example command lines. The service starts the daemon without arguments.
pub(crate) const EXAMPLES: [(&str, &str); 3] = [
    ("--check-config", "Reports every mistake in the settings."),
    (
        "--print-default-config",
        "Prints every key with its default, as a file to start from.",
    ),
    (
        "--user",
        "Runs for yourself alone, without root and without a service.",
    ),
];

/// The daemon's page.
pub(crate) fn name() -> PageName {
    PageName::new("gpukilld", 8)
}

/// The command line of the daemon.
pub(crate) fn command() -> Command {
    Args::command()
}

/// The command line of the daemon, with everything that clap adds.
pub(crate) fn built_command() -> Command {
    let mut command = command();
    command.build();
    command
}

/// The command line of gpukill-reset, with everything that clap adds.
pub(crate) fn helper_command() -> Command {
    let mut command = gpukilld::reset_helper::ResetHelperArgs::command();
    command.build();
    command
}

/// All pages.
pub(crate) fn pages(date: &str) -> Vec<Page> {
    let command = built_command();
    let restore = Node::root(&command).children();
    let restore = restore.iter().map(|node| restore_page(node, date));
    let mut pages = vec![daemon_page(date), helper_page(date)];
    pages.extend(restore);
    pages
}

/// The default of a key, without its quotes, and its help text.
pub(crate) fn default_path(key: &str) -> Option<(&'static str, &'static str)> {
    let found = KEYS.iter().find(|it| it.path() == key)?;
    Some((found.default.trim_matches('"'), found.help))
}

fn daemon_page(date: &str) -> Page {
    let command = built_command();
    let root = Node::root(&command);
    let mut page = Page::new(name(), date, &root.about());
    write_beginning(&mut page, &root);
    let what = plain("It polls the GPUs, keeps samples and a record of actions, and answers ")
        + client::name().words()
        + plain(" over a Unix socket. It opens no network socket.");
    page.paragraph(&what);
    write_commands(&mut page, &root, 8);
    write_arguments(&mut page, &root, 8);
    let meanings = [
        (0, "It was stopped, or printed what was requested."),
        (gpukilld::EXIT_FAILED, "It cannot start, or failed."),
        (
            gpukilld::EXIT_USAGE,
            "The arguments or the settings are wrong.",
        ),
    ];
    write_exit_status(&mut page, meanings.map(|(code, it)| (code, it.to_owned())));
    signals(&mut page);
    environment(&mut page);
    files(&mut page);
    page.section("EXAMPLES");
    for (line, does) in EXAMPLES {
        page.entry(&bold(&format!("gpukilld {line}")), &plain(does));
    }
    let mut others = vec![client::name(), helper_name()];
    others.extend(reference::names());
    page.see_also(&others);
    page
}

fn restore_page(node: &Node<'_>, date: &str) -> Page {
    let mut page = Page::new(node.page(8), date, &node.about());
    write_beginning(&mut page, node);
    let what = "FILE is a regular file that belongs to root and that nobody else may write. The \
                store that it replaces is kept in replaced-TIME below the state directory, and \
                what its record of actions has beyond the backup is carried over. The restore is \
                recorded. With --user a person restores their own store.";
    page.paragraph(&plain(what));
    write_arguments(&mut page, node, 8);
    page.section("EXAMPLES");
    for (line, does) in [
        (
            "systemctl stop gpukilld",
            "Nothing is restored while it runs.",
        ),
        (
            "gpukilld restore gpukill.tar --dry-run",
            "Shows what would be replaced.",
        ),
        ("gpukilld restore gpukill.tar", "Replaces the store."),
    ] {
        page.entry(&bold(line), &plain(does));
    }
    page.see_also(&[name(), client::name()]);
    page
}

fn signals(page: &mut Page) {
    page.section("SIGNALS");
    let signals = [
        (
            "SIGHUP",
            "Reads the settings and the rules again. Those with mistakes change nothing; the \
             mistakes are logged.",
        ),
        ("SIGTERM", "Stops it."),
        ("SIGINT", "The same."),
    ];
    for (signal, what) in signals {
        page.entry(&bold(signal), &plain(what));
    }
}

fn environment(page: &mut Page) {
    page.section("ENVIRONMENT");
    let key = bold(ENVIRONMENT_PREFIX) + italic("SECTION") + bold("_") + italic("KEY");
    let what = plain("Overrides that key of ")
        + reference::settings_name().words()
        + plain(
            ". A list may be written with commas. A variable that overrides nothing is a mistake.",
        );
    page.entry(&key, &what);
    let log = plain("How much is logged, by module too; wins over ") + bold("--log-level");
    page.entry(&bold("RUST_LOG"), &(log + plain(".")));
    let own = plain("With ") + bold("--user") + plain(": where the socket, the settings and the ");
    let own = own + plain("state lie. Without them, below /tmp and the home directory.");
    let names = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];
    page.entry(&crate::roff::join(names.map(bold), ", "), &own);
}

fn files(page: &mut Page) {
    page.section("FILES");
    let settings = plain("Settings: ") + reference::settings_name().words() + plain(".");
    page.entry(&italic(SETTINGS), &settings);
    for (path, help) in PATH_KEYS.iter().filter_map(|key| default_path(key)) {
        let help = help.replace('\n', " ");
        let help = help.trim_end_matches("Needs a restart.").trim_end();
        page.entry(&italic(path), &with_bold_code(help));
    }
}

fn helper_name() -> PageName {
    PageName::new("gpukill-reset", 8)
}

fn helper_page(date: &str) -> Page {
    let command = helper_command();
    let root = Node::root(&command);
    let about = root.about();
    // The first sentence is the page's title line, and the rest its description.
    let first = about.split(". ").next().unwrap_or_default();
    let mut page = Page::new(helper_name(), date, first);
    write_beginning(&mut page, &root);
    write_arguments(&mut page, &root, 8);
    let meanings = [
        (0, "The GPU is reset."),
        (
            gpukilld::EXIT_FAILED,
            "The GPU is not reset; the answer states why.",
        ),
        (gpukilld::EXIT_USAGE, "The arguments are wrong."),
    ];
    write_exit_status(&mut page, meanings.map(|(code, it)| (code, it.to_owned())));
    page.see_also(&[name(), PageName::new("gpukillctl-reset", 1)]);
    page
}
