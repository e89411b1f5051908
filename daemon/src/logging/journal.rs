//! journald's native protocol: one datagram of fields for each message.
//!
//! Written here and not taken from tracing-journald, whose layer writes on the
//! thread that logs and blocks it when journald is stuck.

use super::record::Record;
use std::os::unix::net::UnixDatagram;
use tracing::Level;

const SOCKET: &str = "/run/systemd/journal/socket";

/// A connection to journald.
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// `Some` when standard error goes to the journal, which is how a service
    /// of systemd knows (systemd.exec(5), `JOURNAL_STREAM`).
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
    pub(super) fn write(&self, record: &Record) {
        // A message that journald does not take is lost; there is no second log.
        let _ = self.0.send(&datagram(record));
    }
}

fn datagram(record: &Record) -> Vec<u8> {
    // The numbers of syslog(3): journalctl -p understands them.
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
    for (name, value) in &record.fields {
        field(
            &mut bytes,
            &format!("GPUKILL_{}", name.to_ascii_uppercase().replace('.', "_")),
            value,
        );
    }
    bytes
}

/// Values are one line each: `Record` makes line ends visible.
fn field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::units::Timestamp;

    #[test]
    fn fields_are_structured_and_the_message_is_whole() {
        let record = Record {
            at: Timestamp(0),
            level: Level::WARN,
            target: "gpukilld::faults",
            message: "fault".into(),
            fields: vec![("part", "GPU 3".into())],
        };
        let expected = "MESSAGE=fault part=\"GPU 3\"\nPRIORITY=4\nSYSLOG_IDENTIFIER=gpukilld\n\
                        GPUKILL_TARGET=gpukilld::faults\nGPUKILL_PART=GPU 3\n";
        assert_eq!(String::from_utf8(datagram(&record)).unwrap(), expected);
    }
}
