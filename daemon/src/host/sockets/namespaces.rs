//! Reads network namespaces, each once for all jobs in it.

use super::REFRESH_INTERVAL;
use super::addresses::LocalAddresses;
use super::budget::{BudgetExceeded, LINES_PER_UNIT, PROCESS_COST, ScanAllowance};
use super::collector::LIMITS;
use super::scan::{OpenSockets, has_ended};
use super::table::{SocketListError, SocketTable};
use crate::procfs::read_at_most;
use gpukill_proto::collect::RetainEntries as _;
use std::collections::BTreeMap;
use std::fs::{File, read_link};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The kernel writes less than 2 KiB.
const SNMP_MAX: u64 = 16 << 10;

pub(super) struct NetworkNamespace {
    pub(super) table: Result<SocketTable, SocketListError>,
    /// How many connections it has accepted since its creation; `None` for the namespace of the
    /// host itself, where other programs than jobs listen.
    pub(super) accepted: Option<u64>,
}

/// The namespaces that were read, by their link targets.
#[derive(Default)]
pub(super) struct NamespaceCache(BTreeMap<PathBuf, (Instant, NetworkNamespace)>);

impl NamespaceCache {
    /// Drops entries that are too old.
    pub(super) fn forget_old(&mut self) {
        self.0
            .retain_entries(|_, (read_at, _)| read_at.elapsed() < REFRESH_INTERVAL);
    }

    pub(super) fn get(&self, name: &Path) -> Option<&NetworkNamespace> {
        self.0.get(name).map(|(_, namespace)| namespace)
    }

    /// Reads the namespace of this process where it is not cached. The cost of any namespace except
    /// the host's counts for the job's owner: any user can create many.
    pub(super) fn read(
        &mut self,
        root: &Path,
        holder: &OpenSockets,
        allowance: &mut ScanAllowance,
    ) -> Result<(), BudgetExceeded> {
        let Some(name) = &holder.namespace else {
            return Ok(());
        };
        if self.0.contains_key(name) {
            return Ok(());
        }
        allowance.spend(PROCESS_COST)?;
        let own = read_link(root.join("1/ns/net"));
        let is_of_others = own.is_ok_and(|own| own != *name);
        let table = read_table(&holder.directory);
        if is_of_others {
            let lines = table.as_ref().map_or(LIMITS.lines, |table| table.lines);
            allowance.charge(lines / LINES_PER_UNIT);
            allowance.charge_person(table.as_ref().map_or(0, SocketTable::len));
        }
        let accepted = is_of_others
            .then(|| read_accepted(&holder.directory))
            .flatten();
        let namespace = NetworkNamespace { table, accepted };
        self.0.insert(name.clone(), (Instant::now(), namespace));
        Ok(())
    }
}

impl SocketListError {
    pub(super) fn text(&self) -> String {
        match self {
            Self::TooLong => "there are too many sockets".to_owned(),
            Self::NotSockets => "the list of sockets is malformed".to_owned(),
            Self::NotAddresses => "the list of addresses is malformed".to_owned(),
            Self::Unreadable(kind) => format!("the list of sockets cannot be read: {kind}"),
        }
    }
}

/// Reads the namespace of the process with this directory.
fn read_table(directory: &Path) -> Result<SocketTable, SocketListError> {
    let open = |name: &str| match File::open(directory.join("net").join(name)) {
        Ok(file) => Ok(Some(BufReader::with_capacity(64 << 10, file))),
        Err(error) if has_ended(&error) => Ok(None),
        Err(error) => Err(SocketListError::Unreadable(error.kind())),
    };
    let missing = SocketListError::Unreadable(io::ErrorKind::NotFound);
    // Without the addresses of the namespace, external clients cannot be distinguished.
    let addresses = open("fib_trie")?.ok_or_else(|| missing.clone())?;
    let addresses = LocalAddresses::read(addresses, open("if_inet6")?)?;
    // Without IPv4 there is no TCP; that must not count as no clients.
    let four = open("tcp")?.ok_or(missing)?;
    SocketTable::read(four, open("tcp6")?, addresses)
}

/// How many connections the sockets of this namespace have accepted: `PassiveOpens` of the two
/// lines of `Tcp` (`snmp_seq_show` in `net/ipv4/proc.c`), which include IPv6.
fn read_accepted(directory: &Path) -> Option<u64> {
    let text = read_at_most(&directory.join("net/snmp"), SNMP_MAX).ok()?;
    let text = std::str::from_utf8(&text).ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next()?.split_ascii_whitespace();
    let numbers = lines.next()?.split_ascii_whitespace();
    let (_, number) = names
        .zip(numbers)
        .find(|(name, _)| *name == "PassiveOpens")?;
    number.parse().ok()
}
