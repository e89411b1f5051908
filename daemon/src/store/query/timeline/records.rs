//! The records of a timeline: events, decisions of the guard, actions and findings.

use super::super::actions::{action_entry, event_entry};
use super::super::runs::was_rebooted;
use super::super::{Deadline, QueryError};
use super::PastRights;
use super::merge::SourcePart;
use super::selection::{RecordedPlan, TimelineSelection};
use gpukill_proto::audit::{
    TimelineCursor, TimelineEnd, TimelineEntry, TimelineEvent, TimelineSource,
};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{EvidenceProcess, GuardRecord, GuardStep};
use gpukill_proto::rogue::RogueFinding;
use gpukill_proto::units::Timestamp;
use rusqlite::{Row, Transaction, named_params};
use serde_json::json;
use std::collections::BTreeMap;

/// The GPUs and the event of a row, if it belongs to the timeline.
type RowToEntry<'a> = &'a dyn Fn(&Row<'_>) -> rusqlite::Result<Option<(Vec<u32>, TimelineEvent)>>;

/// Reads the records of one page at one moment.
pub(super) struct RecordReader<'a> {
    pub(super) moment: Transaction<'a>,
    /// The time of the records.
    pub(super) span: (Timestamp, Timestamp),
    /// The first position of the page.
    pub(super) from: Option<TimelineCursor>,
    pub(super) selection: &'a TimelineSelection,
    pub(super) rights: &'a PastRights,
    pub(super) limit: usize,
    pub(super) deadline: Deadline,
}

// Rules and settings are recorded at each start; only changes belong to a timeline.
const SELECT_EVENTS: &str = "SELECT event.id AS row, event.id * 2 AS id, at, kind, detail, uid,
    device, number, times, NULL AS content
    FROM event
    WHERE (:devices IS NULL OR device IS NULL OR device IN (SELECT value FROM json_each(:devices)))
    AND (kind NOT IN ('settings', 'rules', 'rogue_rules') OR detail IS NOT (
        SELECT before.detail FROM event AS before
        WHERE before.kind = event.kind AND before.id < event.id
        ORDER BY before.id DESC LIMIT 1))";

const SELECT_ACTIONS: &str = "SELECT action.id AS row, action.id * 2 + 1 AS id, at, kind, uid,
    times, finished_at, result, reason, request, NULL AS device, plan, outcome
    FROM action WHERE :devices IS NULL";

const SELECT_DECISIONS: &str =
    "SELECT verdict.id AS row, id, at, record FROM verdict WHERE :devices IS NULL";

impl RecordReader<'_> {
    /// Finds the runs that a reboot of the host ended, among those that ended unobserved in these
    /// boots of the host.
    pub(super) fn mark_reboots(
        &self,
        part: &mut SourcePart<TimelineEntry>,
        boots: &BTreeMap<u64, String>,
    ) -> Result<(), QueryError> {
        for (run, TimelineEntry { at, event, .. }) in part.entries_mut() {
            self.deadline.check()?;
            if let TimelineEvent::Ended(_, end) = event
                && let Some(boot) = boots.get(&run)
                && was_rebooted(&self.moment, *at, boot)?
            {
                *end = TimelineEnd::Rebooted;
            }
        }
        Ok(())
    }

    /// Reads the events of the host and of the devices.
    pub(super) fn events(&self) -> Result<SourcePart<TimelineEntry>, QueryError> {
        let devices = self.selection.event_devices();
        let devices = devices.map(|devices| json!(devices).to_string());
        self.read(TimelineSource::Event, SELECT_EVENTS, devices, &|row| {
            let record = event_entry(row, &self.rights.may_read_action)?;
            let device = record.device.as_ref();
            if device.is_some_and(|device| !self.selection.has_device_event(&device.0, record.at)) {
                return Ok(None);
            }
            let index = device.and_then(|device| self.selection.index(&device.0));
            let event = TimelineEvent::Action(record);
            Ok(Some((index.into_iter().collect(), event)))
        })
    }

    pub(super) fn actions(&self) -> Result<SourcePart<TimelineEntry>, QueryError> {
        self.read(TimelineSource::Action, SELECT_ACTIONS, None, &|row| {
            let record = action_entry(row, &self.rights.may_read_action)?;
            let plan = record.plan.known();
            let plan = plan.and_then(|plan| RecordedPlan::parse(plan));
            if !self.selection.has_action(&record, plan.as_ref()) {
                return Ok(None);
            }
            let gpus = plan.map_or_else(Vec::new, |plan| plan.gpu_indices());
            Ok(Some((gpus, TimelineEvent::Action(record))))
        })
    }

    /// Reads the decisions of the guard.
    pub(super) fn decisions(&self) -> Result<SourcePart<TimelineEntry>, QueryError> {
        self.read(TimelineSource::Guard, SELECT_DECISIONS, None, &|row| {
            // An unreadable record is skipped.
            let record: Option<GuardRecord> = parse_record(row)?;
            // Matched after the redaction: otherwise a caller could learn who else is part of a
            // violation.
            let record = record.and_then(|record| (self.rights.redact_decision)(record));
            let record = record.filter(|record| self.selection.has_decision(record));
            Ok(record.map(|record| (decision_gpus(&record), TimelineEvent::Guard(record))))
        })
    }

    /// Reads the rogue findings.
    pub(super) fn findings(&self) -> Result<SourcePart<TimelineEntry>, QueryError> {
        self.read(TimelineSource::Finding, SELECT_FINDINGS, None, &|row| {
            // An unreadable finding is skipped.
            let finding: Option<RogueFinding> = parse_record(row)?;
            let is_wanted = |finding: &RogueFinding| {
                (self.rights.may_read_command)(finding.uid, None)
                    && self.selection.has_finding(finding)
            };
            let finding = finding.filter(is_wanted);
            Ok(finding.map(|finding| (finding.gpus.clone(), TimelineEvent::Finding(finding))))
        })
    }

    /// Reads the rows of a table that begin in the requested time, oldest first. `select` has the
    /// condition `:devices`.
    fn read(
        &self,
        source: TimelineSource,
        select: &str,
        devices: Option<String>,
        to_entry: RowToEntry<'_>,
    ) -> Result<SourcePart<TimelineEntry>, QueryError> {
        let mut part = SourcePart::new(source, self.from, self.limit);
        let (start, id) = part.start();
        let since = self.span.0.max(start);
        let mut statement = self.moment.prepare_cached(&format!(
            "{select} AND at >= :since AND at < :until AND (at > :start OR id >= :id)
             ORDER BY at, id"
        ))?;
        let mut rows = statement.query(named_params! {
            ":devices": devices,
            ":since": since.0,
            ":until": self.span.1.0,
            ":start": start.0,
            ":id": id.cast_signed(),
        })?;
        while let Some(row) = rows.next()? {
            self.deadline.check()?;
            let (at, id): (i64, i64) = (row.get("at")?, row.get("row")?);
            let (at, id) = (Timestamp(at), id.unsigned_abs());
            if !part.takes(at, id) {
                break;
            }
            if let Some((gpus, event)) = to_entry(row)? {
                part.push(at, id, TimelineEntry { at, gpus, event });
            }
        }
        Ok(part)
    }
}

/// The indices of the devices that a decision is about.
fn decision_gpus(record: &GuardRecord) -> Vec<u32> {
    let runs: &[EvidenceProcess] = match &record.step {
        GuardStep::Ended(victim) => &victim.runs,
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Outcome(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => &record.evidence.runs,
    };
    let mut gpus: Vec<u32> = runs.iter().map(|it| it.gpu_index).collect();
    gpus.sort_indirect();
    gpus.dedup();
    gpus
}

const SELECT_FINDINGS: &str =
    "SELECT finding.id AS row, id, at, record FROM finding WHERE :devices IS NULL";

fn parse_record<T: serde::de::DeserializeOwned>(row: &Row<'_>) -> rusqlite::Result<Option<T>> {
    let text: String = row.get("record")?;
    Ok(serde_json::from_str(&text).ok())
}
