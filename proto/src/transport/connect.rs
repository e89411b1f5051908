//! A blocking connection of a client to the daemon, for one request at a time.
//!
//! It needs no async runtime: for a client that sends one request, starting a runtime would
//! cost more than the request. The frames are those of a tarpc client.

use super::codec::{decode, encode_request};
use super::preface::{PREFACE_LENGTH, Preface, PrefaceStatus};
use super::{MAX_REQUEST, MAX_RESPONSE};
use crate::service::{GpukillRequest, GpukillResponse};
use crate::{PROTOCOL_VERSION, ProtocolVersion};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tarpc::Response;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens on the socket.
    #[error("nothing listens")]
    NoDaemon,
    /// This user may not open the socket.
    #[error("not permitted")]
    NotPermitted,
    /// The daemon has too many connections.
    #[error("gpukilld is busy")]
    Busy,
    /// The daemon speaks another major version of the wire.
    #[error("gpukilld speaks protocol {0}, this client {PROTOCOL_VERSION}")]
    Version(ProtocolVersion),
    /// The daemon refuses this client with a status that only newer versions know.
    #[error("gpukilld refuses this client for a reason that only newer clients know ({0})")]
    Refused(u16),
    /// The peer is not gpukilld.
    #[error("the program at the socket is not gpukilld")]
    NotGpukilld,
    /// Any other error.
    #[error("{0}")]
    Io(io::Error),
}

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

/// The readiness that a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// There is data to read.
    Readable,
    /// There is room to write.
    Writable,
}

/// Waits until a stream is ready. An error of this function ends the exchange.
pub type WaitFn<'a> = &'a mut dyn FnMut(&UnixStream, Readiness) -> io::Result<()>;

/// Opens the socket; fails with `WouldBlock` if that takes longer than `timeout`. While the
/// backlog is full, the kernel admits waiting callers in order.
///
/// # Errors
/// One of [`ConnectError`].
pub fn open_socket(socket: &Path, timeout: Duration) -> Result<UnixStream, ConnectError> {
    let address = SocketAddrUnix::new(socket).map_err(io::Error::from)?;
    let flags = SocketFlags::CLOEXEC;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let stream = stream.map_err(io::Error::from)?;
    // A timeout of zero would mean no timeout.
    let timeout = timeout.max(Duration::from_millis(1));
    set_socket_timeout(&stream, Timeout::Send, Some(timeout)).map_err(io::Error::from)?;
    rustix::net::connect(&stream, &address).map_err(io::Error::from)?;
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A connection after the prefaces.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    daemon_version: ProtocolVersion,
    /// The id of the last request.
    last_request_id: u64,
    /// Whether a request was abandoned: the next bytes may belong to its response.
    has_failed: bool,
}

impl Connection {
    /// Agrees on the version over an [opened](open_socket) stream.
    ///
    /// # Errors
    /// One of [`ConnectError`]; an error of `wait` is [`ConnectError::Io`].
    pub fn handshake(mut stream: UnixStream, wait: WaitFn<'_>) -> Result<Self, ConnectError> {
        let mut bytes = [0; PREFACE_LENGTH];
        read_exact(&mut stream, &mut bytes, wait)?;
        let daemon = Preface::decode(&bytes).ok_or(ConnectError::NotGpukilld)?;
        if daemon.version.major != PROTOCOL_VERSION.major {
            return Err(ConnectError::Version(daemon.version));
        }
        match daemon.status {
            PrefaceStatus::Welcome => {}
            PrefaceStatus::Busy => return Err(ConnectError::Busy),
            PrefaceStatus::Other(code) => return Err(ConnectError::Refused(code)),
        }
        let own_preface = Preface::new(PrefaceStatus::Welcome, MAX_RESPONSE);
        write_all(&mut stream, &own_preface.encode(), wait)?;
        Ok(Self {
            stream,
            daemon_version: daemon.version,
            last_request_id: 0,
            has_failed: false,
        })
    }

    /// The version of the wire that the daemon speaks. A daemon of a lower minor version does
    /// not know the newest calls and closes the connection on them.
    #[must_use]
    pub const fn daemon_version(&self) -> ProtocolVersion {
        self.daemon_version
    }

    /// Sends a request, which the daemon abandons after `deadline`, and waits for the response.
    /// After an error of the stream or of `wait`, every further call fails.
    ///
    /// # Errors
    /// The errors of the stream and of `wait`; `UnexpectedEof` if the daemon closed the
    /// connection, `InvalidData` if its response is invalid, `Other` if tarpc failed in the
    /// daemon.
    pub fn call(
        &mut self,
        request: &GpukillRequest,
        deadline: Duration,
        wait: WaitFn<'_>,
    ) -> io::Result<GpukillResponse> {
        self.last_request_id += 1;
        let request = encode_request(self.last_request_id, deadline, request)?;
        if request.len() > MAX_REQUEST {
            return Err(io::Error::other("the request is too long"));
        }
        if self.has_failed {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = self.exchange(&request, wait);
        self.has_failed = answer.is_err();
        let message = answer?.message;
        message.map_err(|error| io::Error::other(error.to_string()))
    }

    fn exchange(
        &mut self,
        request: &[u8],
        wait: WaitFn<'_>,
    ) -> io::Result<Response<GpukillResponse>> {
        let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
        let frame = [&length.to_be_bytes(), request].concat();
        write_all(&mut self.stream, &frame, wait)?;
        let response = self.receive(wait)?;
        if response.request_id != self.last_request_id {
            return Err(invalid_data("the response belongs to another request"));
        }
        Ok(response)
    }

    fn receive(&mut self, wait: WaitFn<'_>) -> io::Result<Response<GpukillResponse>> {
        let mut length = [0; 4];
        read_exact(&mut self.stream, &mut length, wait)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_RESPONSE {
            return Err(invalid_data("the response is too long"));
        }
        let mut frame = vec![0; length];
        read_exact(&mut self.stream, &mut frame, wait)?;
        decode(&frame).map_err(invalid_data)
    }
}

fn invalid_data(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn read_exact(stream: &mut UnixStream, mut buffer: &mut [u8], wait: WaitFn<'_>) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => buffer = &mut buffer[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(stream, Readiness::Readable)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_all<S: Write>(
    stream: &mut S,
    mut bytes: &[u8],
    wait: &mut dyn FnMut(&S, Readiness) -> io::Result<()>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(stream, Readiness::Writable)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that accepts this many bytes.
    struct Limited(usize);

    impl Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let length = bytes.len().min(self.0);
            self.0 -= length;
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stream_that_accepts_no_bytes_is_an_error() {
        let wait = &mut |_: &Limited, _| Ok(());
        write_all(&mut Limited(3), b"abc", wait).expect("it accepts all");
        let error = write_all(&mut Limited(2), b"abc", wait).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }
}
