//! Has a plan carried out, and follows it. It is the daemon's: it goes on
//! whatever becomes of this client, and so this says how to see it.

use super::super::connect;
use crate::connect::{Daemon, Patience, is_over};
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::settings::Settings;
use gpukill_proto::kill::{KillReport, OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_WAIT;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What to do when it cannot be followed.
const SEE: &str = "see who is left: gpukillctl list --details";

/// A daemon that has nothing new to say waits before it says so; one that does
/// not is not asked faster than this.
const BETWEEN_ANSWERS: Duration = Duration::from_millis(50);

/// Carries a plan out, and follows it to its end, or to Ctrl-C.
pub(super) async fn carry_out(
    daemon: Daemon,
    plan: PlanId,
    settings: &Settings,
    messages: Messages,
) -> Result<KillReport, Failure> {
    let mut stop = Stop::listen().map_err(Failure::System)?;
    let operation = tokio::select! {
        operation = begin(&daemon, plan, settings) => operation?,
        () = stop.heard() => {
            return Err(left("not waited for: whether anything was ended is not known"));
        }
    };
    tokio::select! {
        report = follow_on(daemon, operation, settings, messages) => report.map_err(lost),
        () = stop.heard() => Err(left("not followed any more: it goes on in gpukilld")),
    }
}

fn left(what: &str) -> Failure {
    Failure::NotDone {
        what: what.to_owned(),
        hint: Some(SEE.into()),
        exit: Exit::Failed,
    }
}

async fn begin(daemon: &Daemon, plan: PlanId, settings: &Settings) -> Result<OperationId, Failure> {
    match daemon.kill(plan, Patience::lasting(settings.timeout)).await {
        Err(failure) if breaks_off(&failure) => Err(Failure::NotDone {
            what: format!("{failure}: whether anything was ended is not known"),
            hint: Some(SEE.into()),
            exit: failure.exit(),
        }),
        Err(Failure::Refused(Refusal::Expired)) => Err(Failure::NotDone {
            what: "that took too long, and nothing was ended: gpukilld keeps a plan for ten \
                   minutes"
                .into(),
            hint: Some("try again".into()),
            exit: Exit::Failed,
        }),
        began => began,
    }
}

/// Follows it to its end, over one break of the connection.
async fn follow_on(
    daemon: Daemon,
    operation: OperationId,
    settings: &Settings,
    messages: Messages,
) -> Result<KillReport, Failure> {
    match follow(&daemon, operation, messages).await {
        Err(failure) if breaks_off(&failure) => {
            messages.warn(&format!("{failure}; the kill goes on there: asking again"));
            again(operation, settings, messages).await
        }
        report => report,
    }
}

/// Follows it on a new connection.
async fn again(
    operation: OperationId,
    settings: &Settings,
    messages: Messages,
) -> Result<KillReport, Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages).await?;
    follow(&daemon, operation, messages).await
}

async fn follow(
    daemon: &Daemon,
    operation: OperationId,
    messages: Messages,
) -> Result<KillReport, Failure> {
    let mut after = None;
    loop {
        // As long as the daemon may take, and as it may be late.
        let patience = Patience::lasting(LONGEST_WAIT * 2);
        let report = daemon.follow_kill(operation, after, patience).await?;
        if is_over(report.stage) {
            return Ok(report);
        }
        messages.debug(|| format!("{:?}, version {}", report.stage, report.version));
        if after == Some(report.version) {
            tokio::time::sleep(BETWEEN_ANSWERS).await;
        }
        after = Some(report.version);
    }
}

/// Whether a failure is of the connection, and says nothing of the kill.
const fn breaks_off(failure: &Failure) -> bool {
    matches!(failure, Failure::Broken(_) | Failure::TimedOut { .. })
}

/// What became of it cannot be had.
fn lost(failure: Failure) -> Failure {
    let what = match &failure {
        Failure::Refused(Refusal::NoMatch(_)) => {
            "gpukilld was started anew meanwhile: what became of them is not known".to_owned()
        }
        failure => format!("{failure}: what became of them is not known"),
    };
    let exit = match failure.exit() {
        // That it is not known is no answer to what was asked.
        Exit::NoMatch | Exit::Done => Exit::Failed,
        exit => exit,
    };
    Failure::NotDone {
        what,
        hint: Some(SEE.into()),
        exit,
    }
}

/// Ctrl-C, and what else asks a program to end.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
