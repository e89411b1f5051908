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
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// The calls of the service, each with the future of its answer.
macro_rules! calls {
    (
        $session:ident;
        $($call:ident($($argument:ident: $type:ty),*) -> $answer:ty = $future:expr;)*
    ) => {
        impl Gpukill for Session {
            $(
                async fn $call(self, _: Context $(, $argument: $type)*) -> Result<$answer, Refusal> {
                    let $session = &self;
                    $session.answer($future).await
                }
            )*
        }
    };
}

calls! { session;
    snapshot(after: Option<u64>) -> SnapshotPage = session.first_snapshot_page(after);
    more_processes(polls: u64, start: u32) -> SnapshotPage =
        async { session.next_snapshot_page(polls, start) };
    status() -> DaemonStatus = async { Ok(session.status_report().await) };
    audit(query: AuditQuery) -> AuditPage = session.audit_page(query);
    quiesce(seconds: u64) -> Timestamp = session.quiesce_driver(seconds);
    resume() -> () = session.resume_driver();
    forget_gpus(gpu: String) -> Vec<DeviceLabel> = session.forget_devices(&gpu);
    holders(device: Option<DeviceId>, start: u32) -> HoldersPage =
        session.holders_page(device.as_ref(), start);
    explain(pid: u32) -> Explanation = session.explanation(pid);
    plan_kill(request: KillRequest) -> KillPlanPage = session.kill_plan(request);
    more_of_kill_plan(plan: PlanId, start: u32) -> KillPlanPage =
        session.kill_plan_page(plan, start);
    kill(plan: PlanId) -> OperationId =
        async { session.shared.enforcer.execute(&session.caller, plan) };
    follow_kill(operation: OperationId, after: Option<u64>, start: u32) -> KillReportPage =
        session.kill_report_page(operation, after, start);
    plan_reset(request: ResetRequest) -> (Option<PlanId>, ResetPlan) = session.reset_plan(request);
    reset(plan: PlanId) -> OperationId = session.shared.resetter.execute(&session.caller, plan);
    follow_reset(operation: OperationId, after: Option<u64>) -> ResetReport =
        session.reset_report(operation, after);
    audit_summary(filter: AuditFilter) -> AuditSummary = session.summary(filter);
    audit_actions(query: ActionQuery) -> ActionPage = session.actions(query);
    prune(before: Timestamp, is_dry_run: bool) -> PruneReport =
        session.prune_store(before, is_dry_run);
    backup() -> Backup = session.make_backup();
    part_of_backup(copy: CopyId, offset: u64) -> Vec<u8> = session.read_backup_part(copy, offset);
    violations(query: ViolationQuery) -> ViolationPage = session.violations_page(query);
    rules_text(offset: u64) -> RulesText = session.rules_part(&session.shared.guard.store, offset);
    offer_rules(offset: u64, part: Vec<u8>) -> () =
        async { session.offered_rules.append(offset, &part) };
    edit_rules(edit: Option<GuardEdit>, expected: Option<RulesRevision>, is_dry_run: bool)
        -> EditReport = session.change_rules(edit, expected, is_dry_run);
    replay_rules(request: ReplayRequest) -> ReplayReport = session.replay(request);
    snooze(pid: u32, is_dry_run: bool) -> Vec<SnoozedRule> = session.snooze_process(pid, is_dry_run);
    scan(hours: u32) -> ScanReport = session.scan_past(hours);
    rogue_text(offset: u64) -> RulesText =
        session.rules_part(&session.shared.rogue.store, offset);
    edit_rogue(edit: Option<RogueEdit>, expected: Option<RulesRevision>, is_dry_run: bool)
        -> EditReport = session.change_rogue_rules(edit, expected, is_dry_run);
    audit_runs(query: RunQuery) -> RunPage = session.run_page(query);
    audit_series(query: SeriesQuery) -> AuditSeries = session.series(query);
    timeline(query: TimelineQuery) -> TimelinePage = session.timeline_page(query);
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

    /// Returns the first page of the newest snapshot, or of the first one with more polls than
    /// `after`.
    async fn first_snapshot_page(&self, after: Option<u64>) -> Result<SnapshotPage, Refusal> {
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
        let kept = page.next.map(|_| snapshot);
        *lock(&self.pending_snapshot) = kept;
        Ok(page)
    }

    /// Returns more processes of the last snapshot of this connection.
    fn next_snapshot_page(&self, polls: u64, start: u32) -> Result<SnapshotPage, Refusal> {
        let kept = lock(&self.pending_snapshot).clone();
        let snapshot = kept.filter(|snapshot| snapshot.polls == polls);
        let (snapshot, roles) = (snapshot.ok_or(Refusal::Expired)?, self.shared.roles());
        Ok(page(&snapshot, start as usize, &self.caller, &roles))
    }
}

/// Locks what a connection keeps. Only values are stored under these locks, so that nothing panics.
pub(super) fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
