//! The pages of the files that people write, made from the commented files that the
//! programs print.

use crate::client;
use crate::daemon;
use crate::roff::{Name, Page, bold, italic, marked, plain};

/// Who asks what to be told of a file's mistakes.
struct Commands {
    /// Prints all of it.
    prints: &'static str,
    /// Finds the mistakes in one.
    checks: &'static str,
}

/// A file of rules.
pub(crate) struct Rules {
    /// Its page.
    pub name: Name,
    /// Where it lies.
    pub path: &'static str,
}

/// The page of the daemon's settings.
pub(crate) fn settings_name() -> Name {
    Name::new("gpukilld.toml", 5)
}

fn guard_name() -> Name {
    Name::new("gpukill-guard.toml", 5)
}

fn rogue_name() -> Name {
    Name::new("gpukill-rogue.toml", 5)
}

/// All of them.
pub(crate) fn names() -> Vec<Name> {
    vec![settings_name(), guard_name(), rogue_name()]
}

/// The rules that a command of gpukillctl is about.
pub(crate) fn rules_of(path: &[&str]) -> Option<Rules> {
    let (name, key) = match path.get(1) {
        Some(&"guard") => (guard_name(), "guard.rules"),
        Some(&"rogue") => (rogue_name(), "rogue.rules"),
        Some(_) | None => return None,
    };
    let (path, _) = daemon::place(key)?;
    Some(Rules { name, path })
}

/// All pages.
pub(crate) fn pages(date: &str) -> Vec<Page> {
    vec![settings_page(date), guard_page(date), rogue_page(date)]
}

fn settings_page(date: &str) -> Page {
    let mut page = Page::new(settings_name(), date, "settings of gpukilld");
    let commands = Commands {
        prints: "gpukilld --print-default-config",
        checks: "gpukilld --check-config",
    };
    beginning(&mut page, daemon::SETTINGS, &commands);
    let read = plain("It is read when ")
        + daemon::name().words()
        + plain(" starts, and again when it gets SIGHUP. A variable of the environment wins: ")
        + bold(&format!("{}DAEMON_SOCKET", gpukilld::config::PREFIX))
        + plain(" over ")
        + bold("socket")
        + plain(" in ")
        + bold("[daemon]")
        + plain(", and so on.");
    page.paragraph(&read);
    let rules = plain("Who may use how much of which GPU is not here, but in ")
        + guard_name().words()
        + plain("; what is taken for a rogue, in ")
        + rogue_name().words()
        + plain(".");
    page.paragraph(&rules);
    keys(&mut page, &gpukilld::config::print_default());
    page.see_also(&[daemon::name(), guard_name(), rogue_name(), client::name()]);
    page
}

fn guard_page(date: &str) -> Page {
    let mut page = Page::new(guard_name(), date, "rules of gpukill's guard");
    let (path, _) = daemon::place("guard.rules").unwrap_or_default();
    let commands = Commands {
        prints: "gpukillctl guard reference",
        checks: "gpukillctl guard check FILE",
    };
    beginning(&mut page, path, &commands);
    keys(&mut page, &gpukill_policy::guard::read::print_reference());
    page.see_also(&[Name::new("gpukillctl-guard", 1), daemon::name()]);
    page
}

fn rogue_page(date: &str) -> Page {
    let about = "what gpukill takes for a miner or another rogue";
    let mut page = Page::new(rogue_name(), date, about);
    let (path, _) = daemon::place("rogue.rules").unwrap_or_default();
    let commands = Commands {
        prints: "gpukillctl rogue reference",
        checks: "gpukillctl rogue check FILE",
    };
    beginning(&mut page, path, &commands);
    keys(&mut page, &gpukill_policy::rogue::read::print_defaults());
    page.see_also(&[Name::new("gpukillctl-rogue", 1), daemon::name()]);
    page
}

fn beginning(page: &mut Page, path: &str, commands: &Commands) {
    page.section("SYNOPSIS");
    page.paragraph(&italic(path));
    page.section("DESCRIPTION");
    let words = plain("A file in TOML. ")
        + bold(commands.prints)
        + plain(" prints one with every key, ")
        + bold(commands.checks)
        + plain(" finds every mistake.");
    page.paragraph(&words);
}

/// A line of a commented file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// It parts two paragraphs.
    Blank,
    /// The same within a comment: what follows is still about what comes.
    Break,
    /// The head of a table, also of one in a comment.
    Table(&'a str),
    /// A key, as it stands, and its name.
    Key {
        /// Its name.
        name: &'a str,
        /// What is before it: a sign of a comment, where it is an example.
        before: &'a str,
        /// What is behind it, from the sign of equality on.
        after: &'a str,
    },
    /// What is said of what comes.
    Prose(&'a str),
}

/// Reads a line of a commented file. Keys and tables in comments are examples; in those
/// what is said has two signs of a comment.
pub(crate) fn line(text: &str) -> Line<'_> {
    let bare = text.trim_start_matches(['#', ' ']).trim_end();
    let is_name = |name: &str| {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !name.is_empty() && name.chars().all(fine)
    };
    if text.is_empty() {
        return Line::Blank;
    }
    if bare.is_empty() {
        return Line::Break;
    }
    let table = bare.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let table = table.map(|it| it.trim_start_matches('[').trim_end_matches(']'));
    if table.is_some_and(|path| path.split('.').all(is_name)) {
        return Line::Table(bare);
    }
    match bare.split_once(" =") {
        Some((name, _)) if is_name(name) => {
            let (before, rest) =
                text.split_at(text.len() - text.trim_start_matches(['#', ' ']).len());
            let (_, after) = rest.split_at(name.len());
            Line::Key {
                name,
                before,
                after: after.trim_end(),
            }
        }
        Some(_) | None => Line::Prose(bare),
    }
}

/// Every key of a commented file, below its table, with what is said of it.
fn keys(page: &mut Page, text: &str) {
    // Paragraphs that are about what comes.
    let mut said = vec![String::new()];
    let mut in_keys = false;
    for text in text.lines() {
        match line(text) {
            Line::Prose(more) => {
                if let Some(paragraph) = said.last_mut() {
                    paragraph.push_str(more);
                    paragraph.push(' ');
                }
            }
            Line::Break => said.push(String::new()),
            Line::Blank => paragraphs(page, &mut said),
            Line::Table(table) => {
                if !in_keys {
                    page.section("KEYS");
                    in_keys = true;
                }
                page.subsection(table);
                paragraphs(page, &mut said);
            }
            Line::Key {
                name,
                before,
                after,
            } => {
                page.entry(
                    &(plain(before) + bold(name) + plain(after)),
                    &marked(&said.join(" ")),
                );
                said = vec![String::new()];
            }
        }
    }
    paragraphs(page, &mut said);
}

/// Writes down what is said, and forgets it.
fn paragraphs(page: &mut Page, said: &mut Vec<String>) {
    for paragraph in said.iter().filter(|it| !it.is_empty()) {
        page.paragraph(&marked(paragraph));
    }
    *said = vec![String::new()];
}
