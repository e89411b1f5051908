//! Samples of the timeline query and its results.

use super::{audit, guard, rogue};
use gpukill_proto::audit::{
    TimelineCursor, TimelineEnd, TimelineEntry, TimelineEvent, TimelinePage, TimelineProcess,
    TimelineQuery, TimelineSource, UsageState, UsageStretch,
};
use gpukill_proto::model::{InstanceId, Owner, OwnerKind};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Percent, Timestamp};

const AT: Timestamp = Timestamp(1_763_700_000_000);

pub(super) const SOURCES: [TimelineSource; 8] = [
    TimelineSource::Event,
    TimelineSource::Gap,
    TimelineSource::RunStart,
    TimelineSource::Stretch,
    TimelineSource::Guard,
    TimelineSource::Action,
    TimelineSource::Finding,
    TimelineSource::RunEnd,
];

pub(super) const STATES: [UsageState; 3] =
    [UsageState::Busy, UsageState::Idle, UsageState::Unknown];

const ENDS: [TimelineEnd; 6] = [
    TimelineEnd::Exited,
    TimelineEnd::Released,
    TimelineEnd::Killed(Some(70_000)),
    TimelineEnd::Killed(None),
    TimelineEnd::Unobserved,
    TimelineEnd::Rebooted,
];

fn cursor() -> TimelineCursor {
    TimelineCursor {
        at: AT,
        source: TimelineSource::Guard,
        id: 300,
    }
}

pub(super) fn query() -> TimelineQuery {
    TimelineQuery {
        since: Timestamp(-1),
        until: AT,
        gpu: Some("0".into()),
        user: Some("alice".into()),
        job: Some("slurm 1234.0".into()),
        pid: Some(70_000),
        from: Some(cursor()),
        limit: 1000,
    }
}

fn process() -> TimelineProcess {
    TimelineProcess {
        pid: 70_000,
        start_ticks: Some(300),
        instance: Some(InstanceId { gpu: 2, compute: 0 }),
        uid: Some(1001),
        user: Some("bob".into()),
        owner: Some(Owner {
            name: "bob".into(),
            uid: Some(1001),
            kind: OwnerKind::User,
        }),
        name: Some("python".into()),
        command: Reading::Withheld,
        container: Some("docker/0123456789ab".into()),
        job: Some("session-3.scope".into()),
    }
}

pub(super) fn page() -> TimelinePage {
    let mut events = vec![
        TimelineEvent::Started(process()),
        TimelineEvent::Stretch {
            pid: 70_000,
            start_ticks: Some(300),
            instance: Some(InstanceId { gpu: 2, compute: 0 }),
            usage: UsageStretch {
                until: AT,
                state: UsageState::Busy,
                utilization: Some(Percent(61)),
                utilization_series: vec![60, 90, 20],
            },
        },
        TimelineEvent::Gap(AT),
    ];
    events.extend(ENDS.map(|end| TimelineEvent::Ended(process(), end)));
    let actions = audit::actions().records.into_iter();
    events.extend(actions.map(TimelineEvent::Action));
    let decisions = guard::page().records.into_iter().take(1);
    events.extend(decisions.map(|(_, record)| TimelineEvent::Guard(record)));
    let findings = rogue::scan_report().findings.into_iter().take(1);
    events.extend(findings.map(TimelineEvent::Finding));
    let entries = events.into_iter().map(|event| TimelineEntry {
        at: AT,
        gpus: vec![0, 300],
        event,
    });
    TimelinePage {
        entries: entries.collect(),
        next: Some(cursor()),
        stretches_omitted: true,
    }
}
