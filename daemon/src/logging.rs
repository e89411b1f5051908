//! Where log messages go: journald when systemd started us, standard error
//! otherwise. A thread of its own writes them from a bounded queue, for
//! journald's socket blocks when journald is stuck; what does not fit is
//! dropped and counted.

mod journal;

mod record;

use journal::Journal;
use record::Record;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// So many messages may wait to be written.
const QUEUE: usize = 1024;

/// How long the end of the daemon waits for its last messages.
const FLUSH_PATIENCE: Duration = Duration::from_millis(500);

enum Order {
    Write(Record),
    Flush(SyncSender<()>),
}

/// The running log. [`Log::flush`] before the process ends.
pub(crate) struct Log(SyncSender<Order>);

/// Starts logging at `level`, or as `RUST_LOG` says where it is set.
///
/// # Errors
/// When `RUST_LOG` makes no sense, or the system gives no thread.
pub(crate) fn start(level: &str) -> Result<Log, String> {
    let filter = filter(level, std::env::var("RUST_LOG").ok())?;
    let (queue, orders) = sync_channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&dropped);
    let sink = Sink::choose();
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || write(&sink, &orders, &counter))
        .map_err(|error| format!("cannot start the log: {error}"))?;
    let subscriber = Registry::default().with(filter).with(Queue {
        queue: queue.clone(),
        dropped,
    });
    tracing::subscriber::set_global_default(subscriber).map_err(|error| error.to_string())?;
    Ok(Log(queue))
}

/// What is logged: `RUST_LOG` names targets and levels, as `info,gpukilld::store=debug`.
fn filter(level: &str, rust_log: Option<String>) -> Result<Targets, String> {
    match rust_log.filter(|text| !text.is_empty()) {
        Some(text) => text
            .parse::<Targets>()
            .map_err(|error| format!("RUST_LOG: {error}")),
        // Any client can make tarpc warn, as often as it likes.
        None => format!("{level},tarpc=error")
            .parse::<Targets>()
            .map_err(|error| error.to_string()),
    }
}

impl Log {
    /// Waits, not for long, until all messages are written.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.0.try_send(Order::Flush(done)).is_ok() {
            // Too late is no reason to stay.
            let _ = wait.recv_timeout(FLUSH_PATIENCE);
        }
    }
}

/// The layer that queues.
struct Queue {
    queue: SyncSender<Order>,
    dropped: Arc<AtomicU64>,
}

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        match self.queue.try_send(Order::Write(Record::of(event))) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

enum Sink {
    Journal(Journal),
    StandardError,
}

impl Sink {
    fn choose() -> Self {
        Journal::if_started_by_systemd().map_or(Self::StandardError, Self::Journal)
    }

    fn write(&self, record: &Record) {
        match self {
            Self::Journal(journal) => journal.write(record),
            Self::StandardError => {
                // There is no other place to complain about this one.
                let _ = writeln!(std::io::stderr().lock(), "{}", record.line());
            }
        }
    }
}

fn write(sink: &Sink, orders: &Receiver<Order>, dropped: &AtomicU64) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Write(record) => sink.write(&record),
            Order::Flush(done) => {
                // The asker may have gone on already.
                let _ = done.try_send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            sink.write(&Record::dropped(lost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts_and_never_blocks() {
        let (queue, orders) = sync_channel(2);
        let dropped = Arc::new(AtomicU64::new(0));
        let subscriber = Registry::default().with(Queue {
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
    fn a_filter_that_makes_no_sense_is_an_error() {
        assert!(filter("info", Some("gpukilld=loud".into())).is_err());
        assert!(filter("info", Some("debug".into())).is_ok());
        assert_eq!(
            filter("warn", None).unwrap().to_string(),
            "tarpc=error,warn"
        );
    }
}
