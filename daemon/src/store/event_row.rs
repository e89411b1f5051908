//! An event as a row of the record.

use super::database::SCHEMA_VERSION;
use super::{RecordedEvent, truncate};
use gpukill_policy::digest::digest_text;
use gpukill_proto::model::GpuEvent;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::json;

#[rustfmt::skip]
pub(super) const EVENT_KINDS: [&str; 16] = [
    "quarantined", "started", "stopped", "booted", "settings", "rules", "rogue_rules", "fault",
    "fault_over", "alert", "alert_over", "xid", "device", "quiesced", "resumed", "forgotten",
];

/// The longest text of a fault, in bytes.
const MAX_FAULT_BYTES: usize = 1 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventRow {
    pub(super) at: Timestamp,
    pub(super) kind: &'static str,
    pub(super) detail: Option<String>,
    pub(super) uid: Option<u32>,
    pub(super) device: Option<String>,
    pub(super) number: Option<i64>,
    pub(super) times: i64,
    /// JSON.
    pub(super) content: Option<String>,
}

/// Inserts an event in one transaction; before a start also the row `booted`, if the host was
/// rebooted since the last start.
pub(super) fn insert(
    connection: &Connection,
    at: Timestamp,
    event: &RecordedEvent,
    boot: &str,
) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    match event {
        RecordedEvent::Started(_) => {
            let before = last_boot(&transaction)?.filter(|before| before != boot);
            if let Some(before) = before {
                let booted = EventRow {
                    detail: Some(format!("boot {boot}, after {before}")),
                    ..EventRow::new(at, "booted")
                };
                booted.insert(&transaction)?;
            }
        }
        RecordedEvent::Stopped
        | RecordedEvent::Settings(_)
        | RecordedEvent::Rules { .. }
        | RecordedEvent::Fault(_)
        | RecordedEvent::Device(..)
        | RecordedEvent::Quiesced(..)
        | RecordedEvent::Forgotten(..)
        | RecordedEvent::Quarantined(..)
        | RecordedEvent::Resumed(_) => {}
    }
    EventRow::from_event(at, event, boot).insert(&transaction)?;
    transaction.commit()
}

/// The boot of the host in which the daemon last started, if recorded.
fn last_boot(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let select = "SELECT CASE WHEN json_valid(content) THEN json_extract(content, '$.boot') END
        FROM event WHERE kind = 'started' ORDER BY id DESC LIMIT 1";
    let mut found = connection.prepare_cached(select)?;
    Ok(found.query_row([], |row| row.get(0)).optional()?.flatten())
}

/// Folds equal events into one with their number: a storm must not fill the record.
pub(super) fn fold_events(events: Vec<GpuEvent>) -> Vec<(GpuEvent, u64)> {
    let mut folded: Vec<(GpuEvent, u64)> = Vec::new();
    for event in events {
        let same = |(other, _): &&mut (GpuEvent, u64)| {
            (&other.device, other.instance, other.kind)
                == (&event.device, event.instance, event.kind)
        };
        match folded.iter_mut().find(same) {
            Some((_, times)) => *times += 1,
            None => folded.push((event, 1)),
        }
    }
    folded
}

impl EventRow {
    fn new(at: Timestamp, kind: &'static str) -> Self {
        Self {
            at,
            kind,
            detail: None,
            uid: None,
            device: None,
            number: None,
            times: 1,
            content: None,
        }
    }

    fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        let insert = "INSERT INTO event (at, kind, detail, uid, device, number, times, content)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        connection.prepare_cached(insert)?.execute(params![
            self.at.0,
            self.kind,
            self.detail,
            self.uid,
            self.device,
            self.number,
            self.times,
            self.content
        ])?;
        Ok(())
    }

    /// The row of an event that was handed over at `at`, in this boot of the host.
    fn from_event(at: Timestamp, event: &RecordedEvent, boot: &str) -> Self {
        let row = |kind| Self::new(at, kind);
        match event {
            RecordedEvent::Started(version) => {
                let content = json!({
                    "version": version,
                    "boot": boot,
                    "samples_schema": SCHEMA_VERSION,
                    "audit_schema": SCHEMA_VERSION,
                });
                Self {
                    detail: Some((*version).to_owned()),
                    content: Some(content.to_string()),
                    ..row("started")
                }
            }
            RecordedEvent::Settings(settings) => Self {
                detail: Some(digest_text(settings).to_string()),
                content: Some(truncate::json(settings.clone(), truncate::MAX_JSON_BYTES)),
                ..row("settings")
            },
            RecordedEvent::Rules {
                rule_set: of,
                revision,
                text,
            } => {
                let content = json!({ "revision": revision, "text": text });
                Self {
                    detail: Some(revision.clone().unwrap_or_else(|| "built-in".into())),
                    content: Some(content.to_string()),
                    ..row(of.event_kind())
                }
            }
            RecordedEvent::Fault(change) => {
                let words = format!("{}: {}", change.part, change.what);
                let kind = match (change.code.is_alert(), change.is_over) {
                    (false, false) => "fault",
                    (false, true) => "fault_over",
                    (true, false) => "alert",
                    (true, true) => "alert_over",
                };
                Self {
                    at: change.at,
                    detail: Some(truncate::text(words, MAX_FAULT_BYTES)),
                    device: change.device.as_ref().map(|id| id.0.clone()),
                    times: i64::try_from(change.times).unwrap_or(i64::MAX),
                    content: Some(json!({ "code": change.code }).to_string()),
                    ..row(kind)
                }
            }
            RecordedEvent::Stopped => row("stopped"),
            RecordedEvent::Quiesced(uid, until) => Self {
                uid: Some(*uid),
                number: Some(until.0),
                ..row("quiesced")
            },
            RecordedEvent::Resumed(uid) => Self {
                uid: Some(*uid),
                ..row("resumed")
            },
            RecordedEvent::Forgotten(uid, device) => Self {
                uid: Some(*uid),
                device: Some(device.0.clone()),
                detail: Some("a GPU that is gone".to_owned()),
                ..row("forgotten")
            },
            RecordedEvent::Quarantined(name, why) => Self {
                detail: Some(format!("{name}: {why}")),
                ..row("quarantined")
            },
            RecordedEvent::Device(event, times) => {
                let xid = event.kind.xid();
                let kind = if xid.is_some() { "xid" } else { "device" };
                let part = event.instance.map(|part| format!(" in instance {part}"));
                Self {
                    at: event.at,
                    detail: Some(format!("{}{}", event.kind, part.unwrap_or_default())),
                    device: event.device.as_ref().map(|id| id.0.clone()),
                    number: xid.and_then(|code| i64::try_from(code).ok()),
                    times: i64::try_from(*times).unwrap_or(i64::MAX),
                    ..row(kind)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FaultChange;
    use super::super::database::AUDIT;
    use super::*;
    use gpukill_proto::model::{DeviceId, EventKind, FaultCode, InstanceId};

    fn xid(code: u64) -> GpuEvent {
        GpuEvent {
            device: Some(DeviceId("GPU-0".into())),
            instance: Some(InstanceId { gpu: 2, compute: 0 }),
            at: Timestamp(7),
            kind: EventKind::Xid(code),
        }
    }

    #[test]
    fn storm_is_one_row_per_kind() {
        let events = [63, 79, 63, 63].map(xid).to_vec();
        assert_eq!(fold_events(events), [(xid(63), 3), (xid(79), 1)]);
    }

    #[test]
    fn xid_row_has_device_and_number() {
        let row = EventRow::from_event(Timestamp(9), &RecordedEvent::Device(xid(79), 3), "b");
        assert_eq!((row.at, row.kind), (Timestamp(7), "xid"));
        assert_eq!(row.device.as_deref(), Some("GPU-0"));
        assert_eq!((row.number, row.times), (Some(79), 3));
        assert_eq!(row.detail.as_deref(), Some("XID 79 in instance 2/0"));
    }

    #[test]
    fn alert_is_no_fault() {
        let row = |code, is_over| {
            let change = FaultChange {
                at: Timestamp(7),
                part: "GPU 3".into(),
                device: Some(DeviceId("GPU-3".into())),
                code,
                what: "too hot".into(),
                is_over,
                times: 2,
            };
            EventRow::from_event(Timestamp(9), &RecordedEvent::Fault(change), "b")
        };
        let kinds = [FaultCode::TemperatureAlert, FaultCode::GpuLost]
            .map(|code| [false, true].map(|is_over| row(code, is_over).kind));
        assert_eq!(kinds, [["alert", "alert_over"], ["fault", "fault_over"]]);
        let row = row(FaultCode::MemoryAlert, false);
        assert_eq!((row.at, row.times), (Timestamp(7), 2));
        assert_eq!(row.device.as_deref(), Some("GPU-3"));
        assert_eq!(row.detail.as_deref(), Some("GPU 3: too hot"));
    }

    #[test]
    fn start_has_versions_and_boot_is_recorded_once() {
        let directory = tempfile::tempdir().unwrap();
        let opened = super::super::database::open(directory.path(), &AUDIT).unwrap();
        let started = RecordedEvent::Started("1.2.3");
        for (at, boot) in [(1, "a"), (2, "a"), (3, "b"), (4, "b")] {
            insert(&opened.connection, Timestamp(at), &started, boot).unwrap();
        }
        let mut select = opened
            .connection
            .prepare("SELECT at || ' ' || kind || ' ' || detail FROM event ORDER BY id")
            .unwrap();
        let kinds = select.query_map([], |row| row.get(0)).unwrap();
        let kinds: Vec<String> = kinds.map(Result::unwrap).collect();
        let expected = [
            "1 started 1.2.3",
            "2 started 1.2.3",
            "3 booted boot b, after a",
            "3 started 1.2.3",
            "4 started 1.2.3",
        ];
        assert_eq!(kinds, expected);
        let row = EventRow::from_event(Timestamp(1), &started, "a");
        let content: serde_json::Value = serde_json::from_str(&row.content.unwrap()).unwrap();
        assert_eq!(
            content,
            json!({"version": "1.2.3", "boot": "a", "samples_schema": 1, "audit_schema": 1})
        );
    }
}
