//! One look at the sockets of some processes.

use super::table::{Broken, Table};
use super::{EVERY, Found, MOST, Sockets};
use crate::procfs::file::failed;
use crate::procfs::stat::Stat;
use core::net::SocketAddr;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, read_dir, read_link};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// So many descriptors of a process are looked at.
const DESCRIPTORS: usize = 65_536;

/// So many ports of a process are told.
const PORTS: usize = 64;

/// So many far ends of a process are told.
const PEERS: usize = 256;

/// What is remembered from one look to the next.
pub(super) struct Look {
    root: PathBuf,
    /// The tables of each network namespace, by what the kernel calls it.
    tables: BTreeMap<PathBuf, (Instant, Tables)>,
}

/// Of IPv4 and of IPv6; a kernel without the latter has none.
type Tables = Result<Vec<Table>, Broken>;

/// The sockets that a process has open, by inode.
#[derive(Debug, PartialEq, Eq)]
struct Open(Vec<u64>);

impl Look {
    pub(super) fn below(root: PathBuf) -> Self {
        Self {
            root,
            tables: BTreeMap::new(),
        }
    }

    /// Looks at each of these.
    pub(super) fn at(&mut self, processes: &[ProcessKey]) -> Vec<(ProcessKey, Found)> {
        self.tables
            .retain(|_, (read_at, _)| read_at.elapsed() < EVERY);
        let found = processes.iter().take(MOST);
        found.map(|key| (*key, self.one(*key))).collect()
    }

    fn one(&mut self, key: ProcessKey) -> Found {
        let directory = self.root.join(key.pid.to_string());
        match self.found(&directory) {
            // All this was read by the pid, which may be another's by now.
            Ok(_) if !is_still(&directory, key) => {
                let ended = io::Error::from(io::ErrorKind::NotFound);
                Found::nothing(failed(ended))
            }
            Ok(found) => found,
            Err(error) => Found::nothing(failed(error)),
        }
    }

    fn found(&mut self, directory: &Path) -> io::Result<Found> {
        let open = Open::of(directory)?;
        if open.0.is_empty() {
            return Ok(Found::from_tables(&open, &[]));
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
            Ok(tables) => Found::from_tables(&open, tables),
            Err(broken) => Found::nothing(Reading::Failed(broken.words())),
        })
    }
}

impl Found {
    /// Of a process whose sockets are not known.
    fn nothing(why: Reading<u32>) -> Self {
        Self {
            clients: why,
            sockets: None,
        }
    }

    fn from_tables(open: &Open, tables: &[Table]) -> Self {
        Self {
            clients: open.connections(tables),
            sockets: Some(open.sockets(tables)),
        }
    }
}

impl Open {
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

    /// Where these listen, and with whom they have connected.
    fn sockets(&self, tables: &[Table]) -> Sockets {
        let listening = tables.iter().flat_map(|table| table.listening(&self.0));
        let ports: BTreeSet<u16> = listening.map(|local| local.port).collect();
        let peers = tables.iter().flat_map(|table| table.peers(&self.0));
        // Those of this box last: whoever connects to itself often must not thereby hide
        // the others.
        let peers: BTreeSet<(bool, SocketAddr)> =
            peers.map(|peer| (peer.ip().is_loopback(), peer)).collect();
        Sockets {
            listens: ports.into_iter().take(PORTS).collect(),
            peers: peers
                .into_iter()
                .take(PEERS)
                .map(|(_, peer)| peer)
                .collect(),
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

/// Of the namespace that the process with this directory is in. What listens on all
/// addresses of IPv6 does so on those of IPv4 too.
fn tables(directory: &Path) -> Tables {
    let read = |name: &str| match File::open(directory.join("net").join(name)) {
        Ok(file) => Table::read(BufReader::with_capacity(64 << 10, file)).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Broken::Unreadable(error.kind())),
    };
    // Without IPv4 there is no TCP; it is not to be taken for nobody.
    let first = read("tcp")?.ok_or(Broken::Unreadable(io::ErrorKind::NotFound))?;
    let second = read("tcp6")?;
    let mut tables: Vec<Table> = [Some(first), second].into_iter().flatten().collect();
    let ports: BTreeSet<u16> = tables.iter().flat_map(Table::ports).collect();
    for table in &mut tables {
        table.forget_accepted(&ports);
    }
    Ok(tables)
}
