//! Has a plan carried out, and follows it. It is the daemon's: it goes on
//! whatever becomes of this client, and so this says how to see it.

use super::connect;
use crate::connect::{Daemon, Patience, is_over};
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::settings::Settings;
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_WAIT;
use signal_hook::flag::register_conditional_default;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A daemon that has nothing new to say waits before it says so; one that does
/// not is not asked faster than this.
const BETWEEN_ANSWERS: Duration = Duration::from_millis(50);

/// How long nothing is heard before that is noted.
const QUIET: Duration = Duration::from_millis(500);

/// What differs between the operations that are followed.
pub(super) trait Operation {
    /// How it stands.
    type Report;

    /// What is said of it.
    const WORDS: Words;

    /// Begins what was planned.
    async fn begin(
        daemon: &Daemon,
        plan: PlanId,
        patience: Patience,
    ) -> Result<OperationId, Failure>;

    /// How it stands: when something newer than version `after` is known, or
    /// after a while.
    async fn ask(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        patience: Patience,
    ) -> Result<Self::Report, Failure>;

    /// How far it is, and the version of that.
    fn stands(report: &Self::Report) -> (Stage, u64);

    /// Tells of a report what is to be told before the end.
    fn tell(&mut self, report: &Self::Report) -> Result<(), Failure>;

    /// Nothing was heard for a while.
    fn wait(&mut self);

    /// Something else is said on stderr now.
    fn make_way(&mut self);
}

/// What is said of an operation.
pub(super) struct Words {
    /// The operation: `kill`.
    pub noun: &'static str,
    /// What it has not done, or may have: `ended`.
    pub done: &'static str,
    /// To whom: `them`.
    pub whom: &'static str,
    /// What to do when it cannot be followed.
    pub see: &'static str,
}

/// Carries a plan out, and follows it to its end, or to Ctrl-C.
pub(super) async fn carry_out<O: Operation>(
    mut operation: O,
    daemon: Daemon,
    plan: PlanId,
    settings: &Settings,
    messages: Messages,
) -> Result<O::Report, Failure> {
    let Words { done, .. } = O::WORDS;
    let mut stop = Stop::listen().map_err(Failure::System)?;
    let id = tokio::select! {
        // An answer that is there is worth more than being quick to leave.
        biased;
        id = begin::<O>(&daemon, plan, settings) => id?,
        () = stop.heard() => {
            let what = format!("not waited for: whether anything was {done} is not known");
            return Err(left::<O>(what));
        }
    };
    tokio::select! {
        biased;
        report = follow_on(&mut operation, daemon, id, settings, messages) => {
            report.map_err(lost::<O>)
        }
        () = stop.heard() => {
            Err(left::<O>("not followed any more: it goes on in gpukilld".to_owned()))
        }
    }
}

fn left<O: Operation>(what: String) -> Failure {
    Failure::NotDone {
        what,
        hint: Some(O::WORDS.see.to_owned()),
        exit: Exit::Failed,
    }
}

async fn begin<O: Operation>(
    daemon: &Daemon,
    plan: PlanId,
    settings: &Settings,
) -> Result<OperationId, Failure> {
    let Words { done, see, .. } = O::WORDS;
    match O::begin(daemon, plan, Patience::lasting(settings.timeout)).await {
        Err(failure) if breaks_off(&failure) => Err(Failure::NotDone {
            what: format!("{failure}: whether anything was {done} is not known"),
            hint: Some(see.to_owned()),
            exit: failure.exit(),
        }),
        Err(Failure::Refused(Refusal::Expired)) => Err(Failure::NotDone {
            what: format!(
                "that took too long, and nothing was {done}: gpukilld keeps a plan for ten minutes"
            ),
            hint: Some("try again".into()),
            exit: Exit::Failed,
        }),
        began => began,
    }
}

/// Follows it to its end, over one break of the connection.
async fn follow_on<O: Operation>(
    operation: &mut O,
    daemon: Daemon,
    id: OperationId,
    settings: &Settings,
    messages: Messages,
) -> Result<O::Report, Failure> {
    match follow(operation, &daemon, id, messages).await {
        Err(failure) if breaks_off(&failure) => {
            operation.make_way();
            let noun = O::WORDS.noun;
            messages.warn(&format!(
                "{failure}; asking again what becomes of the {noun}"
            ));
            let patience = Patience::lasting(settings.timeout);
            let daemon = connect(settings, patience, messages).await?;
            follow(operation, &daemon, id, messages).await
        }
        report => report,
    }
}

async fn follow<O: Operation>(
    operation: &mut O,
    daemon: &Daemon,
    id: OperationId,
    messages: Messages,
) -> Result<O::Report, Failure> {
    let mut after = None;
    loop {
        // As long as the daemon may take, and as it may be late.
        let patience = Patience::lasting(LONGEST_WAIT * 2);
        let answer = O::ask(daemon, id, after, patience);
        tokio::pin!(answer);
        let report = loop {
            tokio::select! {
                biased;
                report = &mut answer => break report?,
                () = tokio::time::sleep(QUIET) => operation.wait(),
            }
        };
        operation.tell(&report)?;
        let (stage, version) = O::stands(&report);
        if is_over(stage) {
            return Ok(report);
        }
        messages.debug(|| format!("{stage:?}, version {version}"));
        if after == Some(version) {
            tokio::time::sleep(BETWEEN_ANSWERS).await;
        }
        after = Some(version);
    }
}

/// Whether a failure is of the connection, and says nothing of the operation.
const fn breaks_off(failure: &Failure) -> bool {
    matches!(failure, Failure::Broken(_) | Failure::TimedOut { .. })
}

/// What became of it cannot be had.
fn lost<O: Operation>(failure: Failure) -> Failure {
    let Words { whom, see, .. } = O::WORDS;
    let why = match &failure {
        // It is this client that cannot say what the daemon said.
        Failure::Output(_) | Failure::ReaderGone => return failure,
        Failure::Refused(Refusal::NoMatch(_)) => "gpukilld was started anew meanwhile".to_owned(),
        failure => failure.to_string(),
    };
    let exit = match failure.exit() {
        // That it is not known is no answer to what was asked.
        Exit::NoMatch | Exit::Done => Exit::Failed,
        exit => exit,
    };
    Failure::NotDone {
        what: format!("{why}: what became of {whom} is not known"),
        hint: Some(see.to_owned()),
        exit,
    }
}

/// Ctrl-C, and what else asks a program to end. When this is dropped it ends the
/// program again, as it did before: nobody may read what is printed then.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Tokio never gives a signal back.
    is_over: Arc<AtomicBool>,
}

impl Stop {
    fn listen() -> io::Result<Self> {
        let stop = Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            is_over: Arc::default(),
        };
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        for kind in kinds {
            let is_over = Arc::clone(&stop.is_over);
            register_conditional_default(kind.as_raw_value(), is_over)?;
        }
        Ok(stop)
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}
