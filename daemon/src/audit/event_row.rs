//! An event as a row of the record.

use super::Event;
use gpukill_proto::snapshot::GpuEvent;
use gpukill_proto::units::Timestamp;
use rusqlite::{Connection, params};

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
    /// Writes it down.
    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        let insert = "INSERT INTO event (at, kind, detail, uid, device, number, times)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        connection.prepare_cached(insert)?.execute(params![
            self.at.0,
            self.kind,
            self.detail,
            self.uid,
            self.device,
            self.number,
            self.times
        ])?;
        Ok(())
    }

    /// The row of an event that was handed over at this moment.
    pub(super) fn of(at: Timestamp, event: &Event) -> Self {
        let row = |kind| Self {
            at,
            kind,
            detail: None,
            uid: None,
            device: None,
            number: None,
            times: 1,
        };
        match event {
            Event::Started(version) => Self {
                detail: Some((*version).to_owned()),
                ..row("started")
            },
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
        let row = EventRow::of(Timestamp(9), &Event::Device(xid(79), 3));
        assert_eq!((row.at, row.kind), (Timestamp(7), "xid"));
        assert_eq!(row.device.as_deref(), Some("GPU-0"));
        assert_eq!((row.number, row.times), (Some(79), 3));
        assert_eq!(row.detail.as_deref(), Some("XID 79 in instance 2/0"));
    }
}
