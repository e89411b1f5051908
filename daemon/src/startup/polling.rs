//! What polls: a reader for each vendor, who looks at processes, and the thread that has
//! them all do it.

use super::people::HostPeople;
use crate::audit::Store;
use crate::backend::drm::clients::Account;
use crate::backend::{self, Roots};
use crate::clock::Clock;
use crate::config::Config;
use crate::gather::Gatherer;
use crate::guard::Guard;
use crate::heap::Trim;
use crate::holders::{Holders, Persons};
use crate::host::accounts::Accounts;
use crate::host::commands::Commands;
use crate::host::connections::Connections;
use crate::host::containers::Containers;
use crate::host::process::Processes;
use crate::host::users::Users;
use crate::look::{Look, look};
use crate::poller::{Event, Poller};
use crate::quiesce::Quiesce;
use crate::rogue::Rogue;
use crate::state::{self, Wanted};
use crate::tick::{History, Sources, Ticker};
use gpukill_proto::snapshot::DeviceId;
use std::sync::Arc;
use std::sync::mpsc;

/// What a poll asks besides its own, and whom it is given to.
pub(super) struct Others {
    /// What this box is called.
    pub(super) host: String,
    pub(super) users: Users,
    pub(super) connections: Arc<Connections>,
    pub(super) store: Store,
    pub(super) history: History,
    pub(super) guard: Guard,
    pub(super) rogue: Rogue,
    pub(super) clock: Arc<dyn Clock>,
}

/// Polls that go on until they are told to stop.
pub(super) struct Polling {
    pub(super) events: mpsc::Sender<Event>,
    /// Says when the last one has ended.
    pub(super) ended: mpsc::Receiver<()>,
    /// What the last one has published.
    pub(super) published: state::Reader,
    pub(super) look: Look,
    pub(super) quiesce: Quiesce,
}

/// Has the poller drop devices that are gone.
pub(super) fn forget(
    events: &mpsc::Sender<Event>,
) -> impl Fn(Vec<DeviceId>) + Send + Sync + 'static {
    let events = events.clone();
    move |devices| {
        // A poller that has ended publishes nothing more.
        let _ = events.send(Event::Forget(devices));
    }
}

/// Has the next poll begin at once.
pub(super) fn hurry(events: &mpsc::Sender<Event>) -> impl Fn() + Send + Sync + 'static {
    let events = events.clone();
    move || {
        // A poller that has ended publishes nothing more, and has let go of everything.
        let _ = events.send(Event::Hurry);
    }
}

/// Starts it.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn start(config: &Arc<Config>, others: Others) -> std::io::Result<Polling> {
    let (events, received) = mpsc::channel::<Event>();
    let procfs = &config.backends.procfs_root;
    let roots = Roots {
        sysfs: config.backends.sysfs_root.clone(),
        procfs: procfs.clone(),
        host: config.backends.host_root.clone(),
        people: Arc::new(HostPeople(others.users.clone())),
    };
    let (publisher, published) = state::channel(others.host, config.daemon.poll_interval);
    let quiesce = Quiesce::new(hurry(&events));
    let holders = Holders::start_among(procfs, persons(&roots))?;
    let late = events.clone();
    let readers = backend::wanted::start(
        &config.backends.enabled,
        &config.backends.nvidia_library,
        &roots,
        &quiesce,
        &holders,
        move || {
            // A poller that has ended needs no answers.
            let _ = late.send(Event::Late);
        },
    )?;
    let wanted = Wanted::default();
    let look = look(
        holders.clone(),
        wanted.clone(),
        published.clone(),
        hurry(&events),
    );
    let poller = Poller {
        ticker: Ticker::new(
            readers,
            roots,
            Sources {
                holders,
                processes: processes(config),
                users: others.users,
                connections: others.connections,
            },
            others.history,
            Arc::clone(&published.borrow().snapshot),
        ),
        gatherer: Gatherer::new(procfs.clone()),
        publisher,
        store: others.store,
        guard: others.guard,
        rogue: others.rogue,
        clock: others.clock,
        config: Arc::clone(config),
        amiss: None,
        wanted,
        slowest: None,
        trim: Trim::default(),
    };
    let (end, ended) = mpsc::channel();
    std::thread::Builder::new()
        .name("poll".into())
        .spawn(move || {
            poller.run(&received);
            // The other end may have stopped waiting.
            let _ = end.send(());
        })?;
    Ok(Polling {
        events,
        ended,
        published,
        look,
        quiesce,
    })
}

/// The persons behind users of this host, as far as they are known.
fn persons(roots: &Roots) -> Persons {
    let people = Arc::clone(&roots.people);
    Box::new(move |user| {
        let account = Account { user, slice: None };
        people.person(account).unwrap_or(user)
    })
}

fn processes(config: &Config) -> Processes {
    let containers = Containers::new(
        config.backends.host_root.clone(),
        &config.access.owner_label,
    );
    Processes::new(
        config.backends.procfs_root.clone(),
        Commands::new(),
        containers,
        Accounts::new(),
        config.backends.host_root.clone(),
    )
}
