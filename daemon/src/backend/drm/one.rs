//! One card, read whole: what its own files tell, put together with what its
//! clients do.

use super::amd::Amd;
use super::card::Card;
use super::clients::{Client, Clients, Used, sharing};
use super::contradiction::Contradiction;
use super::family::Family;
use super::intel::Intel;
use super::names;
use super::other::Other;
use super::rest;
use super::{Listed, Told};
use crate::backend::{
    Backend, DeviceReadings, Failure, ProcessReadings, Readings, Roots, Utilization,
};
use crate::faults::FaultCause;
use crate::holders::{Found, Holders, Open};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, FaultCode, GpuEvent, Use, Vitals};
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// One card, and what is remembered of it.
pub(super) struct One {
    family: Family,
    card: Card,
    own: Own,
    clients: Clients,
    contradiction: Contradiction,
    holders: Holders,
    host_root: PathBuf,
    /// Once it was told or, of a card that sleeps, looked for.
    name: Option<Reading<String>>,
    /// What it told when it was last asked, and when that was. `None` of one that
    /// has slept since.
    last: Option<(Instant, DeviceReadings)>,
}

/// What a driver's own files tell.
enum Own {
    Amd(Box<Amd>),
    Intel(Intel),
    Other(Other),
}

impl One {
    pub(super) fn new(family: Family, card: Card, roots: &Roots, holders: Holders) -> Self {
        let own = match family {
            Family::Amd => Own::Amd(Box::new(Amd::new(&card, &roots.sysfs, &roots.host))),
            Family::Intel => Own::Intel(Intel::new(roots.host.clone())),
            Family::Other => Own::Other(Other::new(roots.host.clone())),
        };
        Self {
            family,
            own,
            clients: Clients::new(
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

    fn device(&mut self, found: &Found, now: Instant) -> (DeviceReadings, Vec<FaultCause>) {
        if self.card.is_suspended() {
            self.last = None;
            if let Own::Amd(amd) = &mut self.own {
                amd.slept();
            }
            return (self.asleep(), Vec::new());
        }
        if let Some(device) = self.left_alone(found, now) {
            return (device, Vec::new());
        }
        let told = match &mut self.own {
            Own::Amd(amd) => amd.read(&self.card, now),
            Own::Intel(intel) => intel.read(&self.card, now),
            Own::Other(other) => other.read(&self.card),
        };
        let used = self.clients.read(&self.card, found);
        self.holders.hint(told.listed.iter().map(|it| it.pid));
        self.name = Some(told.name.clone());
        let mut faults = told.faults.clone();
        let fault = used.fault.clone();
        let clients_share = used.utilization.clone();
        let mut device = self.put_together(told, used);
        device.vitals = self.contradiction.resolve(device.vitals, &clients_share);
        // Where a list could not be had, who is on the card is not known.
        self.last = faults.is_empty().then(|| (now, device.clone()));
        faults.extend(fault.map(|what| FaultCause::new(FaultCode::DescriptorsLeftOut, what)));
        (device, faults)
    }

    /// What a card told when it was last asked, as long as it is not asked again: for
    /// nobody uses it, and it would fall asleep by itself.
    fn left_alone(&self, found: &Found, now: Instant) -> Option<DeviceReadings> {
        let (then, device) = self.last.as_ref()?;
        let since = now.saturating_duration_since(*then);
        if !is_unused(device, found) || since >= rest::pause(&self.card)? {
            return None;
        }
        if let Own::Amd(amd) = &self.own
            && !amd.is_listed_empty()
        {
            return None;
        }
        let age = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
        let vitals = Vitals {
            suspended: Reading::Value(false),
            ..device.vitals.clone().aged(age)
        };
        // Neither the size of a memory changes, nor what nobody uses of it; AMD's
        // driver tells that without asking the card.
        let (memory, vitals) = match &self.own {
            Own::Amd(amd) => amd.counted(vitals),
            Own::Intel(_) | Own::Other(_) => (device.memory.clone(), vitals),
        };
        Some(DeviceReadings {
            memory,
            vitals,
            ..device.clone()
        })
    }

    /// A card that sleeps is not woken: reading it, or its clients, would.
    fn asleep(&mut self) -> DeviceReadings {
        let name = || Reading::Value(names::of(&self.host_root, &self.card));
        let name = self.name.get_or_insert_with(name).clone();
        let why = Reading::Failed("asleep: not woken for a reading".to_owned());
        let device = DeviceReadings::unknown(self.card.id(), 0, self.card.vendor(), &why);
        DeviceReadings {
            name,
            pci: self.pci(),
            vitals: Vitals {
                suspended: Reading::Value(true),
                ..device.vitals
            },
            nodes: self.card.nodes.clone(),
            ..device
        }
    }

    fn pci(&self) -> Reading<String> {
        let pci = self.card.pci.as_ref();
        pci.map_or(Reading::Unsupported, |pci| Reading::Value(pci.slot.clone()))
    }

    fn put_together(&self, told: Told, used: Used) -> DeviceReadings {
        let mut vitals = told.vitals;
        let own_is_better = match self.family {
            Family::Amd | Family::Other => true,
            // What Intel's own files tell is how long its engines were powered,
            // which is more than they worked.
            Family::Intel => used.utilization.known().is_none(),
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
        let mut memory = told.memory;
        // A platform's GPU mostly shares the host's memory; its clients know.
        memory.unified &= self.family != Family::Other || !used.has_own_memory;
        let mut clients = used.processes;
        if self.family == Family::Amd && memory.unified {
            // What is its own and what is the host's is one memory here.
            for client in &mut clients {
                client.memory = sum(&client.memory, &client.host_memory);
                client.sharing = client.sharing.and(client.host_sharing);
            }
        }
        let mut nodes = self.card.nodes.clone();
        nodes.extend(told.nodes);
        let unknown =
            DeviceReadings::unknown(self.card.id(), 0, self.card.vendor(), &Reading::Unsupported);
        DeviceReadings {
            name: told.name,
            pci: self.pci(),
            sharing: sharing(&clients),
            processes: Reading::Value(processes(clients, told.listed, memory.total.known())),
            memory,
            vitals,
            instances: told.instances,
            unseen: used.unseen,
            sharers: used.sharers,
            passed: used.passed,
            nodes,
            ..unknown
        }
    }
}

/// Whether nobody has a card open, as far as its driver and the search know, and both
/// know everything.
fn is_unused(device: &DeviceReadings, found: &Found) -> bool {
    let own = |open: &Open| {
        let mut nodes = device.nodes.iter().filter(|node| !node.shared);
        nodes.any(|node| node.number == open.number)
    };
    let is_listed = device.processes != Reading::Value(Vec::new());
    let is_known = device.unseen.is_none() && found.unseen.is_none();
    is_known && !is_listed && !found.processes.values().flatten().any(own)
}

/// The sum of two parts of one memory.
fn sum(one: &Reading<Bytes>, other: &Reading<Bytes>) -> Reading<Bytes> {
    let add = |one: Bytes, other: Bytes| Reading::Value(Bytes(one.0.saturating_add(other.0)));
    one.clone().either(other.clone(), add)
}

/// Each process once. One that is both a client and in the driver's own list
/// holds the greater of the two: the same memory is told twice.
fn processes(
    clients: Vec<Client>,
    listed: Vec<Listed>,
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
    for it in listed {
        let process = all.entry(it.pid).or_insert_with(|| ProcessReadings {
            pid: it.pid,
            start_ticks: None,
            instance: None,
            used_for: Use::default(),
            memory: Reading::Unsupported,
            utilization: Utilization::unknown(&Reading::Unsupported),
        });
        process.used_for.compute = true;
        process.memory = greater(process.memory.clone(), it.memory);
        // Engines do not count what KFD's queues do: by them, a process that
        // computes would be idle.
        process.utilization.sm = it.occupancy;
    }
    for process in all.values_mut() {
        if process
            .memory
            .known()
            .zip(total)
            .is_some_and(|(held, all)| held > all)
        {
            process.memory = Reading::Failed("the driver tells more than the card has".into());
        }
    }
    all.into_values().collect()
}

/// The greater of what two lists tell of the same memory.
fn greater(one: Reading<Bytes>, other: Reading<Bytes>) -> Reading<Bytes> {
    one.either(other, |one, other| Reading::Value(one.max(other)))
}

impl Backend for One {
    fn name(&self) -> &'static str {
        self.family.name()
    }

    fn read(&mut self) -> Result<Readings, Failure> {
        let found = self.holders.found();
        let (device, faults) = self.device(&found, Instant::now());
        Ok(Readings {
            devices: vec![device],
            faults,
            ..Readings::nothing(BackendState::Ready)
        })
    }

    fn take_events(&mut self) -> Vec<GpuEvent> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::card;
    use super::*;
    use crate::backend::drm::clients::{Account, People};
    use crate::holders::{DeviceNumber, NOT_YET};
    use gpukill_policy::memory::Sharing;
    use gpukill_proto::snapshot::ProcessKey;
    use gpukill_proto::units::Percent;

    /// Every process is of user 1000.
    struct OneUser;

    impl People for OneUser {
        fn account(&self, _: &std::path::Path) -> Option<Account> {
            Some(Account {
                user: 1000,
                slice: None,
            })
        }

        fn person(&self, account: Account) -> Option<u32> {
            Some(account.user)
        }
    }

    fn client(pid: u32, memory: u64) -> Client {
        Client {
            key: ProcessKey {
                pid,
                start_ticks: 7,
            },
            memory: Reading::Value(Bytes(memory)),
            sharing: Sharing::NONE,
            host_memory: Reading::Unsupported,
            host_sharing: Sharing::NONE,
            utilization: Utilization::unknown(&Reading::Unsupported),
            used_for: Use::default(),
        }
    }

    fn listed(pid: u32, memory: Reading<Bytes>) -> Listed {
        Listed {
            pid,
            memory,
            occupancy: Reading::Unsupported,
        }
    }

    fn memories(clients: Vec<Client>, listed: Vec<Listed>) -> Vec<(u32, Reading<Bytes>)> {
        let all = processes(clients, listed, Some(&Bytes(100)));
        all.into_iter().map(|it| (it.pid, it.memory)).collect()
    }

    /// Who has these render nodes open.
    fn found(minors: &[u32], unseen: Option<&str>) -> Found {
        let open = |minor: &u32| Open {
            number: DeviceNumber {
                major: 226,
                minor: *minor,
            },
            fd: 5,
            thread: None,
        };
        let key = client(4_711, 0).key;
        let opens: Vec<Open> = minors.iter().map(open).collect();
        Found {
            processes: [(key, opens)].into(),
            unseen: unseen.map(str::to_owned),
            ..Found::default()
        }
    }

    #[test]
    fn a_card_that_may_sleep_is_asked_seldom_while_nobody_uses_it() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("class/drm/card0/device");
        let write = |file: &str, text: &str| {
            let file = device.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("uevent", "DRIVER=amdgpu\n");
        write("drm/renderD128/dev", "226:128\n");
        write("mem_info_vram_total", "1000\n");
        write("power/control", "auto\n");
        write("power/autosuspend_delay_ms", "20000\n");
        let roots = Roots {
            sysfs: root.path().to_owned(),
            procfs: root.path().join("proc"),
            host: root.path().to_owned(),
            people: Arc::new(OneUser),
        };
        std::fs::create_dir(&roots.procfs).unwrap();
        let holders = Holders::start(roots.procfs.clone()).unwrap();
        let card = card::cards(root.path()).pop().unwrap();
        let mut one = One::new(Family::Amd, card, &roots, holders);
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
        let began = Instant::now();
        // At each time what it would tell has changed: the second is its load.
        let mut told = |second: u32, control: &str, status: &str, found: &Found| {
            write("gpu_busy_percent", &format!("{second}\n"));
            write("mem_info_vram_used", &format!("{second}\n"));
            write("power/control", control);
            write("power/runtime_status", status);
            let now = began + std::time::Duration::from_secs(second.into());
            let (device, faults) = one.device(found, now);
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
        let nobody = found(&[], None);
        let elsewhere = found(&[129], None);
        let here = found(&[129, 128], None);
        let unsure = found(&[], Some(NOT_YET));
        for (second, control, found, expected) in [
            (0, "auto", &nobody, fresh(0)),
            (2, "auto", &nobody, old(2, 2)),
            (31, "auto", &elsewhere, old(31, 31)),
            // Half as long again as it takes to fall asleep, and two seconds.
            (32, "auto", &nobody, fresh(32)),
            (34, "auto", &here, fresh(34)),
            (36, "auto", &nobody, old(36, 2)),
            (38, "auto", &unsure, fresh(38)),
            (40, "on", &nobody, fresh(40)),
            (42, "auto", &nobody, old(42, 2)),
        ] {
            assert_eq!(told(second, control, "active", found), expected, "{second}");
        }
        let why = || "asleep: not woken for a reading".to_owned();
        let asleep = (Reading::Failed(why()), Reading::Failed(why()));
        assert_eq!(told(44, "auto", "suspended", &nobody), asleep);
        // Whoever woke it: what it told before was of another time.
        assert_eq!(told(46, "auto", "active", &nobody), fresh(46));
        assert_eq!(told(48, "auto", "active", &nobody), old(48, 2));
        // Whoever computes is known before the search has found them.
        lists(4_712, 4_243);
        assert_eq!(told(50, "auto", "active", &nobody), old(50, 4));
        lists(4_711, 4_242);
        assert_eq!(told(52, "auto", "active", &nobody), fresh(52));
        // A list that cannot be had may have somebody.
        std::fs::remove_dir_all(&kfd).unwrap();
        assert_eq!(told(54, "auto", "active", &nobody), fresh(54));
        assert_eq!(told(56, "auto", "active", &nobody), old(56, 2));
        std::fs::write(&kfd, "").unwrap();
        let (device, faults) = one.device(&nobody, began + std::time::Duration::from_secs(58));
        assert_eq!(device.vitals.utilization, fresh(56).0);
        let unreadable = "KFD's list of processes: not readable";
        let unreadable = FaultCause::new(FaultCode::ProcessListFailed, unreadable);
        assert_eq!(faults, [unreadable]);
        // Who was on it then is not known: it is asked again.
        std::fs::remove_file(&kfd).unwrap();
        write("gpu_busy_percent", "60\n");
        let (device, faults) = one.device(&nobody, began + std::time::Duration::from_secs(60));
        assert_eq!(device.vitals.utilization, fresh(60).0);
        assert_eq!(faults, []);
    }

    /// A card of amdgpu below this, with these files.
    fn amd(root: &std::path::Path, files: &[(&str, &str)]) -> One {
        let device = root.join("class/drm/card0/device");
        std::fs::create_dir_all(device.join("power")).unwrap();
        std::fs::create_dir(root.join("proc")).unwrap();
        for (file, text) in [("uevent", "DRIVER=amdgpu\n")].iter().chain(files) {
            std::fs::write(device.join(file), text).unwrap();
        }
        let roots = Roots {
            sysfs: root.to_owned(),
            procfs: root.join("proc"),
            host: root.to_owned(),
            people: Arc::new(OneUser),
        };
        let holders = Holders::start(roots.procfs.clone()).unwrap();
        let card = card::cards(root).pop().unwrap();
        One::new(Family::Amd, card, &roots, holders)
    }

    #[test]
    fn what_a_card_lacked_is_asked_for_again_when_it_woke_and_after_a_while() {
        let root = tempfile::tempdir().unwrap();
        let mut one = amd(root.path(), &[]);
        let began = Instant::now();
        let mut told = |second: u64| {
            let now = began + std::time::Duration::from_secs(second);
            let (device, _) = one.device(&found(&[], None), now);
            device.vitals.memory_utilization
        };
        let device = root.path().join("class/drm/card0/device");
        let write = |file: &str, text: &str| std::fs::write(device.join(file), text).unwrap();
        assert_eq!(told(0), Reading::Unsupported);
        write("mem_busy_percent", "3\n");
        assert_eq!(told(2), Reading::Unsupported);
        assert_eq!(told(16), Reading::Value(Percent(3)));
        std::fs::remove_file(device.join("mem_busy_percent")).unwrap();
        assert_eq!(told(18), Reading::Unsupported);
        write("mem_busy_percent", "4\n");
        write("power/runtime_status", "suspended\n");
        let asleep = "asleep: not woken for a reading";
        assert_eq!(told(20), Reading::Failed(asleep.to_owned()));
        write("power/runtime_status", "active\n");
        assert_eq!(told(22), Reading::Value(Percent(4)));
    }

    #[test]
    fn what_is_shared_of_both_memories_is_shared_of_the_one_that_they_are() {
        let root = tempfile::tempdir().unwrap();
        let one = amd(root.path(), &[]);
        let own = Sharing::of(Bytes(10), Some(Bytes(2)));
        let hosts = Sharing::of(Bytes(20), Some(Bytes(5)));
        let both = Client {
            sharing: own,
            host_memory: Reading::Value(Bytes(20)),
            host_sharing: hosts,
            ..client(7, 10)
        };
        let told = |unified| Told {
            memory: crate::backend::MemoryReadings {
                total: Reading::Value(Bytes(100)),
                used: Reading::Value(Bytes(40)),
                reserved: Reading::Unsupported,
                unified,
            },
            name: Reading::Unsupported,
            vitals: Vitals::unknown(&Reading::Unsupported),
            instances: Vec::new(),
            nodes: Vec::new(),
            listed: Vec::new(),
            faults: Vec::new(),
        };
        for (unified, memory, sharing) in [(true, 30, own.and(hosts)), (false, 10, own)] {
            let used = Used {
                processes: vec![both.clone()],
                utilization: Reading::Unsupported,
                encoder: Reading::Unsupported,
                decoder: Reading::Unsupported,
                has_own_memory: true,
                sharers: Vec::new(),
                passed: Vec::new(),
                fault: None,
                unseen: None,
            };
            let device = one.put_together(told(unified), used);
            let Reading::Value(listed) = &device.processes else {
                panic!("they are listed");
            };
            let held: Vec<_> = device.held(listed).collect();
            assert_eq!(held, [(&Reading::Value(Bytes(memory)), sharing)]);
        }
    }

    #[test]
    fn only_whoever_has_a_card_s_own_files_open_and_is_known_of_uses_it() {
        let node = |minor, shared| crate::backend::Node {
            name: String::new(),
            number: DeviceNumber { major: 226, minor },
            shared,
        };
        let id = gpukill_proto::snapshot::DeviceId("0000:03:00.0".to_owned());
        let vendor = gpukill_proto::snapshot::Vendor::Amd;
        let device = DeviceReadings {
            processes: Reading::Value(Vec::new()),
            nodes: vec![node(128, false), node(200, true)],
            ..DeviceReadings::unknown(id, 0, vendor, &Reading::Unsupported)
        };
        // Who has what all cards share open may use another.
        for (found, expected) in [
            (found(&[], None), true),
            (found(&[200, 129], None), true),
            (found(&[200, 128], None), false),
            (found(&[], Some(NOT_YET)), false),
        ] {
            assert_eq!(is_unused(&device, &found), expected, "{found:?}");
        }
        let found = found(&[], None);
        let unread = DeviceReadings {
            unseen: Some("a descriptor cannot be read".to_owned()),
            ..device.clone()
        };
        let unlisted = DeviceReadings {
            processes: Reading::Unsupported,
            ..device
        };
        assert!(!is_unused(&unread, &found) && !is_unused(&unlisted, &found));
    }

    #[test]
    fn what_two_lists_tell_of_a_process_is_the_same_memory() {
        let told = |bytes| Reading::Value(Bytes(bytes));
        let failed = || Reading::Failed("not understood".to_owned());
        let cases = [
            (told(5), told(20)),
            (told(30), told(30)),
            (Reading::Unsupported, told(20)),
            (failed(), failed()),
        ];
        for (other, expected) in cases {
            let found = memories(vec![client(1, 20)], vec![listed(1, other)]);
            assert_eq!(found, [(1, expected)]);
        }
    }

    #[test]
    fn nobody_holds_more_than_the_card_has() {
        let found = memories(vec![client(1, 100), client(2, 101)], Vec::new());
        let failed = Reading::Failed("the driver tells more than the card has".into());
        assert_eq!(found, [(1, Reading::Value(Bytes(100))), (2, failed)]);
    }
}
