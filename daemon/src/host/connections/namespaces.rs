//! What network namespaces tell: each is read once, for all jobs in it.

use super::EVERY;
use super::addresses::Addresses;
use super::budget::{LINES, OF_PROCESS, Over, Purse};
use super::collector::LIMITS;
use super::look::{Holder, has_ended};
use super::table::{Broken, SocketTable};
use crate::procfs::file::read_at_most;
use std::collections::BTreeMap;
use std::fs::{File, read_link};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The kernel writes less than 2 KiB.
const SNMP_MAX: u64 = 16 << 10;

/// What a network namespace tells.
pub(super) struct Namespace {
    pub(super) table: Result<SocketTable, Broken>,
    /// How many connections were made to it, ever; `None` for the namespace of the box
    /// itself, to which others than jobs listen.
    pub(super) accepted: Option<u64>,
}

/// Those that were read, by what the kernel calls them.
#[derive(Default)]
pub(super) struct Namespaces(BTreeMap<PathBuf, (Instant, Namespace)>);

impl Namespaces {
    /// What was read too long ago is read anew.
    pub(super) fn forget_old(&mut self) {
        self.0.retain(|_, (read_at, _)| read_at.elapsed() < EVERY);
    }

    pub(super) fn get(&self, name: &Path) -> Option<&Namespace> {
        self.0.get(name).map(|(_, namespace)| namespace)
    }

    /// Reads the one that this process is in, where it is not known. What is not the box's
    /// own counts for whose job it is: anybody can make many.
    pub(super) fn read(
        &mut self,
        root: &Path,
        holder: &Holder,
        purse: &mut Purse,
    ) -> Result<(), Over> {
        let Some(name) = &holder.namespace else {
            return Ok(());
        };
        if self.0.contains_key(name) {
            return Ok(());
        }
        purse.take(OF_PROCESS)?;
        let own = read_link(root.join("1/ns/net"));
        let is_of_others = own.is_ok_and(|own| own != *name);
        let table = table(&holder.directory);
        if is_of_others {
            let lines = table.as_ref().map_or(LIMITS.lines, |table| table.lines);
            purse.charge(lines / LINES);
            purse.charge_person(table.as_ref().map_or(0, SocketTable::len));
        }
        let accepted = is_of_others.then(|| accepted(&holder.directory)).flatten();
        let namespace = Namespace { table, accepted };
        self.0.insert(name.clone(), (Instant::now(), namespace));
        Ok(())
    }
}

impl Broken {
    pub(super) fn words(&self) -> String {
        match self {
            Self::TooLong => "there are too many sockets to count".to_owned(),
            Self::NotSockets => "the list of sockets is not one".to_owned(),
            Self::NotAddresses => "the list of addresses is not one".to_owned(),
            Self::Unreadable(kind) => format!("the list of sockets cannot be read: {kind}"),
        }
    }
}

/// Of the namespace that the process with this directory is in.
fn table(directory: &Path) -> Result<SocketTable, Broken> {
    let open = |name: &str| match File::open(directory.join("net").join(name)) {
        Ok(file) => Ok(Some(BufReader::with_capacity(64 << 10, file))),
        Err(error) if has_ended(&error) => Ok(None),
        Err(error) => Err(Broken::Unreadable(error.kind())),
    };
    let missing = Broken::Unreadable(io::ErrorKind::NotFound);
    // Without its addresses nobody knows who comes from elsewhere.
    let addresses = open("fib_trie")?.ok_or_else(|| missing.clone())?;
    let addresses = Addresses::read(addresses, open("if_inet6")?)?;
    // Without IPv4 there is no TCP; it is not to be taken for nobody.
    let four = open("tcp")?.ok_or(missing)?;
    SocketTable::read(four, open("tcp6")?, addresses)
}

/// How many connections were made to the sockets of this namespace, ever: `PassiveOpens` of
/// the two lines of `Tcp` (`snmp_seq_show` in `net/ipv4/proc.c`), which count IPv6 too.
fn accepted(directory: &Path) -> Option<u64> {
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
