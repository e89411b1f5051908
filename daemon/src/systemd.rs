//! What systemd is told. Without systemd every call does nothing.

use gpukill_proto::snapshot::Snapshot;
use sd_notify::NotifyState;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// How long systemd may take to make room for "ready": PID 1 can be busy for
/// seconds, and a start of which it does not hear counts as failed.
const READY_PATIENCE: Duration = Duration::from_secs(5);

/// The same for what it can do without.
const PATIENCE: Duration = Duration::from_millis(500);

/// Half of systemd's limit would do; a third leaves room for one slow tick.
static WATCHDOG: LazyLock<Option<Duration>> =
    LazyLock::new(|| sd_notify::watchdog_enabled().map(|limit| limit / 3));

/// The first poll is done: clients get answers.
pub(crate) fn ready() {
    should_hear(&[NotifyState::Ready], READY_PATIENCE);
}

/// A reload begins; [`ready`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => should_hear(&[NotifyState::Reloading, now], PATIENCE),
        Err(_) => should_hear(&[NotifyState::Reloading], PATIENCE),
    }
}

/// The daemon stops.
pub(crate) fn stopping() {
    should_hear(&[NotifyState::Stopping], PATIENCE);
}

/// One line for `systemctl status`, told when it changes.
pub(crate) fn status(snapshot: &Snapshot) {
    static TOLD: Mutex<String> = Mutex::new(String::new());
    let (devices, processes, faults) = (
        snapshot.devices.len(),
        snapshot.processes.len(),
        snapshot.faults.len(),
    );
    let line = format!("{devices} GPUs, {processes} processes on them, {faults} faults");
    // A line is whole, whatever happened to the thread that set it.
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if *told != line && may_miss(&NotifyState::Status(&line)) {
        *told = line;
    }
}

/// How often the watchdog wants to hear from us; `None` without one.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    *WATCHDOG
}

/// Tells the watchdog that the poller goes on.
pub(crate) fn pet_watchdog() {
    if WATCHDOG.is_some() {
        // One that is missed is followed by another before the limit.
        let _ = may_miss(&NotifyState::Watchdog);
    }
}

fn should_hear(states: &[NotifyState<'_>], patience: Duration) {
    let lines: Vec<String> = states.iter().map(ToString::to_string).collect();
    let sent = send(&lines.join("\n"), |socket| {
        socket.set_write_timeout(Some(patience))
    });
    // systemd being gone is no reason to stop working.
    if let Err(error) = sent {
        tracing::warn!(%error, "systemd was not told");
    }
}

/// False when systemd has no room for it now.
fn may_miss(state: &NotifyState<'_>) -> bool {
    send(&state.to_string(), |socket| socket.set_nonblocking(true)).is_ok()
}

/// Not through `sd_notify::notify`, which waits for ever when systemd does not
/// read.
fn send(message: &str, bound: impl FnOnce(&UnixDatagram) -> io::Result<()>) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    // A path, or a name in the abstract namespace behind an "@".
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    bound(&socket)?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}
