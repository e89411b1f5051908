//! The pages of gpukilld and gpukill-reset.

use crate::client;
use crate::command::{Node, arguments, beginning, commands, exit_status};
use crate::reference;
use crate::roff::{Name, Page, bold, italic, marked, plain};
use clap::{Command, CommandFactory as _};
use gpukilld::args::Args;
use gpukilld::config::{KEYS, PREFIX};

/// Where the settings lie.
pub(crate) const SETTINGS: &str = "/etc/gpukill/gpukilld.toml";

/// The keys whose defaults are files that the daemon reads or makes.
pub(crate) const PLACES: [&str; 4] = [
    "daemon.socket",
    "daemon.state_dir",
    "guard.rules",
    "rogue.rules",
];

/// What people type, and what it does. A service starts it without arguments.
pub(crate) const EXAMPLES: [(&str, &str); 3] = [
    ("--check-config", "Every mistake in the settings."),
    (
        "--print-default-config",
        "Every key with its default, as a file to begin with.",
    ),
    (
        "--user",
        "For yourself alone, without root and without a service.",
    ),
];

/// The daemon's page.
pub(crate) fn name() -> Name {
    Name::new("gpukilld", 8)
}

/// The command line of the daemon.
pub(crate) fn command() -> Command {
    Args::command()
}

/// The command line of the daemon, with all that clap adds to it.
pub(crate) fn built() -> Command {
    let mut command = command();
    command.build();
    command
}

/// The same of gpukill-reset.
pub(crate) fn helper() -> Command {
    let mut command = gpukilld::helper::Args::command();
    command.build();
    command
}

/// All pages.
pub(crate) fn pages(date: &str) -> Vec<Page> {
    let command = built();
    let restore = Node::root(&command).children();
    let restore = restore.iter().map(|node| restore_page(node, date));
    let mut pages = vec![daemon_page(date), helper_page(date)];
    pages.extend(restore);
    pages
}

/// The default of a key, without its quotes, and what it is for.
pub(crate) fn place(key: &str) -> Option<(&'static str, &'static str)> {
    let found = KEYS.iter().find(|it| it.path() == key)?;
    Some((found.default.trim_matches('"'), found.help))
}

fn daemon_page(date: &str) -> Page {
    let command = built();
    let root = Node::root(&command);
    let mut page = Page::new(name(), date, &root.about());
    beginning(&mut page, &root);
    let what = plain("It polls the GPUs, keeps samples and a record of actions, and answers ")
        + client::name().words()
        + plain(" over a Unix socket. It opens no network socket.");
    page.paragraph(&what);
    commands(&mut page, &root, 8);
    arguments(&mut page, &root, 8);
    let meanings = [
        (0, "It was told to stop, or said what it was asked."),
        (gpukilld::EXIT_FAILED, "It cannot start, or failed."),
        (
            gpukilld::EXIT_USAGE,
            "The arguments or the settings are wrong.",
        ),
    ];
    exit_status(&mut page, meanings.map(|(code, it)| (code, it.to_owned())));
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
    beginning(&mut page, node);
    let what = "FILE is a regular file that belongs to root and that nobody else may write. The \
                store that it replaces is kept in replaced-TIME below the state directory, and \
                what its record of actions has beyond the backup is carried over. The restore is \
                recorded. With --user a person restores their own store.";
    page.paragraph(&plain(what));
    arguments(&mut page, node, 8);
    page.section("EXAMPLES");
    for (line, does) in [
        (
            "systemctl stop gpukilld",
            "Nothing is restored while it runs.",
        ),
        (
            "gpukilld restore gpukill.tar --dry-run",
            "What would replace what.",
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
    let key = bold(PREFIX) + italic("SECTION") + bold("_") + italic("KEY");
    let what = plain("Overrides that key of ")
        + reference::settings_name().words()
        + plain(". A list may be written with commas. One that overrides nothing is a mistake.");
    page.entry(&key, &what);
    let log = plain("How much is logged, by module too; wins over ") + bold("--log-level");
    page.entry(&bold("RUST_LOG"), &(log + plain(".")));
    let own = plain("With ") + bold("--user") + plain(": where the socket, the settings and the ");
    let own = own + plain("state lie. Without them, below /tmp and the home directory.");
    let names = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];
    page.entry(&crate::roff::joined(names.map(bold), ", "), &own);
}

fn files(page: &mut Page) {
    page.section("FILES");
    let settings = plain("Settings: ") + reference::settings_name().words() + plain(".");
    page.entry(&italic(SETTINGS), &settings);
    for (path, help) in PLACES.iter().filter_map(|key| place(key)) {
        let help = help.replace('\n', " ");
        let help = help.trim_end_matches("Needs a restart.").trim_end();
        page.entry(&italic(path), &marked(help));
    }
}

fn helper_name() -> Name {
    Name::new("gpukill-reset", 8)
}

fn helper_page(date: &str) -> Page {
    let command = helper();
    let root = Node::root(&command);
    let about = root.about();
    // What it does is the page's line; the rest of the definition is its description.
    let first = about.split(". ").next().unwrap_or_default();
    let mut page = Page::new(helper_name(), date, first);
    beginning(&mut page, &root);
    arguments(&mut page, &root, 8);
    let meanings = [
        (0, "The GPU is reset."),
        (gpukilld::EXIT_FAILED, "It is not, and the answer says why."),
        (gpukilld::EXIT_USAGE, "The arguments are wrong."),
    ];
    exit_status(&mut page, meanings.map(|(code, it)| (code, it.to_owned())));
    page.see_also(&[name(), Name::new("gpukillctl-reset", 1)]);
    page
}
