//! Reads one card completely: combines the card's own files with the activity of its clients.

use super::amd::AmdCard;
use super::card::DrmCard;
use super::clients::{CardUsage, ClientReader, ProcessUsage, sharing_by_process};
use super::contradiction::Contradiction;
use super::family::DrmFamily;
use super::intel::IntelCard;
use super::{CardReadings, KfdProcess, names, other, runtime_pm};
use crate::backend::{
    Backend, BackendError, BackendReadings, DeviceReadings, ProcessReadings, Roots, Utilization,
};
use crate::fault::FaultCause;
use crate::fd_scan::{FdScanHandle, FileHolders, OpenDescriptor};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::model::{BackendState, FaultCode, GpuUse, Vitals};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// One card, and the state kept from one poll to the next.
pub(super) struct CardReader {
    family: DrmFamily,
    card: DrmCard,
    driver_reader: DriverReader,
    clients: ClientReader,
    contradiction: Contradiction,
    holders: FdScanHandle,
    host_root: PathBuf,
    /// Set after the first lookup.
    name: Option<String>,
    /// The last readings and their time. `None` if the card has slept since.
    last: Option<(Instant, DeviceReadings)>,
}

/// The reader of a driver's own files.
enum DriverReader {
    Amd(Box<AmdCard>),
    Intel(IntelCard),
    Other,
}

impl CardReader {
    pub(super) fn new(
        family: DrmFamily,
        card: DrmCard,
        roots: &Roots,
        holders: FdScanHandle,
    ) -> Self {
        let own = match family {
            DrmFamily::Amd => DriverReader::Amd(Box::new(AmdCard::new(&card, &roots.sysfs))),
            DrmFamily::Intel => DriverReader::Intel(IntelCard::new()),
            DrmFamily::Other => DriverReader::Other,
        };
        Self {
            family,
            driver_reader: own,
            clients: ClientReader::new(
                roots.procfs.clone(),
                roots.sysfs.clone(),
                Arc::clone(&roots.people),
            ),
            contradiction: Contradiction::default(),
            holders,
            host_root: roots.host.clone(),
            name: None,
            last: None,
            card,
        }
    }

    fn read_device(
        &mut self,
        file_holders: &FileHolders,
        now: Instant,
    ) -> (DeviceReadings, Vec<FaultCause>) {
        if self.card.is_suspended() {
            self.last = None;
            if let DriverReader::Amd(amd) = &mut self.driver_reader {
                amd.forget_missing_attributes();
            }
            return (self.suspended_device(), Vec::new());
        }
        if let Some(device) = self.readings_without_access(file_holders, now) {
            return (device, Vec::new());
        }
        let readings = match &mut self.driver_reader {
            DriverReader::Amd(amd) => amd.read(&self.card, now),
            DriverReader::Intel(intel) => intel.read(&self.card),
            DriverReader::Other => other::read(&self.card),
        };
        let used = self.clients.read(&self.card, file_holders);
        self.holders
            .hint(readings.kfd_processes.iter().map(|it| it.pid));
        let mut faults = readings.faults.clone();
        let fault = used.fault.clone();
        let clients_share = used.utilization.clone();
        let mut device = self.combine(readings, used);
        device.name = self.card_name();
        device.vitals = self.contradiction.resolve(device.vitals, &clients_share);
        // If a list could not be read, the processes on the card are unknown.
        self.last = faults.is_empty().then(|| (now, device.clone()));
        faults.extend(fault.map(|what| FaultCause::new(FaultCode::DescriptorsLeftOut, what)));
        (device, faults)
    }

    /// The last readings of a card that is not read now: no process uses it, and it would fall
    /// asleep by itself.
    fn readings_without_access(
        &self,
        file_holders: &FileHolders,
        now: Instant,
    ) -> Option<DeviceReadings> {
        let (then, device) = self.last.as_ref()?;
        let since = now.saturating_duration_since(*then);
        if !is_unused(device, file_holders) || since >= runtime_pm::read_pause(&self.card)? {
            return None;
        }
        if let DriverReader::Amd(amd) = &self.driver_reader
            && !amd.has_no_kfd_processes()
        {
            return None;
        }
        let age = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
        let vitals = Vitals {
            suspended: Reading::Value(false),
            ..device.vitals.clone().aged(age)
        };
        // The size of the memory is constant, and so is its use without processes; AMD's driver
        // reports the use without accessing the card.
        let (memory, vitals) = match &self.driver_reader {
            DriverReader::Amd(amd) => amd.read_counters(vitals),
            DriverReader::Intel(_) | DriverReader::Other => (device.memory.clone(), vitals),
        };
        Some(DeviceReadings {
            memory,
            vitals,
            ..device.clone()
        })
    }

    /// A suspended card is not woken: reading it, or its clients, would wake it.
    fn suspended_device(&mut self) -> DeviceReadings {
        let why = Reading::Failed("asleep: not woken for a reading".to_owned());
        let device = DeviceReadings::unknown(self.card.id(), 0, self.card.vendor(), &why);
        DeviceReadings {
            name: self.card_name(),
            pci: self.card.pci_slot(),
            vitals: Vitals {
                suspended: Reading::Value(true),
                ..device.vitals
            },
            nodes: self.card.nodes.clone(),
            ..device
        }
    }

    fn card_name(&mut self) -> Reading<String> {
        let name = || names::card_name(&self.host_root, &self.card);
        Reading::Value(self.name.get_or_insert_with(name).clone())
    }

    fn combine(&self, readings: CardReadings, used: CardUsage) -> DeviceReadings {
        let mut vitals = readings.vitals;
        let own_is_better = match self.family {
            DrmFamily::Amd | DrmFamily::Other => true,
            // Intel's own files report how long its engines were powered, which is longer than they
            // worked.
            DrmFamily::Intel => used.utilization.known().is_none(),
        };
        if !own_is_better || vitals.utilization == Reading::Unsupported {
            vitals.utilization = used.utilization;
        }
        if vitals.encoder == Reading::Unsupported {
            vitals.encoder = used.encoder;
        }
        if vitals.decoder == Reading::Unsupported {
            vitals.decoder = used.decoder;
        }
        vitals.suspended = Reading::Value(false);
        let mut memory = readings.memory;
        // The GPU of a platform usually shares the host's memory; its clients report it exactly.
        memory.unified &= self.family != DrmFamily::Other || !used.has_own_memory;
        let mut clients = used.processes;
        if self.family == DrmFamily::Amd && memory.unified {
            // Its own memory and the host's are one memory here.
            for client in &mut clients {
                client.memory = add_memory(&client.memory, &client.host_memory);
                client.sharing = client.sharing.combine(client.host_sharing);
            }
        }
        let mut nodes = self.card.nodes.clone();
        nodes.extend(readings.nodes);
        let unknown =
            DeviceReadings::unknown(self.card.id(), 0, self.card.vendor(), &Reading::Unsupported);
        DeviceReadings {
            pci: self.card.pci_slot(),
            sharing: sharing_by_process(&clients),
            processes: Reading::Value(merge_processes(
                clients,
                readings.kfd_processes,
                memory.total.known(),
            )),
            memory,
            vitals,
            instances: readings.instances,
            incomplete_reason: used.incomplete_reason,
            shared_clients: used.shared_clients,
            passed_clients: used.passed_clients,
            nodes,
            ..unknown
        }
    }
}

/// Whether no process has the card open, as far as the driver and the descriptor scan know, and
/// both are complete.
fn is_unused(device: &DeviceReadings, file_holders: &FileHolders) -> bool {
    let own = |open: &OpenDescriptor| {
        let mut nodes = device.nodes.iter().filter(|node| !node.shared);
        nodes.any(|node| node.number == open.number)
    };
    let is_listed = device.processes != Reading::Value(Vec::new());
    let is_known = device.incomplete_reason.is_none() && file_holders.incomplete_reason.is_none();
    is_known && !is_listed && !file_holders.processes.values().flatten().any(own)
}

/// The sum of two parts of one memory.
fn add_memory(one: &Reading<Bytes>, other: &Reading<Bytes>) -> Reading<Bytes> {
    let add = |one: Bytes, other: Bytes| Reading::Value(Bytes(one.0.saturating_add(other.0)));
    one.clone().combine_supported(other.clone(), add)
}

/// Each process once. A process that is both a client and in the driver's own list holds the
/// greater of the two values: both report the same memory.
fn merge_processes(
    clients: Vec<ProcessUsage>,
    listed: Vec<KfdProcess>,
    total: Option<&Bytes>,
) -> Vec<ProcessReadings> {
    let mut all: BTreeMap<u32, ProcessReadings> = clients
        .into_iter()
        .map(|client| {
            let process = ProcessReadings {
                pid: client.key.pid,
                start_ticks: Some(client.key.start_ticks),
                instance: None,
                used_for: client.used_for,
                memory: client.memory,
                utilization: client.utilization,
            };
            (process.pid, process)
        })
        .into_map();
    for listed_process in listed {
        let process = all
            .entry(listed_process.pid)
            .or_insert_with(|| ProcessReadings {
                pid: listed_process.pid,
                start_ticks: None,
                instance: None,
                used_for: GpuUse::default(),
                memory: Reading::Unsupported,
                utilization: Utilization::unknown(&Reading::Unsupported),
            });
        process.used_for.compute = true;
        process.memory = greater_memory(process.memory.clone(), listed_process.memory);
        // Engine counters do not include the work of KFD's queues: by them, a computing process
        // would be idle.
        process.utilization.sm = listed_process.occupancy;
    }
    for process in all.values_mut() {
        if process
            .memory
            .known()
            .zip(total)
            .is_some_and(|(held, all)| held > all)
        {
            process.memory =
                Reading::Failed("the driver reports more memory than the card has".into());
        }
    }
    all.into_values().collect()
}

/// The greater of two reports of the same memory.
fn greater_memory(one: Reading<Bytes>, other: Reading<Bytes>) -> Reading<Bytes> {
    one.combine_supported(other, |one, other| Reading::Value(one.max(other)))
}

impl Backend for CardReader {
    fn name(&self) -> &'static str {
        self.family.name()
    }

    fn read(&mut self) -> Result<BackendReadings, BackendError> {
        let file_holders = self.holders.file_holders();
        let (device, faults) = self.read_device(&file_holders, Instant::now());
        Ok(BackendReadings {
            devices: vec![device],
            faults,
            ..BackendReadings::without_devices(BackendState::Ready)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::card;
    use super::*;
    use crate::backend::drm::clients::{PersonLookup, ProcessAccount};
    use crate::fd_scan::{DeviceNumber, FIRST_SCAN_PENDING};
    use gpukill_policy::memory::Sharing;
    use gpukill_proto::model::ProcessKey;
    use gpukill_proto::units::Percent;

    /// Every process belongs to user 1000.
    struct SingleUser;

    impl PersonLookup for SingleUser {
        fn account(&self, _: &std::path::Path) -> Option<ProcessAccount> {
            Some(ProcessAccount {
                user: 1000,
                slice: None,
            })
        }

        fn person(&self, account: ProcessAccount) -> Option<u32> {
            Some(account.user)
        }
    }

    fn client(pid: u32, memory: u64) -> ProcessUsage {
        ProcessUsage {
            key: ProcessKey::new(pid, 7),
            memory: Reading::Value(Bytes(memory)),
            sharing: Sharing::NONE,
            host_memory: Reading::Unsupported,
            host_sharing: Sharing::NONE,
            utilization: Utilization::unknown(&Reading::Unsupported),
            used_for: GpuUse::default(),
        }
    }

    fn listed(pid: u32, memory: Reading<Bytes>) -> KfdProcess {
        KfdProcess {
            pid,
            memory,
            occupancy: Reading::Unsupported,
        }
    }

    fn memories(clients: Vec<ProcessUsage>, listed: Vec<KfdProcess>) -> Vec<(u32, Reading<Bytes>)> {
        let all = merge_processes(clients, listed, Some(&Bytes(100)));
        all.into_iter().map(|it| (it.pid, it.memory)).collect()
    }

    /// The descriptor scan with these render nodes open.
    fn found(minors: &[u32], incomplete: Option<&str>) -> FileHolders {
        let open = |minor: &u32| OpenDescriptor {
            number: DeviceNumber::new(226, *minor),
            fd: 5,
            thread: None,
        };
        let key = client(4_711, 0).key;
        let opens: Vec<OpenDescriptor> = minors.iter().map(open).collect();
        FileHolders {
            processes: [(key, opens)].into(),
            incomplete_reason: incomplete.map(str::to_owned),
            ..FileHolders::default()
        }
    }

    #[test]
    fn unused_sleepy_card_is_read_rarely() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("class/drm/card0/device");
        let write = |file: &str, text: &str| {
            let file = device.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let files = [
            ("drm/renderD128/dev", "226:128\n"),
            ("mem_info_vram_total", "1000\n"),
            ("power/control", "auto\n"),
            ("power/autosuspend_delay_ms", "20000\n"),
        ];
        let mut one = amd(root.path(), &files);
        for (file, text) in [
            ("generation_id", "1\n"),
            ("nodes/1/gpu_id", "4242\n"),
            (
                "nodes/1/properties",
                "location_id 0\ndrm_render_minor 128\n",
            ),
        ] {
            write(&format!("../../../kfd/kfd/topology/{file}"), text);
        }
        let kfd = root.path().join("class/kfd/kfd/proc");
        let lists = |pid: u32, gpu: u32| {
            let process = kfd.join(pid.to_string());
            std::fs::create_dir_all(&process).unwrap();
            std::fs::write(process.join(format!("vram_{gpu}")), "7\n").unwrap();
        };
        let start = Instant::now();
        // The values change before each call: the utilization is the second.
        let mut readings = |second: u32, control: &str, status: &str, found: &FileHolders| {
            write("gpu_busy_percent", &format!("{second}\n"));
            write("mem_info_vram_used", &format!("{second}\n"));
            write("power/control", control);
            write("power/runtime_status", status);
            let now = start + std::time::Duration::from_secs(second.into());
            let (device, faults) = one.read_device(found, now);
            assert_eq!(faults, []);
            assert_eq!(
                device.vitals.suspended,
                Reading::Value(status == "suspended")
            );
            (device.vitals.utilization, device.memory.used)
        };
        let fresh = |second| {
            let used = Reading::Value(Bytes(u64::from(second)));
            (Reading::Value(Percent(second)), used)
        };
        let old = |second, age| {
            let used = Reading::Value(Bytes(u64::from(second)));
            (Reading::Stale(Percent(second - age), age), used)
        };
        let no_holders = found(&[], None);
        let elsewhere = found(&[129], None);
        let here = found(&[129, 128], None);
        let unsure = found(&[], Some(FIRST_SCAN_PENDING));
        for (second, control, found, expected) in [
            (0, "auto", &no_holders, fresh(0)),
            (2, "auto", &no_holders, old(2, 2)),
            (31, "auto", &elsewhere, old(31, 31)),
            // One and a half times the autosuspend delay, plus two seconds.
            (32, "auto", &no_holders, fresh(32)),
            (34, "auto", &here, fresh(34)),
            (36, "auto", &no_holders, old(36, 2)),
            (38, "auto", &unsure, fresh(38)),
            (40, "on", &no_holders, fresh(40)),
            (42, "auto", &no_holders, old(42, 2)),
        ] {
            assert_eq!(
                readings(second, control, "active", found),
                expected,
                "{second}"
            );
        }
        let why = || "asleep: not woken for a reading".to_owned();
        let asleep = (Reading::Failed(why()), Reading::Failed(why()));
        assert_eq!(readings(44, "auto", "suspended", &no_holders), asleep);
        // The card was woken: its earlier values are outdated.
        assert_eq!(readings(46, "auto", "active", &no_holders), fresh(46));
        assert_eq!(readings(48, "auto", "active", &no_holders), old(48, 2));
        // A computing process is known before the descriptor scan has found it.
        lists(4_712, 4_243);
        assert_eq!(readings(50, "auto", "active", &no_holders), old(50, 4));
        lists(4_711, 4_242);
        assert_eq!(readings(52, "auto", "active", &no_holders), fresh(52));
        // An unreadable list may contain a process.
        std::fs::remove_dir_all(&kfd).unwrap();
        assert_eq!(readings(54, "auto", "active", &no_holders), fresh(54));
        assert_eq!(readings(56, "auto", "active", &no_holders), old(56, 2));
        std::fs::write(&kfd, "").unwrap();
        let (device, faults) =
            one.read_device(&no_holders, start + std::time::Duration::from_secs(58));
        assert_eq!(device.vitals.utilization, fresh(56).0);
        let unreadable = "KFD's list of processes: not readable";
        let unreadable = FaultCause::new(FaultCode::ProcessListFailed, unreadable);
        assert_eq!(faults, [unreadable]);
        // The processes were unknown then, so the card is read again.
        std::fs::remove_file(&kfd).unwrap();
        write("gpu_busy_percent", "60\n");
        let (device, faults) =
            one.read_device(&no_holders, start + std::time::Duration::from_secs(60));
        assert_eq!(device.vitals.utilization, fresh(60).0);
        assert_eq!(faults, []);
    }

    /// A card of amdgpu below this root, with these files.
    fn amd(root: &std::path::Path, files: &[(&str, &str)]) -> CardReader {
        let device = root.join("class/drm/card0/device");
        std::fs::create_dir_all(device.join("power")).unwrap();
        std::fs::create_dir(root.join("proc")).unwrap();
        for (file, text) in [("uevent", "DRIVER=amdgpu\n")].iter().chain(files) {
            let file = device.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let roots = Roots {
            sysfs: root.to_owned(),
            procfs: root.join("proc"),
            host: root.to_owned(),
            people: Arc::new(SingleUser),
        };
        let holders = FdScanHandle::start(roots.procfs.clone()).unwrap();
        let card = card::list_all_cards(root).pop().unwrap();
        CardReader::new(DrmFamily::Amd, card, &roots, holders)
    }

    #[test]
    fn name_is_looked_up_once() {
        let root = tempfile::tempdir().unwrap();
        let list = root.path().join("usr/share/misc/pci.ids");
        std::fs::create_dir_all(list.parent().unwrap()).unwrap();
        std::fs::write(&list, "1002  AMD\n\t744c  Navi 31\n").unwrap();
        let uevent = "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:c1:00.0\n";
        let mut one = amd(
            root.path(),
            &[("uevent", uevent), ("product_name", "Board\n")],
        );
        let mut name = || one.read_device(&found(&[], None), Instant::now()).0.name;
        assert_eq!(name(), Reading::Value("Navi 31".to_owned()));
        std::fs::remove_file(list).unwrap();
        assert_eq!(name(), Reading::Value("Navi 31".to_owned()));
    }

    #[test]
    fn missing_attributes_are_retried_after_sleep() {
        let root = tempfile::tempdir().unwrap();
        let mut one = amd(root.path(), &[]);
        let start = Instant::now();
        let mut readings = |second: u64| {
            let now = start + std::time::Duration::from_secs(second);
            let (device, _) = one.read_device(&found(&[], None), now);
            device.vitals.memory_utilization
        };
        let device = root.path().join("class/drm/card0/device");
        let write = |file: &str, text: &str| std::fs::write(device.join(file), text).unwrap();
        assert_eq!(readings(0), Reading::Unsupported);
        write("mem_busy_percent", "3\n");
        assert_eq!(readings(2), Reading::Unsupported);
        assert_eq!(readings(16), Reading::Value(Percent(3)));
        std::fs::remove_file(device.join("mem_busy_percent")).unwrap();
        assert_eq!(readings(18), Reading::Unsupported);
        write("mem_busy_percent", "4\n");
        write("power/runtime_status", "suspended\n");
        let asleep = "asleep: not woken for a reading";
        assert_eq!(readings(20), Reading::Failed(asleep.to_owned()));
        write("power/runtime_status", "active\n");
        assert_eq!(readings(22), Reading::Value(Percent(4)));
    }

    #[test]
    fn unified_memory_adds_sharing() {
        let root = tempfile::tempdir().unwrap();
        let one = amd(root.path(), &[]);
        let own = Sharing::from_client(Bytes(10), Some(Bytes(2)));
        let hosts = Sharing::from_client(Bytes(20), Some(Bytes(5)));
        let both = ProcessUsage {
            sharing: own,
            host_memory: Reading::Value(Bytes(20)),
            host_sharing: hosts,
            ..client(7, 10)
        };
        let readings = |unified| CardReadings {
            memory: crate::backend::MemoryReadings {
                total: Reading::Value(Bytes(100)),
                used: Reading::Value(Bytes(40)),
                reserved: Reading::Unsupported,
                unified,
            },
            ..CardReadings::unknown(&Reading::Unsupported)
        };
        for (unified, memory, sharing) in [(true, 30, own.combine(hosts)), (false, 10, own)] {
            let used = CardUsage {
                processes: vec![both.clone()],
                utilization: Reading::Unsupported,
                encoder: Reading::Unsupported,
                decoder: Reading::Unsupported,
                has_own_memory: true,
                shared_clients: Vec::new(),
                passed_clients: Vec::new(),
                fault: None,
                incomplete_reason: None,
            };
            let device = one.combine(readings(unified), used);
            let Reading::Value(listed) = &device.processes else {
                panic!("the processes are listed");
            };
            let held: Vec<_> = device.held_memory(listed).collect();
            assert_eq!(held, [(&Reading::Value(Bytes(memory)), sharing)]);
        }
    }

    #[test]
    fn unused_needs_complete_knowledge() {
        let node = |minor, shared| crate::backend::DeviceNode {
            name: String::new(),
            number: DeviceNumber { major: 226, minor },
            shared,
        };
        let id = gpukill_proto::model::DeviceId("0000:03:00.0".to_owned());
        let vendor = gpukill_proto::model::Vendor::Amd;
        let device = DeviceReadings {
            processes: Reading::Value(Vec::new()),
            nodes: vec![node(128, false), node(200, true)],
            ..DeviceReadings::unknown(id, 0, vendor, &Reading::Unsupported)
        };
        // A process that has a file open that all cards share may use another card.
        for (found, expected) in [
            (found(&[], None), true),
            (found(&[200, 129], None), true),
            (found(&[200, 128], None), false),
            (found(&[], Some(FIRST_SCAN_PENDING)), false),
        ] {
            assert_eq!(is_unused(&device, &found), expected, "{found:?}");
        }
        let found = found(&[], None);
        let unread = DeviceReadings {
            incomplete_reason: Some("a descriptor cannot be read".to_owned()),
            ..device.clone()
        };
        let unlisted = DeviceReadings {
            processes: Reading::Unsupported,
            ..device
        };
        assert!(!is_unused(&unread, &found) && !is_unused(&unlisted, &found));
    }

    #[test]
    fn same_memory_is_not_added_twice() {
        let memory = |bytes| Reading::Value(Bytes(bytes));
        let failed = || Reading::Failed("not understood".to_owned());
        let cases = [
            (memory(5), memory(20)),
            (memory(30), memory(30)),
            (Reading::Unsupported, memory(20)),
            (failed(), failed()),
        ];
        for (other, expected) in cases {
            let found = memories(vec![client(1, 20)], vec![listed(1, other)]);
            assert_eq!(found, [(1, expected)]);
        }
    }

    #[test]
    fn process_memory_above_total_fails() {
        let found = memories(vec![client(1, 100), client(2, 101)], Vec::new());
        let failed = Reading::Failed("the driver reports more memory than the card has".into());
        assert_eq!(found, [(1, Reading::Value(Bytes(100))), (2, failed)]);
    }
}
