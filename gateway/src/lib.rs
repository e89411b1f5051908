//! `gpukill-gateway`: the data of gpukilld over HTTP, for browsers, scripts and Prometheus.
//!
//! The gateway of a host has no rights of its own and no state: it is one more client of the daemon's
//! socket, it only reads, and it shows what the daemon shows a plain user. The gateway of one person
//! acts too, with the rights of that person.
//!
//! Read in this order:
//! - [`settings`], [`args`]: what a run does.
//! - `upstream`: the newest snapshot, from one long poll for all clients.
//! - `daemon`, `calls`: other calls of the daemon, on request.
//! - `connections`, `request_check`: who may connect, and which requests are looked at.
//! - `memory`, `held_answers`: how memory is divided, and what slow readers may keep of it.
//! - `access`, `tokens`, `tls`, `trusted_file`: what a caller may see, encryption, and their files.
//! - `gateway`, `routes`: the way of a request, and the one table of routes.
//! - `parameters`, `document`, `problem`: what comes in, and what goes out.
//! - `parts`: documents that are made from the newest snapshot.
//! - `personal`, `routes::acts`: the gateway of one person, and what it does for them.
//! - `live`, `websocket`, `metrics`: events, Prometheus.
//! - `openapi`, `reference`: the description of the API, for programs and for people.
//! - `page`: the pages for people, which are made from the same documents.
//! - `notify`: a unit of its own, which sends and listens nowhere. The server is the other way round:
//!   it connects to nothing but the daemon.
#![forbid(unsafe_code)]

pub mod access;
pub mod args;
mod calls;
mod connections;
mod daemon;
mod document;
pub mod fuzz_api;
mod gateway;
mod held_answers;
#[cfg(test)]
mod hostile_names;
mod live;
mod log;
mod memory;
mod metrics;
mod notify;
mod openapi;
mod page;
mod parameters;
mod parts;
mod personal;
mod problem;
mod reference;
mod request_check;
mod routes;
pub mod settings;
mod shares;
mod tls;
mod tokens;
mod trusted_file;
mod upstream;
mod websocket;

use args::{Args, Command, NewToken, TokenCommand};
use connections::{Listener, listeners, serve};
use futures::FutureExt as _;
use gateway::Gateway;
use gpukill_proto::settings::print_defaults;
use personal::PersonalAccess;
use settings::{KEYS, Settings};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;
use tokens::{Tokens, file_entry, new_token, parse_scope};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use upstream::AllowedRights;

/// The exit code for a gateway that cannot start, or that failed.
const EXIT_FAILED: u8 = 1;

/// The exit code for wrong arguments and settings, and for a user with rights that everybody would
/// use: a restart does not help.
pub const EXIT_USAGE: u8 = 3;

/// The threads for six calls of the daemon, four parts of the snapshot, two acts, and compression.
const BLOCKING_THREADS: usize = 14;

/// How often the files of tokens and certificates are looked at for changes.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The pause before the gateway ends with an error, where systemd holds its sockets.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Runs the gateway, or the unit of the command, until SIGTERM or SIGINT; or another command to its
/// end.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    // Read before the sockets are taken over, which removes the variable.
    let has_passed_sockets = std::env::var_os("LISTEN_FDS").is_some();
    if let Some(Command::Token(TokenCommand::New(wanted))) = &args.command {
        return print_token(wanted);
    }
    if args.print_default_config {
        let printed = std::io::stdout().write_all(print_defaults(KEYS).as_bytes());
        return printed.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let Some(Command::Notify) = &args.command {
        return notify::run(args);
    }
    let service = check_user(args).and_then(|()| Service::load(args));
    let service = match service {
        Ok(service) => service,
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
    match run_on_thread(run_server(service), BLOCKING_THREADS) {
        Ok(()) => ExitCode::SUCCESS,
        Err(RunFailure { what, code }) => {
            log::warn(&what);
            pause_before_failure(has_passed_sockets);
            ExitCode::from(code)
        }
    }
}

/// Runs on this thread, with others for what blocks.
fn run_on_thread<E: From<String>>(
    work: impl Future<Output = Result<(), E>>,
    blocking_threads: usize,
) -> Result<(), E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking_threads)
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(work);
    // A call of the daemon, or a lookup of a name, may still wait for its answer.
    runtime.shutdown_background();
    outcome
}

/// Why a run has ended.
struct RunFailure {
    what: String,
    code: u8,
}

impl From<String> for RunFailure {
    fn from(what: String) -> Self {
        let code = EXIT_FAILED;
        Self { what, code }
    }
}

/// Refuses to serve everybody as root. The daemon says later whether another user has rights too.
///
/// # Errors
/// What to do instead.
fn check_user(args: &Args) -> Result<(), String> {
    let shows_everybody = !args.personal && !args.check_config;
    if !shows_everybody || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(
        "this gateway would show everybody what root may see: start it as a user without rights, as \
         gpukill-gateway.service does, or run gpukillctl web for a gateway of your own"
            .into(),
    )
}

/// A client that waits at a passed socket makes systemd start the gateway again at once: the pause
/// keeps that from taking a processor until the settings are corrected.
fn pause_before_failure(has_passed_sockets: bool) {
    if has_passed_sockets {
        std::thread::sleep(FAILURE_PAUSE);
    }
}

/// What a run serves.
struct Service {
    settings: Settings,
    tokens: Tokens,
    tls: Option<Arc<Tls>>,
    personal: Option<PersonalAccess>,
}

impl Service {
    /// # Errors
    /// All mistakes of the settings and of a file that they name: one line each.
    fn load(args: &Args) -> Result<Self, String> {
        if args.personal {
            let token = new_token().map_err(|error| format!("cannot make a token: {error}"))?;
            return Ok(Self {
                settings: Settings::personal(args),
                tokens: Tokens::personal(&token),
                tls: None,
                personal: Some(PersonalAccess {
                    token,
                    opens_browser: args.open,
                }),
            });
        }
        let settings = Settings::load(args)?;
        Ok(Self {
            tokens: Tokens::load(&settings.tokens)?,
            tls: Tls::load(&settings)?.map(Arc::new),
            settings,
            personal: None,
        })
    }
}

/// Prints a new token and the lines of the tokens file for it.
fn print_token(wanted: &NewToken) -> ExitCode {
    let token = match new_token() {
        Ok(token) => token,
        Err(error) => {
            log::warn(&format!("cannot make a token: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let entry = parse_scope(&wanted.scope)
        .and_then(|scope| file_entry(&wanted.name, scope, wanted.expires.as_deref(), &token));
    let entry = match entry {
        Ok(entry) => entry,
        Err(mistake) => {
            log::warn(&mistake);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    // The token is of use only with its lines in the file.
    let printed = std::io::stdout().write_all(entry.as_bytes());
    let printed =
        printed.and_then(|()| writeln!(std::io::stderr(), "the token, shown only now: {token}"));
    printed.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// Reads the files of tokens and certificates again when they change, and at each SIGHUP.
async fn follow_files(gateway: Arc<Gateway>, tls: Option<Arc<Tls>>, mut hangup: Signal) {
    loop {
        let is_requested = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(FILE_CHECK_INTERVAL) => false,
        };
        gateway
            .tokens
            .reload(&gateway.settings.tokens, is_requested);
        if let Some(tls) = &tls {
            tls.reload(is_requested);
        }
    }
}

async fn run_server(service: Service) -> Result<(), RunFailure> {
    let Service {
        settings,
        tokens,
        tls,
        personal,
    } = service;
    let failed = |error: std::io::Error| format!("cannot start: {error}");
    let listeners = listeners(&settings)?;
    let is_exposed = listeners.iter().any(Listener::is_exposed);
    if is_exposed && !settings.behind_proxy && tokens.is_empty() {
        let file = settings.tokens.display();
        let what = format!(
            "nobody could read beyond loopback, because {file} has no token: make one with \
             gpukill-gateway token new NAME"
        );
        return Err(what.into());
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let allowed = match settings.is_personal {
        true => AllowedRights::Any,
        false => AllowedRights::OfEveryUser,
    };
    let view = upstream::start(settings.daemon_socket.clone(), allowed).map_err(failed)?;
    let upstream_end = upstream::wait_for_end(view.clone());
    let (stop, stopped) = watch::channel(false);
    let gateway = Gateway::new(settings, view, stopped.clone());
    gateway.tokens.replace(tokens);
    let address = listeners.iter().find_map(Listener::socket_address);
    let address = address.map(|address| address.to_string());
    let mut servers = JoinSet::new();
    for listener in listeners {
        let gateway = Arc::clone(&gateway);
        servers.spawn(serve(listener, gateway, tls.clone(), stopped.clone()));
    }
    // The page for the browser stays until the end.
    let (end_of_use, _page) = match personal.zip(address) {
        Some((personal, address)) => {
            let page = personal::announce(&address, &personal)?;
            (personal::wait_for_end(gateway, hangup).boxed(), page)
        }
        None => {
            tokio::spawn(follow_files(gateway, tls, hangup));
            (std::future::pending().boxed(), None)
        }
    };
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tokio::select! {
        _ = terminate.recv() => log::info("stopping"),
        _ = interrupt.recv() => log::info("stopping"),
        reason = end_of_use => log::info(&format!("stopping: {reason}")),
        reason = upstream_end => {
            let code = if reason.is_some() { EXIT_USAGE } else { EXIT_FAILED };
            let what = reason.unwrap_or_else(|| "the thread that polls gpukilld has ended".into());
            return Err(RunFailure { what, code });
        }
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    stop.send_replace(true);
    while servers.join_next().await.is_some() {}
    Ok(())
}
