//! The destination of log messages: journald if systemd started the daemon, standard error
//! otherwise. A thread of its own writes them from a bounded queue, because the socket of journald
//! blocks when journald is stuck; messages that do not fit are dropped and counted.

mod journal;
mod record;

use journal::JournalSocket;
use record::LogRecord;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// At most this many messages wait to be written.
const QUEUE_CAPACITY: usize = 1024;

/// How long the end of the daemon waits for its last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

enum LogCommand {
    Write(LogRecord),
    Flush(SyncSender<()>),
}

/// The running log. Call [`LogHandle::flush`] before the process ends.
pub(crate) struct LogHandle(SyncSender<LogCommand>);

/// Starts logging at `level`, or as `RUST_LOG` says if it is set.
///
/// # Errors
/// If `RUST_LOG` is invalid, or a thread cannot be started.
pub(crate) fn start(level: &str) -> Result<LogHandle, String> {
    let filter = parse_filter(level, std::env::var("RUST_LOG").ok())?;
    let (queue, orders) = sync_channel(QUEUE_CAPACITY);
    let dropped = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&dropped);
    let sink = LogSink::choose();
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || write_records(&sink, &orders, &counter))
        .map_err(|error| format!("cannot start the log: {error}"))?;
    let subscriber = Registry::default().with(filter).with(QueueLayer {
        queue: queue.clone(),
        dropped,
    });
    tracing::subscriber::set_global_default(subscriber).map_err(|error| error.to_string())?;
    Ok(LogHandle(queue))
}

/// Parses the filter: `RUST_LOG` names targets and levels, as in `info,gpukilld::store=debug`.
fn parse_filter(level: &str, rust_log: Option<String>) -> Result<Targets, String> {
    match rust_log.filter(|text| !text.is_empty()) {
        Some(text) => text
            .parse::<Targets>()
            .map_err(|error| format!("RUST_LOG: {error}")),
        // Any client can make tarpc log warnings, as often as it likes.
        None => format!("{level},tarpc=error")
            .parse::<Targets>()
            .map_err(|error| error.to_string()),
    }
}

impl LogHandle {
    /// Waits a short time until all messages are written.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.0.try_send(LogCommand::Flush(done)).is_ok() {
            // A late answer does not delay the end.
            let _ = wait.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// The tracing layer that queues messages.
struct QueueLayer {
    queue: SyncSender<LogCommand>,
    dropped: Arc<AtomicU64>,
}

impl<S: Subscriber> Layer<S> for QueueLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        match self
            .queue
            .try_send(LogCommand::Write(LogRecord::from_event(event)))
        {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

enum LogSink {
    Journal(JournalSocket),
    StandardError,
}

impl LogSink {
    fn choose() -> Self {
        JournalSocket::if_started_by_systemd().map_or(Self::StandardError, Self::Journal)
    }

    fn write(&self, record: &LogRecord) {
        match self {
            Self::Journal(journal) => journal.write(record),
            Self::StandardError => {
                // A failure to write cannot be reported anywhere.
                let _ = writeln!(std::io::stderr().lock(), "{}", record.line());
            }
        }
    }
}

fn write_records(sink: &LogSink, orders: &Receiver<LogCommand>, dropped: &AtomicU64) {
    while let Ok(order) = orders.recv() {
        match order {
            LogCommand::Write(record) => sink.write(&record),
            LogCommand::Flush(done) => {
                // The caller may have stopped waiting.
                let _ = done.try_send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            sink.write(&LogRecord::dropped(lost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_drops_and_counts() {
        let (queue, orders) = sync_channel(2);
        let dropped = Arc::new(AtomicU64::new(0));
        let subscriber = Registry::default().with(QueueLayer {
            queue,
            dropped: Arc::clone(&dropped),
        });
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..5 {
                tracing::info!(n, "message");
            }
        });
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
        assert_eq!(orders.try_iter().count(), 2);
    }

    #[test]
    fn invalid_filter_is_an_error() {
        assert!(parse_filter("info", Some("gpukilld=loud".into())).is_err());
        assert!(parse_filter("info", Some("debug".into())).is_ok());
        assert_eq!(
            parse_filter("warn", None).unwrap().to_string(),
            "tarpc=error,warn"
        );
    }
}
