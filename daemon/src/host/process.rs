//! Who a pid is, from `/proc`. Every byte of it is the process's own to choose,
//! but for the numbers the kernel adds.
//!
//! A poll reads one small file of each process, and the rest where that says
//! that it is another one, or does something else, or where it is old. What may
//! hang is read by others ([`Commands`], [`Containers`], [`Users`]), and filled
//! in when it has come.

mod known;

use super::accounts::Accounts;
use super::cgroup::{Contained, View};
use super::commands::{Commands, NOT_YET};
use super::containers::Containers;
use super::cpu::Cpu;
use super::family::{Family, executable, group, kin};
pub(crate) use super::identity::Identity;
use super::identity::{Person, Usage, parent};
use super::login_defs;
use super::namespace;
use super::seat;
use super::status::{Status, login_uid};
use super::users::Users;
use crate::faults::FoundFault;
use crate::procfs::file::{failed, is_absent, read_at_most};
use crate::procfs::stat::{Stat, terminal};
use gpukill_policy::job::{Kin, notebook_servers};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{FaultCode, Place, ProcessKey};
use gpukill_proto::units::{Bytes, Timestamp};
use known::{Known, executes_another, job_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reads identities, and keeps them while they last.
pub(crate) struct Processes {
    root: PathBuf,
    ticks_per_second: u64,
    page_size: u64,
    own_users: Option<PathBuf>,
    view: View,
    commands: Commands,
    containers: Containers,
    accounts: Accounts,
    /// Below which logind's records lie.
    host_root: PathBuf,
    /// The first uid that is a person's.
    uid_min: u32,
    known: BTreeMap<u32, Known>,
    /// The pids that no process has, of those that were last asked for.
    absent: BTreeSet<u32>,
    /// How often something else was known than before, when the known ones were
    /// last completed.
    completed_at: u64,
}

/// After so long an identity is read again: a process may change its user or its
/// control group, and nothing that is read at each poll tells. Whoever does that does
/// it mostly while young: each time that nothing was new it is kept for twice as long.
const KEEP: Duration = Duration::from_secs(20);

/// An identity is kept for no longer.
const KEEP_MOST: Duration = Duration::from_secs(80);

/// So many ancestors are told of one process.
const PARENTS_MAX: usize = 16;

impl Processes {
    /// Reads below this root, `/proc` but in tests.
    pub(crate) fn new(
        root: PathBuf,
        commands: Commands,
        containers: Containers,
        accounts: Accounts,
        host_root: PathBuf,
    ) -> Self {
        Self {
            uid_min: login_defs::uid_min(&host_root),
            host_root,
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            page_size: rustix::param::page_size() as u64,
            own_users: namespace::own_users(),
            view: namespace::view(&root),
            root,
            commands,
            containers,
            accounts,
            known: BTreeMap::new(),
            absent: BTreeSet::new(),
            completed_at: 0,
        }
    }

    /// Who these pids are now; one that nobody has is not in the answer. Asks for
    /// everything that others read.
    pub(crate) fn identify(
        &mut self,
        pids: &BTreeSet<u32>,
        now: Timestamp,
        users: &Users,
    ) -> BTreeMap<u32, Identity> {
        let root = self.root.clone();
        let mut family = Family::new(&root, self.view);
        let mut boot = None;
        let before = self.known.len();
        self.known.retain(|pid, _| pids.contains(pid));
        self.absent.clear();
        let mut changed = self.known.len() != before;
        let mut people = BTreeMap::new();
        for pid in pids {
            let Ok(stat) = self.stat(*pid) else {
                changed |= self.known.remove(pid).is_some();
                continue;
            };
            if !self.is_known(*pid, &stat, now) {
                let boot = boot.get_or_insert_with(|| self.boot_time());
                self.read(*pid, &stat, now, boot, &mut family);
                self.complete(*pid, users);
                changed = true;
            }
            if let Some(known) = self.known.get_mut(pid) {
                let usage = Usage {
                    memory: Reading::Value(Bytes(
                        stat.resident_pages.saturating_mul(self.page_size),
                    )),
                    cpu: known
                        .cpu
                        .now(stat.cpu_ticks, Instant::now(), self.ticks_per_second),
                };
                people.insert(
                    *pid,
                    Identity {
                        key: known.key,
                        usage,
                        person: Arc::clone(&known.person),
                    },
                );
            }
        }
        if changed {
            self.forget_the_others();
        }
        people
    }

    /// The pids that no process had at the last [`Self::identify`], or that changed hands
    /// then. One whose process could not be read is not among them.
    pub(crate) fn absent(&self) -> &BTreeSet<u32> {
        &self.absent
    }

    /// Waits for what was asked for, but not past `deadline`, and fills it in.
    pub(crate) fn settle(
        &mut self,
        people: &mut BTreeMap<u32, Identity>,
        users: &Users,
        deadline: Instant,
    ) {
        users.settle(deadline);
        self.commands.settle(deadline);
        self.containers.settle(deadline);
        self.accounts.settle(deadline);
        let news = self.commands.changes() + self.containers.changes();
        let news = news + self.accounts.changes() + users.changes();
        if news == self.completed_at {
            return;
        }
        self.completed_at = news;
        for (pid, identity) in people {
            self.complete(*pid, users);
            if let Some(known) = self.known.get(pid) {
                identity.person = Arc::clone(&known.person);
            }
        }
    }

    /// What is wrong with finding them now: the part, and what.
    pub(crate) fn faults(&self) -> Vec<FoundFault> {
        let commands = self.commands.fault().into_iter();
        let commands =
            commands.map(|fault| FoundFault::new("processes", FaultCode::CommandLinesStuck, fault));
        let containers = self.containers.faults().into_iter();
        let containers = containers
            .map(|fault| FoundFault::new("containers", FaultCode::ContainerFilesStuck, fault));
        commands.chain(containers).collect()
    }

    fn stat(&mut self, pid: u32) -> io::Result<Stat> {
        let stat = Stat::read(&self.root.join(pid.to_string()));
        if stat.as_ref().is_err_and(is_absent) {
            self.absent.insert(pid);
        }
        stat
    }

    fn is_known(&self, pid: u32, stat: &Stat, now: Timestamp) -> bool {
        self.known.get(&pid).is_some_and(|known| {
            known.is_still(stat) && now.since(known.read_at) < known.keep && now >= known.read_at
        })
    }

    /// Everything that can be read at once.
    fn read(
        &mut self,
        pid: u32,
        stat: &Stat,
        now: Timestamp,
        boot: &io::Result<Timestamp>,
        family: &mut Family<'_>,
    ) {
        let directory = self.root.join(pid.to_string());
        let key = ProcessKey {
            pid,
            start_ticks: stat.start_ticks,
        };
        let before = self.known.remove(&pid).filter(|before| before.key == key);
        if before
            .as_ref()
            .is_some_and(|before| executes_another(&before.stat, stat))
        {
            // It executes something else now.
            self.commands.forget(key);
        }
        let status = Status::read(&directory);
        let group = group(&directory, self.view);
        let own_users = self.own_users.as_deref();
        let ancestors = family.above(stat);
        let makers = namespace::user_namespace_makers(&directory, own_users);
        let maker = makers.known().and_then(|makers| makers.person);
        let uid = status.uids.known().map(|uids| uids.real);
        let person = Person {
            uid_min: self.uid_min,
            at_seat: seat::is_display_at_seat(&stat.name, &self.host_root, &group, uid),
            started_at: self.started_at(key, boot),
            uids: status.uids,
            login_uid: login_uid(&directory),
            namespace_owner: makers.map(|makers| makers.outermost),
            slice: group.slice,
            name: stat.name.clone(),
            executable: executable(&directory),
            command: Reading::Failed(NOT_YET.into()),
            inner_pid: status.inner_pid,
            place: Place {
                container: Reading::Failed(NOT_YET.into()),
                unit: group.unit,
                session: group.session,
                terminal: terminal(stat.terminal),
                scheduler: group.scheduler,
            },
            label: None,
            account: before
                .as_ref()
                .and_then(|before| before.person.account.clone()),
            job: Reading::Failed(NOT_YET.into()),
            parents: ancestors
                .line
                .iter()
                .take(PARENTS_MAX)
                .map(parent)
                .collect(),
            notebook_servers: Vec::new(),
        };
        // All this was read by the pid: had it changed hands meanwhile, it would
        // be of two processes. Then this poll knows nobody of it.
        let again = self.stat(pid).map(|now| now.start_ticks);
        if !again.as_ref().is_ok_and(|it| *it == stat.start_ticks) {
            self.absent.extend(again.is_ok().then_some(pid));
            return;
        }
        let uid = person.uids.known().map(|uids| uids.real);
        let is_as_before = |before: &&Known| {
            before.is_still(stat)
                && before.person.uids == person.uids
                && before.person.place.unit == person.place.unit
                && before.contained == group.container
        };
        let same = before.as_ref().filter(is_as_before);
        let known = Known {
            key,
            stat: stat.clone(),
            read_at: now,
            keep: same.map_or(KEEP, |it| it.keep.saturating_mul(2).min(KEEP_MOST)),
            cpu: before.map_or_else(|| Cpu::first(stat.cpu_ticks), |before| before.cpu),
            contained: group.container,
            itself: Kin {
                executable: person.executable.known().cloned(),
                maker,
                ..kin(pid, stat, uid)
            },
            ancestors,
            person: Arc::new(person),
        };
        self.known.insert(pid, known);
    }

    /// Fills in what others read, as far as it has come, and asks for the rest.
    fn complete(&mut self, pid: u32, users: &Users) {
        let Some(known) = self.known.get_mut(&pid) else {
            return;
        };
        let file = |key: ProcessKey| self.root.join(key.pid.to_string()).join("cmdline");
        let person = Arc::make_mut(&mut known.person);
        person.command = self.commands.of(known.key, || file(known.key));
        (person.place.container, person.label) = match &known.contained {
            Reading::Value(Some(contained)) => {
                let (container, label) = self.containers.of(contained, users);
                (Reading::Value(Some(container)), label)
            }
            Reading::Value(None) => (Reading::Value(None), None),
            unknown => (unknown.because(), None),
        };
        if person.account.is_none() {
            let directory = || self.root.join(pid.to_string());
            person.account = self.accounts.of(known.key, &person.place, directory);
        }
        let mut is_complete = true;
        for kin in &mut known.ancestors.line {
            if kin.needs_arguments() {
                let arguments = self.commands.arguments_of(kin.key, || file(kin.key));
                is_complete &= arguments.failure() != Some(NOT_YET);
                kin.arguments = arguments.known().cloned();
            }
        }
        person.notebook_servers = notebook_servers(&known.itself, &known.ancestors);
        person.job = if is_complete {
            job_of(&known.itself, &known.ancestors, &person.place)
        } else {
            // Who of them is a Jupyter server is not known yet.
            Reading::Failed(NOT_YET.into())
        };
        // Asked for here, so that all are waited for together.
        let maker = person.namespace_owner.known().copied().flatten();
        let uid = known
            .itself
            .uid
            .map_or(Reading::Unsupported, Reading::Value);
        let behind = users.behind(&uid, &person.namespace_owner, person.slice);
        let behind = behind.known().copied().flatten();
        for uid in known.itself.uid.into_iter().chain(maker).chain(behind) {
            users.name(uid);
        }
    }

    /// Lets others forget what is known of processes that are no more.
    fn forget_the_others(&self) {
        let known = self.known.values();
        let keys: BTreeSet<ProcessKey> = known
            .clone()
            .flat_map(|known| {
                let ancestors = known.ancestors.line.iter().map(|kin| kin.key);
                ancestors.chain([known.key])
            })
            .into_set();
        self.commands.keep_only(|key| keys.contains(key));
        self.accounts.keep_only(|key| keys.contains(key));
        let containers: BTreeSet<&Contained> = known
            .filter_map(|known| known.contained.known()?.as_ref())
            .into_set();
        self.containers
            .keep_only(|contained| containers.contains(contained));
    }

    fn started_at(&self, key: ProcessKey, boot: &io::Result<Timestamp>) -> Reading<Timestamp> {
        let boot = match boot {
            Ok(boot) => boot,
            Err(error) => return failed(io::Error::new(error.kind(), error.to_string())),
        };
        let ticks = i64::try_from(key.start_ticks).unwrap_or(i64::MAX);
        let per_second = i64::try_from(self.ticks_per_second).unwrap_or(i64::MAX);
        let after = ticks.saturating_mul(1000) / per_second;
        Reading::Value(Timestamp(boot.0.saturating_add(after)))
    }

    /// When the box booted. Read in each poll that needs it: the kernel moves it
    /// when the clock is set.
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
