//! A host with two GPUs that plays the script; the parts of the daemon poll it whenever the test
//! advances the clock.

use super::script::{
    AccountingBackend, ManualClock, NumericNameService, SCRIPT_START, ScriptedTask,
};
use crate::backend::Roots;
use crate::backend::reader::BackendReader;
use crate::clock::Clock;
use crate::config::{AuditSettings, Config, DaemonSettings};
use crate::fd_scan::FdScanHandle;
use crate::guard::Guard;
use crate::heap::TrimSchedule;
use crate::host::accounts::SlurmAccounts;
use crate::host::commands::CommandLineCache;
use crate::host::containers::ContainerCache;
use crate::host::process::ProcessReader;
use crate::host::sockets::{SavedServedSockets, SocketWatcher};
use crate::host::users::Users;
use crate::poll::poller::{Poller, PollerEvent};
use crate::poll::process_inspector::LastReadings;
use crate::poll::sampler::Sampler;
use crate::poll::{PastUseQuery, PollSources, SnapshotBuilder};
use crate::procfs::alive::LiveProcesses;
use crate::rogue::rules::RogueRuleStore;
use crate::rogue::{NoEvidence, Rogue};
use crate::startup::polling::HostPersonLookup;
use crate::state::{self, HolderDemand};
use crate::store::{Retention, Store, test_rows};
use futures::executor::block_on;
use gpukill_proto::collect::IntoMap as _;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::{create_dir_all, remove_dir_all, write};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Polls happen every two seconds on request: none happens by itself unless the clock has advanced
/// further.
const STEP: u64 = 2;
const INTERVAL: Duration = Duration::from_millis(2_500);
const SAMPLE: Duration = Duration::from_secs(10);

/// The running parts.
struct AccountingDaemon {
    events: Sender<PollerEvent>,
    published: state::SnapshotReader,
    store: Store,
    thread: JoinHandle<()>,
}

/// The host.
pub(super) struct AccountingFixture {
    directory: TempDir,
    clock: Arc<ManualClock>,
    tasks: &'static [ScriptedTask],
    running: Option<AccountingDaemon>,
    dropped: u64,
    polls: u64,
}

/// A row of the store.
#[derive(Debug)]
pub(super) struct AccountingRun {
    pub(super) pid: u32,
    pub(super) gpu: u32,
    pub(super) held_ms: u64,
    pub(super) ending: String,
    /// Seconds after the start of the script.
    pub(super) first_at: u64,
    pub(super) last_at: u64,
}

/// The sums over all rows of a table.
pub(super) struct TableTotals {
    /// How long each process held each GPU.
    pub(super) held: BTreeMap<(u32, u32), u64>,
    /// Busy, held, free and unknown milliseconds of each GPU.
    pub(super) devices: BTreeMap<u32, [u64; 4]>,
}

impl AccountingFixture {
    pub(super) fn new(tasks: &'static [ScriptedTask]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for part in ["proc", "sys", "host", "state"] {
            create_dir_all(directory.path().join(part)).unwrap();
        }
        let stat = format!("btime {}\n", SCRIPT_START.0 / 1_000 - 3_600);
        write(directory.path().join("proc/stat"), stat).unwrap();
        Self {
            directory,
            clock: Arc::default(),
            tasks,
            running: None,
            dropped: 0,
            polls: 0,
        }
    }

    /// Starts the parts of the daemon, which poll at once.
    pub(super) fn start(&mut self) {
        self.go_to(self.clock.seconds());
        let root = |part| self.directory.path().join(part);
        let users = Users::new(NumericNameService);
        let roots = Roots {
            sysfs: root("sys"),
            procfs: root("proc"),
            host: root("host"),
            people: Arc::new(HostPersonLookup(users.clone())),
        };
        let long = Duration::from_secs(100 * 365 * 86_400);
        let keep = Retention {
            samples: long,
            minutes: long,
            hours: long,
        };
        let store = Store::start(root("state"), "boot".into(), keep, None).unwrap();
        let (publisher, published) = state::channel("box".into(), INTERVAL);
        let script = AccountingBackend {
            clock: Arc::clone(&self.clock),
            tasks: self.tasks,
        };
        let procfs = || roots.procfs.clone();
        let processes = ProcessReader::new(
            procfs(),
            CommandLineCache::new(),
            ContainerCache::new(roots.host.clone(), ""),
            SlurmAccounts::new(),
            roots.host.clone(),
        );
        let poller = Poller {
            sampler: Sampler::new(procfs()),
            snapshot_builder: SnapshotBuilder::new(
                vec![BackendReader::start(script, || {}).unwrap()],
                roots.clone(),
                PollSources {
                    fd_scan: FdScanHandle::start(procfs()).unwrap(),
                    processes,
                    users,
                    connections: Arc::new(
                        SocketWatcher::start(procfs(), SavedServedSockets::unsaved()).unwrap(),
                    ),
                    last_readings: LastReadings::default(),
                },
                PastUseQuery::new(store.clone(), "boot".into(), BTreeMap::new()),
                Arc::clone(&published.borrow().snapshot),
            ),
            publisher,
            guard: Guard::start(
                crate::config::GuardSettings {
                    rules: root("guard.toml"),
                    terminals: None,
                },
                root("state"),
                "boot".into(),
                Arc::new(LiveProcesses::new(&root("nobody"))),
                store.clone(),
            )
            .unwrap()
            .0,
            rogue: Rogue::start(
                RogueRuleStore::start(root("rogue.toml"), None, store.clone()),
                Box::new(NoEvidence),
                store.clone(),
                "boot".into(),
            )
            .unwrap(),
            store: store.clone(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            config: Arc::new(Config {
                daemon: DaemonSettings {
                    poll_interval: INTERVAL,
                    ..DaemonSettings::default()
                },
                audit: AuditSettings {
                    sample_interval: SAMPLE,
                    ..AuditSettings::default()
                },
                ..Config::default()
            }),
            settings_fault: None,
            holder_demand: HolderDemand::default(),
            slowest: None,
            trim: TrimSchedule::default(),
        };
        let (events, received) = channel();
        let thread = std::thread::spawn(move || poller.run(&received));
        self.running = Some(AccountingDaemon {
            events,
            published,
            store,
            thread,
        });
        self.wait_for_the_poll();
    }

    /// Stops them in order.
    pub(super) fn stop(&mut self) {
        let running = self.running.take().unwrap();
        running.events.send(PollerEvent::Stop).unwrap();
        running.thread.join().unwrap();
        running.store.close();
        self.dropped += running.store.report().dropped;
    }

    /// Sets the clock, and starts and ends the processes of the script.
    pub(super) fn go_to(&self, second: u64) {
        let proc = self.directory.path().join("proc");
        for task in self.tasks {
            let directory = proc.join(task.pid.to_string());
            if !task.is_running(second) {
                // The process may never have existed.
                let _ = remove_dir_all(directory);
            } else if !directory.exists() {
                let ScriptedTask { pid, uid, from, .. } = task;
                create_dir_all(&directory).unwrap();
                let status = format!("Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
                write(directory.join("status"), status).unwrap();
                write(directory.join("cmdline"), "python\0x.py\0").unwrap();
                write(directory.join("cgroup"), "0::/\n").unwrap();
                let ticks = 360_000 + 100 * from;
                let rest = format!("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {ticks} 0 0");
                write(directory.join("stat"), format!("{pid} (x) S 1 {rest}")).unwrap();
            }
        }
        self.clock.set(second);
    }

    /// Polls every two seconds until then.
    pub(super) fn poll_until(&mut self, second: u64) {
        while self.clock.seconds() < second {
            self.hang_until(self.clock.seconds() + STEP);
            self.polls += 1;
            if self.polls.is_multiple_of(100) {
                self.wait_for_the_store();
            }
        }
    }

    /// Polls only then.
    pub(super) fn hang_until(&self, second: u64) {
        self.go_to(second);
        let running = self.running.as_ref().unwrap();
        running.events.send(PollerEvent::PollNow).unwrap();
        self.wait_for_the_poll();
    }

    fn wait_for_the_poll(&self) {
        let mut published = self.running.as_ref().unwrap().published.clone();
        let now = self.clock.now();
        while published.borrow_and_update().snapshot.taken_at != now {
            block_on(published.changed()).unwrap();
        }
    }

    /// The queue of the store is bounded, and the test is faster than a disk.
    fn wait_for_the_store(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let written = || {
            let newest = "SELECT max(at) FROM sample";
            let at: Option<i64> = self.file().query_row(newest, [], |row| row.get(0)).ok()?;
            at
        };
        let enough = self.clock.now().plus_seconds(-60);
        while written().is_none_or(|at| at < enough.0) {
            assert!(Instant::now() < deadline, "the store does not keep up");
            std::thread::yield_now();
        }
    }

    fn file(&self) -> Connection {
        Connection::open(self.directory.path().join("state/samples.db")).unwrap()
    }

    /// The number of samples that were not written.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Busy, idle and unknown milliseconds of a user on a GPU.
    pub(super) fn usage_of(&self, uid: u32, gpu: u32) -> [u64; 3] {
        let select = "SELECT sum(busy_ms), sum(idle_ms), sum(unknown_ms) FROM run
             JOIN process ON process.id = run.process JOIN device ON device.id = run.device
             WHERE owner_uid = ?1 AND gpu_index = ?2";
        let file = self.file();
        let row = file.query_row(select, [uid, gpu], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?])
        });
        row.unwrap().map(i64::cast_unsigned)
    }

    /// All runs, by pid.
    pub(super) fn runs(&self) -> Vec<AccountingRun> {
        let file = self.file();
        let mut statement = file
            .prepare(
                "SELECT pid, gpu_index, held_ms, ending, first_at, last_at FROM run
                 JOIN process ON process.id = run.process JOIN device ON device.id = run.device
                 ORDER BY pid",
            )
            .unwrap();
        let second = |at: i64| (at - SCRIPT_START.0).cast_unsigned() / 1_000;
        let rows = statement.query_map([], |row| {
            Ok(AccountingRun {
                pid: row.get(0)?,
                gpu: row.get(1)?,
                held_ms: row.get::<_, i64>(2)?.cast_unsigned(),
                ending: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
                first_at: second(row.get(4)?),
                last_at: second(row.get(5)?),
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// The totals of a table of samples, minutes or hours.
    pub(super) fn table_totals(&self, table: &str) -> TableTotals {
        let file = self.file();
        let pairs = |select: &str| -> BTreeMap<i64, (u32, u32)> {
            let mut statement = file.prepare(select).unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))));
            rows.unwrap().map(Result::unwrap).into_map()
        };
        let runs = pairs(
            "SELECT run.id, pid, gpu_index FROM run
             JOIN process ON process.id = run.process JOIN device ON device.id = run.device",
        );
        let devices = pairs("SELECT id, gpu_index, 0 FROM device");
        let mut all = TableTotals {
            held: BTreeMap::new(),
            devices: BTreeMap::new(),
        };
        for row in test_rows::rows(&file, table) {
            for (run, usage) in &row.runs {
                *all.held.entry(runs[run]).or_default() += usage.held_ms;
            }
            for (device, usage) in &row.devices {
                let sums = all.devices.entry(devices[device].0).or_default();
                let more = [
                    usage.busy_ms,
                    usage.held_ms,
                    usage.free_ms,
                    usage.unknown_ms,
                ];
                for (sum, more) in sums.iter_mut().zip(more) {
                    *sum += more;
                }
            }
        }
        all
    }
}
