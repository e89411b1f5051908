//! A fake daemon: the real protocol over a real socket, with answers that a test
//! specifies.

use crate::fake_audit;
use crate::fake_guard;
use crate::fake_holders;
use crate::fake_reset::FakeResets;
use crate::fake_rogue;
pub(crate) use crate::fake_server::FakeDaemon;
use crate::fake_snapshot::{device, process};
use crate::fake_store::FakeStore;
pub(crate) use crate::script::{NOW, Script, backend, take_one};
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSeries, AuditSummary, Backup,
    CopyId, PruneReport, RunPage, RunQuery, SeriesQuery, TimelinePage, TimelineQuery,
};
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, GuardSummary, ReplayReport, ReplayRequest, RulesRevision, RulesText, SnoozedRule,
    ViolationPage, ViolationQuery,
};
use gpukill_proto::holders::{DeviceLabel, Explanation, HoldersPage};
use gpukill_proto::kill::{KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId};
use gpukill_proto::model::{DeviceId, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};
use gpukill_proto::rogue::{RogueEdit, RogueReport, ScanReport};
use gpukill_proto::service::{Gpukill, SnapshotPage};
use gpukill_proto::status::{
    CallerReport, CountersReport, DaemonStatus, PollingReport, Right, StoreReport,
};
use gpukill_proto::units::{Bytes, Timestamp};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tarpc::context::Context;
use tokio::sync::Notify;

/// The session of one connection, and how to end it.
#[derive(Clone)]
pub(crate) struct Session(pub(crate) Arc<Script>, pub(crate) Arc<Notify>);

/// Processes in a page.
const PAGE: u32 = 2;

impl Session {
    fn page(&self, start: u32) -> SnapshotPage {
        let script = &self.0;
        let all = script.processes.load(SeqCst);
        let end = all.min(start + PAGE);
        let devices = if script.has_devices {
            vec![device()]
        } else {
            vec![]
        };
        let snapshot = Snapshot {
            host: "box".into(),
            taken_at: NOW,
            polls: script.polls.load(SeqCst),
            devices,
            processes: (start..end).map(process).collect(),
            backends: script.backends.lock().expect("not poisoned").clone(),
            faults: vec![],
        };
        SnapshotPage {
            snapshot,
            next: (end < all).then_some(end),
            guard: GuardSummary::default(),
            // The first page has the marks of the whole snapshot.
            verdicts: match script.marks_a_rogue && start == 0 {
                true => fake_rogue::marked_processes(),
                false => Vec::new(),
            },
        }
    }
}

impl Session {
    /// The store that the test has chosen.
    fn store(&self) -> Option<FakeStore> {
        self.0.store.lock().expect("not poisoned").clone()
    }

    fn may_quiesce(&self) -> Result<(), Refusal> {
        if self.0.caller_is_operator {
            return Ok(());
        }
        Err(Refusal::Denied {
            asked: "release the driver".into(),
            ask: "someone in group gpukill-operators".into(),
        })
    }
}

impl Gpukill for Session {
    async fn snapshot(self, _: Context, after: Option<u64>) -> Result<SnapshotPage, Refusal> {
        if take_one(&self.0.busy_calls) {
            return Err(Refusal::Busy);
        }
        while after.is_some_and(|after| self.0.polls.load(SeqCst) <= after) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(self.page(0))
    }

    async fn more_processes(self, _: Context, _: u64, start: u32) -> Result<SnapshotPage, Refusal> {
        if take_one(&self.0.expired_pages) {
            return Err(Refusal::Expired);
        }
        Ok(self.page(start))
    }

    async fn status(self, _: Context) -> Result<DaemonStatus, Refusal> {
        let store = self.store();
        Ok(DaemonStatus {
            version: self.0.release.into(),
            protocol: PROTOCOL_VERSION,
            host: store.as_ref().map_or("box", |store| store.host).into(),
            started_at: NOW,
            now: store.as_ref().map_or(NOW, |store| store.now),
            caller: CallerReport {
                uid: 1000,
                user: Reading::Value("alice".into()),
                rights: vec![Right::Look],
                log_in_again_for: self.0.new_group.map(str::to_owned),
            },
            personal: false,
            will_not_act: None,
            backends: self.0.backends.lock().expect("not poisoned").clone(),
            faults: vec![],
            alerts: vec![],
            polling: PollingReport {
                interval_ms: 2000,
                set_interval_ms: 2000,
                last_at: None,
                polls: 0,
                late: 0,
            },
            store: StoreReport {
                directory: "/var/lib/gpukill".into(),
                samples: Bytes(0),
                audit: Bytes(0),
                // After every time range, so that each starts before.
                recorded_since: match &store {
                    Some(store) => store.actions.iter().map(|action| action.at).min(),
                    None => Some(Timestamp(4_102_444_800_000)),
                },
                written_at: store.and_then(|store| store.written_at),
                written: 0,
                dropped: 0,
            },
            guard: fake_guard::guard_report(),
            rogue: RogueReport::default(),
            settings: vec![],
            counters: CountersReport::default(),
        })
    }

    async fn quiesce(self, _: Context, seconds: u64) -> Result<Timestamp, Refusal> {
        self.may_quiesce()?;
        tokio::time::sleep(self.0.letting_go).await;
        let seconds = i64::try_from(seconds).expect("at most a day");
        let until = Timestamp::from(std::time::SystemTime::now()).plus_seconds(seconds);
        *self.0.quiesced.lock().expect("not poisoned") = Some(until);
        Ok(until)
    }

    async fn holders(
        self,
        _: Context,
        device: Option<DeviceId>,
        start: u32,
    ) -> Result<HoldersPage, Refusal> {
        if take_one(&self.0.busy_calls) {
            return Err(Refusal::Busy);
        }
        if start > 0 && take_one(&self.0.expired_pages) {
            return Err(Refusal::Expired);
        }
        Ok(fake_holders::page(
            &self.0.held.lock().expect("not poisoned"),
            device.as_ref(),
            start,
        ))
    }

    async fn explain(self, _: Context, pid: u32) -> Result<Explanation, Refusal> {
        let held = self.0.held.lock().expect("not poisoned");
        fake_holders::explanation(&held, pid)
            .ok_or_else(|| Refusal::NoMatch(format!("no process {pid} uses a GPU or has one open")))
    }

    async fn forget_gpus(self, _: Context, _: String) -> Result<Vec<DeviceLabel>, Refusal> {
        Err(Refusal::Invalid("not played".into()))
    }

    async fn resume(self, _: Context) -> Result<(), Refusal> {
        self.may_quiesce()?;
        *self.0.quiesced.lock().expect("not poisoned") = None;
        Ok(())
    }

    async fn audit(self, _: Context, query: AuditQuery) -> Result<AuditPage, Refusal> {
        let Some(store) = self.store() else {
            return Ok(fake_audit::records(&query));
        };
        tokio::time::sleep(store.page_time).await;
        if query.before.is_some() {
            let mut store = self.0.store.lock().expect("not poisoned");
            store.as_mut().expect("it has one").delete_next();
        }
        Ok(self.store().expect("it has one").records(&query))
    }

    async fn plan_kill(self, _: Context, request: KillRequest) -> Result<KillPlanPage, Refusal> {
        self.0.killed.plan(request)
    }

    async fn more_of_kill_plan(
        self,
        _: Context,
        plan: PlanId,
        start: u32,
    ) -> Result<KillPlanPage, Refusal> {
        self.0.killed.more_of_plan(plan, start)
    }

    async fn kill(self, _: Context, plan: PlanId) -> Result<OperationId, Refusal> {
        let result = self.0.killed.begin(plan);
        if take_one(&self.0.killed.hang_ups_at_begin) {
            self.1.notify_one();
            std::future::pending::<()>().await;
        }
        result
    }

    async fn follow_kill(
        self,
        _: Context,
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal> {
        if take_one(&self.0.killed.hang_ups) {
            self.1.notify_one();
            std::future::pending::<()>().await;
        }
        self.0.killed.report(operation, after, start).await
    }

    async fn plan_reset(
        self,
        _: Context,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        Ok(FakeResets::plan(request))
    }

    async fn reset(self, _: Context, plan: PlanId) -> Result<OperationId, Refusal> {
        Ok(self.0.resets.begin(plan))
    }

    async fn follow_reset(
        self,
        _: Context,
        operation: OperationId,
        after: Option<u64>,
    ) -> Result<ResetReport, Refusal> {
        if self.0.resets.hangs_up() {
            self.1.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(self.0.resets.report(operation, after).await)
    }

    async fn audit_summary(self, _: Context, filter: AuditFilter) -> Result<AuditSummary, Refusal> {
        Ok(fake_audit::summary(&filter))
    }

    async fn audit_actions(self, _: Context, query: ActionQuery) -> Result<ActionPage, Refusal> {
        Ok(match self.store() {
            Some(store) => store.actions(&query),
            None => fake_audit::actions(&query),
        })
    }

    async fn timeline(self, _: Context, query: TimelineQuery) -> Result<TimelinePage, Refusal> {
        Ok(fake_audit::timeline(&query))
    }

    async fn prune(
        self,
        _: Context,
        before: Timestamp,
        is_dry_run: bool,
    ) -> Result<PruneReport, Refusal> {
        let mut store = self.0.store.lock().expect("not poisoned");
        let store = store.as_mut().ok_or(Refusal::Internal)?;
        Ok(store.prune(before, is_dry_run))
    }

    async fn backup(self, _: Context) -> Result<Backup, Refusal> {
        Err(Refusal::Internal)
    }

    async fn part_of_backup(self, _: Context, _: CopyId, _: u64) -> Result<Vec<u8>, Refusal> {
        Err(Refusal::Internal)
    }

    async fn violations(self, _: Context, query: ViolationQuery) -> Result<ViolationPage, Refusal> {
        Ok(fake_guard::page(&query))
    }

    async fn rules_text(self, _: Context, _: u64) -> Result<RulesText, Refusal> {
        Err(Refusal::Internal)
    }

    async fn offer_rules(self, _: Context, _: u64, _: Vec<u8>) -> Result<(), Refusal> {
        Err(Refusal::Internal)
    }

    async fn edit_rules(
        self,
        _: Context,
        _: Option<GuardEdit>,
        _: Option<RulesRevision>,
        _: bool,
    ) -> Result<EditReport, Refusal> {
        Err(Refusal::Internal)
    }

    async fn replay_rules(self, _: Context, _: ReplayRequest) -> Result<ReplayReport, Refusal> {
        Err(Refusal::Internal)
    }

    async fn scan(self, _: Context, hours: u32) -> Result<ScanReport, Refusal> {
        Ok(fake_rogue::scan(hours))
    }

    async fn rogue_text(self, _: Context, _: u64) -> Result<RulesText, Refusal> {
        Err(Refusal::Internal)
    }

    async fn edit_rogue(
        self,
        _: Context,
        _: Option<RogueEdit>,
        _: Option<RulesRevision>,
        _: bool,
    ) -> Result<EditReport, Refusal> {
        Err(Refusal::Internal)
    }

    async fn audit_runs(self, _: Context, query: RunQuery) -> Result<RunPage, Refusal> {
        match self.store() {
            Some(store) if store.slow_runs.contains(&query.filter.since) => {
                Err(Refusal::TooSlow("reading this many runs".into()))
            }
            Some(store) => Ok(store.runs(&query)),
            None => Ok(fake_audit::runs(&query)),
        }
    }

    async fn audit_series(self, _: Context, query: SeriesQuery) -> Result<AuditSeries, Refusal> {
        Ok(fake_audit::series(&query))
    }

    async fn snooze(self, _: Context, _: u32, _: bool) -> Result<Vec<SnoozedRule>, Refusal> {
        Err(Refusal::Internal)
    }
}
