//! One connection: the preface, then calls, each answered for its caller.

use super::disconnect::DisconnectStream;
use super::handlers::{ConnectionBackup, OfferedRules, PendingKillPages};
use super::holder_pages::HoldersAnswer;
use super::snapshot_pages::page;
use super::{PREFACE_TIMEOUT, ServerContext};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use gpukill_policy::access::Caller;
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSeries, AuditSummary, Backup,
    CopyId, PruneReport, RunPage, RunQuery, SeriesQuery, TimelinePage, TimelineQuery,
};
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, ReplayReport, ReplayRequest, RulesRevision, RulesText, SnoozedRule, ViolationPage,
    ViolationQuery,
};
use gpukill_proto::holders::{DeviceLabel, Explanation, HoldersPage};
use gpukill_proto::kill::{KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId};
use gpukill_proto::model::{DeviceId, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};
use gpukill_proto::rogue::{RogueEdit, ScanReport};
use gpukill_proto::service::{Gpukill, MAX_WAIT, SnapshotPage};
use gpukill_proto::status::DaemonStatus;
use gpukill_proto::transport::{MAX_DEADLINE, MAX_REQUEST, codec, preface};
use gpukill_proto::units::Timestamp;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tarpc::context::Context;
use tarpc::server::{BaseChannel, Channel as _, Config};
use tokio::net::UnixStream;
use tokio_io_timeout::TimeoutStream;

/// An idle connection is closed after this time: longer than any call may take, during which a
/// client sends nothing. A copy of a large store, or the deletion of half of it, takes more than a
/// minute, and a replay of a month longer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(630);

const _: () = assert!(IDLE_TIMEOUT.as_secs() > MAX_DEADLINE.as_secs());

/// A client that does not read its answer for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// At most this many calls of one connection run at once; tarpc refuses more.
const MAX_CONCURRENT_CALLS: usize = 2;

/// Serves one connection to its end.
pub(super) async fn run(mut stream: UnixStream, caller: Caller, shared: ServerContext) {
    let exchanged = tokio::time::timeout(PREFACE_TIMEOUT, exchange_prefaces(&mut stream)).await;
    if !matches!(exchanged, Ok(Ok(true))) {
        return;
    }
    let (stream, gone) = DisconnectStream::new(stream);
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(IDLE_TIMEOUT));
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let transport = codec::server_transport(Box::pin(stream));
    let session = Session {
        caller: Arc::new(caller),
        shared,
        pending_snapshot: Arc::default(),
        pending_holders: Arc::default(),
        pending_kill: PendingKillPages::default(),
        backup: ConnectionBackup::default(),
        offered_rules: OfferedRules::default(),
    };
    let channel = BaseChannel::new(
        Config {
            pending_response_buffer: 1,
        },
        transport,
    );
    let mut calls = std::pin::pin!(
        channel
            .max_concurrent_requests(MAX_CONCURRENT_CALLS)
            .execute(session.serve())
    );
    let mut answering = FuturesUnordered::new();
    loop {
        tokio::select! {
            call = calls.next() => match call {
                Some(call) => answering.push(call),
                None => return,
            },
            Some(()) = answering.next(), if !answering.is_empty() => {}
            // No caller waits for the answers any more: the slot is freed.
            () = gone.notified() => return,
        }
    }
}

/// Exchanges prefaces; the daemon sends first. Returns false if the client has another version: it
/// has read ours and knows what to report.
async fn exchange_prefaces(stream: &mut UnixStream) -> io::Result<bool> {
    preface::Preface::new(preface::PrefaceStatus::Welcome, MAX_REQUEST)
        .send(stream)
        .await?;
    let received = preface::Preface::receive(stream).await?;
    Ok(received.version.major == PROTOCOL_VERSION.major)
}

/// One connection and its caller. Clones share it.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) caller: Arc<Caller>,
    pub(super) shared: ServerContext,
    /// The snapshot that this connection may read more pages of.
    pending_snapshot: Arc<Mutex<Option<Arc<Snapshot>>>>,
    /// The list of holders that it may read more pages of.
    pub(super) pending_holders: Arc<Mutex<Option<Arc<HoldersAnswer>>>>,
    pub(super) pending_kill: PendingKillPages,
    pub(super) backup: ConnectionBackup,
    pub(super) offered_rules: OfferedRules,
}

impl Gpukill for Session {
    async fn snapshot(self, _: Context, after: Option<u64>) -> Result<SnapshotPage, Refusal> {
        self.answer(async {
            let mut state = self.shared.state.clone();
            if let Some(after) = after {
                let newer = state.wait_for(|published| published.snapshot.polls > after);
                // On a timeout, or when the daemon stops, the current snapshot is the answer.
                let _ = tokio::time::timeout(MAX_WAIT, newer).await;
            }
            let snapshot = Arc::clone(&state.borrow().snapshot);
            let mut page = page(&snapshot, 0, &self.caller, &self.shared.roles());
            page.guard = self.guard_brief(&snapshot);
            page.verdicts = self.suspected_processes(&snapshot);
            // Kept only while there are more pages.
            self.keep_snapshot(page.next.map(|_| snapshot));
            Ok(page)
        })
        .await
    }

    async fn more_processes(
        self,
        _: Context,
        polls: u64,
        start: u32,
    ) -> Result<SnapshotPage, Refusal> {
        self.answer(async { self.next_snapshot_page(polls, start) })
            .await
    }

    async fn status(self, _: Context) -> Result<DaemonStatus, Refusal> {
        self.answer(async { Ok(self.status_report().await) }).await
    }

    async fn audit(self, _: Context, query: AuditQuery) -> Result<AuditPage, Refusal> {
        self.answer(self.audit_page(query)).await
    }

    async fn quiesce(self, _: Context, seconds: u64) -> Result<Timestamp, Refusal> {
        self.answer(self.quiesce_driver(seconds)).await
    }

    async fn resume(self, _: Context) -> Result<(), Refusal> {
        self.answer(self.resume_driver()).await
    }

    async fn forget_gpus(self, _: Context, gpu: String) -> Result<Vec<DeviceLabel>, Refusal> {
        self.answer(self.forget_devices(&gpu)).await
    }

    async fn holders(
        self,
        _: Context,
        device: Option<DeviceId>,
        start: u32,
    ) -> Result<HoldersPage, Refusal> {
        self.answer(self.holders_page(device.as_ref(), start)).await
    }

    async fn explain(self, _: Context, pid: u32) -> Result<Explanation, Refusal> {
        self.answer(self.explanation(pid)).await
    }

    async fn plan_kill(self, _: Context, request: KillRequest) -> Result<KillPlanPage, Refusal> {
        self.answer(self.kill_plan(request)).await
    }

    async fn more_of_kill_plan(
        self,
        _: Context,
        plan: PlanId,
        start: u32,
    ) -> Result<KillPlanPage, Refusal> {
        self.answer(self.kill_plan_page(plan, start)).await
    }

    async fn kill(self, _: Context, plan: PlanId) -> Result<OperationId, Refusal> {
        self.answer(self.start_kill(plan)).await
    }

    async fn follow_kill(
        self,
        _: Context,
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal> {
        self.answer(self.kill_report_page(operation, after, start))
            .await
    }

    async fn plan_reset(
        self,
        _: Context,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        self.answer(self.reset_plan(request)).await
    }

    async fn reset(self, _: Context, plan: PlanId) -> Result<OperationId, Refusal> {
        self.answer(self.start_reset(plan)).await
    }

    async fn follow_reset(
        self,
        _: Context,
        operation: OperationId,
        after: Option<u64>,
    ) -> Result<ResetReport, Refusal> {
        self.answer(self.reset_report(operation, after)).await
    }

    async fn audit_summary(self, _: Context, filter: AuditFilter) -> Result<AuditSummary, Refusal> {
        self.answer(self.summary(filter)).await
    }

    async fn audit_actions(self, _: Context, query: ActionQuery) -> Result<ActionPage, Refusal> {
        self.answer(self.actions(query)).await
    }

    async fn timeline(self, _: Context, query: TimelineQuery) -> Result<TimelinePage, Refusal> {
        self.answer(self.timeline_page(query)).await
    }

    async fn prune(
        self,
        _: Context,
        before: Timestamp,
        is_dry_run: bool,
    ) -> Result<PruneReport, Refusal> {
        self.answer(self.prune_store(before, is_dry_run)).await
    }

    async fn backup(self, _: Context) -> Result<Backup, Refusal> {
        self.answer(self.make_backup()).await
    }

    async fn part_of_backup(
        self,
        _: Context,
        copy: CopyId,
        offset: u64,
    ) -> Result<Vec<u8>, Refusal> {
        self.answer(self.read_backup_part(copy, offset)).await
    }

    async fn violations(self, _: Context, query: ViolationQuery) -> Result<ViolationPage, Refusal> {
        self.answer(self.violations_page(query)).await
    }

    async fn rules_text(self, _: Context, offset: u64) -> Result<RulesText, Refusal> {
        self.answer(self.rules_part(offset)).await
    }

    async fn offer_rules(self, _: Context, offset: u64, part: Vec<u8>) -> Result<(), Refusal> {
        self.answer(async { self.offered_rules.append(offset, &part) })
            .await
    }

    async fn snooze(
        self,
        _: Context,
        pid: u32,
        is_dry_run: bool,
    ) -> Result<Vec<SnoozedRule>, Refusal> {
        self.answer(self.snooze_process(pid, is_dry_run)).await
    }

    async fn edit_rules(
        self,
        _: Context,
        edit: Option<GuardEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        self.answer(self.change_rules(edit, expected, is_dry_run))
            .await
    }

    async fn scan(self, _: Context, hours: u32) -> Result<ScanReport, Refusal> {
        self.answer(self.scan_past(hours)).await
    }

    async fn rogue_text(self, _: Context, offset: u64) -> Result<RulesText, Refusal> {
        self.answer(self.rogue_rules_part(offset)).await
    }

    async fn edit_rogue(
        self,
        _: Context,
        edit: Option<RogueEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        self.answer(self.change_rogue_rules(edit, expected, is_dry_run))
            .await
    }

    async fn audit_runs(self, _: Context, query: RunQuery) -> Result<RunPage, Refusal> {
        self.answer(self.run_page(query)).await
    }

    async fn audit_series(self, _: Context, query: SeriesQuery) -> Result<AuditSeries, Refusal> {
        self.answer(self.series(query)).await
    }

    async fn replay_rules(
        self,
        _: Context,
        request: ReplayRequest,
    ) -> Result<ReplayReport, Refusal> {
        self.answer(self.replay(request)).await
    }
}

impl Session {
    /// Answers a call, and counts a refusal. Turns a panic of the call into an error: tarpc would
    /// leave the client waiting.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let answer = AssertUnwindSafe(call).catch_unwind().await;
        let answer = answer.unwrap_or_else(|_| {
            tracing::error!("a call panicked");
            Err(Refusal::Internal)
        });
        if let Err(refusal) = &answer {
            self.shared.store.counters().count_refusal(refusal);
        }
        answer
    }

    /// Returns more processes of the last snapshot of this connection.
    fn next_snapshot_page(&self, polls: u64, start: u32) -> Result<SnapshotPage, Refusal> {
        let kept = self
            .pending_snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let snapshot = kept
            .filter(|snapshot| snapshot.polls == polls)
            .ok_or(Refusal::Expired)?;
        let roles = self.shared.roles();
        Ok(page(&snapshot, start as usize, &self.caller, &roles))
    }

    fn keep_snapshot(&self, snapshot: Option<Arc<Snapshot>>) {
        *self
            .pending_snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}
