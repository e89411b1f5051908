//! Live events, as server-sent events (`/api/v1/live`) and as messages of a WebSocket. Each snapshot
//! is one event, built once for all streams of a form.
//!
//! | event | data |
//! |---|---|
//! | `snapshot` | the document of `/api/v1/snapshot`, or with `data=none` its age; its id identifies the content |
//! | `lag` | `{"dropped": N}`: this client read too slowly for N snapshots, and gets the newest |
//! | `state` | whether there is current data; if not why, and the age of the data |
//! | `end` | the gateway stops, or the token has expired; a browser connects again by itself |

use crate::access::{Access, Caller};
use crate::gateway::Gateway;
use crate::parameters::{Parameter, ParameterKind, Parameters, Place};
use crate::problem::Problem;
use crate::upstream::{DaemonView, Frame};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// A comment or a ping is sent after this time without an event, so that proxies and clients notice
/// a broken connection.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// The comment. A browser gives it to no script.
const HEARTBEAT: &[u8] = b": alive\n\n";

/// How often a stream looks whether the data has become stale: nothing is published then.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Tells clients how long to wait before they connect again, in milliseconds.
const RETRY: &[u8] = b"retry: 5000\n\n";

/// Whether events have the snapshots.
pub(crate) const DATA: Parameter = Parameter {
    name: "data",
    place: Place::Query,
    kind: ParameterKind::Choice(&["whole", "none"]),
    summary: "whether events have the snapshot, or only its age; without effect over a WebSocket",
};

/// Begins a stream of server-sent events.
pub(crate) fn respond(
    gateway: &Arc<Gateway>,
    caller: Caller,
    headers: &HeaderMap,
    parameters: &Parameters,
) -> Result<Response, Problem> {
    let place = take_place(gateway)?;
    let last_event = headers.get("last-event-id");
    let last_event = last_event.and_then(|id| id.to_str().ok());
    let form = match parameters.text(DATA.name) {
        Some("none") => StreamForm::Notices,
        Some(_) | None => StreamForm::ServerSentEvents,
    };
    let stream = LiveStream::new(gateway, caller, place, form, last_event);
    let stream = futures::stream::unfold(stream, |mut stream| async move {
        let bytes = match stream.next().await? {
            LiveEvent::Data(bytes) => bytes,
            LiveEvent::Heartbeat => Bytes::from_static(HEARTBEAT),
        };
        Some((Ok::<_, Infallible>(bytes), stream))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // nginx would collect events into larger packets.
    let name = HeaderName::from_static("x-accel-buffering");
    headers.insert(name, HeaderValue::from_static("no"));
    Ok(response)
}

/// A free place for a stream.
pub(crate) fn take_place(gateway: &Gateway) -> Result<OwnedSemaphorePermit, Problem> {
    let place = Arc::clone(&gateway.streams).try_acquire_owned();
    place.map_err(|_| Problem::busy("the gateway has too many live streams", 5))
}

/// The form in which events are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamForm {
    /// As the text of server-sent events.
    ServerSentEvents,
    /// The same, with the age of a snapshot in its place.
    Notices,
    /// As JSON: `{"event": NAME, "id": ID, "data": DATA}`.
    Messages,
}

impl StreamForm {
    fn snapshot(self, frame: &Frame) -> Bytes {
        match self {
            Self::ServerSentEvents => frame.event(),
            Self::Notices => {
                let age = json!({ "data_age_seconds": frame.age().as_secs_f64() });
                let id = frame.document.tag();
                format!("event: snapshot\nid: {id}\ndata: {age}\n\n").into()
            }
            Self::Messages => frame.message(),
        }
    }

    fn event(self, name: &str, data: &Value) -> Bytes {
        match self {
            Self::ServerSentEvents | Self::Notices => {
                format!("event: {name}\ndata: {data}\n\n")
            }
            Self::Messages => json!({ "event": name, "data": data }).to_string(),
        }
        .into()
    }
}

/// What a stream sends next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LiveEvent {
    /// An event in the form of the stream.
    Data(Bytes),
    /// Nothing has happened for a while.
    Heartbeat,
}

/// The stream of one client.
pub(crate) struct LiveStream {
    form: StreamForm,
    caller: Caller,
    view: watch::Receiver<Arc<DaemonView>>,
    stop: watch::Receiver<bool>,
    /// Events that the client has not read yet: at most a few, because more are made only when it
    /// has read them.
    pending: VecDeque<LiveEvent>,
    /// The sequence number of the last frame.
    sent: Option<u64>,
    /// The id of the last snapshot that the client got over an earlier connection.
    known: Option<String>,
    /// Whether the client knows that there is current data; `None` before its first event.
    is_current: Option<bool>,
    /// When the client got its last event.
    quiet_since: Instant,
    has_ended: bool,
    gateway: Arc<Gateway>,
    /// Free again when the stream ends.
    _place: OwnedSemaphorePermit,
}

impl LiveStream {
    /// A stream for a caller that has the snapshot `last_event` already.
    pub(crate) fn new(
        gateway: &Arc<Gateway>,
        caller: Caller,
        place: OwnedSemaphorePermit,
        form: StreamForm,
        last_event: Option<&str>,
    ) -> Self {
        let mut stream = Self {
            form,
            caller,
            view: gateway.view.clone(),
            stop: gateway.stop.clone(),
            pending: VecDeque::new(),
            sent: None,
            known: last_event.map(str::to_owned),
            is_current: None,
            quiet_since: Instant::now(),
            has_ended: false,
            gateway: Arc::clone(gateway),
            _place: place,
        };
        if form != StreamForm::Messages {
            let retry = LiveEvent::Data(Bytes::from_static(RETRY));
            stream.pending.push_back(retry);
        }
        stream.add_news();
        stream
    }

    /// Waits for the next event; `None` at the end. A call that is given up loses none.
    pub(crate) async fn next(&mut self) -> Option<LiveEvent> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                self.quiet_since = Instant::now();
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            let heartbeat = tokio::time::Instant::from_std(self.quiet_since + HEARTBEAT_INTERVAL);
            tokio::select! {
                biased;
                _ = self.stop.changed() => self.end(),
                // A clock of its own: news that are no event for this client delay it never.
                () = tokio::time::sleep_until(heartbeat) => {
                    self.pending.push_back(LiveEvent::Heartbeat);
                }
                changed = self.view.changed() => match changed {
                    Ok(()) => self.add_news(),
                    Err(_) => self.has_ended = true,
                },
                () = tokio::time::sleep(CHECK_INTERVAL) => self.add_news(),
            }
        }
    }

    fn end(&mut self) {
        self.add("end", &json!({}));
        self.has_ended = true;
    }

    fn add(&mut self, name: &str, data: &Value) {
        let data = self.form.event(name, data);
        self.pending.push_back(LiveEvent::Data(data));
    }

    /// Adds what is new since the last event. Ends the stream of a token that is not valid any more.
    fn add_news(&mut self) {
        if self.gateway.authorize(&self.caller, Access::Look).is_err() {
            return self.end();
        }
        let view = Arc::clone(&self.view.borrow_and_update());
        if let Some(frame) = &view.frame
            && self.sent != Some(frame.sequence)
        {
            let dropped = self
                .sent
                .map_or(0, |sent| frame.sequence.saturating_sub(sent + 1));
            if dropped > 0 {
                self.gateway.traffic.count_dropped_frames(dropped);
                self.add("lag", &json!({ "dropped": dropped }));
            }
            self.sent = Some(frame.sequence);
            let known = self.known.take();
            // An old snapshot of a daemon that is gone comes with its state, below.
            if known.as_deref() != Some(frame.document.tag()) {
                let data = self.form.snapshot(frame);
                self.pending.push_back(LiveEvent::Data(data));
            }
        }
        let is_current = view.current().is_ok();
        if self.is_current != Some(is_current) {
            // A client takes current data for granted.
            if !is_current || self.is_current.is_some() {
                self.add("state", &state(&view));
            }
            self.is_current = Some(is_current);
        }
    }
}

/// The data of a `state` event.
fn state(view: &DaemonView) -> Value {
    let problem = view.current().err();
    let failure = view.failure.as_ref();
    json!({
        "current": problem.is_none(),
        "detail": problem.as_ref().map(Problem::detail),
        "hint": problem.as_ref().and_then(Problem::hint),
        "since": failure.map(|failure| failure.since.to_rfc3339()),
        "data_age_seconds": view.frame.as_ref().map(|frame| frame.age().as_secs_f64()),
    })
}

/// The number of frames that slow clients did not get.
#[derive(Debug, Default)]
pub(crate) struct DroppedFrames(AtomicU64);

impl DroppedFrames {
    pub(crate) fn add(&self, frames: u64) {
        self.0.fetch_add(frames, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::tokens::{TokenDigest, Tokens, file_entry};
    use crate::upstream::DaemonFailure;
    use crate::upstream::tests::{snapshot, view};
    use gpukill_proto::units::Timestamp;
    use std::time::SystemTime;

    const SSE: StreamForm = StreamForm::ServerSentEvents;

    const ANYBODY: Caller = Caller {
        anonymous: Access::Look,
        token: None,
    };

    fn names(stream: &mut LiveStream) -> Vec<String> {
        let events = stream.pending.drain(..).map(|event| match event {
            LiveEvent::Data(data) => data.to_vec(),
            LiveEvent::Heartbeat => HEARTBEAT.to_vec(),
        });
        let texts = events.map(|event| String::from_utf8(event).unwrap());
        texts
            .map(|text| text.lines().next().unwrap_or_default().to_owned())
            .collect()
    }

    fn frame(sequence: u64) -> Option<Arc<Frame>> {
        let frame = Frame::new(sequence, snapshot(SystemTime::now().into()));
        Some(Arc::new(frame.unwrap()))
    }

    /// A gateway with this number of streams, and the senders of its view and of its end.
    fn gateway_of(
        now: Arc<DaemonView>,
        max_streams: usize,
    ) -> (
        Arc<Gateway>,
        watch::Sender<Arc<DaemonView>>,
        watch::Sender<bool>,
    ) {
        let (sender, receiver) = watch::channel(now);
        let (stop, stopped) = watch::channel(false);
        let settings = Settings {
            max_streams,
            ..Settings::default()
        };
        (Gateway::new(settings, receiver, stopped), sender, stop)
    }

    #[test]
    fn slow_client_gets_the_newest_snapshot_and_the_number_of_dropped_ones() {
        let mut now = view(Duration::from_secs(1));
        now.frame = frame(1);
        let (gateway, sender, _stop) = gateway_of(Arc::new(now.clone()), 1);
        let place = Arc::clone(&gateway.streams).try_acquire_owned().unwrap();
        assert!(respond(&gateway, ANYBODY, &HeaderMap::new(), &Parameters::default()).is_err());
        let mut stream = LiveStream::new(&gateway, ANYBODY, place, SSE, None);
        assert_eq!(names(&mut stream), ["retry: 5000", "event: snapshot"]);
        stream.add_news();
        assert_eq!(names(&mut stream), [""; 0]);
        now.frame = frame(2);
        sender.send_replace(Arc::new(now.clone()));
        stream.add_news();
        assert_eq!(names(&mut stream), ["event: snapshot"]);
        now.frame = frame(5);
        sender.send_replace(Arc::new(now.clone()));
        stream.add_news();
        assert_eq!(names(&mut stream), ["event: lag", "event: snapshot"]);
        assert_eq!(gateway.traffic.dropped_frames(), 2);
        now.failure = Some(DaemonFailure {
            what: "gpukilld is not running".into(),
            hint: None,
            since: Timestamp(0),
        });
        sender.send_replace(Arc::new(now.clone()));
        stream.add_news();
        assert_eq!(names(&mut stream), ["event: state"]);
        now.failure = None;
        sender.send_replace(Arc::new(now.clone()));
        stream.add_news();
        assert_eq!(names(&mut stream), ["event: state"]);
        // Nothing is published when data becomes stale.
        now.frame = view(Duration::from_secs(60)).frame;
        sender.send_replace(Arc::new(now));
        stream.add_news();
        assert_eq!(names(&mut stream).last().unwrap(), "event: state");
        drop(stream);
        assert!(respond(&gateway, ANYBODY, &HeaderMap::new(), &Parameters::default()).is_ok());
    }

    #[tokio::test]
    async fn quiet_stream_gets_a_heartbeat_although_the_view_changes() {
        let now = view(Duration::from_secs(1));
        let (gateway, sender, _stop) = gateway_of(Arc::new(now.clone()), 1);
        let place = Arc::clone(&gateway.streams).try_acquire_owned().unwrap();
        let mut stream = LiveStream::new(&gateway, ANYBODY, place, SSE, None);
        assert_eq!(names(&mut stream), ["retry: 5000", "event: snapshot"]);
        stream.quiet_since = Instant::now().checked_sub(HEARTBEAT_INTERVAL).unwrap();
        // The same snapshot again.
        sender.send_replace(Arc::new(now));
        assert_eq!(stream.next().await, Some(LiveEvent::Heartbeat));
        assert!(stream.quiet_since.elapsed() < HEARTBEAT_INTERVAL);
    }

    #[test]
    fn messages_have_the_events_as_json() {
        let now = view(Duration::from_secs(1));
        let frame = Arc::clone(now.current().unwrap());
        let (gateway, _sender, _stop) = gateway_of(Arc::new(now), 1);
        let place = take_place(&gateway).unwrap();
        assert!(take_place(&gateway).is_err());
        let mut stream = LiveStream::new(&gateway, ANYBODY, place, StreamForm::Messages, None);
        stream.end();
        let messages: Vec<Value> = names(&mut stream)
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        let snapshot = serde_json::to_value(&frame.list).unwrap();
        let id = frame.document.tag();
        assert_eq!(
            messages,
            [
                json!({ "event": "snapshot", "id": id, "data": snapshot }),
                json!({ "event": "end", "data": {} }),
            ]
        );
    }

    #[test]
    fn notices_have_no_snapshot() {
        let now = view(Duration::from_secs(1));
        let (gateway, _sender, _stop) = gateway_of(Arc::new(now), 1);
        let place = take_place(&gateway).unwrap();
        let mut stream = LiveStream::new(&gateway, ANYBODY, place, StreamForm::Notices, None);
        let event = match stream.pending.pop_back() {
            Some(LiveEvent::Data(data)) => String::from_utf8(data.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(event.starts_with("event: snapshot\nid: "), "{event}");
        assert!(event.contains("\ndata: {\"data_age_seconds\":"), "{event}");
        assert!(event.ends_with("}\n\n") && event.len() < 120, "{event}");
    }

    #[test]
    fn stream_ends_with_its_token() {
        let (gateway, _sender, _stop) = gateway_of(Arc::new(view(Duration::from_secs(1))), 1);
        let entry = file_entry("a", Access::Look, None, "secret").unwrap();
        gateway.tokens.replace(Tokens::parse(&entry).unwrap());
        let caller = Caller {
            anonymous: Access::None,
            token: Some(TokenDigest::new("secret")),
        };
        let place = Arc::clone(&gateway.streams).try_acquire_owned().unwrap();
        let mut stream = LiveStream::new(&gateway, caller, place, SSE, None);
        assert_eq!(names(&mut stream), ["retry: 5000", "event: snapshot"]);
        let other = file_entry("b", Access::Look, None, "other").unwrap();
        gateway.tokens.replace(Tokens::parse(&other).unwrap());
        stream.add_news();
        assert_eq!(names(&mut stream), ["event: end"]);
        assert!(stream.has_ended);
    }

    #[test]
    fn client_that_connects_again_gets_only_what_it_lacks() {
        let now = view(Duration::from_secs(1));
        let tag = now.frame.as_ref().unwrap().document.tag().to_owned();
        let (gateway, _sender, _stop) = gateway_of(Arc::new(now), 2);
        let place = || Arc::clone(&gateway.streams).try_acquire_owned().unwrap();
        let mut same = LiveStream::new(&gateway, ANYBODY, place(), SSE, Some(&tag));
        assert_eq!(names(&mut same), ["retry: 5000"]);
        let mut other = LiveStream::new(&gateway, ANYBODY, place(), SSE, Some("other"));
        assert_eq!(names(&mut other), ["retry: 5000", "event: snapshot"]);
    }
}
