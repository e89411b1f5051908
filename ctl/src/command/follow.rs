//! Has a plan carried out, and follows it. It is the daemon's: it goes on
//! whatever becomes of this client, and so this says how to see it.

use super::connect_while;
use super::signals::Signals;
use crate::connect::{Daemon, Meanwhile, Patience, is_over, sleep};
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::settings::Settings;
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_WAIT;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
    fn begin(
        daemon: &Daemon,
        plan: PlanId,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
    ) -> Result<OperationId, Failure>;

    /// How it stands: when something newer than version `after` is known, or
    /// after a while.
    fn ask(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        patience: Patience,
        meanwhile: &mut dyn Meanwhile,
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
pub(super) fn carry_out<O: Operation>(
    mut operation: O,
    daemon: Daemon,
    plan: PlanId,
    settings: &Settings,
    messages: Messages,
) -> Result<O::Report, Failure> {
    let done = O::WORDS.done;
    let mut stop = Stop::listen().map_err(Failure::System)?;
    let what = format!("not waited for: whether anything was {done} is not known");
    let mut beginning = Beginning(&mut stop, left::<O>, what);
    let id = begin::<O>(&daemon, plan, settings, &mut beginning)?;
    let mut following = Following {
        stop: &mut stop,
        operation: &mut operation,
    };
    follow_on(&mut following, daemon, id, settings, messages).map_err(lost::<O>)
}

/// An operation is begun: nothing is to be told yet.
struct Beginning<'a>(&'a mut Stop, fn(String) -> Failure, String);

impl Meanwhile for Beginning<'_> {
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.signals.wakes())
    }

    fn heed(&mut self) -> Result<(), Failure> {
        match self.0.is_heard() {
            true => Err((self.1)(self.2.clone())),
            false => Ok(()),
        }
    }
}

/// An operation is followed.
struct Following<'a, O> {
    stop: &'a mut Stop,
    operation: &'a mut O,
}

impl<O: Operation> Meanwhile for Following<'_, O> {
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stop.signals.wakes())
    }

    fn heed(&mut self) -> Result<(), Failure> {
        match self.stop.is_heard() {
            true => Err(left::<O>(
                "not followed any more: it goes on in gpukilld".to_owned(),
            )),
            false => Ok(()),
        }
    }

    fn quiet(&self) -> Option<Duration> {
        Some(QUIET)
    }

    fn note(&mut self) {
        self.operation.wait();
    }
}

fn left<O: Operation>(what: String) -> Failure {
    Failure::NotDone {
        what,
        hint: Some(O::WORDS.see.to_owned()),
        exit: Exit::Failed,
    }
}

fn begin<O: Operation>(
    daemon: &Daemon,
    plan: PlanId,
    settings: &Settings,
    meanwhile: &mut dyn Meanwhile,
) -> Result<OperationId, Failure> {
    let Words { done, see, .. } = O::WORDS;
    match O::begin(daemon, plan, Patience::lasting(settings.timeout), meanwhile) {
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
fn follow_on<O: Operation>(
    following: &mut Following<'_, O>,
    daemon: Daemon,
    id: OperationId,
    settings: &Settings,
    messages: Messages,
) -> Result<O::Report, Failure> {
    match follow(following, &daemon, id, messages) {
        Err(failure) if breaks_off(&failure) => {
            following.operation.make_way();
            let noun = O::WORDS.noun;
            messages.warn(&format!(
                "{failure}; asking again what becomes of the {noun}"
            ));
            let patience = Patience::lasting(settings.timeout);
            let daemon = connect_while(settings, patience, messages, following)?;
            follow(following, &daemon, id, messages)
        }
        report => report,
    }
}

fn follow<O: Operation>(
    following: &mut Following<'_, O>,
    daemon: &Daemon,
    id: OperationId,
    messages: Messages,
) -> Result<O::Report, Failure> {
    let mut after = None;
    loop {
        // As long as the daemon may take, and as it may be late.
        let patience = Patience::lasting(LONGEST_WAIT * 2);
        let report = O::ask(daemon, id, after, patience, following)?;
        following.operation.tell(&report)?;
        let (stage, version) = O::stands(&report);
        if is_over(stage) {
            return Ok(report);
        }
        messages.debug(|| format!("{stage:?}, version {version}"));
        if after == Some(version) {
            sleep(BETWEEN_ANSWERS, following)?;
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
        // It is not followed any more.
        Failure::NotDone { .. } => return failure,
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
    signals: Signals,
    /// A handler of a signal cannot be taken back.
    is_over: Arc<AtomicBool>,
}

impl Stop {
    fn listen() -> io::Result<Self> {
        const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
        let stop = Self {
            signals: Signals::listen(&ENDING)?,
            is_over: Arc::default(),
        };
        for signal in ENDING {
            let is_over = Arc::clone(&stop.is_over);
            register_conditional_default(signal, is_over)?;
        }
        Ok(stop)
    }

    fn is_heard(&mut self) -> bool {
        !self.signals.take().is_empty()
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}
