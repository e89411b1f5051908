//! One scan of the descriptors that are open on a card: decides which of them are read, and which
//! client is behind each.
//!
//! A driver may take locks to answer, so each client is read through one of its descriptors; the
//! others are only checked now and then for a change of client.

use super::bounds::{
    IncompleteProcesses, MAX_CLIENT_READS_PER_PERSON, MAX_CLIENTS, MAX_READS, MAX_READS_PER_PERSON,
    ReadBudget, client_quotas,
};
use super::counter::CounterHistory;
use super::shares::sum_bytes;
use crate::backend::drm::card::DrmCard;
use crate::backend::drm::engines::{self, Driver, EngineRole, RegionKind};
use crate::backend::drm::fdinfo::{self, FdInfo, Region, TEXT_MAX};
use crate::fd_scan::{DeviceNumber, OpenDescriptor};
use crate::procfs::{is_absent, read_at_most, read_failure};
use gpukill_policy::memory::Sharing;
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::model::{GpuUse, ProcessKey};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a descriptor is assumed to belong to the same client.
pub(super) const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(super) type ProcessDescriptor = (ProcessKey, OpenDescriptor);

/// The result of the last reading of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DescriptorState {
    client: DescriptorClient,
    read_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DescriptorClient {
    /// It belongs to this client.
    Client(ClientId),
    /// It belongs to a client of this card for which the driver reports nothing.
    Unreported,
    /// It belongs to no client of this card.
    Foreign,
}

/// Identifies a client of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientId {
    /// The driver's number: unique within the device, and without a PCI address within the device
    /// file. Numbers grow with each opened descriptor.
    Numbered(u64, Option<DeviceNumber>),
    /// The driver gives no number. Copies of such a descriptor cannot be recognized as the same
    /// client: each copy counts.
    Unnumbered(ProcessDescriptor),
}

/// A client at its last reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScannedClient {
    read_through: ProcessDescriptor,
    /// The processes that have it open.
    pub(super) holders: BTreeSet<ProcessKey>,
    pub(super) history: CounterHistory,
    /// The card's own memory that it holds.
    pub(super) own: HeldMemory,
    /// Host memory that it holds through the card.
    pub(super) host: HeldMemory,
    /// The driver reports memory of the card's own for it.
    pub(super) has_own: bool,
    pub(super) used_for: GpuUse,
}

/// Memory of one kind that a client holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldMemory {
    pub(super) bytes: Reading<Bytes>,
    /// How much of it other clients may hold too.
    pub(super) sharing: Sharing,
}

/// The state that one scan leaves for the next.
#[derive(Debug, Default)]
pub(super) struct ClientScanState {
    pub(super) clients: BTreeMap<ClientId, ScannedClient>,
    descriptors: BTreeMap<ProcessDescriptor, DescriptorState>,
}

impl ClientScanState {
    /// The processes with clients for which the driver reports nothing.
    pub(super) fn unreported_processes(&self) -> BTreeSet<ProcessKey> {
        let descriptors = self.descriptors.iter();
        let silent = descriptors.filter(|(_, state)| state.client == DescriptorClient::Unreported);
        silent.map(|((key, _), _)| *key).into_set()
    }
}

pub(super) struct ClientScan<'a> {
    root: &'a Path,
    card: &'a DrmCard,
    driver: &'static Driver,
    now: &'a dyn Fn() -> Instant,
    previous: ClientScanState,
    current: ClientScanState,
    incomplete_reason: Option<String>,
    incomplete: IncompleteProcesses,
    person: &'a dyn Fn(&ProcessKey) -> Option<u32>,
    /// The number of clients still allowed for each person.
    quotas: BTreeMap<Option<u32>, usize>,
}

impl<'a> ClientScan<'a> {
    pub(super) fn new(
        root: &'a Path,
        card: &'a DrmCard,
        now: &'a dyn Fn() -> Instant,
        person: &'a dyn Fn(&ProcessKey) -> Option<u32>,
        before: ClientScanState,
    ) -> Self {
        Self {
            root,
            card,
            driver: engines::driver_by_name(&card.driver),
            now,
            previous: before,
            current: ClientScanState::default(),
            incomplete_reason: None,
            incomplete: IncompleteProcesses::default(),
            person,
            quotas: BTreeMap::new(),
        }
    }

    /// Scans these descriptors: first those through which clients were read, so that the others
    /// need not be read. Also returns the processes that were not read completely, and why there
    /// may be more clients.
    pub(super) fn scan_all(
        mut self,
        descriptors: &[ProcessDescriptor],
    ) -> (ClientScanState, IncompleteProcesses, Option<String>) {
        self.quotas = client_quotas(descriptors, self.person, MAX_CLIENTS);
        let clients = self.previous.clients.values();
        let readers: BTreeSet<ProcessDescriptor> =
            clients.map(|client| client.read_through).into_set();
        let (mut readers, mut others): (Vec<&ProcessDescriptor>, Vec<&ProcessDescriptor>) =
            descriptors
                .iter()
                .partition(|descriptor| readers.contains(descriptor));
        // Descriptors that were never read come first, then those that have waited longest.
        let read_at = |state: &ClientScanState, descriptor: &ProcessDescriptor| {
            let last = state.descriptors.get(descriptor);
            last.map(|last| last.read_at)
        };
        readers.sort_indirect_by_key(|it| read_at(&self.previous, it));
        let mut budget = ReadBudget::new(
            &readers,
            self.person,
            MAX_CLIENT_READS_PER_PERSON,
            MAX_READS,
        );
        // A client that is not due may be found through a descriptor that is read.
        let (now, later): (Vec<&ProcessDescriptor>, Vec<&ProcessDescriptor>) = readers
            .into_iter()
            .partition(|descriptor| budget.take(descriptor.0));
        for descriptor in now {
            self.read_descriptor(*descriptor);
        }
        for descriptor in later {
            self.keep_client(*descriptor);
        }
        others.retain(|descriptor| !self.is_client_known(descriptor));
        others.sort_indirect_by_key(|it| read_at(&self.previous, it));
        let mut budget = ReadBudget::new(&others, self.person, MAX_READS_PER_PERSON, MAX_READS);
        for descriptor in others {
            // A descriptor that was read before this one may answer for it.
            if self.is_client_known(descriptor) {
                continue;
            }
            if budget.take(descriptor.0) {
                self.read_descriptor(*descriptor);
            } else if !self.keep_descriptor(descriptor) {
                self.incomplete.waiting.insert(descriptor.0);
            }
        }
        (self.current, self.incomplete, self.incomplete_reason)
    }

    /// Keeps the client that was read through this descriptor at its last values.
    fn keep_client(&mut self, descriptor: ProcessDescriptor) {
        let Some(last) = self.previous.descriptors.get(&descriptor) else {
            return;
        };
        self.incomplete.waiting.insert(descriptor.0);
        if let DescriptorClient::Client(id) = last.client
            && !self.current.clients.contains_key(&id)
            && let Some(before) = self.previous.clients.remove(&id)
            && self.take_quota(&descriptor)
        {
            let holders = BTreeSet::from([descriptor.0]);
            self.current
                .clients
                .insert(id, ScannedClient { holders, ..before });
        }
        self.keep_descriptor(&descriptor);
    }

    /// Takes one more client from the person's quota, if any is left.
    fn take_quota(&mut self, descriptor: &ProcessDescriptor) -> bool {
        let room = self.quotas.entry((self.person)(&descriptor.0)).or_default();
        let has_room = *room > 0;
        if has_room {
            *room -= 1;
        } else {
            self.incomplete.over_limit.insert(descriptor.0);
        }
        has_room
    }

    /// Whether the client of this descriptor is known without reading it.
    fn is_client_known(&mut self, descriptor: &ProcessDescriptor) -> bool {
        let is_recent = self
            .previous
            .descriptors
            .get(descriptor)
            .is_some_and(|last| {
                (self.now)().saturating_duration_since(last.read_at) < RECHECK_INTERVAL
            });
        is_recent && self.keep_descriptor(descriptor)
    }

    /// Keeps the last result of a descriptor, if there is one and its client was found.
    fn keep_descriptor(&mut self, descriptor: &ProcessDescriptor) -> bool {
        let Some(last) = self.previous.descriptors.get(descriptor) else {
            return false;
        };
        if let DescriptorClient::Client(id) = last.client {
            // The client was not found at its former descriptor: it may be behind this one.
            let Some(client) = self.current.clients.get_mut(&id) else {
                return false;
            };
            client.holders.insert(descriptor.0);
        }
        self.current.descriptors.insert(*descriptor, last.clone());
        true
    }

    fn read_descriptor(&mut self, descriptor: ProcessDescriptor) {
        let bytes = read_at_most(
            &descriptor_file(self.root, "fdinfo", &descriptor),
            TEXT_MAX as u64 + 1,
        );
        // The time of this reading: the whole scan may take long.
        let at = (self.now)();
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                self.incomplete_reason = self
                    .incomplete_reason
                    .take()
                    .or(hidden_client_reason(error));
                return;
            }
        };
        let fdinfo = fdinfo::parse(&bytes);
        let what = match &fdinfo {
            Some(fdinfo) if is_from_card(fdinfo, self.card) => {
                DescriptorClient::Client(ClientId::from_fdinfo(fdinfo, descriptor))
            }
            None if !fdinfo::is_drm(&bytes) && self.is_render_node(&descriptor) => {
                DescriptorClient::Unreported
            }
            Some(_) | None => DescriptorClient::Foreign,
        };
        self.current.descriptors.insert(
            descriptor,
            DescriptorState {
                client: what,
                read_at: at,
            },
        );
        if let (Some(fdinfo), DescriptorClient::Client(id)) = (fdinfo, what) {
            self.record_client(id, &fdinfo, descriptor, at);
        }
    }

    /// Whether this is still open on the card's render node. The card's other node is not
    /// considered: display programs and programs that listen for changes have it open, too, and may
    /// not use the GPU.
    fn is_render_node(&self, descriptor: &ProcessDescriptor) -> bool {
        let mut nodes = self.card.nodes.iter();
        nodes.any(|node| node.number == descriptor.1.number && node.name.starts_with("renderD"))
            && std::fs::metadata(descriptor_file(self.root, "fd", descriptor)).is_ok_and(|now| {
                let number = now.rdev();
                let number = (rustix::fs::major(number), rustix::fs::minor(number));
                number == (descriptor.1.number.major, descriptor.1.number.minor)
            })
    }

    /// Records the report on a client, unless another descriptor already reported it.
    fn record_client(
        &mut self,
        id: ClientId,
        fdinfo: &FdInfo,
        descriptor: ProcessDescriptor,
        at: Instant,
    ) {
        if let Some(client) = self.current.clients.get_mut(&id) {
            client.holders.insert(descriptor.0);
            return;
        }
        if !self.take_quota(&descriptor) {
            return;
        }
        let history = match self.previous.clients.remove(&id) {
            Some(before) => before.history.after_reading(fdinfo, at, self.driver),
            None => CounterHistory::from_first_reading(fdinfo, at),
        };
        let is_own = |name: &String| self.driver.region_kind(name) == RegionKind::Own;
        let client = ScannedClient {
            read_through: descriptor,
            holders: BTreeSet::from([descriptor.0]),
            history,
            own: HeldMemory::from_fdinfo(fdinfo, self.driver, RegionKind::Own),
            host: HeldMemory::from_fdinfo(fdinfo, self.driver, RegionKind::Host),
            has_own: fdinfo.regions.keys().any(is_own),
            used_for: used_for(fdinfo, self.driver),
        };
        self.current.clients.insert(id, client);
    }
}

impl HeldMemory {
    fn from_fdinfo(fdinfo: &FdInfo, driver: &Driver, memory: RegionKind) -> Self {
        if let Some(why) = fdinfo.oversize_reason {
            return Self {
                bytes: Reading::Failed(why.to_owned()),
                sharing: Sharing::NONE,
            };
        }
        let regions = fdinfo.regions.iter();
        let regions = regions.filter(|(name, _)| driver.region_kind(name) == memory);
        let regions: Vec<&Region> = regions.map(|(_, region)| region).collect();
        let parts = regions.iter().map(|it| it.resident().clone().map(Bytes));
        let bytes = sum_bytes(&parts.collect::<Vec<_>>());
        let mut shared = regions.iter().map(|it| it.shared_resident());
        let shared = shared.try_fold(0u64, |sum, part| Some(sum.saturating_add(part?)));
        let known = bytes.known().copied();
        Self {
            sharing: known.map_or(Sharing::NONE, |held| {
                Sharing::from_client(held, shared.map(Bytes))
            }),
            bytes,
        }
    }
}

impl ClientId {
    fn from_fdinfo(fdinfo: &FdInfo, descriptor: ProcessDescriptor) -> Self {
        let number = fdinfo.pdev.is_none().then_some(descriptor.1.number);
        fdinfo.client.map_or(Self::Unnumbered(descriptor), |id| {
            Self::Numbered(id, number)
        })
    }

    /// The driver's number, where it has one.
    pub(super) const fn number(self) -> Option<u64> {
        match self {
            Self::Numbered(number, _) => Some(number),
            Self::Unnumbered(_) => None,
        }
    }
}

/// The entry of a descriptor in `fd` or `fdinfo`.
fn descriptor_file(root: &Path, directory: &str, (key, open): &ProcessDescriptor) -> PathBuf {
    let process = root.join(key.pid.to_string());
    let task = match open.thread {
        Some(thread) => process.join("task").join(thread.to_string()),
        None => process,
    };
    task.join(directory).join(open.fd.to_string())
}

/// The process that has the card open was found, but the kernel shows its descriptors only to
/// processes that may trace it (`proc(5)`), whether it belongs to another user or not.
const NOT_PERMITTED: &str = "a process that has it open cannot be inspected: gpukilld lacks \
                             CAP_SYS_PTRACE, or /proc is mounted with hidepid=";

/// Why a client may have been missed; `None` if only this descriptor or its process is gone.
fn hidden_client_reason(error: io::Error) -> Option<String> {
    if is_absent(&error) {
        return None;
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Some(NOT_PERMITTED.into());
    }
    let why: Reading<()> = read_failure(error);
    let why = why.failure().unwrap_or_default();
    Some(format!("a descriptor cannot be read: {why}"))
}

/// Whether the report is from this card: a descriptor may have been closed since it was found, and
/// its number may now belong to another file.
fn is_from_card(fdinfo: &FdInfo, card: &DrmCard) -> bool {
    match &fdinfo.pdev {
        Some(pdev) => card.pci.as_ref().is_some_and(|pci| pci.slot == *pdev),
        None => engines::is_same_driver(&card.driver, &fdinfo.driver),
    }
}

/// Derived from the engines that the client has ever used.
fn used_for(fdinfo: &FdInfo, driver: &Driver) -> GpuUse {
    let used = |role| {
        fdinfo.engines.iter().any(|(name, engine)| {
            let counters = [&engine.busy, &engine.cycles];
            let mut counters = counters.into_iter().filter_map(|counter| counter.known());
            driver.role(name) == role && counters.any(|count| *count > 0)
        })
    };
    GpuUse {
        compute: used(EngineRole::Compute),
        graphics: used(EngineRole::Graphics),
        mps: false,
    }
}

#[cfg(test)]
impl ClientScanState {
    /// The number of descriptors read so far.
    pub(super) fn descriptors_read(&self) -> usize {
        self.descriptors.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_descriptors_are_not_reported() {
        let cases = [
            (rustix::io::Errno::NOENT, None),
            (rustix::io::Errno::SRCH, None),
            (rustix::io::Errno::ACCESS, Some(NOT_PERMITTED)),
            (rustix::io::Errno::PERM, Some(NOT_PERMITTED)),
            (
                rustix::io::Errno::IO,
                Some("a descriptor cannot be read: Input/output error (os error 5)"),
            ),
        ];
        for (errno, expected) in cases {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(hidden_client_reason(error).as_deref(), expected, "{errno}");
        }
    }
}
