//! A handle on one process that is to end. A signal goes through the handle, and
//! never by a number: a pid is reused, a pidfd is not.

use super::super::frozen::{Frozen, Stopped};
use super::super::room::Room;
use crate::state::whole_milliseconds;
use gpukill_proto::kill::{Ending, KillSignal, KillTarget};
use gpukill_proto::snapshot::ProcessKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// One process, and what it got so far.
#[derive(Debug)]
pub(super) struct Target {
    planned: KillTarget,
    handle: Arc<OwnedFd>,
    /// Gives its place back when dropped.
    _room: Room,
    /// While it is stopped by us, and must not stay so.
    stopped: Option<Stopped>,
    signals: Vec<KillSignal>,
    /// The last step whose signal it got, or would have.
    step: Option<usize>,
    /// When it got its first signal, and its last one.
    first_at: Option<Instant>,
    last: Option<KillSignal>,
    ended_at: Option<Instant>,
    /// Nothing more is done to it.
    is_settled: bool,
}

/// What came of sending.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The kernel took it.
    Yes,
    /// It has no such signal, or has ended.
    Nothing,
    /// The kernel refuses; says how.
    Refused(String),
}

impl Target {
    /// A handle on whoever has the pid now: look at it again before the first
    /// signal.
    ///
    /// # Errors
    /// What is to be told of it where there is no such process, or no handle.
    pub(super) fn open(target: &KillTarget, signals: Vec<KillSignal>) -> Result<Self, Ending> {
        let pid = i32::try_from(target.key.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Ending::Gone);
        };
        let Some(room) = Room::take() else {
            return Err(Ending::Failed("too many processes are being ended".into()));
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // The kernel says so of a thread that leads no process, too.
            Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Err(Ending::Gone),
            Err(error) => return Err(Ending::Failed(format!("no handle on it: {error}"))),
        };
        Ok(Self {
            planned: target.clone(),
            handle: Arc::new(handle),
            _room: room,
            stopped: None,
            signals,
            step: None,
            first_at: None,
            last: None,
            ended_at: None,
            is_settled: false,
        })
    }

    pub(super) fn key(&self) -> ProcessKey {
        self.planned.key
    }

    /// As it was planned.
    pub(super) fn planned(&self) -> &KillTarget {
        &self.planned
    }

    /// How many signals it gets at most.
    pub(super) fn steps(&self) -> usize {
        self.signals.len()
    }

    /// The signal of this step.
    pub(super) fn signal(&self, step: usize) -> Option<KillSignal> {
        self.signals.get(step).copied()
    }

    /// All its signals, by step.
    pub(super) fn signals(&self) -> &[KillSignal] {
        &self.signals
    }

    /// Whether it had a signal.
    pub(super) fn had_signal(&self) -> bool {
        self.first_at.is_some()
    }

    /// Whether something may still become of it.
    pub(super) fn is_left(&self) -> bool {
        !self.is_settled
    }

    /// Whether its process has ended: the handle says so, whether or not the
    /// parent has asked how.
    pub(super) fn has_ended(&self) -> bool {
        let now = Timespec::default();
        let mut handles = [PollFd::from_borrowed_fd(self.handle(), PollFlags::IN)];
        matches!(poll(&mut handles, Some(&now)), Ok(1..))
    }

    /// When it ended, where it has.
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.ended_at
    }

    /// The handle, to wait on.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Whether it is to get a signal in this step, and has not got it.
    pub(super) fn awaits(&self, step: usize) -> bool {
        let is_new = self.step.is_none_or(|last| last < step);
        self.is_left() && is_new && self.signal(step).is_some()
    }

    /// Sends the signal of this step, once, if there is one and it has not ended.
    pub(super) fn send(&mut self, step: usize) -> Sent {
        let Some(signal) = self.signal(step).filter(|_| self.awaits(step)) else {
            return Sent::Nothing;
        };
        self.step = Some(step);
        // Of one that ended before its first signal that signal is not the cause.
        if self.has_ended() {
            return Sent::Nothing;
        }
        match pidfd_send_signal(&*self.handle, of_the_kernel(signal)) {
            Ok(()) => {}
            Err(Errno::SRCH) => return Sent::Nothing,
            Err(error) => return Sent::Refused(format!("{signal} was refused: {error}")),
        }
        self.first_at.get_or_insert_with(Instant::now);
        self.last = Some(signal);
        // One that is stopped takes a signal when it goes on, and not before. One
        // that we have stopped goes on with the others.
        if signal != KillSignal::Kill && self.stopped.is_none() {
            // It may end meanwhile, which is as good.
            let _ = pidfd_send_signal(&*self.handle, Signal::CONT);
        }
        Sent::Yes
    }

    /// Lets it go on, where we have stopped it: it has its signal.
    pub(super) fn goes_on(&mut self) {
        self.stopped = None;
    }

    /// Whether it is to be stopped before it gets the signal of this step: before it
    /// is killed, and before any other where it is of a job that forks.
    pub(super) fn awaits_stop(&self, step: usize, forks: bool) -> bool {
        self.awaits(step) && (forks || self.signal(step) == Some(KillSignal::Kill))
    }

    /// Stops it, so that it does not fork before it has its signal. It goes on when
    /// nothing more is done to it, or the daemon ends.
    pub(super) fn stop(&mut self, frozen: &Frozen) {
        let stop = || frozen.stop(self.planned.key, &self.handle);
        self.stopped.get_or_insert_with(stop).again();
    }

    /// Whether it is stopped by us.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Its process has ended: what is to be told of it.
    pub(super) fn end(&mut self) -> Ending {
        self.is_settled = true;
        let at = *self.ended_at.get_or_insert_with(Instant::now);
        match (self.last, self.first_at) {
            (Some(signal), Some(first)) => Ending::Ended(
                signal,
                whole_milliseconds(at.saturating_duration_since(first)),
            ),
            _ => Ending::Gone,
        }
    }

    /// It is still there: what is to be told of it. Why, where it got no signal.
    pub(super) fn survives(&mut self, why_none: &str) -> Ending {
        self.settle();
        match (self.last, self.first_at) {
            (Some(signal), Some(first)) => {
                Ending::Survived(signal, whole_milliseconds(first.elapsed()))
            }
            _ => Ending::Unclear(why_none.to_owned()),
        }
    }

    /// Nothing more is done to it.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
        self.stopped = None;
    }

    /// It may not get the signal of this step, for this reason: what is to be told of it.
    pub(super) fn is_spared(&mut self, why: Ending, step: usize) -> Ending {
        if self.has_ended() {
            return self.end();
        }
        self.settle();
        match (self.last, self.signal(step)) {
            // It is there, and got this: that nothing was sent would be untrue.
            (Some(last), Some(next)) => {
                let why = in_words(&why);
                Ending::Failed(format!("{next} withheld: {why}; it goes on after {last}"))
            }
            (_, _) => why,
        }
    }
}

/// Why a signal is withheld.
fn in_words(why: &Ending) -> String {
    match why {
        Ending::Protected(why)
        | Ending::Changed(why)
        | Ending::Unclear(why)
        | Ending::Failed(why) => why.clone(),
        Ending::Denied(ask) => format!("ask {ask}"),
        Ending::Zombie(_) => "it is a zombie".to_owned(),
        Ending::Gone | Ending::Ended(..) => "it has ended".to_owned(),
        Ending::Survived(..) | Ending::Uninterruptible(_) => "it goes on".to_owned(),
    }
}

fn of_the_kernel(signal: KillSignal) -> Signal {
    match signal {
        KillSignal::Interrupt => Signal::INT,
        KillSignal::Terminate => Signal::TERM,
        KillSignal::Kill => Signal::KILL,
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::wait;
    use super::*;
    use crate::procfs::stat::Stat;
    use gpukill_proto::kill::Fate;
    use gpukill_proto::reading::Reading;
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// A process of the test, killed when dropped.
    struct Actor(Child);

    impl Actor {
        /// Runs this in a shell, and waits until that has said a line.
        fn run(script: &str) -> Self {
            let mut child = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let told = child.stdout.take().unwrap();
            BufReader::new(told).read_line(&mut line).unwrap();
            Self(child)
        }

        fn stat(&self) -> Stat {
            Stat::read(Path::new(&format!("/proc/{}", self.0.id()))).unwrap()
        }

        fn planned(&self, signals: &[KillSignal]) -> Target {
            Target::open(
                &planned(self.0.id(), self.stat().start_ticks),
                signals.to_vec(),
            )
            .unwrap()
        }
    }

    impl Drop for Actor {
        fn drop(&mut self) {
            // It may have ended, as it should.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn planned(pid: u32, start_ticks: u64) -> KillTarget {
        KillTarget {
            key: ProcessKey { pid, start_ticks },
            name: "sh".into(),
            command: Reading::Unsupported,
            uid: Reading::Unsupported,
            owner: Reading::Unsupported,
            holds: Vec::new(),
            named: true,
            job: Reading::Unsupported,
            fate: Fate::End(Vec::new()),
            overridden: None,
        }
    }

    /// Waits until it has ended; a test that waits for ever is a failed one.
    fn waited(target: Target) -> Target {
        let deadline = Instant::now() + Duration::from_secs(60);
        let targets = [target];
        while wait(&targets, deadline).is_empty() {
            assert!(Instant::now() < deadline, "it did not end");
        }
        let [target] = targets;
        target
    }

    const TERM: &[KillSignal] = &[KillSignal::Terminate];

    #[test]
    fn a_signal_ends_a_process_and_the_handle_says_so_whether_or_not_it_was_reaped() {
        let actor = Actor::run("echo; exec sleep 1000");
        let mut target = actor.planned(TERM);
        assert!(!target.has_ended());
        assert_eq!(target.send(0), Sent::Yes);
        let mut target = waited(target);
        assert!(matches!(
            target.end(),
            Ending::Ended(KillSignal::Terminate, _)
        ));
        assert_eq!(actor.stat().state, 'Z');
        assert!(!target.is_left());
    }

    #[test]
    fn a_stopped_process_goes_on_to_take_its_signal() {
        let actor = Actor::run("echo; exec sleep 1000");
        let mut target = actor.planned(TERM);
        pidfd_send_signal(&*target.handle, Signal::STOP).unwrap();
        while actor.stat().state != 'T' {
            std::thread::yield_now();
        }
        assert_eq!(target.send(0), Sent::Yes);
        let mut target = waited(target);
        assert!(matches!(
            target.end(),
            Ending::Ended(KillSignal::Terminate, _)
        ));
    }

    #[test]
    fn each_step_is_sent_once_and_the_last_one_stands_in_the_report() {
        let actor = Actor::run("trap '' TERM; echo; while :; do sleep 1; done");
        let mut target = actor.planned(&[KillSignal::Terminate, KillSignal::Kill]);
        assert_eq!(target.send(0), Sent::Yes);
        assert_eq!(target.send(0), Sent::Nothing);
        assert!(wait(std::slice::from_ref(&target), Instant::now()).is_empty());
        assert_eq!(target.send(1), Sent::Yes);
        let mut target = waited(target);
        assert!(matches!(target.end(), Ending::Ended(KillSignal::Kill, _)));
        assert_eq!(target.send(2), Sent::Nothing);
    }

    #[test]
    fn what_ignores_its_signal_survives() {
        let actor = Actor::run("trap '' TERM; echo; while :; do sleep 1; done");
        let mut target = actor.planned(TERM);
        assert_eq!(target.send(0), Sent::Yes);
        assert!(matches!(
            target.survives(""),
            Ending::Survived(KillSignal::Terminate, _)
        ));
        assert!(!target.is_left());
    }

    #[test]
    fn of_what_ended_by_itself_no_signal_is_the_cause() {
        let actor = Actor::run("echo");
        while actor.stat().state != 'Z' {
            std::thread::yield_now();
        }
        let mut target = actor.planned(TERM);
        assert_eq!(target.send(0), Sent::Nothing);
        assert_eq!(target.end(), Ending::Gone);
    }

    #[test]
    fn what_ended_by_its_signal_is_told_so_though_it_would_be_spared() {
        let actor = Actor::run("echo; exec sleep 1000");
        let mut target = actor.planned(TERM);
        assert_eq!(target.send(0), Sent::Yes);
        let mut target = waited(target);
        let why = Ending::Protected("the admin says so".into());
        assert!(matches!(
            target.is_spared(why, 1),
            Ending::Ended(KillSignal::Terminate, _)
        ));
    }

    #[test]
    fn a_withheld_signal_is_told_with_its_reason() {
        let actor = Actor::run("trap '' TERM; echo; while :; do sleep 1; done");
        let mut target = actor.planned(&[KillSignal::Terminate, KillSignal::Kill]);
        assert!(!target.had_signal());
        assert_eq!(target.send(0), Sent::Yes);
        assert!(target.had_signal());
        let why = Ending::Changed("it runs as uid 0 now".into());
        let told = "SIGKILL withheld: it runs as uid 0 now; it goes on after SIGTERM";
        assert_eq!(target.is_spared(why, 1), Ending::Failed(told.into()));
        assert!(!target.is_left());
        // Before the first signal it is told as it is.
        let mut target = actor.planned(TERM);
        let why = Ending::Denied("root".into());
        assert_eq!(target.is_spared(why.clone(), 0), why);
    }

    #[test]
    fn a_pid_that_nobody_has_is_gone() {
        // Larger than any pid (`PID_MAX_LIMIT`), and what cannot be one.
        for pid in [0, (1 << 22) + 1, u32::MAX] {
            assert_eq!(
                Target::open(&planned(pid, 1), Vec::new()).err(),
                Some(Ending::Gone)
            );
        }
    }
}
