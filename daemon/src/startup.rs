//! From the command line to a running daemon, and in order back again.

mod evaluating;

mod people;

mod polling;

mod restoring;

mod settings;

mod watching;

use crate::args::{Args, Command};
use crate::audit::{Event as Recorded, Store};
use crate::authority::Authority;
use crate::catalogue::tell;
use crate::clock::{Clock, SystemClock};
use crate::config::{self, Config};
use crate::enforce::{Enforcer, Means, recover};
use crate::guard::Guard;
use crate::host::crowd::Crowds;
use crate::host::namespace::has_the_hosts_pids;
use crate::host::users::{System, Users};
use crate::logging;
use crate::poller::Event;
use crate::procfs::living::Living;
use crate::reset::Resetter;
use crate::server::listener::{Listening, listen, lock};
use crate::server::{Replays, Shared, Turns, serve};
use crate::systemd;
use crate::tick::History;
use polling::{Others, hurry};
use settings::{reload, settings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
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

/// The exit code for everything else that failed.
pub const EXIT_FAILED: u8 = 1;

/// How long the end waits for a poll that is under way.
const STOP_PATIENCE: Duration = Duration::from_millis(1500);

/// How long the end waits for kills that are under way: they are told.
const ACT_PATIENCE: Duration = Duration::from_secs(1);

/// How long the start waits for the groups of operators and admins. A name
/// service that is slower gives them a little later.
const GROUP_PATIENCE: Duration = Duration::from_secs(1);

/// Runs what the command line asks for; returns when the daemon has stopped.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    if args.evaluate {
        return exit_after(evaluating::evaluate(), EXIT_FAILED);
    }
    if args.print_default_config {
        return exit_after(print(&config::print_default()), EXIT_FAILED);
    }
    let config = match settings(args) {
        Ok(config) => config,
        Err(invalid) => return exit_after(Err(invalid), EXIT_USAGE),
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    if let Some(Command::Restore(wanted)) = &args.command {
        return exit_after(restoring::restore(wanted, &config), EXIT_FAILED);
    }
    crate::heap::share();
    let log = match logging::start(&args.log_level) {
        Ok(log) => log,
        Err(error) => return exit_after(Err(error), EXIT_USAGE),
    };
    let result = daemon(args, config);
    log.flush();
    exit_after(result, EXIT_FAILED)
}

/// The daemon, from its first file to its last.
fn daemon(args: &Args, config: Config) -> Result<(), String> {
    // First of all: a signal that comes while the parts start must stop them in order.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(about("cannot catch signals"))?;
    crate::enforce::widen_descriptors();
    let directory_mode = if config.personal { 0o700 } else { 0o755 };
    let listening =
        listen(&config.daemon.socket, directory_mode).map_err(|error| error.to_string())?;
    let _store_lock = lock_store(&config)?;
    let config = Arc::new(config);
    let running = Running::start(&config)?;
    running
        .store
        .record(Recorded::Started(env!("CARGO_PKG_VERSION")));
    running
        .store
        .record(Recorded::Settings(config.document().to_string()));
    tell!(
        Started,
        version = env!("CARGO_PKG_VERSION"),
        socket = config.daemon.socket.display().to_string(),
        state_dir = config.daemon.state_dir.display().to_string(),
        personal = config.personal,
    );
    let result = running.serve(args.clone(), signals, &listening);
    systemd::stopping();
    // No client is served from here on; the socket's name goes first.
    drop(listening);
    running.stop();
    tell!(Stopped);
    result
}

/// Two daemons must not write one store, wherever they listen. A directory that
/// cannot be used is no reason not to start: the store will say so.
fn lock_store(config: &Config) -> Result<Option<File>, String> {
    let directory = &config.daemon.state_dir;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(directory);
    match made.and_then(|()| lock(&directory.join("lock"))) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(format!(
            "another gpukilld stores in {}",
            directory.display()
        )),
        Err(_) => Ok(None),
    }
}

/// The parts that run.
struct Running {
    shared: Shared,
    store: Store,
    settings: watch::Sender<Arc<Config>>,
    events: mpsc::Sender<Event>,
    polling_ended: mpsc::Receiver<()>,
}

impl Running {
    fn start(config: &Arc<Config>) -> Result<Self, String> {
        let thread = about("cannot start a thread");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting());
        let users = users(config);
        let (procfs, state_dir) = (&config.backends.procfs_root, &config.daemon.state_dir);
        let crowds = Crowds::new(
            procfs.clone(),
            config.backends.host_root.clone(),
            &config.access.owner_label,
        );
        let boot = boot_id(procfs);
        // Before anybody can ask for another kill, and for the record of the last.
        let (frozen, recovered) = recover(state_dir, &boot, &crowds);
        let keep = settings::keep(config);
        let store =
            Store::start(state_dir.clone(), boot.clone(), keep, recovered).map_err(&thread)?;
        let (guard, remembered) = Guard::start(
            config.guard.clone(),
            state_dir.clone(),
            boot.clone(),
            Arc::new(Living::below(procfs)),
            store.clone(),
        )
        .map_err(&thread)?;
        let history = History::new(store.clone(), boot.clone(), remembered);
        let (rogue, connections) = watching::start(config, &store, boot).map_err(&thread)?;
        let others = Others {
            host: host(),
            users: users.clone(),
            connections,
            store: store.clone(),
            history,
            guard: guard.clone(),
            rogue: rogue.clone(),
            clock: Arc::clone(&clock),
        };
        let polling = polling::start(config, others).map_err(&thread)?;
        let (settings, settings_read) = watch::channel(Arc::clone(config));
        let started_at = clock.now();
        let will_not_act = config.foreign_pids.will_not_act(has_the_hosts_pids());
        if let Some(why) = &will_not_act {
            tracing::warn!(why, "ends no process, whoever asks");
        }
        let authority = Authority::new(settings_read, users, crowds.uid_min());
        let means = Means {
            authority: authority.clone(),
            state: polling.published.clone(),
            look: Arc::clone(&polling.look),
            crowds,
            store: store.clone(),
            clock: Arc::clone(&clock),
            hurry: Arc::new(hurry(&polling.events)),
            will_not_act: will_not_act.clone(),
            stopping: Arc::default(),
            frozen,
        };
        let enforcer = Enforcer::new(means.clone());
        guard.arm(enforcer.clone());
        let resetter = Resetter::new(means, enforcer.clone(), polling.quiesce.clone());
        let shared = Shared {
            state: polling.published,
            authority,
            enforcer,
            resetter,
            store: store.clone(),
            guard,
            rogue,
            forget: Arc::new(polling::forget(&polling.events)),
            quiesce: polling.quiesce,
            look: polling.look,
            turns: Turns::default(),
            replays: Replays::default(),
            clock,
            started_at,
            will_not_act,
        };
        Ok(Self {
            shared,
            store,
            settings,
            events: polling.events,
            polling_ended: polling.ended,
        })
    }

    /// Answers clients until a signal says stop.
    fn serve(&self, args: Args, mut signals: Signals, listening: &Listening) -> Result<(), String> {
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
                        rogue.keeper.reload();
                    }
                    // SIGTERM and SIGINT; no other was asked for.
                    _ => break,
                }
            }
            // The server may have ended by itself.
            let _ = stop.send(());
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(handle_signals)
            .map_err(about("cannot start a thread"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(about("cannot start the server"))?;
        runtime.block_on(async {
            let listener = listening
                .listener
                .try_clone()
                .and_then(UnixListener::from_std);
            let listener = listener.map_err(about("cannot serve the socket"))?;
            // Either way of ending, by a signal or by a dropped sender, is a stop.
            serve(listener, self.shared.clone(), async { drop(stopped.await) }).await;
            Ok(())
        })
    }

    fn stop(self) {
        // First of all, while there are polls that see a device and memory come back.
        self.shared.resetter.stop();
        self.shared.enforcer.stop(ACT_PATIENCE);
        // Gone already is as good.
        let _ = self.events.send(Event::Stop);
        if self.polling_ended.recv_timeout(STOP_PATIENCE).is_err() {
            tracing::warn!("the poll under way did not end in time");
        }
        self.shared.guard.stop();
        self.shared.rogue.stop();
        self.store.record(Recorded::Stopped);
        self.store.close();
    }
}

/// Who people are. The groups of operators and admins are asked for before the first
/// client comes: an operator must be one.
fn users(config: &Config) -> Users {
    let users = Users::new(System {
        host_root: config.backends.host_root.clone(),
    });
    users.group(&config.access.operator_group);
    users.group(&config.access.admin_group);
    users.learn_subordinates();
    users.settle(Instant::now() + GROUP_PATIENCE);
    users
}

/// What this box is called.
fn host() -> String {
    let names = rustix::system::uname();
    gpukill_proto::text::visible(names.nodename().to_bytes(), 64)
}

/// Names this boot, so that start times of different boots do not mix.
fn boot_id(procfs: &std::path::Path) -> String {
    let text = std::fs::read_to_string(procfs.join("sys/kernel/random/boot_id"));
    text.map_or_else(
        |_| "unknown".to_owned(),
        |text| gpukill_proto::text::visible(text.trim().as_bytes(), 64),
    )
}

fn about<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
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
        // Nobody can be told when even this cannot be written.
        let _ = writeln!(std::io::stderr().lock(), "gpukilld: {line}");
    }
    ExitCode::from(code)
}

#[cfg(test)]
mod accounting;
