//! What systemd is told. Without systemd every call does nothing.

use gpukill_proto::snapshot::Snapshot;
use sd_notify::NotifyState;
use std::sync::LazyLock;
use std::time::Duration;

/// Half of systemd's limit would do; a third leaves room for one slow tick.
static WATCHDOG: LazyLock<Option<Duration>> =
    LazyLock::new(|| sd_notify::watchdog_enabled().map(|limit| limit / 3));

/// The first poll is done: clients get answers.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload begins; [`ready`] ends it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The daemon stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// One line for `systemctl status`.
pub(crate) fn status(snapshot: &Snapshot) {
    let (devices, processes, faults) = (
        snapshot.devices.len(),
        snapshot.processes.len(),
        snapshot.faults.len(),
    );
    notify(&[NotifyState::Status(&format!(
        "{devices} GPUs, {processes} processes on them, {faults} faults"
    ))]);
}

/// How often the watchdog wants to hear from us; `None` without one.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    *WATCHDOG
}

/// Tells the watchdog that the poller goes on.
pub(crate) fn pet_watchdog() {
    if WATCHDOG.is_some() {
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // systemd being gone is no reason to stop working.
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}
