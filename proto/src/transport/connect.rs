//! A client's way to the daemon.

use super::preface::{Preface, Status};
use super::{MAX_RESPONSE, codec};
use crate::service::GpukillClient;
use crate::{PROTOCOL_VERSION, ProtocolVersion};
use std::io;
use std::path::Path;
use tokio::net::UnixStream;

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

/// Opens the socket. When its backlog is full the kernel lets a waiting caller
/// in as soon as there is room, where one that asks again and again loses to
/// whoever fills it.
async fn open(socket: &Path) -> io::Result<UnixStream> {
    match UnixStream::connect(socket).await {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        opened => return opened,
    }
    let (opened, wait) = tokio::sync::oneshot::channel();
    let socket = socket.to_owned();
    // A thread of its own and not of the runtime, which would wait for it when
    // it ends; this one ends with the process at the latest.
    std::thread::Builder::new().spawn(move || {
        // The asker may have lost patience.
        let _ = opened.send(std::os::unix::net::UnixStream::connect(socket));
    })?;
    let stream = wait.await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Connects to the daemon at `socket` and settles the version; gives that of the
/// daemon, too: one of a lower minor version does not know the newest calls, and
/// hangs up at them. Makes one try; bound it with a timeout, for what listens may
/// never answer.
///
/// Must run inside a tokio runtime: the client's work is spawned there.
///
/// # Errors
/// One of [`ConnectError`].
pub async fn connect(socket: &Path) -> Result<(GpukillClient, ProtocolVersion), ConnectError> {
    let mut stream = open(socket).await?;
    let daemon = Preface::receive(&mut stream).await?;
    if daemon.version.major != PROTOCOL_VERSION.major {
        return Err(ConnectError::Version(daemon.version));
    }
    match daemon.status {
        Status::Welcome => {}
        Status::Busy => return Err(ConnectError::Busy),
        Status::Other(code) => return Err(ConnectError::TurnedAway(code)),
    }
    Preface::ours(Status::Welcome, MAX_RESPONSE)
        .send(&mut stream)
        .await?;
    let client = GpukillClient::new(tarpc::client::Config::default(), codec::client(stream));
    Ok((client.spawn(), daemon.version))
}
