//! A store of the fake daemon, for `audit archive`: records and actions that a test chooses.

use gpukill_proto::audit::{
    ActionCursor, ActionPage, ActionQuery, ActionRecord, AuditPage, AuditQuery, AuditRecord,
    AuditSubject, PruneReport, RunEnd, RunExtent, RunGpu, RunPage, RunQuery, RunRecord, RunUnit,
    StoreContents, UsageTotals,
};
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};
use std::time::Duration;

/// A command line that must not be archived unless it is asked for.
pub(crate) const SECRET: &str = "python --token=secret";

/// What is stored, in the order in which it was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeStore {
    pub(crate) host: &'static str,
    pub(crate) records: Vec<AuditRecord>,
    pub(crate) actions: Vec<ActionRecord>,
    pub(crate) written_at: Option<Timestamp>,
    pub(crate) now: Timestamp,
    /// How long a page takes.
    pub(crate) page_time: Duration,
    /// The prunes that were done.
    pub(crate) pruned: Vec<Timestamp>,
    /// Before each page of records but the first, records from before the last of these times are
    /// deleted.
    pub(crate) deletions: Vec<Timestamp>,
    /// The starts of the periods in which no runs can be read in time.
    pub(crate) slow_runs: Vec<Timestamp>,
}

/// Records in a page of this daemon.
const PAGE: usize = 50;

impl FakeStore {
    /// Adds a sample: a record of the device, and one of each process.
    pub(crate) fn sample(&mut self, at: Timestamp, processes: u32) {
        for process in 0..=processes {
            let id = self.records.len() as u64 + 1;
            let subject = match process.checked_sub(1) {
                None => AuditSubject::Device {
                    temperature: Reading::Value(Celsius(71)),
                    power: Reading::Value(Milliwatts(688_125)),
                },
                Some(number) => process_subject(100 + number),
            };
            self.records.push(AuditRecord {
                id,
                at,
                covers_ms: 10_000,
                device: DeviceId("GPU-8f3c0000".into()),
                gpu_index: 0,
                gpu_name: Some("NVIDIA H100 80GB HBM3".into()),
                memory: Reading::Value(Bytes::mib(id % 1024)),
                utilization: Reading::Value(Percent(9)),
                subject,
            });
        }
    }

    /// Adds a kill.
    pub(crate) fn action(&mut self, at: Timestamp) {
        let plan = serde_json::json!({"targets": [{"pid": 1, "command": SECRET}]});
        self.actions.push(ActionRecord {
            id: self.actions.len() as u64 + 1,
            at,
            kind: "kill".into(),
            uid: Some(1000),
            user: Some("alice".into()),
            device: None,
            what: Some("1".into()),
            times: 1,
            result: Some("done".into()),
            finished_at: Some(at.plus_seconds(1)),
            why: None,
            plan: Reading::Value(plan.to_string()),
            outcome: Reading::Unsupported,
        });
    }

    pub(crate) fn records(&self, query: &AuditQuery) -> AuditPage {
        let (since, until) = (query.filter.since, query.filter.until);
        let found = self.records.iter().rev().filter(|record| {
            let is_before = query.before.is_none_or(|before| record.id < before);
            is_before && record.at >= since && record.at < until
        });
        let mut found = found.peekable();
        let limit = PAGE.min(query.limit as usize);
        let records: Vec<AuditRecord> = found.by_ref().take(limit).cloned().collect();
        let next = found.peek().and(records.last()).map(|last| last.id);
        let is_within = |record: &&AuditRecord| record.at >= since && record.at < until;
        let first = self.records.iter().find(is_within);
        AuditPage {
            records,
            next,
            first_rows: first.map(|first| first.id).into_iter().collect(),
        }
    }

    /// Deletes old records, as the daemon does.
    pub(crate) fn delete_next(&mut self) {
        if let Some(before) = self.deletions.pop() {
            self.records.retain(|record| record.at >= before);
        }
    }

    /// The part of the only run within the period: alice's processes.
    pub(crate) fn runs(&self, query: &RunQuery) -> RunPage {
        assert_eq!(query.extent, RunExtent::WithinPeriod);
        assert_eq!(query.unit, RunUnit::Job);
        let (since, until) = (query.filter.since, query.filter.until);
        let held = self.records.iter().filter_map(|record| {
            let is_within = record.at >= since && record.at < until;
            match &record.subject {
                AuditSubject::Process { held_ms, .. } if is_within => Some((record.at, *held_ms)),
                AuditSubject::Process { .. } | AuditSubject::Device { .. } => None,
            }
        });
        let held: Vec<(Timestamp, u64)> = held.collect();
        let runs = held.first().map(|(from, _)| RunRecord {
            id: 7,
            from: *from,
            until,
            gpus: vec![RunGpu {
                index: 0,
                device: DeviceId("GPU-8f3c0000".into()),
            }],
            pids: vec![100, 101],
            processes: 2,
            label: "python secret.py".into(),
            command: Reading::Value(SECRET.into()),
            name: Some("python".into()),
            uid: Some(1000),
            user: Some("alice".into()),
            owner: None,
            container: None,
            job: Some("slurm 7".into()),
            used: UsageTotals {
                busy_ms: held.iter().map(|(_, held_ms)| held_ms).sum(),
                ..UsageTotals::default()
            },
            utilization: None,
            end: RunEnd::Running,
        });
        RunPage {
            runs: runs.into_iter().collect(),
            next: None,
            gaps: Vec::new(),
            recorded_since: self.records.first().map(|record| record.at),
        }
    }

    pub(crate) fn actions(&self, query: &ActionQuery) -> ActionPage {
        let cursor = |action: &ActionRecord| ActionCursor {
            at: action.at,
            id: action.id,
        };
        let found = self.actions.iter().rev().filter(|action| {
            let is_before = query.before.is_none_or(|before| cursor(action) < before);
            is_before && action.at >= query.since && action.at < query.until
        });
        let mut found = found.peekable();
        let limit = PAGE.min(query.limit as usize);
        let records: Vec<ActionRecord> = found.by_ref().take(limit).cloned().collect();
        let next = found.peek().and(records.last()).map(cursor);
        ActionPage { records, next }
    }

    pub(crate) fn prune(&mut self, before: Timestamp, is_dry_run: bool) -> PruneReport {
        let count = |is_deleted: bool| StoreContents {
            samples: self
                .records
                .iter()
                .filter(|record| (record.at < before) == is_deleted)
                .count() as u64,
            ..StoreContents::default()
        };
        let report = PruneReport {
            deleted: count(true),
            left: count(false),
        };
        if !is_dry_run {
            self.records.retain(|record| record.at >= before);
            self.pruned.push(before);
        }
        report
    }
}

fn process_subject(pid: u32) -> AuditSubject {
    AuditSubject::Process {
        pid,
        instance: None,
        uid: Some(1000),
        user: Some("alice".into()),
        owner: None,
        namespace_owner: None,
        name: Some("python".into()),
        command: Reading::Value(SECRET.into()),
        container: None,
        job: None,
        held_ms: 10_000,
        connections: Reading::Unsupported,
    }
}
