//! Tests with simulated descriptors of simulated processes.

mod forms;
mod passed;
mod rereading;
mod sharing;
mod silent;

use super::*;
use crate::backend::DeviceNode;
use crate::backend::drm::card::PciIdentity;
use crate::fd_scan::OpenDescriptor;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const CARD: DeviceNumber = DeviceNumber::new(226, 1);
const RENDER: DeviceNumber = DeviceNumber::new(226, 128);
const SLOT: &str = "0000:03:00.0";
const LOGIND_UNIT: &str = "/system.slice/systemd-logind.service";

/// Reads persons from the files in this directory.
struct PersonFiles(PathBuf);

impl PersonLookup for PersonFiles {
    /// User 1000, unless the process has a file that names another.
    fn account(&self, directory: &Path) -> Option<ProcessAccount> {
        let text = std::fs::read_to_string(directory.join("person"));
        let user = text.map_or(Some(1000), |text| text.parse().ok())?;
        let slice = std::fs::read_to_string(directory.join("slice"));
        let slice = slice.ok().and_then(|text| text.parse().ok());
        Some(ProcessAccount { user, slice })
    }

    /// A user is a person of its own unless a file names the person; an account with a slice
    /// belongs to the slice's person.
    fn person(&self, account: ProcessAccount) -> Option<u32> {
        let text = std::fs::read_to_string(self.0.join(account.user.to_string()));
        let person = || text.map_or(Some(account.user), |text| text.parse().ok());
        account.slice.or_else(person)
    }
}

/// A `/proc` with holders of one card, and a clock.
struct ClientFixture {
    root: TempDir,
    found: FileHolders,
    card: DrmCard,
    clients: ClientReader,
    start: Instant,
    elapsed: Cell<Duration>,
}

impl ClientFixture {
    /// With a card of this driver, on the PCI bus or not.
    fn with_driver(driver: &str, slot: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let node = |name: &str, number| DeviceNode {
            name: name.into(),
            number,
            shared: false,
        };
        let card = DrmCard {
            name: "card1".into(),
            directory: PathBuf::from("/nonexistent/card1"),
            driver: driver.into(),
            pci: slot.map(|slot| PciIdentity {
                slot: slot.into(),
                vendor: 1,
                device: 2,
                revision: None,
            }),
            platform: None,
            nodes: vec![node("card1", CARD), node("renderD128", RENDER)],
        };
        Self {
            clients: ClientReader::new(
                root.path().to_owned(),
                root.path().join("sys"),
                Arc::new(PersonFiles(root.path().join("persons"))),
            ),
            root,
            found: FileHolders::default(),
            card,
            start: Instant::now(),
            elapsed: Cell::default(),
        }
    }

    /// With a card of amdgpu.
    fn new() -> Self {
        Self::with_driver("amdgpu", Some(SLOT))
    }

    fn directory(&self, pid: u32) -> PathBuf {
        self.root.path().join(pid.to_string())
    }

    /// Names a process in its `stat`.
    fn set_name(&self, key: ProcessKey, name: &str) {
        let (pid, start) = (key.pid, key.start_ticks);
        let stat = format!("{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0");
        std::fs::create_dir_all(self.directory(pid)).unwrap();
        std::fs::write(self.directory(pid).join("stat"), stat).unwrap();
    }

    /// Assigns a process to this person.
    fn set_person(&self, key: ProcessKey, person: u32) {
        std::fs::create_dir_all(self.directory(key.pid)).unwrap();
        std::fs::write(self.directory(key.pid).join("person"), person.to_string()).unwrap();
    }

    /// Makes a process the one that logind could be: root's, in this control group.
    fn set_logind(&self, key: ProcessKey, cgroup: &str) {
        self.set_name(key, "systemd-logind");
        self.set_person(key, 0);
        let text = format!("0::{cgroup}\n");
        std::fs::write(self.directory(key.pid).join("cgroup"), text).unwrap();
    }

    /// Assigns a user to this person; a text that is not a number means unknown.
    fn set_users_person(&self, user: u32, person: &str) {
        let directory = self.root.path().join("persons");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(user.to_string()), person).unwrap();
    }

    /// Sets the report of a descriptor of the render node.
    fn open(&mut self, key: ProcessKey, fd: u32, text: &str) {
        if !self.directory(key.pid).join("stat").exists() {
            self.set_name(key, "python");
        }
        let open = OpenDescriptor {
            number: RENDER,
            fd,
            thread: None,
        };
        let opens = self.found.processes.entry(key).or_default();
        if !opens.contains(&open) {
            opens.push(open);
        }
        let directory = self.directory(key.pid).join("fdinfo");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(fd.to_string()), text).unwrap();
    }

    /// Closes a descriptor before the descriptor scan has noticed.
    fn close(&self, key: ProcessKey, fd: u32) {
        let file = self.directory(key.pid).join("fdinfo").join(fd.to_string());
        std::fs::remove_file(file).unwrap();
    }

    /// Polls after this time.
    fn poll(&mut self, after: Duration) -> CardUsage {
        self.elapsed.set(self.elapsed.get() + after);
        let now = || self.start + self.elapsed.get();
        self.clients.read_with_clock(&self.card, &self.found, &now)
    }

    /// Polls a second later.
    fn poll_next_second(&mut self) -> CardUsage {
        self.poll(Duration::from_secs(1))
    }
}

fn process(pid: u32) -> ProcessKey {
    ProcessKey::new(pid, u64::from(pid) * 10)
}

/// The report of amdgpu on this client.
fn amdgpu(client: u64, lines: &str) -> String {
    format!("pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{SLOT}\n{lines}\n")
}

fn percent(share: u32) -> Reading<Percent> {
    Reading::Value(Percent(share))
}

fn bytes(count: u64) -> Reading<Bytes> {
    Reading::Value(Bytes(count))
}

fn failed<T>(why: &str) -> Reading<T> {
    Reading::Failed(why.into())
}

/// Main, encoder, decoder.
fn shares(used: &CardUsage) -> [Reading<Percent>; 3] {
    [&used.utilization, &used.encoder, &used.decoder].map(Clone::clone)
}

fn shares_of(client: &ProcessUsage) -> [Reading<Percent>; 3] {
    let used = &client.utilization;
    [&used.sm, &used.encoder, &used.decoder].map(Clone::clone)
}

/// Pids and memory.
fn memory(used: &CardUsage) -> Vec<(u32, Reading<Bytes>)> {
    let processes = used.processes.iter();
    processes
        .map(|client| (client.key.pid, client.memory.clone()))
        .collect()
}

#[test]
fn process_usage_is_complete() {
    let mut fixture = ClientFixture::new();
    let lines = |gfx: u64| {
        format!(
            "drm-resident-vram:\t6 KiB\ndrm-shared-vram:\t1 KiB\ndrm-memory-vram:\t6 KiB\ndrm-resident-gtt:\t2 KiB\n\
             drm-resident-doorbell:\t4 KiB\ndrm-engine-gfx:\t{gfx} ns\n\
             drm-engine-compute:\t5 ns\ndrm-engine-dec:\t{gfx} ns"
        )
    };
    fixture.open(process(7), 3, &amdgpu(1, &lines(5)));
    let _ = fixture.poll_next_second();
    fixture.open(process(7), 3, &amdgpu(1, &lines(300_000_005)));
    let expected = CardUsage {
        processes: vec![ProcessUsage {
            key: process(7),
            memory: bytes(6 << 10),
            sharing: Sharing::from_client(Bytes(6 << 10), Some(Bytes(1 << 10))),
            host_memory: bytes(2 << 10),
            host_sharing: Sharing::from_client(Bytes(2 << 10), None),
            utilization: Utilization {
                sm: percent(30),
                memory: Reading::Unsupported,
                encoder: percent(0),
                decoder: percent(30),
                sampled_at: None,
            },
            used_for: GpuUse {
                compute: true,
                graphics: true,
                mps: false,
            },
        }],
        utilization: percent(30),
        encoder: percent(0),
        decoder: percent(30),
        has_own_memory: true,
        shared_clients: Vec::new(),
        passed_clients: Vec::new(),
        fault: None,
        incomplete_reason: None,
    };
    assert_eq!(fixture.poll_next_second(), expected);
}

#[test]
fn shares_are_sums_of_clients() {
    let mut fixture = ClientFixture::new();
    let mut write = |gfx: [u64; 4]| {
        let descriptors = [(7, 3), (7, 4), (8, 3), (9, 3)];
        for (client, ((pid, fd), gfx)) in (1..).zip(descriptors.into_iter().zip(gfx)) {
            let lines = format!("drm-resident-vram: {client}\ndrm-engine-gfx: {gfx} ns");
            fixture.open(process(pid), fd, &amdgpu(client, &lines));
        }
        fixture.poll_next_second()
    };
    write([1, 1, 1, 1]);
    let used = write([100_000_001, 200_000_001, 250_000_001, 1]);
    assert_eq!(memory(&used), [(7, bytes(3)), (8, bytes(3)), (9, bytes(4))]);
    let sm: Vec<_> = used
        .processes
        .iter()
        .map(|it| it.utilization.sm.clone())
        .collect();
    assert_eq!(sm, [percent(30), percent(25), percent(0)]);
    assert_eq!(used.utilization, percent(55));
    // A sum above the whole is the whole.
    let used = write([900_000_001, 900_000_001, 950_000_001, 1]);
    assert_eq!(used.processes[0].utilization.sm, percent(100));
    assert_eq!(used.utilization, percent(100));
}

#[test]
fn busiest_engine_counts_not_the_sum() {
    let mut fixture = ClientFixture::new();
    let text = |gfx: u64, dma: u64| {
        amdgpu(
            1,
            &format!("drm-engine-gfx: {gfx} ns\ndrm-engine-dma: {dma} ns"),
        )
    };
    fixture.open(process(7), 3, &text(0, 0));
    fixture.open(process(7), 4, &text(0, 0).replace("id:\t1", "id:\t2"));
    let _ = fixture.poll_next_second();
    fixture.open(process(7), 3, &text(300_000_000, 400_000_000));
    let second = text(200_000_000, 0).replace("id:\t1", "id:\t2");
    fixture.open(process(7), 4, &second);
    assert_eq!(fixture.poll_next_second().utilization, percent(50));
}

#[test]
fn new_client_is_unknown_not_idle() {
    let mut fixture = ClientFixture::new();
    let gfx = |id, busy: u64| amdgpu(id, &format!("drm-engine-gfx: {busy} ns"));
    let unknown = [Reading::Unsupported, percent(0), percent(0)];
    let idle = [percent(0), percent(0), percent(0)];
    fixture.open(process(7), 3, &gfx(1, 5));
    let used = fixture.poll_next_second();
    assert_eq!(shares(&used), unknown);
    assert_eq!(shares_of(&used.processes[0]), unknown);
    // The others are idle, but this one may work.
    fixture.open(process(8), 3, &gfx(2, 5));
    let used = fixture.poll_next_second();
    assert_eq!(shares(&used), unknown);
    assert_eq!(shares_of(&used.processes[0]), idle);
    assert_eq!(shares_of(&used.processes[1]), unknown);
    assert_eq!(shares(&fixture.poll_next_second()), idle);
    // The others work: their share is the card's.
    fixture.open(process(7), 3, &gfx(1, 300_000_005));
    fixture.open(process(8), 4, &gfx(3, 900_000_000));
    let used = fixture.poll_next_second();
    assert_eq!(shares(&used), [percent(30), percent(0), percent(0)]);
    // For a process that is not enough.
    assert_eq!(shares_of(&used.processes[1]), unknown);
    assert_eq!(shares(&fixture.poll_next_second()), idle);
}

#[test]
fn never_used_client_is_idle_at_once() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &amdgpu(1, ""));
    let used = fixture.poll_next_second();
    let idle = [percent(0), percent(0), percent(0)];
    assert_eq!(shares(&used), idle);
    assert_eq!(shares_of(&used.processes[0]), idle);
}

#[test]
fn each_client_has_its_own_interval() {
    let mut fixture = ClientFixture::with_driver("msm", None);
    let text = |id: u64, busy: u64| {
        format!("drm-driver: msm\ndrm-client-id: {id}\ndrm-engine-gpu: {busy} ns\n")
    };
    fixture.open(process(7), 3, &text(1, 0));
    fixture.open(process(8), 3, &text(2, 0));
    // The first reading of a poll takes two seconds, the second none.
    let poll = |fixture: &mut ClientFixture, delays: [u64; 2]| {
        let elapsed = Cell::new(fixture.elapsed.get());
        let calls = Cell::new(0);
        let now = || {
            let delay = delays.get(calls.replace(calls.get() + 1)).unwrap_or(&0);
            elapsed.set(elapsed.get() + Duration::from_secs(*delay));
            fixture.start + elapsed.get()
        };
        let used = fixture
            .clients
            .read_with_clock(&fixture.card, &fixture.found, &now);
        fixture.elapsed.set(elapsed.get());
        used
    };
    poll(&mut fixture, [0, 3]);
    fixture.open(process(7), 3, &text(1, 2_000_000_000));
    fixture.open(process(8), 3, &text(2, 500_000_000));
    let used = poll(&mut fixture, [1, 1]);
    // Four seconds after its first reading, and two.
    let sm: Vec<_> = used
        .processes
        .iter()
        .map(|it| it.utilization.sm.clone())
        .collect();
    assert_eq!(sm, [percent(50), percent(25)]);
}

#[test]
fn unused_card_is_idle_only_if_visible() {
    let idle = [percent(0), percent(0), percent(0)];
    let unsupported = [(); 3].map(|()| Reading::Unsupported);
    let mut amd = ClientFixture::new();
    assert_eq!(shares(&amd.poll_next_second()), idle);
    amd.found.incomplete_reason = Some("not everything was looked at yet".into());
    let why = || failed("not everything was looked at yet");
    let used = amd.poll_next_second();
    assert_eq!(shares(&used), [why(), why(), why()]);
    assert_eq!(used.incomplete_reason, amd.found.incomplete_reason);
    let no_videos = [percent(0), Reading::Unsupported, Reading::Unsupported];
    assert_eq!(
        shares(&ClientFixture::with_driver("v3d", None).poll_next_second()),
        no_videos
    );
    for driver in ["nouveau", "panthor", "unheard"] {
        assert_eq!(
            shares(&ClientFixture::with_driver(driver, None).poll_next_second()),
            unsupported,
            "{driver}"
        );
    }
}

#[test]
fn incomplete_scan_fails_the_cards_share() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &amdgpu(1, "drm-engine-gfx: 5 ns"));
    let _ = fixture.poll_next_second();
    fixture.found.incomplete_reason = Some("a look was cut short".into());
    let used = fixture.poll_next_second();
    assert_eq!(used.utilization, failed("a look was cut short"));
    assert_eq!(used.processes[0].utilization.sm, percent(0));
}

#[test]
fn unified_video_queue_hides_decoding() {
    let mut fixture = ClientFixture::new();
    fixture.open(process(7), 3, &amdgpu(1, ""));
    let _ = fixture.poll_next_second();
    fixture.open(process(7), 3, &amdgpu(1, "drm-engine-enc: 400000000 ns"));
    let unified = [percent(0), percent(40), Reading::Unsupported];
    assert_eq!(shares(&fixture.poll_next_second()), unified);
    let jpeg = "drm-engine-enc: 400000000 ns\ndrm-engine-jpeg: 10000000 ns";
    fixture.open(process(7), 3, &amdgpu(1, jpeg));
    assert_eq!(fixture.poll_next_second().decoder, Reading::Unsupported);
    let separate = "drm-engine-enc: 400000000 ns\ndrm-engine-dec: 300000000 ns";
    fixture.open(process(7), 3, &amdgpu(1, separate));
    assert_eq!(
        shares(&fixture.poll_next_second()),
        [percent(0), percent(0), percent(30)]
    );
}
