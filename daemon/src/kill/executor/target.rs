//! A handle on one process that is to end. Signals go through the pidfd and never by number: a PID
//! is reused, a pidfd is not.

use super::super::concurrency::FdPermit;
use super::super::stopped::{StopGuard, StoppedProcesses};
use crate::state::whole_milliseconds;
use gpukill_proto::kill::{KillSignal, KillTarget, Outcome};
use gpukill_proto::model::ProcessKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// One process and the signals it got so far.
#[derive(Debug)]
pub(super) struct Target {
    planned: KillTarget,
    handle: Arc<OwnedFd>,
    _fd_permit: FdPermit,
    /// Set while this kill has stopped the process. It must not stay stopped.
    stopped: Option<StopGuard>,
    signals: Vec<KillSignal>,
    /// The last step with a signal that was sent or skipped.
    step: Option<usize>,
    /// When the first signal was sent.
    first_at: Option<Instant>,
    /// The last signal that was sent.
    last: Option<KillSignal>,
    ended_at: Option<Instant>,
    /// Whether nothing more is done to it.
    is_settled: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendResult {
    /// The kernel took it.
    Delivered,
    /// The target has no signal in this step, or has ended.
    NotSent,
    /// The kernel refused it; the text has the error.
    Refused(String),
}

impl Target {
    /// Opens a handle on the process that has the PID now. The caller must check its identity
    /// before the first signal.
    ///
    /// # Errors
    /// The outcome to report where there is no such process or no handle.
    pub(super) fn open(target: &KillTarget, signals: Vec<KillSignal>) -> Result<Self, Outcome> {
        let pid = i32::try_from(target.key.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Outcome::Gone);
        };
        let Some(fd_permit) = FdPermit::take() else {
            return Err(Outcome::Failed("too many processes are being ended".into()));
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            // The kernel reports `EINVAL` or `ENOENT` for a thread that leads no process.
            Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Err(Outcome::Gone),
            Err(error) => {
                return Err(Outcome::Failed(format!(
                    "cannot open a handle on it: {error}"
                )));
            }
        };
        Ok(Self {
            planned: target.clone(),
            handle: Arc::new(handle),
            _fd_permit: fd_permit,
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

    pub(super) fn planned(&self) -> &KillTarget {
        &self.planned
    }

    /// The highest number of signals that it gets.
    pub(super) fn signal_count(&self) -> usize {
        self.signals.len()
    }

    pub(super) fn signal(&self, step: usize) -> Option<KillSignal> {
        self.signals.get(step).copied()
    }

    pub(super) fn signals(&self) -> &[KillSignal] {
        &self.signals
    }

    pub(super) fn had_signal(&self) -> bool {
        self.first_at.is_some()
    }

    /// Whether its outcome is still open.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_settled
    }

    /// Whether its process has ended. The handle reports that even before the parent has waited for
    /// it.
    pub(super) fn has_ended(&self) -> bool {
        let now = Timespec::default();
        let mut handles = [PollFd::from_borrowed_fd(self.handle(), PollFlags::IN)];
        matches!(poll(&mut handles, Some(&now)), Ok(1..))
    }

    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.ended_at
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Whether it is to get a signal in this step and has not got it.
    pub(super) fn awaits(&self, step: usize) -> bool {
        let is_new = self.step.is_none_or(|last| last < step);
        self.is_pending() && is_new && self.signal(step).is_some()
    }

    /// Sends the signal of this step once, unless there is none or the process has ended.
    pub(super) fn send(&mut self, step: usize) -> SendResult {
        let Some(signal) = self.signal(step).filter(|_| self.awaits(step)) else {
            return SendResult::NotSent;
        };
        self.step = Some(step);
        // A signal is not the cause of an end that precedes it.
        if self.has_ended() {
            return SendResult::NotSent;
        }
        match pidfd_send_signal(&*self.handle, to_kernel_signal(signal)) {
            Ok(()) => {}
            Err(Errno::SRCH) => return SendResult::NotSent,
            Err(error) => return SendResult::Refused(format!("{signal} was refused: {error}")),
        }
        self.first_at.get_or_insert_with(Instant::now);
        self.last = Some(signal);
        // A stopped process takes a signal only when it resumes. A process that this kill has
        // stopped resumes with the others.
        if signal != KillSignal::Kill && self.stopped.is_none() {
            // An error means that the process has ended.
            let _ = pidfd_send_signal(&*self.handle, Signal::CONT);
        }
        SendResult::Delivered
    }

    /// Resumes it after its signal, where this kill has stopped it.
    pub(super) fn resume(&mut self) {
        self.stopped = None;
    }

    /// Whether it must be stopped before the signal of this step: always before SIGKILL, and before
    /// any other signal where the job forks.
    pub(super) fn needs_stop(&self, step: usize, forks: bool) -> bool {
        self.awaits(step) && (forks || self.signal(step) == Some(KillSignal::Kill))
    }

    /// Stops it so that it does not fork before its signal. It resumes when it is settled, or when
    /// the daemon ends.
    pub(super) fn stop(&mut self, stopped: &StoppedProcesses) {
        let stop = || stopped.stop(self.planned.key, &self.handle);
        self.stopped.get_or_insert_with(stop).stop();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Settles a target after its process ended.
    pub(super) fn settle_ended(&mut self) -> Outcome {
        self.is_settled = true;
        let at = *self.ended_at.get_or_insert_with(Instant::now);
        match (self.last, self.first_at) {
            (Some(signal), Some(first)) => Outcome::Ended(
                signal,
                whole_milliseconds(at.saturating_duration_since(first)),
            ),
            _ => Outcome::Gone,
        }
    }

    /// Settles a target while its process still exists. `why_none` is the reason where it got no
    /// signal.
    pub(super) fn settle_survived(&mut self, why_none: &str) -> Outcome {
        self.settle();
        match (self.last, self.first_at) {
            (Some(signal), Some(first)) => {
                Outcome::Survived(signal, whole_milliseconds(first.elapsed()))
            }
            _ => Outcome::Unclear(why_none.to_owned()),
        }
    }

    /// Closes the target: nothing more is done to it.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
        self.stopped = None;
    }

    /// Settles a target that may not get the signal of this step, for the reason `why`.
    pub(super) fn settle_withheld(&mut self, why: Outcome, step: usize) -> Outcome {
        if self.has_ended() {
            return self.settle_ended();
        }
        self.settle();
        match (self.last, self.signal(step)) {
            // Reporting that nothing was sent would be untrue: it got the earlier signal.
            (Some(last), Some(next)) => {
                let why = withheld_reason(&why);
                Outcome::Failed(format!(
                    "{next} withheld: {why}; it still runs after {last}"
                ))
            }
            (_, _) => why,
        }
    }
}

fn withheld_reason(why: &Outcome) -> String {
    match why {
        Outcome::Protected(why)
        | Outcome::Changed(why)
        | Outcome::Unclear(why)
        | Outcome::Failed(why) => why.clone(),
        Outcome::Denied(ask) => format!("ask {ask}"),
        Outcome::Zombie(_) => "it is a zombie".to_owned(),
        Outcome::Gone | Outcome::Ended(..) => "it has ended".to_owned(),
        Outcome::Survived(..) | Outcome::Uninterruptible(_) => "it still runs".to_owned(),
    }
}

fn to_kernel_signal(signal: KillSignal) -> Signal {
    match signal {
        KillSignal::Interrupt => Signal::INT,
        KillSignal::Terminate => Signal::TERM,
        KillSignal::Kill => Signal::KILL,
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait_for_exits;
    use super::*;
    use crate::procfs::stat::Stat;
    use gpukill_proto::kill::PlannedAction;
    use gpukill_proto::reading::Reading;
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// A test process, killed when dropped.
    struct TestChild(Child);

    impl TestChild {
        /// Runs this script in a shell and waits for its first line.
        fn run(script: &str) -> Self {
            let mut child = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let stdout = child.stdout.take().unwrap();
            BufReader::new(stdout).read_line(&mut line).unwrap();
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

    impl Drop for TestChild {
        fn drop(&mut self) {
            // An error means that it has ended.
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
            action: PlannedAction::End(Vec::new()),
            overridden: None,
        }
    }

    /// Waits until it has ended. A process that never ends fails the test.
    fn waited(target: Target) -> Target {
        let deadline = Instant::now() + Duration::from_secs(60);
        let targets = [target];
        while wait_for_exits(&targets, deadline).is_empty() {
            assert!(Instant::now() < deadline, "it did not end");
        }
        let [target] = targets;
        target
    }

    const TERM: &[KillSignal] = &[KillSignal::Terminate];

    #[test]
    fn ends_with_the_signal_reaped_or_not() {
        let process = TestChild::run("echo; exec sleep 1000");
        let mut target = process.planned(TERM);
        assert!(!target.has_ended());
        assert_eq!(target.send(0), SendResult::Delivered);
        let mut target = waited(target);
        assert!(matches!(
            target.settle_ended(),
            Outcome::Ended(KillSignal::Terminate, _)
        ));
        assert_eq!(process.stat().state, 'Z');
        assert!(!target.is_pending());
    }

    #[test]
    fn stopped_process_takes_its_signal() {
        let process = TestChild::run("echo; exec sleep 1000");
        let mut target = process.planned(TERM);
        pidfd_send_signal(&*target.handle, Signal::STOP).unwrap();
        while process.stat().state != 'T' {
            std::thread::yield_now();
        }
        assert_eq!(target.send(0), SendResult::Delivered);
        let mut target = waited(target);
        assert!(matches!(
            target.settle_ended(),
            Outcome::Ended(KillSignal::Terminate, _)
        ));
    }

    #[test]
    fn sends_each_step_once() {
        let process = TestChild::run("trap '' TERM; echo; while :; do sleep 1; done");
        let mut target = process.planned(&[KillSignal::Terminate, KillSignal::Kill]);
        assert_eq!(target.send(0), SendResult::Delivered);
        assert_eq!(target.send(0), SendResult::NotSent);
        assert!(wait_for_exits(std::slice::from_ref(&target), Instant::now()).is_empty());
        assert_eq!(target.send(1), SendResult::Delivered);
        let mut target = waited(target);
        assert!(matches!(
            target.settle_ended(),
            Outcome::Ended(KillSignal::Kill, _)
        ));
        assert_eq!(target.send(2), SendResult::NotSent);
    }

    #[test]
    fn survives_an_ignored_signal() {
        let process = TestChild::run("trap '' TERM; echo; while :; do sleep 1; done");
        let mut target = process.planned(TERM);
        assert_eq!(target.send(0), SendResult::Delivered);
        assert!(matches!(
            target.settle_survived(""),
            Outcome::Survived(KillSignal::Terminate, _)
        ));
        assert!(!target.is_pending());
    }

    #[test]
    fn own_end_names_no_signal() {
        let process = TestChild::run("echo");
        while process.stat().state != 'Z' {
            std::thread::yield_now();
        }
        let mut target = process.planned(TERM);
        assert_eq!(target.send(0), SendResult::NotSent);
        assert_eq!(target.settle_ended(), Outcome::Gone);
    }

    #[test]
    fn end_by_signal_beats_a_veto() {
        let process = TestChild::run("echo; exec sleep 1000");
        let mut target = process.planned(TERM);
        assert_eq!(target.send(0), SendResult::Delivered);
        let mut target = waited(target);
        let why = Outcome::Protected("the admin says so".into());
        assert!(matches!(
            target.settle_withheld(why, 1),
            Outcome::Ended(KillSignal::Terminate, _)
        ));
    }

    #[test]
    fn withheld_signal_has_its_reason() {
        let process = TestChild::run("trap '' TERM; echo; while :; do sleep 1; done");
        let mut target = process.planned(&[KillSignal::Terminate, KillSignal::Kill]);
        assert!(!target.had_signal());
        assert_eq!(target.send(0), SendResult::Delivered);
        assert!(target.had_signal());
        let why = Outcome::Changed("it runs as uid 0 now".into());
        let expected = "SIGKILL withheld: it runs as uid 0 now; it still runs after SIGTERM";
        assert_eq!(
            target.settle_withheld(why, 1),
            Outcome::Failed(expected.into())
        );
        assert!(!target.is_pending());
        // Before the first signal the reason is reported unchanged.
        let mut target = process.planned(TERM);
        let why = Outcome::Denied("root".into());
        assert_eq!(target.settle_withheld(why.clone(), 0), why);
    }

    #[test]
    fn unused_pid_is_gone() {
        // Larger than any PID (`PID_MAX_LIMIT`), and a number that no PID can have.
        for pid in [0, (1 << 22) + 1, u32::MAX] {
            assert_eq!(
                Target::open(&planned(pid, 1), Vec::new()).err(),
                Some(Outcome::Gone)
            );
        }
    }
}
