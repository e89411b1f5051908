//! The watch on processes, with evidence that a test sets.

mod hashes;

use super::super::rules::RogueRuleStore;
use super::*;
use crate::host::evidence::{NetworkSent, ProcessEvidence};
use crate::host::hashes::HashResult;
use crate::host::sockets::ProcessSockets;
use crate::store::Retention;
use gpukill_proto::model::{Device, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::{Risk, Threat};
use std::sync::Mutex;

/// The evidence of each process, and how often it was requested.
#[derive(Default)]
struct EvidenceScript {
    evidence: BTreeMap<u32, ProcessEvidence>,
    peers: BTreeMap<u32, &'static str>,
    reads: BTreeMap<u32, u32>,
    hashes: BTreeMap<u32, HashResult>,
    /// How often the hash of each was requested.
    asked: BTreeMap<u32, u32>,
}

struct ScriptedEvidence(Arc<Mutex<EvidenceScript>>);

impl EvidenceSource for ScriptedEvidence {
    fn process_evidence(&self, process: ProcessKey) -> Option<Arc<ProcessEvidence>> {
        let mut script = self.0.lock().unwrap();
        *script.reads.entry(process.pid).or_default() += 1;
        script.evidence.get(&process.pid).cloned().map(Arc::new)
    }

    fn forget(&self, _: ProcessKey) {}

    fn hash(&self, process: ProcessKey, _: Option<u32>) -> Option<HashResult> {
        let mut script = self.0.lock().unwrap();
        *script.asked.entry(process.pid).or_default() += 1;
        script.hashes.get(&process.pid).cloned()
    }

    fn forget_hash(&self, _: ProcessKey) {}

    fn keep_only(&self, _: &BTreeSet<ProcessKey>) {}

    fn fault(&self) -> Option<String> {
        None
    }

    fn sockets(&self, process: ProcessKey) -> Option<ProcessSockets> {
        let script = self.0.lock().unwrap();
        let peers = script.peers.get(&process.pid);
        Some(ProcessSockets {
            listens: BTreeSet::new(),
            peers: peers.iter().map(|it| it.parse().unwrap()).collect(),
        })
    }
}

struct WatchFixture {
    script: Arc<Mutex<EvidenceScript>>,
    store: Store,
    status: watch::Receiver<Arc<RogueStatus>>,
    watch: RogueWatcher,
    started: Instant,
    rules: RogueRuleStore,
    directory: tempfile::TempDir,
}

impl WatchFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let store = Store::start(path.clone(), "boot".into(), Retention::HOUR, None).unwrap();
        let rules = RogueRuleStore::start(path.join("rogue.toml"), None, store.clone());
        let script = Arc::<Mutex<EvidenceScript>>::default();
        let (sender, status) = watch::channel(Arc::default());
        let evidence = Box::new(ScriptedEvidence(Arc::clone(&script)));
        Self {
            script,
            watch: RogueWatcher::new(rules.subscribe(), evidence, store.clone(), sender),
            store,
            status,
            started: Instant::now(),
            rules,
            directory,
        }
    }

    /// A poll at that second.
    fn poll(&mut self, second: u64, processes: &[GpuProcess]) -> Arc<RogueStatus> {
        let at = self.started + Duration::from_secs(second);
        let snapshot = snapshot(second, processes);
        self.watch
            .assess_poll(&snapshot, &guard::GuardStatus::default(), at);
        Arc::clone(&self.status.borrow())
    }

    fn reads(&self, pid: u32) -> u32 {
        let script = self.script.lock().unwrap();
        script.reads.get(&pid).copied().unwrap_or_default()
    }

    fn set_arguments(&self, pid: u32, arguments: &[&str]) {
        let mut script = self.script.lock().unwrap();
        script.evidence.insert(pid, evidence(arguments));
    }

    fn set_hash(&self, pid: u32, hash: Result<&str, &str>) {
        let hash = hash.map(str::to_owned).map_err(str::to_owned);
        self.script.lock().unwrap().hashes.insert(pid, hash);
    }

    fn hash_requests(&self, pid: u32) -> u32 {
        let script = self.script.lock().unwrap();
        script.asked.get(&pid).copied().unwrap_or_default()
    }

    /// Makes the rules list these hashes of miners.
    fn set_miner_hashes(&self, hashes: &[&str]) {
        let file = self.directory.path().join("rogue.toml");
        let text = format!("[patterns]\nminer_sha256 = {hashes:?}\n");
        std::fs::write(file, text).unwrap();
        self.rules.reload();
    }

    /// The recorded findings, once there are this many.
    fn wait_for_recorded(&self, count: usize) -> Vec<RogueFinding> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found = self.store.findings_since(Timestamp(i64::MIN), None);
            match found {
                Ok(found) if found.len() >= count => return found,
                Ok(_) | Err(_) => assert!(Instant::now() < until, "{found:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn evidence(arguments: &[&str]) -> ProcessEvidence {
    ProcessEvidence {
        executable: Some("/usr/bin/python3.11".into()),
        arguments: Some(arguments.iter().map(|&it| it.to_owned()).collect()),
        libraries: Some(["libtorch_cuda.so".to_owned()].into()),
        sent: NetworkSent::Shared,
        unavailable: Vec::new(),
    }
}

fn snapshot(second: u64, processes: &[GpuProcess]) -> Snapshot {
    let device = DeviceId("GPU-0".into());
    let device = Device::unknown(device, 3, Vendor::Nvidia, &Reading::Unsupported);
    Snapshot {
        host: String::new(),
        taken_at: Timestamp::default().plus_seconds(i64::try_from(second).unwrap()),
        polls: second,
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
fn miner_is_found_by_name_then_by_arguments() {
    let mut fixture = WatchFixture::new();
    let miner = [process(1, "xmrig"), process(2, "python3")];
    let status = fixture.poll(0, &miner);
    assert_eq!(status.findings.len(), 1);
    let found = &status.findings[0];
    assert_eq!((found.process, found.uid), (key_of(1), Some(1004)));
    assert_eq!((&found.gpus[..], found.is_present), (&[3][..], true));
    assert_eq!(found.verdicts[0].risk, Risk::High);
    assert!(status.assessments[&key_of(2)].verdicts.is_empty());
    fixture.set_arguments(1, &POOL);
    fixture.set_arguments(2, &["python3", "train.py"]);
    let status = fixture.poll(2, &miner);
    assert_eq!(status.findings[0].verdicts[0].risk, Risk::Critical);
    assert_eq!(status.findings[0].since, Timestamp(0));
    let suspected = status.suspicions[&key_of(1)].unwrap();
    assert_eq!(
        (suspected.risk, suspected.threat),
        (Risk::Critical, Threat::CryptoMiner)
    );
    assert_eq!(status.suspicions[&key_of(2)], None);
    // It was reported and recorded both times.
    let risks: Vec<Risk> = fixture
        .wait_for_recorded(2)
        .iter()
        .map(|it| it.verdicts[0].risk)
        .collect();
    assert_eq!(risks, [Risk::Critical, Risk::High]);
}

#[test]
fn unchanged_process_is_read_rarely_and_reported_once() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &POOL);
    let miner = [process(1, "python3")];
    let polls = (0..3_600).step_by(2);
    let mut assessed_at = BTreeSet::new();
    for second in polls {
        let status = fixture.poll(second, &miner);
        assessed_at.insert(status.assessments[&key_of(1)].at);
    }
    // At 0, 4, 12, 28, … 1020 s, and then every ten minutes.
    assert_eq!(fixture.reads(1), 13);
    // Nothing changed after the first two assessments.
    assert!(assessed_at.len() <= 2, "{assessed_at:?}");
    assert_eq!(fixture.wait_for_recorded(1).len(), 1);
}

#[test]
fn new_program_is_read_at_once() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &["python3", "train.py"]);
    for second in (0..600).step_by(2) {
        fixture.poll(second, &[process(1, "python3")]);
    }
    let before = fixture.reads(1);
    fixture.set_arguments(1, &POOL);
    assert!(
        fixture
            .poll(600, &[process(1, "python3")])
            .findings
            .is_empty()
    );
    let other = GpuProcess {
        executable: Reading::Value("/tmp/python3".into()),
        ..process(1, "python3")
    };
    let status = fixture.poll(602, &[other]);
    assert_eq!(fixture.reads(1), before + 1);
    assert_eq!(status.findings.len(), 1);
}

#[test]
fn changed_command_is_read_with_backoff() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &["python3", "train.py"]);
    let titled = |title: String| GpuProcess {
        command: Reading::Value(title),
        ..process(1, "python3")
    };
    for second in (0..600).step_by(2) {
        fixture.poll(second, &[titled("python3 train.py".into())]);
    }
    let before = fixture.reads(1);
    fixture.set_arguments(1, &POOL);
    fixture.poll(600, &[titled("python3 -o pool".into())]);
    assert_eq!(
        fixture
            .poll(604, &[titled("python3 -o pool".into())])
            .findings
            .len(),
        1
    );
    assert_eq!(fixture.reads(1), before + 1);
    for second in (606..1_206).step_by(2) {
        fixture.poll(second, &[titled(format!("step {second}"))]);
    }
    assert!(fixture.reads(1) - before < 20, "{}", fixture.reads(1));
}

#[test]
fn connection_counts_when_it_is_made() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &["xmrig"]);
    let miner = [process(1, "xmrig")];
    let score = |status: &RogueStatus| status.assessments[&key_of(1)].score;
    let alone = score(&fixture.poll(0, &miner));
    let mut script = fixture.script.lock().unwrap();
    script.peers.insert(1, "203.0.113.9:3333");
    drop(script);
    assert_eq!(score(&fixture.poll(8, &miner)), alone);
    let status = fixture.poll(10, &miner);
    assert!(score(&status) > alone);
    assert!(status.suspicions[&key_of(1)].unwrap().is_actionable);
}

#[test]
fn new_rules_reassess_and_gone_is_no_finding() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &["xmrig"]);
    let miner = [process(1, "xmrig"), process(2, "python3")];
    assert_eq!(fixture.poll(0, &miner).findings.len(), 1);
    let file = fixture.directory.path().join("rogue.toml");
    std::fs::write(file, "[patterns]\nuser_whitelist = ['eve']\n").unwrap();
    fixture.rules.reload();
    assert!(fixture.poll(2, &miner).findings.is_empty());
    std::fs::remove_file(fixture.directory.path().join("rogue.toml")).unwrap();
    fixture.rules.reload();
    assert_eq!(fixture.poll(4, &miner).findings.len(), 1);
    let status = fixture.poll(6, &miner[1..]);
    assert!(status.findings.is_empty());
    assert_eq!(status.assessments.len(), 1);
    // It was reported once.
    assert_eq!(fixture.wait_for_recorded(1).len(), 1);
}

#[test]
fn guard_ignores_verdicts_of_fallback_rules() {
    let mut fixture = WatchFixture::new();
    let miner = [process(1, "xmrig")];
    let suspected = |status: &RogueStatus| status.suspicions.get(&key_of(1)).copied();
    assert!(suspected(&fixture.poll(0, &miner)).is_some());
    let file = fixture.directory.path().join("rogue.toml");
    std::fs::write(&file, "[patterns]\nuser_whitelst = ['eve']\n").unwrap();
    fixture.rules.reload();
    let status = fixture.poll(2, &miner);
    assert_eq!((suspected(&status), status.findings.len()), (None, 1));
    std::fs::write(&file, "").unwrap();
    fixture.rules.reload();
    assert!(suspected(&fixture.poll(4, &miner)).is_some());
    // The rules before the mistake were written by an admin.
    std::fs::write(&file, "[patterns]\nuser_whitelst = ['eve']\n").unwrap();
    fixture.rules.reload();
    assert!(suspected(&fixture.poll(6, &miner)).is_some());
}

#[test]
fn own_namespace_counts_from_first_reading() {
    let mut fixture = WatchFixture::new();
    let mut sends = |second, namespace, bytes| {
        let sent = NetworkSent::Own { namespace, bytes };
        let evidence = ProcessEvidence {
            sent,
            ..evidence(&["python3"])
        };
        fixture.script.lock().unwrap().evidence.insert(1, evidence);
        let status = fixture.poll(second, &[process(1, "python3")]);
        let indicators = &status.assessments[&key_of(1)].indicators;
        indicators
            .iter()
            .any(|indicator| indicator.kind == "sent_much")
    };
    let much = 200 << 30;
    assert!(!sends(0, 5, much));
    assert!(sends(4, 5, 2 * much));
    // In another namespace counting starts again.
    assert!(!sends(100, 6, much));
}

#[test]
fn restarted_daemon_reports_nothing_twice() {
    let mut fixture = WatchFixture::new();
    let miner = [process(1, "xmrig")];
    fixture.poll(0, &miner);
    let findings = fixture.wait_for_recorded(1);
    let (sender, _status) = watch::channel(Arc::default());
    let evidence = Box::new(ScriptedEvidence(Arc::clone(&fixture.script)));
    fixture.watch = RogueWatcher::new(
        fixture.rules.subscribe(),
        evidence,
        fixture.store.clone(),
        sender,
    );
    fixture.watch.findings.restore_reported(findings[0].clone());
    fixture.poll(2, &miner);
    fixture.set_arguments(1, &POOL);
    fixture.poll(10, &miner);
    let risks: Vec<Risk> = fixture
        .wait_for_recorded(2)
        .iter()
        .map(|it| it.verdicts[0].risk)
        .collect();
    assert_eq!(risks, [Risk::Critical, Risk::High]);
}

#[test]
fn one_owner_cannot_displace_others() {
    let of = |pid: u32, uid: u32| GpuProcess {
        owner: Reading::Value(gpukill_proto::model::Owner {
            name: format!("u{uid}"),
            uid: Some(uid),
            kind: gpukill_proto::model::OwnerKind::User,
        }),
        ..process(pid, "x")
    };
    let mut processes: Vec<GpuProcess> = (1..=50).map(|pid| of(pid, 1001)).collect();
    processes.extend([of(60, 1002), of(61, 1002)]);
    let snapshot = snapshot(1, &processes);
    let (watched, beyond) = select_present(&snapshot, 10);
    let pids: Vec<u32> = watched.keys().map(|key| key.pid).collect();
    assert_eq!((pids, beyond), (vec![1, 2, 3, 4, 5, 6, 7, 8, 60, 61], 42));
    assert_eq!(select_present(&snapshot, 52).1, 0);
}
