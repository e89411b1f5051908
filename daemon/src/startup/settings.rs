//! Loads the settings at the start and on a reload.

use crate::args::Args;
use crate::config::{self, Config, DaemonScope};
use crate::fault::FaultCause;
use crate::log_events::event;
use crate::poll::poller::PollerEvent;
use crate::store::{RecordedEvent as Recorded, Retention, Store};
use crate::systemd;
use gpukill_proto::model::FaultCode;
use gpukill_proto::settings::SettingMistake;
use std::sync::Arc;
use std::sync::mpsc;
use tokio::sync::watch;

/// Handles SIGHUP: invalid settings keep the old ones, with a log entry. `started` are the settings
/// that the daemon was started with.
pub(super) fn reload(
    args: &Args,
    started: &Config,
    current: &watch::Sender<Arc<Config>>,
    events: &mpsc::Sender<PollerEvent>,
    store: &Store,
) {
    systemd::notify_reloading();
    match load_settings(args) {
        Ok(new) => {
            let waiting = restart_warning(started, &new);
            if let Some(waiting) = &waiting {
                tracing::warn!("{waiting}");
            }
            let fault = waiting.map(|what| FaultCause::new(FaultCode::RestartNeeded, what));
            let new = Arc::new(new);
            store.set_retention(retention(&new));
            store.record(Recorded::Settings(new.document().to_string()));
            // A poller that has ended needs no settings.
            let _ = events.send(PollerEvent::Reload(Arc::clone(&new), fault));
            current.send_replace(new);
            event!(SettingsReloaded);
        }
        Err(invalid) => {
            let what = rejected_fault(invalid.mistakes.len());
            let fault = FaultCause::new(FaultCode::SettingsMistaken, what);
            let _ = events.send(PollerEvent::ReloadRejected(fault));
            for line in invalid.to_string().lines() {
                event!(SettingsRefused, mistake = line);
            }
        }
    }
    systemd::notify_ready();
}

/// The warning about settings that take effect only after a restart.
fn restart_warning(started: &Config, new: &Config) -> Option<String> {
    let keys = new.restart_keys(started);
    (!keys.is_empty()).then(|| {
        let keys = keys.join(", ");
        format!("changed, and applied at the next start: {keys}: systemctl restart gpukilld")
    })
}

/// The fault for rejected settings. The mistakes themselves are only for the admin and the journal.
fn rejected_fault(mistakes: usize) -> String {
    format!(
        "mistakes in the settings: {mistakes}; the previous settings stay: gpukilld --check-config"
    )
}

/// Loads the settings from file and environment.
///
/// # Errors
/// All mistakes in them.
pub(super) fn load_settings(args: &Args) -> Result<Config, config::ConfigError> {
    let (mut environment, mut unreadable) = (Vec::new(), Vec::new());
    for (name, value) in std::env::vars_os() {
        let shown = gpukill_proto::text::sanitize(name.as_encoded_bytes(), 80);
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => environment.push((name, value)),
            // Ignoring it would be a silent default.
            _ if shown.starts_with(config::ENVIRONMENT_PREFIX) => unreadable.push(SettingMistake {
                line: None,
                what: format!("{shown}: is not valid UTF-8"),
            }),
            _ => {}
        }
    }
    let scope = if args.user {
        DaemonScope::Personal
    } else {
        DaemonScope::Host
    };
    let loaded = config::load(args.config.as_deref(), scope, &environment);
    if unreadable.is_empty() {
        return loaded;
    }
    let mut invalid = loaded.err().unwrap_or_default();
    invalid.mistakes.append(&mut unreadable);
    Err(invalid)
}
/// How long each kind of history is kept.
pub(super) fn retention(config: &Config) -> Retention {
    Retention {
        samples: config.audit.keep_samples,
        minutes: config.audit.keep_minutes,
        hours: config.audit.keep_hours,
    }
}
