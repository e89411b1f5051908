//! The settings that a package installs: every key is there, and none is set, so that
//! whoever changes nothing gets each release's own defaults.

use crate::reference::{Line, line};

/// What is said at its head.
const HEAD: &str = "\
# Settings of gpukilld. What begins with # and no blank shows a default: take the # away
# to change it, then see whether all is right with: gpukilld --check-config
";

/// The file.
pub(crate) fn commented() -> String {
    let printed = gpukilld::config::print_default();
    // Its own head says what it is when it is printed.
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
