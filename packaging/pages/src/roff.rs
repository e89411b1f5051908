//! The language of manual pages, man(7), as far as the pages need it.

use std::path::PathBuf;

/// The package, as it stands at the foot of each page.
const PACKAGE: &str = concat!("gpukill ", env!("CARGO_PKG_VERSION"));

/// Text in which nothing can be taken for a request or an escape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Words(String);

/// As it is typed: the hyphen, quotes and the like stay what a shell takes.
pub(crate) fn plain(text: &str) -> Words {
    let mut words = String::new();
    for c in text.chars() {
        match c {
            '\\' => words.push_str(r"\e"),
            '-' => words.push_str(r"\-"),
            '\'' => words.push_str(r"\(aq"),
            '`' => words.push_str(r"\(ga"),
            '^' => words.push_str(r"\(ha"),
            '~' => words.push_str(r"\(ti"),
            c => words.push(c),
        }
    }
    Words(words)
}

/// What is typed as it stands.
pub(crate) fn bold(text: &str) -> Words {
    Words(format!(r"\fB{}\fR", plain(text).0))
}

/// What something else is typed for.
pub(crate) fn italic(text: &str) -> Words {
    Words(format!(r"\fI{}\fR", plain(text).0))
}

/// Text in which `backticks` stand around what is typed.
pub(crate) fn marked(text: &str) -> Words {
    let mut words = Words::default();
    for (position, part) in text.split('`').enumerate() {
        words = words
            + if position % 2 == 1 {
                bold(part)
            } else {
                plain(part)
            };
    }
    words
}

/// All of them, with something between two.
pub(crate) fn joined(parts: impl IntoIterator<Item = Words>, between: &str) -> Words {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |all, part| all + plain(between) + part)
}

impl std::ops::Add for Words {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self(self.0 + &more.0)
    }
}

/// A page: its name and its section.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// `gpukillctl-list`
    pub name: String,
    /// `1` for commands, `5` for files, `8` for the system's own.
    pub section: u8,
}

impl Name {
    pub(crate) fn new(name: impl Into<String>, section: u8) -> Self {
        let name = name.into();
        Self { name, section }
    }

    /// As a text names it: `gpukillctl-list(1)`.
    pub(crate) fn words(&self) -> Words {
        bold(&self.name) + plain(&format!("({})", self.section))
    }
}

/// A page that is being written.
#[derive(Debug)]
pub(crate) struct Page {
    name: Name,
    text: String,
}

impl Page {
    /// Begins a page. `about` is what whatis(1) says of it; `date` may be empty. Words are
    /// not parted at the ends of lines: names and paths are to be copied.
    pub(crate) fn new(name: Name, date: &str, about: &str) -> Self {
        let title = plain(&name.name.to_uppercase()).0;
        let (section, shown) = (name.section, plain(&name.name).0);
        let about = plain(about.trim_end_matches('.')).0;
        let text = format!(
            ".TH \"{title}\" {section} \"{date}\" \"{PACKAGE}\" \"gpukill\"\n\
             .nh\n.ad l\n.SH NAME\n{shown} \\- {about}\n"
        );
        Self { name, text }
    }

    /// A heading.
    pub(crate) fn section(&mut self, title: &str) {
        self.heading("SH", title);
    }

    /// A heading below a section's.
    pub(crate) fn subsection(&mut self, title: &str) {
        self.heading("SS", title);
    }

    fn heading(&mut self, request: &str, title: &str) {
        // A macro's argument ends at a quote, wherever it came from.
        let title = plain(title).0.replace('"', r"\(dq");
        self.text.push_str(&format!(".{request} \"{title}\"\n"));
    }

    /// A paragraph. One that follows a heading needs no distance.
    pub(crate) fn paragraph(&mut self, words: &Words) {
        let after_heading = self.text.lines().next_back();
        let after_heading = after_heading.is_some_and(|it| it.starts_with(".S"));
        if !after_heading {
            self.text.push_str(".PP\n");
        }
        self.lines(words);
    }

    /// What is explained, and the explanation.
    pub(crate) fn entry(&mut self, tag: &Words, words: &Words) {
        self.text.push_str(".TP\n");
        self.lines(tag);
        self.lines(words);
    }

    /// Another paragraph of an explanation.
    pub(crate) fn more(&mut self, words: &Words) {
        self.text.push_str(".IP\n");
        self.lines(words);
    }

    /// Entries within an explanation.
    pub(crate) fn within(&mut self, entries: impl IntoIterator<Item = (Words, Words)>) {
        self.text.push_str(".RS\n");
        for (tag, words) in entries {
            self.entry(&tag, &words);
        }
        self.text.push_str(".RE\n");
    }

    /// Other pages, in their order.
    pub(crate) fn see_also(&mut self, others: &[Name]) {
        self.section("SEE ALSO");
        let last = others.len().saturating_sub(1);
        for (position, other) in others.iter().enumerate() {
            let comma = if position == last { "" } else { "," };
            let (name, section) = (plain(&other.name).0, other.section);
            self.text
                .push_str(&format!(".BR {name} ({section}){comma}\n"));
        }
    }

    /// Each line of the text is one on the page.
    fn lines(&mut self, words: &Words) {
        for (position, line) in words.0.trim().lines().enumerate() {
            if position > 0 {
                self.text.push_str(".br\n");
            }
            if line.starts_with('.') {
                self.text.push_str(r"\&");
            }
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// Where it lies below the directory, and its text.
    pub(crate) fn into_file(self) -> (PathBuf, String) {
        let Name { name, section } = self.name;
        let path = format!("man/man{section}/{name}.{section}");
        (path.into(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_language_would_take_for_its_own_is_text() {
        let mut page = Page::new(Name::new("a-b", 1), "2026-11-22", "It's a `test`.");
        page.section("A \"B\"");
        page.paragraph(&plain(".TH is \\no request, nor is 'this\n.or this"));
        page.paragraph(&marked("type `ls -l`"));
        let (path, text) = page.into_file();
        assert_eq!(path, PathBuf::from("man/man1/a-b.1"));
        let expected = format!(
            ".TH \"A\\-B\" 1 \"2026-11-22\" \"{PACKAGE}\" \"gpukill\"\n\
             .nh\n\
             .ad l\n\
             .SH NAME\n\
             a\\-b \\- It\\(aqs a \\(gatest\\(ga\n\
             .SH \"A \\(dqB\\(dq\"\n\
             \\&.TH is \\eno request, nor is \\(aqthis\n\
             .br\n\
             \\&.or this\n\
             .PP\n\
             type \\fBls \\-l\\fR\n"
        );
        assert_eq!(text, expected);
    }
}
