//! The JSON of a timeline.

use super::fields::document;
use super::schema::{Components, JsonSchema};
use super::{ActionDocument, GuardRecordDocument, RogueFindingDocument};
use crate::audit::{
    TimelineEnd, TimelineEntry, TimelineEvent, TimelineProcess, UsageState, UsageStretch,
};
use crate::model::{InstanceId, Owner};
use crate::reading::Reading;
use crate::units::{Percent, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

document! {
    /// One entry of `gpukillctl audit timeline -o json`.
    TimelineDocument(entry: &TimelineEntry, event: EventFields<'_>) {
        /// The time; of a stretch or a gap, its start.
        timestamp: String as Timestamp = entry.at.to_rfc3339(),
        /// `started`, `ended`, `stretch`, `guard`, `action`, `finding` or `gap`.
        event: &'static str as TimelineEvent = entry.event.name(),
        /// The GPUs that it is about, as far as known.
        gpu_indices: Vec<u32> = entry.gpus.clone(),
        pid: Option<u32> = event.pid,
        start_ticks: Option<u64> = event.start_ticks,
        uid: Option<u32> = event.process.and_then(|it| it.uid),
        user: Option<String> = event.process.and_then(|it| it.user.clone()),
        /// The person to ask.
        owner: Option<String> = event.owner().map(|owner| owner.name.clone()),
        owner_uid: Option<u32> = event.owner().and_then(|owner| owner.uid),
        process_name: Option<String> = event.process.and_then(|it| it.name.clone()),
        command: Option<String> = match event.process {
            Some(process) => process.command.clone().map(Some),
            None => Reading::Value(None),
        },
        container: Option<String> = event.process.and_then(|it| it.container.clone()),
        /// The name of the job in `list`.
        job: Option<String> = event.process.and_then(|it| it.job.clone()),
        /// The instance, if the device was divided.
        instance: Option<String> = event.instance.map(|it| it.to_string()),
        /// How the use ended: `exited`, `released`, `killed`, `unobserved` or `rebooted`.
        end: Option<&'static str> as Option<TimelineEnd> = event.end.map(TimelineEnd::name),
        /// The id of the action that ended it, as in `audit actions`.
        action_id: Option<u64> = match event.end {
            Some(TimelineEnd::Killed(action)) => action,
            Some(
                TimelineEnd::Exited
                | TimelineEnd::Released
                | TimelineEnd::Unobserved
                | TimelineEnd::Rebooted,
            )
            | None => None,
        },
        /// The end of a stretch or a gap.
        until: Option<String> as Option<Timestamp> = event.until.map(Timestamp::to_rfc3339),
        /// `busy`, `idle` or `unknown`.
        state: Option<&'static str> as Option<UsageState> = event.stretch.map(|it| UsageState::name(it.state)),
        /// The mean of a stretch.
        utilization_pct: Option<u32> =
            event.stretch.and_then(|it| it.utilization).map(|Percent(percent)| percent),
        /// The utilization over a busy stretch, in percent: means of equal parts.
        utilization_series: Vec<u8> =
            event.stretch.map_or_else(Vec::new, |it| it.utilization_series.clone()),
        /// A decision, an action or a finding, as its own command prints it.
        record: Option<Value> as Option<EventRecord> = event.record,
    }
}

/// The document of a decision, an action or a finding.
enum EventRecord {}

impl JsonSchema for EventRecord {
    fn schema(components: &mut Components) -> Value {
        let records = [
            GuardRecordDocument::schema(components),
            ActionDocument::schema(components),
            RogueFindingDocument::schema(components),
        ];
        json!({ "anyOf": records })
    }
}

/// The fields of an event.
#[derive(Default)]
pub(super) struct EventFields<'a> {
    pid: Option<u32>,
    start_ticks: Option<u64>,
    instance: Option<InstanceId>,
    process: Option<&'a TimelineProcess>,
    end: Option<TimelineEnd>,
    stretch: Option<&'a UsageStretch>,
    until: Option<Timestamp>,
    record: Option<Value>,
}

impl EventFields<'_> {
    fn owner(&self) -> Option<&Owner> {
        self.process?.owner.as_ref()
    }
}

impl<'a> From<&'a TimelineEvent> for EventFields<'a> {
    fn from(event: &'a TimelineEvent) -> Self {
        let of_process = |process: &'a TimelineProcess| Self {
            pid: Some(process.pid),
            start_ticks: process.start_ticks,
            instance: process.instance,
            process: Some(process),
            ..Self::default()
        };
        match event {
            TimelineEvent::Started(process) => of_process(process),
            TimelineEvent::Ended(process, end) => Self {
                end: Some(*end),
                ..of_process(process)
            },
            TimelineEvent::Stretch {
                pid,
                start_ticks,
                instance,
                usage,
            } => Self {
                pid: Some(*pid),
                start_ticks: *start_ticks,
                instance: *instance,
                stretch: Some(usage),
                until: Some(usage.until),
                ..Self::default()
            },
            TimelineEvent::Guard(record) => Self {
                record: value(&GuardRecordDocument::new(None, record)),
                ..Self::default()
            },
            TimelineEvent::Action(record) => Self {
                record: value(&ActionDocument::from(record)),
                ..Self::default()
            },
            TimelineEvent::Finding(finding) => Self {
                record: value(&RogueFindingDocument::new(finding, Vec::new())),
                ..Self::default()
            },
            TimelineEvent::Gap(until) => Self {
                until: Some(*until),
                ..Self::default()
            },
        }
    }
}

/// Serialization to JSON cannot fail.
fn value(document: &impl Serialize) -> Option<Value> {
    serde_json::to_value(document).ok()
}

impl From<&TimelineEntry> for TimelineDocument {
    fn from(entry: &TimelineEntry) -> Self {
        Self::new(entry, EventFields::from(&entry.event))
    }
}
