//! Samples of history queries and their results.

use gpukill_proto::audit::{
    ActionCursor, ActionPage, ActionQuery, ActionRecord, AuditFilter, AuditSeries, AuditSummary,
    Backup, CopyId, DeviceTime, Gap, OwnerTime, ProcessTime, PruneReport, RunCursor, RunEnd,
    RunExtent, RunGpu, RunPage, RunQuery, RunRecord, RunUnit, SeriesBucket, SeriesBy, SeriesLine,
    SeriesQuery, SeriesValue, StoreContents, UsageTimes, UsageTotals, WeekTime,
};
use gpukill_proto::model::{DeviceId, Owner, OwnerKind};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent, Timestamp};

pub(super) const COPY: CopyId = CopyId(300);

const AT: Timestamp = Timestamp(1_763_700_000_000);

pub(super) fn filter() -> AuditFilter {
    AuditFilter {
        since: Timestamp(-1),
        until: AT,
        user: Some("alice".into()),
        process: Some("^python".into()),
        command: None,
        gpu: Some("0,2-5".into()),
        container: Some("web01".into()),
        job: Some("slurm 1234.0".into()),
        group: Some("ml".into()),
    }
}

pub(super) fn action_query() -> ActionQuery {
    ActionQuery {
        since: Timestamp(-1),
        until: AT,
        user: Some("alice".into()),
        kind: Some("kill".into()),
        gpu: Some("0".into()),
        before: Some(ActionCursor { at: AT, id: 300 }),
        limit: 1000,
    }
}

const RUN: RunCursor = RunCursor { from: AT, id: 300 };

pub(super) fn run_queries() -> [RunQuery; 2] {
    let query = |unit, extent, before| RunQuery {
        filter: filter(),
        unit,
        extent,
        before,
        limit: 1000,
    };
    [
        query(RunUnit::Job, RunExtent::WithinPeriod, None),
        query(RunUnit::Process, RunExtent::Whole, Some(RUN)),
    ]
}

/// A run with each kind of end.
pub(super) fn run_page() -> RunPage {
    let ends = [
        RunEnd::Running,
        RunEnd::Exited,
        RunEnd::Released,
        RunEnd::Killed {
            action: 300,
            by: Some(1000),
            by_name: Some("alice".into()),
        },
        RunEnd::EndedByGuard {
            action: 300,
            rule: Some("default: idle over 120 min".into()),
        },
        RunEnd::Reset { action: 300 },
        RunEnd::Rebooted,
        RunEnd::Unobserved,
    ];
    RunPage {
        runs: ends.map(run).into(),
        next: Some(RUN),
        gaps: vec![Gap {
            from: Timestamp(1),
            until: AT,
        }],
        recorded_since: Some(Timestamp(-1)),
    }
}

pub(super) fn series_queries() -> [SeriesQuery; 3] {
    [SeriesBy::Gpu, SeriesBy::Owner, SeriesBy::Job].map(|by| SeriesQuery {
        filter: filter(),
        by,
        buckets: 300,
    })
}

pub(super) fn series() -> AuditSeries {
    let value = Some(SeriesValue {
        min: 1,
        mean: 300,
        max: 1 << 36,
    });
    let bucket = SeriesBucket {
        covered_ms: 1,
        busy_ms: 2,
        idle_ms: 3,
        unknown_ms: 300,
        utilization: value,
        memory: value,
        power: None,
        hottest: Some(71),
    };
    AuditSeries {
        since: AT,
        step_ms: 300,
        lines: vec![SeriesLine {
            gpu: Some(RunGpu {
                index: 3,
                device: DeviceId("GPU-0".into()),
            }),
            owner: Some(Owner {
                name: "bob".into(),
                uid: Some(1001),
                kind: OwnerKind::User,
            }),
            job: Some("slurm 1234.0".into()),
            buckets: vec![bucket],
        }],
        more_lines: 5,
    }
}

fn run(end: RunEnd) -> RunRecord {
    RunRecord {
        id: 300,
        from: Timestamp(1),
        until: AT,
        gpus: vec![RunGpu {
            index: 3,
            device: DeviceId("GPU-0".into()),
        }],
        pids: vec![48_213],
        processes: 70_000,
        label: "python train.py".into(),
        command: Reading::Value("python train.py --rank 0".into()),
        name: Some("python".into()),
        uid: Some(1000),
        user: Some("alice".into()),
        owner: Some(Owner {
            name: "bob".into(),
            uid: Some(1001),
            kind: OwnerKind::User,
        }),
        container: Some("web01".into()),
        job: Some("slurm 1234.0".into()),
        used: totals(),
        utilization: Some(Percent(61)),
        end,
    }
}

const fn totals() -> UsageTotals {
    UsageTotals {
        busy_ms: 1,
        idle_ms: 2,
        unknown_ms: 3,
        memory_mib_s: 300,
        memory_max: Some(Bytes(1 << 36)),
        runs: 70_000,
    }
}

pub(super) fn summary() -> AuditSummary {
    let times = UsageTimes {
        busy_ms: 1,
        held_ms: 2,
        free_ms: 3,
        unknown_ms: 300,
    };
    let used = totals();
    AuditSummary {
        since: Timestamp(1),
        until: AT,
        devices: vec![DeviceTime {
            device: DeviceId("GPU-0".into()),
            index: 3,
            name: Some("H100".into()),
            times,
            memory_max: Some(Bytes(1 << 36)),
            memory_max_at: Some(AT),
            hottest: Some(-3),
            energy_j: Some(300),
        }],
        owners: vec![OwnerTime {
            owner: Some(Owner {
                name: "bob".into(),
                uid: Some(1001),
                kind: OwnerKind::User,
            }),
            used,
        }],
        more_owners: 5,
        processes: vec![ProcessTime {
            label: "python train.py".into(),
            used,
        }],
        more_processes: 6,
        hours: vec![times],
        days: vec![times],
        weeks: vec![WeekTime {
            monday: "2026-11-16".into(),
            times,
            top_owner: Some(("bob".into(), 300)),
        }],
        gaps: vec![Gap {
            from: Timestamp(1),
            until: AT,
        }],
    }
}

pub(super) fn actions() -> ActionPage {
    ActionPage {
        records: vec![ActionRecord {
            id: 1 << 40,
            at: AT,
            kind: "kill".into(),
            uid: Some(1000),
            user: Some("alice".into()),
            device: Some(DeviceId("GPU-0".into())),
            what: Some("48213 --scope job".into()),
            times: 300,
            result: Some("partly".into()),
            finished_at: Some(AT),
            why: Some("why".into()),
            plan: Reading::Value("{}".into()),
            outcome: Reading::Withheld,
        }],
        next: Some(ActionCursor { at: AT, id: 300 }),
    }
}

fn contents() -> StoreContents {
    StoreContents {
        samples: 1,
        minutes: 2,
        hours: 3,
        runs: 300,
        actions: 70_000,
        since: Some(Timestamp(1)),
        until: Some(AT),
    }
}

pub(super) fn prune_report() -> PruneReport {
    PruneReport {
        deleted: contents(),
        left: StoreContents::default(),
    }
}

pub(super) fn backup() -> Backup {
    Backup {
        id: COPY,
        bytes: 1 << 36,
    }
}
