//! One look at the sockets of some processes.

use super::table::{Broken, Table};
use super::{EVERY, MOST};
use crate::procfs::file::failed;
use crate::procfs::stat::Stat;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeMap;
use std::fs::{File, read_dir, read_link};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// So many descriptors of a process are looked at.
const DESCRIPTORS: usize = 65_536;

/// What is remembered from one look to the next.
pub(super) struct Look {
    root: PathBuf,
    /// The tables of each network namespace, by what the kernel calls it.
    tables: BTreeMap<PathBuf, (Instant, Tables)>,
}

/// Of IPv4 and of IPv6; a kernel without the latter has none.
type Tables = Result<Vec<Table>, Broken>;

/// The sockets that a process has open.
#[derive(Debug, PartialEq, Eq)]
struct Sockets(Vec<u64>);

impl Look {
    pub(super) fn below(root: PathBuf) -> Self {
        Self {
            root,
            tables: BTreeMap::new(),
        }
    }

    /// How many are connected to each of these.
    pub(super) fn at(&mut self, processes: &[ProcessKey]) -> Vec<(ProcessKey, Reading<u32>)> {
        self.tables
            .retain(|_, (read_at, _)| read_at.elapsed() < EVERY);
        let counts = processes.iter().take(MOST);
        counts.map(|key| (*key, self.one(*key))).collect()
    }

    fn one(&mut self, key: ProcessKey) -> Reading<u32> {
        let directory = self.root.join(key.pid.to_string());
        match self.connections(&directory) {
            // All this was read by the pid, which may be another's by now.
            Ok(_) if !is_still(&directory, key) => failed(io::Error::from(io::ErrorKind::NotFound)),
            Ok(count) => count,
            Err(error) => failed(error),
        }
    }

    fn connections(&mut self, directory: &Path) -> io::Result<Reading<u32>> {
        let sockets = Sockets::of(directory)?;
        if sockets.0.is_empty() {
            return Ok(Reading::Unsupported);
        }
        let namespace = read_link(directory.join("ns/net"))?;
        let tables = match self.tables.get(&namespace) {
            Some((_, tables)) => tables,
            None => {
                let tables = tables(directory);
                let entry = self.tables.entry(namespace);
                &entry.or_insert((Instant::now(), tables)).1
            }
        };
        Ok(match tables {
            Ok(tables) => sockets.connections(tables),
            Err(broken) => Reading::Failed(broken.words()),
        })
    }
}

impl Sockets {
    /// Of the process whose directory this is.
    fn of(directory: &Path) -> io::Result<Self> {
        let mut inodes = Vec::new();
        for (entry, looked_at) in read_dir(directory.join("fd"))?.zip(0..) {
            if looked_at >= DESCRIPTORS {
                return Err(io::Error::other("it has too many files open"));
            }
            match read_link(entry?.path()) {
                Ok(target) => inodes.extend(inode(&target)),
                // Closed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(inodes))
    }

    /// How many are connected to where these listen.
    fn connections(&self, tables: &[Table]) -> Reading<u32> {
        let mut listens = false;
        let mut count = 0_u32;
        for table in tables {
            let listening = table.listening(&self.0);
            listens |= !listening.is_empty();
            count = count.saturating_add(table.connections(&listening));
        }
        if listens {
            Reading::Value(count)
        } else {
            Reading::Unsupported
        }
    }
}

impl Broken {
    fn words(&self) -> String {
        match self {
            Self::TooLong => "there are too many sockets to count".to_owned(),
            Self::NotSockets => "the list of sockets is not one".to_owned(),
            Self::Unreadable(kind) => format!("the list of sockets cannot be read: {kind}"),
        }
    }
}

/// The number of the socket that a descriptor is open on: `socket:[12345]`.
fn inode(target: &Path) -> Option<u64> {
    let number = target.to_str()?.strip_prefix("socket:[")?;
    number.strip_suffix(']')?.parse().ok()
}

fn is_still(directory: &Path, key: ProcessKey) -> bool {
    Stat::read(directory).is_ok_and(|stat| stat.start_ticks == key.start_ticks)
}

/// Of the namespace that the process with this directory is in.
fn tables(directory: &Path) -> Tables {
    let read = |name: &str| match File::open(directory.join("net").join(name)) {
        Ok(file) => Table::read(BufReader::with_capacity(64 << 10, file)).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Broken::Unreadable(error.kind())),
    };
    // Without IPv4 there is no TCP; it is not to be taken for nobody.
    let first = read("tcp")?.ok_or(Broken::Unreadable(io::ErrorKind::NotFound))?;
    Ok([Some(first), read("tcp6")?].into_iter().flatten().collect())
}
