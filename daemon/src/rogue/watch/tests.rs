//! The watch over processes that say of themselves what a test wants.

mod hashes;

mod owners;

use super::super::rules::Keeper;
use super::*;
use crate::audit::Keep;
use crate::host::connections::Sockets;
use crate::host::hashes::Hash;
use crate::host::traces::{Sending, Traces};
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::{Risk, Threat};
use gpukill_proto::snapshot::{Device, Vendor};
use std::sync::Mutex;

/// What processes would tell, and how often each was asked to be read.
#[derive(Default)]
struct Script {
    traces: BTreeMap<u32, Traces>,
    peers: BTreeMap<u32, &'static str>,
    reads: BTreeMap<u32, u32>,
    hashes: BTreeMap<u32, Hash>,
    /// How often each was asked for its hash.
    asked: BTreeMap<u32, u32>,
}

struct Scripted(Arc<Mutex<Script>>);

impl Witness for Scripted {
    fn traces(&self, process: ProcessKey) -> Option<Arc<Traces>> {
        let mut script = self.0.lock().unwrap();
        *script.reads.entry(process.pid).or_default() += 1;
        script.traces.get(&process.pid).cloned().map(Arc::new)
    }

    fn forget(&self, _: ProcessKey) {}

    fn hash(&self, process: ProcessKey, _: Option<u32>) -> Option<Hash> {
        let mut script = self.0.lock().unwrap();
        *script.asked.entry(process.pid).or_default() += 1;
        script.hashes.get(&process.pid).cloned()
    }

    fn forget_hash(&self, _: ProcessKey) {}

    fn keep_only(&self, _: &BTreeSet<ProcessKey>) {}

    fn fault(&self) -> Option<String> {
        None
    }

    fn sockets(&self, process: ProcessKey) -> Option<Sockets> {
        let script = self.0.lock().unwrap();
        let peers = script.peers.get(&process.pid);
        Some(Sockets {
            listens: BTreeSet::new(),
            peers: peers.iter().map(|it| it.parse().unwrap()).collect(),
        })
    }
}

struct Stage {
    script: Arc<Mutex<Script>>,
    store: Store,
    standing: watch::Receiver<Arc<Standing>>,
    watch: Watch,
    began: Instant,
    keeper: Keeper,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let store = Store::start(path.clone(), "boot".into(), Keep::HOUR, None).unwrap();
        let keeper = Keeper::start(path.join("rogue.toml"), store.clone());
        let script = Arc::<Mutex<Script>>::default();
        let (standing, told) = watch::channel(Arc::default());
        let witness = Box::new(Scripted(Arc::clone(&script)));
        Self {
            script,
            watch: Watch::new(keeper.subscribe(), witness, store.clone(), standing),
            store,
            standing: told,
            began: Instant::now(),
            keeper,
            directory,
        }
    }

    /// A poll at that second.
    fn poll(&mut self, second: u64, processes: &[GpuProcess]) -> Arc<Standing> {
        let at = self.began + Duration::from_secs(second);
        let snapshot = snapshot(second, processes);
        self.watch.look(&snapshot, &guard::Standing::default(), at);
        Arc::clone(&self.standing.borrow())
    }

    fn reads(&self, pid: u32) -> u32 {
        let script = self.script.lock().unwrap();
        script.reads.get(&pid).copied().unwrap_or_default()
    }

    fn says(&self, pid: u32, arguments: &[&str]) {
        let mut script = self.script.lock().unwrap();
        script.traces.insert(pid, traces(arguments));
    }

    fn has_hash(&self, pid: u32, hash: Result<&str, &str>) {
        let hash = hash.map(str::to_owned).map_err(str::to_owned);
        self.script.lock().unwrap().hashes.insert(pid, hash);
    }

    fn asked(&self, pid: u32) -> u32 {
        let script = self.script.lock().unwrap();
        script.asked.get(&pid).copied().unwrap_or_default()
    }

    /// Has these be the hashes of miners.
    fn looks_for(&self, hashes: &[&str]) {
        let file = self.directory.path().join("rogue.toml");
        let text = format!("[patterns]\nminer_sha256 = {hashes:?}\n");
        std::fs::write(file, text).unwrap();
        self.keeper.reload();
    }

    /// What was recorded, when it is so much.
    fn recorded(&self, count: usize) -> Vec<Finding> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found = self.store.found_since(Timestamp(i64::MIN), None);
            match found {
                Ok(found) if found.len() >= count => return found,
                Ok(_) | Err(_) => assert!(Instant::now() < until, "{found:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn traces(arguments: &[&str]) -> Traces {
    Traces {
        executable: Some("/usr/bin/python3.11".into()),
        arguments: Some(arguments.iter().map(|&it| it.to_owned()).collect()),
        libraries: Some(["libtorch_cuda.so".to_owned()].into()),
        sent: Sending::Shared,
        unseen: Vec::new(),
    }
}

fn snapshot(second: u64, processes: &[GpuProcess]) -> Snapshot {
    let device = DeviceId("GPU-0".into());
    let device = Device::unknown(device, 3, Vendor::Nvidia, &Reading::Unsupported);
    Snapshot {
        host: String::new(),
        taken_at: Timestamp::default().plus_seconds(i64::try_from(second).unwrap()),
        tick: second,
        devices: vec![device],
        processes: processes.to_vec(),
        backends: Vec::new(),
        faults: Vec::new(),
    }
}

fn process(pid: u32, name: &str) -> GpuProcess {
    GpuProcess {
        start_ticks: Reading::Value(7),
        uid: Reading::Value(1004),
        user: Reading::Value("eve".into()),
        name: Reading::Value(name.into()),
        executable: Reading::Value("/usr/bin/python3.11".into()),
        ..GpuProcess::unknown(
            DeviceId("GPU-0".into()),
            pid,
            Timestamp(0),
            &Reading::Unsupported,
        )
    }
}

fn key_of(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: 7,
    }
}

const POOL: [&str; 4] = [
    "python3",
    "--nicehash",
    "-o",
    "stratum+tcp://pool.example:4444",
];

#[test]
fn a_miner_is_known_by_its_name_at_first_sight_and_by_more_once_it_was_read() {
    let mut stage = Stage::new();
    let miner = [process(1, "xmrig"), process(2, "python3")];
    let standing = stage.poll(0, &miner);
    assert_eq!(standing.findings.len(), 1);
    let found = &standing.findings[0];
    assert_eq!((found.process, found.uid), (key_of(1), Some(1004)));
    assert_eq!((&found.gpus[..], found.is_present), (&[3][..], true));
    assert_eq!(found.verdicts[0].risk, Risk::High);
    assert!(standing.looked[&key_of(2)].verdicts.is_empty());
    stage.says(1, &POOL);
    stage.says(2, &["python3", "train.py"]);
    let standing = stage.poll(2, &miner);
    assert_eq!(standing.findings[0].verdicts[0].risk, Risk::Critical);
    assert_eq!(standing.findings[0].since, Timestamp(0));
    let suspected = standing.suspicions[&key_of(1)].unwrap();
    assert_eq!(
        (suspected.risk, suspected.threat),
        (Risk::Critical, Threat::CryptoMiner)
    );
    assert_eq!(standing.suspicions[&key_of(2)], None);
    // Both times it was told, and recorded.
    let risks: Vec<Risk> = stage
        .recorded(2)
        .iter()
        .map(|it| it.verdicts[0].risk)
        .collect();
    assert_eq!(risks, [Risk::Critical, Risk::High]);
}

#[test]
fn who_is_as_before_is_read_less_and_less_often_and_told_of_once() {
    let mut stage = Stage::new();
    stage.says(1, &POOL);
    let miner = [process(1, "python3")];
    let polls = (0..3_600).step_by(2);
    let mut tellings = BTreeSet::new();
    for second in polls {
        let standing = stage.poll(second, &miner);
        tellings.insert(standing.looked[&key_of(1)].at);
    }
    // At 0, 4, 12, 28, … 1020 s, and then every ten minutes.
    assert_eq!(stage.reads(1), 13);
    // Nothing was otherwise after the first two looks.
    assert!(tellings.len() <= 2, "{tellings:?}");
    assert_eq!(stage.recorded(1).len(), 1);
}

#[test]
fn who_executes_something_else_is_read_at_once() {
    let mut stage = Stage::new();
    stage.says(1, &["python3", "train.py"]);
    for second in (0..600).step_by(2) {
        stage.poll(second, &[process(1, "python3")]);
    }
    let before = stage.reads(1);
    stage.says(1, &POOL);
    assert!(
        stage
            .poll(600, &[process(1, "python3")])
            .findings
            .is_empty()
    );
    let other = GpuProcess {
        executable: Reading::Value("/tmp/python3".into()),
        ..process(1, "python3")
    };
    let standing = stage.poll(602, &[other]);
    assert_eq!(stage.reads(1), before + 1);
    assert_eq!(standing.findings.len(), 1);
}

#[test]
fn whose_command_line_changes_is_read_soon_and_whoever_changes_it_all_the_time_seldom() {
    let mut stage = Stage::new();
    stage.says(1, &["python3", "train.py"]);
    let titled = |title: String| GpuProcess {
        command: Reading::Value(title),
        ..process(1, "python3")
    };
    for second in (0..600).step_by(2) {
        stage.poll(second, &[titled("python3 train.py".into())]);
    }
    let before = stage.reads(1);
    stage.says(1, &POOL);
    stage.poll(600, &[titled("python3 -o pool".into())]);
    assert_eq!(
        stage
            .poll(604, &[titled("python3 -o pool".into())])
            .findings
            .len(),
        1
    );
    assert_eq!(stage.reads(1), before + 1);
    for second in (606..1_206).step_by(2) {
        stage.poll(second, &[titled(format!("step {second}"))]);
    }
    assert!(stage.reads(1) - before < 20, "{}", stage.reads(1));
}

#[test]
fn a_connection_counts_when_it_is_made() {
    let mut stage = Stage::new();
    stage.says(1, &["xmrig"]);
    let miner = [process(1, "xmrig")];
    let score = |standing: &Standing| standing.looked[&key_of(1)].score;
    let alone = score(&stage.poll(0, &miner));
    let mut script = stage.script.lock().unwrap();
    script.peers.insert(1, "203.0.113.9:3333");
    drop(script);
    assert_eq!(score(&stage.poll(8, &miner)), alone);
    let standing = stage.poll(10, &miner);
    assert!(score(&standing) > alone);
    assert!(standing.suspicions[&key_of(1)].unwrap().may_be_acted_on);
}

#[test]
fn other_rules_judge_anew_and_who_is_gone_is_no_finding() {
    let mut stage = Stage::new();
    stage.says(1, &["xmrig"]);
    let miner = [process(1, "xmrig"), process(2, "python3")];
    assert_eq!(stage.poll(0, &miner).findings.len(), 1);
    let file = stage.directory.path().join("rogue.toml");
    std::fs::write(file, "[patterns]\nuser_whitelist = ['eve']\n").unwrap();
    stage.keeper.reload();
    assert!(stage.poll(2, &miner).findings.is_empty());
    std::fs::remove_file(stage.directory.path().join("rogue.toml")).unwrap();
    stage.keeper.reload();
    assert_eq!(stage.poll(4, &miner).findings.len(), 1);
    let standing = stage.poll(6, &miner[1..]);
    assert!(standing.findings.is_empty());
    assert_eq!(standing.looked.len(), 1);
    // It was told once.
    assert_eq!(stage.recorded(1).len(), 1);
}

#[test]
fn by_rules_that_nobody_wrote_the_guard_goes_by_nothing() {
    let mut stage = Stage::new();
    let miner = [process(1, "xmrig")];
    let suspected = |standing: &Standing| standing.suspicions.get(&key_of(1)).copied();
    assert!(suspected(&stage.poll(0, &miner)).is_some());
    let file = stage.directory.path().join("rogue.toml");
    std::fs::write(&file, "[patterns]\nuser_whitelst = ['eve']\n").unwrap();
    stage.keeper.reload();
    let standing = stage.poll(2, &miner);
    assert_eq!((suspected(&standing), standing.findings.len()), (None, 1));
    std::fs::write(&file, "").unwrap();
    stage.keeper.reload();
    assert!(suspected(&stage.poll(4, &miner)).is_some());
    // What held before the mistake was written by somebody.
    std::fs::write(&file, "[patterns]\nuser_whitelst = ['eve']\n").unwrap();
    stage.keeper.reload();
    assert!(suspected(&stage.poll(6, &miner)).is_some());
}

#[test]
fn what_a_network_namespace_of_its_own_sent_counts_from_the_first_look_on() {
    let mut stage = Stage::new();
    let mut sends = |second, namespace, bytes| {
        let sent = Sending::Own { namespace, bytes };
        let traces = Traces {
            sent,
            ..traces(&["python3"])
        };
        stage.script.lock().unwrap().traces.insert(1, traces);
        let standing = stage.poll(second, &[process(1, "python3")]);
        let signs = &standing.looked[&key_of(1)].signs;
        signs.iter().any(|sign| sign.kind == "sent_much")
    };
    let much = 200 << 30;
    assert!(!sends(0, 5, much));
    assert!(sends(4, 5, 2 * much));
    // Elsewhere it begins anew.
    assert!(!sends(100, 6, much));
}

#[test]
fn a_daemon_that_is_started_anew_tells_nobody_twice() {
    let mut stage = Stage::new();
    let miner = [process(1, "xmrig")];
    stage.poll(0, &miner);
    let told = stage.recorded(1);
    let (standing, _told) = watch::channel(Arc::default());
    let witness = Box::new(Scripted(Arc::clone(&stage.script)));
    stage.watch = Watch::new(
        stage.keeper.subscribe(),
        witness,
        stage.store.clone(),
        standing,
    );
    stage.watch.findings.was_told(told[0].clone());
    stage.poll(2, &miner);
    stage.says(1, &POOL);
    stage.poll(10, &miner);
    let risks: Vec<Risk> = stage
        .recorded(2)
        .iter()
        .map(|it| it.verdicts[0].risk)
        .collect();
    assert_eq!(risks, [Risk::Critical, Risk::High]);
}
