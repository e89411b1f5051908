//! A connection to the daemon, and every question that is asked over it; what
//! acts is in `acting`.

use super::patience::{Backoff, Patience, Pause};
use crate::exit::Failure;
use crate::output::message::Messages;
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSummary,
};
use gpukill_proto::guard::GuardBrief;
use gpukill_proto::holders::{DeviceLabel, Explanation, HoldersReport};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::Suspected;
use gpukill_proto::service::{GpukillClient, SnapshotPage};
use gpukill_proto::snapshot::{DeviceId, ProcessKey, Snapshot};
use gpukill_proto::status::Status;
use gpukill_proto::transport::{ConnectError, connect};
use gpukill_proto::units::Timestamp;
use gpukill_proto::{PROTOCOL_VERSION, ProtocolVersion};
use std::path::Path;
use tarpc::client::RpcError;
use tarpc::context::{self, Context};

/// A whole snapshot, what the guard says of who is in it, and who of them may be a rogue.
#[derive(Debug)]
pub(crate) struct Sight {
    /// The devices and who uses them.
    pub snapshot: Snapshot,
    /// Who breaks rules.
    pub guard: GuardBrief,
    /// Who may be a rogue, the worst first.
    pub suspected: Vec<(ProcessKey, Suspected)>,
}

/// A connection to the daemon.
pub(crate) struct Daemon {
    pub(super) client: GpukillClient,
    pub(super) messages: Messages,
    /// The wire that the daemon speaks: of our major version.
    protocol: ProtocolVersion,
}

impl Daemon {
    /// Connects, trying again while the daemon is busy.
    pub(crate) async fn connect(
        socket: &Path,
        patience: Patience,
        messages: Messages,
    ) -> Result<Self, Failure> {
        messages.debug(|| format!("connecting to {}", socket.display()));
        let mut backoff = Backoff::new();
        loop {
            let one_try = tokio::time::timeout_at(patience.until().into(), connect(socket)).await;
            match one_try {
                Ok(Ok((client, protocol))) => {
                    return Ok(Self {
                        client,
                        messages,
                        protocol,
                    });
                }
                Ok(Err(ConnectError::Busy)) => match backoff.pause(patience).await {
                    Pause::Over(length) => {
                        messages.debug(|| format!("busy: tried again after {length:.0?}"));
                    }
                    Pause::OutOfPatience => {
                        return Err(Failure::Connect(socket.to_owned(), ConnectError::Busy));
                    }
                },
                Ok(Err(error)) => return Err(Failure::Connect(socket.to_owned(), error)),
                Err(_) => {
                    return Err(Failure::TimedOut {
                        seconds: patience.seconds(),
                    });
                }
            }
        }
    }

    /// A whole snapshot: the newest, or with `after` the first that is newer.
    pub(crate) async fn snapshot(
        &self,
        after: Option<u64>,
        patience: Patience,
    ) -> Result<Sight, Failure> {
        // Between two pages the daemon may poll and let the snapshot go; five
        // times in a row means that it polls faster than it answers.
        for _ in 0..5 {
            if let Some(sight) = self.pages(after, patience).await? {
                return Ok(sight);
            }
            self.messages
                .debug(|| "the snapshot changed between two pages: asking again".into());
        }
        Err(Refusal::Expired.into())
    }

    /// All pages of one snapshot; `None` when the daemon let it go between two.
    async fn pages(
        &self,
        after: Option<u64>,
        patience: Patience,
    ) -> Result<Option<Sight>, Failure> {
        let SnapshotPage {
            mut snapshot,
            mut next,
            guard,
            suspected,
        } = self
            .ask(patience, async |context| {
                self.client.snapshot(context, after).await
            })
            .await?;
        let tick = snapshot.tick;
        while let Some(start) = next {
            self.messages
                .debug(|| format!("asking for the processes from {start} on"));
            let more = self
                .ask(patience, async |context| {
                    self.client.more_processes(context, tick, start).await
                })
                .await;
            let page = match more {
                Ok(page) if page.snapshot.tick == tick => page,
                Ok(_) | Err(Failure::Refused(Refusal::Expired)) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            if page.next.is_some_and(|next| next <= start) {
                return Err(Failure::Broken("its pages do not advance".into()));
            }
            snapshot.processes.extend(page.snapshot.processes);
            next = page.next;
        }
        // The first page has both of the whole.
        Ok(Some(Sight {
            snapshot,
            guard,
            suspected,
        }))
    }

    /// Who has a device open, or all devices: all pages of one answer, and when it
    /// was given.
    pub(crate) async fn holders(
        &self,
        device: Option<DeviceId>,
        patience: Patience,
    ) -> Result<(Timestamp, Vec<HoldersReport>), Failure> {
        let mut whole: Vec<HoldersReport> = Vec::new();
        let mut start = 0;
        loop {
            let page = self
                .ask(patience, async |context| {
                    self.client.holders(context, device.clone(), start).await
                })
                .await?;
            for report in page.devices {
                match whole.last_mut() {
                    Some(last) if last.device.id == report.device.id => {
                        last.device.holders.extend(report.device.holders);
                        last.roles.extend(report.roles);
                    }
                    Some(_) | None => whole.push(report),
                }
            }
            match page.next {
                None => return Ok((page.at, whole)),
                Some(next) if next <= start => {
                    return Err(Failure::Broken("its pages do not advance".into()));
                }
                Some(next) => {
                    self.messages
                        .debug(|| format!("asking for the holders from {next} on"));
                    start = next;
                }
            }
        }
    }

    /// All that is known of one process.
    pub(crate) async fn explain(
        &self,
        pid: u32,
        patience: Patience,
    ) -> Result<Explanation, Failure> {
        self.ask(patience, async |context| {
            self.client.explain(context, pid).await
        })
        .await
    }

    /// How the daemon stands.
    pub(crate) async fn status(&self, patience: Patience) -> Result<Status, Failure> {
        self.ask(patience, async |context| self.client.status(context).await)
            .await
    }

    /// One page of records.
    pub(crate) async fn audit(
        &self,
        query: &AuditQuery,
        patience: Patience,
    ) -> Result<AuditPage, Failure> {
        self.ask(patience, async |context| {
            self.client.audit(context, query.clone()).await
        })
        .await
    }

    /// What a stretch of the past comes to.
    pub(crate) async fn audit_summary(
        &self,
        filter: &AuditFilter,
        patience: Patience,
    ) -> Result<AuditSummary, Failure> {
        self.ask(patience, async |context| {
            self.client.audit_summary(context, filter.clone()).await
        })
        .await
    }

    /// One page of what was done.
    pub(crate) async fn audit_actions(
        &self,
        query: &ActionQuery,
        patience: Patience,
    ) -> Result<ActionPage, Failure> {
        self.ask(patience, async |context| {
            self.client.audit_actions(context, query.clone()).await
        })
        .await
    }

    /// Lets go of the NVIDIA driver; gives the end of it.
    pub(crate) async fn quiesce(
        &self,
        seconds: u64,
        patience: Patience,
    ) -> Result<Timestamp, Failure> {
        self.ask(patience, async |context| {
            self.client.quiesce(context, seconds).await
        })
        .await
    }

    /// Reads the NVIDIA driver again.
    pub(crate) async fn resume(&self, patience: Patience) -> Result<(), Failure> {
        self.ask(patience, async |context| self.client.resume(context).await)
            .await
    }

    /// Drops devices that are gone; gives those.
    pub(crate) async fn forget_gpus(
        &self,
        gpu: &str,
        patience: Patience,
    ) -> Result<Vec<DeviceLabel>, Failure> {
        self.ask(patience, async |context| {
            self.client.forget_gpus(context, gpu.to_owned()).await
        })
        .await
    }

    /// Asks one question, again and again while the daemon is busy.
    pub(super) async fn ask<T>(
        &self,
        patience: Patience,
        question: impl AsyncFn(Context) -> Result<Result<T, Refusal>, RpcError>,
    ) -> Result<T, Failure> {
        let mut backoff = Backoff::new();
        loop {
            let mut context = context::current();
            context.deadline = patience.deadline_of_a_call();
            match question(context).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(Refusal::Busy)) => match backoff.pause(patience).await {
                    Pause::Over(length) => self
                        .messages
                        .debug(|| format!("busy: asking again after {length:.0?}")),
                    Pause::OutOfPatience => return Err(Refusal::Busy.into()),
                },
                Ok(Err(refusal)) => return Err(refusal.into()),
                Err(error) => {
                    let failure = broken(&error, patience);
                    return Err(of_an_older_one(failure, self.protocol, PROTOCOL_VERSION));
                }
            }
        }
    }
}

/// A daemon of an older minor version hangs up at a call that it does not know.
fn of_an_older_one(failure: Failure, daemon: ProtocolVersion, ours: ProtocolVersion) -> Failure {
    match failure {
        Failure::Broken(_) if daemon < ours => Failure::OlderDaemon(daemon),
        other => other,
    }
}

fn broken(error: &RpcError, patience: Patience) -> Failure {
    match error {
        RpcError::DeadlineExceeded => Failure::TimedOut {
            seconds: patience.seconds(),
        },
        RpcError::Shutdown => Failure::Broken("it went away".into()),
        RpcError::Channel(why) => Failure::Broken(root_cause(why)),
        RpcError::Send(why) => Failure::Broken(root_cause(why.as_ref())),
        RpcError::Server(why) => Failure::Broken(why.to_string()),
    }
}

/// tarpc wraps what happened in several sentences that say nothing.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_hangs_up_is_told_to_be_older_where_it_is() {
        let version = |minor| ProtocolVersion { major: 1, minor };
        let of = |failure, daemon| of_an_older_one(failure, version(daemon), version(2));
        let broken = || Failure::Broken("it went away".into());
        assert!(matches!(of(broken(), 1), Failure::OlderDaemon(told) if told == version(1)));
        assert!(matches!(of(broken(), 2), Failure::Broken(_)));
        assert!(matches!(of(broken(), 3), Failure::Broken(_)));
        let refused = Failure::Refused(Refusal::Internal);
        assert!(matches!(of(refused, 1), Failure::Refused(_)));
    }
}
