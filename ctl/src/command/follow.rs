//! Lets the daemon carry out a plan and follows the operation. The operation belongs to the
//! daemon and goes on when this client ends, so every error states how to see the result.

use super::connect_with_hooks;
use super::signals::Signals;
use crate::connect::{Daemon, RequestTimeout, WaitHooks, sleep};
use crate::exit::{Error, Exit};
use crate::output::spinner::Spinner;
use crate::settings::Settings;
use gpukill_proto::kill::{OperationId, PlanId, Stage};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::MAX_WAIT;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A daemon without news waits before it answers. A daemon that does not wait is asked no
/// faster than this.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(50);

/// Silence after which a hook is called.
const LONG_WAIT: Duration = Duration::from_millis(500);

/// The differences between followed operations.
pub(super) trait Operation {
    type Report;

    /// The words for messages.
    const WORDS: OperationWords;

    fn start(
        daemon: &Daemon,
        plan: PlanId,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<OperationId, Error>;

    /// The state of the operation, as soon as it is newer than version `after`, or after a
    /// while.
    fn poll_report(
        daemon: &Daemon,
        operation: OperationId,
        after: Option<u64>,
        timeout: RequestTimeout,
        hooks: &mut dyn WaitHooks,
    ) -> Result<Self::Report, Error>;

    fn progress(report: &Self::Report) -> (Stage, u64);

    /// Prints what a report adds before the end.
    fn print_progress(&mut self, report: &Self::Report) -> Result<(), Error>;

    /// The progress line on the terminal, if there is one.
    fn line(&mut self) -> Option<&mut Spinner>;

    /// Nothing was received for a while.
    fn on_long_wait(&mut self) {
        if let Some(line) = self.line() {
            line.draw();
        }
    }

    /// Another message is about to be printed on stderr.
    fn clear_progress(&mut self) {
        if let Some(line) = self.line() {
            line.remove();
        }
    }
}

/// The words for messages about an operation.
pub(super) struct OperationWords {
    /// The operation: `kill`.
    pub noun: &'static str,
    /// The past participle of the operation: `ended`.
    pub done: &'static str,
    /// The objects of the operation: `them`.
    pub objects: &'static str,
    /// The hint for an operation that cannot be followed.
    pub hint: &'static str,
}

/// Carries out a plan and follows it to its end, or to Ctrl-C.
pub(super) fn carry_out<O: Operation>(
    mut operation: O,
    daemon: Daemon,
    plan: PlanId,
    settings: &Settings,
) -> Result<O::Report, Error> {
    let done = O::WORDS.done;
    let mut stop = StopSignals::listen().map_err(Error::System)?;
    let what = format!("not waited for: whether anything was {done} is not known");
    let mut beginning = StartHooks(&mut stop, stopped_following::<O>, what);
    let id = start_operation::<O>(&daemon, plan, settings, &mut beginning)?;
    let mut following = FollowHooks {
        stop: &mut stop,
        operation: &mut operation,
    };
    follow_across_reconnect(&mut following, daemon, id, settings).map_err(result_unknown::<O>)
}

/// The operation is being started, so there is nothing to report yet.
struct StartHooks<'a>(&'a mut StopSignals, fn(String) -> Error, String);

impl WaitHooks for StartHooks<'_> {
    fn wake_fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.0.signals.wake_fd()), None]
    }

    fn on_wake(&mut self) -> Result<(), Error> {
        match self.0.is_requested() {
            true => Err((self.1)(self.2.clone())),
            false => Ok(()),
        }
    }
}

struct FollowHooks<'a, O> {
    stop: &'a mut StopSignals,
    operation: &'a mut O,
}

impl<O: Operation> WaitHooks for FollowHooks<'_, O> {
    fn wake_fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.stop.signals.wake_fd()), None]
    }

    fn on_wake(&mut self) -> Result<(), Error> {
        match self.stop.is_requested() {
            true => Err(stopped_following::<O>(
                "no longer followed: it continues in gpukilld".to_owned(),
            )),
            false => Ok(()),
        }
    }

    fn long_wait_after(&self) -> Option<Duration> {
        Some(LONG_WAIT)
    }

    fn on_long_wait(&mut self) {
        self.operation.on_long_wait();
    }
}

fn stopped_following<O: Operation>(what: String) -> Error {
    Error::NotDone {
        what,
        hint: Some(O::WORDS.hint.to_owned()),
        exit: Exit::Failed,
    }
}

fn start_operation<O: Operation>(
    daemon: &Daemon,
    plan: PlanId,
    settings: &Settings,
    hooks: &mut dyn WaitHooks,
) -> Result<OperationId, Error> {
    let OperationWords {
        done, hint: see, ..
    } = O::WORDS;
    match O::start(daemon, plan, settings.request_timeout(), hooks) {
        Err(failure) if is_connection_error(&failure) => Err(Error::NotDone {
            what: format!("{failure}: whether anything was {done} is not known"),
            hint: Some(see.to_owned()),
            exit: failure.exit_code(),
        }),
        Err(Error::Refused(Refusal::Expired)) => Err(Error::NotDone {
            what: format!(
                "that took too long, and nothing was {done}: gpukilld keeps a plan for ten minutes"
            ),
            hint: Some("try again".into()),
            exit: Exit::Failed,
        }),
        started => started,
    }
}

/// Follows the operation to its end, across one break of the connection.
fn follow_across_reconnect<O: Operation>(
    following: &mut FollowHooks<'_, O>,
    daemon: Daemon,
    id: OperationId,
    settings: &Settings,
) -> Result<O::Report, Error> {
    match follow(following, &daemon, id, settings) {
        Err(failure) if is_connection_error(&failure) => {
            following.operation.clear_progress();
            let noun = O::WORDS.noun;
            let messages = settings.messages();
            messages.warn(&format!("{failure}; reconnecting to follow the {noun}"));
            let timeout = settings.request_timeout();
            let daemon = connect_with_hooks(settings, timeout, following)?;
            follow(following, &daemon, id, settings)
        }
        report => report,
    }
}

fn follow<O: Operation>(
    following: &mut FollowHooks<'_, O>,
    daemon: &Daemon,
    id: OperationId,
    settings: &Settings,
) -> Result<O::Report, Error> {
    let messages = settings.messages();
    let mut after = None;
    loop {
        // The time the daemon may take, and as much again for delays.
        let timeout = RequestTimeout::starting_now(MAX_WAIT * 2);
        let report = O::poll_report(daemon, id, after, timeout, following)?;
        following.operation.print_progress(&report)?;
        let (stage, version) = O::progress(&report);
        if is_over(stage) {
            return Ok(report);
        }
        messages.debug(|| format!("{stage:?}, version {version}"));
        if after == Some(version) {
            sleep(MIN_REQUEST_INTERVAL, following)?;
        }
        after = Some(version);
    }
}

/// Whether nothing more will happen.
pub(super) const fn is_over(stage: Stage) -> bool {
    match stage {
        Stage::Done | Stage::Interrupted => true,
        Stage::Ending | Stage::Reclaiming => false,
    }
}

/// The exit code of an operation that ended in this stage. `settled` is the result of the
/// report, in which what is not settled is missing.
pub(super) const fn final_exit(stage: Stage, settled: Exit) -> Exit {
    match (stage, settled) {
        (Stage::Interrupted, Exit::Done | Exit::PartlyDone) => Exit::PartlyDone,
        (Stage::Interrupted, _) => Exit::Failed,
        (Stage::Done | Stage::Ending | Stage::Reclaiming, settled) => settled,
    }
}

/// Whether an error is about the connection only and says nothing about the operation.
const fn is_connection_error(failure: &Error) -> bool {
    matches!(failure, Error::ConnectionLost(_) | Error::TimedOut { .. })
}

/// The error for an operation without an obtainable result.
fn result_unknown<O: Operation>(failure: Error) -> Error {
    let OperationWords {
        objects, hint: see, ..
    } = O::WORDS;
    let why = match &failure {
        // The client could not print what the daemon reported.
        Error::Output(_) | Error::ReaderGone => return failure,
        // The client stopped following.
        Error::NotDone { .. } => return failure,
        Error::Refused(Refusal::NoMatch(_)) => "gpukilld was restarted meanwhile".to_owned(),
        failure => failure.to_string(),
    };
    let exit = match failure.exit_code() {
        // A result that is not known is not the requested answer.
        Exit::NoMatch | Exit::Done => Exit::Failed,
        exit => exit,
    };
    Error::NotDone {
        what: format!("{why}: the outcome for {objects} is not known"),
        hint: Some(see.to_owned()),
        exit,
    }
}

/// Listens for Ctrl-C and other requests to end. When dropped, these signals end the program
/// again as they do by default, because the output that follows may block without a reader.
struct StopSignals {
    signals: Signals,
    /// Signal handlers cannot be unregistered.
    is_over: Arc<AtomicBool>,
}

impl StopSignals {
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

    fn is_requested(&mut self) -> bool {
        !self.signals.take_received().is_empty()
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}
