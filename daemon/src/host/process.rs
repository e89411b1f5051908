//! Process metadata from `/proc`. Apart from the kernel's numbers, the process itself chooses every
//! byte of it.
//!
//! A poll reads one small file of each process. It reads the rest where that file shows another
//! process or an exec, or where the rest is old. Reads that may hang are left to the background
//! caches ([`CommandLineCache`], [`ContainerCache`], [`Users`]), and filled in when they arrive.

mod cached;

use super::accounts::SlurmAccounts;
use super::ancestors::{AncestorCache, cgroup_location, executable, lineage};
use super::cgroup::{CgroupContainer, CgroupView};
use super::commands::{CommandLineCache, NOT_READ_YET};
use super::containers::ContainerCache;
use super::cpu::CpuUsage;
use super::login_defs;
use super::namespace;
pub(crate) use super::process_metadata::ProcessMetadata;
use super::process_metadata::{ProcessDetails, to_parent};
use super::seat;
use super::status::{StatusFile, login_uid};
use super::users::Users;
use crate::fault::PartFault;
use crate::procfs::stat::{Stat, terminal_name};
use crate::procfs::{is_absent, read_at_most, read_failure};
use cached::{CachedProcess, has_executed, job_of};
use gpukill_policy::job::{ProcessLineage, notebook_servers, runs_notebook_kernel};
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _};
use gpukill_proto::model::{FaultCode, ProcessKey, ProcessLocation};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reads process metadata, and caches it.
pub(crate) struct ProcessReader {
    root: PathBuf,
    ticks_per_second: u64,
    page_size: u64,
    own_user_namespace: Option<PathBuf>,
    view: CgroupView,
    command_lines: CommandLineCache,
    containers: ContainerCache,
    accounts: SlurmAccounts,
    /// The root of logind's session files.
    host_root: PathBuf,
    /// The lowest uid of a person.
    uid_min: u32,
    cached: BTreeMap<u32, CachedProcess>,
    /// The requested PIDs that no process has.
    absent_pids: BTreeSet<u32>,
    /// The change count of the background caches when the entries were last completed.
    completed_changes: u64,
}

/// How long the metadata is cached at first: a process may change its user or its cgroup, and no
/// file that each poll reads shows that. Processes mostly do so while they are young, so the time
/// doubles with each read without a change.
const MIN_CACHE_TIME: Duration = Duration::from_secs(20);

const MAX_CACHE_TIME: Duration = Duration::from_secs(80);

/// How many ancestors of one process are reported.
const PARENTS_MAX: usize = 16;

impl ProcessReader {
    pub(crate) fn new(
        root: PathBuf,
        commands: CommandLineCache,
        containers: ContainerCache,
        accounts: SlurmAccounts,
        host_root: PathBuf,
    ) -> Self {
        Self {
            uid_min: login_defs::uid_min(&host_root),
            host_root,
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            page_size: rustix::param::page_size() as u64,
            own_user_namespace: namespace::own_user_namespace(),
            view: namespace::cgroup_view(&root),
            root,
            command_lines: commands,
            containers,
            accounts,
            cached: BTreeMap::new(),
            absent_pids: BTreeSet::new(),
            completed_changes: 0,
        }
    }

    /// The processes of these PIDs now; a PID without a process is absent from the answer. Requests
    /// everything that is read in the background.
    pub(crate) fn identify(
        &mut self,
        pids: &BTreeSet<u32>,
        now: Timestamp,
        users: &Users,
    ) -> BTreeMap<u32, ProcessMetadata> {
        let root = self.root.clone();
        let mut family = AncestorCache::new(&root, self.view, self.uid_min);
        let mut boot = None;
        let before = self.cached.len();
        self.cached.retain_entries(|pid, _| pids.contains(pid));
        self.absent_pids.clear();
        let mut changed = self.cached.len() != before;
        let mut identified = BTreeMap::new();
        for pid in pids {
            let Ok(stat) = self.read_stat(*pid) else {
                changed |= self.cached.remove(pid).is_some();
                continue;
            };
            if !self.is_fresh(*pid, &stat, now) {
                let boot = boot.get_or_insert_with(|| self.boot_time());
                self.read_process(*pid, &stat, now, boot, &mut family);
                self.complete(*pid, users);
                changed = true;
            }
            if let Some(known) = self.cached.get_mut(pid) {
                let memory = Bytes(stat.resident_pages.saturating_mul(self.page_size));
                let cpu = &mut known.cpu;
                let metadata = ProcessMetadata {
                    key: known.key,
                    memory: Reading::Value(memory),
                    cpu: cpu.update(stat.cpu_ticks, Instant::now(), self.ticks_per_second),
                    details: Arc::clone(&known.details),
                };
                identified.insert(*pid, metadata);
            }
        }
        if changed {
            self.forget_ended();
        }
        identified
    }

    /// The PIDs that no process had at the last [`Self::identify`], or that were reused during it.
    /// PIDs of processes that could not be read are not included.
    pub(crate) fn absent_pids(&self) -> &BTreeSet<u32> {
        &self.absent_pids
    }

    /// Waits for the requests, at most until `deadline`, and fills in the answers.
    pub(crate) fn settle(
        &mut self,
        identified: &mut BTreeMap<u32, ProcessMetadata>,
        users: &Users,
        deadline: Instant,
    ) {
        users.settle(deadline);
        self.command_lines.0.settle(deadline);
        self.containers.settle(deadline);
        self.accounts.0.settle(deadline);
        let changes = self.command_lines.0.changes() + self.containers.changes();
        let changes = changes + self.accounts.0.changes() + users.changes();
        if changes == self.completed_changes {
            return;
        }
        self.completed_changes = changes;
        for (pid, identity) in identified {
            self.complete(*pid, users);
            if let Some(known) = self.cached.get(pid) {
                identity.details = Arc::clone(&known.details);
            }
        }
    }

    /// The current faults of the reads: the part and the text.
    pub(crate) fn faults(&self) -> Vec<PartFault> {
        let commands = self.command_lines.fault().into_iter();
        let commands =
            commands.map(|fault| PartFault::new("processes", FaultCode::CommandLinesStuck, fault));
        let containers = self.containers.faults().into_iter();
        let containers = containers
            .map(|fault| PartFault::new("containers", FaultCode::ContainerFilesStuck, fault));
        commands.chain(containers).collect()
    }

    fn read_stat(&mut self, pid: u32) -> io::Result<Stat> {
        let stat = Stat::read(&self.root.join(pid.to_string()));
        if stat.as_ref().is_err_and(is_absent) {
            self.absent_pids.insert(pid);
        }
        stat
    }

    fn is_fresh(&self, pid: u32, stat: &Stat, now: Timestamp) -> bool {
        self.cached.get(&pid).is_some_and(|known| {
            known.is_unchanged(stat)
                && now.since(known.read_at) < known.cache_time
                && now >= known.read_at
        })
    }

    /// Reads everything that cannot hang.
    fn read_process(
        &mut self,
        pid: u32,
        stat: &Stat,
        now: Timestamp,
        boot: &io::Result<Timestamp>,
        family: &mut AncestorCache<'_>,
    ) {
        let directory = self.root.join(pid.to_string());
        let key = ProcessKey::new(pid, stat.start_ticks);
        let before = self.cached.remove(&pid).filter(|before| before.key == key);
        if before
            .as_ref()
            .is_some_and(|before| has_executed(&before.stat, stat))
        {
            // It executed another program.
            self.command_lines.0.forget(&key);
        }
        let status = StatusFile::read(&directory);
        let group = cgroup_location(&directory, self.view);
        let own_users = self.own_user_namespace.as_deref();
        let ancestors = family.ancestors_of(stat);
        let makers = namespace::user_namespace_creators(&directory, own_users);
        let maker = makers.known().and_then(|makers| makers.person);
        let uid = status.uids.known().map(|uids| uids.real);
        let person = ProcessDetails {
            uid_min: self.uid_min,
            at_seat: seat::is_display_at_seat(&stat.name, &self.host_root, &group, uid),
            started_at: self.started_at(key, boot),
            uids: status.uids,
            login_uid: login_uid(&directory),
            namespace_owner: makers.map(|makers| makers.outermost),
            slice: group.slice,
            name: stat.name.clone(),
            executable: executable(&directory),
            command: Reading::Failed(NOT_READ_YET.into()),
            inner_pid: status.inner_pid,
            location: ProcessLocation {
                container: Reading::Failed(NOT_READ_YET.into()),
                unit: group.unit,
                session: group.session,
                terminal: terminal_name(stat.terminal),
                scheduler: group.scheduler,
            },
            owner_label: None,
            account: before
                .as_ref()
                .and_then(|before| before.details.account.clone()),
            job: Reading::Failed(NOT_READ_YET.into()),
            parents: ancestors
                .processes
                .iter()
                .take(PARENTS_MAX)
                .map(to_parent)
                .collect(),
            notebook_servers: Vec::new(),
            is_notebook_kernel: false,
        };
        // All this was read by PID: if the PID was reused meanwhile, the data would be of two
        // processes. In that case this poll has no process for it.
        let again = self.read_stat(pid).map(|now| now.start_ticks);
        if !again.as_ref().is_ok_and(|it| *it == stat.start_ticks) {
            self.absent_pids.extend(again.is_ok().then_some(pid));
            return;
        }
        let uid = person.uids.known().map(|uids| uids.real);
        let is_as_before = |before: &&CachedProcess| {
            before.is_unchanged(stat)
                && before.details.uids == person.uids
                && before.details.location.unit == person.location.unit
                && before.cgroup_container == group.container
        };
        let same = before.as_ref().filter(is_as_before);
        let known = CachedProcess {
            key,
            stat: stat.clone(),
            read_at: now,
            cache_time: same.map_or(MIN_CACHE_TIME, |cached| {
                cached.cache_time.saturating_mul(2).min(MAX_CACHE_TIME)
            }),
            cpu: before.map_or_else(|| CpuUsage::new(stat.cpu_ticks), |before| before.cpu),
            cgroup_container: group.container,
            lineage: ProcessLineage {
                executable: person.executable.known().cloned(),
                namespace_creator: maker,
                ..lineage(pid, stat, uid, self.uid_min)
            },
            ancestors,
            details: Arc::new(person),
        };
        self.cached.insert(pid, known);
    }

    /// Fills in the answers of the background caches that have arrived, and requests the rest.
    fn complete(&mut self, pid: u32, users: &Users) {
        let Some(known) = self.cached.get_mut(&pid) else {
            return;
        };
        let file = |key: ProcessKey| self.root.join(key.pid.to_string()).join("cmdline");
        let person = Arc::make_mut(&mut known.details);
        person.command = self.command_lines.get(known.key, || file(known.key));
        let arguments = self.command_lines.arguments(known.key, || file(known.key));
        let arguments = arguments.known();
        person.is_notebook_kernel = arguments.is_some_and(|it| runs_notebook_kernel(it));
        (person.location.container, person.owner_label) = match &known.cgroup_container {
            Reading::Value(Some(contained)) => {
                let (container, label) = self.containers.get(contained, users);
                (Reading::Value(Some(container)), label)
            }
            Reading::Value(None) => (Reading::Value(None), None),
            unknown => (unknown.as_unknown(), None),
        };
        if person.account.is_none() {
            let directory = || self.root.join(pid.to_string());
            person.account = self.accounts.get(known.key, &person.location, directory);
        }
        let mut is_complete = true;
        for lineage in &mut known.ancestors.processes {
            if lineage.needs_arguments() {
                let arguments = self
                    .command_lines
                    .arguments(lineage.key, || file(lineage.key));
                is_complete &= arguments.failure() != Some(NOT_READ_YET);
                lineage.arguments = arguments.known().cloned();
            }
        }
        person.notebook_servers = notebook_servers(&known.lineage, &known.ancestors);
        person.job = if is_complete {
            job_of(&known.lineage, &known.ancestors, &person.location)
        } else {
            // Any of them may be a Jupyter server.
            Reading::Failed(NOT_READ_YET.into())
        };
        // Requested here, so that all requests are waited for together.
        let maker = person.namespace_owner.known().copied().flatten();
        let uid = known
            .lineage
            .uid
            .map_or(Reading::Unsupported, Reading::Value);
        let person_behind = users.person_behind(&uid, &person.namespace_owner, person.slice);
        let person_behind = person_behind.known().copied().flatten();
        for uid in known
            .lineage
            .uid
            .into_iter()
            .chain(maker)
            .chain(person_behind)
        {
            users.name(uid);
        }
    }

    /// Drops ended processes from the background caches.
    fn forget_ended(&self) {
        let known = self.cached.values();
        let keys: BTreeSet<ProcessKey> = known
            .clone()
            .flat_map(|known| {
                let ancestors = known.ancestors.processes.iter().map(|lineage| lineage.key);
                ancestors.chain([known.key])
            })
            .into_set();
        self.command_lines.0.keep_only(|key| keys.contains(key));
        self.accounts.0.keep_only(|key| keys.contains(key));
        let containers: BTreeSet<&CgroupContainer> = known
            .filter_map(|known| known.cgroup_container.known()?.as_ref())
            .into_set();
        self.containers
            .keep_only(|contained| containers.contains(contained));
    }

    fn started_at(&self, key: ProcessKey, boot: &io::Result<Timestamp>) -> Reading<Timestamp> {
        let boot = match boot {
            Ok(boot) => boot,
            Err(error) => return read_failure(io::Error::new(error.kind(), error.to_string())),
        };
        let ticks = i64::try_from(key.start_ticks).unwrap_or(i64::MAX);
        let per_second = i64::try_from(self.ticks_per_second).unwrap_or(i64::MAX);
        let after = ticks.saturating_mul(1000) / per_second;
        Reading::Value(Timestamp(boot.0.saturating_add(after)))
    }

    /// The boot time of the host. Each poll that needs it reads it again: the kernel shifts it when
    /// the clock is set.
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

#[cfg(test)]
mod tests;
