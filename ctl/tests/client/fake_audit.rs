//! The recorded history of the fake daemon.

use crate::fake_daemon::NOW;
use gpukill_proto::audit::{
    ActionCursor, ActionPage, ActionQuery, ActionRecord, AuditFilter, AuditPage, AuditQuery,
    AuditRecord, AuditSeries, AuditSubject, AuditSummary, DeviceTime, Gap, OwnerTime, ProcessTime,
    RunCursor, RunEnd, RunGpu, RunPage, RunQuery, RunRecord, RunUnit, SeriesBucket, SeriesLine,
    SeriesQuery, TimelineCursor, TimelineEntry, TimelineEvent, TimelinePage, TimelineQuery,
    TimelineSource, UsageTimes, UsageTotals, WeekTime,
};
use gpukill_proto::model::{DeviceId, Owner, OwnerKind};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent, Timestamp};

/// 2500 records, all of alice.
pub(crate) fn records(query: &AuditQuery) -> AuditPage {
    let newest = query.before.unwrap_or(2501) - 1;
    let count = if selects_alice(&query.filter) {
        newest.min(query.limit.into())
    } else {
        0
    };
    let records = (0..count).map(|back| record(newest - back)).collect();
    let next = newest + 1 - count;
    AuditPage {
        records,
        next: (next > 1 && count > 0).then_some(next),
        first_rows: Vec::new(),
    }
}

/// Nothing is recorded before this time, in 1980.
const FIRST_RECORD: Timestamp = Timestamp(315_532_800_000);

/// She uses only one of the GPUs, and is in the group `ml`.
fn selects_alice(filter: &AuditFilter) -> bool {
    filter.until > FIRST_RECORD
        && matches!(filter.group.as_deref(), None | Some("ml"))
        && matches!(filter.user.as_deref(), None | Some("alice"))
        && filter.gpu.as_deref() != Some("1")
}

fn record(id: u64) -> AuditRecord {
    AuditRecord {
        id,
        at: NOW,
        covers_ms: 10_000,
        device: DeviceId("GPU-8f3c0000".into()),
        gpu_index: 0,
        gpu_name: None,
        memory: Reading::Value(Bytes::mib(1024)),
        utilization: Reading::Value(Percent(9)),
        subject: AuditSubject::Process {
            pid: 100,
            instance: None,
            uid: Some(1000),
            user: Some("alice".into()),
            owner: None,
            namespace_owner: None,
            name: Some("python".into()),
            command: Reading::Withheld,
            container: None,
            job: None,
            held_ms: 10_000,
            connections: Reading::Unsupported,
        },
    }
}

/// 2500 runs, all of alice; with a gap in the recording.
pub(crate) fn runs(query: &RunQuery) -> RunPage {
    let newest = query.before.map_or(2501, |before| before.id) - 1;
    let count = if selects_alice(&query.filter) {
        newest.min(query.limit.into())
    } else {
        0
    };
    let runs: Vec<RunRecord> = (0..count)
        .map(|back| run(newest - back, query.unit))
        .collect();
    let last = runs.last().filter(|last| last.id > 1);
    let next = last.map(|last| RunCursor {
        from: last.from,
        id: last.id,
    });
    let gap = Gap {
        from: NOW.plus_seconds(-7_200),
        until: NOW.plus_seconds(-3_600),
    };
    RunPage {
        next,
        runs,
        gaps: vec![gap]
            .into_iter()
            .filter(|gap| gap.from < query.filter.until)
            .collect(),
        recorded_since: Some(NOW.plus_seconds(-86_400 * 9)),
    }
}

/// Two hours of one GPU of alice, at work half of the time.
pub(crate) fn series(query: &SeriesQuery) -> AuditSeries {
    let bucket = SeriesBucket {
        covered_ms: HOUR_MS,
        busy_ms: HOUR_MS / 2,
        idle_ms: HOUR_MS / 2,
        ..SeriesBucket::default()
    };
    let line = SeriesLine {
        gpu: Some(RunGpu {
            index: 0,
            device: DeviceId("GPU-8f3c0000".into()),
        }),
        owner: None,
        job: None,
        buckets: vec![bucket; 2],
    };
    let lines = if selects_alice(&query.filter) {
        vec![line]
    } else {
        vec![]
    };
    AuditSeries {
        since: NOW.plus_seconds(-7_200),
        step_ms: HOUR_MS,
        lines,
        more_lines: 0,
    }
}

fn run(id: u64, unit: RunUnit) -> RunRecord {
    let from = NOW.plus_seconds(-60 * (2501 - i64::try_from(id).expect("it is small")));
    RunRecord {
        id,
        from,
        until: NOW,
        gpus: vec![RunGpu {
            index: 0,
            device: DeviceId("GPU-8f3c0000".into()),
        }],
        pids: vec![100, 101],
        processes: match unit {
            RunUnit::Job => 2,
            RunUnit::Process => 1,
        },
        label: "python train.py".into(),
        command: Reading::Withheld,
        name: Some("python".into()),
        uid: Some(1000),
        user: Some("alice".into()),
        owner: None,
        container: None,
        job: None,
        used: UsageTotals {
            busy_ms: 54_000,
            idle_ms: 6_000,
            unknown_ms: 0,
            memory_mib_s: 60 << 10,
            memory_max: Some(Bytes::mib(1024)),
            runs: 2,
        },
        utilization: Some(Percent(61)),
        end: RunEnd::Exited,
    }
}

const HOUR_MS: u64 = 3_600_000;

/// The summary of the last day; before 2026 there was nothing.
pub(crate) fn summary(filter: &AuditFilter) -> AuditSummary {
    let nothing = AuditSummary {
        since: filter.since,
        until: filter.until,
        devices: vec![],
        owners: vec![],
        more_owners: 0,
        processes: vec![],
        more_processes: 0,
        hours: vec![UsageTimes::default(); 24],
        days: vec![UsageTimes::default(); 7],
        weeks: vec![],
        gaps: vec![],
    };
    if filter.until < Timestamp(1_767_225_600_000) {
        return nothing;
    }
    let times = UsageTimes {
        busy_ms: 12 * HOUR_MS,
        held_ms: 6 * HOUR_MS,
        free_ms: 6 * HOUR_MS,
        unknown_ms: 0,
    };
    let used = UsageTotals {
        busy_ms: 12 * HOUR_MS,
        idle_ms: 6 * HOUR_MS,
        unknown_ms: 0,
        memory_mib_s: 18 * 3600 * 1024,
        memory_max: Some(Bytes::mib(1024)),
        runs: 2,
    };
    let alice = Owner {
        name: "alice".into(),
        uid: Some(1000),
        kind: OwnerKind::User,
    };
    let is_alices = selects_alice(filter);
    AuditSummary {
        devices: vec![DeviceTime {
            device: DeviceId("GPU-8f3c0000".into()),
            index: 0,
            name: Some("NVIDIA H100 80GB HBM3".into()),
            times,
            memory_max: Some(Bytes::mib(2048)),
            memory_max_at: Some(NOW),
            hottest: Some(71),
            energy_j: Some(36_000_000),
        }],
        owners: Vec::from_iter(is_alices.then_some(OwnerTime {
            owner: Some(alice),
            used,
        })),
        processes: Vec::from_iter(is_alices.then(|| ProcessTime {
            label: "python train.py".into(),
            used,
        })),
        weeks: vec![WeekTime {
            monday: "2026-11-16".into(),
            times,
            top_owner: Some(("alice".into(), 18 * HOUR_MS)),
        }],
        gaps: vec![Gap {
            from: NOW.plus_seconds(-7200),
            until: NOW.plus_seconds(-3600),
        }],
        ..nothing
    }
}

/// 1500 starts of daemons, two at each moment, in pages of at most 400 with an empty page between.
pub(crate) fn timeline(query: &TimelineQuery) -> TimelinePage {
    let first = query.from.map_or(1, |from| from.id);
    let is_empty = first.is_multiple_of(400);
    let count = if is_empty { 0 } else { query.limit.min(399) };
    let next = match is_empty {
        true => first + 1,
        false => first + u64::from(count),
    };
    let ids = (first..next.min(1501)).filter(|_| !is_empty);
    let at = |id: u64| NOW.plus_seconds(i64::try_from(id / 2).expect("few") - 1501);
    let entry = |id| TimelineEntry {
        at: at(id),
        gpus: vec![],
        event: TimelineEvent::Action(ActionRecord {
            kind: "started".into(),
            ..action(id)
        }),
    };
    TimelinePage {
        entries: ids.map(entry).collect(),
        next: (next <= 1500).then(|| TimelineCursor {
            at: at(next),
            source: TimelineSource::Event,
            id: next,
        }),
        stretches_omitted: query.pid.is_none(),
    }
}

/// 1500 kills, two at each moment: the second of every ten is refused.
pub(crate) fn actions(query: &ActionQuery) -> ActionPage {
    let all = (1..=1500).rev().map(action).filter(|action| {
        let cursor = cursor(action);
        let is_of_kind = query.kind.as_ref().is_none_or(|kind| *kind == action.kind);
        is_of_kind
            && query.until > FIRST_RECORD
            && query.before.is_none_or(|before| cursor < before)
    });
    let mut all = all.peekable();
    // Pages of this daemon have at most 400 entries.
    let limit = query.limit.min(400) as usize;
    let records: Vec<ActionRecord> = all.by_ref().take(limit).collect();
    let next = all.peek().and(records.last()).map(cursor);
    ActionPage { records, next }
}

fn cursor(action: &ActionRecord) -> ActionCursor {
    ActionCursor {
        at: action.at,
        id: action.id,
    }
}

fn action(id: u64) -> ActionRecord {
    let is_refused = id % 10 == 2;
    let at = NOW.plus_seconds((i64::try_from(id).expect("few") - 1501) / 2);
    ActionRecord {
        id,
        at,
        kind: "kill".into(),
        uid: Some(1000),
        user: Some("alice".into()),
        device: None,
        what: Some(id.to_string()),
        times: 1,
        result: Some(if is_refused { "refused" } else { "done" }.into()),
        finished_at: Some(at),
        why: is_refused.then(|| "it belongs to bob".into()),
        plan: Reading::Value("{\"targets\":[{\"pid\":1}]}".into()),
        outcome: Reading::Unsupported,
    }
}
