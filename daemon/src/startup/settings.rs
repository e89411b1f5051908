//! Settings, when the daemon starts and when it is told to read them again.

use crate::args::Args;
use crate::audit::{Event as Recorded, Keep, Store};
use crate::catalogue::tell;
use crate::config::{self, Config, Scope};
use crate::faults::FaultCause;
use crate::poller::Event;
use crate::systemd;
use gpukill_proto::settings::Mistake;
use gpukill_proto::snapshot::FaultCode;
use std::sync::Arc;
use std::sync::mpsc;
use tokio::sync::watch;

/// SIGHUP: bad settings keep the old ones and say so. `started` are those that the
/// daemon has been started with.
pub(super) fn reload(
    args: &Args,
    started: &Config,
    current: &watch::Sender<Arc<Config>>,
    events: &mpsc::Sender<Event>,
    store: &Store,
) {
    systemd::reloading();
    match settings(args) {
        Ok(new) => {
            let waiting = waiting(started, &new);
            if let Some(waiting) = &waiting {
                tracing::warn!("{waiting}");
            }
            let fault = waiting.map(|what| FaultCause::new(FaultCode::RestartNeeded, what));
            let new = Arc::new(new);
            store.keep(keep(&new));
            store.record(Recorded::Settings(new.document().to_string()));
            // A poller that has ended needs no settings.
            let _ = events.send(Event::Reload(Arc::clone(&new), fault));
            current.send_replace(new);
            tell!(SettingsReloaded);
        }
        Err(invalid) => {
            let what = refused(invalid.mistakes.len());
            let fault = FaultCause::new(FaultCode::SettingsMistaken, what);
            let _ = events.send(Event::Refused(fault));
            for line in invalid.to_string().lines() {
                tell!(SettingsRefused, mistake = line);
            }
        }
    }
    systemd::ready();
}

/// What is told of settings that hold after a restart only.
fn waiting(started: &Config, new: &Config) -> Option<String> {
    let keys = new.waiting(started);
    (!keys.is_empty()).then(|| {
        let keys = keys.join(", ");
        format!("changed, and held from the next start on: {keys}: systemctl restart gpukilld")
    })
}

/// What is told of a file that is not taken. What it says is the admin's, and the
/// journal's.
fn refused(mistakes: usize) -> String {
    format!("mistakes in the settings: {mistakes}; those of before hold: gpukilld --check-config")
}

/// The settings, from file and environment.
///
/// # Errors
/// Every mistake in them.
pub(super) fn settings(args: &Args) -> Result<Config, config::Invalid> {
    let (mut environment, mut unreadable) = (Vec::new(), Vec::new());
    for (name, value) in std::env::vars_os() {
        let shown = gpukill_proto::text::visible(name.as_encoded_bytes(), 80);
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => environment.push((name, value)),
            // Left out, it would be a silent default.
            _ if shown.starts_with(config::PREFIX) => unreadable.push(Mistake {
                line: None,
                what: format!("{shown}: is not valid UTF-8"),
            }),
            _ => {}
        }
    }
    let scope = if args.user {
        Scope::Personal
    } else {
        Scope::Box
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
pub(super) fn keep(config: &Config) -> Keep {
    Keep {
        samples: config.audit.keep_samples,
        minutes: config.audit.keep_minutes,
        hours: config.audit.keep_hours,
    }
}
