//! The settings file that a package installs. Every key is commented out, so that an unchanged
//! file gets the defaults of each release.

use crate::reference::{Line, line};

/// The head of the file.
const HEAD: &str = "\
# Settings of gpukilld. A line that begins with # and no blank is a setting with its default:
# remove the # to change it, then run: gpukilld --check-config
";

/// The text of the file.
pub(crate) fn commented() -> String {
    let printed = gpukilld::config::print_default();
    // The printed reference has a head of its own, which is dropped.
    let is_head = |text: &&str| matches!(line(text), Line::Prose(_));
    let mut text = HEAD.to_owned();
    for printed in printed.lines().skip_while(is_head) {
        match line(printed) {
            Line::Key { name, after, .. } => text.push_str(&format!("#{name}{after}")),
            Line::Blank | Line::Break | Line::Table(_) | Line::Prose(_) => text.push_str(printed),
        }
        text.push('\n');
    }
    text
}
