//! The markup of manual pages, man(7), as far as the pages need it.

use std::path::PathBuf;

/// The package name and version at the foot of each page.
const PACKAGE: &str = concat!("gpukill ", env!("CARGO_PKG_VERSION"));

/// Escaped text, in which nothing is a request or an escape by accident.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RoffText(String);

/// Plain text. The hyphen, quotes and similar characters stay copyable for a shell.
pub(crate) fn plain(text: &str) -> RoffText {
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
    RoffText(words)
}

/// Text to type literally.
pub(crate) fn bold(text: &str) -> RoffText {
    RoffText(format!(r"\fB{}\fR", plain(text).0))
}

/// A placeholder.
pub(crate) fn italic(text: &str) -> RoffText {
    RoffText(format!(r"\fI{}\fR", plain(text).0))
}

/// Text with `backticks` around what is typed literally.
pub(crate) fn with_bold_code(text: &str) -> RoffText {
    let mut words = RoffText::default();
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

/// Joins the parts with a separator.
pub(crate) fn join(parts: impl IntoIterator<Item = RoffText>, between: &str) -> RoffText {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |all, part| all + plain(between) + part)
}

impl std::ops::Add for RoffText {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self(self.0 + &more.0)
    }
}

/// The name and section of a page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageName {
    /// `gpukillctl-list`
    pub name: String,
    /// `1` for commands, `5` for files, `8` for system administration.
    pub section: u8,
}

impl PageName {
    pub(crate) fn new(name: impl Into<String>, section: u8) -> Self {
        let name = name.into();
        Self { name, section }
    }

    /// The reference to the page: `gpukillctl-list(1)`.
    pub(crate) fn words(&self) -> RoffText {
        bold(&self.name) + plain(&format!("({})", self.section))
    }
}

/// A page that is being written.
#[derive(Debug)]
pub(crate) struct Page {
    name: PageName,
    text: String,
}

impl Page {
    /// Starts a page. `about` is the description for whatis(1); `date` may be empty.
    /// Hyphenation is off, because names and paths are copied.
    pub(crate) fn new(name: PageName, date: &str, about: &str) -> Self {
        let title = plain(&name.name.to_uppercase()).0;
        let (section, shown) = (name.section, plain(&name.name).0);
        let about = plain(about.trim_end_matches('.')).0;
        let text = format!(
            ".TH \"{title}\" {section} \"{date}\" \"{PACKAGE}\" \"gpukill\"\n\
             .nh\n.ad l\n.SH NAME\n{shown} \\- {about}\n"
        );
        Self { name, text }
    }

    /// Starts a section.
    pub(crate) fn section(&mut self, title: &str) {
        self.heading("SH", title);
    }

    /// Starts a subsection.
    pub(crate) fn subsection(&mut self, title: &str) {
        self.heading("SS", title);
    }

    fn heading(&mut self, request: &str, title: &str) {
        // A quote would end the argument of a macro.
        let title = plain(title).0.replace('"', r"\(dq");
        self.text.push_str(&format!(".{request} \"{title}\"\n"));
    }

    /// Adds a paragraph. A paragraph after a heading needs no distance.
    pub(crate) fn paragraph(&mut self, words: &RoffText) {
        let after_heading = self.text.lines().next_back();
        let after_heading = after_heading.is_some_and(|it| it.starts_with(".S"));
        if !after_heading {
            self.text.push_str(".PP\n");
        }
        self.lines(words);
    }

    /// Adds a tagged entry.
    pub(crate) fn entry(&mut self, tag: &RoffText, words: &RoffText) {
        self.text.push_str(".TP\n");
        self.lines(tag);
        self.lines(words);
    }

    /// Adds a paragraph to an entry.
    pub(crate) fn entry_paragraph(&mut self, words: &RoffText) {
        self.text.push_str(".IP\n");
        self.lines(words);
    }

    /// Adds entries within an entry.
    pub(crate) fn nested_entries(
        &mut self,
        entries: impl IntoIterator<Item = (RoffText, RoffText)>,
    ) {
        self.text.push_str(".RS\n");
        for (tag, words) in entries {
            self.entry(&tag, &words);
        }
        self.text.push_str(".RE\n");
    }

    /// Writes SEE ALSO with other pages, in this order.
    pub(crate) fn see_also(&mut self, others: &[PageName]) {
        self.section("SEE ALSO");
        let last = others.len().saturating_sub(1);
        for (position, other) in others.iter().enumerate() {
            let comma = if position == last { "" } else { "," };
            let (name, section) = (plain(&other.name).0, other.section);
            self.text
                .push_str(&format!(".BR {name} ({section}){comma}\n"));
        }
    }

    /// Writes the text line by line.
    fn lines(&mut self, words: &RoffText) {
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

    /// The path below the directory, and the text.
    pub(crate) fn into_file(self) -> (PathBuf, String) {
        let PageName { name, section } = self.name;
        let path = format!("man/man{section}/{name}.{section}");
        (path.into(), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped() {
        let mut page = Page::new(PageName::new("a-b", 1), "2026-11-22", "It's a `test`.");
        page.section("A \"B\"");
        page.paragraph(&plain(".TH is \\no request, nor is 'this\n.or this"));
        page.paragraph(&with_bold_code("type `ls -l`"));
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
