//! Who a pid is, from `/proc`. Every byte of it is the process's own to choose,
//! but for the numbers the kernel adds.

use super::commands::Commands;
use super::container;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{ContainerId, ProcessKey};
use gpukill_proto::text::visible;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is known of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) key: ProcessKey,
    pub(crate) started_at: Reading<Timestamp>,
    /// The real user id.
    pub(crate) uid: Reading<u32>,
    pub(crate) name: String,
    pub(crate) executable: Reading<String>,
    pub(crate) command: Reading<String>,
    pub(crate) container: Reading<Option<ContainerId>>,
}

/// Reads identities, and keeps them while they last.
pub(crate) struct Processes {
    root: PathBuf,
    ticks_per_second: u64,
    commands: Commands,
    known: BTreeMap<u32, (Identity, Timestamp)>,
}

/// After so long an identity is read again: a process may execute something
/// else, or change its user, and stay the same process.
const KEEP: Duration = Duration::from_secs(20);

/// More of a status file than this is not read; Linux writes about 1.5 KiB.
const STATUS_MAX: u64 = 16 << 10;

/// The longest path of an executable that is kept.
const EXECUTABLE_MAX: usize = 1024;

impl Processes {
    /// Reads below this root, `/proc` but in tests.
    pub(crate) fn new(root: PathBuf, commands: Commands) -> Self {
        Self {
            root,
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            commands,
            known: BTreeMap::new(),
        }
    }

    /// Who `pid` is now.
    ///
    /// # Errors
    /// When there is no such process, or the kernel does not let it be read.
    pub(crate) fn identify(&mut self, pid: u32, now: Timestamp) -> io::Result<Identity> {
        let directory = self.root.join(pid.to_string());
        let stat = Stat::parse(&read_at_most(&directory.join("stat"), STATUS_MAX)?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable stat"))?;
        let key = ProcessKey {
            pid,
            start_ticks: stat.start_ticks,
        };
        if let Some((identity, read_at)) = self.known.get(&pid)
            && identity.key == key
            && identity.name == stat.name
            && now.since(*read_at) < KEEP
            && now >= *read_at
        {
            return Ok(identity.clone());
        }
        let before = self.known.get(&pid);
        if before.is_some_and(|(before, _)| before.key == key && before.name != stat.name) {
            // It executes something else now.
            self.commands.forget(key);
        }
        let identity = self.read(&directory, key, stat.name);
        self.known.insert(pid, (identity.clone(), now));
        Ok(identity)
    }

    /// Forgets every process but these.
    pub(crate) fn keep_only(&mut self, pids: &std::collections::BTreeSet<u32>) {
        self.known.retain(|pid, _| pids.contains(pid));
        self.commands.keep_only(pids);
    }

    /// Puts in the command line as it is known by now.
    pub(crate) fn refresh_command(&self, identity: &mut Identity) {
        let directory = self.root.join(identity.key.pid.to_string());
        identity.command = self.commands.of(identity.key, directory.join("cmdline"));
    }

    /// Command lines, which are read apart.
    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    fn read(&self, directory: &Path, key: ProcessKey, name: String) -> Identity {
        Identity {
            key,
            started_at: self.boot_time().map_or_else(failed, |boot| {
                let ticks = i64::try_from(key.start_ticks).unwrap_or(i64::MAX);
                let per_second = i64::try_from(self.ticks_per_second).unwrap_or(i64::MAX);
                Reading::Value(Timestamp(
                    boot.0
                        .saturating_add(ticks.saturating_mul(1000) / per_second),
                ))
            }),
            uid: read_at_most(&directory.join("status"), STATUS_MAX).map_or_else(
                failed,
                |status| {
                    real_uid(&status)
                        .map_or_else(|| Reading::Failed("no Uid line".into()), Reading::Value)
                },
            ),
            name,
            executable: std::fs::read_link(directory.join("exe")).map_or_else(
                // Kernel threads and zombies have none.
                |error| {
                    if error.kind() == io::ErrorKind::NotFound {
                        Reading::Unsupported
                    } else {
                        failed(error)
                    }
                },
                |path| Reading::Value(visible(path.as_os_str().as_bytes(), EXECUTABLE_MAX)),
            ),
            command: self.commands.of(key, directory.join("cmdline")),
            container: read_at_most(&directory.join("cgroup"), container::CGROUP_MAX)
                .map_or_else(failed, |bytes| {
                    Reading::Value(container::parse(&String::from_utf8_lossy(&bytes)))
                }),
        }
    }

    /// When the box booted. Read each time: the kernel moves it when the clock
    /// is set.
    fn boot_time(&self) -> io::Result<Timestamp> {
        let text = read_at_most(&self.root.join("stat"), 1 << 20)?;
        let text = String::from_utf8_lossy(&text);
        let seconds = text
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|s| s.trim().parse().ok());
        let seconds: i64 =
            seconds.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no btime"))?;
        Ok(Timestamp(seconds.saturating_mul(1000)))
    }
}

pub(super) fn failed<T>(error: io::Error) -> Reading<T> {
    // The same words whatever the errno, so that a fault keeps its identity.
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => "not permitted".to_owned(),
        io::ErrorKind::NotFound => "the process has ended".to_owned(),
        _ => visible(error.to_string().as_bytes(), 80),
    };
    Reading::Failed(why)
}

pub(super) fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What of `/proc/PID/stat` is used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    name: String,
    start_ticks: u64,
}

impl Stat {
    /// The name stands in parentheses and may hold any byte, parentheses and
    /// blanks too: only the last closing one ends it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let name = bytes.get(open + 1..close)?;
        let fields = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
        // The field after the name is the third; the start time is the 22nd.
        let start_ticks = fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()?;
        Some(Self {
            name: visible(name, 64),
            start_ticks,
        })
    }
}

fn real_uid(status: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(status);
    let ids = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_move_the_start_time() {
        let after = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        for name in ["python", "a) S 1 (b", "tmux: server", ")", ""] {
            let stat = Stat::parse(format!("42 ({name}) {after}").as_bytes());
            assert_eq!(
                stat,
                Some(Stat {
                    name: name.to_owned(),
                    start_ticks: 987_654
                }),
                "{name}"
            );
        }
        let hostile = Stat::parse(format!("42 (\x1b[2J) {after}").as_bytes());
        assert_eq!(hostile.map(|stat| stat.name).as_deref(), Some("\\x1b[2J"));
    }

    fn whole(processes: &mut Processes, pid: u32, now: Timestamp) -> Identity {
        let mut identity = processes.identify(pid, now).unwrap();
        let soon = std::time::Instant::now() + Duration::from_secs(10);
        processes.commands().settle(soon);
        processes.refresh_command(&mut identity);
        identity
    }

    #[test]
    fn this_process_is_found_and_keeps_its_identity() {
        let mut processes = Processes::new("/proc".into(), Commands::start().unwrap());
        let now = Timestamp::from(std::time::SystemTime::now());
        let identity = whole(&mut processes, std::process::id(), now);
        assert_eq!(
            identity.uid,
            Reading::Value(rustix::process::getuid().as_raw())
        );
        let started_at = *identity.started_at.known().unwrap();
        assert!(
            now.since(started_at) < Duration::from_secs(3600),
            "{identity:?}"
        );
        assert!(identity.command.known().is_some());
        assert_eq!(whole(&mut processes, std::process::id(), now), identity);
        assert_eq!(
            processes.identify(u32::MAX, now).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn another_start_time_is_another_process() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("7");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(root.path().join("stat"), "cpu 1\nbtime 1000\n").unwrap();
        let write = |start: u64, command: &str| {
            std::fs::write(
                directory.join("stat"),
                format!("7 (x) S {}{start} 0", "0 ".repeat(18)),
            )
            .unwrap();
            std::fs::write(
                directory.join("status"),
                "Name:\tx\nUid:\t1000\t1001\t1002\t1003\n",
            )
            .unwrap();
            std::fs::write(directory.join("cmdline"), command).unwrap();
            std::fs::write(directory.join("cgroup"), "0::/\n").unwrap();
        };
        let mut processes = Processes::new(root.path().into(), Commands::start().unwrap());
        write(500, "first");
        let first = whole(&mut processes, 7, Timestamp(0));
        assert_eq!(first.uid, Reading::Value(1000));
        assert_eq!(first.command, Reading::Value("first".into()));
        write(900, "second");
        let second = whole(&mut processes, 7, Timestamp(1));
        assert_ne!(first.key, second.key);
        assert_eq!(second.command, Reading::Value("second".into()));
        let hz = i64::try_from(rustix::param::clock_ticks_per_second()).unwrap();
        assert_eq!(
            second.started_at,
            Reading::Value(Timestamp(1_000_000 + 900_000 / hz))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic_the_parsers(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Stat::parse(&bytes), real_uid(&bytes), super::super::commands::parse(&bytes));
        }
    }
}
