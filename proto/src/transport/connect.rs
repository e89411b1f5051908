//! A client's connection to the daemon, for a program that asks one question at a time.
//!
//! It blocks, and needs no runtime: a client that asks once and ends would spend more on
//! starting one than on its question. The frames are those that a tarpc client writes.

use super::codec::{decode, encode_request};
use super::preface::{LENGTH, Preface, Status};
use super::{MAX_REQUEST, MAX_RESPONSE};
use crate::service::{GpukillRequest, GpukillResponse};
use crate::{PROTOCOL_VERSION, ProtocolVersion};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tarpc::Response;

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// Nothing listens there.
    NoDaemon,
    /// The socket may not be opened by this user.
    NotPermitted,
    /// The daemon has too many connections now.
    Busy,
    /// The daemon speaks a wire of another major version.
    Version(ProtocolVersion),
    /// The daemon turns this client away with a word that only newer ones know.
    TurnedAway(u16),
    /// What listens there is no gpukilld.
    NotGpukilld,
    /// Anything else.
    Io(io::Error),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoDaemon => f.write_str("nothing listens"),
            Self::NotPermitted => f.write_str("not permitted"),
            Self::Busy => f.write_str("gpukilld is busy"),
            Self::Version(daemon) => {
                write!(
                    f,
                    "gpukilld speaks protocol {daemon}, this client {PROTOCOL_VERSION}"
                )
            }
            Self::TurnedAway(code) => write!(
                f,
                "gpukilld turns this client away, for a reason that only newer ones know ({code})"
            ),
            Self::NotGpukilld => f.write_str("what answers is no gpukilld"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::NoDaemon,
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::NotGpukilld,
            _ => Self::Io(error),
        }
    }
}

/// What a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// There is something to read.
    Readable,
    /// There is room to write.
    Writable,
}

/// Waits until a stream is ready. What it gives as an error ends the exchange.
pub type Wait<'a> = &'a mut dyn FnMut(&UnixStream, Until) -> io::Result<()>;

/// Opens the socket; gives `WouldBlock` where that takes longer than `patience`. While its
/// backlog is full the kernel lets callers in that wait, in turn.
///
/// # Errors
/// One of [`ConnectError`].
pub fn open(socket: &Path, patience: Duration) -> Result<UnixStream, ConnectError> {
    let address = SocketAddrUnix::new(socket).map_err(io::Error::from)?;
    let flags = SocketFlags::CLOEXEC;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let stream = stream.map_err(io::Error::from)?;
    // A limit of zero is none.
    let patience = patience.max(Duration::from_millis(1));
    set_socket_timeout(&stream, Timeout::Send, Some(patience)).map_err(io::Error::from)?;
    rustix::net::connect(&stream, &address).map_err(io::Error::from)?;
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A connection whose prefaces are exchanged.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    daemon: ProtocolVersion,
    /// The number of the last question.
    asked: u64,
    /// Whether a question was given up: what comes next may be a part of its answer.
    is_broken: bool,
}

impl Connection {
    /// Settles the version over a stream that is [open](open).
    ///
    /// # Errors
    /// One of [`ConnectError`]; what `wait` gives is [`ConnectError::Io`].
    pub fn enter(mut stream: UnixStream, wait: Wait<'_>) -> Result<Self, ConnectError> {
        let mut bytes = [0; LENGTH];
        read_exact(&mut stream, &mut bytes, wait)?;
        let daemon = Preface::decode(&bytes).ok_or(ConnectError::NotGpukilld)?;
        if daemon.version.major != PROTOCOL_VERSION.major {
            return Err(ConnectError::Version(daemon.version));
        }
        match daemon.status {
            Status::Welcome => {}
            Status::Busy => return Err(ConnectError::Busy),
            Status::Other(code) => return Err(ConnectError::TurnedAway(code)),
        }
        let ours = Preface::ours(Status::Welcome, MAX_RESPONSE);
        write_all(&mut stream, &ours.encode(), wait)?;
        Ok(Self {
            stream,
            daemon: daemon.version,
            asked: 0,
            is_broken: false,
        })
    }

    /// The wire that the daemon speaks. One of a lower minor version does not know the newest
    /// calls, and hangs up at them.
    #[must_use]
    pub const fn daemon(&self) -> ProtocolVersion {
        self.daemon
    }

    /// Asks a question, which the daemon gives up after `deadline`, and waits for the answer.
    /// After an error of the stream or of `wait` nothing more can be asked.
    ///
    /// # Errors
    /// What the stream and `wait` give; `UnexpectedEof` where the daemon hung up,
    /// `InvalidData` where its answer is none, `Other` where tarpc in the daemon failed.
    pub fn ask(
        &mut self,
        request: &GpukillRequest,
        deadline: Duration,
        wait: Wait<'_>,
    ) -> io::Result<GpukillResponse> {
        self.asked += 1;
        let request = encode_request(self.asked, deadline, request)?;
        if request.len() > MAX_REQUEST {
            return Err(io::Error::other("the question is too long"));
        }
        if self.is_broken {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = self.exchange(&request, wait);
        self.is_broken = answer.is_err();
        let message = answer?.message;
        message.map_err(|error| io::Error::other(error.to_string()))
    }

    fn exchange(
        &mut self,
        request: &[u8],
        wait: Wait<'_>,
    ) -> io::Result<Response<GpukillResponse>> {
        let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
        let frame = [&length.to_be_bytes(), request].concat();
        write_all(&mut self.stream, &frame, wait)?;
        let response = self.receive(wait)?;
        if response.request_id != self.asked {
            return Err(invalid("it answers another question"));
        }
        Ok(response)
    }

    fn receive(&mut self, wait: Wait<'_>) -> io::Result<Response<GpukillResponse>> {
        let mut length = [0; 4];
        read_exact(&mut self.stream, &mut length, wait)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_RESPONSE {
            return Err(invalid("its answer is too long"));
        }
        let mut frame = vec![0; length];
        read_exact(&mut self.stream, &mut frame, wait)?;
        decode(&frame).map_err(invalid)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn read_exact(stream: &mut UnixStream, mut room: &mut [u8], wait: Wait<'_>) -> io::Result<()> {
    while !room.is_empty() {
        match stream.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => room = &mut room[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(stream, Until::Readable)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_all(stream: &mut UnixStream, mut bytes: &[u8], wait: Wait<'_>) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(stream, Until::Writable)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
