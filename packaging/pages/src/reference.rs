//! The pages of configuration files, generated from the commented files that the programs
//! print.

use crate::client;
use crate::daemon;
use crate::roff::{Page, PageName, bold, italic, plain, with_bold_code};

/// The commands that print and check a file.
pub(crate) struct ReferenceCommands {
    /// Prints every key.
    pub(crate) prints: &'static str,
    /// Reports the mistakes in a file.
    pub(crate) checks: &'static str,
}

/// A file of rules.
pub(crate) struct RulesPage {
    /// Its page.
    pub name: PageName,
    /// Its path.
    pub path: &'static str,
}

/// The page of the daemon's settings.
pub(crate) fn settings_name() -> PageName {
    PageName::new("gpukilld.toml", 5)
}

fn guard_name() -> PageName {
    PageName::new("gpukill-guard.toml", 5)
}

fn rogue_name() -> PageName {
    PageName::new("gpukill-rogue.toml", 5)
}

/// The names of all these pages.
pub(crate) fn names() -> Vec<PageName> {
    vec![settings_name(), guard_name(), rogue_name()]
}

/// The rules file that a command of gpukillctl is about.
pub(crate) fn rules_of(path: &[&str]) -> Option<RulesPage> {
    let (name, key) = match path.get(1) {
        Some(&"guard") => (guard_name(), "guard.rules"),
        Some(&"rogue") => (rogue_name(), "rogue.rules"),
        Some(_) | None => return None,
    };
    let (path, _) = daemon::default_path(key)?;
    Some(RulesPage { name, path })
}

/// All pages.
pub(crate) fn pages(date: &str) -> Vec<Page> {
    vec![settings_page(date), guard_page(date), rogue_page(date)]
}

fn settings_page(date: &str) -> Page {
    let mut page = Page::new(settings_name(), date, "settings of gpukilld");
    let commands = ReferenceCommands {
        prints: "gpukilld --print-default-config",
        checks: "gpukilld --check-config",
    };
    write_beginning(&mut page, daemon::SETTINGS, &commands);
    let read = plain("It is read when ")
        + daemon::name().words()
        + plain(" starts, and again when it gets SIGHUP. A variable of the environment wins: ")
        + bold(&format!(
            "{}DAEMON_SOCKET",
            gpukilld::config::ENVIRONMENT_PREFIX
        ))
        + plain(" over ")
        + bold("socket")
        + plain(" in ")
        + bold("[daemon]")
        + plain(", and so on.");
    page.paragraph(&read);
    let rules = plain("Who may use how much of which GPU is not here, but in ")
        + guard_name().words()
        + plain("; the rules for detecting rogues are in ")
        + rogue_name().words()
        + plain(".");
    page.paragraph(&rules);
    write_keys(&mut page, &gpukilld::config::print_default());
    page.see_also(&[daemon::name(), guard_name(), rogue_name(), client::name()]);
    page
}

fn guard_page(date: &str) -> Page {
    let mut page = Page::new(guard_name(), date, "rules of gpukill's guard");
    let (path, _) = daemon::default_path("guard.rules").unwrap_or_default();
    let commands = ReferenceCommands {
        prints: "gpukillctl guard reference",
        checks: "gpukillctl guard check FILE",
    };
    write_beginning(&mut page, path, &commands);
    write_keys(
        &mut page,
        &gpukill_policy::guard::rules::parse::print_reference(),
    );
    page.see_also(&[PageName::new("gpukillctl-guard", 1), daemon::name()]);
    page
}

fn rogue_page(date: &str) -> Page {
    let about = "rules for detecting miners and other rogues";
    let mut page = Page::new(rogue_name(), date, about);
    let (path, _) = daemon::default_path("rogue.rules").unwrap_or_default();
    let commands = ReferenceCommands {
        prints: "gpukillctl rogue reference",
        checks: "gpukillctl rogue check FILE",
    };
    write_beginning(&mut page, path, &commands);
    write_keys(&mut page, &gpukill_policy::rogue::read::print_defaults());
    page.see_also(&[PageName::new("gpukillctl-rogue", 1), daemon::name()]);
    page
}

/// Writes SYNOPSIS, and DESCRIPTION with these commands.
pub(crate) fn write_beginning(page: &mut Page, path: &str, commands: &ReferenceCommands) {
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
    /// Separates two paragraphs.
    Blank,
    /// Separates two paragraphs of one comment: both describe the next key.
    Break,
    /// The head of a table, also in a comment.
    Table(&'a str),
    /// A key with its name and the rest of its line.
    Key {
        /// The name.
        name: &'a str,
        /// The text before the name: a comment sign if the key is an example.
        before: &'a str,
        /// The text after the name, from the equals sign on.
        after: &'a str,
    },
    /// A description of the next key.
    Prose(&'a str),
}

/// Parses a line of a commented file. Keys and tables in comments are examples; descriptions in
/// such comments have two comment signs.
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

/// Writes every key of a commented file, below its table, with its description.
pub(crate) fn write_keys(page: &mut Page, text: &str) {
    // Paragraphs that describe the next key.
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
            Line::Blank => flush_paragraphs(page, &mut said),
            Line::Table(table) => {
                if !in_keys {
                    page.section("KEYS");
                    in_keys = true;
                }
                page.subsection(table);
                flush_paragraphs(page, &mut said);
            }
            Line::Key {
                name,
                before,
                after,
            } => {
                page.entry(
                    &(plain(before) + bold(name) + plain(after)),
                    &with_bold_code(&said.join(" ")),
                );
                said = vec![String::new()];
            }
        }
    }
    flush_paragraphs(page, &mut said);
}

/// Writes the paragraphs and clears them.
fn flush_paragraphs(page: &mut Page, said: &mut Vec<String>) {
    for paragraph in said.iter().filter(|it| !it.is_empty()) {
        page.paragraph(&with_bold_code(paragraph));
    }
    *said = vec![String::new()];
}
