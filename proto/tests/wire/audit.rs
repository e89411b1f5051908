//! Questions to the history, and its answers.

use gpukill_proto::audit::{
    ActionPage, ActionPlace, ActionQuery, ActionRecord, AuditFilter, AuditSummary, Backup,
    Contents, CopyId, DeviceTime, Gap, OwnerTime, ProcessTime, PruneReport, Times, UsedBy,
    WeekTime,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, Owner, OwnerKind};
use gpukill_proto::units::{Bytes, Timestamp};

pub(super) const COPY: CopyId = CopyId(300);

const AT: Timestamp = Timestamp(1_763_700_000_000);

pub(super) fn filter() -> AuditFilter {
    AuditFilter {
        since: Timestamp(-1),
        until: AT,
        user: Some("alice".into()),
        process: Some("^python".into()),
        gpu: Some("0,2-5".into()),
        container: Some("web01".into()),
        job: Some("slurm 1234.0".into()),
    }
}

pub(super) fn action_query() -> ActionQuery {
    ActionQuery {
        since: Timestamp(-1),
        until: AT,
        user: Some("alice".into()),
        kind: Some("kill".into()),
        gpu: Some("0".into()),
        before: Some(ActionPlace { at: AT, id: 300 }),
        limit: 1000,
    }
}

pub(super) fn summary() -> AuditSummary {
    let times = Times {
        busy_ms: 1,
        held_ms: 2,
        free_ms: 3,
        unknown_ms: 300,
    };
    let used = UsedBy {
        busy_ms: 1,
        idle_ms: 2,
        unknown_ms: 3,
        memory_mib_s: 300,
        memory_most: Some(Bytes(1 << 36)),
        runs: 70_000,
    };
    AuditSummary {
        since: Timestamp(1),
        until: AT,
        devices: vec![DeviceTime {
            device: DeviceId("GPU-0".into()),
            index: 3,
            name: Some("H100".into()),
            times,
            memory_most: Some(Bytes(1 << 36)),
            memory_most_at: Some(AT),
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
            most: Some(("bob".into(), 300)),
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
            word: Some("partly".into()),
            finished_at: Some(AT),
            why: Some("why".into()),
            plan: Reading::Value("{}".into()),
            outcome: Reading::Withheld,
        }],
        next: Some(ActionPlace { at: AT, id: 300 }),
    }
}

fn contents() -> Contents {
    Contents {
        samples: 1,
        minutes: 2,
        hours: 3,
        runs: 300,
        actions: 70_000,
        since: Some(Timestamp(1)),
        until: Some(AT),
    }
}

pub(super) fn pruned() -> PruneReport {
    PruneReport {
        deleted: contents(),
        left: Contents::default(),
    }
}

pub(super) fn backup() -> Backup {
    Backup {
        id: COPY,
        bytes: 1 << 36,
    }
}
