//! A connection that notices when its peer has gone. tarpc reads the end of a connection only when
//! all its calls are answered, and a call that waits for a change may take half a minute.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// A stream that reads and writes like the inner one.
pub(super) struct DisconnectStream {
    stream: UnixStream,
    gone: Arc<Notify>,
}

impl DisconnectStream {
    /// The stream, and a notification for when its peer stops writing.
    pub(super) fn new(stream: UnixStream) -> (Self, Arc<Notify>) {
        let gone = Arc::new(Notify::new());
        let watched = Self {
            stream,
            gone: Arc::clone(&gone),
        };
        (watched, gone)
    }
}

impl AsyncRead for DisconnectStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let nothing = buffer.filled().len() == before && buffer.remaining() > 0;
        if nothing && matches!(read, Poll::Ready(Ok(()))) {
            self.gone.notify_one();
        }
        read
    }
}

impl AsyncWrite for DisconnectStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
