//! One look at the sockets of some jobs.

use super::budget::{Budget, OF_PROCESS, Over, Purse, Share};
use super::members::{Census, Pace};
use super::namespaces::Namespaces;
use super::serving::Serving;
use super::use_of_job::{Evaluation, HadOthers, Holders, JobHistory};
use super::{Found, Kept, NetworkUse, Sockets, WatchedJob};
use crate::procfs::file::failed;
use crate::procfs::stat::Stat;
use core::net::SocketAddr;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Job, ProcessKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_link};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As many descriptors of a process are looked at.
pub(super) const DESCRIPTORS: usize = 65_536;

/// As many ports of a process are told.
const PORTS: usize = 64;

/// As many far ends of a process are told.
const PEERS: usize = 256;

/// The processes of a job are looked for again after this time, even where no socket is
/// new.
const SURVEY_EVERY: Duration = Duration::from_secs(300);

/// What is remembered from one look to the next.
pub(super) struct Look {
    root: PathBuf,
    namespaces: Namespaces,
    jobs: BTreeMap<Job, JobHistory>,
    serving: Serving,
    pub(super) budget: Budget,
    pub(super) pace: Pace,
}

/// What the jobs that are looked at one after the other share.
#[derive(Default)]
pub(super) struct Round {
    census: Option<Census>,
}

/// The sockets that a process has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    /// Below `/proc`.
    pub(super) directory: PathBuf,
    /// `None` where it has no sockets, and its namespace cannot be read.
    pub(super) namespace: Option<PathBuf>,
    /// Inodes, each once: a process may have one socket open very often.
    pub(super) sockets: Vec<u64>,
}

impl Look {
    pub(super) fn below(root: PathBuf, kept: Kept) -> Self {
        Self {
            root,
            serving: Serving::new(kept),
            budget: Budget::default(),
            namespaces: Namespaces::default(),
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
        self.namespaces = Namespaces::default();
    }

    /// How many sockets are remembered of the other processes of a job.
    #[cfg(test)]
    pub(super) fn kept(&self, job: &Job) -> usize {
        self.jobs.get(job).map_or(0, |history| history.sockets)
    }

    /// Looks at each of these.
    pub(super) fn at(&mut self, jobs: &[WatchedJob]) -> Vec<(ProcessKey, Found)> {
        let mut round = self.begin();
        let found = jobs.iter().flat_map(|job| self.job(job, &mut round));
        let found = found.collect();
        self.end(&round);
        found
    }

    /// Before some jobs are looked at.
    pub(super) fn begin(&mut self) -> Round {
        self.namespaces.forget_old();
        Round::default()
    }

    /// After that.
    pub(super) fn end(&mut self, round: &Round) {
        self.serving.write_down();
        if let Some(census) = &round.census {
            self.pace.took(census.took, Instant::now());
        }
    }

    /// Looks at one, as far as there is budget for it.
    pub(super) fn job(
        &mut self,
        watched: &WatchedJob,
        round: &mut Round,
    ) -> Vec<(ProcessKey, Found)> {
        match self.budget.open(watched, Instant::now()) {
            Ok(mut purse) => {
                let found = self.job_within(&mut purse, watched, round);
                self.budget.close(watched, &purse, Instant::now());
                found
            }
            Err(over) => {
                let why = failed(over.into());
                if let Some(history) = self.jobs.get_mut(&watched.job) {
                    history.was_surveyed(Err(why.clone()));
                }
                let unknown = |key: &ProcessKey| (*key, Found::unknown(&why));
                watched.processes.iter().map(unknown).collect()
            }
        }
    }

    fn job_within(
        &mut self,
        purse: &mut Purse,
        watched: &WatchedJob,
        round: &mut Round,
    ) -> Vec<(ProcessKey, Found)> {
        let processes = watched.processes.iter();
        let read: Vec<(ProcessKey, io::Result<Holder>)> = processes
            .map(|key| (*key, self.holder(*key, purse)))
            .collect();
        let network = self.network_use(watched, &read, purse, round);
        let network = network.unwrap_or_else(|why| NetworkUse::unknown(&why));
        let found = read.into_iter().map(|(key, holder)| {
            let found = match holder {
                Ok(holder) => Found {
                    network: network.clone(),
                    sockets: self.sockets(&holder),
                },
                Err(error) => Found::unknown(&failed(error)),
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
        purse: &mut Purse,
        round: &mut Round,
    ) -> Result<NetworkUse, Reading<()>> {
        let mut holders = Holders::default();
        for (_, holder) in read {
            match holder {
                Ok(holder) => holders.own.push(holder.clone()),
                Err(error) if has_ended(error) => {}
                Err(error) => return Err(failed(io::Error::new(error.kind(), error.to_string()))),
            }
        }
        let servers = watched.notebook_servers.iter().copied();
        holders.servers = self.living(servers, purse)?;
        for holder in holders.own.iter().chain(&holders.servers) {
            self.namespaces
                .read(&self.root, holder, purse)
                .map_err(failed_over)?;
        }
        let mut history = self.jobs.remove(&watched.job).unwrap_or_default();
        history.share = Some(watched.share.clone());
        let found = self.with_history(&mut history, watched, &holders, purse, round);
        self.jobs.insert(watched.job.clone(), history);
        found
    }

    fn with_history(
        &mut self,
        history: &mut JobHistory,
        watched: &WatchedJob,
        holders: &Holders,
        purse: &mut Purse,
        round: &mut Round,
    ) -> Result<NetworkUse, Reading<()>> {
        let share = Arc::new(watched.share.clone());
        let judged = self.evaluate(history, holders, &share);
        let is_old = |at: Instant| at.elapsed() >= SURVEY_EVERY;
        let is_due = history.surveyed_at.is_none_or(is_old)
            || judged.as_ref().is_ok_and(Evaluation::needs_survey);
        let is_new = history.surveyed_at.is_none() && history.broken.is_none();
        let may_survey = round.census.is_some() || self.pace.allows(is_new, Instant::now());
        let judged = if is_due && may_survey {
            let surveyed = self.survey(watched, purse, round);
            history.was_surveyed(surveyed);
            let judged = self.evaluate(history, holders, &share)?;
            if history.surveyed_at.is_some() {
                // Every process of the job was looked at: other clients are no part of it.
                history.are_others(&judged);
            }
            self.evaluate(history, holders, &share)?
        } else {
            judged?
        };
        match (&history.broken, history.surveyed_at) {
            (Some(why), _) => Err(why.clone()),
            (None, Some(_)) => Ok(judged.network_use()),
            (None, None) => Err(Reading::Failed(
                "the other processes of its job are not looked at yet".into(),
            )),
        }
    }

    /// Looks at the processes of the job that have no GPU.
    fn survey(
        &mut self,
        watched: &WatchedJob,
        purse: &mut Purse,
        round: &mut Round,
    ) -> Result<Vec<Holder>, Reading<()>> {
        let census = match &mut round.census {
            Some(census) => census,
            None => round
                .census
                .insert(Census::take(&self.root).map_err(failed)?),
        };
        let Some(members) = census.members(watched) else {
            return Err(Reading::Failed("its job has too many processes".into()));
        };
        let members = self.living(members.into_iter(), purse)?;
        for holder in &members {
            self.namespaces
                .read(&self.root, holder, purse)
                .map_err(failed_over)?;
        }
        // What is remembered of all jobs of one person together.
        let others = self.jobs.values();
        let others = others.filter(|it| it.share.as_ref() == Some(&watched.share));
        let kept: usize = others.map(|it| it.sockets).sum();
        let sockets: usize = members.iter().map(|it| it.sockets.len()).sum();
        match kept + sockets > self.budget.of_person {
            true => Err(failed_over(Over::Person)),
            false => Ok(members),
        }
    }

    /// The sockets of these processes, but of those that have ended.
    fn living(
        &self,
        keys: impl Iterator<Item = ProcessKey>,
        purse: &mut Purse,
    ) -> Result<Vec<Holder>, Reading<()>> {
        let mut living = Vec::new();
        for key in keys {
            match self.holder(key, purse) {
                Ok(holder) => living.push(holder),
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(living)
    }

    fn evaluate(
        &mut self,
        history: &mut JobHistory,
        holders: &Holders,
        share: &Arc<Share>,
    ) -> Result<Evaluation, Reading<()>> {
        let namespaces = |name: &Path| self.namespaces.get(name);
        let mut had_others = HadOthers {
            serving: &mut self.serving,
            share,
        };
        let evaluation = history.evaluate(holders, &mut had_others, &namespaces);
        evaluation.map_err(|broken| Reading::Failed(broken.words()))
    }

    /// The sockets of a process.
    ///
    /// # Errors
    /// When they cannot be read, or it is another process by now.
    pub(super) fn holder(&self, key: ProcessKey, purse: &mut Purse) -> io::Result<Holder> {
        purse.take(OF_PROCESS)?;
        let directory = self.root.join(key.pid.to_string());
        let sockets = open_sockets(&directory, purse)?;
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

    /// Where a process listens, and with whom it has connected.
    fn sockets(&self, holder: &Holder) -> Option<Sockets> {
        if holder.sockets.is_empty() {
            return Some(Sockets::default());
        }
        let namespace = self.namespaces.get(holder.namespace.as_ref()?)?;
        let table = namespace.table.as_ref().ok()?;
        if table.may_lack_those_of(&holder.directory) {
            return None;
        }
        let listening = holder.sockets.iter().filter_map(|it| table.listening(*it));
        let ports: BTreeSet<u16> = listening.map(|local| local.port()).into_set();
        // Those of this box last: a process that connects to itself often must not thereby
        // hide the others.
        let peers = table.peers(&holder.sockets);
        let peers: BTreeSet<(bool, SocketAddr)> =
            peers.map(|peer| (peer.ip().is_loopback(), peer)).into_set();
        let peers = peers.into_iter().take(PEERS);
        Some(Sockets {
            listens: ports.into_iter().take(PORTS).collect(),
            peers: peers.map(|(_, peer)| peer).collect(),
        })
    }
}

pub(super) fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn failed_over(over: Over) -> Reading<()> {
    failed(over.into())
}

/// The sockets that the process of this directory has open, by inode.
fn open_sockets(directory: &Path, purse: &mut Purse) -> io::Result<Vec<u64>> {
    let mut inodes = BTreeSet::new();
    for (entry, looked_at) in read_dir(directory.join("fd"))?.zip(0..) {
        if looked_at >= DESCRIPTORS {
            return Err(io::Error::other("it has too many files open"));
        }
        purse.take(1)?;
        match read_link(entry?.path()) {
            Ok(target) => inodes.extend(inode(&target)),
            // Closed meanwhile.
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inodes.into_iter().collect())
}

/// The number of the socket that a descriptor is open on: `socket:[12345]`.
fn inode(target: &Path) -> Option<u64> {
    let number = target.to_str()?.strip_prefix("socket:[")?;
    number.strip_suffix(']')?.parse().ok()
}
