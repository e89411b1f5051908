//! The settings files that packages install. Every key is commented out, so that an unchanged
//! file gets the defaults of each release.

use crate::reference::{Line, line};

/// The head of the daemon's file.
const HEAD: &str = "\
# Settings of gpukilld. A line that begins with # and no blank is a setting with its default:
# remove the # to change it, then run: gpukilld --check-config
";

/// The head of the gateway's file.
const GATEWAY_HEAD: &str = "\
# Settings of gpukill-gateway. A line that begins with # and no blank is a setting with its default:
# remove the # to change it, then run: gpukill-gateway --check-config

";

/// The text of the daemon's file.
pub(crate) fn commented() -> String {
    comment_keys(HEAD, &gpukilld::config::print_default())
}

/// The text of the gateway's file.
pub(crate) fn commented_gateway() -> String {
    let printed = gpukill_proto::settings::print_defaults(gpukill_gateway::settings::KEYS);
    comment_keys(GATEWAY_HEAD, &printed)
}

/// A printed reference with this head, in which every key is commented out.
fn comment_keys(head: &str, printed: &str) -> String {
    // The printed reference has a head of its own, which is dropped.
    let is_head = |text: &&str| matches!(line(text), Line::Prose(_));
    let mut text = head.to_owned();
    for printed in printed.lines().skip_while(is_head) {
        match line(printed) {
            Line::Key { name, after, .. } => text.push_str(&format!("#{name}{after}")),
            Line::Blank | Line::Break | Line::Table(_) | Line::Prose(_) => text.push_str(printed),
        }
        text.push('\n');
    }
    text
}
