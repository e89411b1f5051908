//! The newest snapshot of the daemon, from one long poll however many clients there are.
//!
//! A thread polls and publishes what it knows. While the daemon is gone, restarted, of another
//! version or slow, the thread says so and tries again; the last snapshot stays, with its age. The
//! thread of a gateway for everybody ends when the daemon says that its user may do or see more than
//! every user.

use crate::daemon::{AnnotatedSnapshot, CallError, DaemonConnection, call};
use crate::document::Document;
use crate::log;
use crate::problem::{Problem, exit_code};
use axum::http::StatusCode;
use bytes::Bytes;
use gpukill_proto::json::ListDocument;
use gpukill_proto::service::MAX_WAIT;
use gpukill_proto::status::{DaemonStatus, Right};
use gpukill_proto::units::Timestamp;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// How long a connection, or an answer at once, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the answer to the long poll may take.
const LONG_POLL_TIMEOUT: Duration =
    Duration::from_secs(MAX_WAIT.as_secs() + ANSWER_TIMEOUT.as_secs());

/// The status is requested again after this time, together with a snapshot.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// The first pause before another attempt to reach the daemon; each further pause is twice as
/// long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The shortest time from one request for a snapshot to the next: the shortest poll interval of
/// gpukilld.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The same after an answer without a new snapshot, which should come at the end of a long wait.
const MIN_IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Data is stale after this many poll intervals without a new snapshot.
const STALE_AFTER_POLLS: u32 = 3;

/// Data is not stale before this time, because a driver may be slow for a moment.
const MIN_STALE_AFTER: Duration = Duration::from_secs(10);

/// One snapshot, ready to be sent.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Counts the snapshots that this gateway received.
    pub(crate) sequence: u64,
    pub(crate) annotated: AnnotatedSnapshot,
    /// The document that `gpukillctl list -o json` prints.
    pub(crate) list: ListDocument,
    /// The same document as JSON.
    pub(crate) document: Arc<Document>,
    /// When it arrived, and its age then.
    received: Instant,
    age_received: Duration,
    event: OnceLock<Bytes>,
    message: OnceLock<Bytes>,
}

impl Frame {
    /// A frame of a snapshot that has just arrived.
    ///
    /// # Errors
    /// It cannot be serialized, which is a bug.
    pub(crate) fn new(sequence: u64, annotated: AnnotatedSnapshot) -> Result<Self, Problem> {
        let list = ListDocument::new(&annotated.snapshot, &annotated.guard, &annotated.verdicts);
        let document = Arc::new(Document::json(&list)?);
        let age_received = Timestamp::from(SystemTime::now()).since(annotated.snapshot.taken_at);
        Ok(Self {
            sequence,
            annotated,
            list,
            document,
            received: Instant::now(),
            age_received,
            event: OnceLock::new(),
            message: OnceLock::new(),
        })
    }

    /// The time since its poll began.
    pub(crate) fn age(&self) -> Duration {
        self.age_received.saturating_add(self.received.elapsed())
    }

    /// The frame as a server-sent event.
    pub(crate) fn event(&self) -> Bytes {
        let event = self.event.get_or_init(|| {
            let head = format!("event: snapshot\nid: {}\ndata: ", self.document.tag());
            [head.as_bytes(), self.document.line(), b"\n\n"]
                .concat()
                .into()
        });
        event.clone()
    }

    /// The frame as a message of a WebSocket.
    pub(crate) fn message(&self) -> Bytes {
        let message = self.message.get_or_init(|| {
            // The tag has only hexadecimal digits.
            let head = format!(
                "{{\"event\":\"snapshot\",\"id\":\"{}\",\"data\":",
                self.document.tag()
            );
            [head.as_bytes(), self.document.line(), b"}"]
                .concat()
                .into()
        });
        message.clone()
    }
}

/// Why there is no current data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DaemonFailure {
    pub(crate) what: String,
    /// What can be done about it.
    pub(crate) hint: Option<String>,
    /// Since when.
    pub(crate) since: Timestamp,
}

/// What the gateway knows of the daemon at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct DaemonView {
    /// The newest snapshot, whatever its age.
    pub(crate) frame: Option<Arc<Frame>>,
    /// The newest status.
    pub(crate) status: Option<Arc<DaemonStatus>>,
    /// Why there is no connection, or no new data; `None` while there is.
    pub(crate) failure: Option<DaemonFailure>,
    /// Whether this gateway must end, because it would show everybody more than every user may see.
    pub(crate) is_privileged: bool,
    /// The number of connections that were made to the daemon.
    pub(crate) connections: u64,
}

impl DaemonView {
    /// The newest snapshot, if it is current.
    ///
    /// # Errors
    /// The daemon is not reached, or has not polled for a while: says why, with the age of the
    /// data.
    pub(crate) fn current(&self) -> Result<&Arc<Frame>, Problem> {
        let age = self.frame.as_ref().map(|frame| frame.age());
        let unavailable = |what: &str, hint: Option<&str>| {
            let detail = match age {
                Some(age) => format!("{what}; the newest data is {} s old", age.as_secs()),
                None => what.to_owned(),
            };
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                .with_exit_code(exit_code::UNREACHABLE)
                .with_retry_after(2)
                .with_data_age(age.map(|age| age.as_secs_f64()));
            match hint {
                Some(hint) => problem.with_hint(hint),
                None => problem,
            }
        };
        if let Some(failure) = &self.failure {
            return Err(unavailable(&failure.what, failure.hint.as_deref()));
        }
        match &self.frame {
            None => Err(unavailable("gpukilld has not polled the GPUs yet", None)),
            Some(frame) if frame.age() > self.stale_after() => Err(unavailable(
                "gpukilld has not polled the GPUs for a while",
                None,
            )),
            Some(frame) => Ok(frame),
        }
    }

    /// The age from which data is stale.
    fn stale_after(&self) -> Duration {
        let interval = self
            .status
            .as_ref()
            .map(|status| status.polling.interval_ms);
        let interval = Duration::from_millis(interval.unwrap_or_default());
        interval
            .saturating_mul(STALE_AFTER_POLLS)
            .max(MIN_STALE_AFTER)
    }
}

/// What the user of the program may do in the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedRights {
    /// No more than every user: everybody sees what the program sees.
    OfEveryUser,
    /// Anything: only those that may see it too get it.
    Any,
}

impl AllowedRights {
    fn include(self, rights: &[Right]) -> bool {
        let of_every_user = |right: &Right| match right {
            Right::Look | Right::EndOwn => true,
            Right::EndAny | Right::EditRules => false,
        };
        self == Self::Any || rights.iter().all(of_every_user)
    }
}

/// Starts the thread that polls the daemon. It ends with the program, or when its user has more
/// rights than it may have.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(
    socket: PathBuf,
    allowed: AllowedRights,
) -> std::io::Result<watch::Receiver<Arc<DaemonView>>> {
    let starting = DaemonView {
        failure: Some(DaemonFailure {
            what: "the gateway has not reached gpukilld yet".into(),
            hint: None,
            since: SystemTime::now().into(),
        }),
        ..DaemonView::default()
    };
    let (sender, receiver) = watch::channel(Arc::new(starting.clone()));
    let upstream = Upstream {
        socket,
        allowed,
        sender,
        view: starting,
        sequence: 0,
        status_at: None,
    };
    let thread = std::thread::Builder::new().name("upstream".into());
    thread.spawn(move || upstream.run())?;
    Ok(receiver)
}

/// Waits until the thread that polls has ended: without it, the data would stay as it is for ever.
/// Returns the reason; `None` for a bug.
pub(crate) async fn wait_for_end(mut view: watch::Receiver<Arc<DaemonView>>) -> Option<String> {
    while view.changed().await.is_ok() {}
    let last = view.borrow();
    let failure = last.failure.as_ref().filter(|_| last.is_privileged);
    failure.map(|failure| failure.what.clone())
}

/// The thread that polls.
struct Upstream {
    socket: PathBuf,
    allowed: AllowedRights,
    sender: watch::Sender<Arc<DaemonView>>,
    /// What was published last.
    view: DaemonView,
    /// The number of frames.
    sequence: u64,
    /// When the status was received.
    status_at: Option<Instant>,
}

impl Upstream {
    fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let connections = self.view.connections;
            let Err(error) = self.follow();
            if let CallError::TooManyRights(_) = error {
                // What it has seen is not shown any more. The program says why it ends.
                let failure = DaemonFailure {
                    what: error.to_string(),
                    hint: None,
                    since: SystemTime::now().into(),
                };
                self.view = DaemonView {
                    failure: Some(failure),
                    is_privileged: true,
                    connections,
                    ..DaemonView::default()
                };
                return self.publish();
            }
            if self.view.connections > connections {
                pause = FIRST_PAUSE;
            }
            self.fail(error.to_string(), error.hint());
            std::thread::sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Publishes one snapshot after the other until the connection fails.
    fn follow(&mut self) -> Result<Infallible, CallError> {
        let mut daemon = DaemonConnection::open(&self.socket, ANSWER_TIMEOUT)?;
        self.status_at = None;
        // Another daemon counts its polls from the start.
        let mut after = None;
        loop {
            let began = Instant::now();
            daemon.set_timeout(LONG_POLL_TIMEOUT);
            let annotated = daemon.snapshot(after)?;
            let polls = annotated.snapshot.polls;
            let is_status_due = self
                .status_at
                .is_none_or(|received| received.elapsed() >= STATUS_INTERVAL);
            if is_status_due {
                daemon.set_timeout(ANSWER_TIMEOUT);
                let status = call!(daemon, Status {})?;
                if !self.allowed.include(&status.caller.rights) {
                    let user = status.caller.user.last_known().cloned();
                    let user = user.unwrap_or_else(|| status.caller.uid.to_string());
                    return Err(CallError::TooManyRights(user));
                }
                self.view.status = Some(Arc::new(status));
                self.status_at = Some(Instant::now());
            }
            if after.is_none() {
                self.view.connections += 1;
            }
            // Poll number 0 is before the first poll. Without a new poll the answer comes at the
            // end of the wait.
            let is_new = after != Some(polls);
            if is_new && polls > 0 {
                self.add_frame(annotated);
            }
            after = Some(polls);
            match polls {
                // The last snapshot may be that of the daemon before.
                0 => self.fail("gpukilld has not polled the GPUs yet".into(), None),
                _ => self.publish_current(),
            }
            std::thread::sleep(pause_after(began.elapsed(), is_new));
        }
    }

    fn add_frame(&mut self, annotated: AnnotatedSnapshot) {
        self.sequence += 1;
        // A frame that cannot be serialized is left out: the data gets older, and is stale soon.
        if let Ok(frame) = Frame::new(self.sequence, annotated) {
            self.view.frame = Some(Arc::new(frame));
        }
    }

    /// Publishes the state of a daemon that answers.
    fn publish_current(&mut self) {
        let stale_after = self.view.stale_after();
        let age = self.view.frame.as_ref().map(|frame| frame.age());
        if let Some(age) = age.filter(|age| *age > stale_after) {
            let what = format!(
                "gpukilld answers, but has not polled the GPUs for {} s",
                age.as_secs()
            );
            return self.fail(what, Some("see gpukillctl status".into()));
        }
        if self.view.failure.take().is_some() {
            log::info("connected to gpukilld");
        }
        self.publish();
    }

    fn fail(&mut self, what: String, hint: Option<String>) {
        let before = self.view.failure.as_ref();
        let since = before.map_or_else(|| SystemTime::now().into(), |failure| failure.since);
        if before.is_none_or(|failure| !is_same_reason(&failure.what, &what)) {
            log::warn(&what);
        }
        self.view.failure = Some(DaemonFailure { what, hint, since });
        self.publish();
    }

    fn publish(&self) {
        self.sender.send_replace(Arc::new(self.view.clone()));
    }
}

/// The pause before the next request, after an answer that took this long. A daemon that does not wait
/// for a new snapshot must not keep a processor busy.
fn pause_after(took: Duration, is_new: bool) -> Duration {
    let least = match is_new {
        true => MIN_INTERVAL,
        false => MIN_IDLE_INTERVAL,
    };
    least.saturating_sub(took)
}

/// Whether two messages differ in nothing but numbers, such as how long the daemon has been silent.
pub(crate) fn is_same_reason(one: &str, other: &str) -> bool {
    let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    words(one) == words(other)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use gpukill_proto::guard::GuardSummary;
    use gpukill_proto::model::{Device, DeviceId, Snapshot, Vendor};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::{Bytes as Size, Percent};

    /// A snapshot of one GPU that is half busy.
    pub(crate) fn snapshot(taken_at: Timestamp) -> AnnotatedSnapshot {
        let id = DeviceId("GPU-1".into());
        let mut device = Device::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported);
        device.vitals.utilization = Reading::Value(Percent(50));
        device.memory_total = Reading::Value(Size(80 << 30));
        device.memory_used = Reading::Stale(Size(40 << 30), 12);
        AnnotatedSnapshot {
            snapshot: Snapshot {
                host: "box".into(),
                taken_at,
                polls: 7,
                devices: vec![device],
                processes: Vec::new(),
                backends: Vec::new(),
                faults: Vec::new(),
            },
            guard: GuardSummary::default(),
            verdicts: Vec::new(),
        }
    }

    pub(crate) fn view(age: Duration) -> DaemonView {
        let now = Timestamp::from(SystemTime::now());
        let seconds = i64::try_from(age.as_secs()).unwrap();
        let frame = Frame::new(1, snapshot(now.plus_seconds(-seconds))).unwrap();
        DaemonView {
            frame: Some(Arc::new(frame)),
            ..DaemonView::default()
        }
    }

    fn detail(problem: &Problem) -> serde_json::Value {
        serde_json::from_slice(&problem.body()).unwrap()
    }

    #[tokio::test]
    async fn end_of_the_thread_is_noticed() {
        let (sender, receiver) = watch::channel(Arc::new(DaemonView::default()));
        sender.send_replace(Arc::new(view(Duration::from_secs(1))));
        drop(sender);
        assert_eq!(wait_for_end(receiver).await, None);
    }

    #[test]
    fn only_a_gateway_of_one_person_may_have_rights() {
        use Right::{EditRules, EndAny, EndOwn, Look};
        let cases: [(&[Right], bool); 6] = [
            (&[], true),
            (&[Look], true),
            (&[Look, EndOwn], true),
            (&[Look, EndOwn, EndAny], false),
            (&[Look, EndOwn, EditRules], false),
            (&[EndAny, EditRules], false),
        ];
        for (rights, expected) in cases {
            let is_allowed = AllowedRights::OfEveryUser.include(rights);
            assert_eq!(is_allowed, expected, "{rights:?}");
            assert!(AllowedRights::Any.include(rights), "{rights:?}");
        }
    }

    #[test]
    fn daemon_that_answers_at_once_is_not_asked_without_a_pause() {
        // The time of a thousand answers, each after this time.
        let time_of = |took: Duration, is_new| {
            let answers = (0..1_000).map(|_| took + pause_after(took, is_new));
            answers.sum::<Duration>()
        };
        let (at_once, short) = (Duration::ZERO, Duration::from_millis(20));
        for took in [at_once, short] {
            assert_eq!(time_of(took, true), Duration::from_secs(100));
            assert_eq!(time_of(took, false), Duration::from_secs(1_000));
        }
        // A poll interval of two seconds needs no pause.
        assert_eq!(pause_after(Duration::from_secs(2), true), Duration::ZERO);
        assert_eq!(pause_after(MAX_WAIT, false), Duration::ZERO);
    }

    #[test]
    fn stale_data_is_not_current() {
        assert!(view(Duration::from_secs(2)).current().is_ok());
        let problem = view(Duration::from_secs(60)).current().unwrap_err();
        let document = detail(&problem);
        assert_eq!(document["status"], 503);
        let what = "gpukilld has not polled the GPUs for a while; the newest data is 6";
        assert!(document["detail"].as_str().unwrap().starts_with(what));
        assert!(document["data_age_seconds"].as_f64().unwrap() >= 60.0);
    }

    #[test]
    fn reason_is_the_same_with_another_number() {
        assert!(is_same_reason("not polled for 9 s", "not polled for 10 s"));
        assert!(!is_same_reason(
            "not polled for 9 s",
            "gpukilld is not running"
        ));
    }

    #[test]
    fn failure_states_the_age_of_the_data() {
        let mut view = view(Duration::from_secs(2));
        view.failure = Some(DaemonFailure {
            what: "gpukilld is not running".into(),
            hint: Some("start it".into()),
            since: Timestamp(0),
        });
        let document = detail(&view.current().unwrap_err());
        let what = "gpukilld is not running; the newest data is ";
        assert!(document["detail"].as_str().unwrap().starts_with(what));
        assert_eq!(document["hint"], "start it");
        view.frame = None;
        let document = detail(&view.current().unwrap_err());
        assert_eq!(document["detail"], "gpukilld is not running");
    }

    #[test]
    fn frame_is_the_document_of_the_client() {
        let view = view(Duration::from_secs(2));
        let frame = view.current().unwrap();
        let document: serde_json::Value = serde_json::from_slice(frame.document.line()).unwrap();
        assert_eq!(document, serde_json::to_value(&frame.list).unwrap());
        let event = String::from_utf8(frame.event().to_vec()).unwrap();
        let lines: Vec<&str> = event.lines().collect();
        assert_eq!(lines[0], "event: snapshot");
        assert_eq!(lines[1], format!("id: {}", frame.document.tag()));
        assert_eq!(lines[2].as_bytes()[6..], *frame.document.line());
        assert!(event.ends_with("\n\n") && lines.len() == 4);
    }
}
