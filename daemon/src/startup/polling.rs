//! Starts polling: a reader for each vendor, the file descriptor scan, and the poll thread.

use crate::backend::drm::clients::{PersonLookup, ProcessAccount};
use crate::backend::{self, Roots};
use crate::clock::Clock;
use crate::config::Config;
use crate::fd_scan::full_scan::{FullScan, new_full_scan};
use crate::fd_scan::{FdScanHandle, PersonMapping};
use crate::guard::Guard;
use crate::heap::TrimSchedule;
use crate::host::accounts::SlurmAccounts;
use crate::host::commands::CommandLineCache;
use crate::host::containers::ContainerCache;
use crate::host::process::ProcessReader;
use crate::host::sockets::SocketWatcher;
use crate::host::user_and_slice;
use crate::host::users::Users;
use crate::poll::poller::{Poller, PollerEvent};
use crate::poll::process_inspector::{LastReadings, ProcessInspector};
use crate::poll::sampler::Sampler;
use crate::poll::{PastUseQuery, PollSources, SnapshotBuilder};
use crate::quiesce::Quiesce;
use crate::rogue::Rogue;
use crate::state::{self, HolderDemand};
use crate::store::Store;
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

/// The parts that a poll reads from and publishes to.
pub(super) struct PollingParts {
    pub(super) host: String,
    pub(super) users: Users,
    pub(super) connections: Arc<SocketWatcher>,
    pub(super) store: Store,
    pub(super) history: PastUseQuery,
    pub(super) guard: Guard,
    pub(super) rogue: Rogue,
    pub(super) clock: Arc<dyn Clock>,
}

/// The running poll thread.
pub(super) struct PollingHandle {
    pub(super) events: mpsc::Sender<PollerEvent>,
    /// Receives a message when the last poll has ended.
    pub(super) stopped: mpsc::Receiver<()>,
    /// The result of the last poll.
    pub(super) published: state::SnapshotReader,
    pub(super) full_scan: FullScan,
    pub(super) inspector: Arc<ProcessInspector>,
    pub(super) quiesce: Quiesce,
}

/// A function that makes the poller drop devices that are gone.
pub(super) fn forget_devices_fn(
    events: &mpsc::Sender<PollerEvent>,
) -> impl Fn(Vec<DeviceId>) + Send + Sync + 'static {
    let events = events.clone();
    move |devices| {
        // A poller that has ended publishes nothing more.
        let _ = events.send(PollerEvent::ForgetDevices(devices));
    }
}

/// A function that starts the next poll at once.
pub(super) fn poll_now_fn(events: &mpsc::Sender<PollerEvent>) -> impl Fn() + Send + Sync + 'static {
    let events = events.clone();
    move || {
        // A poller that has ended publishes nothing more and has released everything.
        let _ = events.send(PollerEvent::PollNow);
    }
}

/// Starts the poll thread.
pub(super) fn start(config: &Arc<Config>, parts: PollingParts) -> std::io::Result<PollingHandle> {
    let (events, received) = mpsc::channel::<PollerEvent>();
    let procfs = &config.backends.procfs_root;
    let roots = Roots {
        sysfs: config.backends.sysfs_root.clone(),
        procfs: procfs.clone(),
        host: config.backends.host_root.clone(),
        people: Arc::new(HostPersonLookup(parts.users.clone())),
    };
    let (publisher, published) = state::channel(parts.host, config.daemon.poll_interval);
    let quiesce = Quiesce::new(poll_now_fn(&events));
    let holders = FdScanHandle::start_with_persons(procfs, person_mapping(&roots))?;
    let late = events.clone();
    let readers = backend::configured::start_backends(
        &config.backends.enabled,
        &config.backends.nvidia_library,
        &roots,
        &quiesce,
        &holders,
        move || {
            // A poller that has ended needs no answers.
            let _ = late.send(PollerEvent::LateAnswer);
        },
    )?;
    let wanted = HolderDemand::default();
    let full_scan = new_full_scan(
        holders.clone(),
        wanted.clone(),
        published.clone(),
        poll_now_fn(&events),
    );
    let last_readings = LastReadings::default();
    let inspector = Arc::new(ProcessInspector::new(
        holders.clone(),
        process_reader(config),
        parts.users.clone(),
        procfs.clone(),
        last_readings.clone(),
    ));
    let poller = Poller {
        snapshot_builder: SnapshotBuilder::new(
            readers,
            roots,
            PollSources {
                fd_scan: holders,
                processes: process_reader(config),
                users: parts.users,
                connections: parts.connections,
                last_readings,
            },
            parts.history,
            Arc::clone(&published.borrow().snapshot),
        ),
        sampler: Sampler::new(procfs.clone()),
        publisher,
        store: parts.store,
        guard: parts.guard,
        rogue: parts.rogue,
        clock: parts.clock,
        config: Arc::clone(config),
        settings_fault: None,
        holder_demand: wanted,
        slowest: None,
        trim: TrimSchedule::default(),
    };
    let (end, ended) = mpsc::channel();
    std::thread::Builder::new()
        .name("poll".into())
        .spawn(move || {
            poller.run(&received);
            // The receiver may have stopped waiting.
            let _ = end.send(());
        })?;
    Ok(PollingHandle {
        events,
        stopped: ended,
        published,
        full_scan,
        inspector,
        quiesce,
    })
}

/// The owners of the processes that hold clients of a card, as the host knows them.
pub(super) struct HostPersonLookup(pub(super) Users);

impl PersonLookup for HostPersonLookup {
    fn account(&self, directory: &Path) -> Option<ProcessAccount> {
        user_and_slice(directory).map(|(user, slice)| ProcessAccount { user, slice })
    }

    fn person(&self, account: ProcessAccount) -> Option<u32> {
        let user = Reading::Value(account.user);
        let person = self
            .0
            .person_behind(&user, &Reading::Value(None), account.slice);
        let person = person.known().copied()?;
        Some(person.unwrap_or(account.user))
    }
}

/// Maps the users of this host to persons, as far as they are known.
fn person_mapping(roots: &Roots) -> PersonMapping {
    let people = Arc::clone(&roots.people);
    Box::new(move |user| {
        let account = ProcessAccount { user, slice: None };
        people.person(account).unwrap_or(user)
    })
}

fn process_reader(config: &Config) -> ProcessReader {
    let containers = ContainerCache::new(
        config.backends.host_root.clone(),
        &config.access.owner_label,
    );
    ProcessReader::new(
        config.backends.procfs_root.clone(),
        CommandLineCache::new(),
        containers,
        SlurmAccounts::new(),
        config.backends.host_root.clone(),
    )
}
