//! A client that says exactly what it is told to say, byte by byte.

use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::transport::codec::{decode, encode};
use gpukill_proto::transport::preface::{LENGTH, Preface, Status};
use gpukill_proto::transport::{MAX_DEADLINE, MAX_RESPONSE};
use serde::Serialize;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tarpc::Response;

/// No answer of a daemon that works takes as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub(crate) struct Raw(UnixStream);

impl Raw {
    /// Connects and hears what the daemon says first.
    pub(crate) fn connect(socket: &Path) -> (Self, Preface) {
        let mut raw = Self::silent(socket);
        let mut bytes = [0; LENGTH];
        raw.0
            .read_exact(&mut bytes)
            .expect("the daemon speaks first");
        (raw, Preface::decode(&bytes).expect("a preface"))
    }

    /// Connects and does nothing.
    pub(crate) fn silent(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Connects, and sends its preface where it is let in: without one the daemon drops a
    /// client soon.
    pub(crate) fn enter(socket: &Path) -> (Self, Preface) {
        let (mut raw, theirs) = Self::connect(socket);
        if theirs.status == Status::Welcome {
            raw.write(&Preface::ours(Status::Welcome, MAX_RESPONSE).encode())
                .unwrap();
        }
        (raw, theirs)
    }

    /// Connects and is let in.
    pub(crate) fn welcomed(socket: &Path) -> Self {
        let (raw, theirs) = Self::enter(socket);
        assert_eq!(theirs.status, Status::Welcome);
        raw
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Asks with a deadline that the daemon takes.
    pub(crate) fn ask(&mut self, id: u64, call: &GpukillRequest) {
        self.write(&frame(&request(MAX_DEADLINE, id, call)))
            .unwrap();
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> io::Result<Response<GpukillResponse>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
        assert!(length <= MAX_RESPONSE, "a frame of {length} bytes");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(decode(&body).expect("a response"))
    }

    /// What the daemon says to one call.
    pub(crate) fn call(&mut self, call: &GpukillRequest) -> GpukillResponse {
        self.ask(1, call);
        self.answer().unwrap().message.expect("an answer")
    }

    /// Asserts that the daemon ends the connection, whatever it says before.
    pub(crate) fn assert_dropped(mut self, why: &str) {
        match io::copy(&mut self.0, &mut io::sink()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{why}: the daemon keeps the connection: {error}"),
        }
    }

    /// The socket itself.
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.0
    }
}

/// A request as it travels. The deadline is told apart, so that it can be one
/// that no clock reaches.
pub(crate) fn request(deadline: impl Serialize, id: u64, call: &impl Serialize) -> Vec<u8> {
    // tarpc's `ClientMessage::Request`: deadline, trace context, id, call.
    encode(&(0u32, deadline, [0u8; 16], 0u64, 1u32, id, call)).unwrap()
}

/// Bytes as one frame.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}
