//! An event as a row of the record.

use super::database::SCHEMA_VERSION;
use super::{Event, cut};
use gpukill_policy::digest::digest_text;
use gpukill_proto::snapshot::GpuEvent;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::json;

/// Every kind of event.
pub(super) const KINDS: [&str; 14] = [
    "broken",
    "started",
    "stopped",
    "booted",
    "settings",
    "rules",
    "rogue_rules",
    "fault",
    "fault_over",
    "xid",
    "device",
    "quiesced",
    "resumed",
    "forgotten",
];

/// The most of a fault's words, in bytes.
const MOST_OF_FAULT: usize = 1 << 10;

/// The columns of one row.
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

/// Writes an event down, and with a start, that the box was started anew since the
/// one before, where it was. All of it or nothing.
pub(super) fn insert(
    connection: &Connection,
    at: Timestamp,
    event: &Event,
    boot: &str,
) -> rusqlite::Result<()> {
    let whole = connection.unchecked_transaction()?;
    match event {
        Event::Started(_) => {
            let before = last_boot(&whole)?.filter(|before| before != boot);
            if let Some(before) = before {
                let booted = EventRow {
                    detail: Some(format!("boot {boot}, after {before}")),
                    ..EventRow::new(at, "booted")
                };
                booted.insert(&whole)?;
            }
        }
        Event::Stopped
        | Event::Settings(_)
        | Event::Rules { .. }
        | Event::Fault(_)
        | Event::Device(..)
        | Event::Quiesced(..)
        | Event::Forgotten(..)
        | Event::SetAside(..)
        | Event::Resumed(_) => {}
    }
    EventRow::of(at, event, boot).insert(&whole)?;
    whole.commit()
}

/// In which boot of the box the daemon started last, where that was recorded.
fn last_boot(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let select = "SELECT CASE WHEN json_valid(content) THEN json_extract(content, '$.boot') END
        FROM event WHERE kind = 'started' ORDER BY id DESC LIMIT 1";
    let mut found = connection.prepare_cached(select)?;
    Ok(found.query_row([], |row| row.get(0)).optional()?.flatten())
}

/// Repeats at once are one, with their number: a storm must not fill the record.
pub(super) fn folded(events: Vec<GpuEvent>) -> Vec<(GpuEvent, u64)> {
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

    /// Writes it down.
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

    /// The row of an event that was handed over at this moment, in this boot of the
    /// box.
    fn of(at: Timestamp, event: &Event, boot: &str) -> Self {
        let row = |kind| Self::new(at, kind);
        match event {
            Event::Started(version) => {
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
            Event::Settings(settings) => Self {
                detail: Some(digest_text(settings).to_string()),
                content: Some(cut::json(settings.clone(), cut::MOST_JSON)),
                ..row("settings")
            },
            Event::Rules { of, revision, text } => {
                let content = json!({ "revision": revision, "text": text });
                Self {
                    detail: Some(revision.clone().unwrap_or_else(|| "built-in".into())),
                    content: Some(content.to_string()),
                    ..row(of.kind())
                }
            }
            Event::Fault(change) => {
                let words = format!("{}: {}", change.part, change.what);
                let kind = if change.is_over {
                    "fault_over"
                } else {
                    "fault"
                };
                Self {
                    at: change.at,
                    detail: Some(cut::text(words, MOST_OF_FAULT)),
                    times: i64::try_from(change.times).unwrap_or(i64::MAX),
                    content: Some(json!({ "code": change.code }).to_string()),
                    ..row(kind)
                }
            }
            Event::Stopped => row("stopped"),
            Event::Quiesced(uid, until) => Self {
                uid: Some(*uid),
                number: Some(until.0),
                ..row("quiesced")
            },
            Event::Resumed(uid) => Self {
                uid: Some(*uid),
                ..row("resumed")
            },
            Event::Forgotten(uid, device) => Self {
                uid: Some(*uid),
                device: Some(device.0.clone()),
                detail: Some("a GPU that is gone".to_owned()),
                ..row("forgotten")
            },
            Event::SetAside(name, why) => Self {
                detail: Some(format!("{name}: {why}")),
                ..row("broken")
            },
            Event::Device(event, times) => {
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
    use super::super::database::AUDIT;
    use super::*;
    use gpukill_proto::snapshot::{DeviceId, EventKind, InstanceId};

    fn xid(code: u64) -> GpuEvent {
        GpuEvent {
            device: Some(DeviceId("GPU-0".into())),
            instance: Some(InstanceId { gpu: 2, compute: 0 }),
            at: Timestamp(7),
            kind: EventKind::Xid(code),
        }
    }

    #[test]
    fn a_storm_is_one_row_for_each_kind() {
        let events = [63, 79, 63, 63].map(xid).to_vec();
        assert_eq!(folded(events), [(xid(63), 3), (xid(79), 1)]);
    }

    #[test]
    fn an_xid_can_be_found_by_device_and_number() {
        let row = EventRow::of(Timestamp(9), &Event::Device(xid(79), 3), "b");
        assert_eq!((row.at, row.kind), (Timestamp(7), "xid"));
        assert_eq!(row.device.as_deref(), Some("GPU-0"));
        assert_eq!((row.number, row.times), (Some(79), 3));
        assert_eq!(row.detail.as_deref(), Some("XID 79 in instance 2/0"));
    }

    #[test]
    fn a_start_tells_version_schemas_and_boot_and_a_new_boot_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let opened = super::super::database::open(directory.path(), &AUDIT).unwrap();
        let started = Event::Started("1.2.3");
        for (at, boot) in [(1, "a"), (2, "a"), (3, "b"), (4, "b")] {
            insert(&opened.connection, Timestamp(at), &started, boot).unwrap();
        }
        let mut select = opened
            .connection
            .prepare("SELECT at || ' ' || kind || ' ' || detail FROM event ORDER BY id")
            .unwrap();
        let told = select.query_map([], |row| row.get(0)).unwrap();
        let told: Vec<String> = told.map(Result::unwrap).collect();
        let expected = [
            "1 started 1.2.3",
            "2 started 1.2.3",
            "3 booted boot b, after a",
            "3 started 1.2.3",
            "4 started 1.2.3",
        ];
        assert_eq!(told, expected);
        let row = EventRow::of(Timestamp(1), &started, "a");
        let content: serde_json::Value = serde_json::from_str(&row.content.unwrap()).unwrap();
        assert_eq!(
            content,
            json!({"version": "1.2.3", "boot": "a", "samples_schema": 1, "audit_schema": 1})
        );
    }
}
