//! Notifications to systemd. Without systemd every function does nothing.

use gpukill_proto::model::Snapshot;
use sd_notify::NotifyState;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// How long the "ready" message may wait for room: PID 1 can be busy for seconds, and a start that
/// systemd does not hear about counts as failed.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// The same for messages that systemd can miss.
const NOTIFY_TIMEOUT: Duration = Duration::from_millis(500);

/// Half of systemd's limit would be enough; a third leaves room for one slow poll.
static WATCHDOG_INTERVAL: LazyLock<Option<Duration>> =
    LazyLock::new(|| sd_notify::watchdog_enabled().map(|limit| limit / 3));

/// Reports that the first poll is done, so that clients get answers.
pub(crate) fn notify_ready() {
    send_with_timeout(&[NotifyState::Ready], READY_TIMEOUT);
}

/// Reports that a reload starts; [`notify_ready`] ends it.
pub(crate) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send_with_timeout(&[NotifyState::Reloading, now], NOTIFY_TIMEOUT),
        Err(_) => send_with_timeout(&[NotifyState::Reloading], NOTIFY_TIMEOUT),
    }
}

/// Reports that the daemon stops.
pub(crate) fn notify_stopping() {
    send_with_timeout(&[NotifyState::Stopping], NOTIFY_TIMEOUT);
}

/// Sets the line of `systemctl status` if it changed.
pub(crate) fn notify_status(snapshot: &Snapshot) {
    static LAST_STATUS: Mutex<String> = Mutex::new(String::new());
    let (devices, processes, faults) = (
        snapshot.devices.len(),
        snapshot.processes.len(),
        snapshot.faults.len(),
    );
    let line = format!("{devices} GPUs, {processes} processes on them, {faults} faults");
    // The line is always whole, even if the thread that set it panicked.
    let mut last = LAST_STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != line && try_send(&NotifyState::Status(&line)) {
        *last = line;
    }
}

/// How often the watchdog expects a message; `None` without a watchdog.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    *WATCHDOG_INTERVAL
}

/// Reports to the watchdog that the poller is alive.
pub(crate) fn pet_watchdog() {
    if WATCHDOG_INTERVAL.is_some() {
        // A missed message is followed by another one within the limit.
        let _ = try_send(&NotifyState::Watchdog);
    }
}

fn send_with_timeout(states: &[NotifyState<'_>], timeout: Duration) {
    let lines: Vec<String> = states.iter().map(ToString::to_string).collect();
    let sent = send(&lines.join("\n"), |socket| {
        socket.set_write_timeout(Some(timeout))
    });
    // A missing systemd is no reason to stop.
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// Sends without waiting; returns false if systemd has no room now.
fn try_send(state: &NotifyState<'_>) -> bool {
    send(&state.to_string(), |socket| socket.set_nonblocking(true)).is_ok()
}

/// Used instead of `sd_notify::notify`, which waits without limit when systemd does not read.
fn send(message: &str, bound: impl FnOnce(&UnixDatagram) -> io::Result<()>) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    // A path, or a name in the abstract namespace after an "@".
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    bound(&socket)?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}
