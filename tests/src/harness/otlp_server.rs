//! A server that takes metrics by OTLP over HTTP on a free port, records each push, and answers as a
//! test wants.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a push may take to arrive, on a machine that is shared and slow.
const PUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. It stops when dropped.
pub struct OtlpServer {
    address: SocketAddr,
    pushes: Receiver<OtlpPush>,
    answers: Arc<Mutex<VecDeque<String>>>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A push that arrived.
#[derive(Debug, Clone)]
pub struct OtlpPush {
    /// When it arrived.
    pub at: Instant,
    /// The method and the path.
    pub request: String,
    /// The headers with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The attributes of the resource.
    pub resource: BTreeMap<String, String>,
    /// The values.
    pub points: Vec<OtlpPoint>,
}

/// One value.
#[derive(Debug, Clone)]
pub struct OtlpPoint {
    /// The name of the metric.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// `None` in a gauge; whether a sum only grows.
    pub is_monotonic: Option<bool>,
    /// The attributes, numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// When the sum began, in nanoseconds since 1970; 0 in a gauge.
    pub start: u64,
    /// When it was read, in nanoseconds since 1970.
    pub time: u64,
    /// The value.
    pub value: f64,
}

impl OtlpPush {
    /// The values of a metric.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<&OtlpPoint> {
        self.points.iter().filter(|it| it.name == name).collect()
    }

    /// The only value of a metric.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        match self.named(name)[..] {
            [point] => Some(point.value),
            _ => None,
        }
    }
}

impl OtlpServer {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Starts a server at this address.
    ///
    /// # Panics
    /// When another program listens there.
    #[must_use]
    pub fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("an address");
        let (sender, pushes) = channel();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let is_stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (answers, is_stopping) = (Arc::clone(&answers), Arc::clone(&is_stopping));
            move || serve(&listener, &sender, &answers, &is_stopping)
        });
        Self {
            address,
            pushes,
            answers,
            is_stopping,
            thread: Some(thread),
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers one of the next pushes with this status line, headers and body, after those that were
    /// given before. Without one, a push is accepted.
    pub fn answer_with(&self, head: &str, body: &str) {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push_back(answer);
    }

    /// The next push.
    ///
    /// # Panics
    /// When there is none within a minute.
    #[must_use]
    pub fn next_push(&self) -> OtlpPush {
        let push = self.pushes.recv_timeout(PUSH_TIMEOUT);
        push.unwrap_or_else(|error| panic!("no push: {error}"))
    }

    /// The first of the next pushes for which `check` returns a value, and that value.
    ///
    /// # Panics
    /// When there is none within a minute.
    pub fn next_matching<T>(&self, what: &str, check: impl Fn(&OtlpPush) -> Option<T>) -> T {
        let began = Instant::now();
        while began.elapsed() < PUSH_TIMEOUT {
            if let Some(found) = check(&self.next_push()) {
                return found;
            }
        }
        panic!("no push with {what}");
    }
}

impl Drop for OtlpServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        // It waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    listener: &TcpListener,
    pushes: &Sender<OtlpPush>,
    answers: &Mutex<VecDeque<String>>,
    is_stopping: &AtomicBool,
) {
    for stream in listener.incoming() {
        if is_stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut stream) = stream else {
            return;
        };
        let _ = stream.set_read_timeout(Some(PUSH_TIMEOUT));
        // A client that goes away sends no push.
        let Some(push) = read_push(&stream) else {
            continue;
        };
        let _ = pushes.send(push);
        let answer = answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let accepted = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                        content-length: 0\r\nconnection: close\r\n\r\n";
        let answer = answer.as_deref().unwrap_or(accepted);
        let _ = stream.write_all(answer.as_bytes());
    }
}

fn read_push(stream: &TcpStream) -> Option<OtlpPush> {
    let mut reader = BufReader::new(stream);
    let mut next_line = || {
        let mut line = String::new();
        let length = reader.read_line(&mut line).ok()?;
        (length > 0).then(|| line.trim_end().to_owned())
    };
    let request = next_line()?;
    let mut headers = BTreeMap::new();
    loop {
        let line = next_line()?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = request.strip_suffix(" HTTP/1.1")?.to_owned();
    let (resource, points) = decode(&body);
    Some(OtlpPush {
        at: Instant::now(),
        request,
        headers,
        resource,
        points,
    })
}

/// The value of a field of a message.
#[derive(Debug, Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The attributes of the only resource, and all values.
fn decode(body: &[u8]) -> (BTreeMap<String, String>, Vec<OtlpPoint>) {
    let resource_metrics = only(body, 1);
    let resource = decode_attributes(only(resource_metrics, 1), 1);
    let metrics = messages(only(resource_metrics, 2), 2);
    let points = metrics.into_iter().flat_map(|metric| {
        let (name, unit) = (text(metric, 1), text(metric, 3));
        let gauges = messages(metric, 5).into_iter().map(|data| (data, None));
        let sums = messages(metric, 7).into_iter().map(|sum| {
            assert_eq!(number(sum, 2), Some(2), "{name} is not cumulative");
            (sum, Some(number(sum, 3) == Some(1)))
        });
        let data: Vec<_> = gauges.chain(sums).collect();
        assert_eq!(data.len(), 1, "{name} is no gauge and no sum, or both");
        let (data, is_monotonic) = data[0];
        messages(data, 1).into_iter().map(move |point| OtlpPoint {
            name: name.clone(),
            unit: unit.clone(),
            is_monotonic,
            attributes: decode_attributes(point, 7),
            start: number(point, 2).unwrap_or_default(),
            time: number(point, 3).expect("a time"),
            value: f64::from_bits(number(point, 4).expect("a value")),
        })
    });
    (resource, points.collect())
}

fn decode_attributes(message: &[u8], number_of_field: u64) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::new();
    for attribute in messages(message, number_of_field) {
        let value = only(attribute, 2);
        let value = number(value, 3).map_or_else(|| text(value, 1), |number| number.to_string());
        let before = attributes.insert(text(attribute, 1), value);
        assert_eq!(before, None, "an attribute is there twice");
    }
    attributes
}

/// The only message in this field.
fn only(message: &[u8], number: u64) -> &[u8] {
    let found = messages(message, number);
    assert_eq!(found.len(), 1, "messages in field {number}");
    found[0]
}

fn messages(message: &[u8], number: u64) -> Vec<&[u8]> {
    let all = fields(message).into_iter();
    let wanted = all.filter(|(field, _)| *field == number);
    wanted
        .map(|(_, value)| match value {
            Field::Bytes(bytes) => bytes,
            Field::Number(_) => panic!("field {number} is a number"),
        })
        .collect()
}

fn text(message: &[u8], number: u64) -> String {
    let found = messages(message, number);
    let bytes = found.first().copied().unwrap_or_default();
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn number(message: &[u8], number: u64) -> Option<u64> {
    let found = fields(message).into_iter().find(|it| it.0 == number)?;
    match found.1 {
        Field::Number(value) => Some(value),
        Field::Bytes(_) => panic!("field {number} is no number"),
    }
}

/// The fields of a message of protobuf: numbers of varying and of eight bytes, and bytes.
fn fields(mut left: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !left.is_empty() {
        let key = take_number(&mut left);
        let value = match key % 8 {
            0 => Field::Number(take_number(&mut left)),
            1 => {
                let eight = take(&mut left, 8).iter().rev();
                Field::Number(eight.fold(0, |value, byte| (value << 8) | u64::from(*byte)))
            }
            2 => {
                let length = take_number(&mut left);
                let length = usize::try_from(length).expect("a length");
                Field::Bytes(take(&mut left, length))
            }
            other => panic!("a field of type {other}"),
        };
        found.push((key / 8, value));
    }
    found
}

fn take<'a>(left: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = left.split_at(length);
    *left = rest;
    taken
}

fn take_number(left: &mut &[u8]) -> u64 {
    let mut value = 0;
    let mut shift = 0;
    loop {
        let byte = take(left, 1)[0];
        value |= u64::from(byte % 128) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}
