//! Settings, when the daemon starts and when it is told to read them again.

use crate::args::Args;
use crate::audit::{Event as Recorded, Keep, Store};
use crate::catalogue::tell;
use crate::config::{self, Config, Scope};
use crate::poller::Event;
use crate::systemd;
use gpukill_proto::settings::Mistake;
use std::sync::Arc;
use std::sync::mpsc;
use tokio::sync::watch;

/// SIGHUP: bad settings keep the old ones and say so.
pub(super) fn reload(
    args: &Args,
    current: &watch::Sender<Arc<Config>>,
    events: &mpsc::Sender<Event>,
    store: &Store,
) {
    systemd::reloading();
    match settings(args) {
        Ok(new) => {
            let before = current.borrow().clone();
            if before.daemon.socket != new.daemon.socket
                || before.daemon.state_dir != new.daemon.state_dir
                || before.backends != new.backends
                || before.guard != new.guard
                || before.rogue != new.rogue
                || before.access.owner_label != new.access.owner_label
                || before.foreign_pids != new.foreign_pids
            {
                tracing::warn!(
                    "some of the changed settings need a restart: see gpukilld --print-default-config"
                );
            }
            let new = Arc::new(new);
            store.keep(keep(&new));
            store.record(Recorded::Settings(new.document().to_string()));
            // A poller that has ended needs no settings.
            let _ = events.send(Event::Reload(Arc::clone(&new)));
            current.send_replace(new);
            tell!(SettingsReloaded);
        }
        Err(invalid) => {
            for line in invalid.to_string().lines() {
                tell!(SettingsRefused, mistake = line);
            }
        }
    }
    systemd::ready();
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
