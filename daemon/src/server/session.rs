//! One connection: preface, then calls, each answered for this caller.

use super::snapshot_pages::page;
use super::{PREFACE_PATIENCE, Shared};
use futures::{FutureExt as _, StreamExt as _};
use gpukill_policy::access::{Caller, Operation, Ruling, check, rights};
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::{AuditPage, AuditQuery, AuditSubject};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{Gpukill, LONGEST_WAIT, SnapshotPage};
use gpukill_proto::snapshot::Snapshot;
use gpukill_proto::status::{CallerReport, Status};
use gpukill_proto::transport::{MAX_REQUEST, codec, preface};
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tarpc::context::Context;
use tarpc::server::{BaseChannel, Channel as _, Config};
use tokio::net::UnixStream;
use tokio_io_timeout::TimeoutStream;

/// A connection on which nothing is asked for so long is closed. Longer than
/// the longest wait for news, during which a client says nothing.
const IDLE: Duration = Duration::from_secs(60);

/// A client that does not read its answer for so long is dropped.
const SLOW_READER: Duration = Duration::from_secs(10);

/// So many calls of one connection may run at once; more are refused by tarpc.
const CALLS: usize = 2;

/// How long a status waits for its caller's name, and how often it looks.
const NAME_PATIENCE: Duration = Duration::from_millis(100);
const NAME_STEP: Duration = Duration::from_millis(2);

/// Serves one connection to its end.
pub(super) async fn run(mut stream: UnixStream, caller: Caller, shared: Shared) {
    let greeted = tokio::time::timeout(PREFACE_PATIENCE, greet(&mut stream)).await;
    if !matches!(greeted, Ok(Ok(true))) {
        return;
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(IDLE));
    stream.set_write_timeout(Some(SLOW_READER));
    let transport = codec::server(Box::pin(stream));
    let session = Session {
        caller: Arc::new(caller),
        shared,
        asked_last: Arc::default(),
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
    while let Some(call) = calls.next().await {
        tokio::spawn(call);
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
            let page = page(&snapshot, 0, &self.caller, &self.shared.roles());
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
        whole(async {
            let kept = self
                .asked_last
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let snapshot = kept
                .filter(|snapshot| snapshot.tick == tick)
                .ok_or(Refusal::Expired)?;
            Ok(page(
                &snapshot,
                start as usize,
                &self.caller,
                &self.shared.roles(),
            ))
        })
        .await
    }

    async fn status(self, _: Context) -> Result<Status, Refusal> {
        whole(async {
            self.learn_own_name().await;
            Ok(self.report())
        })
        .await
    }

    async fn audit(self, _: Context, query: AuditQuery) -> Result<AuditPage, Refusal> {
        whole(async {
            let mut page = self.shared.store.ask(query).await?;
            let roles = self.shared.roles();
            for record in &mut page.records {
                if let AuditSubject::Process { uid, command, .. } = &mut record.subject {
                    match check(&self.caller, Operation::ReadCommand { owner: *uid }, &roles) {
                        Ruling::Allow => {}
                        Ruling::Deny(_) => *command = Reading::Withheld,
                    }
                }
            }
            Ok(page)
        })
        .await
    }
}

impl Session {
    /// Gives the name service a moment to say what the caller is called.
    async fn learn_own_name(&self) {
        let mut waited = Duration::ZERO;
        while self.shared.users.is_asking_for(self.caller.uid) && waited < NAME_PATIENCE {
            tokio::time::sleep(NAME_STEP).await;
            waited += NAME_STEP;
        }
    }

    fn keep(&self, snapshot: Option<Arc<Snapshot>>) {
        *self
            .asked_last
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    fn report(&self) -> Status {
        let shared = &self.shared;
        let published = shared.state.borrow().clone();
        let config = shared.config.borrow().clone();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            host: published.snapshot.host.clone(),
            started_at: shared.started_at,
            now: shared.clock.now(),
            caller: self.caller_report(),
            personal: config.personal,
            backends: published.snapshot.backends.clone(),
            faults: published.snapshot.faults.clone(),
            polling: published.polling,
            store: shared.store.report(),
        }
    }

    fn caller_report(&self) -> CallerReport {
        let shared = &self.shared;
        let user = shared.users.name(self.caller.uid);
        let access = &shared.config.borrow().access;
        let groups = [&access.operator_group, &access.admin_group];
        let log_in_again_for = groups.into_iter().find(|name| {
            let group = shared.users.group(name);
            group.zip(user.known()).is_some_and(|(group, user)| {
                group.members.contains(user) && !self.caller.groups.contains(&group.gid)
            })
        });
        CallerReport {
            uid: self.caller.uid,
            rights: rights(&self.caller, &shared.roles()),
            log_in_again_for: log_in_again_for.cloned(),
            user,
        }
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
