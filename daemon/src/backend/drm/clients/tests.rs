//! Made-up descriptors of made-up processes, and what is told of them.

mod forms;

mod people;

mod passed;

mod silent;

mod sharing;

mod rereading;

use super::*;
use crate::backend::Node;
use crate::backend::drm::card::Pci;
use crate::holders::Open;
use people::Files;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const CARD: DeviceNumber = DeviceNumber {
    major: 226,
    minor: 1,
};
const RENDER: DeviceNumber = DeviceNumber {
    major: 226,
    minor: 128,
};
const SLOT: &str = "0000:03:00.0";

/// A `/proc` with holders of one card, and a clock.
struct Stage {
    root: TempDir,
    found: Found,
    card: Card,
    clients: Clients,
    start: Instant,
    elapsed: Cell<Duration>,
}

impl Stage {
    /// With a card of this driver, on the PCI bus or not.
    fn with(driver: &str, slot: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let node = |name: &str, number| Node {
            name: name.into(),
            number,
            shared: false,
        };
        let card = Card {
            name: "card1".into(),
            directory: PathBuf::from("/nonexistent/card1"),
            driver: driver.into(),
            pci: slot.map(|slot| Pci {
                slot: slot.into(),
                vendor: 1,
                device: 2,
                revision: None,
            }),
            platform: None,
            nodes: vec![node("card1", CARD), node("renderD128", RENDER)],
        };
        Self {
            clients: Clients::new(
                root.path().to_owned(),
                root.path().join("sys"),
                Arc::new(Files(root.path().join("persons"))),
            ),
            root,
            found: Found::default(),
            card,
            start: Instant::now(),
            elapsed: Cell::default(),
        }
    }

    /// With a card of amdgpu.
    fn new() -> Self {
        Self::with("amdgpu", Some(SLOT))
    }

    fn directory(&self, pid: u32) -> PathBuf {
        self.root.path().join(pid.to_string())
    }

    /// Gives a process a name, as `stat` tells it.
    fn name(&self, key: ProcessKey, name: &str) {
        let (pid, start) = (key.pid, key.start_ticks);
        let stat = format!("{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0");
        std::fs::create_dir_all(self.directory(pid)).unwrap();
        std::fs::write(self.directory(pid).join("stat"), stat).unwrap();
    }

    /// Gives a process to this person.
    fn belongs_to(&self, key: ProcessKey, person: u32) {
        std::fs::create_dir_all(self.directory(key.pid)).unwrap();
        std::fs::write(self.directory(key.pid).join("person"), person.to_string()).unwrap();
    }

    /// This user is this person's; not known yet where that is no number.
    fn user_is_of(&self, user: u32, person: &str) {
        let directory = self.root.path().join("persons");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(user.to_string()), person).unwrap();
    }

    /// What a descriptor of the render node tells from now on.
    fn open(&mut self, key: ProcessKey, fd: u32, text: &str) {
        if !self.directory(key.pid).join("stat").exists() {
            self.name(key, "python");
        }
        let open = Open {
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

    /// The descriptor is closed; who looks for descriptors has yet to see it.
    fn close(&self, key: ProcessKey, fd: u32) {
        let file = self.directory(key.pid).join("fdinfo").join(fd.to_string());
        std::fs::remove_file(file).unwrap();
    }

    /// So long later.
    fn poll(&mut self, after: Duration) -> Used {
        self.elapsed.set(self.elapsed.get() + after);
        let now = || self.start + self.elapsed.get();
        self.clients.read_by(&self.card, &self.found, &now)
    }

    /// A second later.
    fn next(&mut self) -> Used {
        self.poll(Duration::from_secs(1))
    }
}

fn process(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: u64::from(pid) * 10,
    }
}

/// What amdgpu tells of this client.
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
fn shares(used: &Used) -> [Reading<Percent>; 3] {
    [&used.utilization, &used.encoder, &used.decoder].map(Clone::clone)
}

fn shares_of(client: &Client) -> [Reading<Percent>; 3] {
    let used = &client.utilization;
    [&used.sm, &used.encoder, &used.decoder].map(Clone::clone)
}

/// Pids and memory.
fn memory(used: &Used) -> Vec<(u32, Reading<Bytes>)> {
    let processes = used.processes.iter();
    processes
        .map(|client| (client.key.pid, client.memory.clone()))
        .collect()
}

#[test]
fn what_a_process_does_on_a_card_is_told_whole() {
    let mut stage = Stage::new();
    let lines = |gfx: u64| {
        format!(
            "drm-resident-vram:\t6 KiB\ndrm-shared-vram:\t1 KiB\ndrm-memory-vram:\t6 KiB\ndrm-resident-gtt:\t2 KiB\n\
             drm-resident-doorbell:\t4 KiB\ndrm-engine-gfx:\t{gfx} ns\n\
             drm-engine-compute:\t5 ns\ndrm-engine-dec:\t{gfx} ns"
        )
    };
    stage.open(process(7), 3, &amdgpu(1, &lines(5)));
    let _ = stage.next();
    stage.open(process(7), 3, &amdgpu(1, &lines(300_000_005)));
    let expected = Used {
        processes: vec![Client {
            key: process(7),
            memory: bytes(6 << 10),
            sharing: Sharing::of(Bytes(6 << 10), Some(Bytes(1 << 10))),
            host_memory: bytes(2 << 10),
            host_sharing: Sharing::of(Bytes(2 << 10), None),
            utilization: Utilization {
                sm: percent(30),
                memory: Reading::Unsupported,
                encoder: percent(0),
                decoder: percent(30),
                at: None,
            },
            used_for: Use {
                compute: true,
                graphics: true,
                mps: false,
            },
        }],
        utilization: percent(30),
        encoder: percent(0),
        decoder: percent(30),
        has_own_memory: true,
        sharers: Vec::new(),
        passed: Vec::new(),
        fault: None,
        unseen: None,
    };
    assert_eq!(stage.next(), expected);
}

#[test]
fn a_process_is_the_sum_of_its_clients_and_a_card_of_all() {
    let mut stage = Stage::new();
    let mut write = |gfx: [u64; 4]| {
        let places = [(7, 3), (7, 4), (8, 3), (9, 3)];
        for (client, ((pid, fd), gfx)) in (1..).zip(places.into_iter().zip(gfx)) {
            let lines = format!("drm-resident-vram: {client}\ndrm-engine-gfx: {gfx} ns");
            stage.open(process(pid), fd, &amdgpu(client, &lines));
        }
        stage.next()
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
    // More than all is all.
    let used = write([900_000_001, 900_000_001, 950_000_001, 1]);
    assert_eq!(used.processes[0].utilization.sm, percent(100));
    assert_eq!(used.utilization, percent(100));
}

#[test]
fn the_busiest_engine_is_what_counts_not_their_sum() {
    let mut stage = Stage::new();
    let text = |gfx: u64, dma: u64| {
        amdgpu(
            1,
            &format!("drm-engine-gfx: {gfx} ns\ndrm-engine-dma: {dma} ns"),
        )
    };
    stage.open(process(7), 3, &text(0, 0));
    stage.open(process(7), 4, &text(0, 0).replace("id:\t1", "id:\t2"));
    let _ = stage.next();
    stage.open(process(7), 3, &text(300_000_000, 400_000_000));
    let second = text(200_000_000, 0).replace("id:\t1", "id:\t2");
    stage.open(process(7), 4, &second);
    assert_eq!(stage.next().utilization, percent(50));
}

#[test]
fn what_is_seen_for_the_first_time_is_unknown_and_not_idle_and_no_fault() {
    let mut stage = Stage::new();
    let gfx = |id, busy: u64| amdgpu(id, &format!("drm-engine-gfx: {busy} ns"));
    let unknown = [Reading::Unsupported, percent(0), percent(0)];
    let idle = [percent(0), percent(0), percent(0)];
    stage.open(process(7), 3, &gfx(1, 5));
    let used = stage.next();
    assert_eq!(shares(&used), unknown);
    assert_eq!(shares_of(&used.processes[0]), unknown);
    // The others do nothing: this one may.
    stage.open(process(8), 3, &gfx(2, 5));
    let used = stage.next();
    assert_eq!(shares(&used), unknown);
    assert_eq!(shares_of(&used.processes[0]), idle);
    assert_eq!(shares_of(&used.processes[1]), unknown);
    assert_eq!(shares(&stage.next()), idle);
    // The others do something: that is what is known, of the card.
    stage.open(process(7), 3, &gfx(1, 300_000_005));
    stage.open(process(8), 4, &gfx(3, 900_000_000));
    let used = stage.next();
    assert_eq!(shares(&used), [percent(30), percent(0), percent(0)]);
    // Of a process that is not enough.
    assert_eq!(shares_of(&used.processes[1]), unknown);
    assert_eq!(shares(&stage.next()), idle);
}

#[test]
fn a_client_that_never_worked_is_known_to_be_idle_at_once() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &amdgpu(1, ""));
    let used = stage.next();
    let idle = [percent(0), percent(0), percent(0)];
    assert_eq!(shares(&used), idle);
    assert_eq!(shares_of(&used.processes[0]), idle);
}

#[test]
fn each_client_is_measured_by_the_time_of_its_own_reading() {
    let mut stage = Stage::with("msm", None);
    let text = |id: u64, busy: u64| {
        format!("drm-driver: msm\ndrm-client-id: {id}\ndrm-engine-gpu: {busy} ns\n")
    };
    stage.open(process(7), 3, &text(1, 0));
    stage.open(process(8), 3, &text(2, 0));
    // The first reading of a poll takes two seconds, the second none.
    let poll = |stage: &mut Stage, delays: [u64; 2]| {
        let elapsed = Cell::new(stage.elapsed.get());
        let calls = Cell::new(0);
        let now = || {
            let delay = delays.get(calls.replace(calls.get() + 1)).unwrap_or(&0);
            elapsed.set(elapsed.get() + Duration::from_secs(*delay));
            stage.start + elapsed.get()
        };
        let used = stage.clients.read_by(&stage.card, &stage.found, &now);
        stage.elapsed.set(elapsed.get());
        used
    };
    poll(&mut stage, [0, 3]);
    stage.open(process(7), 3, &text(1, 2_000_000_000));
    stage.open(process(8), 3, &text(2, 500_000_000));
    let used = poll(&mut stage, [1, 1]);
    // Four seconds after its first reading, and two.
    let sm: Vec<_> = used
        .processes
        .iter()
        .map(|it| it.utilization.sm.clone())
        .collect();
    assert_eq!(sm, [percent(50), percent(25)]);
}

#[test]
fn a_card_that_nobody_uses_is_idle_only_if_its_users_would_be_seen() {
    let idle = [percent(0), percent(0), percent(0)];
    let unsupported = [(); 3].map(|()| Reading::Unsupported);
    let mut amd = Stage::new();
    assert_eq!(shares(&amd.next()), idle);
    amd.found.unseen = Some("not everything was looked at yet".into());
    let why = || failed("not everything was looked at yet");
    let used = amd.next();
    assert_eq!(shares(&used), [why(), why(), why()]);
    assert_eq!(used.unseen, amd.found.unseen);
    let no_videos = [percent(0), Reading::Unsupported, Reading::Unsupported];
    assert_eq!(shares(&Stage::with("v3d", None).next()), no_videos);
    for driver in ["nouveau", "panthor", "unheard"] {
        assert_eq!(
            shares(&Stage::with(driver, None).next()),
            unsupported,
            "{driver}"
        );
    }
}

#[test]
fn a_part_of_the_clients_tells_nothing_of_the_card() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &amdgpu(1, "drm-engine-gfx: 5 ns"));
    let _ = stage.next();
    stage.found.unseen = Some("a look was cut short".into());
    let used = stage.next();
    assert_eq!(used.utilization, failed("a look was cut short"));
    assert_eq!(used.processes[0].utilization.sm, percent(0));
}

#[test]
fn a_video_unit_that_does_both_in_one_queue_is_not_said_not_to_decode() {
    let mut stage = Stage::new();
    stage.open(process(7), 3, &amdgpu(1, ""));
    let _ = stage.next();
    stage.open(process(7), 3, &amdgpu(1, "drm-engine-enc: 400000000 ns"));
    let unified = [percent(0), percent(40), Reading::Unsupported];
    assert_eq!(shares(&stage.next()), unified);
    let jpeg = "drm-engine-enc: 400000000 ns\ndrm-engine-jpeg: 10000000 ns";
    stage.open(process(7), 3, &amdgpu(1, jpeg));
    assert_eq!(stage.next().decoder, Reading::Unsupported);
    let separate = "drm-engine-enc: 400000000 ns\ndrm-engine-dec: 300000000 ns";
    stage.open(process(7), 3, &amdgpu(1, separate));
    assert_eq!(shares(&stage.next()), [percent(0), percent(0), percent(30)]);
}
