//! The unit `gpukill-notify`: it listens nowhere, and sends what the daemon knows to servers that an
//! admin named.
//!
//! Each way out is a channel: a task that follows the view of the daemon until the unit stops.
//! [`otlp`] pushes metrics. Channels share requests ([`http_client`]), pauses ([`retry`]) and
//! [`secret_headers`].

mod http_client;
mod otlp;
mod retry;
mod secret_headers;

use crate::args::Args;
use crate::settings::Settings;
use crate::upstream::AllowedRights;
use crate::{EXIT_USAGE, log, run_on_thread, upstream};
use otlp::OtlpChannel;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The threads that look up names of servers: a second one while the first is stuck.
const LOOKUP_THREADS: usize = 2;

/// Runs the unit until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> ExitCode {
    let notifier = Settings::load(args).and_then(|settings| Notifier::new(&settings));
    let notifier = match notifier {
        Ok(notifier) => notifier,
        Err(mistakes) => {
            mistakes.lines().for_each(log::warn);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    match run_on_thread(notifier.run(), LOOKUP_THREADS) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            log::warn(&what);
            ExitCode::FAILURE
        }
    }
}

/// The unit with its channels, not yet started.
struct Notifier {
    daemon_socket: PathBuf,
    otlp: Option<OtlpChannel>,
}

impl Notifier {
    /// The unit of these settings.
    ///
    /// # Errors
    /// The mistake in a file or a server that the settings name.
    fn new(settings: &Settings) -> Result<Self, String> {
        Ok(Self {
            daemon_socket: settings.daemon_socket.clone(),
            otlp: OtlpChannel::new(settings)?,
        })
    }

    /// Runs until SIGTERM or SIGINT, and lets the channels end.
    ///
    /// # Errors
    /// It cannot start, or a channel ended by itself, which is a bug.
    async fn run(self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot start: {error}");
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        // Only the server of the settings gets what it sees.
        let view = upstream::start(self.daemon_socket, AllowedRights::Any).map_err(failed)?;
        let upstream_end = upstream::wait_for_end(view.clone());
        let (stop, stopped) = watch::channel(false);
        let mut channels = JoinSet::new();
        if let Some(otlp) = self.otlp {
            channels.spawn(otlp.run(view, stopped));
        }
        // Without systemd there is nobody to tell.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            Some(_) = channels.join_next() => return Err("a channel ended by itself".into()),
            _ = upstream_end => return Err("the thread that polls gpukilld has ended".into()),
        }
        log::info("stopping");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        stop.send_replace(true);
        while channels.join_next().await.is_some() {}
        Ok(())
    }
}

/// Waits until the unit stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender it has stopped.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await;
}
