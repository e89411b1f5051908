//! One look at the sockets of some jobs.

use super::members::{Census, Pace};
use super::table::{Broken, SocketTable};
use super::use_of_job::{Evaluation, Holders, JobHistory};
use super::{EVERY, Found, Kept, NetworkUse, Sockets, WatchedJob};
use crate::procfs::file::{failed, read_at_most};
use crate::procfs::stat::Stat;
use core::net::SocketAddr;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Job, ProcessKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, read_dir, read_link};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// As many descriptors of a process are looked at.
const DESCRIPTORS: usize = 65_536;

/// As many ports of a process are told.
const PORTS: usize = 64;

/// As many far ends of a process are told.
const PEERS: usize = 256;

/// The processes of a job are looked for again after this time, even where no socket is
/// new.
const SURVEY_EVERY: Duration = Duration::from_secs(300);

/// As many sockets to which others have been connected are remembered. The first are
/// the oldest, and forgotten first.
const SERVING: usize = 65_536;

/// The kernel writes less than 2 KiB.
const SNMP_MAX: u64 = 16 << 10;

/// What is remembered from one look to the next.
pub(super) struct Look {
    root: PathBuf,
    /// Each network namespace, by what the kernel calls it.
    namespaces: BTreeMap<PathBuf, (Instant, Namespace)>,
    jobs: BTreeMap<Job, JobHistory>,
    kept: Kept,
    pub(super) pace: Pace,
}

/// What a network namespace tells.
pub(super) struct Namespace {
    pub(super) table: Result<SocketTable, Broken>,
    /// How many connections were made to it, ever; `None` for the namespace of the box
    /// itself, to which others than jobs listen.
    pub(super) accepted: Option<u64>,
}

/// The sockets that a process has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    /// Below `/proc`.
    pub(super) directory: PathBuf,
    /// `None` where it has no sockets, and its namespace cannot be read.
    pub(super) namespace: Option<PathBuf>,
    /// Inodes.
    pub(super) sockets: Vec<u64>,
}

impl Look {
    pub(super) fn below(root: PathBuf, kept: Kept) -> Self {
        Self {
            root,
            kept,
            namespaces: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pace: Pace::default(),
        }
    }

    /// Forgets all jobs but these.
    pub(super) fn keep_only(&mut self, jobs: &BTreeSet<Job>) {
        self.jobs.retain(|job, _| jobs.contains(job));
    }

    /// Reads them anew at the next look.
    pub(super) fn forget_namespaces(&mut self) {
        self.namespaces.clear();
    }

    /// Looks at each of these.
    pub(super) fn at(&mut self, jobs: &[WatchedJob]) -> Vec<(ProcessKey, Found)> {
        self.namespaces
            .retain(|_, (read_at, _)| read_at.elapsed() < EVERY);
        let mut census = None;
        let kept = self.kept.sockets.len();
        let found = jobs.iter().flat_map(|job| self.job(job, &mut census));
        let found = found.collect();
        if self.kept.sockets.len() > kept {
            while self.kept.sockets.len() > SERVING {
                self.kept.sockets.pop_first();
            }
            (self.kept.keep)(&self.kept.sockets);
        }
        if let Some(census) = census {
            self.pace.took(census.age(), Instant::now());
        }
        found
    }

    fn job(
        &mut self,
        watched: &WatchedJob,
        census: &mut Option<Census>,
    ) -> Vec<(ProcessKey, Found)> {
        let read: Vec<(ProcessKey, io::Result<Holder>)> = watched
            .processes
            .iter()
            .map(|key| (*key, self.holder(*key)))
            .collect();
        for (_, holder) in &read {
            if let Ok(holder) = holder {
                self.read_namespace(holder);
            }
        }
        let network = self.network_use(watched, &read, census);
        let network = network.unwrap_or_else(|why| NetworkUse::unknown(&why));
        let found = read.into_iter().map(|(key, holder)| {
            let found = match holder {
                Ok(holder) => Found {
                    network: network.clone(),
                    sockets: self.sockets(&holder),
                },
                Err(error) => Found {
                    network: NetworkUse::unknown(&failed(error)),
                    sockets: None,
                },
            };
            (key, found)
        });
        found.collect()
    }

    /// How others use this job, whose processes with a GPU have these sockets.
    fn network_use(
        &mut self,
        watched: &WatchedJob,
        read: &[(ProcessKey, io::Result<Holder>)],
        census: &mut Option<Census>,
    ) -> Result<NetworkUse, Reading<()>> {
        let mut holders = Holders::default();
        for (_, holder) in read {
            match holder {
                Ok(holder) => holders.own.push(holder.clone()),
                Err(error) if has_ended(error) => {}
                Err(error) => return Err(failed(io::Error::new(error.kind(), error.to_string()))),
            }
        }
        for server in &watched.notebook_servers {
            match self.holder(*server) {
                Ok(holder) => holders.servers.push(holder),
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        for holder in &holders.servers {
            self.read_namespace(holder);
        }
        let mut history = self.jobs.remove(&watched.job).unwrap_or_default();
        let judged = self.evaluate(&mut history, &holders);
        let is_old = |at: Instant| at.elapsed() >= SURVEY_EVERY;
        let is_due = history.surveyed_at.is_none_or(is_old)
            || judged.as_ref().is_ok_and(Evaluation::needs_survey);
        let may_survey = census.is_some() || self.pace.allows(Instant::now());
        let judged = if is_due && may_survey {
            let surveyed = self.survey(&mut history, watched, census);
            surveyed.and_then(|()| {
                let judged = self.evaluate(&mut history, &holders)?;
                // Every process of the job was looked at: other clients are no part of it.
                history.are_others(&judged);
                self.evaluate(&mut history, &holders)
            })
        } else {
            judged
        };
        let found = judged.and_then(|judged| match history.surveyed_at {
            Some(_) => Ok(judged.network_use()),
            None => Err(Reading::Failed(
                "the other processes of its job are not looked at yet".into(),
            )),
        });
        self.jobs.insert(watched.job.clone(), history);
        found
    }

    /// Looks at the processes of the job that have no GPU.
    fn survey(
        &mut self,
        history: &mut JobHistory,
        watched: &WatchedJob,
        census: &mut Option<Census>,
    ) -> Result<(), Reading<()>> {
        let census = match census {
            Some(census) => census,
            None => census.insert(Census::take(&self.root).map_err(failed)?),
        };
        let Some(members) = census.members(watched) else {
            return Err(Reading::Failed("its job has too many processes".into()));
        };
        history.members.clear();
        for key in members {
            match self.holder(key) {
                Ok(holder) => {
                    self.read_namespace(&holder);
                    history.members.push(holder);
                }
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        history.surveyed_at = Some(Instant::now());
        Ok(())
    }

    fn evaluate(
        &mut self,
        history: &mut JobHistory,
        holders: &Holders,
    ) -> Result<Evaluation, Reading<()>> {
        let namespaces = |name: &Path| self.namespaces.get(name).map(|(_, it)| it);
        let had_others = &mut self.kept.sockets;
        let evaluation = history.evaluate(holders, had_others, &namespaces);
        evaluation.map_err(|broken| Reading::Failed(broken.words()))
    }

    /// The sockets of a process.
    ///
    /// # Errors
    /// When they cannot be read, or it is another process by now.
    fn holder(&self, key: ProcessKey) -> io::Result<Holder> {
        let directory = self.root.join(key.pid.to_string());
        let sockets = open_sockets(&directory)?;
        let namespace = match read_link(directory.join("ns/net")) {
            Ok(namespace) => Some(namespace),
            Err(_) if sockets.is_empty() => None,
            Err(error) => return Err(error),
        };
        // All this was read by the pid, which may be another's by now.
        if Stat::read(&directory)?.start_ticks != key.start_ticks {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Holder {
            directory,
            namespace,
            sockets,
        })
    }

    /// Reads the sockets of its namespace, where they are not known.
    fn read_namespace(&mut self, holder: &Holder) {
        let Some(name) = &holder.namespace else {
            return;
        };
        if self.namespaces.contains_key(name) {
            return;
        }
        let own = read_link(self.root.join("1/ns/net"));
        let is_own = own.is_ok_and(|own| own != *name);
        let namespace = Namespace {
            table: table(&holder.directory),
            accepted: is_own.then(|| accepted(&holder.directory)).flatten(),
        };
        self.namespaces
            .insert(name.clone(), (Instant::now(), namespace));
    }

    /// Where a process listens, and with whom it has connected.
    fn sockets(&self, holder: &Holder) -> Option<Sockets> {
        if holder.sockets.is_empty() {
            return Some(Sockets::default());
        }
        let (_, namespace) = self.namespaces.get(holder.namespace.as_ref()?)?;
        let table = namespace.table.as_ref().ok()?;
        if table.may_lack_those_of(&holder.directory) {
            return None;
        }
        let listening = holder.sockets.iter().filter_map(|it| table.listening(*it));
        let ports: BTreeSet<u16> = listening.map(|local| local.port()).collect();
        // Those of this box last: a process that connects to itself often must not thereby
        // hide the others.
        let peers = table.peers(&holder.sockets);
        let peers: BTreeSet<(bool, SocketAddr)> =
            peers.map(|peer| (peer.ip().is_loopback(), peer)).collect();
        let peers = peers.into_iter().take(PEERS);
        Some(Sockets {
            listens: ports.into_iter().take(PORTS).collect(),
            peers: peers.map(|(_, peer)| peer).collect(),
        })
    }
}

fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// The sockets that the process of this directory has open, by inode.
fn open_sockets(directory: &Path) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for (entry, looked_at) in read_dir(directory.join("fd"))?.zip(0..) {
        if looked_at >= DESCRIPTORS {
            return Err(io::Error::other("it has too many files open"));
        }
        match read_link(entry?.path()) {
            Ok(target) => inodes.extend(inode(&target)),
            // Closed meanwhile.
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inodes)
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

/// Of the namespace that the process with this directory is in.
fn table(directory: &Path) -> Result<SocketTable, Broken> {
    let open = |name: &str| match File::open(directory.join("net").join(name)) {
        Ok(file) => Ok(Some(BufReader::with_capacity(64 << 10, file))),
        Err(error) if has_ended(&error) => Ok(None),
        Err(error) => Err(Broken::Unreadable(error.kind())),
    };
    // Without IPv4 there is no TCP; it is not to be taken for nobody.
    let four = open("tcp")?.ok_or(Broken::Unreadable(io::ErrorKind::NotFound))?;
    SocketTable::read(four, open("tcp6")?)
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
