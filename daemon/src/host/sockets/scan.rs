//! One scan of the sockets of some jobs.

use super::budget::{BudgetExceeded, BudgetOwner, PROCESS_COST, ScanAllowance, ScanBudget};
use super::job_processes::{ProcessCensus, SurveyPace};
use super::job_use::{JobHistory, JobSockets, JobUse, ServedRecorder};
use super::namespaces::NamespaceCache;
use super::served::ServedSockets;
use super::{NetworkUse, ProcessSockets, SavedServedSockets, SocketFindings, WatchedJob};
use crate::procfs::read_failure;
use crate::procfs::stat::Stat;
use core::net::SocketAddr;
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _};
use gpukill_proto::model::{Job, ProcessKey};
use gpukill_proto::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_link};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many descriptors of a process are read.
pub(super) const MAX_DESCRIPTORS: usize = 65_536;

/// How many ports of a process are reported.
const MAX_PORTS: usize = 64;

/// How many remote ends of a process are reported.
const MAX_PEERS: usize = 256;

/// How often the processes of a job are searched, even where no socket is new.
const SURVEY_INTERVAL: Duration = Duration::from_secs(300);

/// The state between scans.
pub(super) struct SocketScanner {
    root: PathBuf,
    namespaces: NamespaceCache,
    jobs: BTreeMap<Job, JobHistory>,
    served: ServedSockets,
    pub(super) budget: ScanBudget,
    pub(super) survey_pace: SurveyPace,
}

/// Data that the jobs of one round share.
#[derive(Default)]
pub(super) struct ScanRound {
    census: Option<ProcessCensus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenSockets {
    /// Its directory below `/proc`.
    pub(super) directory: PathBuf,
    /// `None` where it has no sockets and its namespace cannot be read.
    pub(super) namespace: Option<PathBuf>,
    /// Inodes, each once: a process may have the same socket open many times.
    pub(super) sockets: Vec<u64>,
}

impl SocketScanner {
    pub(super) fn below(root: PathBuf, saved: SavedServedSockets) -> Self {
        Self {
            root,
            served: ServedSockets::new(saved),
            budget: ScanBudget::default(),
            namespaces: NamespaceCache::default(),
            jobs: BTreeMap::new(),
            survey_pace: SurveyPace::default(),
        }
    }

    /// Drops all other jobs.
    pub(super) fn keep_only(&mut self, jobs: &BTreeSet<Job>) {
        self.jobs.retain_entries(|job, _| jobs.contains(job));
    }

    /// Forces the next scan to read them again.
    pub(super) fn forget_namespaces(&mut self) {
        self.namespaces = NamespaceCache::default();
    }

    /// How many sockets of a job's other processes are remembered.
    #[cfg(test)]
    pub(super) fn remembered_sockets(&self, job: &Job) -> usize {
        self.jobs.get(job).map_or(0, |history| history.sockets)
    }

    pub(super) fn scan_jobs(&mut self, jobs: &[WatchedJob]) -> Vec<(ProcessKey, SocketFindings)> {
        let mut round = self.start_round();
        let found = jobs.iter().flat_map(|job| self.scan_job(job, &mut round));
        let found = found.collect();
        self.end_round(&round);
        found
    }

    pub(super) fn start_round(&mut self) -> ScanRound {
        self.namespaces.forget_old();
        ScanRound::default()
    }

    pub(super) fn end_round(&mut self, round: &ScanRound) {
        self.served.save_new();
        if let Some(census) = &round.census {
            self.survey_pace.record(census.duration, Instant::now());
        }
    }

    /// Scans a job as far as its budget allows.
    pub(super) fn scan_job(
        &mut self,
        watched: &WatchedJob,
        round: &mut ScanRound,
    ) -> Vec<(ProcessKey, SocketFindings)> {
        match self.budget.allow(watched, Instant::now()) {
            Ok(mut allowance) => {
                let found = self.scan_within(&mut allowance, watched, round);
                self.budget.record(watched, &allowance, Instant::now());
                found
            }
            Err(over) => {
                let why = read_failure(over.into());
                if let Some(history) = self.jobs.get_mut(&watched.job) {
                    history.set_survey(Err(why.clone()));
                }
                let unknown = |key: &ProcessKey| (*key, SocketFindings::unknown(&why));
                watched.processes.iter().map(unknown).collect()
            }
        }
    }

    fn scan_within(
        &mut self,
        allowance: &mut ScanAllowance,
        watched: &WatchedJob,
        round: &mut ScanRound,
    ) -> Vec<(ProcessKey, SocketFindings)> {
        let processes = watched.processes.iter();
        let read: Vec<(ProcessKey, io::Result<OpenSockets>)> = processes
            .map(|key| (*key, self.open_sockets(*key, allowance)))
            .collect();
        let network = self.network_use(watched, &read, allowance, round);
        let network = network.unwrap_or_else(|why| NetworkUse::unknown(&why));
        let found = read.into_iter().map(|(key, holder)| {
            let found = match holder {
                Ok(holder) => SocketFindings {
                    network: network.clone(),
                    sockets: self.process_sockets(&holder),
                },
                Err(error) => SocketFindings::unknown(&read_failure(error)),
            };
            (key, found)
        });
        found.collect()
    }

    /// The network use of this job: its GPU processes have these sockets.
    fn network_use(
        &mut self,
        watched: &WatchedJob,
        read: &[(ProcessKey, io::Result<OpenSockets>)],
        allowance: &mut ScanAllowance,
        round: &mut ScanRound,
    ) -> Result<NetworkUse, Reading<()>> {
        let mut holders = JobSockets::default();
        for (key, holder) in read {
            match holder {
                Ok(holder) => {
                    if watched.kernels.contains(key) {
                        holders.kernel_sockets.extend(&holder.sockets);
                    }
                    holders.own.push(holder.clone());
                }
                Err(error) if has_ended(error) => {}
                Err(error) => {
                    return Err(read_failure(io::Error::new(
                        error.kind(),
                        error.to_string(),
                    )));
                }
            }
        }
        let servers = watched.notebook_servers.iter().copied();
        holders.servers = self.read_running(servers, allowance)?;
        for holder in holders.own.iter().chain(&holders.servers) {
            self.namespaces
                .read(&self.root, holder, allowance)
                .map_err(over_budget)?;
        }
        let mut history = self.jobs.remove(&watched.job).unwrap_or_default();
        history.owner = Some(watched.owner.clone());
        let found = self.use_with_history(&mut history, watched, &holders, allowance, round);
        self.jobs.insert(watched.job.clone(), history);
        found
    }

    fn use_with_history(
        &mut self,
        history: &mut JobHistory,
        watched: &WatchedJob,
        holders: &JobSockets,
        allowance: &mut ScanAllowance,
        round: &mut ScanRound,
    ) -> Result<NetworkUse, Reading<()>> {
        let share = Arc::new(watched.owner.clone());
        let job_use = self.evaluate_job(history, holders, &share);
        let is_old = |at: Instant| at.elapsed() >= SURVEY_INTERVAL;
        let is_due = history.surveyed_at.is_none_or(is_old)
            || job_use.as_ref().is_ok_and(JobUse::needs_survey);
        let is_new = history.surveyed_at.is_none() && history.unknown_reason.is_none();
        let may_survey = round.census.is_some() || self.survey_pace.allows(is_new, Instant::now());
        let job_use = if is_due && may_survey {
            let surveyed = self.survey(watched, allowance, round);
            history.set_survey(surveyed);
            let job_use = self.evaluate_job(history, holders, &share)?;
            if history.surveyed_at.is_some() {
                // All processes of the job were read: other clients are external.
                history.mark_external(&job_use);
            }
            self.evaluate_job(history, holders, &share)?
        } else {
            job_use?
        };
        match (&history.unknown_reason, history.surveyed_at) {
            (Some(why), _) => Err(why.clone()),
            (None, Some(_)) => Ok(job_use.network_use()),
            (None, None) => Err(Reading::Failed(
                "the other processes of its job have not been read yet".into(),
            )),
        }
    }

    /// Reads the processes of the job without a GPU.
    fn survey(
        &mut self,
        watched: &WatchedJob,
        allowance: &mut ScanAllowance,
        round: &mut ScanRound,
    ) -> Result<Vec<OpenSockets>, Reading<()>> {
        let census = match &mut round.census {
            Some(census) => census,
            None => round
                .census
                .insert(ProcessCensus::list_all(&self.root).map_err(read_failure)?),
        };
        let Some(members) = census.members_of(watched) else {
            return Err(Reading::Failed("its job has too many processes".into()));
        };
        let members = self.read_running(members.into_iter(), allowance)?;
        for holder in &members {
            self.namespaces
                .read(&self.root, holder, allowance)
                .map_err(over_budget)?;
        }
        // The remembered sockets of all jobs of one owner count together.
        let others = self.jobs.values();
        let others = others.filter(|it| it.owner.as_ref() == Some(&watched.owner));
        let saved: usize = others.map(|it| it.sockets).sum();
        let sockets: usize = members.iter().map(|it| it.sockets.len()).sum();
        match saved + sockets > self.budget.per_person {
            true => Err(over_budget(BudgetExceeded::Person)),
            false => Ok(members),
        }
    }

    /// The sockets of those of these processes that have not ended.
    fn read_running(
        &self,
        keys: impl Iterator<Item = ProcessKey>,
        allowance: &mut ScanAllowance,
    ) -> Result<Vec<OpenSockets>, Reading<()>> {
        let mut alive = Vec::new();
        for key in keys {
            match self.open_sockets(key, allowance) {
                Ok(holder) => alive.push(holder),
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(read_failure(error)),
            }
        }
        Ok(alive)
    }

    fn evaluate_job(
        &mut self,
        history: &mut JobHistory,
        holders: &JobSockets,
        share: &Arc<BudgetOwner>,
    ) -> Result<JobUse, Reading<()>> {
        let namespaces = |name: &Path| self.namespaces.get(name);
        let mut had_others = ServedRecorder {
            served: &mut self.served,
            owner: share,
        };
        let evaluation = history.evaluate(holders, &mut had_others, &namespaces);
        evaluation.map_err(|error| Reading::Failed(error.text()))
    }

    /// The sockets of a process.
    pub(super) fn open_sockets(
        &self,
        key: ProcessKey,
        allowance: &mut ScanAllowance,
    ) -> io::Result<OpenSockets> {
        allowance.spend(PROCESS_COST)?;
        let directory = self.root.join(key.pid.to_string());
        let sockets = socket_inodes(&directory, allowance)?;
        let namespace = match read_link(directory.join("ns/net")) {
            Ok(namespace) => Some(namespace),
            Err(_) if sockets.is_empty() => None,
            Err(error) => return Err(error),
        };
        // All this was read by PID, which may have been reused.
        if Stat::read(&directory)?.start_ticks != key.start_ticks {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(OpenSockets {
            directory,
            namespace,
            sockets,
        })
    }

    /// The listening ports and remote ends of a process.
    fn process_sockets(&self, holder: &OpenSockets) -> Option<ProcessSockets> {
        if holder.sockets.is_empty() {
            return Some(ProcessSockets::default());
        }
        let namespace = self.namespaces.get(holder.namespace.as_ref()?)?;
        let table = namespace.table.as_ref().ok()?;
        if table.may_lack_sockets_of(&holder.directory) {
            return None;
        }
        let listening = holder
            .sockets
            .iter()
            .filter_map(|it| table.listening_address(*it));
        let ports: BTreeSet<u16> = listening.map(|local| local.port()).into_set();
        // Remote ends on this host come last: a process that connects to itself often must not hide
        // the others.
        let peers = table.peers(&holder.sockets);
        let peers: BTreeSet<(bool, SocketAddr)> =
            peers.map(|peer| (peer.ip().is_loopback(), peer)).into_set();
        let peers = peers.into_iter().take(MAX_PEERS);
        Some(ProcessSockets {
            listens: ports.into_iter().take(MAX_PORTS).into_set(),
            peers: peers.map(|(_, peer)| peer).into_set(),
        })
    }
}

pub(super) fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn over_budget(over: BudgetExceeded) -> Reading<()> {
    read_failure(over.into())
}

/// The inodes of the sockets that the process of this directory has open.
fn socket_inodes(directory: &Path, allowance: &mut ScanAllowance) -> io::Result<Vec<u64>> {
    let mut inodes = BTreeSet::new();
    for (entry, looked_at) in read_dir(directory.join("fd"))?.zip(0..) {
        if looked_at >= MAX_DESCRIPTORS {
            return Err(io::Error::other("it has too many files open"));
        }
        allowance.spend(1)?;
        match read_link(entry?.path()) {
            Ok(target) => inodes.extend(parse_inode(&target)),
            // Closed meanwhile.
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inodes.into_iter().collect())
}

/// The inode of the socket behind a descriptor: `socket:[12345]`.
fn parse_inode(target: &Path) -> Option<u64> {
    let number = target.to_str()?.strip_prefix("socket:[")?;
    number.strip_suffix(']')?.parse().ok()
}
