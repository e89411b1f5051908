//! `/ws`, and `/api/v1/live` for a client that asks for a WebSocket (RFC 6455): the live events as
//! messages of JSON. A client sends nothing but pings, pongs and its close.

use crate::access::Caller;
use crate::connections::{Busy, Connection};
use crate::gateway::Gateway;
use crate::held_answers::{HeldAnswers, MAX_SLICE};
use crate::live::{LiveEvent, LiveStream, StreamForm, take_place};
use crate::problem::Problem;
use crate::routes::connection;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::Error as SocketError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// The longest message of a client in bytes: the longest control frame has 125.
const MAX_MESSAGE: usize = 1_024;

/// How long a client may take to answer a close. Shorter than connections may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What a connection does after its last request: a handler that switches the protocol puts a future
/// there, and the connection runs it. So the connection stays counted, and ends with the gateway.
#[derive(Clone, Default)]
pub(crate) struct AfterUpgrade(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl AfterUpgrade {
    fn put(&self, future: BoxFuture<'static, ()>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(future);
    }

    /// The future, if the protocol was switched.
    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        place.take()
    }
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    has_token(headers, &UPGRADE, "websocket")
}

/// Begins a WebSocket with live events.
///
/// # Errors
/// The request is no handshake, or there are too many streams.
pub(crate) fn respond(
    gateway: &Arc<Gateway>,
    caller: Caller,
    mut request: Request,
) -> Result<Response, Problem> {
    let accept = accept_key(&request)?;
    let after = request.extensions().get::<AfterUpgrade>().cloned();
    let after = after.ok_or_else(Problem::internal)?;
    let place = take_place(gateway)?;
    let stream = LiveStream::new(gateway, caller, place, StreamForm::Messages, None);
    let reader = Reader {
        answers: Arc::clone(&gateway.held),
        connection: connection(&request)?,
    };
    let busy = Busy::new(&reader.connection);
    let upgraded = hyper::upgrade::on(&mut request);
    after.put(Box::pin(async move {
        let _busy = busy;
        // A connection that ends before is no message: clients cause it at will.
        if let Ok(upgraded) = upgraded.await {
            let io = TokioIo::new(upgraded);
            let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config()));
            follow(socket.await, stream, &reader).await;
        }
    }));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// The answer to the key of a handshake.
///
/// # Errors
/// The request is no handshake.
fn accept_key(request: &Request) -> Result<HeaderValue, Problem> {
    let headers = request.headers();
    let is_upgrade = request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && has_token(headers, &CONNECTION, "upgrade")
        && is_requested(headers);
    let is_version_13 = headers
        .get(SEC_WEBSOCKET_VERSION)
        .is_some_and(|it| it == "13");
    if !is_upgrade || !is_version_13 {
        return Err(Problem::upgrade_required());
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    // 16 bytes in base64.
    let key = key.filter(|key| key.len() == 24 && key.ends_with(b"=="));
    let key = key.ok_or_else(|| Problem::bad_request("Sec-WebSocket-Key is missing or invalid"))?;
    let accept = HeaderValue::try_from(derive_accept_key(key));
    accept.map_err(|_| Problem::internal())
}

/// Whether a header that is a list of words has this one.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words.any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// Small buffers: a client sends next to nothing, and an event is sent at once.
fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// The client of a WebSocket, as a reader of long messages.
struct Reader {
    answers: Arc<HeldAnswers>,
    connection: Arc<Connection>,
}

impl Reader {
    /// Sends a text. A long one has several frames, because the library copies each frame.
    async fn send(&self, socket: &mut Socket, mut text: Bytes) -> Result<(), SocketError> {
        let is_long = text.len() > MAX_SLICE;
        let _hold = is_long.then(|| HeldAnswers::hold(&self.answers, &text, &self.connection));
        let mut kind = Data::Text;
        loop {
            let part = text.split_to(text.len().min(MAX_SLICE));
            let frame = Frame::message(part, OpCode::Data(kind), text.is_empty());
            socket.send(Message::Frame(frame)).await?;
            if text.is_empty() {
                return Ok(());
            }
            kind = Data::Continue;
        }
    }
}

/// Sends events until the stream, the client or the connection ends.
async fn follow(mut socket: Socket, mut stream: LiveStream, reader: &Reader) {
    if let Some(reason) = send_events(&mut socket, &mut stream, reader).await {
        let ended = async {
            let _ = socket.close(Some(reason)).await;
            // Until the client has answered with its close.
            while let Some(Ok(_)) = socket.next().await {}
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, ended).await;
    }
}

/// Sends events. Returns how to close the connection; `None` if there is nothing left to close.
async fn send_events(
    socket: &mut Socket,
    stream: &mut LiveStream,
    reader: &Reader,
) -> Option<CloseFrame> {
    let mut is_ping_answered = true;
    loop {
        tokio::select! {
            biased;
            received = socket.next() => match received {
                Some(Ok(Message::Pong(_))) => is_ping_answered = true,
                // The library answers, and keeps answers that the client does not read: none is added
                // before the last one is sent.
                Some(Ok(Message::Ping(_))) => socket.flush().await.ok()?,
                // The library answers.
                Some(Ok(Message::Close(_))) => {}
                Some(
                    Ok(Message::Text(_) | Message::Binary(_) | Message::Frame(_))
                    | Err(SocketError::Capacity(_)),
                ) => return Some(close(CloseCode::Policy, "this stream takes no messages")),
                Some(Err(_)) | None => return None,
            },
            event = stream.next() => match event {
                Some(LiveEvent::Data(data)) => reader.send(socket, data).await.ok()?,
                // The client is gone.
                Some(LiveEvent::Heartbeat) if !is_ping_answered => return None,
                Some(LiveEvent::Heartbeat) => {
                    is_ping_answered = false;
                    socket.send(Message::Ping(Bytes::new())).await.ok()?;
                }
                None => return Some(close(CloseCode::Away, "the stream has ended")),
            },
        }
    }
}

fn close(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame {
        code,
        reason: Utf8Bytes::from_static(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri("/ws");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn handshake_is_checked() {
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        // The example of RFC 6455.
        let accept = accept_key(&request("GET", &whole)).unwrap();
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let status = |request: &Request| {
            let problem = accept_key(request).unwrap_err();
            problem.into_response().status().as_u16()
        };
        assert_eq!(status(&request("POST", &whole)), 426);
        for (left_out, expected) in [(0, 426), (1, 426), (2, 426), (3, 400)] {
            let mut headers = whole.to_vec();
            headers.remove(left_out);
            assert_eq!(status(&request("GET", &headers)), expected, "{headers:?}");
        }
        let mut short = whole;
        short[3].1 = "abc";
        assert_eq!(status(&request("GET", &short)), 400);
        let mut old = request("GET", &whole);
        *old.version_mut() = Version::HTTP_10;
        assert_eq!(status(&old), 426);
    }
}
