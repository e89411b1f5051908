//! The WebSocket: the same events as the stream, and how each side ends it.

use super::stand_in_daemon::StandInDaemon;
use super::{busy_box, wait_until_ready};
use gpukill_tests::harness::{Gateway, HttpResponse, TestBox, TestProcess};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

struct Socket(TcpStream);

impl Socket {
    fn open(gateway: &Gateway, path: &str) -> Self {
        let mut stream = gateway.connect();
        let address = gateway.address();
        let mut request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n");
        for (name, value) in HANDSHAKE {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        stream
            .write_all(format!("{request}\r\n").as_bytes())
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Self(stream)
    }

    /// Sends a short frame, masked with zeros.
    fn send(&mut self, kind: u8, data: &[u8]) {
        let length = u8::try_from(data.len()).unwrap();
        assert!(length < 126);
        let head = [0x80 | kind, 0x80 | length, 0, 0, 0, 0];
        self.0.write_all(&[&head[..], data].concat()).unwrap();
    }

    fn read(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The next message: its kind and its data. `None` at the end of the connection.
    fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let (kind, mut data, mut is_last) = self.next_part()?;
        while !is_last {
            let (next_kind, next_data, is_next_last) = self.next_part()?;
            assert_eq!(next_kind, CONTINUED);
            data.extend(next_data);
            is_last = is_next_last;
        }
        Some((kind, data))
    }

    /// The next frame: its kind, its data, and whether it is the last of its message.
    fn next_part(&mut self) -> Option<(u8, Vec<u8>, bool)> {
        let head = self.read(2)?;
        assert_eq!(head[0] & 0x70, 0, "no extension");
        let length = match head[1] {
            126 => self.read(2)?,
            127 => self.read(8)?,
            short => vec![short],
        };
        let length = length
            .iter()
            .fold(0, |all, byte| (all << 8) | usize::from(*byte));
        let is_last = head[0] & 0x80 != 0;
        Some((head[0] & 0x0f, self.read(length)?, is_last))
    }

    /// The next event with this name.
    fn next_named(&mut self, name: &str) -> Value {
        loop {
            let (kind, data) = self.next_frame().expect("an event");
            if kind == TEXT {
                let event: Value = serde_json::from_slice(&data).unwrap();
                if event["event"] == name {
                    return event;
                }
            }
        }
    }

    /// Reads until the gateway closes, and returns its code.
    fn close_code(&mut self) -> u16 {
        loop {
            let (kind, data) = self.next_frame().expect("a close");
            if kind == CLOSE {
                return u16::from_be_bytes([data[0], data[1]]);
            }
        }
    }
}

#[test]
fn messages_are_the_events_of_the_stream() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let mut sockets = ["/ws", "/api/v1/live"].map(|path| Socket::open(&gateway, path));
    for socket in &mut sockets {
        let event = socket.next_named("snapshot");
        assert_eq!(event["data"]["gpus"][0]["util_pct"], 70);
        assert_eq!(event["id"].as_str().map(str::len), Some(24));
        let next = socket.next_named("snapshot");
        assert_ne!(next["data"]["polls"], event["data"]["polls"]);
    }
    let [mut pinging, mut closing] = sockets;
    pinging.send(PING, b"here");
    loop {
        let (kind, data) = pinging.next_frame().expect("a pong");
        if kind == PONG {
            assert_eq!(data, b"here");
            break;
        }
    }
    let metrics = gateway.get("/metrics").text();
    assert!(
        metrics.contains("\ngpukill_gateway_streams 2\n"),
        "{metrics}"
    );
    closing.send(CLOSE, &1_000_u16.to_be_bytes());
    assert_eq!(closing.close_code(), 1_000);
    assert_eq!(closing.next_frame(), None);
    // The gateway stops.
    gateway.terminate();
    let _ = pinging.next_named("end");
    assert_eq!(pinging.close_code(), 1_001);
    pinging.send(CLOSE, &1_001_u16.to_be_bytes());
    assert_eq!(pinging.next_frame(), None);
    assert_eq!(gateway.wait(), 0);
}

#[test]
fn long_snapshot_is_the_same_in_every_form() {
    let test_box = TestBox::new();
    let daemon = StandInDaemon::start(&test_box.socket(), 200);
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let snapshot = gateway.get("/api/v1/snapshot");
    assert!(snapshot.body.len() > 100_000, "{}", snapshot.body.len());
    let length = snapshot.header("content-length").map(str::to_owned);
    assert_eq!(length, Some(snapshot.body.len().to_string()));
    let mut socket = Socket::open(&gateway, "/ws");
    let (kind, first, is_last) = socket.next_part().expect("a frame");
    assert_eq!((kind, is_last), (TEXT, false));
    assert!(first.len() <= 32 << 10, "{}", first.len());
    let (_, rest) = socket.next_frame().expect("the rest");
    let message: Value = serde_json::from_slice(&[first, rest].concat()).unwrap();
    assert_eq!(message["data"], snapshot.json());
    let mut stream = gateway.live();
    assert_eq!(stream.next_named("snapshot"), snapshot.json());
    daemon.poll();
    let event = socket.next_named("snapshot");
    assert_eq!(event["data"]["polls"], 2);
    assert_eq!(stream.next_named("snapshot"), event["data"]);
}

#[test]
fn client_that_sends_data_is_disconnected() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    for kind in [TEXT, BINARY] {
        let mut socket = Socket::open(&gateway, "/ws");
        socket.send(kind, b"{}");
        assert_eq!(socket.close_code(), 1_008);
    }
    // The head of a frame that is too long is enough.
    let mut socket = Socket::open(&gateway, "/ws");
    let head = [0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    socket.0.write_all(&head).unwrap();
    assert_eq!(socket.close_code(), 1_008);
}

#[test]
fn client_that_reads_no_answers_gets_no_further_ones() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let mut socket = Socket::open(&gateway, "/ws");
    socket
        .0
        .set_write_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    // More than all buffers of the connection hold, in both directions.
    let ping = [&[0x80 | PING, 0x80 | 125, 0, 0, 0, 0][..], &[b'x'; 125]].concat();
    let pings = ping.repeat(1_000);
    let is_blocked = (0..2_000).any(|_| socket.0.write_all(&pings).is_err());
    assert!(is_blocked, "the gateway reads pings without end");
    assert_eq!(gateway.get("/-/healthy").status, 200);
}

#[test]
fn sockets_are_limited_and_only_own_pages_open_them() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "[http]\nmax_streams = 1\n");
    wait_until_ready(&gateway);
    let open = |origin: &str| -> HttpResponse {
        let mut headers = HANDSHAKE.to_vec();
        headers.push(("origin", origin));
        gateway.request("GET", "/ws", &headers)
    };
    assert_eq!(open("http://evil.example.org").status, 403);
    let socket = Socket::open(&gateway, "/ws");
    let own = format!("http://{}", gateway.address());
    let refused = open(&own);
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
    drop(socket);
    let plain = gateway.get("/ws");
    assert_eq!(
        (plain.status, plain.header("upgrade")),
        (426, Some("websocket"))
    );
}
