//! The socket: who may connect, how many at once, and the answers to their calls.

mod disconnect;
mod explanation;
mod fair_queue;
mod handlers;
mod holder_pages;
mod kill_pages;
mod limits;
pub(crate) mod listener;
mod peer;
mod replays;
mod session;
mod snapshot_pages;
mod visibility;

use crate::authority::Authority;
use crate::clock::Clock;
use crate::fd_scan::full_scan::FullScan;
use crate::guard::Guard;
use crate::kill::KillService;
use crate::poll::process_inspector::ProcessInspector;
use crate::quiesce::Quiesce;
use crate::reset::ResetService;
use crate::rogue::Rogue;
use crate::state;
use crate::store::Store;
pub(crate) use fair_queue::FairQueue;
use gpukill_policy::access::{Caller, Roles, rights};
use gpukill_proto::model::DeviceId;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::Right;
use gpukill_proto::transport::preface::{Preface, PrefaceStatus};
use gpukill_proto::units::Timestamp;
use limits::ConnectionLimits;
pub(crate) use replays::ReplayThreads;
use rustix::net::SendFlags;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// The parts of the daemon that every session uses.
#[derive(Clone)]
pub(crate) struct ServerContext {
    pub(crate) state: state::SnapshotReader,
    pub(crate) authority: Authority,
    pub(crate) enforcer: KillService,
    pub(crate) resetter: ResetService,
    pub(crate) store: Store,
    pub(crate) guard: Guard,
    pub(crate) rogue: Rogue,
    pub(crate) quiesce: Quiesce,
    /// Makes the poller drop devices that are gone.
    pub(crate) forget: Arc<dyn Fn(Vec<DeviceId>) + Send + Sync>,
    pub(crate) full_scan: FullScan,
    pub(crate) inspector: Arc<ProcessInspector>,
    pub(crate) query_queue: FairQueue,
    pub(crate) snooze_queue: FairQueue,
    pub(crate) replays: ReplayThreads,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started_at: Timestamp,
    /// Why this daemon may end no process; `None` if it may.
    pub(crate) disabled_reason: Option<String>,
}

impl ServerContext {
    fn roles(&self) -> Roles {
        self.authority.roles()
    }
}

/// How long a peer may take for its preface.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after the system refused a connection, mostly because no descriptors are free:
/// accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves clients until `stop` is ready.
pub(crate) async fn serve(
    listener: UnixListener,
    shared: ServerContext,
    stop: impl Future<Output = ()>,
) {
    let limits = ConnectionLimits::default();
    tokio::pin!(stop);
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                failing = false;
                admit(stream, &shared, &limits);
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(stream: UnixStream, shared: &ServerContext, limits: &ConnectionLimits) {
    // The caller is identified before any byte is read.
    let caller = match peer::identify(&stream, &shared.authority.users) {
        Ok(caller) => caller,
        Err(error) => {
            tracing::warn!(%error, "cannot identify a caller: refused");
            return;
        }
    };
    let privileged = is_privileged(&caller, &shared.roles());
    match limits.admit(caller.limit_group, privileged) {
        Some(slot) => {
            let shared = shared.clone();
            tokio::spawn(async move {
                session::run(stream, caller, shared).await;
                drop(slot);
            });
        }
        None => {
            shared.store.counters().count_refusal(&Refusal::Busy);
            send_busy(&stream);
        }
    }
}

fn is_privileged(caller: &Caller, roles: &Roles) -> bool {
    rights(caller, roles)
        .iter()
        .any(|right| matches!(right, Right::EndAny | Right::EditRules))
}

/// Answers "busy" at once and closes, so that a client that connects in a loop does not pile up
/// connections. Not through tokio, which learns of the room in a fresh socket only at its next
/// poll.
fn send_busy(stream: &UnixStream) {
    let busy = Preface::new(PrefaceStatus::Busy, 0).encode();
    // A fresh socket has room; a peer that went away needs no answer.
    let _ = rustix::net::send(stream, &busy, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
