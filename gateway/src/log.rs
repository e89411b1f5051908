//! Messages for operators, on standard error: changes of state only, never one for each request.

use gpukill_proto::text::sanitize;
use std::io::Write as _;

/// The longest message in bytes.
const MAX_MESSAGE: usize = 2_048;

/// Logs a change of state.
pub(crate) fn info(message: &str) {
    write("<6>", message);
}

/// Logs something that an operator should look at.
pub(crate) fn warn(message: &str) {
    write("<4>", message);
}

fn write(priority: &str, message: &str) {
    // journald reads the priority; on a terminal it would only disturb.
    let priority = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => priority,
        None => "",
    };
    let message = sanitize(message.as_bytes(), MAX_MESSAGE);
    // A failure to log cannot be reported anywhere.
    let _ = writeln!(
        std::io::stderr().lock(),
        "{priority}gpukill-gateway: {message}"
    );
}
