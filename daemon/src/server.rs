//! The socket: who may connect, how many at once, and what they are answered.

mod explanation;

mod holder_pages;

mod kill_pages;

mod limits;

pub(crate) mod listener;

mod peer;

mod replays;

mod session;

mod sight;

mod snapshot_pages;

mod turns;

mod watched;

use crate::audit::Store;
use crate::authority::Authority;
use crate::clock::Clock;
use crate::enforce::Enforcer;
use crate::guard::Guard;
use crate::look::Look;
use crate::quiesce::Quiesce;
use crate::reset::Resetter;
use crate::rogue::Rogue;
use crate::state;
use gpukill_policy::access::{Caller, Roles, rights};
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::status::Right;
use gpukill_proto::transport::preface::{Preface, Status};
use gpukill_proto::units::Timestamp;
use limits::Limits;
pub(crate) use replays::Replays;
use rustix::net::SendFlags;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
pub(crate) use turns::Turns;

/// What every session reads.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) state: state::Reader,
    pub(crate) authority: Authority,
    pub(crate) enforcer: Enforcer,
    pub(crate) resetter: Resetter,
    pub(crate) store: Store,
    pub(crate) guard: Guard,
    pub(crate) rogue: Rogue,
    pub(crate) quiesce: Quiesce,
    /// Has the poller drop devices that are gone.
    pub(crate) forget: Arc<dyn Fn(Vec<DeviceId>) + Send + Sync>,
    pub(crate) look: Look,
    pub(crate) turns: Turns,
    pub(crate) replays: Replays,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started_at: Timestamp,
    /// Why this daemon may end no process, whoever asks.
    pub(crate) will_not_act: Option<String>,
}

impl Shared {
    /// Who may what.
    fn roles(&self) -> Roles {
        self.authority.roles()
    }
}

/// How long a peer may take for its preface.
const PREFACE_PATIENCE: Duration = Duration::from_secs(2);

/// The pause after the system refused a connection, for want of descriptors
/// mostly: accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers clients until `stop` is ready.
pub(crate) async fn serve(listener: UnixListener, shared: Shared, stop: impl Future<Output = ()>) {
    let limits = Limits::default();
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

fn admit(stream: UnixStream, shared: &Shared, limits: &Limits) {
    // Before any byte is read: who is this?
    let caller = match peer::caller(&stream, &shared.authority.users) {
        Ok(caller) => caller,
        Err(error) => {
            tracing::warn!(%error, "cannot tell who connects: refused");
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
        None => refuse(&stream),
    }
}

fn is_privileged(caller: &Caller, roles: &Roles) -> bool {
    rights(caller, roles)
        .iter()
        .any(|right| matches!(right, Right::EndAny | Right::EditRules))
}

/// Says "busy" at once and lets go: whoever connects in a loop must not pile up
/// connections. Not through tokio, which knows of a fresh socket's room only
/// after its next look.
fn refuse(stream: &UnixStream) {
    let busy = Preface::ours(Status::Busy, 0).encode();
    // A fresh socket has room; a peer that went away needs no answer.
    let _ = rustix::net::send(stream, &busy, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
