//! Starts the daemon from its command line, and stops it in order.

mod polling;
mod restore;
mod served_sockets_file;
mod settings;

use crate::args::{Args, Command};
use crate::authority::Authority;
use crate::clock::{Clock, SystemClock};
use crate::config::{self, Config};
use crate::evaluator::{EvaluatorRequest, child};
use crate::guard::replay::replay;
use crate::guard::rules::{GuardRulesKind, parse_rules};
use crate::guard::{Guard, ProcessLiveness};
use crate::host::evidence::EvidenceReader;
use crate::host::hashes::ExecutableHashes;
use crate::host::namespace::is_in_host_pid_namespace;
use crate::host::process_table::ProcessTableReader;
use crate::host::sockets::SocketWatcher;
use crate::host::users::{SystemNameService, Users};
use crate::kill::{KillEnvironment, KillService, recover_stopped};
use crate::log_events::event;
use crate::logging;
use crate::poll::PastUseQuery;
use crate::poll::poller::PollerEvent;
use crate::procfs::alive::LiveProcesses;
use crate::reset::ResetService;
use crate::rogue::rules::{RogueRuleStore, RogueRulesKind};
use crate::rogue::{ProcEvidence, Rogue};
use crate::rules_file::check_rules;
use crate::server::listener::{SocketListener, listen, lock_file};
use crate::server::{FairQueue, ReplayThreads, ServerContext, serve};
use crate::store::{RecordedEvent as Recorded, Store, StoredHistory};
use crate::systemd;
use gpukill_proto::refusal::Refusal;
use polling::{PollingParts, poll_now_fn};
use settings::{load_settings, reload};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};

/// The exit code for bad arguments and bad settings.
pub const EXIT_USAGE: u8 = 3;

/// The exit code for all other failures.
pub const EXIT_FAILED: u8 = 1;

/// Prints what is wrong with a command line. Help and version are errors to clap, too, although
/// they are none.
#[must_use]
pub fn exit_after_usage(error: &clap::Error) -> ExitCode {
    // A failure to print cannot be reported anywhere.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 })
}

/// How long a stop waits for the current poll.
const POLL_STOP_TIMEOUT: Duration = Duration::from_millis(1500);

/// How long a stop waits for running kills, which are asked to end.
const KILL_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the start waits for the groups of operators and admins. A slower name service delivers
/// them a little later.
const GROUP_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the command line; returns when the daemon has stopped.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    if args.evaluate {
        return exit_after(evaluate(), EXIT_FAILED);
    }
    if args.print_default_config {
        return exit_after(print(&config::print_default()), EXIT_FAILED);
    }
    let config = match load_settings(args) {
        Ok(config) => config,
        Err(invalid) => return exit_after(Err(invalid), EXIT_USAGE),
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    if let Some(Command::Restore(wanted)) = &args.command {
        return exit_after(restore::restore(wanted, &config), EXIT_FAILED);
    }
    crate::heap::limit_arenas();
    let log = match logging::start(&args.log_level) {
        Ok(log) => log,
        Err(error) => return exit_after(Err(error), EXIT_USAGE),
    };
    let result = run_daemon(args, config);
    log.flush();
    exit_after(result, EXIT_FAILED)
}

/// Runs the daemon, from its first file to its last.
fn run_daemon(args: &Args, config: Config) -> Result<(), String> {
    // First of all: a signal that arrives while the parts start must stop them in order.
    let signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(add_context("cannot catch signals"))?;
    crate::kill::raise_fd_limit();
    let directory_mode = if config.personal { 0o700 } else { 0o755 };
    let listening =
        listen(&config.daemon.socket, directory_mode).map_err(|error| error.to_string())?;
    let _store_lock = lock_store(&config)?;
    let config = Arc::new(config);
    let running = RunningDaemon::start(&config)?;
    running
        .store
        .record(Recorded::Started(env!("CARGO_PKG_VERSION")));
    running
        .store
        .record(Recorded::Settings(config.document().to_string()));
    event!(
        Started,
        version = env!("CARGO_PKG_VERSION"),
        socket = config.daemon.socket.display().to_string(),
        state_dir = config.daemon.state_dir.display().to_string(),
        personal = config.personal,
    );
    let result = running.serve(args.clone(), signals, &listening);
    systemd::notify_stopping();
    // From here on no client is served; the name of the socket goes first.
    drop(listening);
    running.stop();
    event!(Stopped);
    result
}

/// Locks the store, so that two daemons never write to the same one, whatever sockets they use. A
/// directory that cannot be used does not prevent the start: the store reports it.
fn lock_store(config: &Config) -> Result<Option<File>, String> {
    let directory = &config.daemon.state_dir;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(directory);
    match made.and_then(|()| lock_file(&directory.join("lock"))) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(format!(
            "another gpukilld uses the store in {}",
            directory.display()
        )),
        Err(_) => Ok(None),
    }
}

/// The running parts of the daemon.
struct RunningDaemon {
    shared: ServerContext,
    store: Store,
    settings: watch::Sender<Arc<Config>>,
    events: mpsc::Sender<PollerEvent>,
    polling_ended: mpsc::Receiver<()>,
}

impl RunningDaemon {
    fn start(config: &Arc<Config>) -> Result<Self, String> {
        let thread = add_context("cannot start a thread");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let users = start_user_lookup(config);
        let (procfs, state_dir) = (&config.backends.procfs_root, &config.daemon.state_dir);
        let process_tables = ProcessTableReader::new(
            procfs.clone(),
            config.backends.host_root.clone(),
            &config.access.owner_label,
        );
        let boot = read_boot_id(procfs);
        // Before another kill can be requested, and before the store records the last one.
        let (stopped_processes, recovered) = recover_stopped(state_dir, &boot, &process_tables);
        let keep = settings::retention(config);
        let store =
            Store::start(state_dir.clone(), boot.clone(), keep, recovered).map_err(&thread)?;
        let (guard, remembered) = Guard::start(
            config.guard.clone(),
            state_dir.clone(),
            boot.clone(),
            Arc::new(LiveProcesses::new(procfs)),
            store.clone(),
        )
        .map_err(&thread)?;
        let history = PastUseQuery::new(store.clone(), boot.clone(), remembered);
        let (rogue, connections) = start_rogue_watch(config, &store, boot).map_err(&thread)?;
        let parts = PollingParts {
            host: host_name(),
            users: users.clone(),
            connections,
            store: store.clone(),
            history,
            guard: guard.clone(),
            rogue: rogue.clone(),
            clock: Arc::clone(&clock),
        };
        let polling = polling::start(config, parts).map_err(&thread)?;
        let (settings, settings_read) = watch::channel(Arc::clone(config));
        let started_at = clock.now();
        let will_not_act = config
            .foreign_pids
            .disabled_reason(is_in_host_pid_namespace());
        if let Some(why) = &will_not_act {
            tracing::warn!(why, "kills are disabled");
        }
        let authority = Authority::new(settings_read, users, process_tables.uid_min());
        let environment = KillEnvironment {
            authority: authority.clone(),
            state: polling.published.clone(),
            full_scan: Arc::clone(&polling.full_scan),
            process_tables,
            store: store.clone(),
            clock: Arc::clone(&clock),
            poll_now: Arc::new(poll_now_fn(&polling.events)),
            disabled_reason: will_not_act.clone(),
            stopping: Arc::default(),
            stopped_processes,
        };
        let enforcer = KillService::new(environment.clone());
        guard.set_kill_service(enforcer.clone());
        let resetter = ResetService::new(environment, enforcer.clone(), polling.quiesce.clone());
        let shared = ServerContext {
            state: polling.published,
            authority,
            enforcer,
            resetter,
            store: store.clone(),
            guard,
            rogue,
            forget: Arc::new(polling::forget_devices_fn(&polling.events)),
            quiesce: polling.quiesce,
            full_scan: polling.full_scan,
            inspector: polling.inspector,
            query_queue: FairQueue::default(),
            snooze_queue: FairQueue::default(),
            replays: ReplayThreads::default(),
            clock,
            started_at,
            disabled_reason: will_not_act,
        };
        Ok(Self {
            shared,
            store,
            settings,
            events: polling.events,
            polling_ended: polling.stopped,
        })
    }

    /// Serves clients until a signal stops the daemon.
    fn serve(
        &self,
        args: Args,
        mut signals: Signals,
        listening: &SocketListener,
    ) -> Result<(), String> {
        let (stop, stopped) = oneshot::channel();
        let (store, settings, events) = (
            self.store.clone(),
            self.settings.clone(),
            self.events.clone(),
        );
        let (guard, rogue) = (self.shared.guard.clone(), self.shared.rogue.clone());
        let started = self.settings.borrow().clone();
        let handle_signals = move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => {
                        reload(&args, &started, &settings, &events, &store);
                        guard.reload();
                        rogue.store.reload();
                    }
                    // SIGTERM and SIGINT; no other signal is registered.
                    _ => break,
                }
            }
            // The server may have ended by itself.
            let _ = stop.send(());
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(handle_signals)
            .map_err(add_context("cannot start a thread"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(add_context("cannot start the server"))?;
        runtime.block_on(async {
            let listener = listening
                .listener
                .try_clone()
                .and_then(UnixListener::from_std);
            let listener = listener.map_err(add_context("cannot serve the socket"))?;
            // A signal and a dropped sender both mean stop.
            serve(listener, self.shared.clone(), async { drop(stopped.await) }).await;
            Ok(())
        })
    }

    fn stop(self) {
        // First of all, while polls still observe the return of a device and of memory.
        self.shared.resetter.stop();
        self.shared.enforcer.stop(KILL_STOP_TIMEOUT);
        // The poller may have ended already.
        let _ = self.events.send(PollerEvent::Stop);
        if self.polling_ended.recv_timeout(POLL_STOP_TIMEOUT).is_err() {
            tracing::warn!("the poll under way did not end in time");
        }
        self.shared.guard.stop();
        self.shared.rogue.stop();
        self.store.record(Recorded::Stopped);
        self.store.close();
    }
}

/// Starts the lookup of users. The groups of operators and admins are read before the first client
/// connects, so that an operator is recognised.
fn start_user_lookup(config: &Config) -> Users {
    let users = Users::new(SystemNameService {
        host_root: config.backends.host_root.clone(),
    });
    users.group(&config.access.operator_group);
    users.group(&config.access.admin_group);
    users.request_subordinates();
    users.settle(Instant::now() + GROUP_LOOKUP_TIMEOUT);
    users
}

/// Starts the watch for rogue processes and the socket watcher, which also counts connections for
/// polls.
fn start_rogue_watch(
    config: &Config,
    store: &Store,
    boot: String,
) -> std::io::Result<(Rogue, Arc<SocketWatcher>)> {
    let procfs = &config.backends.procfs_root;
    let kept = served_sockets_file::load(&config.daemon.state_dir, &boot);
    let connections = Arc::new(SocketWatcher::start(procfs.clone(), kept)?);
    let evidence = ProcEvidence {
        evidence: EvidenceReader::new(procfs.clone()),
        hashes: ExecutableHashes::new(procfs.clone()),
        sockets: Arc::clone(&connections),
    };
    let rules = RogueRuleStore::start(config.rogue.rules.clone(), None, store.clone());
    let rogue = Rogue::start(rules, Box::new(evidence), store.clone(), boot)?;
    Ok((rogue, connections))
}

impl ProcessLiveness for LiveProcesses {
    fn is_alive(&self, pid: u32, start_ticks: u64) -> bool {
        self.is_alive(pid, start_ticks)
    }

    fn live_processes(&self) -> BTreeSet<(u32, u64)> {
        self.all()
    }
}

fn host_name() -> String {
    let names = rustix::system::uname();
    gpukill_proto::text::sanitize(names.nodename().to_bytes(), 64)
}

/// The id of this boot, so that start times of different boots never mix.
fn read_boot_id(procfs: &std::path::Path) -> String {
    let text = std::fs::read_to_string(procfs.join("sys/kernel/random/boot_id"));
    text.map_or_else(
        |_| "unknown".to_owned(),
        |text| gpukill_proto::text::sanitize(text.trim().as_bytes(), 64),
    )
}

fn add_context<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Runs as the child that reads rules, until it has answered.
///
/// # Errors
/// If it cannot answer.
fn evaluate() -> std::io::Result<()> {
    child::run(
        |request| match request {
            EvaluatorRequest::Check { .. } => None,
            EvaluatorRequest::Replay { directory, .. } => Some(StoredHistory::open(directory)),
        },
        |request, past| match request {
            EvaluatorRequest::Check { is_guard, text } => child::encode_answer(&match is_guard {
                true => check_rules::<GuardRulesKind>(&text),
                false => check_rules::<RogueRulesKind>(&text),
            }),
            EvaluatorRequest::Replay {
                directory: _,
                text,
                snoozes,
                since,
                until,
                present,
            } => {
                let replayed = || {
                    let rules = parse_rules(&text)?;
                    let past = past.unwrap_or(Err(Refusal::Internal))?;
                    replay(past, rules, &snoozes, (since, until), present)
                };
                child::encode_answer(&replayed())
            }
        },
    )
}

fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn exit_after<E: Display>(result: Result<(), E>, code: u8) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    for line in error.to_string().lines() {
        // A failure to write cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "gpukilld: {line}");
    }
    ExitCode::from(code)
}

#[cfg(test)]
mod accounting;
