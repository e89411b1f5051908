//! `gpukill-gateway`: the data of gpukilld over HTTP, for browsers, scripts and Prometheus.
//!
//! The gateway has no rights of its own and no state: it is one more client of the daemon's socket,
//! it only reads, and it shows what the daemon shows a plain user.
//!
//! Read in this order:
//! - [`settings`], [`args`]: what a run does.
//! - `upstream`: the newest snapshot, from one long poll for all clients.
//! - `daemon`, `calls`: other calls of the daemon, on request.
//! - `connections`, `request_check`: who may connect, and which requests are looked at.
//! - `gateway`, `routes`: the way of a request, and the one table of routes.
//! - `parameters`, `document`, `problem`: what comes in, and what goes out.
//! - `live`, `metrics`, `openapi`: events, Prometheus, the description of the API.
#![forbid(unsafe_code)]

pub mod args;
mod calls;
mod connections;
mod daemon;
mod document;
mod gateway;
mod live;
mod log;
mod metrics;
mod openapi;
mod parameters;
mod problem;
mod request_check;
mod routes;
pub mod settings;
mod upstream;

use args::Args;
use connections::{listeners, serve};
use gateway::Gateway;
use gpukill_proto::settings::print_defaults;
use settings::{KEYS, Settings};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The exit code for wrong arguments and settings.
pub const EXIT_USAGE: u8 = 3;

/// The threads for four calls of the daemon, four parts of the snapshot, and compression.
const BLOCKING_THREADS: usize = 10;

/// The pause before the gateway ends with an error, where systemd holds its sockets.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Runs the gateway until SIGTERM or SIGINT.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    // Read before the sockets are taken over, which removes the variable.
    let has_passed_sockets = std::env::var_os("LISTEN_FDS").is_some();
    if args.print_default_config {
        let printed = std::io::stdout().write_all(print_defaults(KEYS).as_bytes());
        return printed.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let settings = match Settings::load(args) {
        Ok(settings) => settings,
        Err(mistakes) => {
            mistakes.lines().for_each(log::warn);
            if !args.check_config {
                pause_before_failure(has_passed_sockets);
            }
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    // Requests wait for the daemon and for clients; one thread answers more of them than there are.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(run_server(settings));
            // A call of the daemon may still wait for its answer.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            log::warn(&what);
            pause_before_failure(has_passed_sockets);
            ExitCode::FAILURE
        }
    }
}

/// A client that waits at a passed socket makes systemd start the gateway again at once: the pause
/// keeps that from taking a processor until the settings are corrected.
fn pause_before_failure(has_passed_sockets: bool) {
    if has_passed_sockets {
        std::thread::sleep(FAILURE_PAUSE);
    }
}

async fn run_server(settings: Settings) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start: {error}");
    let listeners = listeners(&settings)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let view = upstream::start(settings.daemon_socket.clone()).map_err(failed)?;
    let (stop, stopped) = watch::channel(false);
    let gateway = Gateway::new(settings, view, stopped.clone());
    let mut servers = JoinSet::new();
    for listener in listeners {
        log::info(&format!("listening on {}", listener.address()));
        let slots = Arc::clone(&gateway.slots);
        servers.spawn(serve(
            listener,
            Arc::clone(&gateway),
            slots,
            stopped.clone(),
        ));
    }
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    log::info("stopping");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    stop.send_replace(true);
    while servers.join_next().await.is_some() {}
    Ok(())
}
