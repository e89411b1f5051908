//! A running gpukill-gateway, and a client of it that sends requests byte by byte.

use super::{RunningProgram, TestBox};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take, on a machine that is shared and slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running gateway on a free port. It is killed when dropped.
pub struct Gateway {
    program: RunningProgram,
    address: SocketAddr,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Reads an answer that ends with its connection.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        // A gateway that closes early is seen by what it sent.
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(&bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a head is UTF-8");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status: status.and_then(|it| it.parse().ok()).expect("a status"),
            headers: headers
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// A header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Gateway {
    /// Starts a gateway of the box with these settings, and waits until it listens.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn start(test_box: &TestBox, settings: &str) -> Self {
        Self::start_at(test_box, settings, "127.0.0.1:0")
    }

    /// Starts a gateway that listens on this address, with port 0 for a free one. Clients connect
    /// to it over loopback.
    ///
    /// # Panics
    /// When it does not listen.
    #[must_use]
    pub fn start_at(test_box: &TestBox, settings: &str, listen: &str) -> Self {
        let mut command = test_box.gateway_command(settings);
        let program = RunningProgram::start(command.args(["--listen", listen]));
        let mut address: SocketAddr = loop {
            let line = program.next_error_line();
            if let Some((_, address)) = line.split_once("://") {
                break address.parse().expect("an address");
            }
        };
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        Self { program, address }
    }

    /// Starts the personal gateway of this user with the client, and waits for its address.
    ///
    /// # Panics
    /// When it does not print one.
    #[must_use]
    pub fn start_personal(test_box: &TestBox) -> (Self, String) {
        let program = RunningProgram::start(&mut test_box.client_command(&["web"]));
        let line = program.next_line();
        let (address, token) = line
            .strip_prefix("http://")
            .and_then(|line| line.split_once("/#"))
            .expect("an address with a token");
        let address = address.parse().expect("an address");
        (Self { program, address }, token.to_owned())
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// When it is not accepted.
    #[must_use]
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the gateway listens");
        let timeout = Some(ANSWER_TIMEOUT);
        stream.set_read_timeout(timeout).expect("a timeout");
        stream
    }

    /// Sends a request with these headers, and `Host` if it is not among them.
    #[must_use]
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
        let mut stream = self.connect();
        let address = self.address.to_string();
        let host = ("host", address.as_str());
        let has_host = headers.iter().any(|(name, _)| *name == "host");
        let default = (!has_host).then_some(&host);
        let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers.iter().chain(default) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        // A gateway that refuses the connection is seen by its answer.
        let _ = stream.write_all(request.as_bytes());
        HttpResponse::read(stream)
    }

    /// Sends a request with a body of JSON and this token.
    #[must_use]
    pub fn post(&self, path: &str, token: &str, body: &Value) -> HttpResponse {
        let body = body.to_string();
        let mut stream = self.connect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        // A gateway that refuses the connection is seen by its answer.
        let _ = stream.write_all(request.as_bytes());
        HttpResponse::read(stream)
    }

    /// Sends a request with this token.
    #[must_use]
    pub fn get_as(&self, path: &str, token: &str) -> HttpResponse {
        let bearer = format!("Bearer {token}");
        self.request("GET", path, &[("authorization", &bearer)])
    }

    /// Requests a path.
    #[must_use]
    pub fn get(&self, path: &str) -> HttpResponse {
        self.request("GET", path, &[])
    }

    /// Opens a stream of live events.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn live(&self) -> LiveEvents {
        self.live_as("")
    }

    /// Opens a stream of live events with this token, or without one if it is empty.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn live_as(&self, token: &str) -> LiveEvents {
        let mut stream = self.connect();
        let token = match token {
            "" => String::new(),
            token => format!("authorization: Bearer {token}\r\n"),
        };
        // HTTP/1.0 has no chunks: the events follow the head as they are.
        let request = format!(
            "GET /api/v1/live HTTP/1.0\r\nhost: {}\r\n{token}\r\n",
            self.address
        );
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut events = LiveEvents(BufReader::new(stream));
        let status = events.line().expect("a status");
        assert!(status.contains(" 200 "), "{status}");
        while events.line().is_some_and(|line| !line.is_empty()) {}
        events
    }

    /// Asks the gateway to read its files again, or a personal one to end.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Sends a signal to the gateway.
    pub fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Waits for a line on standard error that contains this.
    ///
    /// # Panics
    /// When there is none.
    pub fn wait_for_message(&self, part: &str) {
        while !self.program.next_error_line().contains(part) {}
    }

    /// Asks the gateway to stop.
    pub fn terminate(&self) {
        self.program.signal(Signal::TERM);
    }

    /// Waits for its end, and returns its exit code.
    #[must_use]
    pub fn wait(self) -> i32 {
        self.program.wait().0
    }
}

/// A stream of live events.
pub struct LiveEvents(BufReader<TcpStream>);

impl LiveEvents {
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).expect("a line in time");
        (length > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The name and the data of the next event; `None` at the end of the stream.
    ///
    /// # Panics
    /// When there is none within a minute.
    #[must_use]
    pub fn next_event(&mut self) -> Option<(String, Value)> {
        let (mut name, mut data) = (None, None);
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("event", event)) => name = Some(event.to_owned()),
                Some(("data", text)) => data = serde_json::from_str(text).ok(),
                _ => {}
            }
            if line.is_empty()
                && let Some(name) = name.take()
            {
                return Some((name, data.expect("data as JSON")));
            }
        }
    }

    /// The data of the next event with this name.
    ///
    /// # Panics
    /// When the stream ends.
    #[must_use]
    pub fn next_named(&mut self, wanted: &str) -> Value {
        loop {
            let event = self.next_event();
            let (name, data) = event.unwrap_or_else(|| panic!("no event {wanted}"));
            if name == wanted {
                return data;
            }
        }
    }
}
