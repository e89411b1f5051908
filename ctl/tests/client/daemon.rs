//! A stand-in for the daemon: the real wire over a real socket, and answers
//! that a test writes down.

use crate::held;
use crate::killed::Killed;
use crate::resets::Resets;
use crate::sample::{device, process, record};
use futures::StreamExt as _;
use gpukill_proto::audit::{AuditPage, AuditQuery};
use gpukill_proto::holders::{Explanation, HeldDevice, HoldersPage};
use gpukill_proto::kill::{KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetPlan, ResetReport, ResetRequest};
use gpukill_proto::service::{Gpukill, SnapshotPage};
use gpukill_proto::snapshot::{BackendReport, BackendState, DeviceId, Snapshot};
use gpukill_proto::status::{CallerReport, PollingReport, Right, Status, StoreReport};
use gpukill_proto::transport::preface::{self, Preface};
use gpukill_proto::transport::{MAX_REQUEST, codec};
use gpukill_proto::units::{Bytes, Timestamp};
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tarpc::context::Context;
use tarpc::server::{BaseChannel, Channel as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

/// 2026-11-21 14:02:31.250 UTC.
pub(crate) const NOW: Timestamp = Timestamp(1_795_269_751_250);

/// What the daemon does next, changed by tests while it runs.
pub(crate) struct Script {
    pub tick: AtomicU64,
    pub processes: AtomicU32,
    /// Connections that are told "busy" before one is welcome.
    pub busy_connections: AtomicU32,
    /// Calls that are told "busy" before one is answered.
    pub busy_calls: AtomicU32,
    /// Pages that have expired before one has not.
    pub expired_pages: AtomicU32,
    pub backends: Mutex<Vec<BackendReport>>,
    pub has_devices: bool,
    /// The devices with their holders.
    pub held: Mutex<Vec<HeldDevice>>,
    pub caller_is_operator: bool,
    /// What it plans and carries out.
    pub killed: Killed,
    /// What it resets.
    pub resets: Resets,
    /// How long the driver takes to be let go.
    pub letting_go: Duration,
    /// Until when the driver is let go.
    pub quiesced: Mutex<Option<Timestamp>>,
    pub version: ProtocolVersion,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tick: AtomicU64::new(1),
            processes: AtomicU32::new(3),
            busy_connections: AtomicU32::new(0),
            busy_calls: AtomicU32::new(0),
            expired_pages: AtomicU32::new(0),
            backends: Mutex::new(vec![backend(BackendState::Ready)]),
            has_devices: true,
            held: Mutex::new(Vec::new()),
            caller_is_operator: true,
            killed: Killed::default(),
            resets: Resets::default(),
            letting_go: Duration::ZERO,
            quiesced: Mutex::new(None),
            version: PROTOCOL_VERSION,
        }
    }
}

pub(crate) fn backend(state: BackendState) -> BackendReport {
    BackendReport {
        name: "nvidia".into(),
        state,
        since: NOW,
        devices: 1,
        driver: Reading::Value("580.65.06".into()),
        cuda: Reading::Value("13.0".into()),
        poll_cost_us: 4_100,
    }
}

/// A daemon in a thread; it goes away when dropped.
pub(crate) struct Daemon {
    pub script: Arc<Script>,
    pub socket: PathBuf,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(directory: &Path, script: Script) -> Self {
        let socket = directory.join("gpukilld.sock");
        let _ = std::fs::remove_file(&socket);
        let script = Arc::new(script);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let (place, shared) = (socket.clone(), Arc::clone(&script));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = UnixListener::bind(place).expect("bound");
                ready.send(()).expect("somebody waits");
                tokio::select! {
                    () = accept(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv().expect("it starts");
        Self {
            script,
            socket,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

async fn accept(listener: UnixListener, script: Arc<Script>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(converse(stream, Arc::clone(&script)));
    }
}

async fn converse(mut stream: UnixStream, script: Arc<Script>) {
    let is_busy = take_one(&script.busy_connections);
    let status = if is_busy {
        preface::Status::Busy
    } else {
        preface::Status::Welcome
    };
    let mut ours = Preface::ours(status, MAX_REQUEST);
    ours.version = script.version;
    let sent = ours.send(&mut stream).await;
    if is_busy || sent.is_err() || Preface::receive(&mut stream).await.is_err() {
        return;
    }
    let hang_up = Arc::new(Notify::new());
    let session = Session(script, Arc::clone(&hang_up));
    let serving = BaseChannel::with_defaults(codec::server(stream))
        .execute(session.serve())
        .for_each(|answer| async {
            tokio::spawn(answer);
        });
    tokio::select! {
        () = serving => {}
        () = hang_up.notified() => {}
    }
}

pub(crate) fn take_one(counter: &AtomicU32) -> bool {
    counter
        .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        .is_ok()
}

/// What is asked on one connection, and how to end that.
#[derive(Clone)]
struct Session(Arc<Script>, Arc<Notify>);

/// Processes of one page.
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
            tick: script.tick.load(SeqCst),
            devices,
            processes: (start..end).map(process).collect(),
            backends: script.backends.lock().expect("not poisoned").clone(),
            faults: vec![],
        };
        SnapshotPage {
            snapshot,
            next: (end < all).then_some(end),
        }
    }
}

impl Session {
    fn may_quiesce(&self) -> Result<(), Refusal> {
        if self.0.caller_is_operator {
            return Ok(());
        }
        Err(Refusal::Denied {
            asked: "let go of the driver".into(),
            ask: "someone in group gpukill-operators".into(),
        })
    }
}

impl Gpukill for Session {
    async fn snapshot(self, _: Context, after: Option<u64>) -> Result<SnapshotPage, Refusal> {
        if take_one(&self.0.busy_calls) {
            return Err(Refusal::Busy);
        }
        while after.is_some_and(|after| self.0.tick.load(SeqCst) <= after) {
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

    async fn status(self, _: Context) -> Result<Status, Refusal> {
        Ok(Status {
            version: "0.1.0".into(),
            protocol: PROTOCOL_VERSION,
            host: "box".into(),
            started_at: NOW,
            now: NOW,
            caller: CallerReport {
                uid: 1000,
                user: Reading::Value("alice".into()),
                rights: vec![Right::Look],
                log_in_again_for: None,
            },
            personal: false,
            will_not_act: None,
            backends: self.0.backends.lock().expect("not poisoned").clone(),
            faults: vec![],
            polling: PollingReport {
                interval_ms: 2000,
                last_at: None,
                ticks: 0,
                late: 0,
            },
            store: StoreReport {
                directory: "/var/lib/gpukill".into(),
                samples: Bytes(0),
                audit: Bytes(0),
                written_at: None,
                dropped: 0,
            },
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
        Ok(held::page(
            &self.0.held.lock().expect("not poisoned"),
            device.as_ref(),
            start,
        ))
    }

    async fn explain(self, _: Context, pid: u32) -> Result<Explanation, Refusal> {
        let held = self.0.held.lock().expect("not poisoned");
        held::explained(&held, pid)
            .ok_or_else(|| Refusal::NoMatch(format!("no process {pid} uses a GPU or has one open")))
    }

    async fn resume(self, _: Context) -> Result<(), Refusal> {
        self.may_quiesce()?;
        *self.0.quiesced.lock().expect("not poisoned") = None;
        Ok(())
    }

    async fn audit(self, _: Context, query: AuditQuery) -> Result<AuditPage, Refusal> {
        // 2500 records, of which only alice has any.
        let newest = query.before.unwrap_or(2501) - 1;
        let count = match query.user.as_deref() {
            None | Some("alice") => newest.min(query.limit.into()),
            Some(_) => 0,
        };
        let records = (0..count).map(|back| record(newest - back)).collect();
        let next = newest + 1 - count;
        Ok(AuditPage {
            records,
            next: (next > 1 && count > 0).then_some(next),
        })
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
        let begun = self.0.killed.begin(plan);
        if take_one(&self.0.killed.hang_ups_at_begin) {
            self.1.notify_one();
            std::future::pending::<()>().await;
        }
        begun
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
        Ok(Resets::plan(request))
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
}
