//! A client that sends the bytes that a test gives it.

use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::transport::codec::{decode, encode};
use gpukill_proto::transport::preface::{PREFACE_LENGTH, Preface, PrefaceStatus};
use gpukill_proto::transport::{MAX_DEADLINE, MAX_RESPONSE};
use serde::Serialize;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tarpc::Response;

/// A daemon that works answers sooner than this.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the daemon without the client library.
pub(crate) struct RawConnection(UnixStream);

impl RawConnection {
    /// Connects and reads the preface of the daemon, which speaks first.
    pub(crate) fn connect_and_read_preface(socket: &Path) -> (Self, Preface) {
        let mut raw = Self::connect_silently(socket);
        let mut bytes = [0; PREFACE_LENGTH];
        raw.0
            .read_exact(&mut bytes)
            .expect("the daemon speaks first");
        (raw, Preface::decode(&bytes).expect("a preface"))
    }

    pub(crate) fn connect_silently(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the daemon listens");
        stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        Self(stream)
    }

    /// Connects, and sends its preface where the daemon admits it: without one the daemon
    /// soon drops a client.
    pub(crate) fn connect_and_send_preface(socket: &Path) -> (Self, Preface) {
        let (mut raw, answer) = Self::connect_and_read_preface(socket);
        if answer.status == PrefaceStatus::Welcome {
            raw.write(&Preface::new(PrefaceStatus::Welcome, MAX_RESPONSE).encode())
                .unwrap();
        }
        (raw, answer)
    }

    pub(crate) fn connect_admitted(socket: &Path) -> Self {
        let (raw, answer) = Self::connect_and_send_preface(socket);
        assert_eq!(answer.status, PrefaceStatus::Welcome);
        raw
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Sends a request with a deadline that the daemon accepts.
    pub(crate) fn send_request(&mut self, id: u64, call: &GpukillRequest) {
        self.write(&encode_frame(&encode_request(MAX_DEADLINE, id, call)))
            .unwrap();
    }

    pub(crate) fn read_response(&mut self) -> io::Result<Response<GpukillResponse>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
        assert!(length <= MAX_RESPONSE, "a frame of {length} bytes");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(decode(&body).expect("a response"))
    }

    /// Sends one request and returns its answer.
    pub(crate) fn call(&mut self, call: &GpukillRequest) -> GpukillResponse {
        self.send_request(1, call);
        self.read_response().unwrap().message.expect("an answer")
    }

    /// Asserts that the daemon closes the connection, whatever it sends before.
    pub(crate) fn assert_dropped(mut self, why: &str) {
        match io::copy(&mut self.0, &mut io::sink()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{why}: the daemon keeps the connection: {error}"),
        }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.0
    }
}

/// An encoded request. The deadline is a parameter of its own, so that it can be one that
/// no clock reaches.
pub(crate) fn encode_request(deadline: impl Serialize, id: u64, call: &impl Serialize) -> Vec<u8> {
    // tarpc's `ClientMessage::Request`: deadline, trace context, id, call.
    encode(&(0u32, deadline, [0u8; 16], 0u64, 1u32, id, call)).unwrap()
}

/// Bytes as one length-delimited frame.
pub(crate) fn encode_frame(body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}
