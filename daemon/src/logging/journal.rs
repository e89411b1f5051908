//! The native protocol of journald: one datagram of fields for each message.
//!
//! Not taken from tracing-journald: its layer writes on the thread that logs and blocks it when
//! journald is stuck.

use super::record::LogRecord;
use crate::log_events::{field_name, is_list};
use std::os::unix::net::UnixDatagram;
use tracing::Level;

const SOCKET: &str = "/run/systemd/journal/socket";

/// A connection to journald.
pub(super) struct JournalSocket(UnixDatagram);

impl JournalSocket {
    /// `Some` if standard error goes to the journal, which is how a service of systemd recognises
    /// it (systemd.exec(5), `JOURNAL_STREAM`).
    pub(super) fn if_started_by_systemd() -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let error = rustix::fs::fstat(std::io::stderr()).ok()?;
        if stream != format!("{}:{}", error.st_dev, error.st_ino) {
            return None;
        }
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(SOCKET).ok()?;
        Some(Self(socket))
    }

    /// Writes one message. May block while journald does not read.
    pub(super) fn write(&self, record: &LogRecord) {
        // A message that journald rejects is lost; there is no second log.
        let _ = self.0.send(&datagram(record));
    }
}

fn datagram(record: &LogRecord) -> Vec<u8> {
    // The numbers of syslog(3), which journalctl -p uses.
    let priority = match record.level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut bytes = Vec::new();
    let text = record.text();
    field(&mut bytes, "MESSAGE", &text);
    field(&mut bytes, "PRIORITY", priority);
    field(&mut bytes, "SYSLOG_IDENTIFIER", "gpukilld");
    field(&mut bytes, "GPUKILL_TARGET", record.target);
    if let Some(kind) = record.kind {
        field(&mut bytes, "MESSAGE_ID", kind.id());
    }
    for (name, value) in &record.fields {
        let in_journal = field_name(name);
        if is_list(name) {
            for one in value.split_ascii_whitespace() {
                field(&mut bytes, &in_journal, one);
            }
        } else {
            field(&mut bytes, &in_journal, value);
        }
    }
    bytes
}

/// Values are one line each: `LogRecord` escapes line ends.
fn field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_events::LogEvent;
    use gpukill_proto::units::Timestamp;

    #[test]
    fn fields_are_structured() {
        let record = LogRecord {
            at: Timestamp(0),
            level: Level::WARN,
            kind: Some(LogEvent::FaultStarted),
            target: "gpukilld::faults",
            message: "fault".into(),
            fields: vec![("part", "GPU 3".into())],
        };
        let expected = "MESSAGE=fault part=\"GPU 3\"\nPRIORITY=4\nSYSLOG_IDENTIFIER=gpukilld\n\
                        GPUKILL_TARGET=gpukilld::faults\n\
                        MESSAGE_ID=7a0f6e91d5114eac8f05a8ae525396a7\nGPUKILL_PART=GPU 3\n";
        assert_eq!(String::from_utf8(datagram(&record)).unwrap(), expected);
    }

    #[test]
    fn list_fields_are_repeated() {
        let record = LogRecord {
            at: Timestamp(0),
            level: Level::WARN,
            kind: None,
            target: "gpukilld::sensor",
            message: "two".into(),
            fields: vec![("pid", "7 8".into()), ("rule", "user alice".into())],
        };
        let expected = "MESSAGE=two pid=\"7 8\" rule=\"user alice\"\nPRIORITY=4\n\
                        SYSLOG_IDENTIFIER=gpukilld\nGPUKILL_TARGET=gpukilld::sensor\n\
                        PID=7\nPID=8\nRULE=user alice\n";
        assert_eq!(String::from_utf8(datagram(&record)).unwrap(), expected);
    }
}
