//! One log message, copied from the event so that another thread can write it.

use crate::log_events::LogEvent;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::Timestamp;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The maximum length of the value of a field, in bytes.
const MAX_VALUE_BYTES: usize = 2048;

/// One message and its fields, safe to print.
#[derive(Debug)]
pub(super) struct LogRecord {
    pub(super) at: Timestamp,
    pub(super) level: Level,
    /// `None` if it is not a [`LogEvent`].
    pub(super) kind: Option<LogEvent>,
    pub(super) target: &'static str,
    pub(super) message: String,
    pub(super) fields: Vec<(&'static str, String)>,
}

impl LogRecord {
    pub(super) fn from_event(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut record = Self::new(*metadata.level(), metadata.target());
        record.kind = LogEvent::from_name(metadata.name());
        event.record(&mut record);
        record
    }

    pub(super) fn dropped(count: u64) -> Self {
        let mut record = Self::new(Level::WARN, module_path!());
        record.message = "messages were dropped: the log is not written fast enough".into();
        record.fields.push(("count", count.to_string()));
        record
    }

    fn new(level: Level, target: &'static str) -> Self {
        let at = std::time::SystemTime::now().into();
        Self {
            at,
            level,
            kind: None,
            target,
            message: String::new(),
            fields: Vec::new(),
        }
    }

    /// The message and its fields on one line.
    pub(super) fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            // Writing to a String cannot fail.
            let _ = if value.contains(' ') {
                write!(text, " {name}={value:?}")
            } else {
                write!(text, " {name}={value}")
            };
        }
        text
    }

    /// As standard error shows it.
    pub(super) fn line(&self) -> String {
        format!("{} {:>5} {}", self.at.to_rfc3339(), self.level, self.text())
    }

    fn add_field(&mut self, field: &Field, value: &[u8]) {
        let value = sanitize(value, MAX_VALUE_BYTES);
        if field.name() == "message" {
            self.message = value;
        } else {
            self.fields.push((field.name(), value));
        }
    }
}

impl Visit for LogRecord {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_field(field, format!("{value:?}").as_bytes());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_field(field, value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_cannot_forge_a_line() {
        let mut record = LogRecord::new(Level::INFO, "test");
        record.at = Timestamp(0);
        record.message = sanitize(b"process\nended", 100);
        record.fields = vec![("pid", "7".into()), ("command", "python train.py".into())];
        assert_eq!(
            record.line(),
            "1970-01-01T00:00:00.000Z  INFO process\\x0aended pid=7 command=\"python train.py\""
        );
    }
}
