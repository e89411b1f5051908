//! One connection: preface, then calls, each answered for this caller.

mod acting;

mod auditing;

mod copying;

mod guarding;

mod looking;

mod past;

mod suspecting;

mod forgetting;

mod quiescing;

mod resetting;

mod rogues;

mod standing;

use super::holder_pages::Answer;
use super::snapshot_pages::page;
use super::watched::Watched;
use super::{PREFACE_PATIENCE, Shared};
use crate::audit::Event as Recorded;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use gpukill_policy::access::{Caller, Operation, Ruling, check};
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSummary, Backup, CopyId,
    PruneReport,
};
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, ReplayReport, ReplayRequest, RulesRevision, RulesText, Snoozed, ViolationPage,
    ViolationQuery,
};
use gpukill_proto::holders::{DeviceLabel, Explanation, HoldersPage};
use gpukill_proto::kill::{KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};
use gpukill_proto::rogue::{RogueEdit, ScanReport};
use gpukill_proto::service::{Gpukill, LONGEST_WAIT, SnapshotPage};
use gpukill_proto::snapshot::{DeviceId, Snapshot};
use gpukill_proto::status::Status;
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

/// A connection on which nothing is asked for so long is closed: longer than any
/// call may take, during which a client says nothing. A copy of a large store, or
/// deleting half of it, takes more than a minute, and trying rules on a month longer.
const IDLE: Duration = Duration::from_secs(630);

const _: () = assert!(IDLE.as_secs() > MAX_DEADLINE.as_secs());

/// A client that does not read its answer for so long is dropped.
const SLOW_READER: Duration = Duration::from_secs(10);

/// So many calls of one connection may run at once; more are refused by tarpc.
const CALLS: usize = 2;

/// Serves one connection to its end.
pub(super) async fn run(mut stream: UnixStream, caller: Caller, shared: Shared) {
    let greeted = tokio::time::timeout(PREFACE_PATIENCE, greet(&mut stream)).await;
    if !matches!(greeted, Ok(Ok(true))) {
        return;
    }
    let (stream, gone) = Watched::new(stream);
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(IDLE));
    stream.set_write_timeout(Some(SLOW_READER));
    let transport = codec::server(Box::pin(stream));
    let session = Session {
        caller: Arc::new(caller),
        shared,
        asked_last: Arc::default(),
        holders_asked_last: Arc::default(),
        acts_asked_last: acting::Asked::default(),
        copies: copying::Copies::default(),
        offered: guarding::Offered::default(),
    };
    let channel = BaseChannel::new(
        Config {
            pending_response_buffer: 1,
        },
        transport,
    );
    let mut calls = std::pin::pin!(
        channel
            .max_concurrent_requests(CALLS)
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
            // Nobody waits for the answers any more: their place is free.
            () = gone.notified() => return,
        }
    }
}

/// The daemon speaks first. False when the client speaks another version: it
/// has read ours and knows what to say.
async fn greet(stream: &mut UnixStream) -> io::Result<bool> {
    preface::Preface::ours(preface::Status::Welcome, MAX_REQUEST)
        .send(stream)
        .await?;
    let theirs = preface::Preface::receive(stream).await?;
    Ok(theirs.version.major == PROTOCOL_VERSION.major)
}

#[derive(Clone)]
struct Session {
    caller: Arc<Caller>,
    shared: Shared,
    /// The snapshot of which this connection may ask for more.
    asked_last: Arc<Mutex<Option<Arc<Snapshot>>>>,
    /// The answer on holders of which it may.
    holders_asked_last: Arc<Mutex<Option<Arc<Answer>>>>,
    acts_asked_last: acting::Asked,
    copies: copying::Copies,
    offered: guarding::Offered,
}

impl Gpukill for Session {
    async fn snapshot(self, _: Context, after: Option<u64>) -> Result<SnapshotPage, Refusal> {
        whole(async {
            let mut state = self.shared.state.clone();
            if let Some(after) = after {
                let newer = state.wait_for(|published| published.snapshot.tick > after);
                // Too long, or the daemon stops: answer with what there is.
                let _ = tokio::time::timeout(LONGEST_WAIT, newer).await;
            }
            let snapshot = Arc::clone(&state.borrow().snapshot);
            let mut page = page(&snapshot, 0, &self.caller, &self.shared.roles());
            page.guard = self.brief(&snapshot);
            page.suspected = self.suspected(&snapshot);
            // Kept only while there is more to ask for.
            self.keep(page.next.map(|_| snapshot));
            Ok(page)
        })
        .await
    }

    async fn more_processes(
        self,
        _: Context,
        tick: u64,
        start: u32,
    ) -> Result<SnapshotPage, Refusal> {
        whole(async { self.rest_of_snapshot(tick, start) }).await
    }

    async fn status(self, _: Context) -> Result<Status, Refusal> {
        whole(async {
            self.learn_own_name().await;
            let is_file_changed = self.shared.guard.is_file_changed().await;
            Ok(self.report(is_file_changed))
        })
        .await
    }

    async fn audit(self, _: Context, query: AuditQuery) -> Result<AuditPage, Refusal> {
        whole(self.audit_page(query)).await
    }

    async fn quiesce(self, _: Context, seconds: u64) -> Result<Timestamp, Refusal> {
        whole(self.let_go(seconds)).await
    }

    async fn resume(self, _: Context) -> Result<(), Refusal> {
        whole(self.take_again()).await
    }

    async fn forget_gpus(self, _: Context, gpu: String) -> Result<Vec<DeviceLabel>, Refusal> {
        whole(self.forget(&gpu)).await
    }

    async fn holders(
        self,
        _: Context,
        device: Option<DeviceId>,
        start: u32,
    ) -> Result<HoldersPage, Refusal> {
        whole(self.holders_page(device.as_ref(), start)).await
    }

    async fn explain(self, _: Context, pid: u32) -> Result<Explanation, Refusal> {
        whole(self.explanation(pid)).await
    }

    async fn plan_kill(self, _: Context, request: KillRequest) -> Result<KillPlanPage, Refusal> {
        whole(self.kill_plan(request)).await
    }

    async fn more_of_kill_plan(
        self,
        _: Context,
        plan: PlanId,
        start: u32,
    ) -> Result<KillPlanPage, Refusal> {
        whole(self.kill_plan_page(plan, start)).await
    }

    async fn kill(self, _: Context, plan: PlanId) -> Result<OperationId, Refusal> {
        whole(self.begin_kill(plan)).await
    }

    async fn follow_kill(
        self,
        _: Context,
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal> {
        whole(self.kill_report_page(operation, after, start)).await
    }

    async fn plan_reset(
        self,
        _: Context,
        request: ResetRequest,
    ) -> Result<(Option<PlanId>, ResetPlan), Refusal> {
        whole(self.reset_plan(request)).await
    }

    async fn reset(self, _: Context, plan: PlanId) -> Result<OperationId, Refusal> {
        whole(self.begin_reset(plan)).await
    }

    async fn follow_reset(
        self,
        _: Context,
        operation: OperationId,
        after: Option<u64>,
    ) -> Result<ResetReport, Refusal> {
        whole(self.reset_report(operation, after)).await
    }

    async fn audit_summary(self, _: Context, filter: AuditFilter) -> Result<AuditSummary, Refusal> {
        whole(self.summary(filter)).await
    }

    async fn audit_actions(self, _: Context, query: ActionQuery) -> Result<ActionPage, Refusal> {
        whole(self.actions(query)).await
    }

    async fn prune(
        self,
        _: Context,
        before: Timestamp,
        is_dry_run: bool,
    ) -> Result<PruneReport, Refusal> {
        whole(self.prune_store(before, is_dry_run)).await
    }

    async fn backup(self, _: Context) -> Result<Backup, Refusal> {
        whole(self.make_backup()).await
    }

    async fn part_of_backup(
        self,
        _: Context,
        copy: CopyId,
        offset: u64,
    ) -> Result<Vec<u8>, Refusal> {
        whole(self.give_part(copy, offset)).await
    }

    async fn violations(self, _: Context, query: ViolationQuery) -> Result<ViolationPage, Refusal> {
        whole(self.violations_page(query)).await
    }

    async fn rules_text(self, _: Context, offset: u64) -> Result<RulesText, Refusal> {
        whole(self.part_of_rules(offset)).await
    }

    async fn offer_rules(self, _: Context, offset: u64, part: Vec<u8>) -> Result<(), Refusal> {
        whole(async { self.offered.take(offset, &part) }).await
    }

    async fn snooze(self, _: Context, pid: u32, is_dry_run: bool) -> Result<Vec<Snoozed>, Refusal> {
        whole(self.more_time(pid, is_dry_run)).await
    }

    async fn edit_rules(
        self,
        _: Context,
        edit: Option<GuardEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        whole(self.change_rules(edit, expected, is_dry_run)).await
    }

    async fn scan(self, _: Context, hours: u32) -> Result<ScanReport, Refusal> {
        whole(self.scan_past(hours)).await
    }

    async fn rogue_text(self, _: Context, offset: u64) -> Result<RulesText, Refusal> {
        whole(self.part_of_rogue(offset)).await
    }

    async fn edit_rogue(
        self,
        _: Context,
        edit: Option<RogueEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        whole(self.change_rogue(edit, expected, is_dry_run)).await
    }

    async fn replay_rules(
        self,
        _: Context,
        request: ReplayRequest,
    ) -> Result<ReplayReport, Refusal> {
        whole(self.replay(request)).await
    }
}

impl Session {
    /// May the caller do this? Else root may, and whoever is in `group`.
    fn may(&self, operation: Operation, asked: &str, group: &str) -> Result<(), Refusal> {
        match check(&self.caller, operation, &self.shared.roles()) {
            Ruling::Allow => Ok(()),
            Ruling::Deny(_) => Err(Refusal::Denied {
                asked: asked.to_owned(),
                ask: format!("root, or someone in group {group}"),
            }),
        }
    }

    /// Records what a person had done. The store may make it wait, and nobody
    /// else.
    async fn record(&self, event: Recorded) {
        let store = self.shared.store.clone();
        let recorded = tokio::task::spawn_blocking(move || store.record(event));
        // A store that panicked has said so.
        let _ = recorded.await;
    }

    fn keep(&self, snapshot: Option<Arc<Snapshot>>) {
        *self
            .asked_last
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// A call that panics answers so: tarpc would leave its client waiting.
async fn whole<T>(call: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    AssertUnwindSafe(call)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            tracing::error!("a call panicked");
            Err(Refusal::Internal)
        })
}
